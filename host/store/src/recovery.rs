//! What hosts left behind: expired leases, and decisions of hosts that are gone.

use sqlx::FromRow;

use super::batch::{Batch, pieces};
use super::results::{self, Told};
use super::{DbError, Tx, on, overlap};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId, LaunchKind, RunId, ScheduleId};
use campanile_model::status::{FailureKind, LaunchStatus};

/// A launch that nobody carries out any more.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct OrphanedLaunch {
    pub launch_id: LaunchId,
    /// The run that was lost, or none when the launch was never taken.
    pub run_id: Option<RunId>,
    pub schedule_id: ScheduleId,
    pub schedule_revision: i64,
    pub schedule: String,
    pub scheduled_time: Timestamp,
    pub kind: LaunchKind,
    /// When it was decided, or let go if it had to wait for its turn.
    pub claimed_at: Timestamp,
    pub recoveries: i64,
    pub enabled: bool,
    pub deleted_at: Option<Timestamp>,
    /// Since when no live host has the package.
    pub missing_since: Option<Timestamp>,
    /// Set when its run had been asked to end.
    pub cancel_deadline: Option<Timestamp>,
    /// Why nobody carries it out, as a clause: `its host died`.
    pub why: String,
}

/// What recovery makes of a stray launch.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveryDecision {
    pub launch_id: LaunchId,
    pub run_id: Option<RunId>,
    pub action: RecoveryAction,
}

/// The end of a stray launch, or its new beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryAction {
    /// It is run again.
    RunAgain,
    /// It is given up, for this reason.
    Abandon(&'static str),
    /// It was to be run at most once.
    MarkUnknown,
    /// It had been asked to end.
    Cancel,
}

impl RecoveryAction {
    /// The status and the reason of a launch that has come to its end.
    fn end(self) -> Option<(LaunchStatus, Option<&'static str>)> {
        match self {
            RecoveryAction::RunAgain => None,
            RecoveryAction::Abandon(reason) => Some((LaunchStatus::Abandoned, Some(reason))),
            RecoveryAction::MarkUnknown => Some((LaunchStatus::Unknown, None)),
            RecoveryAction::Cancel => Some((LaunchStatus::Cancelled, Some(overlap::REASON))),
        }
    }
}

// The first condition follows from the second; it leads to the few runs that are not over.
const LOST_RUNS: &str = "SELECT l.id AS launch_id, r.id AS run_id, l.schedule_id, l.schedule_revision, r.cancel_deadline, s.name AS schedule, l.scheduled_time, l.kind, coalesce(l.opened_at, l.claimed_at) AS claimed_at, l.recoveries,
        s.enabled, s.deleted_at, p.missing_since,
        CASE WHEN r.cancel_deadline IS NOT NULL THEN 'it was asked to end' WHEN r.status = 'waiting' THEN 'no host took its retry in time' WHEN h.end_reason = 'stopped' THEN 'its host was stopped'
            WHEN h.ended_at IS NOT NULL THEN 'its host died' ELSE 'its lease ran out' END AS why
    FROM run r JOIN launch l ON l.id = r.launch_id JOIN schedule s ON s.id = l.schedule_id
        JOIN host h ON h.id = r.host_id LEFT JOIN package p ON p.name = l.package
    WHERE r.status IN ('running', 'waiting') AND ((r.status = 'running' AND (r.lease_until <= $1 OR h.ended_at IS NOT NULL))
        OR (r.status = 'waiting' AND (r.retry_at <= $2 OR r.cancel_deadline IS NOT NULL)))
    ORDER BY l.fire_time LIMIT $3";
const LOST_RUNS_LOCKED: &str = "SELECT l.id AS launch_id, r.id AS run_id, l.schedule_id, l.schedule_revision, r.cancel_deadline, s.name AS schedule, l.scheduled_time, l.kind, coalesce(l.opened_at, l.claimed_at) AS claimed_at, l.recoveries,
        s.enabled, s.deleted_at, p.missing_since,
        CASE WHEN r.cancel_deadline IS NOT NULL THEN 'it was asked to end' WHEN r.status = 'waiting' THEN 'no host took its retry in time' WHEN h.end_reason = 'stopped' THEN 'its host was stopped'
            WHEN h.ended_at IS NOT NULL THEN 'its host died' ELSE 'its lease ran out' END AS why
    FROM run r JOIN launch l ON l.id = r.launch_id JOIN schedule s ON s.id = l.schedule_id
        JOIN host h ON h.id = r.host_id LEFT JOIN package p ON p.name = l.package
    WHERE r.status IN ('running', 'waiting') AND ((r.status = 'running' AND (r.lease_until <= $1 OR h.ended_at IS NOT NULL))
        OR (r.status = 'waiting' AND (r.retry_at <= $2 OR r.cancel_deadline IS NOT NULL)))
    ORDER BY l.fire_time LIMIT $3 FOR UPDATE OF r SKIP LOCKED";
// Decided by a host that died, or waiting since before $1 although there was capacity where its package
// is. Those that can only wait for their package come last: they must not hold up the others.
const LOST_LAUNCHES: &str = "SELECT l.id AS launch_id, NULL AS run_id, l.schedule_id, l.schedule_revision, NULL AS cancel_deadline, s.name AS schedule, l.scheduled_time, l.kind, coalesce(l.opened_at, l.claimed_at) AS claimed_at, l.recoveries,
        s.enabled, s.deleted_at, p.missing_since,
        CASE WHEN h.end_reason = 'died' THEN 'the host that decided it died' ELSE 'no host took it in time' END AS why
    FROM launch l JOIN schedule s ON s.id = l.schedule_id
        LEFT JOIN host h ON h.id = l.decided_by LEFT JOIN package p ON p.name = l.package
    WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open' AND (h.end_reason = 'died' OR (l.fire_time < $1 AND l.claimed_at < $1 AND (l.recovered_at IS NULL OR l.recovered_at < $1) AND (l.opened_at IS NULL OR l.opened_at < $1)
        AND (p.missing_since IS NOT NULL OR EXISTS (SELECT 1 FROM package_host o WHERE o.package = l.package AND o.host_id = $2))))
    ORDER BY p.missing_since IS NOT NULL, l.fire_time LIMIT $3";
const LOST_LAUNCHES_LOCKED: &str = "SELECT l.id AS launch_id, NULL::uuid AS run_id, l.schedule_id, l.schedule_revision, NULL::timestamptz AS cancel_deadline, s.name AS schedule, l.scheduled_time, l.kind, coalesce(l.opened_at, l.claimed_at) AS claimed_at, l.recoveries,
        s.enabled, s.deleted_at, p.missing_since,
        CASE WHEN h.end_reason = 'died' THEN 'the host that decided it died' ELSE 'no host took it in time' END AS why
    FROM launch l JOIN schedule s ON s.id = l.schedule_id
        LEFT JOIN host h ON h.id = l.decided_by LEFT JOIN package p ON p.name = l.package
    WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open' AND (h.end_reason = 'died' OR (l.fire_time < $1 AND l.claimed_at < $1 AND (l.recovered_at IS NULL OR l.recovered_at < $1) AND (l.opened_at IS NULL OR l.opened_at < $1)
        AND (p.missing_since IS NOT NULL OR EXISTS (SELECT 1 FROM package_host o WHERE o.package = l.package AND o.host_id = $2))))
    ORDER BY p.missing_since IS NOT NULL, l.fire_time LIMIT $3 FOR UPDATE OF l SKIP LOCKED";
const UNFINISHED_STARTS: &str = "SELECT l.id, s.name, l.scheduled_time FROM launch l JOIN schedule s ON s.id = l.schedule_id
    WHERE l.run_id IS NULL AND l.decision = 'launched' AND l.status = 'open' AND l.kind = 'startup' AND l.decided_by = $1";
const LOSE_RUN: Batch = Batch {
    head: "UPDATE run SET status = 'lost', finished_at = v.column2, lease_until = NULL, retry_at = NULL, failure = 'lost', message = v.column3
        FROM (VALUES ",
    columns: 3,
    tail: ") AS v WHERE run.id = v.column1 AND (run.status IN ('running', 'waiting')) = TRUE",
};
// The attempt is counted in the statement that takes the recovery.
const REOPEN: Batch = Batch {
    head: "UPDATE launch SET status = 'open', run_id = NULL, recoveries = recoveries + 1, recovered_at = v.column2, decided_by = v.column3
        FROM (VALUES ",
    columns: 3,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status IN ('open', 'running', 'waiting')) = TRUE",
};
const END: Batch = Batch {
    head: "UPDATE launch SET status = v.column2, reason = v.column3, finished_at = v.column4, failure = 'lost'
        FROM (VALUES ",
    columns: 4,
    tail: ") AS v WHERE launch.id = v.column1 AND (launch.status IN ('open', 'running', 'waiting')) = TRUE
        RETURNING launch.schedule_id, launch.scheduled_time, launch.status",
};

/// Every statement that both databases share, for the test that prepares them on both.
pub const STATEMENTS: &[&str] = &[LOST_RUNS, LOST_LAUNCHES, UNFINISHED_STARTS];
/// Those that lock the rows they read, on Postgres.
pub const LOCKING_STATEMENTS: &[&str] = &[LOST_RUNS_LOCKED, LOST_LAUNCHES_LOCKED];

/// Runs whose lease has expired or whose host's life is over, and runs whose retry has been due
/// since `retry_before` without any host that could take it; for this transaction to recover.
pub async fn orphaned_runs(
    tx: &mut Tx,
    now: Timestamp,
    retry_before: Timestamp,
    limit: i64,
) -> Result<Vec<OrphanedLaunch>, DbError> {
    let sql = tx.lock_rows(LOST_RUNS, LOST_RUNS_LOCKED);
    Ok(on!(tx, |conn| sqlx::query_as(sql)
        .bind(now)
        .bind(retry_before)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// Launches without a run whose host died, or that `host` could have taken since before `untouched_since`.
pub async fn orphaned_launches(
    tx: &mut Tx,
    host: HostId,
    untouched_since: Timestamp,
    limit: i64,
) -> Result<Vec<OrphanedLaunch>, DbError> {
    let sql = tx.lock_rows(LOST_LAUNCHES, LOST_LAUNCHES_LOCKED);
    Ok(on!(tx, |conn| sqlx::query_as(sql)
        .bind(untouched_since)
        .bind(host)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}

/// The launches of earlier starts that `host` has taken up, and that nobody runs yet: each with its schedule's name
/// and its slot.
pub async fn unclaimed_startups(
    tx: &mut Tx,
    host: HostId,
) -> Result<Vec<(LaunchId, String, Timestamp)>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(UNFINISHED_STARTS)
        .bind(host)
        .fetch_all(conn)
        .await)?)
}

/// Carry verdicts out: lose the runs, then open their launches again in the name of `host`, or give them up, which the
/// next launches of their schedules are told.
pub async fn apply(
    tx: &mut Tx,
    host: HostId,
    verdicts: &[RecoveryDecision],
    why: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    let runs: Vec<RunId> = verdicts
        .iter()
        .filter_map(|verdict| verdict.run_id)
        .collect();
    for piece in pieces(&runs) {
        let lose_run_sql = LOSE_RUN.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(lose_run_sql);
            for run in piece {
                query = query.bind(*run).bind(now).bind(why);
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    let (again, ended): (Vec<&RecoveryDecision>, Vec<&RecoveryDecision>) = verdicts
        .iter()
        .partition(|verdict| verdict.action == RecoveryAction::RunAgain);
    for piece in pieces(&again) {
        let reopen_sql = REOPEN.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(reopen_sql);
            for verdict in piece {
                query = query.bind(verdict.launch_id).bind(now).bind(host);
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    let mut failures = Vec::new();
    for piece in pieces(&ended) {
        let end_sql = END.sql(tx, piece.len());
        let rows: Vec<(ScheduleId, Timestamp, LaunchStatus)> = on!(tx, |conn| {
            let mut query = sqlx::query_as(end_sql);
            for verdict in piece {
                let end = verdict.action.end();
                query = query
                    .bind(verdict.launch_id)
                    .bind(end.map(|(status, _)| status))
                    .bind(end.and_then(|(_, reason)| reason))
                    .bind(now);
            }
            query.fetch_all(conn).await
        })?;
        failures.extend(rows);
    }
    // One that ended as it had been asked to has not failed.
    failures.retain(|(_, _, status)| *status != LaunchStatus::Cancelled);
    let failures = failures.into_iter();
    let failures =
        failures.map(|(schedule, slot, _)| Told::failure(schedule, slot, FailureKind::Lost, why));
    results::keep_failures(tx, failures).await
}
