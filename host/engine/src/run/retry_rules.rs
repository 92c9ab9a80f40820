//! The rules by which failed calls of a launch are retried, from the policies of its schedule.

use crate::run::work::Work;
use campanile_model::status::FailureKind;
use campanile_workflow::outcome::{NoRetry, RetryRules};

/// Returns the rules for a launch: those of the revision that decided it.
pub(crate) fn of(work: &Work) -> RetryRules {
    let policies = &work.spec.policies;
    let slot = work.launch.scheduled_time;
    let kinds = FailureKind::ALL.iter().copied();
    let non_retryable = policies.non_retryable.as_ref();
    let is_named = |kind: &FailureKind| non_retryable.is_some_and(|kinds| kinds.contains(*kind));
    RetryRules {
        attempts_max: policies.max_attempts.map(i64::from),
        backoff: policies.backoff(),
        backoff_coefficient: policies.backoff_coefficient(),
        backoff_max: policies.backoff_max(),
        expires_at: policies.retry_expiration.map(|after| slot.plus(after)),
        non_retryable: kinds.filter(is_named).collect(),
    }
}

/// Returns the message of a call that failed for good; it names the policy that forbade a retry.
pub(crate) fn final_message(message: String, kind: FailureKind, why: NoRetry) -> String {
    match why {
        NoRetry::Final => message,
        NoRetry::NonRetryable => {
            format!("{message}; not retried, since `non_retryable` names `{kind}`")
        }
        NoRetry::Expired(expires_at) => {
            format!("{message}; not retried, since `retry_expiration` ends at {expires_at}")
        }
    }
}
