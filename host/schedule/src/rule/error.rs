//! What is wrong with a rule, and what to write instead.

/// Why a rule was refused.
///
/// `Display` is one lower-case sentence that names the part and its position, counted in
/// characters from 1; [`RuleError::hint`] says what to write instead.
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

    /// The same error, said of `part`, which stands in front.
    pub(super) fn within(self, part: &str) -> RuleError {
        RuleError {
            message: format!("{part}: {}", self.message),
            ..self
        }
    }

    /// What to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

/// `text` in backquotes: short, and on one line whatever was typed.
pub(super) fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 32;
    let start: String = text.chars().take(CHARS_MAX).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", start.escape_debug())
}

/// The position, from 1 and in characters, of the byte `offset` of `text`.
pub(super) fn position(text: &str, offset: usize) -> usize {
    text.char_indices()
        .take_while(|&(start, _)| start < offset)
        .count()
        + 1
}
