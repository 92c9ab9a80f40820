//! Which days a cron rule allows, month by month.
//!
//! The days of a month are the bits 1 to 31 of a number, so that the two day fields and the
//! exclusions are joined by `&`, `|` and `!`, and 130 years of months that lack the day are
//! walked in microseconds.

use chrono::{Datelike as _, NaiveDate};

use super::field::Field;
use super::special::Special;
use super::zone::{DAY, LOCAL_END, LOCAL_FIRST};

const SATURDAY: u8 = 6;

/// A month of some year.
#[derive(Clone, Copy, Debug)]
pub(super) struct Month {
    year: i32,
    /// 1 to 12.
    pub(super) number: u8,
    /// Its first day, counted from 1970-01-01.
    pub(super) first: i64,
    /// How many days it has.
    pub(super) length: u8,
    /// The weekday of its first day, from Sunday as 0.
    weekday: u8,
}

impl Month {
    /// The month of `day`, which counts from 1970-01-01, and the day's number in it.
    pub(super) fn of(day: i64) -> (Month, u8) {
        let date = i32::try_from(day)
            .ok()
            .and_then(NaiveDate::from_epoch_days)
            .unwrap_or_default();
        let number = date.month() as u8;
        let weekday = i64::from(date.weekday().num_days_from_sunday()) - i64::from(date.day0());
        let month = Month {
            year: date.year(),
            number,
            first: day - i64::from(date.day0()),
            length: length(date.year(), number),
            weekday: weekday.rem_euclid(7) as u8,
        };
        (month, date.day() as u8)
    }

    fn next(self) -> Month {
        let (year, number) = match self.number {
            12 => (self.year + 1, 1),
            number => (self.year, number + 1),
        };
        Month {
            year,
            number,
            first: self.first + i64::from(self.length),
            length: length(year, number),
            weekday: self.weekday_of(self.length + 1),
        }
    }

    fn prev(self) -> Month {
        let (year, number) = match self.number {
            1 => (self.year - 1, 12),
            number => (self.year, number - 1),
        };
        let length = length(year, number);
        Month {
            year,
            number,
            first: self.first - i64::from(length),
            length,
            weekday: (self.weekday + 35 - length) % 7,
        }
    }

    /// The weekday of the day `day`, from Sunday as 0.
    pub(super) fn weekday_of(&self, day: u8) -> u8 {
        (self.weekday + day - 1) % 7
    }

    /// All days, as bits.
    pub(super) fn all(&self) -> u32 {
        !0 >> (31 - self.length) & !1
    }
}

fn length(year: i32, month: u8) -> u8 {
    match month {
        // 2100 is beyond the years that rules answer for.
        2 if year % 4 == 0 => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// How many days the month of this number has in a leap year.
pub(super) fn longest(month: u8) -> u8 {
    length(2000, month)
}

/// The first day at `from` or later whose bit `days_of` its month has. Days count from 1970-01-01.
pub(super) fn first_day(from: i64, days_of: impl Fn(&Month) -> u32) -> Option<i64> {
    let (mut month, day) = Month::of(from.max(LOCAL_FIRST / DAY));
    let mut wanted = !0 << day;
    while month.first < LOCAL_END / DAY {
        let days = days_of(&month) & wanted;
        if days != 0 {
            return Some(month.first + i64::from(days.trailing_zeros()) - 1);
        }
        wanted = !0;
        month = month.next();
    }
    None
}

/// The last day at `until` or earlier whose bit `days_of` its month has.
pub(super) fn last_day(until: i64, days_of: impl Fn(&Month) -> u32) -> Option<i64> {
    let (mut month, day) = Month::of(until.min(LOCAL_END / DAY - 1));
    let mut wanted = !0 >> (31 - day);
    while month.first >= LOCAL_FIRST / DAY {
        let days = days_of(&month) & wanted;
        if days != 0 {
            return Some(month.first + i64::from(days.ilog2()) - 1);
        }
        wanted = !0;
        month = month.prev();
    }
    None
}

/// The day fields of a cron expression, joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Days {
    day_of_month: Field,
    month: Field,
    day_of_week: Field,
    /// Whether a day must match both fields; else either will do.
    both: bool,
}

impl Days {
    pub(super) fn of(day_of_month: Field, month: Field, day_of_week: Field, both: bool) -> Days {
        Days {
            day_of_month,
            month,
            day_of_week,
            both,
        }
    }

    /// The days of `month` that match, as bits.
    pub(super) fn of_month(&self, month: &Month) -> u32 {
        if !self.month.contains(month.number) {
            return 0;
        }
        let by_number = self.by_number(month);
        let by_weekday = self.by_weekday(month);
        if self.both {
            by_number & by_weekday
        } else {
            by_number | by_weekday
        }
    }

    /// Whether the day-of-month field, and whether the day-of-week field, allows the day `day` of `month`. Where either
    /// will do, both allow what one does.
    pub(super) fn allow(&self, month: &Month, day: u8) -> (bool, bool) {
        let holds = |days: u32| days >> day & 1 == 1;
        let (number, weekday) = (holds(self.by_number(month)), holds(self.by_weekday(month)));
        match self.both {
            true => (number, weekday),
            false => (number || weekday, number || weekday),
        }
    }

    fn by_number(&self, month: &Month) -> u32 {
        let field = self.day_of_month;
        let mut days = field.bits() as u32 & month.all();
        for special in Special::of_month(field.special) {
            days |= match special {
                Special::BeforeLast(before) if before < month.length => {
                    1 << (month.length - before)
                }
                Special::Nearest(day) if day <= month.length => 1 << nearest_workday(month, day),
                Special::LastWorkday => 1 << nearest_workday_before(month, month.length),
                _ => 0,
            };
        }
        days
    }

    fn by_weekday(&self, month: &Month) -> u32 {
        let field = self.day_of_week;
        // Bit 0 becomes the weekday of the first day.
        let week = (field.bits() >> month.weekday | field.bits() << (7 - month.weekday)) & 0x7f;
        let weeks = (week * (1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28)) << 1;
        let mut days = weeks as u32 & month.all();
        for special in Special::of_week(field.special) {
            days |= match special {
                Special::Nth { weekday, week } => {
                    let day = first_of(month, weekday) + 7 * (week - 1);
                    (1u64 << day) as u32 & month.all()
                }
                Special::Last { weekday } => {
                    let back = (month.weekday_of(month.length) + 7 - weekday) % 7;
                    1 << (month.length - back)
                }
                _ => 0,
            };
        }
        days
    }
}

fn first_of(month: &Month, weekday: u8) -> u8 {
    1 + (weekday + 7 - month.weekday) % 7
}

fn nearest_workday(month: &Month, day: u8) -> u8 {
    match month.weekday_of(day) {
        0 if day < month.length => day + 1,
        SATURDAY if day == 1 => 3,
        _ => nearest_workday_before(month, day),
    }
}

fn nearest_workday_before(month: &Month, day: u8) -> u8 {
    match month.weekday_of(day) {
        0 => day - 2,
        SATURDAY => day - 1,
        _ => day,
    }
}
