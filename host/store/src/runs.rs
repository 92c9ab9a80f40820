//! Runs and the tasks inside them: taking, renewing, finishing.

use serde::Serialize;
use sqlx::FromRow;

use super::batch::{Batch, pieces};
use super::results::{self, Told};
use super::task_runs::{self, TaskRun};
use super::types::storable;
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId, LaunchId, LaunchKind, RunId, ScheduleId};
use campanile_model::status::{FailureKind, LaunchStatus, RunStatus};

/// A launch that a host is about to run, with what the run is told.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ClaimedLaunch {
    #[sqlx(rename = "id")]
    pub launch_id: LaunchId,
    pub schedule_id: ScheduleId,
    pub schedule_revision: i64,
    pub kind: LaunchKind,
    pub scheduled_time: Timestamp,
    pub scheduled_local: String,
    pub package: String,
    pub digest: ArtifactDigest,
    pub context: Option<String>,
    pub interval_start: Timestamp,
    pub fire_time: Timestamp,
    pub attempts: i64,
    pub recoveries: i64,
    pub recovered_at: Option<Timestamp>,
    /// Output of the last successful run of the schedule, JSON.
    pub last_result: Option<String>,
    /// The failure since then, JSON.
    pub last_failure: Option<String>,
}

/// A waiting run that a host continues.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ClaimedRetry {
    pub run_id: RunId,
    /// The fence of this taking.
    pub fence: i64,
    pub is_recovery: bool,
    #[sqlx(flatten)]
    pub launch: ClaimedLaunch,
}

/// A run to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    pub id: RunId,
    pub launch_id: LaunchId,
    pub schedule_id: ScheduleId,
    pub is_recovery: bool,
    pub digest: ArtifactDigest,
    pub hashes: RunHashes,
}

/// The SHA-256, in lower-case hexadecimal, of what a run goes by besides its code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunHashes {
    /// Of what its host's sidecar grants.
    pub grants: Option<String>,
    /// Of the context without what the host adds.
    pub context: Option<String>,
}

/// What becomes of a run that its host lets go of.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub run_id: RunId,
    /// The fence under which the host took it.
    pub fence: i64,
    pub launch_id: LaunchId,
    pub schedule_id: ScheduleId,
    pub scheduled_time: Timestamp,
    pub at: Timestamp,
    pub end: RunEnd,
    /// Calls not yet on the record.
    pub tasks: Vec<TaskRun>,
}

/// The ways in which a run leaves its host.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    Succeeded {
        /// JSON.
        output: Option<String>,
    },
    Failed {
        kind: FailureKind,
        message: String,
    },
    /// It was asked to end before its time.
    Cancelled {
        message: String,
    },
    /// A task is to be called again.
    Waiting {
        retry_at: Timestamp,
    },
}

impl RunEnd {
    fn status(&self) -> RunStatus {
        match self {
            RunEnd::Succeeded { .. } => RunStatus::Succeeded,
            RunEnd::Failed { .. } => RunStatus::Failed,
            RunEnd::Cancelled { .. } => RunStatus::Cancelled,
            RunEnd::Waiting { .. } => RunStatus::Waiting,
        }
    }

    fn launch_status(&self) -> LaunchStatus {
        match self {
            RunEnd::Succeeded { .. } => LaunchStatus::Succeeded,
            RunEnd::Failed { .. } => LaunchStatus::Failed,
            RunEnd::Cancelled { .. } => LaunchStatus::Cancelled,
            RunEnd::Waiting { .. } => LaunchStatus::Waiting,
        }
    }

    fn retry_at(&self) -> Option<Timestamp> {
        match self {
            RunEnd::Waiting { retry_at } => Some(*retry_at),
            _ => None,
        }
    }

    /// Why a launch ends before its time: so far there is one reason.
    fn reason(&self) -> Option<&'static str> {
        matches!(self, RunEnd::Cancelled { .. }).then_some(super::overlap::REASON)
    }

    fn failure(&self) -> Option<(FailureKind, &str)> {
        match self {
            RunEnd::Failed { kind, message } => Some((*kind, message)),
            RunEnd::Cancelled { message } => Some((FailureKind::Cancelled, message)),
            _ => None,
        }
    }
}

/// A run as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, schemars::JsonSchema)]
pub struct RunRow {
    pub id: RunId,
    pub launch_id: LaunchId,
    pub schedule: String,
    pub scheduled_time: Timestamp,
    pub status: RunStatus,
    pub is_recovery: bool,
    pub package: String,
    pub digest: ArtifactDigest,
    /// What the schedule said is on the record under this number.
    pub schedule_revision: i64,
    /// The SHA-256 of what its host's sidecar granted when it was taken last.
    pub grants_hash: Option<String>,
    /// The SHA-256 of the context that it was given, without what the host adds.
    pub context_hash: Option<String>,
    pub host: Option<String>,
    /// Of Campanile, as of the next two: those of the host.
    pub host_version: Option<String>,
    pub wasmtime_version: Option<String>,
    pub tzdata_version: Option<String>,
    pub retry_at: Option<Timestamp>,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
}

// A launch goes only to a host whose folder has the package: there the operator put its grants.
const TAKE: &str = "SELECT l.id, l.schedule_id, l.schedule_revision, l.kind, l.scheduled_time, l.scheduled_local, l.package, l.digest,
        l.context, l.interval_start, l.fire_time, l.attempts, l.recoveries, l.recovered_at, m.result AS last_result, m.failure AS last_failure
    FROM launch l LEFT JOIN schedule_result m ON m.schedule_id = l.schedule_id
    WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open' AND l.fire_time <= $1
      AND EXISTS (SELECT 1 FROM package_host p WHERE p.package = l.package AND p.host_id = $2)
    ORDER BY l.fire_time LIMIT $3";
const TAKE_LOCKED: &str = "SELECT l.id, l.schedule_id, l.schedule_revision, l.kind, l.scheduled_time, l.scheduled_local, l.package, l.digest,
        l.context, l.interval_start, l.fire_time, l.attempts, l.recoveries, l.recovered_at, m.result AS last_result, m.failure AS last_failure
    FROM launch l LEFT JOIN schedule_result m ON m.schedule_id = l.schedule_id
    WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open' AND l.fire_time <= $1
      AND EXISTS (SELECT 1 FROM package_host p WHERE p.package = l.package AND p.host_id = $2)
    ORDER BY l.fire_time LIMIT $3 FOR UPDATE OF l SKIP LOCKED";
const BEGIN: Batch = Batch {
    head: "INSERT INTO run (id, launch_id, schedule_id, status, is_recovery, digest, grants_hash, context_hash, host_id, fence, lease_until, started_at) VALUES ",
    columns: 12,
    tail: "",
};
const LINK: Batch = Batch {
    head: "UPDATE launch SET status = 'running', run_id = v.column2, attempts = attempts + 1, started_at = v.column3
        FROM (VALUES ",
    columns: 3,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status = 'open') = TRUE",
};
const WAITING: &str = "SELECT r.id AS run_id, r.fence + 1 AS fence, r.is_recovery, l.id, l.schedule_id, l.schedule_revision, l.kind, l.scheduled_time,
        l.scheduled_local, l.package, r.digest, l.context, l.interval_start, l.fire_time, l.attempts, l.recoveries, l.recovered_at,
        m.result AS last_result, m.failure AS last_failure
    FROM run r JOIN launch l ON l.id = r.launch_id LEFT JOIN schedule_result m ON m.schedule_id = l.schedule_id
    WHERE r.status = 'waiting' AND r.retry_at <= $1 AND r.cancel_deadline IS NULL
      AND EXISTS (SELECT 1 FROM package_host p WHERE p.package = l.package AND p.host_id = $2)
    ORDER BY r.retry_at LIMIT $3";
const WAITING_LOCKED: &str = "SELECT r.id AS run_id, r.fence + 1 AS fence, r.is_recovery, l.id, l.schedule_id, l.schedule_revision, l.kind, l.scheduled_time,
        l.scheduled_local, l.package, r.digest, l.context, l.interval_start, l.fire_time, l.attempts, l.recoveries, l.recovered_at,
        m.result AS last_result, m.failure AS last_failure
    FROM run r JOIN launch l ON l.id = r.launch_id LEFT JOIN schedule_result m ON m.schedule_id = l.schedule_id
    WHERE r.status = 'waiting' AND r.retry_at <= $1 AND r.cancel_deadline IS NULL
      AND EXISTS (SELECT 1 FROM package_host p WHERE p.package = l.package AND p.host_id = $2)
    ORDER BY r.retry_at LIMIT $3 FOR UPDATE OF r SKIP LOCKED";
const CONTINUE: &str =
    "UPDATE run SET status = 'running', retry_at = NULL, host_id = $2, fence = $3, lease_until = $4
    WHERE id = $1 AND status = 'waiting'";
const CONTINUE_LAUNCH: &str = "UPDATE launch SET status = 'running', attempts = attempts + 1 WHERE id = $1 AND status = 'waiting'";
const RENEW: Batch = Batch {
    head: "UPDATE run SET lease_until = v.column3 FROM (VALUES ",
    columns: 3,
    tail: ") AS v WHERE run.id = v.column1 AND run.fence = v.column2 AND run.status = 'running' RETURNING run.id, run.cancel_deadline",
};
const FINISH: Batch = Batch {
    head: "UPDATE run SET status = v.column3, finished_at = v.column4, retry_at = v.column5, failure = v.column6, message = v.column7,
        lease_until = NULL FROM (VALUES ",
    columns: 7,
    tail: ") AS v WHERE run.id = v.column1 AND (run.fence = v.column2 AND run.status = 'running') = TRUE
        RETURNING run.id",
};
const FINISH_LAUNCH: Batch = Batch {
    head: "UPDATE launch SET status = v.column2, finished_at = v.column3, failure = v.column4, message = v.column5, reason = v.column6
        FROM (VALUES ",
    columns: 6,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status = 'running') = TRUE",
};
const GO_BY: &str = "UPDATE run SET grants_hash = $2, context_hash = $3 WHERE id = $1";
const HOLD: &str =
    "UPDATE run SET lease_until = lease_until WHERE id = $1 AND fence = $2 AND status = 'running'";
const NEXT_OPEN: &str = "SELECT min(fire_time) FROM launch
    WHERE run_id IS NULL AND decision = 'launched' AND status = 'open' AND fire_time > $1";
const NEXT_QUEUED: &str =
    "SELECT min(fire_time) FROM launch WHERE decision = 'queued' AND fire_time > $1";
const NEXT_RETRY: &str = "SELECT min(retry_at) FROM run WHERE status = 'waiting' AND retry_at > $1";
const LIST: &str = "SELECT r.id, r.launch_id, s.name AS schedule, l.scheduled_time, r.status, r.is_recovery, l.package, r.digest, l.schedule_revision,
        r.grants_hash, r.context_hash, h.name AS host, h.version AS host_version, h.wasmtime_version, h.tzdata_version, r.retry_at,
        r.started_at, r.finished_at, r.failure, r.message
    FROM run r JOIN launch l ON l.id = r.launch_id JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = r.host_id
    WHERE s.name = $1 OR $1 IS NULL ORDER BY r.id DESC LIMIT $2";
const FIND: &str = "SELECT r.id, r.launch_id, s.name AS schedule, l.scheduled_time, r.status, r.is_recovery, l.package, r.digest, l.schedule_revision,
        r.grants_hash, r.context_hash, h.name AS host, h.version AS host_version, h.wasmtime_version, h.tzdata_version, r.retry_at,
        r.started_at, r.finished_at, r.failure, r.message
    FROM run r JOIN launch l ON l.id = r.launch_id JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = r.host_id
    WHERE r.id = $1";

/// Every statement of these tables that both databases share, for the test that prepares them on both.
pub const STATEMENTS: &[&str] = &[
    TAKE,
    WAITING,
    CONTINUE,
    CONTINUE_LAUNCH,
    GO_BY,
    HOLD,
    NEXT_OPEN,
    NEXT_QUEUED,
    NEXT_RETRY,
    LIST,
    FIND,
];
/// Those that lock the rows they read, on Postgres.
pub const LOCKING_STATEMENTS: &[&str] = &[TAKE_LOCKED, WAITING_LOCKED];

/// Up to `limit` open launches whose time has come and that `host` can run, the earliest first, for this transaction to begin.
pub async fn claimable(
    tx: &mut Tx,
    host: HostId,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<ClaimedLaunch>, DbError> {
    let sql = tx.lock_rows(TAKE, TAKE_LOCKED);
    Ok(on!(tx, |conn| sqlx::query_as(sql)
        .bind(now)
        .bind(host)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// The fence of a run's first taking.
pub const FIRST_FENCE: i64 = 1;

/// Insert runs, leased to `host` until `lease_until`, and link them to their launches.
pub async fn start(
    tx: &mut Tx,
    host: HostId,
    runs: &[NewRun],
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<(), DbError> {
    for piece in pieces(runs) {
        let begin_sql = BEGIN.sql(tx, piece.len());
        let link_sql = LINK.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut insert = sqlx::query(begin_sql);
            let mut link = sqlx::query(link_sql);
            for run in piece {
                insert = insert
                    .bind(run.id)
                    .bind(run.launch_id)
                    .bind(run.schedule_id)
                    .bind(RunStatus::Running)
                    .bind(run.is_recovery)
                    .bind(run.digest.as_str())
                    .bind(run.hashes.grants.as_deref())
                    .bind(run.hashes.context.as_deref())
                    .bind(host)
                    .bind(FIRST_FENCE)
                    .bind(lease_until)
                    .bind(now);
                link = link.bind(run.launch_id).bind(run.id).bind(now);
            }
            insert.execute(&mut *conn).await?;
            link.execute(&mut *conn).await?;
        });
    }
    Ok(())
}

/// Take up to `limit` waiting runs whose retry is due.
pub async fn claim_retries(
    tx: &mut Tx,
    host: HostId,
    now: Timestamp,
    lease_until: Timestamp,
    limit: i64,
) -> Result<Vec<ClaimedRetry>, DbError> {
    let sql = tx.lock_rows(WAITING, WAITING_LOCKED);
    let waiting: Vec<ClaimedRetry> = on!(tx, |conn| sqlx::query_as(sql)
        .bind(now)
        .bind(host)
        .bind(limit)
        .fetch_all(conn)
        .await)?;
    for run in &waiting {
        on!(tx, |conn| {
            sqlx::query(CONTINUE)
                .bind(run.run_id)
                .bind(host)
                .bind(run.fence)
                .bind(lease_until)
                .execute(&mut *conn)
                .await?;
            sqlx::query(CONTINUE_LAUNCH)
                .bind(run.launch.launch_id)
                .execute(&mut *conn)
                .await?;
        });
    }
    Ok(waiting)
}

/// Put on the record what a run that was taken again goes by now.
pub async fn set_run_hashes(tx: &mut Tx, run: RunId, hashes: &RunHashes) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(GO_BY)
        .bind(run)
        .bind(hashes.grants.as_deref())
        .bind(hashes.context.as_deref())
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Renew the leases of runs, each held under a fence; gives those that are still held, and until when those may take
/// their time that were asked to end.
///
/// The caller names what it carries out. A run that the record gives to its host but that nobody
/// carries out, because the answer to the commit that took it was lost, must run out of its lease.
pub async fn renew(
    tx: &mut Tx,
    held: &[(RunId, i64)],
    lease_until: Timestamp,
) -> Result<Vec<(RunId, Option<Timestamp>)>, DbError> {
    let mut still = Vec::with_capacity(held.len());
    for piece in pieces(held) {
        let sql = RENEW.sql(tx, piece.len());
        let rows: Vec<(RunId, Option<Timestamp>)> = on!(tx, |conn| {
            let mut query = sqlx::query_as(sql);
            for (run, fence) in piece {
                query = query.bind(*run).bind(*fence).bind(lease_until);
            }
            query.fetch_all(conn).await
        })?;
        still.extend(rows);
    }
    Ok(still)
}

/// Let go of runs; gives those whose fence was still good. The others were lost meanwhile, and nothing of them is applied.
pub async fn finish(tx: &mut Tx, finishes: &[Finish]) -> Result<Vec<RunId>, DbError> {
    let mut won = Vec::with_capacity(finishes.len());
    for piece in pieces(finishes) {
        let finish_sql = FINISH.sql(tx, piece.len());
        let ids: Vec<RunId> = on!(tx, |conn| {
            let mut query = sqlx::query_scalar(finish_sql);
            for finish in piece {
                let over = finish.end.retry_at().is_none().then_some(finish.at);
                let failure = finish.end.failure();
                query = query
                    .bind(finish.run_id)
                    .bind(finish.fence)
                    .bind(finish.end.status())
                    .bind(over)
                    .bind(finish.end.retry_at())
                    .bind(failure.map(|(kind, _)| kind))
                    .bind(failure.map(|(_, message)| storable(message)));
            }
            query.fetch_all(conn).await
        })?;
        won.extend(ids);
    }
    let finishes: Vec<&Finish> = if won.len() == finishes.len() {
        finishes.iter().collect()
    } else {
        let held: std::collections::HashSet<RunId> = won.iter().copied().collect();
        finishes
            .iter()
            .filter(|finish| held.contains(&finish.run_id))
            .collect()
    };
    for piece in pieces(&finishes) {
        let finish_launch_sql = FINISH_LAUNCH.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(finish_launch_sql);
            for finish in piece {
                let over = finish.end.retry_at().is_none().then_some(finish.at);
                let failure = finish.end.failure();
                query = query
                    .bind(finish.launch_id)
                    .bind(finish.end.launch_status())
                    .bind(over)
                    .bind(failure.map(|(kind, _)| kind))
                    .bind(failure.map(|(_, message)| storable(message)))
                    .bind(finish.end.reason());
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    let tasks: Vec<(RunId, &TaskRun)> = finishes
        .iter()
        .flat_map(|finish| finish.tasks.iter().map(|task| (finish.run_id, task)))
        .collect();
    task_runs::insert(tx, &tasks).await?;
    remember(tx, &finishes).await?;
    Ok(won)
}

/// Put calls of tasks on the record while their run goes on. False when the run's fence is no longer good.
pub async fn record_tasks(
    tx: &mut Tx,
    run: RunId,
    fence: i64,
    tasks: &[TaskRun],
) -> Result<bool, DbError> {
    let held = lock_if_current(tx, run, fence).await?;
    if held {
        let tasks: Vec<(RunId, &TaskRun)> = tasks.iter().map(|task| (run, task)).collect();
        task_runs::insert(tx, &tasks).await?;
    }
    Ok(held)
}

/// Whether `fence` is the fence of a run that goes on; nobody takes it until the end of the transaction.
pub async fn lock_if_current(tx: &mut Tx, run: RunId, fence: i64) -> Result<bool, DbError> {
    let held = on!(tx, |conn| sqlx::query(HOLD)
        .bind(run)
        .bind(fence)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?;
    Ok(held == 1)
}

/// Keep what the next launches of these schedules are told.
async fn remember(tx: &mut Tx, finishes: &[&Finish]) -> Result<(), DbError> {
    let successes = finishes.iter().filter_map(|finish| match &finish.end {
        RunEnd::Succeeded { output } => Some(Told::success(
            finish.schedule_id,
            finish.scheduled_time,
            output.as_deref(),
        )),
        _ => None,
    });
    results::keep_successes(tx, successes).await?;
    let failures = finishes.iter().filter_map(|finish| match &finish.end {
        RunEnd::Failed { kind, message } => Some(Told::failure(
            finish.schedule_id,
            finish.scheduled_time,
            *kind,
            message,
        )),
        _ => None,
    });
    results::keep_failures(tx, failures).await
}

/// When, after `now`, the next launch fires or the next retry is due, if any is known.
///
/// What is due already and was not taken is another host's to take, or waits for capacity.
pub async fn next_wake(tx: &mut Tx, now: Timestamp) -> Result<Option<Timestamp>, DbError> {
    let next: [Option<Timestamp>; 3] = on!(tx, |conn| {
        let open = sqlx::query_scalar(NEXT_OPEN)
            .bind(now)
            .fetch_one(&mut *conn)
            .await?;
        let queued = sqlx::query_scalar(NEXT_QUEUED)
            .bind(now)
            .fetch_one(&mut *conn)
            .await?;
        let retry = sqlx::query_scalar(NEXT_RETRY)
            .bind(now)
            .fetch_one(&mut *conn)
            .await?;
        [open, queued, retry]
    });
    Ok(next.into_iter().flatten().min())
}

/// The newest `limit` runs, newest first; only those of schedules called `schedule`, when given.
pub async fn list(tx: &mut Tx, schedule: Option<&str>, limit: i64) -> Result<Vec<RunRow>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LIST)
        .bind(schedule)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// The run of that id.
pub async fn find(tx: &mut Tx, run: RunId) -> Result<Option<RunRow>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(FIND)
        .bind(run)
        .fetch_optional(conn)
        .await)?)
}
