//! The next slots of a rule, as a list.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;

use crate::output::{self, Result};
use campanile_model::clock::Timestamp;
use campanile_schedule::rule::Rule;

/// The most slots that one command lists.
const SLOTS_MAX: i64 = 10_000;

#[derive(Args)]
pub(crate) struct SlotCount {
    /// How many slots
    #[arg(short, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=SLOTS_MAX))]
    n: u32,
}

impl SlotCount {
    /// Return the first of `slots`, as many as are asked for.
    pub(crate) fn take(&self, slots: impl Iterator<Item = Timestamp>) -> Vec<Timestamp> {
        slots.take(self.n as usize).collect()
    }
}

/// Return all slots of `rule` strictly after `after`.
pub(crate) fn all(rule: &Rule, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
    rule.slots(after, Timestamp::from_micros(i64::MAX))
}

/// Return the last multiple of `step` since the epoch that is not after `at`.
pub(crate) fn floor(at: Timestamp, step: Duration) -> Timestamp {
    let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.micros() - at.micros().rem_euclid(step))
}

/// Print slots in UTC and in the rule's zone. Those in `skips` are marked.
pub(crate) fn print(rule: &Rule, slots: &[Timestamp], skips: &BTreeSet<Timestamp>) -> Result {
    for slot in slots {
        let mark = match skips.contains(slot) {
            true => "  skipped",
            false => "",
        };
        output::print_line!("{slot}  {}{mark}", rule.local_text(*slot))?;
    }
    Ok(())
}

/// Return a sentence that says when a rule without slots launches; none for a rule that has slots.
pub(crate) fn without_slots(rule: &Rule) -> Option<String> {
    if !rule.at_host_start() && rule.delay_after_completion().is_none() {
        return None;
    }
    let when = rule.explanation().replacen("Once", "once", 1);
    let when = when.trim_end_matches('.');
    Some(format!("the rule has no slots: it launches {when}"))
}
