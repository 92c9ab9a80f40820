//! Launches of one schedule that meet: those that wait for their turn, and those that make way.
//!
//! Whoever decides about a launch, or about whose turn it is, holds its schedule's row: two never decide at once.

use sqlx::FromRow;

use super::batch::{Batch, pieces};
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId, LaunchKind, ScheduleId};
use campanile_model::status::LaunchStatus;
use campanile_model::status::{Displaced, Overlap};

/// The reason of launches that are skipped or cancelled for another of their schedule.
pub const REASON: &str = "overlap";

/// A launch that is not over.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct UnfinishedLaunch {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub kind: LaunchKind,
    pub status: LaunchStatus,
    pub scheduled_time: Timestamp,
    pub fire_time: Timestamp,
    pub claimed_at: Timestamp,
    pub recoveries: i64,
    /// What a person said of other launches that go on.
    pub overlap: Option<Overlap>,
    /// Set when its run was asked to end.
    pub cancel_deadline: Option<Timestamp>,
}

/// A schedule of which launches wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct QueuedSchedule {
    pub id: ScheduleId,
    pub revision: i64,
    /// How many of them were decided before their fire time, which has come.
    pub arriving: i64,
}

// Each part is answered by a partial index on the schedule, however long the record is.
pub(super) const UNFINISHED: Batch = Batch {
    head: "WITH v AS (SELECT * FROM (VALUES ",
    columns: 1,
    tail: ") AS listed)
        SELECT l.id, l.schedule_id, l.kind, l.status, l.scheduled_time, l.fire_time, l.claimed_at, l.recoveries, l.overlap, r.cancel_deadline
            FROM v JOIN run r ON r.schedule_id = v.column1 JOIN launch l ON l.id = r.launch_id
            WHERE r.status IN ('running', 'waiting')
        UNION ALL SELECT l.id, l.schedule_id, l.kind, l.status, l.scheduled_time, l.fire_time, l.claimed_at, l.recoveries, l.overlap, NULL
            FROM v JOIN launch l ON l.schedule_id = v.column1
            WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open'
        UNION ALL SELECT l.id, l.schedule_id, l.kind, l.status, l.scheduled_time, l.fire_time, l.claimed_at, l.recoveries, l.overlap, NULL
            FROM v JOIN launch l ON l.schedule_id = v.column1 WHERE l.decision = 'queued'",
};
// From one schedule to the next through the index, however many launches each of them has waiting.
const QUEUES: &str = "WITH RECURSIVE queue (id) AS (
        SELECT (SELECT schedule_id FROM launch WHERE decision = 'queued' ORDER BY schedule_id LIMIT 1)
        UNION ALL SELECT (SELECT schedule_id FROM launch WHERE decision = 'queued' AND schedule_id > queue.id
            ORDER BY schedule_id LIMIT 1) FROM queue WHERE queue.id IS NOT NULL)
    SELECT s.id, s.revision, (SELECT count(*) FROM launch l WHERE l.schedule_id = s.id AND l.decision = 'queued'
            AND l.kind = 'schedule' AND l.fire_time <= $1 AND l.fire_time > l.claimed_at) AS arriving
        FROM queue JOIN schedule s ON s.id = queue.id
    WHERE EXISTS (SELECT 1 FROM launch l WHERE l.schedule_id = s.id AND l.decision = 'queued' AND l.fire_time <= $1
        AND (s.enabled OR l.kind IN ('manual', 'backfill')))";
const ANY_QUEUED: &str = "SELECT count(*) FROM (SELECT 1 FROM launch WHERE decision = 'queued' AND fire_time <= $1 LIMIT 1) AS first";
const GOING_ON: Batch = Batch {
    head: "WITH v AS (SELECT * FROM (VALUES ",
    columns: 1,
    tail: ") AS listed)
        SELECT r.schedule_id FROM v JOIN run r ON r.schedule_id = v.column1 WHERE r.status IN ('running', 'waiting')
        UNION ALL SELECT l.schedule_id FROM v JOIN launch l ON l.schedule_id = v.column1
            WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open'",
};
const OPEN: Batch = Batch {
    head: "UPDATE launch SET decision = 'launched', status = 'open', opened_at = v.column2, decided_by = v.column3
        FROM (VALUES ",
    columns: 3,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.decision = 'queued') = TRUE",
};
const SKIP: Batch = Batch {
    head: "UPDATE launch SET decision = 'skipped', status = 'skipped', reason = 'overlap', overlaps_id = v.column2,
        finished_at = v.column3 FROM (VALUES ",
    columns: 3,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.decision = 'queued') = TRUE
        RETURNING launch.kind, launch.status",
};
const SKIP_QUEUE: &str =
    "UPDATE launch SET decision = 'skipped', status = 'skipped', reason = $2, finished_at = $3
    WHERE schedule_id = $1 AND (decision = 'queued'
        OR (run_id IS NULL AND decision = 'launched' AND status = 'open' AND attempts = 0))";
const ASK: Batch = Batch {
    head: "UPDATE run SET cancel_deadline = v.column2 FROM (VALUES ",
    columns: 2,
    tail: ") AS v WHERE run.launch_id = v.column1 AND (run.status = 'running' AND run.cancel_deadline IS NULL) = TRUE",
};
const ASKED: Batch = Batch {
    head: "UPDATE launch SET overlaps_id = v.column2 FROM (VALUES ",
    columns: 2,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status = 'running'
        AND EXISTS (SELECT 1 FROM run WHERE run.id = launch.run_id AND run.cancel_deadline IS NOT NULL)) = TRUE",
};
const END_RUN: Batch = Batch {
    head: "UPDATE run SET status = 'cancelled', finished_at = v.column2, lease_until = NULL, retry_at = NULL, failure = 'cancelled'
        FROM (VALUES ",
    columns: 2,
    tail: ") AS v WHERE run.launch_id = v.column1 AND (run.status IN ('running', 'waiting')) = TRUE",
};
const END_WAITING_RUN: Batch = Batch {
    tail: ") AS v WHERE run.launch_id = v.column1 AND (run.status = 'waiting') = TRUE",
    ..END_RUN
};
// One that nobody had taken is skipped after all; only what was begun can be cancelled.
const END: Batch = Batch {
    head: "UPDATE launch SET reason = 'overlap', overlaps_id = v.column2, finished_at = v.column3,
        status = CASE WHEN launch.attempts = 0 THEN 'skipped' ELSE 'cancelled' END,
        decision = CASE WHEN launch.attempts = 0 THEN 'skipped' ELSE launch.decision END,
        failure = CASE WHEN launch.attempts = 0 THEN NULL ELSE 'cancelled' END FROM (VALUES ",
    columns: 3,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status IN ('open', 'running', 'waiting')) = TRUE
        RETURNING launch.kind, launch.status",
};
const END_IDLE: Batch = Batch {
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status IN ('open', 'waiting')) = TRUE
        RETURNING launch.kind, launch.status",
    ..END
};

/// Every statement, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[ANY_QUEUED, QUEUES, SKIP_QUEUE];

/// The launches of schedules that are not over, in the order in which they were decided.
pub async fn unfinished(
    tx: &mut Tx,
    schedules: &[ScheduleId],
) -> Result<Vec<UnfinishedLaunch>, DbError> {
    let mut all: Vec<UnfinishedLaunch> = Vec::new();
    for piece in pieces(schedules) {
        let sql = UNFINISHED.sql(tx, piece.len());
        let rows: Vec<UnfinishedLaunch> = on!(tx, |conn| {
            let mut query = sqlx::query_as(sql);
            for schedule in piece {
                query = query.bind(*schedule);
            }
            query.fetch_all(conn).await
        })?;
        all.extend(rows);
    }
    // Those of a backfill are decided many at once, all to fire at once: the oldest slot is first.
    all.sort_unstable_by_key(|launch| {
        (
            launch.claimed_at,
            launch.fire_time,
            launch.scheduled_time,
            launch.id,
        )
    });
    Ok(all)
}

/// The schedules of which a launch whose fire time has come waits for its turn. Slots of one that is paused go on
/// waiting.
pub async fn queued_schedules(tx: &mut Tx, now: Timestamp) -> Result<Vec<QueuedSchedule>, DbError> {
    let any: i64 = on!(tx, |conn| sqlx::query_scalar(ANY_QUEUED)
        .bind(now)
        .fetch_one(conn)
        .await)?;
    if any == 0 {
        return Ok(Vec::new());
    }
    Ok(on!(tx, |conn| sqlx::query_as(QUEUES)
        .bind(now)
        .fetch_all(conn)
        .await)?)
}

/// The schedule of each launch that goes on, of these schedules.
pub async fn going_on(tx: &mut Tx, schedules: &[ScheduleId]) -> Result<Vec<ScheduleId>, DbError> {
    let mut all = Vec::new();
    for piece in pieces(schedules) {
        let sql = GOING_ON.sql(tx, piece.len());
        let ids: Vec<ScheduleId> = on!(tx, |conn| {
            let mut query = sqlx::query_scalar(sql);
            for schedule in piece {
                query = query.bind(*schedule);
            }
            query.fetch_all(conn).await
        })?;
        all.extend(ids);
    }
    Ok(all)
}

/// Let launches go that waited for their turn, in the name of `host`.
pub async fn open_queued(
    tx: &mut Tx,
    host: HostId,
    launches: &[LaunchId],
    now: Timestamp,
) -> Result<(), DbError> {
    for piece in pieces(launches) {
        let sql = OPEN.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(sql);
            for launch in piece {
                query = query.bind(*launch).bind(now).bind(host);
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    Ok(())
}

/// Skip launches that waited for their turn: they overlap those that displace them. Gives how many slots they were of.
pub async fn skip(tx: &mut Tx, skipped: &[Displaced], now: Timestamp) -> Result<i64, DbError> {
    displace(tx, &SKIP, skipped, now).await
}

/// Skip every launch of a schedule that waits for its turn, or that nobody has taken yet, for `reason`.
pub async fn skip_unstarted(
    tx: &mut Tx,
    schedule: ScheduleId,
    reason: &'static str,
    now: Timestamp,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(SKIP_QUEUE)
        .bind(schedule)
        .bind(reason)
        .bind(now)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Ask runs to end by `until`; launches that nobody carries out at the moment end at once. Gives how many slots were
/// skipped so after all.
pub async fn cancel(
    tx: &mut Tx,
    cancelled: &[Displaced],
    until: Timestamp,
    now: Timestamp,
) -> Result<i64, DbError> {
    at(tx, &ASK, cancelled, until).await?;
    at(tx, &END_WAITING_RUN, cancelled, now).await?;
    let skipped = displace(tx, &END_IDLE, cancelled, now).await?;
    // One that was being taken at this moment has a run only now.
    at(tx, &ASK, cancelled, until).await?;
    for displaced in cancelled {
        let sql = ASKED.sql(tx, 1);
        on!(tx, |conn| sqlx::query(sql)
            .bind(displaced.launch)
            .bind(displaced.by)
            .execute(conn)
            .await
            .map(|_| ()))?;
    }
    Ok(skipped)
}

/// End launches at once. Whoever runs one finds that it is no longer his. Gives how many slots were skipped so after
/// all.
pub async fn terminate(
    tx: &mut Tx,
    terminated: &[Displaced],
    now: Timestamp,
) -> Result<i64, DbError> {
    at(tx, &END_RUN, terminated, now).await?;
    let skipped = displace(tx, &END, terminated, now).await?;
    // One that was being taken at this moment has a run only now.
    at(tx, &END_RUN, terminated, now).await?;
    Ok(skipped)
}

/// Run `(launch, instant)` for each. One by one: with a list of launches SQLite walks all runs there ever were.
async fn at(
    tx: &mut Tx,
    batch: &Batch,
    displaced: &[Displaced],
    instant: Timestamp,
) -> Result<(), DbError> {
    for displaced in displaced {
        let sql = batch.sql(tx, 1);
        on!(tx, |conn| sqlx::query(sql)
            .bind(displaced.launch)
            .bind(instant)
            .execute(conn)
            .await
            .map(|_| ()))?;
    }
    Ok(())
}

/// Run a batch of `(launch, by which, now)`; gives how many of those that are skipped now were launches of slots.
async fn displace(
    tx: &mut Tx,
    batch: &Batch,
    displaced: &[Displaced],
    now: Timestamp,
) -> Result<i64, DbError> {
    let mut slots = 0;
    for piece in pieces(displaced) {
        let sql = batch.sql(tx, piece.len());
        let ended: Vec<(LaunchKind, LaunchStatus)> = on!(tx, |conn| {
            let mut query = sqlx::query_as(sql);
            for displaced in piece {
                query = query.bind(displaced.launch).bind(displaced.by).bind(now);
            }
            query.fetch_all(conn).await
        })?;
        let of_slot = |(kind, status): &&(LaunchKind, LaunchStatus)| {
            kind.is_of_slot() && *status == LaunchStatus::Skipped
        };
        slots += ended.iter().filter(of_slot).count() as i64;
    }
    Ok(slots)
}
