//! Put a copy in the place of a SQLite database that no process uses.
//!
//! ```text
//! lock ── copy and check ── lock the old database ── link it to another name ── rename the copy to its place
//!   a kill before the last step leaves the old database, complete; after it, the new one ─────────▲
//! ```
//!
//! The journal of the old database is merged into its file before, because SQLite applies a journal to the file that has
//! the name of its database. The old database stays locked and without write-ahead log until the copy has its name. A
//! process that waits for the lock then finds that its file was moved, and writes nothing.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode};
use sqlx::{ConnectOptions as _, SqliteConnection};

use super::backup::{resolved, vacuum_into};
use super::error::refused;
use super::hard_links::REPLACED;
use super::partial::{BESIDE, JOURNALS, PartialFile, sync_folder, with_end};
use super::{DbError, HostLock, Result};
use campanile_model::clock::Timestamp;

/// How long to wait for another process to close the database.
const BUSY_WAIT: Duration = Duration::from_secs(2);

/// The place of a SQLite database. No host can start on it until this is dropped.
pub struct RestoreTarget {
    path: PathBuf,
    /// The present database, when it was taken over.
    present: Option<SqliteConnection>,
    _lock: HostLock,
}

impl RestoreTarget {
    /// Lock the SQLite file `database`, which may be missing or damaged.
    ///
    /// # Errors
    ///
    /// `Refused` when a host serves it, or its folder is missing; `NotWritable` when the lock cannot be created.
    pub fn lock(database: &Path) -> Result<RestoreTarget> {
        let path = resolved(database);
        let shown = database.display();
        let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
        if is_link(&path) {
            return refused(format!(
                "{shown} is a link to a file that does not exist; remove the link, or create its folder"
            ));
        }
        if !path.parent().is_some_and(Path::is_dir) {
            return refused(format!(
                "the folder of {shown} does not exist; create it first"
            ));
        }
        match HostLock::of_file(&path)? {
            Some(lock) => Ok(RestoreTarget {
                path,
                present: None,
                _lock: lock,
            }),
            None => refused(format!(
                "a host serves {shown}; stop it, and start it again afterwards"
            )),
        }
    }

    /// Returns the path of the database, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Create the file that is to replace the database.
    pub fn create(&self) -> Result<PartialFile> {
        let created = PartialFile::create(&self.path);
        created.map_err(|error| of_file(&self.path, &error))
    }

    /// Create that file with the content of `source`. Blocks.
    pub fn create_from(&self, source: &Path) -> Result<PartialFile> {
        let copy = self.create()?;
        let copied = File::open(source).and_then(|mut from| {
            let mut to = File::options().write(true).open(copy.path())?;
            io::copy(&mut from, &mut to)
        });
        copied.map_err(|error| of_file(copy.path(), &error))?;
        Ok(copy)
    }

    /// Merge the journal of the present database into its file, and lock the file against every other process until this
    /// is dropped.
    ///
    /// # Errors
    ///
    /// `Refused` when another process has the database open. A database that cannot be read is left as it is.
    pub async fn take_over(&mut self) -> Result {
        // SQLite would delete the log of an empty file.
        if !fs::metadata(&self.path).is_ok_and(|found| found.len() > 0) {
            return Ok(());
        }
        let shown = self.path.display();
        match take_over(&self.path).await.map_err(DbError::from) {
            Ok(connection) => self.present = Some(connection),
            Err(DbError::Busy(_)) => {
                return refused(format!("another process has {shown} open; end it first"));
            }
            Err(error @ DbError::DiskFull(_)) => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    /// Write the database that was taken over to `copy`, without its free pages.
    ///
    /// # Errors
    ///
    /// `Refused` when the copy cannot be written, or the database cannot be read.
    pub async fn copy_to(&mut self, copy: &PartialFile) -> Result {
        match &mut self.present {
            Some(present) => vacuum_into(present, copy.path()).await,
            None => refused(format!(
                "{} cannot be read; restore it from a backup",
                self.path.display()
            )),
        }
    }

    /// Keep the present database under a name with the time `now`, beside its place; return that path. None when there is
    /// no database. Blocks.
    pub fn keep(&self, now: Timestamp) -> Result<Option<PathBuf>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let time = now.to_chrono().format("%Y%m%dT%H%M%S.%3fZ");
        let kept = with_end(&self.path, &format!("{REPLACED}{time}"));
        let is_kept = self.keep_as(&kept);
        is_kept.map_err(|error| of_file(&kept, &error))?;
        Ok(Some(kept))
    }

    fn keep_as(&self, kept: &Path) -> io::Result<()> {
        link(&self.path, kept)?;
        // A database that was taken over is complete without a journal.
        if self.present.is_none() {
            for end in JOURNALS {
                let journal = with_end(&self.path, end);
                unless_missing(link(&journal, &with_end(kept, end)))?;
            }
        }
        sync_folder(kept)
    }

    /// Put `copy` in the place of the database. Owner and mode stay those of the file that it replaces. Blocks.
    pub fn install(&self, copy: PartialFile) -> Result {
        let installed = self.replace(copy);
        installed.map_err(|error| of_file(&self.path, &error))
    }

    fn replace(&self, copy: PartialFile) -> io::Result<()> {
        if let Ok(found) = fs::metadata(&self.path) {
            fs::set_permissions(copy.path(), fs::Permissions::from_mode(found.mode()))?;
            std::os::unix::fs::chown(copy.path(), Some(found.uid()), Some(found.gid()))?;
        }
        for end in BESIDE {
            unless_missing(fs::remove_file(with_end(&self.path, end)))?;
        }
        sync_folder(&self.path)?;
        copy.install()
    }
}

/// Switch a SQLite file to a mode without write-ahead log, which succeeds only while no other process has it open, and
/// return the connection, which keeps it locked.
async fn take_over(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_WAIT)
        .locking_mode(SqliteLockingMode::Exclusive)
        .journal_mode(SqliteJournalMode::Delete);
    let mut connection = options.connect().await?;
    sqlx::raw_sql("BEGIN EXCLUSIVE; COMMIT")
        .execute(&mut connection)
        .await?;
    Ok(connection)
}

/// Give a file a second name, or copy it where a file system has no such names.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    use io::ErrorKind::{AlreadyExists, NotFound};
    match fs::hard_link(from, to) {
        Err(error) if !matches!(error.kind(), AlreadyExists | NotFound) => {
            fs::copy(from, to)?;
            File::open(to)?.sync_all()
        }
        linked => linked,
    }
}

fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Returns the error of a file operation.
fn of_file(path: &Path, error: &io::Error) -> DbError {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space first",
        _ => "check the permissions of its folder",
    };
    DbError::Refused(format!(
        "{} cannot be written: {error}; {hint}",
        path.display()
    ))
}
