//! Wrappers of the functions of WASI preview 1.

#![expect(
    unsafe_code,
    reason = "the bindings take pointers, which only this module creates"
)]

use std::mem::MaybeUninit;

pub use wasi::*;

pub type Tried<T> = Result<T, Errno>;

/// The rights to open a file for reading, for writing and for both. Other rights have no effect.
pub const READ: Rights = RIGHTS_FD_READ;
pub const WRITE: Rights = RIGHTS_FD_WRITE;
pub const READ_WRITE: Rights = RIGHTS_FD_READ | RIGHTS_FD_WRITE;

pub const FOLLOW: Lookupflags = LOOKUPFLAGS_SYMLINK_FOLLOW;
pub const NO_FOLLOW: Lookupflags = 0;

/// Return the result of a call that must succeed.
#[track_caller]
pub fn works<T>(tried: Tried<T>) -> T {
    match tried {
        Ok(value) => value,
        Err(error) => panic!("this should work, and gives {}", error.name()),
    }
}

/// Check that a call fails with one of these errors.
#[track_caller]
pub fn fails<T>(tried: Tried<T>, ways: &[Errno]) {
    let names: Vec<&str> = ways.iter().map(Errno::name).collect();
    let names = names.join(" or ");
    match tried {
        Ok(_) => panic!("this should give {names}, and works"),
        Err(error) => assert!(
            ways.contains(&error),
            "this should give {names}, and gives {}",
            error.name()
        ),
    }
}

/// Return all preopened directories with their names, in order.
pub fn preopens() -> Vec<(Fd, String)> {
    let named = |fd: Fd| {
        let prestat = unsafe { fd_prestat_get(fd) }.ok()?;
        assert_eq!(prestat.tag, PREOPENTYPE_DIR.raw());
        let mut name = vec![0; unsafe { prestat.u.dir }.pr_name_len];
        works(unsafe { fd_prestat_dir_name(fd, name.as_mut_ptr(), name.len()) });
        Some((fd, String::from_utf8(name).expect("a name is UTF-8")))
    };
    (3..).map_while(named).collect()
}

/// Return the directory that is granted as `name`.
#[track_caller]
pub fn preopened(name: &str) -> Fd {
    let found = preopens();
    match found.iter().find(|(_, granted)| granted == name) {
        Some((fd, _)) => *fd,
        None => panic!("{name} is not among the preopened directories {found:?}"),
    }
}

pub fn prestat_dir_name(fd: Fd, name: &mut [u8]) -> Tried<()> {
    unsafe { fd_prestat_dir_name(fd, name.as_mut_ptr(), name.len()) }
}

/// Open without following a link in the last component.
pub fn open(dir: Fd, path: &str, how: Oflags, rights: Rights) -> Tried<Fd> {
    open_with(dir, NO_FOLLOW, path, how, rights, 0)
}

pub fn open_with(
    dir: Fd,
    follow: Lookupflags,
    path: &str,
    how: Oflags,
    rights: Rights,
    flags: Fdflags,
) -> Tried<Fd> {
    let fd = unsafe { path_open(dir, follow, path, how, rights, rights, flags) }?;
    assert!(fd > 2, "{path} was opened as {fd}, which is a standard one");
    Ok(fd)
}

/// Create a file, and open it for reading and writing.
#[track_caller]
pub fn create(dir: Fd, path: &str) -> Fd {
    works(open(dir, path, OFLAGS_CREAT | OFLAGS_EXCL, READ_WRITE))
}

/// Create an empty file.
#[track_caller]
pub fn touch(dir: Fd, path: &str) {
    works(close(create(dir, path)));
}

/// Create a directory, and open it.
#[track_caller]
pub fn create_dir(dir: Fd, path: &str) -> Fd {
    works(mkdir(dir, path));
    works(open(dir, path, OFLAGS_DIRECTORY, READ))
}

pub fn close(fd: Fd) -> Tried<()> {
    unsafe { fd_close(fd) }
}

pub fn move_to(from: Fd, to: Fd) -> Tried<()> {
    unsafe { fd_renumber(from, to) }
}

pub fn fdstat(fd: Fd) -> Tried<Fdstat> {
    unsafe { fd_fdstat_get(fd) }
}

pub fn set_flags(fd: Fd, flags: Fdflags) -> Tried<()> {
    unsafe { fd_fdstat_set_flags(fd, flags) }
}

pub fn set_rights(fd: Fd, base: Rights, inheriting: Rights) -> Tried<()> {
    unsafe { fd_fdstat_set_rights(fd, base, inheriting) }
}

pub fn stat(fd: Fd) -> Tried<Filestat> {
    unsafe { fd_filestat_get(fd) }
}

pub fn set_size(fd: Fd, size: u64) -> Tried<()> {
    unsafe { fd_filestat_set_size(fd, size) }
}

pub fn set_times(fd: Fd, accessed: u64, modified: u64, which: Fstflags) -> Tried<()> {
    unsafe { fd_filestat_set_times(fd, accessed, modified, which) }
}

pub fn advise(fd: Fd, offset: u64, length: u64, advice: Advice) -> Tried<()> {
    unsafe { fd_advise(fd, offset, length, advice) }
}

pub fn allocate(fd: Fd, offset: u64, length: u64) -> Tried<()> {
    unsafe { fd_allocate(fd, offset, length) }
}

pub fn sync(fd: Fd) -> Tried<()> {
    unsafe { fd_sync(fd) }
}

pub fn datasync(fd: Fd) -> Tried<()> {
    unsafe { fd_datasync(fd) }
}

pub fn seek(fd: Fd, offset: i64, whence: Whence) -> Tried<u64> {
    unsafe { fd_seek(fd, offset, whence) }
}

pub fn tell(fd: Fd) -> Tried<u64> {
    unsafe { fd_tell(fd) }
}

pub fn write(fd: Fd, bytes: &[u8]) -> Tried<usize> {
    writev(fd, &[bytes])
}

pub fn writev(fd: Fd, pieces: &[&[u8]]) -> Tried<usize> {
    unsafe { fd_write(fd, &to_write(pieces)) }
}

pub fn pwrite(fd: Fd, pieces: &[&[u8]], offset: u64) -> Tried<usize> {
    unsafe { fd_pwrite(fd, &to_write(pieces), offset) }
}

/// Read at most `size` bytes.
pub fn read(fd: Fd, size: usize) -> Tried<Vec<u8>> {
    let mut bytes = vec![0; size];
    let read = readv(fd, &mut [&mut bytes])?;
    bytes.truncate(read);
    Ok(bytes)
}

pub fn readv(fd: Fd, buffers: &mut [&mut [u8]]) -> Tried<usize> {
    unsafe { fd_read(fd, &to_read(buffers)) }
}

pub fn pread(fd: Fd, buffers: &mut [&mut [u8]], offset: u64) -> Tried<usize> {
    unsafe { fd_pread(fd, &to_read(buffers), offset) }
}

fn to_write(pieces: &[&[u8]]) -> Vec<Ciovec> {
    let piece = |piece: &&[u8]| Ciovec {
        buf: piece.as_ptr(),
        buf_len: piece.len(),
    };
    pieces.iter().map(piece).collect()
}

fn to_read(buffers: &mut [&mut [u8]]) -> Vec<Iovec> {
    let buffer = |buffer: &mut &mut [u8]| Iovec {
        buf: buffer.as_mut_ptr(),
        buf_len: buffer.len(),
    };
    buffers.iter_mut().map(buffer).collect()
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub ino: u64,
    pub kind: Filetype,
    /// The cookie of the following entry.
    pub next: Dircookie,
}

/// Return the entries from `cookie` on that fit into `size` bytes, and whether the listing is complete.
pub fn readdir(fd: Fd, size: usize, cookie: Dircookie) -> Tried<(Vec<Entry>, bool)> {
    const HEAD: usize = size_of::<Dirent>();
    let mut bytes = vec![0; size];
    let used = unsafe { fd_readdir(fd, bytes.as_mut_ptr(), size, cookie) }?;
    assert!(used <= size, "{used} of {size} bytes were used");
    let mut rest = &bytes[..used];
    let mut entries = Vec::new();
    while let Some((head, tail)) = rest.split_at_checked(HEAD) {
        let head = unsafe { head.as_ptr().cast::<Dirent>().read_unaligned() };
        let Some((name, tail)) = tail.split_at_checked(head.d_namlen as usize) else {
            break;
        };
        entries.push(Entry {
            name: String::from_utf8(name.to_vec()).expect("a name is UTF-8"),
            ino: head.d_ino,
            kind: head.d_type,
            next: head.d_next,
        });
        rest = tail;
    }
    Ok((entries, used < size))
}

pub fn mkdir(dir: Fd, path: &str) -> Tried<()> {
    unsafe { path_create_directory(dir, path) }
}

pub fn rmdir(dir: Fd, path: &str) -> Tried<()> {
    unsafe { path_remove_directory(dir, path) }
}

pub fn unlink(dir: Fd, path: &str) -> Tried<()> {
    unsafe { path_unlink_file(dir, path) }
}

pub fn rename(dir: Fd, old: &str, new_dir: Fd, new: &str) -> Tried<()> {
    unsafe { path_rename(dir, old, new_dir, new) }
}

pub fn link(dir: Fd, follow: Lookupflags, old: &str, new_dir: Fd, new: &str) -> Tried<()> {
    unsafe { path_link(dir, follow, old, new_dir, new) }
}

/// Create a symbolic link at `path` to `target`.
pub fn symlink(target: &str, dir: Fd, path: &str) -> Tried<()> {
    unsafe { path_symlink(target, dir, path) }
}

/// Return the first `size` bytes of the link's target.
pub fn target_of(dir: Fd, path: &str, size: usize) -> Tried<String> {
    let mut bytes = vec![0; size];
    let used = unsafe { path_readlink(dir, path, bytes.as_mut_ptr(), size) }?;
    bytes.truncate(used);
    Ok(String::from_utf8(bytes).expect("a link is UTF-8"))
}

pub fn stat_at(dir: Fd, follow: Lookupflags, path: &str) -> Tried<Filestat> {
    unsafe { path_filestat_get(dir, follow, path) }
}

/// Return the type of `path`, without following a link in the last component.
#[track_caller]
pub fn kind(dir: Fd, path: &str) -> Filetype {
    works(stat_at(dir, NO_FOLLOW, path)).filetype
}

pub fn set_times_at(
    dir: Fd,
    follow: Lookupflags,
    path: &str,
    accessed: u64,
    modified: u64,
    which: Fstflags,
) -> Tried<()> {
    unsafe { path_filestat_set_times(dir, follow, path, accessed, modified, which) }
}

pub fn resolution(clock: Clockid) -> Tried<u64> {
    unsafe { clock_res_get(clock) }
}

pub fn time(clock: Clockid, precision: u64) -> Tried<u64> {
    unsafe { clock_time_get(clock, precision) }
}

pub fn fill_random(bytes: &mut [u8]) -> Tried<()> {
    unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) }
}

pub fn give_way() -> Tried<()> {
    unsafe { sched_yield() }
}

pub fn exit(code: u32) -> ! {
    unsafe { proc_exit(code) };
    unreachable!("the program has ended");
}

pub fn shutdown(fd: Fd) -> Tried<()> {
    unsafe { sock_shutdown(fd, SDFLAGS_RD) }
}

/// Return the number of arguments, their size in bytes with their terminators, and the arguments.
pub fn arguments() -> Tried<(usize, usize, Vec<String>)> {
    let (count, size) = unsafe { args_sizes_get() }?;
    strings(count, size, args_get)
}

/// Return the same of the environment variables.
pub fn variables() -> Tried<(usize, usize, Vec<String>)> {
    let (count, size) = unsafe { environ_sizes_get() }?;
    strings(count, size, environ_get)
}

fn strings(
    count: usize,
    size: usize,
    get: unsafe fn(*mut *mut u8, *mut u8) -> Tried<()>,
) -> Tried<(usize, usize, Vec<String>)> {
    let mut starts = vec![std::ptr::null_mut(); count];
    let mut bytes = vec![0xff_u8; size];
    unsafe { get(starts.as_mut_ptr(), bytes.as_mut_ptr()) }?;
    let begin = bytes.as_ptr() as usize;
    let text = |start: &*mut u8| {
        let at = *start as usize - begin;
        let text = bytes[at..].split(|byte| *byte == 0).next();
        let text = text.expect("a piece").to_vec();
        assert_eq!(bytes.get(at + text.len()), Some(&0), "it ends with a zero");
        String::from_utf8(text).expect("it is UTF-8")
    };
    Ok((count, size, starts.iter().map(text).collect()))
}

pub fn until(
    userdata: Userdata,
    clock: Clockid,
    timeout: u64,
    flags: Subclockflags,
) -> Subscription {
    let clock = SubscriptionClock {
        id: clock,
        timeout,
        precision: 0,
        flags,
    };
    Subscription {
        userdata,
        u: SubscriptionU {
            tag: EVENTTYPE_CLOCK.raw(),
            u: SubscriptionUU { clock },
        },
    }
}

pub fn until_ready(userdata: Userdata, what: Eventtype, fd: Fd) -> Subscription {
    let fd = SubscriptionFdReadwrite {
        file_descriptor: fd,
    };
    let u = match what {
        EVENTTYPE_FD_WRITE => SubscriptionUU { fd_write: fd },
        _ => SubscriptionUU { fd_read: fd },
    };
    Subscription {
        userdata,
        u: SubscriptionU { tag: what.raw(), u },
    }
}

pub fn poll(wanted: &[Subscription]) -> Tried<Vec<Event>> {
    let mut events = vec![MaybeUninit::<Event>::zeroed(); wanted.len()];
    let count = unsafe { poll_oneoff(wanted.as_ptr(), events.as_mut_ptr().cast(), wanted.len()) }?;
    let events = events[..count].iter();
    Ok(events.map(|event| unsafe { event.assume_init() }).collect())
}
