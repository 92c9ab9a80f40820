//! What is wrong with policies, and what to write instead.

use super::typed::Policy;

/// Why policies were refused.
///
/// `Display` is one lower-case sentence that names the policy; [`PolicyError::hint`] says what to
/// write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PolicyError {
    message: String,
    hint: String,
}

impl PolicyError {
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> PolicyError {
        PolicyError {
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// The policy that is to blame, if it is one: the message begins with it.
    pub fn policy(&self) -> Option<Policy> {
        let first = self.message.split([' ', ',']).next();
        first.and_then(|word| word.parse().ok())
    }

    /// What to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}
