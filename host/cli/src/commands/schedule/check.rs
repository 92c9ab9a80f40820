//! `campanile schedule check`: what a schedules file would change, without changing it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::schedule_admin::{Diff, Wanted, difference_lines};
use campanile_engine::schedules_file::{Refusal, rehearse};
use campanile_model::text::printable;
use campanile_package::{files, schedule_reader};

#[derive(Args)]
pub(crate) struct Check {
    /// The schedules file [default: that of the configuration]
    file: Option<PathBuf>,
}

impl Check {
    pub(super) async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let file = match self.file {
            Some(file) => file,
            None => common.config()?.schedules,
        };
        let wanted = read(&file)?;
        let (db, clock) = common.open_with_clock().await?;
        // Not committed: it is a rehearsal.
        let mut tx = db.write().await?;
        let (diff, refusals) = rehearse(&mut tx, &wanted, clock.now()).await?;
        drop(tx);
        match common.json {
            true => output::json_out(&value(&diff, &refusals))?,
            false => print(&diff, &refusals)?,
        }
        Ok(ExitCode::from(u8::from(!refusals.is_empty())))
    }
}

/// The schedules that the file orders.
pub(crate) fn read(file: &Path) -> Result<Vec<Wanted>, Failure> {
    let shown = file.display().to_string();
    let text = match files::read_text(file) {
        Ok(Some(text)) => text,
        Ok(None) => return Err(Failure::refused(format!("{shown}: it is not there"))),
        Err(why) => return Err(Failure::refused(format!("{shown}: {why}"))),
    };
    let read = schedule_reader::read_file(&shown, &text);
    let schedules = read.map_err(|error| Failure::refused(error.to_string()))?;
    Ok(schedules.into_iter().map(Wanted::from).collect())
}

fn value(diff: &Diff, refusals: &[Refusal]) -> Value {
    let added = diff.added.iter().map(|wanted| &wanted.name);
    let changed = diff.changed.iter().map(
        |changed| json!({ "schedule": changed.wanted.name, "differences": changed.differences }),
    );
    let removed = diff
        .removed
        .iter()
        .map(|schedule| &schedule.definition.name);
    let refused = refusals.iter();
    let refused = refused.map(|(name, why)| json!({ "schedule": name, "error": why }));
    json!({
        "added": added.collect::<Vec<_>>(),
        "changed": changed.collect::<Vec<_>>(),
        "removed": removed.collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
    })
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
        output::line(&printable(line))?;
    }
    if lines.is_empty() {
        output::talk("it would change nothing");
    }
    if !refusals.is_empty() {
        output::talk("while a schedule is refused, the others are taken over and none is removed");
    }
    Ok(())
}
