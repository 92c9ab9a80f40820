//! Messages about alerts, and their deliveries.
//!
//! A message is recorded in the transaction that changes its alerts. Alerts of the same rule join it until a host claims it.
//! The messages of one channel and rule are delivered in the order of their ids: each waits for the end of the one before.
//! [`messages`](crate::messages) has the statements of a delivery, the same as for messages of the outbox.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::alerts::{Alert, alert_columns};
use super::messages::{DeadMessage, DeliveryEnd, DueMessage, deliveries};
use super::sql::statements;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{AlertId, MessageId};
pub use campanile_model::status::{AlertMessageKind, MessageStatus};

/// A message to record.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAlertMessage<'m> {
    pub id: MessageId,
    pub channel: &'m str,
    pub rule: &'m str,
    pub kind: AlertMessageKind,
    pub created_at: Timestamp,
    /// When the first delivery is due. Until then, more alerts may join.
    pub due_at: Timestamp,
    pub give_up_at: Timestamp,
}

/// The newest message of a channel and a rule that is not delivered.
#[derive(Debug, Clone, Copy, PartialEq, FromRow)]
pub struct NewestMessage {
    pub id: MessageId,
    pub kind: AlertMessageKind,
    pub alerts: i64,
    pub attempts: i64,
}

/// A message that this host delivers.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ClaimedAlertMessage {
    pub id: MessageId,
    pub channel: String,
    pub rule: String,
    pub kind: AlertMessageKind,
    /// The number of this delivery, from 1.
    pub attempts: i64,
    pub created_at: Timestamp,
    pub give_up_at: Timestamp,
}

/// A message about alerts as commands list it, with its deliveries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct AlertMessageRow {
    /// The message's id, which each delivery has as its `webhook-id`.
    pub id: MessageId,
    pub channel: String,
    /// The name of the rule.
    pub rule: String,
    pub kind: AlertMessageKind,
    pub status: MessageStatus,
    /// The number of alerts that it is about.
    pub alerts: i64,
    pub created_at: Timestamp,
    /// The deliveries that have begun.
    pub attempts: i64,
    /// When the next delivery is due. During a delivery, when any host may deliver the message again.
    pub next_attempt_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// The status of the receiver's last answer.
    pub answer: Option<i64>,
    /// Why the last delivery failed.
    pub error: Option<String>,
}

macro_rules! row_columns {
    ($condition:literal) => {
        concat!(
            "SELECT m.id, m.channel, m.rule, m.kind, m.status, m.alerts, m.created_at, m.attempts, m.next_attempt_at, m.finished_at,
            m.answer, m.error FROM alert_message m ",
            $condition
        )
    };
}

deliveries! {
    AlertMessageTable = "alert_message", ClaimedAlertMessage "id, channel, rule, kind, attempts, created_at, give_up_at",
    dead "channel AS sender, rule AS what"
}

statements! {
    /// Returns the newest undelivered message of a channel and a rule.
    pub async fn newest(channel: &str, rule: &str) -> Option<NewestMessage> = row
        "SELECT id, kind, alerts, attempts FROM alert_message WHERE status = 'pending' AND channel = $1 AND rule = $2
        ORDER BY id DESC LIMIT 1";

    /// Let one more alert join a message. False when a host has claimed it.
    // The row is locked until the alert is added, so a host that claims the message reads it with the alert.
    pub async fn join(id: MessageId) -> bool = changed
        "UPDATE alert_message SET alerts = alerts + 1 WHERE id = $1 AND attempts = 0 AND status = 'pending'";

    /// Record a message, of one alert or of none.
    pub async fn insert(message: &NewAlertMessage<'_>, alerts: i64) -> () = run
        "INSERT INTO alert_message (id, channel, rule, kind, status, alerts, created_at, give_up_at, attempts, next_attempt_at)
        VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7, 0, $8)"
        => [message.id, message.channel, message.rule, message.kind, alerts, message.created_at, message.give_up_at, message.due_at];

    /// Add an alert to a message.
    pub async fn add(id: MessageId, alert: AlertId) -> () = run
        "INSERT INTO alert_message_alert (message_id, alert_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";

    /// Returns the channels with a delivered or pending message that an alert fires.
    pub async fn notified_channels(alert: AlertId) -> Vec<String> = values
        "SELECT DISTINCT m.channel FROM alert_message_alert i JOIN alert_message m ON m.id = i.message_id
        WHERE i.alert_id = $1 AND m.kind = 'firing' AND m.status IN ('pending', 'delivered') ORDER BY m.channel";

    /// Returns up to `limit` messages of a channel to deliver at `now`: of each rule the oldest that is pending, if it is due.
    pub async fn due(channel: &str, now: Timestamp, limit: i64) -> Vec<DueMessage> = rows
        "SELECT m.id, m.attempts FROM alert_message m WHERE m.status = 'pending' AND m.channel = $1 AND m.next_attempt_at <= $2
            AND NOT EXISTS (SELECT 1 FROM alert_message e WHERE e.status = 'pending' AND e.channel = m.channel AND e.rule = m.rule
                AND e.id < m.id)
        ORDER BY m.id LIMIT $3";

    /// Returns the alerts that a message is about, in the order of their ids. A message that alerts are resolved is about those
    /// of which the same channel got a message that they fire.
    pub async fn alerts_of(id: MessageId) -> Vec<Alert> = rows
        alert_columns!("JOIN alert_message_alert i ON i.alert_id = a.id JOIN alert_message m ON m.id = i.message_id
        WHERE i.message_id = $1 AND (m.kind <> 'resolved' OR EXISTS (
            SELECT 1 FROM alert_message_alert f JOIN alert_message t ON t.id = f.message_id
            WHERE f.alert_id = a.id AND t.kind = 'firing' AND t.channel = m.channel AND t.status = 'delivered'))
        ORDER BY a.id");

    /// Returns up to `limit` channels with a message from before `before` whose last delivery failed: its channel, when the
    /// oldest such message was recorded, and why a delivery failed.
    pub async fn failing(before: Timestamp, limit: i64) -> Vec<(String, Timestamp, String)> = rows
        "SELECT channel, min(created_at), max(error) FROM alert_message
        WHERE status = 'pending' AND error IS NOT NULL AND created_at < $1 GROUP BY channel ORDER BY channel LIMIT $2";

    /// Returns the newest `limit` messages before an id, of a channel if one is given, newest first.
    pub async fn list(before: Option<MessageId>, channel: Option<&str>, limit: i64) -> Vec<AlertMessageRow> = rows
        row_columns!("WHERE m.id < $1 AND (CAST($2 AS TEXT) IS NULL OR m.channel = $2) ORDER BY m.id DESC LIMIT $3")
        => [before.unwrap_or(MessageId::LAST), channel, limit];

    /// Returns the messages about an alert, the oldest first.
    pub async fn of_alert(alert: AlertId) -> Vec<AlertMessageRow> = rows
        row_columns!("JOIN alert_message_alert i ON i.message_id = m.id WHERE i.alert_id = $1 ORDER BY m.id");

    /// Returns a message.
    pub async fn find(id: MessageId) -> Option<AlertMessageRow> = row row_columns!("WHERE m.id = $1");

    /// Remove the alerts from up to `limit` messages that ended before `before`; return how many rows that were.
    pub async fn remove_old_alerts(before: Timestamp, limit: i64) -> u64 = execute
        "DELETE FROM alert_message_alert WHERE message_id IN (SELECT id FROM alert_message WHERE finished_at < $1
            ORDER BY finished_at LIMIT $2)";

    /// Delete up to `limit` messages that ended before `before`, without alerts; return how many.
    pub async fn remove_old(before: Timestamp, limit: i64) -> u64 = execute
        "DELETE FROM alert_message WHERE id IN (SELECT id FROM alert_message WHERE finished_at < $1 ORDER BY finished_at LIMIT $2)";
}
