//! Start the runs that this host has claimed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::alive::lease_table::{ClaimsInDoubt, Lease, held_until};
use crate::claim::capacity::Permit;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::spec::Spec;
use crate::run::Executor;
use crate::run::kept_of_run::KeptOfRun;
use crate::run::work::Work;
use crate::tell::log_spans;
use campanile_model::clock::{Monotonic, Timestamp};
use campanile_package::Package;
use campanile_schedule::policy::Delivery;
use campanile_store::LaunchStatus;
use campanile_store::launch::{ClaimedLaunch, Finish, RunEnd};

/// How long a launch pauses after this host failed to begin its run. Then another host may claim it.
const FAULT_PAUSE: Duration = Duration::from_secs(60);

/// A run's end, for [`record_ends`](crate::run::finish::record_ends).
pub(crate) struct Ended {
    pub(crate) finish: Finish,
    /// The run's permit, kept while too many ends are unrecorded.
    pub(crate) permit: Option<Permit>,
    pub(crate) kept: KeptOfRun,
}

/// What executes claimed runs, for the services that claim them.
#[derive(Clone)]
pub(crate) struct Starter {
    pub(crate) executor: Arc<Executor>,
    /// Leads to [`record_ends`](crate::run::finish::record_ends).
    pub(crate) ended: mpsc::UnboundedSender<Ended>,
}

impl Starter {
    /// Spawns a tokio task that executes one run, so that a panic ends only this run.
    pub(crate) fn start(&self, ctx: &SharedCtx, mut work: Work) {
        let ctx = Arc::clone(ctx);
        let stop = ctx.leases.track(work.lease);
        if stop.is_dropped() {
            // The commit's reply came after the lease ended.
            ctx.leases.untrack(work.run_id(), work.fence());
            ctx.wake.lease_keeper.notify_one();
            return ctx.capacity.release([work.permit], ctx.clock.now());
        }
        if ctx.db.url().is_shared() && ctx.begun.note(work.run_id(), work.fence()) {
            work.repeated_at = Some(ctx.clock.now());
        }
        if work.repeated_at.is_some() && work.spec.policies.delivery() == Delivery::AtMostOnce {
            // The lease expires, and recovery marks the launch as unknown.
            ctx.leases.begin_call(work.run_id(), work.fence());
            ctx.leases.untrack(work.run_id(), work.fence());
            return ctx.capacity.release([work.permit], ctx.clock.now());
        }
        let executor = Arc::clone(&self.executor);
        let ended = self.ended.clone();
        let launch = &work.launch;
        let is_first = launch.attempts == 0 && launch.recoveries == 0;
        ctx.metrics
            .count_claim(launch.kind, is_first, launch.fire_time, ctx.clock.now());
        let span = log_spans::run(Some(&work.spec.definition.name), work.run_id());
        let execution = async move {
            let begun = Instant::now();
            tracing::debug!(package = %work.launch.package, fence = work.fence(), "executing the run");
            let executed = AssertUnwindSafe(executor.execute(&work, &stop)).catch_unwind();
            match executed.await {
                Ok(Some((finish, kept))) => {
                    ctx.metrics.observe_run(begun.elapsed());
                    tracing::debug!(status = %ended_as(&finish.end), "the run has ended");
                    let mut permit = Some(work.permit);
                    if ctx.unrecorded.add() {
                        ctx.capacity.release(permit.take(), ctx.clock.now());
                    }
                    // Sending cannot fail: `record_ends` runs until the last sender is gone.
                    return drop(ended.send(Ended {
                        finish,
                        permit,
                        kept,
                    }));
                }
                Ok(None) => {
                    let not_before = ctx.clock.now().plus(FAULT_PAUSE);
                    ctx.leases.give_up(work.run_id(), work.fence(), not_before);
                    ctx.wake.lease_keeper.notify_one();
                }
                // The lease expires, and recovery takes the run.
                Err(_) => {
                    tracing::error!("a bug in Campanile: the execution of the run panicked");
                }
            }
            ctx.leases.untrack(work.run_id(), work.fence());
            ctx.capacity.release([work.permit], ctx.clock.now());
        };
        tokio::spawn(execution.instrument(span));
    }
}

/// Returns the status of a launch whose run has ended like this.
fn ended_as(end: &RunEnd) -> &'static str {
    let status = match end {
        RunEnd::Succeeded { .. } => LaunchStatus::Succeeded,
        RunEnd::Failed { .. } => LaunchStatus::Failed,
        RunEnd::Cancelled { .. } => LaunchStatus::Cancelled,
        RunEnd::Waiting { .. } => LaunchStatus::Waiting,
    };
    status.as_str()
}

/// The leases of the claims of one transaction. They count from before it begins.
pub(crate) struct Claiming {
    pub(crate) until: Timestamp,
    held_until: Monotonic,
}

impl Claiming {
    pub(crate) fn begin(ctx: &Ctx, now: Timestamp) -> Claiming {
        Claiming {
            until: now.plus(ctx.settings.lease),
            held_until: held_until(ctx.clock.monotonic_at(now), ctx.settings.lease),
        }
    }

    /// Keeps the claims of `work` until they're known to be recorded.
    pub(crate) fn in_doubt<'c>(&self, ctx: &'c Ctx, work: &[Work]) -> ClaimsInDoubt<'c> {
        let leases = work.iter().map(|work| work.lease);
        ctx.leases.in_doubt(leases, self.until)
    }

    /// Returns what executes a launch when its claim is committed.
    pub(crate) fn work(
        &self,
        launch: ClaimedLaunch,
        spec: Arc<Spec>,
        package: Option<Arc<Package>>,
        permit: Permit,
    ) -> Work {
        Work {
            lease: Lease {
                run: launch.run_id(),
                fence: launch.fence(),
                begins_run: launch.begins_run,
                until: self.held_until,
            },
            user: spec.user_context(package.as_ref(), launch.context.as_deref()),
            launch,
            spec,
            package,
            permit,
            repeated_at: None,
        }
    }
}
