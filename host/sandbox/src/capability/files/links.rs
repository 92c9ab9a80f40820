//! The symbolic links that a guest creates or moves: none may lead out of the granted directory.
//!
//! No guest can follow such a link, but a tool of the operator can. A new target must be relative. It may begin with `..`,
//! at most as often as the link lies below the granted directory, and must not have `..` after a name. Its names may be
//! links themselves: those were checked in the same way, so no path through them leads out either.
//!
//! The checks can't see changes being made by other processes. Within this process, operations take turns: see
//! [`link_changes`](super::link_changes).

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Weak};

use rustix::fs::{AtFlags, Dir, FileType, Mode, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::capability::files::directories::ON_THE_WAY;
use crate::capability::files::measure::{READABLE, identity};

/// No link climbs further: a longer target is no path.
const LEVELS_MAX: usize = 4096 / "../".len() + 1;
/// The size of a directory tree that is searched for links when it is moved up. Each level keeps a file open.
const TREE_LEVELS_MAX: usize = 64;
const TREE_ENTRIES_MAX: usize = 1 << 16;

/// How many entries to search between checks that the result is still wanted.
const CHECK_ENTRIES: usize = 256;

/// Why a link is not created, or a file not moved.
#[derive(Debug, PartialEq)]
pub(super) enum Refused {
    LeadsOut,
    /// A directory exceeds the limits on entries or levels, or contains a mount point.
    TooLarge,
    /// The call has ended.
    Unwanted,
    Failed(Errno),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        Refused::Failed(error)
    }
}

/// Refuses a link climbing above the granted directory, which is `depth` levels up.
pub(super) fn check_climb(climb: usize, depth: usize) -> Result<(), Refused> {
    if climb > depth {
        Err(Refused::LeadsOut)
    } else {
        Ok(())
    }
}

/// Returns how often a target begins with `..`; `None` if it is absolute or has `..` after a name.
pub(super) fn leading_climb(target: &str) -> Option<usize> {
    let mut names = target.split('/').filter(|name| !matches!(*name, "" | "."));
    let climb = names.by_ref().take_while(|name| *name == "..").count();
    let is_clear = !target.starts_with('/') && names.all(|name| name != "..");
    is_clear.then_some(climb)
}

/// Returns how many levels a directory is below the nearest granted one, at most [`LEVELS_MAX`].
pub(super) fn depth(directory: &File, granted: &[Arc<File>]) -> Result<usize, Errno> {
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

/// A search for the links below an entry about to be moved.
pub(super) struct Search {
    /// How many more entries may be searched.
    entries: usize,
    /// The device number of the file system.
    device: u64,
    /// Its owner is dropped once nobody is waiting for the result.
    waiting: Weak<()>,
}

impl Search {
    pub(super) fn new(device: u64, waiting: Weak<()>) -> Search {
        Search {
            entries: TREE_ENTRIES_MAX,
            device,
            waiting,
        }
    }

    pub(super) fn check_wanted(&self) -> Result<(), Refused> {
        match self.waiting.strong_count() {
            0 => Err(Refused::Unwanted),
            _ => Ok(()),
        }
    }

    /// Returns how many levels above `directory` the link at `name` may lead or, if that's a directory, the links below it.
    pub(super) fn climb_of(&mut self, directory: &File, name: &OsStr) -> Result<usize, Refused> {
        self.climb_at(directory, name, FileType::Unknown, 0)
    }

    /// Like [`Search::climb_of`], for an entry `level` levels below the one being moved.
    fn climb_at(
        &mut self,
        parent: impl AsFd,
        name: &OsStr,
        kind: FileType,
        level: usize,
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
        if identity(&fstat(&directory)?).0 != self.device {
            return Err(Refused::TooLarge);
        }
        let mut most = 0;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.entries = self.entries.checked_sub(1).ok_or(Refused::TooLarge)?;
            if self.entries.is_multiple_of(CHECK_ENTRIES) {
                self.check_wanted()?;
            }
            let climb = self.climb_at(&directory, name, entry.file_type(), level + 1)?;
            most = most.max(climb);
        }
        Ok(most)
    }
}

/// Returns how many levels a link may climb. Moving an absolute link does not change where it leads.
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
    use std::path::Path;

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
        let folder = open(root.path());
        let (device, _) = identity(&fstat(&folder).unwrap());
        let waits = Arc::new(());
        let climb_on = |device: u64, name: &str| {
            let mut search = Search::new(device, Arc::downgrade(&waits));
            search.climb_of(&folder, OsStr::new(name))
        };
        let climb = |name: &str| climb_on(device, name);
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
        assert_eq!(climb_on(device + 1, "tree"), Err(Refused::TooLarge));
    }
}
