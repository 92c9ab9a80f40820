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
    pub fn failed(message: impl ToString) -> Failure {
        Failure {
            message: message.to_string(),
            hint: None,
            code: 1,
        }
    }

    /// Make the error of a command that was refused before it changed anything: exit code 2.
    pub fn refused(message: impl ToString) -> Failure {
        Failure {
            code: 2,
            ..Failure::failed(message)
        }
    }

    /// Add what the operator can do next, unless `hint` is empty.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        Failure { hint, ..self }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::refused(error)
    }
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Failure {
        match error {
            DbError::Unexpected(_) => Failure::failed(error),
            DbError::Unavailable(_) => Failure::refused(error).hint(
                "check that the server runs, that the address is right, and that no firewall blocks it",
            ),
            // Nothing was changed, and the operator must act first.
            _ => Failure::refused(error),
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
                Failure::refused(error).hint(hint)
            }
            error => Failure::refused(error),
        }
    }
}

impl From<PackageError> for Failure {
    fn from(error: PackageError) -> Failure {
        match error {
            PackageError::Db(error) => error.into(),
            error => Failure::refused(&error).hint(error.hint()),
        }
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Failure {
        Failure::refused(&error).hint(error.hint())
    }
}

impl From<RuleError> for Failure {
    fn from(error: RuleError) -> Failure {
        Failure::refused(&error).hint(error.hint())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        match error {
            StartError::Db(error) => error.into(),
            error => Failure::refused(error),
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
pub(crate) fn print_failure(failure: &Failure, as_json: bool) -> ExitCode {
    print_message(&format!("error: {}", failure.message));
    if let Some(hint) = &failure.hint {
        print_message(&format!("\nhint: {hint}"));
    }
    if as_json {
        let report = ErrorReport {
            error: &failure.message,
            hint: failure.hint.as_deref(),
        };
        // If stdout is closed too, there is no place left to report to.
        let _ = print_json(&report);
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
pub(crate) fn print_list<R: Record>(records: &[R], as_json: bool) -> Result<(), Failure> {
    match as_json {
        true => print_json(records),
        false => print_table(records),
    }
}

/// Print one record with its details, or as a JSON object.
pub(crate) fn print_record<R: Record>(record: &R, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(record);
    }
    print_detail(record)?;
    record.print_details()
}

/// Print `value` as JSON, or `text` for people.
pub(crate) fn print_report(
    value: &impl Serialize,
    text: &str,
    as_json: bool,
) -> Result<(), Failure> {
    match as_json {
        true => print_json(value),
        false => print_line(text),
    }
}

/// Print `value` as JSON on stdout.
pub(crate) fn print_json(value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(not_json)?;
    write_line(&text)
}

/// Print text on stdout; control characters, which a guest may have written, are escaped.
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
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
pub(crate) fn print_sidecar_lines<'r>(
    package: &str,
    missing: impl IntoIterator<Item = &'r Request>,
) -> Result<(), Failure> {
    let lines = sidecar_lines(missing);
    if lines.is_empty() {
        return Ok(());
    }
    print_line(&format!(
        "\nto grant what is missing, add to {package}.toml:\n{lines}"
    ))
}

/// Print one message on stderr. A closed stderr does not change the exit code.
pub(crate) fn print_message(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

/// Replace the last line of the terminal on stderr.
pub(crate) fn redraw(text: &str) {
    let mut stderr = io::stderr().lock();
    // Return to the first column, clear the line, and cut a long line off instead of wrapping it.
    let _ = write!(stderr, "\r\x1b[K\x1b[?7l{text}\x1b[?7h").and_then(|()| stderr.flush());
}

/// Print the keys of a record, one on a line. Those without a value are left out.
pub(crate) fn print_detail<R: Record>(record: &R) -> Result<(), Failure> {
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
        print_line(&format!("{heading:width$} {text}"))?;
    }
    Ok(())
}

/// Print records under a header, each column as wide as its widest cell.
pub(crate) fn print_table<'r, R: Record + 'r>(
    records: impl IntoIterator<Item = &'r R>,
) -> Result<(), Failure> {
    let header = headings(R::LIST).map(|heading| heading.to_uppercase());
    let mut rows: Vec<Vec<String>> = vec![header.collect()];
    for record in records {
        let texts = texts(record, R::LIST)?;
        rows.push(texts.iter().map(|text| cell(text)).collect());
    }
    for row in columns(&rows) {
        print_line(row.trim_end())?;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_shown_without_json_syntax() {
        for (value, text) in [
            (json!(null), ""),
            (json!("a b"), "a b"),
            (json!(true), "yes"),
            (json!(false), "no"),
            (json!(7), "7"),
            (json!(0.5), "0.50"),
            (json!(["a", "b"]), "a, b"),
            (json!({"a": 1}), "{\"a\":1}"),
        ] {
            assert_eq!(plain(&value), text);
        }
    }

    #[test]
    fn a_cell_is_one_line_without_control_characters() {
        assert_eq!(cell(""), "-");
        assert_eq!(cell("a\nb\tc\u{1b}"), "a b c\\u{1b}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A", "B"], ["long", "é"]].map(|row| row.map(str::to_owned).to_vec());
        let lines: Vec<String> = columns(&rows).collect();
        assert_eq!(lines, ["A     B", "long  é"]);
    }

    #[test]
    fn a_key_without_its_own_text_shows_its_json() {
        #[derive(Serialize)]
        struct Sample {
            first_name: &'static str,
            size: u32,
        }
        impl Record for Sample {
            fn text(&self, key: &str) -> Option<String> {
                (key == "size").then(|| format!("{} bytes", self.size))
            }
        }
        let sample = Sample {
            first_name: "Ada",
            size: 3,
        };
        let shown = texts(&sample, "size first_name missing").unwrap();
        assert_eq!(shown, ["3 bytes", "Ada", ""]);
        let shown: Vec<String> = headings("size first_name").collect();
        assert_eq!(shown, ["size", "first name"]);
    }
}
