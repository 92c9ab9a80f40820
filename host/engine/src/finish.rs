//! Transaction 3, the finish: the ends of runs are recorded, if this host still has the runs.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;

use crate::capacity::Permit;
use crate::claim::Ended;
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::set_next_slots;
use crate::error::Result;
use crate::failing;
use crate::service::RETRY_PAUSE;
use campanile_model::ids::{RunId, ScheduleId};
use campanile_store::runs::{self, Finish, RunEnd};

/// Ends of runs recorded in one commit at most.
const FINISH_BATCH_MAX: usize = 256;

/// Record ends until every sender is gone, as many in one commit as have come meanwhile. It ends after the host has
/// drained.
pub(crate) async fn record_ends(ctx: SharedCtx, mut ends: mpsc::UnboundedReceiver<Ended>) {
    let mut batch: Vec<Ended> = Vec::new();
    while ends.recv_many(&mut batch, FINISH_BATCH_MAX).await > 0 {
        // Every transaction changes these rows in the order of their ids.
        batch.sort_unstable_by_key(|(end, _)| end.run_id);
        let (finishes, permits): (Vec<Finish>, Vec<Permit>) = batch.drain(..).unzip();
        finish_until_recorded(&ctx, &finishes).await;
        for finish in &finishes {
            ctx.leases.untrack(finish.run_id, finish.fence);
        }
        ctx.capacity.release(permits, ctx.clock.now());
        ctx.wake.dispatcher.notify_one();
    }
}

/// Record ends, however long the database is away.
async fn finish_until_recorded(ctx: &Ctx, finishes: &[Finish]) {
    loop {
        match finish(ctx, finishes).await {
            Ok(_) => return ctx.trouble.end(),
            Err(error) if error.may_pass() => {
                ctx.trouble.report("recording ends of runs", &error);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => match finishes {
                // To try it again would fail again. The lease expires, and recovery takes the run.
                [one] => {
                    tracing::error!(run = %one.run_id, "the end of a run could not be recorded: {error}");
                    return;
                }
                // One of them is the cause: the others are recorded without it.
                all => {
                    let (first, second) = all.split_at(all.len() / 2);
                    Box::pin(finish_until_recorded(ctx, first)).await;
                    return Box::pin(finish_until_recorded(ctx, second)).await;
                }
            },
        }
    }
}

/// Record ends in one commit. Return how many of the runs were still this host's.
///
/// The end of a run that was lost meanwhile is not applied: its launch belongs to another run.
pub(crate) async fn finish(ctx: &Ctx, ends: &[Finish]) -> Result<usize> {
    if ends.is_empty() {
        return Ok(0);
    }
    let mut tx = ctx.db.write().await?;
    let won = runs::finish(&mut tx, ends).await?;
    let ended = ends.iter().map(|end| end.schedule_id);
    let counting = ctx.specs.counting_from_ends(ended);
    set_next_slots(ctx, &mut tx, &counting, ctx.clock.now()).await?;
    crash::point("before_finish_commit");
    tx.commit().await?;
    crash::point("after_finish_commit");
    let failed = ends
        .iter()
        .filter(|end| matches!(end.end, RunEnd::Failed { .. }));
    let failed: BTreeSet<ScheduleId> = failed.map(|end| end.schedule_id).collect();
    failing::pause_failing(ctx, failed, ctx.clock.now()).await;
    if !counting.is_empty() || ctx.backfill_running.load(Ordering::Relaxed) {
        ctx.wake.scheduler.notify_one();
    }
    if won.len() < ends.len() {
        let won: HashSet<RunId> = won.iter().copied().collect();
        for late in ends.iter().filter(|end| !won.contains(&end.run_id)) {
            tracing::warn!(run = %late.run_id, launch = %late.launch_id, "this end of the run is not applied: it was recorded already, or the run had been lost meanwhile");
        }
    }
    Ok(won.len())
}
