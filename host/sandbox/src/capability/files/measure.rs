//! What a directory holds, found by walking it.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::grants::{QUOTA_BLOCK_BYTES, QUOTA_FILES_MOST};

/// How a directory is opened to be read: never through a link.
pub(super) const READABLE: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The most directories inside each other. A walk keeps one file descriptor open for each.
const DEPTH_MAX: usize = 64;

/// How many files with several names a walk remembers at most, taking about 20 bytes each.
const LINKED_MAX: usize = 1 << 18;

/// The number of entries after which a walk checks whether its result is still wanted.
const CHECK_ENTRIES: u64 = 256;

/// An amount of the two things that a quota limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

impl Amount {
    pub(super) const NOTHING: Amount = Amount { bytes: 0, files: 0 };

    /// One entry of `size` bytes.
    pub(super) fn entry(size: u64) -> Amount {
        Amount {
            bytes: blocks(size),
            files: 1,
        }
    }

    pub(super) fn plus(self, other: Amount) -> Amount {
        Amount {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
        }
    }

    pub(super) fn minus(self, other: Amount) -> Amount {
        Amount {
            bytes: self.bytes.saturating_sub(other.bytes),
            files: self.files.saturating_sub(other.files),
        }
    }
}

/// Returns what an entry of `size` bytes counts: whole blocks, and at least one. An entry without a byte also takes space.
pub(super) fn blocks(size: u64) -> u64 {
    let whole = size.max(1).checked_next_multiple_of(QUOTA_BLOCK_BYTES);
    whole.unwrap_or(u64::MAX)
}

/// Why a directory was not measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unmeasured {
    #[error("it has more than {QUOTA_FILES_MOST} entries, too many to count")]
    TooMany,
    #[error("it has more than {LINKED_MAX} files with several names, too many to count")]
    TooManyLinked,
    #[error("it has more than {DEPTH_MAX} directories inside each other, too many to count")]
    TooDeep,
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// Walk `directory` and return what lies below it. Links are counted, and not followed. Stop when the owner of
/// `waiting` is gone; the result has no meaning then.
///
/// A file with several names counts its size once, and one block for each further name. Files of `open` that have no
/// name any more count too: they take space until they are closed.
pub(super) fn measure(
    directory: &File,
    open: &[Arc<File>],
    waiting: &Weak<()>,
) -> Result<Amount, Unmeasured> {
    let mut walk = Walk {
        found: Amount::NOTHING,
        linked: HashSet::new(),
    };
    let root = open_directory(directory, c".").map_err(unreadable)?;
    let mut on_the_way = vec![root];
    while let Some(reading) = on_the_way.last_mut() {
        let Some(entry) = reading.read() else {
            on_the_way.pop();
            continue;
        };
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let folder = reading.fd().map_err(unreadable)?;
        let is_directory = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => walk.count(&stat)?,
            // Another process has just removed it.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(unreadable(error)),
        };
        if walk.found.files.is_multiple_of(CHECK_ENTRIES) && waiting.strong_count() == 0 {
            break;
        }
        if !is_directory {
            continue;
        }
        match open_directory(folder, name) {
            Ok(_) if on_the_way.len() == DEPTH_MAX => return Err(Unmeasured::TooDeep),
            Ok(below) => on_the_way.push(below),
            // A task cannot change a directory that this process may not read. The other errors are of directories that were just
            // replaced.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    for file in open {
        match fstat(file) {
            Ok(stat) if stat.st_nlink == 0 => drop(walk.count(&stat)?),
            _ => {}
        }
    }
    Ok(walk.found)
}

fn open_directory(folder: impl AsFd, name: &CStr) -> Result<Dir, Errno> {
    Dir::new(openat(folder, name, READABLE, Mode::empty())?)
}

fn unreadable(error: Errno) -> Unmeasured {
    Unmeasured::Unreadable(error.to_string())
}

struct Walk {
    found: Amount,
    /// Device and inode of the files that have several names.
    linked: HashSet<(u64, u64)>,
}

impl Walk {
    /// Count one entry. Return whether it is a directory.
    fn count(&mut self, stat: &Stat) -> Result<bool, Unmeasured> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let size = match kind {
            FileType::RegularFile if stat.st_nlink != 1 && !self.linked.insert(identity(stat)) => 0,
            FileType::RegularFile | FileType::Symlink => u64::try_from(stat.st_size).unwrap_or(0),
            _ => 0,
        };
        if self.linked.len() > LINKED_MAX {
            return Err(Unmeasured::TooManyLinked);
        }
        self.found = self.found.plus(Amount::entry(size));
        if self.found.files > QUOTA_FILES_MOST {
            Err(Unmeasured::TooMany)
        } else {
            Ok(kind == FileType::Directory)
        }
    }
}

/// Returns the device and the inode, which name a file of this machine.
#[expect(
    clippy::useless_conversion,
    reason = "the types differ between systems"
)]
pub(super) fn identity(stat: &Stat) -> (u64, u64) {
    let device = u64::try_from(stat.st_dev).unwrap_or(u64::MAX);
    let inode = u64::try_from(stat.st_ino).unwrap_or(u64::MAX);
    (device, inode)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    const BLOCK: u64 = QUOTA_BLOCK_BYTES;

    fn measured(directory: &Path, open: &[Arc<File>]) -> Result<Amount, Unmeasured> {
        let directory = File::open(directory).unwrap();
        let waits = Arc::new(());
        measure(&directory, open, &Arc::downgrade(&waits))
    }

    #[test]
    fn each_entry_counts_whole_blocks_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("large"), vec![0; 1 << 20]).unwrap();
        assert_eq!(measured(root, &[]), Ok(Amount::NOTHING));
        fs::write(root.join("empty"), "").unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/one-block"), vec![0; 4096]).unwrap();
        fs::write(root.join("a/b/two-blocks"), vec![0; 4097]).unwrap();
        symlink(other.path(), root.join("a/link")).unwrap();
        symlink(root, root.join("a/b/loop")).unwrap();
        let files = 7;
        let bytes = 8 * BLOCK;
        assert_eq!(measured(root, &[]), Ok(Amount { bytes, files }));
        // A sparse file counts its size.
        let sparse = File::create(root.join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        let (bytes, files) = (bytes + (1 << 30), files + 1);
        assert_eq!(measured(root, &[]), Ok(Amount { bytes, files }));
    }

    #[test]
    fn a_file_with_two_names_counts_its_size_once_and_one_without_a_name_while_it_is_open() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::write(&path, vec![0; 10 * 4096]).unwrap();
        fs::hard_link(&path, root.path().join("also")).unwrap();
        let two = Amount {
            bytes: 11 * BLOCK,
            files: 2,
        };
        let open = [Arc::new(File::open(&path).unwrap())];
        assert_eq!(measured(root.path(), &open), Ok(two));
        fs::remove_file(&path).unwrap();
        let one = Amount::entry(10 * 4096);
        assert_eq!(measured(root.path(), &open), Ok(one));
        fs::remove_file(root.path().join("also")).unwrap();
        assert_eq!(measured(root.path(), &open), Ok(one));
        assert_eq!(measured(root.path(), &[]), Ok(Amount::NOTHING));
    }

    #[test]
    fn a_tree_that_is_too_deep_is_not_measured() {
        let root = tempfile::tempdir().unwrap();
        let mut path = root.path().to_owned();
        for _ in 1..DEPTH_MAX {
            path.push("d");
        }
        fs::create_dir_all(&path).unwrap();
        assert!(measured(root.path(), &[]).is_ok());
        fs::create_dir(path.join("d")).unwrap();
        assert_eq!(measured(root.path(), &[]), Err(Unmeasured::TooDeep));
    }
}
