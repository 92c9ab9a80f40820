//! Recovery: dead hosts are marked, and orphaned launches are run again or ended with a reason.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::set_next_slots;
use crate::error::Result;
use crate::failing::pause_failing;
use crate::record_loss;
use crate::service::{Next, RETRY_PAUSE, Service};
use crate::settings::RecoveryLimits;
use crate::traces;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId};
use campanile_schedule::policy::Delivery;
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::recovery::{
    self, OrphanCause, OrphanedLaunch, RecoveryAction, RecoveryDecision,
};
use campanile_store::{Tx, hosts, packages, schedules};

/// The pauses before a launch is run again whose second, third or later run was lost. The first is not paused: a host that
/// died once is common, and a launch that kills its host, or a host that dies at each start, loses run after run.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

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
        match recovered.more {
            true => Ok(Next::AtOnce),
            false => Ok(Next::After(until_next(ctx).await?)),
        }
    }
}

/// Return how long to wait for the next recovery: until the lease of another host ends, at most the interval.
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

/// Pure: return what becomes of an orphaned launch at `now`. `None` leaves it as it is until something changes.
pub fn recovery_action(
    orphan: &OrphanedLaunch,
    delivery: Delivery,
    limits: &RecoveryLimits,
    now: Timestamp,
) -> Option<RecoveryDecision> {
    let is_too_old = now.since(orphan.claimable_since) > limits.age_max;
    // The task may have done its work, all of it or a part.
    let was_begun = orphan.has_run;
    let action = if was_begun && delivery == Delivery::AtMostOnce {
        RecoveryAction::MarkUnknown
    } else if orphan.cancel_deadline.is_some() {
        RecoveryAction::Cancel
    } else if orphan.deleted_at.is_some() {
        RecoveryAction::Abandon("schedule_deleted")
    } else if !orphan.enabled && !orphan.kind.is_by_hand() {
        // A launch that a person asked for runs while the schedule is paused.
        RecoveryAction::Abandon("schedule_disabled")
    } else if was_begun && orphan.recoveries >= RunId::NUMBER_MAX - 1 {
        // There is no number for another run.
        RecoveryAction::Abandon("recovery_attempts")
    } else if orphan.missing_since.is_some() {
        // The launch is recovered when its package is back within the age limit.
        match is_too_old {
            true => RecoveryAction::Abandon("package_missing"),
            false => RecoveryAction::RunAgain,
        }
    } else if is_too_old {
        RecoveryAction::Abandon("recovery_age")
    } else if was_begun && orphan.lost_runs >= limits.attempts_max {
        // A launch that was never claimed has not run: its recoveries do not count.
        RecoveryAction::Abandon("recovery_attempts")
    } else {
        RecoveryAction::RunAgain
    };
    // A run is lost in any case: its launch opens again. A launch without a run stays open and waits for its package.
    let waits = action == RecoveryAction::RunAgain && orphan.missing_since.is_some() && !was_begun;
    let pause = match action {
        RecoveryAction::RunAgain if was_begun => pause_after_loss(orphan),
        _ => None,
    };
    (!waits).then_some(RecoveryDecision {
        launch_id: orphan.launch_id,
        action,
        not_before: pause.map(|pause| now.plus(pause)),
    })
}

/// Pure: how long a launch pauses whose run was lost. A host that stops in order hands its runs over at once.
fn pause_after_loss(orphan: &OrphanedLaunch) -> Option<Duration> {
    let earlier = usize::try_from(orphan.lost_runs).unwrap_or_default();
    if earlier == 0 || orphan.cause == OrphanCause::HostStopped {
        return None;
    }
    PAUSES.get((earlier - 1).min(PAUSES.len() - 1)).copied()
}

/// Mark silent hosts as dead, and recover orphaned launches.
pub(crate) async fn recover(ctx: &Ctx, now: Timestamp) -> Result<Recovered> {
    if !ctx.may_recover() {
        return Ok(Recovered::default());
    }
    let limits = &ctx.settings.recovery;
    // A launch that waits for capacity is late, not lost: only capacity that was free for the whole threshold counts.
    let unclaimed_since = match ctx.capacity.is_free_for(limits.lost_threshold, now) {
        true => now.minus(limits.lost_threshold),
        false => Timestamp::EPOCH,
    };
    let mut reader = ctx.db.read_long().await?;
    let orphaned = recovery::has_orphaned_launches(&mut reader, ctx.host, unclaimed_since);
    let mut has_launches = orphaned.await?;
    drop(reader);
    let mut tx = ctx.db.write().await?;
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
    let runs = recovery::orphaned_runs(&mut tx, now, retry_before, ORPHANS_MAX).await?;
    let launches = match has_launches {
        true => {
            recovery::orphaned_launches(&mut tx, ctx.host, unclaimed_since, ORPHANS_MAX).await?
        }
        false => Vec::new(),
    };
    let more = runs.len().max(launches.len()) as i64 == ORPHANS_MAX;

    let orphans = [runs, launches].concat();
    let (mut done, news, ended) = recover_orphans(ctx, &mut tx, &orphans, now).await?;
    let found = done.reopened + done.ended > 0;
    if found {
        crash::point("before_recover_commit");
    }
    tx.commit().await?;
    if found {
        crash::point("after_recover_commit");
        ctx.metrics.count_recoveries(&news);
        traces::note_ended(ctx, ended);
        ctx.launch_log.recovered(&news);
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
) -> Result<(Recovered, Vec<NewEvent>, Vec<LaunchId>)> {
    let limits = &ctx.settings.recovery;
    let mut done = Recovered::default();
    let mut by_cause: BTreeMap<&str, Vec<RecoveryDecision>> = BTreeMap::new();
    let (mut news, mut ended) = (Vec::new(), Vec::new());
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
                run_again(orphan, &decision, limits.attempts_max),
            ),
        };
        news.push(NewEvent {
            kind,
            subject: orphan.schedule.clone(),
            detail,
        });
        match decision.action {
            RecoveryAction::RunAgain => done.reopened += 1,
            _ => ended.push(decision.launch_id),
        }
        by_cause.entry(why).or_default().push(decision);
    }
    done.ended = ended.len();
    events::record_all(tx, now, &news).await?;
    for (why, decisions) in by_cause {
        recovery::apply(tx, ctx.host, &decisions, why, now).await?;
    }
    if done.ended > 0 {
        // A schedule whose next slot counts from the end of a launch has one after this end too.
        let schedules = schedules::after_completion(tx).await?;
        set_next_slots(ctx, tx, &schedules.into_iter().collect(), now).await?;
    }
    Ok((done, news, ended))
}

/// Say that a launch is run again, how many of its runs were lost, and when it may be claimed.
fn run_again(orphan: &OrphanedLaunch, decision: &RecoveryDecision, attempts_max: i64) -> String {
    let (slot, why) = (orphan.scheduled_time, orphan.cause.clause());
    let number = match orphan.has_run {
        true => format!("recovery {} of {attempts_max}", orphan.lost_runs + 1),
        false => "it had not begun".to_owned(),
    };
    let pause = decision.not_before.map_or_else(String::new, |not_before| {
        format!(", not before {not_before}")
    });
    format!("slot {slot} is run again{pause}, {number}: {why}")
}

/// End this incarnation of the host, and recover the runs `left` that it dropped when it stopped. Return how many.
pub(crate) async fn hand_back(ctx: &Ctx, left: &[RunId], now: Timestamp) -> Result<usize> {
    let mut tx = ctx.db.write().await?;
    // The host ends first: that makes its runs orphans.
    hosts::end(&mut tx, ctx.host, now).await?;
    let retry_before = now.minus(ctx.settings.recovery.age_max);
    let mut orphans = recovery::orphaned_runs(&mut tx, now, retry_before, i64::MAX).await?;
    orphans.retain(|orphan| left.contains(&RunId::of(orphan.launch_id, orphan.recoveries + 1)));
    let (done, news, ended) = recover_orphans(ctx, &mut tx, &orphans, now).await?;
    if hosts::live(&mut tx).await?.is_empty() {
        // No host decides slots now. The next host scans its folder before it marks packages as missing.
        packages::withdraw_ended(&mut tx).await?;
    } else {
        forget_packages(&mut tx, now).await?;
    }
    tx.commit().await?;
    ctx.launch_log.recovered(&news);
    traces::note_ended(ctx, ended);
    Ok(done.reopened)
}

/// Forget which packages ended hosts had in their folders. A package that no live host has is missing.
pub(crate) async fn forget_packages(tx: &mut Tx, now: Timestamp) -> Result {
    packages::withdraw_ended(tx).await?;
    packages::forget_files_of_ended(tx).await?;
    mark_missing(tx, now).await
}

/// Record which packages no live host has any more.
pub(crate) async fn mark_missing(tx: &mut Tx, now: Timestamp) -> Result {
    for package in packages::mark_missing(tx, now).await? {
        tracing::warn!(%package, "no host has the package any more: its schedules stay, their slots are skipped");
        let detail = "no live host has it any more";
        events::record(tx, now, EventKind::PackageMissing, &package, detail).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::{LaunchKind, ScheduleId};

    const LIMITS: RecoveryLimits = RecoveryLimits {
        lost_threshold: Duration::from_secs(300),
        age_max: Duration::from_secs(86_400),
        attempts_max: 3,
    };

    fn orphan() -> OrphanedLaunch {
        OrphanedLaunch {
            launch_id: LaunchId(uuid::Uuid::nil()),
            has_run: false,
            schedule_id: ScheduleId(uuid::Uuid::nil()),
            schedule_revision: 1,
            schedule: "s".to_owned(),
            scheduled_time: Timestamp::EPOCH,
            kind: LaunchKind::Schedule,
            claimable_since: Timestamp::EPOCH,
            recoveries: 0,
            lost_runs: 0,
            enabled: true,
            deleted_at: None,
            missing_since: None,
            cancel_deadline: None,
            cause: OrphanCause::HostDied,
        }
    }

    fn claimed() -> OrphanedLaunch {
        OrphanedLaunch {
            has_run: true,
            ..orphan()
        }
    }

    fn after(orphan: OrphanedLaunch, seconds: u64) -> Option<RecoveryAction> {
        delivered(Delivery::AtLeastOnce, &orphan, seconds)
    }

    fn delivered(
        delivery: Delivery,
        orphan: &OrphanedLaunch,
        seconds: u64,
    ) -> Option<RecoveryAction> {
        let now = Timestamp::EPOCH.plus(Duration::from_secs(seconds));
        recovery_action(orphan, delivery, &LIMITS, now).map(|action| action.action)
    }

    #[test]
    fn an_at_most_once_launch_is_not_run_again_after_a_run_began() {
        let delivered = |orphan: &OrphanedLaunch| delivered(Delivery::AtMostOnce, orphan, 10);
        assert_eq!(delivered(&orphan()), Some(RecoveryAction::RunAgain));
        assert_eq!(delivered(&claimed()), Some(RecoveryAction::MarkUnknown));
        // Unknown also where the launch would be abandoned: its task may have done its work.
        for orphan in [
            OrphanedLaunch {
                enabled: false,
                ..claimed()
            },
            OrphanedLaunch {
                lost_runs: 3,
                ..claimed()
            },
        ] {
            assert_eq!(delivered(&orphan), Some(RecoveryAction::MarkUnknown));
        }
    }

    #[test]
    fn a_launch_that_was_asked_to_end_is_not_run_again() {
        let asked = OrphanedLaunch {
            cancel_deadline: Some(Timestamp::EPOCH),
            ..claimed()
        };
        assert_eq!(after(asked.clone(), 10), Some(RecoveryAction::Cancel));
        let once = delivered(Delivery::AtMostOnce, &asked, 10);
        assert_eq!(
            once,
            Some(RecoveryAction::MarkUnknown),
            "its task may have done its work"
        );
    }

    #[test]
    fn a_young_orphan_of_an_enabled_schedule_is_run_again() {
        assert_eq!(after(orphan(), 10), Some(RecoveryAction::RunAgain));
        let tried = OrphanedLaunch {
            lost_runs: 2,
            ..claimed()
        };
        assert_eq!(after(tried, 10), Some(RecoveryAction::RunAgain));
        // It never ran, however often it was recovered.
        let never = OrphanedLaunch {
            recoveries: 254,
            ..orphan()
        };
        assert_eq!(after(never, 10), Some(RecoveryAction::RunAgain));
    }

    #[test]
    fn recoveries_of_a_launch_that_ran_are_spaced() {
        let now = Timestamp::EPOCH.plus(Duration::from_secs(10));
        let limits = RecoveryLimits {
            attempts_max: 100,
            ..LIMITS
        };
        for (has_run, lost_runs, cause, pause) in [
            (true, 0, OrphanCause::HostDied, None),
            (true, 1, OrphanCause::HostDied, Some(5)),
            (true, 2, OrphanCause::LeaseExpired, Some(30)),
            (true, 3, OrphanCause::HostDied, Some(60)),
            (true, 99, OrphanCause::HostDied, Some(60)),
            (true, 2, OrphanCause::HostStopped, None),
            (false, 2, OrphanCause::DecidingHostDied, None),
        ] {
            let orphan = OrphanedLaunch {
                has_run,
                lost_runs,
                cause,
                ..orphan()
            };
            let decision = recovery_action(&orphan, Delivery::AtLeastOnce, &limits, now).unwrap();
            assert_eq!(decision.action, RecoveryAction::RunAgain);
            let expected = pause.map(|seconds| now.plus(Duration::from_secs(seconds)));
            assert_eq!(decision.not_before, expected, "{orphan:?}");
        }
    }

    #[test]
    fn each_limit_abandons_with_its_reason() {
        let tried = OrphanedLaunch {
            lost_runs: 3,
            ..claimed()
        };
        assert_eq!(
            after(tried, 10),
            Some(RecoveryAction::Abandon("recovery_attempts"))
        );
        assert_eq!(
            after(orphan(), 86_401),
            Some(RecoveryAction::Abandon("recovery_age"))
        );
        assert_eq!(after(orphan(), 86_400), Some(RecoveryAction::RunAgain));
    }

    #[test]
    fn a_paused_or_deleted_schedule_is_not_recovered() {
        let paused = OrphanedLaunch {
            enabled: false,
            ..orphan()
        };
        assert_eq!(
            after(paused.clone(), 10),
            Some(RecoveryAction::Abandon("schedule_disabled"))
        );
        for kind in [LaunchKind::Manual, LaunchKind::Backfill] {
            let by_hand = OrphanedLaunch {
                kind,
                ..paused.clone()
            };
            assert_eq!(after(by_hand, 10), Some(RecoveryAction::RunAgain));
        }
        let deleted = OrphanedLaunch {
            deleted_at: Some(Timestamp::EPOCH),
            ..orphan()
        };
        assert_eq!(
            after(deleted, 10),
            Some(RecoveryAction::Abandon("schedule_deleted"))
        );
    }

    #[test]
    fn a_launch_waits_for_its_missing_package_up_to_the_age_limit() {
        let missing = OrphanedLaunch {
            missing_since: Some(Timestamp::EPOCH),
            ..orphan()
        };
        assert_eq!(after(missing.clone(), 10), None);
        let begun = OrphanedLaunch {
            missing_since: missing.missing_since,
            ..claimed()
        };
        assert_eq!(after(begun, 10), Some(RecoveryAction::RunAgain));
        assert_eq!(
            after(missing, 86_401),
            Some(RecoveryAction::Abandon("package_missing"))
        );
        // Runs have a number of one byte.
        let often = OrphanedLaunch {
            recoveries: 254,
            missing_since: Some(Timestamp::EPOCH),
            ..claimed()
        };
        assert_eq!(
            after(often, 10),
            Some(RecoveryAction::Abandon("recovery_attempts"))
        );
    }
}
