//! The report of an import: every line and what became of it.

use serde::Serialize;

use crate::output::cell;
use campanile_model::clock::Timestamp;

/// What became of a line.
#[derive(Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Became {
    /// A schedule, which is new.
    Added,
    /// A schedule that was there.
    Exists,
    /// Nothing: it could not be carried over.
    #[default]
    Refused,
    /// The zone of the lines after it.
    Zone,
    /// Nothing: a variable for commands.
    Variable,
}

/// One line of the crontab and what became of it.
#[derive(Default, Serialize)]
pub(super) struct Told {
    pub line: usize,
    pub became: Became,
    pub schedule: Option<String>,
    pub package: Option<String>,
    pub expression: Option<String>,
    pub timezone: Option<String>,
    pub command: Option<String>,
    pub variable: Option<String>,
    pub next_slot: Option<Timestamp>,
    /// What cannot be carried over, or is read otherwise than it looks.
    pub notes: Vec<String>,
    pub error: Option<String>,
    pub hint: Option<String>,
}

impl Told {
    /// A variable, and why it is not carried over.
    pub fn variable(name: &str) -> Told {
        let note = match name {
            "TZ" => {
                "TZ is for the commands and not the zone of cron's schedule; write CRON_TZ, or give --tz"
            }
            _ => "a task gets variables only from `grants.env` of its package's sidecar",
        };
        Told {
            became: Became::Variable,
            variable: Some(name.to_owned()),
            notes: vec![note.to_owned()],
            ..Told::default()
        }
    }

    /// What became of the line, on one line.
    pub fn text(&self, dry_run: bool) -> String {
        let schedule = || {
            let next = self.next_slot.map(|slot| format!(", next at {slot}"));
            format!(
                "{}: cron {}, {}, package {}{}",
                cell(&self.schedule),
                cell(&self.expression),
                cell(&self.timezone),
                cell(&self.package),
                next.unwrap_or_default()
            )
        };
        let became = match self.became {
            Became::Added if dry_run => format!("would add {}", schedule()),
            Became::Added => format!("added {}", schedule()),
            Became::Exists => format!("exists as {}", schedule()),
            Became::Refused => format!("not carried over: {}", cell(&self.error)),
            Became::Zone => format!("from here on in {}", cell(&self.timezone)),
            Became::Variable => format!("not carried over: the variable {}", cell(&self.variable)),
        };
        let parts = [became]
            .into_iter()
            .chain(self.hint.clone())
            .chain(self.notes.clone());
        parts.collect::<Vec<_>>().join("; ")
    }
}
