//! Launches of one schedule that overlap: queued launches, and launches that another one displaces.
//!
//! A transaction that decides about a launch, or releases one from the queue, has locked its schedule's row. So two
//! transactions never decide at the same time.

use sqlx::FromRow;

use super::arrows::{END_ACTIVE, END_IDLE, SKIP_QUEUED};
use super::change::OVERLAP;
use super::{Life, life_columns};
use crate::sql::{Batch, RowLocks, locking, one_value, rows, rows_batch, statements};
use crate::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};
use campanile_model::status::{Displaced, LaunchStatus, Overlap};

/// A launch that has not finished.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct UnfinishedLaunch {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub kind: LaunchKind,
    #[sqlx(flatten)]
    pub life: Life,
    pub scheduled_time: Timestamp,
    pub fire_time: Timestamp,
    pub decided_at: Timestamp,
    /// The overlap policy that a person gave for this launch.
    pub overlap: Option<Overlap>,
    /// Set when its run was asked to end: by when it must end.
    pub cancel_deadline: Option<Timestamp>,
}

/// A schedule that has queued launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct QueuedSchedule {
    pub id: ScheduleId,
    pub revision: i64,
    /// How many of its launches were decided before their fire time, which has come.
    pub arriving: i64,
}

/// The schedules of one statement for unfinished launches. For a longer list, SQLite reads all launches to make an index of
/// them.
const UNFINISHED_PIECE: usize = 64;

/// The unfinished launches of schedules in one status.
macro_rules! unfinished_launches {
    ($condition:literal) => {
        concat!(
            "SELECT l.id, l.schedule_id, l.kind, ",
            life_columns!(),
            ", l.scheduled_time, l.fire_time, l.decided_at, l.overlap, l.cancel_deadline
            FROM v JOIN launch l ON l.schedule_id = v.column1 WHERE l.status ",
            $condition
        )
    };
}
statements! {
    // A partial index on the schedule answers each part, however many launches there are.
    const UNFINISHED: Batch = Batch::new(concat!(
        "WITH v AS (SELECT * FROM (VALUES ($1)) AS listed) ", unfinished_launches!("IN ('running', 'waiting')"),
        " UNION ALL ", unfinished_launches!("= 'open'"), " UNION ALL ", unfinished_launches!("= 'queued'")
    ));
    // The index leads from one schedule to the next, however many queued launches each has.
    const QUEUED_SCHEDULES: &str = "WITH RECURSIVE queue (id) AS (
            SELECT (SELECT schedule_id FROM launch WHERE status = 'queued' ORDER BY schedule_id LIMIT 1)
            UNION ALL SELECT (SELECT schedule_id FROM launch WHERE status = 'queued' AND schedule_id > queue.id
                ORDER BY schedule_id LIMIT 1) FROM queue WHERE queue.id IS NOT NULL)
        SELECT s.id, s.revision, (SELECT count(*) FROM launch l WHERE l.schedule_id = s.id AND l.status = 'queued'
                AND l.kind = 'schedule' AND l.fire_time <= $1 AND l.fire_time > l.decided_at) AS arriving
            FROM queue JOIN schedule s ON s.id = queue.id
        WHERE EXISTS (SELECT 1 FROM launch l WHERE l.schedule_id = s.id AND l.status = 'queued' AND l.fire_time <= $1
            AND (s.enabled OR l.kind IN ('manual', 'backfill')))";
    const ANY_QUEUED: &str = "SELECT count(*) FROM (SELECT 1 FROM launch WHERE status = 'queued' AND fire_time <= $1 LIMIT 1) AS first";

    /// Returns the schedule of each open, running or waiting launch of these schedules.
    pub async fn active(schedules: &[ScheduleId]) -> Vec<ScheduleId> = values_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed)
            SELECT l.schedule_id FROM v JOIN launch l ON l.schedule_id = v.column1 WHERE l.status IN ('running', 'waiting')
            UNION ALL SELECT l.schedule_id FROM v JOIN launch l ON l.schedule_id = v.column1 WHERE l.status = 'open'"),
        schedules, |schedule| [*schedule];

    /// Locks unfinished launches in the order of their ids, before several statements displace them.
    pub async fn lock_unfinished(launches: &[LaunchId]) -> Vec<LaunchId> = values_batch
        Batch::of(locking!(
            "SELECT launch.id FROM launch JOIN (VALUES ($1)) AS v ON launch.id = v.column1
            WHERE (launch.finished_at IS NULL) IS TRUE ORDER BY launch.id",
            "FOR NO KEY UPDATE OF launch"
        )),
        launches, |launch| [*launch];

    /// Ask running launches to end, each by its deadline. A run that was asked to end before keeps its deadline.
    pub(super) async fn ask(displaced: &[(Displaced, Timestamp)]) -> () = execute_batch
        Batch::of_launches(RowLocks::Held, "UPDATE launch SET overlaps_id = v.column2, cancel_deadline = coalesce(launch.cancel_deadline, v.column3)
        FROM (VALUES ($1, $2, $3)) AS v WHERE launch.id = v.column1 AND (launch.status = 'running') IS TRUE"),
        displaced, |(displaced, deadline)| [displaced.launch, displaced.by, *deadline];
}

/// Returns the unfinished launches of schedules, in the order in which they were decided.
pub async fn unfinished(tx: &mut Tx, schedules: &[ScheduleId]) -> Result<Vec<UnfinishedLaunch>> {
    let mut all: Vec<UnfinishedLaunch> = Vec::new();
    for piece in schedules.chunks(UNFINISHED_PIECE) {
        let found: Vec<UnfinishedLaunch> =
            rows_batch!(tx, UNFINISHED, piece, |schedule| [*schedule])?;
        all.extend(found);
    }
    // A backfill decides many launches at once, all with one fire time: the oldest slot is first.
    all.sort_unstable_by_key(|launch| {
        (
            launch.decided_at,
            launch.fire_time,
            launch.scheduled_time,
            launch.id,
        )
    });
    Ok(all)
}

/// Returns the schedules with a queued launch whose fire time has come. Slots of a paused schedule stay queued.
pub async fn queued_schedules(tx: &mut Tx, now: Timestamp) -> Result<Vec<QueuedSchedule>> {
    let any: i64 = one_value!(tx, ANY_QUEUED, now)?;
    if any == 0 {
        return Ok(Vec::new());
    }
    rows!(tx, QUEUED_SCHEDULES, now)
}

/// Skip queued launches that others displace.
///
/// Like [`cancel`] and [`terminate`], it returns the schedule of each slot's launch that it skipped.
pub async fn skip(tx: &mut Tx, displaced: &[Displaced], now: Timestamp) -> Result<Vec<ScheduleId>> {
    end(tx, &SKIP_QUEUED, displaced, now).await
}

/// Ask running launches to end, each by its deadline. Open and waiting launches end at once.
pub async fn cancel(
    tx: &mut Tx,
    displaced: &[(Displaced, Timestamp)],
    now: Timestamp,
) -> Result<Vec<ScheduleId>> {
    ask(tx, displaced).await?;
    let launches: Vec<Displaced> = displaced.iter().map(|(displaced, _)| *displaced).collect();
    let skipped = end(tx, &END_IDLE, &launches, now).await?;
    // A launch that a host claimed meanwhile runs only now.
    ask(tx, displaced).await?;
    Ok(skipped)
}

/// End launches at once. The host that runs one finds that it lost its claim.
pub async fn terminate(
    tx: &mut Tx,
    displaced: &[Displaced],
    now: Timestamp,
) -> Result<Vec<ScheduleId>> {
    end(tx, &END_ACTIVE, displaced, now).await
}

/// Run a batch of `(launch, displaced by, now)`; return the schedule of each slot's launch that it skipped.
async fn end(
    tx: &mut Tx,
    batch: &Batch,
    displaced: &[Displaced],
    now: Timestamp,
) -> Result<Vec<ScheduleId>> {
    let ended: Vec<(ScheduleId, LaunchKind, LaunchStatus)> =
        rows_batch!(tx, batch, displaced, |displaced| [
            displaced.launch,
            displaced.by,
            now,
            OVERLAP,
        ])?;
    let skipped = ended
        .into_iter()
        .filter(|(_, kind, status)| kind.is_of_slot() && *status == LaunchStatus::Skipped);
    Ok(skipped.map(|(schedule, ..)| schedule).collect())
}
