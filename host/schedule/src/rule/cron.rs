//! The cron dialect and its local times.
//!
//! Campanile reads the fields itself and gives the `cron` crate lists of numbers. The dialect of the
//! crate counts weekdays from 1 and joins the two day fields with "and". Its iteration over zones
//! skips the local times of a gap and goes back in time in a fold. With lists of numbers and in UTC
//! the crate is exact, so it is given local times as if they were UTC;
//! [`dst_mapping`](super::dst_mapping) maps them to instants. [`month_days`](super::month_days) finds
//! the days, because the crate walks through every month and minute to a rare day.

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use cron::Schedule;

use super::dialects;
use super::dst_mapping::{DstMapping, LocalTimes, refuse_overrides};
use super::error::{RuleError, quoted};
use super::exclude::Exclude;
use super::field_spec::{DAY_OF_MONTH, DAY_OF_WEEK, MONTH};
use super::fields::Fields;
use super::hash::HashKey;
use super::macros::fields_of_macro;
use super::month_days::{self, Month};
use super::zone::{self, DAY};
use campanile_model::rule_text::{DayMatch, RuleText};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CronRule {
    pub(super) fields: Fields,
    pub(super) dst: DstMapping,
    times: Schedule,
    pub(super) exclude: Exclude,
}

impl CronRule {
    /// Read the expression of `text`: five fields, six with seconds first, or a macro such as `@daily`.
    ///
    /// # Errors
    /// When the expression is not of the dialect or never fires, or an override means nothing to it.
    pub(super) fn parse(text: &RuleText, key: HashKey) -> Result<CronRule, RuleError> {
        let trimmed = text.expression.trim_matches([' ', '\t']);
        let expression = if trimmed.starts_with('@') {
            fields_of_macro(trimmed)
        } else {
            Ok(text.expression.as_str())
        };
        let fields = expression.and_then(|expression| Fields::parse(expression, key));
        let mut fields =
            fields.map_err(|error| dialects::explain(&text.expression).unwrap_or(error))?;
        if text.day_match == DayMatch::And && !fields.restricts_both_days() {
            return Err(RuleError::new(
                "day_match `and` means nothing when a day field begins with `*`: both must match \
                 anyway",
                "leave day_match out, or restrict both day fields, as in `0 0 13 * FRI`",
            ));
        }
        fields.day_match = text.day_match;
        let dst = if fields.follow_clock() {
            refuse_overrides(
                text,
                "a rule that follows the clock: it fires whenever the clock matches",
                "give the second, minute and hour without `*`",
            )?;
            DstMapping::CLOCK
        } else {
            DstMapping::of(text)
        };
        if month_days::first_day(0, |month| fields.days_of(month)).is_none() {
            return Err(never_fires(&fields));
        }
        let exclude = Exclude::parse(&text.exclude, fields.hour.bits, fields.minute.bits)?;
        let times = times(&fields)?;
        Ok(CronRule {
            fields,
            dst,
            times,
            exclude,
        })
    }

    /// Returns the days of `month` with a slot, as bits.
    pub(super) fn days_of(&self, month: &Month) -> u32 {
        let days = self.fields.days_of(month);
        // The exclusions cost more than the days.
        match days {
            0 => 0,
            days => days & !self.exclude.days_of(month),
        }
    }
}

impl LocalTimes for CronRule {
    fn first_from(&self, from: i64) -> Option<i64> {
        let mut from = from.max(zone::LOCAL_FIRST);
        loop {
            let day = month_days::first_day(from.div_euclid(DAY), |month| self.days_of(month))?;
            from = from.max(day * DAY);
            // The crate searches strictly after an instant, in whole seconds.
            let local = self.times.after(&utc(from - 1)).next()?;
            let local = local.timestamp_micros();
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

    fn count(&self, from: i64, until: i64) -> u64 {
        self.count_local(from, until)
    }
}

fn never_fires(fields: &Fields) -> RuleError {
    let longest = fields.month.numbers().map(month_days::longest).max();
    let longest = longest.unwrap_or(0);
    let day = fields.day_of_month.numbers().next().unwrap_or(0);
    let months = fields.month.normal_form(&MONTH);
    if fields.day_of_month.quartz == 0 && day > longest {
        return RuleError::new(
            format!("the expression never fires: month {months} has no day {day}"),
            format!("write a day-of-month of at most {longest}, or other months"),
        );
    }
    let days = fields.day_of_month.normal_form(&DAY_OF_MONTH);
    let weekdays = fields.day_of_week.normal_form(&DAY_OF_WEEK);
    RuleError::new(
        format!(
            "the expression never fires: month {months} has no day that is `{days}` and on \
             weekday `{weekdays}` in the years 1970 to 2099"
        ),
        "write other days or other months",
    )
}

/// Returns local microseconds as the crate takes them.
fn utc(local: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(local).unwrap_or_default()
}

/// Returns the times of day and the months of `fields` for the crate.
fn times(fields: &Fields) -> Result<Schedule, RuleError> {
    let [second, minute, hour, _, month, _] = fields.with_specs().map(|(field, spec)| {
        let numbers: Vec<String> = field.numbers().map(|number| number.to_string()).collect();
        // The crate shares one set for `*`; a list would store sixty numbers for each rule.
        if field.is_full(spec) {
            "*".to_owned()
        } else {
            numbers.join(",")
        }
    });
    let text = format!("{second} {minute} {hour} * {month} *");
    Schedule::from_str(&text).map_err(|error| {
        RuleError::new(
            format!("the fields {} were not understood: {error}", quoted(&text)),
            "report this as a defect of Campanile, with the expression",
        )
    })
}

#[cfg(test)]
mod tests;
