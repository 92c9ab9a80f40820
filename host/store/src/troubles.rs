//! What an operator looks at first: which schedules fail and since when, and the newest decisions. All reads are bounded.

use sqlx::FromRow;

use super::events::{Event, event_columns};
use super::sql::{Batch, statements};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{
    AlertId, BackfillId, EventId, LaunchId, LaunchKind, MessageId, ScheduleId,
};
use campanile_model::status::{AlertMessageKind, LaunchStatus, MessageStatus};

/// A schedule whose newest results are failures.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct FailingSchedule {
    pub id: ScheduleId,
    pub name: String,
    pub package: String,
    /// The last failure, JSON.
    pub failure: String,
    /// When the first failure since the last success was recorded.
    pub failing_since: Timestamp,
    /// The failures since the last success.
    pub streak: i64,
    pub last_success_at: Option<Timestamp>,
}

/// How the launches of a schedule ended last.
#[derive(Debug, Clone, Copy, PartialEq, FromRow)]
pub struct Streak {
    pub schedule_id: ScheduleId,
    pub failing_since: Option<Timestamp>,
    pub streak: i64,
    pub last_success_at: Option<Timestamp>,
}

/// A decision, and the times of its newest run.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct RecentLaunch {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub package: String,
    pub kind: LaunchKind,
    pub status: LaunchStatus,
    /// Why it was skipped, abandoned or cancelled.
    pub reason: Option<String>,
    pub scheduled_time: Timestamp,
    /// The slots of a skipped range; none of a single slot.
    pub slot_count: Option<i64>,
    pub fire_time: Timestamp,
    pub decided_at: Timestamp,
    /// When it left the queue, if it was queued.
    pub opened_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub recoveries: i64,
}

impl RecentLaunch {
    /// Returns how many slots it decides.
    pub fn slots(&self) -> i64 {
        self.slot_count.unwrap_or(1)
    }
}

/// How much wants the attention of a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct Attention {
    /// Enabled schedules that failed twice in a row, or more often.
    pub failing: i64,
    /// Packages with a version that waits for an approval.
    pub pending: i64,
    /// Alerts that fire.
    pub firing: i64,
}

/// A message to a channel about an alert.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct AlertDelivery {
    pub alert_id: AlertId,
    pub id: MessageId,
    pub channel: String,
    pub kind: AlertMessageKind,
    pub status: MessageStatus,
    pub attempts: i64,
    /// The status of the receiver's last answer.
    pub answer: Option<i64>,
    /// Why the last delivery failed.
    pub error: Option<String>,
}

/// What a list of packages shows besides their rows.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct PackageSummary {
    pub name: String,
    /// The first 2,000 characters of its grants, one a line. The last line may be cut.
    pub grants: String,
    pub is_cut: bool,
    /// Its schedules, at most [`SUMMARY_SCHEDULES_MAX`].
    pub schedules: i64,
}

/// The most schedules that are counted for a [`PackageSummary`].
pub const SUMMARY_SCHEDULES_MAX: i64 = 100;

macro_rules! recent_columns {
    ($rest:literal) => {
        concat!(
            "SELECT id, schedule_id, package, kind, status, reason, scheduled_time, slot_count, fire_time, decided_at, opened_at,
            started_at, finished_at, recoveries FROM launch ",
            $rest
        )
    };
}

statements! {
    /// Returns up to `limit` enabled schedules that fail, those failing longest first.
    pub async fn failing(limit: i64) -> Vec<FailingSchedule> = rows
        "SELECT s.id, s.name, s.package, m.failure, m.failing_since, m.streak, m.last_success_at
        FROM schedule_result m JOIN schedule s ON s.id = m.schedule_id
        WHERE m.failing_since IS NOT NULL AND s.deleted_at IS NULL AND s.enabled ORDER BY m.failing_since, m.streak LIMIT $1";

    /// Counts the schedules, up to `limit` of them.
    pub async fn schedules(limit: i64) -> i64 = one_value
        "SELECT count(*) FROM (SELECT 1 FROM schedule WHERE deleted_at IS NULL LIMIT $1) AS first";

    /// Counts what wants the attention of a person: up to `limit` failing schedules.
    pub async fn attention(limit: i64) -> Attention = one_row
        "SELECT (SELECT count(*) FROM
                (SELECT 1 FROM schedule_result m JOIN schedule s ON s.id = m.schedule_id
                WHERE m.failing_since IS NOT NULL AND m.streak >= 2 AND s.deleted_at IS NULL AND s.enabled LIMIT $1) AS failing) AS failing,
            (SELECT count(*) FROM package WHERE pending_digest IS NOT NULL) AS pending,
            (SELECT count(*) FROM alert WHERE status <> 'resolved' AND status = 'firing') AS firing";

    /// Returns how the launches of schedules ended last. A schedule without a launch that ended is left out.
    pub async fn streaks(schedules: &[ScheduleId]) -> Vec<Streak> = rows_batch
        Batch::new("SELECT m.schedule_id, m.failing_since, m.streak, m.last_success_at
        FROM schedule_result m JOIN (VALUES ($1)) AS v ON m.schedule_id = v.column1"),
        schedules, |schedule| [*schedule];

    /// Returns how often in a row the schedules of launches have failed.
    pub async fn streaks_of_launches(launches: &[LaunchId]) -> Vec<(LaunchId, i64)> = rows_batch
        Batch::new("SELECT l.id, m.streak FROM launch l JOIN (VALUES ($1)) AS v ON l.id = v.column1
        JOIN schedule_result m ON m.schedule_id = l.schedule_id"),
        launches, |launch| [*launch];

    /// Returns the newest `limit` decisions since `since`, newest first.
    pub async fn newest_decisions(since: Timestamp, limit: i64) -> Vec<RecentLaunch> = rows
        recent_columns!("WHERE decided_at >= $1 ORDER BY decided_at DESC LIMIT $2");

    /// Returns the newest `limit` decisions of a schedule by slot, newest first.
    pub async fn newest_of(schedule: ScheduleId, limit: i64) -> Vec<RecentLaunch> = rows
        recent_columns!("WHERE schedule_id = $1 ORDER BY scheduled_time DESC, id DESC LIMIT $2");

    /// Returns up to `limit` launches of the schedule of `launch` before it, which has the slot `slot`, the nearest first.
    pub async fn launches_before(launch: LaunchId, slot: Timestamp, limit: i64) -> Vec<RecentLaunch> = rows
        recent_columns!("WHERE schedule_id = (SELECT l.schedule_id FROM launch l WHERE l.id = $1) AND (scheduled_time, id) < ($2, $1)
        ORDER BY scheduled_time DESC, id DESC LIMIT $3");

    /// Returns up to `limit` launches of the schedule of `launch` after it, which has the slot `slot`, the nearest first.
    pub async fn launches_after(launch: LaunchId, slot: Timestamp, limit: i64) -> Vec<RecentLaunch> = rows
        recent_columns!("WHERE schedule_id = (SELECT l.schedule_id FROM launch l WHERE l.id = $1) AND (scheduled_time, id) > ($2, $1)
        ORDER BY scheduled_time, id LIMIT $3");

    /// Returns when launches of a schedule for a backfill started, and when they finished: the newest `limit` that succeeded among
    /// the schedule's newest `searched` slots.
    pub async fn backfilled(schedule: ScheduleId, limit: i64, searched: i64) -> Vec<(Timestamp, Timestamp)> = rows
        "SELECT started_at, finished_at FROM
            (SELECT scheduled_time, kind, status, started_at, finished_at FROM launch
                WHERE schedule_id = $1 ORDER BY scheduled_time DESC LIMIT $3) AS newest
        WHERE kind = 'backfill' AND status = 'succeeded' AND started_at IS NOT NULL AND finished_at IS NOT NULL
        ORDER BY scheduled_time DESC LIMIT $2";

    /// Returns the schedules with an unfinished run. Hosts bound how many there are.
    // The condition on `schedule_id` is always true. Without it, SQLite reads all launches in place of an index.
    pub async fn running(limit: i64) -> Vec<ScheduleId> = values
        "SELECT DISTINCT schedule_id FROM launch WHERE status IN ('running', 'waiting') AND schedule_id > $1 LIMIT $2"
        => [ScheduleId::FIRST, limit];

    /// Returns up to `limit` paused schedules, by name.
    pub async fn paused(limit: i64) -> Vec<ScheduleId> = values
        "SELECT id FROM schedule WHERE deleted_at IS NULL AND NOT enabled ORDER BY name LIMIT $1";

    /// Counts up to `limit` launches of a backfill by their status.
    pub async fn backfill_statuses(backfill: BackfillId, limit: i64) -> Vec<(LaunchStatus, i64)> = rows
        "SELECT status, count(*) FROM (SELECT status FROM launch WHERE backfill_id = $1 LIMIT $2) AS counted GROUP BY status";

    /// Returns the messages about alerts, the newest twenty of each.
    pub async fn alert_deliveries(alerts: &[AlertId]) -> Vec<AlertDelivery> = rows_batch
        Batch::new("SELECT i.alert_id, m.id, m.channel, m.kind, m.status, m.attempts, m.answer, m.error
        FROM alert_message_alert i JOIN (VALUES ($1)) AS v ON i.alert_id = v.column1 JOIN alert_message m ON m.id = i.message_id
        WHERE i.message_id IN (SELECT n.message_id FROM alert_message_alert n WHERE n.alert_id = v.column1
            ORDER BY n.message_id DESC LIMIT 20)"),
        alerts, |alert| [*alert];

    /// Returns what a list of packages shows besides their rows.
    pub async fn package_summaries(names: &[&str]) -> Vec<PackageSummary> = rows_batch
        Batch::new("SELECT p.name, substr(p.grants, 1, 2000) AS grants, length(p.grants) > 2000 AS is_cut,
            (SELECT count(*) FROM (SELECT 1 FROM schedule s WHERE s.package = p.name AND s.deleted_at IS NULL LIMIT 100) AS counted)
                AS schedules
        FROM package p JOIN (VALUES ($1)) AS v ON p.name = v.column1"),
        names, |name| [*name];

    /// Returns those of these names that schedules have.
    pub async fn schedule_names(names: &[&str]) -> Vec<String> = values_batch
        Batch::new("SELECT s.name FROM schedule s JOIN (VALUES ($1)) AS v ON s.name = v.column1 WHERE s.deleted_at IS NULL"),
        names, |name| [*name];

    /// Returns those of these names that packages have.
    pub async fn package_names(names: &[&str]) -> Vec<String> = values_batch
        Batch::new("SELECT p.name FROM package p JOIN (VALUES ($1)) AS v ON p.name = v.column1"),
        names, |name| [*name];

    /// Returns the newest `limit` events about `subject` up to `until` and before an id, newest first.
    pub async fn events_about(subject: &str, until: Timestamp, before: EventId, limit: i64) -> Vec<Event> = rows
        concat!("SELECT ", event_columns!(), " FROM event
        WHERE substr(subject, 1, 200) = substr($1, 1, 200) AND subject = $1 AND at <= $2 AND id < $3 ORDER BY at DESC, id DESC LIMIT $4");
}
