//! Launches of one schedule that overlap: queued launches, and launches that another one displaces.
//!
//! A transaction that decides about a launch, or releases one from the queue, has locked its schedule's row. So two
//! transactions never decide at the same time.

use sqlx::FromRow;

use super::sql::{Batch, execute_batch, one_value, rows, rows_batch, statements};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId, LaunchKind, ScheduleId};
use campanile_model::status::{Displaced, LaunchStatus, Overlap};

/// The reason of launches that are skipped or cancelled for another launch of their schedule.
pub const REASON: &str = "overlap";

/// A launch that has not finished.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct UnfinishedLaunch {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub kind: LaunchKind,
    pub status: LaunchStatus,
    pub scheduled_time: Timestamp,
    pub fire_time: Timestamp,
    pub decided_at: Timestamp,
    pub recoveries: i64,
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

/// The columns of an [`UnfinishedLaunch`] besides its cancel deadline.
macro_rules! unfinished_columns {
    () => {
        "SELECT l.id, l.schedule_id, l.kind, l.status, l.scheduled_time, l.fire_time, l.decided_at, l.recoveries, l.overlap, "
    };
}
/// The end of the launches that displaced launches can have.
macro_rules! end_displaced {
    ($from:literal) => {
        // A launch without a run is skipped; only a launch that has started can be cancelled.
        Batch::new(concat!(
            "UPDATE launch SET reason = 'overlap', overlaps_id = v.column2, finished_at = v.column3,
            status = CASE WHEN launch.attempts = 0 THEN 'skipped' ELSE 'cancelled' END,
            decision = CASE WHEN launch.attempts = 0 THEN 'skipped' ELSE launch.decision END,
            failure = CASE WHEN launch.attempts = 0 THEN NULL ELSE 'cancelled' END
            FROM (VALUES ($1, $2, $3)) AS v WHERE launch.id = v.column1 AND (launch.status IN (",
            $from,
            ")) = TRUE RETURNING launch.schedule_id, launch.kind, launch.status"
        ))
    };
}
/// The cancellation of the active runs of displaced launches.
///
/// The link from the launch finds the run by its id: SQLite would walk all runs for a condition on `launch_id`.
macro_rules! end_runs {
    ($from:literal) => {
        Batch::new(concat!(
            "UPDATE run SET status = 'cancelled', finished_at = v.column2, lease_until = NULL, retry_at = NULL,
            failure = 'cancelled' FROM (VALUES ($1, $2)) AS v JOIN launch l ON l.id = v.column1
            WHERE run.id = l.run_id AND (run.status IN (",
            $from,
            ")) = TRUE"
        ))
    };
}

statements! {
    // A partial index on the schedule answers each part, however many launches there are.
    const UNFINISHED: Batch = Batch::new(
        concat!("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed) ", unfinished_columns!(), "r.cancel_deadline
                FROM v JOIN run r ON r.schedule_id = v.column1 JOIN launch l ON l.id = r.launch_id
                WHERE r.status IN ('running', 'waiting')
            UNION ALL ", unfinished_columns!(), "NULL
                FROM v JOIN launch l ON l.schedule_id = v.column1
                WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open'
            UNION ALL ", unfinished_columns!(), "NULL
                FROM v JOIN launch l ON l.schedule_id = v.column1 WHERE l.decision = 'queued'"),
    );
    // The index leads from one schedule to the next, however many queued launches each has.
    const QUEUED_SCHEDULES: &str = "WITH RECURSIVE queue (id) AS (
            SELECT (SELECT schedule_id FROM launch WHERE decision = 'queued' ORDER BY schedule_id LIMIT 1)
            UNION ALL SELECT (SELECT schedule_id FROM launch WHERE decision = 'queued' AND schedule_id > queue.id
                ORDER BY schedule_id LIMIT 1) FROM queue WHERE queue.id IS NOT NULL)
        SELECT s.id, s.revision, (SELECT count(*) FROM launch l WHERE l.schedule_id = s.id AND l.decision = 'queued'
                AND l.kind = 'schedule' AND l.fire_time <= $1 AND l.fire_time > l.decided_at) AS arriving
            FROM queue JOIN schedule s ON s.id = queue.id
        WHERE EXISTS (SELECT 1 FROM launch l WHERE l.schedule_id = s.id AND l.decision = 'queued' AND l.fire_time <= $1
            AND (s.enabled OR l.kind IN ('manual', 'backfill')))";
    const ANY_QUEUED: &str = "SELECT count(*) FROM (SELECT 1 FROM launch WHERE decision = 'queued' AND fire_time <= $1 LIMIT 1) AS first";
    const SKIP_QUEUED: Batch = Batch::new(
        "UPDATE launch SET decision = 'skipped', status = 'skipped', reason = 'overlap', overlaps_id = v.column2,
            finished_at = v.column3
        FROM (VALUES ($1, $2, $3)) AS v WHERE launch.id = v.column1 AND (launch.decision = 'queued') = TRUE
        RETURNING launch.schedule_id, launch.kind, launch.status",
    );
    const ASK_RUN: Batch = Batch::new(
        "UPDATE run SET cancel_deadline = v.column2 FROM (VALUES ($1, $2)) AS v JOIN launch l ON l.id = v.column1
        WHERE run.id = l.run_id AND (run.status = 'running' AND run.cancel_deadline IS NULL) = TRUE",
    );
    const RECORD_OVERLAP: Batch = Batch::new(
        "UPDATE launch SET overlaps_id = v.column2 FROM (VALUES ($1, $2)) AS v
        WHERE launch.id = v.column1 AND (launch.status = 'running'
            AND EXISTS (SELECT 1 FROM run WHERE run.id = launch.run_id AND run.cancel_deadline IS NOT NULL)) = TRUE",
    );
    const END_ACTIVE_RUN: Batch = end_runs!("'running', 'waiting'");
    const END_WAITING_RUN: Batch = end_runs!("'waiting'");
    const END_UNFINISHED: Batch = end_displaced!("'open', 'running', 'waiting'");
    const END_IDLE: Batch = end_displaced!("'open', 'waiting'");

    /// Skip every launch of a schedule that is queued or has not been claimed, for `reason`.
    pub async fn skip_unstarted(schedule: ScheduleId, reason: &'static str, now: Timestamp) -> () = run
        "UPDATE launch SET decision = 'skipped', status = 'skipped', reason = $2, finished_at = $3
        WHERE schedule_id = $1 AND (decision = 'queued'
            OR (run_id IS NULL AND decision = 'launched' AND status = 'open' AND attempts = 0))";

    /// Return the schedule of each launch of these schedules that is open, running or waiting.
    pub async fn active(schedules: &[ScheduleId]) -> Vec<ScheduleId> = values_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed)
            SELECT r.schedule_id FROM v JOIN run r ON r.schedule_id = v.column1 WHERE r.status IN ('running', 'waiting')
            UNION ALL SELECT l.schedule_id FROM v JOIN launch l ON l.schedule_id = v.column1
                WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open'"),
        schedules, |schedule| [*schedule];

    /// Open queued launches in the name of `host`.
    pub async fn open_queued(host: HostId, launches: &[LaunchId], now: Timestamp) -> () = execute_batch
        Batch::new("UPDATE launch SET decision = 'launched', status = 'open', opened_at = v.column2, decided_by = v.column3
        FROM (VALUES ($1, $2, $3)) AS v WHERE launch.id = v.column1 AND (launch.decision = 'queued') = TRUE"),
        launches, |launch| [*launch, now, host];
}

/// Return the unfinished launches of schedules, in the order in which they were decided.
pub async fn unfinished(tx: &mut Tx, schedules: &[ScheduleId]) -> Result<Vec<UnfinishedLaunch>> {
    let mut all: Vec<UnfinishedLaunch> =
        rows_batch!(tx, UNFINISHED, schedules, |schedule| [*schedule])?;
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

/// Return the schedules with a queued launch whose fire time has come. Slots of a paused schedule stay queued.
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
    end(tx, &SKIP_QUEUED, displaced.iter(), now).await
}

/// Ask running launches to end, each by its deadline. Open and waiting launches end at once.
pub async fn cancel(
    tx: &mut Tx,
    displaced: &[(Displaced, Timestamp)],
    now: Timestamp,
) -> Result<Vec<ScheduleId>> {
    let ask = |(displaced, deadline): &(Displaced, Timestamp)| (displaced.launch, *deadline);
    let asked: Vec<(LaunchId, Timestamp)> = displaced.iter().map(ask).collect();
    let launches = displaced.iter().map(|(displaced, _)| displaced);
    let at_once: Vec<(LaunchId, Timestamp)> =
        launches.clone().map(|other| (other.launch, now)).collect();
    set_instants(tx, &ASK_RUN, &asked).await?;
    set_instants(tx, &END_WAITING_RUN, &at_once).await?;
    let skipped = end(tx, &END_IDLE, launches, now).await?;
    // A launch that a host claimed meanwhile has a run only now.
    set_instants(tx, &ASK_RUN, &asked).await?;
    execute_batch!(tx, RECORD_OVERLAP, displaced, |(displaced, _)| [
        displaced.launch,
        displaced.by,
    ])?;
    Ok(skipped)
}

/// End launches at once. The host that runs one finds that it lost its claim.
pub async fn terminate(
    tx: &mut Tx,
    displaced: &[Displaced],
    now: Timestamp,
) -> Result<Vec<ScheduleId>> {
    let at_once: Vec<(LaunchId, Timestamp)> =
        displaced.iter().map(|other| (other.launch, now)).collect();
    set_instants(tx, &END_ACTIVE_RUN, &at_once).await?;
    let skipped = end(tx, &END_UNFINISHED, displaced.iter(), now).await?;
    // A launch that a host claimed meanwhile has a run only now.
    set_instants(tx, &END_ACTIVE_RUN, &at_once).await?;
    Ok(skipped)
}

/// Run a batch of `(launch, instant)`.
async fn set_instants(tx: &mut Tx, batch: &Batch, instants: &[(LaunchId, Timestamp)]) -> Result {
    execute_batch!(tx, batch, instants, |(launch, instant)| [*launch, *instant])
}

/// Run a batch of `(launch, displaced by, now)`; return the schedule of each slot's launch that it skipped.
async fn end(
    tx: &mut Tx,
    batch: &Batch,
    displaced: impl Iterator<Item = &Displaced>,
    now: Timestamp,
) -> Result<Vec<ScheduleId>> {
    let displaced: Vec<&Displaced> = displaced.collect();
    let ended: Vec<(ScheduleId, LaunchKind, LaunchStatus)> =
        rows_batch!(tx, batch, &displaced, |displaced| [
            displaced.launch,
            displaced.by,
            now,
        ])?;
    let skipped = ended
        .into_iter()
        .filter(|(_, kind, status)| kind.is_of_slot() && *status == LaunchStatus::Skipped);
    Ok(skipped.map(|(schedule, ..)| schedule).collect())
}
