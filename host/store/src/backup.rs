//! Copies of a SQLite database: where one may be written, how it is made while a host serves, and how it is checked.
//!
//! `VACUUM INTO` reads in one transaction, so a copy is the database at one moment. Writers continue.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sqlx::SqliteConnection;

use super::error::refused;
use super::events::{self, EventKind};
use super::partial::{BESIDE, JOURNALS, PartialFile, with_end};
use super::sql::{Locking, statements};
use super::{DatabaseUrl, Db, DbError, Pools, Result, size};
use crate::disk::free_bytes;
use campanile_model::access::Actor;
use campanile_model::clock::Timestamp;
use campanile_model::text::size_rounded;

/// The subject of events about the whole database.
pub const SUBJECT: &str = "database";

/// The instant, the launches and the bytes of a copy of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Everything that was committed before is in the copy.
    pub taken_at: Timestamp,
    pub launches: i64,
    pub bytes: u64,
}

statements! {
    /// Returns `ok`, or the first damage that SQLite finds in a whole file.
    pub(super) async fn damage() -> String = one_value Locking {
        sqlite: "PRAGMA integrity_check(1)",
        postgres: "SELECT 'ok'",
    };

    /// Returns the newest instant on record. In a copy it is the instant of the snapshot.
    pub async fn newest_instant() -> Option<Timestamp> = one_value
        "SELECT max(at) FROM (SELECT max(at) AS at FROM event UNION ALL SELECT max(heartbeat_at) FROM host) AS newest";

    /// Count the launches.
    pub async fn launches() -> i64 = one_value "SELECT count(*) FROM launch";
}

impl Db {
    /// Returns the first damage that SQLite finds, reading all of the file; none on Postgres, which looks after its own.
    ///
    /// # Errors
    ///
    /// Those of a read: `Damaged` when the damage is where SQLite begins.
    pub async fn search_damage(&self) -> Result<Option<String>> {
        let mut tx = self.read_long().await?;
        let found = damage(&mut tx).await?;
        Ok((found != "ok").then_some(found))
    }
}

/// Returns where to write a copy meant for `file`, or refuses it: the folder must exist, and `file` may be
/// neither a file of `database` nor, without `replace`, any file. Blocks.
///
/// # Errors
///
/// `Refused`, with what to do.
pub fn place(database: &Path, file: &Path, replace: bool) -> Result<PathBuf> {
    let shown = file.display();
    let refused = |why: &str| refused(format!("{shown} {why}"));
    if is_file_of(database, file) {
        return refused("is a file of the database itself; give another name");
    }
    let is_folder = file.as_os_str().as_encoded_bytes().ends_with(b"/") || file.is_dir();
    let Some(name) = file.file_name().filter(|_| !is_folder) else {
        return refused("is a folder; name a file in it");
    };
    let folder = folder_of(file);
    let Ok(folder) = fs::canonicalize(&folder) else {
        let folder = folder.display();
        let why = format!("cannot be written: there is no folder {folder}; create it first");
        return refused(&why);
    };
    let place = folder.join(name);
    if BESIDE.iter().any(|end| with_end(&place, end).exists()) {
        return refused(IN_USE);
    }
    match fs::symlink_metadata(&place) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(place),
        Err(error) => refused(&format!("cannot be read: {error}; give another name")),
        Ok(found) if !found.is_file() => refused("is not a plain file; give another name"),
        Ok(_) if !replace => refused("exists; give another name, or replace it with --force"),
        Ok(_) => Ok(place),
    }
}

/// Why a file with a journal beside it is no backup, and may not be replaced by one.
const IN_USE: &str = "is a database in use: a journal is beside it; give another file, or stop the program that uses it";

/// Refuse a file that cannot be a backup to put in the place of `database`: a file of that database, or one with a
/// journal, without which it is not complete. Blocks.
pub fn check_source(database: &Path, file: &Path) -> Result {
    let refused = |why: &str| refused(format!("{} {why}", file.display()));
    match fs::metadata(file) {
        Err(error) => return refused(&format!("cannot be read: {error}; name a backup")),
        Ok(found) if !found.is_file() => return refused("is not a plain file; name a backup"),
        Ok(_) => {}
    }
    if is_file_of(database, file) {
        return refused("is a file of the database itself; name a backup of it");
    }
    let has_content = |path: PathBuf| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    if JOURNALS.iter().any(|end| has_content(with_end(file, end))) {
        refused(IN_USE)
    } else {
        Ok(())
    }
}

/// Refuse to write `bytes` to the file system of `place` when it has less room. Blocks.
pub fn check_room(place: &Path, bytes: u64) -> Result {
    let folder = folder_of(place);
    match free_bytes(&folder) {
        Ok(free) if free < bytes => refused(format!(
            "the disk of {} has {} free, and {} needs {}; free some space first",
            folder.display(),
            size_rounded(free),
            place.display(),
            size_rounded(bytes)
        )),
        // A file system that does not say is tried.
        _ => Ok(()),
    }
}

/// Whether `file` is the SQLite file `database`, or one that SQLite or a host puts beside it, under whatever name.
fn is_file_of(database: &Path, file: &Path) -> bool {
    let (database, place) = (resolved(database), resolved(file));
    let inode = |path: &Path| {
        fs::metadata(path)
            .ok()
            .map(|found| (found.dev(), found.ino()))
    };
    ["", ".lock"].iter().chain(&BESIDE).any(|end| {
        let own = with_end(&database, end);
        own == place || inode(&own).is_some_and(|found| inode(&place) == Some(found))
    })
}

/// Returns `path` without links, as far as it exists.
pub(super) fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| {
        let folder = fs::canonicalize(folder_of(path)).unwrap_or_else(|_| folder_of(path));
        folder.join(path.file_name().unwrap_or_default())
    })
}

fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new(".")).to_owned()
}

impl Db {
    /// Returns the bytes that a copy of this SQLite database has at most.
    pub async fn used_bytes(&self) -> Result<u64> {
        let bytes = size::used_bytes(&mut self.read().await?).await?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// Write everything that is committed now to `copy`, which is empty.
    ///
    /// It reads in one transaction, and keeps no writer waiting. The write-ahead log of the database grows meanwhile.
    ///
    /// # Errors
    ///
    /// `Refused` when the copy cannot be written.
    pub async fn copy_to(&self, copy: &PartialFile) -> Result {
        match &self.pools {
            Pools::Sqlite { writer, .. } => {
                vacuum_into(&mut *writer.acquire().await?, copy.path()).await
            }
            Pools::Postgres(_) => refused("only a SQLite database is a file that can be copied"),
        }
    }
}

/// Write the database of `connection` to the empty file at `path`.
pub(super) async fn vacuum_into(connection: &mut SqliteConnection, path: &Path) -> Result {
    let Some(text) = path.to_str() else {
        let shown = path.display();
        return refused(format!("{shown} is not a name in UTF-8; give another name"));
    };
    let written = sqlx::query("VACUUM INTO $1").bind(text);
    if let Err(error) = written.execute(connection).await {
        let error = DbError::from(error).into_message();
        return refused(format!(
            "{text} could not be written, and is deleted: {error}"
        ));
    }
    Ok(())
}

/// Record in a copy that it was made at `now`: everything that was committed before is in it.
///
/// `actor` made the copy.
pub async fn record_backup(copy: &PartialFile, actor: Actor, now: Timestamp) -> Result {
    let db = Db::open(&DatabaseUrl::Sqlite(copy.path().to_owned())).await?;
    let db = db.acting_as(actor);
    let mut tx = db.write().await?;
    let detail = "this database is a copy of what was recorded until then";
    events::record(&mut tx, now, EventKind::BackupTaken, SUBJECT, detail).await?;
    tx.commit().await?;
    db.close().await;
    Ok(())
}

/// Check that the file at `path` is a Campanile database with the tables of this version. Return its [`Snapshot`].
///
/// With `whole`, all pages and indexes are read and compared. Errors call the file `shown`. No other process may write the
/// file. It is not changed.
///
/// # Errors
///
/// `Refused` or `Schema`, with what to do.
pub async fn check(path: &Path, shown: &Path, whole: bool) -> Result<Snapshot> {
    let db = Db::open_copy(path);
    let checked = check_open(&db, whole).await;
    db.close().await;
    let (taken_at, launches) = match checked {
        Ok(checked) => checked,
        // This error names the file already.
        Err(schema @ (DbError::Schema(_) | DbError::NewerSchema(_))) => return Err(schema),
        Err(other) => {
            let (shown, error) = (shown.display(), other.into_message());
            return refused(format!("{shown} cannot be used: {error}"));
        }
    };
    let bytes = fs::metadata(path).map_or(0, |found| found.len());
    Ok(Snapshot {
        taken_at,
        launches,
        bytes,
    })
}

async fn check_open(db: &Db, whole: bool) -> Result<(Timestamp, i64)> {
    let states = db.migrations().await?;
    if !states.iter().any(|state| state.applied) {
        return refused("it has no tables of Campanile; name a backup of Campanile");
    }
    if let Some(missing) = states.iter().find(|state| !state.applied) {
        return Err(DbError::Schema(format!(
            "{} lacks schema version {}; use the campanile that wrote it, and start this one on the result",
            db.url, missing.version
        )));
    }
    let mut tx = db.read().await?;
    if whole {
        let damage = damage(&mut tx).await?;
        if damage != "ok" {
            return refused(format!("it is damaged ({damage}); use an older backup"));
        }
    }
    let taken_at = newest_instant(&mut tx).await?.unwrap_or(Timestamp::EPOCH);
    Ok((taken_at, launches(&mut tx).await?))
}
