//! The lock that a serving host holds while its process runs.
//!
//! The lock ends with the process, however that ends. So a restart knows at once that the earlier process has ended.

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;
use tokio::time::timeout;

use super::file_watch::{FileLoss, FileWatch};
use super::hard_links::refuse_second_name;
use super::inode_lock::InodeLock;
use super::partial::FILE_MODE;
use super::postgres::Server;
use super::{Db, DbError, Pools, Result};
use campanile_model::clock::Timestamp;

/// A lock that one process holds at a time: on SQLite for the whole file, on Postgres for one host name.
pub struct HostLock(Lock);

enum Lock {
    File(FileLock),
    Advisory(NameLock),
}

/// The lock on a SQLite database: of a file beside it, and of the file itself.
struct FileLock {
    /// Locked until it is closed.
    file: File,
    path: PathBuf,
    /// None while a host that does not run has it.
    _inode: Option<InodeLock>,
    /// Only for a serving host.
    watch: Option<FileWatch>,
}

/// The lock on a host's name. The server keeps it while the connection lasts.
struct NameLock {
    server: Server,
    key: i64,
    connection: Option<PgConnection>,
    /// Whether the lock's holder has lost its name to this process. The server is then asked to end its session.
    ends_holder: bool,
    /// The session that had the lock last: its process on the server, and when that began.
    session: Option<(i32, Timestamp)>,
}

/// How long the connection of a lock may take to answer before another one is opened, in seconds.
const ANSWER_SECONDS: u64 = 3;

/// Seconds of silence before the server ends the session holding the lock. Holders send a query every second; without this limit, a
/// proxy could keep a dead one's session open for much longer.
const IDLE_SECONDS: u64 = 20;

// Unknown to servers before version 14.
const BOUND_IDLENESS: &str = "SELECT set_config('idle_session_timeout', $1, false)
    WHERE CAST(current_setting('server_version_num') AS INT) >= 140000";
const TRY_LOCK: &str =
    "SELECT pg_try_advisory_lock($1), a.pid, a.backend_start FROM pg_stat_activity a
    WHERE a.pid = pg_backend_pid()";
// A pooler may have given the process to another program. So the process must have the lock.
const END_SESSION: &str = "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
    WHERE a.pid = $1 AND a.backend_start = $2 AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND CAST(l.classid AS BIGINT) = $3 AND CAST(l.objid AS BIGINT) = $4";
const END_HOLDER: &str = "SELECT pg_terminate_backend(l.pid) FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND CAST(l.classid AS BIGINT) = $1 AND CAST(l.objid AS BIGINT) = $2";

impl Db {
    /// Returns whether the database is a SQLite file without a lock file beside it.
    pub fn lacks_lock_file(&self) -> bool {
        let path = self.url.sqlite_path();
        path.is_some_and(|path| !lock_path(path).exists())
    }

    /// Acquire the lock file of a SQLite database whose file itself is locked by a host without a lock file; none when a
    /// running process holds the lock file.
    ///
    /// That host has lost its lock file and has not created it again, so it does not run. When it runs again, it stops.
    pub async fn lock_of_silent_host(&self) -> Result<Option<HostLock>> {
        match self.url.sqlite_path() {
            Some(path) => HostLock::watching(path, false).await,
            None => Ok(None),
        }
    }

    /// Acquire the lock of the host `name`; none when a running process holds it.
    pub async fn host_lock(&self, name: &str) -> Result<Option<HostLock>> {
        match &self.pools {
            Pools::Sqlite { .. } => {
                let path = self.url.sqlite_path().unwrap_or(Path::new(""));
                HostLock::watching(path, true).await
            }
            Pools::Postgres(server) => {
                let mut lock = NameLock::new(server, name).await?;
                let is_held = lock.hold().await?;
                Ok(is_held.then_some(HostLock(Lock::Advisory(lock))))
            }
        }
    }

    /// Returns the lock of the host `name` while another session still holds it for a silent process. None on SQLite, where a held
    /// lock proves a running process.
    ///
    /// The caller first registers as the name's next process. Then [`HostLock::hold`] asks the server to end the other session,
    /// acquiring the lock as soon as it's free.
    pub async fn lock_of_silent_name(&self, name: &str) -> Result<Option<HostLock>> {
        match &self.pools {
            Pools::Sqlite { .. } => Ok(None),
            Pools::Postgres(server) => {
                let mut lock = NameLock::new(server, name).await?;
                lock.ends_holder = true;
                Ok(Some(HostLock(Lock::Advisory(lock))))
            }
        }
    }
}

impl HostLock {
    /// Acquire the lock of the SQLite file `database`, which may be missing or damaged; none when a running process holds it.
    ///
    /// # Errors
    ///
    /// `NotWritable` when the lock file beside it cannot be created, `Refused` when the file has another name, under which
    /// another host could serve it.
    pub fn of_file(database: &Path) -> Result<Option<HostLock>> {
        // The file may be served under the name that it had before.
        HostLock::beside(&real_path(database), true)
    }

    /// Acquires the lock of an open database, watching its files.
    async fn watching(database: &Path, needs_inode: bool) -> Result<Option<HostLock>> {
        let database = real_path(database);
        // Before locking: a process opening a locked file expects the log next to it.
        let watch = FileWatch::start(&database).await?;
        let lock = HostLock::beside(&database, needs_inode)?;
        Ok(lock.map(|HostLock(lock)| {
            HostLock(match lock {
                Lock::File(lock) => Lock::File(FileLock {
                    watch: Some(watch),
                    ..lock
                }),
                advisory @ Lock::Advisory(_) => advisory,
            })
        }))
    }

    /// Acquire the lock file beside `database`, and the lock of the file itself, which may be missing unless `needs_inode`.
    fn beside(database: &Path, needs_inode: bool) -> Result<Option<HostLock>> {
        refuse_second_name(database)?;
        let path = lock_path(database);
        let Some(file) = lock_file(&path)? else {
            return Ok(None);
        };
        let inode = InodeLock::acquire(database)?;
        if needs_inode && inode.is_none() {
            return Ok(None);
        }
        Ok(Some(HostLock(Lock::File(FileLock {
            file,
            path,
            _inode: inode,
            watch: None,
        }))))
    }

    /// Returns whether a running process has the lock of the SQLite file `database`. Creates nothing.
    pub fn is_file_locked(database: &Path) -> bool {
        let file = File::open(lock_path(database));
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Returns what happened to a SQLite database's files behind its host's back, if anything.
    pub fn file_loss(&mut self) -> Option<FileLoss> {
        self.watch()?.look()
    }

    /// Whether the host's open write-ahead log may be merged into its open file.
    pub fn may_merge_log(&mut self) -> bool {
        self.watch().is_some_and(|watch| watch.may_merge())
    }

    /// Stops watching the files. To be called before closing the database.
    pub async fn end_watch(&mut self) -> Result {
        match self.watch() {
            Some(watch) => watch.end().await,
            None => Ok(()),
        }
    }

    fn watch(&mut self) -> Option<&mut FileWatch> {
        match &mut self.0 {
            Lock::File(lock) => lock.watch.as_mut(),
            Lock::Advisory(_) => None,
        }
    }

    /// Returns whether the lock is held. When its connection broke, or its file was removed, acquire it again.
    ///
    /// False means that another session has the lock: of another process, or an earlier one of this process that the
    /// server believes to be alive. The server is asked to end the latter. For a file it means another process.
    pub async fn hold(&mut self) -> Result<bool> {
        match &mut self.0 {
            Lock::File(lock) => lock.hold(),
            Lock::Advisory(lock) => lock.hold().await,
        }
    }
}

impl FileLock {
    fn hold(&mut self) -> Result<bool> {
        if is_at(&self.file, &self.path) {
            return Ok(true);
        }
        match lock_file(&self.path)? {
            Some(file) => {
                self.file = file;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// Returns the path without symbolic links: one file has one lock, whatever link leads to it.
pub(super) fn real_path(database: &Path) -> PathBuf {
    std::fs::canonicalize(database).unwrap_or_else(|_| database.to_owned())
}

pub(super) fn lock_path(database: &Path) -> PathBuf {
    real_path(database).with_added_extension("lock")
}

/// Lock the file at `path`, and create it if it is missing; none when another process has locked it.
fn lock_file(path: &Path) -> Result<Option<File>> {
    let not_writable =
        |error: std::io::Error| DbError::NotWritable(format!("{}: {error}", path.display()));
    loop {
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)
            .map_err(not_writable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(not_writable(error)),
        }
        // A lock on a file that was removed meanwhile protects nothing.
        if is_at(&file, path) {
            // The process id tells an operator which process holds the lock.
            let _ = file.set_len(0);
            let _ = write!(file, "{}", std::process::id());
            return Ok(Some(file));
        }
    }
}

/// Whether `path` leads to the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let open = file.metadata().ok().map(|found| (found.dev(), found.ino()));
    let there = std::fs::metadata(path).ok();
    open.is_some() && open == there.map(|found| (found.dev(), found.ino()))
}

impl NameLock {
    async fn new(server: &Server, name: &str) -> Result<NameLock> {
        let schema: String = sqlx::query_scalar("SELECT current_schema()")
            .fetch_one(server.pool())
            .await?;
        Ok(NameLock {
            server: server.clone(),
            key: key(&schema, name),
            connection: None,
            ends_holder: false,
            session: None,
        })
    }

    async fn hold(&mut self) -> Result<bool> {
        // Without an answer the connection is dropped: it may be one that only this side still has.
        if let Some(mut held) = self.connection.take() {
            // A server accepting no writes is no use either: its lock doesn't bind the current primary's hosts.
            let asked = self.server.accepts_writes(&mut held);
            if let Ok(Ok(true)) = timeout(Duration::from_secs(ANSWER_SECONDS), asked).await {
                self.connection = Some(held);
                return Ok(true);
            }
        }
        let mut fresh = self.server.connect().await?;
        sqlx::query(BOUND_IDLENESS)
            .bind(format!("{IDLE_SECONDS}s"))
            .execute(&mut fresh)
            .await?;
        let (held, pid, began): (bool, i32, Timestamp) = sqlx::query_as(TRY_LOCK)
            .bind(self.key)
            .fetch_one(&mut fresh)
            .await?;
        if held {
            self.connection = Some(fresh);
            self.session = Some((pid, began));
            self.ends_holder = false;
        } else {
            self.end_other_session(&mut fresh).await;
        }
        Ok(held)
    }

    /// Asks the server to end the session holding the lock, either ours from before its connection broke, or that of a process
    /// whose name was taken.
    ///
    /// Without permission for that, keepalives and [`IDLE_SECONDS`] end it.
    async fn end_other_session(&self, fresh: &mut PgConnection) {
        let key = self.key.cast_unsigned();
        let (high, low) = ((key >> 32).cast_signed(), (key & 0xffff_ffff).cast_signed());
        let end = match self.session {
            _ if self.ends_holder => sqlx::query(END_HOLDER),
            Some((pid, began)) => sqlx::query(END_SESSION).bind(pid).bind(began),
            None => return,
        };
        let _ = end.bind(high).bind(low).execute(fresh).await;
    }
}

fn key(schema: &str, name: &str) -> i64 {
    let digest = Sha256::digest(format!("campanile host\0{schema}\0{name}"));
    let mut key = [0; 8];
    key.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(key)
}
