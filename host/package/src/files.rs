//! Files of the plugins folder and the schedules file: which exist, whether they changed, and their content.
//!
//! All functions but `off_thread` block; call them off the async threads. They open only regular files: opening a
//! FIFO waits for a writer that may never come.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use campanile_model::text::size_text;
#[cfg(target_os = "linux")]
use campanile_sandbox::mounts;
use rustix::fs::{AtFlags, CWD, FileType, OFlags, Stat, fstat, statat};
#[cfg(target_os = "linux")]
use rustix::fs::{Mode, openat};
use rustix::io::Errno;
use tokio::task::spawn_blocking;

/// The most packages in one folder. Ignoring any more keeps a folder full of files from flooding the record.
pub const PACKAGES_MAX: usize = 4_096;

/// Tells one content of a file from another without reading it.
///
/// No program can set the change time, so it reveals a write that restored the modification time. The device and the
/// inode reveal that a path leads to another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub(crate) size_bytes: u64,
    // The integer types differ between operating systems.
    device: i128,
    inode: i128,
    modified: (i128, i128),
    changed: (i128, i128),
}

impl Stamp {
    pub(super) fn of(found: &Stat) -> Stamp {
        Stamp {
            size_bytes: u64::try_from(found.st_size).unwrap_or(0),
            device: found.st_dev.into(),
            inode: found.st_ino.into(),
            modified: (found.st_mtime.into(), found.st_mtime_nsec.into()),
            changed: (found.st_ctime.into(), found.st_ctime_nsec.into()),
        }
    }

    /// Returns the stamp of a file of at most `bytes`.
    ///
    /// # Errors
    /// A sentence.
    pub fn of_at_most(self, bytes: u64) -> Result<Stamp, String> {
        if self.size_bytes > bytes {
            return Err(format!("it is larger than {}", size_text(bytes)));
        }
        Ok(self)
    }
}

/// What was found at a path: a file, or a sentence that says why what is there cannot be used.
pub type FileState = Result<Stamp, String>;

/// The `.wasm` files of a folder, their signatures, and its `.toml` files, by file name. Those of a namespace have the name of
/// its folder and a slash before theirs.
///
/// In a name that is not UTF-8, U+FFFD stands for the wrong bytes. No package's name may have that character.
pub(super) type Listing = BTreeMap<String, FileState>;

/// Returns what is at `path`, following links; `None` when nothing is.
///
/// An unusable file is not ignored: a package must not lose its limits because its sidecar became something else.
pub fn inspect(path: &Path) -> Option<FileState> {
    let found = inspect_in(CWD, path)?;
    Some(found.map(|found| Stamp::of(&found)))
}

/// Returns what is at `path` in the directory `folder`, as [`inspect`] does, with its owner and its mode.
pub(super) fn inspect_in(folder: impl AsFd, path: &Path) -> Option<Result<Stat, String>> {
    let folder = folder.as_fd();
    let unusable = |why: &str| Some(Err(why.to_owned()));
    match statat(folder, path, AtFlags::empty()) {
        Ok(found) if !FileType::from_raw_mode(found.st_mode).is_file() => {
            unusable("it is not a regular file")
        }
        Ok(_) if is_in_pseudo_file_system(folder, path) => unusable(
            "it lies in a file system of the kernel, such as /proc, whose files have no fixed content; put a copy in its place",
        ),
        Ok(found) => Some(Ok(found)),
        Err(Errno::NOENT) => {
            let is_link = is_link_in(folder, path);
            is_link.then(|| Err("it is a link to nothing".to_owned()))
        }
        Err(Errno::LOOP) => unusable("it is a link that leads back to itself"),
        Err(error) => unusable(&format!("it cannot be inspected: {error}")),
    }
}

/// Whether `path` in the directory `folder` is one of the kernel's own files, as in `/proc` or `/sys`. Its size says nothing about its
/// content, and its times change just by looking.
#[cfg(target_os = "linux")]
fn is_in_pseudo_file_system(folder: impl AsFd, path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat(folder, path, flags, Mode::empty());
    opened.is_ok_and(|file| mounts::pseudo(file).is_some())
}

#[cfg(not(target_os = "linux"))]
fn is_in_pseudo_file_system(_: impl AsFd, _: &Path) -> bool {
    false
}

/// Whether a link is at `path` in the directory `folder`.
pub(super) fn is_link_in(folder: impl AsFd, path: &Path) -> bool {
    let found = statat(folder, path, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
}

/// The ends of the names of a package's files: the code, the sidecar and the signature.
pub(super) const ENDS: [&str; 3] = [".wasm", ".toml", ".wasm.minisig"];

/// Whether a file of this name in a plugins folder is a package, a sidecar or a signature.
///
/// Hidden files are none, and names that tools copy to, such as `x.wasm.tmp`, `x.wasm.part` and `x.wasm~`. The name of a file
/// of a namespace has that of its folder before it.
pub(super) fn is_package_file(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    !file.starts_with('.') && ENDS.iter().any(|end| name.ends_with(end))
}

/// Returns the content of the file at `path`, if it has `stamp` both before and after reading; `None` when it changed.
///
/// # Errors
/// A sentence that says why the file cannot be read.
pub fn read(path: &Path, stamp: Stamp) -> Result<Option<Vec<u8>>, String> {
    match read_unchanged(path, stamp) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map_err(|error| format!("it cannot be read: {error}")),
    }
}

fn read_unchanged(path: &Path, stamp: Stamp) -> io::Result<Option<Vec<u8>>> {
    // A pipe may have replaced the file since it was inspected. A non-blocking open does not wait for its writer.
    let mut file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let is_same = |file: &File| -> io::Result<bool> {
        let found = fstat(file)?;
        Ok(FileType::from_raw_mode(found.st_mode).is_file() && Stamp::of(&found) == stamp)
    };
    if !is_same(&file)? {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size_bytes).unwrap_or(0));
    (&mut file)
        .take(stamp.size_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    let is_whole = is_same(&file)? && bytes.len() as u64 == stamp.size_bytes;
    Ok(is_whole.then_some(bytes))
}

/// The largest configuration and the largest schedules file that are read.
pub const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Returns the text of the file at `path`, at most [`TEXT_BYTES_MAX`]; `None` when there is no file.
///
/// # Errors
/// A sentence that says why there is no text.
pub fn read_text(path: &Path) -> Result<Option<String>, String> {
    let Some(state) = inspect(path) else {
        return Ok(None);
    };
    read_text_with(path, state?.of_at_most(TEXT_BYTES_MAX)?).map(Some)
}

/// Returns the text of the file at `path`, which has `stamp`; the error is a sentence.
pub(crate) fn read_text_with(path: &Path, stamp: Stamp) -> Result<String, String> {
    text(read(path, stamp)?.ok_or("it changed while it was read; try again")?)
}

/// Returns `bytes` as text; the error is a sentence.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text; save it as such".to_owned())
}

/// Run blocking work on a thread of its own. A panic of the work is an error, a sentence.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| format!("the host failed while it worked on the file: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    fn stamp(folder: &Path, name: &str) -> Stamp {
        inspect(&folder.join(name)).unwrap().unwrap()
    }

    #[test]
    fn a_file_that_changed_since_it_was_listed_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        fs::write(&path, "one").unwrap();
        let before = stamp(folder.path(), "a.wasm");
        assert_eq!(read(&path, before).unwrap().unwrap(), b"one");
        fs::write(&path, "longer").unwrap();
        assert_eq!(read(&path, before), Ok(None));
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&path, before), Ok(None));
    }

    #[test]
    fn a_pipe_that_replaced_the_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        fs::write(&path, "one").unwrap();
        let before = stamp(folder.path(), "a.wasm");
        fs::remove_file(&path).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(read(&path, before), Ok(None));
    }

    #[test]
    fn a_write_that_restores_the_old_time_is_still_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        fs::write(&path, "one").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let before = stamp(folder.path(), "a.wasm");
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, "two").unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        assert_ne!(stamp(folder.path(), "a.wasm"), before);
    }
}
