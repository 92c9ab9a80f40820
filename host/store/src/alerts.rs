//! Alerts and silences.
//!
//! A host changes an alert by compare-and-set on its `version`, in one transaction with the messages about the change. So
//! each change and its messages are recorded once, however many hosts evaluate the rules.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::statements;
use super::types::{recorded, storable};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{AlertId, SilenceId};
pub use campanile_model::status::{AlertKind, AlertStatus, Severity};

/// An alert: one incident of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct Alert {
    pub id: AlertId,
    /// The name of the rule in the configuration.
    pub rule: String,
    pub kind: AlertKind,
    pub severity: Severity,
    pub status: AlertStatus,
    /// The name of the schedule, package or host, or `record`.
    pub subject: String,
    /// The id of the schedule; of another subject its name.
    pub subject_id: String,
    /// One sentence. It stays as it was when the alert began to fire.
    pub detail: String,
    /// Incremented by each change.
    pub version: i64,
    /// When a host first saw the condition.
    pub since_at: Timestamp,
    pub fired_at: Option<Timestamp>,
    /// When the messages about it were recorded. Null while it is silenced, and for a rule without channels.
    pub notified_at: Option<Timestamp>,
    /// When a host first saw that the condition does not hold any more.
    pub clear_at: Option<Timestamp>,
    pub resolved_at: Option<Timestamp>,
    /// How often the condition came back before the alert was resolved.
    pub flaps: i64,
}

/// A silence: no message about alerts that it matches is sent until it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct Silence {
    pub id: SilenceId,
    /// A pattern for the name of the rule; null for all rules.
    pub rule: Option<String>,
    /// A pattern for the subject; null for all subjects.
    pub subject: Option<String>,
    pub note: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub until_at: Timestamp,
}

macro_rules! alert_columns {
    ($condition:literal) => {
        concat!(
            "SELECT a.id, a.rule, a.kind, a.severity, a.status, a.subject, a.subject_id, a.detail, a.version, a.since_at, a.fired_at,
            a.notified_at, a.clear_at, a.resolved_at, a.flaps FROM alert a ",
            $condition
        )
    };
}
pub(super) use alert_columns;

statements! {
    /// Record a new alert. False when its subject has an alert of the rule that is not resolved, or one that was resolved
    /// after `seen_at`, when the caller saw the condition.
    pub async fn insert(alert: &Alert, seen_at: Timestamp) -> bool = changed
        "INSERT INTO alert (id, rule, kind, severity, status, subject, subject_id, detail, version, since_at, fired_at, notified_at, flaps)
        SELECT $1, CAST($2 AS TEXT), $3, $4, $5, $6, CAST($7 AS TEXT), $8, $9, $10, $11, $12, $13
        WHERE NOT EXISTS (SELECT 1 FROM alert WHERE resolved_at > $14 AND rule = CAST($2 AS TEXT) AND subject_id = CAST($7 AS TEXT))
        ON CONFLICT DO NOTHING"
        => [alert.id, alert.rule.as_str(), alert.kind, alert.severity, alert.status, storable(&alert.subject),
            storable(&alert.subject_id), recorded(&alert.detail), alert.version, alert.since_at, alert.fired_at, alert.notified_at,
            alert.flaps, seen_at];

    /// Change an alert that had the version before this one. False when another host changed it first.
    pub async fn change(alert: &Alert) -> bool = changed
        "UPDATE alert SET status = $3, detail = $4, version = $2, fired_at = $5, notified_at = $6, clear_at = $7, resolved_at = $8, flaps = $9
        WHERE id = $1 AND version = $2 - 1 AND status <> 'resolved'"
        => [alert.id, alert.version, alert.status, recorded(&alert.detail), alert.fired_at, alert.notified_at, alert.clear_at,
            alert.resolved_at, alert.flaps];

    /// Delete a pending alert whose condition is gone. False when another host changed it first.
    pub async fn delete_pending(id: AlertId, version: i64) -> bool = changed
        "DELETE FROM alert WHERE id = $1 AND version = $2 AND status = 'pending'";

    /// Returns up to `limit` unresolved alerts after an id, oldest first.
    pub async fn unresolved(after: AlertId, limit: i64) -> Vec<Alert> = rows
        alert_columns!("WHERE a.status <> 'resolved' AND a.id > $1 ORDER BY a.id LIMIT $2");

    /// Returns the unresolved alert of a rule and a subject.
    pub async fn unresolved_of(rule: &str, subject_id: &str) -> Option<Alert> = row
        alert_columns!("WHERE a.rule = $1 AND a.subject_id = $2 AND a.status <> 'resolved'");

    /// Returns an alert.
    pub async fn find(id: AlertId) -> Option<Alert> = row alert_columns!("WHERE a.id = $1");

    /// Returns the newest `limit` alerts before an id, newest first.
    pub async fn list(before: Option<AlertId>, limit: i64) -> Vec<Alert> = rows
        alert_columns!("WHERE a.id < $1 ORDER BY a.id DESC LIMIT $2") => [before.unwrap_or(AlertId::LAST), limit];

    /// Returns the newest `limit` unresolved alerts before an id, newest first.
    pub async fn list_unresolved(before: Option<AlertId>, limit: i64) -> Vec<Alert> = rows
        alert_columns!("WHERE a.status <> 'resolved' AND a.id < $1 ORDER BY a.id DESC LIMIT $2")
        => [before.unwrap_or(AlertId::LAST), limit];

    /// Returns up to `limit` alerts that were resolved after `since`, the last one first.
    pub async fn resolved_since(since: Timestamp, limit: i64) -> Vec<Alert> = rows
        alert_columns!("WHERE a.resolved_at > $1 ORDER BY a.resolved_at DESC LIMIT $2");

    /// Count the alerts that fire.
    pub async fn count_firing() -> i64 = one_value
        "SELECT count(*) FROM alert WHERE status <> 'resolved' AND status = 'firing'";

    /// Delete up to `limit` alerts that were resolved before `before` and that no message is about; return how many.
    pub async fn remove_old(before: Timestamp, limit: i64) -> u64 = execute
        "DELETE FROM alert WHERE id IN (SELECT a.id FROM alert a WHERE a.resolved_at < $1
            AND NOT EXISTS (SELECT 1 FROM alert_message_alert i WHERE i.alert_id = a.id) ORDER BY a.resolved_at LIMIT $2)";

    /// Record a silence.
    pub async fn silence(silence: &Silence) -> () = run
        "INSERT INTO alert_silence (id, rule, subject, note, created_at, created_by, until_at) VALUES ($1, $2, $3, $4, $5, $6, $7)"
        => [silence.id, silence.rule.as_deref(), silence.subject.as_deref(), silence.note.as_deref().map(storable),
            silence.created_at, storable(&silence.created_by), silence.until_at];

    /// End a silence at `now`. False when it has ended.
    pub async fn end_silence(id: SilenceId, now: Timestamp) -> bool = changed
        "UPDATE alert_silence SET until_at = $2 WHERE id = $1 AND until_at > $2";

    /// Returns a silence.
    pub async fn find_silence(id: SilenceId) -> Option<Silence> = row
        "SELECT id, rule, subject, note, created_at, created_by, until_at FROM alert_silence WHERE id = $1";

    /// Returns up to `limit` silences that apply at `now`, the one that ends first first.
    pub async fn silences(now: Timestamp, limit: i64) -> Vec<Silence> = rows
        "SELECT id, rule, subject, note, created_at, created_by, until_at FROM alert_silence WHERE until_at > $1
        ORDER BY until_at LIMIT $2";

    /// Delete up to `limit` silences that ended before `before`; return how many.
    pub async fn remove_old_silences(before: Timestamp, limit: i64) -> u64 = execute
        "DELETE FROM alert_silence WHERE id IN (SELECT id FROM alert_silence WHERE until_at < $1 ORDER BY until_at LIMIT $2)";
}
