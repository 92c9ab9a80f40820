//! The next slots of a rule, as a list.

use std::collections::BTreeSet;

use clap::Args;

use crate::output::{self, Result};
use campanile_model::clock::Timestamp;
use campanile_schedule::rule::Rule;

/// The most slots that one command lists.
const SLOTS_MAX: i64 = 10_000;

#[derive(Args)]
pub(crate) struct SlotCount {
    /// How many slots
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=SLOTS_MAX))]
    limit: u32,
}

impl SlotCount {
    /// Returns the first of `slots`, as many as are asked for.
    pub(crate) fn take(&self, slots: impl Iterator<Item = Timestamp>) -> Vec<Timestamp> {
        slots.take(self.limit as usize).collect()
    }
}

/// Returns all slots of `rule` strictly after `after`.
pub(crate) fn all(rule: &Rule, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
    rule.slots(after, Timestamp::from_micros(i64::MAX))
}

/// Print slots in UTC and in the rule's zone. Those in `skips` are marked.
pub(crate) fn print(rule: &Rule, slots: &[Timestamp], skips: &BTreeSet<Timestamp>) -> Result {
    for slot in slots {
        let mark = if skips.contains(slot) {
            "  skipped"
        } else {
            ""
        };
        output::print_line!("{slot}  {}{mark}", rule.local_text(*slot))?;
    }
    Ok(())
}
