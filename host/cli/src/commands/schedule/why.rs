//! `campanile schedule why`: the history of a slot, one line for each finding.

use clap::Args;

use crate::Common;
use crate::output::{self, Record, Result, optional};
use campanile_control::questions::schedules;
use campanile_control::reports::why::{Answer, Finding};
use campanile_model::text::printable;

#[derive(Args)]
pub(crate) struct Why {
    /// The schedule's name, an earlier name, or the name of a removed schedule
    name: String,
    #[command(flatten)]
    question: schedules::Why,
}

impl Why {
    pub(crate) async fn run(&self, common: &Common) -> Result {
        common.print_answer(&self.name, &self.question).await
    }
}

impl Record for Answer {
    /// Print one line for each finding, with its time in UTC and in the schedule's zone.
    fn print(&self) -> Result {
        output::print_line!("{} ({})", self.schedule, self.timezone)?;
        let cells: Vec<Vec<String>> = self.findings.iter().map(cells).collect();
        for (finding, cells) in self.findings.iter().zip(output::columns(&cells)) {
            let text = printable(&finding.text).replace(['\n', '\t'], " ");
            output::print_line!("  {cells}  {text}")?;
        }
        Ok(())
    }
}

/// Returns the kind of a finding, its time in UTC, and its time in the schedule's zone.
fn cells(finding: &Finding) -> Vec<String> {
    let at = optional(&finding.at);
    let mut local = finding.local.clone().unwrap_or_default();
    local.truncate(local.find('[').unwrap_or(local.len()));
    vec![finding.kind.as_str().replace('_', " "), at, local]
}
