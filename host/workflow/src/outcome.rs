//! Pure: decide whether a failed call of a task is retried.

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::status::FailureKind;
use campanile_sandbox::Outcome;

/// The pause after the first failure. Each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, unless the task requests a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A failed call, as far as the decision depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedCall {
    pub kind: FailureKind,
    /// Whether the task says that the same call may succeed later.
    pub retryable: bool,
    /// The pause that the task requests.
    pub retry_after: Option<Duration>,
    /// False for a task that runs at most once and may have run.
    pub may_repeat: bool,
    /// The number of the call, from 1. Calls that were lost with a host do not count.
    pub tries: i64,
    /// How often the task is called at most.
    pub attempts_max: i64,
}

/// Return when to call the task again after a failed call that ended at `now`; none when the failure is final.
///
/// `jitter` from -1.0 to 1.0 changes the pause by up to a quarter, so that tasks that failed together are not retried
/// together.
pub fn retry_at(call: FailedCall, now: Timestamp, jitter: f64) -> Option<Timestamp> {
    let may_succeed_later = match call.kind {
        FailureKind::Failed => call.retryable,
        FailureKind::Trapped
        | FailureKind::TimedOut
        | FailureKind::MemoryExceeded
        | FailureKind::HostError => true,
        // A retry helps only after a change of the grants or the code.
        FailureKind::Denied
        | FailureKind::InvalidOutput
        | FailureKind::QuotaExceeded
        | FailureKind::Refused => false,
        // Recovery handles these: the host ended, not the call.
        FailureKind::Cancelled | FailureKind::Lost => false,
    };
    if !may_succeed_later || !call.may_repeat || call.tries >= call.attempts_max {
        return None;
    }
    let doublings = call.tries.clamp(1, 30) as u32 - 1;
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(PAUSE_MAX);
    let spread = pause.mul_f64(1.0 + 0.25 * jitter.clamp(-1.0, 1.0));
    Some(now.plus(spread.max(call.retry_after.unwrap_or_default())))
}

/// Return the kind of failure of a call, which has the same word as its outcome; none when it succeeded.
pub fn failure_kind(outcome: Outcome) -> Option<FailureKind> {
    outcome.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::EPOCH;

    fn call(kind: FailureKind, tries: i64) -> FailedCall {
        FailedCall {
            kind,
            retryable: true,
            retry_after: None,
            may_repeat: true,
            tries,
            attempts_max: 3,
        }
    }

    #[test]
    fn every_outcome_but_success_is_a_kind_of_failure() {
        for &outcome in Outcome::ALL {
            let kind = failure_kind(outcome).map(FailureKind::as_str);
            let expected = (outcome != Outcome::Succeeded).then_some(outcome.as_str());
            assert_eq!(kind, expected);
        }
    }

    fn pause_ms(retry_at: Option<Timestamp>) -> Option<u128> {
        retry_at.map(|at| at.since(NOW).as_millis())
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pause = |tries| {
            let call = FailedCall {
                attempts_max: 100,
                ..call(FailureKind::Failed, tries)
            };
            pause_ms(retry_at(call, NOW, 0.0))
        };
        let pauses: Vec<_> = [1, 2, 3, 6, 7, 50, 99].into_iter().map(pause).collect();
        assert_eq!(
            pauses,
            [1_000, 2_000, 4_000, 32_000, 60_000, 60_000, 60_000].map(Some)
        );
    }

    #[test]
    fn jitter_is_a_quarter_either_way() {
        let pause = |jitter| pause_ms(retry_at(call(FailureKind::Failed, 1), NOW, jitter));
        assert_eq!(pause(-1.0), Some(750));
        assert_eq!(pause(1.0), Some(1_250));
    }

    #[test]
    fn the_last_attempt_fails_for_good() {
        assert_eq!(retry_at(call(FailureKind::Trapped, 3), NOW, 0.0), None);
        assert_ne!(retry_at(call(FailureKind::Trapped, 2), NOW, 0.0), None);
    }

    #[test]
    fn only_kinds_that_may_pass_are_retried() {
        for (kind, retried) in [
            (FailureKind::Failed, true),
            (FailureKind::Trapped, true),
            (FailureKind::TimedOut, true),
            (FailureKind::MemoryExceeded, true),
            (FailureKind::HostError, true),
            (FailureKind::Denied, false),
            (FailureKind::InvalidOutput, false),
            (FailureKind::QuotaExceeded, false),
            (FailureKind::Refused, false),
            (FailureKind::Cancelled, false),
            (FailureKind::Lost, false),
        ] {
            let next = retry_at(call(kind, 1), NOW, 0.0);
            assert_eq!(next.is_some(), retried, "{kind}");
        }
        let permanent = FailedCall {
            retryable: false,
            ..call(FailureKind::Failed, 1)
        };
        assert_eq!(retry_at(permanent, NOW, 0.0), None);
    }

    #[test]
    fn what_may_have_run_is_not_retried_where_it_is_to_run_at_most_once() {
        for &kind in FailureKind::ALL {
            let call = FailedCall {
                may_repeat: false,
                ..call(kind, 1)
            };
            assert_eq!(retry_at(call, NOW, 0.0), None, "{kind}");
        }
    }

    #[test]
    fn a_task_may_ask_for_a_longer_pause_but_not_a_shorter_one() {
        let asking = |seconds| FailedCall {
            retry_after: Some(Duration::from_secs(seconds)),
            ..call(FailureKind::Failed, 1)
        };
        assert_eq!(pause_ms(retry_at(asking(90), NOW, 0.0)), Some(90_000));
        assert_eq!(pause_ms(retry_at(asking(0), NOW, 0.0)), Some(1_000));
    }
}
