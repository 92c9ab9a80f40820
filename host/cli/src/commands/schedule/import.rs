//! `campanile schedule import`: add the schedules of a crontab, and report every line.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use campanile_model::json_text::JsonObject;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;

use crate::Common;
use crate::crontab::{self, Entry, Line};
use crate::output::{self, Failure, Record, Result, optional, refused};
use campanile_control::admin::schedule_admin::{self, ScheduleDefinition, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::text::printable_line;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{HashKey, Rule, RuleError, RuleKind, RuleText};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{Origin, Tx};

/// The key of the entry's command in the context of its schedule.
const COMMAND: &str = "command";
/// The size limit of a crontab: it is imported in one transaction.
const FILE_BYTES_MAX: u64 = 64 * 1024;

#[derive(Subcommand)]
pub(crate) enum Import {
    /// Import the entries of a crontab; exit code 1 when one of them could not be imported
    Crontab(Crontab),
}

#[derive(Args)]
pub(crate) struct Crontab {
    /// The crontab, or - for standard input
    file: PathBuf,
    /// The package to launch [default: the name of the program in the entry]
    #[arg(long)]
    package: Option<String>,
    /// The crontab has a user before each command, as /etc/crontab
    #[arg(long)]
    system: bool,
    /// The time zone of entries without a CRON_TZ line above them [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Report what would be imported, and change nothing
    #[arg(long)]
    dry_run: bool,
}

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
        let lines = self.lines.iter();
        let mut before_zone = lines.take_while(|line| line.result != LineResult::Zone);
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
    /// Record why the line is not imported, and what the operator can do.
    fn refuse(&mut self, failure: Failure) {
        self.error = Some(failure.message);
        self.hint = failure.hint;
    }

    /// Returns the report as one line of text.
    fn text(&self, dry_run: bool) -> String {
        let next = self.next_slot.map(|slot| format!(", next slot {slot}"));
        let schedule = format!(
            "{}: cron {}, {}, package {}{}",
            optional(&self.schedule),
            optional(&self.expression),
            optional(&self.timezone),
            optional(&self.package),
            optional(&next)
        );
        let result = match self.result {
            LineResult::Added if dry_run => format!("would add {schedule}"),
            LineResult::Added => format!("added {schedule}"),
            LineResult::Exists => format!("exists as {schedule}"),
            LineResult::Refused => format!("not imported: {}", optional(&self.error)),
            LineResult::Zone => format!("the lines below are in {}", optional(&self.timezone)),
            LineResult::Variable => {
                format!("not imported: the variable {}", optional(&self.variable))
            }
        };
        let parts = [&result].into_iter().chain(&self.hint).chain(&self.notes);
        parts.cloned().collect::<Vec<_>>().join("; ")
    }
}

impl Crontab {
    pub async fn run(self, common: &Common) -> Result {
        let file = self.file.display();
        let text = self.read();
        let text = text.map_err(|error| Failure::unreadable(&file, &error))?;
        let lines = crontab::read(&text, self.system);
        let is_entry =
            |(_, line): &(usize, Line)| matches!(line, Line::Entry(_) | Line::NoCommand { .. });
        if !lines.iter().any(is_entry) {
            return Err(refused!("{file}: the file has no entry")
                .hint("write minute, hour, day-of-month, month, day-of-week and a command"));
        }
        if let Some(zone) = &self.tz {
            // Faults in the crontab are reported line by line. This one is not in the crontab.
            check_zone(zone)?;
        }
        let lines = if self.dry_run {
            // The transaction is not committed, so nothing changes.
            let (mut tx, now) = common.write_with_time().await?;
            self.lines(&mut tx, &lines, now).await?
        } else {
            let import = async |tx: &mut Tx, now| self.lines(tx, &lines, now).await;
            common.change(import).await?
        };
        let count = |result| lines.iter().filter(|line| line.result == result).count();
        let report = ImportReport {
            dry_run: self.dry_run,
            added: count(LineResult::Added),
            exist: count(LineResult::Exists),
            refused: count(LineResult::Refused),
            lines,
            has_zone: self.tz.is_some(),
        };
        common.print(&report)?;
        output::check(report.refused == 0)
    }

    fn read(&self) -> io::Result<String> {
        let input: Box<dyn io::Read> = if self.file == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(std::fs::File::open(&self.file)?)
        };
        let mut bytes = Vec::new();
        input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let fault =
                format!("the file has more than {FILE_BYTES_MAX} bytes; import it in parts");
            return Err(io::Error::other(fault));
        }
        String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count();
            io::Error::other(format!(
                "line {line} is not UTF-8 text; convert the file, for example with iconv"
            ))
        })
    }

    /// Import the lines in one transaction.
    async fn lines(
        &self,
        tx: &mut Tx,
        lines: &[(usize, Line)],
        now: Timestamp,
    ) -> Result<Vec<LineReport>, ScheduleError> {
        if let Some(package) = &self.package {
            schedule_admin::known_package(tx, package).await?;
        }
        let rows = schedules::all(tx).await?;
        let mut target = Target {
            names: rows.iter().map(|row| row.definition.name.clone()).collect(),
            rows,
            now,
        };
        let mut reports = Vec::with_capacity(lines.len());
        for (number, line) in lines {
            let mut report = LineReport {
                line: *number,
                ..LineReport::default()
            };
            match line {
                Line::Entry(entry) => {
                    report.notes = self.notes(entry);
                    let imported = target.import(tx, self.wanted(entry), &mut report).await;
                    match imported {
                        Ok(result) => report.result = result,
                        Err(ScheduleError::Db(error)) => return Err(error.into()),
                        Err(error) => report.refuse(failure(error)),
                    }
                }
                Line::Zone(zone) => {
                    let zone = self.zone_or_default(zone.as_deref());
                    report.timezone = Some(zone.to_owned());
                    match check_zone(zone) {
                        Ok(()) => report.result = LineResult::Zone,
                        Err(error) => report.refuse(error.into()),
                    }
                }
                Line::Variable(name) => {
                    report.result = LineResult::Variable;
                    report.variable = Some(name.clone());
                    report.notes = vec![variable_note(name).to_owned()];
                }
                Line::NoCommand(hint) => {
                    report.refuse(Failure::refused("it has no command").hint(*hint));
                }
            }
            reports.push(report);
        }
        Ok(reports)
    }

    fn zone_or_default<'a>(&'a self, zone: Option<&'a str>) -> &'a str {
        zone.or(self.tz.as_deref()).unwrap_or("UTC")
    }

    /// Returns the schedule that an entry describes.
    fn wanted(&self, entry: &Entry) -> ScheduleDefinition {
        let zone = self.zone_or_default(entry.zone.as_deref());
        ScheduleDefinition {
            name: entry.name(),
            package: self.package.clone().unwrap_or_else(|| entry.name()),
            task: None,
            rule: RuleText::new(RuleKind::Cron, &entry.expression, zone),
            policies: Policies::default(),
            args: None,
            context: JsonObject::from([(COMMAND.to_owned(), json!(entry.command).into())]),
            enabled: true,
        }
    }

    /// Returns notes about the parts of an entry left out of the import.
    fn notes(&self, entry: &Entry) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(user) = &entry.user {
            notes.push(format!("the user {user} is ignored: tasks have no user"));
        }
        if !self.system && entry.command.split_ascii_whitespace().next() == Some("root") {
            notes.push("if `root` is the user, import it with --system".to_owned());
        }
        if entry.has_input {
            notes.push("the text after `%`, standard input for the command, is ignored".to_owned());
        }
        if entry.unlogged {
            notes.push("the `-` before the entry is ignored: every launch is recorded".to_owned());
        }
        notes
    }
}

/// Returns the reason why a variable is not imported.
fn variable_note(name: &str) -> &'static str {
    match name {
        "TZ" => {
            "TZ is for the commands, not the time zone of the schedule; write CRON_TZ, or give --tz"
        }
        _ => "a task gets variables only from `grants.env` of its package's sidecar",
    }
}

/// Refuse an unknown time zone; any rule in it shows whether it is known.
fn check_zone(zone: &str) -> Result<(), RuleError> {
    let daily = RuleText::new(RuleKind::Cron, "@daily", zone);
    Rule::parse(&daily, HashKey::NONE).map(drop)
}

/// Returns why an entry could not be imported.
fn failure(error: ScheduleError) -> Failure {
    match &error {
        ScheduleError::UnknownPackage(name, _) => Failure::refused(&error).hint(format!(
            "put {name}.wasm into the plugin folder, or name a package with --package"
        )),
        _ => error.into(),
    }
}

/// The existing schedules.
struct Target {
    /// The schedules that no entry has matched yet.
    rows: Vec<Schedule>,
    names: BTreeSet<String>,
    now: Timestamp,
}

impl Target {
    /// Add the schedule unless it exists; add a number to its name when another schedule has the name.
    async fn import(
        &mut self,
        tx: &mut Tx,
        mut wanted: ScheduleDefinition,
        report: &mut LineReport,
    ) -> Result<LineResult, ScheduleError> {
        report.expression = Some(wanted.rule.expression.clone());
        report.timezone = Some(wanted.rule.timezone.clone());
        report.command = serde_json::from_str(wanted.context[COMMAND].as_str()).ok();
        let rule = Rule::parse(&wanted.rule, HashKey::NONE)?;
        let same = self.rows.iter().position(|row| is_same(row, &wanted));
        let (result, row) = match same {
            Some(place) => (LineResult::Exists, self.rows.swap_remove(place)),
            None => {
                let name = wanted.name;
                let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
                let mut names = std::iter::once(name.clone()).chain(numbered);
                let is_free = |name: &String| !self.names.contains(name);
                wanted.name = names.find(is_free).unwrap_or_default();
                schedule_admin::add(tx, &wanted, Origin::Operator, self.now).await?;
                self.names.insert(wanted.name.clone());
                let row = schedule_admin::find(tx, &wanted.name).await?;
                (LineResult::Added, row)
            }
        };
        report.schedule = Some(row.definition.name);
        report.package = Some(row.definition.package);
        report.next_slot = row.state.next_slot;
        report.notes.extend_from_slice(rule.notes());
        Ok(result)
    }
}

/// Returns whether a schedule has the wanted definition, whatever its name is.
fn is_same(row: &Schedule, wanted: &ScheduleDefinition) -> bool {
    let context = || serde_json::from_str::<JsonObject>(&row.definition.context).ok();
    row.definition.rule == wanted.rule
        && row.definition.package == wanted.package
        && row.definition.task == wanted.task
        && context().is_some_and(|context| context == wanted.context)
}
