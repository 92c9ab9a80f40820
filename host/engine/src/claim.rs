//! Transaction 2, the claim: open launches and due retries become runs with a lease of this host.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::capacity::Permit;
use crate::choose::{Chosen, choose, quota};
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::lease_table::Lease;
use crate::release::release;
use crate::run::Executor;
use crate::service::{Next, Service};
use crate::spec::Spec;
use crate::work::{Work, stored_json};
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_package::Package;
use campanile_store::claims::{self, ClaimedLaunch, ClaimedRun, NewRun};
use campanile_store::runs::{self, Finish};

/// The longest sleep of the dispatcher. A launch that another host opens does not wake this host.
const DISPATCH_INTERVAL: Duration = Duration::from_millis(500);

/// The end of a run, and its permit, which `record_ends` releases after it has recorded the end.
pub(crate) type Ended = (Finish, Permit);

/// The service that claims launches while there is capacity, and spawns their runs.
pub(crate) struct Dispatcher {
    pub(crate) executor: Arc<Executor>,
    /// Leads to [`record_ends`](crate::finish::record_ends).
    pub(crate) ended: mpsc::UnboundedSender<Ended>,
}

impl Service for Dispatcher {
    const STEP: &'static str = "claiming launches";

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        if ctx.clock_skewed.load(Ordering::Relaxed) {
            return Ok(Next::After(DISPATCH_INTERVAL));
        }
        if let Err(error) = release(ctx, now).await {
            ctx.trouble.report("releasing queued launches", &error);
        }
        let claimed = claim(ctx, now).await?;
        if !claimed.runs.is_empty() {
            ctx.trouble.end();
        }
        let is_all = claimed.runs.is_empty() || claimed.is_all;
        for work in claimed.runs {
            self.spawn_run(ctx, work);
        }
        if !is_all {
            return Ok(Next::AtOnce);
        }
        let next = until_next_launch(ctx, now).await;
        Ok(Next::After(
            claimed.wait.map_or(next, |wait| wait.min(next)),
        ))
    }

    async fn woken(&mut self, ctx: &Ctx) {
        ctx.wake.dispatcher.notified().await;
    }
}

impl Dispatcher {
    /// Spawn a tokio task that executes one run, so that a panic ends only this run.
    fn spawn_run(&self, ctx: &SharedCtx, work: Work) {
        let quota = quota(ctx, work.package.as_deref());
        let launch = &work.launch;
        let permit =
            ctx.capacity
                .acquire(&launch.package, &quota, launch.proposed, ctx.clock.now());
        let Some(permit) = permit else {
            // Only this service takes permits, and it claims no more runs than are free. If a bug breaks that, the
            // lease expires and recovery takes the run.
            tracing::error!(run = %work.run_id, "a bug in Campanile: claimed beyond the host's capacity");
            return;
        };
        let ctx = Arc::clone(ctx);
        let executor = Arc::clone(&self.executor);
        let ended = self.ended.clone();
        let stop = ctx.leases.track(work.lease);
        tokio::spawn(async move {
            let executed = AssertUnwindSafe(executor.execute(&work, &stop)).catch_unwind();
            match executed.await {
                // Sending cannot fail: `record_ends` runs until the last sender is gone.
                Ok(Some(finish)) => return drop(ended.send((finish, permit))),
                Ok(None) => {}
                // The lease expires, and recovery takes the run.
                Err(_) => {
                    tracing::error!(run = %work.run_id, "a bug in Campanile: the execution of the run panicked");
                }
            }
            ctx.leases.untrack(work.run_id, work.fence);
            ctx.capacity.release([permit], ctx.clock.now());
        });
    }
}

/// Return how long to sleep after `now`: until the next fire time or retry on record, at most [`DISPATCH_INTERVAL`].
async fn until_next_launch(ctx: &Ctx, now: Timestamp) -> Duration {
    match next_launch(ctx, now).await {
        Ok(Some(next)) => next.since(ctx.clock.now()).min(DISPATCH_INTERVAL),
        _ => DISPATCH_INTERVAL,
    }
}

async fn next_launch(ctx: &Ctx, now: Timestamp) -> Result<Option<Timestamp>> {
    let mut tx = ctx.db.read().await?;
    let next = claims::next_wake(&mut tx, now).await?;
    if ctx.settings.groups.is_empty() {
        return Ok(next);
    }
    let of_groups = claims::next_wake_of_groups(&mut tx, now).await?;
    Ok(next.into_iter().chain(of_groups).min())
}

/// What one transaction claimed.
#[derive(Default)]
pub(crate) struct Claimed {
    pub(crate) runs: Vec<Work>,
    /// Whether no more can be claimed until a run ends or another launch is due.
    is_all: bool,
    /// When to try again because a package has begun too many launches in this second.
    wait: Option<Duration>,
}

/// Claim due retries and open launches, as many as there is capacity for.
///
/// A crash after the commit leaves runs with a lease that nothing renews: they expire, and recovery finds them.
pub(crate) async fn claim(ctx: &Ctx, now: Timestamp) -> Result<Claimed> {
    let free = ctx.capacity.free();
    if free == 0 {
        return Ok(Claimed::default());
    }
    let lease_until = now.plus(ctx.settings.lease);
    let until_monotonic = Instant::now() + ctx.settings.lease;
    let mut tx = ctx.db.write().await?;
    // Read the packages before the rows. A removal changes the database first, so a package of a claimable launch is
    // still in this list.
    let packages = ctx.packages.all();
    let Chosen {
        retries,
        open,
        is_short,
        is_all,
        wait,
    } = choose(ctx, &mut tx, free, now).await?;
    if is_short {
        ctx.capacity.note_full(now);
    }
    if retries.is_empty() && open.is_empty() {
        return Ok(Claimed {
            runs: Vec::new(),
            is_all,
            wait,
        });
    }
    claims::resume(&mut tx, ctx.host, &retries, lease_until).await?;
    let retry_count = retries.len();
    let new_runs = open.into_iter().map(|launch| ClaimedRun {
        run_id: RunId::new(now),
        fence: claims::FIRST_FENCE,
        is_recovery: launch.recoveries > 0,
        launch,
    });
    let claimed: Vec<ClaimedRun> = retries.into_iter().chain(new_runs).collect();
    let launches = claimed.iter().map(|run| &run.launch);
    let revisions = launches.map(|launch| (launch.schedule_id, launch.schedule_revision));
    let specs = ctx.specs.get_all(&mut tx, revisions).await?;
    let claimed_runs = claimed.into_iter().zip(specs).map(|(run, spec)| {
        let package = packages.get(&run.launch.package).cloned();
        Work {
            lease: Lease {
                run: run.run_id,
                fence: run.fence,
                until: lease_until,
                until_monotonic,
            },
            user: user_keys(package.as_deref(), &spec, &run.launch),
            run,
            spec,
            package,
        }
    });
    let claimed_runs: Vec<Work> = claimed_runs.collect();
    let (retries, new_runs) = claimed_runs.split_at(retry_count);
    let hashes = retries.iter().map(|work| (work.run_id, work.hashes()));
    runs::set_run_hashes(&mut tx, &hashes.collect::<Vec<_>>()).await?;
    let new_runs: Vec<NewRun> = new_runs.iter().map(Work::to_begin).collect();
    claims::start(&mut tx, ctx.host, &new_runs, now, lease_until).await?;
    tx.commit().await?;
    crash::point("after_claim_commit");
    Ok(Claimed {
        runs: claimed_runs,
        is_all,
        wait,
    })
}

/// Return the user's keys: the schedule's override the sidecar's, and the trigger's override both.
///
/// The sidecar's keys are those of now; the schedule's are those of the revision that decided the launch.
fn user_keys(package: Option<&Package>, spec: &Spec, launch: &ClaimedLaunch) -> Map<String, Value> {
    let mut context = package.map_or_else(Map::new, |package| package.sidecar.context.clone());
    context.extend(spec.context.clone());
    let trigger: Option<Map<String, Value>> = stored_json(launch.context.as_deref());
    context.extend(trigger.unwrap_or_default());
    context
}
