//! What the database holds about one schedule at one moment, for `why`, and about ended launches, for their traces.
//!
//! No launch waits for these queries. [`newest`] reads all launches of a schedule; the others read a bounded number.

use sqlx::FromRow;

use super::events::{Event, event_columns};
use super::launch::{LaunchRow, launch_columns, launch_tables};
use super::runs::{RunRow, select_runs};
use super::schedules::{Revision, revision_columns};
use super::sql::{Batch, statements};
use super::types::{json_text, optional_stored_json};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_model::trace_context::TraceContext;

/// A launch with what was recorded about its decision.
#[derive(
    Debug, Clone, PartialEq, FromRow, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct DecidedLaunch {
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub launch: LaunchRow,
    pub schedule_revision: i64,
    /// The revision of the schedule now. A greater one than `schedule_revision` if it was edited since.
    pub newest_revision: i64,
    /// The host that decided the launch, or opened it last. Null when a person asked for it.
    #[serde(rename = "decided_by")]
    pub host: Option<String>,
    /// When a queued launch was opened.
    pub opened_at: Option<Timestamp>,
    /// The arguments of a program that the launch was given, or its schedule; none for those of the sidecar.
    #[serde(
        serialize_with = "json_text",
        deserialize_with = "optional_stored_json"
    )]
    #[schemars(with = "Option<Vec<String>>")]
    pub args: Option<String>,
    /// The trace context that the caller of the launch gave; none for a trace of its own.
    #[schemars(with = "Option<String>")]
    pub caller_traceparent: Option<TraceContext>,
}

/// A schedule that has a name now, or had it.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct NamedSchedule {
    pub id: ScheduleId,
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

/// How many runs have not ended, on all hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct RunningBeside {
    pub of_package: i64,
    pub of_group: i64,
}

/// How many launches [`concurrent`] returns at most.
const CONCURRENT_MAX: i64 = 5;

/// A query for [`DecidedLaunch`]es.
macro_rules! decided {
    ($which:literal) => {
        concat!(
            "SELECT ",
            launch_columns!(),
            ", l.schedule_revision, s.revision AS newest_revision, h.name AS host, l.opened_at, coalesce(l.args, v.args) AS args, l.caller_traceparent",
            launch_tables!(),
            $which
        )
    };
}

statements! {
    /// Count the runs of a package and of a concurrency group.
    pub async fn running_beside(package: &str, group: Option<&str>) -> RunningBeside = one_row
        "SELECT (SELECT count(*) FROM launch WHERE status IN ('running', 'waiting') AND status = 'running' AND package = $1) AS of_package,
            (SELECT count(*) FROM launch WHERE status = 'running' AND group_name = $2) AS of_group";

    /// Returns the schedules with this name, now or earlier.
    ///
    /// The one that has it now comes first, then removed schedules, newest first, then schedules that were renamed.
    // First the schedule that has the name now, then the newest that had it when it was removed, then the newest that
    // had it before a rename. Each name of a schedule, also the present one, is that of a revision.
    pub async fn schedules_named(name: &str) -> Vec<NamedSchedule> = rows
        "SELECT s.id, s.created_at, s.deleted_at FROM schedule s
        WHERE s.id IN (SELECT r.schedule_id FROM schedule_revision r WHERE r.name = $1)
        ORDER BY CASE WHEN s.name = $1 AND s.deleted_at IS NULL THEN 0 WHEN s.name = $1 THEN 1 ELSE 2 END, s.created_at DESC";

    /// Returns all revisions of a schedule, oldest first.
    pub async fn revisions(schedule: ScheduleId) -> Vec<Revision> = rows
        concat!("SELECT ", revision_columns!(), " FROM schedule_revision r
        WHERE r.schedule_id = $1 ORDER BY r.revision");

    /// Returns the launch of that id.
    pub async fn launch(id: LaunchId) -> Option<DecidedLaunch> = row decided!("l.id = $1");

    /// Returns the ended launches among these, in no order.
    pub async fn ended(launches: &[LaunchId]) -> Vec<DecidedLaunch> = rows_batch
        Batch::new(concat!("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed) ",
        decided!("l.finished_at IS NOT NULL AND l.id IN (SELECT column1 FROM v)"))),
        launches, |launch| [*launch];

    /// Returns the most recently decided launch of a schedule.
    pub async fn newest(schedule: ScheduleId) -> Option<DecidedLaunch> = row
        decided!("l.schedule_id = $1 ORDER BY l.decided_at DESC, l.scheduled_time DESC LIMIT 1");

    /// Returns the launches of a slot by backfills and retries, in the order in which they were decided.
    pub async fn backfills(schedule: ScheduleId, slot: Timestamp) -> Vec<DecidedLaunch> = rows
        decided!("l.schedule_id = $1 AND l.scheduled_time = $2 AND (l.backfill_id IS NOT NULL OR l.retry_of IS NOT NULL) ORDER BY l.decided_at");

    /// Returns the first slot after `slot` that was caught up.
    // Slots that were dropped together are beside the one that was caught up: among the nearest launches.
    pub async fn caught_up_after(schedule: ScheduleId, slot: Timestamp) -> Option<DecidedLaunch> = row
        decided!("l.id = (SELECT n.id FROM (SELECT id, scheduled_time, kind FROM launch
                WHERE schedule_id = $1 AND scheduled_time > $2 ORDER BY scheduled_time LIMIT 500) AS n
            WHERE n.kind = 'catchup' ORDER BY n.scheduled_time LIMIT 1)");

    /// Returns the last slot before `slot` that was caught up.
    pub async fn caught_up_before(schedule: ScheduleId, slot: Timestamp) -> Option<DecidedLaunch> = row
        decided!("l.id = (SELECT n.id FROM (SELECT id, scheduled_time, kind FROM launch
                WHERE schedule_id = $1 AND scheduled_time < $2 ORDER BY scheduled_time DESC LIMIT 500) AS n
            WHERE n.kind = 'catchup' ORDER BY n.scheduled_time DESC LIMIT 1)");

    /// Returns the decision about a slot, or about the range that holds the slot.
    // Ranges do not overlap, so only the last range that begins by then can hold the slot.
    pub async fn of_slot(schedule: ScheduleId, slot: Timestamp) -> Option<DecidedLaunch> = row
        decided!("l.id = (SELECT n.id FROM launch n WHERE n.schedule_id = $1 AND n.scheduled_time <= $2
            AND n.kind <> 'manual' AND n.kind <> 'backfill' ORDER BY n.scheduled_time DESC LIMIT 1)
        AND coalesce(l.last_scheduled_time, l.scheduled_time) >= $2");

    /// Returns the newest launches of the same schedule decided before `decided` and unfinished at that moment.
    // A launch of a slot is decided about when its slot comes, and one of a backfill among its neighbours: the launches with
    // the nearest slots before either moment are looked at.
    pub async fn concurrent(schedule: ScheduleId, decided: &LaunchRow) -> Vec<DecidedLaunch> = rows
        decided!("l.id IN (SELECT n.id FROM (
                SELECT * FROM (SELECT id, scheduled_time, decided_at, finished_at, status FROM launch
                    WHERE schedule_id = $1 AND scheduled_time <= $4 ORDER BY scheduled_time DESC LIMIT 500) AS near_slot
                UNION SELECT * FROM (SELECT id, scheduled_time, decided_at, finished_at, status FROM launch
                    WHERE schedule_id = $1 AND scheduled_time <= $3 ORDER BY scheduled_time DESC LIMIT 500) AS near_decision) AS n
            WHERE n.id <> $2 AND (n.decided_at < $3 OR (n.decided_at = $3 AND n.scheduled_time < $4))
                AND n.status <> 'skipped' AND (n.finished_at IS NULL OR n.finished_at > $3))
        ORDER BY l.decided_at DESC, l.scheduled_time DESC LIMIT $5")
        => [schedule, decided.id, decided.decided_at, decided.scheduled_time, CONCURRENT_MAX];

    /// Returns the runs of a launch, oldest first.
    pub async fn runs(launch: LaunchId) -> Vec<RunRow> = rows
        select_runs!("l.id = $1", "l.id = $1", "ORDER BY number");

    /// Returns the events about `subject` from `since` to `until`, oldest first.
    pub async fn events(subject: &str, since: Timestamp, until: Timestamp) -> Vec<Event> = rows
        concat!("SELECT ", event_columns!(), " FROM event
        WHERE substr(subject, 1, 200) = substr($1, 1, 200) AND subject = $1 AND at >= $2 AND at <= $3 ORDER BY at, id");
}
