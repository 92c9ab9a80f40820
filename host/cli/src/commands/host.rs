//! `campanile host`: list the hosts, and drain one.

use clap::Subcommand;

use super::schedule::By;
use crate::output::{Record, Result};
use crate::{Common, watch};
use campanile_control::admin::host_admin::HostReport;
use campanile_control::orders::hosts::Drain;
use campanile_control::questions::hosts::ListHosts;

#[derive(Subcommand)]
pub(crate) enum Host {
    /// List the live hosts and the drained ones by name
    #[command(arg = watch::arg())]
    List(ListHosts),
    /// Let a host claim nothing more: its runs end, its other services continue; a restart does not change that
    Drain {
        /// The host's name
        name: String,
        #[command(flatten)]
        order: Drain,
        #[command(flatten)]
        by: By,
    },
}

impl Record for HostReport {
    const LIST: &'static str =
        "name state runs runs_max labels version heartbeat_at chores_since incarnation";
    const DECIDING: &'static str = "state runs heartbeat_at";
}

impl Host {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Host::List(question) => common.print_list(&common.ask("", &question).await?),
            Host::Drain { name, order, by } => {
                let host = common.order(&name, &order, &*by.by).await?;
                common.print_report(&host, &done(&host, order.undo))
            }
        }
    }
}

/// Say what has been done, and what follows.
fn done(host: &HostReport, undo: bool) -> String {
    let HostReport { name, runs, .. } = host;
    match (undo, host.ended_at) {
        (true, _) => format!("the host {name} claims launches again"),
        (false, Some(_)) => {
            format!("the host {name} does not run now; it claims nothing when it starts again")
        }
        (false, None) => format!(
            "the host {name} claims nothing more; {runs} of its runs have not ended; `campanile host list` shows when it is drained"
        ),
    }
}
