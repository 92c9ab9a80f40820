//! `campanile launch`: every decision about every slot.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use super::run::made_by;
use crate::Common;
use crate::output::{self, Failure, cell};
use campanile_engine::schedule_admin;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, LaunchId};
use campanile_model::text::printable_lines;
use campanile_store::launches::{self, LaunchRow};
use campanile_store::runs::RunRow;
use campanile_store::{Tx, history};

#[derive(Subcommand)]
pub(crate) enum Launch {
    /// The newest launches, newest first
    List {
        /// Only those of this schedule
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
    /// One launch: what was decided, by which versions, and every run of it
    Show {
        /// The launch's id, as `launch list` and `schedule trigger` print it
        id: LaunchId,
    },
}

/// One launch with its runs.
#[derive(Serialize)]
struct Detail {
    #[serde(flatten)]
    launch: LaunchRow,
    schedule_revision: i64,
    /// The host that decided it, or opened it last; none when a person asked for it.
    decided_by: Option<String>,
    opened_at: Option<Timestamp>,
    runs: Vec<RunRow>,
}

/// Refuse the name of a schedule that never was: an empty list would hide the mistake.
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
        let (schedule, limit) = match self {
            Launch::List { schedule, limit } => (schedule, limit),
            Launch::Show { id } => {
                show(common, &mut tx, id).await?;
                return Ok(ExitCode::SUCCESS);
            }
        };
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

async fn show(common: &Common, tx: &mut Tx, id: LaunchId) -> Result<(), Failure> {
    let Some(decided) = history::launch(tx, id).await? else {
        return Err(Failure::refused(format!("there is no launch {id}"))
            .hint("`campanile launch list` shows the ids"));
    };
    let detail = Detail {
        launch: decided.launch,
        schedule_revision: decided.schedule_revision,
        decided_by: decided.host,
        opened_at: decided.opened_at,
        runs: history::runs(tx, id).await?,
    };
    if common.json {
        return output::json_out(&detail);
    }
    let launch = detail.launch;
    let digest = launch.digest.as_ref().map(ArtifactDigest::short);
    for (key, value) in [
        ("launch", launch.id.to_string()),
        (
            "slot",
            launch.slots_text(&launch.scheduled_time.to_string()),
        ),
        ("local", launch.scheduled_local.clone()),
        ("schedule", launch.schedule),
        ("revision", detail.schedule_revision.to_string()),
        ("kind", launch.kind.to_string()),
        ("decision", launch.decision.to_string()),
        ("decided", launch.claimed_at.to_string()),
        ("by", cell(&detail.decided_by)),
        ("tzdata", cell(&launch.tzdata_version)),
        ("package", format!("{} {}", launch.package, cell(&digest))),
        ("status", launch.status.to_string()),
        ("reason", cell(&launch.reason)),
        ("fire time", launch.fire_time.to_string()),
        ("finished", cell(&launch.finished_at)),
        ("message", cell(&launch.message)),
    ] {
        output::line(&printable_lines(&format!("{key:9} {value}")))?;
    }
    output::line("")?;
    output::table(
        [
            "RUN", "STATE", "DIGEST", "GRANTS", "CONTEXT", "HOST", "MADE BY", "STARTED", "MESSAGE",
        ],
        detail.runs.into_iter().map(|run| {
            // As many digits as a version is named by.
            let short = |hash: &Option<String>| {
                cell(&hash.as_ref().map(|hash| &hash[..hash.len().min(12)]))
            };
            [
                run.id.to_string(),
                run.status.to_string(),
                run.digest.short().to_owned(),
                short(&run.grants_hash),
                short(&run.context_hash),
                cell(&run.host),
                made_by(&run),
                run.started_at.to_string(),
                run.message.unwrap_or_default(),
            ]
        }),
    )
}
