//! The fields of a cron expression, together.

use super::error::RuleError;
use super::field::Field;
use super::field_spec::{
    DAY_OF_MONTH, DAY_OF_WEEK, FieldSpec, HOUR, MINUTE, MONTH, SECOND, is_digits,
};
use super::hash::HashKey;
use super::part::{Part, words};
use campanile_model::rule_text::DayMatch;

pub(super) static SPECS: [FieldSpec; 6] = [SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK];

const SHAPE: &str = "minute hour day-of-month month day-of-week";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fields {
    pub(super) second: Field,
    pub(super) minute: Field,
    pub(super) hour: Field,
    pub(super) day_of_month: Field,
    pub(super) month: Field,
    pub(super) day_of_week: Field,
    pub(super) day_match: DayMatch,
}

impl Fields {
    /// Parses five fields, or six starting with seconds.
    pub(super) fn parse(expression: &str, key: HashKey) -> Result<Fields, RuleError> {
        let parts: Vec<Part<'_>> = words(expression).collect();
        let found = parts.len();
        if !(5..=6).contains(&found) {
            let hint = match found {
                7 => "leave the year out: there is no year field",
                _ => "write five fields, as in `30 2 * * *`, or one of @hourly … @yearly",
            };
            return Err(RuleError::new(
                format!("expected 5 fields ({SHAPE}) or 6 (second first), found {found}"),
                hint,
            ));
        }
        if is_ambiguous(&parts) {
            return Err(SPECS[2].refusal(parts[2], "is a day in EventBridge", "write `H` or `*`"));
        }
        let mut fields = [Field::only(0); 6];
        for (index, &part) in (6 - found..).zip(&parts) {
            fields[index] = Field::parse(&SPECS[index], part, key)?;
        }
        Ok(Fields::of(fields))
    }

    fn of([second, minute, hour, day_of_month, month, day_of_week]: [Field; 6]) -> Fields {
        Fields {
            second,
            minute,
            hour,
            day_of_month,
            month,
            day_of_week,
            day_match: DayMatch::default(),
        }
    }

    /// Returns the fields with their specifications, seconds first.
    pub(super) fn with_specs(&self) -> [(Field, &'static FieldSpec); 6] {
        [
            (self.second, &SPECS[0]),
            (self.minute, &SPECS[1]),
            (self.hour, &SPECS[2]),
            (self.day_of_month, &SPECS[3]),
            (self.month, &SPECS[4]),
            (self.day_of_week, &SPECS[5]),
        ]
    }

    pub(super) fn has_seconds(&self) -> bool {
        self.second != Field::only(0)
    }

    /// Whether neither day field begins with a star.
    pub(super) fn restricts_both_days(&self) -> bool {
        !self.day_of_month.star && !self.day_of_week.star
    }

    /// Whether the rule fires whenever the clock matches (`*/15 * * * *`), and not at times of day that happen once
    /// (`30 2 * * *`). See [`rule`](super).
    pub(super) fn follow_clock(&self) -> bool {
        self.second.star || self.minute.star || self.hour.star
    }

    /// Whether a day must match both day fields, by the rule of Vixie's cron, or by `day_match`.
    ///
    /// Either of two restricted fields may match. A field that begins with a star narrows the other.
    pub(super) fn match_both_days(&self) -> bool {
        self.day_match == DayMatch::And || !self.restricts_both_days()
    }

    /// Print the fields in one fixed spelling, with numbers for names and fields for macros.
    pub(super) fn normal_form(&self) -> String {
        let written = usize::from(!self.has_seconds())..;
        let texts = self
            .with_specs()
            .map(|(field, spec)| field.normal_form(spec));
        texts[written].join(" ")
    }

    /// Returns the fields with numbers for `H`.
    pub(super) fn resolved(&self) -> Fields {
        Fields::of(self.with_specs().map(|(field, _)| field.resolved()))
    }

    pub(super) fn are_hashed(&self) -> bool {
        self.with_specs().iter().any(|(field, _)| field.is_hashed())
    }
}

/// Whether six fields, accepted as starting with seconds, might be meant to start with minutes and end with a year.
fn is_ambiguous(parts: &[Part<'_>]) -> bool {
    parts.len() == 6 && parts[2].text == "?" && parts[1].text != "?" && is_year(parts[5].text)
}

/// Whether a field could be a year: `*`, `2026`, `2026-2028`, `2026/2`.
pub(super) fn is_year(field: &str) -> bool {
    let years = |item: &str| {
        let (years, _) = item.split_once('/').unwrap_or((item, ""));
        years
            .split('-')
            .all(|year| is_digits(year) && year.len() == 4)
    };
    field == "*" || field.split(',').all(years)
}
