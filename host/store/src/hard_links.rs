//! Hard links of a SQLite file.
//!
//! Each name of a file has a lock and a write-ahead log of its own, and SQLite does not notice that two names lead to one
//! file: two processes would overwrite each other's pages.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Result;
use super::error::refused;

/// What a restore appends to the name of the database that it replaces, before the time.
pub(super) const REPLACED: &str = ".before-";

/// Refuse a file with a second name. A missing file has none.
///
/// A restore gives the replaced file a second name for a moment, and may have been killed then: such names do not count.
pub(super) fn refuse_second_name(database: &Path) -> Result {
    let database = &fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
    let found = fs::metadata(database);
    let Some(found) = found.ok().filter(Metadata::is_file) else {
        return Ok(());
    };
    let names = found.nlink();
    if names < 2 || names - 1 <= names_of_restores(database, &found) {
        return Ok(());
    }
    refused(format!(
        "the file has {names} names (hard links), and under each of them it would have another lock and another journal: find them with `find / -xdev -samefile {}`, and remove all but one",
        database.display()
    ))
}

/// Returns how many names of the file `found` at `database` are those that a restore gives.
fn names_of_restores(database: &Path, found: &Metadata) -> u64 {
    let is_same = |path: &PathBuf| {
        let other = fs::metadata(path).ok();
        other.is_some_and(|other| (other.dev(), other.ino()) == (found.dev(), found.ino()))
    };
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    let beginning = format!("{name}{REPLACED}");
    let entries = database.parent().map(fs::read_dir);
    let entries = entries.into_iter().flatten().flatten().flatten();
    let names = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(&beginning)
    });
    names.map(|entry| entry.path()).filter(is_same).count() as u64
}
