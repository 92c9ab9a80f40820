//! Intervals: a slot at the anchor, and one after every period from there.

use std::iter;

use chrono::{DateTime, Datelike as _, Months};

use super::dst_mapping::{DstMapping, LocalTimes, refuse_overrides};
use super::error::RuleError;
use super::exclude::{Exclude, HOUR, MINUTE, parts};
use super::period::{Period, Unit};
use super::zone::{DAY, LOCAL_END, LOCAL_FIRST, SECOND, Zone};
use campanile_model::rule_text::RuleText;

/// A period and the instant from which it counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) period: Period,
    /// The first slot, unless it is excluded.
    pub(super) anchor: i64,
    local_anchor: i64,
    pub(super) dst: DstMapping,
    pub(super) exclude: Exclude,
}

impl Interval {
    /// Count `period` from the anchor of `text`, or from local 1970-01-01T00:00:00.
    pub(super) fn new(period: Period, text: &RuleText, zone: &Zone) -> Result<Interval, RuleError> {
        let anchor = match text.anchor {
            None => {
                let instants = zone.instants_of(LOCAL_FIRST);
                let first = instants.first().copied();
                first.unwrap_or_else(|| zone.gap_end(LOCAL_FIRST))
            }
            Some(anchor) if zone.covers(anchor.micros()) => anchor.micros(),
            Some(anchor) => {
                return Err(RuleError::new(
                    format!("the anchor {anchor} is outside the years 1970 to 2099"),
                    "write an anchor of these years; any slot of the grid will do",
                ));
            }
        };
        let local_anchor = zone.local_at(anchor);
        let (hours, minutes) = match period.unit {
            Unit::Seconds => {
                refuse_overrides(
                    text,
                    "elapsed time, which does not look at the clock",
                    "write the period in days, weeks, months or years",
                )?;
                elapsed_grid(anchor, period.amount * SECOND, zone)
            }
            // Every slot has the time of day of the anchor.
            Unit::Days | Unit::Months => {
                let (_, hour, minute) = parts(local_anchor);
                (1 << hour, 1 << minute)
            }
        };
        Ok(Interval {
            period,
            anchor,
            local_anchor,
            dst: DstMapping::of(text),
            exclude: Exclude::parse(&text.exclude, hours, minutes)?,
        })
    }

    /// Returns the first slot after `after`, in microseconds.
    pub(super) fn next(&self, zone: &Zone, after: i64) -> Option<i64> {
        let anchor = self.local_anchor;
        match self.period.unit {
            Unit::Seconds => self.next_elapsed(zone, after),
            _ if after < self.anchor && self.exclude.free_from(anchor) == Some(anchor) => {
                Some(self.anchor)
            }
            _ => self.dst.next(self, zone, after.max(self.anchor)),
        }
    }

    /// Counts slots after `after`, up to and including `until`.
    pub(super) fn count(&self, zone: &Zone, after: i64, until: i64) -> u64 {
        if self.is_elapsed() {
            return self.count_elapsed(zone, after, until);
        }
        let begins = after < self.anchor && self.anchor <= until;
        let first = begins && self.next(zone, after) == Some(self.anchor);
        let rest = self.dst.count(self, zone, after.max(self.anchor), until);
        u64::from(first) + rest
    }

    /// Whether the interval counts elapsed time, not time on the clock.
    pub(super) fn is_elapsed(&self) -> bool {
        self.period.unit == Unit::Seconds
    }

    fn next_elapsed(&self, zone: &Zone, after: i64) -> Option<i64> {
        let period = self.period.amount * SECOND;
        let mut from = after.saturating_add(1).max(self.anchor);
        while zone.covers(from) {
            let passed = (from - self.anchor + period - 1) / period;
            let slot = self.anchor + passed * period;
            if !zone.covers(slot) {
                break;
            }
            let span = zone.spans_from(slot).first()?;
            let local = slot + span.offset;
            match self.exclude.free_from(local) {
                Some(free) if free == local => return Some(slot),
                // After a clock change the free time may come earlier.
                free => from = free.map_or(span.end, |free| span.end.min(free - span.offset)),
            }
        }
        None
    }

    /// Returns the local time `count` periods of days or months after the anchor.
    fn local_slot(&self, count: i64) -> Option<i64> {
        let amount = count * self.period.amount;
        match self.period.unit {
            Unit::Seconds => None,
            Unit::Days => Some(self.local_anchor + amount * DAY),
            Unit::Months => {
                let months = Months::new(u32::try_from(amount).ok()?);
                let anchor = DateTime::from_timestamp_micros(self.local_anchor)?;
                let local = anchor.checked_add_months(months)?;
                Some(local.timestamp_micros())
            }
        }
    }

    /// Returns how many periods of days or months have passed at `local`, or one less.
    fn passed(&self, local: i64) -> i64 {
        let (anchor, amount) = (self.local_anchor, self.period.amount);
        match self.period.unit {
            Unit::Seconds => 0,
            Unit::Days => (local - anchor).div_euclid(amount * DAY),
            Unit::Months => (month(local) - month(anchor)).div_euclid(amount) - 1,
        }
    }
}

/// Returns the hours and the minutes, as bits, at which the clock of `zone` can show a slot of elapsed time.
fn elapsed_grid(anchor: i64, period: i64, zone: &Zone) -> (u64, u64) {
    let (mut hours, mut minutes) = (0, 0);
    for span in zone.spans_from(anchor) {
        let local = anchor + span.offset;
        hours |= grid(local, period, HOUR, DAY);
        minutes |= grid(local, period, MINUTE, HOUR);
    }
    (hours, minutes)
}

/// Returns the units of a `whole` that contain `local` plus a multiple of `period`, as bits.
fn grid(local: i64, period: i64, unit: i64, whole: i64) -> u64 {
    let (mut step, mut rest) = (whole, period);
    while rest > 0 {
        (step, rest) = (rest, step % rest);
    }
    if step <= unit {
        return !0 >> (64 - whole / unit);
    }
    let points = (local.rem_euclid(step)..whole).step_by(step as usize);
    points.fold(0, |bits, point| bits | 1 << (point / unit))
}

/// Returns the number of the month that contains `local`.
fn month(local: i64) -> i64 {
    let date = DateTime::from_timestamp_micros(local).unwrap_or_default();
    i64::from(date.year()) * 12 + i64::from(date.month0())
}

/// The slots after the anchor, for periods of days and months.
impl LocalTimes for Interval {
    fn first_from(&self, from: i64) -> Option<i64> {
        let mut from = from.clamp(LOCAL_FIRST, LOCAL_END);
        loop {
            let counts = self.passed(from).max(1)..;
            let mut slots = counts.map_while(|count| self.local_slot(count));
            let local = slots.find(|&local| local >= from)?;
            match self
                .exclude
                .free_from(local)
                .filter(|_| local < LOCAL_END)?
            {
                free if free == local => return Some(local),
                free => from = free,
            }
        }
    }

    // There are 47,000 at most, one per day.
    fn count(&self, from: i64, until: i64) -> u64 {
        let times = iter::successors(self.first_from(from), |&local| self.first_from(local + 1));
        times.take_while(|&local| local < until).count() as u64
    }
}

#[cfg(test)]
mod tests;
