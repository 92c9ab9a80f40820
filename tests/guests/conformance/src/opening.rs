//! Opening files and directories: paths, flags and rights.

use crate::p1::*;

crate::cases![
    interesting_paths,
    nofollow_errors,
    path_open_create_existing,
    path_open_dirfd_not_dir,
    path_open_missing,
    path_open_nonblock,
    path_open_preopen,
    path_open_read_without_rights,
    path_open_read_write,
    truncation_rights,
];

const OUTSIDE: [Errno; 2] = [ERRNO_PERM, ERRNO_NOTCAPABLE];

fn interesting_paths(dir: Fd) {
    works(mkdir(dir, "dir"));
    works(mkdir(dir, "dir/nested"));
    touch(dir, "dir/nested/file");
    for inside in [
        "dir/nested/file",
        "./dir//nested/./file",
        "dir/.//nested/../../dir/nested/../nested///./file",
        "dir/nested",
        "dir/nested/",
        "dir/nested///",
        ".",
        "dir/..",
    ] {
        works(close(works(open(dir, inside, 0, READ))));
    }
    fails(open(dir, "/dir/nested/file", 0, READ), &OUTSIDE);
    let too_far = "dir/nested/../../../scratch/dir/nested/file";
    fails(open(dir, too_far, 0, READ), &OUTSIDE);
    fails(open(dir, "..", 0, READ), &OUTSIDE);
    let nul = [ERRNO_INVAL, ERRNO_ILSEQ, ERRNO_NOENT];
    fails(open(dir, "dir/nested/file\0", 0, READ), &nul);
    fails(open(dir, "", 0, READ), &[ERRNO_NOENT]);
    for slashes in ["dir/nested/file/", "dir/nested/file///"] {
        fails(open(dir, slashes, 0, READ), &[ERRNO_NOTDIR, ERRNO_NOENT]);
    }
    let long = "x".repeat(300);
    fails(open(dir, &long, 0, READ), &[ERRNO_NAMETOOLONG]);
}

fn nofollow_errors(dir: Fd) {
    const AS_DIR: Oflags = OFLAGS_DIRECTORY;
    works(mkdir(dir, "target"));
    works(symlink("target", dir, "link"));
    fails(open(dir, "link", AS_DIR, READ), &[ERRNO_LOOP, ERRNO_NOTDIR]);
    fails(open(dir, "link", 0, READ), &[ERRNO_LOOP]);
    works(close(works(open_with(
        dir, FOLLOW, "link", AS_DIR, READ, 0,
    ))));
    works(rmdir(dir, "target"));
    touch(dir, "target");
    fails(open(dir, "link", AS_DIR, READ), &[ERRNO_LOOP, ERRNO_NOTDIR]);
    fails(open(dir, "link", 0, READ), &[ERRNO_LOOP]);
    fails(
        open_with(dir, FOLLOW, "link", AS_DIR, READ, 0),
        &[ERRNO_NOTDIR],
    );
    works(close(works(open_with(dir, FOLLOW, "link", 0, READ, 0))));
}

fn path_open_create_existing(dir: Fd) {
    touch(dir, "file");
    let anew = OFLAGS_CREAT | OFLAGS_EXCL;
    fails(open(dir, "file", anew, READ_WRITE), &[ERRNO_EXIST]);
    works(close(works(open(dir, "file", OFLAGS_CREAT, READ_WRITE))));
    works(mkdir(dir, "below"));
    fails(open(dir, "below", anew, READ_WRITE), &[ERRNO_EXIST]);
    works(symlink("nothing", dir, "link"));
    fails(
        open_with(dir, FOLLOW, "link", anew, WRITE, 0),
        &[ERRNO_EXIST],
    );
}

fn path_open_dirfd_not_dir(dir: Fd) {
    let file = create(dir, "file");
    fails(open(file, "other", OFLAGS_CREAT, READ), &[ERRNO_NOTDIR]);
    fails(open(dir, "file/other", 0, READ), &[ERRNO_NOTDIR]);
    fails(open(dir, "file", OFLAGS_DIRECTORY, READ), &[ERRNO_NOTDIR]);
}

fn path_open_missing(dir: Fd) {
    fails(open(dir, "file", 0, READ), &[ERRNO_NOENT]);
    fails(open(dir, "file", OFLAGS_TRUNC, WRITE), &[ERRNO_NOENT]);
    fails(open(dir, "below/file", OFLAGS_CREAT, WRITE), &[ERRNO_NOENT]);
}

fn path_open_nonblock(dir: Fd) {
    works(open_with(dir, NO_FOLLOW, ".", 0, READ, FDFLAGS_NONBLOCK));
    touch(dir, "file");
    works(open_with(dir, NO_FOLLOW, "file", 0, READ, FDFLAGS_NONBLOCK));
}

/// A granted directory has the rights that the C library expects.
fn path_open_preopen(dir: Fd) {
    const DIRECTORY: Rights = RIGHTS_PATH_CREATE_DIRECTORY
        | RIGHTS_PATH_CREATE_FILE
        | RIGHTS_PATH_LINK_SOURCE
        | RIGHTS_PATH_LINK_TARGET
        | RIGHTS_PATH_OPEN
        | RIGHTS_FD_READDIR
        | RIGHTS_PATH_READLINK
        | RIGHTS_PATH_RENAME_SOURCE
        | RIGHTS_PATH_RENAME_TARGET
        | RIGHTS_PATH_SYMLINK
        | RIGHTS_PATH_REMOVE_DIRECTORY
        | RIGHTS_PATH_UNLINK_FILE
        | RIGHTS_PATH_FILESTAT_GET
        | RIGHTS_PATH_FILESTAT_SET_TIMES
        | RIGHTS_FD_FILESTAT_GET
        | RIGHTS_FD_FILESTAT_SET_TIMES;
    const BELOW: Rights = DIRECTORY
        | RIGHTS_FD_DATASYNC
        | RIGHTS_FD_READ
        | RIGHTS_FD_SEEK
        | RIGHTS_FD_FDSTAT_SET_FLAGS
        | RIGHTS_FD_SYNC
        | RIGHTS_FD_TELL
        | RIGHTS_FD_WRITE
        | RIGHTS_FD_ADVISE
        | RIGHTS_FD_ALLOCATE
        | RIGHTS_FD_FILESTAT_SET_SIZE
        | RIGHTS_POLL_FD_READWRITE;
    let found = works(fdstat(dir));
    assert_eq!(found.fs_rights_base & DIRECTORY, DIRECTORY);
    assert_eq!(found.fs_rights_inheriting & BELOW, BELOW);
    works(open(dir, ".", 0, found.fs_rights_base));
    works(open(dir, ".", 0, 0));
    works(open(dir, ".", OFLAGS_DIRECTORY, 0));
    works(open(dir, ".", OFLAGS_DIRECTORY, READ));
    fails(open(dir, ".", OFLAGS_DIRECTORY, READ_WRITE), &[ERRNO_ISDIR]);
}

fn path_open_read_without_rights(dir: Fd) {
    touch(dir, "file");
    let file = works(open(dir, "file", 0, 0));
    let refused = [ERRNO_BADF, ERRNO_NOTCAPABLE, ERRNO_ACCES];
    fails(write(file, b"x"), &refused);
    fails(read(file, 1), &refused);
}

fn path_open_read_write(dir: Fd) {
    let refused = [ERRNO_BADF, ERRNO_NOTCAPABLE, ERRNO_ACCES];
    touch(dir, "file");
    let rights = |fd| works(fdstat(fd)).fs_rights_base & READ_WRITE;
    let reader = works(open(dir, "file", 0, READ));
    assert_eq!(rights(reader), READ);
    assert_eq!(works(read(reader, 10)), b"");
    fails(write(reader, b"ding"), &refused);
    let writer = works(open(dir, "file", 0, WRITE));
    assert_eq!(rights(writer), WRITE);
    fails(read(writer, 10), &refused);
    assert_eq!(works(write(writer, b"ding ")), 5);
    let both = works(open(dir, "file", 0, READ_WRITE));
    assert_eq!(rights(both), READ_WRITE);
    assert_eq!(works(read(both, 10)), b"ding ");
    assert_eq!(works(write(both, b"dong")), 4);
    assert_eq!(works(stat(both)).size, 9);
}

/// Truncating a file on opening needs the right to set sizes by path.
fn truncation_rights(dir: Fd) {
    let found = works(fdstat(dir));
    assert_eq!((found.fs_filetype, found.fs_flags), (FILETYPE_DIRECTORY, 0));
    assert_eq!(found.fs_rights_base & RIGHTS_FD_FILESTAT_SET_SIZE, 0);
    let file = create(dir, "file");
    works(write(file, b"ding"));
    if found.fs_rights_base & RIGHTS_PATH_FILESTAT_SET_SIZE != 0 {
        works(open(dir, "file", OFLAGS_TRUNC, 0));
        assert_eq!(works(stat(file)).size, 0);
    }
    works(write(file, b"dong"));
    works(open(dir, "file", OFLAGS_TRUNC, WRITE));
    assert_eq!(works(stat(file)).size, 0);
}
