//! The six fields of a cron expression: their numbers and names, and how one value is read.

use super::error::{RuleError, quoted};

#[derive(Debug, PartialEq)]
pub(super) struct FieldSpec {
    pub(super) name: &'static str,
    pub(super) min: u8,
    pub(super) max: u8,
    /// The largest number that may be written: 7 for Sunday, else `max`.
    pub(super) written_max: u8,
    /// The largest number that `H` alone may stand for: 28 for a day that every month has, else `max`.
    pub(super) hashed_max: u8,
    /// Names of the numbers from `min` on.
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
    names: &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
    ..FieldSpec::numbers("month", 1, 12)
};
pub(super) const DAY_OF_WEEK: FieldSpec = FieldSpec {
    written_max: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    ..FieldSpec::numbers("day-of-week", 0, 6)
};

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

    /// Return `number`, with 0 for 7: both are Sunday.
    pub(super) fn folded(&self, number: u8) -> u8 {
        if number > self.max { self.min } else { number }
    }

    /// Read both ends of a range whose text begins at `position`.
    pub(super) fn ends(
        &self,
        first_text: &str,
        last_text: &str,
        position: usize,
    ) -> Result<(Value, Value), RuleError> {
        let first = self.value(first_text, position)?;
        let last_position = position + first_text.chars().count() + 1;
        let mut last = self.value(last_text, last_position)?;
        // `FRI-SUN` has one meaning only, so the name stands for 7 there.
        if last.named && last.number < first.number && self.written_max > self.max + last.number {
            last.number = self.written_max;
        }
        Ok((first, last))
    }

    pub(super) fn step(&self, text: &str, position: usize) -> Result<usize, RuleError> {
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

    pub(super) fn value(&self, text: &str, position: usize) -> Result<Value, RuleError> {
        if text.is_empty() {
            return Err(RuleError::new(
                format!(
                    "a number in the {} field is missing at position {position}",
                    self.name
                ),
                "write a number, or both ends of a range, as in `1-5`",
            ));
        }
        if is_digits(text) {
            let number = text.parse().ok();
            return match number.filter(|number| (self.min..=self.written_max).contains(number)) {
                Some(number) => Ok(Value {
                    number,
                    named: false,
                }),
                None => Err(self.out_of_range(text, position)),
            };
        }
        let is_name = |name: &&str| name.eq_ignore_ascii_case(text);
        if let Some((number, _)) = (self.min..).zip(self.names).find(|(_, name)| is_name(name)) {
            return Ok(Value {
                number,
                named: true,
            });
        }
        let begins_with =
            |name: &&&str| text.get(..3).is_some_and(|t| name.eq_ignore_ascii_case(t));
        let hint = match self.names.iter().find(begins_with) {
            Some(name) => format!("write `{name}`: names have three letters"),
            None => self.allowed(),
        };
        let wrong = match self.names {
            [] => "is not a number",
            _ => "is neither a number nor a name",
        };
        Err(self.refusal(text, position, wrong, hint))
    }

    fn out_of_range(&self, text: &str, position: usize) -> RuleError {
        let range = format!("is out of range {}-{}", self.min, self.written_max);
        let mut hint = self.allowed();
        if *self == HOUR && text.parse().is_ok_and(|number: u8| number < 60) {
            hint += "; the minute stands before the hour";
        }
        self.refusal(text, position, &range, hint)
    }

    /// Refuse `text`: say the field, the position and what is wrong, and what to write instead.
    pub(super) fn refusal(
        &self,
        text: &str,
        position: usize,
        wrong: &str,
        hint: impl Into<String>,
    ) -> RuleError {
        let text = quoted(text);
        let name = self.name;
        RuleError::new(
            format!("{text} in the {name} field at position {position} {wrong}"),
            hint,
        )
    }

    fn allowed(&self) -> String {
        let numbers = format!("write {} to {}", self.min, self.written_max);
        match self.names {
            [first, .., last] => format!("{numbers} or {first} to {last}"),
            _ => numbers,
        }
    }

    /// Print `number` of this field, as a name if it was `named`.
    pub(super) fn show(&self, number: u8, named: bool) -> String {
        let name = self.names.get(usize::from(number - self.min));
        match name {
            Some(name) if named => (*name).to_owned(),
            _ => number.to_string(),
        }
    }
}

/// Return the positions of the ones in `bits`, ascending.
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let one = (bits != 0).then(|| bits.trailing_zeros() as u8);
        bits &= bits.wrapping_sub(1);
        one
    })
}

pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
