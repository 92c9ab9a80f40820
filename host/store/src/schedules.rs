//! Schedules: their state, which moves with time, and their revisions, which are only added to.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::json;
use sqlx::FromRow;

use super::batch::{Batch, pieces};
use super::types::{json_text, storable};
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, ScheduleId};
use campanile_model::rule_text::RuleText;
use campanile_model::status::Origin;

/// What a schedule says at one revision.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, schemars::JsonSchema)]
pub struct Revision {
    #[serde(skip)]
    pub schedule_id: ScheduleId,
    #[serde(skip)]
    pub revision: i64,
    pub name: String,
    pub package: String,
    /// One task with what it depends on; none is the whole workflow.
    pub task: Option<String>,
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub rule: RuleText,
    /// The policies as JSON.
    #[serde(serialize_with = "json_text")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub policies: String,
    /// A JSON object.
    #[serde(serialize_with = "json_text")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub context: String,
    #[serde(skip)]
    pub since: Timestamp,
}

/// Where a schedule stands.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, schemars::JsonSchema)]
pub struct ScheduleState {
    pub id: ScheduleId,
    pub origin: Origin,
    pub revision: i64,
    pub enabled: bool,
    /// The last decided slot, or the instant before which nothing is owed.
    #[serde(rename = "cursor")]
    pub cursor_at: Timestamp,
    pub next_slot: Option<Timestamp>,
    #[sqlx(flatten)]
    #[serde(skip)]
    pub history: History,
    /// While it is not enabled: since when, by whom and why, and until when if that is known.
    pub paused_at: Option<Timestamp>,
    pub paused_by: Option<String>,
    pub pause_note: Option<String>,
    pub paused_until: Option<Timestamp>,
    /// When a pause was last ended.
    #[serde(skip)]
    pub resumed_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip)]
    pub deleted_at: Option<Timestamp>,
}

/// What has to be known of earlier slots, and of some that are to come, to decide about the next.
#[derive(Debug, Clone, Default, PartialEq, FromRow)]
pub struct History {
    /// Launches made, other than by hand and to fill back.
    pub launches: i64,
    /// When a slot was last caught up, and when that launch fires.
    pub last_catchup_at: Option<Timestamp>,
    pub last_catchup_fire_time: Option<Timestamp>,
    /// Slots that a person took out: a JSON list.
    pub skips: Option<String>,
}

impl History {
    /// Return how many launches count towards `max_launches`.
    pub fn launches_made(&self) -> u64 {
        u64::try_from(self.launches).unwrap_or_default()
    }

    /// Return the slots that a person skipped and that may not be decided yet.
    pub fn skipped_slots(&self) -> BTreeSet<Timestamp> {
        // Only this program writes the list.
        let list = self.skips.as_deref();
        list.and_then(|list| serde_json::from_str(list).ok())
            .unwrap_or_default()
    }
}

/// Why a schedule is paused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pause<'a> {
    pub by: &'a str,
    pub note: Option<&'a str>,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

/// A schedule: where it stands and what it says.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, schemars::JsonSchema)]
pub struct Schedule {
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub state: ScheduleState,
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub definition: Revision,
}

/// A schedule that has a slot to decide.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DueSchedule {
    pub id: ScheduleId,
    pub revision: i64,
    pub cursor_at: Timestamp,
    pub next_slot: Timestamp,
    #[sqlx(flatten)]
    pub history: History,
    pub package: String,
    pub digest: Option<ArtifactDigest>,
    pub missing_since: Option<Timestamp>,
}

/// A compare-and-set of a schedule's cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct CursorMove {
    pub id: ScheduleId,
    pub revision: i64,
    pub from: Timestamp,
    pub to: Timestamp,
    pub next_slot: Option<Timestamp>,
    /// Launches made with this move.
    pub launches: i64,
    /// When the last slot caught up was decided, and when its launch fires.
    pub caught_up: Option<(Timestamp, Timestamp)>,
}

const INSERT: &str = "INSERT INTO schedule
        (id, name, package, origin, revision, enabled, cursor_at, next_slot, created_at, updated_at)
    VALUES ($1, $2, $3, $4, $5, TRUE, $6, $7, $8, $8)";
const INSERT_REVISION: &str = "INSERT INTO schedule_revision
        (schedule_id, revision, name, package, task, kind, expression, anchor, timezone, day_match, dst_gap, dst_fold, exclude, policies, context, since)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
const REVISE: &str = "UPDATE schedule SET revision = $3, name = $4, package = $5, cursor_at = $6, next_slot = $7, updated_at = $8, origin = $9
    WHERE id = $1 AND revision = $2 AND enabled = $10 AND deleted_at IS NULL";
const PAUSE: &str = "UPDATE schedule SET enabled = FALSE, next_slot = NULL, updated_at = $2,
        paused_at = $2, paused_by = $3, pause_note = $4, paused_until = $5
    WHERE id = $1 AND deleted_at IS NULL AND enabled";
const RESUME: &str =
    "UPDATE schedule SET enabled = TRUE, cursor_at = $3, next_slot = $4, updated_at = $2, resumed_at = $2,
        paused_at = NULL, paused_by = NULL, pause_note = NULL, paused_until = NULL
    WHERE id = $1 AND deleted_at IS NULL AND NOT enabled";
const SET_SKIPS: &str =
    "UPDATE schedule SET skips = $2, updated_at = $3 WHERE id = $1 AND deleted_at IS NULL";
const UNCOUNT: &str = "UPDATE schedule SET launches = launches - $2 WHERE id = $1";
const PAUSES_OVER: &str =
    "SELECT id FROM schedule WHERE paused_until <= $1 ORDER BY paused_until LIMIT 1";
const PAUSES_OVER_LOCKED: &str = "SELECT id FROM schedule WHERE paused_until <= $1 ORDER BY paused_until LIMIT 1 FOR UPDATE SKIP LOCKED";
const HOLD: Batch = Batch {
    head: "SELECT schedule.id FROM schedule JOIN (VALUES ",
    columns: 1,
    tail: ") AS v ON schedule.id = v.column1 ORDER BY schedule.id",
};
const HOLD_LOCKED: Batch = Batch {
    tail: ") AS v ON schedule.id = v.column1 ORDER BY schedule.id FOR UPDATE OF schedule SKIP LOCKED",
    ..HOLD
};
const NAMED: &str = "SELECT r.name FROM schedule s JOIN schedule_revision r ON r.schedule_id = s.id AND r.revision = s.revision
    WHERE s.id = $1";
const REMOVE: &str =
    "UPDATE schedule SET next_slot = NULL, paused_until = NULL, deleted_at = $2, updated_at = $2
    WHERE id = $1 AND deleted_at IS NULL";
const SET_NEXT: &str = "UPDATE schedule SET next_slot = $3, updated_at = $4
    WHERE id = $1 AND cursor_at = $2 AND deleted_at IS NULL AND enabled";
const FIND: &str = "SELECT s.id, s.origin, s.revision, s.enabled, s.cursor_at, s.next_slot, s.launches, s.last_catchup_at, s.last_catchup_fire_time, s.skips,
        s.paused_at, s.paused_by, s.pause_note, s.paused_until, s.resumed_at, s.created_at, s.updated_at, s.deleted_at,
        r.schedule_id, r.name, r.package, r.task, r.kind, r.expression, r.anchor, r.timezone,
        r.day_match, r.dst_gap, r.dst_fold, r.exclude, r.policies, r.context, r.since
    FROM schedule s JOIN schedule_revision r ON r.schedule_id = s.id AND r.revision = s.revision
    WHERE s.deleted_at IS NULL AND (s.name = $1 OR $1 IS NULL) AND (s.package = $2 OR $2 IS NULL)
    ORDER BY s.name";
const LOCK: &str = "SELECT id FROM schedule
    WHERE deleted_at IS NULL AND (name = $1 OR $1 IS NULL) AND (package = $2 OR $2 IS NULL) ORDER BY id";
const LOCK_LOCKED: &str = "SELECT id FROM schedule
    WHERE deleted_at IS NULL AND (name = $1 OR $1 IS NULL) AND (package = $2 OR $2 IS NULL) ORDER BY id FOR UPDATE";
const STATE: &str =
    "SELECT id, origin, revision, enabled, cursor_at, next_slot, launches, last_catchup_at, last_catchup_fire_time, skips,
        paused_at, paused_by, pause_note, paused_until, resumed_at, created_at, updated_at, deleted_at
    FROM schedule WHERE id = $1";
const COUNTING_FROM_ENDS: &str = "SELECT s.id
    FROM schedule s JOIN schedule_revision r ON r.schedule_id = s.id AND r.revision = s.revision
    WHERE s.deleted_at IS NULL AND r.kind = 'after_completion'";
const REVISION: &str =
    "SELECT schedule_id, revision, name, package, task, kind, expression, anchor, timezone,
        day_match, dst_gap, dst_fold, exclude, policies, context, since
    FROM schedule_revision WHERE schedule_id = $1 AND revision = $2";
const WAITING: &str = "SELECT count(*) FROM schedule
    WHERE next_slot >= $1 AND next_slot < $2 AND id <> $3";
const NEXT_DUE: &str = "SELECT min(next_slot) FROM schedule WHERE next_slot IS NOT NULL";
const NEXT_PAUSE_OVER: &str =
    "SELECT min(paused_until) FROM schedule WHERE paused_until IS NOT NULL";

const DUE: &str =
    "SELECT s.id, s.revision, s.cursor_at, s.next_slot, s.launches, s.last_catchup_at, s.last_catchup_fire_time, s.skips, s.package, p.digest, p.missing_since
    FROM schedule s LEFT JOIN package p ON p.name = s.package
    WHERE s.next_slot <= $1 ORDER BY s.next_slot LIMIT $2";
const DUE_LOCKED: &str =
    "SELECT s.id, s.revision, s.cursor_at, s.next_slot, s.launches, s.last_catchup_at, s.last_catchup_fire_time, s.skips, s.package, p.digest, p.missing_since
    FROM schedule s LEFT JOIN package p ON p.name = s.package
    WHERE s.next_slot <= $1 ORDER BY s.next_slot LIMIT $2 FOR UPDATE OF s SKIP LOCKED";

const ADVANCE: Batch = Batch {
    head: "UPDATE schedule SET cursor_at = v.column4, next_slot = v.column5, launches = schedule.launches + v.column6,
        last_catchup_at = coalesce(v.column7, schedule.last_catchup_at), last_catchup_fire_time = coalesce(v.column8, schedule.last_catchup_fire_time)
        FROM (VALUES ",
    columns: 8,
    tail: ") AS v WHERE schedule.id = v.column1 AND (schedule.revision = v.column2
        AND schedule.cursor_at = v.column3 AND schedule.enabled AND schedule.deleted_at IS NULL) = TRUE
        RETURNING schedule.id",
};

/// Every statement of these tables that both databases share, for the test that prepares them on both.
pub const STATEMENTS: &[&str] = &[
    INSERT,
    INSERT_REVISION,
    REVISE,
    PAUSE,
    RESUME,
    REMOVE,
    SET_NEXT,
    SET_SKIPS,
    UNCOUNT,
    PAUSES_OVER,
    NAMED,
    FIND,
    LOCK,
    STATE,
    COUNTING_FROM_ENDS,
    REVISION,
    WAITING,
    NEXT_DUE,
    NEXT_PAUSE_OVER,
    DUE,
];
/// Those that lock the rows they read, on Postgres.
pub const LOCKING_STATEMENTS: &[&str] = &[DUE_LOCKED, LOCK_LOCKED, PAUSES_OVER_LOCKED];

/// Add a schedule with its first revision.
///
/// # Errors
///
/// `Conflict` when a schedule of that name exists.
pub async fn insert(
    tx: &mut Tx,
    definition: &Revision,
    origin: Origin,
    next_slot: Option<Timestamp>,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(INSERT)
        .bind(definition.schedule_id)
        .bind(&definition.name)
        .bind(&definition.package)
        .bind(origin)
        .bind(definition.revision)
        .bind(definition.since)
        .bind(next_slot)
        .bind(definition.since)
        .execute(conn)
        .await
        .map(|_| ()))?;
    insert_revision(tx, definition).await
}

async fn insert_revision(tx: &mut Tx, definition: &Revision) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(INSERT_REVISION)
        .bind(definition.schedule_id)
        .bind(definition.revision)
        .bind(&definition.name)
        .bind(&definition.package)
        .bind(&definition.task)
        .bind(definition.rule.kind)
        .bind(&definition.rule.expression)
        .bind(definition.rule.anchor)
        .bind(&definition.rule.timezone)
        .bind(definition.rule.day_match)
        .bind(definition.rule.dst_gap)
        .bind(definition.rule.dst_fold)
        .bind(json!(definition.rule.exclude).to_string())
        .bind(&definition.policies)
        .bind(&definition.context)
        .bind(definition.since)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Change what a schedule says, from `says.revision - 1` to `says.revision`, if it is still `enabled` or not as given.
/// False when somebody else changed it first.
pub async fn revise(
    tx: &mut Tx,
    definition: &Revision,
    enabled: bool,
    origin: Origin,
    cursor_at: Timestamp,
    next_slot: Option<Timestamp>,
) -> Result<bool, DbError> {
    let rows = on!(tx, |conn| sqlx::query(REVISE)
        .bind(definition.schedule_id)
        .bind(definition.revision - 1)
        .bind(definition.revision)
        .bind(&definition.name)
        .bind(&definition.package)
        .bind(cursor_at)
        .bind(next_slot)
        .bind(definition.since)
        .bind(origin)
        .bind(enabled)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    if rows == 1 {
        insert_revision(tx, definition).await?;
    }
    Ok(rows == 1)
}

/// Decide no more slots. False when it was paused already.
pub async fn pause(
    tx: &mut Tx,
    id: ScheduleId,
    pause: Pause<'_>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = on!(tx, |conn| sqlx::query(PAUSE)
        .bind(id)
        .bind(now)
        .bind(storable(pause.by))
        .bind(pause.note.map(storable))
        .bind(pause.until)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(rows == 1)
}

/// Decide slots again, those after `cursor_at`. False when it was not paused.
pub async fn resume(
    tx: &mut Tx,
    id: ScheduleId,
    now: Timestamp,
    cursor_at: Timestamp,
    next_slot: Option<Timestamp>,
) -> Result<bool, DbError> {
    let rows = on!(tx, |conn| sqlx::query(RESUME)
        .bind(id)
        .bind(now)
        .bind(cursor_at)
        .bind(next_slot)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(rows == 1)
}

/// Decide no more slots, for ever. The schedule and its launches stay on the record.
pub async fn remove(tx: &mut Tx, id: ScheduleId, now: Timestamp) -> Result<bool, DbError> {
    let rows = on!(tx, |conn| sqlx::query(REMOVE)
        .bind(id)
        .bind(now)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(rows == 1)
}

/// Replace the slots that are taken out, a JSON list.
pub async fn set_skips(
    tx: &mut Tx,
    id: ScheduleId,
    skips: Option<&str>,
    now: Timestamp,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(SET_SKIPS)
        .bind(id)
        .bind(skips)
        .bind(now)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Count so many launches less: they were skipped after all.
pub async fn decrement_launches(tx: &mut Tx, id: ScheduleId, launches: i64) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(UNCOUNT)
        .bind(id)
        .bind(launches)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// A schedule whose pause is over, for this transaction to resume; one at a time, since there may be many slots to
/// settle.
pub async fn expired_pause(tx: &mut Tx, now: Timestamp) -> Result<Vec<ScheduleId>, DbError> {
    let sql = tx.lock_rows(PAUSES_OVER, PAUSES_OVER_LOCKED);
    Ok(on!(tx, |conn| sqlx::query_scalar(sql)
        .bind(now)
        .fetch_all(conn)
        .await)?)
}

/// Those of `ids` that nobody else is changing, which nobody else changes until this transaction ends.
pub async fn lock_available(tx: &mut Tx, ids: &[ScheduleId]) -> Result<Vec<ScheduleId>, DbError> {
    let mut held = Vec::with_capacity(ids.len());
    for piece in pieces(ids) {
        let sql = tx.lock_rows(&HOLD, &HOLD_LOCKED).sql(tx, piece.len());
        let ids: Vec<ScheduleId> = on!(tx, |conn| {
            let mut query = sqlx::query_scalar(sql);
            for id in piece {
                query = query.bind(*id);
            }
            query.fetch_all(conn).await
        })?;
        held.extend(ids);
    }
    Ok(held)
}

/// What a schedule is called, also when it is deleted.
pub async fn name(tx: &mut Tx, id: ScheduleId) -> Result<Option<String>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(NAMED)
        .bind(id)
        .fetch_optional(conn)
        .await)?)
}

/// Set the next slot of a schedule whose cursor is still `cursor_at`. False when it is not, or when it is paused.
pub async fn set_next(
    tx: &mut Tx,
    id: ScheduleId,
    cursor_at: Timestamp,
    next_slot: Option<Timestamp>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = on!(tx, |conn| sqlx::query(SET_NEXT)
        .bind(id)
        .bind(cursor_at)
        .bind(next_slot)
        .bind(now)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(rows == 1)
}

/// The schedules that exist, by name; only that of `name`, only those of `package`, when given.
pub async fn list(
    tx: &mut Tx,
    name: Option<&str>,
    package: Option<&str>,
) -> Result<Vec<Schedule>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(FIND)
        .bind(name)
        .bind(package)
        .fetch_all(conn)
        .await)?)
}

/// Keep everybody else from changing the schedules that [`list`] gives for the same arguments, until this transaction
/// ends. In a statement of its own and before they are read: what is read afterwards is then how they stand.
pub async fn lock(tx: &mut Tx, name: Option<&str>, package: Option<&str>) -> Result<(), DbError> {
    let sql = tx.lock_rows(LOCK, LOCK_LOCKED);
    Ok(on!(tx, |conn| sqlx::query(sql)
        .bind(name)
        .bind(package)
        .execute(conn)
        .await
        .map(|_| ()))?)
}

/// The schedule of that name.
pub async fn find(tx: &mut Tx, name: &str) -> Result<Option<Schedule>, DbError> {
    Ok(list(tx, Some(name), None).await?.pop())
}

/// Where a schedule stands, also when it is deleted.
pub async fn state(tx: &mut Tx, id: ScheduleId) -> Result<Option<ScheduleState>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(STATE)
        .bind(id)
        .fetch_optional(conn)
        .await)?)
}

/// The schedules whose next slot is made when a launch ends.
pub async fn after_completion(tx: &mut Tx) -> Result<Vec<ScheduleId>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(COUNTING_FROM_ENDS)
        .fetch_all(conn)
        .await)?)
}

/// What a schedule said at a revision, also when it is deleted.
pub async fn revision(
    tx: &mut Tx,
    id: ScheduleId,
    revision: i64,
) -> Result<Option<Revision>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(REVISION)
        .bind(id)
        .bind(revision)
        .fetch_optional(conn)
        .await)?)
}

/// How many schedules besides `id` wait for a slot from `from` on and before `until`.
pub async fn waiting(
    tx: &mut Tx,
    from: Timestamp,
    until: Timestamp,
    id: ScheduleId,
) -> Result<i64, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(WAITING)
        .bind(from)
        .bind(until)
        .bind(id)
        .fetch_one(conn)
        .await)?)
}

/// When there is next something to decide: the earliest slot that any schedule waits for, or end of a pause.
pub async fn next_due(tx: &mut Tx) -> Result<Option<Timestamp>, DbError> {
    let (slot, pause_over): (Option<Timestamp>, Option<Timestamp>) = on!(tx, |conn| {
        let slot = sqlx::query_scalar(NEXT_DUE).fetch_one(&mut *conn).await?;
        let over = sqlx::query_scalar(NEXT_PAUSE_OVER)
            .fetch_one(&mut *conn)
            .await?;
        (slot, over)
    });
    Ok(slot.into_iter().chain(pause_over).min())
}

/// Up to `limit` schedules whose next slot has come, the earliest first, for this transaction to decide.
pub async fn due(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<DueSchedule>, DbError> {
    let sql = tx.lock_rows(DUE, DUE_LOCKED);
    Ok(on!(tx, |conn| sqlx::query_as(sql)
        .bind(now)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// Move cursors; gives the schedules whose cursor and revision were still as read.
pub async fn advance(tx: &mut Tx, moves: &[CursorMove]) -> Result<Vec<ScheduleId>, DbError> {
    let mut won = Vec::with_capacity(moves.len());
    for piece in pieces(moves) {
        let advance_sql = ADVANCE.sql(tx, piece.len());
        let ids: Vec<ScheduleId> = on!(tx, |conn| {
            let mut query = sqlx::query_scalar(advance_sql);
            for step in piece {
                query = query
                    .bind(step.id)
                    .bind(step.revision)
                    .bind(step.from)
                    .bind(step.to)
                    .bind(step.next_slot)
                    .bind(step.launches)
                    .bind(step.caught_up.map(|(decided_at, _)| decided_at))
                    .bind(step.caught_up.map(|(_, fire_time)| fire_time));
            }
            query.fetch_all(conn).await
        })?;
        won.extend(ids);
    }
    Ok(won)
}
