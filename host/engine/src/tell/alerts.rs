//! Alerts: evaluate the rules of the configuration, and record what changed together with the messages about it.
//!
//! ```text
//! record ─▶ look (bounded pages) ─▶ step (pure) ─▶ [transaction: alert, messages] ─▶ delivery
//! ```
//!
//! Every host evaluates its rules, so a dead host is missed by all others. The first host that changes an alert sends the messages about it:
//! the change is a compare-and-set, and its messages are recorded in the same transaction. A host that dies before the commit
//! leaves the change to another; after it, any host delivers the messages.

pub(crate) mod conditions;
pub(crate) mod delivery;
pub(crate) mod host_ping;
pub(crate) mod message;
pub(crate) mod ping_queue;
pub(crate) mod pings;
pub(crate) mod step;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::service::{Next, Service};
use campanile_control::rules::alert_rule::{Condition, Pattern, Rule};
use step::{Step, step};
use watch::{Observation, Watch};

use campanile_model::clock::Timestamp;
use campanile_model::ids::{AlertId, MessageId};
use campanile_model::status::AlertMessageKind;
use campanile_store::Tx;
use campanile_store::alert_messages::{self, NewAlertMessage};
use campanile_store::alerts::{self, Alert, AlertStatus, Silence};
use campanile_store::events::{self, EventKind, NewEvent};

/// How often the rules are evaluated.
const INTERVAL: Duration = Duration::from_secs(5);
/// The silences that are read. More cannot apply at the same time.
pub(crate) const SILENCES_MAX: i64 = 1_000;
/// The alerts of one message.
const ALERTS_PER_MESSAGE_MAX: i64 = 100;
/// The changes of one transaction.
const CHANGES_PER_COMMIT: usize = 64;

/// The service that evaluates the rules.
pub(crate) struct Alerts {
    rules: Vec<Rule>,
    watch: Watch,
}

impl Service for Alerts {
    const STEP: &'static str = "evaluating the rules for alerts";

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        // With a wrong clock, everything would look late.
        if ctx.clock.is_known() {
            self.evaluate(ctx, now).await?;
        }
        Ok(Next::After(INTERVAL))
    }
}

impl Alerts {
    pub(crate) fn new(ctx: &Ctx) -> Alerts {
        let mut rules = ctx.settings.alerts.rules.clone();
        let is_expecting = |rule: &Rule| matches!(rule.condition, Condition::ExpectWithin);
        if !rules.iter().any(is_expecting) {
            rules.push(Rule::expect_within());
        }
        Alerts {
            rules,
            watch: Watch::default(),
        }
    }

    /// Evaluate the rules once, and record what changed. Returns how many alerts this host changed.
    pub(crate) async fn evaluate(&mut self, ctx: &Ctx, now: Timestamp) -> Result<usize> {
        let seen = self.watch.look(ctx, &self.rules, now).await?;
        let silences = if seen.is_empty() {
            Vec::new()
        } else {
            alerts::silences(&mut ctx.db.read().await?, now, SILENCES_MAX).await?
        };
        let mut steps: Vec<(&Rule, Step)> = seen
            .iter()
            .map(|seen| (seen.rule, decide(seen, &silences, now)))
            .filter(|(_, step)| *step != Step::Nothing)
            .collect();
        // Sorted, so that two transactions cannot deadlock.
        steps.sort_by(|(_, one), (_, other)| subject(one).cmp(&subject(other)));
        let mut changed = 0;
        for steps in steps.chunks(CHANGES_PER_COMMIT) {
            changed += record(ctx, steps, now).await?;
        }
        Ok(changed)
    }
}

fn decide(seen: &Observation<'_>, silences: &[Silence], now: Timestamp) -> Step {
    let subject = seen.finding.as_ref().map(|finding| &*finding.subject);
    let subject = subject.or(seen.current.as_ref().map(|alert| &*alert.subject));
    let is_silenced = is_silenced(silences, &seen.rule.name, subject.unwrap_or_default());
    step(
        seen.rule,
        seen.current.as_ref(),
        seen.finding.as_ref(),
        is_silenced,
        now,
    )
}

/// Whether one of `silences` matches.
pub(crate) fn is_silenced(silences: &[Silence], rule: &str, subject: &str) -> bool {
    let matches = |pattern: &Option<String>, name: &str| match pattern {
        None => true,
        Some(text) => text.parse().is_ok_and(|it: Pattern| it.matches(name)),
    };
    let mut silences = silences.iter();
    silences.any(|one| matches(&one.rule, rule) && matches(&one.subject, subject))
}

/// By what the changes of a transaction are sorted.
fn subject(step: &Step) -> Option<(&str, &str)> {
    match step {
        Step::Nothing => None,
        Step::Insert(alert) | Step::Change(alert) | Step::Delete(alert) => {
            Some((&alert.rule, &alert.subject_id))
        }
    }
}

/// The messages of one transaction: by channel, rule and kind the alerts.
type Messages = BTreeMap<(String, String, &'static str), (AlertMessageKind, Vec<AlertId>)>;

/// Records changes with their messages in one transaction. Returns how many of them no other host had made.
async fn record(ctx: &Ctx, steps: &[(&Rule, Step)], now: Timestamp) -> Result<usize> {
    let mut tx = ctx.db.write().await?;
    let mut messages = Messages::new();
    let mut changes = Vec::new();
    let mut changed = 0;
    for (rule, step) in steps {
        let (is_mine, alert) = match step {
            Step::Nothing => continue,
            Step::Insert(alert) => (alerts::insert(&mut tx, alert, now).await?, alert),
            Step::Change(alert) => (alerts::change(&mut tx, alert).await?, alert),
            Step::Delete(alert) => {
                changed +=
                    usize::from(alerts::delete_pending(&mut tx, alert.id, alert.version).await?);
                continue;
            }
        };
        if !is_mine {
            continue;
        }
        changed += 1;
        changes.extend(event(alert, now));
        if alert.notified_at == Some(now) {
            note(
                &mut messages,
                &rule.channels,
                AlertMessageKind::Firing,
                alert,
            );
        }
        if alert.status == AlertStatus::Resolved && alert.notified_at.is_some() {
            // Only channels with a message that the alert fires get one that it is resolved.
            let channels = alert_messages::notified_channels(&mut tx, alert.id).await?;
            note(&mut messages, &channels, AlertMessageKind::Resolved, alert);
        }
    }
    for ((channel, rule, _), (kind, alerts)) in &messages {
        record_message(ctx, &mut tx, (channel, rule, *kind), alerts, now).await?;
    }
    events::record_all(&mut tx, now, &changes).await?;
    crash::point("before_alert_commit");
    tx.commit().await?;
    crash::point("after_alert_commit");
    if !messages.is_empty() {
        ctx.wake.alerts.notify_one();
    }
    Ok(changed)
}

fn note(messages: &mut Messages, channels: &[String], kind: AlertMessageKind, alert: &Alert) {
    for channel in channels {
        let key = (channel.clone(), alert.rule.clone(), kind.as_str());
        let (_, alerts) = messages.entry(key).or_insert_with(|| (kind, Vec::new()));
        alerts.push(alert.id);
    }
}

/// Returns the event about an alert that began to fire or was resolved at `now`.
fn event(alert: &Alert, now: Timestamp) -> Option<NewEvent> {
    let kind = match alert.status {
        AlertStatus::Resolved => EventKind::AlertResolved,
        AlertStatus::Firing if alert.fired_at == Some(now) => EventKind::AlertFired,
        _ => return None,
    };
    let (rule, detail) = (&alert.rule, &alert.detail);
    tracing::warn!(%rule, subject = %alert.subject, detail, "{kind}");
    let detail = format!("by the rule `{rule}`: {detail}");
    Some(NewEvent::new(kind, &alert.subject, detail))
}

/// Records a message about alerts to a channel. The alerts join the newest message of the rule if no host has claimed it.
async fn record_message(
    ctx: &Ctx,
    tx: &mut Tx,
    (channel, rule, kind): (&str, &str, AlertMessageKind),
    alerts: &[AlertId],
    now: Timestamp,
) -> Result {
    let group_wait = ctx.settings.alerts.channels.get(channel);
    let group_wait = group_wait.map_or(Duration::ZERO, |channel| channel.group_wait);
    for alert in alerts {
        let newest = alert_messages::newest(tx, channel, rule).await?;
        // Messages are delivered in the order of their ids, and the clock of the host that recorded the one before may be ahead.
        let first = newest.map_or(MessageId::FIRST, |newest| newest.id.next());
        let open = newest.filter(|newest| {
            newest.kind == kind && newest.attempts == 0 && newest.alerts < ALERTS_PER_MESSAGE_MAX
        });
        let joined = match open {
            Some(open) if alert_messages::join(tx, open.id).await? => Some(open.id),
            _ => None,
        };
        let id = match joined {
            Some(id) => id,
            None => {
                let message = NewAlertMessage {
                    id: MessageId::of_alerts(now).max(first),
                    channel,
                    rule,
                    kind,
                    created_at: now,
                    due_at: now.plus(group_wait),
                    give_up_at: now.plus(ctx.settings.give_up_after),
                };
                alert_messages::insert(tx, &message, 1).await?;
                message.id
            }
        };
        alert_messages::add(tx, id, *alert).await?;
    }
    Ok(())
}
