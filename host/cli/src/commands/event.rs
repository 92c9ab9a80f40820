//! `campanile event`: what happened to hosts, packages and schedules.

use clap::Subcommand;

use super::follow;
use crate::output::{Record, Result};
use crate::{Common, Limit, watch};
use campanile_control::questions::record::ListEvents;
use campanile_store::events;

#[derive(Subcommand)]
pub(crate) enum Event {
    /// List the newest events, newest first
    #[command(arg = watch::arg().conflicts_with("follow"))]
    List {
        #[command(flatten)]
        question: ListEvents,
        #[command(flatten)]
        limit: Limit,
        /// Print them oldest first, and then each event that is recorded; with `--json` each on one line
        #[arg(long, conflicts_with = "after")]
        follow: bool,
    },
}

impl Record for events::Event {
    const LIST: &'static str = "at kind subject principal channel detail";
    const DECIDING: &'static str = "kind subject detail";
}

impl Event {
    pub async fn run(self, common: &Common) -> Result {
        let Event::List {
            question,
            limit,
            follow,
        } = self;
        if follow {
            follow::events(common, limit.limit).await
        } else {
            common.print_some(question, limit.limit).await
        }
    }
}
