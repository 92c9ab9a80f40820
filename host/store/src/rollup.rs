//! The rollup of launches: how those of each schedule, and of each package, went by the hour and by the day of their slots.
//!
//! The transaction that adds a seal writes the rows that the sealed launches change, so each launch counts once. A row is
//! read before that transaction, in the snapshot that has the seal before: it's written only if that one was the last.

use sqlx::FromRow;

use super::sql::{Batch, statements};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::rollup::{DurationBuckets, LagBuckets, Period};

/// How launches went. Those of all kinds count, also manual ones and those of backfills.
#[derive(Debug, Clone, Default, PartialEq, FromRow)]
pub struct Rollup {
    pub succeeded: i64,
    /// Also those that were abandoned, or whose end is unknown.
    pub failed: i64,
    /// Skipped slots; each slot of a range counts.
    pub skipped: i64,
    pub cancelled: i64,
    /// Launches of slots that were caught up, or started too late to be on time.
    pub late: i64,
    /// The sum of the times from start to end, waits for retries included, of the launches that succeeded or failed after
    /// they had started, in microseconds.
    pub run_us: i64,
    /// These times.
    pub durations: DurationBuckets,
    /// How late launches of slots started that were neither caught up nor queued.
    pub lags: LagBuckets,
}

impl Rollup {
    pub fn add(&mut self, other: &Rollup) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.cancelled += other.cancelled;
        self.late += other.late;
        self.run_us += other.run_us;
        self.durations.add(&other.durations);
        self.lags.add(&other.lags);
    }

    /// Returns how many launches succeeded or failed.
    pub fn ended(&self) -> i64 {
        self.succeeded + self.failed
    }
}

/// The launches of a schedule in one period.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ScheduleRollup {
    pub schedule_id: ScheduleId,
    pub period: Period,
    pub starts_at: Timestamp,
    #[sqlx(flatten)]
    pub rollup: Rollup,
}

/// The launches of a package in one period.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct PackageRollup {
    pub package: String,
    pub period: Period,
    pub starts_at: Timestamp,
    #[sqlx(flatten)]
    pub rollup: Rollup,
}

/// How many launches succeeded and failed in an hour, of all packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct HourResults {
    pub starts_at: Timestamp,
    pub succeeded: i64,
    pub failed: i64,
}

macro_rules! rows_of {
    ($key:literal, $table:literal, $condition:literal) => {
        concat!(
            "SELECT r.",
            $key,
            ", r.period, r.starts_at, r.succeeded, r.failed, r.skipped, r.cancelled, r.late, r.run_us, r.durations, r.lags
            FROM ",
            $table,
            " r JOIN (VALUES ($1, $2, $3)) AS v ON r.",
            $key,
            " = v.column1 AND r.period = v.column2 AND r.starts_at ",
            $condition,
            " v.column3"
        )
    };
}

macro_rules! put_rows {
    ($key:literal, $table:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (",
            $key,
            ", period, starts_at, succeeded, failed, skipped, cancelled, late, run_us, durations, lags)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT (",
            $key,
            ", period, starts_at) DO UPDATE SET succeeded = excluded.succeeded, failed = excluded.failed, skipped = excluded.skipped,
            cancelled = excluded.cancelled, late = excluded.late, run_us = excluded.run_us, durations = excluded.durations,
            lags = excluded.lags"
        )
    };
}

macro_rules! remove_rows {
    ($key:literal, $table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE (",
            $key,
            ", period, starts_at) IN (SELECT ",
            $key,
            ", period, starts_at FROM ",
            $table,
            " WHERE period = $1 AND starts_at < $2 ORDER BY starts_at LIMIT $3)"
        )
    };
}

statements! {
    /// Returns the rows of schedules for these periods, where there are any.
    pub async fn of_schedules_at(keys: &[(ScheduleId, Period, Timestamp)]) -> Vec<ScheduleRollup> = rows_batch
        Batch::new(rows_of!("schedule_id", "schedule_rollup", "=")),
        keys, |key| [key.0, key.1, key.2];

    /// Returns the rows of packages for these periods, where there are any.
    pub async fn of_packages_at(keys: &[(String, Period, Timestamp)]) -> Vec<PackageRollup> = rows_batch
        Batch::new(rows_of!("package", "package_rollup", "=")),
        keys, |key| [&*key.0, key.1, key.2];

    /// Returns the rows of schedules for the periods that begin at `since` or later.
    pub async fn of_schedules(schedules: &[ScheduleId], period: Period, since: Timestamp) -> Vec<ScheduleRollup> = rows_batch
        Batch::new(rows_of!("schedule_id", "schedule_rollup", ">=")),
        schedules, |schedule| [*schedule, period, since];

    /// Returns the rows of packages for the periods that begin at `since` or later.
    pub async fn of_packages(packages: &[String], period: Period, since: Timestamp) -> Vec<PackageRollup> = rows_batch
        Batch::new(rows_of!("package", "package_rollup", ">=")),
        packages, |package| [&**package, period, since];

    /// Returns the results of these hours over all packages. An hour without launches is left out.
    pub async fn results_of_hours(hours: &[Timestamp]) -> Vec<HourResults> = rows_batch
        Batch::new("SELECT r.starts_at, CAST(sum(r.succeeded) AS BIGINT) AS succeeded, CAST(sum(r.failed) AS BIGINT) AS failed
        FROM package_rollup r WHERE r.period = 'hour' AND r.starts_at IN (SELECT v.column1 FROM (VALUES ($1)) AS v) GROUP BY r.starts_at"),
        hours, |hour| [*hour];

    /// Writes rows of schedules over those that there are.
    pub async fn put_schedules(rows: &[ScheduleRollup]) -> () = execute_batch
        Batch::new(put_rows!("schedule_id", "schedule_rollup")),
        rows, |row| [
            row.schedule_id, row.period, row.starts_at, row.rollup.succeeded, row.rollup.failed, row.rollup.skipped,
            row.rollup.cancelled, row.rollup.late, row.rollup.run_us, &row.rollup.durations, &row.rollup.lags,
        ];

    /// Writes rows of packages over those that there are.
    pub async fn put_packages(rows: &[PackageRollup]) -> () = execute_batch
        Batch::new(put_rows!("package", "package_rollup")),
        rows, |row| [
            &*row.package, row.period, row.starts_at, row.rollup.succeeded, row.rollup.failed, row.rollup.skipped,
            row.rollup.cancelled, row.rollup.late, row.rollup.run_us, &row.rollup.durations, &row.rollup.lags,
        ];

    /// Deletes up to `limit` rows of schedules for periods before `before`, the oldest first; returns how many.
    pub async fn remove_schedules(period: Period, before: Timestamp, limit: i64) -> u64 = execute
        remove_rows!("schedule_id", "schedule_rollup");

    /// Deletes up to `limit` rows of packages for periods before `before`, the oldest first; returns how many.
    pub async fn remove_packages(period: Period, before: Timestamp, limit: i64) -> u64 = execute
        remove_rows!("package", "package_rollup");
}
