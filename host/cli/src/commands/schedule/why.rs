//! `campanile schedule why`: the history of a slot, one line for each finding.

use clap::Args;

use crate::Common;
use crate::output::{self, Record, Result, optional, refused};
use campanile_control::why::{self, Answer, Finding, When};
use campanile_model::text::printable;

#[derive(Args)]
pub(crate) struct Why {
    /// The schedule's name, an earlier name, or the name of a removed schedule
    name: String,
    /// A slot or any other time: 2026-11-21T08:00:00Z, now-2h, or in the schedule's zone "2026-03-08 02:30" or "yesterday 14:00"
    /// [default: the last decision, and the next slot]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl Why {
    pub(crate) async fn run(&self, common: &Common) -> Result {
        let when = self.at.as_deref().map(moment).transpose()?;
        if let Some(client) = common.client()? {
            let call = client.get(&["schedules", &self.name, "why"]);
            let call = call.query("at", self.at.as_ref());
            return common.print(&call.send::<Answer>().await?);
        }
        let (mut tx, now) = common.read_with_time().await?;
        common.print(&why::why(&mut tx, &self.name, when, now).await?)
    }
}

/// Read the moment in question.
fn moment(text: &str) -> Result<When> {
    let when = text.parse::<When>();
    when.map_err(|error| refused!("--at: {error}").hint(error.hint()))
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

/// Return the kind of a finding, its time in UTC, and its time in the schedule's zone.
fn cells(finding: &Finding) -> Vec<String> {
    let at = optional(&finding.at);
    let mut local = finding.local.clone().unwrap_or_default();
    local.truncate(local.find('[').unwrap_or(local.len()));
    vec![finding.kind.as_str().replace('_', " "), at, local]
}
