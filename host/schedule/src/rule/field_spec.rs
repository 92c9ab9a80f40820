//! The six fields of a cron expression: their numbers and names, and how one value is read.

use super::error::{RuleError, quoted};
use super::part::Part;

#[derive(Debug, PartialEq)]
pub(super) struct FieldSpec {
    pub(super) name: &'static str,
    pub(super) min: u8,
    pub(super) max: u8,
    /// The largest number that may be written: 7 for Sunday, else `max`.
    pub(super) written_max: u8,
    /// The largest number that `H` alone may stand for: 28 for a day that every month has, else `max`.
    pub(super) hashed_max: u8,
    /// Names of the numbers from `min` on. Expressions have the first three letters.
    pub(super) names: &'static [&'static str],
}

pub(super) const SECOND: FieldSpec = FieldSpec::numbers("second", 0, 59);
pub(super) const MINUTE: FieldSpec = FieldSpec::numbers("minute", 0, 59);
pub(super) const HOUR: FieldSpec = FieldSpec::numbers("hour", 0, 23);
pub(super) const DAY_OF_MONTH: FieldSpec = FieldSpec {
    hashed_max: 28,
    ..FieldSpec::numbers("day-of-month", 1, 31)
};
pub(super) const MONTH: FieldSpec = FieldSpec {
    names: &MONTHS,
    ..FieldSpec::numbers("month", 1, 12)
};
pub(super) const DAY_OF_WEEK: FieldSpec = FieldSpec {
    written_max: 7,
    names: &WEEKDAYS,
    ..FieldSpec::numbers("day-of-week", 0, 6)
};

#[rustfmt::skip]
const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
];

#[rustfmt::skip]
const WEEKDAYS: [&str; 7] = [
    "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday",
];

/// The number of letters that a name has in an expression.
const SHORT: usize = 3;

/// A number of a field, and whether a name was written for it.
pub(super) struct Value {
    pub(super) number: u8,
    pub(super) named: bool,
}

impl FieldSpec {
    const fn numbers(name: &'static str, min: u8, max: u8) -> FieldSpec {
        FieldSpec {
            name,
            min,
            max,
            written_max: max,
            hashed_max: max,
            names: &[],
        }
    }

    /// Returns `number`, with 0 for 7: both are Sunday.
    pub(super) fn folded(&self, number: u8) -> u8 {
        if number > self.max { self.min } else { number }
    }

    /// Read both ends of a range.
    pub(super) fn ends(
        &self,
        first: Part<'_>,
        last: Part<'_>,
    ) -> Result<(Value, Value), RuleError> {
        let first = self.value(first)?;
        let mut last = self.value(last)?;
        // `FRI-SUN` has one meaning only, so the name stands for 7 there.
        if last.named && last.number < first.number && self.written_max > self.max + last.number {
            last.number = self.written_max;
        }
        Ok((first, last))
    }

    pub(super) fn step(&self, Part { text, position }: Part<'_>) -> Result<usize, RuleError> {
        // A number too long for `usize` is larger than every field, like any other large step.
        let step = text.parse().unwrap_or(usize::MAX);
        if is_digits(text) && step > 0 {
            return Ok(step);
        }
        let place = format!("the step of the {} field at position {position}", self.name);
        Err(RuleError::new(
            match text {
                "" => format!("{place} is missing"),
                _ => format!("{place} is {}, not a number of at least 1", quoted(text)),
            },
            "write a whole number of at least 1 after the `/`, as in `*/15`",
        ))
    }

    pub(super) fn value(&self, part: Part<'_>) -> Result<Value, RuleError> {
        let Part { text, position } = part;
        if text.is_empty() {
            let name = self.name;
            return Err(RuleError::new(
                format!("a number in the {name} field is missing at position {position}"),
                "write a number, or both ends of a range, as in `1-5`",
            ));
        }
        let named = !is_digits(text);
        let number = if named {
            self.named(part)?
        } else {
            let number = text.parse().ok();
            let number = number.filter(|number| (self.min..=self.written_max).contains(number));
            number.ok_or_else(|| self.out_of_range(part))?
        };
        Ok(Value { number, named })
    }

    /// Returns the number of a name.
    fn named(&self, part: Part<'_>) -> Result<u8, RuleError> {
        let begins = |name: &&str| {
            let letters = part.text.get(..SHORT);
            letters.is_some_and(|letters| name[..SHORT].eq_ignore_ascii_case(letters))
        };
        let hint = match (self.min..).zip(self.names).find(|(_, name)| begins(name)) {
            Some((number, _)) if part.text.len() == SHORT => return Ok(number),
            Some((_, name)) => format!("write `{}`: names have three letters", short(name)),
            None => self.allowed(),
        };
        let wrong = match self.names {
            [] => "is not a number",
            _ => "is neither a number nor a name",
        };
        Err(self.refusal(part, wrong, hint))
    }

    fn out_of_range(&self, part: Part<'_>) -> RuleError {
        let range = format!("is out of range {}-{}", self.min, self.written_max);
        let mut hint = self.allowed();
        if *self == HOUR && part.text.parse().is_ok_and(|number: u8| number < 60) {
            hint += "; the minute stands before the hour";
        }
        self.refusal(part, &range, hint)
    }

    /// Returns the error about `part`. Its message has the field, the position and `wrong`; its hint says what to write instead.
    pub(super) fn refusal(
        &self,
        part: Part<'_>,
        wrong: &str,
        hint: impl Into<String>,
    ) -> RuleError {
        let (text, position, name) = (quoted(part.text), part.position, self.name);
        RuleError::new(
            format!("{text} in the {name} field at position {position} {wrong}"),
            hint,
        )
    }

    fn allowed(&self) -> String {
        let numbers = format!("write {} to {}", self.min, self.written_max);
        match self.names {
            [first, .., last] => format!("{numbers} or {} to {}", short(first), short(last)),
            _ => numbers,
        }
    }

    /// Returns the English name of `number` of this field, or the number itself.
    pub(super) fn name_of(&self, number: u8) -> String {
        let name = self.names.get(usize::from(number - self.min));
        name.map_or_else(|| number.to_string(), |name| (*name).to_owned())
    }

    /// Print `number` as expressions have it, as a name if it was `named`.
    pub(super) fn show(&self, number: u8, named: bool) -> String {
        if named {
            short(&self.name_of(number))
        } else {
            number.to_string()
        }
    }
}

/// Returns a name as expressions have it: `JAN`.
fn short(name: &str) -> String {
    name[..SHORT].to_ascii_uppercase()
}

/// Returns the positions of the ones in `bits`, ascending.
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let one = (bits != 0).then(|| bits.trailing_zeros() as u8);
        bits &= bits.wrapping_sub(1);
        one
    })
}

/// Print the numbers in `bits`, ascending. Three or more in a row are a range with `to` between its ends.
pub(super) fn ranges(bits: u64, to: &str, show: impl Fn(u8) -> String) -> Vec<String> {
    let mut texts = Vec::new();
    for (first, last) in runs(bits) {
        if last - first >= 2 {
            texts.push(format!("{}{to}{}", show(first), show(last)));
        } else {
            texts.extend((first..=last).map(&show));
        }
    }
    texts
}

/// Returns the first and the last of each run of ones in `bits`, ascending.
pub(super) fn runs(bits: u64) -> Vec<(u8, u8)> {
    let numbers: Vec<u8> = ones(bits).collect();
    let runs = numbers.chunk_by(|left, right| left + 1 == *right);
    runs.map(|run| (run[0], run[run.len() - 1])).collect()
}

pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
