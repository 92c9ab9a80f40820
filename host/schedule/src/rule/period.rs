//! How far it is from one slot of an interval to the next.

use std::fmt;

use super::error::{RuleError, position, quoted};

const DAY_SECONDS: i64 = 86_400;

/// A year of the longest kind, in seconds: no pause is longer.
const DELAY_MAX: i64 = 366 * DAY_SECONDS;

/// No period may be longer. Longer ones are slips of the keyboard.
const YEARS_MAX: i64 = 100;

const HINT: &str = "write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y";

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

/// The units, largest first, with their English names, and how many of the base unit one is.
const UNITS: [(&str, &str, Period); 7] = [
    ("y", "year", Period::Months(12)),
    ("mo", "month", Period::Months(1)),
    ("w", "week", Period::Days(7)),
    ("d", "day", Period::Days(1)),
    ("h", "hour", Period::Seconds(3_600)),
    ("m", "minute", Period::Seconds(60)),
    ("s", "second", Period::Seconds(1)),
];

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
            let named = |known: &&(&str, &str, Period)| known.0 == unit;
            let Some((_, _, one)) = UNITS.iter().find(named) else {
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

    /// Read a period of elapsed time, of at most a year.
    ///
    /// # Errors
    /// As [`Period::parse`], and when it is of days or more.
    pub(super) fn elapsed(expression: &str) -> Result<Period, RuleError> {
        let period = Period::parse(expression, 0)?;
        let instead = match period {
            Period::Seconds(seconds) if seconds > DELAY_MAX => {
                return Err(RuleError::new(
                    format!("the period `{period}` is longer than a year"),
                    "write at most `8784h`",
                ));
            }
            Period::Seconds(_) => return Ok(period),
            Period::Days(days) => format!("`{}h`", days * 24),
            Period::Months(_) => "hours, such as `24h`".to_owned(),
        };
        Err(RuleError::new(
            format!("the period `{period}` is not elapsed time"),
            format!("write {instead}: days and more follow the clock, and a delay does not"),
        ))
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

    /// How many of which units make it up: their letters, names and counts, largest first.
    fn units(self) -> impl Iterator<Item = (&'static str, &'static str, i64)> {
        let mut left = self.amount();
        // Units of another sort cannot be added to this period.
        let fitting = UNITS
            .iter()
            .filter(move |(_, _, one)| self.plus(*one).is_some());
        let counted = fitting.map(move |(letters, name, one)| {
            let count = left / one.amount();
            left %= one.amount();
            (*letters, *name, count)
        });
        counted.filter(|(_, _, count)| *count > 0)
    }

    /// How many of which units make it up, by their English names, largest first.
    pub(super) fn parts(self) -> impl Iterator<Item = (i64, &'static str)> {
        self.units().map(|(_, name, count)| (count, name))
    }
}

/// One fixed spelling: `90m` is `1h30m`, `14d` is `2w`, `18mo` is `1y6mo`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.units()
            .try_for_each(|(letters, _, count)| write!(f, "{count}{letters}"))
    }
}

/// `text` cut before the first byte that is not `wanted`, an ASCII test.
fn split_while(text: &str, wanted: impl Fn(&u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(|byte| wanted(byte)).count())
}
