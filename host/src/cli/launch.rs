//! `campanile launch`: every decision about every slot.

use std::process::ExitCode;

use clap::Subcommand;

use super::Common;
use super::output::{self, Failure, cell};
use crate::db::{Tx, launches};
use crate::engine::schedules as orders;

#[derive(Subcommand)]
pub(super) enum Launch {
    /// The newest launches, newest first
    List {
        /// Only those of this schedule
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
}

/// Refuse the name of a schedule that never was: an empty list would hide the mistake.
pub(super) async fn refuse_unknown(tx: &mut Tx, schedule: Option<&str>) -> Result<(), Failure> {
    let Some(name) = schedule else { return Ok(()) };
    // A removed schedule is still known by its launches.
    if launches::list(tx, schedule, 1).await?.is_empty() {
        orders::find(tx, name).await?;
    }
    Ok(())
}

impl Launch {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let Launch::List { schedule, limit } = self;
        let db = common.open().await?;
        let mut tx = db.read().await?;
        let rows = launches::list(&mut tx, schedule.as_deref(), limit).await?;
        if rows.is_empty() {
            refuse_unknown(&mut tx, schedule.as_deref()).await?;
        }
        if common.json {
            output::json_out(&rows)?;
            return Ok(ExitCode::SUCCESS);
        }
        output::table(
            [
                "SLOT", "SCHEDULE", "STATUS", "REASON", "KIND", "TAKEN", "RUN", "MESSAGE",
            ],
            rows.into_iter().map(|row| {
                let failure = row.failure.map(|kind| kind.to_string());
                [
                    row.slots_text(&row.scheduled_time.to_string()),
                    row.schedule,
                    row.status.to_string(),
                    cell(&row.reason.or(failure)),
                    row.kind.to_string(),
                    row.attempts.to_string(),
                    cell(&row.run_id),
                    row.message.unwrap_or_default(),
                ]
            }),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
