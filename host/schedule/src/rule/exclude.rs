//! Local times that a rule leaves out.
//!
//! What is left out is counted in days where that is possible: a search then passes over months
//! by [`Exclude::days_of`], and looks at minutes only on days that have one left.

use chrono::{Datelike as _, NaiveDate};

use super::days::{self, Days, Month};
use super::error::{RuleError, quoted};
use super::fields::Fields;
use super::hash::HashKey;
use super::special::ones;
use super::zone::{DAY, SECOND};
use campanile_model::rule_text::DayMatch;

/// No rule may have more exclusions.
const ITEMS_MAX: usize = 100;

/// No exclusion may be longer.
const ITEM_BYTES_MAX: usize = 256;

pub(super) const MINUTE: i64 = 60 * SECOND;
pub(super) const HOUR: i64 = 60 * MINUTE;

/// All minutes of an hour, as bits.
const MINUTES: u64 = (1 << 60) - 1;

/// What a rule leaves out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exclude {
    /// The items as written.
    pub(super) texts: Vec<String>,
    /// The first and last days, counted from 1970-01-01, ascending and apart.
    ranges: Vec<(i64, i64)>,
    /// Days of every year: the bits of each month, by its number.
    yearly: [u32; 13],
    crons: Vec<Minutes>,
    /// For each sort of minute that the rule names, the `crons` that match it, as bits. A day on
    /// which each sort has one is left out whole.
    sorts: Vec<u128>,
}

/// The minutes that a cron expression matches.
#[derive(Clone, Debug, PartialEq)]
struct Minutes {
    days: Days,
    hours: u64,
    minutes: u64,
}

/// One item, read.
enum Item {
    Days(i64, i64),
    Yearly(u32, u32),
    Cron(Box<Minutes>),
}

impl Exclude {
    /// Read the exclusions of a rule that names minutes of these `hours` and `minutes`, as bits.
    ///
    /// # Errors
    /// When there are too many, or one is not understood.
    pub(super) fn parse(items: &[String], hours: u64, minutes: u64) -> Result<Exclude, RuleError> {
        if items.len() > ITEMS_MAX {
            return Err(RuleError::new(
                format!("the rule has {} exclusions", items.len()),
                format!("write at most {ITEMS_MAX}; days in a row are one: 2026-12-24..2027-01-01"),
            ));
        }
        let mut exclude = Exclude::default();
        for (index, text) in items.iter().enumerate() {
            let item =
                item(text).map_err(|error| error.within(&format!("exclusion {}", index + 1)))?;
            exclude
                .texts
                .push(text.trim_matches([' ', '\t']).to_owned());
            match item {
                Item::Days(first, last) => exclude.ranges.push((first, last)),
                Item::Yearly(month, day) => exclude.yearly[month as usize] |= 1 << day,
                Item::Cron(minutes) => exclude.crons.push(*minutes),
            }
        }
        exclude.ranges.sort_unstable();
        exclude.ranges.dedup_by(|next, kept| {
            let joined = next.0 <= kept.1 + 1;
            if joined {
                kept.1 = kept.1.max(next.1);
            }
            joined
        });
        exclude.sorts = exclude.sorts_of(hours, minutes);
        Ok(exclude)
    }

    fn sorts_of(&self, hours: u64, minutes: u64) -> Vec<u128> {
        if self.crons.is_empty() {
            return Vec::new();
        }
        let mut sorts = Vec::new();
        for hour in ones(hours) {
            for minute in ones(minutes) {
                let matching =
                    |cron: &Minutes| u128::from(cron.hours >> hour & cron.minutes >> minute & 1);
                let crons = self.crons.iter().enumerate();
                sorts.push(crons.fold(0, |sort, (index, cron)| sort | matching(cron) << index));
            }
        }
        sorts.sort_unstable();
        sorts.dedup();
        sorts
    }

    /// The days of `month` on which no minute is left, as bits.
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

    fn free_days_of(&self, month: &Month) -> u32 {
        month.all() & !self.days_of(month)
    }

    fn days_without_minutes(&self, month: &Month) -> u32 {
        // A sort that no exclusion matches leaves something of every day; it sorts first.
        if self.sorts.first().is_none_or(|&sort| sort == 0) {
            return 0;
        }
        let mut by_cron = [0; ITEMS_MAX];
        for (days, cron) in by_cron.iter_mut().zip(&self.crons) {
            *days = cron.days.of_month(month);
        }
        let mut covered = month.all();
        for &sort in &self.sorts {
            let mut of_sort = 0;
            let mut crons = sort;
            while crons != 0 {
                of_sort |= by_cron[crons.trailing_zeros() as usize];
                crons &= crons - 1;
            }
            covered &= of_sort;
            if covered == 0 {
                break;
            }
        }
        covered
    }

    /// The end of the stretch of excluded minutes that holds `local`, at most that of the day;
    /// `None` if it is in none. Asks the expressions only, not the days.
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
                return (free != (hour, minute)).then(|| at(day, free.0, free.1));
            }
            wanted = MINUTES;
        }
        Some((day + 1) * DAY)
    }

    /// The begin of the stretch of excluded minutes that holds `local`, as [`Exclude::end_of`].
    pub(super) fn begin_of(&self, local: i64) -> Option<i64> {
        if self.crons.is_empty() {
            return None;
        }
        let (day, hour, minute) = parts(local);
        let (month, number) = Month::of(day);
        let mut wanted = MINUTES >> (59 - minute);
        for earlier in (0..=hour).rev() {
            let free = wanted & !self.minutes_of(&month, number, earlier);
            if free != 0 {
                let free = (earlier, i64::from(free.ilog2()));
                return (free != (hour, minute)).then(|| at(day, free.0, free.1 + 1));
            }
            wanted = MINUTES;
        }
        Some(day * DAY)
    }

    /// The item that leaves `local` out, as it was written.
    pub(super) fn of(&self, local: i64) -> Option<&str> {
        let (day, hour, minute) = parts(local);
        let (month, number) = Month::of(day);
        let holds = |text: &str| match item(text) {
            Ok(Item::Days(first, last)) => (first..=last).contains(&day),
            Ok(Item::Yearly(of_month, of_day)) => {
                of_month == u32::from(month.number) && of_day == u32::from(number)
            }
            Ok(Item::Cron(cron)) => {
                let days = cron.days.of_month(&month);
                days >> number & 1 == 1 && cron.hours >> hour & cron.minutes >> minute & 1 == 1
            }
            Err(_) => false,
        };
        let mut texts = self.texts.iter().map(String::as_str);
        texts.find(|text| holds(text))
    }

    /// The first local time at `local` or later that is not left out.
    pub(super) fn free_from(&self, mut local: i64) -> Option<i64> {
        if self.is_empty() {
            return Some(local);
        }
        loop {
            let day = days::first_day(local.div_euclid(DAY), |month| self.free_days_of(month))?;
            local = local.max(day * DAY);
            match self.end_of(local) {
                None => return Some(local),
                Some(end) => local = end,
            }
        }
    }

    /// The end of the last stretch before `before` that is not left out, or `before` within one.
    pub(super) fn free_before(&self, mut before: i64) -> Option<i64> {
        if self.is_empty() {
            return Some(before);
        }
        loop {
            let day = (before - 1).div_euclid(DAY);
            let day = days::last_day(day, |month| self.free_days_of(month))?;
            before = before.min((day + 1) * DAY);
            match self.begin_of(before - 1) {
                None => return Some(before),
                Some(begin) => before = begin,
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The excluded minutes of an hour of the day `day` of `month`, as bits.
    fn minutes_of(&self, month: &Month, day: u8, hour: i64) -> u64 {
        let crons = self.crons.iter();
        crons
            .filter(|cron| cron.hours >> hour & 1 == 1 && cron.days.of_month(month) >> day & 1 == 1)
            .fold(0, |minutes, cron| minutes | cron.minutes)
    }
}

/// The day, hour and minute of a local time.
fn parts(local: i64) -> (i64, i64, i64) {
    let time = local.rem_euclid(DAY);
    (local.div_euclid(DAY), time / HOUR, time % HOUR / MINUTE)
}

fn at(day: i64, hour: i64, minute: i64) -> i64 {
    day * DAY + hour * HOUR + minute * MINUTE
}

fn item(text: &str) -> Result<Item, RuleError> {
    let trimmed = text.trim_matches([' ', '\t']);
    if text.len() > ITEM_BYTES_MAX {
        return Err(RuleError::new(
            format!("it has {} bytes", text.len()),
            format!("write at most {ITEM_BYTES_MAX} bytes"),
        ));
    }
    if let Some((first, last)) = trimmed.split_once("..") {
        let end = |text: &str| {
            let text = text.trim_matches([' ', '\t']);
            match text.len() {
                // As in `12-24..12-26`.
                5 => Err(RuleError::new(
                    format!("{} has no year", quoted(text)),
                    "give both dates of a range their year, or name the days of every year one by one",
                )),
                _ => date(text),
            }
        };
        let (first_day, last_day) = (end(first)?, end(last)?);
        if first_day > last_day {
            return Err(RuleError::new(
                format!("{} runs backwards", quoted(trimmed)),
                "write the earlier date first; both dates have a year",
            ));
        }
        return Ok(Item::Days(first_day, last_day));
    }
    if trimmed.contains([' ', '\t']) {
        return cron(text);
    }
    if let [m1, m2, b'-', d1, d2] = trimmed.as_bytes() {
        let number = |tens: u8, ones: u8| Some(digit(tens)? * 10 + digit(ones)?);
        // A leap year, so that 29 February is a date.
        let date = number(*m1, *m2)
            .zip(number(*d1, *d2))
            .filter(|&(month, day)| NaiveDate::from_ymd_opt(2000, month, day).is_some());
        return match date {
            Some((month, day)) => Ok(Item::Yearly(month, day)),
            None => Err(not_a_date(trimmed)),
        };
    }
    let day = date(trimmed)?;
    Ok(Item::Days(day, day))
}

fn cron(text: &str) -> Result<Item, RuleError> {
    const FIVE: &str = "write five fields that match the minutes to leave out, as in `* 0-7 * * *`";
    let fields = Fields::parse(text, HashKey::NONE, &mut Vec::new())?;
    if fields.are_hashed() {
        return Err(RuleError::new(
            "`H` and `?` would leave out a time that nobody chose",
            FIVE,
        ));
    }
    if text
        .split([' ', '\t'])
        .filter(|text| !text.is_empty())
        .count()
        != 5
    {
        return Err(RuleError::new("it has a second field", FIVE));
    }
    Ok(Item::Cron(Box::new(Minutes {
        days: fields.days(DayMatch::Or),
        hours: fields.hour.bits(),
        minutes: fields.minute.bits(),
    })))
}

/// A date, as a number of days since 1970-01-01.
fn date(text: &str) -> Result<i64, RuleError> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text.as_bytes() else {
        return Err(not_a_date(text));
    };
    let number = |digits: &[u8]| {
        digits
            .iter()
            .try_fold(0, |number, &byte| Some(number * 10 + digit(byte)?))
    };
    let date = number(&[*y1, *y2, *y3, *y4])
        .and_then(|year| i32::try_from(year).ok())
        .zip(number(&[*m1, *m2]).zip(number(&[*d1, *d2])))
        .and_then(|(year, (month, day))| NaiveDate::from_ymd_opt(year, month, day))
        .ok_or_else(|| not_a_date(text))?;
    if !(1970..2100).contains(&date.year()) {
        return Err(RuleError::new(
            format!("{} is outside the years 1970 to 2099", quoted(text)),
            "write a date of these years",
        ));
    }
    Ok(i64::from(date.to_epoch_days()))
}

fn digit(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(10)
}

fn not_a_date(text: &str) -> RuleError {
    RuleError::new(
        format!("{} is not a date", quoted(text)),
        "write 2026-12-25, 12-25 for every year, 2026-12-24..2027-01-01, or five cron fields",
    )
}

#[cfg(test)]
mod tests;
