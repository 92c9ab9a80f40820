//! What calls of tasks used, summed by schedule, package and day.
//!
//! A call is either on record, as a row of `task_run`, or in the sums of `removed_calls`. The transaction that removes
//! calls adds them to the sums, and adds only the rows that it deleted itself. So no call counts twice, whichever host
//! removes it and wherever that host dies. The path of a launch writes nothing for it.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sqlx::FromRow;

use super::sql::{Batch, Locking, rows_batch, statements};
use super::{Result, Tx};
use crate::removed_launches::first_whole_day;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};

/// What calls of tasks used.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    FromRow,
    schemars::JsonSchema,
)]
pub struct UseSums {
    /// Calls of tasks that have ended, retries included.
    pub calls: i64,
    /// Processor time of all calls, in milliseconds.
    #[serde(
        rename = "cpu_ms",
        serialize_with = "milliseconds",
        deserialize_with = "microseconds"
    )]
    #[schemars(with = "f64")]
    pub cpu_us: i64,
    /// The greatest memory that one call used, in bytes.
    pub memory_peak_bytes: i64,
    /// Outputs, contexts, messages of failures, logs, and what the tasks printed, in bytes.
    pub record_bytes: i64,
    /// HTTP requests and messages for the outbox.
    pub http_requests: i64,
}

/// What the calls of one package used, of launches that were decided on one day.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct PackageDay {
    /// Days since 1970, in UTC.
    pub day: i64,
    pub package: String,
    #[sqlx(flatten)]
    pub used: UseSums,
}

/// What the calls of one schedule used.
#[derive(Debug, FromRow)]
pub(super) struct ScheduleUse {
    schedule_id: ScheduleId,
    #[sqlx(flatten)]
    used: UseSums,
}

/// The launch of calls that are removed.
#[derive(Debug, Clone, FromRow)]
pub(super) struct CalledLaunch {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub package: String,
    pub scheduled_time: Timestamp,
    pub decided_at: Timestamp,
}

/// A call that was removed.
#[derive(Debug, FromRow)]
pub(super) struct RemovedCall {
    launch_id: LaunchId,
    #[sqlx(flatten)]
    used: UseSums,
}

/// What identifies a row of `removed_calls`: the schedule, the days of the slot and of the decision, and the package.
pub(super) type Key = (ScheduleId, i64, i64, String);

/// What the successful calls of one launch used: processor time in microseconds, and the greatest memory in bytes.
pub type LaunchUse = (i64, i64);

impl UseSums {
    /// Add the use of other calls.
    pub fn add(&mut self, other: &UseSums) {
        self.calls += other.calls;
        self.cpu_us += other.cpu_us;
        self.memory_peak_bytes = self.memory_peak_bytes.max(other.memory_peak_bytes);
        self.record_bytes += other.record_bytes;
        self.http_requests += other.http_requests;
    }
}

fn microseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    f64::deserialize(deserializer).map(|millis| (millis * 1e3).round() as i64)
}

fn milliseconds<S: Serializer>(micros: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*micros as f64 / 1e3)
}

/// What a call used, as columns of `task_run`. `$usage` is the column `usage` as JSON, which the databases convert in
/// different ways.
macro_rules! use_columns {
    ($usage:literal) => {
        concat!(
            "launch_id, CAST(round(cpu_ms * 1000) AS BIGINT) AS cpu_us, memory_peak_bytes,
            CAST(coalesce(octet_length(output), 0) + coalesce(octet_length(context), 0) + coalesce(octet_length(message), 0)
                + octet_length(stdout) + octet_length(stderr) + octet_length(logs) AS BIGINT) AS record_bytes,
            coalesce(CAST(",
            $usage,
            " -> 'http_requests' ->> 0 AS BIGINT), 0) AS http_requests"
        )
    };
}

/// The columns of [`UseSums`] besides the number of calls, over rows `u`.
macro_rules! sums {
    () => {
        "CAST(sum(u.cpu_us) AS BIGINT) AS cpu_us, max(u.memory_peak_bytes) AS memory_peak_bytes,
            CAST(sum(u.record_bytes) AS BIGINT) AS record_bytes, CAST(sum(u.http_requests) AS BIGINT) AS http_requests"
    };
}

macro_rules! of_packages {
    ($day:literal, $usage:literal) => {
        concat!(
            "SELECT ",
            $day,
            " AS day, l.package, count(*) AS calls, ",
            sums!(),
            " FROM launch l CROSS JOIN (SELECT ",
            use_columns!($usage),
            " FROM task_run) AS u WHERE u.launch_id = l.id AND l.decided_at >= $1 GROUP BY 1, 2"
        )
    };
}

macro_rules! of_schedules {
    ($usage:literal) => {
        concat!(
            "SELECT l.schedule_id, count(*) AS calls, ",
            sums!(),
            " FROM launch l JOIN (VALUES ($1, $2)) AS v ON l.schedule_id = v.column1 AND l.scheduled_time >= v.column2
            JOIN (SELECT ",
            use_columns!($usage),
            " FROM task_run) AS u ON u.launch_id = l.id GROUP BY l.schedule_id"
        )
    };
}

macro_rules! remove_calls {
    ($usage:literal) => {
        concat!(
            "DELETE FROM task_run WHERE launch_id IN (SELECT v.column1 FROM (VALUES ($1)) AS v)
            RETURNING CAST(1 AS BIGINT) AS calls, ",
            use_columns!($usage)
        )
    };
}

statements! {
    const REMOVE: Batch = Batch::of(Locking {
        sqlite: remove_calls!("usage"),
        postgres: remove_calls!("CAST(usage AS JSON)"),
    });

    /// Sum up the calls on record of launches that were decided since `since`, by day of the decision and package.
    // `launch_decided` leads to the launches of the span, and the primary key to their calls. `CROSS JOIN` keeps SQLite from
    // reading all calls first.
    pub(super) async fn on_record(since: Timestamp) -> Vec<PackageDay> = rows Locking {
        sqlite: of_packages!("l.decided_at / 86400000000", "usage"),
        postgres: of_packages!("CAST(floor(extract(epoch FROM l.decided_at) / 86400) AS BIGINT)", "CAST(usage AS JSON)"),
    };

    /// Sum up the removed calls of launches that were decided on the day `since` or later, in the same way.
    pub(super) async fn removed(since: i64) -> Vec<PackageDay> = rows
        concat!("SELECT u.decided_day AS day, u.package, CAST(sum(u.calls) AS BIGINT) AS calls, ", sums!(), " FROM removed_calls u
        WHERE u.decided_day >= $1 GROUP BY u.decided_day, u.package");

    /// Sum up the calls on record of launches of schedules with a slot since `since`, by schedule.
    // `launch_schedule` leads to the launches of each schedule in the span.
    pub(super) async fn on_record_of(schedules: &[ScheduleId], since: Timestamp) -> Vec<ScheduleUse> = rows_batch
        Batch::of(Locking {
            sqlite: of_schedules!("usage"),
            postgres: of_schedules!("CAST(usage AS JSON)"),
        }),
        schedules, |schedule| [*schedule, since];

    /// Sum up the removed calls of launches of schedules with a slot on the day `since` or later, by schedule.
    pub(super) async fn removed_of(schedules: &[ScheduleId], since: i64) -> Vec<ScheduleUse> = rows_batch
        Batch::new(concat!("SELECT u.schedule_id, CAST(sum(u.calls) AS BIGINT) AS calls, ", sums!(), " FROM removed_calls u
        JOIN (VALUES ($1, $2)) AS v ON u.schedule_id = v.column1 AND u.slot_day >= v.column2 GROUP BY u.schedule_id")),
        schedules, |schedule| [*schedule, since];

    /// Returns the launches with calls to be removed.
    pub(super) async fn called(launches: &[LaunchId]) -> Vec<CalledLaunch> = rows_batch
        Batch::new("SELECT id, schedule_id, package, scheduled_time, decided_at FROM launch
            WHERE id IN (SELECT v.column1 FROM (VALUES ($1)) AS v)"),
        launches, |launch| [*launch];

    /// Add removed calls to the rows that there are.
    pub(super) async fn add_removed(groups: &[(Key, UseSums)]) -> () = execute_batch
        Batch::new("INSERT INTO removed_calls (schedule_id, slot_day, decided_day, package, calls, cpu_us, memory_peak_bytes, record_bytes,
            http_requests)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (schedule_id, slot_day, decided_day, package) DO UPDATE SET
            calls = removed_calls.calls + excluded.calls, cpu_us = removed_calls.cpu_us + excluded.cpu_us,
            memory_peak_bytes = CASE WHEN removed_calls.memory_peak_bytes > excluded.memory_peak_bytes
                THEN removed_calls.memory_peak_bytes ELSE excluded.memory_peak_bytes END,
            record_bytes = removed_calls.record_bytes + excluded.record_bytes,
            http_requests = removed_calls.http_requests + excluded.http_requests"),
        groups, |(key, used)| [
            key.0, key.1, key.2, &key.3, used.calls, used.cpu_us, used.memory_peak_bytes, used.record_bytes, used.http_requests,
        ];

    /// Delete up to `limit` sums of decisions before the day `before`, the oldest first. Return how many.
    pub async fn remove_sums(before: i64, limit: i64) -> u64 = execute
        "DELETE FROM removed_calls WHERE (schedule_id, slot_day, decided_day, package) IN (
            SELECT schedule_id, slot_day, decided_day, package FROM removed_calls
            WHERE decided_day < $1 ORDER BY decided_day LIMIT $2)";

    /// Returns what launches of a schedule used that succeeded: those among its newest `limit` slots from `since` to before
    /// `until` whose calls are on record. Manual and backfill launches do not count: they may have another context.
    // The index `launch_schedule` yields the newest slots first. $4 bounds the search in a schedule that never succeeds.
    pub async fn of_successes(schedule: ScheduleId, since: Timestamp, until: Timestamp, limit: i64) -> Vec<LaunchUse> = rows
        "SELECT CAST(sum(CAST(round(t.cpu_ms * 1000) AS BIGINT)) AS BIGINT) AS cpu_us, max(t.memory_peak_bytes) AS memory_peak_bytes
        FROM (SELECT id, status FROM launch WHERE schedule_id = $1 AND scheduled_time >= $2 AND scheduled_time < $3
                AND kind <> 'manual' AND kind <> 'backfill' ORDER BY scheduled_time DESC LIMIT $4) AS l
        JOIN task_run t ON t.launch_id = l.id WHERE l.status = 'succeeded' AND t.succeeded GROUP BY l.id";
}

/// Sum up the calls of launches that were decided since `since`, by day of the decision and by package, in this order.
///
/// Calls that retention removed are included, of the days (in UTC) that begin at `since` or later.
pub async fn by_package_and_day(tx: &mut Tx, since: Timestamp) -> Result<Vec<PackageDay>> {
    let mut days = on_record(tx, since).await?;
    days.extend(removed(tx, first_whole_day(since)).await?);
    let mut sums: BTreeMap<(i64, String), UseSums> = BTreeMap::new();
    for found in days {
        let sum = sums.entry((found.day, found.package)).or_default();
        sum.add(&found.used);
    }
    let days = sums
        .into_iter()
        .map(|((day, package), used)| PackageDay { day, package, used });
    Ok(days.collect())
}

/// Sum up the calls of launches of `schedules` with a slot since `since`, by schedule. A schedule without any is left out.
///
/// Calls that retention removed are included, of the days (in UTC) that begin at `since` or later.
pub async fn of_schedules(
    tx: &mut Tx,
    schedules: &[ScheduleId],
    since: Timestamp,
) -> Result<HashMap<ScheduleId, UseSums>> {
    let mut all = on_record_of(tx, schedules, since).await?;
    all.extend(removed_of(tx, schedules, first_whole_day(since)).await?);
    let mut sums: HashMap<ScheduleId, UseSums> = HashMap::new();
    for found in all {
        sums.entry(found.schedule_id).or_default().add(&found.used);
    }
    Ok(sums)
}

/// Delete the calls of launches, and add them to the sums of removed calls.
///
/// The launches have ended, so no host adds calls to them.
pub(super) async fn remove(tx: &mut Tx, launches: &[CalledLaunch]) -> Result {
    let removed: Vec<RemovedCall> = rows_batch!(tx, REMOVE, launches, |launch| [launch.id])?;
    let launches: HashMap<LaunchId, &CalledLaunch> =
        launches.iter().map(|launch| (launch.id, launch)).collect();
    let mut groups: BTreeMap<Key, UseSums> = BTreeMap::new();
    for call in removed {
        // The statement names these launches alone.
        if let Some(launch) = launches.get(&call.launch_id) {
            let (slot, decided) = (launch.scheduled_time.day(), launch.decided_at.day());
            let key = (launch.schedule_id, slot, decided, launch.package.clone());
            groups.entry(key).or_default().add(&call.used);
        }
    }
    // Every transaction writes these rows in the same order.
    add_removed(tx, &Vec::from_iter(groups)).await
}
