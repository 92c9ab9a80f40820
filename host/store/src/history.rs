//! What the record holds about one schedule at one moment: for reading it back, decision by decision.
//!
//! Nothing here is asked on the path of a launch; some of it looks through all launches of a schedule.

use sqlx::FromRow;

use super::events::Event;
use super::launches::LaunchRow;
use super::runs::RunRow;
use super::schedules::Revision;
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};

/// A launch with all that was noted about its decision.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DecidedLaunch {
    #[sqlx(flatten)]
    pub launch: LaunchRow,
    pub schedule_revision: i64,
    /// Who decided it, or opened it last; none when a person asked for it.
    pub host: Option<String>,
    /// When it was its turn, if it had to wait for that.
    pub opened_at: Option<Timestamp>,
}

/// A schedule that bears a name, or did.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct NamedSchedule {
    pub id: ScheduleId,
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

/// Launches that were going on at one moment, at most so many of them.
const BESIDE_MAX: i64 = 5;

/// A query for launches, after what it asks of them.
macro_rules! decided {
    ($which:literal) => {
        concat!(
            "SELECT l.id, s.name AS schedule, l.scheduled_time, l.scheduled_local, l.last_scheduled_time, l.slot_count, l.kind,
        l.decision, l.reason, l.overlaps_id, l.status, l.package, l.digest, l.run_id, l.attempts, l.recoveries, l.fire_time, l.claimed_at,
        l.started_at, l.finished_at, l.failure, l.message, h.tzdata_version, l.schedule_revision, h.name AS host, l.opened_at
    FROM launch l JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = l.decided_by
    WHERE ",
            $which
        )
    };
}

// The one called so now, then the newest that was when it was removed, then the newest that was before a change.
const BEARERS: &str = "SELECT s.id, s.created_at, s.deleted_at FROM schedule s
    WHERE s.name = $1 OR EXISTS (SELECT 1 FROM schedule_revision r WHERE r.schedule_id = s.id AND r.name = $1)
    ORDER BY CASE WHEN s.name = $1 AND s.deleted_at IS NULL THEN 0 WHEN s.name = $1 THEN 1 ELSE 2 END, s.created_at DESC";
const REVISIONS: &str =
    "SELECT schedule_id, revision, name, package, task, kind, expression, anchor, timezone,
        day_match, dst_gap, dst_fold, exclude, policies, context, since
    FROM schedule_revision WHERE schedule_id = $1 ORDER BY revision";
const LAUNCH: &str = decided!("l.id = $1");
const NEWEST: &str =
    decided!("l.schedule_id = $1 ORDER BY l.claimed_at DESC, l.scheduled_time DESC LIMIT 1");
// Ranges do not overlap, so the last that begins by then is the one that may hold the moment.
const SLOT: &str = decided!(
    "l.schedule_id = $1 AND l.scheduled_time <= $2 AND l.kind <> 'manual' AND l.kind <> 'backfill' ORDER BY l.scheduled_time DESC LIMIT 1"
);
const BACKFILLS: &str = decided!(
    "l.schedule_id = $1 AND l.scheduled_time = $2 AND l.backfill_id IS NOT NULL ORDER BY l.claimed_at"
);
const CAUGHT_UP_AFTER: &str = decided!(
    "l.schedule_id = $1 AND l.scheduled_time > $2 AND l.kind = 'catchup' ORDER BY l.scheduled_time LIMIT 1"
);
const CAUGHT_UP_BEFORE: &str = decided!(
    "l.schedule_id = $1 AND l.scheduled_time < $2 AND l.kind = 'catchup' ORDER BY l.scheduled_time DESC LIMIT 1"
);
const BESIDE: &str = decided!(
    "l.schedule_id = $1 AND l.id <> $2 AND (l.claimed_at < $3 OR (l.claimed_at = $3 AND l.scheduled_time < $4)) AND l.decision <> 'skipped'
        AND (l.finished_at IS NULL OR l.finished_at > $3) ORDER BY l.claimed_at DESC, l.scheduled_time DESC LIMIT $5"
);
const RUNS: &str = "SELECT r.id, r.launch_id, s.name AS schedule, l.scheduled_time, r.status, r.is_recovery, l.package, r.digest, l.schedule_revision,
        r.grants_hash, r.context_hash, h.name AS host, h.version AS host_version, h.wasmtime_version, h.tzdata_version, r.retry_at,
        r.started_at, r.finished_at, r.failure, r.message
    FROM run r JOIN launch l ON l.id = r.launch_id JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = r.host_id
    WHERE r.launch_id = $1 ORDER BY r.started_at, r.id";
const EVENTS: &str = "SELECT at, kind, subject, detail FROM event
    WHERE subject = $1 AND at >= $2 AND at <= $3 ORDER BY at, id";

/// Every statement, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[
    BEARERS,
    REVISIONS,
    LAUNCH,
    NEWEST,
    SLOT,
    BACKFILLS,
    CAUGHT_UP_AFTER,
    CAUGHT_UP_BEFORE,
    BESIDE,
    RUNS,
    EVENTS,
];

/// The schedules that are called `name`, or were: the one that is comes first, then those removed, the newest first,
/// then those that have another name now.
pub async fn schedules_named(tx: &mut Tx, name: &str) -> Result<Vec<NamedSchedule>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(BEARERS)
        .bind(name)
        .fetch_all(conn)
        .await)?)
}

/// All that a schedule has said, in the order in which it did.
pub async fn revisions(tx: &mut Tx, schedule: ScheduleId) -> Result<Vec<Revision>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(REVISIONS)
        .bind(schedule)
        .fetch_all(conn)
        .await)?)
}

/// The launch of that id.
pub async fn launch(tx: &mut Tx, id: LaunchId) -> Result<Option<DecidedLaunch>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LAUNCH)
        .bind(id)
        .fetch_optional(conn)
        .await)?)
}

/// The launch of a schedule that was decided last.
pub async fn newest(tx: &mut Tx, schedule: ScheduleId) -> Result<Option<DecidedLaunch>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(NEWEST)
        .bind(schedule)
        .fetch_optional(conn)
        .await)?)
}

/// The decision about a slot, or about the range of slots that holds it.
pub async fn of_slot(
    tx: &mut Tx,
    schedule: ScheduleId,
    slot: Timestamp,
) -> Result<Option<DecidedLaunch>, DbError> {
    let found = one(tx, SLOT, schedule, slot).await?;
    Ok(found.filter(|decided| slot <= decided.launch.last_scheduled_time))
}

/// The launches of a slot that backfills made, in the order in which they were decided.
pub async fn backfills(
    tx: &mut Tx,
    schedule: ScheduleId,
    slot: Timestamp,
) -> Result<Vec<DecidedLaunch>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(BACKFILLS)
        .bind(schedule)
        .bind(slot)
        .fetch_all(conn)
        .await)?)
}

/// The first slot after `slot` that was caught up.
pub async fn caught_up_after(
    tx: &mut Tx,
    schedule: ScheduleId,
    slot: Timestamp,
) -> Result<Option<DecidedLaunch>, DbError> {
    one(tx, CAUGHT_UP_AFTER, schedule, slot).await
}

/// The last slot before `slot` that was caught up.
pub async fn caught_up_before(
    tx: &mut Tx,
    schedule: ScheduleId,
    slot: Timestamp,
) -> Result<Option<DecidedLaunch>, DbError> {
    one(tx, CAUGHT_UP_BEFORE, schedule, slot).await
}

async fn one(
    tx: &mut Tx,
    sql: &'static str,
    schedule: ScheduleId,
    slot: Timestamp,
) -> Result<Option<DecidedLaunch>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(sql)
        .bind(schedule)
        .bind(slot)
        .fetch_optional(conn)
        .await)?)
}

/// The newest launches of the same schedule that were decided before `decided`, and were not over when it was.
pub async fn concurrent(
    tx: &mut Tx,
    schedule: ScheduleId,
    decided: &LaunchRow,
) -> Result<Vec<DecidedLaunch>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(BESIDE)
        .bind(schedule)
        .bind(decided.id)
        .bind(decided.claimed_at)
        .bind(decided.scheduled_time)
        .bind(BESIDE_MAX)
        .fetch_all(conn)
        .await)?)
}

/// The attempts to carry a launch out, in their order.
pub async fn runs(tx: &mut Tx, launch: LaunchId) -> Result<Vec<RunRow>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(RUNS)
        .bind(launch)
        .fetch_all(conn)
        .await)?)
}

/// What happened to `subject` from `since` to `until`, in that order.
pub async fn events(
    tx: &mut Tx,
    subject: &str,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<Event>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(EVENTS)
        .bind(subject)
        .bind(since)
        .bind(until)
        .fetch_all(conn)
        .await)?)
}
