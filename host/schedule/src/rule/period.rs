//! The period of an interval.

use std::fmt;

use super::error::{RuleError, quoted};
use super::part::Part;

const DAY_SECONDS: i64 = 86_400;

/// The longest delay, in seconds: a leap year.
const DELAY_MAX: i64 = 366 * DAY_SECONDS;

/// The longest period. A longer one is a typing error.
const YEARS_MAX: i64 = 100;

const HINT: &str = "write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y";

/// The time from one slot to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Period {
    pub(super) amount: i64,
    pub(super) unit: Unit,
}

/// What a period counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    /// Elapsed seconds; clock changes do not matter.
    Seconds,
    /// Days on the clock: the same time of day through every clock change.
    Days,
    /// Months on the clock: the day of the anchor, or the last day of a shorter month.
    Months,
}

/// The letters of periods, largest first: letters, English name and value.
const LETTERS: [(&str, &str, Period); 7] = [
    ("y", "year", Period::of(12, Unit::Months)),
    ("mo", "month", Period::of(1, Unit::Months)),
    ("w", "week", Period::of(7, Unit::Days)),
    ("d", "day", Period::of(1, Unit::Days)),
    ("h", "hour", Period::of(3_600, Unit::Seconds)),
    ("m", "minute", Period::of(60, Unit::Seconds)),
    ("s", "second", Period::of(1, Unit::Seconds)),
];

impl Period {
    pub(super) const fn of(amount: i64, unit: Unit) -> Period {
        Period { amount, unit }
    }

    pub(super) fn parse(part: Part<'_>) -> Result<Period, RuleError> {
        let part = part.trimmed();
        if part.text.is_empty() {
            return Err(RuleError::new("the period is empty", HINT));
        }
        let text = quoted(part.text);
        let mut sum: Option<Period> = None;
        let mut letters = &LETTERS[..];
        let mut rest = part;
        while !rest.text.is_empty() {
            let (digits, after_digits) = split_while(rest, |byte| byte.is_ascii_digit());
            let word = after_digits.trimmed();
            let (unit, tail) = split_while(word, |byte| byte.is_ascii_alphabetic());
            let (unit, at) = (unit.text, unit.position);
            for (part, name) in [(digits.text, "number"), (unit, "unit")] {
                if part.is_empty() {
                    let message = format!("the period {text} lacks a {name} at position {at}");
                    return Err(RuleError::new(message, HINT));
                }
            }
            let named = |known: &&(&str, &str, Period)| is_unit(unit, known.0, known.1);
            let Some((_, _, one)) = LETTERS.iter().find(named) else {
                let message = format!("{} at position {at} is not a unit of time", quoted(unit));
                return Err(RuleError::new(message, HINT));
            };
            let Some(index) = letters.iter().position(|known| named(&known)) else {
                return Err(RuleError::new(
                    format!("the unit `{unit}` at position {at} comes after one no larger"),
                    "write each unit once, the largest first, as in 1h30m",
                ));
            };
            letters = &letters[index + 1..];
            let count = i64::from(digits.text.parse().unwrap_or(u32::MAX));
            let before = sum.map_or(0, |sum| sum.amount);
            if sum.is_some_and(|sum| sum.unit != one.unit) {
                return Err(RuleError::new(
                    format!(
                        "the unit `{unit}` at position {at} cannot be added to those before it"
                    ),
                    "write years with months, weeks with days, or hours with minutes and seconds: \
                     only the last are elapsed time, so 36h instead of 1d12h",
                ));
            }
            sum = Some(Period::of(before + one.amount * count, one.unit));
            rest = tail.trimmed();
        }
        match sum {
            Some(Period { amount: 0, .. }) => Err(RuleError::new(
                format!("the period {text} is zero"),
                "write a period of at least 1s",
            )),
            Some(period) if !period.is_too_long() => Ok(period),
            _ => Err(RuleError::new(
                format!("the period {text} is longer than {YEARS_MAX} years"),
                "write a shorter period; for a single time, use the kind `at`",
            )),
        }
    }

    /// Read a period of elapsed time of at most a year.
    pub(super) fn elapsed(expression: &str) -> Result<Period, RuleError> {
        let period = Period::parse(Part::whole(expression))?;
        let instead = match period.unit {
            Unit::Seconds if period.amount > DELAY_MAX => {
                return Err(RuleError::new(
                    format!("the period `{period}` is longer than a year"),
                    "write at most `8784h`",
                ));
            }
            Unit::Seconds => return Ok(period),
            Unit::Days => format!("`{}h`", period.amount * 24),
            Unit::Months => "hours, such as `24h`".to_owned(),
        };
        Err(RuleError::new(
            format!("the period `{period}` is not elapsed time"),
            format!("write {instead}: days and more follow the clock, and a delay does not"),
        ))
    }

    fn is_too_long(self) -> bool {
        let year = match self.unit {
            Unit::Seconds => 366 * DAY_SECONDS,
            Unit::Days => 366,
            Unit::Months => 12,
        };
        self.amount > YEARS_MAX * year
    }

    /// Returns the letters, names and counts that make up the period, largest first.
    pub(super) fn parts(self) -> impl Iterator<Item = (&'static str, &'static str, i64)> {
        let mut left = self.amount;
        let fitting = LETTERS
            .iter()
            .filter(move |(_, _, one)| one.unit == self.unit);
        let counted = fitting.map(move |(letters, name, one)| {
            let count = left / one.amount;
            left %= one.amount;
            (*letters, *name, count)
        });
        counted.filter(|(_, _, count)| *count > 0)
    }
}

/// Print one fixed spelling: `1h30m` for `90m`, `2w` for `14d`, `1y6mo` for `18mo`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts()
            .try_for_each(|(letters, _, count)| write!(f, "{count}{letters}"))
    }
}

/// Whether `word` stands for the unit with these letters and this name: `m`, `min`, `mins`, `minute` or `minutes`.
fn is_unit(word: &str, letters: &str, name: &str) -> bool {
    let singular = word.strip_suffix('s').unwrap_or(word);
    let abbreviation = match letters {
        "h" => "hr",
        "m" => "min",
        "s" => "sec",
        _ => name,
    };
    word == letters || singular == name || singular == abbreviation
}

/// Split `part` before the first byte that is not `wanted`, a test for ASCII.
fn split_while<'a>(part: Part<'a>, wanted: impl Fn(&u8) -> bool) -> (Part<'a>, Part<'a>) {
    part.split_at(part.text.bytes().take_while(wanted).count())
}
