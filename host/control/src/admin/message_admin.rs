//! The operator's commands on one message of the outbox: deliver it again, or never.
//!
//! Both only change the database. A host notices the request when it looks for messages that are due.

use std::time::Duration;

use crate::admin::schedule_admin::{Result, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::ids::MessageId;
use campanile_model::status::MessageStatus;
use campanile_store::Tx;
use campanile_store::events::{self, EventKind};
use campanile_store::outbox::{self, MessageContent};

/// Deliver a message again, from now on and for the time `give_up_after`.
///
/// # Errors
/// When it was delivered, or a host delivers it now.
pub async fn retry(
    tx: &mut Tx,
    id: MessageId,
    give_up_after: Duration,
    by: &str,
    now: Timestamp,
) -> Result<MessageContent> {
    if !outbox::retry(tx, id, now, now.plus(give_up_after)).await? {
        let why = match find(tx, id).await?.row.status {
            MessageStatus::Pending => format!(
                "a host delivers the message {id} at this moment; see how that ends with `campanile outbox show {id}`"
            ),
            status => format!("the message {id} is {status}, so it is not delivered again"),
        };
        return Err(ScheduleError::Conflict(why));
    }
    let detail = format!("{by} asked to deliver the message {id} again");
    record(tx, id, EventKind::MessageRetried, &detail, now).await
}

/// Never deliver a message again.
///
/// # Errors
/// When it was delivered or discarded.
pub async fn discard(
    tx: &mut Tx,
    id: MessageId,
    by: &str,
    now: Timestamp,
) -> Result<MessageContent> {
    if !outbox::discard(tx, id, now).await? {
        let status = find(tx, id).await?.row.status;
        return Err(ScheduleError::Conflict(format!(
            "the message {id} is {status} already, so there is nothing to discard"
        )));
    }
    let detail = format!("{by} discarded the message {id}");
    record(tx, id, EventKind::MessageDiscarded, &detail, now).await
}

/// Returns a message.
///
/// # Errors
/// When there is none of that id.
pub async fn find(tx: &mut Tx, id: MessageId) -> Result<MessageContent> {
    let found = outbox::find(tx, id).await?;
    found.ok_or_else(|| ScheduleError::NotFound(format!("there is no message {id}")))
}

/// Record an event about a message that was changed, and return the message.
async fn record(
    tx: &mut Tx,
    id: MessageId,
    kind: EventKind,
    detail: &str,
    now: Timestamp,
) -> Result<MessageContent> {
    let message = find(tx, id).await?;
    events::record(tx, now, kind, &message.row.package, detail).await?;
    Ok(message)
}
