//! The claim of launches that wait: open launches and due retries become runs with a lease of this host.

pub(crate) mod capacity;
pub(crate) mod choose;
pub(crate) mod claim_gate;
pub(crate) mod record_quota;
pub(crate) mod record_use;
pub(crate) mod shares;
pub(crate) mod unrecorded;

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::claim::choose::{Chosen, choose};
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::release::release;
use crate::error::Result;
use crate::run::starter::{Claiming, Starter};
use crate::run::work::Work;
use crate::service::{Next, Service};
use crate::tell::metrics::CommitOf;
use campanile_model::clock::Timestamp;
use campanile_store::launch::{self, Claim};

/// The longest sleep of the dispatcher. A launch that another host opens does not wake this host.
const DISPATCH_INTERVAL: Duration = Duration::from_millis(500);

/// The service that claims launches while there is capacity.
pub(crate) struct Dispatcher {
    pub(crate) starter: Starter,
}

impl Service for Dispatcher {
    const STEP: &'static str = "claiming launches";

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        if ctx.begins_nothing() {
            return Ok(Next::After(DISPATCH_INTERVAL));
        }
        let released = release(ctx, now).await;
        ctx.trouble.note("releasing queued launches", &released);
        let claimed = claim(ctx, now).await?;
        let took_all = claimed.runs.is_empty() || claimed.took_all;
        for work in claimed.runs {
            self.starter.start(ctx, work);
        }
        if !took_all {
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

/// Returns how long to sleep after `now`: until the next fire time or retry on record, at most [`DISPATCH_INTERVAL`].
async fn until_next_launch(ctx: &Ctx, now: Timestamp) -> Duration {
    match next_launch(ctx, now).await {
        Ok(Some(next)) => next.since(ctx.clock.now()).min(DISPATCH_INTERVAL),
        _ => DISPATCH_INTERVAL,
    }
}

async fn next_launch(ctx: &Ctx, now: Timestamp) -> Result<Option<Timestamp>> {
    let mut tx = ctx.db.read().await?;
    let next = launch::next_wake(&mut tx, now).await?;
    if ctx.settings.groups.is_empty() {
        return Ok(next);
    }
    let of_groups = launch::next_wake_of_groups(&mut tx, now).await?;
    Ok(next.into_iter().chain(of_groups).min())
}

/// What one transaction claimed.
#[derive(Default)]
pub(crate) struct Claimed {
    pub(crate) runs: Vec<Work>,
    /// Whether it took all that this host may have until a run ends or another launch is due.
    took_all: bool,
    /// When to try again because a package has begun too many launches in this second.
    wait: Option<Duration>,
}

/// Claim due retries and open launches, as many as there is capacity for.
///
/// A crash after the commit leaves runs with a lease that nothing renews: they expire, and recovery finds them.
pub(crate) async fn claim(ctx: &Ctx, now: Timestamp) -> Result<Claimed> {
    let free = ctx.capacity.free();
    if free == 0 {
        // Launches may wait. The end of a run wakes the dispatcher, which looks.
        ctx.capacity.is_short.store(true, Ordering::Relaxed);
        return Ok(Claimed::default());
    }
    let Some(_entered) = ctx.claim_gate.enter().await else {
        // A launch that waits while this host is drained is not lost.
        ctx.capacity.note_full(now);
        return Ok(Claimed::default());
    };
    let claiming = Claiming::begin(ctx, now);
    let mut tx = ctx.db.write().await?;
    // Read the packages before the rows. A removal changes the database first, so a package of a claimable launch is
    // still in this list.
    let packages = ctx.packages.all();
    let Chosen {
        launches,
        is_short,
        took_all,
        wait,
        ..
    } = choose(ctx, &mut tx, free, now).await?;
    if is_short {
        ctx.capacity.note_full(now);
    }
    if launches.is_empty() {
        // It may hold a group's lock, and the next claim won't wait for that.
        tx.abandon().await?;
        return Ok(Claimed {
            runs: Vec::new(),
            took_all,
            wait,
        });
    }
    let revisions = launches
        .iter()
        .map(|(launch, _)| (launch.schedule_id, launch.schedule_revision));
    let specs = ctx.specs.get_all(&mut tx, revisions).await?;
    let work = launches.into_iter().zip(specs);
    let work = work.map(|((launch, permit), spec)| {
        let package = packages.get(&launch.package).cloned();
        claiming.work(launch, spec, package, permit)
    });
    let work: Vec<Work> = work.collect();
    let claimed: Vec<Claim> = work.iter().map(Work::claim).collect();
    launch::claim(&mut tx, ctx.host, &claimed, now, claiming.until).await?;
    let doubt = claiming.in_doubt(ctx, &work);
    crash::point("before_claim_commit");
    ctx.commit(tx, CommitOf::Claim).await?;
    doubt.settle();
    crash::point("after_claim_commit");
    Ok(Claimed {
        runs: work,
        took_all,
        wait,
    })
}
