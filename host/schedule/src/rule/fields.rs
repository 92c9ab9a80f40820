//! The fields of a cron expression, together.

use super::error::{RuleError, position};
use super::field::Field;
use super::field_spec::{DAY_OF_MONTH, DAY_OF_WEEK, FieldSpec, HOUR, MINUTE, MONTH, SECOND};
use super::hash::HashKey;
use super::month_days::{self, Days};
use campanile_model::rule_text::DayMatch;

static SPECS: [FieldSpec; 6] = [SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK];

const SHAPE: &str = "minute hour day-of-month month day-of-week";

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
    /// Read five fields, or six with seconds first. Add to `notes` what a Quartz user may misread.
    pub(super) fn parse(
        expression: &str,
        key: HashKey,
        notes: &mut Vec<String>,
    ) -> Result<Fields, RuleError> {
        let mut texts: Vec<(usize, &str)> = words(expression).collect();
        let unwritten = match texts.len() {
            6 => 0,
            5 => 1,
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
        if unwritten == 0 {
            read_as_quartz(expression, &mut texts, notes);
        }
        let mut fields = [Field::only(0); 6];
        for (index, &(offset, text)) in (unwritten..).zip(&texts) {
            fields[index] = Field::parse(&SPECS[index], text, position(expression, offset), key)?;
        }
        let fields = Fields::of(fields);
        if unwritten == 0 {
            fields.note_hashed_days(expression, &texts, notes);
        }
        Ok(fields)
    }

    fn of([second, minute, hour, day_of_month, month, day_of_week]: [Field; 6]) -> Fields {
        Fields {
            second,
            minute,
            hour,
            day_of_month,
            month,
            day_of_week,
        }
    }

    /// Note the number that a `?` of a day field stands for: in Quartz it is every day.
    fn note_hashed_days(&self, expression: &str, texts: &[(usize, &str)], notes: &mut Vec<String>) {
        for index in [3, 5] {
            if let Some(&(offset, "?")) = texts.get(index) {
                let (field, spec) = self.with_specs()[index];
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

    /// Return the fields with their specifications, seconds first.
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

    /// Join the day fields by the rule of Vixie's cron, or by `day_match`.
    ///
    /// Either of two restricted fields may match. A field that begins with a star narrows the other.
    pub(super) fn days(&self, day_match: DayMatch) -> Days {
        Days {
            day_of_month: self.day_of_month,
            month: self.month,
            day_of_week: self.day_of_week,
            both: day_match == DayMatch::And || !self.restricts_both_days(),
        }
    }

    pub(super) fn never_fires(&self) -> RuleError {
        let longest = self.month.numbers().map(month_days::longest).max();
        let longest = longest.unwrap_or(0);
        let day = self.day_of_month.numbers().next().unwrap_or(0);
        let months = self.month.normal_form(&MONTH);
        if self.day_of_month.quartz == 0 && day > longest {
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

    /// Print the fields in one fixed spelling, with numbers for names and fields for macros.
    pub(super) fn normal_form(&self) -> String {
        let written = usize::from(!self.has_seconds())..;
        let texts = self
            .with_specs()
            .map(|(field, spec)| field.normal_form(spec));
        texts[written].join(" ")
    }

    /// Return the fields with numbers for `H`.
    pub(super) fn resolved(&self) -> Fields {
        Fields::of(self.with_specs().map(|(field, _)| field.resolved()))
    }

    pub(super) fn are_hashed(&self) -> bool {
        self.with_specs().iter().any(|(field, _)| field.is_hashed())
    }
}

/// In six fields, read `?` beside a restricted day field as Quartz does: any day.
fn read_as_quartz(expression: &str, texts: &mut [(usize, &str)], notes: &mut Vec<String>) {
    for (this, other) in [(3, 5), (5, 3)] {
        let restricted = !texts[other].1.starts_with(['*', '?']);
        let (offset, text) = &mut texts[this];
        if *text == "?" && restricted {
            *text = "*";
            let at = position(expression, *offset);
            notes.push(format!(
                "`?` in the {} field at position {at} was read as `*`, as in Quartz",
                SPECS[this].name
            ));
        }
    }
}

/// Return the words of `text` between spaces and tabs, each with the byte at which it begins.
pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split([' ', '\t'])
        .scan(0, |offset, word| {
            let begin = *offset;
            *offset += word.len() + 1;
            Some((begin, word))
        })
        .filter(|(_, word)| !word.is_empty())
}
