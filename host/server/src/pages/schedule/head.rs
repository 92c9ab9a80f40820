//! The head of a schedule's page: what it's called, how it is, and what can be done with it.

use maud::{Markup, html};

use super::super::actions::{ACTION, KEY, refusal};
use super::super::form::Form;
use super::super::parts::{ActionForm, badge_of, field, idempotency_key};
use super::super::words::{line, moment, shell, short};
use super::super::{Visit, links, run_with};
use super::Seen;
use campanile_control::records::schedule;
use campanile_store::Origin;

/// The most characters of a rule and of a note.
const RULE_MAX: usize = 60;
const NOTE_MAX: usize = 200;

/// Shows the head.
pub(super) fn head(visit: &Visit, seen: &Seen) -> Markup {
    let row = seen.row();
    let rule = &row.definition.rule;
    let sentence = schedule::rule(row)
        .ok()
        .and_then(|rule| rule.cron_sentence());
    let explained = sentence.as_ref().or(seen.detail.explanation.as_ref());
    let explained = explained.filter(|text| text.chars().count() <= RULE_MAX);
    let written = format!("{} {}", rule.kind, rule.expression);
    let words = explained.unwrap_or(&written).trim_end_matches('.');
    let zone = Some(&rule.timezone).filter(|zone| *zone != "UTC");
    html! {
        div.head {
            h1 { (line(seen.name)) }
            @if let Some((class, words)) = seen.history.badge(row, &seen.detail.schedule.schedule.state, seen.clock.now) { (badge_of(class, &words)) }
            span.far {
                (links::package(&row.definition.package)) " · " (short(words, RULE_MAX))
                @if let Some(zone) = zone { ", " (line(zone)) }
                " · " (origin(row.state.origin, &row.definition.package))
                ", changed " (moment(row.state.updated_at, seen.clock))
            }
            (actions(visit, seen))
        }
    }
}

/// Says where the definition comes from.
fn origin(origin: Origin, package: &str) -> String {
    match origin {
        Origin::Operator => "added by hand".to_owned(),
        Origin::File => "of schedules.toml".to_owned(),
        Origin::Sidecar => format!("of {}.toml", line(package)),
        Origin::Package => "proposed by the package".to_owned(),
    }
}

/// Says since when, until when and why it's paused.
pub(super) fn pause(seen: &Seen) -> Markup {
    let state = &seen.row().state;
    html! {
        @if let Some(at) = state.paused_at {
            p.warning {
                "Paused " (moment(at, seen.clock))
                @if let Some(by) = &state.paused_by { " by " (line(by)) }
                @if let Some(until) = state.paused_until { ", until " (super::super::words::dated(until, seen.clock)) }
                @if let Some(note) = &state.pause_note { ": " (short(note, NOTE_MAX)) }
            }
        }
    }
}

fn actions(visit: &Visit, seen: &Seen) -> Markup {
    let next = seen.slots.iter().find(|slot| !slot.is_skipped);
    let next = next.map(|slot| slot.at.to_string());
    let edit = links::path(&["schedules", seen.name, "edit"]);
    let is_paused = !seen.row().state.enabled;
    html! {
        div.actions {
            @if let Some(refusal) = refusal(&visit.call, "trigger") {
                span.far { (line(&refusal)) "." }
            } @else {
                (one_button(visit, "trigger", "Run now", "go", &[]))
                a.button href=(run_with::address(seen.name)) { "Run with…" }
                (menu(visit, if is_paused { "resume" } else { "pause" }, if is_paused { resume(visit, seen) } else { pause_form(visit, seen) }))
                @if let Some(next) = &next { (one_button(visit, "skip", "Skip next", "", &[("slot", next)])) }
                (menu(visit, "backfill", backfill(visit, seen)))
            }
            a.button href=(edit) { "Edit" }
        }
    }
}

/// A form of one button, as tall as the others of the head.
fn one_button(
    visit: &Visit,
    action: &str,
    label: &str,
    class: &str,
    hidden: &[(&str, &str)],
) -> Markup {
    html! {
        form.inline-form method="post" action=(visit.call.uri) {
            input type="hidden" name=(KEY) value=(idempotency_key());
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            button.(class) name=(ACTION) value=(action) { (label) }
        }
    }
}

/// A form behind a button. It's open when it was sent and not done.
fn menu(visit: &Visit, action: &str, form: ActionForm<'_>) -> Markup {
    let label = match action {
        "backfill" => "Backfill…",
        "pause" => "Pause",
        _ => "Resume",
    };
    html! {
        details.menu open[typed(&visit.typed) == action] {
            summary { (label) }
            div { (form.show(visit)) }
        }
    }
}

fn typed(form: &Form) -> &str {
    form.given(ACTION).unwrap_or_default()
}

fn pause_form<'f>(visit: &Visit, seen: &Seen) -> ActionForm<'f> {
    ActionForm {
        action: "pause",
        label: "Pause",
        hidden: &[],
        fields: html! {
            p { "No slot is decided until it's resumed. Launches that have begun go on." }
            (field(visit, "note", "Why", "for the record"))
            (field(visit, "until", "Until (UTC)", "2026-12-24T08:00, now+2h, or empty"))
        },
        command: format!(
            "campanile schedule pause {} --note NOTE --until TIME",
            shell(seen.name)
        ),
    }
}

fn resume<'f>(visit: &Visit, seen: &Seen) -> ActionForm<'f> {
    ActionForm {
        action: "resume",
        label: "Resume",
        hidden: &[],
        fields: html! {
            p { "Its slots are decided from now on." }
            label {
                input type="checkbox" name="catch_up" value="yes" checked[visit.typed.given("catch_up").is_some()];
                " Apply its catch-up policy to the slots of the pause"
            }
        },
        command: format!("campanile schedule resume {} --catch-up", shell(seen.name)),
    }
}

fn backfill<'f>(visit: &Visit, seen: &'f Seen<'_>) -> ActionForm<'f> {
    ActionForm {
        action: "backfill",
        label: "Count the slots",
        hidden: &seen.backfill,
        fields: html! {
            p { "Launch the slots of a past time. You see first how many these are. " a href="/backfills" { "All backfills" } }
            (field(visit, "from", "From (UTC)", "2026-11-01T00:00, or yesterday 14:00"))
            (field(visit, "to", "To (UTC)", "2026-11-02T00:00, or now-2h"))
            (field(visit, "spread", "Least time between two launches", "10s, or empty"))
            label {
                input type="checkbox" name="force" value="yes" checked[visit.typed.given("force").is_some()];
                " Also the slots that succeeded, are unfinished, or were skipped by a person"
            }
        },
        command: format!(
            "campanile schedule backfill {} --from TIME --to TIME",
            shell(seen.name)
        ),
    }
}
