//! `campanile cron`: try a rule before there is a schedule. Needs no database.

use std::collections::BTreeSet;

use clap::Subcommand;

use super::calendar::Months;
use super::explain;
use super::rule::{ParsedRule, StandaloneRule, standalone_rule_usage};
use super::slots::{self, SlotCount};
use crate::Common;
use crate::output::{self, Result};
use campanile_control::records::schedule::without_slots;

#[derive(Subcommand)]
pub(crate) enum Cron {
    /// List the next slots of a rule
    #[command(override_usage = standalone_rule_usage("next"))]
    Next {
        #[command(flatten)]
        rule: StandaloneRule,
        #[command(flatten)]
        count: SlotCount,
    },
    /// Explain a rule in plain English: what it means, its slots, and the effect of clock changes
    #[command(override_usage = standalone_rule_usage("explain"))]
    Explain {
        #[command(flatten)]
        rule: StandaloneRule,
        #[command(flatten)]
        count: SlotCount,
    },
    /// Show the slots of a rule in a calendar of months
    #[command(override_usage = standalone_rule_usage("calendar"))]
    Calendar {
        #[command(flatten)]
        rule: StandaloneRule,
        #[command(flatten)]
        months: Months,
    },
}

impl Cron {
    pub fn run(self, common: &Common) -> Result {
        match self {
            Cron::Next { rule, count } => next(common, &rule.parse()?, &count)?,
            Cron::Explain { rule, count } => explain::print(common, rule.parse()?, &count)?,
            Cron::Calendar { rule, months } => {
                let ParsedRule { rule, from, .. } = rule.parse()?;
                if let Some(when) = without_slots(&rule) {
                    output::print_message(&when);
                }
                months.print(&rule, slots::all(&rule, from), from, common.json)?;
            }
        }
        Ok(())
    }
}

fn next(common: &Common, parsed: &ParsedRule, count: &SlotCount) -> Result {
    let ParsedRule { rule, from, .. } = parsed;
    let next = count.take(slots::all(rule, *from));
    for note in rule.notes() {
        output::print_message!("note: {note}");
    }
    match without_slots(rule) {
        Some(when) => output::print_message(&when),
        None if next.is_empty() => output::print_message!("there is no slot after {from}"),
        None => {}
    }
    if common.json {
        output::print_json(&next)
    } else {
        slots::print(rule, &next, &BTreeSet::new())
    }
}
