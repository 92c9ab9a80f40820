//! Orders concerning outbox messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message_admin;
use crate::order::{Desk, Method, Order, OrderRoute, Scope};
use crate::orders::{Nothing, id};
use crate::problem::Problem;
use campanile_model::access::Role;
use campanile_store::Tx;
use campanile_store::outbox::MessageRow;

/// Never deliver a message again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct DiscardMessage(Nothing);

impl Order for DiscardMessage {
    type Output = MessageRow;

    const ROUTE: OrderRoute = OrderRoute {
        id: "discard_message",
        method: Method::Post,
        path: "/api/v1/outbox/{id}/discard",
        role: Role::Operator,
        scope: Scope::Message,
        cost: 5,
        summary: "Never deliver a message again",
    };

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(message_admin::discard(tx, id(of)?, desk.by, desk.now)
            .await?
            .row)
    }
}
