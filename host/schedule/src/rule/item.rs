//! One item of a field: a number, a name, a range or a step.

use super::error::{RuleError, quoted};
use super::field::{FieldSpec, HOUR};

/// A number as written, and whether by name.
pub(super) struct Value {
    pub(super) number: u8,
    pub(super) named: bool,
}

impl FieldSpec {
    /// The numbers of one item between commas, as bits.
    pub(super) fn item(&self, item: &str, position: usize) -> Result<u64, RuleError> {
        if item.is_empty() {
            return Err(RuleError::new(
                format!(
                    "the {} field has an empty item at position {position}",
                    self.name
                ),
                "write a value between every two commas, and none at the ends",
            ));
        }
        let (base, step) = match item.split_once('/') {
            None => (item, None),
            Some((base, step)) => {
                let step_position = position + base.chars().count() + 1;
                (base, Some(self.step(step, step_position)?))
            }
        };
        if step.is_some() && self.special(base, position)?.is_some() {
            return Err(RuleError::new(
                self.at(item, position, "has a step, which no such day can have"),
                format!("write `{base}`, alone or in a list"),
            ));
        }
        let (first, last) = if base == "*" {
            (self.min, self.max)
        } else if base.is_empty() {
            return Err(RuleError::new(
                self.at(item, position, "has a step without a range"),
                format!("write `*{item}`"),
            ));
        } else if base.starts_with('*') {
            return Err(RuleError::new(
                self.at(base, position, "has something after its `*`"),
                "write `*` or `*/n`",
            ));
        } else if let Some((first, last)) = base.split_once('-') {
            self.range(base, first, last, step, position)?
        } else {
            let value = self.value(base, position)?;
            if let Some(step) = step {
                let first = self.show(self.folded(value.number), value.named);
                let last = self.show(self.max, value.named);
                return Err(RuleError::new(
                    self.at(item, position, "has a step without a range"),
                    format!("write `{first}-{last}/{step}`"),
                ));
            }
            (value.number, value.number)
        };
        Ok((first..=last)
            .step_by(step.unwrap_or(1))
            .fold(0, |bits, number| bits | 1 << self.folded(number)))
    }

    fn range(
        &self,
        base: &str,
        first_text: &str,
        last_text: &str,
        step: Option<usize>,
        position: usize,
    ) -> Result<(u8, u8), RuleError> {
        let (first, last) = self.ends(first_text, last_text, position)?;
        if first.number <= last.number {
            return Ok((first.number, last.number));
        }
        Err(RuleError::new(
            self.at(base, position, "runs backwards"),
            format!("write `{}`", self.unwound(&first, &last, step.unwrap_or(1))),
        ))
    }

    /// The ends of the range whose text begins at `position`.
    pub(super) fn ends(
        &self,
        first_text: &str,
        last_text: &str,
        position: usize,
    ) -> Result<(Value, Value), RuleError> {
        let first = self.value(first_text, position)?;
        let last_position = position + first_text.chars().count() + 1;
        let mut last = self.value(last_text, last_position)?;
        // `FRI-SUN` has one meaning only; the name stands for either number of Sunday.
        if last.named && last.number < first.number && self.written_max > self.max + last.number {
            last.number = self.written_max;
        }
        Ok((first, last))
    }

    /// What a backward range was meant to be: `22-2` is `22-23,0-2`.
    fn unwound(&self, first: &Value, last: &Value, step: usize) -> String {
        let named = first.named && last.named;
        let start = self.folded(first.number);
        let span = |from: u8, to: u8| {
            if from == to {
                self.show(from, named)
            } else {
                format!("{}-{}", self.show(from, named), self.show(to, named))
            }
        };
        if start <= last.number {
            return span(start, last.number);
        }
        if step == 1 {
            return format!("{},{}", span(start, self.max), span(self.min, last.number));
        }
        let numbers = (start..=self.max).chain(self.min..=last.number);
        let texts: Vec<String> = numbers
            .step_by(step)
            .map(|number| self.show(number, named))
            .collect();
        texts.join(",")
    }

    pub(super) fn step(&self, text: &str, position: usize) -> Result<usize, RuleError> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number too long for the type is larger than every field, as any large one is.
        let step = text.parse().unwrap_or(usize::MAX);
        if is_number && step > 0 {
            return Ok(step);
        }
        let place = format!("the step of the {} field at position {position}", self.name);
        Err(RuleError::new(
            if text.is_empty() {
                format!("{place} is missing")
            } else {
                format!("{place} is {}, not a number of at least 1", quoted(text))
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
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text
                .parse()
                .ok()
                .filter(|number| (self.min..=self.written_max).contains(number))
                .map(|number| Value {
                    number,
                    named: false,
                })
                .ok_or_else(|| {
                    let range = format!("is out of range {}-{}", self.min, self.written_max);
                    let mut hint = self.allowed();
                    if *self == HOUR && text.parse().is_ok_and(|number: u8| number < 60) {
                        hint += "; the minute stands before the hour";
                    }
                    RuleError::new(self.at(text, position, &range), hint)
                });
        }
        let same = |name: &&str| name.eq_ignore_ascii_case(text);
        if let Some((number, _)) = (self.min..).zip(self.names).find(|(_, name)| same(name)) {
            return Ok(Value {
                number,
                named: true,
            });
        }
        let longer = |name: &&&str| text.get(..3).is_some_and(|t| name.eq_ignore_ascii_case(t));
        let hint = if let Some(name) = self.names.iter().find(longer) {
            format!("write `{name}`: names have three letters")
        } else {
            self.allowed()
        };
        let wrong = if self.names.is_empty() {
            "is not a number"
        } else {
            "is neither a number nor a name"
        };
        Err(RuleError::new(self.at(text, position, wrong), hint))
    }

    pub(super) fn at(&self, text: &str, position: usize, wrong: &str) -> String {
        let text = quoted(text);
        format!(
            "{text} in the {} field at position {position} {wrong}",
            self.name
        )
    }

    fn allowed(&self) -> String {
        match self.names {
            [first, .., last] => {
                format!(
                    "write {} to {} or {first} to {last}",
                    self.min, self.written_max
                )
            }
            _ => format!("write {} to {}", self.min, self.written_max),
        }
    }

    pub(super) fn show(&self, number: u8, named: bool) -> String {
        let name = self.names.get(usize::from(number - self.min));
        match name {
            Some(name) if named => (*name).to_owned(),
            _ => number.to_string(),
        }
    }
}
