//! Everything that commands print: data on stdout, messages on stderr.
//!
//! A [`Record`] is described once. Lists, detail views and `--json` are made from that description.

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use crate::config::ConfigError;
use campanile_engine::StartError;
use campanile_engine::approval::PackageError;
use campanile_engine::schedule_admin::ScheduleError;
use campanile_model::text::printable;
use campanile_package::requests::{Request, sidecar_lines};
use campanile_schedule::policy::PolicyError;
use campanile_schedule::rule::RuleError;
use campanile_store::DbError;

/// The error of a command: one sentence, perhaps a hint, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// Make the error of a command that was tried and failed: exit code 1.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            hint: None,
            code: 1,
        }
    }

    /// Make the error of a command that was refused before it changed anything: exit code 2.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure {
            code: 2,
            ..Failure::failed(message)
        }
    }

    /// Add what the operator can do next.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure {
            hint: Some(hint.into()),
            ..self
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::refused(error.to_string())
    }
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Failure {
        match error {
            DbError::Unexpected(_) => Failure::failed(error.to_string()),
            DbError::Unavailable(_) => Failure::refused(error.to_string()).hint(
                "check that the server runs, that the address is right, and that no firewall blocks it",
            ),
            // Nothing was changed, and the operator must act first.
            _ => Failure::refused(error.to_string()),
        }
    }
}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Failure {
        match error {
            ScheduleError::Db(error) => error.into(),
            ScheduleError::Rule(error) => error.into(),
            ScheduleError::Policy(error) => error.into(),
            ScheduleError::Outdated { ref name, now, .. } => {
                let hint = format!(
                    "look at it with `campanile schedule show {name}`, then edit it with --revision {now}"
                );
                Failure::refused(error.to_string()).hint(hint)
            }
            error => Failure::refused(error.to_string()),
        }
    }
}

impl From<PackageError> for Failure {
    fn from(error: PackageError) -> Failure {
        if let PackageError::Db(error) = error {
            return error.into();
        }
        let failure = Failure::refused(error.to_string());
        match error.hint() {
            hint if hint.is_empty() => failure,
            hint => failure.hint(hint),
        }
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Failure {
        Failure::refused(error.to_string()).hint(error.hint())
    }
}

impl From<RuleError> for Failure {
    fn from(error: RuleError) -> Failure {
        let failure = Failure::refused(error.to_string());
        match error.hint() {
            "" => failure,
            hint => failure.hint(hint),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        match error {
            StartError::Db(error) => error.into(),
            error => Failure::refused(error.to_string()),
        }
    }
}

/// The JSON that a command prints on stdout when it fails.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ErrorReport<'a> {
    error: &'a str,
    /// What the operator can do next.
    hint: Option<&'a str>,
}

/// Print `failure` on stderr, and on stdout when a program reads JSON there; return the exit code.
pub(crate) fn fail(failure: &Failure, as_json: bool) -> ExitCode {
    talk(&format!("error: {}", failure.message));
    if let Some(hint) = &failure.hint {
        talk(&format!("\nhint: {hint}"));
    }
    if as_json {
        let report = ErrorReport {
            error: &failure.message,
            hint: failure.hint.as_deref(),
        };
        // If stdout is closed too, there is no place left to report to.
        let _ = json_out(&report);
    }
    ExitCode::from(failure.code)
}

/// Something that commands list or show. Its `Serialize` implementation is its JSON.
pub(crate) trait Record: Serialize {
    /// The keys that a list shows, separated by spaces.
    const LIST: &'static str = "";
    /// The keys that a detail view shows, separated by spaces.
    const DETAIL: &'static str = "";

    /// Return what people see under `key`, where that is not the JSON value; empty for no value.
    fn text(&self, _key: &str) -> Option<String> {
        None
    }

    /// Print what follows the keys in a detail view.
    fn print_details(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Return the text of each of `keys`.
fn texts<R: Record>(record: &R, keys: &str) -> Result<Vec<String>, Failure> {
    let json = serde_json::to_value(record).map_err(not_json)?;
    let keys = keys.split_whitespace();
    let texts = keys.map(|key| record.text(key).unwrap_or_else(|| plain(&json[key])));
    Ok(texts.collect())
}

fn headings(keys: &str) -> impl Iterator<Item = String> {
    keys.split_whitespace().map(|key| key.replace('_', " "))
}

/// Return a JSON value as people read it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Number(number) if number.is_f64() => {
            format!("{:.2}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

fn not_json(error: serde_json::Error) -> Failure {
    Failure::failed(format!("the answer cannot be written as JSON: {error}"))
}

/// Print records as a table, or as a JSON array.
pub(crate) fn list<R: Record>(records: &[R], as_json: bool) -> Result<(), Failure> {
    match as_json {
        true => json_out(records),
        false => table(records),
    }
}

/// Print one record with its details, or as a JSON object.
pub(crate) fn show<R: Record>(record: &R, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return json_out(record);
    }
    detail(record)?;
    record.print_details()
}

/// Print `value` as JSON, or `text` for people.
pub(crate) fn report(value: &impl Serialize, text: &str, as_json: bool) -> Result<(), Failure> {
    match as_json {
        true => json_out(value),
        false => line(text),
    }
}

/// Print `value` as JSON on stdout.
pub(crate) fn json_out(value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(not_json)?;
    write_line(&text)
}

/// Print text on stdout; control characters, which a guest may have written, are escaped.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    write_line(&printable(text))
}

fn write_line(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        // `campanile launch list | head` closes the pipe when it has enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!("stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Print the lines to add to the sidecar of `package` that grant all of `missing`.
pub(crate) fn lines_to_add<'r>(
    package: &str,
    missing: impl IntoIterator<Item = &'r Request>,
) -> Result<(), Failure> {
    let lines = sidecar_lines(missing);
    if lines.is_empty() {
        return Ok(());
    }
    line(&format!(
        "\nto grant what is missing, add to {package}.toml:\n{lines}"
    ))
}

/// Print one message on stderr. A closed stderr does not change the exit code.
pub(crate) fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

/// Replace the last line of the terminal on stderr.
pub(crate) fn redraw(text: &str) {
    let mut stderr = io::stderr().lock();
    // Return to the first column, clear the line, and cut a long line off instead of wrapping it.
    let _ = write!(stderr, "\r\x1b[K\x1b[?7l{text}\x1b[?7h").and_then(|()| stderr.flush());
}

/// Print the keys of a record, one on a line. Those without a value are left out.
pub(crate) fn detail<R: Record>(record: &R) -> Result<(), Failure> {
    let texts = texts(record, R::DETAIL)?;
    let lines: Vec<(String, String)> = headings(R::DETAIL)
        .zip(texts)
        .filter(|(_, text)| !text.is_empty())
        .collect();
    let width = lines.iter().map(|(heading, _)| heading.len()).max();
    let width = width.unwrap_or_default();
    for (heading, text) in lines {
        // Text of a guest must not begin a line that looks like a key.
        let text = text.trim_end().replace('\n', &format!("\n{:width$} ", ""));
        line(&format!("{heading:width$} {text}"))?;
    }
    Ok(())
}

/// Print records under a header, each column as wide as its widest cell.
pub(crate) fn table<'r, R: Record + 'r>(
    records: impl IntoIterator<Item = &'r R>,
) -> Result<(), Failure> {
    let header = headings(R::LIST).map(|heading| heading.to_uppercase());
    let mut rows: Vec<Vec<String>> = vec![header.collect()];
    for record in records {
        let texts = texts(record, R::LIST)?;
        rows.push(texts.iter().map(|text| cell(text)).collect());
    }
    for row in columns(&rows) {
        line(row.trim_end())?;
    }
    Ok(())
}

/// Return a value as a cell of a table: one line, `-` for no value.
fn cell(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => printable(text).replace(['\n', '\t'], " "),
    }
}

/// Return each row as one line, its cells padded to the width of their columns.
pub(crate) fn columns(rows: &[Vec<String>]) -> impl Iterator<Item = String> {
    let mut widths = vec![0; rows.first().map_or(0, Vec::len)];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    rows.iter().map(move |row| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("  ")
    })
}

/// Return exit code 0 when `is_success`, else 1.
pub(crate) fn exit_code(is_success: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_success))
}

/// Return the text of a value that may be absent; empty when it is.
pub(crate) fn optional(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or_else(String::new, ToString::to_string)
}
