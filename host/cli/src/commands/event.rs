//! `campanile event`: what happened to hosts, packages and schedules.

use clap::Subcommand;

use crate::output::{Record, Result};
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
    pub async fn run(self, common: &Common) -> Result {
        let Event::List { limit } = self;
        let mut tx = common.read().await?;
        common.print_list(&events::list(&mut tx, limit.limit).await?)
    }
}
