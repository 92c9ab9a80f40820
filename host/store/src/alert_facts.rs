//! What rules for alerts look at. Each statement reads a bounded page by an index, and none scans the record.

use std::time::Duration;

use sqlx::FromRow;

use super::sql::{Batch, statements};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};
use campanile_model::status::LaunchStatus;

/// A schedule that rules watch.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct WatchedSchedule {
    pub id: ScheduleId,
    pub name: String,
    pub package: String,
    pub enabled: bool,
    pub next_slot: Option<Timestamp>,
    pub created_at: Timestamp,
    pub resumed_at: Option<Timestamp>,
    /// The policies that its definition sets, a JSON object.
    pub policies: String,
    /// The newest slot that succeeded.
    pub success_scheduled_time: Option<Timestamp>,
    /// The newest slot that failed, if no later slot has succeeded.
    pub failure_scheduled_time: Option<Timestamp>,
}

impl WatchedSchedule {
    /// Returns how long it is at most since a launch last succeeded, or since the schedule was created or resumed.
    pub fn success_age(&self, now: Timestamp) -> Duration {
        let since = [self.success_scheduled_time, self.resumed_at];
        let since = since.into_iter().flatten().max();
        now.since(since.map_or(self.created_at, |at| at.max(self.created_at)))
    }
}

/// A launch that rules watch.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct WatchedLaunch {
    pub id: LaunchId,
    pub kind: LaunchKind,
    pub status: LaunchStatus,
    pub scheduled_time: Timestamp,
    pub fire_time: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// A host without a live process.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct SilentHost {
    pub name: String,
    pub heartbeat_at: Timestamp,
}

/// The outcomes of launches that were recovered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct RecoveryOutcomes {
    pub succeeded: i64,
    pub ended: i64,
}

macro_rules! schedules {
    ($condition:literal) => {
        concat!(
            "SELECT s.id, s.name, s.package, s.enabled, s.next_slot, s.created_at, s.resumed_at, r.policies, m.success_scheduled_time,
                m.failure_scheduled_time
            FROM schedule s JOIN schedule_revision r ON r.schedule_id = s.id AND r.revision = s.revision
            LEFT JOIN schedule_result m ON m.schedule_id = s.id ",
            $condition
        )
    };
}

macro_rules! launches {
    ($condition:literal) => {
        concat!(
            "SELECT id, kind, status, scheduled_time, fire_time, started_at, finished_at, reason, message FROM launch ",
            $condition
        )
    };
}

statements! {
    /// Returns up to `limit` schedules after an id, in the order of their ids.
    pub async fn schedules_after(after: ScheduleId, limit: i64) -> Vec<WatchedSchedule> = rows
        schedules!("WHERE s.id > $1 AND s.deleted_at IS NULL ORDER BY s.id LIMIT $2");

    /// Returns up to `limit` schedules after an id with the policy `expect_within`, in the order of their ids.
    // A partial index finds them, however many schedules there are.
    pub async fn expecting_after(after: ScheduleId, limit: i64) -> Vec<WatchedSchedule> = rows
        schedules!("WHERE r.policies LIKE '%\"expect_within\"%' AND r.schedule_id > $1 AND s.deleted_at IS NULL
            ORDER BY r.schedule_id LIMIT $2");

    /// Returns these schedules. A removed one is left out.
    pub async fn schedules_with(ids: &[ScheduleId]) -> Vec<WatchedSchedule> = rows_batch
        Batch::new(schedules!("JOIN (VALUES ($1)) AS v ON s.id = v.column1 WHERE s.deleted_at IS NULL")),
        ids, |id| [*id];

    /// Returns the unskipped ones among the newest `limit` launches of a schedule, newest slot first.
    // The index `launch_schedule` yields the newest slots first.
    pub async fn newest_launches(schedule: ScheduleId, limit: i64) -> Vec<WatchedLaunch> = rows
        "SELECT id, kind, status, scheduled_time, fire_time, started_at, finished_at, reason, message FROM
            (SELECT * FROM launch WHERE schedule_id = $1 ORDER BY scheduled_time DESC LIMIT $2) AS newest
        WHERE status <> 'skipped' ORDER BY scheduled_time DESC";

    /// Returns up to `limit` launches of a schedule in each unfinished status.
    // A partial index on the schedule answers each part, however many launches there are.
    pub async fn unfinished(schedule: ScheduleId, limit: i64) -> Vec<WatchedLaunch> = rows
        concat!(
            "SELECT * FROM (", launches!("WHERE schedule_id = $1 AND status IN ('running', 'waiting') LIMIT $2"), ") AS runs
            UNION ALL SELECT * FROM (", launches!("WHERE schedule_id = $1 AND status = 'open' LIMIT $2"), ") AS opened
            UNION ALL SELECT * FROM (", launches!("WHERE schedule_id = $1 AND status = 'queued' LIMIT $2"), ") AS queued"
        );

    /// Returns the newest decision about a slot of a schedule up to `until`.
    // The index `launch_schedule` yields the newest slots first.
    pub async fn decision_until(schedule: ScheduleId, until: Timestamp) -> Option<WatchedLaunch> = row
        launches!("WHERE schedule_id = $1 AND scheduled_time <= $2 AND kind IN ('schedule', 'catchup')
            ORDER BY scheduled_time DESC LIMIT 1");

    /// Returns up to `limit` launches after an id that ended without success, each with its schedule.
    pub async fn failed_after(after: LaunchId, limit: i64) -> Vec<(LaunchId, ScheduleId)> = rows
        "SELECT id, schedule_id FROM launch WHERE status IN ('failed', 'cancelled', 'unknown', 'abandoned') AND id > $1
        ORDER BY id LIMIT $2";

    /// Returns up to `limit` runs of schedules after an id, in the order of these ids: the schedule, the fire time and the start.
    pub async fn runs_after(after: ScheduleId, limit: i64) -> Vec<(ScheduleId, Timestamp, Timestamp)> = rows
        "SELECT schedule_id, fire_time, started_at FROM launch WHERE status IN ('running', 'waiting') AND schedule_id > $1
        ORDER BY schedule_id LIMIT $2";

    /// Returns up to `limit` schedules whose next slot was due before `before`, the oldest slot first.
    pub async fn overdue_schedules(before: Timestamp, limit: i64) -> Vec<ScheduleId> = values
        "SELECT id FROM schedule WHERE next_slot < $1 ORDER BY next_slot LIMIT $2";

    /// Returns the schedules of up to `limit` unclaimed launches due before `before`.
    pub async fn unclaimed(before: Timestamp, limit: i64) -> Vec<ScheduleId> = values
        "SELECT schedule_id FROM launch WHERE status = 'open' AND group_name IS NULL AND fire_time < $1 ORDER BY fire_time LIMIT $2";

    /// Returns the schedules of up to `limit` queued launches due before `before`.
    pub async fn queued(before: Timestamp, limit: i64) -> Vec<ScheduleId> = values
        "SELECT schedule_id FROM launch WHERE status = 'queued' AND fire_time IS NOT NULL AND fire_time < $1 ORDER BY fire_time LIMIT $2";

    /// Returns up to `limit` hosts whose newest process was marked as dead since `died_since`.
    pub async fn silent_hosts(died_since: Timestamp, limit: i64) -> Vec<SilentHost> = rows
        "SELECT h.name, h.heartbeat_at FROM host h
        WHERE h.end_reason = 'died' AND h.ended_at >= $1
            AND NOT EXISTS (SELECT 1 FROM host o WHERE o.name = h.name AND o.started_at > h.started_at)
        ORDER BY h.name LIMIT $2";

    /// Count the outcomes of the newest `limit` launches that were recovered since `since` and have ended.
    pub async fn recoveries(since: Timestamp, limit: i64) -> RecoveryOutcomes = one_row
        "SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
            count(*) FILTER (WHERE status IN ('succeeded', 'failed', 'unknown', 'abandoned')) AS ended
        FROM (SELECT status FROM launch WHERE recovered_at >= $1 ORDER BY recovered_at DESC LIMIT $2) AS newest";
}
