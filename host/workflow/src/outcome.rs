//! Pure: decide whether a failed call of a task is retried.

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::status::FailureKind;
use campanile_sandbox::Outcome;

/// The rules of a schedule by which failed calls of its launches are retried.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryRules {
    /// How often each task is called at most; none for the number of the task.
    pub attempts_max: Option<i64>,
    /// The pause before the first retry.
    pub backoff: Duration,
    /// How many times as long each further pause is.
    pub backoff_coefficient: f64,
    /// The longest pause, unless the task requests a longer one.
    pub backoff_max: Duration,
    /// No retry begins later.
    pub expires_at: Option<Timestamp>,
    pub non_retryable: Vec<FailureKind>,
}

/// Why a failure is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRetry {
    /// A retry would not help, might repeat what was done, or was the last one.
    Final,
    /// The schedule does not retry this kind of failure.
    NonRetryable,
    /// The retry would begin after this time.
    Expired(Timestamp),
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
    /// How often the task is called at most, unless the schedule says that.
    pub attempts_max: i64,
}

impl RetryRules {
    fn pause(&self, tries: i64) -> Duration {
        let former_pauses = i32::try_from(tries.max(1) - 1).unwrap_or(i32::MAX);
        let seconds = self.backoff.as_secs_f64() * self.backoff_coefficient.powi(former_pauses);
        Duration::from_secs_f64(seconds.min(self.backoff_max.as_secs_f64()))
    }
}

/// Returns when to call the task again after a failed call that ended at `now`, or why the failure is final.
///
/// `jitter` from -1.0 to 1.0 changes the pause by up to a quarter, so that tasks that failed together are not retried
/// together.
pub fn retry_at(
    call: FailedCall,
    rules: &RetryRules,
    now: Timestamp,
    jitter: f64,
) -> Result<Timestamp, NoRetry> {
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
    let attempts_max = rules.attempts_max.unwrap_or(call.attempts_max);
    if !may_succeed_later || !call.may_repeat || call.tries >= attempts_max {
        return Err(NoRetry::Final);
    }
    if rules.non_retryable.contains(&call.kind) {
        return Err(NoRetry::NonRetryable);
    }
    let pause = rules.pause(call.tries);
    let spread = pause.mul_f64(1.0 + 0.25 * jitter.clamp(-1.0, 1.0));
    let at = now.plus(spread.max(call.retry_after.unwrap_or_default()));
    match rules.expires_at.filter(|expires_at| at > *expires_at) {
        Some(expires_at) => Err(NoRetry::Expired(expires_at)),
        None => Ok(at),
    }
}

/// Returns the kind of failure of a call, which has the same word as its outcome; none when it succeeded.
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

    fn rules() -> RetryRules {
        RetryRules {
            attempts_max: None,
            backoff: Duration::from_secs(1),
            backoff_coefficient: 2.0,
            backoff_max: Duration::from_secs(60),
            expires_at: None,
            non_retryable: Vec::new(),
        }
    }

    /// Decide by the rules of a schedule that sets none.
    fn retry_at(call: FailedCall, now: Timestamp, jitter: f64) -> Option<Timestamp> {
        super::retry_at(call, &rules(), now, jitter).ok()
    }

    fn pause_ms(retry_at: Option<Timestamp>) -> Option<u128> {
        retry_at.map(|at| at.since(NOW).as_millis())
    }

    #[test]
    fn a_schedule_sets_the_pauses_and_the_number_of_calls() {
        let rules = RetryRules {
            attempts_max: Some(6),
            backoff: Duration::from_millis(1_500),
            backoff_coefficient: 10.0,
            backoff_max: Duration::from_secs(3_600),
            ..rules()
        };
        let pause = |tries| {
            let failed = call(FailureKind::TimedOut, tries);
            pause_ms(super::retry_at(failed, &rules, NOW, 0.0).ok())
        };
        let pauses = [1, 2, 3, 4, 5].map(pause);
        let expected = [1_500, 15_000, 150_000, 1_500_000, 3_600_000];
        assert_eq!(pauses, expected.map(Some));
        assert_eq!(pause(6), None);
        // The number of one call of a task that may be called more often.
        let once = RetryRules {
            attempts_max: Some(1),
            ..rules.clone()
        };
        let failed = call(FailureKind::Failed, 1);
        let final_failure = super::retry_at(failed, &once, NOW, 0.0);
        assert_eq!(final_failure, Err(NoRetry::Final));
        let constant = RetryRules {
            attempts_max: Some(1_000),
            backoff_coefficient: 1.0,
            ..rules
        };
        let late = super::retry_at(call(FailureKind::Failed, 999), &constant, NOW, 0.0);
        assert_eq!(pause_ms(late.ok()), Some(1_500));
    }

    #[test]
    fn a_kind_that_the_schedule_names_is_not_retried() {
        let rules = RetryRules {
            non_retryable: vec![FailureKind::TimedOut],
            ..rules()
        };
        let decide = |kind, tries| super::retry_at(call(kind, tries), &rules, NOW, 0.0);
        assert_eq!(decide(FailureKind::TimedOut, 1), Err(NoRetry::NonRetryable));
        // The last call fails for good anyway.
        assert_eq!(decide(FailureKind::TimedOut, 3), Err(NoRetry::Final));
        assert_eq!(decide(FailureKind::Denied, 1), Err(NoRetry::Final));
        assert!(decide(FailureKind::Failed, 1).is_ok());
    }

    #[test]
    fn no_retry_begins_after_the_expiration() {
        let at = |seconds| NOW.plus(Duration::from_secs(seconds));
        let rules = RetryRules {
            expires_at: Some(at(10)),
            ..rules()
        };
        let failed = call(FailureKind::Failed, 1);
        let decide = |call, now| super::retry_at(call, &rules, now, 0.0);
        assert_eq!(decide(failed, at(9)), Ok(at(10)));
        let expired = Err(NoRetry::Expired(at(10)));
        assert_eq!(decide(failed, at(10)), expired);
        let asking = FailedCall {
            retry_after: Some(Duration::from_secs(11)),
            ..failed
        };
        assert_eq!(decide(asking, NOW), expired);
        let last = call(FailureKind::Failed, 3);
        assert_eq!(decide(last, at(10)), Err(NoRetry::Final));
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
