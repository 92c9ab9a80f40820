//! The outbox: messages that tasks have handed over, and their deliveries.
//!
//! [`messages`](crate::messages) has the statements of a delivery, the same as for messages about alerts.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::messages::{DeadMessage, DeliveryEnd, DueMessage, deliveries};
use super::sql::{Batch, statements};
use super::types::{json_text, stored_json};
use crate::Tx;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, MessageId};
pub use campanile_model::status::MessageStatus;
use campanile_model::trace_context::TraceContext;

/// A message to record.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage<'m> {
    pub id: MessageId,
    pub launch_id: LaunchId,
    pub package: &'m str,
    pub task: &'m str,
    /// Its number among the messages of the call, from 0.
    pub number: i64,
    pub method: &'m str,
    pub url: &'m str,
    /// A JSON list of pairs.
    pub headers: String,
    pub body: &'m [u8],
    pub created_at: Timestamp,
    /// When the last delivery may begin.
    pub give_up_at: Timestamp,
}

/// A message that this host delivers.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ClaimedMessage {
    pub id: MessageId,
    pub package: String,
    /// The number of this delivery, from 1.
    pub attempts: i64,
    pub method: String,
    pub url: String,
    pub headers: String,
    pub body: Vec<u8>,
    pub give_up_at: Timestamp,
    pub launch_id: LaunchId,
    /// The trace context that the caller of its launch gave.
    pub caller_traceparent: Option<TraceContext>,
}

/// A message as commands list it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct MessageRow {
    /// The message's id, which each delivery has as its `Idempotency-Key`.
    pub id: MessageId,
    pub status: MessageStatus,
    pub package: String,
    pub task: String,
    pub launch_id: LaunchId,
    /// Its number among the messages of the call, from 0.
    pub number: i64,
    pub method: String,
    pub url: String,
    /// The deliveries that have begun.
    pub attempts: i64,
    pub created_at: Timestamp,
    /// When the next delivery is due. During a delivery, when any host may deliver the message again.
    pub next_attempt_at: Option<Timestamp>,
    /// No delivery begins later.
    pub give_up_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// The status of the receiver's last answer.
    pub answer: Option<i64>,
    /// Why the last delivery failed.
    pub error: Option<String>,
}

/// A message with its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct MessageContent {
    #[serde(flatten)]
    #[sqlx(flatten)]
    pub row: MessageRow,
    /// Pairs of names and values. A secret is shown as its placeholder.
    #[serde(serialize_with = "json_list", deserialize_with = "stored_json")]
    #[schemars(with = "Vec<(String, String)>")]
    pub headers: String,
    /// As text. Bytes that are not UTF-8 are replaced.
    #[serde(serialize_with = "body_text", deserialize_with = "body_bytes")]
    #[schemars(with = "String")]
    pub body: Vec<u8>,
}

fn body_text<S: serde::Serializer>(body: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(body))
}

fn body_bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(from).map(String::into_bytes)
}

fn json_list<S: serde::Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    json_text(&Some(text.to_owned()), to)
}

deliveries! {
    OutboxTable = "outbox_message", ClaimedMessage "id, package, attempts, method, url, headers, body, give_up_at, launch_id,
        (SELECT l.caller_traceparent FROM launch l WHERE l.id = outbox_message.launch_id) AS caller_traceparent",
    dead "package AS sender, method || ' ' || url AS what"
}

macro_rules! list_where {
    ($condition:literal) => {
        concat!(
            "SELECT id, status, package, task, launch_id, number, method, url, attempts, created_at, next_attempt_at, give_up_at,
                finished_at, answer, error
            FROM outbox_message WHERE ",
            $condition,
            " AND id < $1 AND (CAST($2 AS TEXT) IS NULL OR package = $2) ORDER BY id DESC LIMIT $3"
        )
    };
}

statements! {
    const LIST: &str = list_where!("TRUE");
    // A few among many that were delivered: a status in the text lets the database read these alone, by an index.
    const LIST_DEAD: &str = list_where!("status = 'dead'");
    const LIST_PENDING: &str = list_where!("status = 'pending'");
    const LIST_DISCARDED: &str = list_where!("status = 'discarded'");
    const LIST_DELIVERED: &str = list_where!("status = 'delivered'");

    /// Record messages. A message that is on record already stays as it is.
    pub async fn insert(messages: &[NewMessage<'_>]) -> () = execute_batch
        Batch::new("INSERT INTO outbox_message (id, launch_id, package, task, number, method, url, headers, body, created_at, give_up_at,
            next_attempt_at, status, attempts)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT (id) DO NOTHING"),
        messages, |message| [message.id, message.launch_id, message.package, message.task, message.number, message.method, message.url,
            message.headers.as_str(), message.body, message.created_at, message.give_up_at, message.created_at, MessageStatus::Pending, 0_i64];

    /// Returns the packages with messages to deliver at `now`.
    // Without `MATERIALIZED`, SQLite reads all pending messages by the index of packages.
    pub async fn due_packages(now: Timestamp) -> Vec<String> = values
        "WITH due AS MATERIALIZED (SELECT package FROM outbox_message WHERE status = 'pending' AND next_attempt_at <= $1)
        SELECT DISTINCT package FROM due ORDER BY package";

    /// Returns up to `limit` messages of a package to deliver at `now`, the first due first.
    pub async fn due(package: &str, now: Timestamp, limit: i64) -> Vec<DueMessage> = rows
        "SELECT id, attempts FROM outbox_message WHERE status = 'pending' AND package = $1 AND next_attempt_at <= $2
        ORDER BY next_attempt_at LIMIT $3";

    /// Deliver a message again from `now` on, until `give_up_at`. False when it was delivered, or is being delivered.
    pub async fn retry(id: MessageId, now: Timestamp, give_up_at: Timestamp) -> bool = changed
        "UPDATE outbox_message SET status = 'pending', next_attempt_at = $2, give_up_at = $3, finished_at = NULL, host_id = NULL
        WHERE id = $1 AND (status IN ('dead', 'discarded') OR (status = 'pending' AND (host_id IS NULL OR next_attempt_at <= $2)))";

    /// Never deliver a message again. False when it was delivered or discarded.
    pub async fn discard(id: MessageId, now: Timestamp) -> bool = changed
        "UPDATE outbox_message SET status = 'discarded', next_attempt_at = NULL, finished_at = $2, host_id = NULL
        WHERE id = $1 AND status IN ('pending', 'dead')";

    /// Returns a message with its content.
    pub async fn find(id: MessageId) -> Option<MessageContent> = row
        "SELECT id, status, package, task, launch_id, number, method, url, attempts, created_at, next_attempt_at, give_up_at,
            finished_at, answer, error, headers, body
        FROM outbox_message WHERE id = $1";

    /// Counts the messages to deliver, up to `limit` of them.
    pub async fn count_pending(limit: i64) -> i64 = one_value
        "SELECT count(*) FROM (SELECT 1 FROM outbox_message WHERE status = 'pending' LIMIT $1) AS pending";

    /// Count the messages that were given up.
    pub async fn count_dead() -> i64 = one_value
        "SELECT count(*) FROM outbox_message WHERE status = 'dead'";

    /// Delete up to `limit` messages that were delivered or discarded before `before`; return how many.
    pub async fn remove_old(before: Timestamp, limit: i64) -> u64 = execute
        "DELETE FROM outbox_message WHERE id IN (SELECT id FROM outbox_message
            WHERE status IN ('delivered', 'discarded') AND finished_at < $1 ORDER BY finished_at LIMIT $2)";
}

/// Returns the newest `limit` messages before `before`, of a status and a package if these are given, newest launch first.
pub async fn list(
    tx: &mut Tx,
    before: Option<MessageId>,
    status: Option<MessageStatus>,
    package: Option<&str>,
    limit: i64,
) -> crate::Result<Vec<MessageRow>> {
    let sql = match status {
        None => LIST,
        Some(MessageStatus::Dead) => LIST_DEAD,
        Some(MessageStatus::Pending) => LIST_PENDING,
        Some(MessageStatus::Discarded) => LIST_DISCARDED,
        Some(MessageStatus::Delivered) => LIST_DELIVERED,
    };
    super::sql::rows!(tx, sql, before.unwrap_or(MessageId::LAST), package, limit)
}
