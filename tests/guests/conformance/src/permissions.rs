//! Read-only directories, directories without a grant, and paths that lead out of a granted directory.
//!
//! `/library` has `book` (`ding dong`), `shelf/` and symbolic links of the operator: `inside` to `book`, `outside` to a
//! file and `door` to a directory outside the granted directory, and `absolute` to that file by its absolute path.

use crate::p1::*;

crate::cases![
    absolute_links_cannot_be_made,
    fopen_with_no_access,
    grants_are_apart,
    links_out_of_it_are_not_followed,
    links_out_of_it_cannot_be_made,
    links_within_it_are_followed,
    no_way_leads_out_of_a_directory,
    not_granted,
    read_only_is_read,
    read_only_makes_and_removes_nothing,
    read_only_opens_nothing_to_write,
    read_only_sets_no_times_and_sizes,
];

/// The errors of an operation that the host or its operating system denies.
const REFUSED: [Errno; 4] = [ERRNO_PERM, ERRNO_NOTCAPABLE, ERRNO_ACCES, ERRNO_ROFS];
/// The same errors, and those of a descriptor that was opened without the right.
const NOT_SO_OPENED: [Errno; 6] = [
    ERRNO_PERM,
    ERRNO_NOTCAPABLE,
    ERRNO_ACCES,
    ERRNO_ROFS,
    ERRNO_BADF,
    ERRNO_INVAL,
];

fn library() -> Fd {
    preopened("/library")
}

fn absolute_links_cannot_be_made(dir: Fd) {
    fails(symlink("/library/book", dir, "link"), &REFUSED);
    fails(stat_at(dir, NO_FOLLOW, "link"), &[ERRNO_NOENT]);
}

/// The same with the standard library.
fn fopen_with_no_access(_: Fd) {
    std::fs::write("/library/new", "x").expect_err("writing");
    std::fs::write("/library/book", "x").expect_err("writing over it");
    std::fs::File::options()
        .append(true)
        .open("/library/book")
        .expect_err("appending");
    std::fs::create_dir("/library/new").expect_err("a directory");
    std::fs::remove_file("/library/book").expect_err("removing");
    assert_eq!(
        std::fs::read("/library/book").expect("reading"),
        b"ding dong"
    );
}

/// Files cannot be moved or linked out of a read-only directory or into it.
fn grants_are_apart(dir: Fd) {
    let library = library();
    touch(dir, "mine");
    fails(rename(library, "book", dir, "book"), &REFUSED);
    fails(rename(dir, "mine", library, "mine"), &REFUSED);
    fails(link(library, NO_FOLLOW, "book", dir, "book"), &REFUSED);
    fails(link(dir, NO_FOLLOW, "mine", library, "mine"), &REFUSED);
    fails(open(dir, "../library/book", 0, READ), &REFUSED);
}

fn links_out_of_it_are_not_followed(_: Fd) {
    let library = library();
    for name in ["outside", "door", "absolute"] {
        fails(open_with(library, FOLLOW, name, 0, READ, 0), &REFUSED);
        fails(stat_at(library, FOLLOW, name), &REFUSED);
        assert_eq!(kind(library, name), FILETYPE_SYMBOLIC_LINK);
    }
    fails(open(library, "door/secret", 0, READ), &REFUSED);
    fails(open_with(library, FOLLOW, "door/..", 0, READ, 0), &REFUSED);
}

fn links_out_of_it_cannot_be_made(dir: Fd) {
    let deep = create_dir(create_dir(dir, "below"), "deep");
    for (place, target) in [
        (dir, ".."),
        (dir, "./../below"),
        (dir, "below/../../elsewhere"),
        (deep, "../../.."),
        (deep, "../x/.."),
    ] {
        fails(symlink(target, place, "link"), &REFUSED);
        fails(stat_at(place, NO_FOLLOW, "link"), &[ERRNO_NOENT]);
    }
    // The link that leads to `deep` does not make the place of a new link deeper.
    works(symlink("below/deep", dir, "to_deep"));
    works(symlink(".", dir, "here"));
    fails(symlink("..", dir, "here/here/link"), &REFUSED);
    works(symlink("../..", dir, "to_deep/link"));
    assert_eq!(works(target_of(deep, "link", 10)), "../..");

    // Links that stay within it lead out of it when they are moved up.
    fails(rename(deep, "link", dir, "below/link"), &REFUSED);
    fails(link(deep, NO_FOLLOW, "link", dir, "link"), &REFUSED);
    fails(rename(dir, "below/deep", dir, "deep"), &REFUSED);
    works(rename(deep, "link", deep, "same"));
    works(rename(dir, "below", dir, "above"));
    works(unlink(deep, "same"));
    works(symlink("..", deep, "up"));
    works(rename(dir, "above/deep", dir, "deep"));
    fails(rename(dir, "deep/up", dir, "up"), &REFUSED);
}

fn links_within_it_are_followed(_: Fd) {
    let book = works(open_with(library(), FOLLOW, "inside", 0, READ, 0));
    assert_eq!(works(read(book, 10)), b"ding dong");
}

fn no_way_leads_out_of_a_directory(dir: Fd) {
    works(mkdir(dir, "below"));
    touch(dir, "file");
    for place in [dir, library()] {
        for path in ["..", "../..", "../elsewhere", "/", "/etc/passwd", "./../x"] {
            fails(open(place, path, 0, READ), &REFUSED);
            fails(open_with(place, FOLLOW, path, 0, READ, 0), &REFUSED);
            fails(stat_at(place, NO_FOLLOW, path), &REFUSED);
            fails(target_of(place, path, 10), &REFUSED);
        }
    }
    for path in ["../new", "/new", "below/../../new"] {
        fails(open(dir, path, OFLAGS_CREAT, WRITE), &REFUSED);
        fails(mkdir(dir, path), &REFUSED);
        fails(rmdir(dir, path), &REFUSED);
        fails(unlink(dir, path), &REFUSED);
        fails(symlink("file", dir, path), &REFUSED);
        fails(link(dir, NO_FOLLOW, "file", dir, path), &REFUSED);
        fails(rename(dir, "file", dir, path), &REFUSED);
        fails(rename(dir, path, dir, "mine"), &REFUSED);
    }
    // The same for a directory that was opened below it.
    let below = works(open(dir, "below", OFLAGS_DIRECTORY, READ));
    fails(open(below, "../file", 0, READ), &REFUSED);
}

/// Outside of the grants, a program sees at most an empty directory that it cannot write to.
fn not_granted(_: Fd) {
    for path in ["/elsewhere/file", "/etc/passwd", "/file", "/scratchy/file"] {
        std::fs::read(path).expect_err(path);
        std::fs::write(path, "x").expect_err(path);
        std::fs::create_dir_all(path).expect_err(path);
    }
    let granted = ["/scratch", "/library", "/names", "/dev"];
    for (fd, name) in preopens() {
        if granted.contains(&name.as_str()) {
            continue;
        }
        fails(open(fd, "file", OFLAGS_CREAT, WRITE), &[ERRNO_NOENT]);
        fails(open(fd, "..", 0, READ), &[ERRNO_NOENT, ERRNO_PERM]);
        fails(mkdir(fd, "below"), &REFUSED);
        fails(symlink("x", fd, "link"), &REFUSED);
        let (entries, _) = works(readdir(fd, 4_096, 0));
        assert!(
            entries
                .iter()
                .all(|entry| [".", ".."].contains(&entry.name.as_str())),
            "{name}: {entries:?}"
        );
    }
}

fn read_only_is_read(_: Fd) {
    let library = library();
    let book = works(open(library, "book", 0, READ));
    assert_eq!(works(read(book, 10)), b"ding dong");
    assert_eq!(works(stat(book)).size, 9);
    works(open(library, "shelf", OFLAGS_DIRECTORY, READ));
    let (entries, _) = works(readdir(library, 4_096, 0));
    let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        ".", "..", "absolute", "book", "door", "inside", "outside", "shelf",
    ];
    assert_eq!(names, expected);
    assert_eq!(works(target_of(library, "inside", 10)), "book");
}

fn read_only_makes_and_removes_nothing(_: Fd) {
    let library = library();
    // The same for a directory that was opened in it.
    let shelf = works(open(library, "shelf", OFLAGS_DIRECTORY, READ));
    for place in [library, shelf] {
        fails(mkdir(place, "new"), &REFUSED);
        fails(symlink("book", place, "new"), &REFUSED);
        fails(open(place, "new", OFLAGS_CREAT, READ), &REFUSED);
        fails(link(library, NO_FOLLOW, "book", place, "new"), &REFUSED);
        fails(rename(library, "book", place, "new"), &REFUSED);
    }
    fails(unlink(library, "book"), &REFUSED);
    fails(unlink(library, "inside"), &REFUSED);
    fails(rmdir(library, "shelf"), &REFUSED);
    fails(rename(library, "shelf", library, "rack"), &REFUSED);
}

fn read_only_opens_nothing_to_write(_: Fd) {
    let library = library();
    for (how, rights) in [
        (0, WRITE),
        (0, READ_WRITE),
        (OFLAGS_TRUNC, READ),
        (OFLAGS_TRUNC, WRITE),
        (OFLAGS_TRUNC, 0),
        (OFLAGS_CREAT, READ_WRITE),
        (OFLAGS_CREAT | OFLAGS_EXCL, READ_WRITE),
    ] {
        let tried = open(library, "book", how, rights);
        let excluded = how & OFLAGS_EXCL != 0 && tried.err() == Some(ERRNO_EXIST);
        if !excluded {
            fails(tried, &NOT_SO_OPENED);
        }
        assert_eq!(works(stat_at(library, NO_FOLLOW, "book")).size, 9);
    }
    let appending = open_with(library, NO_FOLLOW, "book", 0, WRITE, FDFLAGS_APPEND);
    fails(appending, &REFUSED);
    let book = works(open(library, "book", 0, READ));
    fails(write(book, b"x"), &NOT_SO_OPENED);
    fails(pwrite(book, &[b"x"], 0), &NOT_SO_OPENED);
}

fn read_only_sets_no_times_and_sizes(_: Fd) {
    let library = library();
    let before = works(stat_at(library, NO_FOLLOW, "book"));
    let book = works(open(library, "book", 0, READ));
    fails(set_size(book, 0), &NOT_SO_OPENED);
    fails(set_times(book, 0, 0, FSTFLAGS_MTIM), &NOT_SO_OPENED);
    fails(set_times(library, 0, 0, FSTFLAGS_MTIM), &NOT_SO_OPENED);
    for flags in [NO_FOLLOW, FOLLOW] {
        let times = set_times_at(library, flags, "book", 0, 0, FSTFLAGS_MTIM);
        fails(times, &REFUSED);
    }
    let after = works(stat_at(library, NO_FOLLOW, "book"));
    assert_eq!((after.size, after.mtim), (before.size, before.mtim));
}
