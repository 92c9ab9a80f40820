//! Numbers about the launches on the record, and what health is judged by.

use std::time::Duration;

use serde::Serialize;
use sqlx::FromRow;

use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};

/// Counts of launches decided at or after a given time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, FromRow, schemars::JsonSchema)]
pub struct Counts {
    /// Decisions to launch.
    pub launches: i64,
    pub succeeded: i64,
    pub failed: i64,
    /// Ended before their time.
    pub cancelled: i64,
    /// To be run at most once, and lost.
    pub unknown: i64,
    /// Open, queued, running or waiting for a retry.
    pub unfinished: i64,
    /// Slots decided against, each slot of a range counted.
    pub skipped: i64,
    /// Launches that were recovered at least once.
    pub recovered: i64,
    /// How often a launch was taken up again after it was lost.
    pub recovery_attempts: i64,
    pub recovery_successes: i64,
    pub recovery_failures: i64,
    pub abandoned: i64,
}

/// What health is judged by, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, FromRow, schemars::JsonSchema)]
pub struct HealthSigns {
    /// Enabled schedules whose next slot is overdue: nobody decides.
    pub overdue_schedules: i64,
    /// Open launches that nobody has taken for too long, and runs whose lease has expired.
    pub stalled: i64,
    /// Schedules whose cursor is too far ahead of the clock.
    pub cursors_ahead: i64,
    pub live_hosts: i64,
    /// Enabled schedules.
    pub schedules: i64,
}

const COUNTS: &str = "SELECT
        count(*) FILTER (WHERE decision <> 'skipped') AS launches,
        count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE status = 'failed') AS failed,
        count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE status = 'unknown') AS unknown,
        count(*) FILTER (WHERE status IN ('open', 'queued', 'running', 'waiting')) AS unfinished,
        CAST(coalesce(sum(slot_count) FILTER (WHERE decision = 'skipped'), 0) AS BIGINT) AS skipped,
        count(*) FILTER (WHERE recoveries > 0) AS recovered,
        CAST(coalesce(sum(recoveries), 0) AS BIGINT) AS recovery_attempts,
        count(*) FILTER (WHERE recoveries > 0 AND status = 'succeeded') AS recovery_successes,
        count(*) FILTER (WHERE recoveries > 0 AND status = 'failed') AS recovery_failures,
        count(*) FILTER (WHERE status = 'abandoned') AS abandoned
    FROM launch WHERE claimed_at >= $1";
const LAGS: &str = "SELECT fire_time, started_at FROM launch
    WHERE claimed_at >= $1 AND kind = 'schedule' AND started_at IS NOT NULL AND opened_at IS NULL ORDER BY claimed_at DESC LIMIT $2";
const SIGNS: &str = "SELECT
        (SELECT count(*) FROM schedule WHERE next_slot < $1) AS overdue_schedules,
        (SELECT count(*) FROM launch WHERE run_id IS NULL AND decision = 'launched' AND status = 'open' AND fire_time < $1
                AND (opened_at IS NULL OR opened_at < $1))
            + (SELECT count(*) FROM run WHERE status = 'running' AND lease_until < $1) AS stalled,
        (SELECT count(*) FROM schedule WHERE deleted_at IS NULL AND cursor_at > $2) AS cursors_ahead,
        (SELECT count(*) FROM host WHERE ended_at IS NULL AND heartbeat_at >= $1) AS live_hosts,
        (SELECT count(*) FROM schedule WHERE deleted_at IS NULL AND enabled) AS schedules";

const REJECTIONS: &str =
    "SELECT name, rejection FROM package WHERE rejection IS NOT NULL ORDER BY name";

// Each part is answered by a partial index, however long the record is.
const UNFINISHED: &str = "SELECT (SELECT count(*) FROM launch WHERE run_id IS NULL AND decision = 'launched' AND status = 'open')
        + (SELECT count(*) FROM launch WHERE decision = 'queued')
        + (SELECT count(*) FROM run WHERE status = 'running')
        + (SELECT count(*) FROM run WHERE status = 'waiting')";

// The newest slots come first in the index `launch_slot`; of a schedule that never succeeds it has any number.
const SUCCESSES: &str = "SELECT started_at, finished_at FROM
        (SELECT scheduled_time, status, started_at, finished_at FROM launch
            WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill' ORDER BY scheduled_time DESC LIMIT $3) AS newest
    WHERE status = 'succeeded' AND started_at IS NOT NULL AND finished_at IS NOT NULL ORDER BY scheduled_time DESC LIMIT $2";
const GOING_ON: &str =
    "SELECT launch_id, started_at, retry_at FROM run WHERE status IN ('running', 'waiting')";

/// Every statement, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[
    COUNTS, LAGS, SIGNS, REJECTIONS, UNFINISHED, SUCCESSES, GOING_ON,
];

/// A run that is not over.
#[derive(Debug, Clone, Copy, PartialEq, FromRow)]
pub struct ActiveRun {
    pub launch_id: LaunchId,
    pub started_at: Timestamp,
    /// When a task is to be called again, while the run waits for that.
    pub retry_at: Option<Timestamp>,
}

/// Count the launches decided since `since`.
pub async fn counts(tx: &mut Tx, since: Timestamp) -> Result<Counts, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(COUNTS)
        .bind(since)
        .fetch_one(conn)
        .await)?)
}

/// Fire time and start of the newest `limit` launches decided in time since `since` that had nothing in their way.
pub async fn lags(
    tx: &mut Tx,
    since: Timestamp,
    limit: i64,
) -> Result<Vec<(Timestamp, Timestamp)>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LAGS)
        .bind(since)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// Look for signs of ill health: what should have happened before `overdue_since`, and cursors after `ahead_of`.
pub async fn health_signs(
    tx: &mut Tx,
    overdue_since: Timestamp,
    ahead_of: Timestamp,
) -> Result<HealthSigns, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(SIGNS)
        .bind(overdue_since)
        .bind(ahead_of)
        .fetch_one(conn)
        .await)?)
}

/// The packages whose newest file cannot be used, each with why.
pub async fn rejections(tx: &mut Tx) -> Result<Vec<(String, String)>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(REJECTIONS)
        .fetch_all(conn)
        .await)?)
}

/// How many launches are open, queued, running or waiting for a retry. Cheap.
pub async fn unfinished(tx: &mut Tx) -> Result<i64, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(UNFINISHED)
        .fetch_one(conn)
        .await)?)
}

/// How long launches of a schedule took from their last start: the newest `limit` that succeeded among its newest
/// `looked_at`, those by hand and of backfills left out, which may be given another context.
pub async fn durations(
    tx: &mut Tx,
    schedule: ScheduleId,
    limit: i64,
    looked_at: i64,
) -> Result<Vec<Duration>, DbError> {
    let spans: Vec<(Timestamp, Timestamp)> = on!(tx, |conn| sqlx::query_as(SUCCESSES)
        .bind(schedule)
        .bind(limit)
        .bind(looked_at)
        .fetch_all(conn)
        .await)?;
    let durations = spans.into_iter().map(|(began, ended)| ended.since(began));
    Ok(durations.collect())
}

/// The runs that are not over, of all schedules.
pub async fn active_runs(tx: &mut Tx) -> Result<Vec<ActiveRun>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(GOING_ON)
        .fetch_all(conn)
        .await)?)
}
