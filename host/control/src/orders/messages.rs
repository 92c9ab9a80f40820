//! Orders concerning outbox messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::message_admin;
use crate::order::{Desk, Endpoint, Order, Scope};
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

    const ENDPOINT: Endpoint = Endpoint::post(
        "discard_message",
        "/api/v1/outbox/{id}/discard",
        (Role::Operator, Scope::Message),
        "Never deliver a message again",
    );

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(message_admin::discard(tx, id(of)?, desk.by, desk.now)
            .await?
            .row)
    }
}

/// Deliver a message again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct RetryMessage(Nothing);

impl Order for RetryMessage {
    type Output = MessageRow;

    const ENDPOINT: Endpoint = Endpoint::post(
        "retry_message",
        "/api/v1/outbox/{id}/retry",
        (Role::Operator, Scope::Message),
        "Deliver a message again",
    );

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let give_up_after = desk.settings.give_up_after;
        let message = message_admin::retry(tx, id(of)?, give_up_after, desk.by, desk.now).await?;
        Ok(message.row)
    }
}
