//! The alerts by severity with what was sent about them, the silences, and the rules and channels of this host.

mod channels;
mod lanes;

use std::collections::HashMap;
use std::time::Duration;

use maud::{Markup, html};

use self::channels::{Tests, settings_part};
use self::lanes::Fired;
use super::actions::ACTION;
use super::parts::{ActionForm, badge, badge_of, button, command, empty, field, next_page};
use super::words::{Clock, counted, line, moment, rough, shell, short, time};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::question::Page;
use campanile_control::questions::alerts::ListAlerts;
use campanile_model::clock::Timestamp;
use campanile_model::ids::AlertId;
use campanile_model::status::MessageStatus;
use campanile_store::alerts::{self, Alert, AlertKind, AlertStatus, Severity, Silence};
use campanile_store::troubles::{self, AlertDelivery};

/// The alerts of a page, and the silences.
const SHOWN_MAX: i64 = 30;
/// The most deliveries of one alert, lines of its text, and characters of a line.
const DELIVERIES_MAX: usize = 8;
const LINES_MAX: usize = 12;
const TEXT_MAX: usize = 300;
/// Times that are closer than this are shown once.
const SAME: Duration = Duration::from_secs(1);
/// The spans of the buttons that silence an alert.
const SILENCES: [(&str, &str); 3] = [
    ("Silence 1 h", "1h"),
    ("Silence 8 h", "8h"),
    ("Silence 1 d", "1d"),
];

/// The messages about each alert, the oldest first.
type Deliveries = HashMap<AlertId, Vec<AlertDelivery>>;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let ListAlerts { all, after, .. } = call.query.question()?;
    let clock = visit.clock();
    let mut tx = call.read().await?;
    let rows = if all {
        alerts::list(&mut tx, after, SHOWN_MAX).await?
    } else {
        alerts::list_unresolved(&mut tx, after, SHOWN_MAX).await?
    };
    let silences = alerts::silences(&mut tx, clock.now, SHOWN_MAX).await?;
    let ids = Vec::from_iter(rows.iter().map(|row| row.id));
    let deliveries = by_alert(troubles::alert_deliveries(&mut tx, &ids).await?);
    let fired = Fired::read(&mut tx, clock.now).await?;
    drop(tx);
    let tests = Tests::read(visit).await?;
    let Page { answer: rows, next } = Page::of(rows, SHOWN_MAX, |row| row.id.to_string());
    let flag = if all { " --all" } else { "" };
    let is_typed = |alert: &Alert| {
        visit.typed.get("rule") == alert.rule && visit.typed.get("subjects") == alert.subject
    };
    let of_none = visit.typed.get(ACTION) == "silence" && !rows.iter().any(is_typed);
    let head = html! {
        div.head {
            h1 { "Alerts" }
            nav.filters aria-label="Filters" {
                a href="/alerts" aria-current=[(!all).then_some("true")] { "Not resolved" }
                a href="/alerts?all=true" aria-current=[all.then_some("true")] { "Also resolved" }
            }
            div.actions {
                details.menu open[of_none] { summary { "Silence alerts" } div { (silence_form(visit, "", "")) } }
            }
        }
    };
    let main = html! {
        @if rows.is_empty() {
            (empty("No alert.", html! {
                "Tables " code { "[[alerts]]" } " of the configuration set the rules: " code { "campanile config check" } " reads them."
            }))
        }
        div.grid {
            (fired.card(clock))
            @for severity in [Severity::Critical, Severity::Warning, Severity::Info] {
                (of_severity(visit, severity, &rows, &deliveries, clock))
            }
            section.card.w6 aria-labelledby="silences" { (silence_part(visit, &silences, clock)) }
            section.card.w6 aria-labelledby="rules" { (settings_part(visit, &call.state.app.settings.alerts, &tests, clock)) }
        }
        (next_page(visit, next.as_deref()))
        (command(&format!("campanile alert list{flag}")))
    };
    View::with_head("Alerts", head, main)
}

fn by_alert(all: Vec<AlertDelivery>) -> Deliveries {
    let mut deliveries = Deliveries::new();
    for delivery in all {
        let of_alert = deliveries.entry(delivery.alert_id).or_default();
        of_alert.push(delivery);
    }
    for of_alert in deliveries.values_mut() {
        of_alert.sort_by_key(|delivery| delivery.id);
    }
    deliveries
}

fn of_severity(
    visit: &Visit,
    severity: Severity,
    rows: &[Alert],
    deliveries: &Deliveries,
    clock: Clock,
) -> Markup {
    let of = rows.iter().filter(|alert| alert.severity == severity);
    let (title, id) = match severity {
        Severity::Critical => ("Critical", "critical"),
        Severity::Warning => ("Warnings", "warnings"),
        Severity::Info => ("For information", "info"),
    };
    html! {
        @if of.clone().next().is_some() {
            section.card.w12 aria-labelledby=(id) {
                header { h2 id=(id) { (title) } (badge_of("plain", &counted(of.clone().count() as u64, "alert"))) }
                @for alert in of {
                    (part(visit, alert, deliveries.get(&alert.id).map_or(&[][..], Vec::as_slice), clock))
                }
            }
        }
    }
}

fn part(visit: &Visit, alert: &Alert, deliveries: &[AlertDelivery], clock: Clock) -> Markup {
    let is_over = alert.status == AlertStatus::Resolved;
    let is_warning = alert.severity == Severity::Warning;
    let is_calm = is_over || alert.severity == Severity::Info;
    let mut lines = alert.detail.lines();
    let first = lines.next().unwrap_or_default();
    let rest = Vec::from_iter(lines.take(LINES_MAX));
    let kind = alert.kind.as_str();
    html! {
        article.trouble.warn[is_warning && !is_calm].calm[is_calm] {
            div {
                h3 { (subject(alert)) } " " (status(alert))
                p.message { (short(first, TEXT_MAX)) }
                @if !rest.is_empty() { pre tabindex="0" { @for more in &rest { (line(more)) "\n" } } }
                p.far {
                    "Rule " code { (line(&alert.rule)) }
                    @if alert.rule != kind { ", " (kind.replace('_', " ")) }
                    @if alert.flaps > 0 { " · came back " (counted(alert.flaps.unsigned_abs(), "time")) }
                    " · " (delivered(alert, deliveries))
                }
            }
            div.side {
                p.far { (times(alert, clock)) }
                @if !is_over { (actions(visit, alert)) }
                @else { (command(&format!("campanile alert show {}", alert.id))) }
            }
        }
    }
}

/// Links what an alert is about to its page.
fn subject(alert: &Alert) -> Markup {
    match alert.kind {
        AlertKind::PackageRejected => links::package(&alert.subject),
        AlertKind::HostSilent => html! { a href="/hosts?all=true" { (line(&alert.subject)) } },
        AlertKind::RecordFull | AlertKind::RecoveryRate => {
            html! { "the " (line(&alert.subject)) }
        }
        _ => links::schedule(&alert.subject),
    }
}

fn status(alert: &Alert) -> Markup {
    match alert.status {
        AlertStatus::Resolved => badge_of("skip", "resolved"),
        status => badge(status.as_str()),
    }
}

/// Shows since when an alert lasts. When it fired and when messages were recorded is left out if that was the same moment.
fn times(alert: &Alert, clock: Clock) -> Markup {
    let later = |before: Timestamp, at: Option<Timestamp>| {
        at.filter(|at| *at > before && at.since(before) >= SAME)
    };
    let fired = later(alert.since_at, alert.fired_at);
    let notified = later(alert.fired_at.unwrap_or(alert.since_at), alert.notified_at);
    html! {
        "since " strong { (time(alert.since_at, clock)) } " (" (moment(alert.since_at, clock)) ")"
        @if let Some(at) = fired { br; "fired " (rough(at.since(alert.since_at))) " later" }
        @if let Some(at) = notified { br; "notified " (time(at, clock)) }
        @if let Some(at) = alert.resolved_at { br; "resolved " (moment(at, clock)) }
    }
}

/// Says which channels got messages about an alert, and what they answered.
fn delivered(alert: &Alert, deliveries: &[AlertDelivery]) -> Markup {
    let more = deliveries.len().saturating_sub(DELIVERIES_MAX);
    let answer = |delivery: &AlertDelivery| match (delivery.status, delivery.answer) {
        (MessageStatus::Delivered, Some(answer)) => format!("✓ answered {answer}"),
        (MessageStatus::Delivered, None) => "✓ delivered".to_owned(),
        (MessageStatus::Pending, _) if delivery.attempts == 0 => "not sent yet".to_owned(),
        (status, answer) => {
            let answer = answer.map(|answer| format!(" ({answer})"));
            let tried = counted(delivery.attempts.unsigned_abs(), "attempt");
            format!("{status}{} after {tried}", answer.unwrap_or_default())
        }
    };
    html! {
        @if deliveries.is_empty() && alert.notified_at.is_none() { "no message: it's silenced, or its rule has no channel" }
        @else if deliveries.is_empty() { "its messages are no longer on record" }
        @for (place, delivery) in deliveries.iter().skip(more).enumerate() {
            @if place > 0 { ", " }
            (line(&delivery.channel)) " (" (delivery.kind.as_str()) "): "
            @if delivery.status == MessageStatus::Delivered { (answer(delivery)) }
            @else { span.warning { (answer(delivery)) } }
            @if let Some(error) = &delivery.error { ": " (short(error, TEXT_MAX)) }
        }
        @if more > 0 { ", and " (more) " earlier" }
    }
}

fn actions(visit: &Visit, alert: &Alert) -> Markup {
    let id = alert.id.to_string();
    let resolve = ActionForm {
        action: "resolve",
        label: "Resolve",
        hidden: &[("id", &id)],
        fields: html! { p { "For an alert whose rule no host has any more. No message is sent." } },
        command: format!("campanile alert resolve {id}"),
    };
    let is_typed =
        visit.typed.get("rule") == alert.rule && visit.typed.get("subjects") == alert.subject;
    html! {
        div.actions {
            @for (label, span) in SILENCES {
                (button(visit, "/alerts", "silence", label, &[("rule", &alert.rule), ("subjects", &alert.subject), ("for", span)]))
            }
            details.menu.small open[is_typed] {
                summary { "Silence or resolve" }
                div {
                    (silence_form(visit, &alert.rule, &alert.subject))
                    hr;
                    (resolve.show(visit))
                    hr;
                    (command(&format!("campanile alert show {id}")))
                }
            }
        }
    }
}

fn silence_part(visit: &Visit, silences: &[Silence], clock: Clock) -> Markup {
    html! {
        header { h2 #silences { "Silences" } span.far { "no message about the alerts they match" } }
        @if silences.is_empty() { p.more { "No silence applies." } }
        @for silence in silences {
            @let id = silence.id.to_string();
            div.trouble.calm {
                div {
                    p {
                        "Rules " code { (line(silence.rule.as_deref().unwrap_or("*"))) } ", subjects " code { (line(silence.subject.as_deref().unwrap_or("*"))) }
                    }
                    p.far { "by " (line(&silence.created_by)) @if let Some(note) = &silence.note { ": " (line(note)) } }
                }
                div.side {
                    p.far { "ends " (moment(silence.until_at, clock)) }
                    div.actions { (button(visit, "/alerts", "unsilence", "End the silence", &[("id", &id)])) }
                }
            }
        }
        div.more {
            @if silences.is_empty() { (command("campanile alert silences")) }
            @for silence in silences { (command(&format!("campanile alert unsilence {}", silence.id))) }
        }
    }
}

/// Show the form for a silence. `rule` and `subject` are those of an alert, or empty.
fn silence_form(visit: &Visit, rule: &str, subject: &str) -> Markup {
    let is_of_alert = !subject.is_empty();
    let hidden = [("rule", rule), ("subjects", subject)];
    let or = |text: &str, other: &str| {
        if text.is_empty() {
            other.to_owned()
        } else {
            shell(text)
        }
    };
    let form = ActionForm {
        action: "silence",
        label: "Silence",
        hidden: if is_of_alert { hidden.as_slice() } else { &[] },
        fields: html! {
            p { "No message about the alerts that match is sent until the time is over." }
            @if !is_of_alert {
                (field(visit, "rule", "Rule", "a name; * stands for any characters"))
                (field(visit, "subjects", "Subjects", "schedules, hosts or packages, with commas between them"))
            }
            (field(visit, "for", "For", "2h"))
            (field(visit, "note", "Why", "for the record"))
        },
        command: format!(
            "campanile alert silence {} --rule {} --for SPAN --note NOTE",
            or(subject, "SUBJECT"),
            or(rule, "RULE")
        ),
    };
    form.show(visit)
}
