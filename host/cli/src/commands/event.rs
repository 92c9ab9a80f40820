//! `campanile event`: what happened to hosts, packages and schedules.

use std::process::ExitCode;

use clap::Subcommand;

use crate::output::{self, Failure, Record};
use crate::{Common, Limit};
use campanile_store::events;

#[derive(Subcommand)]
pub(crate) enum Event {
    /// List the newest events, newest first
    List {
        #[command(flatten)]
        limit: Limit,
    },
}

impl Record for events::Event {
    const LIST: &'static str = "at kind subject detail";
}

impl Event {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let Event::List { limit } = self;
        let db = common.open().await?;
        let mut tx = db.read().await?;
        output::print_list(&events::list(&mut tx, limit.limit).await?, common.json)?;
        Ok(ExitCode::SUCCESS)
    }
}
