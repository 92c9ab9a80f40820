//! The period of an interval.

use std::fmt;
use std::mem::discriminant;

use super::error::{RuleError, position, quoted};

const DAY_SECONDS: i64 = 86_400;

/// The longest delay, in seconds: a leap year.
const DELAY_MAX: i64 = 366 * DAY_SECONDS;

/// The longest period. A longer one is a typing error.
const YEARS_MAX: i64 = 100;

const HINT: &str = "write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y";

/// The time from one slot to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Period {
    /// Elapsed seconds; clock changes do not matter.
    Seconds(i64),
    /// Days on the clock: the same time of day through every clock change.
    Days(i64),
    /// Months on the clock: the day of the anchor, or the last day of a shorter month.
    Months(i64),
}

/// The units, largest first: letters, English name and value.
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
    pub(super) fn parse(expression: &str, begin: usize) -> Result<Period, RuleError> {
        let text = expression[begin..].trim_matches([' ', '\t']);
        let end = expression.trim_end_matches([' ', '\t']).len();
        // `tail` is an end of `text`, and so of the trimmed expression.
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
            for (part, name) in [(digits, "number"), (unit, "unit")] {
                if part.is_empty() {
                    return Err(RuleError::new(
                        format!(
                            "the period {} lacks a {name} at position {at}",
                            quoted(text)
                        ),
                        HINT,
                    ));
                }
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
            let part = one.with(one.amount() * i64::from(digits.parse().unwrap_or(u32::MAX)));
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
            Some(period) if period.amount() == 0 => Err(RuleError::new(
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

    /// Read a period of elapsed time of at most a year.
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

    /// Return a period of the same sort with another amount.
    fn with(self, amount: i64) -> Period {
        match self {
            Period::Seconds(_) => Period::Seconds(amount),
            Period::Days(_) => Period::Days(amount),
            Period::Months(_) => Period::Months(amount),
        }
    }

    /// Return the sum; `None` when the units are of different sorts.
    fn plus(self, other: Period) -> Option<Period> {
        let is_same_sort = discriminant(&self) == discriminant(&other);
        is_same_sort.then(|| self.with(self.amount() + other.amount()))
    }

    fn is_too_long(self) -> bool {
        let year = match self {
            Period::Seconds(_) => 366 * DAY_SECONDS,
            Period::Days(_) => 366,
            Period::Months(_) => 12,
        };
        self.amount() > YEARS_MAX * year
    }

    fn amount(self) -> i64 {
        match self {
            Period::Seconds(amount) | Period::Days(amount) | Period::Months(amount) => amount,
        }
    }

    /// Return the letters, names and counts of the units that make up the period, largest first.
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

    /// Return the counts and English names of the units that make up the period, largest first.
    pub(super) fn parts(self) -> impl Iterator<Item = (i64, &'static str)> {
        self.units().map(|(_, name, count)| (count, name))
    }
}

/// Print one fixed spelling: `1h30m` for `90m`, `2w` for `14d`, `1y6mo` for `18mo`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.units()
            .try_for_each(|(letters, _, count)| write!(f, "{count}{letters}"))
    }
}

/// Split `text` before the first byte that is not `wanted`, a test for ASCII.
fn split_while(text: &str, wanted: impl Fn(&u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(|byte| wanted(byte)).count())
}
