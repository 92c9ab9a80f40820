//! Why a schedule did what it did, as a chain of lines.

use clap::Args;

use super::output::{self, Failure};
use crate::Common;
use campanile_engine::why::{self, Answer, Finding, When};
use campanile_model::text::printable;

#[derive(Args)]
pub(crate) struct Why {
    /// The schedule's name, also one that it had before, or that of a removed schedule
    name: String,
    /// The slot, or any moment: 2026-11-21T08:00:00Z, or what the clock of its zone shows, "2026-03-08 02:30" [default:
    /// what was decided last, and what comes next]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl Why {
    /// Tell the whole chain.
    pub(super) async fn run(&self, common: &Common) -> Result<(), Failure> {
        let when = self.at.as_deref().map(str::parse::<When>).transpose();
        let when =
            when.map_err(|error| Failure::refused(format!("--at: {error}")).hint(error.hint()))?;
        let (db, clock) = common.open_with_clock().await?;
        let mut tx = db.read().await?;
        let answer = why::why(&mut tx, &self.name, when, clock.now()).await?;
        if common.json {
            return output::json_out(&answer);
        }
        print(&answer)
    }
}

/// One line for each finding, each with its time in UTC and in the schedule's zone.
fn print(answer: &Answer) -> Result<(), Failure> {
    output::line(&format!("{} ({})", answer.schedule, answer.timezone))?;
    let columns: Vec<[String; 3]> = answer.findings.iter().map(columns).collect();
    let mut widths = [0; 3];
    for row in &columns {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (finding, row) in answer.findings.iter().zip(&columns) {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let text = printable(&finding.text).replace(['\n', '\t'], " ");
        output::line(&format!("  {}  {text}", cells.join("  ")))?;
    }
    Ok(())
}

/// What it is about, when in UTC, and when on the clock of the zone.
fn columns(finding: &Finding) -> [String; 3] {
    let at = finding.at.map_or_else(String::new, |at| at.to_string());
    let mut local = finding.local.clone().unwrap_or_default();
    local.truncate(local.find('[').unwrap_or(local.len()));
    [finding.kind.as_str().replace('_', " "), at, local]
}
