//! Why a rule is refused.

/// Why a rule was refused.
///
/// `Display` is one lower-case sentence that names the part and its position, counted in characters
/// from 1. [`RuleError::hint`] is what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleError {
    message: String,
    hint: String,
}

impl RuleError {
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> RuleError {
        RuleError {
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Put the name of `part` in front of the message.
    pub(super) fn within(self, part: &str) -> RuleError {
        RuleError {
            message: format!("{part}: {}", self.message),
            ..self
        }
    }

    pub fn hint(&self) -> &str {
        &self.hint
    }
}

/// Returns `text` in backquotes, shortened and on one line.
pub(super) fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 32;
    let start: String = text.chars().take(CHARS_MAX).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", start.escape_debug())
}
