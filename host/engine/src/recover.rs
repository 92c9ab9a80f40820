//! Recovery: launches that nobody carries out any more are run again, or given up for a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Engine, EngineError};
use crate::crash;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{RunId, ScheduleId};
use campanile_schedule::policy::Delivery;
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::hosts::{self, DeadHost};
use campanile_store::recovery::{self, OrphanedLaunch, RecoveryAction, RecoveryDecision};
use campanile_store::{Tx, packages, schedules};

/// Strays taken up in one transaction at most; the rest follows in the next.
const STRAYS_MAX: i64 = 512;

/// When to take a launch up again, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryLimits {
    /// A launch without a run is taken for lost after this long although there was capacity.
    pub lost_threshold: Duration,
    /// A launch older than this is given up.
    pub age_max: Duration,
    /// How often a launch is taken up again.
    pub attempts_max: i64,
}

/// What one sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    pub again: usize,
    /// Given up, unknown, or ended as they had been asked to.
    pub ended: usize,
    /// Whether there are more strays than one transaction takes up.
    pub more: bool,
}

/// Pure: what becomes of a stray launch at `now`. `None` leaves it alone until something changes.
pub fn verdict(
    stray: &OrphanedLaunch,
    delivery: Delivery,
    limits: &RecoveryLimits,
    now: Timestamp,
) -> Option<RecoveryDecision> {
    let too_old = now.since(stray.claimed_at) > limits.age_max;
    // It may have done its work already, all of it or a part.
    let was_begun = stray.run_id.is_some();
    let action = if was_begun && delivery == Delivery::AtMostOnce {
        RecoveryAction::MarkUnknown
    } else if stray.cancel_deadline.is_some() {
        RecoveryAction::Cancel
    } else if stray.deleted_at.is_some() {
        RecoveryAction::Abandon("schedule_deleted")
    } else if !stray.enabled && !stray.kind.is_by_hand() {
        // What a person asked for goes on while the schedule is paused.
        RecoveryAction::Abandon("schedule_disabled")
    } else if stray.missing_since.is_some() {
        // It is recovered when its package comes back within the age limit.
        match too_old {
            true => RecoveryAction::Abandon("package_missing"),
            false => RecoveryAction::RunAgain,
        }
    } else if too_old {
        RecoveryAction::Abandon("recovery_age")
    } else if stray.recoveries >= limits.attempts_max {
        RecoveryAction::Abandon("recovery_attempts")
    } else {
        RecoveryAction::RunAgain
    };
    // A run is lost in any case. Its launch opens again, and then waits for the package as others do.
    let waits = action == RecoveryAction::RunAgain && stray.missing_since.is_some() && !was_begun;
    (!waits).then_some(RecoveryDecision {
        launch_id: stray.launch_id,
        run_id: stray.run_id,
        action,
    })
}

impl Engine {
    /// Bury hosts that are gone and take up what they, or anybody, left behind.
    pub async fn recover(&self, now: Timestamp) -> Result<Recovered, EngineError> {
        let limits = &self.settings.recovery;
        let mut tx = self.db.write().await?;
        let lease = self.settings.lease;
        if self.pulse.is_witness(now, lease) {
            let buried = hosts::mark_silent_dead(&mut tx, now.minus(lease), now).await?;
            record_deaths(&mut tx, &buried, now).await?;
        }

        let retry_before = now.minus(limits.age_max);
        let runs = recovery::orphaned_runs(&mut tx, now, retry_before, STRAYS_MAX).await?;
        // A launch that waits behind others is late, not lost: only room that lasted the whole threshold counts.
        let untouched_since = if self.room.has_lasted(limits.lost_threshold, now) {
            now.minus(limits.lost_threshold)
        } else {
            Timestamp::EPOCH
        };
        let launches =
            recovery::orphaned_launches(&mut tx, self.host, untouched_since, STRAYS_MAX).await?;
        let more = runs.len().max(launches.len()) as i64 == STRAYS_MAX;

        let mut done = Recovered::default();
        let strays = runs.iter().chain(&launches);
        let schedules: BTreeSet<ScheduleId> = strays.map(|stray| stray.schedule_id).collect();
        for strays in [runs, launches] {
            let taken_up = self.take_up(&mut tx, &strays, now).await?;
            done.again += taken_up.again;
            done.ended += taken_up.ended;
        }
        let found = done.again + done.ended > 0;
        if found {
            crash::point("before_recover_commit");
        }
        tx.commit().await?;
        if found {
            crash::point("after_recover_commit");
            tracing::warn!(again = done.again, ended = done.ended, "recovery");
        }
        if done.ended > 0 {
            self.pause_failing(&schedules, now).await?;
        }
        done.more = more && found;
        Ok(done)
    }

    /// Run strays again or give them up, and record which.
    async fn take_up(
        &self,
        tx: &mut Tx,
        strays: &[OrphanedLaunch],
        now: Timestamp,
    ) -> Result<Recovered, EngineError> {
        let limits = &self.settings.recovery;
        let mut done = Recovered::default();
        let mut verdicts: BTreeMap<&str, Vec<RecoveryDecision>> = BTreeMap::new();
        let mut news = Vec::new();
        let revisions = strays
            .iter()
            .map(|stray| (stray.schedule_id, stray.schedule_revision));
        let specs = self.specs.get_all(tx, revisions).await?;
        for (stray, spec) in strays.iter().zip(&specs) {
            let Some(verdict) = verdict(stray, spec.policies.delivery, limits, now) else {
                continue;
            };
            let slot = stray.scheduled_time;
            let (kind, detail) = match verdict.action {
                RecoveryAction::Abandon(reason) => (
                    EventKind::LaunchAbandoned,
                    format!("slot {slot} was given up: {reason}"),
                ),
                RecoveryAction::MarkUnknown => (
                    EventKind::LaunchUnknown,
                    format!(
                        "slot {slot} was to be run at most once and its run was lost: {}; look whether it did its work",
                        stray.cause.clause()
                    ),
                ),
                RecoveryAction::Cancel => (
                    EventKind::LaunchCancelled,
                    format!(
                        "slot {slot} was asked to end, and then its run was lost: {}",
                        stray.cause.clause()
                    ),
                ),
                RecoveryAction::RunAgain => (
                    EventKind::LaunchRecovered,
                    format!(
                        "slot {slot} is run again, recovery {} of {}: {}",
                        stray.recoveries + 1,
                        limits.attempts_max,
                        stray.cause.clause()
                    ),
                ),
            };
            if verdict.action == RecoveryAction::MarkUnknown {
                tracing::error!(schedule = %stray.schedule, "{detail}");
            }
            news.push(NewEvent {
                kind,
                subject: stray.schedule.clone(),
                detail,
            });
            match verdict.action {
                RecoveryAction::RunAgain => done.again += 1,
                _ => done.ended += 1,
            }
            verdicts
                .entry(stray.cause.clause())
                .or_default()
                .push(verdict);
        }
        events::record_all(tx, now, &news).await?;
        for (why, verdicts) in verdicts {
            recovery::apply(tx, self.host, &verdicts, why, now).await?;
        }
        if done.ended > 0 {
            // A schedule that counts from ends goes on after this end too.
            let schedules = schedules::after_completion(tx).await?;
            self.set_next_slots(tx, &schedules.into_iter().collect(), now)
                .await?;
        }
        Ok(done)
    }

    /// Hand back what this host still held when it dropped its runs, for whoever comes next. For an orderly stop.
    pub(super) async fn hand_back(
        &self,
        left: &[RunId],
        now: Timestamp,
    ) -> Result<usize, EngineError> {
        let mut tx = self.db.write().await?;
        // The life ends first: that makes its runs strays.
        hosts::end(&mut tx, self.host, now).await?;
        let retry_before = now.minus(self.settings.recovery.age_max);
        let mut strays = recovery::orphaned_runs(&mut tx, now, retry_before, i64::MAX).await?;
        strays.retain(|stray| stray.run_id.is_some_and(|run| left.contains(&run)));
        let done = self.take_up(&mut tx, &strays, now).await?;
        if hosts::live(&mut tx).await?.is_empty() {
            // Nobody decides while nobody lives; the next host looks into its folder before it judges what is missing.
            packages::withdraw_ended(&mut tx).await?;
        } else {
            forget_packages(&mut tx, now).await?;
        }
        tx.commit().await?;
        Ok(done.again)
    }
}

/// Record that hosts were found gone.
pub(super) async fn record_deaths(
    tx: &mut Tx,
    buried: &[DeadHost],
    now: Timestamp,
) -> Result<(), EngineError> {
    if buried.is_empty() {
        return Ok(());
    }
    let died = buried.iter().map(|host| {
        tracing::warn!(host = %host.name, "a host died; its runs are taken over");
        NewEvent {
            kind: EventKind::HostDied,
            subject: host.name.clone(),
            detail: format!("incarnation {} gave no sign of life", host.id),
        }
    });
    events::record_all(tx, now, &died.collect::<Vec<_>>()).await?;
    forget_packages(tx, now).await
}

/// Forget what ended hosts had in their folders; a package that no live host has is missing.
pub(super) async fn forget_packages(tx: &mut Tx, now: Timestamp) -> Result<(), EngineError> {
    packages::withdraw_ended(tx).await?;
    packages::forget_rejections_of_ended(tx).await?;
    mark_missing(tx, now).await
}

/// Put on the record which packages no live host has any more.
pub(super) async fn mark_missing(tx: &mut Tx, now: Timestamp) -> Result<(), EngineError> {
    let missing = packages::mark_missing(tx, now).await?;
    let missing = missing.into_iter().map(|package| {
        tracing::warn!(%package, "no host has the package any more: its schedules stay, their slots are skipped");
        NewEvent {
            kind: EventKind::PackageMissing,
            subject: package,
            detail: "no live host has it any more".to_owned(),
        }
    });
    Ok(events::record_all(tx, now, &missing.collect::<Vec<_>>()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::{LaunchId, LaunchKind};
    use campanile_store::recovery::OrphanCause;

    const LIMITS: RecoveryLimits = RecoveryLimits {
        lost_threshold: Duration::from_secs(300),
        age_max: Duration::from_secs(86_400),
        attempts_max: 3,
    };

    fn stray() -> OrphanedLaunch {
        OrphanedLaunch {
            launch_id: LaunchId(uuid::Uuid::nil()),
            run_id: None,
            schedule_id: ScheduleId(uuid::Uuid::nil()),
            schedule_revision: 1,
            schedule: "s".to_owned(),
            scheduled_time: Timestamp::EPOCH,
            kind: LaunchKind::Schedule,
            claimed_at: Timestamp::EPOCH,
            recoveries: 0,
            enabled: true,
            deleted_at: None,
            missing_since: None,
            cancel_deadline: None,
            cause: OrphanCause::HostDied,
        }
    }

    fn taken() -> OrphanedLaunch {
        OrphanedLaunch {
            run_id: Some(RunId::new(Timestamp::EPOCH)),
            ..stray()
        }
    }

    fn after(stray: OrphanedLaunch, seconds: u64) -> Option<RecoveryAction> {
        delivered(Delivery::AtLeastOnce, &stray, seconds)
    }

    fn delivered(
        delivery: Delivery,
        stray: &OrphanedLaunch,
        seconds: u64,
    ) -> Option<RecoveryAction> {
        let now = Timestamp::EPOCH.plus(Duration::from_secs(seconds));
        verdict(stray, delivery, &LIMITS, now).map(|verdict| verdict.action)
    }

    #[test]
    fn what_was_to_be_run_at_most_once_is_not_run_again_once_it_was_begun() {
        let delivered = |stray: &OrphanedLaunch| delivered(Delivery::AtMostOnce, stray, 10);
        assert_eq!(delivered(&stray()), Some(RecoveryAction::RunAgain));
        assert_eq!(delivered(&taken()), Some(RecoveryAction::MarkUnknown));
        // Unknown also where it would be given up: nobody knows what it did.
        for stray in [
            OrphanedLaunch {
                enabled: false,
                ..taken()
            },
            OrphanedLaunch {
                recoveries: 3,
                ..taken()
            },
        ] {
            assert_eq!(delivered(&stray), Some(RecoveryAction::MarkUnknown));
        }
    }

    #[test]
    fn what_was_asked_to_end_is_not_run_again() {
        let asked = OrphanedLaunch {
            cancel_deadline: Some(Timestamp::EPOCH),
            ..taken()
        };
        assert_eq!(after(asked.clone(), 10), Some(RecoveryAction::Cancel));
        let once = delivered(Delivery::AtMostOnce, &asked, 10);
        assert_eq!(
            once,
            Some(RecoveryAction::MarkUnknown),
            "nobody knows what it did"
        );
    }

    #[test]
    fn a_young_stray_of_a_live_schedule_is_run_again() {
        assert_eq!(after(stray(), 10), Some(RecoveryAction::RunAgain));
        let tried = OrphanedLaunch {
            recoveries: 2,
            ..stray()
        };
        assert_eq!(after(tried, 10), Some(RecoveryAction::RunAgain));
    }

    #[test]
    fn limits_give_it_up_with_their_name() {
        let tried = OrphanedLaunch {
            recoveries: 3,
            ..stray()
        };
        assert_eq!(
            after(tried, 10),
            Some(RecoveryAction::Abandon("recovery_attempts"))
        );
        assert_eq!(
            after(stray(), 86_401),
            Some(RecoveryAction::Abandon("recovery_age"))
        );
        assert_eq!(after(stray(), 86_400), Some(RecoveryAction::RunAgain));
    }

    #[test]
    fn a_paused_or_deleted_schedule_is_not_recovered() {
        let paused = OrphanedLaunch {
            enabled: false,
            ..stray()
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
            ..stray()
        };
        assert_eq!(
            after(deleted, 10),
            Some(RecoveryAction::Abandon("schedule_deleted"))
        );
    }

    #[test]
    fn a_missing_package_is_waited_for_up_to_the_age_limit() {
        let missing = OrphanedLaunch {
            missing_since: Some(Timestamp::EPOCH),
            ..stray()
        };
        assert_eq!(after(missing.clone(), 10), None);
        let taken = OrphanedLaunch {
            missing_since: missing.missing_since,
            ..taken()
        };
        assert_eq!(after(taken, 10), Some(RecoveryAction::RunAgain));
        assert_eq!(
            after(missing, 86_401),
            Some(RecoveryAction::Abandon("package_missing"))
        );
    }
}
