//! Launches as commands show them.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};

use crate::sql::{Batch, statements};
use crate::{Result, Tx, schedules};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId, LaunchId, LaunchKind, RunId, ScheduleId};
use campanile_model::labels::Labels;
use campanile_model::namespace::Namespace;
use campanile_model::status::{Decision, FailureKind, LaunchStatus};
use campanile_model::trace_context::TraceContext;

/// Launches examined by a command for one page, at most.
pub const LOOKED_AT_MAX: i64 = 100_000;

/// A launch as commands show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct LaunchRow {
    #[sqlx(rename = "launch_id")]
    pub id: LaunchId,
    pub schedule: String,
    /// The slot's instant.
    pub scheduled_time: Timestamp,
    #[sqlx(flatten)]
    pub scheduled_local: LocalTime,
    pub last_scheduled_time: Timestamp,
    pub slot_count: i64,
    pub kind: LaunchKind,
    pub decision: Decision,
    pub reason: Option<String>,
    /// The launch that it overlapped, when it was skipped or cancelled for that.
    #[sqlx(rename = "overlaps_id")]
    pub overlaps: Option<LaunchId>,
    /// The launch that an operator asked to run again.
    pub retry_of: Option<LaunchId>,
    pub status: LaunchStatus,
    pub package: String,
    /// 0 to 9; the highest is claimed first.
    pub priority: i64,
    /// The concurrency group.
    #[sqlx(rename = "group_name")]
    pub group: Option<String>,
    /// The labels that a host must have to claim it; none for any host.
    #[schemars(with = "Option<Vec<String>>")]
    pub run_on: Option<Labels>,
    pub digest: Option<ArtifactDigest>,
    /// The newest run.
    #[sqlx(flatten)]
    pub run_id: NewestRun,
    pub attempts: i64,
    pub recoveries: i64,
    /// When the launch may be claimed: the slot, plus jitter or spread.
    pub fire_time: Timestamp,
    /// When the slot was decided.
    pub decided_at: Timestamp,
    /// When a host claimed the launch for its run.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
    /// The time zone database of the host that decided it; none when no host did.
    pub tzdata_version: Option<String>,
}

/// The newest run of a launch, if it has one.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct NewestRun(pub Option<RunId>);

impl<'r, R: Row> FromRow<'r, R> for NewestRun
where
    &'static str: ColumnIndex<R>,
    LaunchId: Decode<'r, R::Database> + Type<R::Database>,
    Option<HostId>: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<NewestRun, sqlx::Error> {
        let host: Option<HostId> = row.try_get("host_id")?;
        let (launch, recoveries): (LaunchId, i64) =
            (row.try_get("launch_id")?, row.try_get("recoveries")?);
        Ok(NewestRun(
            host.map(|_| RunId::of(launch, recoveries.saturating_add(1))),
        ))
    }
}

/// A slot in the time zone of its schedule: `2026-11-21T09:00:00+01:00[Europe/Paris]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct LocalTime(String);

impl LocalTime {
    /// Returns `slot` in `zone`, whose clock is `utc_offset` seconds ahead of UTC then.
    pub fn new(slot: Timestamp, utc_offset: i64, zone: &str) -> LocalTime {
        LocalTime(slot.local_text(utc_offset, zone))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for LocalTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl<'r, R: Row> FromRow<'r, R> for LocalTime
where
    &'static str: ColumnIndex<R>,
    Timestamp: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<LocalTime, sqlx::Error> {
        let (slot, zone): (_, String) = (row.try_get("scheduled_time")?, row.try_get("timezone")?);
        Ok(LocalTime::new(slot, row.try_get("utc_offset")?, &zone))
    }
}

impl LaunchRow {
    /// Returns `first`, and for a range of skipped slots also the last one and their number.
    pub fn slots_text(&self, first: &str) -> String {
        match self.slot_count {
            1 => first.to_owned(),
            n => format!("{first} … {} ({n} slots)", self.last_scheduled_time),
        }
    }
}

/// The columns of a [`LaunchRow`].
macro_rules! launch_columns {
    () => {
        "l.id AS launch_id, s.name AS schedule, l.scheduled_time, l.utc_offset, v.timezone, coalesce(l.last_scheduled_time, l.scheduled_time) AS last_scheduled_time,
        coalesce(l.slot_count, 1) AS slot_count, l.kind, CASE l.status WHEN 'skipped' THEN 'skipped' WHEN 'queued' THEN 'queued' ELSE 'launched' END AS decision,
        l.reason, l.overlaps_id, l.retry_of, l.status, l.package, l.priority, l.group_name, l.run_on, l.digest, l.host_id, l.attempts, l.recoveries, l.fire_time, l.decided_at,
        l.started_at, l.finished_at, l.failure, l.message, h.tzdata_version"
    };
}
/// The tables that the columns of a [`LaunchRow`] come from.
macro_rules! launch_tables {
    () => {
        " FROM launch l JOIN schedule s ON s.id = l.schedule_id JOIN schedule_revision v ON v.schedule_id = l.schedule_id AND v.revision = l.schedule_revision
        LEFT JOIN host h ON h.id = l.decided_by WHERE "
    };
}
pub(crate) use {launch_columns, launch_tables};

statements! {
    /// Store the trace context of the caller of a launch. Only launches with one are written for it.
    pub async fn set_caller_traceparent(launch: LaunchId, caller: TraceContext) -> () = run
        "UPDATE launch SET caller_traceparent = $2 WHERE id = $1";

    /// Returns the trace context that the caller of a launch gave.
    pub async fn caller_traceparent(launch: LaunchId) -> Option<Option<TraceContext>> = value
        "SELECT caller_traceparent FROM launch WHERE id = $1";

    /// Returns up to `limit` ids from `first` to `last`.
    pub(super) async fn any_between(first: LaunchId, last: LaunchId, limit: i64) -> Vec<LaunchId> = values
        "SELECT id FROM launch WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3";

    /// Returns up to `limit` ids from `first` to `last`, each with its launch's package.
    pub(super) async fn with_packages(first: LaunchId, last: LaunchId, limit: i64) -> Vec<(LaunchId, String)> = rows
        "SELECT id, package FROM launch WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT $3";

    /// Returns the launches with these ids, in no order.
    pub async fn with_ids(ids: &[LaunchId]) -> Vec<LaunchRow> = rows_batch
        Batch::new(concat!("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed) SELECT ", launch_columns!(), launch_tables!(),
        "l.id IN (SELECT column1 FROM v)")),
        ids, |id| [*id];

    /// Returns the newest `limit` launches before `before`, newest slot first.
    pub async fn list(before: Option<LaunchId>, limit: i64) -> Vec<LaunchRow> = rows
        concat!("SELECT ", launch_columns!(), launch_tables!(), "l.id < $1 ORDER BY l.id DESC LIMIT $2")
        => [before.unwrap_or(LaunchId::LAST), limit];

    /// Returns the status of a schedule's newest `limit` finished launches, newest slot first, and when each was decided.
    ///
    /// Skipped, cancelled, manual and backfill launches do not count.
    // Newest slot first, in whatever order the runs ended.
    pub async fn recent_outcomes(schedule: ScheduleId, limit: i64) -> Vec<(LaunchStatus, Timestamp)> = rows
        "SELECT status, decided_at FROM launch
        WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill'
          AND status IN ('succeeded', 'failed', 'unknown', 'abandoned') ORDER BY scheduled_time DESC LIMIT $2";

    /// Returns the slot of a launch belonging to this schedule.
    pub(super) async fn slot(id: LaunchId, schedule: ScheduleId) -> Option<Timestamp> = value
        "SELECT scheduled_time FROM launch WHERE id = $1 AND schedule_id = $2";

    /// Returns the newest `limit` launches of one schedule, newest slot first: those before the launch `before` with its
    /// slot.
    pub async fn of_schedule_before(
        schedule: ScheduleId, before: (Timestamp, LaunchId), limit: i64,
    ) -> Vec<LaunchRow> = rows
        concat!("SELECT ", launch_columns!(), launch_tables!(),
        "l.schedule_id = $1 AND (l.scheduled_time, l.id) < ($2, $3) ORDER BY l.scheduled_time DESC, l.id DESC LIMIT $4")
        => [schedule, before.0, before.1, limit];

    /// Returns when the launch of each schedule's newest slot finished, or none inside while it has not.
    ///
    /// A schedule without any slot is left out. Manual and backfill launches do not count.
    pub async fn newest_finished_at(schedules: &[ScheduleId]) -> Vec<(ScheduleId, Option<Timestamp>)> = rows_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed)
        SELECT l.schedule_id, l.finished_at FROM v JOIN launch l ON l.schedule_id = v.column1
        WHERE l.kind <> 'manual' AND l.kind <> 'backfill' AND l.scheduled_time = (SELECT max(n.scheduled_time) FROM launch n
            WHERE n.schedule_id = v.column1 AND n.kind <> 'manual' AND n.kind <> 'backfill')"),
        schedules, |schedule| [*schedule];
}

/// Launches searched by one statement for those of a namespace.
const WINDOW: i64 = 2_000;

/// Launch ids found in a range.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IdsBetween {
    pub ids: Vec<LaunchId>,
    /// Whether the search stopped after examining [`LOOKED_AT_MAX`] launches, so there may be more.
    pub is_cut: bool,
}

/// Returns up to `limit` ids from `first` to `last`, restricted to a namespace's packages if one is given.
pub async fn ids_between(
    tx: &mut Tx,
    (first, last): (LaunchId, LaunchId),
    namespace: Option<&Namespace>,
    limit: usize,
) -> Result<IdsBetween> {
    let Some(namespace) = namespace else {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let ids = any_between(tx, first, last, limit).await?;
        return Ok(IdsBetween { ids, is_cut: false });
    };
    let (mut found, mut from, mut looked_at) = (IdsBetween::default(), first, 0);
    loop {
        let window = with_packages(tx, from, last, WINDOW).await?;
        let is_last = (window.len() as i64) < WINDOW;
        let end = window.last().map(|(id, _)| *id);
        let own = window.into_iter();
        let own = own.filter(|(id, package)| {
            namespace.contains(package) && found.ids.last().is_none_or(|known| known < id)
        });
        let own = Vec::from_iter(own.map(|(id, _)| id));
        found.ids.extend(own);
        looked_at += WINDOW;
        if is_last || found.ids.len() >= limit {
            break;
        }
        if looked_at >= LOOKED_AT_MAX {
            found.is_cut = true;
            break;
        }
        // Each window begins with the last launch of the one before.
        from = end.unwrap_or(last);
    }
    found.ids.truncate(limit);
    Ok(found)
}

/// Returns the newest `limit` launches of a schedule, newest slot first.
pub async fn of_schedule(tx: &mut Tx, schedule: ScheduleId, limit: i64) -> Result<Vec<LaunchRow>> {
    of_schedule_before(tx, schedule, NEWEST, limit).await
}

/// Returns the newest `limit` launches before `before` of the schedule called `schedule`, newest slot first. If no schedule
/// has that name now, return those of the removed schedules that had it.
pub async fn list_of(
    tx: &mut Tx,
    schedule: &str,
    before: Option<LaunchId>,
    limit: i64,
) -> Result<Vec<LaunchRow>> {
    let ids = schedules::ids_named(tx, schedule).await?;
    let before = position(tx, before, &ids).await?;
    let mut rows = Vec::new();
    for id in ids {
        rows.extend(of_schedule_before(tx, id, before, limit).await?);
    }
    rows.sort_unstable_by_key(|row| Reverse((row.scheduled_time, row.id)));
    rows.truncate(usize::try_from(limit).unwrap_or_default());
    Ok(rows)
}

/// After every launch.
const NEWEST: (Timestamp, LaunchId) = (Timestamp::LAST, LaunchId::LAST);

/// Returns the slot and id of the launch before which a list of `schedules` begins. Without a launch, the list begins with the
/// newest. Another schedule's launch reveals nothing about its slot, as the reader may not be allowed to know it.
pub(crate) async fn position(
    tx: &mut Tx,
    launch: Option<LaunchId>,
    schedules: &[ScheduleId],
) -> Result<(Timestamp, LaunchId)> {
    let Some(id) = launch else {
        return Ok(NEWEST);
    };
    for schedule in schedules {
        if let Some(slot) = slot(tx, id, *schedule).await? {
            return Ok((slot, id));
        }
    }
    Ok((Timestamp::LAST, id))
}
