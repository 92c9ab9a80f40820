//! Transaction 2, the finish: record how runs ended, or that they wait for a retry. It counts only under the run's
//! current fence.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::claim::record_quota;
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::set_next_slots;
use crate::error::{EngineError, Result};
use crate::run::failing;
use crate::run::kept_of_run::KeptOfRun;
use crate::run::starter::Ended;
use crate::service::RETRY_PAUSE;
use crate::tell::alerts::ping_queue::RunPing;
use crate::tell::alerts::pings;
use crate::tell::log_spans;
use crate::tell::metrics::CommitOf;
use crate::tell::traces;
use campanile_model::ids::RunId;
use campanile_store::Tx;
use campanile_store::launch::{self, Finish, RunEnd};

/// Step name for log lines about failures.
const STEP: &str = "recording ends of runs";

/// Late ends named in one log line, at most.
const LATE_NAMED_MAX: usize = 8;

/// Records how runs ended, all that ended since the last commit in one commit.
///
/// The loop ends when the dispatcher and all its runs have dropped their senders, after the host has drained.
pub(crate) async fn record_ends(ctx: SharedCtx, mut ends: mpsc::UnboundedReceiver<Ended>) {
    let mut batch: Vec<Ended> = Vec::new();
    let size = &ctx.batch_sizes.ends;
    while ends.recv_many(&mut batch, size.rows()).await > 0 {
        ctx.unrecorded.let_decisions_go_first().await;
        let tx = ctx.db.write().await.map_err(EngineError::from);
        // While the transaction waited for its turn, more runs have ended.
        while batch.len() < size.rows()
            && let Ok(ended) = ends.try_recv()
        {
            batch.push(ended);
        }
        // Sorted by id, as in every transaction, so that two transactions cannot deadlock.
        batch.sort_unstable_by_key(|ended| ended.finish.run_id);
        // Other launches may take the permits while the ends are recorded.
        let permits = batch.iter_mut().filter_map(|ended| ended.permit.take());
        ctx.capacity.release(permits, ctx.clock.now());
        let ends = batch.drain(..).map(|ended| (ended.finish, ended.kept));
        let (finishes, kept): (Vec<Finish>, Vec<KeptOfRun>) = ends.unzip();
        let span = log_spans::tick(STEP, &ctx.name);
        finish_until_recorded(&ctx, Some(tx), &finishes)
            .instrument(span)
            .await;
        drop(kept);
        for finish in &finishes {
            ctx.leases.untrack(finish.run_id, finish.fence);
        }
        ctx.unrecorded.remove(finishes.len());
        // A freed permit matters to launches that had none, and to those of a group.
        if ctx.capacity.is_short.load(Ordering::Relaxed) || !ctx.settings.groups.is_empty() {
            ctx.wake.dispatcher.notify_one();
        }
    }
}

/// Records ends, however long the database is away. The first try is in the transaction that has begun, if one has.
async fn finish_until_recorded(ctx: &Ctx, mut begun: Option<Result<Tx>>, finishes: &[Finish]) {
    loop {
        let tx = match begun.take() {
            Some(tx) => tx,
            None => ctx.db.write().await.map_err(EngineError::from),
        };
        let recorded = match tx {
            Ok(tx) => finish_in(ctx, tx, finishes).await,
            Err(error) => Err(error),
        };
        match recorded {
            Ok(_) => return ctx.trouble.end(STEP),
            Err(error) if error.may_pass() => {
                ctx.trouble.report(STEP, &error);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => match finishes {
                // Trying again would fail again. The lease expires, and recovery takes the run.
                [one] => {
                    log_spans::run(None, one.run_id).in_scope(
                        || tracing::error!(%error, "the end of the run could not be recorded"),
                    );
                    return;
                }
                // One row makes the batch fail. Halve the batch until that row is alone.
                all => {
                    let (first, second) = all.split_at(all.len() / 2);
                    Box::pin(finish_until_recorded(ctx, None, first)).await;
                    return Box::pin(finish_until_recorded(ctx, None, second)).await;
                }
            },
        }
    }
}

/// Records ends in one commit. Returns how many of the runs were still this host's.
///
/// If this host has lost a run meanwhile, its end is ignored: recovery may have given the launch to another run.
pub(crate) async fn finish(ctx: &Ctx, ends: &[Finish]) -> Result<usize> {
    if ends.is_empty() {
        return Ok(0);
    }
    finish_in(ctx, ctx.db.write().await?, ends).await
}

/// Records ends in `tx`, and commits it.
async fn finish_in(ctx: &Ctx, mut tx: Tx, ends: &[Finish]) -> Result<usize> {
    let begun = Instant::now();
    let won = launch::finish(&mut tx, ends).await?;
    let ended = ends.iter().map(|end| end.schedule_id);
    let counting_from_end = ctx.specs.counting_from_ends(ended);
    // A rule that counts from ends gets its next slot when a run ends.
    set_next_slots(ctx, &mut tx, &counting_from_end, ctx.clock.now()).await?;
    ctx.batch_sizes.ends.adapt(ends.len(), begun.elapsed());
    crash::point("before_finish_commit");
    ctx.commit(tx, CommitOf::Finish).await?;
    crash::point("after_finish_commit");
    record_quota::write(ctx, ctx.clock.now()).await;
    let has_failed = |end: &&Finish| matches!(end.end, RunEnd::Failed { .. });
    let failed = ends.iter().filter(has_failed).map(|end| end.schedule_id);
    failing::pause_failing(ctx, failed.collect(), ctx.clock.now()).await;
    let won: HashSet<RunId> = won.into_iter().collect();
    let is_won = |end: &&Finish| won.contains(&end.run_id);
    if !counting_from_end.is_empty() || ctx.backfill_running.load(Ordering::Relaxed) {
        ctx.wake.scheduler.notify_one();
    }
    ctx.metrics.count_ends(ends.iter().filter(is_won));
    let is_final = |end: &&Finish| !matches!(end.end, RunEnd::Waiting { .. });
    let ended = ends.iter().filter(is_won).filter(is_final);
    traces::note_ended(ctx, ended.map(|end| end.run_id.launch()));
    pings::note(ctx, ends.iter().filter(is_won).filter_map(RunPing::ended));
    let log = &ctx.launch_log;
    log.ended(&ctx.db, ends.iter().filter(is_won)).await;
    if won.len() < ends.len() {
        ctx.metrics.count_lost(ends.len() - won.len());
        let late = ends.iter().filter(|end| !won.contains(&end.run_id));
        let late: Vec<String> = late.map(|end| end.run_id.to_string()).collect();
        let named = late[..late.len().min(LATE_NAMED_MAX)].join(", ");
        tracing::warn!(
            runs = late.len(),
            named,
            "ends of runs are ignored: they're already recorded, or another host has the runs now"
        );
    }
    Ok(won.len())
}
