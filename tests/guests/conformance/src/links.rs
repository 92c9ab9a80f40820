//! Symbolic links.

use crate::p1::*;

crate::cases![
    dangling_symlink,
    path_symlink_trailing_slashes,
    readlink,
    symlink_create,
    symlink_filestat,
    symlink_loop,
];

fn dangling_symlink(dir: Fd) {
    works(symlink("nothing", dir, "link"));
    for how in [0, OFLAGS_DIRECTORY] {
        let refused = [ERRNO_LOOP, ERRNO_NOTDIR];
        fails(open(dir, "link", how, READ), &refused);
        fails(open_with(dir, FOLLOW, "link", how, READ, 0), &[ERRNO_NOENT]);
    }
    fails(stat_at(dir, FOLLOW, "link"), &[ERRNO_NOENT]);
    works(unlink(dir, "link"));
}

fn path_symlink_trailing_slashes(dir: Fd) {
    fails(symlink("source", dir, "target/"), &[ERRNO_NOENT]);
    works(symlink("source", dir, "target"));
    works(unlink(dir, "target"));
    works(mkdir(dir, "target"));
    fails(symlink("source", dir, "target/"), &[ERRNO_EXIST]);
    fails(symlink("source", dir, "target"), &[ERRNO_EXIST]);
    works(rmdir(dir, "target"));
    touch(dir, "target");
    fails(
        symlink("source", dir, "target/"),
        &[ERRNO_NOTDIR, ERRNO_EXIST],
    );
    fails(symlink("source", dir, "target"), &[ERRNO_EXIST]);
}

/// A target longer than the buffer is truncated.
fn readlink(dir: Fd) {
    works(symlink("target", dir, "link"));
    assert_eq!(works(target_of(dir, "link", 10)), "target");
    assert_eq!(works(target_of(dir, "link", 6)), "target");
    assert_eq!(works(target_of(dir, "link", 4)), "targ");
    touch(dir, "file");
    fails(target_of(dir, "file", 10), &[ERRNO_INVAL]);
    fails(target_of(dir, "nothing", 10), &[ERRNO_NOENT]);
}

fn symlink_create(dir: Fd) {
    let file = create(dir, "file");
    works(write(file, b"ding"));
    works(symlink("file", dir, "to_file"));
    let through = works(open_with(dir, FOLLOW, "to_file", 0, READ, 0));
    assert_eq!(works(read(through, 10)), b"ding");
    let below = create_dir(dir, "below");
    touch(below, "other");
    works(symlink("below", dir, "to_dir"));
    works(open_with(dir, FOLLOW, "to_dir", OFLAGS_DIRECTORY, READ, 0));
    works(open(dir, "to_dir/other", 0, READ));
    // A link in a subdirectory that leads up within the granted directory.
    works(symlink("../file", below, "up"));
    works(open_with(dir, FOLLOW, "below/up", 0, READ, 0));
}

fn symlink_filestat(dir: Fd) {
    touch(dir, "file");
    works(symlink("file", dir, "link"));
    let of = |flags, path| works(stat_at(dir, flags, path));
    let file = of(NO_FOLLOW, "file");
    let link = of(NO_FOLLOW, "link");
    assert_eq!(link.filetype, FILETYPE_SYMBOLIC_LINK);
    let earlier = link.mtim - 200;
    works(set_times_at(
        dir,
        NO_FOLLOW,
        "link",
        0,
        earlier,
        FSTFLAGS_MTIM,
    ));
    assert_eq!(of(NO_FOLLOW, "link").mtim, earlier);
    assert_eq!(of(NO_FOLLOW, "file").mtim, file.mtim);
    assert_eq!(of(FOLLOW, "link").mtim, file.mtim);
    works(set_times_at(
        dir,
        FOLLOW,
        "link",
        0,
        earlier - 200,
        FSTFLAGS_MTIM,
    ));
    assert_eq!(of(NO_FOLLOW, "file").mtim, earlier - 200);
    assert_eq!(of(NO_FOLLOW, "link").mtim, earlier);
}

fn symlink_loop(dir: Fd) {
    works(symlink("link", dir, "link"));
    works(symlink("pong", dir, "ping"));
    works(symlink("ping", dir, "pong"));
    for name in ["link", "ping"] {
        fails(open(dir, name, 0, READ), &[ERRNO_LOOP]);
        fails(open_with(dir, FOLLOW, name, 0, READ, 0), &[ERRNO_LOOP]);
        fails(stat_at(dir, FOLLOW, name), &[ERRNO_LOOP]);
        assert_eq!(kind(dir, name), FILETYPE_SYMBOLIC_LINK);
    }
}
