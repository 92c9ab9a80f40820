//! Why policies are refused.

use super::policies::Policy;

/// Why policies were refused.
///
/// `Display` is one lower-case sentence that names the policy; [`PolicyError::hint`] is what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PolicyError {
    policy: Option<Policy>,
    message: String,
    hint: String,
}

impl PolicyError {
    pub(super) fn new(
        policy: impl Into<Option<Policy>>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> PolicyError {
        PolicyError {
            policy: policy.into(),
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Returns the policy to correct; `None` when several policies and the rule contradict each other.
    pub fn policy(&self) -> Option<Policy> {
        self.policy
    }

    /// Returns what to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}
