//! Counting the slots between two instants without walking through them. A rule firing every second has had 1.8 billion since 1970.
//!
//! ```text
//! instants ─▶ spans of one offset ─▶ local times ─▶ days ─▶ minutes that no exclusion covers
//! ```
//!
//! The time this takes depends on the number of days and clock changes between the two instants, not on the number of slots.

use std::collections::HashMap;

use super::cron::CronRule;
use super::dst_mapping::{DstMapping, LocalTimes};
use super::exclude::{Exclude, HOUR, MINUTE};
use super::field_spec::ones;
use super::fields::Fields;
use super::interval::Interval;
use super::month_days::Month;
use super::zone::{DAY, LOCAL_END, LOCAL_FIRST, SECOND, Span, Zone};

const HOURS: usize = 24;

/// The excluded minutes in each hour of a day, as bits.
type ExcludedMinutes = [u64; HOURS];

impl DstMapping {
    /// Counts the instants of `times` after `after`, up to and including `until`, agreeing with [`DstMapping::next`].
    pub(super) fn count(self, times: &impl LocalTimes, zone: &Zone, after: i64, until: i64) -> u64 {
        let from = after.saturating_add(1);
        let spans = zone.spans_from(from).iter();
        let spans = spans.take_while(|span| span.begin <= until);
        spans
            .map(|span| {
                let (begin, end) = self.window(span);
                let shown = times.count(
                    begin.max(from.saturating_add(span.offset)),
                    end.min(until.saturating_add(1).saturating_add(span.offset)),
                );
                let is_shifted = span.begin >= from && self.shifts(span) && {
                    let gap = times.first_from(span.reached);
                    gap.is_some_and(|local| local < span.local_begin)
                };
                // The local time ending the gap is the same instant.
                let is_shown_too = || {
                    (begin..end).contains(&span.local_begin)
                        && times.first_from(span.local_begin) == Some(span.local_begin)
                };
                shown + u64::from(is_shifted && !is_shown_too())
            })
            .sum()
    }
}

impl CronRule {
    /// Counts local times from `from` (inclusive) to `until` (exclusive).
    pub(super) fn count_local(&self, from: i64, until: i64) -> u64 {
        let mut excluded = ExcludedOfDays::new(&self.exclude);
        let whole = times_before(&self.fields, &[0; HOURS], DAY);
        let mut count = 0;
        for_each_day(
            from,
            until,
            |month, day, begin, end| {
                count += match excluded.of(month, day) {
                    None if end - begin == DAY => whole,
                    minutes => {
                        let minutes = minutes.unwrap_or(&[0; HOURS]);
                        times_before(&self.fields, minutes, end)
                            - times_before(&self.fields, minutes, begin)
                    }
                };
            },
            |month| self.days_of(month),
        );
        count
    }
}

impl Interval {
    /// Counts slots of elapsed time after `after`, up to and including `until`.
    pub(super) fn count_elapsed(&self, zone: &Zone, after: i64, until: i64) -> u64 {
        let from = after.saturating_add(1).max(self.anchor);
        let spans = zone.spans_from(from).iter();
        let spans = spans.take_while(|span| span.begin <= until);
        spans
            .map(|span| {
                let begin = from.max(span.begin).saturating_add(span.offset);
                let end = until.saturating_add(1).min(span.end);
                let end = end.saturating_add(span.offset).min(LOCAL_END);
                self.count_in_span(span, begin, end)
            })
            .sum()
    }

    /// Counts slots of elapsed time that `span` shows as local times from `begin` (inclusive) to `end` (exclusive).
    fn count_in_span(&self, span: &Span, begin: i64, end: i64) -> u64 {
        if self.exclude.texts.is_empty() {
            return self.points_between(span, begin, end);
        }
        let mut excluded = ExcludedOfDays::new(&self.exclude);
        let mut count = 0;
        for_each_day(
            begin,
            end,
            |month, day, from, until| {
                let midnight = (month.first + i64::from(day) - 1) * DAY;
                let points = |from: i64, until: i64| {
                    self.points_between(span, midnight + from, midnight + until)
                };
                count += match excluded.of(month, day) {
                    None => points(from, until),
                    Some(minutes) => free_parts(minutes)
                        .map(|(free, end)| points(free.max(from), end.min(until)))
                        .sum(),
                };
            },
            |month| month.all() & !self.exclude.days_of(month),
        );
        count
    }

    /// Counts grid points at local times from `from` (inclusive) to `until` (exclusive), ignoring exclusions.
    fn points_between(&self, span: &Span, from: i64, until: i64) -> u64 {
        let period = self.period.amount * SECOND;
        let first = self.anchor.saturating_add(span.offset);
        let before = |local: i64| (local.saturating_sub(first).max(0) + period - 1) / period;
        u64::try_from(before(until) - before(from)).unwrap_or_default()
    }
}

/// Calls `visit` for each day with its bit set in `days_of` its month, passing the month, the day of the month, and which part of it lies
/// between two local times: beginning and end, counting from midnight.
fn for_each_day(
    from: i64,
    until: i64,
    mut visit: impl FnMut(&Month, u8, i64, i64),
    days_of: impl Fn(&Month) -> u32,
) {
    let (from, until) = (from.max(LOCAL_FIRST), until.min(LOCAL_END));
    if from >= until {
        return;
    }
    let (first, last) = (from.div_euclid(DAY), (until - 1).div_euclid(DAY));
    let (mut month, _) = Month::of(first);
    while month.first <= last {
        for day in ones(days_of(&month).into()) {
            let number = month.first + i64::from(day) - 1;
            if (first..=last).contains(&number) {
                let begin = (from - number * DAY).max(0);
                let end = (until - number * DAY).min(DAY);
                visit(&month, day, begin, end);
            }
        }
        month = Month::of(month.first + i64::from(month.length)).0;
    }
}

/// Counts the times of day matching `fields` before `end`, which counts from midnight, leaving out excluded minutes.
fn times_before(fields: &Fields, excluded: &ExcludedMinutes, end: i64) -> u64 {
    let of_minute = u64::from(fields.second.bits.count_ones());
    let seconds = (end + SECOND - 1) / SECOND;
    let (last_hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let below = |bits: u64, number: i64| u64::from((bits & !(!0 << number)).count_ones());
    let of_hour = |hour: u8| {
        let free = fields.minute.bits & !excluded[usize::from(hour)];
        match i64::from(hour) {
            hour if hour < last_hour => u64::from(free.count_ones()) * of_minute,
            hour if hour > last_hour => 0,
            _ => {
                let of_last = free >> minute & 1;
                below(free, minute) * of_minute + of_last * below(fields.second.bits, second)
            }
        }
    };
    fields.hour.numbers().map(of_hour).sum()
}

/// Returns the runs of minutes not excluded, with beginning and end counting from midnight.
fn free_parts(excluded: &ExcludedMinutes) -> impl Iterator<Item = (i64, i64)> {
    (0..).zip(excluded).flat_map(|(hour, &excluded)| {
        let mut bits = excluded | !0 << 60;
        let mut at = 0;
        std::iter::from_fn(move || {
            // The run begins at the first zero bit and ends before the next one set.
            let begin = at + i64::from(bits.trailing_ones());
            if begin >= 60 {
                return None;
            }
            bits >>= begin - at;
            let length = i64::from(bits.trailing_zeros());
            bits >>= length;
            at = begin + length;
            let minute = |minute: i64| hour * HOUR + minute * MINUTE;
            Some((minute(begin), minute(at)))
        })
    })
}

/// The minutes excluded by cron expressions, day by day. Days are matched by just a few different sets of expressions, so the minutes of
/// each set are computed once.
struct ExcludedOfDays<'a> {
    exclude: &'a Exclude,
    /// First day of the month `by_cron` is about.
    month: Option<i64>,
    /// Days of the month matching each expression, as bits.
    by_cron: Vec<u32>,
    by_set: HashMap<u128, ExcludedMinutes>,
}

impl<'a> ExcludedOfDays<'a> {
    fn new(exclude: &'a Exclude) -> ExcludedOfDays<'a> {
        ExcludedOfDays {
            exclude,
            month: None,
            by_cron: Vec::new(),
            by_set: HashMap::new(),
        }
    }

    /// Returns a day's excluded minutes, or none if no expression matches that day.
    fn of(&mut self, month: &Month, day: u8) -> Option<&ExcludedMinutes> {
        let crons = self.exclude.crons();
        if crons.is_empty() {
            return None;
        }
        if self.month != Some(month.first) {
            self.month = Some(month.first);
            self.by_cron = crons.iter().map(|cron| cron.days_of(month)).collect();
        }
        let matching = self.by_cron.iter().enumerate();
        let set = matching.fold(0, |set, (index, days)| {
            set | u128::from(days >> day & 1) << index
        });
        if set == 0 {
            return None;
        }
        let minutes = self.by_set.entry(set).or_insert_with(|| {
            let mut minutes = [0; HOURS];
            for (_, cron) in crons
                .iter()
                .enumerate()
                .filter(|(index, _)| set >> index & 1 == 1)
            {
                for hour in cron.hour.numbers() {
                    minutes[usize::from(hour)] |= cron.minute.bits;
                }
            }
            minutes
        });
        Some(minutes)
    }
}

#[cfg(test)]
mod tests;
