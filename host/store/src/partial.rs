//! Files that are written under another name and then renamed to their place: a reader finds all of a file, or none.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Mode of new files: the record may contain data other users of the machine mustn't read.
pub(super) const FILE_MODE: u32 = 0o600;

/// What the name of a partial file has after that of its place: `NAME.campanile-PID.partial`.
const MARK: &str = ".campanile-";
const END: &str = ".partial";
/// What SQLite adds to the name of a file for the files that it puts beside it.
pub(super) const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];
/// Those of them without which a file may be incomplete.
pub(super) const JOURNALS: [&str; 2] = ["-journal", "-wal"];

/// A file that is not at its place yet. A drop deletes it.
pub struct PartialFile {
    path: PathBuf,
    place: PathBuf,
}

impl PartialFile {
    /// Create an empty file beside `place`, for this user only.
    pub fn create(place: &Path) -> io::Result<PartialFile> {
        let name = format!("{}{}{END}", &MARK[1..], std::process::id());
        let path = place.with_added_extension(name);
        let file = PartialFile {
            path,
            place: place.to_owned(),
        };
        // In a container, an earlier process may have had the same number.
        file.delete();
        let mut new = File::options();
        new.write(true).create_new(true).mode(FILE_MODE);
        new.open(&file.path)?;
        Ok(file)
    }

    /// Returns where the file is now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Make the file durable, and rename it to its place. A file that is there is replaced. Blocks.
    pub fn install(self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        fs::rename(&self.path, &self.place)?;
        sync_folder(&self.place)
    }

    fn delete(&self) {
        // Usually there is nothing to delete.
        let _ = fs::remove_file(&self.path);
        for end in BESIDE {
            let _ = fs::remove_file(with_end(&self.path, end));
        }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Make the names in the folder of `path` durable. Blocks.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Returns `path` with `end` after its name.
pub(super) fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// Delete the partial files in `folder` whose process has ended, and return their paths. Blocks.
pub fn delete_left(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let left = entries.filter(|entry| writer(&entry.file_name()).is_some_and(|pid| !runs(pid)));
    let paths = left.map(|entry| entry.path());
    paths.filter(|path| fs::remove_file(path).is_ok()).collect()
}

/// Returns the process that writes the partial file of this name, or a file of SQLite beside it; none for other files.
fn writer(name: &OsStr) -> Option<Pid> {
    let name = name.to_str()?;
    let name = BESIDE
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    let (_, pid) = name.strip_suffix(END)?.rsplit_once(MARK)?;
    let pid: u32 = pid.parse().ok()?;
    Pid::from_raw(pid.try_into().ok()?)
}

/// Whether a process runs, also one of another user.
fn runs(pid: Pid) -> bool {
    test_kill_process(pid) != Err(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_partial_file_names_its_process() {
        for (name, expected) in [
            ("nightly.db.campanile-4711.partial", Some(4711)),
            ("nightly.db.campanile-4711.partial-journal", Some(4711)),
            ("a.campanile-1.b.campanile-2.partial", Some(2)),
            ("nightly.db.campanile-0.partial", None),
            ("nightly.db.campanile-.partial", None),
            ("nightly.db.campanile--5.partial", None),
            ("nightly.db.4711.partial", None),
            ("nightly.db", None),
            ("nightly.db-journal", None),
        ] {
            let pid = writer(OsStr::new(name)).map(|pid| pid.as_raw_nonzero().get());
            assert_eq!(pid, expected, "{name}");
        }
    }

    #[test]
    fn a_partial_file_becomes_its_place_or_disappears() {
        let folder = std::env::temp_dir().join(format!("campanile-partial-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let place = folder.join("copy.db");
        fs::write(&place, "old").unwrap();

        let dropped = PartialFile::create(&place).unwrap();
        fs::write(with_end(dropped.path(), "-wal"), "").unwrap();
        drop(dropped);
        let written = PartialFile::create(&place).unwrap();
        fs::write(written.path(), "new").unwrap();
        // It belongs to a process that runs.
        assert_eq!(delete_left(&folder), [] as [PathBuf; 0]);
        written.install().unwrap();

        assert_eq!(fs::read_to_string(&place).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
