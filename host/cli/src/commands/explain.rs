//! `campanile cron explain`: a rule in plain English.

use chrono::{NaiveDate, NaiveDateTime};
use serde::Serialize;

use super::rule::ParsedRule;
use super::slots::{self, SlotCount};
use crate::Common;
use crate::output::{self, Record, Result};
use campanile_control::records::schedule::without_slots;
use campanile_model::clock::Timestamp;
use campanile_schedule::rule::{
    DstAction, DstEffect, Rule, RuleKind, WARNED_AHEAD, Warning, tzdata_version,
};

/// The most slots affected by clock changes that are shown to a person.
const EFFECTS_SHOWN: usize = 20;

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
    dst_effects: Vec<EffectReport>,
    warnings: Vec<Warning>,
    /// The slots and the effects are after this instant.
    #[serde(skip)]
    from: Timestamp,
    /// The effects are until this day in the rule's zone.
    #[serde(skip)]
    until: NaiveDate,
    #[serde(skip)]
    without_slots: Option<String>,
}

/// An instant in UTC and in the rule's zone.
#[derive(Serialize, schemars::JsonSchema)]
struct Instant {
    utc: Timestamp,
    local: String,
}

/// A local time, or a range of them, that a clock change affects.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "DstEffect")]
struct EffectReport {
    /// When the clock changes.
    change: Timestamp,
    local: String,
    local_last: String,
    /// `shifted`, `skipped`, `not_shown`, `once` or `twice`.
    action: &'static str,
    fire_times: Vec<Timestamp>,
    message: String,
}

/// Print the explanation of a rule.
pub(crate) fn print(common: &Common, parsed: ParsedRule, count: &SlotCount) -> Result {
    let ParsedRule { text, rule, from } = parsed;
    let next = count.take(slots::all(&rule, from)).into_iter();
    let next = next.map(|utc| Instant {
        utc,
        local: rule.local_text(utc),
    });
    let effects = rule.dst_effects(from, from.plus(WARNED_AHEAD));
    common.print(&Explanation {
        kind: text.kind,
        expression: text.expression,
        normal_form: rule.normal_form(),
        resolved: rule.resolved_form(),
        timezone: rule.timezone().to_string(),
        tzdata_version: tzdata_version(),
        explanation: rule.explanation(),
        notes: rule.notes().to_vec(),
        next: next.collect(),
        dst_effects: effects.map(|effect| report(&rule, &effect)).collect(),
        warnings: rule.warnings(from),
        from,
        until: rule.local(from.plus(WARNED_AHEAD)).date(),
        without_slots: without_slots(&rule),
    })
}

impl Record for Explanation {
    fn print(&self) -> Result {
        output::print_line!("{}\n", self.explanation)?;
        output::print_line!("normal form  {}", self.normal_form)?;
        if self.normal_form != self.resolved {
            output::print_line!("resolved     {}", self.resolved)?;
        }
        output::print_line!(
            "zone         {} (tzdata {})",
            self.timezone,
            self.tzdata_version
        )?;
        for note in &self.notes {
            output::print_line!("note         {note}")?;
        }
        output::print_line("")?;
        match &self.without_slots {
            Some(when) => output::print_line(when)?,
            None if self.next.is_empty() => output::print_line!("no slot after {}", self.from)?,
            None => output::print_line!("slots after {}:", self.from)?,
        }
        for Instant { utc, local } in &self.next {
            output::print_line!("{utc}  {local}")?;
        }
        if !self.next.is_empty() {
            self.print_effects()?;
        }
        for Warning { message, hint, .. } in &self.warnings {
            output::print_line!("\nwarning: {message}\n   hint: {hint}")?;
        }
        Ok(())
    }
}

impl Explanation {
    fn print_effects(&self) -> Result {
        let (effects, until) = (&self.dst_effects, self.until);
        if effects.is_empty() {
            return output::print_line!("\nno clock change affects a slot until {until}");
        }
        output::print_line!("\nslots affected by clock changes until {until}:")?;
        for effect in effects.iter().take(EFFECTS_SHOWN) {
            output::print_line(&effect.message)?;
        }
        match effects.len().saturating_sub(EFFECTS_SHOWN) {
            0 => Ok(()),
            more => output::print_line!("and {more} more; --json shows all"),
        }
    }
}

fn report(rule: &Rule, effect: &DstEffect) -> EffectReport {
    let (action, fire_times) = match effect.action {
        DstAction::Shifted { to } => ("shifted", vec![to]),
        DstAction::Skipped => ("skipped", vec![]),
        DstAction::NotShown => ("not_shown", vec![]),
        DstAction::Once { at, .. } => ("once", vec![at]),
        DstAction::Twice { first, second } => ("twice", vec![first, second]),
    };
    let iso = |local: NaiveDateTime| local.format("%Y-%m-%dT%H:%M:%S").to_string();
    EffectReport {
        change: effect.change,
        local: iso(effect.local),
        local_last: iso(effect.local_last),
        action,
        fire_times,
        message: rule.dst_effect_text(effect),
    }
}
