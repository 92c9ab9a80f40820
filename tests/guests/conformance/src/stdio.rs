//! The three standard descriptors, and invalid descriptors.

use crate::p1::*;

crate::cases![
    fd_write_to_invalid_fd,
    fd_write_to_stdout,
    isatty,
    poll_oneoff_stdio,
    sock_shutdown_invalid_fd,
    sock_shutdown_not_sock,
    stdio,
    stdio_is_no_file,
];

const STANDARD: [Fd; 3] = [0, 1, 2];
const NOBODY: Fd = 1_000;

fn fd_write_to_invalid_fd(_: Fd) {
    fails(write(NOBODY, b"ding"), &[ERRNO_BADF]);
    fails(read(NOBODY, 1), &[ERRNO_BADF]);
    fails(fdstat(NOBODY), &[ERRNO_BADF]);
    fails(close(NOBODY), &[ERRNO_BADF]);
}

/// The test checks the printed text.
fn fd_write_to_stdout(_: Fd) {
    for (fd, text) in [(1, "ding dong\n"), (2, "the bell has cracked\n")] {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            rest = &rest[works(write(fd, rest))..];
        }
    }
    assert_eq!(works(write(1, b"")), 0);
}

/// No descriptor is a terminal, and a file is not a terminal either. A terminal is a character device without seeking.
fn isatty(dir: Fd) {
    const SEEK: Rights = RIGHTS_FD_SEEK | RIGHTS_FD_TELL;
    let file = create(dir, "file");
    for fd in STANDARD.into_iter().chain([file]) {
        let found = works(fdstat(fd));
        let is_terminal =
            found.fs_filetype == FILETYPE_CHARACTER_DEVICE && found.fs_rights_base & SEEK == 0;
        assert!(!is_terminal, "{fd}");
    }
}

fn poll_oneoff_stdio(_: Fd) {
    const LONG: u64 = 60_000_000_000;
    let late = || until(9, CLOCKID_MONOTONIC, LONG, 0);
    let events = works(poll(&[until_ready(1, EVENTTYPE_FD_READ, 0), late()]));
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].userdata, events[0].type_),
        (1, EVENTTYPE_FD_READ)
    );
    assert_eq!(events[0].error, ERRNO_SUCCESS);
    let mut pending = vec![1, 2];
    while !pending.is_empty() {
        let mut wanted: Vec<Subscription> = pending
            .iter()
            .map(|fd| until_ready(u64::from(*fd), EVENTTYPE_FD_WRITE, *fd))
            .collect();
        wanted.push(late());
        for event in works(poll(&wanted)) {
            assert_eq!(event.type_, EVENTTYPE_FD_WRITE);
            assert_eq!(event.error, ERRNO_SUCCESS);
            pending.retain(|fd| u64::from(*fd) != event.userdata);
        }
    }
}

fn sock_shutdown_invalid_fd(_: Fd) {
    fails(shutdown(NOBODY), &[ERRNO_BADF]);
}

fn sock_shutdown_not_sock(_: Fd) {
    fails(shutdown(1), &[ERRNO_NOTSOCK]);
}

/// Each descriptor is open in its direction. Stdin is at its end, because the program has read the context.
fn stdio(_: Fd) {
    assert_eq!(works(read(0, 10)), b"");
    assert_eq!(works(read(0, 10)), b"");
    for (fd, right) in [(0, READ), (1, WRITE), (2, WRITE)] {
        let found = works(fdstat(fd));
        assert_eq!(found.fs_rights_base & READ_WRITE, right, "{fd}");
        assert_eq!(found.fs_flags & FDFLAGS_APPEND, 0, "{fd}");
        works(stat(fd));
    }
    fails(write(0, b"x"), &[ERRNO_BADF, ERRNO_NOTCAPABLE]);
    for fd in [1, 2] {
        fails(read(fd, 1), &[ERRNO_BADF, ERRNO_NOTCAPABLE]);
    }
}

fn stdio_is_no_file(_: Fd) {
    const NO_FILE: [Errno; 4] = [ERRNO_SPIPE, ERRNO_BADF, ERRNO_NOTCAPABLE, ERRNO_INVAL];
    for fd in STANDARD {
        fails(seek(fd, 0, WHENCE_CUR), &NO_FILE);
        fails(tell(fd), &NO_FILE);
        fails(set_size(fd, 0), &NO_FILE);
        fails(readdir(fd, 100, 0), &[ERRNO_NOTDIR, ERRNO_BADF]);
        fails(open(fd, "file", 0, READ), &[ERRNO_NOTDIR, ERRNO_BADF]);
    }
}
