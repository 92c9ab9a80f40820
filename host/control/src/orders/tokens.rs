//! Orders concerning tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::token_admin::{self, CreatedToken, TokenReport, WantedToken};
use crate::bounds::AnySpan;
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::orders::Nothing;
use crate::problem::Problem;
use campanile_model::access::Role;
use campanile_model::namespace::Namespace;
use campanile_store::Tx;

/// Refuse a token from now on.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct RevokeToken(Nothing);

impl Order for RevokeToken {
    type Output = TokenReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "revoke_token",
        "/api/v1/tokens/{name}/revoke",
        (Role::Admin, Scope::Installation),
        "Refuse a token from now on",
    );

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(token_admin::revoke(tx, name, desk.now).await?)
    }
}

/// A token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The token's name, under which its changes are recorded
    pub name: String,
    /// Its role: viewer, operator, editor, approver or admin, each including those before it
    #[cfg_attr(feature = "clap", arg(long, value_name = "ROLE", value_parser = Role::read))]
    pub role: Role,
    /// The only namespace that it sees; without it the token sees the whole installation
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub namespace: Option<Namespace>,
    /// Refuse the token after this time, such as 90d; without it the token does not expire
    #[cfg_attr(feature = "clap", arg(long, value_name = "SPAN"))]
    pub expires: Option<AnySpan>,
}

impl Order for NewToken {
    type Output = CreatedToken;

    const ENDPOINT: Endpoint = Endpoint::post(
        "create_token",
        "/api/v1/tokens",
        (Role::Admin, Scope::Installation),
        "Create a token, and return its secret, which is shown only once",
    )
    .created();

    const IS_SECRET: bool = true;

    fn seals(&self) -> bool {
        token_admin::needs_seal(self.role)
    }

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let wanted = WantedToken {
            name: &self.name,
            role: self.role,
            namespace: self.namespace.as_ref(),
            expires_in: self.expires.map(|span| span.0),
        };
        let key = if self.seals() {
            Some(desk.key()?)
        } else {
            None
        };
        Ok(token_admin::create(tx, wanted, key, desk.now).await?)
    }
}
