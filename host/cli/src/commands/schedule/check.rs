//! `campanile schedule check`: what a schedules file would change, without changing it.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::Common;
use crate::output::{self, Failure, Record, Result, refused};
use campanile_engine::schedule_admin::{
    Diff, Difference, Refusal, ScheduleDefinition, difference_lines,
};
use campanile_engine::schedules_file::rehearse;
use campanile_package::quota::{Groups, check_group};
use campanile_package::{files, schedule_reader};

#[derive(Args)]
pub(crate) struct Check {
    /// The schedules file [default: the configured one]
    file: Option<PathBuf>,
}

/// The changes that a schedules file makes, or would make.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct FileReport<'a> {
    /// Names of schedules.
    added: Vec<&'a str>,
    changed: Vec<ChangedSchedule<'a>>,
    /// Names of schedules.
    removed: Vec<&'a str>,
    refused: Vec<Refusal>,
    #[serde(skip)]
    diff: &'a Diff,
}

#[derive(Serialize, schemars::JsonSchema)]
struct ChangedSchedule<'a> {
    schedule: &'a str,
    differences: &'a [Difference],
}

impl<'a> FileReport<'a> {
    pub(super) fn new(diff: &'a Diff, refused: Vec<Refusal>) -> FileReport<'a> {
        let added = diff.added.iter().map(|wanted| wanted.name.as_str());
        let changed = diff.changed.iter().map(|changed| ChangedSchedule {
            schedule: &changed.wanted.name,
            differences: &changed.differences,
        });
        let removed = diff.removed.iter();
        let removed = removed.map(|schedule| schedule.definition.name.as_str());
        FileReport {
            added: added.collect(),
            changed: changed.collect(),
            removed: removed.collect(),
            refused,
            diff,
        }
    }
}

impl Check {
    pub(crate) async fn run(self, common: &Common) -> Result {
        let config = common.config()?;
        let file = self.file.unwrap_or(config.files.schedules);
        let wanted = read(&file, &config.groups)?;
        // The transaction is not committed, so nothing changes.
        let (mut tx, now) = common.write_with_time().await?;
        let (diff, refused) = rehearse(&mut tx, &wanted, now).await?;
        drop(tx);
        let report = FileReport::new(&diff, refused);
        common.print(&report)?;
        output::check(report.refused.is_empty())
    }
}

/// Read the schedules that a file defines.
pub(crate) fn read(file: &Path, groups: &Groups) -> Result<Vec<ScheduleDefinition>> {
    let path = file.display().to_string();
    let text = match files::read_text(file) {
        Ok(Some(text)) => text,
        Ok(None) => {
            return Err(refused!("{path}: the file does not exist").hint("correct the path"));
        }
        Err(why) => return Err(refused!("{path}: {why}")),
    };
    let read = schedule_reader::read_file(&path, &text);
    let wanted = read.map_err(Failure::refused)?;
    for ScheduleDefinition { name, policies, .. } in &wanted {
        check_group(policies, groups)
            .map_err(|why| refused!("{path}: the schedule `{name}`: {why}"))?;
    }
    Ok(wanted)
}

impl Record for FileReport<'_> {
    fn print(&self) -> Result {
        for wanted in &self.diff.added {
            let (name, package, rule) = (&wanted.name, &wanted.package, &wanted.rule);
            let (kind, expression, timezone) = (rule.kind, &rule.expression, &rule.timezone);
            output::print_line!("added {name}: {kind} {expression} {timezone}, of {package}")?;
        }
        for changed in &self.changed {
            output::print_line!("changed {}:", changed.schedule)?;
            for line in difference_lines(changed.differences) {
                output::print_line!("  {line}")?;
            }
        }
        for name in &self.removed {
            output::print_line!("removed {name}")?;
        }
        for Refusal { schedule, error } in &self.refused {
            output::print_line!("refused {schedule}: {error}")?;
        }
        if !self.refused.is_empty() {
            output::print_message(
                "while one schedule is refused, the others are added and changed, and none is removed",
            );
        } else if self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty() {
            output::print_message(
                "the file changes nothing: the schedules are those that it defines",
            );
        }
        Ok(())
    }
}
