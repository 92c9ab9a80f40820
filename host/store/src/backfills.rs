//! Backfills: requests to launch the slots of a time that is past, and how far they have come.
//!
//! Whoever changes one holds its schedule's row.

use serde::Serialize;
use sqlx::FromRow;

use super::types::{json_text, storable};
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{BackfillId, ScheduleId};
use campanile_model::status::{BackfillStatus, LaunchStatus};

/// The reason of launches whose backfill was cancelled before they had begun.
pub const REASON: &str = "cancelled";

/// A backfill.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, schemars::JsonSchema)]
pub struct Backfill {
    pub id: BackfillId,
    #[serde(skip)]
    pub schedule_id: ScheduleId,
    /// The schedule's name, also when it is deleted.
    pub schedule: String,
    /// Whose rule yields the slots.
    #[serde(skip)]
    pub schedule_revision: i64,
    pub status: BackfillStatus,
    /// As asked for, both included.
    #[sqlx(rename = "from_at")]
    pub from: Timestamp,
    #[sqlx(rename = "to_at")]
    pub to: Timestamp,
    /// From one launch to the next at least.
    pub spread_ms: i64,
    /// Whether slots are launched too that would be left alone; see [`slots_to_skip`].
    pub forced: bool,
    /// A JSON object laid over the schedule's context.
    #[serde(serialize_with = "json_text")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub context: Option<String>,
    /// Up to where slots were looked at.
    #[serde(skip)]
    pub cursor_at: Timestamp,
    /// When the next launch may fire.
    #[serde(skip)]
    pub next_fire: Timestamp,
    /// How many slots it has, and what became of those up to the cursor.
    pub slots: i64,
    pub launched: i64,
    pub slots_skipped: i64,
    pub created_at: Timestamp,
    pub created_by: String,
    pub finished_at: Option<Timestamp>,
}

/// How far the cursor of a backfill moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackfillStep {
    pub id: BackfillId,
    pub from: Timestamp,
    pub to: Timestamp,
    pub next_fire: Timestamp,
    pub launched: i64,
    pub slots_skipped: i64,
}

/// What has become of the launches of a backfill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct LaunchTotals {
    pub succeeded: i64,
    /// Failed for good, abandoned, or ended without anybody knowing how.
    pub failed: i64,
    /// Ended before their time, or before they had begun.
    pub cancelled: i64,
    /// Not over.
    pub unfinished: i64,
}

const INSERT: &str = "INSERT INTO backfill (id, schedule_id, schedule_revision, status, from_at, to_at, spread_ms, forced, context,
        cursor_at, next_fire, slots, launched, slots_skipped, created_at, created_by, finished_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";
const FIND: &str = "SELECT b.id, b.schedule_id, s.name AS schedule, b.schedule_revision, b.status, b.from_at, b.to_at, b.spread_ms,
        b.forced, b.context, b.cursor_at, b.next_fire, b.slots, b.launched, b.slots_skipped, b.created_at, b.created_by, b.finished_at
    FROM backfill b JOIN schedule s ON s.id = b.schedule_id WHERE b.id = $1";
const LIST: &str = "SELECT b.id, b.schedule_id, s.name AS schedule, b.schedule_revision, b.status, b.from_at, b.to_at, b.spread_ms,
        b.forced, b.context, b.cursor_at, b.next_fire, b.slots, b.launched, b.slots_skipped, b.created_at, b.created_by, b.finished_at
    FROM backfill b JOIN schedule s ON s.id = b.schedule_id ORDER BY b.created_at DESC, b.id DESC LIMIT $1";
const RUNNING: &str = "SELECT b.id, b.schedule_id, s.name AS schedule, b.schedule_revision, b.status, b.from_at, b.to_at, b.spread_ms,
        b.forced, b.context, b.cursor_at, b.next_fire, b.slots, b.launched, b.slots_skipped, b.created_at, b.created_by, b.finished_at
    FROM backfill b JOIN schedule s ON s.id = b.schedule_id WHERE b.status = 'running' ORDER BY b.created_at, b.id";
const ADVANCE: &str = "UPDATE backfill SET cursor_at = $3, next_fire = $4, launched = launched + $5, slots_skipped = slots_skipped + $6
    WHERE id = $1 AND cursor_at = $2 AND status = 'running'";
const FINISH: &str =
    "UPDATE backfill SET status = $2, finished_at = $3 WHERE id = $1 AND status = 'running'";
// Each part is answered by a partial index on the schedule: the one on the backfill has all launches it has ever had, and
// is not taken for a comparison written like this.
const UNFINISHED: &str = "SELECT
        (SELECT count(*) FROM run r JOIN launch l ON l.id = r.launch_id
            WHERE r.schedule_id = $1 AND r.status IN ('running', 'waiting') AND (l.backfill_id IS NOT DISTINCT FROM $2) = TRUE)
        + (SELECT count(*) FROM launch WHERE schedule_id = $1 AND run_id IS NULL AND decision = 'launched' AND status = 'open'
            AND (backfill_id IS NOT DISTINCT FROM $2) = TRUE)
        + (SELECT count(*) FROM launch WHERE schedule_id = $1 AND decision = 'queued'
            AND (backfill_id IS NOT DISTINCT FROM $2) = TRUE)";
// A row may stand for a range of slots. Ranges do not overlap, so at most one that begins before $2 reaches it: the last.
const LEFT_ALONE: &str = "SELECT scheduled_time, last_scheduled_time FROM launch
        WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill' AND scheduled_time <= $3
            AND scheduled_time >= COALESCE((SELECT max(scheduled_time) FROM launch
                WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill' AND scheduled_time <= $2), $2)
            AND (status IN ('succeeded', 'open', 'queued', 'running', 'waiting') OR reason = 'skipped_once')
    UNION SELECT scheduled_time, last_scheduled_time FROM launch
        WHERE schedule_id = $1 AND scheduled_time >= $2 AND scheduled_time <= $3
            AND kind = 'backfill' AND status IN ('succeeded', 'open', 'queued', 'running', 'waiting')";
const ENDS: &str = "SELECT status, count(*) FROM launch WHERE backfill_id = $1 GROUP BY status";
const SKIP_NOT_BEGUN: &str =
    "UPDATE launch SET decision = 'skipped', status = 'skipped', reason = 'cancelled', finished_at = $2
    WHERE backfill_id = $1 AND (decision = 'queued'
        OR (run_id IS NULL AND decision = 'launched' AND status = 'open' AND attempts = 0))";

/// Every statement of this table, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[
    INSERT,
    FIND,
    LIST,
    RUNNING,
    ADVANCE,
    FINISH,
    UNFINISHED,
    LEFT_ALONE,
    ENDS,
    SKIP_NOT_BEGUN,
];

/// Put a backfill on the record.
///
/// # Errors
///
/// `Conflict` when there is one of that id.
pub async fn insert(tx: &mut Tx, backfill: &Backfill) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(INSERT)
        .bind(backfill.id)
        .bind(backfill.schedule_id)
        .bind(backfill.schedule_revision)
        .bind(backfill.status)
        .bind(backfill.from)
        .bind(backfill.to)
        .bind(backfill.spread_ms)
        .bind(backfill.forced)
        .bind(&backfill.context)
        .bind(backfill.cursor_at)
        .bind(backfill.next_fire)
        .bind(backfill.slots)
        .bind(backfill.launched)
        .bind(backfill.slots_skipped)
        .bind(backfill.created_at)
        .bind(storable(&backfill.created_by))
        .bind(backfill.finished_at)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// The backfill of that id.
pub async fn find(tx: &mut Tx, id: BackfillId) -> Result<Option<Backfill>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(FIND)
        .bind(id)
        .fetch_optional(conn)
        .await)?)
}

/// The newest `limit` backfills, newest first.
pub async fn list(tx: &mut Tx, limit: i64) -> Result<Vec<Backfill>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LIST)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// The backfills that are not over, oldest first.
pub async fn running(tx: &mut Tx) -> Result<Vec<Backfill>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(RUNNING)
        .fetch_all(conn)
        .await)?)
}

/// Move the cursor of one that runs. False when it was moved or ended meanwhile.
pub async fn advance(tx: &mut Tx, step: &BackfillStep) -> Result<bool, DbError> {
    let rows = on!(tx, |conn| sqlx::query(ADVANCE)
        .bind(step.id)
        .bind(step.from)
        .bind(step.to)
        .bind(step.next_fire)
        .bind(step.launched)
        .bind(step.slots_skipped)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(rows == 1)
}

/// End one that runs. False when it had ended.
pub async fn finish(
    tx: &mut Tx,
    id: BackfillId,
    status: BackfillStatus,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = on!(tx, |conn| sqlx::query(FINISH)
        .bind(id)
        .bind(status)
        .bind(now)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(rows == 1)
}

/// How many of its launches are not over.
pub async fn unfinished(tx: &mut Tx, backfill: &Backfill) -> Result<i64, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(UNFINISHED)
        .bind(backfill.schedule_id)
        .bind(backfill.id)
        .fetch_one(conn)
        .await)?)
}

/// Return the slots from `first` to `last`, both included, that a backfill leaves alone unless it is forced.
///
/// Those are slots with a launch that succeeded or is not over, and slots that a person skipped. A launch by hand counts
/// for no slot. Each item is the first and the last slot of one row; it may also begin before `first`.
pub async fn slots_to_skip(
    tx: &mut Tx,
    schedule: ScheduleId,
    first: Timestamp,
    last: Timestamp,
) -> Result<Vec<(Timestamp, Timestamp)>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LEFT_ALONE)
        .bind(schedule)
        .bind(first)
        .bind(last)
        .fetch_all(conn)
        .await)?)
}

/// What has become of its launches.
pub async fn launch_totals(tx: &mut Tx, id: BackfillId) -> Result<LaunchTotals, DbError> {
    let rows: Vec<(LaunchStatus, i64)> = on!(tx, |conn| sqlx::query_as(ENDS)
        .bind(id)
        .fetch_all(conn)
        .await)?;
    let mut ends = LaunchTotals::default();
    for (status, count) in rows {
        let counted = match status {
            LaunchStatus::Succeeded => &mut ends.succeeded,
            LaunchStatus::Failed | LaunchStatus::Unknown | LaunchStatus::Abandoned => {
                &mut ends.failed
            }
            LaunchStatus::Cancelled | LaunchStatus::Skipped => &mut ends.cancelled,
            LaunchStatus::Open
            | LaunchStatus::Queued
            | LaunchStatus::Running
            | LaunchStatus::Waiting => &mut ends.unfinished,
        };
        *counted += count;
    }
    Ok(ends)
}

/// Skip its launches that have not begun; gives how many. What was begun goes on.
pub async fn skip_unstarted(tx: &mut Tx, id: BackfillId, now: Timestamp) -> Result<u64, DbError> {
    Ok(on!(tx, |conn| sqlx::query(SKIP_NOT_BEGUN)
        .bind(id)
        .bind(now)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?)
}
