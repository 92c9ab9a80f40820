//! Refuses policies that contradict each other, or the rule, when they are written.

use std::time::Duration;

use super::error::PolicyError;
use super::policies::{Catchup, Defaults, Policies, Policy, ValueKind};
use crate::rule::Rule;
use campanile_model::clock::Timestamp;
use campanile_model::text::duration_text;

/// How many slots are compared to find the shortest time between two slots of a rule.
const SLOTS_COMPARED: usize = 100;

impl Policies {
    /// Check the policies against each other and against `rule`.
    ///
    /// The check does not read the clock, so it accepts an `end_at` in the past. For a policy that
    /// is not set it assumes the default of the contract, not the host's.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self, rule: &Rule) -> Result<(), PolicyError> {
        for (policy, text) in self.entries() {
            refuse_out_of_bounds(policy, &text)?;
        }
        for (policy, _) in self.entries() {
            self.refuse_unmet_need(policy)?;
        }
        self.refuse_slot_policies(rule)?;
        self.refuse_short_times()?;
        self.refuse_long_backoff()?;
        self.refuse_backward_span()?;
        self.refuse_without_slots(rule)?;
        self.refuse_long_jitter(rule)
    }

    fn refuse_unmet_need(&self, policy: Policy) -> Result<(), PolicyError> {
        let Some((other, word, needed)) = self.unmet_need(policy) else {
            return Ok(());
        };
        let needed = needed.join("` or `");
        Err(PolicyError::new(
            policy,
            format!("{policy} means nothing with {other} = `{word}`"),
            format!("leave {policy} out, or choose {other} = `{needed}`"),
        ))
    }

    /// Refuse policies that decide about slots, for `@reboot`.
    fn refuse_slot_policies(&self, rule: &Rule) -> Result<(), PolicyError> {
        let mut set = self.entries().map(|(policy, _)| policy);
        match set.find(|policy| policy.spec().decides_slots) {
            Some(policy) if rule.at_host_start() => Err(PolicyError::new(
                policy,
                format!("{policy} means nothing with `@reboot`, which has no slots"),
                format!("leave {policy} out"),
            )),
            _ => Ok(()),
        }
    }

    /// Refuse a window shorter than the grace, and a retention shorter than the window.
    fn refuse_short_times(&self) -> Result<(), PolicyError> {
        let defaults = Defaults::default();
        let grace = self.misfire_grace.unwrap_or(defaults.misfire_grace);
        let window = self.catchup_window.unwrap_or(defaults.catchup_window);
        let is_short_window = self.catchup() != Catchup::None && window < grace;
        let is_short_retention = self.retention.is_some_and(|retention| retention < window);
        let [grace, window] = [grace, window].map(duration_text);
        // A missed slot is later than the grace, so nothing would be caught up.
        if is_short_window {
            return Err(PolicyError::new(
                Policy::CatchupWindow,
                format!("catchup_window is {window}, shorter than misfire_grace, {grace}"),
                format!(
                    "write a catchup_window of at least {grace}, a shorter misfire_grace, or \
                     catchup = `none` to catch nothing up"
                ),
            ));
        }
        match self.retention.map(duration_text) {
            // A launch that is caught up late would be removed at its end.
            Some(retention) if is_short_retention => Err(PolicyError::new(
                Policy::Retention,
                format!("retention is {retention}, shorter than catchup_window, {window}"),
                format!("write a retention of at least {window}, or a shorter catchup_window"),
            )),
            _ => Ok(()),
        }
    }

    fn refuse_long_backoff(&self) -> Result<(), PolicyError> {
        let (first, most) = (self.backoff(), self.backoff_max());
        if first <= most {
            return Ok(());
        }
        let [first, most] = [first, most].map(duration_text);
        Err(PolicyError::new(
            Policy::Backoff,
            format!("backoff is {first}, longer than backoff_max, {most}"),
            format!("write a backoff_max of at least {first}, or a shorter backoff"),
        ))
    }

    fn refuse_backward_span(&self) -> Result<(), PolicyError> {
        match (self.start_at, self.end_at) {
            (Some(start), Some(end)) if end <= start => Err(PolicyError::new(
                Policy::EndAt,
                format!("end_at, {end}, is not after start_at, {start}"),
                "write a later end_at, or leave one of them out",
            )),
            _ => Ok(()),
        }
    }

    /// Refuse a `start_at` and an `end_at` without a slot between them.
    fn refuse_without_slots(&self, rule: &Rule) -> Result<(), PolicyError> {
        let span = match (self.start_at, self.end_at) {
            (Some(start), Some(end)) => format!("from {start} to {end}"),
            (Some(start), None) => format!("from {start} on"),
            (None, Some(end)) => format!("up to {end}"),
            (None, None) => return Ok(()),
        };
        let ever = Timestamp::FIRST;
        if rule.next(ever).is_none() || self.next_slot(rule, ever, 0).is_some() {
            return Ok(());
        }
        Err(PolicyError::new(
            None,
            format!("the rule has no slot {span}, so the schedule would never launch"),
            "write a start_at and an end_at with a slot between them, or leave them out",
        ))
    }

    fn refuse_long_jitter(&self, rule: &Rule) -> Result<(), PolicyError> {
        let (Some(jitter), Some(interval)) = (self.jitter, shortest_interval(rule)) else {
            return Ok(());
        };
        if jitter <= interval {
            return Ok(());
        }
        let (jitter, interval) = (duration_text(jitter), duration_text(interval));
        Err(PolicyError::new(
            Policy::Jitter,
            format!("jitter is {jitter}, longer than from one slot to the next, {interval}"),
            format!("write a jitter of at most {interval}"),
        ))
    }
}

fn refuse_out_of_bounds(policy: Policy, text: &str) -> Result<(), PolicyError> {
    let (message, hint) = match (policy.spec().kind, text) {
        (ValueKind::Duration(_), "0s") => (
            format!("{policy} is zero"),
            format!("write a time such as `30s`, or leave {policy} out"),
        ),
        (ValueKind::Number(1.., _), "0") => (
            format!("{policy} is 0"),
            format!("write at least 1, or leave {policy} out"),
        ),
        // Only `catchup_max`, `priority` and `max_attempts` have a bound below that of their type.
        (ValueKind::Number(_, most), text)
            if text.parse().is_ok_and(|number: u64| number > most) =>
        {
            let instead = match policy {
                Policy::CatchupMax => "; for more, use a backfill",
                _ => "",
            };
            (
                format!("{policy} is {text}"),
                format!("write at most {most}{instead}"),
            )
        }
        _ => return Ok(()),
    };
    Err(PolicyError::new(policy, message, hint))
}

/// Returns the shortest time between two of the first slots of `rule`, or the delay of `after_completion`.
///
/// `None` for a rule with fewer than two slots.
fn shortest_interval(rule: &Rule) -> Option<Duration> {
    let slots = rule.slots(Timestamp::FIRST, Timestamp::LAST);
    let slots: Vec<Timestamp> = slots.take(SLOTS_COMPARED).collect();
    let intervals = slots.windows(2).map(|pair| pair[1].since(pair[0]));
    intervals.min().or_else(|| rule.delay_after_completion())
}

#[cfg(test)]
mod tests;
