//! The log on stderr, and the escaping of text that guests wrote.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{Debug, Display, Result as FmtResult};
use std::io;

use crate::environment;
use crate::output::has_colours;
use crate::progress::Stderr;
use campanile_model::text::{printable, printable_json, printable_line, printable_lines};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The filter that applies without `CAMPANILE_LOG`.
const DEFAULT: &str = "info";

/// What `--verbose` adds: a line for each launch that succeeds.
const VERBOSE: &str = "campanile_engine::tell::launch_log=debug";

/// Returns the filter for libraries. `CAMPANILE_LOG` overrides it by naming one: `debug,sqlx=debug` shows SQL.
///
/// It hides messages repeating Campanile's own, such as a warning for each connection in an outage.
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

/// Writes log lines to stderr in `format`, filtered by `CAMPANILE_LOG`, by default from level info.
///
/// With `is_verbose`, launches that succeed are logged too. Stdout is for data. There are colours only on a terminal without
/// `NO_COLOR`.
///
/// A line shows the fields of the spans it was written in: a person reads `run{schedule=nightly …}:` before the message, a program
/// finds the innermost span in `span` and all of them in `spans`.
///
/// # Errors
///
/// Returns an error if `CAMPANILE_LOG` isn't a valid filter, or if this process already has a log.
pub fn init(format: LogFormat, is_verbose: bool) -> Result<(), String> {
    let text = std::env::var_os(environment::LOG);
    let (by_field, targets) = filter(text.as_deref(), is_verbose)?;
    let lines = fmt::layer()
        // Reporting a closed stderr on stderr would panic. A host must not end with the reader of its log.
        .log_internal_errors(false)
        .with_writer(|| Stderr);
    let log = tracing_subscriber::registry().with(by_field).with(targets);
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

/// Writes the message or another field of a log line or a span. A file's name in a field, for example, must not change the
/// terminal. Messages of the host may have several lines.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> FmtResult {
    let text = format!("{value:?}");
    match field.name() {
        "message" => writer.write_str(&printable_lines(&text)),
        // A value must not look like another span.
        name if text.contains(['{', '}']) && !text.starts_with('"') => {
            write!(writer, "{name}={:?}", printable_line(&text))
        }
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

/// What the log shows: first by the fields of spans, if the filter names any, then by targets alone.
type Filter = (Option<EnvFilter>, Targets);

fn filter(text: Option<&OsStr>, is_verbose: bool) -> Result<Filter, String> {
    let text = match text {
        Some(text) if !text.is_empty() => text.to_string_lossy(),
        _ => Cow::Borrowed(DEFAULT),
    };
    let wrong = |error: &dyn Display| {
        let text = printable(&text);
        format!(
            "CAMPANILE_LOG=`{text}` is not a log filter ({error}): write a level such as `debug`, or `info,campanile=trace`, or one field of a span, as in `info,[run{{schedule=nightly}}]=debug`"
        )
    };
    // The parser expects no spaces around a directive. Of two directives for one target, the last one holds.
    let own = text.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    let verbose = if is_verbose { VERBOSE } else { "" };
    let all = format!("{},{own},{verbose}", of_libraries());
    let all = all.trim_end_matches(',');
    if !text.contains('[') {
        own.parse::<Targets>().map_err(|error| wrong(&error))?;
        let targets = all.parse().map_err(|error: ParseError| wrong(&error))?;
        return Ok((None, targets));
    }
    let parse = |text: &str| EnvFilter::builder().parse(text);
    parse(&own).map_err(|error| wrong(&error))?;
    let by_field = parse(all).map_err(|error| wrong(&error))?;
    // Within a span that a filter names, the former lets lines of libraries through too.
    let named = own
        .split(',')
        .filter(|it| it.contains('=') && !it.contains(['[', ']', '{', '}']));
    let named: String = named.map(|it| format!(",{it}")).collect();
    let libraries = format!("trace,{}{named}", of_libraries());
    let libraries = libraries
        .parse()
        .map_err(|error: ParseError| wrong(&error))?;
    Ok((Some(by_field), libraries))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use super::*;
    use tracing::Level;

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

    /// Waits for the logs of other tests. All logs of a process share one cache of who wants which span, and that cache answers for
    /// two logs at once with "ask both", which drops spans below the level that their filter names.
    fn only_log() -> MutexGuard<'static, ()> {
        static ONLY_LOG: Mutex<()> = Mutex::new(());
        ONLY_LOG.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the log of `work` in `format`, filtered by `filter_text`.
    fn logged(format: LogFormat, filter_text: &str, work: impl FnOnce()) -> String {
        let _only = only_log();
        let written = Written::default();
        let lines = fmt::layer()
            .without_time()
            .with_target(false)
            .with_ansi(false);
        let to = written.clone();
        let (by_field, targets) = filter(Some(OsStr::new(filter_text)), false).unwrap();
        let log = tracing_subscriber::registry().with(by_field).with(targets);
        let guard = match format {
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
        work();
        drop(guard);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn no_field_of_a_log_line_reaches_the_terminal_with_control_characters() {
        let name = "a\u{1b}[2J\u{9b}\u{202e}b";
        let [human, json] = [LogFormat::Human, LogFormat::Json].map(|format| {
            logged(format, DEFAULT, || {
                let _span = tracing::error_span!("request", path = %name).entered();
                tracing::warn!(package = %name, count = 1, "rejected {name}");
            })
        });
        let escaped = "a\\u{1b}[2J\\u{9b}\\u{202e}b";
        assert_eq!(
            human,
            format!(
                " WARN request{{path={escaped}}}: rejected {escaped} package={escaped} count=1\n"
            )
        );
        assert!(!json.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{json}");
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&line["package"], &line["span"]["path"]),
            (&name.into(), &name.into())
        );
    }

    #[test]
    fn a_field_of_a_span_filters_the_log() {
        // The spans of a host: a run by name, and inside it a call that only some filters show.
        let work = || {
            for schedule in ["nightly", "@team/hourly", "db-nightly"] {
                let run = tracing::error_span!("run", schedule, launch = %"0192-ab");
                let _run = run.entered();
                let _call = tracing::debug_span!("call", task = "greet").entered();
                tracing::debug!("called");
                tracing::warn!("slow");
            }
            tracing::debug!("outside");
        };
        let found = |filter_text: &str| {
            let lines = logged(LogFormat::Json, filter_text, work);
            let read = |line: &str| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let schedule = line["spans"][0]["schedule"].as_str().unwrap_or("-");
                format!("{schedule} {}", line["message"].as_str().unwrap())
            };
            lines.lines().map(read).collect::<Vec<_>>().join(", ")
        };
        let warnings = "nightly slow, @team/hourly slow, db-nightly slow";
        for (filter_text, expected) in [
            ("warn", warnings),
            (
                "error,[run{schedule=^nightly}]=debug",
                "nightly called, nightly slow",
            ),
            ("[{schedule=@team/hourly}]=warn", "@team/hourly slow"),
            (
                "off, [run{schedule=nightly}]=warn",
                "nightly slow, db-nightly slow",
            ),
            ("error,[run{launch=0192.*}]=warn", warnings),
            ("error,campanile[call{task=greet}]=warn", warnings),
            ("error,campanile_engine[call{task=greet}]=warn", ""),
            ("error,[run{launch=0193.*}]=debug", ""),
        ] {
            assert_eq!(found(filter_text), expected, "{filter_text}");
        }
    }

    #[test]
    fn libraries_are_quiet_unless_they_are_named() {
        let enabled = |filter_text: Option<&str>| {
            let (by_field, targets) = filter(filter_text.map(OsStr::new), false).unwrap();
            let log = tracing_subscriber::registry().with(by_field).with(targets);
            let _only = only_log();
            let _log = log.set_default();
            [
                tracing::enabled!(target: "campanile_engine::run", Level::DEBUG),
                tracing::enabled!(target: "sqlx::query", Level::DEBUG),
                tracing::enabled!(target: "wasmtime_internal_cache::worker", Level::DEBUG),
                tracing::enabled!(target: "hyper::proto", Level::DEBUG),
            ]
        };
        for text in [None, Some("info"), Some("info,campanile_store=debug")] {
            assert_eq!(enabled(text), [false; 4], "{text:?}");
        }
        for text in ["debug", "trace", "debug,campanile=trace"] {
            assert_eq!(enabled(Some(text)), [true, false, false, false], "{text}");
        }
        assert_eq!(
            enabled(Some("info,sqlx=debug")),
            [false, true, false, false]
        );
    }

    #[test]
    fn libraries_are_quiet_within_a_span_that_a_filter_names() {
        let work = || {
            let _run = tracing::error_span!("run", schedule = "nightly").entered();
            tracing::debug!("called");
            tracing::debug!(target: "sqlx::query", "SELECT");
        };
        for (filter_text, lines) in [
            ("info,[run{schedule=nightly}]=debug", 1),
            ("info,[run{schedule=nightly}]=debug,sqlx=debug", 2),
        ] {
            let written = logged(LogFormat::Json, filter_text, work);
            assert_eq!(written.lines().count(), lines, "{filter_text}: {written}");
        }
    }

    #[test]
    fn a_value_looks_like_no_span() {
        let written = logged(LogFormat::Human, DEFAULT, || {
            let path = "/x}:run{schedule=nightly}:";
            let _span = tracing::error_span!("request", path = %path).entered();
            tracing::warn!("refused");
        });
        assert!(written.contains("path=\"/x}:run"), "{written}");
    }

    #[test]
    fn a_wrong_filter_is_named() {
        let read = |text: &str| filter(Some(OsStr::new(text)), true);
        assert!(filter(None, true).is_ok());
        for text in [
            "",
            "warn,campanile::engine=trace",
            "info, [run{schedule=a}]=debug",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
        for text in [
            "campanile=loud",
            "[run{schedule=a]=debug",
            "[run{schedule=(}]=debug",
        ] {
            let error = read(text).unwrap_err();
            let expected = format!("CAMPANILE_LOG=`{text}` is not a log filter");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
