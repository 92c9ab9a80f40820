//! The next slots of a rule, as a list.

use std::collections::BTreeSet;

use clap::Args;

use crate::output::{self, Failure};
use campanile_model::clock::Timestamp;
use campanile_schedule::rule::Rule;

/// Slots that can be asked for at once.
const SLOTS_MAX: i64 = 10_000;

/// How many slots are asked for.
#[derive(Args)]
pub(crate) struct Number {
    /// How many
    #[arg(short, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=SLOTS_MAX))]
    n: u32,
}

impl Number {
    /// So many of the first of `slots`.
    pub(crate) fn of(&self, slots: impl Iterator<Item = Timestamp>) -> Vec<Timestamp> {
        slots.take(self.n as usize).collect()
    }
}

/// All slots of `rule` strictly after `after`.
pub(crate) fn all(rule: &Rule, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
    rule.slots(after, Timestamp::from_micros(i64::MAX))
}

/// Print slots, each in UTC and on the clock of the rule's zone, those marked that are among `skips`.
pub(crate) fn print(
    rule: &Rule,
    slots: &[Timestamp],
    skips: &BTreeSet<Timestamp>,
) -> Result<(), Failure> {
    for slot in slots {
        let mark = if skips.contains(slot) {
            "  taken out"
        } else {
            ""
        };
        output::line(&format!("{slot}  {}{mark}", rule.local_text(*slot)))?;
    }
    Ok(())
}

/// When a rule rings to which the clock gives no slots, in one sentence; none for other rules.
pub(crate) fn without_clock(rule: &Rule) -> Option<String> {
    if !rule.at_host_start() && rule.delay_after_completion().is_none() {
        return None;
    }
    let explanation = rule.explanation();
    let when = explanation
        .trim_end_matches('.')
        .replacen("Once", "once", 1);
    Some(format!(
        "the clock gives this rule no slots: it rings {when}"
    ))
}
