//! Recovery: dead hosts are marked, and orphaned launches are run again or ended with a reason.

pub(crate) mod begun_runs;
pub(crate) mod record_loss;
pub(crate) mod uncalled;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::set_next_slots;
use crate::error::Result;
use crate::run::failing::pause_failing;
use crate::service::{Next, RETRY_PAUSE, Service};
use crate::tell::traces;
use campanile_control::rules::recovery_rules::{
    is_left_to_its_host, recovery_action, run_again_text,
};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId};
use campanile_model::text::counted;
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::launch::{self, OrphanedLaunch, RecoveryAction, RecoveryDecision};
use campanile_store::{Tx, hosts, packages, schedules};

/// How long after the end of a lease recovery looks. The end itself belongs to the lease.
const AFTER_LEASE: Duration = Duration::from_millis(5);

/// Orphaned launches recovered in one transaction at most. The rest follows in the next.
const ORPHANS_MAX: i64 = 512;

/// What one recovery did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Launches that are open again.
    pub reopened: usize,
    /// Launches that ended: abandoned, unknown or cancelled.
    pub ended: usize,
    /// Whether there are more orphaned launches than one transaction recovers.
    pub more: bool,
}

/// What to report of a recovery once it's committed.
#[derive(Default)]
struct RecoveryNews {
    /// One event for each recovered launch.
    events: Vec<NewEvent>,
    /// Launches that ended.
    ended: Vec<LaunchId>,
}

/// The service that recovers what dead hosts have left.
pub(crate) struct Recovery;

impl Service for Recovery {
    const STEP: &'static str = "recovering";

    fn first(ctx: &Ctx) -> Next {
        Next::After(ctx.settings.recovery_interval)
    }

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        let recovered = recover(ctx, now).await?;
        if recovered.reopened > 0 {
            ctx.wake.dispatcher.notify_one();
        }
        if recovered.more {
            Ok(Next::AtOnce)
        } else {
            Ok(Next::After(until_next(ctx).await?))
        }
    }
}

/// Returns how long to wait for the next recovery: until the lease of another host ends, at most the interval.
///
/// A host that renews in time moves that end, and this host only looks again.
async fn until_next(ctx: &Ctx) -> Result<Duration> {
    let interval = ctx.settings.recovery_interval;
    if !ctx.db.url().is_shared() {
        return Ok(interval);
    }
    let end = hosts::next_lease_end(&mut ctx.db.read().await?, ctx.host).await?;
    // A lease that has ended already, and whose host this one may not mark as dead, ends the wait later.
    let until = |end: Timestamp| end.since(ctx.clock.now()) + AFTER_LEASE;
    Ok(end.map_or(interval, |end| until(end).max(RETRY_PAUSE).min(interval)))
}

/// Marks silent hosts as dead, and recovers orphaned launches.
pub(crate) async fn recover(ctx: &Ctx, now: Timestamp) -> Result<Recovered> {
    if !ctx.may_recover() {
        return Ok(Recovered::default());
    }
    let limits = &ctx.settings.recovery;
    // A launch that waits for capacity is late, not lost: only capacity that was free for the whole threshold counts.
    let unclaimed_since = if ctx.capacity.is_free_for(limits.lost_threshold, now) {
        now.minus(limits.lost_threshold)
    } else {
        Timestamp::EPOCH
    };
    let mut reader = ctx.db.read_long().await?;
    let orphaned = launch::has_orphaned_launches(&mut reader, ctx.host, unclaimed_since);
    let mut has_launches = orphaned.await?;
    drop(reader);
    let mut tx = ctx.db.write().await?;
    let handed_back = uncalled::hand_back(ctx, &mut tx, now).await?;
    if may_declare_dead(ctx, &mut tx, now).await? {
        let dead = hosts::mark_silent_dead(&mut tx, now).await?;
        for host in &dead {
            tracing::warn!(host = %host.name, "a host died; its runs are recovered");
            let detail = format!("incarnation {} gave no sign of life", host.id);
            events::record(&mut tx, now, EventKind::HostDied, &host.name, &detail).await?;
        }
        if !dead.is_empty() {
            has_launches = true;
            forget_packages(&mut tx, now).await?;
        }
    }
    let retry_before = now.minus(limits.age_max);
    let mut runs = launch::orphaned_runs(&mut tx, now, retry_before, ORPHANS_MAX).await?;
    let launches = if has_launches {
        launch::orphaned_launches(&mut tx, ctx.host, unclaimed_since, ORPHANS_MAX).await?
    } else {
        Vec::new()
    };
    let more = runs.len().max(launches.len()) as i64 == ORPHANS_MAX;
    let reachable_since = ctx.heartbeats.since();
    runs.retain(|orphan| !is_left_to_its_host(orphan, ctx.host, reachable_since, now));

    let orphans = [runs, launches].concat();
    let (mut done, news) = recover_orphans(ctx, &mut tx, &orphans, now).await?;
    let found = done.reopened + done.ended > 0;
    if found {
        crash::point("before_recover_commit");
    }
    tx.commit().await?;
    handed_back.note(ctx);
    if found {
        crash::point("after_recover_commit");
        ctx.metrics.count_recoveries(&news.events);
        traces::note_ended(ctx, news.ended);
        ctx.launch_log.recovered(&news.events);
        tracing::warn!(again = done.reopened, ended = done.ended, "recovery");
    }
    let failed = orphans.iter().filter(|_| done.ended > 0);
    let failed = failed.map(|orphan| orphan.schedule_id).collect();
    pause_failing(ctx, failed, now).await;
    done.more = more && found;
    Ok(done)
}

/// Whether a host whose lease has ended in the database is dead. After the loss of commits, its heartbeats may be among those
/// that are lost.
async fn may_declare_dead(ctx: &Ctx, tx: &mut Tx, now: Timestamp) -> Result<bool> {
    if !ctx.heartbeats.may_declare_dead(now, ctx.settings.lease) {
        return Ok(false);
    }
    let is_current = record_loss::own_row(ctx, tx).await?.is_current();
    if !is_current {
        // The renewal records what is missing of this host.
        ctx.wake.lease_keeper.notify_one();
    }
    Ok(is_current)
}

/// Open orphaned launches again or end them, with an event for each. Return also the events, and the launches that ended.
async fn recover_orphans(
    ctx: &Ctx,
    tx: &mut Tx,
    orphans: &[OrphanedLaunch],
    now: Timestamp,
) -> Result<(Recovered, RecoveryNews)> {
    let limits = &ctx.settings.recovery;
    let mut done = Recovered::default();
    let mut by_cause: BTreeMap<&str, Vec<RecoveryDecision>> = BTreeMap::new();
    let mut news = RecoveryNews::default();
    let revision = |orphan: &OrphanedLaunch| (orphan.schedule_id, orphan.schedule_revision);
    let specs = ctx.specs.get_all(tx, orphans.iter().map(revision)).await?;
    for (orphan, spec) in orphans.iter().zip(&specs) {
        let Some(decision) = recovery_action(orphan, spec.policies.delivery(), limits, now) else {
            continue;
        };
        let (slot, why) = (orphan.scheduled_time, orphan.cause.clause());
        let (kind, detail) = match decision.action {
            RecoveryAction::Abandon(reason) => (
                EventKind::LaunchAbandoned,
                format!("slot {slot} was abandoned: {reason}"),
            ),
            RecoveryAction::MarkUnknown => (
                EventKind::LaunchUnknown,
                format!(
                    "slot {slot} was to be run at most once and its run was lost: {why}; look whether it did its work"
                ),
            ),
            RecoveryAction::Cancel => (
                EventKind::LaunchCancelled,
                format!("slot {slot} was asked to end, and then its run was lost: {why}"),
            ),
            RecoveryAction::RunAgain => (
                EventKind::LaunchRecovered,
                run_again_text(orphan, &decision, limits.attempts_max, now),
            ),
        };
        let (schedule, launch) = (&orphan.schedule, orphan.launch_id);
        news.events
            .push(NewEvent::of_launch(kind, schedule, launch, detail));
        match decision.action {
            RecoveryAction::RunAgain => done.reopened += 1,
            _ => news.ended.push(decision.launch_id),
        }
        by_cause.entry(why).or_default().push(decision);
    }
    done.ended = news.ended.len();
    events::record_all(tx, now, &news.events).await?;
    for (why, decisions) in by_cause {
        launch::recover(tx, ctx.host, &decisions, why, now).await?;
    }
    if done.ended > 0 {
        // A schedule whose next slot counts from the end of a launch has one after this end too.
        let schedules = schedules::after_completion(tx).await?;
        set_next_slots(ctx, tx, &schedules.into_iter().collect(), now).await?;
    }
    Ok((done, news))
}

/// Ends this incarnation of the host, recovering the runs `left` that it dropped when it stopped. Returns how many, and records that the
/// host stopped: unless the record says already that it ended, since another process has its name.
pub(crate) async fn hand_back(ctx: &Ctx, left: &[RunId], now: Timestamp) -> Result<usize> {
    let mut tx = ctx.db.write().await?;
    let handed_back = uncalled::hand_back(ctx, &mut tx, now).await?;
    // The host ends first: that makes its runs orphans.
    let has_ended = hosts::end(&mut tx, ctx.host, now).await?;
    let retry_before = now.minus(ctx.settings.recovery.age_max);
    let mut orphans = launch::orphaned_runs(&mut tx, now, retry_before, i64::MAX).await?;
    orphans
        .retain(|orphan| left.contains(&RunId::of(orphan.launch_id, orphan.life.recoveries + 1)));
    let (done, news) = recover_orphans(ctx, &mut tx, &orphans, now).await?;
    if hosts::live(&mut tx).await?.is_empty() {
        // No host decides slots now. The next host scans its folder before it marks packages as missing.
        packages::withdraw_ended(&mut tx).await?;
    } else {
        forget_packages(&mut tx, now).await?;
    }
    let runs = done.reopened + handed_back.runs();
    if has_ended {
        let detail = format!("handed back {}", counted(runs, "run"));
        events::record(&mut tx, now, EventKind::HostStopped, &ctx.name, &detail).await?;
    }
    tx.commit().await?;
    ctx.launch_log.recovered(&news.events);
    traces::note_ended(ctx, news.ended);
    handed_back.note(ctx);
    Ok(runs)
}

/// Forgets which packages ended hosts had in their folders. A package that no live host has is missing.
pub(crate) async fn forget_packages(tx: &mut Tx, now: Timestamp) -> Result {
    packages::withdraw_ended(tx).await?;
    packages::forget_files_of_ended(tx).await?;
    mark_missing(tx, now).await
}

/// Records which packages no live host has any more.
pub(crate) async fn mark_missing(tx: &mut Tx, now: Timestamp) -> Result {
    for package in packages::mark_missing(tx, now).await? {
        tracing::warn!(%package, "no host has the package any more: its schedules stay, their slots are skipped");
        let detail = "no live host has it any more";
        events::record(tx, now, EventKind::PackageMissing, &package, detail).await?;
    }
    Ok(())
}
