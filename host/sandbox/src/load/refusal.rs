//! Why a file is refused, and the texts that refusals share.

use campanile_model::text::{cut_error, printable_line};

/// Why a file is not a package that can run: what it is, what is wrong with it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// One line, safe to print.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(message: impl Into<String>) -> Refusal {
        Refusal {
            message: cut_error(message),
        }
    }

    /// Escapes control characters, as names from a file may contain anything.
    pub(crate) fn printable(self) -> Refusal {
        Refusal::new(printable_line(&self.message))
    }
}

/// Returns the refusal with this message.
pub(crate) fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(message))
}

/// Returns the message about a file that ends too early.
pub(crate) fn cut_short(bytes: usize) -> String {
    format!(
        "the file is cut short after {bytes} bytes: copy it again, under another name that you change when the copy is complete"
    )
}

/// Returns the message about a component for WASI 0.3. `what` is the feature of the component that only WASI 0.3 has.
pub(crate) fn newer(what: &str) -> String {
    format!(
        "this component was built for WASI 0.3 (it {what}), which is newer than this version of Campanile: it runs WASI preview 1 and 0.2; build it for wasm32-wasip2"
    )
}

/// Returns up to four names for a sentence.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names[..names.len().min(SHOWN)].join("`, `");
    match names.len() {
        0 => "nothing".to_owned(),
        n if n > SHOWN => format!("`{shown}` and {} more", n - SHOWN),
        _ => format!("`{shown}`"),
    }
}

/// Returns the first line of an error's text, cut to a length that fits a sentence.
pub(crate) fn one_line(text: &str) -> &str {
    const SHOWN_BYTES: usize = 300;
    let line = text
        .lines()
        .next()
        .unwrap_or("")
        .trim_end_matches(['.', ':']);
    &line[..line.floor_char_boundary(SHOWN_BYTES)]
}
