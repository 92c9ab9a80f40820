//! Launches of one schedule that meet: those that wait for their turn, and those that make way.
//!
//! Whoever decides about a launch, or about whose turn it is, holds its schedule's row: two never decide at once.

use sqlx::FromRow;

use super::batch::{Batch, pieces};
use super::types::LaunchStatus;
use super::{DbError, Tx, on};
use crate::clock::Timestamp;
use crate::ids::{HostId, LaunchId, LaunchKind, ScheduleId};
use crate::policy::Displaced;

/// The reason of launches that are skipped or cancelled for another of their schedule.
pub const REASON: &str = "overlap";

/// A launch that is not over.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct Unfinished {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub kind: LaunchKind,
    pub status: LaunchStatus,
    pub fire_time: Timestamp,
    pub claimed_at: Timestamp,
    pub recoveries: i64,
    /// Set when its run was asked to end.
    pub cancel_at: Option<Timestamp>,
}

// Each part is answered by a partial index on the schedule, however long the record is.
pub(super) const UNFINISHED: Batch = Batch {
    head: "WITH v AS (SELECT * FROM (VALUES ",
    columns: 1,
    tail: ") AS listed)
        SELECT l.id, l.schedule_id, l.kind, l.status, l.fire_time, l.claimed_at, l.recoveries, r.cancel_at
            FROM v JOIN run r ON r.schedule_id = v.column1 JOIN launch l ON l.id = r.launch_id
            WHERE r.state IN ('running', 'waiting')
        UNION ALL SELECT l.id, l.schedule_id, l.kind, l.status, l.fire_time, l.claimed_at, l.recoveries, NULL
            FROM v JOIN launch l ON l.schedule_id = v.column1
            WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open'
        UNION ALL SELECT l.id, l.schedule_id, l.kind, l.status, l.fire_time, l.claimed_at, l.recoveries, NULL
            FROM v JOIN launch l ON l.schedule_id = v.column1 WHERE l.decision = 'queued'",
};
const QUEUES: &str =
    "SELECT DISTINCT l.schedule_id FROM launch l JOIN schedule s ON s.id = l.schedule_id
    WHERE l.decision = 'queued' AND l.fire_time <= $1 AND (s.enabled OR l.kind IN ('manual', 'backfill'))";
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
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.decision = 'queued') = TRUE",
};
const SKIP_QUEUE: &str =
    "UPDATE launch SET decision = 'skipped', status = 'skipped', reason = $2, finished_at = $3
    WHERE schedule_id = $1 AND decision = 'queued'";
const ASK: Batch = Batch {
    head: "UPDATE run SET cancel_at = v.column2 FROM (VALUES ",
    columns: 2,
    tail: ") AS v WHERE run.launch_id = v.column1 AND (run.state = 'running' AND run.cancel_at IS NULL) = TRUE",
};
const ASKED: Batch = Batch {
    head: "UPDATE launch SET overlaps_id = v.column2 FROM (VALUES ",
    columns: 2,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status = 'running') = TRUE",
};
const END_RUN: Batch = Batch {
    head: "UPDATE run SET state = 'cancelled', finished_at = v.column2, lease_until = NULL, retry_at = NULL, failure = 'cancelled'
        FROM (VALUES ",
    columns: 2,
    tail: ") AS v WHERE run.launch_id = v.column1 AND (run.state IN ('running', 'waiting')) = TRUE",
};
const END_WAITING_RUN: Batch = Batch {
    tail: ") AS v WHERE run.launch_id = v.column1 AND (run.state = 'waiting') = TRUE",
    ..END_RUN
};
const END: Batch = Batch {
    head: "UPDATE launch SET status = 'cancelled', reason = 'overlap', overlaps_id = v.column2, finished_at = v.column3,
        failure = 'cancelled' FROM (VALUES ",
    columns: 3,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status IN ('open', 'running', 'waiting')) = TRUE",
};
const END_IDLE: Batch = Batch {
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status IN ('open', 'waiting')) = TRUE",
    ..END
};

/// Every statement, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[QUEUES, SKIP_QUEUE];

/// The launches of schedules that are not over, in the order in which they were decided.
pub async fn unfinished(tx: &mut Tx, schedules: &[ScheduleId]) -> Result<Vec<Unfinished>, DbError> {
    let mut all: Vec<Unfinished> = Vec::new();
    for piece in pieces(schedules) {
        let sql = UNFINISHED.sql(tx, piece.len());
        let rows: Vec<Unfinished> = on!(tx, |conn| {
            let mut query = sqlx::query_as(sql);
            for schedule in piece {
                query = query.bind(*schedule);
            }
            query.fetch_all(conn).await
        })?;
        all.extend(rows);
    }
    all.sort_unstable_by_key(|launch| (launch.claimed_at, launch.fire_time, launch.id));
    Ok(all)
}

/// The schedules of which a launch whose fire time has come waits for its turn. Slots of one that is paused go on waiting.
pub async fn queues(tx: &mut Tx, now: Timestamp) -> Result<Vec<ScheduleId>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(QUEUES)
        .bind(now)
        .fetch_all(conn)
        .await)?)
}

/// Let launches go that waited for their turn, in the name of `host`.
pub async fn open(
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

/// Skip launches that waited for their turn: they overlap those that displace them.
pub async fn skip(tx: &mut Tx, skipped: &[Displaced], now: Timestamp) -> Result<(), DbError> {
    displace(tx, &SKIP, skipped, now).await
}

/// Skip every launch of a schedule that waits for its turn, for `reason`.
pub async fn skip_queue(
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

/// Ask runs to end by `until`; launches that nobody carries out at the moment end at once.
pub async fn cancel(
    tx: &mut Tx,
    cancelled: &[Displaced],
    until: Timestamp,
    now: Timestamp,
) -> Result<(), DbError> {
    at(tx, &ASK, cancelled, until).await?;
    at(tx, &END_WAITING_RUN, cancelled, now).await?;
    displace(tx, &END_IDLE, cancelled, now).await?;
    for piece in pieces(cancelled) {
        let sql = ASKED.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(sql);
            for displaced in piece {
                query = query.bind(displaced.launch).bind(displaced.by);
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    Ok(())
}

/// End launches at once. Whoever runs one finds that it is no longer his.
pub async fn terminate(
    tx: &mut Tx,
    terminated: &[Displaced],
    now: Timestamp,
) -> Result<(), DbError> {
    at(tx, &END_RUN, terminated, now).await?;
    displace(tx, &END, terminated, now).await?;
    // One that was being taken at this moment has a run only now.
    at(tx, &END_RUN, terminated, now).await
}

/// Run a batch of `(launch, instant)`.
async fn at(
    tx: &mut Tx,
    batch: &Batch,
    displaced: &[Displaced],
    instant: Timestamp,
) -> Result<(), DbError> {
    for piece in pieces(displaced) {
        let sql = batch.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(sql);
            for displaced in piece {
                query = query.bind(displaced.launch).bind(instant);
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    Ok(())
}

/// Run a batch of `(launch, by which, now)`.
async fn displace(
    tx: &mut Tx,
    batch: &Batch,
    displaced: &[Displaced],
    now: Timestamp,
) -> Result<(), DbError> {
    for piece in pieces(displaced) {
        let sql = batch.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(sql);
            for displaced in piece {
                query = query.bind(displaced.launch).bind(displaced.by).bind(now);
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    Ok(())
}
