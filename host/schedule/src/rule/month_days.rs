//! The days that a cron rule allows, month by month.
//!
//! The days of a month are the bits 1 to 31 of a number. So `&`, `|` and `!` join the day fields and
//! the exclusions, and a search through 130 years of months takes microseconds.

use chrono::{Datelike as _, NaiveDate};

use super::fields::Fields;
use super::quartz_days::QuartzDay;
use super::zone::{DAY, LOCAL_END, LOCAL_FIRST};

const SATURDAY: u8 = 6;

#[derive(Clone, Copy, Debug)]
pub(super) struct Month {
    pub(super) number: u8,
    /// The first day, counted from 1970-01-01.
    pub(super) first: i64,
    pub(super) length: u8,
    /// The weekday of the first day, from Sunday as 0.
    weekday: u8,
}

impl Month {
    /// Returns the month of `day`, counted from 1970-01-01, and the day of the month.
    pub(super) fn of(day: i64) -> (Month, u8) {
        let date = i32::try_from(day)
            .ok()
            .and_then(NaiveDate::from_epoch_days)
            .unwrap_or_default();
        let number = date.month() as u8;
        let weekday = i64::from(date.weekday().num_days_from_sunday()) - i64::from(date.day0());
        let month = Month {
            number,
            first: day - i64::from(date.day0()),
            length: date.num_days_in_month(),
            weekday: weekday.rem_euclid(7) as u8,
        };
        (month, date.day() as u8)
    }

    /// Returns the weekday of `day`, from Sunday as 0.
    pub(super) fn weekday_of(&self, day: u8) -> u8 {
        (self.weekday + day - 1) % 7
    }

    /// Returns all days as bits.
    pub(super) fn all(&self) -> u32 {
        !0 >> (31 - self.length) & !1
    }
}

/// Returns the number of days of a month in a leap year.
pub(super) fn longest(month: u8) -> u8 {
    let first = NaiveDate::from_ymd_opt(2000, month.into(), 1);
    first.map_or(0, |first| first.num_days_in_month())
}

/// Returns the first day at `from` or later whose bit is set in `days_of` its month.
///
/// Days count from 1970-01-01.
pub(super) fn first_day(from: i64, days_of: impl Fn(&Month) -> u32) -> Option<i64> {
    let (mut month, day) = Month::of(from.max(LOCAL_FIRST / DAY));
    let mut wanted = !0 << day;
    while month.first < LOCAL_END / DAY {
        let days = days_of(&month) & wanted;
        if days != 0 {
            return Some(month.first + i64::from(days.trailing_zeros()) - 1);
        }
        wanted = !0;
        month = Month::of(month.first + i64::from(month.length)).0;
    }
    None
}

impl Fields {
    /// Returns the days of `month` that match, as bits.
    pub(super) fn days_of(&self, month: &Month) -> u32 {
        if !self.month.contains(month.number) {
            return 0;
        }
        let (by_number, by_weekday) = (self.by_number(month), self.by_weekday(month));
        if self.match_both_days() {
            by_number & by_weekday
        } else {
            by_number | by_weekday
        }
    }

    /// Returns whether the day-of-month field and the day-of-week field allow `day` of `month`.
    ///
    /// When either field may match, both allow a day that one allows.
    pub(super) fn allow_day(&self, month: &Month, day: u8) -> (bool, bool) {
        let holds = |days: u32| days >> day & 1 == 1;
        let (number, weekday) = (holds(self.by_number(month)), holds(self.by_weekday(month)));
        if self.match_both_days() {
            (number, weekday)
        } else {
            (number || weekday, number || weekday)
        }
    }

    fn by_number(&self, month: &Month) -> u32 {
        let field = self.day_of_month;
        let mut days = field.bits as u32 & month.all();
        for day in QuartzDay::of_month(field.quartz) {
            days |= match day {
                QuartzDay::BeforeLast(before) if before < month.length => {
                    1 << (month.length - before)
                }
                QuartzDay::Nearest(day) if day <= month.length => 1 << nearest_workday(month, day),
                QuartzDay::LastWorkday => 1 << nearest_workday_before(month, month.length),
                _ => 0,
            };
        }
        days
    }

    fn by_weekday(&self, month: &Month) -> u32 {
        let field = self.day_of_week;
        // Bit 0 becomes the weekday of the first day.
        let week = (field.bits >> month.weekday | field.bits << (7 - month.weekday)) & 0x7f;
        let weeks = (week * (1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28)) << 1;
        let mut days = weeks as u32 & month.all();
        for day in QuartzDay::of_week(field.quartz) {
            days |= match day {
                QuartzDay::Nth { weekday, week } => {
                    let day = first_of(month, weekday) + 7 * (week - 1);
                    (1u64 << day) as u32 & month.all()
                }
                QuartzDay::Last { weekday } => {
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
