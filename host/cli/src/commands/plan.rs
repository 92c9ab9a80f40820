//! `campanile plan`: a forecast of launches.

mod chart;
pub(crate) mod report;

use std::path::PathBuf;

use clap::Args;

use super::schedule::check;
use super::serve;
use crate::Common;
use crate::output::{self, Result};
use campanile_control::bounds::Number;
use campanile_control::orders::definition::Definition;
use campanile_control::orders::files::SchedulesFile;
use campanile_control::problem::Problem;
use campanile_control::reports::forecast::report::PlanReport;
use campanile_control::reports::forecast::{GetPlan, PreparedForecast};
use campanile_control::settings::Settings;
use campanile_model::clock::Timestamp;
use campanile_package::ScheduleDefinition;
use campanile_store::Db;
use report::PrintedPlan;

/// Maximum number of decisions in a printed forecast.
const DECISIONS_MAX: i64 = 1_000_000;

#[derive(Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    question: GetPlan,
    /// Simulate with this schedules file, and show the differences
    #[arg(long, value_name = "FILE")]
    diff: Option<PathBuf>,
    /// Print every decision
    #[arg(long)]
    rows: bool,
}

impl Plan {
    pub async fn run(self, common: &Common) -> Result {
        let wanted = match &self.diff {
            Some(file) => Some(check::read_for(common, Some(file.clone()))?.1),
            None => None,
        };
        let report = ask(common, &self.question, wanted).await?;
        let with_rows = self.rows;
        let printed = PrintedPlan { report, with_rows };
        common.print(&printed)?;
        output::check(printed.report.refused.is_empty())
    }
}

async fn ask(
    common: &Common,
    question: &GetPlan,
    wanted: Option<Vec<ScheduleDefinition>>,
) -> Result<PlanReport> {
    let Some(client) = common.client()? else {
        let settings = serve::settings(&common.config()?);
        let (db, clock) = common.open_with_clock().await?;
        let question = &GetPlan {
            decisions: Some(Number(DECISIONS_MAX)),
            ..question.clone()
        };
        let wanted = wanted.as_deref();
        return Ok(forecast(&db, &settings, question, wanted, clock.now()).await?);
    };
    let call = match wanted {
        None => client.get(&["plan"]),
        Some(wanted) => {
            let schedules = wanted.into_iter().map(Definition::of_new);
            let schedules = SchedulesFile {
                schedules: schedules.collect(),
            };
            client.post(&["plan", "diff"], &schedules)?
        }
    };
    call.query(question)?.send().await
}

/// Makes a forecast, or compares it with one for the schedules `wanted`.
pub(crate) async fn forecast(
    db: &Db,
    settings: &Settings,
    question: &GetPlan,
    wanted: Option<&[ScheduleDefinition]>,
    now: Timestamp,
) -> Result<PlanReport, Problem> {
    let request = question.request(now)?;
    let name = question.schedule.as_deref();
    let read = PreparedForecast::read(db, settings, request, name, wanted, now);
    Ok(read.await?.report())
}
