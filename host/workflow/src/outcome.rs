//! Pure: decide whether a failed call of a task is retried.

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::status::FailureKind;
use campanile_sandbox::Outcome;

/// How often a task is called, and with which pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How many calls in all, with the first one.
    pub attempts_max: i64,
    /// The pause after the first failure. Each further failure doubles it.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl RetryPolicy {
    /// Return the policy with pauses of 1 s, 2 s, 4 s … at most a minute.
    pub fn of(attempts_max: i64) -> RetryPolicy {
        RetryPolicy {
            attempts_max,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        }
    }

    /// Return the pause after the `attempt`-th failure, before jitter.
    fn pause(&self, attempt: i64) -> Duration {
        let doublings = u32::try_from(attempt.saturating_sub(1))
            .unwrap_or(0)
            .min(30);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

/// What follows from a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Call the task again at this time.
    Retry(Timestamp),
    /// The failure is final.
    Fail,
}

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
}

/// Decide what follows from a failed call that ended at `now`.
///
/// `jitter` from -1.0 to 1.0 changes the pause by up to a quarter, so that tasks that failed together are not retried
/// together.
pub fn decide(call: FailedCall, policy: &RetryPolicy, now: Timestamp, jitter: f64) -> Next {
    let may_succeed_later = match call.kind {
        FailureKind::Failed => call.retryable,
        FailureKind::Trapped
        | FailureKind::TimedOut
        | FailureKind::MemoryExceeded
        | FailureKind::HostError => true,
        // A retry helps only after a change of the grants or the code.
        FailureKind::Denied | FailureKind::InvalidOutput | FailureKind::Refused => false,
        // Recovery handles these: the host ended, not the call.
        FailureKind::Cancelled | FailureKind::Lost => false,
    };
    if !may_succeed_later || !call.may_repeat || call.tries >= policy.attempts_max {
        return Next::Fail;
    }
    let pause = policy.pause(call.tries);
    let spread = pause.mul_f64(1.0 + 0.25 * jitter.clamp(-1.0, 1.0));
    Next::Retry(now.plus(spread.max(call.retry_after.unwrap_or_default())))
}

/// Return the kind of failure of a call; none when it succeeded.
pub fn failure_kind(outcome: Outcome) -> Option<FailureKind> {
    match outcome {
        Outcome::Succeeded => None,
        Outcome::Failed => Some(FailureKind::Failed),
        Outcome::Trapped => Some(FailureKind::Trapped),
        Outcome::TimedOut => Some(FailureKind::TimedOut),
        Outcome::MemoryExceeded => Some(FailureKind::MemoryExceeded),
        Outcome::Denied => Some(FailureKind::Denied),
        Outcome::InvalidOutput => Some(FailureKind::InvalidOutput),
        Outcome::HostError => Some(FailureKind::HostError),
        Outcome::Refused => Some(FailureKind::Refused),
        Outcome::Cancelled => Some(FailureKind::Cancelled),
    }
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
        }
    }

    fn pause_ms(next: Next) -> Option<u128> {
        match next {
            Next::Retry(at) => Some(at.since(NOW).as_millis()),
            Next::Fail => None,
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let policy = RetryPolicy::of(100);
        let pauses: Vec<_> = [1, 2, 3, 6, 7, 50, 99]
            .into_iter()
            .map(|n| pause_ms(decide(call(FailureKind::Failed, n), &policy, NOW, 0.0)))
            .collect();
        assert_eq!(
            pauses,
            [1_000, 2_000, 4_000, 32_000, 60_000, 60_000, 60_000].map(Some)
        );
    }

    #[test]
    fn jitter_is_a_quarter_either_way() {
        let policy = RetryPolicy::of(3);
        let pause = |jitter| pause_ms(decide(call(FailureKind::Failed, 1), &policy, NOW, jitter));
        assert_eq!(pause(-1.0), Some(750));
        assert_eq!(pause(1.0), Some(1_250));
    }

    #[test]
    fn the_last_attempt_fails_for_good() {
        let policy = RetryPolicy::of(3);
        assert_eq!(
            decide(call(FailureKind::Trapped, 3), &policy, NOW, 0.0),
            Next::Fail
        );
        assert_ne!(
            decide(call(FailureKind::Trapped, 2), &policy, NOW, 0.0),
            Next::Fail
        );
    }

    #[test]
    fn only_kinds_that_may_pass_are_retried() {
        let policy = RetryPolicy::of(3);
        for (kind, retried) in [
            (FailureKind::Failed, true),
            (FailureKind::Trapped, true),
            (FailureKind::TimedOut, true),
            (FailureKind::MemoryExceeded, true),
            (FailureKind::HostError, true),
            (FailureKind::Denied, false),
            (FailureKind::InvalidOutput, false),
            (FailureKind::Refused, false),
            (FailureKind::Cancelled, false),
            (FailureKind::Lost, false),
        ] {
            let next = decide(call(kind, 1), &policy, NOW, 0.0);
            assert_eq!(next != Next::Fail, retried, "{kind}");
        }
        let permanent = FailedCall {
            retryable: false,
            ..call(FailureKind::Failed, 1)
        };
        assert_eq!(decide(permanent, &policy, NOW, 0.0), Next::Fail);
    }

    #[test]
    fn what_may_have_run_is_not_retried_where_it_is_to_run_at_most_once() {
        let policy = RetryPolicy::of(3);
        for &kind in FailureKind::ALL {
            let call = FailedCall {
                may_repeat: false,
                ..call(kind, 1)
            };
            assert_eq!(decide(call, &policy, NOW, 0.0), Next::Fail, "{kind}");
        }
    }

    #[test]
    fn a_task_may_ask_for_a_longer_pause_but_not_a_shorter_one() {
        let policy = RetryPolicy::of(3);
        let asking = |seconds| FailedCall {
            retry_after: Some(Duration::from_secs(seconds)),
            ..call(FailureKind::Failed, 1)
        };
        assert_eq!(
            pause_ms(decide(asking(90), &policy, NOW, 0.0)),
            Some(90_000)
        );
        assert_eq!(pause_ms(decide(asking(0), &policy, NOW, 0.0)), Some(1_000));
    }
}
