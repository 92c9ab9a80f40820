//! Operations on open files.

use crate::p1::*;

crate::cases![
    fd_advise,
    fd_filestat_set,
    fd_sync,
    file_allocate,
    file_pread_pwrite,
    file_read_after_the_end,
    file_seek_tell,
    file_truncation,
    file_unbuffered_write,
    fopen_with_access,
    fstflags_validate,
    lseek,
    pread_with_access,
    pwrite_with_access,
    pwrite_with_append,
];

/// Advice changes nothing, and invalid advice is an error.
fn fd_advise(dir: Fd) {
    let file = create(dir, "file");
    works(set_size(file, 100));
    for advice in [
        ADVICE_NORMAL,
        ADVICE_SEQUENTIAL,
        ADVICE_RANDOM,
        ADVICE_WILLNEED,
        ADVICE_DONTNEED,
        ADVICE_NOREUSE,
    ] {
        works(advise(file, 10, 50, advice));
    }
    works(advise(file, 200, 0, ADVICE_NORMAL));
    assert_eq!(works(stat(file)).size, 100);
    fails(advise(dir, 0, 0, ADVICE_NORMAL), &[ERRNO_BADF]);
}

fn fd_filestat_set(dir: Fd) {
    let file = create(dir, "file");
    let before = works(stat(file));
    assert_eq!(before.size, 0);
    assert_eq!(before.filetype, FILETYPE_REGULAR_FILE);
    works(set_size(file, 100));
    assert_eq!(works(stat(file)).size, 100);
    let earlier = before.mtim - 100;
    works(set_times(file, earlier, earlier, FSTFLAGS_MTIM));
    let after = works(stat(file));
    assert_eq!(
        (after.size, after.mtim, after.atim),
        (100, earlier, before.atim)
    );
    works(set_times(
        file,
        earlier,
        0,
        FSTFLAGS_ATIM | FSTFLAGS_MTIM_NOW,
    ));
    let after = works(stat(file));
    assert_eq!(after.atim, earlier);
    assert!(after.mtim > earlier);
}

fn fd_sync(dir: Fd) {
    let file = create(dir, "file");
    works(write(file, b"ding"));
    works(sync(file));
    works(datasync(file));
}

/// Allocated space extends the file, if the host supports allocation.
fn file_allocate(dir: Fd) {
    let file = create(dir, "file");
    let allocated = allocate(file, 0, 100);
    if allocated == Err(ERRNO_NOTSUP) {
        assert_eq!(works(stat(file)).size, 0);
        return;
    }
    works(allocated);
    assert_eq!(works(stat(file)).size, 100);
    works(allocate(file, 10, 10));
    assert_eq!(works(stat(file)).size, 100);
    works(allocate(file, 90, 20));
    assert_eq!(works(stat(file)).size, 110);
}

/// Reading and writing at an offset keep the position, and use several buffers in order.
fn file_pread_pwrite(dir: Fd) {
    let file = create(dir, "file");
    let mut written = works(pwrite(file, &[b"", b"di", b"ng dong"], 0));
    while written < 9 {
        written += works(pwrite(file, &[&b"ding dong"[written..]], written as u64));
    }
    assert_eq!(written, 9);
    assert_eq!(works(tell(file)), 0);
    let (mut one, mut other) = ([0; 2], [0; 4]);
    let read = works(pread(file, &mut [&mut [], &mut one, &mut other], 1));
    assert_eq!(&one, b"in");
    if read > one.len() {
        assert_eq!(other[..read - one.len()], b"g do"[..read - one.len()]);
    }
    assert_eq!(works(pread(file, &mut [&mut other], 7)), 2);
    assert_eq!(&other[..2], b"ng");
    assert_eq!(works(pread(file, &mut [&mut other], 9)), 0, "at the end");
    assert_eq!(works(pread(file, &mut [&mut other], 1_000)), 0, "beyond it");
    assert_eq!(works(tell(file)), 0);
    works(pwrite(file, &[b"!"], 20));
    assert_eq!(works(stat(file)).size, 21);
    let mut hole = [1; 11];
    assert_eq!(works(pread(file, &mut [&mut hole], 9)), 11);
    assert_eq!(hole, [0; 11]);
}

fn file_seek_tell(dir: Fd) {
    let file = create(dir, "file");
    assert_eq!(works(tell(file)), 0);
    assert_eq!(works(write(file, &[0; 100])), 100);
    assert_eq!(works(tell(file)), 100);
    assert_eq!(works(seek(file, -50, WHENCE_CUR)), 50);
    assert_eq!(works(tell(file)), 50);
    assert_eq!(works(seek(file, -20, WHENCE_END)), 80);
    assert_eq!(works(seek(file, 0, WHENCE_SET)), 0);
    assert_eq!(
        works(seek(file, 1_000, WHENCE_SET)),
        1_000,
        "beyond the end"
    );
    fails(seek(file, -2_000, WHENCE_CUR), &[ERRNO_INVAL]);
    fails(seek(file, -1, WHENCE_SET), &[ERRNO_INVAL]);
    assert_eq!(works(tell(file)), 1_000);
    assert_eq!(works(stat(file)).size, 100);
}

fn file_truncation(dir: Fd) {
    let file = create(dir, "file");
    works(write(file, b"ding dong"));
    works(close(file));
    let file = works(open(dir, "file", OFLAGS_CREAT | OFLAGS_TRUNC, READ_WRITE));
    assert_eq!(works(read(file, 9)), b"");
    assert_eq!(works(stat(file)).size, 0);
    works(write(file, b"ding"));
    works(set_size(file, 2));
    assert_eq!(works(stat(file)).size, 2);
    works(set_size(file, 6));
    works(seek(file, 0, WHENCE_SET));
    assert_eq!(works(read(file, 9)), b"di\0\0\0\0");
}

/// Data written through one descriptor is immediately visible through another.
fn file_unbuffered_write(dir: Fd) {
    let reader = works(open(dir, "file", OFLAGS_CREAT, READ));
    let writer = works(open(dir, "file", 0, WRITE));
    assert_eq!(works(write(writer, b"x")), 1);
    assert_eq!(works(read(reader, 10)), b"x");
}

/// A descriptor at the end of a file can read data that is appended later, like `tail -f`.
fn file_read_after_the_end(dir: Fd) {
    let writer = create(dir, "file");
    let reader = works(open(dir, "file", 0, READ));
    assert_eq!(works(read(reader, 10)), b"");
    works(write(writer, b"x"));
    works(seek(reader, 0, WHENCE_CUR));
    assert_eq!(works(read(reader, 10)), b"x", "after a seek");
    assert_eq!(works(read(reader, 10)), b"");
    works(write(writer, b"y"));
    assert_eq!(works(read(reader, 10)), b"y", "without one");
}

/// The same with the standard library.
fn fopen_with_access(_: Fd) {
    std::fs::write("/scratch/file", "ding").expect("writing");
    assert_eq!(std::fs::read("/scratch/file").expect("reading"), b"ding");
}

/// Setting one time in two ways is an error.
fn fstflags_validate(dir: Fd) {
    let file = create(dir, "file");
    let before = works(stat(file));
    for both in [
        FSTFLAGS_ATIM | FSTFLAGS_ATIM_NOW,
        FSTFLAGS_MTIM | FSTFLAGS_MTIM_NOW,
        FSTFLAGS_ATIM | FSTFLAGS_ATIM_NOW | FSTFLAGS_MTIM,
    ] {
        fails(set_times(file, 0, 0, both), &[ERRNO_INVAL]);
    }
    let after = works(stat(file));
    assert_eq!((after.atim, after.mtim), (before.atim, before.mtim));
}

fn lseek(_: Fd) {
    use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

    let mut how = std::fs::File::options();
    let how = how.read(true).write(true).create(true).truncate(true);
    let mut file = how.open("/scratch/file").expect("opening");
    file.write_all(b"ding dong").expect("writing");
    assert_eq!(file.seek(SeekFrom::Start(5)).expect("seeking"), 5);
    let mut text = String::new();
    file.read_to_string(&mut text).expect("reading");
    assert_eq!(text, "dong");
    assert_eq!(file.seek(SeekFrom::End(-2)).expect("seeking"), 7);
    assert_eq!(file.seek(SeekFrom::Current(-7)).expect("seeking"), 0);
    assert!(file.seek(SeekFrom::Current(-1)).is_err());
}

/// A file that is open only for writing cannot be read at any offset.
fn pread_with_access(dir: Fd) {
    touch(dir, "file");
    let file = works(open(dir, "file", 0, WRITE));
    let refused = [ERRNO_BADF, ERRNO_NOTCAPABLE, ERRNO_ACCES];
    fails(pread(file, &mut [&mut [0; 4]], 0), &refused);
    let file = works(open(dir, "file", 0, READ));
    assert_eq!(works(pread(file, &mut [&mut [0; 4]], 0)), 0);
}

/// A file that is open only for reading cannot be written at any offset.
fn pwrite_with_access(dir: Fd) {
    touch(dir, "file");
    let file = works(open(dir, "file", 0, READ));
    let refused = [ERRNO_BADF, ERRNO_NOTCAPABLE, ERRNO_ACCES];
    fails(pwrite(file, &[b"ding"], 0), &refused);
    assert_eq!(works(stat(file)).size, 0);
    let file = works(open(dir, "file", 0, WRITE));
    assert_eq!(works(pwrite(file, &[b"ding"], 3)), 4);
    assert_eq!(works(stat(file)).size, 7);
}

/// With `APPEND`, POSIX writes at the offset and Linux at the end. Neither loses data.
fn pwrite_with_append(dir: Fd) {
    let file = works(open_with(
        dir,
        NO_FOLLOW,
        "file",
        OFLAGS_CREAT,
        READ_WRITE,
        FDFLAGS_APPEND,
    ));
    works(write(file, b"ding"));
    assert_eq!(works(pwrite(file, &[b"DO"], 0)), 2);
    works(seek(file, 0, WHENCE_SET));
    let found = works(read(file, 10));
    assert!(found == b"DOng" || found == b"dingDO", "{found:?}");
}
