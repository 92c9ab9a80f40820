//! `campanile cron`: what a rule comes to, before there is a schedule. Needs no database.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Subcommand;

use super::calendar::Months;
use super::explain;
use super::rule::{OwnRule, Understood, own_rule_usage};
use super::slots::{self, Number};
use crate::Common;
use crate::output::{self, Failure};

#[derive(Subcommand)]
pub(crate) enum Cron {
    /// The next slots of a rule
    #[command(override_usage = own_rule_usage!("next"))]
    Next {
        #[command(flatten)]
        rule: OwnRule,
        #[command(flatten)]
        number: Number,
    },
    /// A rule in plain English: what it means, its slots, and what clock changes do to them
    #[command(override_usage = own_rule_usage!("explain"))]
    Explain {
        #[command(flatten)]
        rule: OwnRule,
        #[command(flatten)]
        number: Number,
    },
    /// The slots of a rule in a calendar of months
    #[command(override_usage = own_rule_usage!("calendar"))]
    Calendar {
        #[command(flatten)]
        rule: OwnRule,
        #[command(flatten)]
        months: Months,
    },
}

impl Cron {
    pub fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        match self {
            Cron::Next { rule, number } => next(common, &rule.read()?, &number)?,
            Cron::Explain { rule, number } => explain::print(&rule.read()?, &number, common.json)?,
            Cron::Calendar { rule, months } => {
                let Understood { rule, from, .. } = rule.read()?;
                if let Some(when) = slots::without_clock(&rule) {
                    output::talk(&when);
                }
                months.print(&rule, slots::all(&rule, from), from, common.json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn next(common: &Common, understood: &Understood, number: &Number) -> Result<(), Failure> {
    let Understood { rule, from, .. } = understood;
    let next = number.of(slots::all(rule, *from));
    for note in rule.notes() {
        output::talk(&format!("note: {note}"));
    }
    match slots::without_clock(rule) {
        Some(when) => output::talk(&when),
        None if next.is_empty() => output::talk(&format!("there is no slot after {from}")),
        None => {}
    }
    if common.json {
        return output::json_out(&next);
    }
    slots::print(rule, &next, &BTreeSet::new())
}
