//! What the process says about itself on stderr, and how text of guests is made safe to print.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::IsTerminal as _;

use campanile_model::text::printable;
use tracing_subscriber::EnvFilter;

/// What is shown when `CAMPANILE_LOG` does not say.
///
/// The libraries' own notes of level info repeat what ours say about the same event. So do the warnings of every
/// single connection of an outage.
fn filter_default() -> String {
    let database = campanile_store::LOG_FILTER;
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

#[cfg(test)]
mod tests {
    use super::*;

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
