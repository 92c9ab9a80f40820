//! Operations on open descriptors of all types.

use crate::p1::*;

crate::cases![
    close_preopen,
    dangling_fd,
    fd_fdstat_set_rights,
    fd_flags_set,
    overwrite_preopen,
    renumber,
    stat_dev_ino,
];

/// A directory stays open if its parent's descriptor is closed.
fn close_preopen(dir: Fd) {
    let below = create_dir(dir, "below");
    works(close(dir));
    fails(fdstat(dir), &[ERRNO_BADF]);
    fails(close(dir), &[ERRNO_BADF]);
    assert_eq!(works(fdstat(below)).fs_filetype, FILETYPE_DIRECTORY);
    touch(below, "file");
}

/// A removed file or directory can be used through an open descriptor, and its name can be used again.
fn dangling_fd(dir: Fd) {
    let file = create(dir, "file");
    works(unlink(dir, "file"));
    works(write(file, b"still here"));
    assert_eq!(works(stat(file)).size, 10);
    let again = create(dir, "file");
    assert_eq!(works(stat(again)).size, 0);
    let below = create_dir(dir, "below");
    works(rmdir(dir, "below"));
    fails(open(below, "file", OFLAGS_CREAT, WRITE), &[ERRNO_NOENT]);
    works(mkdir(dir, "below"));
    for fd in [file, again, below] {
        works(close(fd));
    }
}

/// A dropped right cannot be regained, if the host supports dropping rights.
fn fd_fdstat_set_rights(dir: Fd) {
    let file = create(dir, "file");
    works(write(file, b"ding"));
    let given_up = set_rights(file, RIGHTS_FD_SEEK | RIGHTS_FD_TELL, 0);
    if given_up == Err(ERRNO_NOTSUP) {
        assert_eq!(works(fdstat(file)).fs_rights_base & READ_WRITE, READ_WRITE);
        works(write(file, b"dong"));
        return;
    }
    works(given_up);
    assert_eq!(works(fdstat(file)).fs_rights_base & READ_WRITE, 0);
    fails(read(file, 1), &[ERRNO_BADF, ERRNO_NOTCAPABLE]);
    fails(write(file, b"dong"), &[ERRNO_BADF, ERRNO_NOTCAPABLE]);
    fails(set_rights(file, READ_WRITE, 0), &[ERRNO_NOTCAPABLE]);
}

/// A descriptor with `APPEND` writes at the end of the file, until the flag is cleared.
fn fd_flags_set(dir: Fd) {
    let file = works(open_with(
        dir,
        NO_FOLLOW,
        "file",
        OFLAGS_CREAT,
        READ_WRITE,
        FDFLAGS_APPEND,
    ));
    assert_eq!(works(fdstat(file)).fs_flags, FDFLAGS_APPEND);
    works(write(file, &[1; 100]));
    works(seek(file, 0, WHENCE_SET));
    assert_eq!(works(read(file, 200)), [1; 100]);
    works(seek(file, 0, WHENCE_SET));
    works(write(file, &[2; 100]));
    works(seek(file, 100, WHENCE_SET));
    assert_eq!(works(read(file, 200)), [2; 100]);
    works(set_flags(file, 0));
    assert_eq!(works(fdstat(file)).fs_flags, 0);
    works(seek(file, 0, WHENCE_SET));
    works(write(file, &[3; 100]));
    works(seek(file, 0, WHENCE_SET));
    assert_eq!(works(read(file, 100)), [3; 100]);
    works(set_flags(file, FDFLAGS_APPEND));
    works(seek(file, 0, WHENCE_SET));
    works(write(file, &[4; 10]));
    works(close(file));
    assert_eq!(works(stat_at(dir, NO_FOLLOW, "file")).size, 210);
}

/// The descriptor of a granted directory can be overwritten by another.
fn overwrite_preopen(dir: Fd) {
    let below = create_dir(dir, "below");
    let before = works(stat(below));
    works(move_to(below, dir));
    let after = works(stat(dir));
    assert_eq!((after.dev, after.ino), (before.dev, before.ino));
    fails(fdstat(below), &[ERRNO_BADF]);
}

/// Renumbering a descriptor frees its old number and closes the descriptor that it replaces.
fn renumber(dir: Fd) {
    let one = create(dir, "one");
    let other = create(dir, "other");
    works(write(one, b"ding"));
    let before = works(fdstat(one));
    works(move_to(one, other));
    fails(close(one), &[ERRNO_BADF]);
    let after = works(fdstat(other));
    assert_eq!(after.fs_filetype, before.fs_filetype);
    assert_eq!(after.fs_flags, before.fs_flags);
    assert_eq!(after.fs_rights_base, before.fs_rights_base);
    assert_eq!(after.fs_rights_inheriting, before.fs_rights_inheriting);
    assert_eq!(works(tell(other)), 4, "with its position");
    works(write(other, b"dong"));
    assert_eq!(works(stat_at(dir, NO_FOLLOW, "one")).size, 8);
    fails(move_to(other, one), &[ERRNO_BADF]);
    fails(move_to(one, other), &[ERRNO_BADF]);
    works(move_to(other, other));
    works(close(other));
}

/// The device and the inode identify a file, however it was opened.
fn stat_dev_ino(dir: Fd) {
    let one = create(dir, "one");
    let also_one = works(open(dir, "one", 0, READ));
    let other = create(dir, "other");
    let of = |fd| works(stat(fd));
    let (one, also_one, other) = (of(one), of(also_one), of(other));
    let by_path = works(stat_at(dir, NO_FOLLOW, "one"));
    assert_eq!((one.dev, one.ino), (also_one.dev, also_one.ino));
    assert_eq!((one.dev, one.ino), (by_path.dev, by_path.ino));
    assert_eq!(one.dev, other.dev);
    assert_ne!(one.ino, other.ino);
}
