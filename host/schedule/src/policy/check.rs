//! Policies that contradict each other, or the rule, are refused when they are entered.

use std::fmt::Display;
use std::time::Duration;

use super::error::PolicyError;
use super::says::{CATCHUP_MAX_MOST, Catchup, Defaults, Policies};
use crate::rule::Rule;
use campanile_model::clock::Timestamp;
use campanile_model::status::Overlap;
use campanile_model::text::duration_text;

/// Slots looked at to find how close to each other those of a rule are.
const SLOTS_COMPARED: usize = 100;

impl Policies {
    /// Refuse what contradicts itself, or `rule`. Asks for no time, so an end that is past is not
    /// refused; where the schedule says nothing, the contract's defaults count, not a host's.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self, rule: &Rule) -> Result<(), PolicyError> {
        self.refuse_zeros()?;
        self.refuse_meaningless()?;
        self.refuse_of_slots(rule)?;
        self.refuse_short_window()?;
        self.refuse_backward_span()?;
        self.refuse_without_slots(rule)?;
        self.refuse_long_jitter(rule)
    }

    fn refuse_zeros(&self) -> Result<(), PolicyError> {
        let is_zero = |span: Option<Duration>| span.is_some_and(|span| span.is_zero());
        for (name, zero) in [
            ("misfire_grace", is_zero(self.misfire_grace)),
            ("catchup_window", is_zero(self.catchup_window)),
            ("catchup_spread", is_zero(self.catchup_spread)),
            ("cancel_grace", is_zero(self.cancel_grace)),
            ("jitter", is_zero(self.jitter)),
        ] {
            if zero {
                return Err(PolicyError::new(
                    format!("{name} is zero"),
                    format!("write a time such as `30s`, or leave {name} out"),
                ));
            }
        }
        for (name, zero) in [
            ("catchup_max", self.catchup_max == Some(0)),
            ("max_buffered", self.max_buffered == Some(0)),
            ("max_concurrent", self.max_concurrent == Some(0)),
            ("max_launches", self.max_launches == Some(0)),
            ("pause_on_failure", self.pause_on_failure == Some(0)),
        ] {
            if zero {
                return Err(PolicyError::new(
                    format!("{name} is 0"),
                    format!("write at least 1, or leave {name} out"),
                ));
            }
        }
        if self.catchup_max() > CATCHUP_MAX_MOST {
            return Err(PolicyError::new(
                format!("catchup_max is {}", self.catchup_max()),
                format!("write at most {CATCHUP_MAX_MOST}; for more, use a backfill"),
            ));
        }
        Ok(())
    }

    /// Refuse what is said for another word of `catchup` or `overlap` than the one chosen.
    fn refuse_meaningless(&self) -> Result<(), PolicyError> {
        let any = &[Catchup::Latest, Catchup::Earliest, Catchup::All][..];
        for (name, said, with) in [
            ("catchup_window", self.catchup_window.is_some(), any),
            ("catchup_spread", self.catchup_spread.is_some(), any),
            ("catchup_max", self.catchup_max.is_some(), &[Catchup::All]),
        ] {
            if said && !with.contains(&self.catchup) {
                return Err(meaningless(name, "catchup", self.catchup, with));
            }
        }
        for (name, said, with) in [
            (
                "max_buffered",
                self.max_buffered.is_some(),
                Overlap::BufferAll,
            ),
            ("keep", self.keep.is_some(), Overlap::BufferOne),
            (
                "max_concurrent",
                self.max_concurrent.is_some(),
                Overlap::Allow,
            ),
            (
                "cancel_grace",
                self.cancel_grace.is_some(),
                Overlap::CancelOther,
            ),
        ] {
            if said && self.overlap != with {
                return Err(meaningless(name, "overlap", self.overlap, &[with]));
            }
        }
        Ok(())
    }

    /// A rule without slots is launched when a host starts, whatever is said of slots.
    fn refuse_of_slots(&self, rule: &Rule) -> Result<(), PolicyError> {
        if !rule.at_host_start() {
            return Ok(());
        }
        for (name, said) in [
            ("catchup", self.catchup != Catchup::default()),
            ("catchup_window", self.catchup_window.is_some()),
            ("catchup_spread", self.catchup_spread.is_some()),
            ("misfire_grace", self.misfire_grace.is_some()),
            ("jitter", self.jitter.is_some()),
            ("start_at", self.start_at.is_some()),
            ("end_at", self.end_at.is_some()),
            ("max_launches", self.max_launches.is_some()),
        ] {
            if said {
                return Err(PolicyError::new(
                    format!("{name} means nothing with `@reboot`, which has no slots"),
                    format!("leave {name} out"),
                ));
            }
        }
        Ok(())
    }

    /// What is missed is late by more than the grace, so a shorter window would keep nothing.
    fn refuse_short_window(&self) -> Result<(), PolicyError> {
        let defaults = Defaults::default();
        let grace = self.misfire_grace.unwrap_or(defaults.misfire_grace);
        let window = self.catchup_window.unwrap_or(defaults.catchup_window);
        if self.catchup == Catchup::None || window >= grace {
            return Ok(());
        }
        let (grace, window) = (duration_text(grace), duration_text(window));
        Err(PolicyError::new(
            format!("catchup_window is {window}, shorter than misfire_grace, {grace}"),
            format!(
                "write a catchup_window of at least {grace}, a shorter misfire_grace, or \
                 catchup = `none` to catch nothing up"
            ),
        ))
    }

    fn refuse_backward_span(&self) -> Result<(), PolicyError> {
        match (self.start_at, self.end_at) {
            (Some(start), Some(end)) if end <= start => Err(PolicyError::new(
                format!("end_at, {end}, is not after start_at, {start}"),
                "write a later end_at, or leave one of them out",
            )),
            _ => Ok(()),
        }
    }

    /// Refuse a start and an end between which the rule has no slot.
    fn refuse_without_slots(&self, rule: &Rule) -> Result<(), PolicyError> {
        let ever = Timestamp::from_micros(i64::MIN);
        let has_span = self.start_at.is_some() || self.end_at.is_some();
        if !has_span || rule.next(ever).is_none() {
            return Ok(());
        }
        let before_start = self
            .start_at
            .map(|start| start.minus(Duration::from_micros(1)));
        let first = rule.next(before_start.unwrap_or(ever));
        if first.is_some_and(|first| self.end_at.is_none_or(|end| first <= end)) {
            return Ok(());
        }
        let span = match (self.start_at, self.end_at) {
            (Some(start), Some(end)) => format!("from {start} to {end}"),
            (Some(start), None) => format!("from {start} on"),
            (None, Some(end)) => format!("up to {end}"),
            (None, None) => String::new(),
        };
        Err(PolicyError::new(
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
            format!("jitter is {jitter}, longer than from one slot to the next, {interval}"),
            format!("write a jitter of at most {interval}"),
        ))
    }
}

/// `name` was said, but `policy` is `chosen` and not one of `with`.
fn meaningless<T: Display>(name: &str, policy: &str, chosen: T, with: &[T]) -> PolicyError {
    let with: Vec<String> = with.iter().map(|word| format!("`{word}`")).collect();
    PolicyError::new(
        format!("{name} means nothing with {policy} = `{chosen}`"),
        format!(
            "leave {name} out, or choose {policy} = {}",
            with.join(" or ")
        ),
    )
}

/// How long it is from one slot to the next where the first slots of `rule` are closest, or from
/// the end of one launch to the next; `None` when there are not two of them.
fn shortest_interval(rule: &Rule) -> Option<Duration> {
    let [ever, never] = [i64::MIN, i64::MAX].map(Timestamp::from_micros);
    let slots: Vec<Timestamp> = rule.slots(ever, never).take(SLOTS_COMPARED).collect();
    let intervals = slots.windows(2).map(|pair| pair[1].since(pair[0]));
    intervals.min().or_else(|| rule.delay_after_completion())
}

#[cfg(test)]
mod tests;
