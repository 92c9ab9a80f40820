//! `campanile event`: what happened to the tower itself.

use std::process::ExitCode;

use clap::Subcommand;

use crate::Common;
use crate::output::{self, Failure};
use campanile_store::events;

#[derive(Subcommand)]
pub(crate) enum Event {
    /// The newest events, newest first
    List {
        /// How many at most
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
}

impl Event {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let Event::List { limit } = self;
        let db = common.open().await?;
        let mut tx = db.read().await?;
        let events = events::list(&mut tx, limit).await?;
        if common.json {
            output::json_out(&events)?;
            return Ok(ExitCode::SUCCESS);
        }
        output::table(
            ["AT", "EVENT", "SUBJECT", "DETAIL"],
            events.into_iter().map(|event| {
                [
                    event.at.to_string(),
                    event.kind.to_string(),
                    event.subject,
                    event.detail,
                ]
            }),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
