//! `campanile schedule import`: add the schedules of a crontab, and report every line.

pub(crate) mod report;

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::Common;
use crate::crontab::{self, Entry, Line, LineKind};
use crate::output::{self, Failure};
use campanile_engine::schedule_admin::{self, ScheduleDefinition, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::text::printable_line;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{HashKey, Rule, RuleError, RuleKind, RuleText};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{Db, Origin, Tx};
use report::{ImportReport, LineReport, LineResult};

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

impl Import {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let Import::Crontab(crontab) = self;
        crontab.run(common).await
    }
}

impl Crontab {
    async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let file = self.file.display();
        let text = self
            .read()
            .map_err(|error| Failure::refused(format!("{file}: {error}")))?;
        let lines = crontab::read(&text, self.system);
        let is_entry =
            |line: &&Line| matches!(line.kind, LineKind::Entry(_) | LineKind::Fault { .. });
        if lines.iter().find(is_entry).is_none() {
            return Err(Failure::refused(format!("{file}: the file has no entry"))
                .hint("write minute, hour, day-of-month, month, day-of-week and a command"));
        }
        if let Some(zone) = &self.tz {
            // Faults in the crontab are reported line by line. This one is not in the crontab.
            check_zone(zone)?;
        }
        let (db, clock) = common.open_with_clock().await?;
        let report = self.import(&db, &lines, clock.now()).await?;
        match common.json {
            true => output::print_json(&report)?,
            false => self.print(&report)?,
        }
        Ok(output::exit_code(report.refused == 0))
    }

    fn read(&self) -> io::Result<String> {
        let input: Box<dyn io::Read> = match self.file == Path::new("-") {
            true => Box::new(io::stdin().lock()),
            false => Box::new(std::fs::File::open(&self.file)?),
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

    /// Import the lines in one transaction, which a dry run does not commit.
    async fn import(
        &self,
        db: &Db,
        lines: &[Line],
        now: Timestamp,
    ) -> Result<ImportReport, ScheduleError> {
        let lines = match self.dry_run {
            true => self.lines(&mut db.write().await?, lines, now).await?,
            false => {
                schedule_admin::change(db, async |tx| self.lines(tx, lines, now).await).await?
            }
        };
        let count = |result| lines.iter().filter(|line| line.result == result).count();
        Ok(ImportReport {
            dry_run: self.dry_run,
            added: count(LineResult::Added),
            exist: count(LineResult::Exists),
            refused: count(LineResult::Refused),
            lines,
        })
    }

    async fn lines(
        &self,
        tx: &mut Tx,
        lines: &[Line],
        now: Timestamp,
    ) -> Result<Vec<LineReport>, ScheduleError> {
        if let Some(package) = &self.package {
            schedule_admin::known_package(tx, package).await?;
        }
        let rows = schedules::list(tx, None, None).await?;
        let mut target = Target {
            taken: rows.iter().map(|row| row.definition.name.clone()).collect(),
            rows,
            now,
        };
        let mut reports = Vec::with_capacity(lines.len());
        for line in lines {
            let report = match &line.kind {
                LineKind::Entry(entry) => self.entry(tx, &mut target, entry).await?,
                LineKind::Zone(zone) => self.zone(zone.as_deref()),
                LineKind::Variable(name) => LineReport::variable(name),
                LineKind::Fault { message, hint } => LineReport {
                    error: Some((*message).to_owned()),
                    hint: Some((*hint).to_owned()),
                    ..LineReport::default()
                },
            };
            reports.push(LineReport {
                line: line.number,
                ..report
            });
        }
        Ok(reports)
    }

    fn zone<'a>(&'a self, zone: Option<&'a str>) -> LineReport {
        let zone = self.zone_or_default(zone);
        let report = LineReport {
            result: LineResult::Zone,
            timezone: Some(zone.to_owned()),
            ..LineReport::default()
        };
        match check_zone(zone) {
            Ok(()) => report,
            Err(error) => LineReport {
                result: LineResult::Refused,
                error: Some(error.to_string()),
                hint: Some(error.hint().to_owned()),
                ..report
            },
        }
    }

    fn zone_or_default<'a>(&'a self, zone: Option<&'a str>) -> &'a str {
        zone.or(self.tz.as_deref()).unwrap_or("UTC")
    }

    async fn entry(
        &self,
        tx: &mut Tx,
        target: &mut Target,
        entry: &Entry,
    ) -> Result<LineReport, ScheduleError> {
        let zone = self.zone_or_default(entry.zone.as_deref());
        let rule = RuleText::new(RuleKind::Cron, &entry.expression, zone);
        let report = LineReport {
            expression: Some(entry.expression.clone()),
            timezone: Some(zone.to_owned()),
            command: Some(entry.command.clone()),
            notes: self.notes(entry),
            ..LineReport::default()
        };
        let package = match &self.package {
            Some(package) => package.clone(),
            None => entry.name(),
        };
        let context = Map::from_iter([("command".to_owned(), json!(entry.command))]);
        let wanted = ScheduleDefinition {
            name: entry.name(),
            package,
            task: None,
            rule,
            policies: Policies::default(),
            context,
        };
        match target.put(tx, wanted).await {
            Ok(put) => Ok(LineReport {
                result: put.result,
                schedule: Some(put.name),
                package: Some(put.package),
                next_slot: put.next_slot,
                notes: report.notes.into_iter().chain(put.notes).collect(),
                ..report
            }),
            Err(ScheduleError::Db(error)) => Err(error.into()),
            Err(error) => Ok(LineReport {
                hint: hint(&error),
                error: Some(error.to_string()),
                ..report
            }),
        }
    }

    /// Return notes about the parts of an entry that are not imported.
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

    fn print(&self, report: &ImportReport) -> Result<(), Failure> {
        for line in &report.lines {
            let text = printable_line(&line.text(self.dry_run));
            output::print_line(&format!("line {}: {text}", line.line))?;
        }
        let ImportReport {
            added,
            exist,
            refused,
            ..
        } = report;
        let would = if self.dry_run { "would be " } else { "" };
        output::print_message(&format!(
            "{added} {would}added, {exist} exist already, {refused} not imported"
        ));
        let has_default_zone = report
            .lines
            .iter()
            .take_while(|line| line.result != LineResult::Zone)
            .any(|line| matches!(line.result, LineResult::Added | LineResult::Exists));
        if self.tz.is_none() && has_default_zone {
            output::print_message(
                "times without a CRON_TZ line are read in UTC; cron reads them in its machine's zone; choose with --tz",
            );
        }
        Ok(())
    }
}

/// Refuse an unknown time zone; any rule in it shows whether it is known.
fn check_zone(zone: &str) -> Result<(), RuleError> {
    let daily = RuleText::new(RuleKind::Cron, "@daily", zone);
    Rule::parse(&daily, HashKey::NONE).map(drop)
}

/// Return what the operator can do about an entry that could not be imported.
fn hint(error: &ScheduleError) -> Option<String> {
    match error {
        ScheduleError::Rule(error) => Some(error.hint().to_owned()),
        ScheduleError::Policy(error) => Some(error.hint().to_owned()),
        ScheduleError::UnknownPackage { name, .. } => Some(format!(
            "put {name}.wasm into the plugin folder, or name a package with --package"
        )),
        _ => None,
    }
    .filter(|hint| !hint.is_empty())
}

/// The existing schedules.
struct Target {
    /// The schedules that no entry has matched yet.
    rows: Vec<Schedule>,
    taken: BTreeSet<String>,
    now: Timestamp,
}

/// The schedule of an entry.
struct Put {
    result: LineResult,
    name: String,
    package: String,
    next_slot: Option<Timestamp>,
    notes: Vec<String>,
}

impl Target {
    /// Add the schedule unless it exists; add a number to its name when the name is taken.
    async fn put(&mut self, tx: &mut Tx, wanted: ScheduleDefinition) -> Result<Put, ScheduleError> {
        let rule = Rule::parse(&wanted.rule, HashKey::NONE)?;
        let notes = rule.notes().to_vec();
        if let Some(place) = self.rows.iter().position(|row| is_same(row, &wanted)) {
            let row = self.rows.swap_remove(place);
            return Ok(Put {
                result: LineResult::Exists,
                name: row.definition.name,
                package: row.definition.package,
                next_slot: row.state.next_slot,
                notes,
            });
        }
        let wanted = ScheduleDefinition {
            name: self.free_name(&wanted.name),
            ..wanted
        };
        schedule_admin::add(tx, &wanted, Origin::Operator, self.now).await?;
        self.taken.insert(wanted.name.clone());
        let row = schedule_admin::find(tx, &wanted.name).await?;
        Ok(Put {
            result: LineResult::Added,
            name: wanted.name,
            package: wanted.package,
            next_slot: row.state.next_slot,
            notes,
        })
    }

    fn free_name(&self, name: &str) -> String {
        let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
        std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.taken.contains(name))
            .unwrap_or_default()
    }
}

/// Return whether a schedule has the wanted definition, whatever its name is.
fn is_same(row: &Schedule, wanted: &ScheduleDefinition) -> bool {
    let context = || serde_json::from_str::<Value>(&row.definition.context).ok();
    row.definition.rule == wanted.rule
        && row.definition.package == wanted.package
        && row.definition.task == wanted.task
        && context().is_some_and(|context| context.as_object() == Some(&wanted.context))
}
