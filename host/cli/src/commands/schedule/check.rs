//! `campanile schedule check`: what a schedules file would change, without changing it.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::Common;
use crate::output::{self, Failure, Record, Result, refused};
use campanile_control::admin::schedule_admin::{Refusal, ScheduleDefinition, difference_lines};
use campanile_control::orders::definition::Definition;
use campanile_control::orders::files::{CheckFile, FileName, NamedFile};
use campanile_control::records::schedules_file::FileReport;
use campanile_model::text::printable_line;
use campanile_package::{files, schedule_reader};

#[derive(Args)]
pub(crate) struct Check {
    /// The schedules file [default: the configured one]
    file: Option<PathBuf>,
}

/// The changes of a schedules file, with the definitions that it has.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct PrintedReport<'a> {
    pub report: FileReport,
    #[serde(skip)]
    pub wanted: &'a [ScheduleDefinition],
}

impl Check {
    pub(crate) async fn run(self, common: &Common) -> Result {
        let (file, wanted) = read_for(common, self.file)?;
        let order = CheckFile(named_file(&file, &wanted)?);
        let report = common.order("", &order, "").await?;
        let is_accepted = report.refused.is_empty();
        let wanted = &wanted;
        common.print(&PrintedReport { report, wanted })?;
        output::check(is_accepted)
    }
}

/// Read a schedules file, the configured one without `file`. Return its path and the schedules that it defines.
pub(crate) fn read_for(
    common: &Common,
    file: Option<PathBuf>,
) -> Result<(PathBuf, Vec<ScheduleDefinition>)> {
    let file = match file {
        Some(file) => file,
        None => common.config()?.files.schedules,
    };
    let wanted = read(&file)?;
    Ok((file, wanted))
}

/// Returns the body of a request about a schedules file.
pub(super) fn named_file(file: &Path, wanted: &[ScheduleDefinition]) -> Result<NamedFile> {
    let schedules = wanted.iter().cloned().map(Definition::of_new);
    let name = file.display().to_string().parse::<FileName>();
    Ok(NamedFile {
        file: name.map_err(|why| refused!("the path of the schedules file {why}"))?,
        schedules: schedules.collect(),
    })
}

fn read(file: &Path) -> Result<Vec<ScheduleDefinition>> {
    let path = file.display().to_string();
    let text = match files::read_text(file) {
        Ok(Some(text)) => text,
        Ok(None) => {
            return Err(refused!("{path}: the file does not exist").hint("correct the path"));
        }
        Err(why) => return Err(refused!("{path}: {why}")),
    };
    schedule_reader::read_file(&path, &text).map_err(Failure::refused)
}

impl Record for PrintedReport<'_> {
    fn print(&self) -> Result {
        let report = &self.report;
        let defined = |name: &String| self.wanted.iter().find(|wanted| wanted.name == *name);
        for wanted in report.added.iter().filter_map(defined) {
            let (name, package, rule) = (&wanted.name, &wanted.package, &wanted.rule);
            let (kind, expression, timezone) = (rule.kind, &rule.expression, &rule.timezone);
            output::print_line!("added {name}: {kind} {expression} {timezone}, of {package}")?;
        }
        for changed in &report.changed {
            output::print_line!("changed {}:", changed.schedule)?;
            for line in difference_lines(&changed.differences) {
                output::print_line!("  {}", printable_line(&line))?;
            }
        }
        for name in &report.removed {
            output::print_line!("removed {name}")?;
        }
        for Refusal { schedule, error } in &report.refused {
            output::print_line(&printable_line(&format!("refused {schedule}: {error}")))?;
        }
        if !report.refused.is_empty() {
            output::print_message(
                "while one schedule is refused, the others are added and changed, and none is removed",
            );
        } else if report.added.is_empty() && report.changed.is_empty() && report.removed.is_empty()
        {
            output::print_message(
                "the file changes nothing: the schedules are those that it defines",
            );
        }
        Ok(())
    }
}
