//! The database: one set of queries for SQLite and Postgres.
//!
//! Nothing else names sqlx. `statements!` declares the statements of the record, most along with the function running them, in one
//! text for both databases. [`Tx`] holds a transaction on either database, and the macros in `sql.rs` expand the same body for
//! both. `now` is always an argument: only measuring the clock asks a server for the time.
//!
//! The databases differ in the following files and nowhere else (a test compares the list with the code), except that
//! `campanile-model` stores ids and instants the way each database does it best.
//!
//! 1. `lib.rs`: `BEGIN IMMEDIATE` for writes on SQLite; one snapshot for reads, and a server clock, on Postgres;
//! 2. `sql.rs`: `FOR UPDATE` on Postgres; places without numbers on SQLite;
//! 3. `open.rs`: pragmas, the migrations folder, scratch databases;
//! 4. `postgres.rs`: connect options, and the check of the server;
//! 5. `lock.rs`: a file lock on SQLite, an advisory lock on Postgres;
//! 6. `error.rs`: what error codes mean;
//! 7. `buckets.rs`: how long a statement waits for a locked bucket;
//! 8. `url.rs`: the two kinds of address;
//! 9. `size.rs`: how large the tables are;
//! 10. `backup.rs`: copies, which only SQLite's file has;
//! 11. `restore.rs`: the place of that file;
//! 12. `launch/claim.rs`, `chores.rs` and `retention.rs`: locks of rows and advisory locks on Postgres, where SQLite has one writer;
//! 13. `task_use.rs`: JSON, and the day of an instant;
//! 14. `servable.rs`: what a host needs of each;
//! 15. `file_watch.rs`: the files of SQLite.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

mod condition;
pub mod disk;
mod error;
mod file_watch;
mod hard_links;
mod inode_lock;
mod lock;
mod open;
mod partial;
mod postgres;
mod servable;
mod sql;
mod types;
mod url;

pub mod alert_facts;
pub mod alert_messages;
pub mod alerts;
pub mod api_answers;
pub mod backfills;
pub mod backup;
pub mod buckets;
pub mod calendar;
pub mod changes;
pub mod chores;
pub mod corrections;
pub mod events;
pub mod history;
pub mod hosts;
pub mod launch;
pub mod messages;
pub mod outbox;
pub mod package_record;
pub mod package_removal;
pub mod package_versions;
pub mod packages;
#[doc(hidden)]
pub mod probe;
pub mod removed_launches;
pub mod restore;
pub mod results;
pub mod retention;
pub mod rollup;
pub mod runs;
pub mod schedule_defaults;
pub mod schedules;
pub mod seals;
pub mod sidecars;
pub mod size;
pub mod skipped_ranges;
pub mod stats;
pub mod task_runs;
pub mod task_use;
pub mod tokens;
pub mod troubles;
pub mod use_growth;

use std::sync::Arc;

use sqlx::{Sqlite, SqlitePool, Transaction};

pub use self::url::{DatabaseUrl, InvalidDatabaseUrl, PostgresUrl};
pub use campanile_model::status::{
    BackfillStatus, Decision, FailureKind, LaunchStatus, Origin, RunStatus,
};
pub use error::{DbError, Result};
pub use file_watch::FileLoss;
pub use lock::HostLock;
pub use open::MigrationState;
pub use partial::{PartialFile, delete_left};

use campanile_model::access::Actor;
use campanile_model::clock::{Anchor, Clock, Timestamp};
use condition::{Answers, Condition};
use postgres::{Kind, PgTx, Server};

/// The log filter for the database driver, where no other one is given.
pub const LOG_FILTER: &str = "sqlx=warn,sqlx::postgres::notice=error,sqlx_core::pool=off";

/// The prepared statements of a connection: every batch in each of its sizes, and all other statements.
const STATEMENTS_MAX: usize = 256;

/// How long a caller waits for a free connection, in seconds.
const ACQUIRE_SECONDS: u64 = 5;

/// How often [`retry`] runs a transaction.
const TRIES_MAX: usize = 3;

/// How often one measurement asks the database's clock.
const CLOCK_SAMPLES: usize = 5;

const MERGE_LOG: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
const SERVER_TIME: &str = "SELECT clock_timestamp()";
const SERVER_VERSION: &str = "SELECT current_setting('server_version')";
const SQLITE_VERSION: &str = "SELECT sqlite_version()";

/// An open database. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    url: DatabaseUrl,
    pools: Pools,
    /// Who makes the changes of its transactions.
    actor: Arc<Actor>,
    condition: Arc<Condition>,
}

#[derive(Clone)]
enum Pools {
    /// SQLite lets one connection write at a time. The pool makes writers wait instead of failing with `SQLITE_BUSY`.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
    Postgres(Server),
}

/// A transaction. Without [`Tx::commit`] it changes nothing.
pub enum Tx {
    #[doc(hidden)]
    Sqlite(SqliteTx),
    #[doc(hidden)]
    Postgres(PgTx),
}

/// A transaction on SQLite with its actor.
pub struct SqliteTx {
    tx: Transaction<'static, Sqlite>,
    actor: Arc<Actor>,
    answers: Answers,
}

impl Db {
    /// Returns the address of the database.
    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Returns a handle of the same database whose transactions make their changes in the name of `actor`.
    ///
    /// Their events record it. Without this, changes are those of a host.
    pub fn acting_as(&self, actor: Actor) -> Db {
        Db {
            actor: Arc::new(actor),
            ..self.clone()
        }
    }

    /// Begin a read transaction. Everything read through it is of one moment.
    pub async fn read(&self) -> Result<Tx> {
        self.begin(Kind::Read).await
    }

    /// Begin a read transaction that may read a large part of the record: its statements may take minutes.
    pub async fn read_long(&self) -> Result<Tx> {
        self.begin(Kind::LongRead).await
    }

    /// Begin a write transaction. Its first statement locks or changes rows.
    ///
    /// Nothing in it may wait for anything but the database: the server ends a transaction that pauses for 8 seconds.
    pub async fn write(&self) -> Result<Tx> {
        self.begin(Kind::Write).await
    }

    /// Begin a write transaction for maintenance: its statements may take minutes.
    pub async fn write_long(&self) -> Result<Tx> {
        self.begin(Kind::LongWrite).await
    }

    async fn begin(&self, kind: Kind) -> Result<Tx> {
        // Boxed: at 4 KiB, this future would otherwise be part of every run's.
        Box::pin(self.connect(kind)).await
    }

    async fn connect(&self, kind: Kind) -> Result<Tx> {
        let actor = Arc::clone(&self.actor);
        let answers = Answers {
            limit: None,
            condition: Arc::clone(&self.condition),
        };
        let tx = match &self.pools {
            Pools::Sqlite { readers, .. } if kind.is_read() => {
                answers.wait(readers.begin()).await?
            }
            Pools::Sqlite { writer, .. } => {
                answers.wait(writer.begin_with("BEGIN IMMEDIATE")).await?
            }
            Pools::Postgres(server) => return Ok(Tx::Postgres(server.begin(kind, actor).await?)),
        };
        Ok(Tx::Sqlite(SqliteTx { tx, actor, answers }))
    }

    /// Returns why the database counts as damaged: the first error only a damaged database can cause. It stays until the process
    /// ends, since pages still readable don't repair the others.
    pub fn damage(&self) -> Option<&str> {
        self.condition.damage()
    }

    /// Move the write-ahead log of a SQLite file into the file, under whatever name the file has by now.
    ///
    /// SQLite does that when its last connection closes, but not when the file was renamed meanwhile.
    pub async fn merge_log(&self) -> Result {
        if let Pools::Sqlite { writer, .. } = &self.pools {
            sqlx::query(MERGE_LOG).execute(writer).await?;
        }
        Ok(())
    }

    /// Returns the time of the database server; none for SQLite, which uses the machine's clock.
    pub async fn server_time(&self) -> Result<Option<Timestamp>> {
        match &self.pools {
            Pools::Sqlite { .. } => Ok(None),
            Pools::Postgres(server) => {
                let asked = sqlx::query_scalar(SERVER_TIME).fetch_one(server.pool());
                Ok(Some(server.answers().wait(asked).await?))
            }
        }
    }

    /// Returns the version of the server, or of SQLite.
    pub async fn version(&self) -> Result<String> {
        match &self.pools {
            Pools::Sqlite { readers, .. } => Ok(sqlx::query_scalar(SQLITE_VERSION)
                .fetch_one(readers)
                .await?),
            Pools::Postgres(server) => {
                let asked = sqlx::query_scalar(SERVER_VERSION).fetch_one(server.pool());
                server.answers().wait(asked).await
            }
        }
    }

    /// Returns what the database server's clock showed at a moment of this process; none for SQLite.
    ///
    /// The answer with the shortest round trip is the most exact.
    pub async fn clock_anchor(&self, clock: &Clock) -> Result<Option<Anchor>> {
        let Pools::Postgres(server) = &self.pools else {
            return Ok(None);
        };
        // On one connection, so that no sample waits for a free one.
        let mut connection = server.pool().acquire().await?;
        let mut best: Option<Anchor> = None;
        for _ in 0..CLOCK_SAMPLES {
            let before = clock.monotonic();
            let time = sqlx::query_scalar(SERVER_TIME)
                .fetch_one(&mut *connection)
                .await?;
            let error = clock.monotonic().since(before) / 2;
            if best.is_none_or(|best| error < best.error) {
                let at = before.plus(error);
                best = Some(Anchor { at, time, error });
            }
        }
        Ok(best)
    }

    /// Close all connections. A closed database answers every call with an error.
    pub async fn close(&self) {
        match &self.pools {
            Pools::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Pools::Postgres(server) => server.pool().close().await,
        }
    }
}

impl Tx {
    /// Make all changes of the transaction durable together.
    pub async fn commit(self) -> Result {
        match self {
            Tx::Sqlite(tx) => tx.answers.wait(tx.tx.commit()).await?,
            Tx::Postgres(tx) => tx.commit().await?,
        }
        Ok(())
    }

    /// Ends the transaction, discarding its changes. Its locks are free once this returns. Dropping a transaction only frees them
    /// after its connection has told the server in the background.
    pub async fn abandon(self) -> Result {
        match self {
            Tx::Sqlite(tx) => tx.answers.wait(tx.tx.rollback()).await?,
            Tx::Postgres(tx) => tx.abandon().await?,
        }
        Ok(())
    }

    /// Prepare the transaction for a statement that sends a value of `bytes` over a slow network.
    pub async fn allow_upload(&mut self, bytes: usize) -> Result {
        match self {
            Tx::Sqlite(_) => Ok(()),
            Tx::Postgres(tx) => tx.allow_upload(bytes).await,
        }
    }

    /// Returns who makes the changes of the transaction.
    fn actor(&self) -> Arc<Actor> {
        Arc::clone(match self {
            Tx::Sqlite(tx) => &tx.actor,
            Tx::Postgres(tx) => &tx.actor,
        })
    }

    /// Returns the patience for replies to its statements.
    fn answers(&self) -> Answers {
        match self {
            Tx::Sqlite(tx) => tx.answers.clone(),
            Tx::Postgres(tx) => tx.answers.clone(),
        }
    }

    /// Returns the same as [`Db::damage`].
    pub fn damage(&self) -> Option<String> {
        self.answers().condition.damage().map(str::to_owned)
    }

    /// Whether the transaction's server accepts no writes. Always false for a SQLite file.
    pub async fn is_on_standby(&mut self) -> Result<bool> {
        let answers = self.answers();
        match self {
            Tx::Sqlite(_) => Ok(false),
            Tx::Postgres(tx) => answers.wait(postgres::is_read_only(&mut tx.tx)).await,
        }
    }
}

/// Run `transaction`, which begins and commits a transaction, again while another transaction collides with it.
///
/// It runs at most 3 times in all.
///
/// # Errors
///
/// The error of the last run.
pub async fn retry<T, E, F>(
    is_collision: impl Fn(&E) -> bool,
    transaction: impl Fn() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut tries = 1;
    loop {
        match transaction().await {
            Err(error) if tries < TRIES_MAX && is_collision(&error) => tries += 1,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The files that name a database in their code are those that the module's documentation lists.
    #[test]
    fn the_list_of_differences_is_complete() {
        let listed: BTreeSet<String> = include_str!("lib.rs")
            .lines()
            .filter_map(|line| {
                let (_, item) = line.strip_prefix("//! ")?.split_once(". `")?;
                item.split_once("`: ")
            })
            .flat_map(|(files, _)| files.split(['`', ',', ' ']))
            .filter(|file| file.ends_with(".rs"))
            .map(str::to_owned)
            .collect();
        let mut found = BTreeSet::new();
        for (file, code) in sources() {
            let mut lines = code.lines().map(str::trim_start);
            let names_one = |line: &str| {
                let names = ["Postgres", "Sqlite", "SQLSTATE", "postgres: "];
                !line.starts_with("//") && names.iter().any(|name| line.contains(name))
            };
            if lines.any(names_one) {
                found.insert(file);
            }
        }
        // For tests: it shows the statements of either database.
        found.remove("probe.rs");
        assert_eq!(found, listed);
    }

    /// Returns the code of each file of this crate, by its path in `src`, without its tests.
    pub(crate) fn sources() -> Vec<(String, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders = vec![root.clone()];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let file = path.strip_prefix(&root).unwrap().to_string_lossy();
                found.push((file.into_owned(), code.to_owned()));
            }
        }
        found
    }
}
