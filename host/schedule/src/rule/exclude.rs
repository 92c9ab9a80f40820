//! The local times that a rule excludes.
//!
//! [`Exclude::days_of`] returns the days without a free minute, so that a search skips months. The
//! search looks at minutes only on the other days.

use std::slice;

use chrono::{Datelike as _, NaiveDate};

use super::error::{RuleError, quoted};
use super::field_spec::ones;
use super::fields::Fields;
use super::hash::HashKey;
use super::month_days::{self, Month};
use super::part::words;
use super::zone::{DAY, SECOND};

const ITEMS_MAX: usize = 100;
const ITEM_BYTES_MAX: usize = 256;

pub(super) const MINUTE: i64 = 60 * SECOND;
pub(super) const HOUR: i64 = 60 * MINUTE;

const MINUTES: u64 = (1 << 60) - 1;

/// The exclusions of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exclude {
    pub(super) texts: Vec<String>,
    /// First and last days, counted from 1970-01-01, ascending and disjoint.
    ranges: Vec<(i64, i64)>,
    /// Days of every year: the bits of each month, by the number of the month.
    yearly: [u32; 13],
    crons: Vec<Fields>,
    /// The sets of `crons` that match a minute of the rule, as bits, each set once. A day is excluded
    /// when every set has an expression that matches the day.
    cron_sets: Vec<u128>,
}

impl Exclude {
    /// Read the exclusions of a rule whose slots are at these `hours` and `minutes`, as bits.
    pub(super) fn parse(items: &[String], hours: u64, minutes: u64) -> Result<Exclude, RuleError> {
        if items.len() > ITEMS_MAX {
            return Err(RuleError::new(
                format!("the rule has {} exclusions", items.len()),
                format!("write at most {ITEMS_MAX}; days in a row are one: 2026-12-24..2027-01-01"),
            ));
        }
        let mut exclude = Exclude::default();
        for (index, text) in items.iter().enumerate() {
            let added = exclude.add(text);
            added.map_err(|error| error.within(&format!("exclusion {}", index + 1)))?;
        }
        exclude.ranges.sort_unstable();
        exclude.ranges.dedup_by(|next, kept| {
            let joined = next.0 <= kept.1 + 1;
            if joined {
                kept.1 = kept.1.max(next.1);
            }
            joined
        });
        exclude.cron_sets = exclude.cron_sets_of(hours, minutes);
        Ok(exclude)
    }

    /// Add a date, a date of every year, a range of dates, or five cron fields.
    fn add(&mut self, text: &str) -> Result<(), RuleError> {
        if text.len() > ITEM_BYTES_MAX {
            return Err(RuleError::new(
                format!("it has {} bytes", text.len()),
                format!("write at most {ITEM_BYTES_MAX} bytes"),
            ));
        }
        let trimmed = text.trim_matches([' ', '\t']);
        if let Some((first, last)) = trimmed.split_once("..") {
            let (first, last) = (end_of_range(first)?, end_of_range(last)?);
            if first > last {
                return Err(RuleError::new(
                    format!("{} runs backwards", quoted(trimmed)),
                    "write the earlier date first; both dates have a year",
                ));
            }
            self.ranges.push((first, last));
        } else if trimmed.contains([' ', '\t']) {
            self.crons.push(cron(text)?);
        } else if trimmed.len() == 5 {
            // 2000 is a leap year, so 02-29 is a date.
            let day = date(&format!("2000-{trimmed}")).map_err(|_| not_a_date(trimmed))?;
            let (month, day) = Month::of(day);
            self.yearly[usize::from(month.number)] |= 1 << day;
        } else {
            let day = date(trimmed)?;
            self.ranges.push((day, day));
        }
        self.texts.push(trimmed.to_owned());
        Ok(())
    }

    fn cron_sets_of(&self, hours: u64, minutes: u64) -> Vec<u128> {
        let mut sets = Vec::new();
        for hour in ones(hours) {
            for minute in ones(minutes) {
                let matching = |cron: &Fields| {
                    u128::from(cron.hour.contains(hour) && cron.minute.contains(minute))
                };
                let crons = self.crons.iter().enumerate();
                sets.push(crons.fold(0, |set, (index, cron)| set | matching(cron) << index));
            }
        }
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    /// Returns the days of `month` without a free minute, as bits.
    pub(super) fn days_of(&self, month: &Month) -> u32 {
        let mut days = self.yearly[usize::from(month.number)];
        let month_last = month.first + i64::from(month.length) - 1;
        let begin = self.ranges.partition_point(|range| range.1 < month.first);
        for &(first, last) in &self.ranges[begin..] {
            if first > month_last {
                break;
            }
            let (first, last) = (first.max(month.first), last.min(month_last));
            let ones = !0u32 >> (31 - (last - first));
            days |= ones << (first - month.first + 1);
        }
        days | self.days_without_minutes(month)
    }

    fn days_without_minutes(&self, month: &Month) -> u32 {
        // The empty set sorts first: no expression excludes its minutes.
        if self.cron_sets.first().is_none_or(|&set| set == 0) {
            return 0;
        }
        let mut by_cron = [0; ITEMS_MAX];
        for (days, cron) in by_cron.iter_mut().zip(&self.crons) {
            *days = cron.days_of(month);
        }
        let mut covered = month.all();
        for &set in &self.cron_sets {
            let mut of_set = 0;
            let mut crons = set;
            while crons != 0 {
                of_set |= by_cron[crons.trailing_zeros() as usize];
                crons &= crons - 1;
            }
            covered &= of_set;
            if covered == 0 {
                break;
            }
        }
        covered
    }

    /// Returns the end of the run of excluded minutes that contains `local`, at most the end of the day.
    ///
    /// `None` when `local` is free. The function checks the expressions only, not the days.
    pub(super) fn end_of(&self, local: i64) -> Option<i64> {
        if self.crons.is_empty() {
            return None;
        }
        let (day, hour, minute) = parts(local);
        let (month, number) = Month::of(day);
        let mut wanted = MINUTES & !0 << minute;
        for later in hour..24 {
            let free = wanted & !self.minutes_of(&month, number, later);
            if free != 0 {
                let free = (later, i64::from(free.trailing_zeros()));
                return (free != (hour, minute))
                    .then(|| day * DAY + free.0 * HOUR + free.1 * MINUTE);
            }
            wanted = MINUTES;
        }
        Some((day + 1) * DAY)
    }

    pub(super) fn crons(&self) -> &[Fields] {
        &self.crons
    }

    /// Returns the item that excludes `local`, as written.
    pub(super) fn item_of(&self, local: i64) -> Option<&str> {
        let (month, number) = Month::of(local.div_euclid(DAY));
        let excludes = |text: &&String| {
            let alone = Exclude::parse(slice::from_ref(*text), 0, 0);
            alone.is_ok_and(|alone| {
                alone.days_of(&month) >> number & 1 == 1 || alone.end_of(local).is_some()
            })
        };
        self.texts.iter().find(excludes).map(String::as_str)
    }

    /// Returns the first free local time at `local` or later.
    pub(super) fn free_from(&self, mut local: i64) -> Option<i64> {
        if self.texts.is_empty() {
            return Some(local);
        }
        loop {
            let free_days = |month: &Month| month.all() & !self.days_of(month);
            let day = month_days::first_day(local.div_euclid(DAY), free_days)?;
            local = local.max(day * DAY);
            match self.end_of(local) {
                None => return Some(local),
                Some(end) => local = end,
            }
        }
    }

    /// Returns the excluded minutes of an hour of the day `day` of `month`, as bits.
    fn minutes_of(&self, month: &Month, day: u8, hour: i64) -> u64 {
        let crons = self.crons.iter();
        crons
            .filter(|cron| cron.hour.bits >> hour & 1 == 1 && cron.days_of(month) >> day & 1 == 1)
            .fold(0, |minutes, cron| minutes | cron.minute.bits)
    }
}

/// Returns the day, the hour and the minute of a local time.
pub(super) fn parts(local: i64) -> (i64, i64, i64) {
    let time = local.rem_euclid(DAY);
    (local.div_euclid(DAY), time / HOUR, time % HOUR / MINUTE)
}

/// Read the first or the last date of a range, as a number of days since 1970-01-01.
fn end_of_range(text: &str) -> Result<i64, RuleError> {
    let text = text.trim_matches([' ', '\t']);
    match text.len() {
        // As in `12-24..12-26`.
        5 => Err(RuleError::new(
            format!("{} has no year", quoted(text)),
            "give both dates of a range their year, or name the days of every year one by one",
        )),
        _ => date(text),
    }
}

fn cron(text: &str) -> Result<Fields, RuleError> {
    const FIVE: &str = "write five fields that match the minutes to exclude, as in `* 0-7 * * *`";
    let fields = Fields::parse(text, HashKey::NONE)?;
    if fields.are_hashed() {
        return Err(RuleError::new(
            "`H` and `?` would exclude a time that the author did not choose",
            FIVE,
        ));
    }
    if words(text).count() != 5 {
        return Err(RuleError::new("it has a second field", FIVE));
    }
    Ok(fields)
}

/// Read a date, as a number of days since 1970-01-01.
fn date(text: &str) -> Result<i64, RuleError> {
    let fits = |(index, byte): (usize, u8)| match index {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    let has_shape = text.len() == 10 && text.bytes().enumerate().all(fits);
    let date = text.parse::<NaiveDate>().ok().filter(|_| has_shape);
    let date = date.ok_or_else(|| not_a_date(text))?;
    if !(1970..2100).contains(&date.year()) {
        return Err(RuleError::new(
            format!("{} is outside the years 1970 to 2099", quoted(text)),
            "write a date of these years",
        ));
    }
    Ok(i64::from(date.to_epoch_days()))
}

fn not_a_date(text: &str) -> RuleError {
    RuleError::new(
        format!("{} is not a date", quoted(text)),
        "write 2026-12-25, 12-25 for every year, 2026-12-24..2027-01-01, or five cron fields",
    )
}

#[cfg(test)]
mod tests;
