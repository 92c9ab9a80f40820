//! One schedule: what it means, when it launches, why it did, and the forms that change it.

use std::fmt::Display;

use maud::{Markup, html};

use super::parts::{ActionForm, badge, command, empty, field};
use super::words::{line, moment, shell, time, zoned};
use super::{View, Visit, charts, launches, links};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::records::schedule::{self, ScheduleDetail};
use campanile_control::reports::why::{self, Answer, When};
use campanile_control::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_schedule::rule::Rule;

/// The next slots that are shown.
const SLOTS_SHOWN: usize = 10;
/// The most bytes of a context that is shown.
const CONTEXT_BYTES_MAX: usize = 4 << 10;
/// The most findings of an explanation.
const FINDINGS_MAX: usize = 100;

/// A coming slot.
struct Slot {
    at: Timestamp,
    local: String,
    is_skipped: bool,
    /// What a change of the clock does to it.
    clock: Vec<String>,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let (now, name) = (call.now(), call.name("name"));
    let at = call.query.text("at");
    let when = at.map(str::parse::<When>).transpose();
    let when = when.map_err(|error| ApiProblem::invalid(&error).hint(error.hint()))?;
    let mut tx = call.read().await?;
    let late = &call.state.app.settings.late;
    let detail = ScheduleDetail::read(&mut tx, name, late, now).await?;
    let answer = match when {
        Some(when) => Some(why::why(&mut tx, name, Some(when), now).await?),
        None => None,
    };
    drop(tx);
    let slots = slots(&detail, now);
    let record = &detail.schedule.schedule;
    View::new(
        format!("Schedule {}", record.name()),
        html! {
            p {
                (badge(&record.state)) " "
                @if record.row.state.paused_at.is_some() { "paused " (line(&record.pause_text())) ". " }
                "Of the package " (links::package(&record.row.definition.package))
                @if let Some(task) = &record.row.definition.task { ", the task " code { (line(task)) } " and those it depends on" }
                ". Revision " (record.row.state.revision) ", changed " (moment(record.row.state.updated_at, now)) "."
            }
            (meaning(&detail))
            (next(visit, &detail, &slots, now))
            (explain(visit, name, at, answer.as_ref()))
            (newest(&detail, now))
            (forms(visit, &detail))
            (definition_part(&detail))
            (command(&format!("campanile schedule show {}", shell(name))))
        },
    )
}

/// Returns the coming slots, those that a person skipped included.
fn slots(detail: &ScheduleDetail, now: Timestamp) -> Vec<Slot> {
    let row = &detail.schedule.schedule.row;
    let Ok(rule) = schedule::rule(row) else {
        return Vec::new();
    };
    let policies = definition::policies(&row.definition).unwrap_or_default();
    let skips = schedule::skips(row);
    let slots = schedule::slots(row, &rule, &policies, None, now).take(SLOTS_SHOWN);
    let slot = |at: Timestamp| Slot {
        at,
        local: rule.local_text(at),
        is_skipped: skips.contains(&at),
        clock: clock_changes(&rule, at),
    };
    slots.map(slot).collect()
}

fn clock_changes(rule: &Rule, at: Timestamp) -> Vec<String> {
    let effects = rule.dst_effects_at(at);
    effects
        .iter()
        .map(|effect| rule.dst_effect_text(effect))
        .collect()
}

fn meaning(detail: &ScheduleDetail) -> Markup {
    let new = &detail.schedule;
    html! {
        section aria-labelledby="meaning" {
            h2 #meaning { "What it means" }
            @match &detail.explanation {
                Some(explanation) => p { (line(explanation)) },
                None => p { "This version of Campanile cannot read the rule." },
            }
            p { "As written: " code { (line(&new.schedule.rule_text())) } " in the zone " (line(&new.schedule.row.definition.rule.timezone)) "." }
            @for note in &new.notes { p { "Note: " (line(note)) } }
            @for warning in &new.warnings { p.warning { "Warning: " (line(&warning.message)) " " (line(&warning.hint)) } }
        }
    }
}

fn next(visit: &Visit, detail: &ScheduleDetail, slots: &[Slot], now: Timestamp) -> Markup {
    let name = detail.schedule.schedule.name();
    let skip = |slot: &Slot| {
        let at = slot.at.to_string();
        let (action, label, undo) = if slot.is_skipped {
            ("restore", "Restore", " --undo")
        } else {
            ("skip", "Skip", "")
        };
        let form = ActionForm {
            action,
            label,
            hidden: &[("slot", &at)],
            fields: html! {},
            command: format!("campanile schedule skip {} {at}{undo}", shell(name)),
        };
        form.show(visit)
    };
    html! {
        section aria-labelledby="slots" {
            h2 #slots { "Next slots" }
            @if slots.is_empty() {
                (empty("It has no next slot.", html! {
                    @match &detail.schedule.without_slots() {
                        Some(text) => { (line(text)) "." },
                        None => "It has ended, or its last slot is over. Trigger it below, or change its rule.",
                    }
                }))
            } @else {
                div.wide tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "UTC" } th scope="col" { "On the clock of the zone" } th scope="col" { "Change" } } }
                        tbody {
                            @for slot in slots {
                                tr {
                                    td { (moment(slot.at, now)) @if slot.is_skipped { " " (badge("skipped")) } }
                                    td {
                                        (zoned(&slot.local))
                                        @for clock in &slot.clock { br; span.warning { (line(clock)) } }
                                    }
                                    td { details { summary { @if slot.is_skipped { "Restore" } @else { "Skip" } } (skip(slot)) } }
                                }
                            }
                        }
                    }
                }
            }
            (command(&format!("campanile schedule next {} -n {SLOTS_SHOWN}", shell(name))))
        }
    }
}

fn explain(visit: &Visit, name: &str, at: Option<&str>, answer: Option<&Answer>) -> Markup {
    let given = at
        .map(|at| format!(" --at {}", shell(at)))
        .unwrap_or_default();
    html! {
        section aria-labelledby="why" {
            h2 #why { "Why" }
            form.filter method="get" action=(visit.call.uri) {
                label {
                    "What it did, or will do, at "
                    input type="search" name="at" value=(line(at.unwrap_or_default())) placeholder="2026-11-21T08:00:00Z or 2026-11-21 09:00" maxlength="100";
                }
                button { "Explain" }
            }
            @if let Some(answer) = answer {
                ol {
                    @for finding in answer.findings.iter().take(FINDINGS_MAX) {
                        li {
                            strong { (finding.kind.as_str()) } " "
                            @if let Some(at) = finding.at { (time(at)) " " }
                            @if let Some(local) = &finding.local { span.local { (zoned(local)) } " " }
                            (line(&finding.text))
                        }
                    }
                }
            }
            (command(&format!("campanile schedule why {}{given}", shell(name))))
        }
    }
}

fn newest(detail: &ScheduleDetail, now: Timestamp) -> Markup {
    let name = detail.schedule.schedule.name();
    let outcomes = detail.launches.iter().rev().map(|row| row.status);
    let outcomes = Vec::from_iter(outcomes);
    let all = format!("/launches{}", links::query(&[("schedule", name)]));
    html! {
        section aria-labelledby="launches" {
            h2 #launches { "Newest launches" }
            @if detail.launches.is_empty() {
                (empty("It has no launch on record.", html! { "Wait for its next slot, or trigger it below." }))
            } @else {
                p {
                    (charts::sparkline(&outcomes)) " " a href=(all) { "All its launches" }
                    " " a href={ (links::path(&["schedules", name])) "/calendar" } { "Calendar of the year" }
                }
                (launches::table(&detail.launches, now))
            }
        }
    }
}

fn forms(visit: &Visit, detail: &ScheduleDetail) -> Markup {
    let record = &detail.schedule.schedule;
    let name = shell(record.name());
    let trigger = ActionForm {
        action: "trigger",
        label: "Trigger",
        hidden: &[],
        fields: html! { p { "Launch it now, in addition to its slots." } },
        command: format!("campanile schedule trigger {name}"),
    };
    let is_paused = !record.row.state.enabled;
    let pause = ActionForm {
        action: "pause",
        label: "Pause",
        hidden: &[],
        fields: html! {
            p { "No slot is decided until it is resumed. Launches that have begun continue." }
            (field(visit, "note", "Why", "for the record"))
            (field(visit, "until", "Until (UTC)", "2026-12-24T08:00 or empty"))
        },
        command: format!("campanile schedule pause {name} --note NOTE --until TIME"),
    };
    let resume = ActionForm {
        action: "resume",
        label: "Resume",
        hidden: &[],
        fields: html! {
            p { "Decide its slots from now on." }
            label {
                input type="checkbox" name="catch_up" value="yes" checked[visit.typed.given("catch_up").is_some()];
                " Apply its catch-up policy to the slots of the pause"
            }
        },
        command: format!("campanile schedule resume {name} --catch-up"),
    };
    let backfill = ActionForm {
        action: "backfill",
        label: "Count the slots",
        hidden: &[("schedule", record.name())],
        fields: html! {
            p { "Launch the slots of a past time. You see first how many these are. " a href="/backfills" { "All backfills" } }
            (field(visit, "from", "From (UTC)", "2026-11-01T00:00"))
            (field(visit, "to", "To (UTC)", "2026-11-02T00:00"))
            (field(visit, "spread", "Least time between two launches", "10s, or empty"))
            label {
                input type="checkbox" name="force" value="yes" checked[visit.typed.given("force").is_some()];
                " Also the slots that succeeded, are unfinished, or were skipped by a person"
            }
        },
        command: format!("campanile schedule backfill {name} --from TIME --to TIME"),
    };
    html! {
        section aria-labelledby="change" {
            h2 #change { "Change" }
            div.forms {
                (trigger.show(visit))
                @if is_paused { (resume.show(visit)) } @else { (pause.show(visit)) }
                (backfill.show(visit))
            }
        }
    }
}

fn definition_part(detail: &ScheduleDetail) -> Markup {
    let definition = &detail.schedule.schedule.row.definition;
    let (context, left_out) = super::words::tail(&definition.context, CONTEXT_BYTES_MAX);
    let value = |value: &serde_json::Value| match value {
        serde_json::Value::Null => "none".to_owned(),
        serde_json::Value::String(text) => line(text),
        other => line(&(other as &dyn Display).to_string()),
    };
    html! {
        section aria-labelledby="policies" {
            h2 #policies { "Policies and context" }
            @if let Some(policies) = &detail.effective_policies {
                details {
                    summary { (policies.len()) " policies, set or by default" }
                    dl.facts {
                        @for (policy, set) in policies { dt { code { (line(policy)) } } dd { (value(set)) } }
                    }
                }
            }
            details {
                summary { "Context of the tasks" }
                @if left_out > 0 { p.far { "The first " (left_out) " bytes are left out." } }
                pre tabindex="0" { (context) }
            }
            p { a href={ (links::path(&["schedules", &definition.name])) "/edit" } { "Edit the rule, the policies and the context" } }
            (command(&format!("campanile schedule edit {}", shell(&definition.name))))
        }
    }
}
