//! The report of an import: every line and its result.

use serde::Serialize;

use crate::output::{self, Record, Result};
use campanile_model::clock::Timestamp;
use campanile_model::text::printable_line;

/// The result of a line.
#[derive(Clone, Copy, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineResult {
    /// A new schedule.
    Added,
    /// A schedule that already exists.
    Exists,
    /// Not imported, because of an error.
    #[default]
    Refused,
    /// The time zone of the lines after it.
    Zone,
    /// Not imported: a variable for commands.
    Variable,
}

/// The result of an import.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ImportReport {
    pub dry_run: bool,
    /// The number of new schedules.
    pub added: usize,
    /// The number of entries whose schedule already exists.
    pub exist: usize,
    /// The number of lines that could not be imported.
    pub refused: usize,
    pub lines: Vec<LineReport>,
    /// Whether `--tz` chooses the zone of entries without one.
    #[serde(skip)]
    pub has_zone: bool,
}

/// One line of the crontab and its result.
#[derive(Default, Serialize, schemars::JsonSchema)]
pub(crate) struct LineReport {
    pub line: usize,
    pub result: LineResult,
    pub schedule: Option<String>,
    pub package: Option<String>,
    pub expression: Option<String>,
    pub timezone: Option<String>,
    pub command: Option<String>,
    pub variable: Option<String>,
    pub next_slot: Option<Timestamp>,
    /// What is not imported, or has another meaning than it seems.
    pub notes: Vec<String>,
    pub error: Option<String>,
    pub hint: Option<String>,
}

impl Record for ImportReport {
    fn print(&self) -> Result {
        for line in &self.lines {
            let text = printable_line(&line.text(self.dry_run));
            output::print_line!("line {}: {text}", line.line)?;
        }
        let would = if self.dry_run { "would be " } else { "" };
        output::print_message!(
            "{} {would}added, {} exist already, {} not imported",
            self.added,
            self.exist,
            self.refused
        );
        let mut before_zone = self
            .lines
            .iter()
            .take_while(|line| line.result != LineResult::Zone);
        let is_imported =
            |line: &LineReport| matches!(line.result, LineResult::Added | LineResult::Exists);
        if !self.has_zone && before_zone.any(is_imported) {
            output::print_message(
                "times without a CRON_TZ line are read in UTC; cron reads them in its machine's zone; choose with --tz",
            );
        }
        Ok(())
    }
}

impl LineReport {
    /// Record why the line is not imported, and what the operator can do unless `hint` is empty.
    pub fn refuse(&mut self, error: impl ToString, hint: impl Into<String>) {
        self.error = Some(error.to_string());
        self.hint = Some(hint.into()).filter(|hint| !hint.is_empty());
    }

    /// Return the report as one line of text.
    fn text(&self, dry_run: bool) -> String {
        let [schedule, package, expression, timezone, variable, error] = [
            &self.schedule,
            &self.package,
            &self.expression,
            &self.timezone,
            &self.variable,
            &self.error,
        ]
        .map(|value| value.as_deref().unwrap_or_default());
        let next = self.next_slot.map(|slot| format!(", next slot {slot}"));
        let next = next.unwrap_or_default();
        let schedule =
            format!("{schedule}: cron {expression}, {timezone}, package {package}{next}");
        let result = match self.result {
            LineResult::Added if dry_run => format!("would add {schedule}"),
            LineResult::Added => format!("added {schedule}"),
            LineResult::Exists => format!("exists as {schedule}"),
            LineResult::Refused => format!("not imported: {error}"),
            LineResult::Zone => format!("the lines below are in {timezone}"),
            LineResult::Variable => format!("not imported: the variable {variable}"),
        };
        let parts = [&result].into_iter().chain(&self.hint).chain(&self.notes);
        parts.cloned().collect::<Vec<_>>().join("; ")
    }
}
