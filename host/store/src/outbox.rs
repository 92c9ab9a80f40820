//! The outbox: messages that tasks have handed over, and their deliveries.
//!
//! A host claims a pending message by compare-and-set on `attempts`, the number of its deliveries, and records the end of
//! the delivery under the same number. `next_attempt_at` of a claimed message is the end of the claim: then any host may
//! deliver the message again.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::{Batch, statements};
use super::types::{json_text, storable, stored_json};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId, MessageId};
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

/// A message that is due, before a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromRow)]
pub struct DueMessage {
    pub id: MessageId,
    pub attempts: i64,
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

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryEnd<'e> {
    pub id: MessageId,
    /// The number of the delivery.
    pub attempts: i64,
    pub status: MessageStatus,
    /// Only of a pending message.
    pub next_attempt_at: Option<Timestamp>,
    /// Only of a message that is not pending.
    pub finished_at: Option<Timestamp>,
    /// The status of the receiver's answer.
    pub answer: Option<i64>,
    pub error: Option<&'e str>,
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

/// A message that was given up.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DeadMessage {
    pub id: MessageId,
    pub package: String,
    pub method: String,
    pub url: String,
    pub attempts: i64,
    pub error: Option<String>,
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

statements! {
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

    /// Claim a message for a host until `until`; none when another host has claimed it.
    pub async fn claim(due: DueMessage, host: HostId, until: Timestamp) -> Option<ClaimedMessage> = row
        "UPDATE outbox_message SET attempts = attempts + 1, host_id = $3, next_attempt_at = $4
        WHERE id = $1 AND attempts = $2 AND status = 'pending'
        RETURNING id, package, attempts, method, url, headers, body, give_up_at, launch_id,
            (SELECT l.caller_traceparent FROM launch l WHERE l.id = outbox_message.launch_id) AS caller_traceparent"
        => [due.id, due.attempts, host, until];

    /// Record the end of a delivery. False when the message was claimed again or discarded meanwhile.
    pub async fn end(end: &DeliveryEnd<'_>) -> bool = changed
        "UPDATE outbox_message SET status = $3, next_attempt_at = $4, finished_at = $5, answer = $6, error = $7, host_id = NULL
        WHERE id = $1 AND attempts = $2 AND status = 'pending'"
        => [end.id, end.attempts, end.status, end.next_attempt_at, end.finished_at, end.answer, end.error.map(storable)];

    /// Whether hosts that have ended, and whose leases have ended too, still have claims after `now`.
    pub async fn has_orphans(now: Timestamp) -> bool = one_value
        "SELECT EXISTS (SELECT 1 FROM outbox_message m JOIN host h ON h.id = m.host_id WHERE m.host_id IS NOT NULL AND m.next_attempt_at > $1
            AND h.ended_at IS NOT NULL AND (h.end_reason = 'stopped' OR h.lease_until <= $1))";

    /// End the claims of hosts that have ended, so that their messages are due at `now`.
    ///
    /// A host that was marked as dead may be delivering until its lease has ended.
    pub async fn release_orphans(now: Timestamp) -> u64 = execute
        "UPDATE outbox_message SET host_id = NULL, next_attempt_at = $1 WHERE host_id IS NOT NULL AND next_attempt_at > $1
            AND host_id IN (SELECT h.id FROM host h WHERE h.ended_at IS NOT NULL AND (h.end_reason = 'stopped' OR h.lease_until <= $1))";

    /// Whether messages are due after their last delivery could begin.
    pub async fn has_late(now: Timestamp) -> bool = one_value
        "SELECT EXISTS (SELECT 1 FROM outbox_message WHERE status = 'pending' AND give_up_at < $1 AND next_attempt_at <= $1)";

    /// Give up at most `limit` messages that are due after their last delivery could begin, and return them.
    pub async fn give_up(now: Timestamp, limit: i64) -> Vec<DeadMessage> = rows
        "UPDATE outbox_message SET status = 'dead', next_attempt_at = NULL, finished_at = $1, host_id = NULL
        WHERE id IN (SELECT id FROM outbox_message WHERE status = 'pending' AND give_up_at < $1 AND next_attempt_at <= $1
            ORDER BY give_up_at LIMIT $2) AND status = 'pending' AND next_attempt_at <= $1
        RETURNING id, package, method, url, attempts, error";

    /// Deliver a message again from `now` on, until `give_up_at`. False when it was delivered, or is being delivered.
    pub async fn retry(id: MessageId, now: Timestamp, give_up_at: Timestamp) -> bool = changed
        "UPDATE outbox_message SET status = 'pending', next_attempt_at = $2, give_up_at = $3, finished_at = NULL, host_id = NULL
        WHERE id = $1 AND (status IN ('dead', 'discarded') OR (status = 'pending' AND (host_id IS NULL OR next_attempt_at <= $2)))";

    /// Never deliver a message again. False when it was delivered or discarded.
    pub async fn discard(id: MessageId, now: Timestamp) -> bool = changed
        "UPDATE outbox_message SET status = 'discarded', next_attempt_at = NULL, finished_at = $2, host_id = NULL
        WHERE id = $1 AND status IN ('pending', 'dead')";

    /// Returns the newest `limit` messages before `before`, of a status and a package if these are given, newest launch first.
    pub async fn list(before: Option<MessageId>, status: Option<MessageStatus>, package: Option<&str>, limit: i64) -> Vec<MessageRow> = rows
        "SELECT id, status, package, task, launch_id, number, method, url, attempts, created_at, next_attempt_at, give_up_at,
            finished_at, answer, error
        FROM outbox_message WHERE id < $1 AND (CAST($2 AS TEXT) IS NULL OR status = $2) AND (CAST($3 AS TEXT) IS NULL OR package = $3)
        ORDER BY id DESC LIMIT $4"
        => [before.unwrap_or(MessageId::LAST), status, package, limit];

    /// Returns a message with its content.
    pub async fn find(id: MessageId) -> Option<MessageContent> = row
        "SELECT id, status, package, task, launch_id, number, method, url, attempts, created_at, next_attempt_at, give_up_at,
            finished_at, answer, error, headers, body
        FROM outbox_message WHERE id = $1";

    /// Count the messages that were given up.
    pub async fn count_dead() -> i64 = one_value
        "SELECT count(*) FROM outbox_message WHERE status = 'dead'";

    /// Delete up to `limit` messages that were delivered or discarded before `before`; return how many.
    pub async fn remove_old(before: Timestamp, limit: i64) -> u64 = execute
        "DELETE FROM outbox_message WHERE id IN (SELECT id FROM outbox_message
            WHERE status IN ('delivered', 'discarded') AND finished_at < $1 ORDER BY finished_at LIMIT $2)";
}
