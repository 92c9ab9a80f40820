//! Opening the granted directories, and the empty directory in place of an ungranted root.

use std::fs::{self, File};
use std::path::{Component, Path};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use wasmtime_wasi::filesystem::{Descriptor, Dir};
use wasmtime_wasi::runtime::spawn_blocking;
use wasmtime_wasi::{FsPerms, OpenMode};

use crate::capability::files::devices::{DEVICES, Served};
use crate::capability::files::measure::READABLE;
use crate::capability::files::quota::Quota;
use crate::capability::shared::{OpenFile, Shared};
use crate::grants::DirectoryGrant;
use crate::mounts;
use crate::own_files::temporary_directory;

/// How a directory is opened to pass through it, which needs no right to read it.
#[cfg(target_os = "linux")]
pub(super) const ON_THE_WAY: OFlags = READABLE.union(OFlags::PATH);
#[cfg(not(target_os = "linux"))]
pub(super) const ON_THE_WAY: OFlags = READABLE;

/// A granted directory cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unopened(String);

/// What is known of an open descriptor.
#[derive(Clone)]
pub(super) struct Tracked {
    /// The path by which the guest opened it, or under which it sees a granted directory.
    pub(super) path: String,
    /// None for the empty root, which does not count as an open file.
    pub(super) file: Option<Arc<OpenFile>>,
    /// The quota of the granted directory through which it was opened.
    pub(super) quota: Option<Arc<Quota>>,
    /// What the host serves instead of a file.
    pub(super) served: Option<Served>,
}

/// A granted directory that is open until its call ends.
#[derive(Clone)]
pub(crate) struct OpenDirectory {
    pub(super) directory: Dir,
    pub(super) tracked: Tracked,
}

/// Open the granted directories, and count them.
pub(crate) async fn open(shared: &Arc<Shared>) -> Result<Vec<OpenDirectory>, Unopened> {
    if shared.call.grants.directories.is_empty() {
        return Ok(Vec::new());
    }
    let shared = Arc::clone(shared);
    let threads = &shared.ledger.file_threads;
    let thread = threads.acquire(&shared.call.package, 1, u64::MAX).await;
    // A file system that does not answer may block one of these threads, but not a thread of the guests.
    spawn_blocking(move || {
        let _thread = thread;
        let directories = shared.call.grants.directories.iter();
        let opened = directories.map(|grant| open_one(&shared, grant));
        opened.collect()
    })
    .await
}

fn open_one(shared: &Arc<Shared>, grant: &DirectoryGrant) -> Result<OpenDirectory, Unopened> {
    let unopened = |error| {
        let what = match error {
            Errno::NOTDIR | Errno::LOOP => {
                "a directory on the way has become a link or a file since it was granted".to_owned()
            }
            error => error.to_string(),
        };
        Unopened(format!(
            "the directory {} granted as {} cannot be opened: {what}; create it or change the grant",
            grant.host.display(),
            grant.guest,
        ))
    };
    let directory = open_without_links(&grant.host).map_err(unopened)?;
    if let Some(name) = mounts::pseudo(&directory) {
        return Err(Unopened(format!(
            "the directory {} granted as {} cannot be opened: the pseudo file system {name} was mounted there, which controls the host; unmount it or change the grant",
            grant.host.display(),
            grant.guest,
        )));
    }
    let (permissions, mode) = if grant.writable {
        (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE)
    } else {
        (FsPerms::ReadOnly, OpenMode::READ)
    };
    let directory = Dir::new(directory, permissions, mode, false);
    let tracked = Tracked {
        quota: Quota::of(shared, grant, &directory.dir).map_err(unopened)?,
        path: grant.guest.clone(),
        file: Some(OpenFile::of_grant(shared).map_err(Unopened)?),
        served: None,
    };
    Ok(OpenDirectory { directory, tracked })
}

/// Open the directory at `path`, from the root through directories only.
///
/// A grant holds a path without links. A task that may write to a directory above another grant could otherwise
/// replace it by a link, and so choose what it is granted.
fn open_without_links(path: &Path) -> Result<File, Errno> {
    let mut directory = rustix::fs::open("/", ON_THE_WAY, Mode::empty())?;
    let mut names = path.components().peekable();
    if names.next() != Some(Component::RootDir) {
        return Err(Errno::INVAL);
    }
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else {
            return Err(Errno::INVAL);
        };
        let flags = match names.peek() {
            Some(_) => ON_THE_WAY,
            None => READABLE,
        };
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    Ok(File::from(directory))
}

/// The directory that a guest sees as `/` when no root is granted: it is empty and has no name any more.
///
/// The library of a language looks among the granted directories for the one that holds a path. Without one it asks the
/// host nothing, and the record could not say which path was missing. With this directory as `/`, every path that is
/// not granted lies in it. It holds nothing, and the guest learns that the path does not exist, as without it.
///
/// One for the process. None when it cannot be made, which only costs a note beside a failure.
static EMPTY_ROOT: OnceLock<Option<Dir>> = OnceLock::new();

/// Returns the directory. The first call makes it, which blocks for a moment.
pub(super) fn empty_root() -> Option<OpenDirectory> {
    let make = || {
        let place = temporary_directory().ok()?;
        let directory = File::open(place.path()).ok()?;
        fs::remove_dir(place.path()).ok()?;
        Some(Dir::new(
            directory,
            FsPerms::ReadOnly,
            OpenMode::READ,
            false,
        ))
    };
    let tracked = Tracked {
        path: "/".to_owned(),
        file: None,
        quota: None,
        served: None,
    };
    let directory = EMPTY_ROOT.get_or_init(make).clone()?;
    Some(OpenDirectory { directory, tracked })
}

/// Returns the devices' directory. It's another empty one on disk, with the host serving its entries.
pub(super) fn device_folder() -> Option<OpenDirectory> {
    let empty = empty_root()?.directory.dir.try_clone().ok()?;
    Some(OpenDirectory {
        directory: Dir::new(empty, FsPerms::ReadOnly, OpenMode::READ, false),
        tracked: Tracked {
            path: DEVICES.to_owned(),
            file: None,
            quota: None,
            served: Some(Served::Folder),
        },
    })
}

/// Whether `descriptor` is that directory.
pub(super) fn is_empty_root(descriptor: &Descriptor) -> bool {
    match (descriptor, EMPTY_ROOT.get()) {
        (Descriptor::Dir(directory), Some(Some(root))) => Arc::ptr_eq(&directory.dir, &root.dir),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_anywhere_on_the_way_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        symlink(root.join("a"), root.join("link")).unwrap();
        symlink("b", root.join("a/also")).unwrap();
        assert!(open_without_links(&root.join("a/b/c")).is_ok());
        for through in ["link", "link/b/c", "a/also", "a/also/c"] {
            let error = open_without_links(&root.join(through)).unwrap_err();
            assert!(
                matches!(error, Errno::NOTDIR | Errno::LOOP),
                "{through}: {error}"
            );
        }
        for unclear in ["a", "/a/../b"] {
            assert!(open_without_links(Path::new(unclear)).is_err(), "{unclear}");
        }
    }
}
