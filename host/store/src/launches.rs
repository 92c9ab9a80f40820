//! Launches: the decisions, and the audit record of what became of them.

use serde::Serialize;
use sqlx::FromRow;

use super::batch::{Batch, pieces};
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{
    ArtifactDigest, BackfillId, HostId, LaunchId, LaunchKind, RunId, ScheduleId,
};
use campanile_model::status::Overlap;
use campanile_model::status::{Decision, FailureKind, LaunchStatus};

/// A decision to put on the record.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLaunch {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub schedule_revision: i64,
    pub kind: LaunchKind,
    pub scheduled_time: Timestamp,
    pub scheduled_local: String,
    /// The last slot and the number of slots, when one row stands for a range of dropped slots.
    pub last_scheduled_time: Timestamp,
    pub slot_count: i64,
    pub decision: Decision,
    pub reason: Option<&'static str>,
    /// What it would have overlapped, when it is skipped for that.
    pub overlaps: Option<LaunchId>,
    pub package: String,
    pub digest: Option<ArtifactDigest>,
    /// JSON object laid over the schedule's context; of launches by hand and backfills only.
    pub context: Option<String>,
    /// What a person said of other launches that go on; of launches by hand only.
    pub overlap: Option<Overlap>,
    /// Of kind `backfill` only, and of all of these.
    pub backfill_id: Option<BackfillId>,
    pub interval_start: Timestamp,
    pub fire_time: Timestamp,
    pub decided_by: Option<HostId>,
    pub claimed_at: Timestamp,
}

/// A launch as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, schemars::JsonSchema)]
pub struct LaunchRow {
    pub id: LaunchId,
    pub schedule: String,
    /// The slot.
    pub scheduled_time: Timestamp,
    pub scheduled_local: String,
    pub last_scheduled_time: Timestamp,
    pub slot_count: i64,
    pub kind: LaunchKind,
    pub decision: Decision,
    pub reason: Option<String>,
    /// The launch with which it overlapped, when it was skipped or asked to end for that.
    #[sqlx(rename = "overlaps_id")]
    pub overlaps: Option<LaunchId>,
    pub status: LaunchStatus,
    pub package: String,
    pub digest: Option<ArtifactDigest>,
    pub run_id: Option<RunId>,
    pub attempts: i64,
    pub recoveries: i64,
    pub fire_time: Timestamp,
    pub claimed_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
    /// Of the time zone database by which its host decided it; none when no host did.
    pub tzdata_version: Option<String>,
}

impl LaunchRow {
    /// The slot written as `first`, and for a range of dropped slots the last one and their number.
    pub fn slots_text(&self, first: &str) -> String {
        match self.slot_count {
            1 => first.to_owned(),
            n => format!("{first} … {} ({n} slots)", self.last_scheduled_time),
        }
    }
}

const INSERT: Batch = Batch {
    head: "INSERT INTO launch (id, schedule_id, schedule_revision, kind, scheduled_time, scheduled_local, last_scheduled_time, slot_count,
        decision, reason, overlaps_id, status, package, digest, context, overlap, backfill_id, interval_start, fire_time, decided_by,
        claimed_at, finished_at)
        VALUES ",
    columns: 22,
    // Once decided, always decided: the first decision about a slot stands.
    tail: " ON CONFLICT DO NOTHING",
};
const LIST: &str = "SELECT l.id, s.name AS schedule, l.scheduled_time, l.scheduled_local, l.last_scheduled_time, l.slot_count, l.kind,
        l.decision, l.reason, l.overlaps_id, l.status, l.package, l.digest, l.run_id, l.attempts, l.recoveries, l.fire_time, l.claimed_at,
        l.started_at, l.finished_at, l.failure, l.message, h.tzdata_version
    FROM launch l JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = l.decided_by
    WHERE s.name = $1 OR $1 IS NULL ORDER BY l.claimed_at DESC, l.scheduled_time DESC LIMIT $2";
const OF_SCHEDULE: &str = "SELECT l.id, s.name AS schedule, l.scheduled_time, l.scheduled_local, l.last_scheduled_time, l.slot_count, l.kind,
        l.decision, l.reason, l.overlaps_id, l.status, l.package, l.digest, l.run_id, l.attempts, l.recoveries, l.fire_time, l.claimed_at,
        l.started_at, l.finished_at, l.failure, l.message, h.tzdata_version
    FROM launch l JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = l.decided_by
    WHERE l.schedule_id = $1 ORDER BY l.scheduled_time DESC LIMIT $2";
const NEWEST_END: &str = "SELECT finished_at FROM launch
    WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill' ORDER BY scheduled_time DESC LIMIT 1";
// Newest slot first: what was launched later counts as later, in whatever order the runs end.
const ENDS: &str = "SELECT status, claimed_at FROM launch
    WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill'
      AND status IN ('succeeded', 'failed', 'unknown', 'abandoned') ORDER BY scheduled_time DESC LIMIT $2";

/// Every statement of this table, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[LIST, OF_SCHEDULE, NEWEST_END, ENDS];

/// Put decisions on the record.
pub async fn insert(tx: &mut Tx, launches: &[NewLaunch]) -> Result<(), DbError> {
    for piece in pieces(launches) {
        let insert_sql = INSERT.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(insert_sql);
            for launch in piece {
                let (status, finished_at) = match launch.decision {
                    Decision::Launched => (LaunchStatus::Open, None),
                    Decision::Queued => (LaunchStatus::Queued, None),
                    Decision::Skipped => (LaunchStatus::Skipped, Some(launch.claimed_at)),
                };
                query = query
                    .bind(launch.id)
                    .bind(launch.schedule_id)
                    .bind(launch.schedule_revision)
                    .bind(launch.kind)
                    .bind(launch.scheduled_time)
                    .bind(&launch.scheduled_local)
                    .bind(launch.last_scheduled_time)
                    .bind(launch.slot_count)
                    .bind(launch.decision)
                    .bind(launch.reason)
                    .bind(launch.overlaps)
                    .bind(status)
                    .bind(&launch.package)
                    .bind(launch.digest.clone())
                    .bind(&launch.context)
                    .bind(launch.overlap)
                    .bind(launch.backfill_id)
                    .bind(launch.interval_start)
                    .bind(launch.fire_time)
                    .bind(launch.decided_by)
                    .bind(launch.claimed_at)
                    .bind(finished_at);
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    Ok(())
}

/// The newest `limit` launches, newest decision first; only those of schedules called `schedule`, when given.
pub async fn list(
    tx: &mut Tx,
    schedule: Option<&str>,
    limit: i64,
) -> Result<Vec<LaunchRow>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LIST)
        .bind(schedule)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// When the launch of the newest slot of a schedule ended: none inside while it has not, none at all without a slot.
pub async fn newest_finished_at(
    tx: &mut Tx,
    schedule: ScheduleId,
) -> Result<Option<Option<Timestamp>>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(NEWEST_END)
        .bind(schedule)
        .fetch_optional(conn)
        .await)?)
}

/// How the newest `limit` launches of a schedule ended that have, newest slot first, and when each was decided; those
/// by hand and of backfills are not asked for.
pub async fn recent_outcomes(
    tx: &mut Tx,
    schedule: ScheduleId,
    limit: i64,
) -> Result<Vec<(LaunchStatus, Timestamp)>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(ENDS)
        .bind(schedule)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// The newest `limit` launches of one schedule, newest slot first.
pub async fn of_schedule(
    tx: &mut Tx,
    schedule: ScheduleId,
    limit: i64,
) -> Result<Vec<LaunchRow>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(OF_SCHEDULE)
        .bind(schedule)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}
