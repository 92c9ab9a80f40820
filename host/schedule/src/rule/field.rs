//! One field of a cron expression: the numbers it allows.

use super::error::RuleError;
use super::field_spec::{FieldSpec, ones, ranges};
use super::hash::{HashKey, Hashed};
use super::part::Part;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The allowed numbers, as bits.
    pub(super) bits: u64,
    /// Quartz days, as bits that [`QuartzDay`](super::quartz_days::QuartzDay) reads.
    pub(super) quartz: u64,
    /// The hashed value as written. `bits` has the numbers that it chose.
    hashed: Option<Hashed>,
    /// Whether the field begins with `*`. That differs from "all numbers": `*/2` does, `0-59` does not.
    /// The rules for two day fields and for clock changes depend on the star.
    pub(super) star: bool,
}

impl Field {
    /// Returns the field that allows `number` alone.
    pub(super) const fn only(number: u8) -> Field {
        Field {
            bits: 1 << number,
            quartz: 0,
            hashed: None,
            star: false,
        }
    }

    /// Returns the field `H`, to print it; its number is not hashed.
    pub(super) fn any_hashed(spec: &FieldSpec) -> Field {
        Field {
            hashed: Some(Hashed::any(spec)),
            ..Field::only(spec.min)
        }
    }

    pub(super) fn parse(
        spec: &FieldSpec,
        part: Part<'_>,
        key: HashKey,
    ) -> Result<Field, RuleError> {
        let mut field = Field {
            bits: 0,
            quartz: 0,
            hashed: Hashed::parse(spec, part)?,
            star: part.text.starts_with('*'),
        };
        if let Some(hashed) = field.hashed {
            let numbers = hashed.numbers(key.number(spec.name));
            field.bits = numbers.fold(0, |bits, number| bits | 1 << spec.folded(number));
            return Ok(field);
        }
        for item in part.split([',']) {
            match spec.quartz_day(item)? {
                Some(day) => field.quartz |= day,
                None => field.bits |= spec.item(item)?,
            }
        }
        if field.is_full(spec) {
            field.quartz = 0;
        }
        Ok(field)
    }

    pub(super) fn is_hashed(self) -> bool {
        self.hashed.is_some()
    }

    /// Returns the field with numbers for `H`.
    pub(super) fn resolved(self) -> Field {
        Field {
            hashed: None,
            ..self
        }
    }

    pub(super) fn contains(self, number: u8) -> bool {
        self.bits >> number & 1 == 1
    }

    /// Returns the allowed numbers, ascending.
    pub(super) fn numbers(self) -> impl Iterator<Item = u8> {
        ones(self.bits)
    }

    pub(super) fn is_full(self, spec: &FieldSpec) -> bool {
        (spec.min..=spec.max).all(|number| self.contains(number))
    }

    /// Returns the `n` of a field that begins with `*/n`.
    pub(super) fn step(self, spec: &FieldSpec) -> Option<u8> {
        let holds = |step: &u8| {
            let mut numbers = (spec.min..=spec.max).step_by(usize::from(*step));
            numbers.all(|number| self.contains(number))
        };
        (2..=64)
            .find(holds)
            .filter(|_| self.star && !self.is_full(spec))
    }

    /// Print the field in one fixed spelling. Fields that mean the same have the same spelling.
    pub(super) fn normal_form(self, spec: &FieldSpec) -> String {
        if let Some(hashed) = self.hashed {
            return hashed.normal_form(spec);
        }
        let mut items = self.normal_items(spec);
        items.extend(spec.quartz_texts(self.quartz));
        items.join(",")
    }

    fn normal_items(self, spec: &FieldSpec) -> Vec<String> {
        let mut bits = self.bits;
        let mut items = Vec::new();
        if self.star {
            if self.is_full(spec) {
                return vec!["*".to_owned()];
            }
            if let Some(step) = self.step(spec) {
                items.push(format!("*/{step}"));
                for number in (spec.min..=spec.max).step_by(usize::from(step)) {
                    bits &= !(1 << number);
                }
            }
        }
        let rest: Vec<u8> = ones(bits).collect();
        if let [first, second, .., last] = rest[..] {
            let step = second - first;
            if rest.len() > 3 && step > 1 && rest.windows(2).all(|pair| pair[1] - pair[0] == step) {
                items.push(format!("{first}-{last}/{step}"));
                return items;
            }
        }
        items.extend(ranges(bits, "-", |number| number.to_string()));
        items
    }
}

#[cfg(test)]
mod tests {
    use super::super::field_spec::{DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH};
    use super::*;

    fn parse(spec: &FieldSpec, text: &str) -> Result<Field, RuleError> {
        Field::parse(spec, Part::whole(text), HashKey::NONE)
    }

    fn numbers(spec: &FieldSpec, text: &str) -> Vec<u8> {
        parse(spec, text).unwrap().numbers().collect()
    }

    #[test]
    fn a_field_allows_the_written_numbers() {
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
    fn every_hint_is_a_field_that_parses() {
        for spec in [&MINUTE, &HOUR, &DAY_OF_MONTH, &MONTH, &DAY_OF_WEEK] {
            let last = spec.written_max;
            for first in spec.min..=last {
                let mut wrong: Vec<String> = (spec.min..first)
                    .flat_map(|last| [format!("{first}-{last}"), format!("{first}-{last}/3")])
                    .chain([format!("{first}/2")])
                    .collect();
                if let Some(name) = spec.names.get(usize::from(first - spec.min)) {
                    wrong.push(format!("{}/2", &name[..3]));
                    wrong.push(format!("{}-{}", &name[..3], spec.min));
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
