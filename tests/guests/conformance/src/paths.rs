//! Operations on paths: stat, link, rename and remove.

use crate::p1::*;

crate::cases![
    path_exists,
    path_filestat,
    path_link,
    path_rename,
    path_rename_dir_trailing_slashes,
    path_rename_file_trailing_slashes,
    trailing_slash_is_a_directory,
    unlink_file_trailing_slashes,
];

fn path_exists(dir: Fd) {
    works(mkdir(dir, "below"));
    touch(dir, "below/file");
    works(symlink("below/file", dir, "to_file"));
    works(symlink("below", dir, "to_dir"));
    let both = |path| [NO_FOLLOW, FOLLOW].map(|flags| works(stat_at(dir, flags, path)).filetype);
    assert_eq!(both("below"), [FILETYPE_DIRECTORY; 2]);
    assert_eq!(both("below/file"), [FILETYPE_REGULAR_FILE; 2]);
    assert_eq!(
        both("to_file"),
        [FILETYPE_SYMBOLIC_LINK, FILETYPE_REGULAR_FILE]
    );
    assert_eq!(both("to_dir"), [FILETYPE_SYMBOLIC_LINK, FILETYPE_DIRECTORY]);
    fails(stat_at(dir, FOLLOW, "nothing"), &[ERRNO_NOENT]);
}

fn path_filestat(dir: Fd) {
    let rights = works(fdstat(dir)).fs_rights_base;
    assert_ne!(rights & RIGHTS_PATH_FILESTAT_GET, 0);
    let file = works(open_with(
        dir,
        NO_FOLLOW,
        "file",
        OFLAGS_CREAT,
        READ_WRITE,
        FDFLAGS_APPEND,
    ));
    assert_eq!(works(fdstat(file)).fs_flags, FDFLAGS_APPEND);
    let before = works(stat_at(dir, NO_FOLLOW, "file"));
    assert_eq!((before.size, before.nlink), (0, 1));
    let earlier = before.mtim - 100;
    let set = |times| set_times_at(dir, NO_FOLLOW, "file", earlier, earlier, times);
    works(set(FSTFLAGS_MTIM));
    let after = works(stat_at(dir, NO_FOLLOW, "file"));
    assert_eq!((after.mtim, after.atim), (earlier, before.atim));
    fails(set(FSTFLAGS_MTIM | FSTFLAGS_MTIM_NOW), &[ERRNO_INVAL]);
    fails(set(FSTFLAGS_ATIM | FSTFLAGS_ATIM_NOW), &[ERRNO_INVAL]);
    assert_eq!(works(stat_at(dir, NO_FOLLOW, "file")).mtim, earlier);
    works(write(file, b"ding"));
    assert_eq!(works(stat_at(dir, NO_FOLLOW, "file")).size, 4);
}

fn path_link(dir: Fd) {
    let file = create(dir, "file");
    works(write(file, b"ding"));
    let below = create_dir(dir, "below");
    for (place, name) in [(dir, "link"), (below, "link")] {
        works(link(dir, NO_FOLLOW, "file", place, name));
        let linked = works(stat_at(place, NO_FOLLOW, name));
        let original = works(stat(file));
        assert_eq!((linked.dev, linked.ino), (original.dev, original.ino));
        assert_eq!((linked.size, linked.nlink), (4, 2));
        works(unlink(place, name));
    }
    let again = |name| link(dir, NO_FOLLOW, "file", dir, name);
    touch(dir, "taken");
    fails(again("taken"), &[ERRNO_EXIST]);
    fails(again("file"), &[ERRNO_EXIST]);
    fails(again("below"), &[ERRNO_EXIST]);
    fails(again("link/"), &[ERRNO_NOENT]);
    let of_dir = link(dir, NO_FOLLOW, "below", dir, "link");
    fails(of_dir, &[ERRNO_PERM, ERRNO_ACCES]);
    fails(link(dir, NO_FOLLOW, "nothing", dir, "link"), &[ERRNO_NOENT]);
    // A symbolic link itself can be linked, whatever its target is.
    for target in ["nothing", "symlink"] {
        works(symlink(target, dir, "symlink"));
        works(link(dir, NO_FOLLOW, "symlink", dir, "link"));
        assert_eq!(kind(dir, "link"), FILETYPE_SYMBOLIC_LINK);
        fails(again("symlink"), &[ERRNO_EXIST]);
        works(unlink(dir, "link"));
        works(unlink(dir, "symlink"));
    }
    works(symlink("nothing", dir, "symlink"));
    let followed = link(dir, FOLLOW, "symlink", dir, "link");
    fails(followed, &[ERRNO_INVAL, ERRNO_NOENT]);
}

fn path_rename(dir: Fd) {
    let is_gone = |name| fails(stat_at(dir, NO_FOLLOW, name), &[ERRNO_NOENT]);
    // A directory is renamed to a new name, over an empty directory, over a non-empty one, and over a file.
    works(mkdir(dir, "source"));
    works(rename(dir, "source", dir, "target"));
    is_gone("source");
    assert_eq!(kind(dir, "target"), FILETYPE_DIRECTORY);
    works(mkdir(dir, "source"));
    works(rename(dir, "source", dir, "target"));
    is_gone("source");
    works(mkdir(dir, "source"));
    touch(dir, "target/file");
    fails(rename(dir, "source", dir, "target"), &[ERRNO_NOTEMPTY]);
    fails(rename(dir, "source", dir, "target/file"), &[ERRNO_NOTDIR]);
    fails(rename(dir, "source", dir, "source/below"), &[ERRNO_INVAL]);
    // A file is renamed to a new name, over a file, over a directory, and into a directory.
    touch(dir, "one");
    works(rename(dir, "one", dir, "other"));
    is_gone("one");
    let file = create(dir, "one");
    works(write(file, b"ding"));
    works(rename(dir, "one", dir, "other"));
    is_gone("one");
    assert_eq!(works(stat_at(dir, NO_FOLLOW, "other")).size, 4);
    fails(rename(dir, "other", dir, "source"), &[ERRNO_ISDIR]);
    let below = works(open(dir, "source", OFLAGS_DIRECTORY, READ));
    works(rename(dir, "other", below, "other"));
    is_gone("other");
    assert_eq!(kind(below, "other"), FILETYPE_REGULAR_FILE);
    fails(rename(dir, "nothing", dir, "something"), &[ERRNO_NOENT]);
}

fn path_rename_dir_trailing_slashes(dir: Fd) {
    works(mkdir(dir, "source"));
    works(rename(dir, "source/", dir, "target"));
    works(rename(dir, "target", dir, "source/"));
    works(rename(dir, "source/", dir, "target/"));
    assert_eq!(kind(dir, "target"), FILETYPE_DIRECTORY);
}

fn path_rename_file_trailing_slashes(dir: Fd) {
    touch(dir, "source");
    for (old, new) in [
        ("source/", "target"),
        ("source", "target/"),
        ("source/", "target/"),
    ] {
        fails(rename(dir, old, dir, new), &[ERRNO_NOTDIR]);
    }
    assert_eq!(kind(dir, "source"), FILETYPE_REGULAR_FILE);
}

/// A link before a slash is followed, and what is there must be a directory.
fn trailing_slash_is_a_directory(dir: Fd) {
    works(mkdir(dir, "below"));
    touch(dir, "below/inside");
    touch(dir, "file");
    works(symlink("below", dir, "link"));
    works(symlink("file", dir, "to_file"));
    works(symlink("nothing", dir, "dangling"));
    assert_eq!(kind(dir, "link"), FILETYPE_SYMBOLIC_LINK);
    for follow in [NO_FOLLOW, FOLLOW] {
        for path in ["link/", "link//", "below/", "below/../link/"] {
            let found = works(stat_at(dir, follow, path)).filetype;
            assert_eq!(found, FILETYPE_DIRECTORY, "{path}");
        }
        for path in ["file/", "to_file/"] {
            fails(stat_at(dir, follow, path), &[ERRNO_NOTDIR]);
        }
        fails(stat_at(dir, follow, "dangling/"), &[ERRNO_NOENT]);
        let opened = open_with(dir, follow, "link/", OFLAGS_DIRECTORY, READ, 0);
        assert_eq!(kind(works(opened), "inside"), FILETYPE_REGULAR_FILE);
        let opened = open_with(dir, follow, "to_file/", 0, READ, 0);
        fails(opened, &[ERRNO_NOTDIR]);
    }
    // Without the slash, a link that is not to be followed is not.
    let opened = open_with(dir, NO_FOLLOW, "link", OFLAGS_DIRECTORY, READ, 0);
    fails(opened, &[ERRNO_LOOP, ERRNO_NOTDIR]);
    assert_eq!(works(target_of(dir, "link", 10)), "below");
    fails(target_of(dir, "link/", 10), &[ERRNO_INVAL]);
    fails(target_of(dir, "below/", 10), &[ERRNO_INVAL]);
    fails(target_of(dir, "to_file/", 10), &[ERRNO_NOTDIR]);
    fails(target_of(dir, "dangling/", 10), &[ERRNO_NOENT]);
    for path in ["link/", "to_file/", "file/"] {
        fails(unlink(dir, path), &[ERRNO_NOTDIR]);
        fails(rmdir(dir, path), &[ERRNO_NOTDIR]);
        fails(rename(dir, path, dir, "new"), &[ERRNO_NOTDIR]);
    }
    fails(mkdir(dir, "link/"), &[ERRNO_EXIST]);
    fails(link(dir, NO_FOLLOW, "file/", dir, "hard"), &[ERRNO_NOTDIR]);
    fails(link(dir, NO_FOLLOW, "link/", dir, "hard"), &[ERRNO_PERM]);
    fails(link(dir, NO_FOLLOW, "file", dir, "hard/"), &[ERRNO_NOENT]);
    for name in ["link", "to_file", "dangling"] {
        assert_eq!(kind(dir, name), FILETYPE_SYMBOLIC_LINK);
    }
    // The same with the standard library.
    let is_link = |path: &str| {
        let found = std::fs::symlink_metadata(path).expect("metadata");
        found.file_type().is_symlink()
    };
    assert!(is_link("/scratch/link") && !is_link("/scratch/link/"));
}

fn unlink_file_trailing_slashes(dir: Fd) {
    works(mkdir(dir, "below"));
    fails(unlink(dir, "below"), &[ERRNO_ISDIR, ERRNO_PERM]);
    fails(unlink(dir, "below/"), &[ERRNO_ISDIR, ERRNO_PERM]);
    touch(dir, "file");
    fails(unlink(dir, "file/"), &[ERRNO_NOTDIR]);
    works(unlink(dir, "file"));
    fails(unlink(dir, "file"), &[ERRNO_NOENT]);
}
