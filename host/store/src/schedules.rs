//! Schedules: their state, which changes with time, and their revisions, which are only added.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::FromRow;

use super::sql::{Batch, changed, locking, statements};
use super::types::{json_text, optional_stored_json, storable, stored_json};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, ScheduleId};
use campanile_model::read_by_parts;
use campanile_model::rule_text::RuleText;
use campanile_model::status::{Origin, VersionDecision};

/// One revision of a schedule's definition.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Revision {
    #[serde(skip)]
    pub schedule_id: ScheduleId,
    #[serde(skip)]
    pub revision: i64,
    pub name: String,
    pub package: String,
    /// One task with the tasks that it depends on; none means the whole workflow.
    pub task: Option<String>,
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub rule: RuleText,
    /// The policies as JSON.
    #[serde(serialize_with = "json_text", deserialize_with = "stored_json")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub policies: String,
    /// The policies that the configuration of the hosts set, of those that the definition does not set, as JSON.
    #[serde(serialize_with = "json_text", deserialize_with = "stored_json")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub defaults: String,
    /// The arguments of a program, a JSON list of templates; none for those of the sidecar.
    #[serde(
        serialize_with = "json_text",
        deserialize_with = "optional_stored_json"
    )]
    #[schemars(with = "Option<Vec<String>>")]
    pub args: Option<String>,
    /// A JSON object.
    #[serde(serialize_with = "json_text", deserialize_with = "stored_json")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub context: String,
    #[serde(skip)]
    pub since: Timestamp,
}

/// The state of a schedule.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ScheduleState {
    pub id: ScheduleId,
    pub origin: Origin,
    pub revision: i64,
    pub enabled: bool,
    /// The last decided slot, or the instant before which no slot is decided.
    #[serde(rename = "cursor")]
    pub cursor_at: Timestamp,
    pub next_slot: Option<Timestamp>,
    #[sqlx(flatten)]
    #[serde(skip)]
    pub history: History,
    /// While it is paused: when and by whom, the note, and when the pause ends by itself.
    pub paused_at: Option<Timestamp>,
    pub paused_by: Option<String>,
    pub pause_note: Option<String>,
    pub paused_until: Option<Timestamp>,
    /// When the last pause ended.
    #[serde(skip)]
    pub resumed_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip)]
    pub deleted_at: Option<Timestamp>,
}

/// What the decision about the next slots depends on besides the cursor.
#[derive(Debug, Clone, Default, PartialEq, FromRow)]
pub struct History {
    /// The number of launches, without manual and backfill launches.
    pub launches: i64,
    /// When a slot was last caught up, and when that launch fires.
    pub last_catchup_at: Option<Timestamp>,
    pub last_catchup_fire_time: Option<Timestamp>,
    /// The slots that a person skipped, a JSON list.
    pub skips: Option<String>,
}

impl History {
    /// Returns how many launches count towards `max_launches`.
    pub fn launches_made(&self) -> u64 {
        u64::try_from(self.launches).unwrap_or_default()
    }

    /// Returns the slots that a person skipped and that may not be decided yet.
    pub fn skipped_slots(&self) -> BTreeSet<Timestamp> {
        // Only this program writes the list.
        let list = self.skips.as_deref();
        list.and_then(|list| serde_json::from_str(list).ok())
            .unwrap_or_default()
    }
}

/// What a search of schedules looks at.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ScheduleTexts {
    pub name: String,
    pub package: String,
    pub expression: String,
    pub pause_note: Option<String>,
    pub enabled: bool,
    pub next_slot: Option<Timestamp>,
}

/// Why a schedule is paused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pause<'a> {
    pub by: &'a str,
    pub note: Option<&'a str>,
    /// When the pause ends by itself.
    pub until: Option<Timestamp>,
}

/// A schedule: its state and its definition.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize, schemars::JsonSchema)]
pub struct Schedule {
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub state: ScheduleState,
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub definition: Revision,
}

read_by_parts!(Schedule { state, definition });

/// A schedule to insert, with its first revision.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    pub definition: Revision,
    pub origin: Origin,
    pub next_slot: Option<Timestamp>,
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
    pub origin: Origin,
    pub package: String,
    pub digest: Option<ArtifactDigest>,
    /// What a person has decided about this version.
    pub version_decision: Option<VersionDecision>,
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
    /// How many launches this move makes.
    pub launches: i64,
    /// When the last catch-up was decided, and when its launch fires.
    pub caught_up: Option<(Timestamp, Timestamp)>,
}

/// A next slot for a schedule whose cursor has not moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextSlot {
    pub id: ScheduleId,
    pub cursor_at: Timestamp,
    pub next_slot: Option<Timestamp>,
    pub now: Timestamp,
}

/// The columns of a [`ScheduleState`].
macro_rules! state_columns {
    () => {
        "s.id, s.origin, s.revision, s.enabled, s.cursor_at, s.next_slot, s.launches, s.last_catchup_at, s.last_catchup_fire_time, s.skips,
        s.paused_at, s.paused_by, s.pause_note, s.paused_until, s.resumed_at, s.created_at, s.updated_at, s.deleted_at"
    };
}
macro_rules! revision_columns {
    () => {
        "r.schedule_id, r.revision, r.name, r.package, r.task, r.kind, r.expression, r.anchor, r.timezone,
        r.day_match, r.dst_gap, r.dst_fold, r.exclude, r.policies, r.defaults, r.args, r.context, r.since"
    };
}
pub(super) use revision_columns;
/// A schedule with its current revision.
macro_rules! current_revision {
    () => {
        " FROM schedule s JOIN schedule_revision r ON r.schedule_id = s.id AND r.revision = s.revision "
    };
}
/// A query for [`Schedule`]s.
macro_rules! select_schedules {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            state_columns!(),
            ", ",
            revision_columns!(),
            current_revision!(),
            $rest
        )
    };
}

/// A query for [`DueSchedule`]s.
macro_rules! select_due {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.revision, s.cursor_at, s.next_slot, s.launches, s.last_catchup_at, s.last_catchup_fire_time, s.skips,
            s.origin, s.package, p.digest, p.missing_since,
            (SELECT v.decision FROM package_version v WHERE v.package = p.name AND v.digest = p.digest) AS version_decision
            FROM schedule s LEFT JOIN package p ON p.name = s.package ",
            $rest
        )
    };
}

statements! {
    const REVISE: &str = "UPDATE schedule SET revision = $3, name = $4, package = $5, cursor_at = $6, next_slot = $7, updated_at = $8, origin = $9
        WHERE id = $1 AND revision = $2 AND enabled = $10 AND deleted_at IS NULL";

    /// Insert the states of schedules. Their cursors are where their first revisions begin.
    pub(super) async fn insert_states(schedules: &[NewSchedule]) -> () = execute_batch
        Batch::new("INSERT INTO schedule (id, name, package, origin, revision, enabled, cursor_at, next_slot, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"),
        schedules, |new| [
            new.definition.schedule_id, &new.definition.name, &new.definition.package, new.origin, new.definition.revision, true,
            new.definition.since, new.next_slot, new.definition.since, new.definition.since,
        ];

    /// Let schedules be of these revisions.
    pub(super) async fn set_revisions(revisions: &[Revision]) -> () = execute_batch
        Batch::new("UPDATE schedule SET revision = v.column2, updated_at = v.column3 FROM (VALUES ($1, $2, $3)) AS v WHERE schedule.id = v.column1"),
        revisions, |row| [row.schedule_id, row.revision, row.since];

    /// Returns the earliest next slot or end of a pause over all schedules.
    pub async fn next_due() -> Option<Timestamp> = one_value
        "SELECT min(at) FROM (
            SELECT min(next_slot) AS at FROM schedule WHERE next_slot IS NOT NULL
            UNION ALL SELECT min(paused_until) FROM schedule WHERE paused_until IS NOT NULL) AS next";

    /// Pause a schedule: no more slots are decided. False when it was paused already.
    pub async fn pause(id: ScheduleId, pause: Pause<'_>, now: Timestamp) -> bool = changed
        "UPDATE schedule SET enabled = FALSE, next_slot = NULL, updated_at = $2,
            paused_at = $2, paused_by = $3, pause_note = $4, paused_until = $5
        WHERE id = $1 AND deleted_at IS NULL AND enabled"
        => [id, now, storable(pause.by), pause.note.map(storable), pause.until];

    /// Replace the pause of a schedule. No effect on a schedule that is not paused.
    pub async fn replace_pause(id: ScheduleId, pause: Pause<'_>, now: Timestamp) -> () = run
        "UPDATE schedule SET updated_at = $2, paused_by = $3, pause_note = $4, paused_until = $5
        WHERE id = $1 AND deleted_at IS NULL AND NOT enabled"
        => [id, now, storable(pause.by), pause.note.map(storable), pause.until];

    /// Resume a schedule: slots after `cursor_at` are decided again. False when it was not paused.
    pub async fn resume(
        id: ScheduleId, now: Timestamp, cursor_at: Timestamp, next_slot: Option<Timestamp>,
    ) -> bool = changed
        "UPDATE schedule SET enabled = TRUE, cursor_at = $3, next_slot = $4, updated_at = $2, resumed_at = $2,
            paused_at = NULL, paused_by = NULL, pause_note = NULL, paused_until = NULL
        WHERE id = $1 AND deleted_at IS NULL AND NOT enabled";

    /// Move the cursor of a locked schedule, also back. A catch-up that a wrong clock decided no longer spaces the next one.
    pub async fn reset_cursor(id: ScheduleId, cursor_at: Timestamp, next_slot: Option<Timestamp>, now: Timestamp) -> () = run
        "UPDATE schedule SET cursor_at = $2, next_slot = $3, updated_at = $4,
            last_catchup_at = CASE WHEN last_catchup_at <= $4 THEN last_catchup_at END,
            last_catchup_fire_time = CASE WHEN last_catchup_at <= $4 THEN last_catchup_fire_time END
        WHERE id = $1 AND deleted_at IS NULL";

    /// Returns up to `limit` names, after `after`, of schedules with a cursor ahead of `now`.
    pub async fn ahead_of(now: Timestamp, after: &str, limit: i64) -> Vec<String> = values
        "SELECT name FROM schedule WHERE next_slot IS NOT NULL AND cursor_at > $1 AND name > $2 ORDER BY name LIMIT $3";

    /// Remove a schedule. Its row and its launches stay. False when it was removed already.
    pub async fn remove(id: ScheduleId, now: Timestamp) -> bool = changed
        "UPDATE schedule SET next_slot = NULL, paused_until = NULL, deleted_at = $2, updated_at = $2
        WHERE id = $1 AND deleted_at IS NULL";

    /// Replace the slots that a person skipped, a JSON list.
    pub async fn set_skips(id: ScheduleId, skips: Option<&str>, now: Timestamp) -> () = run
        "UPDATE schedule SET skips = $2, updated_at = $3 WHERE id = $1 AND deleted_at IS NULL";

    /// Returns a schedule whose pause has ended, for this transaction to resume. One at a time: it may have many slots to
    /// decide.
    pub async fn expired_pause(now: Timestamp) -> Vec<ScheduleId> = values locking!(
        "SELECT id FROM schedule WHERE paused_until <= $1 ORDER BY paused_until LIMIT 1",
        "FOR UPDATE SKIP LOCKED"
    );

    /// Returns the name of a schedule, also of a removed one.
    pub async fn name(id: ScheduleId) -> Option<String> = value
        concat!("SELECT r.name", current_revision!(), "WHERE s.id = $1");

    /// Returns the schedule of that name.
    pub async fn find(name: &str) -> Option<Schedule> = row
        select_schedules!("WHERE s.name = $1 AND s.deleted_at IS NULL");

    /// Returns the removed schedules that had this name.
    pub(super) async fn removed(name: &str) -> Vec<ScheduleId> = values
        "SELECT id FROM schedule WHERE name = $1 AND deleted_at IS NOT NULL ORDER BY id";

    /// Returns all schedules by name, without removed ones.
    ///
    /// That may be a million: only the import of a crontab and a restore need all of them.
    pub async fn all() -> Vec<Schedule> = rows
        select_schedules!("WHERE s.deleted_at IS NULL ORDER BY s.name");

    /// Returns up to `limit` schedules by name, those after the name `after`, without removed ones.
    pub async fn list(after: Option<&str>, limit: i64) -> Vec<Schedule> = rows
        select_schedules!("WHERE s.deleted_at IS NULL AND s.name > $1 ORDER BY s.name LIMIT $2")
        => [after.unwrap_or_default(), limit];

    /// Returns up to `limit` schedules whose names match `pattern`, after the name `after`, by name.
    pub async fn list_like(pattern: &str, after: Option<&str>, limit: i64) -> Vec<Schedule> = rows
        select_schedules!("WHERE s.deleted_at IS NULL AND s.name LIKE $1 AND s.name > $2 ORDER BY s.name LIMIT $3")
        => [pattern, after.unwrap_or_default(), limit];

    /// Returns what a search looks at, of up to `limit` schedules after the name `after`, by name.
    pub async fn texts(after: &str, limit: i64) -> Vec<ScheduleTexts> = rows
        concat!("SELECT s.name, s.package, r.expression, s.pause_note, s.enabled, s.next_slot", current_revision!(),
        "WHERE s.deleted_at IS NULL AND s.name > $1 ORDER BY s.name LIMIT $2");

    /// Returns up to `limit` names of schedules, without removed ones.
    pub async fn names(limit: i64) -> Vec<String> = values
        "SELECT name FROM schedule WHERE deleted_at IS NULL ORDER BY name LIMIT $1";

    /// Returns the schedules with these names, in no order.
    pub async fn named(names: &[&str]) -> Vec<Schedule> = rows_batch
        Batch::new(select_schedules!("JOIN (VALUES ($1)) AS v ON s.name = v.column1 WHERE s.deleted_at IS NULL")),
        names, |name| [*name];

    /// Returns the names of schedules, also of removed ones.
    pub async fn names_of(ids: &[ScheduleId]) -> Vec<(ScheduleId, String)> = rows_batch
        Batch::new("SELECT s.id, s.name FROM schedule s JOIN (VALUES ($1)) AS v ON s.id = v.column1"),
        ids, |id| [*id];

    /// Returns those of the names held by a schedule, each with the schedule's origin and package.
    pub async fn holders(names: &[&str]) -> Vec<(String, Origin, String)> = rows_batch
        Batch::new("SELECT s.name, s.origin, s.package FROM schedule s JOIN (VALUES ($1)) AS v ON s.name = v.column1 WHERE s.deleted_at IS NULL"),
        names, |name| [*name];

    /// Returns the ids of the schedules with a slot before `until`, the earliest `limit` of them, with an unfinished launch,
    /// or among the first `listed` by name.
    // The condition on `schedule_id` is always true. Without it, SQLite reads all launches in place of an index.
    pub async fn with_slot_or_launch(until: Timestamp, limit: i64, listed: i64) -> Vec<ScheduleId> = values
        "SELECT id FROM (SELECT id FROM schedule WHERE next_slot < $1 ORDER BY next_slot LIMIT $2) AS with_slot
        UNION SELECT id FROM (SELECT id FROM schedule WHERE deleted_at IS NULL ORDER BY name LIMIT $3) AS listed
        UNION SELECT schedule_id FROM launch WHERE status IN ('running', 'waiting')
        UNION SELECT schedule_id FROM launch WHERE status = 'open' AND schedule_id > $4
        UNION SELECT schedule_id FROM launch WHERE status = 'queued'" => [until, limit, listed, ScheduleId::FIRST];

    /// Returns the ids of the schedules with a slot before `until`, the earliest `limit` of them, among the first `listed` by name,
    /// or with one of `limit` running or waiting launches, `limit` open launches and `limit` queued launches.
    // A backlog may have launches of every schedule.
    // The condition on `schedule_id` is always true. Without it, SQLite reads all launches in place of an index.
    pub async fn with_next_slot_or_launch(until: Timestamp, limit: i64, listed: i64) -> Vec<ScheduleId> = values
        "SELECT id FROM (SELECT id FROM schedule WHERE next_slot < $1 ORDER BY next_slot LIMIT $2) AS with_slot
        UNION SELECT id FROM (SELECT id FROM schedule WHERE deleted_at IS NULL ORDER BY name LIMIT $3) AS listed
        UNION SELECT schedule_id FROM (SELECT schedule_id FROM launch WHERE status IN ('running', 'waiting') LIMIT $2) AS active
        UNION SELECT schedule_id FROM (SELECT schedule_id FROM launch WHERE status = 'open' AND schedule_id > $4 LIMIT $2) AS open
        UNION SELECT schedule_id FROM (SELECT schedule_id FROM launch WHERE status = 'queued' LIMIT $2) AS queued"
        => [until, limit, listed, ScheduleId::FIRST];

    /// Returns the schedules with these ids, in no order, leaving out removed ones.
    pub async fn with_ids(ids: &[ScheduleId]) -> Vec<Schedule> = rows_batch
        Batch::new(select_schedules!("JOIN (VALUES ($1)) AS v ON s.id = v.column1 WHERE (s.deleted_at IS NULL) IS TRUE")),
        ids, |id| [*id];

    /// Returns the names of the schedules that launch a package, without removed ones: the first `limit` of them by name.
    pub async fn names_of_package(package: &str, limit: i64) -> Vec<String> = values
        "SELECT name FROM schedule WHERE deleted_at IS NULL AND package = $1 ORDER BY name LIMIT $2";

    /// Returns the names and origins of the first `limit` schedules by name that launch a package, without removed ones and
    /// those that the package or its sidecar defines.
    pub async fn others_of_package(package: &str, limit: i64) -> Vec<(String, Origin)> = rows
        "SELECT name, origin FROM schedule WHERE deleted_at IS NULL AND package = $1 AND origin IN ('operator', 'file')
        ORDER BY name LIMIT $2";

    /// Returns the names and tasks of the schedules that launch one task of a package, by name, without removed ones.
    pub async fn tasks_of_package(package: &str) -> Vec<(String, String)> = rows
        concat!("SELECT s.name, r.task", current_revision!(), "WHERE s.deleted_at IS NULL AND s.package = $1 AND r.task IS NOT NULL ORDER BY s.name");

    /// Returns the schedules that a package or its sidecar defines, by name, without removed ones.
    // For the order of `s.name`, SQLite would take `schedule_package`, and read all the operator's schedules of the package.
    pub async fn defined_by_package(package: &str) -> Vec<Schedule> = rows
        select_schedules!("WHERE s.deleted_at IS NULL AND s.origin <> 'operator' AND s.origin IN ('sidecar', 'package') AND s.package = $1 ORDER BY r.name");

    /// Returns the schedules of the schedules file, by name, without removed ones.
    pub async fn defined_by_file() -> Vec<Schedule> = rows
        select_schedules!("WHERE s.deleted_at IS NULL AND s.origin <> 'operator' AND s.origin = 'file' ORDER BY s.name");

    /// Whether the schedules file has any schedule.
    pub async fn is_any_of_file() -> bool = one_value
        "SELECT EXISTS (SELECT 1 FROM schedule WHERE deleted_at IS NULL AND origin <> 'operator' AND origin = 'file')";

    /// Returns up to `limit` enabled schedules in the order of ids, those after `after`.
    pub async fn page(after: Option<ScheduleId>, limit: i64) -> Vec<Schedule> = rows
        select_schedules!("WHERE s.id > $1 AND s.deleted_at IS NULL AND s.enabled ORDER BY s.id LIMIT $2")
        => [after.unwrap_or(ScheduleId::FIRST), limit];

    /// Lock the schedules that [`named`] returns, until this transaction ends.
    ///
    /// This and the next two are statements by themselves and run before the schedules are read, so that the read sees the
    /// locked rows.
    pub async fn lock_named(names: &[&str]) -> Vec<ScheduleId> = values_batch Batch::of(locking!(
        "SELECT schedule.id FROM schedule JOIN (VALUES ($1)) AS v ON schedule.name = v.column1
        WHERE schedule.deleted_at IS NULL ORDER BY schedule.id",
        "FOR UPDATE OF schedule"
    )), names, |name| [*name];

    /// Lock the schedules that [`defined_by_package`] returns.
    pub async fn lock_defined_by_package(package: &str) -> () = run locking!(
        "SELECT id FROM schedule WHERE deleted_at IS NULL AND origin <> 'operator' AND origin IN ('sidecar', 'package') AND package = $1
        ORDER BY id", "FOR UPDATE"
    );

    /// Lock the schedules that [`defined_by_file`] returns.
    pub async fn lock_defined_by_file() -> () = run locking!(
        "SELECT id FROM schedule WHERE deleted_at IS NULL AND origin <> 'operator' AND origin = 'file' ORDER BY id", "FOR UPDATE"
    );

    /// Returns the schedules whose rule counts from the end of the last launch.
    pub async fn after_completion() -> Vec<ScheduleId> = values
        concat!("SELECT s.id", current_revision!(), "WHERE s.deleted_at IS NULL AND r.kind = 'after_completion'");

    /// Returns the names of all schedules whose rule is `@reboot`, and perhaps of others, in the order of their ids, as every
    /// transaction locks them. It reads all schedules.
    pub async fn at_host_start() -> Vec<String> = values
        concat!("SELECT s.name", current_revision!(), "WHERE s.deleted_at IS NULL AND r.kind = 'cron' AND r.expression LIKE '%@reboot%' ORDER BY s.id");

    /// Count the schedules besides `id` whose next slot is from `from` until before `until`.
    pub async fn waiting(from: Timestamp, until: Timestamp, id: ScheduleId) -> i64 = one_value
        "SELECT count(*) FROM schedule WHERE next_slot >= $1 AND next_slot < $2 AND id <> $3";

    /// Subtract from the launch counts of schedules: these launches were skipped.
    pub async fn decrement_launches(counts: &[(ScheduleId, i64)]) -> () = execute_batch
        Batch::new("UPDATE schedule SET launches = launches - v.column2 FROM (VALUES ($1, $2)) AS v WHERE schedule.id = v.column1"),
        counts, |(id, launches)| [*id, *launches];

    /// Lock those of `ids` that no other transaction has locked, until this transaction ends; return them.
    pub async fn lock_available(ids: &[ScheduleId]) -> Vec<ScheduleId> = values_batch Batch::of(locking!(
        "SELECT schedule.id FROM schedule JOIN (VALUES ($1)) AS v ON schedule.id = v.column1 ORDER BY schedule.id",
        "FOR UPDATE OF schedule SKIP LOCKED"
    )), ids, |id| [*id];

    /// Set the next slots of enabled schedules whose cursors have not moved; return the schedules that were changed.
    pub async fn set_next(slots: &[NextSlot]) -> Vec<ScheduleId> = values_batch
        Batch::new("UPDATE schedule SET next_slot = v.column3, updated_at = v.column4 FROM (VALUES ($1, $2, $3, $4)) AS v
        WHERE schedule.id = v.column1 AND (schedule.cursor_at = v.column2
            AND schedule.deleted_at IS NULL AND schedule.enabled) IS TRUE RETURNING schedule.id"),
        slots, |slot| [slot.id, slot.cursor_at, slot.next_slot, slot.now];

    /// Move cursors; return the schedules whose cursor and revision were still as read.
    pub async fn advance(moves: &[CursorMove]) -> Vec<ScheduleId> = values_batch
        Batch::new("UPDATE schedule SET cursor_at = v.column4, next_slot = v.column5, launches = schedule.launches + v.column6,
            last_catchup_at = coalesce(v.column7, schedule.last_catchup_at),
            last_catchup_fire_time = coalesce(v.column8, schedule.last_catchup_fire_time)
        FROM (VALUES ($1, $2, $3, $4, $5, $6, $7, $8)) AS v
        WHERE schedule.id = v.column1 AND (schedule.revision = v.column2
            AND schedule.cursor_at = v.column3 AND schedule.enabled AND schedule.deleted_at IS NULL) IS TRUE
        RETURNING schedule.id"),
        moves, |step| [
            step.id, step.revision, step.from, step.to, step.next_slot, step.launches,
            step.caught_up.map(|(decided_at, _)| decided_at), step.caught_up.map(|(_, fire_time)| fire_time),
        ];

    /// Returns the states of schedules, also of removed ones, in the order of ids.
    pub async fn states(ids: &[ScheduleId]) -> Vec<ScheduleState> = rows_batch
        Batch::new(concat!("SELECT ", state_columns!(), " FROM schedule s JOIN (VALUES ($1)) AS v ON s.id = v.column1 ORDER BY s.id")),
        ids, |id| [*id];

    /// Lock and return up to `limit` schedules in the order of ids, those after the id `after`, without removed ones.
    pub async fn lock_after(after: ScheduleId, limit: i64) -> Vec<Schedule> = rows locking!(
        select_schedules!("WHERE s.deleted_at IS NULL AND s.id > $1 ORDER BY s.id LIMIT $2"),
        "FOR UPDATE OF s"
    );

    /// Insert revisions of schedules.
    pub(super) async fn insert_revisions(revisions: &[&Revision]) -> () = execute_batch
        Batch::new("INSERT INTO schedule_revision
            (schedule_id, revision, name, package, task, kind, expression, anchor, timezone, day_match, dst_gap, dst_fold, exclude, policies, defaults, args, context, since)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"),
        revisions, |row| [
            row.schedule_id, row.revision, &row.name, &row.package, &row.task,
            row.rule.kind, &row.rule.expression, row.rule.anchor, &row.rule.timezone,
            row.rule.day_match, row.rule.dst_gap, row.rule.dst_fold, json!(row.rule.exclude).to_string(),
            &row.policies, &row.defaults, &row.args, &row.context, row.since,
        ];

    /// Returns revisions of schedules, also of removed ones.
    pub async fn revisions(revisions: &[(ScheduleId, i64)]) -> Vec<Revision> = rows_batch
        Batch::new(concat!("SELECT ", revision_columns!(), " FROM schedule_revision r JOIN (VALUES ($1, $2)) AS v
        ON r.schedule_id = v.column1 AND r.revision = v.column2")),
        revisions, |(id, revision)| [*id, *revision];

    /// Returns up to `limit` due schedules for this transaction to decide, earliest first. Among equals, the shortest period comes
    /// first.
    pub async fn due(now: Timestamp, limit: i64) -> Vec<DueSchedule> = rows locking!(
        select_due!("WHERE s.next_slot <= $1 ORDER BY s.next_slot, s.cursor_at DESC LIMIT $2"),
        "FOR UPDATE OF s SKIP LOCKED"
    );

    /// As [`due`], leaving out proposed schedules.
    pub async fn due_of_operators(now: Timestamp, limit: i64) -> Vec<DueSchedule> = rows locking!(
        select_due!("WHERE s.next_slot <= $1 AND s.origin <> 'package' ORDER BY s.next_slot, s.cursor_at DESC LIMIT $2"),
        "FOR UPDATE OF s SKIP LOCKED"
    );

    /// Returns up to `limit` schedules due since `since` for this transaction to decide, latest first.
    pub async fn newest_due(since: Timestamp, now: Timestamp, limit: i64) -> Vec<DueSchedule> = rows locking!(
        select_due!("WHERE s.next_slot <= $1 AND s.next_slot > $2 ORDER BY s.next_slot DESC LIMIT $3"),
        "FOR UPDATE OF s SKIP LOCKED"
    ) => [now, since, limit];

    /// As [`newest_due`], leaving out proposed schedules.
    pub async fn newest_due_of_operators(since: Timestamp, now: Timestamp, limit: i64) -> Vec<DueSchedule> = rows locking!(
        select_due!("WHERE s.next_slot <= $1 AND s.next_slot > $2 AND s.origin <> 'package' ORDER BY s.next_slot DESC LIMIT $3"),
        "FOR UPDATE OF s SKIP LOCKED"
    ) => [now, since, limit];
}

/// Insert schedules with their first revisions.
///
/// # Errors
///
/// `Conflict` when a schedule of one of the names exists.
pub async fn insert_all(tx: &mut Tx, schedules: &[NewSchedule]) -> Result {
    insert_states(tx, schedules).await?;
    let revisions: Vec<&Revision> = schedules.iter().map(|new| &new.definition).collect();
    insert_revisions(tx, &revisions).await
}

/// Give locked schedules their next revisions. Their cursors stay.
pub async fn redefine(tx: &mut Tx, revisions: &[Revision]) -> Result {
    set_revisions(tx, revisions).await?;
    insert_revisions(tx, &revisions.iter().collect::<Vec<_>>()).await
}

/// Change a schedule from revision `definition.revision - 1` to `definition`.
///
/// False when another transaction changed it first, or when it is not `enabled` as given.
pub async fn revise(
    tx: &mut Tx,
    definition: &Revision,
    enabled: bool,
    origin: Origin,
    cursor_at: Timestamp,
    next_slot: Option<Timestamp>,
) -> Result<bool> {
    let revised = changed!(
        tx,
        REVISE,
        definition.schedule_id,
        definition.revision - 1,
        definition.revision,
        &definition.name,
        &definition.package,
        cursor_at,
        next_slot,
        definition.since,
        origin,
        enabled
    )?;
    if revised {
        insert_revisions(tx, &[definition]).await?;
    }
    Ok(revised)
}

/// Returns the schedule with this name, or else the removed ones that had it.
pub(super) async fn ids_named(tx: &mut Tx, name: &str) -> Result<Vec<ScheduleId>> {
    match find(tx, name).await? {
        Some(schedule) => Ok(vec![schedule.state.id]),
        None => removed(tx, name).await,
    }
}

/// Returns the state of a schedule, also of a removed one.
pub async fn state(tx: &mut Tx, id: ScheduleId) -> Result<Option<ScheduleState>> {
    Ok(states(tx, &[id]).await?.pop())
}

/// Returns one revision of a schedule, also of a removed one.
pub async fn revision(tx: &mut Tx, id: ScheduleId, revision: i64) -> Result<Option<Revision>> {
    Ok(revisions(tx, &[(id, revision)]).await?.pop())
}
