//! Open a database, and migrate its tables to this version.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};

use super::condition::{Condition, without_slow_statements};
use super::error::refused;
use super::hard_links::refuse_second_name;
use super::inode_lock::served_without_log;
use super::lock::{lock_path, real_path};
use super::partial::{FILE_MODE, with_end};
use super::postgres::Server;
use super::{ACQUIRE_SECONDS, DatabaseUrl, Db, DbError, Pools, Result, STATEMENTS_MAX};
use campanile_model::access::Actor;

static SQLITE_MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");
pub(super) static POSTGRES_MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");

/// The most readers of a SQLite file at the same time.
const SQLITE_READERS_MAX: u32 = 4;
/// The page cache of the connection that writes, in KiB. The indexes of a day's launches fit.
const SQLITE_CACHE_KIB: u32 = 64 << 10;
/// The page cache of each reader, in KiB. What it lacks, it reads from the cache of the operating system.
const SQLITE_READER_CACHE_KIB: u32 = 16 << 10;
/// The rows that a connection's thread reads ahead. A whole batch fits, so that the thread and its caller do not wake
/// each other for every row.
const SQLITE_ROWS_AHEAD: usize = 512;
/// The length of the write-ahead log, in pages of 4 KiB, at which SQLite moves it into the file. The same index pages
/// are written again and again, so a longer log saves most of the second writes.
const SQLITE_WAL_PAGES: u32 = 8_192;
/// The bytes of the write-ahead log that stay on disk when it begins anew. A long read, such as a backup, lets it grow.
const SQLITE_WAL_BYTES_KEPT: u64 = 64 << 20;
/// How long a SQLite statement waits for another process's write, in seconds.
const BUSY_SECONDS: u64 = 10;

/// Smallest page size of SQLite in bytes, and so the smallest database. SQLite would start a shorter file over.
const PAGE_BYTES_MIN: u64 = 512;

/// One migration.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct MigrationState {
    pub version: i64,
    pub name: String,
    pub applied: bool,
}

const APPLIED: &str =
    "SELECT version, checksum FROM _sqlx_migrations WHERE success = TRUE ORDER BY version";

/// Whether a SQLite file has tables, and not those of Campanile.
const IS_FOREIGN: &str =
    "SELECT count(*) > 0 AND max(name = '_sqlx_migrations') = 0 FROM sqlite_schema
    WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'";

impl Db {
    /// Open the database at `url`, which must exist. Its tables may be of any version.
    ///
    /// # Errors
    ///
    /// `Refused` when there is no such database or it is not one, `Unavailable` when it does not answer.
    pub async fn open(url: &DatabaseUrl) -> Result<Db> {
        Db::open_or_create(url, false).await
    }

    /// Open the database at `url`, create a missing SQLite file, and migrate the tables to this version.
    pub async fn open_and_migrate(url: &DatabaseUrl) -> Result<Db> {
        let db = Db::open_or_create(url, true).await?;
        db.refuse_unservable().await?;
        match db.migrate().await {
            Ok(()) => Ok(db),
            // This error names the database already.
            Err(schema @ (DbError::Schema(_) | DbError::NewerSchema(_))) => Err(schema),
            Err(error) => Err(error.at(url)),
        }
    }

    async fn open_or_create(url: &DatabaseUrl, create: bool) -> Result<Db> {
        let condition = Arc::new(Condition::default());
        let pools = match url {
            DatabaseUrl::Sqlite(path) if !create && !path.exists() => {
                return refused(format!(
                    "there is no database at {}; start `campanile serve` to make one, or name another with --database",
                    path.display()
                ));
            }
            DatabaseUrl::Sqlite(path) => open_sqlite(path, create).await,
            DatabaseUrl::Postgres(url) => {
                let server = Server::open(url, Arc::clone(&condition)).await;
                server.map(Pools::Postgres)
            }
        };
        Ok(Db {
            pools: pools.map_err(|error| error.while_opening().at(url))?,
            url: url.clone(),
            actor: Arc::new(Actor::HOST),
            condition,
        })
    }

    /// Open the database at `url`, whose tables must be of this version.
    pub async fn open_current(url: &DatabaseUrl) -> Result<Db> {
        let db = Db::open(url).await?;
        let states = db.migrations().await?;
        if let Some(missing) = states.iter().find(|state| !state.applied) {
            return Err(DbError::Schema(format!(
                "the database {} lacks schema version {}; start `campanile serve` on it, or run `campanile db migrate`",
                db.url, missing.version
            )));
        }
        Ok(db)
    }

    /// Create a separate database beside that of `url`, with empty tables, for benchmarks and the selftest. [`Db::discard`]
    /// deletes it.
    pub async fn open_scratch(url: &DatabaseUrl, name: &str) -> Result<Db> {
        match url {
            DatabaseUrl::Sqlite(path) => {
                let path = path.with_added_extension(name);
                Db::open_and_migrate(&DatabaseUrl::Sqlite(path)).await
            }
            DatabaseUrl::Postgres(_) => {
                let db = Db::open(url).await?;
                if let Pools::Postgres(server) = &db.pools {
                    create_schema(server, name).await?;
                }
                let scratch = Db::open_and_migrate(&url.in_schema(name)).await;
                if let (Err(_), Pools::Postgres(server)) = (&scratch, &db.pools) {
                    // The error says why the schema is not used.
                    let _ = drop_schema(server, name).await;
                }
                db.close().await;
                scratch
            }
        }
    }

    /// Open the SQLite file at `path` for reading. No process may write it meanwhile, and nothing is created beside it.
    pub(super) fn open_copy(path: &Path) -> Db {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .immutable(true);
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(options);
        Db {
            pools: Pools::Sqlite {
                writer: pool.clone(),
                readers: pool,
            },
            url: DatabaseUrl::Sqlite(path.to_owned()),
            actor: Arc::new(Actor::HOST),
            condition: Arc::default(),
        }
    }

    /// Delete a database that [`Db::open_scratch`] created.
    pub async fn discard(self) -> Result {
        match (&self.pools, self.url.sqlite_path()) {
            (Pools::Postgres(server), _) => {
                let schema: String = sqlx::query_scalar("SELECT current_schema()")
                    .fetch_one(server.pool())
                    .await?;
                drop_schema(server, &schema).await?;
                self.close().await;
            }
            (Pools::Sqlite { .. }, path) => {
                self.close().await;
                for end in ["", "-wal", "-shm", ".lock"] {
                    let mut file = path.unwrap_or(Path::new("")).as_os_str().to_owned();
                    file.push(end);
                    // A missing file needs no deletion.
                    let _ = std::fs::remove_file(file);
                }
            }
        }
        Ok(())
    }

    /// Migrate the tables to this version. Does nothing when they are of this version.
    pub async fn migrate(&self) -> Result {
        let states = self.migrations().await?;
        if let Pools::Postgres(server) = &self.pools {
            self.refuse_other_tables(server, &states).await?;
            if states.iter().all(|state| state.applied) {
                // A role without the right to change tables is enough.
                return Ok(());
            }
        }
        let done = match &self.pools {
            // On Postgres the migrator takes a lock. Here one transaction is the lock: a second
            // process waits, and then has nothing to do.
            Pools::Sqlite { writer, .. } => {
                let mut tx = writer.begin_with("BEGIN IMMEDIATE").await?;
                let done = SQLITE_MIGRATIONS.run_direct(None, &mut *tx, false).await;
                if done.is_ok() {
                    tx.commit().await?;
                }
                done
            }
            Pools::Postgres(server) => {
                let mut connection = server.connect_for_migration().await?;
                let done = POSTGRES_MIGRATIONS
                    .run_direct(None, &mut connection, false)
                    .await;
                // The end of the session also ends the migrator's lock.
                connection.close().await?;
                done
            }
        };
        done.map_err(|error| match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                DbError::from(error)
            }
            MigrateError::VersionMismatch(version) => self.of_another_build(version),
            other => DbError::Schema(format!(
                "the tables of {} cannot be migrated: {other}",
                self.url
            )),
        })
    }

    /// Returns the migrations known to this version, and whether each has been applied.
    ///
    /// # Errors
    ///
    /// `NewerSchema` if the database has a migration unknown to this version, `Schema` if one had a different text.
    pub async fn migrations(&self) -> Result<Vec<MigrationState>> {
        let (known, applied) = match &self.pools {
            Pools::Sqlite { readers, .. } => (
                &SQLITE_MIGRATIONS,
                sqlx::query_as(APPLIED).fetch_all(readers).await,
            ),
            Pools::Postgres(server) => (
                &POSTGRES_MIGRATIONS,
                sqlx::query_as(APPLIED).fetch_all(server.pool()).await,
            ),
        };
        let applied: Vec<(i64, Vec<u8>)> = match applied {
            Ok(applied) => applied,
            Err(error) if is_missing_table(&error) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let newest = known.iter().map(|step| step.version).max().unwrap_or(0);
        if let Some((newer, _)) = applied.iter().find(|(version, _)| *version > newest) {
            return Err(DbError::NewerSchema(format!(
                "the database {} has schema version {newer}, newer than version {newest} which this campanile knows; use a newer campanile",
                self.url
            )));
        }
        let states = known.iter().map(|step| {
            let found = applied.iter().find(|(version, _)| *version == step.version);
            match found {
                Some((version, checksum)) if *checksum != *step.checksum => {
                    Err(self.of_another_build(*version))
                }
                found => Ok(MigrationState {
                    version: step.version,
                    name: step.description.to_string(),
                    applied: found.is_some(),
                }),
            }
        });
        states.collect()
    }

    fn of_another_build(&self, version: i64) -> DbError {
        DbError::Schema(format!(
            "schema version {version} of {} was made by a different build of Campanile; use that build, or a fresh database",
            self.url
        ))
    }
}

/// The code of a role that may not create a schema in the database.
const NOT_ALLOWED: &str = "42501";

async fn create_schema(server: &Server, name: &str) -> Result {
    let create = format!("CREATE SCHEMA \"{name}\"");
    let create = sqlx::query(AssertSqlSafe(create));
    match create.execute(server.pool()).await {
        Ok(_) => Ok(()),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(NOT_ALLOWED) => {
            refused(format!(
                "no schema can be created: {}; let the owner of the database run `GRANT CREATE ON DATABASE \"NAME\" TO \"ROLE\"`, or give another role in the address",
                error.message()
            ))
        }
        Err(error) => Err(error.into()),
    }
}

/// Drop a schema. The last statements of hosts that were just killed may still hold locks in it, or deadlock with this.
async fn drop_schema(server: &Server, name: &str) -> Result {
    super::retry(DbError::is_transient, || drop_schema_once(server, name)).await
}

async fn drop_schema_once(server: &Server, name: &str) -> Result {
    // The files of a large schema take long to delete.
    let mut connection = server.connect_for_migration().await?;
    let drop = format!("DROP SCHEMA \"{name}\" CASCADE");
    let drop = sqlx::query(AssertSqlSafe(drop));
    drop.execute(&mut connection).await?;
    Ok(connection.close().await?)
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        error.code().is_some_and(|code| code == "42P01")
            || error.message().contains("no such table")
    })
}

async fn open_sqlite(path: &Path, create: bool) -> Result<Pools> {
    refuse_second_name(path)?;
    if let Some(why) = served_without_log(path) {
        return refused(why);
    }
    refuse_emptied(path)?;
    refuse_foreign(path).await?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(create)
        .journal_mode(SqliteJournalMode::Wal)
        // A committed decision must survive a power cut.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(BUSY_SECONDS))
        .pragma("cache_size", format!("-{SQLITE_CACHE_KIB}"))
        .pragma("wal_autocheckpoint", SQLITE_WAL_PAGES.to_string())
        .pragma("journal_size_limit", SQLITE_WAL_BYTES_KEPT.to_string())
        // Temporary tables of a batch are small. In files they would cost as much as the rows.
        .pragma("temp_store", "MEMORY")
        .row_buffer_size(SQLITE_ROWS_AHEAD)
        .statement_cache_capacity(STATEMENTS_MAX);
    let options = without_slow_statements(options);
    if create {
        create_private(path);
    }
    turn_on_wal(&options).await?;
    let pool = |connections, acquire_seconds| {
        SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(acquire_seconds))
            .test_before_acquire(false)
            .after_release(|connection, _| Box::pin(is_clean(connection)))
    };
    let writer = pool(1, ACQUIRE_SECONDS * 12);
    let writer = writer.connect_with(options.clone()).await?;
    let read_only = options
        .create_if_missing(false)
        .pragma("cache_size", format!("-{SQLITE_READER_CACHE_KIB}"))
        .pragma("query_only", "ON");
    let readers = pool(SQLITE_READERS_MAX, ACQUIRE_SECONDS).connect_lazy_with(read_only);
    Ok(Pools::Sqlite { writer, readers })
}

/// Create a missing SQLite file, empty and for this user only, whatever the umask is. SQLite gives its mode to the files
/// that it puts beside it.
///
/// An existing file is not opened: closing it would drop the locks that this process holds on it. An error is left to
/// SQLite, which meets it again.
fn create_private(path: &Path) {
    if !path.exists() {
        let mut new = File::options();
        let _ = new.write(true).create(true).mode(FILE_MODE).open(path);
    }
}

/// Returns whether a released connection may be used again.
///
/// On a full disk SQLite itself ends the transaction that it could not write. The driver's rollback then fails, and the
/// driver would regard the connection as in that transaction for ever.
async fn is_clean(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    if connection.is_in_transaction() {
        // The driver rolls a dropped transaction back before it answers this.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}

/// Refuses an empty or missing file where a database used to be. SQLite would begin a new one, deleting the old one's log.
fn refuse_emptied(path: &Path) -> Result {
    let bytes = |path: &Path| std::fs::metadata(path).map(|found| found.len());
    let is_missing = match bytes(path) {
        Ok(0) => false,
        Ok(length) if length < PAGE_BYTES_MIN => {
            return refused(format!(
                "the file has {length} bytes and is no database, or was cut short; restore a backup, or give another file"
            ));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        _ => return Ok(()),
    };
    let real = real_path(path);
    let log = with_end(&real, "-wal");
    let log_bytes = bytes(&log).unwrap_or(0);
    let what = if is_missing {
        "the file is missing"
    } else {
        "the file is empty"
    };
    let restore = format!(
        "put the file back, or restore a backup with `campanile db restore FILE --force`; to begin a new record, delete {}* first",
        path.display()
    );
    if log_bytes > 0 {
        return refused(format!(
            "{what}, and its write-ahead log has {log_bytes} bytes of a former database; {restore}"
        ));
    }
    if !is_missing && (lock_path(path).exists() || with_end(&real, "-shm").exists()) {
        return refused(format!(
            "{what}, and a host has served it before; {restore}"
        ));
    }
    Ok(())
}

/// Refuse a SQLite file of another program, and leave it unchanged: opening it for writing would change its journal mode.
///
/// An error of this look is left to the open that follows, which meets it again.
async fn refuse_foreign(path: &Path) -> Result {
    if !std::fs::metadata(path).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    match is_foreign(path).await {
        Ok(true) => {
            refused("it has tables of another program and none of Campanile; give another file")
        }
        _ => Ok(()),
    }
}

async fn is_foreign(path: &Path) -> Result<bool, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection = options.connect().await?;
    let is_foreign = sqlx::query_scalar(IS_FOREIGN);
    let is_foreign = is_foreign.fetch_one(&mut connection).await;
    connection.close().await?;
    is_foreign
}

/// Switch the file to WAL mode, in which it stays.
///
/// SQLite does not wait for locks during this change. Of two processes that open a new file at the same moment, the
/// second tries again.
async fn turn_on_wal(options: &SqliteConnectOptions) -> Result {
    let until = Instant::now() + Duration::from_secs(BUSY_SECONDS);
    loop {
        match options.connect().await.map_err(DbError::from) {
            Ok(connection) => return Ok(connection.close().await?),
            Err(DbError::Busy(_)) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error),
        }
    }
}
