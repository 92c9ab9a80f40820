//! The lock on the inode of a SQLite file, whatever its name is.
//!
//! The lock file beside a database is found by its name. A file that is renamed while a host serves it has another lock file
//! under its new name. So a host also locks the file itself, with `flock`. On Linux, `flock` and the locks of SQLite do not see
//! each other.
//!
//! A process that closes any handle of a file loses the locks that SQLite has in it. So a handle that was opened here is kept
//! until the process ends, and used again. On other systems `flock` and SQLite's locks conflict, and there is no such lock.

#[cfg(target_os = "linux")]
use std::collections::HashMap;
#[cfg(target_os = "linux")]
use std::collections::hash_map::Entry;
#[cfg(target_os = "linux")]
use std::fs::{File, TryLockError};
use std::path::Path;
#[cfg(target_os = "linux")]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(target_os = "linux")]
use super::DbError;
use super::Result;
#[cfg(target_os = "linux")]
use super::partial::with_end;

/// What a path leads to: the device and the inode.
pub(super) type FileId = (u64, u64);

/// Returns the file to which `path` leads; none when there is none.
///
/// # Errors
///
/// When that cannot be found out, for example without the right to search the folder.
pub(super) fn file_id(path: &Path) -> std::io::Result<Option<FileId>> {
    use std::os::unix::fs::MetadataExt as _;
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A lock on an inode, until it is dropped.
pub(super) struct InodeLock(#[cfg(target_os = "linux")] FileId);

/// The handles of this process, and whether each is locked.
#[cfg(target_os = "linux")]
static HANDLES: Mutex<Option<HashMap<FileId, (File, bool)>>> = Mutex::new(None);

#[cfg(target_os = "linux")]
fn handles() -> MutexGuard<'static, Option<HashMap<FileId, (File, bool)>>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(target_os = "linux")]
impl InodeLock {
    /// Lock the file to which `path` leads; none when a host has locked it. A missing file needs no lock.
    pub(super) fn acquire(path: &Path) -> Result<Option<InodeLock>> {
        let not_readable =
            |error: std::io::Error| DbError::NotWritable(format!("{}: {error}", path.display()));
        let Some(id) = file_id(path).map_err(not_readable)? else {
            return Ok(Some(InodeLock((0, 0))));
        };
        let mut handles = handles();
        let handles = handles.get_or_insert_default();
        let (file, is_locked) = match handles.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let file = File::open(path).map_err(not_readable)?;
                unknown.insert((file, false))
            }
        };
        if *is_locked {
            return Ok(None);
        }
        match file.try_lock() {
            Ok(()) => {
                *is_locked = true;
                Ok(Some(InodeLock(id)))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            // Some file systems have no such locks. The lock file remains.
            Err(TryLockError::Error(_)) => Ok(Some(InodeLock((0, 0)))),
        }
    }
}

/// Reads bytes of a file possibly opened by SQLite in this process.
#[cfg(target_os = "linux")]
pub(super) fn read_open_file(path: &Path, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    let id = file_id(path)?.ok_or(std::io::ErrorKind::NotFound)?;
    let mut handles = handles();
    let file = match handles.get_or_insert_default().entry(id) {
        Entry::Occupied(known) => &known.into_mut().0,
        Entry::Vacant(unknown) => &unknown.insert((File::open(path)?, false)).0,
    };
    file.read_exact_at(bytes, offset)
}

/// Returns why no other process may open the file at `path` while a host is serving it: it wouldn't see the commits in the host's
/// open write-ahead log.
///
/// A served file has `-wal` and `-shm` next to the name under which it was opened.
///
/// The caller mustn't have opened the file with SQLite yet, as closing the handle would drop its locks.
#[cfg(target_os = "linux")]
pub(super) fn served_without_log(path: &Path) -> Option<&'static str> {
    let id = file_id(path).ok().flatten()?;
    let is_blocked = |file: &File| match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            false
        }
        Err(error) => matches!(error, TryLockError::WouldBlock),
    };
    let handles = handles();
    let is_locked = match handles.as_ref().and_then(|all| all.get(&id)) {
        // By this process.
        Some((_, true)) => false,
        Some((file, false)) => is_blocked(file),
        None => File::open(path).is_ok_and(|file| is_blocked(&file)),
    };
    let is_beside = |end| {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        with_end(&path, end).exists()
    };
    match is_locked {
        true if !is_beside("-shm") => Some(
            "the file was renamed while a host serves it under its former name, and does not have yet what that host recorded last; wait until the host has ended",
        ),
        true if !is_beside("-wal") => Some(
            "its `-wal` was deleted while a host serves it, and the file does not have yet what that host recorded last; wait until the host has ended",
        ),
        _ => None,
    }
}

/// Locks of files are found under each name.
#[cfg(not(target_os = "linux"))]
pub(super) fn served_without_log(_: &Path) -> Option<&'static str> {
    None
}

#[cfg(target_os = "linux")]
impl Drop for InodeLock {
    fn drop(&mut self) {
        let mut handles = handles();
        let held = handles.as_mut().and_then(|all| all.get_mut(&self.0));
        if let Some((file, is_locked)) = held {
            // The handle stays open: see above.
            let _ = file.unlock();
            *is_locked = false;
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl InodeLock {
    /// Returns a lock without an effect.
    pub(super) fn acquire(_: &Path) -> Result<Option<InodeLock>> {
        Ok(Some(InodeLock()))
    }
}
