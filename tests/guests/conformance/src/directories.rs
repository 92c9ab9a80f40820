//! Directories and their entries.

use crate::p1::*;

crate::cases![
    dir_fd_op_failures,
    directory_seek,
    fd_readdir,
    fd_readdir_lots,
    fdopendir_with_access,
    name_is_not_utf_8,
    path_create_directory,
    remove_directory_trailing_slashes,
    remove_nonempty_directory,
];

const NO_FILE: [Errno; 3] = [ERRNO_ISDIR, ERRNO_BADF, ERRNO_NOTCAPABLE];

/// The operations on files fail on directories.
fn dir_fd_op_failures(dir: Fd) {
    assert_eq!(works(stat(dir)).filetype, FILETYPE_DIRECTORY);
    fails(
        prestat_dir_name(dir, &mut []),
        &[ERRNO_INVAL, ERRNO_NAMETOOLONG],
    );
    works(prestat_dir_name(dir, &mut [0; 100]));
    fails(read(dir, 1), &NO_FILE);
    fails(pread(dir, &mut [&mut [0; 1]], 0), &NO_FILE);
    fails(write(dir, b"x"), &NO_FILE);
    fails(pwrite(dir, &[b"x"], 0), &NO_FILE);
    fails(allocate(dir, 0, 1), &NO_FILE);
    let refused = [ERRNO_ISDIR, ERRNO_INVAL, ERRNO_BADF, ERRNO_NOTCAPABLE];
    fails(set_size(dir, 0), &refused);
}

fn directory_seek(dir: Fd) {
    let below = create_dir(dir, "below");
    for fd in [dir, below] {
        for whence in [WHENCE_SET, WHENCE_CUR, WHENCE_END] {
            fails(seek(fd, 0, whence), &NO_FILE);
        }
        fails(tell(fd), &NO_FILE);
        assert_eq!(works(fdstat(fd)).fs_rights_base & RIGHTS_FD_SEEK, 0);
    }
}

/// A directory lists `.` and `..`, and a listing can be resumed after every entry.
fn fd_readdir(dir: Fd) {
    let (mut empty, is_end) = works(readdir(dir, 4_096, 0));
    assert!(is_end);
    empty.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<&str> = empty.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, [".", ".."]);
    assert!(empty.iter().all(|entry| entry.kind == FILETYPE_DIRECTORY));
    assert_eq!(empty[0].ino, works(stat(dir)).ino);
    let file = works(stat(create(dir, "file")));
    works(mkdir(dir, "below"));
    works(symlink("file", dir, "link"));
    let (all, is_end) = works(readdir(dir, 4_096, 0));
    assert!(is_end);
    assert_eq!(all.len(), 5);
    for (name, kind) in [
        ("file", FILETYPE_REGULAR_FILE),
        ("below", FILETYPE_DIRECTORY),
        ("link", FILETYPE_SYMBOLIC_LINK),
    ] {
        let found = all.iter().find(|entry| entry.name == name);
        let found = found.unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(found.kind, kind, "{name}");
        assert!(name != "file" || found.ino == file.ino);
    }
    for (number, entry) in all.iter().enumerate() {
        let (rest, is_end) = works(readdir(dir, 4_096, entry.next));
        assert!(is_end);
        let names = |entries: &[Entry]| -> Vec<String> {
            entries.iter().map(|entry| entry.name.clone()).collect()
        };
        assert_eq!(names(&rest), names(&all[number + 1..]));
    }
}

/// A listing that needs several calls has each entry once.
fn fd_readdir_lots(dir: Fd) {
    const FILES: usize = 300;
    for number in 0..FILES {
        touch(dir, &format!("file.{number}"));
    }
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let (entries, is_end) = works(readdir(dir, 256, cookie));
        names.extend(entries.iter().map(|entry| entry.name.clone()));
        if is_end {
            break;
        }
        cookie = entries.last().expect("one fits into 256 bytes").next;
    }
    assert_eq!(names.len(), FILES + 2);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), FILES + 2);
}

/// The same with the standard library.
fn fdopendir_with_access(dir: Fd) {
    touch(dir, "file");
    let entries = std::fs::read_dir("/scratch").expect("reading");
    let names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["file"]);
}

/// `/names` has names that are not UTF-8. They are listed with escapes, and cannot be opened.
fn name_is_not_utf_8(_: Fd) {
    let odd = preopened("/names");
    let (entries, _) = works(readdir(odd, 4_096, 0));
    let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, [".", "..", "\\xff", "caf\\xe9.txt", "plain"]);
    let listed = std::fs::read_dir("/names").expect("reading");
    let mut listed: Vec<_> = listed
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    listed.sort_unstable();
    assert_eq!(listed, ["\\xff", "caf\\xe9.txt", "plain"]);
    fails(
        open(odd, "caf\\xe9.txt", 0, READ),
        &[ERRNO_NOENT, ERRNO_ILSEQ],
    );
    assert_eq!(std::fs::read("/names/plain").expect("reading"), b"plain");
}

fn path_create_directory(dir: Fd) {
    works(mkdir(dir, "below"));
    assert_eq!(kind(dir, "below"), FILETYPE_DIRECTORY);
    works(mkdir(dir, "below/deeper/"));
    assert_eq!(kind(dir, "below/deeper"), FILETYPE_DIRECTORY);
    fails(mkdir(dir, "below"), &[ERRNO_EXIST]);
    fails(mkdir(dir, "nowhere/below"), &[ERRNO_NOENT]);
    touch(dir, "file");
    fails(mkdir(dir, "file"), &[ERRNO_EXIST]);
    fails(mkdir(dir, "file/below"), &[ERRNO_NOTDIR]);
}

fn remove_directory_trailing_slashes(dir: Fd) {
    works(mkdir(dir, "below"));
    works(rmdir(dir, "below"));
    works(mkdir(dir, "below"));
    works(rmdir(dir, "below/"));
    fails(rmdir(dir, "below"), &[ERRNO_NOENT]);
    touch(dir, "file");
    fails(rmdir(dir, "file"), &[ERRNO_NOTDIR]);
    fails(rmdir(dir, "file/"), &[ERRNO_NOTDIR]);
}

fn remove_nonempty_directory(dir: Fd) {
    let below = create_dir(dir, "below");
    touch(below, "file");
    fails(rmdir(dir, "below"), &[ERRNO_NOTEMPTY]);
    works(unlink(below, "file"));
    works(rmdir(dir, "below"));
}
