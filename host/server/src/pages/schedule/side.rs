//! Beside the launches of a schedule: its next slots, what it does, why it did something, and the commands.

use std::collections::BTreeSet;
use std::fmt::Display;

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::super::parts::{badge, button, empty};
use super::super::words::{both, line, shell, tail, time, zoned};
use super::super::{Visit, links};
use super::{Seen, Slot};
use campanile_control::reports::why::Answer;

/// The next slots that are open, and all that are shown.
const SLOTS_OPEN: usize = 4;
pub(super) const SLOTS_SHOWN: usize = 10;
/// The most bytes of a context that is shown.
const CONTEXT_BYTES_MAX: usize = 4 << 10;
/// The most findings of an explanation.
const FINDINGS_MAX: usize = 100;

/// Shows the next slots, each with the form that skips or restores it.
pub(super) fn next(visit: &Visit, seen: &Seen) -> Markup {
    let rows = |slots: &[Slot]| html! { @for slot in slots { (slot_row(visit, seen, slot)) } };
    let (open, rest) = seen.slots.split_at(seen.slots.len().min(SLOTS_OPEN));
    html! {
        section.card aria-labelledby="slots" {
            header { h2 #slots { "Next slots" } a.far href={ "/plan" (links::query(&[("schedule", seen.name)])) } { "plan" } }
            @if seen.slots.is_empty() {
                div.pad {
                    (empty("It has no next slot.", html! {
                        @match &seen.detail.schedule.without_slots() {
                            Some(text) => { (line(text)) "." },
                            None => "It has ended, or its last slot is over. Run it now, or change its rule.",
                        }
                    }))
                }
            }
            (rows(open))
            @if !rest.is_empty() {
                details { summary.more { (rest.len()) " more" } (rows(rest)) }
            }
        }
    }
}

fn slot_row(visit: &Visit, seen: &Seen, slot: &Slot) -> Markup {
    let at = slot.at.to_string();
    let (action, label) = if slot.is_skipped {
        ("restore", "Restore")
    } else {
        ("skip", "Skip")
    };
    html! {
        div.row {
            span.whole {
                (both(slot.at, &slot.local, seen.clock))
                @if slot.is_skipped { " " (badge("skipped")) }
                @for change in &slot.changes { br; span.warning { (line(change)) } }
            }
            span {}
            (button(visit, &visit.call.uri, action, label, &[("slot", &at)]))
        }
    }
}

/// Shows what the schedule does: its rule in words, and its policies, those that someone set first.
pub(super) fn meaning(seen: &Seen) -> Markup {
    let (new, definition) = (&seen.detail.schedule, &seen.row().definition);
    let none = Map::new();
    let policies = seen.detail.effective_policies.as_ref().unwrap_or(&none);
    let own = keys(&definition.policies);
    let configured = keys(&definition.defaults);
    let is_set = |policy: &str| own.contains(policy) || configured.contains(policy);
    let (set, rest): (Vec<_>, Vec<_>) = policies.iter().partition(|(policy, _)| is_set(policy));
    let (context, left_out) = tail(&definition.context, CONTEXT_BYTES_MAX);
    html! {
        section.card aria-labelledby="meaning" {
            header { h2 #meaning { "What it does" } span.far { "revision " (seen.row().state.revision) } }
            div.pad {
                @match &seen.detail.explanation {
                    Some(explanation) => p { (line(explanation)) },
                    None => p { "This version of Campanile can't read the rule." },
                }
                dl.facts {
                    dt { "Rule" } dd { code { (line(&new.schedule.rule_text())) } " in " (line(&definition.rule.timezone)) }
                    dt { "Task" }
                    dd {
                        @match &definition.task {
                            Some(task) => { code { (line(task)) } " and those it depends on" },
                            None => "all of the package",
                        }
                    }
                    @for (policy, value) in &set {
                        dt { (line(policy)) }
                        dd { strong { (text(value)) } " " span.far { @if own.contains(*policy) { "set here" } @else { "by the configuration" } } }
                    }
                }
                @for note in &new.notes { p.far { "Note: " (line(note)) } }
                details {
                    summary.far { @if set.is_empty() { (rest.len()) " policies, all by default" } @else { (rest.len()) " more, by default" } }
                    dl.facts { @for (policy, value) in &rest { dt { (line(policy)) } dd { (text(value)) } } }
                }
                details {
                    summary.far { "Context of the tasks" }
                    @if left_out > 0 { p.far { "The first " (left_out) " bytes are left out." } }
                    pre tabindex="0" { (context) }
                }
            }
        }
    }
}

/// Returns the keys of policies as the record has them.
fn keys(policies: &str) -> BTreeSet<String> {
    let read = serde_json::from_str::<Map<String, Value>>(policies);
    read.unwrap_or_default()
        .into_iter()
        .map(|(key, _)| key)
        .collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => line(text),
        other => line(&(other as &dyn Display).to_string()),
    }
}

/// Shows the form that asks why something was done, and the answer.
pub(super) fn why(visit: &Visit, seen: &Seen, at: Option<&str>, answer: Option<&Answer>) -> Markup {
    // An answer needs the whole width.
    let wide = if answer.is_some() { "w12" } else { "w6" };
    html! {
        section.card.(wide) aria-labelledby="why" {
            header { h2 #why { "Why at…?" } }
            div.pad {
                form.actions method="get" action={ (visit.call.uri) "#why" } {
                    input type="search" name="at" value=(line(at.unwrap_or_default())) placeholder="yesterday 14:00" aria-label="What it did, or will do, at" maxlength="100";
                    button { "Explain" }
                }
                @if let Some(answer) = answer {
                    ol {
                        @for finding in answer.findings.iter().take(FINDINGS_MAX) {
                            li {
                                strong { (finding.kind.as_str().replace('_', " ")) } " "
                                @match (finding.at, &finding.local) {
                                    (Some(at), Some(local)) => { (both(at, local, seen.clock)) " " },
                                    (Some(at), None) => { (time(at, seen.clock)) " " },
                                    (None, Some(local)) => { span.local { (zoned(local)) } " " },
                                    (None, None) => "",
                                }
                                (line(&finding.text))
                            }
                        }
                    }
                } @else {
                    p.far { "Or now-2h, 2026-11-21 09:00, 2026-11-21T08:00:00Z." }
                }
            }
        }
    }
}

/// Shows the commands that do the same as the page.
pub(super) fn commands(name: &str, at: Option<&str>) -> Markup {
    let at = at
        .map(|at| format!(" --at {}", shell(at)))
        .unwrap_or_default();
    let name = shell(name);
    let first = [
        format!("campanile schedule show {name}"),
        format!("campanile schedule trigger {name}"),
        format!("campanile schedule why {name}{at}"),
    ];
    let more = [
        format!("campanile schedule next {name} -n {SLOTS_SHOWN}"),
        format!("campanile schedule skip {name} SLOT"),
        format!("campanile schedule skip {name} SLOT --undo"),
        format!("campanile schedule edit {name}"),
    ];
    let lines = |commands: &[String]| html! { @for command in commands { div.command { code { (line(command)) } } } };
    html! {
        section.card.w6 aria-labelledby="commands" {
            header { h2 #commands { "Commands" } }
            div.pad {
                (lines(&first))
                details { summary.far { (more.len()) " more" } (lines(&more)) }
            }
        }
    }
}
