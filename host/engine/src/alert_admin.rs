//! The operator's commands on alerts: show one, resolve one, silence some, try a channel.

use std::time::Duration;

use serde::Serialize;

use crate::schedule_admin::{Result, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{AlertId, MessageId, SilenceId};
use campanile_model::status::AlertMessageKind;
use campanile_store::alert_messages::{self, AlertMessageRow, NewAlertMessage};
use campanile_store::alerts::{self, Alert, AlertStatus, Silence};
use campanile_store::events::EventKind;
use campanile_store::{Tx, events};

/// The rule of a message that tries a channel.
const TEST_RULE: &str = "test";

/// An alert with the messages about it.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AlertDetail {
    #[serde(flatten)]
    pub alert: Alert,
    /// The messages about it, the oldest first.
    pub messages: Vec<AlertMessageRow>,
}

/// Return an alert with the messages about it.
///
/// # Errors
/// When there is none of that id.
pub async fn find(tx: &mut Tx, id: AlertId) -> Result<AlertDetail> {
    let found = alerts::find(tx, id).await?;
    let alert = found.ok_or_else(|| ScheduleError::NotFound(format!("there is no alert {id}")))?;
    let messages = alert_messages::of_alert(tx, id).await?;
    Ok(AlertDetail { alert, messages })
}

/// Resolve an alert whose rule no host has any more. Nobody is told.
///
/// # Errors
/// When it is resolved already.
pub async fn resolve(tx: &mut Tx, id: AlertId, by: &str, now: Timestamp) -> Result<AlertDetail> {
    let found = find(tx, id).await?.alert;
    let resolved = Alert {
        version: found.version + 1,
        status: AlertStatus::Resolved,
        fired_at: found.fired_at.or(Some(now)),
        resolved_at: Some(now),
        ..found.clone()
    };
    if !alerts::change(tx, &resolved).await? {
        return Err(ScheduleError::Conflict(format!(
            "the alert {id} is {} already",
            AlertStatus::Resolved
        )));
    }
    let detail = format!("{by} resolved the alert {id} of the rule `{}`", found.rule);
    events::record(tx, now, EventKind::AlertResolved, &found.subject, &detail).await?;
    find(tx, id).await
}

/// Silence alerts until `silence` ends.
pub async fn silence(tx: &mut Tx, silence: &Silence, now: Timestamp) -> Result {
    alerts::silence(tx, silence).await?;
    let what = |pattern: &Option<String>| pattern.clone().unwrap_or_else(|| "*".to_owned());
    let detail = format!(
        "{} silenced alerts of the rules `{}` until {}",
        silence.created_by,
        what(&silence.rule),
        silence.until_at
    );
    let subject = what(&silence.subject);
    events::record(tx, now, EventKind::AlertSilenced, &subject, &detail).await?;
    Ok(())
}

/// End a silence.
///
/// # Errors
/// When there is none of that id, or it has ended.
pub async fn unsilence(tx: &mut Tx, id: SilenceId, by: &str, now: Timestamp) -> Result<Silence> {
    let is_ended = alerts::end_silence(tx, id, now).await?;
    let found = alerts::find_silence(tx, id).await?;
    let silence =
        found.ok_or_else(|| ScheduleError::NotFound(format!("there is no silence {id}")))?;
    if !is_ended {
        return Err(ScheduleError::Conflict(format!(
            "the silence {id} has ended already, at {}",
            silence.until_at
        )));
    }
    let detail = format!("{by} ended the silence {id}");
    let subject = silence.subject.as_deref().unwrap_or("*");
    events::record(tx, now, EventKind::AlertUnsilenced, subject, &detail).await?;
    Ok(silence)
}

/// Let a host send a message to a channel that says that it works. Return the message's id.
pub async fn test(
    tx: &mut Tx,
    channel: &str,
    give_up_after: Duration,
    now: Timestamp,
) -> Result<MessageId> {
    let message = NewAlertMessage {
        id: MessageId::of_alerts(now),
        channel,
        rule: TEST_RULE,
        kind: AlertMessageKind::Test,
        created_at: now,
        due_at: now,
        give_up_at: now.plus(give_up_after),
    };
    alert_messages::insert(tx, &message, 0).await?;
    Ok(message.id)
}
