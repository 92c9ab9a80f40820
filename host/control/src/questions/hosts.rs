//! Questions about hosts, and tokens for asking them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::host_admin::{self, HostReport};
use crate::admin::token_admin::{self, TokenReport};
use crate::bounds::{Limit, limit};
use crate::order::{Desk, Endpoint, Scope};
use crate::question::{Question, Read, plain};
use crate::records::top::TopReport;
use campanile_model::access::Role;
use campanile_store::Tx;

plain! {
    /// Show what the hosts do now.
    GetTop;
}

impl Question for GetTop {
    type Answer = TopReport;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_top",
        "/api/v1/top",
        Scope::Installation,
        "Show what the hosts do now",
    )
    .cost(5);

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(TopReport::read(tx, desk.now).await?.into())
    }
}

/// Hosts to list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListHosts {
    /// List also the hosts that have stopped or died
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub all: bool,
}

impl Question for ListHosts {
    type Answer = Vec<HostReport>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_hosts",
        "/api/v1/hosts",
        Scope::Installation,
        "List the live hosts and the drained ones by name",
    );

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(host_admin::list(tx, self.all, desk.now).await?.into())
    }
}

/// Tokens to list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListTokens {
    /// List revoked tokens too
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub all: bool,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(long))]
    pub limit: Option<Limit>,
}

impl Question for ListTokens {
    type Answer = Vec<TokenReport>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_tokens",
        "/api/v1/tokens",
        Scope::Installation,
        "List the tokens by name, with their last use",
    )
    .role(Role::Admin);

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let limit = limit(self.limit);
        Ok(token_admin::list(tx, self.all, limit, desk.now)
            .await?
            .into())
    }
}
