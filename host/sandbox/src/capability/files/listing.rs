//! Lazy directory listings, holding just a few entries in memory however large the directory.
//!
//! WASI names are UTF-8. Other names are listed with their stray bytes escaped, as `ls` does, rather than failing the whole listing. No
//! task can open such a file; the error of one trying to explains why.

use std::fs::File;
use std::sync::Arc;
use std::vec;

use campanile_model::text::size_text;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry};
use wasmtime_wasi::runtime::spawn_blocking;

use crate::capability::shared::{OpenFile, Shared};
use crate::ledger::fair_shares::FairShare;

/// Bounds for reading entries in one go: their count, keeping the thread busy only briefly, and the bytes of their names.
const PART_ENTRIES: usize = 128;
const PART_BYTES: usize = 32 << 10;

/// Upper bound for the memory of one listing: a part, storing escaped names twice, and the system call's buffer.
const LISTING_BYTES: u64 = 128 << 10;

/// A listing in progress, counting as an open file.
pub(crate) struct Listing {
    /// Entries read but not yet returned.
    part: vec::IntoIter<DirectoryEntry>,
    /// None after reaching the end of the directory.
    rest: Option<Dir>,
    /// The directory's path as the task sees it.
    path: String,
    held: Option<Held>,
}

/// What a listing holds until it's dropped.
struct Held {
    shared: Arc<Shared>,
    _file: Arc<OpenFile>,
    _memory: FairShare,
}

struct Part {
    entries: Vec<DirectoryEntry>,
    /// Those of `entries` with escaped names.
    escaped: Vec<DirectoryEntry>,
    /// None after reaching the end of the directory.
    rest: Option<Dir>,
}

/// Why a listing can't start.
pub(super) enum Unlisted {
    /// The call or its package is at its limit. The reason is already recorded.
    Refused,
    Failed(Errno),
}

impl Listing {
    /// Returns a listing of known `entries`, with nothing left to read.
    pub(super) fn of(entries: Vec<DirectoryEntry>) -> Listing {
        Listing {
            part: entries.into_iter(),
            rest: None,
            path: String::new(),
            held: None,
        }
    }

    /// Starts listing `directory`, known to the task as `path`.
    pub(super) async fn begin(
        shared: &Arc<Shared>,
        directory: Arc<File>,
        path: String,
    ) -> Result<Listing, Unlisted> {
        let file = OpenFile::open(shared).ok_or(Unlisted::Refused)?;
        let (memory, package) = (&shared.ledger.memory, &shared.call.package);
        let memory = memory.try_acquire(package, LISTING_BYTES, u64::MAX);
        let Some(memory) = memory else {
            shared.exceed(format!(
                "listing {path} needs {} of the host's memory, and the calls of this package can't have that now; let fewer run at once, or raise `memory_total` under `[sandbox]`",
                size_text(LISTING_BYTES)
            ));
            return Err(Unlisted::Refused);
        };
        let opening = spawn_blocking(move || Dir::read_from(&*directory));
        Ok(Listing {
            part: Vec::new().into_iter(),
            rest: Some(opening.await.map_err(Unlisted::Failed)?),
            path,
            held: Some(Held {
                shared: Arc::clone(shared),
                _file: file,
                _memory: memory,
            }),
        })
    }

    /// Returns the next entry, reading more when needed. Calls `note_escaped` with the path and type of each entry read whose name had to
    /// be escaped.
    ///
    /// # Errors
    /// Returns an error if reading fails, which ends the listing.
    pub(super) async fn next(
        &mut self,
        mut note_escaped: impl FnMut(String, DescriptorType),
    ) -> Result<Option<DirectoryEntry>, Errno> {
        loop {
            if let Some(entry) = self.part.next() {
                return Ok(Some(entry));
            }
            let (Some(rest), Some(Held { shared, .. })) = (self.rest.take(), &self.held) else {
                return Ok(None);
            };
            let threads = &shared.ledger.file_threads;
            let thread = threads.acquire(&shared.call.package, 1, u64::MAX).await;
            let reading = spawn_blocking(move || {
                let _thread = thread;
                read_part(rest)
            });
            let read = reading.await?;
            for entry in read.escaped {
                let path = format!("{}/{}", self.path.trim_end_matches('/'), entry.name);
                note_escaped(path, entry.type_);
            }
            self.part = read.entries.into_iter();
            self.rest = read.rest;
        }
    }
}

/// Reads the next few entries, leaving out `.` and `..`. Blocks.
fn read_part(mut directory: Dir) -> Result<Part, Errno> {
    let (mut entries, mut escaped, mut bytes) = (Vec::new(), Vec::new(), 0);
    while entries.len() < PART_ENTRIES && bytes < PART_BYTES {
        let Some(entry) = directory.read() else {
            return Ok(Part {
                entries,
                escaped,
                rest: None,
            });
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match statat(directory.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => FileType::from_raw_mode(found.st_mode),
                // Removed since it was read.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            },
            kind => kind,
        };
        let shown = match name.to_str() {
            Ok(name) => name.to_owned(),
            Err(_) => {
                let shown = escaped_name(&directory, name.to_bytes())?;
                escaped.push(entry_of(shown.clone(), kind));
                shown
            }
        };
        bytes += shown.len();
        entries.push(entry_of(shown, kind));
    }
    Ok(Part {
        entries,
        escaped,
        rest: Some(directory),
    })
}

/// Returns a printable stand-in for a name that isn't UTF-8, taken by no other entry of `directory`.
fn escaped_name(directory: &Dir, name: &[u8]) -> Result<String, Errno> {
    let mut name = escape(name);
    // Another file really has this name. Appending a question mark is safe: no other escaped name ends in one.
    while statat(directory.fd()?, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        name.push('?');
    }
    Ok(name)
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

/// Replaces bytes that aren't UTF-8 by escapes like `\xe9`. Also escapes backslashes and a trailing question mark, keeping different names
/// different.
fn escape(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\x5c"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    match text.strip_suffix('?') {
        Some(begin) => format!("{begin}\\x3f"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    fn parts_of(folder: &std::path::Path) -> Vec<Part> {
        let mut rest = Some(Dir::read_from(File::open(folder).unwrap()).unwrap());
        let mut parts = Vec::new();
        while let Some(directory) = rest {
            let mut part = read_part(directory).unwrap();
            rest = part.rest.take();
            parts.push(part);
        }
        parts
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_listed_escaped() {
        let root = tempfile::tempdir().unwrap();
        let names: [&[u8]; 8] = [
            b"a",
            b"caf\xe9.txt",
            b"caf\\xe9.txt",
            b"caf\xe9.txt?",
            b"\xff",
            b"\xff\\xff",
            b"\xff\xff",
            "é".as_bytes(),
        ];
        for name in names {
            fs::write(root.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        fs::create_dir(root.path().join(OsStr::from_bytes(b"d\xc3"))).unwrap();
        let [found] = &parts_of(root.path())[..] else {
            panic!("a few entries are one part")
        };
        let sorted = |entries: &[DirectoryEntry]| -> Vec<String> {
            let names: BTreeSet<String> = entries.iter().map(|it| it.name.clone()).collect();
            names.into_iter().collect()
        };
        let escaped = [
            "\\xff",
            "\\xff\\x5cxff",
            "\\xff\\xff",
            "caf\\xe9.txt?",
            "caf\\xe9.txt\\x3f",
            "d\\xc3",
        ];
        assert_eq!(sorted(&found.escaped), escaped);
        let mut expected = escaped.to_vec();
        expected.extend(["a", "caf\\xe9.txt", "é"]);
        expected.sort_unstable();
        assert_eq!(sorted(&found.entries), expected);
        let of = |name: &str| found.entries.iter().find(|it| it.name == name).unwrap();
        assert_eq!(of("d\\xc3").type_, DescriptorType::Directory);
    }

    #[test]
    fn a_directory_is_read_in_parts_each_entry_once() {
        let root = tempfile::tempdir().unwrap();
        let count = 3 * PART_ENTRIES + 1;
        for number in 0..count {
            fs::write(root.path().join(format!("{number:0>250}")), "").unwrap();
        }
        let parts = parts_of(root.path());
        assert!(parts.iter().all(|part| part.entries.len() <= PART_ENTRIES));
        let names = parts.iter().flat_map(|part| &part.entries);
        let names: BTreeSet<&str> = names.map(|entry| entry.name.as_str()).collect();
        assert_eq!(names.len(), count);
        assert_eq!(
            parts.iter().map(|it| it.entries.len()).sum::<usize>(),
            count
        );
    }
}
