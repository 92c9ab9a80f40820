//! Backfills: requests to launch the slots of a past range, and their progress.
//!
//! A transaction that changes a backfill has locked its schedule's row.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::statements;
use super::types::{json_text, optional_stored_json, storable};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{BackfillId, ScheduleId};
use campanile_model::status::BackfillStatus;

/// The reason of launches that had not started when their backfill was cancelled.
pub const REASON: &str = "cancelled";

/// A backfill.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Backfill {
    pub id: BackfillId,
    #[serde(skip)]
    pub schedule_id: ScheduleId,
    /// The schedule's name, also when it is deleted.
    pub schedule: String,
    /// The revision whose rule yields the slots.
    #[serde(skip)]
    pub schedule_revision: i64,
    pub status: BackfillStatus,
    /// The requested range, both ends included.
    #[sqlx(rename = "from_at")]
    pub from: Timestamp,
    #[sqlx(rename = "to_at")]
    pub to: Timestamp,
    /// The least time between two launches.
    pub spread_ms: i64,
    /// Whether all slots are launched, also those that [`slots_to_skip`] returns.
    pub forced: bool,
    /// A JSON object that is merged over the schedule's context.
    #[serde(
        serialize_with = "json_text",
        deserialize_with = "optional_stored_json"
    )]
    #[schemars(with = "Option<serde_json::Value>")]
    pub context: Option<String>,
    /// The last slot that was considered, or the instant before the first.
    #[serde(skip)]
    pub cursor_at: Timestamp,
    /// When the next launch may fire.
    #[serde(skip)]
    pub next_fire: Timestamp,
    /// The number of slots, and of those up to the cursor how many were launched and how many skipped.
    pub slots: i64,
    pub launched: i64,
    pub slots_skipped: i64,
    pub created_at: Timestamp,
    pub created_by: String,
    pub finished_at: Option<Timestamp>,
}

/// One move of a backfill's cursor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackfillStep {
    pub id: BackfillId,
    pub from: Timestamp,
    pub to: Timestamp,
    pub next_fire: Timestamp,
    pub launched: i64,
    pub slots_skipped: i64,
}

/// The number of launches of a backfill, by how they ended.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    FromRow,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub struct LaunchTotals {
    pub succeeded: i64,
    /// Failed, abandoned, or unknown.
    pub failed: i64,
    /// Cancelled while they ran, or skipped before they started.
    pub cancelled: i64,
    /// Open, queued, running or waiting for a retry.
    pub unfinished: i64,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT b.id, b.schedule_id, s.name AS schedule, b.schedule_revision, b.status, b.from_at, b.to_at, b.spread_ms,
            b.forced, b.context, b.cursor_at, b.next_fire, b.slots, b.launched, b.slots_skipped, b.created_at, b.created_by, b.finished_at
        FROM backfill b JOIN schedule s ON s.id = b.schedule_id ",
            $rest
        )
    };
}

statements! {
    /// Insert a backfill.
    ///
    /// # Errors
    ///
    /// `Conflict` when a backfill of that id exists.
    pub async fn insert(new: &Backfill) -> () = run
        "INSERT INTO backfill (id, schedule_id, schedule_revision, status, from_at, to_at, spread_ms, forced, context,
            cursor_at, next_fire, slots, launched, slots_skipped, created_at, created_by, finished_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"
        => [
            new.id, new.schedule_id, new.schedule_revision, new.status, new.from, new.to, new.spread_ms, new.forced, &new.context,
            new.cursor_at, new.next_fire, new.slots, new.launched, new.slots_skipped, new.created_at, storable(&new.created_by), new.finished_at
        ];

    /// Count the launches of a backfill by how they ended.
    pub async fn launch_totals(backfill: BackfillId) -> LaunchTotals = one_row
        "SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
            count(*) FILTER (WHERE status IN ('failed', 'unknown', 'abandoned')) AS failed,
            count(*) FILTER (WHERE status IN ('cancelled', 'skipped')) AS cancelled,
            count(*) FILTER (WHERE status IN ('open', 'queued', 'running', 'waiting')) AS unfinished
        FROM launch WHERE backfill_id = $1";

    /// Count the unfinished launches of a backfill.
    // A partial index on the schedule answers each part. The index on the backfill holds all launches it ever had; the
    // form `IS NOT DISTINCT FROM` keeps the databases from using it.
    pub async fn unfinished(schedule: ScheduleId, backfill: BackfillId) -> i64 = one_value
        "SELECT
            (SELECT count(*) FROM launch WHERE schedule_id = $1 AND status IN ('running', 'waiting')
                AND (backfill_id IS NOT DISTINCT FROM $2) IS TRUE)
            + (SELECT count(*) FROM launch WHERE schedule_id = $1 AND status = 'open'
                AND (backfill_id IS NOT DISTINCT FROM $2) IS TRUE)
            + (SELECT count(*) FROM launch WHERE schedule_id = $1 AND status = 'queued'
                AND (backfill_id IS NOT DISTINCT FROM $2) IS TRUE)";

    /// Returns the backfill of that id.
    pub async fn find(id: BackfillId) -> Option<Backfill> = row select!("WHERE b.id = $1");

    /// Returns the newest `limit` backfills before `before` of schedules whose names match `pattern`, or of all, newest first.
    pub async fn list(pattern: Option<&str>, before: Option<BackfillId>, limit: i64) -> Vec<Backfill> = rows
        select!("WHERE (CAST($1 AS TEXT) IS NULL OR s.name LIKE $1) AND b.id < $2 ORDER BY b.id DESC LIMIT $3")
        => [pattern, before.unwrap_or(BackfillId::LAST), limit];

    /// Returns the running backfills, oldest first.
    pub async fn running() -> Vec<Backfill> = rows
        select!("WHERE b.status = 'running' ORDER BY b.created_at, b.id");

    /// Move the cursor of a running backfill. False when it was moved or ended meanwhile.
    pub async fn advance(step: &BackfillStep) -> bool = changed
        "UPDATE backfill SET cursor_at = $3, next_fire = $4, launched = launched + $5, slots_skipped = slots_skipped + $6
        WHERE id = $1 AND cursor_at = $2 AND status = 'running'"
        => [step.id, step.from, step.to, step.next_fire, step.launched, step.slots_skipped];

    /// End a running backfill. False when it had ended.
    pub async fn finish(id: BackfillId, status: BackfillStatus, now: Timestamp) -> bool = changed
        "UPDATE backfill SET status = $2, finished_at = $3 WHERE id = $1 AND status = 'running'";

    /// Returns the slots from `first` to `last`, both included, that a backfill skips unless it is forced.
    ///
    /// Those are slots with a launch that succeeded or is unfinished, and slots that a person skipped. A manual launch counts
    /// for no slot, unless it is a retry. Each item is the first and the last slot of one row; the first may be before `first`.
    // A row may stand for a range of slots. Ranges do not overlap, so at most one range that begins before $2 reaches it:
    // the last.
    pub async fn slots_to_skip(
        schedule: ScheduleId, first: Timestamp, last: Timestamp,
    ) -> Vec<(Timestamp, Timestamp)> = rows
        "SELECT scheduled_time, coalesce(last_scheduled_time, scheduled_time) FROM launch
            WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill' AND scheduled_time <= $3
                AND scheduled_time >= COALESCE((SELECT max(scheduled_time) FROM launch
                    WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill' AND scheduled_time <= $2), $2)
                AND (status IN ('succeeded', 'open', 'queued', 'running', 'waiting') OR reason = 'skipped_once')
        UNION SELECT scheduled_time, scheduled_time FROM launch
            WHERE schedule_id = $1 AND scheduled_time >= $2 AND scheduled_time <= $3
                AND (kind = 'backfill' OR retry_of IS NOT NULL) AND status IN ('succeeded', 'open', 'queued', 'running', 'waiting')";
}
