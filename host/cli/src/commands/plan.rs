//! `campanile plan`: a forecast of launches.

mod chart;
pub(crate) mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::schedule::check;
use super::serve;
use crate::Common;
use crate::client::Client;
use crate::output::{self, Result, refused};
use crate::times::time;
use campanile_control::forecast::report::PlanReport;
use campanile_control::forecast::{ForecastRequest, Outage, PreparedForecast};
use campanile_model::clock::{Clock, Timestamp};
use campanile_package::ScheduleDefinition;
use campanile_server::bodies;
use report::PrintedPlan;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The longest forecast.
const AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// The most decisions of a forecast that is printed.
const ROWS_MAX: usize = 1_000_000;

#[derive(Args)]
pub(crate) struct Plan {
    /// The start of the forecast [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Timestamp>,
    /// The end of the forecast [default: one day later, or one day after the last outage]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
    /// Show only this schedule; the others are simulated too
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<String>,
    /// Simulate an outage of all hosts between two times; can be repeated
    #[arg(long, value_name = "FROM..TO", value_parser = outage)]
    pub outage: Vec<Outage>,
    /// Simulate with this schedules file, and show the differences
    #[arg(long, value_name = "FILE")]
    pub diff: Option<PathBuf>,
    /// Print every decision
    #[arg(long)]
    pub rows: bool,
}

/// Parse an outage such as `2026-11-22T02:00:00Z..2026-11-22T05:00:00Z`.
pub(crate) fn outage(text: &str) -> Result<Outage, String> {
    Outage::read(text, Clock::system().now())
}

impl Plan {
    pub async fn run(self, common: &Common) -> Result {
        let report = self.forecast(common, ROWS_MAX).await?;
        let with_rows = self.rows;
        let printed = PrintedPlan { report, with_rows };
        common.print(&printed)?;
        output::check(printed.report.refused.is_empty())
    }

    /// Return the forecast. It stops after `rows_max` decisions.
    pub(crate) async fn forecast(&self, common: &Common, rows_max: usize) -> Result<PlanReport> {
        let wanted = match &self.diff {
            Some(file) => Some(check::read_for(common, Some(file.clone()))?.1),
            None => None,
        };
        if let Some(client) = common.client()? {
            return self.forecast_by_api(client, wanted).await;
        }
        let settings = serve::settings(&common.config()?);
        let (db, clock) = common.open_with_clock().await?;
        let now = clock.now();
        let question = self.question(now, rows_max)?;
        let (name, wanted) = (self.schedule.as_deref(), wanted.as_deref());
        let read = PreparedForecast::read(&db, &settings, question, name, wanted, now);
        Ok(read.await?.report())
    }

    async fn forecast_by_api(
        &self,
        client: &Client,
        wanted: Option<Vec<ScheduleDefinition>>,
    ) -> Result<PlanReport> {
        // Its refusals name options, not parameters.
        self.question(Clock::system().now(), ROWS_MAX)?;
        let mut call = match wanted {
            None => client.get(&["plan"]),
            Some(wanted) => {
                let schedules = wanted.into_iter().map(bodies::Definition::of_new);
                let schedules = bodies::SchedulesFile {
                    schedules: schedules.collect(),
                };
                client.post(&["plan", "diff"], &schedules)?
            }
        };
        call = call
            .query("from", self.from)
            .query("to", self.to)
            .query("schedule", self.schedule.as_ref());
        for Outage { from, to } in &self.outage {
            call = call.query("outage", Some(format!("{from}..{to}")));
        }
        call.send().await
    }

    fn question(&self, now: Timestamp, rows_max: usize) -> Result<ForecastRequest> {
        let from = self.from.unwrap_or(now);
        if from < now {
            return Err(refused!("{from} is in the past").hint(
                "leave --from out to start now; `campanile launch list` shows past decisions",
            ));
        }
        let back_at = self.outage.iter().map(|outage| outage.to).max();
        let to = self
            .to
            .unwrap_or_else(|| from.max(back_at.unwrap_or(from)).plus(DAY));
        if to <= from {
            return Err(refused!("--to {to} is not after --from {from}")
                .hint("give a later --to, or leave it out for a day"));
        }
        if to > now.plus(AHEAD_MAX) {
            return Err(refused!("{to} is more than a year ahead")
                .hint(format!("give a --to before {}", now.plus(AHEAD_MAX))));
        }
        for outage in &self.outage {
            if outage.to <= now {
                return Err(
                    refused!("the outage that ends at {} is in the past", outage.to).hint(
                        "give one that ends later; `campanile launch list` shows past decisions",
                    ),
                );
            }
            if outage.to < from || outage.to >= to {
                return Err(refused!(
                    "the outage ends at {}, but the forecast is from {from} to {to}",
                    outage.to
                )
                .hint("give a --from before its end and a --to after it, or leave both out"));
            }
        }
        Ok(ForecastRequest {
            from,
            to,
            outages: self.outage.clone(),
            rows_max,
        })
    }
}
