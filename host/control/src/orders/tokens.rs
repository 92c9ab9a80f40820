//! Orders concerning tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::order::{Desk, Method, Order, OrderRoute, Scope};
use crate::orders::Nothing;
use crate::problem::Problem;
use crate::token_admin::{self, TokenReport};
use campanile_model::access::Role;
use campanile_store::Tx;

/// Refuse a token from now on.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct RevokeToken(Nothing);

impl Order for RevokeToken {
    type Output = TokenReport;

    const ROUTE: OrderRoute = OrderRoute {
        id: "revoke_token",
        method: Method::Post,
        path: "/api/v1/tokens/{name}/revoke",
        role: Role::Admin,
        scope: Scope::Installation,
        cost: 5,
        summary: "Refuse a token from now on",
    };

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(token_admin::revoke(tx, name, desk.now).await?)
    }
}
