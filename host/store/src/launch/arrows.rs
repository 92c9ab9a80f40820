//! Every statement that changes the status of a launch, named after its [`Arrow`](campanile_model::life::Arrow).
//!
//! Each has the statuses from which its arrow leads in its condition, so a launch whose life rules the arrow out stays as it is.
//! `tests/conformance/launch_life.rs` compares each with [`Life::after`](campanile_model::life::Life::after).

use std::collections::HashSet;

use super::change::{
    Claim, Finish, LOSS_COUNTS_WITHIN, NewClaim, NewLaunch, OPERATOR, RecoveryDecision,
    UncalledClaim,
};
use crate::sql::{Batch, RowLocks, statements, update_launches};
use crate::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{BackfillId, HostId, LaunchId, ScheduleId};
use campanile_model::status::LaunchStatus;

/// Ends launches that another one of their schedule displaces. A launch that no host ever claimed is skipped.
macro_rules! end_displaced {
    ($from:literal) => {
        Batch::of_launches(RowLocks::Held, concat!(
            "UPDATE launch SET reason = v.column4, overlaps_id = v.column2, finished_at = v.column3, lease_until = NULL, retry_at = NULL,
            status = CASE WHEN launch.attempts = 0 THEN 'skipped' ELSE 'cancelled' END,
            failure = CASE WHEN launch.attempts = 0 THEN NULL ELSE 'cancelled' END
            FROM (VALUES ($1, $2, $3, $4)) AS v WHERE launch.id = v.column1 AND (launch.status IN (",
            $from,
            ")) IS TRUE RETURNING launch.schedule_id, launch.kind, launch.status"
        ))
    };
}

statements! {
    // A launch ended at an operator's request already has its reason and message.
    const GIVE_UP: Batch = Batch::of_launches(RowLocks::Held,
        "UPDATE launch SET status = v.column2, finished_at = v.column4, failure = 'lost', lease_until = NULL, retry_at = NULL,
            reason = CASE WHEN v.column2 = 'cancelled' THEN coalesce(launch.reason, v.column3) ELSE v.column3 END,
            message = CASE WHEN v.column2 = 'cancelled' THEN coalesce(launch.message || '; ', '') || v.column5 ELSE v.column5 END
        FROM (VALUES ($1, $2, $3, $4, $5)) AS v
        WHERE launch.id = v.column1 AND (launch.status IN ('open', 'running', 'waiting')) IS TRUE
        RETURNING launch.schedule_id, launch.scheduled_time, launch.status",
    );
    const SKIP_QUEUED: Batch = end_displaced!("'queued'");
    const END_ACTIVE: Batch = end_displaced!("'open', 'running', 'waiting'");
    const END_IDLE: Batch = end_displaced!("'open', 'waiting'");

    /// Inserts decisions, returning the launches inserted.
    // The first decision about a slot stays.
    pub(super) async fn insert_new(launches: &[(&NewLaunch, Option<NewClaim>)]) -> Vec<LaunchId> = values_batch
        Batch::new("INSERT INTO launch (id, schedule_id, schedule_revision, kind, scheduled_time, utc_offset, last_scheduled_time, slot_count,
        reason, overlaps_id, status, package, proposed, priority, group_name, digest, context, args, overlap, backfill_id,
        interval_start, fire_time, decided_by, decided_at, finished_at, host_id, attempts, lease_until, started_at, grants_hash, context_hash, retry_of, run_on)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
            $25, $26, $27, $28, $29, $30, $31, $32, $33)
        ON CONFLICT DO NOTHING RETURNING id"),
        launches, |(launch, claim)| [
            launch.id, launch.schedule_id, launch.schedule_revision, launch.kind, launch.scheduled_time, launch.utc_offset,
            launch.range().map(|(last, _)| last), launch.range().map(|(_, count)| count), launch.reason, launch.overlaps,
            launch.status(claim.as_ref()), &launch.package, launch.proposed, launch.priority, &launch.group_name, &launch.digest,
            &launch.context, &launch.args, launch.overlap, launch.backfill_id, launch.interval_start, launch.fire_time,
            launch.decided_by, launch.decided_at, launch.finished_at(),
            claim.as_ref().map(|claim| claim.host), claim.as_ref().map_or(0, |claim| claim.fence),
            claim.as_ref().map(|claim| claim.lease_until), claim.as_ref().map(|claim| claim.at),
            claim.as_ref().and_then(|claim| claim.hashes.grants.as_ref()),
            claim.as_ref().and_then(|claim| claim.hashes.context.as_ref()), launch.retry_of, &launch.run_on,
        ];

    /// Opens queued launches in the name of `host`.
    pub async fn release(host: HostId, launches: &[LaunchId], now: Timestamp) -> () = execute_batch
        Batch::of_launches(RowLocks::InOrder, "UPDATE launch SET status = 'open', opened_at = v.column2, decided_by = v.column3
        FROM (VALUES ($1, $2, $3)) AS v WHERE launch.id = v.column1 AND (launch.status = 'queued') IS TRUE"),
        launches, |launch| [*launch, now, host];

    /// Claims launches that are open or whose retry is due, with a lease of `host` until `lease_until`.
    pub async fn claim(host: HostId, claims: &[Claim], now: Timestamp, lease_until: Timestamp) -> () = execute_batch
        Batch::of_launches(RowLocks::Held, "UPDATE launch SET status = 'running', host_id = v.column2, attempts = v.column3, lease_until = v.column4, retry_at = NULL, not_before = NULL,
            started_at = coalesce(launch.started_at, v.column5), grants_hash = v.column6, context_hash = v.column7
        FROM (VALUES ($1, $2, $3, $4, $5, $6, $7)) AS v
        WHERE launch.id = v.column1 AND (launch.status IN ('open', 'waiting') AND launch.attempts = v.column3 - 1) IS TRUE"),
        claims, |claim| [claim.launch_id, host, claim.fence, lease_until, now, &claim.hashes.grants, &claim.hashes.context];

    /// Undoes claims of `host` without a call, returning their launches: they're open again, or waiting for their retry, as before.
    /// The fence stays used up.
    // Launches asked to end are left to recovery, which ends them.
    pub async fn hand_back(host: HostId, claims: &[UncalledClaim], now: Timestamp) -> Vec<LaunchId> = values_batch
        Batch::of_launches(RowLocks::SkipLocked, "UPDATE launch SET status = v.column4, decided_by = CASE WHEN v.column4 = 'open' THEN v.column3 ELSE decided_by END,
            retry_at = v.column5, not_before = v.column7, lease_until = NULL, host_id = CASE WHEN v.column4 = 'waiting' THEN host_id END,
            started_at = CASE WHEN v.column4 = 'waiting' THEN started_at END, grants_hash = CASE WHEN v.column4 = 'waiting' THEN grants_hash END,
            context_hash = CASE WHEN v.column4 = 'waiting' THEN context_hash END
        FROM (VALUES ($1, $2, $3, $4, $5, $6, $7)) AS v
        WHERE launch.id = v.column1 AND (launch.attempts = v.column2 AND launch.host_id = v.column3 AND launch.status = 'running'
            AND launch.cancel_deadline IS NULL AND (v.column6 IS NULL OR launch.lease_until = v.column6)) IS TRUE
        RETURNING launch.id"),
        claims, |claim| [
            claim.launch_id, claim.fence, host, claim.status(), claim.retry_at(now), claim.lease_until,
            claim.not_before.filter(|_| claim.begins_run),
        ];

    /// Ends the runs whose fence is current, returning their launches with these fences.
    // A launch that an operator asked to end already has its reason and message. It keeps them even when its run ends to be
    // retried: recovery ends it then.
    pub(super) async fn finish_current(finishes: &[Finish]) -> Vec<(LaunchId, i64)> = rows_batch
        Batch::of_launches(RowLocks::InOrder, "UPDATE launch SET status = v.column3, finished_at = v.column4, retry_at = v.column5, failure = v.column6,
            message = CASE WHEN v.column3 = 'cancelled' THEN coalesce(launch.message || '; ', '') || v.column7
                WHEN v.column3 = 'waiting' AND launch.cancel_deadline IS NOT NULL THEN launch.message ELSE v.column7 END,
            reason = CASE WHEN v.column3 = 'cancelled' THEN coalesce(launch.reason, v.column8)
                WHEN v.column3 = 'waiting' AND launch.cancel_deadline IS NOT NULL THEN launch.reason ELSE v.column8 END, lease_until = NULL
        FROM (VALUES ($1, $2, $3, $4, $5, $6, $7, $8)) AS v
        WHERE launch.id = v.column1 AND (launch.attempts = v.column2 AND launch.status = 'running') IS TRUE RETURNING launch.id, launch.attempts"),
        finishes, |finish| [
            finish.run_id.launch(), finish.fence, finish.end.status(), finish.finished_at(), finish.end.retry_at(),
            finish.end.failure().0, finish.end.failure().1, finish.end.reason(),
        ];

    /// Reopens launches in the name of `host`.
    // A single statement reopens the launch and counts both the recovery and the lost run. Run numbers fit in one byte, so a launch
    // without a run leaves most of them to runs. A launch only has a pause while it has no run, and keeps it.
    pub(super) async fn reopen(host: HostId, again: &[&RecoveryDecision], now: Timestamp) -> () = execute_batch
        Batch::of_launches(RowLocks::Held, "UPDATE launch SET status = 'open', recovered_at = v.column2, decided_by = v.column3,
            not_before = coalesce(v.column4, launch.not_before),
            recoveries = CASE WHEN recoveries < 100 OR host_id IS NOT NULL THEN recoveries + 1 ELSE recoveries END,
            lost_runs = CASE WHEN host_id IS NULL THEN lost_runs WHEN started_at <= v.column5 THEN 0 ELSE lost_runs + 1 END, host_id = NULL,
            lease_until = NULL, retry_at = NULL, cancel_deadline = NULL, started_at = NULL, grants_hash = NULL, context_hash = NULL
        FROM (VALUES ($1, $2, $3, $4, $5)) AS v
        WHERE launch.id = v.column1 AND (launch.status IN ('open', 'running', 'waiting')) IS TRUE"),
        again, |decision| [decision.launch_id, now, host, decision.not_before, now.minus(LOSS_COUNTS_WITHIN)];

    /// Abandons every unfinished launch that isn't queued, for `reason`, returning how many. No host may serve.
    pub async fn abandon_all(reason: &'static str, message: &str, now: Timestamp) -> u64 = execute
        update_launches!("status = 'abandoned', reason = $1, message = $2, finished_at = $3, failure = 'lost', lease_until = NULL, retry_at = NULL",
        "status IN ('open', 'running', 'waiting')");

    /// Skips every queued launch, for `reason`, returning how many. No host may serve.
    pub async fn skip_all_queued(reason: &'static str, now: Timestamp) -> u64 = execute
        update_launches!("status = 'skipped', reason = $1, finished_at = $2", "status = 'queued'");

    /// Skips a schedule's launches still queued or never claimed, for `reason`.
    pub async fn withdraw(schedule: ScheduleId, reason: &'static str, now: Timestamp) -> () = run
        update_launches!("status = 'skipped', reason = $2, finished_at = $3",
        "schedule_id = $1 AND (status = 'queued' OR (status = 'open' AND attempts = 0))");

    /// Skips a backfill's launches still queued or never claimed, returning how many. Started launches continue.
    pub async fn withdraw_backfill(backfill: BackfillId, now: Timestamp) -> u64 = execute
        update_launches!("status = 'skipped', reason = 'cancelled', finished_at = $2",
        "backfill_id = $1 AND (status = 'queued' OR (status = 'open' AND attempts = 0))");

    /// Ends a launch that isn't running, returning its status. `None` if it is running or has ended.
    pub async fn end(launch: LaunchId, message: &str, now: Timestamp) -> Option<LaunchStatus> = value
        "UPDATE launch SET reason = $2, message = $3, finished_at = $4, lease_until = NULL, retry_at = NULL,
            status = CASE WHEN attempts = 0 THEN 'skipped' ELSE 'cancelled' END,
            failure = CASE WHEN attempts = 0 THEN NULL ELSE 'cancelled' END
        WHERE id = $1 AND status IN ('open', 'queued', 'waiting') RETURNING status"
        => [launch, OPERATOR, message, now];
}

/// Inserts decisions. A slot that already has a decision keeps it.
pub async fn insert(tx: &mut Tx, launches: &[NewLaunch]) -> Result {
    let unclaimed: Vec<_> = launches.iter().map(|launch| (launch, None)).collect();
    insert_claimed(tx, &unclaimed).await?;
    Ok(())
}

/// Inserts decisions, some claimed in the same moment, returning the launches inserted.
///
/// A slot that already has a decision keeps it: its launch must not run for the claim given here.
pub async fn insert_claimed(
    tx: &mut Tx,
    launches: &[(&NewLaunch, Option<NewClaim>)],
) -> Result<HashSet<LaunchId>> {
    Ok(insert_new(tx, launches).await?.into_iter().collect())
}
