//! What the record holds about ended launches, for their traces.
//!
//! The queries read neither what tasks printed nor what they returned.

use sqlx::FromRow;

use super::sql::{Batch, statements};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, LaunchId, LaunchKind, RunId};
use campanile_model::status::{FailureKind, LaunchStatus, RunStatus};
use campanile_model::trace_context::TraceContext;

/// A launch that has ended.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct TracedLaunch {
    pub id: LaunchId,
    pub schedule: String,
    pub package: String,
    pub digest: Option<ArtifactDigest>,
    pub kind: LaunchKind,
    pub status: LaunchStatus,
    pub reason: Option<String>,
    pub scheduled_time: Timestamp,
    pub fire_time: Timestamp,
    /// The host that decided it; none when a person asked for it.
    pub decided_by: Option<String>,
    pub decided_at: Timestamp,
    /// When it left the queue, if it was queued.
    pub opened_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
    pub attempts: i64,
    pub recoveries: i64,
    pub caller_traceparent: Option<TraceContext>,
}

/// A run of such a launch.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct TracedRun {
    #[sqlx(flatten)]
    pub id: RunId,
    pub status: RunStatus,
    pub host: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
}

/// A call of a task in such a run.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct TracedCall {
    /// The run of the call.
    #[sqlx(flatten)]
    pub run: RunId,
    pub task: String,
    pub attempt: i64,
    pub succeeded: bool,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
}

statements! {
    /// Returns the ended launches among these, in no order.
    pub async fn launches(ids: &[LaunchId]) -> Vec<TracedLaunch> = rows_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed)
        SELECT l.id, s.name AS schedule, l.package, l.digest, l.kind, l.status, l.reason, l.scheduled_time, l.fire_time, h.name AS decided_by,
            l.decided_at, l.opened_at, l.finished_at, l.failure, l.message, l.attempts, l.recoveries, l.caller_traceparent
        FROM launch l JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = l.decided_by
        WHERE l.finished_at IS NOT NULL AND l.id IN (SELECT column1 FROM v)"),
        ids, |id| [*id];

    /// Returns the newest runs of these launches, as far as they have ended, in no order.
    pub async fn newest_runs(ids: &[LaunchId]) -> Vec<TracedRun> = rows_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed)
        SELECT l.id AS launch_id, l.recoveries + 1 AS number, CASE WHEN l.failure = 'lost' THEN 'lost' ELSE l.status END AS status,
            h.name AS host, l.started_at, l.finished_at, l.failure, l.message
        FROM launch l JOIN host h ON h.id = l.host_id
        WHERE l.finished_at IS NOT NULL AND l.id IN (SELECT column1 FROM v)"),
        ids, |id| [*id];

    /// Returns the lost runs of these launches, in no order.
    pub async fn lost_runs(ids: &[LaunchId]) -> Vec<TracedRun> = rows_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed)
        SELECT r.launch_id, r.number, 'lost' AS status, h.name AS host, r.started_at, r.finished_at, 'lost' AS failure, r.message
        FROM lost_run r JOIN host h ON h.id = r.host_id WHERE r.launch_id IN (SELECT column1 FROM v)"),
        ids, |id| [*id];

    /// Returns the recorded calls of tasks of these launches: at most 4,096, by their launches and runs.
    pub async fn calls(ids: &[LaunchId]) -> Vec<TracedCall> = rows_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed)
        SELECT t.launch_id, t.run_number AS number, t.task, t.attempt, t.succeeded, t.started_at, t.finished_at, t.failure, t.message
        FROM task_run t WHERE t.launch_id IN (SELECT column1 FROM v) ORDER BY t.launch_id, t.run_number, t.started_at LIMIT 4096"),
        ids, |id| [*id];
}
