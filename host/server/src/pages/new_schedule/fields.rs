//! The fields of a new schedule.

use chrono_tz::TZ_VARIANTS;
use maud::{Markup, html};

use super::super::actions::{ACTION, ADD, KEY, PREVIEW, refusal};
use super::super::edit::{choice, input, lines};
use super::super::form::Form;
use super::super::parts::idempotency_key;
use super::super::words::line;
use super::super::{Visit, context_form::TypedContext};
use super::PATH;
use super::typed::{Package, field_of};
use campanile_control::settings::Settings;
use campanile_model::json_text::JsonObject;
use campanile_model::rule_text::{DayMatch, DstFold, DstGap, RuleKind};
use campanile_model::text::duration_text;
use campanile_schedule::policy::{Coefficient, DefaultValue, Policy, ValueKind};

/// The areas whose zones are offered. Others, such as `UTC` and `US/Pacific`, can be typed.
const AREAS: [&str; 9] = [
    "Africa/",
    "America/",
    "Antarctica/",
    "Asia/",
    "Atlantic/",
    "Australia/",
    "Europe/",
    "Indian/",
    "Pacific/",
];

pub(super) fn form(visit: &Visit, package: &Package, form: &Form) -> Markup {
    if let Some(refusal) = refusal(&visit.call, ADD) {
        return html! { p { strong { "New schedule" } ": " (line(&refusal)) "." } };
    }
    let typed = match visit.typed.is_empty() {
        true => TypedContext::default(),
        false => package.context.read(form, &JsonObject::new()),
    };
    html! {
        form.action.edit method="post" action=(PATH) data-preview="preview" {
            input type="hidden" name=(KEY) value=(idempotency_key());
            input type="hidden" name="package" value=(line(&package.name));
            label { "Name " input name="name" value=(line(form.get("name"))) placeholder="nightly-report" required maxlength="200" autocomplete="off"; }
            @if !package.tasks.is_empty() { (task(form, &package.tasks)) }
            fieldset {
                legend { "When" }
                (kind(form))
                label {
                    "Rule " input name="expression" value=(line(form.get("expression"))) placeholder="30 2 * * MON-FRI" required maxlength="1000" autocomplete="off" spellcheck="false";
                    small { (examples()) }
                }
                label {
                    "Time zone " input name="timezone" value=(line(form.get("timezone"))) placeholder="UTC" maxlength="64" list="zones" autocomplete="off" spellcheck="false";
                }
                datalist #zones { option value="UTC" {} @for zone in zones() { option value=(zone) {} } }
            }
            fieldset {
                legend { "Context of the tasks" }
                (package.context.show(form, &JsonObject::new(), &typed))
            }
            details open[is_any_typed(form, &["exclude", "anchor", "args"])] {
                summary { "Excluded times, changes of the clock, arguments" }
                (lines(form, "exclude", "Excluded local times, one a line", "12-25"))
                (input(form, "anchor", "Anchor of an interval", "2026-11-21 08:00, or empty"))
                (choice(form, "day_match", "When both day fields are given", DayMatch::WORDS))
                (choice(form, "dst_gap", "A local time that the clock leaves out", DstGap::WORDS))
                (choice(form, "dst_fold", "A local time that comes twice", DstFold::WORDS))
                (input(form, "args", "Arguments of a program, JSON", "[\"--all\"], or empty for those of the sidecar"))
            }
            details open[Policy::ALL.iter().any(|policy| form.given(&field_of(*policy)).is_some())] {
                summary { "Policies: late slots, overlapping launches, retries" }
                div.two { @for policy in Policy::ALL { (self::policy(form, *policy, &visit.call.state.app.settings)) } }
            }
            label { input type="checkbox" name="disabled" value="yes" checked[form.given("disabled").is_some()]; " Add it paused" }
            p.actions {
                button name=(ACTION) value=(PREVIEW) formnovalidate { "Preview" }
                button.go name=(ACTION) value=(ADD) { "Add the schedule" }
                a href="/schedules" { "Leave it" }
            }
        }
    }
}

fn is_any_typed(form: &Form, names: &[&str]) -> bool {
    names.iter().any(|name| form.given(name).is_some())
}

fn task(form: &Form, tasks: &[String]) -> Markup {
    html! {
        label {
            "Task "
            select name="task" {
                option value="" { "all tasks, each after those it depends on" }
                @for task in tasks { option value=(task) selected[task == form.get("task")] { (line(task)) } }
            }
        }
    }
}

fn kind(form: &Form) -> Markup {
    html! {
        label {
            "Kind of rule "
            select name="kind" {
                @for kind in RuleKind::ALL { option value=(kind.as_str()) selected[kind.as_str() == form.get("kind")] { (meaning(*kind).0) } }
            }
        }
    }
}

/// Returns what a kind of rule is, and an example.
fn meaning(kind: RuleKind) -> (&'static str, &'static str) {
    match kind {
        RuleKind::Cron => ("cron: at times of the clock", "30 2 * * MON-FRI"),
        RuleKind::Every => ("every: at a steady interval", "10m"),
        RuleKind::At => ("at: once", "tomorrow 9:00"),
        RuleKind::AfterCompletion => ("after completion: a pause after each launch", "10m"),
    }
}

fn examples() -> Markup {
    html! {
        "Such as "
        @for (place, kind) in RuleKind::ALL.iter().enumerate() {
            @if place > 0 { " · " }
            (kind.as_str().replace('_', " ")) " " code { (meaning(*kind).1) }
        }
    }
}

fn zones() -> impl Iterator<Item = &'static str> {
    let zones = TZ_VARIANTS.iter().map(|zone| zone.name());
    zones.filter(|zone| AREAS.iter().any(|area| zone.starts_with(area)))
}

fn policy(form: &Form, policy: Policy, settings: &Settings) -> Markup {
    let spec = policy.spec();
    let (name, default) = (field_of(policy), default_of(policy, settings));
    let example = match spec.kind {
        ValueKind::Duration(example) => example.to_owned(),
        ValueKind::Number(least, most) if most < 1 << 31 => format!("{least} to {most}"),
        ValueKind::Number(least, _) => format!("{least} or more"),
        ValueKind::Coefficient => format!("{} to {}", Coefficient::LEAST, Coefficient::MOST),
        ValueKind::FailureKinds(words) => words.join(","),
        ValueKind::Instant => "2027-01-31 08:00".to_owned(),
        ValueKind::Labels => "region=eu".to_owned(),
        ValueKind::Word(_) | ValueKind::Group => String::new(),
    };
    html! {
        label {
            span { code { (policy.as_str()) } }
            @if let ValueKind::Word(words) = spec.kind {
                select name=(name) {
                    option value="" { "default: " (default) }
                    @for word in words { option value=(word) selected[*word == form.get(&name)] { (word) } }
                }
            } @else {
                input name=(name) value=(line(form.get(&name))) placeholder=(example) maxlength="1000" autocomplete="off";
            }
            small {
                (spec.meaning)
                @if let Some((other, words)) = spec.needs { "; with " code { (other.as_str()) } " " (words.join(" or ")) }
                ". Left empty: " (default) "."
            }
        }
    }
}

/// Says what applies when a policy isn't set.
fn default_of(policy: Policy, settings: &Settings) -> String {
    match policy.spec().default {
        DefaultValue::Nothing(text) => text.to_owned(),
        DefaultValue::Fixed(text) => text(),
        DefaultValue::Recorded(text) => {
            let configured = settings.schedule_defaults.text(policy);
            configured.unwrap_or_else(text)
        }
        DefaultValue::Host(of) => duration_text(of(&settings.late)),
    }
}
