//! What is wrong with policies, and what to write instead.

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

    /// What to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}
