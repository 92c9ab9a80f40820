//! The cron dialect, and its next local time.
//!
//! The fields are read here, strictly, and the `cron` crate is handed the resulting number lists:
//! its own dialect counts the days of the week from 1, joins the two day fields with "and", and
//! its iteration over zones skips what falls into a gap and goes back in time in a fold. With
//! number lists and in UTC it is exact; so local times are given to it as if they were UTC, and
//! [`CronRule::next`] maps what it finds to instants.

use std::str::FromStr as _;

use chrono::DateTime;
use cron::Schedule;

use super::error::{RuleError, position, quoted};
use super::field::{DAY_OF_MONTH, DAY_OF_WEEK, Field, FieldSpec, HOUR, MINUTE, MONTH, SECOND};
use super::zone::{LOCAL_END, Met, Zone};

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const SPECS: [FieldSpec; 6] = [SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK];

const SHAPE: &str = "minute hour day-of-month month day-of-week";

/// A cron expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CronRule {
    fields: [Field; 6],
    /// Whether it follows the clock through every change of offset (`*/15 * * * *`) instead of
    /// naming times of day that happen once (`30 2 * * *`).
    wildcard: bool,
    schedule: Schedule,
    /// The second way to match a day, when both day fields are restricted.
    schedule_by_weekday: Option<Schedule>,
}

impl CronRule {
    /// Read five fields, six with seconds first, or a macro such as `@daily`.
    ///
    /// # Errors
    /// When it is not of the dialect, or never fires.
    pub(super) fn parse(expression: &str) -> Result<CronRule, RuleError> {
        let trimmed = expression.trim_matches([' ', '\t']);
        if !trimmed.starts_with('@') {
            return CronRule::parse_fields(expression);
        }
        let known = MACROS.iter().find(|(name, _)| *name == trimmed);
        match known {
            Some((_, fields)) => CronRule::parse_fields(fields),
            None => {
                let names: Vec<&str> = MACROS.iter().map(|(name, _)| *name).collect();
                Err(RuleError::new(
                    format!("{} is not a known macro", quoted(trimmed)),
                    format!("write one of {} or `@every 15m`", names.join(", ")),
                ))
            }
        }
    }

    fn parse_fields(expression: &str) -> Result<CronRule, RuleError> {
        let texts: Vec<(usize, &str)> = words(expression).collect();
        let specs = match texts.len() {
            6 => &SPECS[..],
            5 => &SPECS[1..],
            found => {
                let hint = match found {
                    7 => "leave the year out: there is no year field",
                    _ => "write five fields, as in `30 2 * * *`, or one of @hourly … @yearly",
                };
                return Err(RuleError::new(
                    format!("expected 5 fields ({SHAPE}) or 6 (second first), found {found}"),
                    hint,
                ));
            }
        };
        let mut fields = [Field::only(0); 6];
        let unwritten = SPECS.len() - specs.len();
        for ((spec, (offset, text)), field) in specs.iter().zip(texts).zip(&mut fields[unwritten..])
        {
            *field = Field::parse(spec, text, position(expression, offset))?;
        }
        CronRule::of(fields)
    }

    fn of(fields: [Field; 6]) -> Result<CronRule, RuleError> {
        let [second, minute, hour, day_of_month, month, day_of_week] = fields;
        // Vixie's rule: a day field that begins with a star narrows the other, two that do not
        // are alternatives.
        let either_day = !day_of_month.star && !day_of_week.star;
        if !either_day {
            refuse_impossible_dates(day_of_month, month)?;
        }
        let time = [(second, &SECOND, 0), (minute, &MINUTE, 0), (hour, &HOUR, 0)]
            .map(|(field, spec, shift)| numbers(field, spec, shift))
            .join(" ");
        let months = numbers(month, &MONTH, 0);
        let days = numbers(day_of_month, &DAY_OF_MONTH, 0);
        let weekdays = numbers(day_of_week, &DAY_OF_WEEK, 1);
        let (schedule, schedule_by_weekday) = if either_day {
            (
                schedule(&format!("{time} {days} {months} *"))?,
                Some(schedule(&format!("{time} * {months} {weekdays}"))?),
            )
        } else {
            (
                schedule(&format!("{time} {days} {months} {weekdays}"))?,
                None,
            )
        };
        Ok(CronRule {
            fields,
            wildcard: second.star || minute.star || hour.star,
            schedule,
            schedule_by_weekday,
        })
    }

    /// The first slot at the instant `from` or later, both in seconds.
    pub(super) fn next(&self, zone: &Zone, from: i64) -> Option<i64> {
        if self.wildcard {
            self.next_wildcard(zone, from)
        } else {
            self.next_fixed(zone, from)
        }
    }

    /// Every instant whose local time matches: none in a gap, both passes of a fold.
    fn next_wildcard(&self, zone: &Zone, from: i64) -> Option<i64> {
        let mut spans = zone.spans_from(from).iter();
        let mut span = spans.next()?;
        let mut searched_from = from + span.offset;
        let mut local = self.next_local(searched_from);
        loop {
            if local < span.local_end {
                return Some(local - span.offset);
            }
            span = spans.next()?;
            // What was found stays the answer, unless the clock went back to before the search
            // began, or jumped over what it found.
            if !(searched_from..=local).contains(&span.local_begin) {
                searched_from = span.local_begin;
                local = self.next_local(searched_from);
            }
        }
    }

    /// Each matching local time once: in a fold at its first pass, in a gap at the gap's end.
    fn next_fixed(&self, zone: &Zone, from: i64) -> Option<i64> {
        let spans = zone.spans_from(from);
        let first = spans.first()?;
        let mut local = self.next_local(if first.begins_from(from) {
            first.reached
        } else {
            first.reached.max(from + first.offset)
        });
        for span in spans {
            // `local` is never below `span.reached`, so that it is first met here or later.
            while local < span.local_end {
                match span.meet(local) {
                    Met::At(instant) | Met::GapEnd(instant) => return Some(instant),
                    Met::Never => local = self.next_local(span.local_begin),
                }
            }
        }
        None
    }

    /// The first matching local time at `from` or later, in seconds; `i64::MAX` if there is none.
    fn next_local(&self, from: i64) -> i64 {
        if from >= LOCAL_END {
            return i64::MAX;
        }
        // The crate looks strictly after, and not before 1970.
        let Some(after) = DateTime::from_timestamp(from.max(0) - 1, 0) else {
            return i64::MAX;
        };
        [Some(&self.schedule), self.schedule_by_weekday.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|schedule| schedule.after(&after).next())
            .map(|local| local.timestamp())
            .filter(|&local| local < LOCAL_END)
            .min()
            .unwrap_or(i64::MAX)
    }

    /// The expression in one fixed spelling, with numbers for names and macros written out.
    pub(super) fn normal_form(&self) -> String {
        let unwritten = usize::from(self.fields[0] == Field::only(0));
        let texts: Vec<String> = self
            .fields
            .iter()
            .zip(&SPECS)
            .skip(unwritten)
            .map(|(field, spec)| field.normal_form(spec))
            .collect();
        texts.join(" ")
    }
}

/// The words of `text` between spaces and tabs, each with the byte at which it begins.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split([' ', '\t'])
        .scan(0, |offset, word| {
            let begin = *offset;
            *offset += word.len() + 1;
            Some((begin, word))
        })
        .filter(|(_, word)| !word.is_empty())
}

/// Refuse days that none of the months has.
///
/// Only those never fire: between 1970 and 2099 every date, 29 February too, falls on every
/// weekday.
fn refuse_impossible_dates(day_of_month: Field, month: Field) -> Result<(), RuleError> {
    let longest = month.numbers().map(days_of_month_max).max().unwrap_or(0);
    let day = day_of_month.numbers().next().unwrap_or(0);
    if day <= longest {
        return Ok(());
    }
    let months = month.normal_form(&MONTH);
    Err(RuleError::new(
        format!("the expression never fires: month {months} has no day {day}"),
        format!("write a day-of-month of at most {longest}, or other months"),
    ))
}

fn days_of_month_max(month: u8) -> u8 {
    match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A field as the `cron` crate writes it, each number moved up by `shift`.
///
/// A full field is the one thing not listed: the crate keeps one shared set for `*`, and sixty
/// numbers per field and rule otherwise.
fn numbers(field: Field, spec: &FieldSpec, shift: u8) -> String {
    if field.is_full(spec) {
        return "*".to_owned();
    }
    let numbers: Vec<String> = field
        .numbers()
        .map(|number| (number + shift).to_string())
        .collect();
    numbers.join(",")
}

fn schedule(numbers: &str) -> Result<Schedule, RuleError> {
    Schedule::from_str(numbers).map_err(|error| {
        RuleError::new(
            format!(
                "the fields {} were not understood: {error}",
                quoted(numbers)
            ),
            "report this as a defect of Campanile, with the expression",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    fn first(expression: &str, after: &str, count: usize) -> Vec<String> {
        let rule = cron(expression, "UTC").unwrap();
        let end = time("2099-12-31T00:00:00Z");
        let slots = rule.slots(time(after), end).take(count);
        slots.map(|slot| slot.to_string()).collect()
    }

    fn days(expression: &str, count: usize) -> Vec<String> {
        let slots = first(expression, "2025-12-31T12:00:00Z", count);
        slots.iter().map(|slot| slot[..10].to_owned()).collect()
    }

    #[test]
    fn two_restricted_day_fields_are_alternatives() {
        assert_eq!(
            days("0 0 13 * FRI", 5),
            [
                "2026-01-02",
                "2026-01-09",
                "2026-01-13",
                "2026-01-16",
                "2026-01-23"
            ]
        );
        // Restricted is what does not begin with a star, even if it allows everything.
        assert_eq!(days("0 0 1-31 * MON", 2), ["2026-01-01", "2026-01-02"]);
        assert_eq!(days("0 0 13 * 0-6", 2), ["2026-01-01", "2026-01-02"]);
        assert_eq!(days("0 0 31 2 MON", 2), ["2026-02-02", "2026-02-09"]);
    }

    #[test]
    fn a_day_field_that_begins_with_a_star_narrows_the_other() {
        assert_eq!(days("0 0 13 * *", 2), ["2026-01-13", "2026-02-13"]);
        assert_eq!(days("0 0 * * MON", 2), ["2026-01-05", "2026-01-12"]);
        // Odd days that are Mondays; a 13th on Sunday, Wednesday or Saturday.
        assert_eq!(days("0 0 */2 * MON", 2), ["2026-01-05", "2026-01-19"]);
        assert_eq!(days("0 0 13 * */3", 2), ["2026-05-13", "2026-06-13"]);
        assert_eq!(days("0 0 13 * *,MON", 2), ["2026-01-13", "2026-02-13"]);
    }

    #[test]
    fn weekdays_count_from_sunday_as_zero() {
        assert_eq!(
            days("0 0 * * 1-5", 3),
            ["2026-01-01", "2026-01-02", "2026-01-05"]
        );
        assert_eq!(days("0 0 * * 0", 1), ["2026-01-04"]);
        assert_eq!(days("0 0 * * 7", 1), ["2026-01-04"]);
        assert_eq!(
            days("0 0 * * sat-Sun", 3),
            ["2026-01-03", "2026-01-04", "2026-01-10"]
        );
    }

    #[test]
    fn six_fields_begin_with_seconds() {
        assert_eq!(
            first("*/30 59 23 * * *", "2026-01-01T23:58:00Z", 3),
            [
                "2026-01-01T23:59:00Z",
                "2026-01-01T23:59:30Z",
                "2026-01-02T23:59:00Z"
            ]
        );
    }

    #[test]
    fn macros_stand_for_their_fields() {
        let cases = [
            ("@yearly", "0 0 1 1 *"),
            ("@annually", "0 0 1 1 *"),
            ("@monthly", "0 0 1 * *"),
            ("@weekly", "0 0 * * SUN"),
            ("@daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            (" @hourly\t", "0 * * * *"),
        ];
        for (name, fields) in cases {
            assert_eq!(cron(name, "UTC"), cron(fields, "UTC"), "{name}");
        }
    }

    #[test]
    fn rare_days_are_found_and_their_end_is_none() {
        assert_eq!(
            days("0 0 29 2 */6", 3),
            ["2032-02-29", "2048-02-29", "2060-02-29"]
        );
        assert!(first("0 0 29 2 *", "2096-02-29T00:00:00Z", 1).is_empty());
        assert!(first("* * 29 2 *", "2096-02-29T23:59:00Z", 1).is_empty());
    }

    #[test]
    fn a_part_of_a_second_is_before_the_next_whole_one() {
        assert_eq!(
            first("0 0 * * *", "2025-12-31T23:59:59.999999Z", 1),
            ["2026-01-01T00:00:00Z"]
        );
        assert_eq!(
            first("0 0 * * *", "2026-01-01T00:00:00.000001Z", 1),
            ["2026-01-02T00:00:00Z"]
        );
    }

    #[test]
    fn blanks_around_fields_do_not_matter_and_positions_count_them() {
        assert_eq!(cron(" \t0  2\t* * *\t", "UTC"), cron("0 2 * * *", "UTC"));
        let error = cron("  0\t\t24 * * *", "UTC").unwrap_err();
        assert!(error.to_string().contains("at position 6 "), "{error}");
    }
}
