//! `campanile cron explain`: a rule in plain English.

use std::collections::BTreeSet;

use chrono::NaiveDateTime;
use serde::Serialize;

use super::rule::{ParsedRule, is_hashed};
use super::slots::{self, SlotCount};
use crate::output::{self, Failure};
use campanile_model::clock::Timestamp;
use campanile_schedule::rule::{
    DstAction, DstEffect, Rule, RuleKind, WARNED_AHEAD, Warning, tzdata_version,
};

/// The most slots affected by clock changes that are shown to a person.
const TOUCHED_SHOWN: usize = 20;

/// A rule, explained.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct Explanation {
    kind: RuleKind,
    expression: String,
    /// The rule in its canonical form.
    normal_form: String,
    /// The same with hashed values resolved.
    resolved: String,
    timezone: String,
    tzdata_version: &'static str,
    explanation: String,
    notes: Vec<String>,
    /// The next slots.
    next: Vec<Instant>,
    /// The local times that clock changes affect.
    touched: Vec<TouchedTime>,
    warnings: Vec<Warning>,
}

/// An instant in UTC and in the rule's zone.
#[derive(Serialize, schemars::JsonSchema)]
struct Instant {
    utc: Timestamp,
    local: String,
}

/// A local time, or a range of them, that a clock change affects.
#[derive(Serialize, schemars::JsonSchema)]
struct TouchedTime {
    /// When the clock changes.
    change: Timestamp,
    local: String,
    local_last: String,
    /// `moved`, `skipped`, `not_shown`, `once` or `twice`.
    fate: &'static str,
    fires_at: Vec<Timestamp>,
    message: String,
}

/// Print the explanation of a rule.
pub(crate) fn print(parsed: &ParsedRule, count: &SlotCount, as_json: bool) -> Result<(), Failure> {
    let ParsedRule { text, rule, from } = parsed;
    let next = count.take(slots::all(rule, *from));
    let until = from.plus(WARNED_AHEAD);
    let explanation = Explanation {
        kind: text.kind,
        expression: text.expression.clone(),
        normal_form: rule.normal_form(),
        resolved: rule.resolved_form(),
        timezone: rule.timezone().to_string(),
        tzdata_version: tzdata_version(),
        explanation: rule.explanation(),
        notes: rule.notes().to_vec(),
        next: next
            .iter()
            .map(|&utc| Instant {
                utc,
                local: rule.local_text(utc),
            })
            .collect(),
        touched: rule
            .dst_effects(*from, until)
            .map(|touched| touched_time(rule, &touched))
            .collect(),
        warnings: rule.warnings(*from),
    };
    match as_json {
        true => output::print_json(&explanation),
        false => print_text(&explanation, parsed, &next, until),
    }
}

fn print_text(
    explained: &Explanation,
    parsed: &ParsedRule,
    next: &[Timestamp],
    until: Timestamp,
) -> Result<(), Failure> {
    let ParsedRule { rule, from, .. } = parsed;
    output::print_line(&explained.explanation)?;
    output::print_line("")?;
    output::print_line(&format!("normal form  {}", explained.normal_form))?;
    if is_hashed(rule) {
        output::print_line(&format!("resolved     {}", explained.resolved))?;
    }
    output::print_line(&format!(
        "zone         {} (tzdata {})",
        explained.timezone, explained.tzdata_version
    ))?;
    for note in &explained.notes {
        output::print_line(&format!("note         {note}"))?;
    }
    output::print_line("")?;
    print_next(rule, *from, next)?;
    if !next.is_empty() {
        print_touched(rule, until, &explained.touched)?;
    }
    for warning in &explained.warnings {
        output::print_line("")?;
        output::print_line(&format!("warning: {}", warning.message))?;
        output::print_line(&format!("   hint: {}", warning.hint))?;
    }
    Ok(())
}

fn print_next(rule: &Rule, from: Timestamp, next: &[Timestamp]) -> Result<(), Failure> {
    if let Some(when) = slots::without_slots(rule) {
        return output::print_line(&when);
    }
    if next.is_empty() {
        return output::print_line(&format!("no slot after {from}"));
    }
    output::print_line(&format!("slots after {from}:"))?;
    slots::print(rule, next, &BTreeSet::new())
}

fn print_touched(rule: &Rule, until: Timestamp, touched: &[TouchedTime]) -> Result<(), Failure> {
    output::print_line("")?;
    let until = rule.local(until).date();
    if touched.is_empty() {
        return output::print_line(&format!("no clock change affects a slot until {until}"));
    }
    output::print_line(&format!("slots affected by clock changes until {until}:"))?;
    for touched in touched.iter().take(TOUCHED_SHOWN) {
        output::print_line(&touched.message)?;
    }
    match touched.len().saturating_sub(TOUCHED_SHOWN) {
        0 => Ok(()),
        more => output::print_line(&format!("and {more} more; --json shows all")),
    }
}

fn touched_time(rule: &Rule, touched: &DstEffect) -> TouchedTime {
    let (fate, fires_at) = match touched.action {
        DstAction::Shifted { to } => ("moved", vec![to]),
        DstAction::Skipped => ("skipped", vec![]),
        DstAction::NotShown => ("not_shown", vec![]),
        DstAction::Once { at, .. } => ("once", vec![at]),
        DstAction::Twice { first, second } => ("twice", vec![first, second]),
    };
    TouchedTime {
        change: touched.change,
        local: iso(touched.local),
        local_last: iso(touched.local_last),
        fate,
        fires_at,
        message: rule.dst_effect_text(touched),
    }
}

fn iso(local: NaiveDateTime) -> String {
    local.format("%Y-%m-%dT%H:%M:%S").to_string()
}
