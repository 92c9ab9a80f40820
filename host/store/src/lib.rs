//! The database: one set of queries for SQLite and Postgres.
//!
//! The only room that names sqlx. Every statement is a `const` beside the function that
//! runs it, in one text that both databases accept; [`Tx`] holds a transaction on either
//! of them and the macro `on!` expands the same body for both. What cannot be the same is
//! named here and nowhere else:
//!
//! 1. [`Db::open`]: connect options, pragmas, the migrations folder;
//! 2. [`Db::write`]: `BEGIN IMMEDIATE` on SQLite, so that reading before writing is safe;
//! 3. `Tx::lock_rows`: `FOR UPDATE SKIP LOCKED` on Postgres;
//! 4. [`Db::host_lock`]: a file lock on SQLite, an advisory lock on Postgres;
//! 5. [`Db::server_time`]: on Postgres the server's clock decides;
//! 6. `batch.rs`: places without numbers on SQLite, where numbers are names;
//! 7. `error.rs`: which codes mean what;
//! 8. [`buckets::lock`]: how long a statement waits for a row that a guest of another host holds.
//!
//! SQL never asks what time it is: `now` is always bound.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

mod batch;
mod error;
mod lock;
mod open;
mod results;
mod types;
mod url;

pub mod backfills;
pub mod buckets;
pub mod changes;
pub mod events;
pub mod history;
pub mod hosts;
pub mod launches;
pub mod overlap;
pub mod package_versions;
pub mod packages;
#[doc(hidden)]
pub mod probe;
pub mod recovery;
pub mod runs;
pub mod schedules;
pub mod sidecars;
pub mod stats;
pub mod task_runs;

use std::time::Duration;

use sqlx::{PgPool, Postgres, Sqlite, SqlitePool, Transaction};

pub use campanile_model::status::{
    BackfillStatus, Decision, FailureKind, LaunchStatus, Origin, RunStatus,
};
pub use error::DbError;
pub use lock::HostLock;
pub use open::MigrationState;
pub use url::{DatabaseUrl, InvalidDatabaseUrl, PostgresUrl};

use campanile_model::clock::{Clock, Timestamp};

/// How much of the driver's own log is shown when nobody asks for more.
pub const LOG_FILTER: &str = "sqlx=warn,sqlx::postgres::notice=error,sqlx_core::pool=error";

/// Questions to the database's clock for one measurement.
const CLOCK_SAMPLES: usize = 5;

/// An open database. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    url: DatabaseUrl,
    pools: Pools,
}

#[derive(Clone)]
enum Pools {
    /// SQLite lets one connection write at a time; queueing for it here is kinder than `SQLITE_BUSY`.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
    Postgres(PgPool),
}

/// A transaction. Dropped without [`Tx::commit`], it never happened.
pub enum Tx {
    #[doc(hidden)]
    Sqlite(Transaction<'static, Sqlite>),
    #[doc(hidden)]
    Postgres(Transaction<'static, Postgres>),
}

/// Expand one body for the connection of whichever database `tx` is on.
macro_rules! on {
    ($tx:expr, |$conn:ident| $body:expr) => {
        match $tx {
            $crate::Tx::Sqlite(tx) => {
                let $conn = &mut **tx;
                $body
            }
            $crate::Tx::Postgres(tx) => {
                let $conn = &mut **tx;
                $body
            }
        }
    };
}
use on;

impl Db {
    /// Where this database is, without its password.
    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Begin to read: everything read through it is of one moment.
    pub async fn read(&self) -> Result<Tx, DbError> {
        match &self.pools {
            Pools::Sqlite { readers, .. } => Ok(Tx::Sqlite(readers.begin().await?)),
            Pools::Postgres(pool) => Ok(Tx::Postgres(
                pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    .await?,
            )),
        }
    }

    /// Begin to write.
    pub async fn write(&self) -> Result<Tx, DbError> {
        match &self.pools {
            Pools::Sqlite { writer, .. } => {
                Ok(Tx::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await?))
            }
            Pools::Postgres(pool) => Ok(Tx::Postgres(pool.begin().await?)),
        }
    }

    /// The database server's clock, or none where the database has no clock of its own.
    pub async fn server_time(&self) -> Result<Option<Timestamp>, DbError> {
        match &self.pools {
            Pools::Sqlite { .. } => Ok(None),
            Pools::Postgres(pool) => {
                let now: Timestamp = sqlx::query_scalar("SELECT clock_timestamp()")
                    .fetch_one(pool)
                    .await?;
                Ok(Some(now))
            }
        }
    }

    /// How far the database's clock is ahead of this machine's, in microseconds; none where it has no clock of its own.
    ///
    /// The quickest of a few answers is the most exact: it came in the middle of its round trip, or near.
    pub async fn clock_offset_us(&self, clock: &Clock) -> Result<Option<i64>, DbError> {
        let mut best: Option<(Duration, i64)> = None;
        for _ in 0..CLOCK_SAMPLES {
            let before = clock.now();
            let Some(server) = self.server_time().await? else {
                return Ok(None);
            };
            let round_trip = clock.now().since(before);
            let middle = before.plus(round_trip / 2);
            let offset = clock.offset_us() + server.micros() - middle.micros();
            if best.is_none_or(|(quickest, _)| round_trip < quickest) {
                best = Some((round_trip, offset));
            }
        }
        Ok(best.map(|(_, offset_us)| offset_us))
    }

    /// Give all connections back. A database that is closed answers every call with an error.
    pub async fn close(&self) {
        match &self.pools {
            Pools::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Pools::Postgres(pool) => pool.close().await,
        }
    }
}

impl Tx {
    /// Make everything written through it durable, at once.
    pub async fn commit(self) -> Result<(), DbError> {
        match self {
            Tx::Sqlite(tx) => tx.commit().await?,
            Tx::Postgres(tx) => tx.commit().await?,
        }
        Ok(())
    }

    /// The end of a `SELECT` whose rows this transaction is about to change: two hosts that
    /// look at the same time get different rows. SQLite has one writer and needs nothing.
    fn lock_rows<'a, T: ?Sized>(&self, sqlite: &'a T, postgres: &'a T) -> &'a T {
        match self {
            Tx::Sqlite(_) => sqlite,
            Tx::Postgres(_) => postgres,
        }
    }
}
