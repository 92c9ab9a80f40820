//! One item of a field: a number, a name, a range or a step.

use super::error::RuleError;
use super::field_spec::{FieldSpec, Value};

impl FieldSpec {
    /// Read one item between commas, and return its numbers as bits.
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
        if step.is_some() && self.quartz_day(base, position)?.is_some() {
            return Err(self.refusal(
                item,
                position,
                "has a step, which no such day can have",
                format!("write `{base}`, alone or in a list"),
            ));
        }
        let (first, last) = if base == "*" {
            (self.min, self.max)
        } else if base.is_empty() {
            return Err(self.refusal(
                item,
                position,
                "has a step without a range",
                format!("write `*{item}`"),
            ));
        } else if base.starts_with('*') {
            return Err(self.refusal(
                base,
                position,
                "has something after its `*`",
                "write `*` or `*/n`",
            ));
        } else if let Some((first, last)) = base.split_once('-') {
            self.range(base, first, last, step, position)?
        } else {
            let value = self.value(base, position)?;
            if let Some(step) = step {
                let first = self.show(self.folded(value.number), value.named);
                let last = self.show(self.max, value.named);
                return Err(self.refusal(
                    item,
                    position,
                    "has a step without a range",
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
        Err(self.refusal(
            base,
            position,
            "runs backwards",
            format!("write `{}`", self.unwound(&first, &last, step.unwrap_or(1))),
        ))
    }

    /// Return the spelling of a backward range: `22-23,0-2` for `22-2`.
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
}
