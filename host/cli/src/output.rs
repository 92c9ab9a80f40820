//! What goes to stdout and stderr.

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::config::ConfigError;
use campanile_engine::StartError;
use campanile_engine::approval::PackageError;
use campanile_engine::schedule_admin::ScheduleError;
use campanile_model::text::printable;
use campanile_package::requests::{Request, sidecar_lines};
use campanile_schedule::policy::PolicyError;
use campanile_schedule::rule::RuleError;
use campanile_store::DbError;

/// Why a command did not do what it was asked: one sentence, perhaps a hint, and the exit code.
#[derive(Debug)]
pub(super) struct Failure {
    message: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// The thing asked for failed: exit code 1.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            hint: None,
            code: 1,
        }
    }

    /// Refused before anything was done: exit code 2.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure {
            code: 2,
            ..Failure::failed(message)
        }
    }

    /// The same with what to do next.
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
                "check that it runs, that its address is right, and that no firewall is in the way",
            ),
            // Nothing was done, and the operator has to do something about it.
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

/// Say on stderr what went wrong, and on stdout too when a program reads there; gives the exit code.
pub(super) fn fail(failure: &Failure, as_json: bool) -> ExitCode {
    talk(&format!("error: {}", printable(&failure.message)));
    if let Some(hint) = &failure.hint {
        talk(&format!("\nhint: {}", printable(hint)));
    }
    if as_json {
        let error = json!({ "error": failure.message, "hint": failure.hint });
        // Nothing more can be said when nobody reads.
        let _ = json_out(&error);
    }
    ExitCode::from(failure.code)
}

/// Print `value` as JSON on stdout.
pub(super) fn json_out(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::failed(format!("the answer is not JSON: {error}")))?;
    line(&text)
}

/// Print one line on stdout.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{text}") {
        // `campanile launch list | head` has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!("stdout: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Print what to add to the sidecar of `package`, so that it grants all of `missing`.
pub(super) fn lines_to_add<'r>(
    package: &str,
    missing: impl IntoIterator<Item = &'r Request>,
) -> Result<(), Failure> {
    let lines = sidecar_lines(missing);
    if lines.is_empty() {
        return Ok(());
    }
    line("")?;
    line(&printable(&format!(
        "to grant what is missing, in {package}.toml:\n{lines}"
    )))
}

/// Say one line on stderr. Where nobody listens, that is no reason to end otherwise.
pub(super) fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Say something on a terminal in place of what was said in this line before.
pub(super) fn redraw(text: &str) {
    let mut stderr = io::stderr().lock();
    // To the first column, and away with what stands there; what is too long is cut off and not wrapped.
    let _ = write!(stderr, "\r\x1b[K\x1b[?7l{text}\x1b[?7h").and_then(|()| stderr.flush());
}

/// Print rows under a header, each column as wide as its widest cell.
pub(super) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), Failure> {
    let rows: Vec<[String; N]> = rows
        .into_iter()
        .map(|row| row.map(|cell| printable(&cell).replace(['\n', '\t'], " ")))
        .collect();
    let mut widths = header.map(|cell| cell.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let print = |cells: [&str; N]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        line(padded.join("  ").trim_end())
    };
    print(header)?;
    for row in &rows {
        print(std::array::from_fn(|place| row[place].as_str()))?;
    }
    Ok(())
}

/// A value that may be absent, as a cell.
pub(super) fn cell(value: &Option<impl ToString>) -> String {
    value
        .as_ref()
        .map_or_else(|| "-".to_owned(), ToString::to_string)
}
