//! `campanile launch`: the decisions about slots.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use crate::output::{self, Failure, Record, optional};
use crate::{Common, Limit};
use campanile_engine::schedule_admin;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_store::launches::{self, LaunchRow};
use campanile_store::runs::RunRow;
use campanile_store::{Tx, history};

#[derive(Subcommand)]
pub(crate) enum Launch {
    /// List the newest launches, newest first
    List {
        /// List only the launches of this schedule
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show one launch: its decision, the versions that made it, and all its runs
    Show {
        /// The launch's id, as `launch list` and `schedule trigger` print it
        id: LaunchId,
    },
}

/// One launch with its runs.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct LaunchDetail {
    #[serde(flatten)]
    launch: LaunchRow,
    schedule_revision: i64,
    /// The host that decided the launch, or opened it last. Null when a person asked for it.
    decided_by: Option<String>,
    /// When a queued launch was opened.
    opened_at: Option<Timestamp>,
    runs: Vec<RunRow>,
}

impl Record for LaunchRow {
    const LIST: &'static str = "scheduled_time schedule status reason kind attempts run_id message";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "scheduled_time" => Some(self.slots_text(&self.scheduled_time.to_string())),
            "reason" if self.reason.is_none() => Some(optional(&self.failure)),
            _ => None,
        }
    }
}

impl Record for LaunchDetail {
    const DETAIL: &'static str = "id scheduled_time scheduled_local schedule schedule_revision status reason kind \
        decision decided_by claimed_at tzdata_version package digest overlaps fire_time opened_at started_at \
        finished_at attempts recoveries run_id message";

    fn text(&self, key: &str) -> Option<String> {
        self.launch.text(key)
    }

    fn print_details(&self) -> Result<(), Failure> {
        for run in &self.runs {
            output::print_line("")?;
            output::print_detail(run)?;
        }
        Ok(())
    }
}

/// Refuse the name of a schedule that never existed: an empty list would hide the mistake.
pub(crate) async fn refuse_unknown(tx: &mut Tx, schedule: Option<&str>) -> Result<(), Failure> {
    let Some(name) = schedule else { return Ok(()) };
    // A removed schedule is still known by its launches.
    if launches::list(tx, schedule, 1).await?.is_empty() {
        schedule_admin::find(tx, name).await?;
    }
    Ok(())
}

impl Launch {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let db = common.open().await?;
        let mut tx = db.read().await?;
        match self {
            Launch::List { schedule, limit } => {
                let rows = launches::list(&mut tx, schedule.as_deref(), limit.limit).await?;
                if rows.is_empty() {
                    refuse_unknown(&mut tx, schedule.as_deref()).await?;
                }
                output::print_list(&rows, common.json)?;
            }
            Launch::Show { id } => output::print_record(&detail(&mut tx, id).await?, common.json)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn detail(tx: &mut Tx, id: LaunchId) -> Result<LaunchDetail, Failure> {
    let Some(decided) = history::launch(tx, id).await? else {
        return Err(Failure::refused(format!("there is no launch {id}"))
            .hint("`campanile launch list` shows the ids"));
    };
    Ok(LaunchDetail {
        launch: decided.launch,
        schedule_revision: decided.schedule_revision,
        decided_by: decided.host,
        opened_at: decided.opened_at,
        runs: history::runs(tx, id).await?,
    })
}
