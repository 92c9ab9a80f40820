//! The rules and channels of this host's configuration, and what became of the newest test of each channel.

use std::time::Duration;

use maud::{Markup, html};
use tokio::time::{Instant, sleep};

use super::super::Visit;
use super::super::actions::TEST_CHANNEL;
use super::super::parts::{button, command};
use super::super::words::{Clock, counted, line, moment, rough, shell, short};
use super::TEXT_MAX;
use crate::call::Result;
use campanile_control::rules::alert_rule::{AlertSettings, Rule};
use campanile_model::status::{AlertMessageKind, MessageStatus};
use campanile_store::alert_messages::{self, AlertMessageRow};

/// The rules, and the channels, that are shown.
const RULES_MAX: usize = 50;
/// The newest messages among which the tests are looked for.
const MESSAGES_MAX: i64 = 200;
/// How long the page waits for the answer to a test that was just sent, and between two looks.
const WAIT: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The newest tests of channels, the newest first.
pub(super) struct Tests(Vec<AlertMessageRow>);

impl Tests {
    /// Reads the tests. After a form that sent one, it waits a moment for the answer.
    pub(super) async fn read(visit: &Visit) -> Result<Tests> {
        let is_sent = visit.done.is_some_and(|action| action.name == TEST_CHANNEL);
        let until = Instant::now() + WAIT;
        loop {
            let mut tx = visit.call.read().await?;
            let mut rows = alert_messages::list(&mut tx, None, None, MESSAGES_MAX).await?;
            drop(tx);
            rows.retain(|row| row.kind == AlertMessageKind::Test);
            let is_open = rows.first().is_some_and(|newest| {
                newest.status == MessageStatus::Pending && newest.error.is_none()
            });
            if !is_sent || !is_open || Instant::now() >= until {
                return Ok(Tests(rows));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn of(&self, channel: &str) -> Option<&AlertMessageRow> {
        self.0.iter().find(|row| row.channel == channel)
    }
}

/// Shows the rules and the channels of this host's configuration.
pub(super) fn settings_part(
    visit: &Visit,
    settings: &AlertSettings,
    tests: &Tests,
    clock: Clock,
) -> Markup {
    html! {
        header { h2 #rules { "Rules and channels" } span.far { "of this host's configuration" } }
        @if settings.rules.is_empty() { p.more { "The configuration has no table " code { "[[alerts]]" } "." } }
        @else {
            table.cards {
                thead { tr { th scope="col" { "Rule" } th scope="col" { "Watches" } th scope="col" { "Severity" } th scope="col" { "Channels" } } }
                tbody { @for rule in settings.rules.iter().take(RULES_MAX) { (rule_row(rule)) } }
            }
            @if settings.rules.len() > RULES_MAX { p.more { "The first " (RULES_MAX) " of " (settings.rules.len()) " rules." } }
        }
        @for (name, channel) in settings.channels.iter().take(RULES_MAX) {
            div.more.channel {
                div.many { span { "Channel " strong { (line(name)) } ", " (channel.template.as_str()) } (button(visit, "/alerts", TEST_CHANNEL, "Send a test", &[("name", name)])) }
                @if let Some(test) = tests.of(name) { p { (answer(test, clock)) } }
                (command(&format!("campanile alert test {}", shell(name))))
            }
        }
    }
}

/// Says what a channel answered to its newest test.
fn answer(test: &AlertMessageRow, clock: Clock) -> Markup {
    let answered = test.answer.map(|answer| format!("answered {answer}"));
    html! {
        "Test " (moment(test.created_at, clock)) ": "
        @match (test.status, answered) {
            (MessageStatus::Delivered, answered) => { span.ok-text { "✓ " (answered.unwrap_or_else(|| "delivered".to_owned())) } },
            (MessageStatus::Pending, _) if test.attempts == 0 => "no host has sent it yet; load the page again",
            (MessageStatus::Pending, None) if test.error.is_none() => "a host sends it now; load the page again",
            (status, answered) => {
                span.warning {
                    @if status == MessageStatus::Pending { "not delivered yet" } @else { (status.as_str()) }
                    @if let Some(answered) = answered { ", " (answered) }
                    " after " (counted(test.attempts.unsigned_abs(), "attempt"))
                }
            },
        }
        @if let Some(error) = &test.error { ": " (short(error, TEXT_MAX)) }
    }
}

fn rule_row(rule: &Rule) -> Markup {
    let kind = rule.condition.kind();
    html! {
        tr {
            td { span.name { (line(&rule.name)) } }
            td {
                (kind.as_str().replace('_', " "))
                @if let Some(subject) = &rule.subject { ", " code { (line(&subject.to_string())) } }
                @if let Some(package) = &rule.package { ", package " code { (line(&package.to_string())) } }
                @if !rule.pending_for.is_zero() { ", for " (rough(rule.pending_for)) }
            }
            td.rest { (rule.severity.as_str()) }
            td.rest { @if rule.channels.is_empty() { "none" } @else { (line(&rule.channels.join(", "))) } }
        }
    }
}
