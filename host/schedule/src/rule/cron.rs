//! The cron dialect, and its local times.
//!
//! The fields are read here, strictly, and the `cron` crate is handed the resulting number lists:
//! its own dialect counts the days of the week from 1, joins the two day fields with "and", and
//! its iteration over zones skips what falls into a gap and goes back in time in a fold. With
//! number lists and in UTC it is exact; so local times are given to it as if they were UTC, and
//! [`passes`](super::passes) maps what it finds to instants. The days are found before it is
//! asked, by [`days`](super::days): it would walk through every month and minute to a rare one.

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use cron::Schedule;

use super::days::{self, Days, Month};
use super::error::{RuleError, quoted};
use super::exclude::Exclude;
use super::field::{Field, FieldSpec};
use super::fields::Fields;
use super::hash::HashKey;
use super::passes::{LocalTimes, Passes};
use super::zone::{self, DAY};
use campanile_model::rule_text::{DayMatch, RuleText};

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A cron expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CronRule {
    pub(super) fields: Fields,
    pub(super) day_match: DayMatch,
    pub(super) passes: Passes,
    days: Days,
    /// The times of day, and the months.
    times: Schedule,
    pub(super) exclude: Exclude,
}

impl CronRule {
    /// Read the expression of `text`: five fields, six with seconds first, or a macro such as
    /// `@daily`. Gives also what is to be noted about how it was read.
    ///
    /// # Errors
    /// When it is not of the dialect, never fires, or an override means nothing to it.
    pub(super) fn parse(
        text: &RuleText,
        key: HashKey,
    ) -> Result<(CronRule, Vec<String>), RuleError> {
        let trimmed = text.expression.trim_matches([' ', '\t']);
        let mut notes = Vec::new();
        let fields = if trimmed.starts_with('@') {
            let known = MACROS.iter().find(|(name, _)| *name == trimmed);
            let (_, fields) = known.ok_or_else(|| {
                let names: Vec<&str> = MACROS.iter().map(|(name, _)| *name).collect();
                RuleError::new(
                    format!("{} is not a known macro", quoted(trimmed)),
                    format!("write one of {}, @reboot or `@every 15m`", names.join(", ")),
                )
            })?;
            Fields::parse(fields, key, &mut notes)?
        } else {
            Fields::parse(&text.expression, key, &mut notes)?
        };
        Ok((CronRule::of(fields, text)?, notes))
    }

    fn of(fields: Fields, text: &RuleText) -> Result<CronRule, RuleError> {
        if text.day_match == DayMatch::And && !fields.restricts_both_days() {
            return Err(RuleError::new(
                "day_match `and` means nothing when a day field begins with `*`: both must match \
                 anyway",
                "leave day_match out, or restrict both day fields, as in `0 0 13 * FRI`",
            ));
        }
        let passes = if fields.follow_clock() {
            refuse_clock_overrides(
                text,
                "a rule that follows the clock: it fires whenever the clock matches",
                "give the second, minute and hour without `*`",
            )?;
            Passes::CLOCK
        } else {
            Passes {
                gap: text.dst_gap,
                fold: text.dst_fold,
            }
        };
        let days = fields.days(text.day_match);
        if days::first_day(0, |month| days.of_month(month)).is_none() {
            return Err(fields.never_fires());
        }
        let exclude = Exclude::parse(&text.exclude, fields.hour.bits(), fields.minute.bits())?;
        Ok(CronRule {
            fields,
            day_match: text.day_match,
            passes,
            days,
            times: times(&fields)?,
            exclude,
        })
    }

    /// Whether it follows the clock through every change of offset (`*/15 * * * *`) instead of
    /// naming times of day that happen once (`30 2 * * *`).
    pub(super) fn follows_clock(&self) -> bool {
        self.fields.follow_clock()
    }

    /// The days of `month` that have a slot, as bits.
    fn days_of(&self, month: &Month) -> u32 {
        let days = self.days.of_month(month);
        // Most rules and months need not look at the exclusions.
        if days == 0 {
            0
        } else {
            days & !self.exclude.days_of(month)
        }
    }
}

impl LocalTimes for CronRule {
    fn first_from(&self, from: i64) -> Option<i64> {
        let mut from = from.max(zone::LOCAL_FIRST);
        loop {
            let day = days::first_day(from.div_euclid(DAY), |month| self.days_of(month))?;
            from = from.max(day * DAY);
            // The crate looks strictly after, in whole seconds.
            let local = micros(self.times.after(&utc(from - 1)).next()?);
            if local.div_euclid(DAY) > day {
                from = (day + 1) * DAY;
                continue;
            }
            match self.exclude.end_of(local) {
                None => return Some(local),
                Some(end) => from = end,
            }
        }
    }

    fn last_before(&self, before: i64) -> Option<i64> {
        let mut before = before.min(zone::LOCAL_END);
        loop {
            let day = days::last_day((before - 1).div_euclid(DAY), |month| self.days_of(month))?;
            before = before.min((day + 1) * DAY);
            let local = micros(self.times.after(&utc(before)).next_back()?);
            if local.div_euclid(DAY) < day {
                before = day * DAY;
                continue;
            }
            match self.exclude.begin_of(local) {
                None => return Some(local),
                Some(begin) => before = begin,
            }
        }
    }
}

/// Local microseconds as the crate takes them.
fn utc(local: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(local).unwrap_or_default()
}

fn micros(local: DateTime<Utc>) -> i64 {
    local.timestamp_micros()
}

/// Refuse `dst_gap` and `dst_fold` for a rule to which they mean nothing, which is `what`.
///
/// # Errors
/// When one of them is given; the hint proposes `instead`.
pub(super) fn refuse_clock_overrides(
    text: &RuleText,
    what: &str,
    instead: &str,
) -> Result<(), RuleError> {
    let (gap, fold) = (text.dst_gap, text.dst_fold);
    let given = [
        ("dst_gap", gap.as_str(), gap != Default::default()),
        ("dst_fold", fold.as_str(), fold != Default::default()),
    ];
    match given.iter().find(|(_, _, given)| *given) {
        None => Ok(()),
        Some((name, word, _)) => Err(RuleError::new(
            format!("{name} `{word}` means nothing to {what}"),
            format!("leave {name} out, or {instead}"),
        )),
    }
}

/// The times of day and the months of `fields`, for the crate.
fn times(fields: &Fields) -> Result<Schedule, RuleError> {
    let [second, minute, hour, _, month, _] = fields
        .with_specs()
        .map(|(field, spec)| numbers(field, spec));
    let text = format!("{second} {minute} {hour} * {month} *");
    Schedule::from_str(&text).map_err(|error| {
        RuleError::new(
            format!("the fields {} were not understood: {error}", quoted(&text)),
            "report this as a defect of Campanile, with the expression",
        )
    })
}

/// A field as the `cron` crate writes it.
///
/// A full field is the one thing not listed: the crate keeps one shared set for `*`, and sixty
/// numbers per field and rule otherwise.
fn numbers(field: Field, spec: &FieldSpec) -> String {
    if field.is_full(spec) {
        return "*".to_owned();
    }
    let numbers: Vec<String> = field.numbers().map(|number| number.to_string()).collect();
    numbers.join(",")
}

#[cfg(test)]
mod tests;
