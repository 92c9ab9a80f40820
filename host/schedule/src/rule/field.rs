//! One field of a cron expression: the numbers it allows.

use super::error::RuleError;
use super::hash::{HashKey, Hashed};
use super::special::ones;

/// What may stand in a field.
#[derive(Debug, PartialEq)]
pub(super) struct FieldSpec {
    pub(super) name: &'static str,
    pub(super) min: u8,
    /// The largest number that `*` covers.
    pub(super) max: u8,
    /// The largest number that may be written: 7 for Sunday, else `max`.
    pub(super) written_max: u8,
    /// The largest number that `H` alone may stand for: 28 for a day that every month has, else
    /// `max`.
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

/// The numbers that a field allows, as bits, and whether it was written with a leading `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    bits: u64,
    /// Days of the extension, as bits that [`Special`](super::special::Special) tells apart.
    pub(super) special: u64,
    /// What was written for a number chosen by hash, which `bits` has.
    hashed: Option<Hashed>,
    /// Not the same as "all numbers": `*/2` begins with a star, `0-59` does not, and both the
    /// rule for two day fields and the rule for clock changes ask only this.
    pub(super) star: bool,
}

impl Field {
    /// Exactly `number`.
    pub(super) const fn only(number: u8) -> Field {
        Field {
            bits: 1 << number,
            special: 0,
            hashed: None,
            star: false,
        }
    }

    /// What `H` alone is; for its spelling, not for its numbers.
    pub(super) fn any_hashed(spec: &FieldSpec) -> Field {
        Field {
            hashed: Some(Hashed::any(spec)),
            ..Field::only(spec.min)
        }
    }

    /// Read a field whose first character is at `position` of the expression.
    ///
    /// # Errors
    /// When an item is empty, unknown, out of range, backwards, or a step without a range.
    pub(super) fn parse(
        spec: &FieldSpec,
        text: &str,
        position: usize,
        key: HashKey,
    ) -> Result<Field, RuleError> {
        let mut field = Field {
            bits: 0,
            special: 0,
            hashed: Hashed::parse(spec, text, position)?,
            star: text.starts_with('*'),
        };
        if let Some(hashed) = field.hashed {
            let numbers = hashed.numbers(key.number(spec.name));
            field.bits = numbers.fold(0, |bits, number| bits | 1 << spec.folded(number));
            return Ok(field);
        }
        let mut item_position = position;
        for item in text.split(',') {
            match spec.special(item, item_position)? {
                Some(special) => field.special |= special,
                None => field.bits |= spec.item(item, item_position)?,
            }
            item_position += item.chars().count() + 1;
        }
        if field.is_full(spec) {
            field.special = 0;
        }
        Ok(field)
    }

    /// The allowed numbers, as bits.
    pub(super) fn bits(self) -> u64 {
        self.bits
    }

    /// Whether its numbers were chosen by hash.
    pub(super) fn is_hashed(self) -> bool {
        self.hashed.is_some()
    }

    /// The field with numbers for what was chosen by hash.
    pub(super) fn resolved(self) -> Field {
        Field {
            hashed: None,
            ..self
        }
    }

    pub(super) fn contains(self, number: u8) -> bool {
        self.bits >> number & 1 == 1
    }

    /// The allowed numbers, ascending.
    pub(super) fn numbers(self) -> impl Iterator<Item = u8> {
        ones(self.bits)
    }

    /// Whether every number of the field is allowed.
    pub(super) fn is_full(self, spec: &FieldSpec) -> bool {
        (spec.min..=spec.max).all(|number| self.contains(number))
    }

    /// The `n` of a field that begins with `*/n`.
    pub(super) fn step(self, spec: &FieldSpec) -> Option<u8> {
        // It holds every n-th number, so that a step is found.
        let holds = |step: &u8| {
            let mut numbers = (spec.min..=spec.max).step_by(usize::from(*step));
            numbers.all(|number| self.contains(number))
        };
        (2..=64)
            .find(holds)
            .filter(|_| self.star && !self.is_full(spec))
    }

    /// The field in one fixed spelling: two fields that mean the same have the same one.
    pub(super) fn normal_form(self, spec: &FieldSpec) -> String {
        if let Some(hashed) = self.hashed {
            return hashed.normal_form(spec);
        }
        let mut items = self.normal_items(spec);
        items.extend(spec.special_texts(self.special));
        items.join(",")
    }

    fn normal_items(self, spec: &FieldSpec) -> Vec<String> {
        let mut rest = self.bits;
        let mut items = Vec::new();
        if self.star {
            if self.is_full(spec) {
                return vec!["*".to_owned()];
            }
            if let Some(step) = self.step(spec) {
                items.push(format!("*/{step}"));
                for number in (spec.min..=spec.max).step_by(usize::from(step)) {
                    rest &= !(1 << number);
                }
            }
        }
        let rest: Vec<u8> = Field { bits: rest, ..self }.numbers().collect();
        if let [first, second, .., last] = rest[..] {
            let step = second - first;
            if rest.len() > 3 && step > 1 && rest.windows(2).all(|pair| pair[1] - pair[0] == step) {
                items.push(format!("{first}-{last}/{step}"));
                return items;
            }
        }
        for run in rest.chunk_by(|left, right| left + 1 == *right) {
            match run {
                [first, _, .., last] if run.len() > 2 => items.push(format!("{first}-{last}")),
                _ => items.extend(run.iter().map(u8::to_string)),
            }
        }
        items
    }
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

    /// 7 is Sunday, as 0 is.
    pub(super) fn folded(&self, number: u8) -> u8 {
        if number > self.max { self.min } else { number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(spec: &FieldSpec, text: &str) -> Result<Field, RuleError> {
        Field::parse(spec, text, 1, HashKey::NONE)
    }

    fn numbers(spec: &FieldSpec, text: &str) -> Vec<u8> {
        parse(spec, text).unwrap().numbers().collect()
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
                        let field = parse(spec, &text).unwrap();
                        let normal = field.normal_form(spec);
                        assert_eq!(parse(spec, &normal), Ok(field), "{text} {normal}");
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
                    let Err(error) = parse(spec, &text) else {
                        continue;
                    };
                    let proposed = error.hint().split('`').nth(1).unwrap();
                    let field = parse(spec, proposed).expect(proposed);
                    assert!(field.contains(spec.folded(first)), "{text} {proposed}");
                }
            }
        }
    }
}
