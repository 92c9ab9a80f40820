//! Intervals: a slot at the anchor, and one after every period from there.

use std::fmt;

use chrono::{DateTime, Datelike as _, Months};

use super::error::{RuleError, position, quoted};
use super::zone::{LOCAL_END, LOCAL_FIRST, Met, Zone};
use crate::clock::Timestamp;

const SECOND_US: i64 = 1_000_000;
const DAY_SECONDS: i64 = 86_400;

/// No period may be longer. Longer ones are slips of the keyboard.
const YEARS_MAX: i64 = 100;

const HINT: &str = "write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y";

/// A period and the instant from which it counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interval {
    period: Period,
    /// The first slot.
    anchor: Timestamp,
}

/// How far it is from one slot to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Period {
    /// Elapsed seconds, whatever the clocks on the wall do.
    Seconds(i64),
    /// Days on the wall clock: the same time of day, through every change of offset.
    Days(i64),
    /// Months on the wall clock: the anchor's day, or the last of a month that lacks it.
    Months(i64),
}

/// The units, largest first, and how many of the base unit one is.
const UNITS: [(&str, Period); 7] = [
    ("y", Period::Months(12)),
    ("mo", Period::Months(1)),
    ("w", Period::Days(7)),
    ("d", Period::Days(1)),
    ("h", Period::Seconds(3_600)),
    ("m", Period::Seconds(60)),
    ("s", Period::Seconds(1)),
];

impl Interval {
    /// `period` counted from `anchor`, else from local 1970-01-01T00:00:00.
    ///
    /// # Errors
    /// When the anchor is not in the local years 1970 to 2099.
    pub(super) fn new(
        period: Period,
        anchor: Option<Timestamp>,
        zone: &Zone,
    ) -> Result<Interval, RuleError> {
        let anchor = match anchor {
            None => instant_of(LOCAL_FIRST * SECOND_US, zone).unwrap_or(Timestamp::EPOCH),
            Some(anchor) if answers_for(anchor, zone) => anchor,
            Some(anchor) => {
                return Err(RuleError::new(
                    format!("the anchor {anchor} is outside the years 1970 to 2099"),
                    "write an anchor of these years; any slot of the grid will do",
                ));
            }
        };
        Ok(Interval { period, anchor })
    }

    pub(super) fn period(&self) -> Period {
        self.period
    }

    /// The first slot after `after`.
    pub(super) fn next(&self, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
        if after < self.anchor {
            return Some(self.anchor);
        }
        match self.period {
            Period::Seconds(seconds) => {
                let period = seconds * SECOND_US;
                let elapsed = after.micros() - self.anchor.micros();
                let slot = self.anchor.micros() + (elapsed / period + 1) * period;
                Some(Timestamp::from_micros(slot)).filter(|&slot| answers_for(slot, zone))
            }
            Period::Days(days) => {
                let anchor = local_of(self.anchor, zone);
                let period = days * DAY_SECONDS * SECOND_US;
                let passed = (local_of(after, zone) - anchor) / period;
                first_after(zone, after, passed, |count| Some(anchor + count * period))
            }
            Period::Months(months) => {
                let anchor = DateTime::from_timestamp_micros(local_of(self.anchor, zone))?;
                let now = DateTime::from_timestamp_micros(local_of(after, zone))?;
                let month = |time: DateTime<_>| i64::from(time.year() * 12 + time.month0() as i32);
                let passed = (month(now) - month(anchor)) / months;
                first_after(zone, after, passed, |count| {
                    let months = Months::new(u32::try_from(count * months).ok()?);
                    let local = anchor.checked_add_months(months)?;
                    Some(local.timestamp_micros())
                })
            }
        }
    }
}

/// The first slot after `after`, when `passed` periods or one less have passed.
///
/// The slots before that are past: the clock shows a later time than theirs, so it has shown theirs.
fn first_after(
    zone: &Zone,
    after: Timestamp,
    passed: i64,
    local_slot: impl Fn(i64) -> Option<i64>,
) -> Option<Timestamp> {
    for count in passed.max(1).. {
        let local = local_slot(count).filter(|&local| local < LOCAL_END * SECOND_US)?;
        let slot = instant_of(local, zone).filter(|&slot| slot > after);
        if slot.is_some() {
            return slot;
        }
    }
    None
}

/// Local microseconds of an instant.
fn local_of(instant: Timestamp, zone: &Zone) -> i64 {
    let micros = instant.micros();
    micros + zone.offset_at(micros.div_euclid(SECOND_US)) * SECOND_US
}

/// The instant of local microseconds, if there is one.
fn instant_of(local: i64, zone: &Zone) -> Option<Timestamp> {
    match zone.meet(local.div_euclid(SECOND_US)) {
        Met::At(second) => Some(second * SECOND_US + local.rem_euclid(SECOND_US)),
        Met::GapEnd(second) => Some(second * SECOND_US),
        Met::Never => None,
    }
    .map(Timestamp::from_micros)
}

/// Whether `instant` is in the local years 1970 to 2099.
pub(super) fn answers_for(instant: Timestamp, zone: &Zone) -> bool {
    (LOCAL_FIRST * SECOND_US..LOCAL_END * SECOND_US).contains(&local_of(instant, zone))
}

impl Period {
    /// Read the period that begins at the byte `begin` of `expression`.
    ///
    /// # Errors
    /// When it is not whole numbers with units, mixes elapsed and wall-clock units, is zero, or
    /// is longer than 100 years.
    pub(super) fn parse(expression: &str, begin: usize) -> Result<Period, RuleError> {
        let text = expression[begin..].trim_matches([' ', '\t']);
        let end = expression.trim_end_matches([' ', '\t']).len();
        // `tail` is always an end of `text`, and so of the trimmed expression.
        let position_of = |tail: &str| position(expression, end - tail.len());
        if text.is_empty() {
            return Err(RuleError::new("the period is empty", HINT));
        }
        let mut sum: Option<Period> = None;
        let mut units = &UNITS[..];
        let mut rest = text;
        while !rest.is_empty() {
            let (digits, after_digits) = split_while(rest, |byte| byte.is_ascii_digit());
            let (unit, tail) = split_while(after_digits, |byte| byte.is_ascii_alphabetic());
            let at = position_of(after_digits);
            if digits.is_empty() {
                let message = format!(
                    "the period {} lacks a number at position {at}",
                    quoted(text)
                );
                return Err(RuleError::new(message, HINT));
            }
            if unit.is_empty() {
                let message = format!("the period {} lacks a unit at position {at}", quoted(text));
                return Err(RuleError::new(message, HINT));
            }
            let named = |known: &&(&str, Period)| known.0 == unit;
            let Some((_, one)) = UNITS.iter().find(named) else {
                let message = format!("{} at position {at} is not a unit of time", quoted(unit));
                return Err(RuleError::new(message, HINT));
            };
            let Some(index) = units.iter().position(|known| named(&known)) else {
                return Err(RuleError::new(
                    format!("the unit `{unit}` at position {at} comes after one no larger"),
                    "write each unit once, the largest first, as in 1h30m",
                ));
            };
            units = &units[index + 1..];
            let part = one.times(digits.parse().unwrap_or(u32::MAX));
            sum = Some(match sum {
                None => part,
                Some(sum) => sum.plus(part).ok_or_else(|| {
                    RuleError::new(
                        format!(
                            "the unit `{unit}` at position {at} cannot be added to those before it"
                        ),
                        "write years with months, weeks with days, or hours with minutes and \
                         seconds: only the last are elapsed time, so 36h instead of 1d12h",
                    )
                })?,
            });
            rest = tail;
        }
        match sum {
            Some(period) if period.is_zero() => Err(RuleError::new(
                format!("the period {} is zero", quoted(text)),
                "write a period of at least 1s",
            )),
            Some(period) if !period.is_too_long() => Ok(period),
            _ => Err(RuleError::new(
                format!(
                    "the period {} is longer than {YEARS_MAX} years",
                    quoted(text)
                ),
                "write a shorter period; for a single time, use the kind `at`",
            )),
        }
    }

    fn times(self, count: u32) -> Period {
        let count = i64::from(count);
        match self {
            Period::Seconds(seconds) => Period::Seconds(seconds * count),
            Period::Days(days) => Period::Days(days * count),
            Period::Months(months) => Period::Months(months * count),
        }
    }

    /// The sum, if both are of one sort.
    fn plus(self, other: Period) -> Option<Period> {
        match (self, other) {
            (Period::Seconds(left), Period::Seconds(right)) => Some(Period::Seconds(left + right)),
            (Period::Days(left), Period::Days(right)) => Some(Period::Days(left + right)),
            (Period::Months(left), Period::Months(right)) => Some(Period::Months(left + right)),
            _ => None,
        }
    }

    fn is_zero(self) -> bool {
        matches!(
            self,
            Period::Seconds(0) | Period::Days(0) | Period::Months(0)
        )
    }

    fn is_too_long(self) -> bool {
        match self {
            Period::Seconds(seconds) => seconds > YEARS_MAX * 366 * DAY_SECONDS,
            Period::Days(days) => days > YEARS_MAX * 366,
            Period::Months(months) => months > YEARS_MAX * 12,
        }
    }

    fn amount(self) -> i64 {
        match self {
            Period::Seconds(amount) | Period::Days(amount) | Period::Months(amount) => amount,
        }
    }
}

/// One fixed spelling: `90m` is `1h30m`, `14d` is `2w`, `18mo` is `1y6mo`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.amount();
        for (unit, one) in UNITS {
            // Units of another sort cannot be added to this period.
            if self.plus(one).is_some() {
                let count = left / one.amount();
                left %= one.amount();
                if count > 0 {
                    write!(f, "{count}{unit}")?;
                }
            }
        }
        Ok(())
    }
}

/// `text` cut before the first byte that is not `wanted`, an ASCII test.
fn split_while(text: &str, wanted: impl Fn(&u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(|byte| wanted(byte)).count())
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Rule, RuleKind, RuleText};
    use super::*;

    fn anchored(expression: &str, anchor: &str, zone: &str) -> Rule {
        rule(&RuleText {
            anchor: Some(time(anchor)),
            ..RuleText::new(RuleKind::Every, expression, zone)
        })
        .unwrap()
    }

    #[test]
    fn a_period_is_the_sum_of_its_parts() {
        let cases = [
            ("10s", Period::Seconds(10), "10s"),
            ("15m", Period::Seconds(900), "15m"),
            ("1h30m", Period::Seconds(5_400), "1h30m"),
            ("90m", Period::Seconds(5_400), "1h30m"),
            ("0h5s", Period::Seconds(5), "5s"),
            ("48h", Period::Seconds(172_800), "48h"),
            ("1d", Period::Days(1), "1d"),
            ("1w3d", Period::Days(10), "1w3d"),
            ("14d", Period::Days(14), "2w"),
            ("1mo", Period::Months(1), "1mo"),
            ("1y6mo", Period::Months(18), "1y6mo"),
            ("100y", Period::Months(1_200), "100y"),
        ];
        for (text, period, normal) in cases {
            assert_eq!(Period::parse(text, 0), Ok(period), "{text}");
            assert_eq!(period.to_string(), normal);
            assert_eq!(Period::parse(normal, 0), Ok(period));
        }
    }

    #[test]
    fn without_an_anchor_the_grid_is_that_of_the_zone() {
        let next = |expression, zone, after| every(expression, zone).unwrap().next(time(after));
        let cases = [
            (
                "10s",
                "UTC",
                "2026-05-01T00:00:03.2Z",
                "2026-05-01T00:00:10Z",
            ),
            ("10s", "UTC", "2026-05-01T00:00:10Z", "2026-05-01T00:00:20Z"),
            (
                "15m",
                "Asia/Kolkata",
                "2026-05-01T09:01:00+05:30",
                "2026-05-01T09:15:00+05:30",
            ),
            (
                "1d",
                "Europe/Paris",
                "2026-05-01T09:01:00+02:00",
                "2026-05-02T00:00:00+02:00",
            ),
            (
                "1mo",
                "Europe/Paris",
                "2026-05-01T09:01:00+02:00",
                "2026-06-01T00:00:00+02:00",
            ),
            (
                "1y",
                "Europe/Paris",
                "2026-05-01T09:01:00+02:00",
                "2027-01-01T00:00:00+01:00",
            ),
        ];
        for (expression, zone, after, slot) in cases {
            assert_eq!(
                next(expression, zone, after),
                Some(time(slot)),
                "{expression} {zone}"
            );
        }
    }

    #[test]
    fn month_ends_clamp_from_the_day_of_the_anchor() {
        let rule = anchored("1mo", "2027-10-31T12:00:00Z", "UTC");
        let slots: Vec<String> = rule
            .slots(time("2027-10-31T12:00:00Z"), time("2028-04-30T12:00:00Z"))
            .map(|slot| slot.to_string()[..10].to_owned())
            .collect();
        assert_eq!(
            slots,
            [
                "2027-11-30",
                "2027-12-31",
                "2028-01-31",
                "2028-02-29",
                "2028-03-31",
                "2028-04-30"
            ]
        );
        let leap = anchored("1y", "2024-02-29T12:00:00Z", "UTC");
        assert_eq!(
            leap.next(time("2026-12-01T00:00:00Z")),
            Some(time("2027-02-28T12:00:00Z"))
        );
        assert_eq!(
            leap.next(time("2027-12-01T00:00:00Z")),
            Some(time("2028-02-29T12:00:00Z"))
        );
    }

    #[test]
    fn nothing_rings_before_the_anchor_and_its_microseconds_stay() {
        let anchor = "2030-01-01T00:00:00.25Z";
        for (expression, second) in [
            ("1h", "2030-01-01T01:00:00.25Z"),
            ("1d", "2030-01-02T00:00:00.25Z"),
            ("1mo", "2030-02-01T00:00:00.25Z"),
        ] {
            let rule = anchored(expression, anchor, "UTC");
            assert_eq!(rule.next(time("2026-01-01T00:00:00Z")), Some(time(anchor)));
            assert_eq!(rule.next(time(anchor)), Some(time(second)));
        }
    }

    #[test]
    fn an_anchor_of_another_century_is_refused() {
        for anchor in ["1969-12-31T23:59:59Z", "2100-01-01T00:00:00Z"] {
            let error = rule(&RuleText {
                anchor: Some(time(anchor)),
                ..RuleText::new(RuleKind::Every, "1h", "UTC")
            })
            .unwrap_err();
            let message = format!("the anchor {anchor} is outside the years 1970 to 2099");
            assert_eq!(error.to_string(), message);
        }
    }
}
