//! `campanile db`: the database's tables.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use crate::Common;
use crate::output::{self, Failure};
use campanile_store::Db;

#[derive(Subcommand)]
pub(crate) enum DbCommand {
    /// Bring the tables up to this version, making a SQLite file that is not there
    Migrate,
    /// Which steps of the schema the database has
    Status,
}

impl DbCommand {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let url = common.config()?.database;
        let db = match self {
            DbCommand::Migrate => Db::open_and_migrate(&url).await?,
            DbCommand::Status => Db::open(&url).await?,
        };
        let steps = db.migrations().await?;
        crate::close(&db).await;
        let current = steps.iter().all(|step| step.applied);
        if common.json {
            output::json_out(&json!({
                "database": db.url().to_string(),
                "current": current,
                "migrations": steps,
            }))?;
        } else {
            output::line(&db.url().to_string())?;
            output::table(
                ["VERSION", "NAME", "APPLIED"],
                steps.iter().map(|step| {
                    let applied = if step.applied { "yes" } else { "no" };
                    [
                        step.version.to_string(),
                        step.name.clone(),
                        applied.to_owned(),
                    ]
                }),
            )?;
        }
        Ok(if current {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
