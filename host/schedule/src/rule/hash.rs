//! Numbers chosen by hash: the value of `H` in a field.
//!
//! The number is [`hash_number`] of the key and the field's name, modulo the number of choices, counted
//! from the smallest choice. It is the same after every restart and on every host, and spreads evenly
//! over schedules. It must never change: the slots of schedules would move.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::error::RuleError;
use super::field_spec::{FieldSpec, HOUR, MINUTE};
use super::part::Part;
use campanile_model::ids::ScheduleId;

/// Separates these hashes from all other hashes of the same id.
const DOMAIN: &[u8] = b"campanile/schedule/hashed-field/1";

/// The key of the hashed numbers of a rule: the identity of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(Uuid);

impl HashKey {
    /// The key of an expression without a schedule.
    pub const NONE: HashKey = HashKey(Uuid::nil());

    /// Returns the key of a schedule. Renames and edits keep it.
    pub fn of(schedule: ScheduleId) -> HashKey {
        HashKey(schedule.0)
    }

    pub(super) fn number(self, field: &str) -> u64 {
        hash_number(DOMAIN, self.0, field.as_bytes())
    }
}

/// Returns the first 8 bytes, as a big-endian number, of the SHA-256 of `domain`, the bytes of `id` and `part`.
pub(crate) fn hash_number(domain: &[u8], id: Uuid, part: &[u8]) -> u64 {
    let digest = Sha256::new()
        .chain_update(domain)
        .chain_update(id.as_bytes())
        .chain_update(part)
        .finalize();
    digest
        .iter()
        .take(size_of::<u64>())
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A hashed field as written: `H`, `H(0-29)`, `H/15` or `H(0-29)/15`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hashed {
    first: u8,
    last: u8,
    /// The step from a hashed start, smaller than the number of choices; `None` for a single number.
    step: Option<u8>,
}

impl Hashed {
    pub(super) fn any(spec: &FieldSpec) -> Hashed {
        Hashed {
            first: spec.min,
            last: spec.hashed_max,
            step: None,
        }
    }

    /// Parses a field, returning `None` if it isn't hashed.
    ///
    /// In minutes and hours, `?` means `H`. In day fields it's refused, since schedulers disagree about its meaning.
    pub(super) fn parse(spec: &FieldSpec, field: Part<'_>) -> Result<Option<Hashed>, RuleError> {
        let is_hashed = |item: &Part<'_>| item.text.starts_with(['?', 'H', 'h']);
        let Some(item) = field.split([',']).find(is_hashed) else {
            return Ok(None);
        };
        if let Some(rest) = item.text.strip_prefix('?') {
            if ![&MINUTE, &HOUR].contains(&spec) {
                let name = spec.name;
                let hint = format!("write `*` for any {name}, or `H` for one chosen by hash");
                return Err(spec.refusal(item, "means different things to other schedulers", hint));
            }
            if !rest.is_empty() {
                let hint = format!("write `H{rest}`");
                return Err(spec.refusal(item, "has something after its `?`", hint));
            }
        }
        if field.text.contains(',') {
            let hint = "write a hashed value alone in its field";
            return Err(spec.refusal(item, "is one of a list", hint));
        }
        let (_, rest) = field.split_at(1);
        let (choices, step) = match rest.split_once('/') {
            Some((choices, step)) => (choices, Some(step)),
            None => (rest, None),
        };
        let (first, last) = if choices.text.is_empty() {
            (spec.min, spec.hashed_max)
        } else {
            let (first, last) = ends(choices).ok_or_else(|| {
                let (min, max) = (spec.min, spec.hashed_max);
                let hint = format!("write `H`, `H({min}-{max})`, `H/n` or `H({min}-{max})/n`");
                spec.refusal(field, "is not a hashed value", hint)
            })?;
            let (first, last) = spec.ends(first, last)?;
            if last.number < first.number {
                let hint = "write the smaller number first: hashed choices do not wrap around";
                return Err(spec.refusal(choices, "runs backwards", hint));
            }
            (first.number, last.number)
        };
        let step = step.map(|step| spec.step(step)).transpose()?;
        let step = step.and_then(|step| u8::try_from(step).ok());
        Ok(Some(Hashed {
            first,
            last,
            step: step.filter(|&step| step <= last - first),
        }))
    }

    /// Returns the numbers that `hash` chooses, with 7 for Sunday where it was written.
    pub(super) fn numbers(self, hash: u64) -> impl Iterator<Item = u8> {
        let choices = self.step.unwrap_or(self.last - self.first + 1);
        let start = self.first + (hash % u64::from(choices)) as u8;
        let last = self.step.map_or(start, |_| self.last);
        (start..=last).step_by(usize::from(self.step.unwrap_or(1)))
    }

    /// Print one fixed spelling, which parses to the same field under every key.
    pub(super) fn normal_form(self, spec: &FieldSpec) -> String {
        let mut text = "H".to_owned();
        if (self.first, self.last) != (spec.min, spec.hashed_max) {
            text += &format!("({}-{})", self.first, self.last);
        }
        if let Some(step) = self.step {
            text += &format!("/{step}");
        }
        text
    }
}

/// Returns both ends of `(0-29)`.
fn ends(choices: Part<'_>) -> Option<(Part<'_>, Part<'_>)> {
    let text = choices.text.strip_prefix('(')?.strip_suffix(')')?;
    let position = choices.position + 1;
    Part { text, position }.split_once('-')
}

#[cfg(test)]
mod tests {
    use super::super::field_spec::DAY_OF_MONTH;
    use super::super::testing::*;
    use super::super::{Rule, RuleKind, RuleText};
    use super::*;

    fn resolved(expression: &str, id: u128) -> String {
        let text = RuleText::new(RuleKind::Cron, expression, "UTC");
        let key = HashKey::of(ScheduleId(Uuid::from_u128(id)));
        Rule::parse(&text, key).unwrap().resolved_form()
    }

    #[test]
    fn a_hashed_value_never_changes() {
        // Stored schedules depend on these values.
        assert_eq!(resolved("H H H H H", 7), "1 6 27 6 2");
        assert_eq!(resolved("H H * * * *", 7), "20 1 * * * *");
        assert_eq!(resolved("H H H H H", 8), "1 18 14 1 1");
    }

    #[test]
    fn a_hashed_field_keeps_its_range_and_step() {
        for id in 0..500 {
            let text = resolved("H(10-19) H/6 H H(3-5) H(5-7)", id);
            let [minute, hours, day, month, weekday] = text.split(' ').collect::<Vec<_>>()[..]
            else {
                panic!("{text}");
            };
            let number = |text: &str| text.parse::<u8>().unwrap();
            assert!((10..20).contains(&number(minute)), "{text}");
            let hours: Vec<u8> = match hours.strip_suffix("/6") {
                None => hours.split(',').map(number).collect(),
                Some(range) => {
                    let (first, last) = range.split_once('-').unwrap();
                    (number(first)..=number(last)).step_by(6).collect()
                }
            };
            assert!(hours[0] < 6 && hours.len() == 4, "{text}");
            assert!(
                hours.windows(2).all(|pair| pair[1] - pair[0] == 6),
                "{text}"
            );
            assert!((1..=28).contains(&number(day)), "{text}");
            assert!((3..=5).contains(&number(month)), "{text}");
            assert!(matches!(weekday, "0" | "5" | "6"), "{text}");
        }
    }

    #[test]
    fn the_normal_form_means_the_same_under_every_key() {
        let text = |expression: &str| RuleText::new(RuleKind::Cron, expression, "UTC");
        let written = text("H H(0-7)/2 H/9 H *");
        let normal = text(&rule(&written).unwrap().normal_form());
        for id in 0..100 {
            let key = HashKey::of(ScheduleId(Uuid::from_u128(id)));
            assert_eq!(Rule::parse(&written, key), Rule::parse(&normal, key));
        }
        assert_ne!(resolved("H H * * *", 1), resolved("H H * * *", 2));
    }

    /// Check the sum that is 0 for an even spread, and exceeds `limit` once in 100,000 samples.
    fn check_chi_square(counts: &[u32], limit: f64) {
        let even = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let off = |&count: &u32| (f64::from(count) - even).powi(2) / even;
        let sum: f64 = counts.iter().map(off).sum();
        assert!(sum < limit, "{sum} of {counts:?}");
    }

    #[test]
    fn hashed_values_spread_evenly_and_apart_from_each_other() {
        // Limits for a probability of 0.00001 and one degree of freedom less than there are values.
        for (spec, limit) in [(&MINUTE, 117.5), (&HOUR, 64.5), (&DAY_OF_MONTH, 70.8)] {
            let choices = usize::from(spec.hashed_max - spec.min) + 1;
            let mut counts = vec![0; choices];
            for id in 0..10_000 {
                let key = HashKey(Uuid::from_u128(id));
                let number = Hashed::any(spec).numbers(key.number(spec.name)).next();
                counts[usize::from(number.unwrap() - spec.min)] += 1;
            }
            check_chi_square(&counts, limit);
        }
        // Minute and hour together, in 6 by 6 classes.
        let mut counts = [0; 36];
        for id in 0..10_000 {
            let key = HashKey(Uuid::from_u128(id));
            let class = |field: &str| (key.number(field) % 6) as usize;
            counts[class(MINUTE.name) * 6 + class(HOUR.name)] += 1;
        }
        check_chi_square(&counts, 83.0);
    }
}
