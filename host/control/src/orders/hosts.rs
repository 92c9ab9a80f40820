//! Orders concerning hosts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::host_admin::{self, HostReport};
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::problem::Problem;
use campanile_model::access::Role;
use campanile_store::Tx;

/// Whether a host claims launches.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Let it claim launches again
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub undo: bool,
}

impl Order for Drain {
    type Output = HostReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "drain_host",
        "/api/v1/hosts/{name}/drain",
        (Role::Operator, Scope::Installation),
        "Let a host claim nothing more, or claim launches again",
    );

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(host_admin::drain(tx, name, self.undo, desk.by, desk.now).await?)
    }
}
