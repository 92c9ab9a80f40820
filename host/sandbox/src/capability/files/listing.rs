//! Listing a directory.
//!
//! A name in WASI is UTF-8 text. One that isn't is listed with its other bytes escaped, as `ls` shows it: the listing goes on, and
//! the error of a task that opens it has the name. No task can open it.

use std::collections::HashSet;
use std::fs::File;
use std::vec;

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry};

/// A listing under way.
pub(crate) struct Listing(vec::IntoIter<DirectoryEntry>);

impl Listing {
    pub(super) fn of(entries: Vec<DirectoryEntry>) -> Listing {
        Listing(entries.into_iter())
    }

    pub(super) fn next(&mut self) -> Option<DirectoryEntry> {
        self.0.next()
    }
}

/// The entries of a directory, and the escaped names among them.
pub(super) struct Entries {
    pub(super) entries: Vec<DirectoryEntry>,
    pub(super) escaped: Vec<DirectoryEntry>,
}

/// Reads the entries of `directory`, without `.` and `..`. Blocks.
pub(super) fn entries_of(directory: &File) -> Result<Entries, Errno> {
    let mut named = Vec::new();
    let mut unnamed = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => FileType::from_raw_mode(found.st_mode),
                // Removed meanwhile.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            },
            kind => kind,
        };
        match name.to_str() {
            Ok(name) => named.push(entry_of(name.to_owned(), kind)),
            Err(_) => unnamed.push((escaped(name.to_bytes()), kind)),
        }
    }
    let mut entries = Entries {
        entries: named,
        escaped: Vec::new(),
    };
    if unnamed.is_empty() {
        return Ok(entries);
    }
    let mut known: HashSet<String> = entries.entries.iter().map(|it| it.name.clone()).collect();
    unnamed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (mut name, kind) in unnamed {
        // A file that has this very name is another one.
        while !known.insert(name.clone()) {
            name.push('?');
        }
        entries.escaped.push(entry_of(name.clone(), kind));
        entries.entries.push(entry_of(name, kind));
    }
    Ok(entries)
}

fn entry_of(name: String, kind: FileType) -> DirectoryEntry {
    let type_ = match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::Fifo | FileType::Socket | FileType::Unknown => DescriptorType::Unknown,
    };
    DirectoryEntry { type_, name }
}

/// Returns a name with the bytes that aren't UTF-8 as `\xe9`.
fn escaped(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn a_name_that_is_not_utf_8_is_listed_escaped() {
        let root = tempfile::tempdir().unwrap();
        let names: [&[u8]; 5] = [
            b"a",
            b"caf\xe9.txt",
            b"caf\\xe9.txt",
            b"\xff",
            "é".as_bytes(),
        ];
        for name in names {
            fs::write(root.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        fs::create_dir(root.path().join(OsStr::from_bytes(b"d\xc3"))).unwrap();
        let found = entries_of(&File::open(root.path()).unwrap()).unwrap();
        let mut names: Vec<&str> = found.entries.iter().map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        let expected = ["\\xff", "a", "caf\\xe9.txt", "caf\\xe9.txt?", "d\\xc3", "é"];
        assert_eq!(names, expected);
        let escaped: Vec<&str> = found.escaped.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(escaped, ["\\xff", "caf\\xe9.txt?", "d\\xc3"]);
        let of = |name: &str| found.entries.iter().find(|it| it.name == name).unwrap();
        assert_eq!(of("d\\xc3").type_, DescriptorType::Directory);
    }
}
