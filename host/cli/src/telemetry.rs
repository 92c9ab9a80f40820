//! The log on stderr, and the escaping of text that guests wrote.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::IsTerminal as _;

use crate::environment;
use campanile_model::text::printable;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Return the filter that applies without `CAMPANILE_LOG`.
///
/// It hides messages of libraries that repeat Campanile's own, such as a warning for each connection in an outage.
fn filter_default() -> String {
    let database = campanile_store::LOG_FILTER;
    format!("info,{database},wasmtime=warn,wasmtime_wasi=warn,cranelift=warn,hyper=warn")
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people, with colours on a terminal.
    #[default]
    Human,
    /// A JSON object on each line.
    Json,
}

/// Write log lines to stderr in `format`, filtered by `CAMPANILE_LOG`, by default from level info.
///
/// Stdout is for data. There are colours only on a terminal, and not when `NO_COLOR` is set.
///
/// # Errors
/// When `CAMPANILE_LOG` is not a valid filter, or the log of this process was set up before.
pub fn init(format: LogFormat) -> Result<(), String> {
    let filter = filter(std::env::var_os(environment::LOG).as_deref())?;
    let lines = fmt::layer()
        // Reporting a closed stderr on stderr would panic. A host must survive the reader of its log.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let log = tracing_subscriber::registry().with(filter);
    let done = match format {
        LogFormat::Human => {
            let colours = colours(
                std::io::stderr().is_terminal(),
                std::env::var_os(environment::NO_COLOR).as_deref(),
            );
            let lines = lines.with_target(false).with_ansi(colours);
            log.with(lines).try_init()
        }
        LogFormat::Json => log.with(lines.json().flatten_event(true)).try_init(),
    };
    done.map_err(|_| "logging is already set up in this process".to_owned())
}

fn filter(text: Option<&OsStr>) -> Result<Targets, String> {
    let text = match text {
        Some(text) if !text.is_empty() => text.to_string_lossy(),
        _ => Cow::Owned(filter_default()),
    };
    text.parse().map_err(|error: ParseError| {
        let text = printable(&text);
        format!(
            "CAMPANILE_LOG=`{text}` is not a log filter ({error}): write a level such as `debug`, or `info,campanile=trace`"
        )
    })
}

fn colours(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_and_no_color_unset() {
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
        assert!(error.starts_with("CAMPANILE_LOG=`campanile=loud` is not a log filter"));
    }
}
