//! Orphaned launches: runs whose lease expired, and decisions of dead hosts.

use sqlx::FromRow;

use super::arrows::{GIVE_UP, reopen};
use super::change::{LOSS_COUNTS_WITHIN, RecoveryAction, RecoveryDecision};
use super::claim::has_labels;
use super::{Life, life_columns};
use crate::results::{self, LastResult};
use crate::sql::{Batch, locking, rows_batch, statements};
use crate::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId, LaunchKind, ScheduleId};
pub use campanile_model::status::OrphanCause;
use campanile_model::status::{FailureKind, LaunchStatus};

/// A launch that no host executes any more.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct OrphanedLaunch {
    pub launch_id: LaunchId,
    /// If it has a run, that run is lost.
    #[sqlx(flatten)]
    pub life: Life,
    pub schedule_id: ScheduleId,
    pub schedule_revision: i64,
    pub schedule: String,
    pub scheduled_time: Timestamp,
    pub kind: LaunchKind,
    /// When it was decided, or left the queue if it was queued.
    pub claimable_since: Timestamp,
    /// When its run was first claimed.
    pub started_at: Option<Timestamp>,
    /// The host claiming its run, until when, and whether that host is recorded as alive.
    pub host_id: Option<HostId>,
    pub lease_until: Option<Timestamp>,
    pub is_host_alive: bool,
    /// No host claims it before this. Only set while it has no run.
    pub not_before: Option<Timestamp>,
    pub enabled: bool,
    pub deleted_at: Option<Timestamp>,
    /// Since when no live host has the package.
    pub missing_since: Option<Timestamp>,
    pub cause: OrphanCause,
}

impl OrphanedLaunch {
    /// Returns how many lost runs count at `now`, including the current one.
    pub fn lost_runs_at(&self, now: Timestamp) -> i64 {
        match self.started_at {
            Some(started) if started <= now.minus(LOSS_COUNTS_WITHIN) => 0,
            _ => self.life.lost_runs + i64::from(self.life.has_run),
        }
    }
}

/// The columns of an [`OrphanedLaunch`] besides the cause.
macro_rules! orphan_columns {
    () => {
        concat!(
            "SELECT l.id AS launch_id, ", life_columns!(), ", l.schedule_id, l.schedule_revision, s.name AS schedule, l.scheduled_time, l.kind,
            coalesce(l.opened_at, l.decided_at) AS claimable_since, l.started_at, l.not_before, l.host_id, l.lease_until,
            h.id IS NOT NULL AND h.ended_at IS NULL AS is_host_alive, s.enabled, s.deleted_at, p.missing_since, "
        )
    };
}

/// The launches of [`orphaned_launches`], for a host and an instant.
macro_rules! orphaned_launches {
    () => {
        concat!(" FROM launch l JOIN schedule s ON s.id = l.schedule_id
            LEFT JOIN host h ON h.id = l.decided_by LEFT JOIN package p ON p.name = l.package
        WHERE l.status = 'open' AND l.schedule_id IS NOT NULL
            AND (h.end_reason = 'died' OR (l.fire_time < $2 AND l.decided_at < $2
                AND (l.recovered_at IS NULL OR l.recovered_at < $2) AND (l.opened_at IS NULL OR l.opened_at < $2)
                AND (p.missing_since IS NOT NULL OR (EXISTS (SELECT 1 FROM package_host o WHERE o.package = l.package AND o.host_id = $1)",
            has_labels!(), "))))")
    };
}

statements! {
    /// Keep the lost runs of launches that are to be reopened.
    pub(super) async fn keep_lost_runs(again: &[&RecoveryDecision], message: &str, now: Timestamp) -> () = execute_batch
        Batch::new("INSERT INTO lost_run (launch_id, number, host_id, grants_hash, context_hash, started_at, finished_at, message)
        SELECT l.id, l.recoveries + 1, l.host_id, l.grants_hash, l.context_hash, l.started_at, v.column2, v.column3
        FROM (VALUES ($1, $2, $3)) AS v JOIN launch l ON l.id = v.column1 WHERE (l.status IN ('running', 'waiting')) IS TRUE"),
        again, |decision| [decision.launch_id, now, message];

    /// Returns runs whose lease has expired or whose host has stopped, and runs whose retry has been due since `retry_before`;
    /// for this transaction to recover.
    // The first condition follows from the second. It leads to the index of active runs. A host that was marked as dead may
    // only be cut off: it works on each run until the end of the run's own lease, which may be later than that of the host.
    pub async fn orphaned_runs(now: Timestamp, retry_before: Timestamp, limit: i64) -> Vec<OrphanedLaunch> = rows locking!(
        concat!(orphan_columns!(), "CASE WHEN l.cancel_deadline IS NOT NULL THEN 'cancel_requested' WHEN l.status = 'waiting' THEN 'retry_not_claimed'
                WHEN h.end_reason = 'stopped' THEN 'host_stopped' WHEN h.ended_at IS NOT NULL THEN 'host_died'
                ELSE 'lease_expired' END AS cause
        FROM launch l JOIN schedule s ON s.id = l.schedule_id
            JOIN host h ON h.id = l.host_id LEFT JOIN package p ON p.name = l.package
        WHERE l.status IN ('running', 'waiting') AND ((l.status = 'running' AND (l.lease_until <= $1 OR h.end_reason = 'stopped'))
            OR (l.status = 'waiting' AND (l.retry_at <= $2 OR l.cancel_deadline IS NOT NULL)))
        ORDER BY l.fire_time LIMIT $3"),
        "FOR UPDATE OF l SKIP LOCKED"
    );

    /// Returns launches without a run whose host died, or that `host` could have claimed since before `unclaimed_since`.
    // Launches of a dead host, and launches that were unclaimed since before $2 although a host with the package had
    // capacity. Launches whose package is missing come last, so that they do not hold up the others.
    pub async fn orphaned_launches(host: HostId, unclaimed_since: Timestamp, limit: i64) -> Vec<OrphanedLaunch> = rows locking!(
        concat!(orphan_columns!(), "CASE WHEN h.end_reason = 'died' THEN 'deciding_host_died' ELSE 'not_claimed' END AS cause",
        orphaned_launches!(), " ORDER BY p.missing_since IS NOT NULL, l.fire_time LIMIT $3"),
        "FOR UPDATE OF l SKIP LOCKED"
    );

    /// Returns whether [`orphaned_launches`] would return any. It reads every launch without a run, of which there may be a
    /// million, so it is asked before a transaction that writes begins.
    pub async fn has_orphaned_launches(host: HostId, unclaimed_since: Timestamp) -> bool = one_value
        concat!("SELECT EXISTS (SELECT 1", orphaned_launches!(), ")");

    /// Returns the unclaimed launches of earlier starts that `host` has recovered: each with its schedule's name and slot.
    pub async fn unclaimed_startups(host: HostId) -> Vec<(LaunchId, String, Timestamp)> = rows
        "SELECT l.id, s.name, l.scheduled_time FROM launch l JOIN schedule s ON s.id = l.schedule_id
        WHERE l.status = 'open' AND l.kind = 'startup' AND l.decided_by = $1";
}

/// Apply decisions: reopen launches in the name of `host`, whose lost runs are kept beside them, or end them.
///
/// `message` is recorded for the lost runs, for the launches that end, and as the last failure of their schedules.
pub async fn recover(
    tx: &mut Tx,
    host: HostId,
    decisions: &[RecoveryDecision],
    message: &str,
    now: Timestamp,
) -> Result {
    let again = |decision: &&RecoveryDecision| decision.action == RecoveryAction::RunAgain;
    let (again, ended): (Vec<&RecoveryDecision>, Vec<_>) = decisions.iter().partition(again);
    keep_lost_runs(tx, &again, message, now).await?;
    reopen(tx, host, &again, now).await?;
    let mut ended: Vec<(ScheduleId, Timestamp, LaunchStatus)> =
        rows_batch!(tx, GIVE_UP, &ended, |decision| [
            decision.launch_id,
            decision.action.end().map(|(status, _)| status),
            decision.action.end().and_then(|(_, reason)| reason),
            now,
            message,
        ])?;
    // A launch that was asked to end has not failed.
    ended.retain(|(_, _, status)| *status != LaunchStatus::Cancelled);
    let failures = ended.into_iter().map(|(schedule, slot, _)| {
        LastResult::failure((schedule, slot), now, FailureKind::Lost, message)
    });
    results::keep_failures(tx, failures).await
}
