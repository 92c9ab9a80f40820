//! The report of an import: every line and its result.

use serde::Serialize;

use campanile_model::clock::Timestamp;

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
}

/// One line of the crontab and its result.
#[derive(Default, Serialize, schemars::JsonSchema)]
pub(crate) struct LineReport {
    pub line: usize,
    #[serde(rename = "became")]
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

impl LineReport {
    /// Return the report of a variable, with the reason why it is not imported.
    pub fn variable(name: &str) -> LineReport {
        let note = match name {
            "TZ" => {
                "TZ is for the commands, not the time zone of the schedule; write CRON_TZ, or give --tz"
            }
            _ => "a task gets variables only from `grants.env` of its package's sidecar",
        };
        LineReport {
            result: LineResult::Variable,
            variable: Some(name.to_owned()),
            notes: vec![note.to_owned()],
            ..LineReport::default()
        }
    }

    /// Return the report as one line of text.
    pub fn text(&self, dry_run: bool) -> String {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let schedule = || {
            let next = self.next_slot.map(|slot| format!(", next slot {slot}"));
            format!(
                "{}: cron {}, {}, package {}{}",
                text(&self.schedule),
                text(&self.expression),
                text(&self.timezone),
                text(&self.package),
                next.unwrap_or_default()
            )
        };
        let result = match self.result {
            LineResult::Added if dry_run => format!("would add {}", schedule()),
            LineResult::Added => format!("added {}", schedule()),
            LineResult::Exists => format!("exists as {}", schedule()),
            LineResult::Refused => format!("not imported: {}", text(&self.error)),
            LineResult::Zone => format!("the lines below are in {}", text(&self.timezone)),
            LineResult::Variable => {
                format!("not imported: the variable {}", text(&self.variable))
            }
        };
        let parts = [result]
            .into_iter()
            .chain(self.hint.clone())
            .chain(self.notes.clone());
        parts.collect::<Vec<_>>().join("; ")
    }
}
