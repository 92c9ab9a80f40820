//! One field of a cron expression: the numbers it allows.

use super::error::{RuleError, quoted};

/// What may stand in a field.
pub(super) struct FieldSpec {
    name: &'static str,
    min: u8,
    /// The largest number that `*` covers.
    max: u8,
    /// The largest number that may be written: 7 for Sunday, else `max`.
    written_max: u8,
    /// Names of the numbers from `min` on.
    names: &'static [&'static str],
}

pub(super) const SECOND: FieldSpec = FieldSpec::numbers("second", 0, 59);
pub(super) const MINUTE: FieldSpec = FieldSpec::numbers("minute", 0, 59);
pub(super) const HOUR: FieldSpec = FieldSpec::numbers("hour", 0, 23);
pub(super) const DAY_OF_MONTH: FieldSpec = FieldSpec::numbers("day-of-month", 1, 31);
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

/// The numbers that a field allows, as bits, and whether it was written with a leading `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    bits: u64,
    /// Not the same as "all numbers": `*/2` begins with a star, `0-59` does not, and both the
    /// rule for two day fields and the rule for clock changes ask only this.
    pub(super) star: bool,
}

/// A number as written, and whether by name.
struct Value {
    number: u8,
    named: bool,
}

impl Field {
    /// Exactly `number`.
    pub(super) const fn only(number: u8) -> Field {
        Field {
            bits: 1 << number,
            star: false,
        }
    }

    /// Read a field whose first character is at `position` of the expression.
    ///
    /// # Errors
    /// When an item is empty, unknown, out of range, backwards, or a step without a range.
    pub(super) fn parse(spec: &FieldSpec, text: &str, position: usize) -> Result<Field, RuleError> {
        let mut field = Field {
            bits: 0,
            star: text.starts_with('*'),
        };
        let mut item_position = position;
        for item in text.split(',') {
            field.bits |= spec.item(item, item_position)?;
            item_position += item.chars().count() + 1;
        }
        Ok(field)
    }

    pub(super) fn contains(self, number: u8) -> bool {
        self.bits >> number & 1 == 1
    }

    /// The allowed numbers, ascending.
    pub(super) fn numbers(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |&number| self.contains(number))
    }

    /// Whether every number of the field is allowed.
    pub(super) fn is_full(self, spec: &FieldSpec) -> bool {
        (spec.min..=spec.max).all(|number| self.contains(number))
    }

    /// The field in one fixed spelling: two fields that mean the same have the same one.
    pub(super) fn normal_form(self, spec: &FieldSpec) -> String {
        let mut rest = self.bits;
        let mut items = Vec::new();
        if self.star {
            if self.is_full(spec) {
                return "*".to_owned();
            }
            // A field that begins with `*/n` holds every n-th number, so a step is found.
            for step in 2..=64u8 {
                let stepped = || (spec.min..=spec.max).step_by(usize::from(step));
                if stepped().all(|number| self.contains(number)) {
                    items.push(format!("*/{step}"));
                    stepped().for_each(|number| rest &= !(1 << number));
                    break;
                }
            }
        }
        let rest: Vec<u8> = Field { bits: rest, ..self }.numbers().collect();
        if let [first, second, .., last] = rest[..] {
            let step = second - first;
            if rest.len() > 3 && step > 1 && rest.windows(2).all(|pair| pair[1] - pair[0] == step) {
                items.push(format!("{first}-{last}/{step}"));
                return items.join(",");
            }
        }
        for run in rest.chunk_by(|left, right| left + 1 == *right) {
            match run {
                [first, _, .., last] if run.len() > 2 => items.push(format!("{first}-{last}")),
                _ => items.extend(run.iter().map(u8::to_string)),
            }
        }
        items.join(",")
    }
}

impl FieldSpec {
    const fn numbers(name: &'static str, min: u8, max: u8) -> FieldSpec {
        FieldSpec {
            name,
            min,
            max,
            written_max: max,
            names: &[],
        }
    }

    /// The numbers of one item between commas, as bits.
    fn item(&self, item: &str, position: usize) -> Result<u64, RuleError> {
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
        let first = self.value(first_text, position)?;
        let last_position = position + first_text.chars().count() + 1;
        let mut last = self.value(last_text, last_position)?;
        // `FRI-SUN` has one meaning only; the name stands for either number of Sunday.
        if last.named && last.number < first.number && self.written_max > self.max + last.number {
            last.number = self.written_max;
        }
        if first.number <= last.number {
            return Ok((first.number, last.number));
        }
        Err(RuleError::new(
            self.at(base, position, "runs backwards"),
            format!("write `{}`", self.unwound(&first, &last, step.unwrap_or(1))),
        ))
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

    fn step(&self, text: &str, position: usize) -> Result<usize, RuleError> {
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

    fn value(&self, text: &str, position: usize) -> Result<Value, RuleError> {
        if text.is_empty() {
            return Err(RuleError::new(
                format!(
                    "a range in the {} field lacks its end at position {position}",
                    self.name
                ),
                "write both ends, as in `1-5`",
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
                    RuleError::new(self.at(text, position, &range), self.allowed())
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
        } else if text == "?" {
            "write `*`".to_owned()
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

    fn at(&self, text: &str, position: usize, wrong: &str) -> String {
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

    fn show(&self, number: u8, named: bool) -> String {
        let name = self.names.get(usize::from(number - self.min));
        match name {
            Some(name) if named => (*name).to_owned(),
            _ => number.to_string(),
        }
    }

    /// 7 is Sunday, as 0 is.
    fn folded(&self, number: u8) -> u8 {
        if number > self.max { self.min } else { number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(spec: &FieldSpec, text: &str) -> Vec<u8> {
        Field::parse(spec, text, 1).unwrap().numbers().collect()
    }

    #[test]
    fn a_field_allows_what_is_written() {
        let cases: [(&FieldSpec, &str, &[u8]); 18] = [
            (&MINUTE, "0", &[0]),
            (&MINUTE, "05,7", &[5, 7]),
            (&MINUTE, "*/20", &[0, 20, 40]),
            (&MINUTE, "*/60", &[0]),
            (&MINUTE, "*/99999999999999999999999", &[0]),
            (&MINUTE, "10-20/5", &[10, 15, 20]),
            (&MINUTE, "10-20/11", &[10]),
            (&HOUR, "22-23,0-2", &[0, 1, 2, 22, 23]),
            (&DAY_OF_MONTH, "*/10", &[1, 11, 21, 31]),
            (&MONTH, "jan,Jun-AUG", &[1, 6, 7, 8]),
            (&MONTH, "JAN-6/2", &[1, 3, 5]),
            (&DAY_OF_WEEK, "0,7", &[0]),
            (&DAY_OF_WEEK, "5-7", &[0, 5, 6]),
            (&DAY_OF_WEEK, "FRI-SUN", &[0, 5, 6]),
            (&DAY_OF_WEEK, "SUN-TUE", &[0, 1, 2]),
            (&DAY_OF_WEEK, "1-7/2", &[0, 1, 3, 5]),
            (&DAY_OF_WEEK, "7-7", &[0]),
            (&DAY_OF_WEEK, "*/3", &[0, 3, 6]),
        ];
        for (spec, text, expected) in cases {
            assert_eq!(numbers(spec, text), expected, "of `{text}`");
        }
    }

    #[test]
    fn the_normal_form_of_any_field_parses_to_the_same_field() {
        for spec in [&MINUTE, &HOUR, &DAY_OF_MONTH, &MONTH, &DAY_OF_WEEK] {
            for step in 1..=spec.max + 1 {
                for extra in ["", ",3", ",2-5", ",1,2,4"] {
                    for base in ["*", "1-5", "2-6"] {
                        let text = format!("{base}/{step}{extra}");
                        let field = Field::parse(spec, &text, 1).unwrap();
                        let normal = field.normal_form(spec);
                        assert_eq!(Field::parse(spec, &normal, 1), Ok(field), "{text} {normal}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_proposed_instead_can_be_written() {
        for spec in [&MINUTE, &HOUR, &DAY_OF_MONTH, &MONTH, &DAY_OF_WEEK] {
            let last = spec.written_max;
            for first in spec.min..=last {
                let mut wrong: Vec<String> = (spec.min..first)
                    .flat_map(|last| [format!("{first}-{last}"), format!("{first}-{last}/3")])
                    .chain([format!("{first}/2")])
                    .collect();
                if let Some(name) = spec.names.get(usize::from(first - spec.min)) {
                    wrong.push(format!("{name}/2"));
                    wrong.push(format!("{name}-{}", spec.min));
                }
                for text in wrong {
                    let Err(error) = Field::parse(spec, &text, 1) else {
                        continue;
                    };
                    let proposed = error.hint().split('`').nth(1).unwrap();
                    let field = Field::parse(spec, proposed, 1).expect(proposed);
                    assert!(field.contains(spec.folded(first)), "{text} {proposed}");
                }
            }
        }
    }
}
