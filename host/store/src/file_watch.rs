//! Watching a SQLite database's files while a host serves it: are they still the ones the host has open?
//!
//! Commits go to the write-ahead log first, `campanile.db-wal`, indexed by `-shm`. SQLite carries on with deleted, replaced or
//! truncated files without complaining for a long time. No other process, nor a restart, would find anything recorded there.
//!
//! SQLite deletes both files when the last connection closes, so the watch keeps a connection of its own open.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};

use super::Result;
use super::inode_lock::{FileId, file_id};
use super::partial::with_end;

/// How long the watch's connection waits for other processes.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// Damage done to a database file behind SQLite's back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileLoss {
    /// The database was renamed, deleted or replaced.
    Moved(PathBuf),
    /// Its `-wal` or `-shm` file was deleted or replaced.
    Journal(PathBuf),
    /// The database or its `-wal` file was truncated or overwritten.
    Overwritten(PathBuf),
}

/// Watches one database's files.
pub(super) struct FileWatch {
    /// Keeps `-wal` and `-shm` in place. None once closed.
    keeper: Option<SqliteConnection>,
    database: PathBuf,
    /// Each path, and the file found there at the start.
    found: [(PathBuf, Option<FileId>); 3],
    #[cfg(target_os = "linux")]
    content: content::Content,
}

impl FileWatch {
    /// Starts watching the files of `database`, a path without links.
    pub(super) async fn start(database: &Path) -> Result<FileWatch> {
        let options = SqliteConnectOptions::new()
            .filename(database)
            .create_if_missing(false)
            .busy_timeout(BUSY_WAIT)
            .pragma("query_only", "ON");
        let mut keeper = options.connect().await?;
        // The first read opens both files.
        sqlx::query("SELECT count(*) FROM sqlite_schema")
            .execute(&mut keeper)
            .await?;
        let found = ["", "-wal", "-shm"].map(|end| {
            let path = with_end(database, end);
            let id = file_id(&path).ok().flatten();
            (path, id)
        });
        Ok(FileWatch {
            keeper: Some(keeper),
            database: database.to_owned(),
            found,
            #[cfg(target_os = "linux")]
            content: content::Content::default(),
        })
    }

    /// Returns what happened to the files, if anything.
    pub(super) fn look(&mut self) -> Option<FileLoss> {
        for (path, known) in &self.found {
            // A failing file system doesn't mean the file is gone.
            if file_id(path).is_ok_and(|found| found != *known) {
                return Some(if *path == self.database {
                    FileLoss::Moved(path.clone())
                } else {
                    FileLoss::Journal(path.clone())
                });
            }
        }
        #[cfg(target_os = "linux")]
        if let Some(path) = self.content.look(&self.database) {
            return Some(FileLoss::Overwritten(path));
        }
        None
    }

    /// Whether the host's open log may be merged into the file, because no other process has begun a new log.
    pub(super) fn may_merge(&self) -> bool {
        let [_, (log, known), _] = &self.found;
        match file_id(log) {
            Ok(None) => true,
            Ok(found) if found == *known => true,
            _ => std::fs::metadata(log).is_ok_and(|found| found.len() == 0),
        }
    }

    /// Lets the last other connection delete the log on closing.
    pub(super) async fn end(&mut self) -> Result {
        if let Some(keeper) = self.keeper.take() {
            keeper.close().await?;
        }
        Ok(())
    }
}

/// Whether the files agree with each other. They're read through handles staying open: see `inode_lock.rs`.
#[cfg(target_os = "linux")]
mod content {
    use std::path::{Path, PathBuf};

    use super::super::inode_lock::read_open_file;
    use super::with_end;

    /// A SQLite file begins with this; a change counter follows.
    const MAGIC: &[u8] = b"SQLite format 3\0";
    const HEADER_BYTES: usize = 100;
    const COUNTER_AT: usize = 24;
    /// The log's index begins with two copies of its header.
    const INDEX_HEADER_BYTES: usize = 48;
    const LOG_HEADER_BYTES: u64 = 32;
    const FRAME_HEADER_BYTES: u64 = 24;
    /// SQLite may be writing while a file is being read, so several looks must agree.
    const LOOKS: usize = 3;

    #[derive(Default)]
    pub(super) struct Content {
        counter: Option<u32>,
        file_bytes_most: u64,
    }

    /// Sizes stated in the index header.
    struct Index {
        log_bytes: u64,
        file_bytes: u64,
    }

    impl Content {
        /// Returns the truncated or overwritten file, if any. Unreadable files are left to SQLite.
        pub(super) fn look(&mut self, database: &Path) -> Option<PathBuf> {
            let looks: Vec<_> = (0..LOOKS).map_while(|_| self.look_once(database)).collect();
            (looks.len() == LOOKS).then(|| looks.into_iter().next())?
        }

        fn look_once(&mut self, database: &Path) -> Option<PathBuf> {
            // Before reading the lengths: SQLite writes first, then updates the index.
            let index = Index::read(&with_end(database, "-shm"))?;
            let log = with_end(database, "-wal");
            let log_bytes = std::fs::metadata(&log).ok()?.len();
            if log_bytes < index.log_bytes {
                return Some(log);
            }
            let file_bytes = std::fs::metadata(database).ok()?.len();
            // The newest pages may still be in the log, so a file is only too short if it used to be longer.
            if file_bytes < index.file_bytes && file_bytes < self.file_bytes_most {
                return Some(database.to_owned());
            }
            self.file_bytes_most = file_bytes;
            let mut header = [0; HEADER_BYTES];
            read_open_file(database, 0, &mut header).ok()?;
            let counter = header.get(COUNTER_AT..COUNTER_AT + 4)?;
            let counter = u32::from_be_bytes(counter.try_into().ok()?);
            let went_back = |before: u32| counter.wrapping_sub(before).cast_signed() < 0;
            if !header.starts_with(MAGIC) || self.counter.is_some_and(went_back) {
                return Some(database.to_owned());
            }
            self.counter = Some(counter);
            None
        }
    }

    impl Index {
        /// Reads the index header of a log; none while it's being written.
        fn read(path: &Path) -> Option<Index> {
            let mut copies = [0; INDEX_HEADER_BYTES * 2];
            read_open_file(path, 0, &mut copies).ok()?;
            let (header, copy) = copies.split_at(INDEX_HEADER_BYTES);
            let is_initialised = header[12] == 1;
            if header != copy || !is_initialised {
                return None;
            }
            let number = |at: usize| {
                let bytes = header.get(at..at + 4)?.try_into().ok()?;
                Some(u64::from(u32::from_ne_bytes(bytes)))
            };
            let page = u64::from(u16::from_ne_bytes([header[14], header[15]]));
            // 64 KiB is stored as 1.
            let page = (page & 0xfe00) + ((page & 1) << 16);
            let log_bytes = match number(16)? {
                0 => 0,
                frames => LOG_HEADER_BYTES + frames * (page + FRAME_HEADER_BYTES),
            };
            Some(Index {
                log_bytes,
                file_bytes: number(20)? * page,
            })
        }
    }
}
