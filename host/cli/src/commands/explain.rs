//! A rule, explained.

use std::collections::BTreeSet;

use chrono::NaiveDateTime;
use serde_json::{Value, json};

use super::rule::{Understood, is_hashed};
use super::slots::{self, Number};
use crate::output::{self, Failure};
use campanile_model::clock::Timestamp;
use campanile_model::text::printable;
use campanile_schedule::rule::{Fate, Rule, Touched, WARNED_AHEAD, Warning, tzdata_version};

/// Local times touched by changes of offset that are told one by one to a person.
const TOUCHED_SHOWN: usize = 20;

/// Say all there is to say about a rule.
pub(crate) fn print(
    understood: &Understood,
    number: &Number,
    as_json: bool,
) -> Result<(), Failure> {
    let Understood { text, rule, from } = understood;
    let next = number.of(slots::all(rule, *from));
    let until = from.plus(WARNED_AHEAD);
    let touched: Vec<Touched> = rule.touched(*from, until).collect();
    if as_json {
        let instants = |&utc: &Timestamp| json!({ "utc": utc, "local": rule.local_text(utc) });
        return output::json_out(&json!({
            "kind": text.kind,
            "expression": text.expression,
            "normal_form": rule.normal_form(),
            "resolved": rule.resolved_form(),
            "timezone": rule.timezone(),
            "tzdata_version": tzdata_version(),
            "explanation": rule.explanation(),
            "notes": rule.notes(),
            "next": next.iter().map(instants).collect::<Vec<_>>(),
            "touched": touched.iter().map(|touched| value(rule, touched)).collect::<Vec<_>>(),
            "warnings": warnings(&rule.warnings(*from)),
        }));
    }
    output::line(&printable(&rule.explanation()))?;
    output::line("")?;
    for (key, value) in [
        ("normal form", rule.normal_form()),
        ("resolved", rule.resolved_form()),
        (
            "zone",
            format!("{} (tzdata {})", rule.timezone(), tzdata_version()),
        ),
    ] {
        if key != "resolved" || is_hashed(rule) {
            output::line(&format!("{key:12} {value}"))?;
        }
    }
    for note in rule.notes() {
        output::line(&format!("{:12} {}", "note", printable(note)))?;
    }
    output::line("")?;
    print_next(rule, *from, &next)?;
    if !next.is_empty() {
        print_touched(rule, until, &touched)?;
    }
    for warning in rule.warnings(*from) {
        output::line("")?;
        output::line(&format!("warning: {}", printable(&warning.message)))?;
        output::line(&format!("   hint: {}", printable(&warning.hint)))?;
    }
    Ok(())
}

/// What the author of a rule may not have meant, as JSON.
pub(crate) fn warnings(warnings: &[Warning]) -> Vec<Value> {
    warnings
        .iter()
        .map(|warning| {
            json!({ "kind": warning.kind, "message": warning.message, "hint": warning.hint })
        })
        .collect()
}

fn print_next(rule: &Rule, from: Timestamp, next: &[Timestamp]) -> Result<(), Failure> {
    if let Some(when) = slots::without_clock(rule) {
        return output::line(&when);
    }
    if next.is_empty() {
        return output::line(&format!("no slot after {from}"));
    }
    output::line(&format!("slots after {from}:"))?;
    slots::print(rule, next, &BTreeSet::new())
}

fn print_touched(rule: &Rule, until: Timestamp, touched: &[Touched]) -> Result<(), Failure> {
    output::line("")?;
    let until = rule.local(until).date();
    if touched.is_empty() {
        return output::line(&format!(
            "no slot is touched by clock changes until {until}"
        ));
    }
    output::line(&format!("touched by clock changes until {until}:"))?;
    for touched in touched.iter().take(TOUCHED_SHOWN) {
        output::line(&rule.touched_text(touched))?;
    }
    match touched.len().saturating_sub(TOUCHED_SHOWN) {
        0 => Ok(()),
        more => output::line(&format!("and {more} more, all of them with --json")),
    }
}

fn value(rule: &Rule, touched: &Touched) -> Value {
    let (fate, fires_at) = match touched.fate {
        Fate::Moved { to } => ("moved", vec![to]),
        Fate::Skipped => ("skipped", vec![]),
        Fate::NotShown => ("not_shown", vec![]),
        Fate::Once { at, .. } => ("once", vec![at]),
        Fate::Twice { first, second } => ("twice", vec![first, second]),
    };
    json!({
        "change": touched.change,
        "local": iso(touched.local),
        "local_last": iso(touched.local_last),
        "fate": fate,
        "fires_at": fires_at,
        "message": rule.touched_text(touched),
    })
}

fn iso(local: NaiveDateTime) -> String {
    local.format("%Y-%m-%dT%H:%M:%S").to_string()
}
