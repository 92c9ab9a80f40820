//! Pure: what happens to an orphaned launch, and when it runs again.

use std::time::Duration;

use crate::settings::RecoveryLimits;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, RunId};
use campanile_schedule::policy::Delivery;
use campanile_store::launch::{OrphanCause, OrphanedLaunch, RecoveryAction, RecoveryDecision};

/// How long a launch pauses after its second, third and each later lost run. There's no pause after the first, since a host dying
/// once is common. A launch killing its host, or a host dying at every start, loses run after run.
const PAUSES: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(30), PAUSE_MAX];
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Time granted to a living host for handing back a claim, counting from its lease expiring or an outage ending.
pub const HAND_BACK_TIME: Duration = Duration::from_secs(5);

/// Pure: returns what happens to an orphaned launch at `now`, or `None` to leave it alone until something changes.
pub fn recovery_action(
    orphan: &OrphanedLaunch,
    delivery: Delivery,
    limits: &RecoveryLimits,
    now: Timestamp,
) -> Option<RecoveryDecision> {
    let is_too_old = now.since(orphan.claimable_since) > limits.age_max;
    // The task may have done some or all of its work.
    let was_begun = orphan.life.has_run;
    let action = if was_begun && delivery == Delivery::AtMostOnce {
        RecoveryAction::MarkUnknown
    } else if orphan.life.must_end {
        RecoveryAction::Cancel
    } else if orphan.deleted_at.is_some() {
        RecoveryAction::Abandon("schedule_deleted")
    } else if !orphan.enabled && !orphan.kind.is_by_hand() {
        // Launches requested by a person run even while the schedule is paused.
        RecoveryAction::Abandon("schedule_disabled")
    } else if was_begun && orphan.life.recoveries >= RunId::NUMBER_MAX - 1 {
        // Run numbers are used up.
        RecoveryAction::Abandon("recovery_attempts")
    } else if orphan.missing_since.is_some() {
        // Recovered if its package comes back within the age limit.
        if is_too_old {
            RecoveryAction::Abandon("package_missing")
        } else {
            RecoveryAction::RunAgain
        }
    } else if is_too_old {
        RecoveryAction::Abandon("recovery_age")
    } else if was_begun && has_lost_too_many(orphan, limits, now) {
        // A launch never claimed hasn't run, so its recoveries don't count.
        RecoveryAction::Abandon("recovery_attempts")
    } else {
        RecoveryAction::RunAgain
    };
    // A run is lost either way, so its launch reopens. A launch without a run stays open, waiting for its package.
    let waits = action == RecoveryAction::RunAgain && orphan.missing_since.is_some() && !was_begun;
    (!waits).then_some(RecoveryDecision {
        launch_id: orphan.launch_id,
        action,
        not_before: match action {
            RecoveryAction::RunAgain => not_before(orphan, now),
            _ => None,
        },
    })
}

fn has_lost_too_many(orphan: &OrphanedLaunch, limits: &RecoveryLimits, now: Timestamp) -> bool {
    // With recovery turned off, even a run not counting as lost isn't replaced.
    limits.attempts_max == 0 || orphan.lost_runs_at(now) > limits.attempts_max
}

/// Returns the earliest time for claiming a reopened launch again, or none if it doesn't pause.
///
/// Pauses outlive hosts: a pausing launch keeps its pause, and a host dying in the meantime restarts it. A host must therefore live
/// that long before claiming the launch, so hosts dying at every start never lose a third run.
fn not_before(orphan: &OrphanedLaunch, now: Timestamp) -> Option<Timestamp> {
    let pause = match orphan.cause {
        // A host stopping in good order hands over its runs right away.
        OrphanCause::HostStopped | OrphanCause::NotClaimed => None,
        _ => pause_after(orphan.lost_runs_at(now)),
    };
    let begun = pause.map(|pause| now.plus(pause));
    // A faulty clock may have set a time far in the future.
    let kept = orphan.not_before.map(|end| end.min(now.plus(PAUSE_MAX)));
    begun.max(kept).filter(|end| *end > now)
}

/// Returns the pause after this many lost runs.
fn pause_after(lost_runs: i64) -> Option<Duration> {
    let later = usize::try_from(lost_runs.checked_sub(2)?).ok()?;
    PAUSES.get(later.min(PAUSES.len() - 1)).copied()
}

/// Says that a launch runs again, after how many lost runs, and when it can be claimed.
pub fn run_again_text(
    orphan: &OrphanedLaunch,
    decision: &RecoveryDecision,
    attempts_max: i64,
    now: Timestamp,
) -> String {
    let (slot, why) = (orphan.scheduled_time, orphan.cause.clause());
    let number = match (orphan.life.has_run, orphan.lost_runs_at(now)) {
        (false, _) => "it had not begun".to_owned(),
        (true, 0) => "its run doesn't count as it was lost long after its start".to_owned(),
        (true, number) => format!("recovery {number} of {attempts_max}"),
    };
    let pause = decision.not_before.map_or_else(String::new, |not_before| {
        format!(", not before {not_before}")
    });
    format!("slot {slot} runs again{pause}, {number}: {why}")
}

/// Pure: whether to leave an orphan with a run to its claiming host, which may hand it back.
///
/// A host not recorded as dead may simply have had no reply from the database. `reachable_since` is when the database began
/// answering this host, `host`.
pub fn is_left_to_its_host(
    orphan: &OrphanedLaunch,
    host: HostId,
    reachable_since: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    let Some(lease_until) = orphan.lease_until.filter(|_| orphan.is_host_alive) else {
        return false;
    };
    let since = reachable_since.unwrap_or(now).max(lease_until);
    orphan.host_id.is_some_and(|of| of != host) && now < since.plus(HAND_BACK_TIME)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};
    use campanile_model::life::{Arrow, Life};
    use campanile_store::Decision;

    const LIMITS: RecoveryLimits = RecoveryLimits {
        lost_threshold: Duration::from_secs(300),
        age_max: Duration::from_secs(86_400),
        attempts_max: 3,
    };

    pub(crate) fn orphan() -> OrphanedLaunch {
        OrphanedLaunch {
            launch_id: LaunchId(uuid::Uuid::nil()),
            life: Life::decided(Decision::Launched, None),
            schedule_id: ScheduleId(uuid::Uuid::nil()),
            schedule_revision: 1,
            schedule: "s".to_owned(),
            scheduled_time: Timestamp::EPOCH,
            kind: LaunchKind::Schedule,
            claimable_since: Timestamp::EPOCH,
            started_at: None,
            not_before: None,
            host_id: None,
            lease_until: None,
            is_host_alive: false,
            enabled: true,
            deleted_at: None,
            missing_since: None,
            cause: OrphanCause::HostDied,
        }
    }

    pub(crate) fn claimed() -> OrphanedLaunch {
        OrphanedLaunch {
            life: Life::decided(Decision::Launched, Some(1)),
            ..orphan()
        }
    }

    /// Returns an orphan which lost this many runs before.
    fn having_lost(lost_runs: i64, orphan: OrphanedLaunch) -> OrphanedLaunch {
        OrphanedLaunch {
            life: Life {
                lost_runs,
                ..orphan.life
            },
            ..orphan
        }
    }

    /// Returns an orphan recovered as often as run numbers allow.
    fn recovered_often(orphan: OrphanedLaunch) -> OrphanedLaunch {
        OrphanedLaunch {
            life: Life {
                recoveries: 254,
                ..orphan.life
            },
            ..orphan
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
        // Unknown even where it would be abandoned, as its task may have done its work.
        for orphan in [
            OrphanedLaunch {
                enabled: false,
                ..claimed()
            },
            having_lost(3, claimed()),
        ] {
            assert_eq!(delivered(&orphan), Some(RecoveryAction::MarkUnknown));
        }
    }

    #[test]
    fn a_launch_that_was_asked_to_end_is_not_run_again() {
        let asked = OrphanedLaunch {
            life: claimed().life.after(Arrow::AskToEnd).unwrap(),
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
        let tried = having_lost(2, claimed());
        assert_eq!(after(tried, 10), Some(RecoveryAction::RunAgain));
        // Never run, however often it was recovered.
        let never = recovered_often(orphan());
        assert_eq!(after(never, 10), Some(RecoveryAction::RunAgain));
    }

    fn pause_of(orphan: &OrphanedLaunch, now: Timestamp) -> Option<u64> {
        let limits = RecoveryLimits {
            attempts_max: 100,
            ..LIMITS
        };
        let decision = recovery_action(orphan, Delivery::AtLeastOnce, &limits, now).unwrap();
        assert_eq!(decision.action, RecoveryAction::RunAgain);
        decision.not_before.map(|end| end.since(now).as_secs())
    }

    #[test]
    fn recoveries_of_a_launch_that_ran_are_spaced() {
        let now = Timestamp::EPOCH.plus(Duration::from_secs(10));
        for (has_run, lost_runs, cause, pause) in [
            (true, 0, OrphanCause::HostDied, None),
            (true, 1, OrphanCause::HostDied, Some(5)),
            (true, 2, OrphanCause::LeaseExpired, Some(30)),
            (true, 3, OrphanCause::HostDied, Some(60)),
            (true, 99, OrphanCause::HostDied, Some(60)),
            (true, 2, OrphanCause::HostStopped, None),
            // It pauses again when the host about to claim it dies.
            (false, 0, OrphanCause::DecidingHostDied, None),
            (false, 1, OrphanCause::DecidingHostDied, None),
            (false, 2, OrphanCause::DecidingHostDied, Some(5)),
            (false, 3, OrphanCause::DecidingHostDied, Some(30)),
            (false, 2, OrphanCause::NotClaimed, None),
        ] {
            let orphan = OrphanedLaunch {
                cause,
                ..having_lost(lost_runs, if has_run { claimed() } else { orphan() })
            };
            assert_eq!(pause_of(&orphan, now), pause, "{orphan:?}");
        }
    }

    #[test]
    fn a_pause_is_kept_and_never_longer_than_the_longest() {
        let now = Timestamp::EPOCH.plus(Duration::from_secs(1_000));
        for (lost_runs, cause, ends_in, pause) in [
            (3, OrphanCause::NotClaimed, 20, Some(20)),
            (2, OrphanCause::DecidingHostDied, 20, Some(20)),
            (3, OrphanCause::DecidingHostDied, 20, Some(30)),
            (3, OrphanCause::NotClaimed, -1, None),
            // Set by a clock running ahead.
            (3, OrphanCause::NotClaimed, 1_000_000, Some(60)),
        ] {
            let orphan = OrphanedLaunch {
                cause,
                not_before: Some(Timestamp::from_micros(now.micros() + ends_in * 1_000_000)),
                ..having_lost(lost_runs, orphan())
            };
            assert_eq!(pause_of(&orphan, now), pause, "{orphan:?}");
        }
    }

    /// Four short outages in a day don't end a task of 12 hours.
    #[test]
    fn a_run_that_was_lost_long_after_its_start_does_not_count() {
        let after_seconds = |lost_runs, lived| {
            let lost = OrphanedLaunch {
                started_at: Some(Timestamp::EPOCH),
                ..having_lost(lost_runs, claimed())
            };
            (
                after(lost.clone(), lived),
                pause_of(&lost, Timestamp::EPOCH.plus(Duration::from_secs(lived))),
            )
        };
        let abandoned = Some(RecoveryAction::Abandon("recovery_attempts"));
        assert_eq!(after_seconds(3, 599), (abandoned, Some(60)));
        assert_eq!(
            after_seconds(3, 600),
            (Some(RecoveryAction::RunAgain), None)
        );
        let never_again = RecoveryLimits {
            attempts_max: 0,
            ..LIMITS
        };
        let lost = OrphanedLaunch {
            started_at: Some(Timestamp::EPOCH),
            ..claimed()
        };
        let now = Timestamp::EPOCH.plus(Duration::from_secs(3_600));
        let decision = recovery_action(&lost, Delivery::AtLeastOnce, &never_again, now);
        assert_eq!(decision.map(|decision| decision.action), abandoned);
    }

    #[test]
    fn each_limit_abandons_with_its_reason() {
        let tried = having_lost(3, claimed());
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
        // Run numbers fit in one byte.
        let often = OrphanedLaunch {
            missing_since: Some(Timestamp::EPOCH),
            ..recovered_often(claimed())
        };
        assert_eq!(
            after(often, 10),
            Some(RecoveryAction::Abandon("recovery_attempts"))
        );
    }

    #[test]
    fn a_live_host_has_a_moment_to_hand_back() {
        let at = |seconds| Timestamp::EPOCH.plus(Duration::from_secs(seconds));
        let (own, other) = (
            HostId(uuid::Uuid::from_u128(1)),
            HostId(uuid::Uuid::from_u128(2)),
        );
        let expired = OrphanedLaunch {
            host_id: Some(other),
            is_host_alive: true,
            lease_until: Some(at(100)),
            ..claimed()
        };
        let is_left = |orphan: &OrphanedLaunch, since, now| {
            is_left_to_its_host(orphan, own, Some(at(since)), at(now))
        };
        assert!(is_left(&expired, 0, 104) && !is_left(&expired, 0, 105));
        // After an outage, time counts from its end.
        assert!(is_left(&expired, 200, 204) && !is_left(&expired, 200, 205));
        assert!(is_left_to_its_host(&expired, own, None, at(500)));
        let is_own = OrphanedLaunch {
            host_id: Some(own),
            ..expired.clone()
        };
        let is_dead = OrphanedLaunch {
            is_host_alive: false,
            ..expired
        };
        for orphan in [is_own, is_dead, orphan()] {
            assert!(!is_left(&orphan, 0, 101), "{orphan:?}");
        }
    }
}
