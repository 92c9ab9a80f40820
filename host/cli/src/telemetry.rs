//! The log on stderr, and the escaping of text that guests wrote.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{Debug, Result as FmtResult};
use std::io;

use crate::environment;
use crate::output::has_colours;
use crate::progress::Stderr;
use campanile_model::text::{printable, printable_json, printable_line, printable_lines};
use tracing::Level;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The filter that applies without `CAMPANILE_LOG`.
const DEFAULT: &str = "info";

/// Return the filter of libraries. It holds unless `CAMPANILE_LOG` names them, as `debug,sqlx=debug` does for SQL.
///
/// It hides messages of libraries that repeat Campanile's own, such as a warning for each connection in an outage.
fn of_libraries() -> String {
    let database = campanile_store::LOG_FILTER;
    format!("{database},wasmtime=warn,wasmtime_wasi=warn,cranelift=warn,hyper=warn,rmcp=error")
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
/// With `is_verbose`, the launches that succeed are logged too. Stdout is for data. There are colours only on a terminal, and not when `NO_COLOR` is set.
///
/// # Errors
/// When `CAMPANILE_LOG` is not a valid filter, or the log of this process was set up before.
pub fn init(format: LogFormat, is_verbose: bool) -> Result<(), String> {
    let mut filter = filter(std::env::var_os(environment::LOG).as_deref())?;
    if is_verbose {
        filter = filter.with_target("campanile_engine::tell::launch_log", Level::DEBUG);
    }
    let lines = fmt::layer()
        // Reporting a closed stderr on stderr would panic. A host must not end with the reader of its log.
        .log_internal_errors(false)
        .with_writer(|| Stderr);
    let log = tracing_subscriber::registry().with(filter);
    let done = match format {
        LogFormat::Human => {
            let fields = debug_fn(write_field).delimited(" ");
            let lines = lines
                .with_target(false)
                .with_ansi(has_colours(&io::stderr()));
            log.with(lines.fmt_fields(fields)).try_init()
        }
        LogFormat::Json => {
            let lines = lines.with_writer(|| JsonWriter(Stderr));
            log.with(lines.json().flatten_event(true)).try_init()
        }
    };
    done.map_err(|_| "logging is already set up in this process".to_owned())
}

/// Write the message or another field of a log line. A file's name in a field, for example, must not change the terminal.
/// A message of the host may have several lines.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> FmtResult {
    let text = format!("{value:?}");
    match field.name() {
        "message" => writer.write_str(&printable_lines(&text)),
        name => write!(writer, "{name}={}", printable_line(&text)),
    }
}

/// Writes lines of JSON with the escapes of [`printable_json`]. Each write is whole lines.
struct JsonWriter<W>(W);

impl<W: io::Write> io::Write for JsonWriter<W> {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let lines_text = String::from_utf8_lossy(lines);
        self.0.write_all(printable_json(&lines_text).as_bytes())?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn filter(text: Option<&OsStr>) -> Result<Targets, String> {
    let text = match text {
        Some(text) if !text.is_empty() => text.to_string_lossy(),
        _ => Cow::Borrowed(DEFAULT),
    };
    let wrong = |error: ParseError| {
        let text = printable(&text);
        format!(
            "CAMPANILE_LOG=`{text}` is not a log filter ({error}): write a level such as `debug`, or `info,campanile=trace`"
        )
    };
    text.parse::<Targets>().map_err(wrong)?;
    // Of two directives for one target, the last one holds.
    format!("{},{text}", of_libraries()).parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_of_a_log_line_reaches_the_terminal_with_control_characters() {
        use std::sync::{Arc, Mutex};

        #[derive(Clone, Default)]
        struct Written(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Written {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let name = "a\u{1b}[2J\u{9b}\u{202e}b";
        let log = |written: &Written, format: LogFormat| {
            let lines = fmt::layer()
                .without_time()
                .with_target(false)
                .with_ansi(false);
            let to = written.clone();
            let log = tracing_subscriber::registry();
            let _guard = match format {
                LogFormat::Human => {
                    let fields = debug_fn(write_field).delimited(" ");
                    let lines = lines.with_writer(move || to.clone()).fmt_fields(fields);
                    log.with(lines).set_default()
                }
                LogFormat::Json => {
                    let lines = lines.with_writer(move || JsonWriter(to.clone()));
                    log.with(lines.json().flatten_event(true)).set_default()
                }
            };
            tracing::warn!(package = %name, count = 1, "rejected {name}");
        };
        let [human, json] = [LogFormat::Human, LogFormat::Json].map(|format| {
            let written = Written::default();
            log(&written, format);
            let bytes = written.0.lock().unwrap().clone();
            String::from_utf8(bytes).unwrap()
        });
        assert_eq!(
            human,
            " WARN rejected a\\u{1b}[2J\\u{9b}\\u{202e}b package=a\\u{1b}[2J\\u{9b}\\u{202e}b count=1\n"
        );
        assert!(!json.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{json}");
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(line["package"], name);
    }

    #[test]
    fn libraries_are_quiet_unless_they_are_named() {
        let enabled = |filter_text: Option<&str>, target: &str| {
            let filter = filter(filter_text.map(OsStr::new)).unwrap();
            filter.would_enable(target, &Level::DEBUG)
        };
        for text in [None, Some("info"), Some("info,campanile_store=debug")] {
            assert!(!enabled(text, "campanile_engine::run"), "{text:?}");
        }
        for text in ["debug", "trace", "debug,campanile=trace"] {
            assert!(enabled(Some(text), "campanile_engine::run"), "{text}");
            for library in [
                "sqlx::query",
                "wasmtime_internal_cache::worker",
                "hyper::proto",
            ] {
                assert!(!enabled(Some(text), library), "{text}: {library}");
            }
        }
        assert!(enabled(Some("info,sqlx=debug"), "sqlx::query"));
        assert!(!enabled(Some("info,sqlx=debug"), "hyper::proto"));
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
