//! One item of a field: a number, a name, a range or a step.

use super::error::RuleError;
use super::field_spec::{FieldSpec, Value};
use super::part::Part;

impl FieldSpec {
    /// Read one item between commas, and return its numbers as bits.
    pub(super) fn item(&self, item: Part<'_>) -> Result<u64, RuleError> {
        if item.text.is_empty() {
            let (name, position) = (self.name, item.position);
            return Err(RuleError::new(
                format!("the {name} field has an empty item at position {position}"),
                "write a value between every two commas, and none at the ends",
            ));
        }
        let (base, step) = match item.split_once('/') {
            None => (item, None),
            Some((base, step)) => (base, Some(self.step(step)?)),
        };
        if step.is_some() && self.quartz_day(base)?.is_some() {
            let hint = format!("write `{}`, alone or in a list", base.text);
            return Err(self.refusal(item, "has a step, which no such day can have", hint));
        }
        let (first, last) = if base.text == "*" {
            (self.min, self.max)
        } else if base.text.is_empty() {
            let hint = format!("write `*{}`", item.text);
            return Err(self.refusal(item, "has a step without a range", hint));
        } else if base.text.starts_with('*') {
            let hint = "write `*` or `*/n`";
            return Err(self.refusal(base, "has something after its `*`", hint));
        } else if let Some((first, last)) = base.split_once('-') {
            let (first, last) = self.ends(first, last)?;
            if first.number > last.number {
                let hint = format!("write `{}`", self.unwound(&first, &last, step.unwrap_or(1)));
                return Err(self.refusal(base, "runs backwards", hint));
            }
            (first.number, last.number)
        } else {
            let value = self.value(base)?;
            if let Some(step) = step {
                let first = self.show(self.folded(value.number), value.named);
                let last = self.show(self.max, value.named);
                let hint = format!("write `{first}-{last}/{step}`");
                return Err(self.refusal(item, "has a step without a range", hint));
            }
            (value.number, value.number)
        };
        Ok((first..=last)
            .step_by(step.unwrap_or(1))
            .fold(0, |bits, number| bits | 1 << self.folded(number)))
    }

    /// Returns the spelling of a backward range: `22-23,0-2` for `22-2`.
    fn unwound(&self, first: &Value, last: &Value, step: usize) -> String {
        let show = |number: u8| self.show(number, first.named && last.named);
        let start = self.folded(first.number);
        let span = |from: u8, to: u8| {
            if from == to {
                show(from)
            } else {
                format!("{}-{}", show(from), show(to))
            }
        };
        if start <= last.number {
            return span(start, last.number);
        }
        if step == 1 {
            return format!("{},{}", span(start, self.max), span(self.min, last.number));
        }
        let numbers = (start..=self.max).chain(self.min..=last.number);
        let texts: Vec<String> = numbers.step_by(step).map(show).collect();
        texts.join(",")
    }
}
