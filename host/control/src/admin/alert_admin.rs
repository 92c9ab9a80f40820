//! The operator's commands on alerts: show one, resolve one, silence some, try a channel.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admin::schedule_admin::{Result, ScheduleError, did_you_mean};
use crate::rules::alert_rule::RECORD;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{AlertId, MessageId, SilenceId};
use campanile_model::status::AlertMessageKind;
use campanile_store::alert_messages::{self, AlertMessageRow, NewAlertMessage};
use campanile_store::alerts::{self, Alert, AlertStatus, Silence};
use campanile_store::events::{self, EventKind};
use campanile_store::{Tx, hosts, packages, schedules};

/// The rule of a message that tries a channel.
const TEST_RULE: &str = "test";

/// The open alerts, and the names of schedules, that are looked at for one that is meant.
const OPEN_MAX: i64 = 1_000;
const NAMES_MAX: i64 = 10_000;

/// The silences that a list shows.
pub const SILENCES_MAX: i64 = 1_000;

/// Alerts about which no channel is to get a message.
#[derive(Debug, Clone, Copy)]
pub struct WantedSilence<'a> {
    /// A pattern for the names of rules; none for all.
    pub rule: Option<&'a str>,
    /// A pattern for what alerts are about; none for all.
    pub subject: Option<&'a str>,
    /// The names of the rules that are known here.
    pub rules: &'a [&'a str],
    /// Why.
    pub note: Option<&'a str>,
    /// How long.
    pub span: Duration,
    /// Who silences them.
    pub by: &'a str,
}

/// A message that tries a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TestReport {
    /// The message's id.
    pub id: MessageId,
    pub channel: String,
}

/// An alert with the messages about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AlertDetail {
    #[serde(flatten)]
    pub alert: Alert,
    /// The messages about it, the oldest first.
    pub messages: Vec<AlertMessageRow>,
}

/// Returns an alert with the messages about it.
///
/// # Errors
/// When there is none of that id.
pub async fn find(tx: &mut Tx, id: AlertId) -> Result<AlertDetail> {
    let found = alerts::find(tx, id).await?;
    let alert = found.ok_or_else(|| ScheduleError::NotFound(format!("there is no alert {id}")))?;
    let messages = alert_messages::of_alert(tx, id).await?;
    Ok(AlertDetail { alert, messages })
}

/// Resolve an alert whose rule no host has any more. No channel gets a message.
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

/// Silence the alerts that match, from now on. Return the silence.
///
/// # Errors
/// When a pattern without `*` is a name that nothing has, or the time is zero.
pub async fn silence(tx: &mut Tx, wanted: WantedSilence<'_>, now: Timestamp) -> Result<Silence> {
    check_names(tx, &wanted).await?;
    if wanted.span.is_zero() {
        let why = "a silence of no time ends at once: give a longer time";
        return Err(ScheduleError::Invalid(why.to_owned()));
    }
    let silence = Silence {
        id: SilenceId::new(now),
        rule: wanted.rule.map(str::to_owned),
        subject: wanted.subject.map(str::to_owned),
        note: wanted.note.map(str::to_owned),
        created_at: now,
        created_by: wanted.by.to_owned(),
        until_at: now.plus(wanted.span),
    };
    alerts::silence(tx, &silence).await?;
    let what = |pattern: &Option<String>| pattern.clone().unwrap_or_else(|| "*".to_owned());
    let detail = format!(
        "{} silenced alerts of the rules `{}` until {}",
        silence.created_by,
        what(&silence.rule),
        silence.until_at
    );
    let subject = what(&silence.subject);
    events::record(tx, now, EventKind::AlertSilenced, &subject, &detail).await?;
    Ok(silence)
}

/// Refuse a name that nothing has, because a silence for it would not hold the alerts that it is for. A pattern with `*` may
/// be for what comes later.
async fn check_names(tx: &mut Tx, wanted: &WantedSilence<'_>) -> Result {
    let is_name = |pattern: &&str| !pattern.contains('*');
    let (rule, subject) = (wanted.rule.filter(is_name), wanted.subject.filter(is_name));
    if rule.is_none() && subject.is_none() {
        return Ok(());
    }
    let open = alerts::list_unresolved(tx, None, OPEN_MAX).await?;
    if let Some(rule) = rule {
        let of_alerts = open.iter().map(|alert| &*alert.rule);
        let mut known = wanted.rules.iter().copied().chain(of_alerts);
        if !known.clone().any(|known| known == rule) {
            let near = did_you_mean(rule, known.by_ref());
            return Err(ScheduleError::Invalid(format!(
                "no rule for alerts in the configuration here is named `{rule}`{near}; `{rule}*` silences it all the same"
            )));
        }
    }
    let Some(subject) = subject else {
        return Ok(());
    };
    if subject == RECORD
        || open.iter().any(|alert| alert.subject == subject)
        || !schedules::named(tx, &[subject]).await?.is_empty()
        || hosts::find(tx, subject).await?.is_some()
        || packages::find(tx, subject).await?.is_some()
    {
        return Ok(());
    }
    let mut known = schedules::names(tx, NAMES_MAX).await?;
    known.extend(hosts::newest(tx).await?.into_iter().map(|host| host.name));
    known.extend(packages::names(tx, NAMES_MAX).await?);
    known.extend(open.into_iter().map(|alert| alert.subject));
    let near = did_you_mean(subject, known.iter().map(String::as_str));
    Err(ScheduleError::NotFound(format!(
        "no schedule, host or package is named `{subject}`{near}; `{subject}*` silences it before it exists"
    )))
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

/// Let a host send a message to a channel that says that it works.
pub async fn test(
    tx: &mut Tx,
    channel: &str,
    give_up_after: Duration,
    now: Timestamp,
) -> Result<TestReport> {
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
    Ok(TestReport {
        id: message.id,
        channel: channel.to_owned(),
    })
}
