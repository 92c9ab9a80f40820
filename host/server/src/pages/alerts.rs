//! The alerts and the silences.

use maud::{Markup, html};

use super::parts::{ActionForm, badge, command, empty, field, next_page};
use super::words::{line, moment, shell};
use super::{View, Visit};
use crate::call::Result;
use campanile_control::question::Page;
use campanile_control::questions::alerts::ListAlerts;
use campanile_model::clock::Timestamp;
use campanile_store::alerts::{self, Alert, AlertStatus, Silence};

/// The alerts of a page, and the silences.
const SHOWN_MAX: i64 = 30;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let ListAlerts { all, after, .. } = call.query.question()?;
    let now = call.now();
    let mut tx = call.read().await?;
    let rows = if all {
        alerts::list(&mut tx, after, SHOWN_MAX).await?
    } else {
        alerts::list_unresolved(&mut tx, after, SHOWN_MAX).await?
    };
    let silences = alerts::silences(&mut tx, now, SHOWN_MAX).await?;
    drop(tx);
    let Page { answer: rows, next } = Page::of(rows, SHOWN_MAX, |row| row.id.to_string());
    let flag = if all { " --all" } else { "" };
    View::new(
        "Alerts",
        html! {
            p {
                @if all { a href="/alerts" { "Only alerts that are not resolved" } } @else { a href="/alerts?all=true" { "Also resolved alerts" } }
            }
            @if rows.is_empty() {
                (empty("No alert.", html! {
                    "Tables " code { "[[alerts]]" } " of the configuration set the rules: " code { "campanile config check" } " reads them."
                }))
            }
            @for alert in &rows { (part(visit, alert, now)) }
            (next_page(visit, next.as_deref()))
            (command(&format!("campanile alert list{flag}")))
            (silence_part(visit, &silences, now))
        },
    )
}

fn part(visit: &Visit, alert: &Alert, now: Timestamp) -> Markup {
    let id = alert.id.to_string();
    let resolve = ActionForm {
        action: "resolve",
        label: "Resolve",
        hidden: &[("id", &id)],
        fields: html! { p { "For an alert whose rule no host has any more. No message is sent." } },
        command: format!("campanile alert resolve {id}"),
    };
    html! {
        article.alert {
            h2 { (line(&alert.subject)) " " (badge(alert.status.as_str())) " " (badge(alert.severity.as_str())) }
            p { (line(&alert.detail)) }
            dl.facts {
                dt { "Rule" } dd { code { (line(&alert.rule)) } ", " (alert.kind.as_str()) }
                dt { "Seen" } dd { (moment(alert.since_at, now)) }
                @if let Some(at) = alert.fired_at { dt { "Fired" } dd { (moment(at, now)) } }
                dt { "Notified" } dd { @if let Some(at) = alert.notified_at { (moment(at, now)) } @else { "no channel" } }
                @if let Some(at) = alert.resolved_at { dt { "Resolved" } dd { (moment(at, now)) } }
                @if alert.flaps > 0 { dt { "Came back" } dd { (alert.flaps) " times" } }
            }
            @if alert.status != AlertStatus::Resolved {
                details {
                    summary { "Silence or resolve" }
                    div.forms {
                        (silence_form(visit, &alert.rule, &alert.subject))
                        (resolve.show(visit))
                    }
                }
            }
            (command(&format!("campanile alert show {id}")))
        }
    }
}

fn silence_part(visit: &Visit, silences: &[Silence], now: Timestamp) -> Markup {
    let end = |silence: &Silence| {
        let id = silence.id.to_string();
        let form = ActionForm {
            action: "unsilence",
            label: "End the silence",
            hidden: &[("id", &id)],
            fields: html! {},
            command: format!("campanile alert unsilence {id}"),
        };
        form.show(visit)
    };
    html! {
        section aria-labelledby="silences" {
            h2 #silences { "Silences" }
            @if silences.is_empty() { p { "No silence applies." } }
            @for silence in silences {
                article.silence {
                    p {
                        "Rules " code { (line(silence.rule.as_deref().unwrap_or("*"))) } ", subjects " code { (line(silence.subject.as_deref().unwrap_or("*"))) }
                        ", until " (moment(silence.until_at, now)) ", by " (line(&silence.created_by))
                        @if let Some(note) = &silence.note { ": " (line(note)) }
                    }
                    (end(silence))
                }
            }
            h3 { "Silence alerts" }
            (silence_form(visit, "", ""))
        }
    }
}

/// Show the form for a silence. `rule` and `subject` are those of an alert, or empty.
fn silence_form(visit: &Visit, rule: &str, subject: &str) -> Markup {
    let is_of_alert = !subject.is_empty();
    let hidden = [("rule", rule), ("subject", subject)];
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
                (field(visit, "subject", "Subject", "a schedule, host or package"))
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
