//! The symbolic links that a guest creates or moves: none may lead out of the granted directory.
//!
//! No guest can follow such a link, but a tool of the operator can. A new target must be relative. It may begin with `..`,
//! at most as often as the link lies below the granted directory, and must not have `..` after a name. Its names may be
//! links themselves: those were checked in the same way, so no path through them leads out either.
//!
//! The checks do not see what another program changes at the same time.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor as _, OpenFlags, PathFlags,
};

use crate::capability::files::directories::ON_THE_WAY;
use crate::capability::files::measure::{READABLE, identity};
use crate::capability::files::slashes::{self, Wants};
use crate::capability::files::state::Fd;

/// No link climbs further: a longer target is no path.
const LEVELS_MAX: usize = 4096 / "../".len() + 1;
/// The size of a directory tree that is searched for links when it is moved up. Each level keeps a file open.
const TREE_LEVELS_MAX: usize = 64;
const TREE_ENTRIES_MAX: usize = 1 << 16;

/// The checks of one call.
pub(super) struct Links<'a> {
    pub(super) files: WasiFilesystemCtxView<'a>,
    pub(super) granted: Vec<Arc<File>>,
    /// The directory of the operation. Its thread counts as long as it has this.
    pub(super) directory: Arc<File>,
}

impl Links<'_> {
    /// Check a new link to `target` at `path` in the directory `fd`.
    pub(super) async fn check_new(mut self, fd: &Fd, path: &str, target: &str) -> FsResult<()> {
        let climb = match leading_climb(target) {
            Some(0) => return Ok(()),
            Some(climb) => climb,
            None => return Err(ErrorCode::NotPermitted.into()),
        };
        let Some((parent, _)) = self.open_parent(fd, path).await? else {
            return Ok(());
        };
        self.off_thread(move |granted| check_climb(climb, depth(&parent, granted)?))
            .await
    }

    /// Checks a second name of `old`.
    pub(super) async fn check_linked(mut self, old: (&Fd, &str), new: (&Fd, &str)) -> FsResult<()> {
        slashes::check(&mut self.files, old.0, old.1, Wants::Link).await?;
        slashes::check(&mut self.files, new.0, new.1, Wants::NewName).await?;
        self.check_moved(old, new).await
    }

    /// Checks the path of an operation that doesn't create a link.
    pub(super) async fn check_path(mut self, fd: &Fd, path: &str, wants: Wants) -> FsResult<()> {
        slashes::check(&mut self.files, fd, path, wants).await
    }

    /// Check a link, or a directory with its links, that is to be renamed, or to get a second name.
    ///
    /// A link leads the same way from each directory that is as deep as its own, or deeper.
    pub(super) async fn check_moved(
        mut self,
        (old_fd, old): (&Fd, &str),
        (new_fd, new): (&Fd, &str),
    ) -> FsResult<()> {
        let Some((old_parent, name)) = self.open_parent(old_fd, old).await? else {
            return Ok(());
        };
        let Some((new_parent, _)) = self.open_parent(new_fd, new).await? else {
            return Ok(());
        };
        let name = name.to_owned();
        self.off_thread(move |granted| {
            let new_depth = depth(&new_parent, granted)?;
            if new_depth >= depth(&old_parent, granted)? {
                return Ok(());
            }
            check_climb(climb_of(&old_parent, &name)?, new_depth)
        })
        .await
    }

    /// Open the directory of the last name of `path`, as wasmtime does for the operation itself; `None` for a path that has
    /// no last name, for which the operation fails.
    async fn open_parent<'p>(
        &mut self,
        fd: &Fd,
        path: &'p str,
    ) -> FsResult<Option<(Arc<File>, &'p OsStr)>> {
        let mut names = Path::new(path).components();
        let Some(Component::Normal(name)) = names.next_back() else {
            return Ok(None);
        };
        let parent = match names.as_path().to_str() {
            None | Some("") => ".".to_owned(),
            Some(parent) => parent.to_owned(),
        };
        let (follow, how) = (PathFlags::SYMLINK_FOLLOW, OpenFlags::DIRECTORY);
        let fd = Resource::new_borrow(fd.rep());
        let opening = self
            .files
            .open_at(fd, follow, parent, how, DescriptorFlags::READ);
        let opened = opening.await?;
        match self.files.table.delete(opened)? {
            Descriptor::Dir(directory) => Ok(Some((directory.dir, name))),
            Descriptor::File(_) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    async fn off_thread(
        self,
        check: impl FnOnce(&[Arc<File>]) -> Result<(), Refused> + Send + 'static,
    ) -> FsResult<()> {
        let (granted, directory) = (self.granted, self.directory);
        let checked = tokio::task::spawn_blocking(move || {
            let checked = check(&granted);
            drop(directory);
            checked
        });
        let checked = checked.await;
        match checked {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Refused::LeadsOut)) => Err(ErrorCode::NotPermitted.into()),
            // Programs then copy the files, and create each link anew.
            Ok(Err(Refused::TooLarge)) => Err(ErrorCode::CrossDevice.into()),
            Ok(Err(Refused::Failed(error))) => Err(std::io::Error::from(error).into()),
            Err(_) => Err(ErrorCode::Io.into()),
        }
    }
}

/// Why a link is not created, or a file not moved.
#[derive(Debug, PartialEq)]
enum Refused {
    LeadsOut,
    /// A directory has more entries or levels than are searched.
    TooLarge,
    Failed(Errno),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        Refused::Failed(error)
    }
}

fn check_climb(climb: usize, depth: usize) -> Result<(), Refused> {
    match climb > depth {
        true => Err(Refused::LeadsOut),
        false => Ok(()),
    }
}

/// Return how often a target begins with `..`; `None` if it is absolute or has `..` after a name.
fn leading_climb(target: &str) -> Option<usize> {
    let mut names = target.split('/').filter(|name| !matches!(*name, "" | "."));
    let climb = names.by_ref().take_while(|name| *name == "..").count();
    let is_clear = !target.starts_with('/') && names.all(|name| name != "..");
    is_clear.then_some(climb)
}

/// Return how many levels a directory is below the nearest granted one, at most [`LEVELS_MAX`].
fn depth(directory: &File, granted: &[Arc<File>]) -> Result<usize, Errno> {
    let granted = granted.iter().filter_map(|granted| fstat(granted).ok());
    let granted: Vec<_> = granted.map(|found| identity(&found)).collect();
    let mut at = openat(directory, ".", ON_THE_WAY, Mode::empty())?;
    for depth in 0..LEVELS_MAX {
        let here = identity(&fstat(&at)?);
        let above = openat(&at, "..", ON_THE_WAY, Mode::empty())?;
        let is_root = identity(&fstat(&above)?) == here;
        if granted.contains(&here) {
            return Ok(depth);
        }
        if is_root {
            // Another program moved the directory out of the granted one.
            return Ok(0);
        }
        at = above;
    }
    Ok(LEVELS_MAX)
}

/// Return how many levels the links at `name` in `directory` may climb above it: the link there, or those below the
/// directory there.
fn climb_of(directory: &File, name: &OsStr) -> Result<usize, Refused> {
    let mut entries = TREE_ENTRIES_MAX;
    climb_at(directory, name, FileType::Unknown, 0, &mut entries)
}

/// Return how many levels the links at `name`, which is `level` levels below the moved entry, may climb above that
/// entry's directory. `entries` more entries are searched.
fn climb_at(
    parent: impl AsFd,
    name: &OsStr,
    kind: FileType,
    level: usize,
    entries: &mut usize,
) -> Result<usize, Refused> {
    let kind = match kind {
        FileType::Unknown => {
            let found = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            FileType::from_raw_mode(found.st_mode)
        }
        kind => kind,
    };
    match kind {
        FileType::Symlink => return Ok(climb_of_link(parent, name)?.saturating_sub(level)),
        FileType::Directory if level == TREE_LEVELS_MAX => return Err(Refused::TooLarge),
        FileType::Directory => {}
        _ => return Ok(0),
    }
    let directory = openat(parent, name, READABLE, Mode::empty())?;
    let mut most = 0;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        *entries = entries.checked_sub(1).ok_or(Refused::TooLarge)?;
        let kind = entry.file_type();
        let climb = climb_at(&directory, name, kind, level + 1, entries)?;
        most = most.max(climb);
    }
    Ok(most)
}

/// Return how many levels a link may climb. Moving an absolute link does not change where it leads.
fn climb_of_link(directory: impl AsFd, name: &OsStr) -> Result<usize, Errno> {
    let target = readlinkat(directory, name, Vec::new())?;
    let target = target.as_bytes();
    if target.starts_with(b"/") {
        return Ok(0);
    }
    let names = target.split(|byte| *byte == b'/');
    Ok(names.filter(|name| *name == b"..").count())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_target_may_climb_only_at_its_beginning() {
        for (target, climb) in [
            ("", Some(0)),
            ("name", Some(0)),
            ("./name/", Some(0)),
            ("..", Some(1)),
            ("./.././../x/y", Some(2)),
            ("..name/x..", Some(0)),
            ("/", None),
            ("/etc", None),
            ("name/..", None),
            ("../name/./../..", None),
        ] {
            assert_eq!(leading_climb(target), climb, "{target}");
        }
    }

    fn open(path: &Path) -> Arc<File> {
        Arc::new(File::open(path).unwrap())
    }

    #[test]
    fn a_depth_is_counted_from_the_nearest_granted_directory_without_links() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("data/a/b/c")).unwrap();
        symlink("a/b", at("data/link")).unwrap();
        let data = [open(&at("data"))];
        for (path, expected) in [("data", 0), ("data/a", 1), ("data/link/c", 3)] {
            assert_eq!(depth(&open(&at(path)), &data), Ok(expected), "{path}");
        }
        let both = [open(&at("data")), open(&at("data/a"))];
        assert_eq!(depth(&open(&at("data/a/b")), &both), Ok(1));
        assert_eq!(depth(&open(root.path()), &both), Ok(0));
    }

    #[test]
    fn the_links_of_a_moved_directory_are_found() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let climb = |name: &str| climb_of(&open(root.path()), OsStr::new(name));
        fs::create_dir_all(at("tree/a/b")).unwrap();
        symlink("../../..", at("tree/a/b/stays")).unwrap();
        symlink("/etc", at("tree/absolute")).unwrap();
        assert_eq!(climb("tree"), Ok(0));
        symlink("../x/../../..", at("tree/a/climbs")).unwrap();
        assert_eq!(climb("tree"), Ok(2));
        symlink("../..", at("link")).unwrap();
        assert_eq!(climb("link"), Ok(2));
        fs::write(at("file"), "").unwrap();
        assert_eq!(climb("file"), Ok(0));
        assert_eq!(climb("missing"), Err(Refused::Failed(Errno::NOENT)));
        let deep = at("deep").join("d/".repeat(TREE_LEVELS_MAX));
        fs::create_dir_all(deep).unwrap();
        assert_eq!(climb("deep"), Err(Refused::TooLarge));
    }
}
