//! Looking at the folder: which files there are, whether they hold still, and what is in them.
//!
//! All of it blocks; call it off the async threads. Nothing here opens what is not a regular file:
//! opening a FIFO waits for a writer that may never come.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// What tells one content of a file from another without reading it.
///
/// The change time is the one that no program can set, so it also gives away a write that put the old
/// modification time back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub size_bytes: u64,
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Stamp {
        Stamp {
            size_bytes: found.size(),
            device: found.dev(),
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// One file as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    File(Stamp),
    /// It is there and cannot be used: a sentence that says why.
    Unusable(String),
}

/// The `.wasm` and `.toml` files of a folder, by file name.
///
/// A name that is not UTF-8 stands here with U+FFFD in it, which no package's name may have.
pub(super) type Listing = BTreeMap<String, FileState>;

/// Look at the files of `folder` itself, not below it, following links.
///
/// Hidden files are left out; names that copies are made under, such as `x.wasm.tmp`, `x.wasm.part`
/// and `x.wasm~`, do not end in `.wasm`.
pub(super) fn list(folder: &Path) -> io::Result<Listing> {
    let mut listing = Listing::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || !(name.ends_with(".toml") || name.ends_with(".wasm")) {
            continue;
        }
        if let Some(reading) = inspect(&entry.path()) {
            listing.insert(name, reading);
        }
    }
    Ok(listing)
}

/// What is at `path`, following links; none when nothing is.
///
/// What cannot be used is not passed over: a package must not lose its limits because its sidecar
/// became something else.
pub fn inspect(path: &Path) -> Option<FileState> {
    let unusable = |why: &str| Some(FileState::Unusable(why.to_owned()));
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Some(FileState::File(Stamp::of(&found))),
        Ok(_) => unusable("it is not a regular file"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
                true => unusable("it is a link to nothing"),
                false => None,
            }
        }
        Err(error) => unusable(&format!("it cannot be looked at: {error}")),
    }
}

/// Why a file was not read.
#[derive(Debug)]
pub enum ReadError {
    /// It is not the file that was listed any more: look again.
    Changed,
    /// A sentence that says why.
    Failed(String),
}

/// The content of the file at `path`, if it still is the one with `stamp`, before and after reading.
pub fn read(path: &Path, stamp: Stamp) -> Result<Vec<u8>, ReadError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ReadError::Changed,
        _ => ReadError::Failed(format!("it cannot be read: {error}")),
    };
    // A pipe may have taken the file's place since it was listed; this way not even that waits.
    let mut file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(failed)?;
    let same = |file: &File| -> Result<(), ReadError> {
        let found = file.metadata().map_err(failed)?;
        match found.is_file() && Stamp::of(&found) == stamp {
            true => Ok(()),
            false => Err(ReadError::Changed),
        }
    };
    same(&file)?;
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size_bytes).unwrap_or(0));
    (&mut file)
        .take(stamp.size_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    same(&file)?;
    match bytes.len() as u64 == stamp.size_bytes {
        true => Ok(bytes),
        false => Err(ReadError::Changed),
    }
}

/// The text of the file at `path`; none when nothing is there. The error says why there is no text.
pub fn read_text(path: &Path) -> Result<Option<String>, String> {
    let bytes = match inspect(path) {
        None => return Ok(None),
        Some(FileState::Unusable(why)) => return Err(why),
        Some(FileState::File(stamp)) => read(path, stamp).map_err(|unread| match unread {
            ReadError::Changed => "it changed while it was read; try again".to_owned(),
            ReadError::Failed(why) => why,
        })?,
    };
    text(bytes).map(Some)
}

/// The text that `bytes` are; the error says that they are none.
pub fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text; save it as such".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    fn stamp(folder: &Path, name: &str) -> Stamp {
        match &list(folder).unwrap()[name] {
            FileState::File(stamp) => *stamp,
            FileState::Unusable(why) => panic!("{why}"),
        }
    }

    #[test]
    fn wasm_and_toml_files_of_the_folder_itself_are_listed_and_what_cannot_be_used_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [
            "a.wasm",
            "a.toml",
            ".b.wasm",
            "c.wasm.tmp",
            "c.wasm.part",
            "c.wasm~",
            "d.cwasm",
            "wasm",
        ] {
            fs::write(at(name), "").unwrap();
        }
        fs::create_dir_all(at("hello/target")).unwrap();
        fs::write(at("hello/deep.wasm"), "").unwrap();
        fs::create_dir(at("directory.wasm")).unwrap();
        fs::create_dir(at("directory.toml")).unwrap();
        symlink(at("a.wasm"), at("link.wasm")).unwrap();
        symlink(at("nothing"), at("broken.wasm")).unwrap();
        symlink(at("nothing"), at("broken.toml")).unwrap();
        symlink("loop.wasm", at("loop.wasm")).unwrap();
        let made = Command::new("mkfifo")
            .arg(at("pipe.wasm"))
            .status()
            .unwrap();
        assert!(made.success());
        let listing = list(folder.path()).unwrap();
        let files = listing
            .iter()
            .filter(|(_, reading)| matches!(reading, FileState::File(_)));
        let files: Vec<&str> = files.map(|(name, _)| name.as_str()).collect();
        assert_eq!(files, ["a.toml", "a.wasm", "link.wasm"]);
        assert_eq!(listing.len(), 9, "{listing:?}");
        for (name, why) in [
            ("directory.toml", "it is not a regular file"),
            ("directory.wasm", "it is not a regular file"),
            ("pipe.wasm", "it is not a regular file"),
            ("broken.toml", "it is a link to nothing"),
            ("broken.wasm", "it is a link to nothing"),
        ] {
            assert_eq!(listing[name], FileState::Unusable(why.to_owned()), "{name}");
        }
        assert!(matches!(listing["loop.wasm"], FileState::Unusable(_)));
    }

    #[test]
    fn a_file_that_changed_since_it_was_listed_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        fs::write(&path, "one").unwrap();
        let before = stamp(folder.path(), "a.wasm");
        assert_eq!(read(&path, before).unwrap(), b"one");
        fs::write(&path, "longer").unwrap();
        assert!(matches!(read(&path, before), Err(ReadError::Changed)));
        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&path, before), Err(ReadError::Changed)));
    }

    #[test]
    fn a_pipe_that_took_the_files_place_is_not_waited_for() {
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
        assert!(matches!(read(&path, before), Err(ReadError::Changed)));
    }

    #[test]
    fn a_write_that_puts_the_old_time_back_is_still_seen() {
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
