//! What the process says about itself on stderr, and how text of guests is made safe to print.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// What is shown when `CAMPANILE_LOG` does not say.
///
/// The libraries' own notes of level info repeat what ours say about the same event. So do the warnings of every
/// single connection of an outage.
fn filter_default() -> String {
    let database = crate::db::LOG_FILTER;
    format!("info,{database},wasmtime=warn,wasmtime_wasi=warn,cranelift=warn,hyper=warn")
}

/// The shape of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line for a person, coloured on a terminal.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `CAMPANILE_LOG` is not a filter.
    #[error(
        "CAMPANILE_LOG=`{text}` is not a log filter ({reason}): write a level such as `debug`, or `info,campanile=trace`"
    )]
    Filter { text: String, reason: String },
    /// Something else in this process has already done it.
    #[error("logging is already set up in this process")]
    Twice,
}

/// Send log lines to stderr in `format`, filtered by `CAMPANILE_LOG`, else from level info up.
///
/// Stdout is left to data. Colours only on a terminal, and not when `NO_COLOR` is set.
pub fn init(format: LogFormat) -> Result<(), TelemetryError> {
    let filter = filter(std::env::var_os("CAMPANILE_LOG").as_deref())?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would tell a broken stderr to stderr, and panic: a host outlives whoever reads its log.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let done = match format {
        LogFormat::Human => {
            let colours = colours(
                std::io::stderr().is_terminal(),
                std::env::var_os("NO_COLOR").as_deref(),
            );
            lines.with_target(false).with_ansi(colours).try_init()
        }
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    done.map_err(|_| TelemetryError::Twice)
}

fn filter(text: Option<&OsStr>) -> Result<EnvFilter, TelemetryError> {
    let text = match text {
        Some(text) if !text.is_empty() => text.to_string_lossy(),
        _ => Cow::Owned(filter_default()),
    };
    EnvFilter::try_new(&text).map_err(|error| TelemetryError::Filter {
        text: printable(&text).into_owned(),
        reason: error.to_string(),
    })
}

fn colours(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

/// `text` with every control character but newline and tab written out, as `\u{1b}`.
///
/// A task writes its log lines and failures; printed raw, they could clear the operator's terminal,
/// set its title or show one thing while meaning another. Characters that turn the direction of
/// writing are treated as controls for the same reason.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(hostile) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if hostile(character) {
            // Writing to a String cannot fail.
            let _ = write!(safe, "{}", character.escape_unicode());
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// [`printable`] on one line: a newline of a guest's must not begin a log line that seems to be the host's.
pub fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

/// [`printable`] with every line but the first set off, so that none can pass for one of the host's.
pub fn printable_lines(text: &str) -> String {
    printable(text).trim_end().replace('\n', "\n    | ")
}

fn hostile(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => {
            true
        }
        // Ends of lines, to some.
        '\u{2028}' | '\u{2029}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_text_cannot_reach_the_terminal_with_control_characters() {
        assert_eq!(printable("plain\n\ttext é 🔔"), "plain\n\ttext é 🔔");
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
        assert_eq!(
            printable("\u{1b}[2Jgone\r\u{9b}31m\u{7}\0"),
            "\\u{1b}[2Jgone\\u{d}\\u{9b}31m\\u{7}\\u{0}"
        );
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(printable_line("a\nb\r"), "a\\nb\\u{d}");
        assert_eq!(
            printable_lines("a\n2026-11-21T02:00:00Z error b\r\u{2028}c\n"),
            "a\n    | 2026-11-21T02:00:00Z error b\\u{d}\\u{2028}c"
        );
    }

    #[test]
    fn colours_need_a_terminal_and_no_wish_against_them() {
        assert!(colours(true, None));
        assert!(colours(true, Some(OsStr::new(""))));
        assert!(!colours(true, Some(OsStr::new("1"))));
        assert!(!colours(false, None));
    }

    #[test]
    fn a_wrong_filter_is_named() {
        assert!(filter(None).is_ok());
        assert!(filter(Some(OsStr::new(""))).is_ok());
        assert!(filter(Some(OsStr::new("warn,campanile::engine=trace"))).is_ok());
        let error = filter(Some(OsStr::new("campanile=loud"))).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("CAMPANILE_LOG=`campanile=loud` is not a log filter")
        );
    }
}
