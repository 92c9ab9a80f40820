//! The fields of a cron expression, together.

use super::days::{self, Days};
use super::error::{RuleError, position};
use super::field::{DAY_OF_MONTH, DAY_OF_WEEK, Field, FieldSpec, HOUR, MINUTE, MONTH, SECOND};
use super::hash::HashKey;
use campanile_model::rule_text::DayMatch;

const SPECS: [FieldSpec; 6] = [SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK];

const SHAPE: &str = "minute hour day-of-month month day-of-week";

/// The fields of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fields {
    pub(super) second: Field,
    pub(super) minute: Field,
    pub(super) hour: Field,
    pub(super) day_of_month: Field,
    pub(super) month: Field,
    pub(super) day_of_week: Field,
}

impl Fields {
    /// Read five fields, or six with seconds first.
    ///
    /// # Errors
    /// When they are not of the dialect.
    pub(super) fn parse(
        expression: &str,
        key: HashKey,
        notes: &mut Vec<String>,
    ) -> Result<Fields, RuleError> {
        let mut texts: Vec<(usize, &str)> = words(expression).collect();
        let specs = match texts.len() {
            6 => &SPECS[..],
            5 => &SPECS[1..],
            found => {
                let hint = match found {
                    7 => "leave the year out: there is no year field",
                    _ => "write five fields, as in `30 2 * * *`, or one of @hourly … @yearly",
                };
                return Err(RuleError::new(
                    format!("expected 5 fields ({SHAPE}) or 6 (second first), found {found}"),
                    hint,
                ));
            }
        };
        if texts.len() == SPECS.len() {
            read_as_quartz(expression, &mut texts, notes);
        }
        let mut fields = [Field::only(0); 6];
        let unwritten = SPECS.len() - specs.len();
        for ((spec, &(offset, text)), field) in
            specs.iter().zip(&texts).zip(&mut fields[unwritten..])
        {
            *field = Field::parse(spec, text, position(expression, offset), key)?;
        }
        let [second, minute, hour, day_of_month, month, day_of_week] = fields;
        let fields = Fields {
            second,
            minute,
            hour,
            day_of_month,
            month,
            day_of_week,
        };
        if texts.len() == SPECS.len() {
            fields.note_hashed_days(expression, &texts, notes);
        }
        Ok(fields)
    }

    /// Say what a `?` of a day field chose: who knows Quartz expects every day.
    fn note_hashed_days(&self, expression: &str, texts: &[(usize, &str)], notes: &mut Vec<String>) {
        let days = [
            (3, self.day_of_month, &DAY_OF_MONTH),
            (5, self.day_of_week, &DAY_OF_WEEK),
        ];
        for (index, field, spec) in days {
            if let Some(&(offset, "?")) = texts.get(index) {
                let chosen = field.resolved().normal_form(spec);
                let at = position(expression, offset);
                notes.push(format!(
                    "`?` in the {} field at position {at} was read as `H`, here {chosen}: for \
                     every day, as in Quartz, write `*`",
                    spec.name
                ));
            }
        }
    }

    /// All fields with their kinds, seconds first.
    pub(super) fn with_specs(&self) -> [(Field, &'static FieldSpec); 6] {
        [
            (self.second, &SECOND),
            (self.minute, &MINUTE),
            (self.hour, &HOUR),
            (self.day_of_month, &DAY_OF_MONTH),
            (self.month, &MONTH),
            (self.day_of_week, &DAY_OF_WEEK),
        ]
    }

    /// Whether seconds were written.
    pub(super) fn has_seconds(&self) -> bool {
        self.second != Field::only(0)
    }

    /// Whether neither day field begins with a star.
    pub(super) fn restricts_both_days(&self) -> bool {
        !self.day_of_month.star && !self.day_of_week.star
    }

    pub(super) fn follow_clock(&self) -> bool {
        self.second.star || self.minute.star || self.hour.star
    }

    /// Vixie's rule: a day field that begins with a star narrows the other, two that do not are
    /// alternatives, unless `day_match` says otherwise.
    pub(super) fn days(&self, day_match: DayMatch) -> Days {
        let both = day_match == DayMatch::And || !self.restricts_both_days();
        Days::of(self.day_of_month, self.month, self.day_of_week, both)
    }

    pub(super) fn never_fires(&self) -> RuleError {
        let longest = self.month.numbers().map(days::longest).max().unwrap_or(0);
        let day = self.day_of_month.numbers().next().unwrap_or(0);
        let months = self.month.normal_form(&MONTH);
        if self.day_of_month.special == 0 && day > longest {
            return RuleError::new(
                format!("the expression never fires: month {months} has no day {day}"),
                format!("write a day-of-month of at most {longest}, or other months"),
            );
        }
        let days = self.day_of_month.normal_form(&DAY_OF_MONTH);
        let weekdays = self.day_of_week.normal_form(&DAY_OF_WEEK);
        RuleError::new(
            format!(
                "the expression never fires: month {months} has no day that is `{days}` and on \
                 weekday `{weekdays}` in the years 1970 to 2099"
            ),
            "write other days or other months",
        )
    }

    /// The fields in one fixed spelling, with numbers for names and macros written out.
    pub(super) fn normal_form(&self) -> String {
        let texts: Vec<String> = self
            .with_specs()
            .into_iter()
            .skip(usize::from(!self.has_seconds()))
            .map(|(field, spec)| field.normal_form(spec))
            .collect();
        texts.join(" ")
    }

    /// The fields with numbers for what was chosen by hash.
    pub(super) fn resolved(&self) -> Fields {
        Fields {
            second: self.second.resolved(),
            minute: self.minute.resolved(),
            hour: self.hour.resolved(),
            day_of_month: self.day_of_month.resolved(),
            month: self.month.resolved(),
            day_of_week: self.day_of_week.resolved(),
        }
    }

    /// Whether a number was chosen by hash.
    pub(super) fn are_hashed(&self) -> bool {
        self.with_specs().iter().any(|(field, _)| field.is_hashed())
    }
}

/// In six fields, `?` beside a restricted day field is Quartz's: any day.
fn read_as_quartz(expression: &str, texts: &mut [(usize, &str)], notes: &mut Vec<String>) {
    for (this, other, spec) in [(3, 5, &DAY_OF_MONTH), (5, 3, &DAY_OF_WEEK)] {
        let restricted = !texts[other].1.starts_with(['*', '?']);
        let (offset, text) = &mut texts[this];
        if *text == "?" && restricted {
            *text = "*";
            let at = position(expression, *offset);
            notes.push(format!(
                "`?` in the {} field at position {at} was read as `*`, as in Quartz",
                spec.name
            ));
        }
    }
}

/// The words of `text` between spaces and tabs, each with the byte at which it begins.
pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split([' ', '\t'])
        .scan(0, |offset, word| {
            let begin = *offset;
            *offset += word.len() + 1;
            Some((begin, word))
        })
        .filter(|(_, word)| !word.is_empty())
}
