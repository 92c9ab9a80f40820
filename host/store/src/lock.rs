//! The lock that a serving host holds while its process runs.
//!
//! The lock ends with the process, however that ends. So a restart knows at once that the earlier process has ended.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};

use super::open::FILE_MODE;
use super::{Db, DbError, Pools, Result};

/// A lock that one process holds at a time: on SQLite for the whole file, on Postgres for one host name.
pub struct HostLock(Lock);

enum Lock {
    /// Locked until the file is closed.
    File {
        #[expect(dead_code, reason = "held, never read: the lock ends with the file")]
        file: File,
        /// The database, and its inode when the lock was acquired.
        database: PathBuf,
        inode: Option<u64>,
    },
    /// The server keeps the lock while this connection lasts.
    Advisory {
        connection: Option<PgConnection>,
        options: Box<PgConnectOptions>,
        key: i64,
    },
}

// The server must notice a lost machine within half a minute, and not after the default two hours.
const NOTICE: &str =
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";
const TRY_LOCK: &str = "SELECT pg_try_advisory_lock($1)";
const STILL_HELD: &str = "SELECT 1";

impl Db {
    /// Acquire the lock of the host `name`; none when a running process holds it.
    pub async fn host_lock(&self, name: &str) -> Result<Option<HostLock>> {
        match &self.pools {
            Pools::Sqlite { .. } => {
                HostLock::of_file(self.url.sqlite_path().unwrap_or(Path::new("")))
            }
            Pools::Postgres(pool) => {
                let options = pool.connect_options().as_ref().clone();
                let schema: String = sqlx::query_scalar("SELECT current_schema()")
                    .fetch_one(pool)
                    .await?;
                let mut lock = HostLock(Lock::Advisory {
                    connection: None,
                    options: Box::new(options),
                    key: key(&schema, name),
                });
                Ok(lock.hold().await?.then_some(lock))
            }
        }
    }
}

impl HostLock {
    /// Acquire the lock of the SQLite file `database`, which may be missing or damaged; none when a running process holds it.
    ///
    /// # Errors
    ///
    /// `NotWritable` when the lock file beside it cannot be created.
    pub fn of_file(database: &Path) -> Result<Option<HostLock>> {
        // One file has one lock, whatever link leads to it.
        let database = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_owned());
        let path = database.with_added_extension("lock");
        let not_writable =
            |error: std::io::Error| DbError::NotWritable(format!("{}: {error}", path.display()));
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(not_writable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(not_writable(error)),
        }
        // The process id tells an operator which process holds the lock.
        let _ = file.set_len(0);
        let _ = write!(file, "{}", std::process::id());
        let inode = inode(&database);
        Ok(Some(HostLock(Lock::File {
            file,
            database,
            inode,
        })))
    }

    /// Return the path of the SQLite file when the file was deleted or replaced.
    ///
    /// SQLite continues with the open file, and everything recorded there is lost when the process ends.
    pub fn missing_file(&self) -> Option<&Path> {
        match &self.0 {
            Lock::File {
                database,
                inode: of,
                ..
            } => (inode(database) != *of).then_some(database),
            Lock::Advisory { .. } => None,
        }
    }

    /// Return whether the lock is held. When its connection broke, acquire it again.
    ///
    /// False means that another process has the lock: this host must stop.
    pub async fn hold(&mut self) -> Result<bool> {
        let Lock::Advisory {
            connection,
            options,
            key,
        } = &mut self.0
        else {
            return Ok(true);
        };
        if let Some(held) = connection {
            match sqlx::query(STILL_HELD).execute(held).await {
                Ok(_) => return Ok(true),
                Err(_) => *connection = None,
            }
        }
        let mut fresh = options.connect().await?;
        sqlx::raw_sql(NOTICE).execute(&mut fresh).await?;
        let held: bool = sqlx::query_scalar(TRY_LOCK)
            .bind(*key)
            .fetch_one(&mut fresh)
            .await?;
        *connection = held.then_some(fresh);
        Ok(held)
    }
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|found| found.ino())
}

fn key(schema: &str, name: &str) -> i64 {
    let digest = Sha256::digest(format!("campanile host\0{schema}\0{name}"));
    let mut key = [0; 8];
    key.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(key)
}
