//! `campanile schedule check`: what a schedules file would change, without changing it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::schedule_admin::{
    Diff, Difference, Refusal, ScheduleDefinition, difference_lines,
};
use campanile_engine::schedules_file::rehearse;
use campanile_package::{files, schedule_reader};

#[derive(Args)]
pub(crate) struct Check {
    /// The schedules file [default: the configured one]
    file: Option<PathBuf>,
}

/// The changes that a schedules file would make.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct FileReport<'a> {
    /// Names of schedules.
    added: Vec<&'a str>,
    changed: Vec<ChangedSchedule<'a>>,
    /// Names of schedules.
    removed: Vec<&'a str>,
    refused: Vec<RefusedSchedule>,
}

#[derive(Serialize, schemars::JsonSchema)]
struct ChangedSchedule<'a> {
    schedule: &'a str,
    differences: &'a [Difference],
}

/// A schedule that Campanile would refuse, and why.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct RefusedSchedule {
    pub schedule: String,
    pub error: String,
}

impl From<Refusal> for RefusedSchedule {
    fn from((schedule, error): Refusal) -> RefusedSchedule {
        RefusedSchedule { schedule, error }
    }
}

impl Check {
    pub(crate) async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let file = match self.file {
            Some(file) => file,
            None => common.config()?.files.schedules,
        };
        let wanted = read(&file)?;
        let (db, clock) = common.open_with_clock().await?;
        // The transaction is not committed, so nothing changes.
        let mut tx = db.write().await?;
        let (diff, refusals) = rehearse(&mut tx, &wanted, clock.now()).await?;
        drop(tx);
        match common.json {
            true => output::print_json(&report(&diff, &refusals))?,
            false => print(&diff, &refusals)?,
        }
        Ok(output::exit_code(refusals.is_empty()))
    }
}

/// Read the schedules that a file defines.
pub(crate) fn read(file: &Path) -> Result<Vec<ScheduleDefinition>, Failure> {
    let path = file.display().to_string();
    let text = match files::read_text(file) {
        Ok(Some(text)) => text,
        Ok(None) => return Err(Failure::refused(format!("{path}: the file does not exist"))),
        Err(why) => return Err(Failure::refused(format!("{path}: {why}"))),
    };
    let read = schedule_reader::read_file(&path, &text);
    read.map_err(Failure::refused)
}

fn report<'a>(diff: &'a Diff, refusals: &'a [Refusal]) -> FileReport<'a> {
    let added = diff.added.iter().map(|wanted| wanted.name.as_str());
    let changed = diff.changed.iter().map(|changed| ChangedSchedule {
        schedule: &changed.wanted.name,
        differences: &changed.differences,
    });
    let removed = diff.removed.iter();
    FileReport {
        added: added.collect(),
        changed: changed.collect(),
        removed: removed
            .map(|schedule| schedule.definition.name.as_str())
            .collect(),
        refused: refusals
            .iter()
            .cloned()
            .map(RefusedSchedule::from)
            .collect(),
    }
}

fn print(diff: &Diff, refusals: &[Refusal]) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for wanted in &diff.added {
        let (rule, package) = (&wanted.rule, &wanted.package);
        lines.push(format!(
            "added {}: {} {} {}, of {package}",
            wanted.name, rule.kind, rule.expression, rule.timezone
        ));
    }
    for changed in &diff.changed {
        lines.push(format!("changed {}:", changed.wanted.name));
        let differences = difference_lines(&changed.differences);
        lines.extend(differences.iter().map(|line| format!("  {line}")));
    }
    for schedule in &diff.removed {
        lines.push(format!("removed {}", schedule.definition.name));
    }
    for (name, why) in refusals {
        lines.push(format!("refused {name}: {why}"));
    }
    for line in &lines {
        output::print_line(line)?;
    }
    if lines.is_empty() {
        output::print_message("the file would change nothing");
    }
    if !refusals.is_empty() {
        output::print_message(
            "while one schedule is refused, the others are added and changed, and none is removed",
        );
    }
    Ok(())
}
