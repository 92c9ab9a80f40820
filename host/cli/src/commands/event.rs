//! `campanile event`: what happened to hosts, packages and schedules.

use clap::Subcommand;

use super::follow;
use crate::output::{Record, Result};
use crate::{Common, Limit, watch};
use campanile_model::ids::EventId;
use campanile_store::events;

#[derive(Subcommand)]
pub(crate) enum Event {
    /// List the newest events, newest first
    #[command(arg = watch::arg().conflicts_with("follow"))]
    List {
        /// List those after this event of another list; the JSON output shows the ids
        #[arg(long, value_name = "ID")]
        after: Option<EventId>,
        #[command(flatten)]
        limit: Limit,
        /// Print them oldest first, and then each event that is recorded; with `--json` each on one line
        #[arg(long, conflicts_with = "after")]
        follow: bool,
    },
}

impl Record for events::Event {
    const LIST: &'static str = "at kind subject principal channel detail";
}

impl Event {
    pub async fn run(self, common: &Common) -> Result {
        let Event::List {
            after,
            limit,
            follow,
        } = self;
        if follow {
            return follow::events(common, limit.limit).await;
        }
        let rows = match common.client()? {
            Some(client) => {
                let call = client.get(&["events"]).query("after", after);
                call.page(limit.limit).await?.0
            }
            None => events::list(&mut common.read().await?, after, limit.limit).await?,
        };
        common.print_page(&rows, limit.limit, |row: &events::Event| row.id)
    }
}
