//! Warnings about a rule that its author may not have meant.

use std::time::Duration;

use super::cron::CronRule;
use super::dst_effects::DstAction;
use super::error::quoted;
use super::explain::{Naming, days_of_week};
use super::field::Field;
use super::field_spec::{HOUR, MINUTE};
use super::fields::Fields;
use super::month_days;
use super::{Rule, Shape};
use campanile_model::clock::Timestamp;
use campanile_model::words;

/// How far ahead clock changes are searched: two years.
pub const WARNED_AHEAD: Duration = Duration::from_secs(2 * 366 * 86_400);

words! {
    /// What a warning is about.
    WarningKind {
        /// Both day fields are restricted, and a day that matches either one fires.
        EitherDay => "either_day",
        /// A local time of the rule is in a gap.
        Gap => "gap",
        /// Quartz reads the expression differently.
        Quartz => "quartz",
        /// The steps of a field do not divide it evenly.
        UnevenStep => "uneven_step",
        /// Some months have none of the days of the rule.
        ShortMonth => "short_month",
        /// Many schedules fire in the same minute.
        Herd => "herd",
    }
}

/// A part of a rule that is allowed, and perhaps not meant.
#[derive(
    Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Warning {
    pub kind: WarningKind,
    /// What will happen, in one sentence.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

impl Warning {
    fn new(kind: WarningKind, message: impl Into<String>, hint: impl Into<String>) -> Warning {
        Warning {
            kind,
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl Rule {
    /// Returns the warnings about the rule. Gaps are searched in the two years after `after`.
    pub fn warnings(&self, after: Timestamp) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if let Shape::Cron(cron) = &self.shape {
            warnings.extend(cron.either_day());
            warnings.extend(self.quartz(cron));
            warnings.extend(cron.uneven_steps());
            warnings.extend(cron.short_month());
            warnings.extend(cron.herd());
        }
        warnings.extend(self.gap(after));
        warnings
    }

    /// Warn that the next slot is in the same minute as the next slots of `others` other schedules.
    pub fn crowded(&self, others: i64) -> Warning {
        let hint = match &self.shape {
            Shape::Cron(cron) if !cron.fields.minute.is_hashed() => {
                "write `H` for the minute, or choose another minute"
            }
            Shape::Cron(_) => "choose another minute instead of `H`",
            Shape::Every(_) => "give an anchor in another minute",
            Shape::At(_) => "choose another minute",
            Shape::AfterCompletion(_) | Shape::HostStart => "choose another delay, or set jitter",
        };
        Warning::new(
            WarningKind::Herd,
            format!("{others} other schedules have their next slot in the same minute"),
            hint,
        )
    }

    /// Warn about the first local time in a gap.
    fn gap(&self, after: Timestamp) -> Option<Warning> {
        // A rule of every hour loses nothing by an hour that the clock does not show.
        let is_of_every_hour =
            matches!(&self.shape, Shape::Cron(cron) if cron.fields.hour.is_full(&HOUR));
        let mut effects = self.dst_effects(after, after.plus(WARNED_AHEAD));
        let effect = effects.find(|effect| match effect.action {
            DstAction::Shifted { .. } => true,
            DstAction::Skipped | DstAction::NotShown => !is_of_every_hour,
            DstAction::Once { .. } | DstAction::Twice { .. } => false,
        })?;
        let (what, hint) = match effect.action {
            DstAction::Shifted { to } => (
                format!("it fires at {}", self.local_text(to)),
                "choose another time of day; to leave out such slots, set dst_gap to `skip`",
            ),
            _ => (
                "nothing fires for it".to_owned(),
                "choose another time of day",
            ),
        };
        let local = effect.local.format("%Y-%m-%d %H:%M:%S");
        let zone = self.timezone();
        Some(Warning::new(
            WarningKind::Gap,
            format!("the clock of {zone} leaves out {local}: {what}"),
            hint,
        ))
    }

    /// Warn about weekdays by number in six fields, the form of Quartz.
    fn quartz(&self, cron: &CronRule) -> Option<Warning> {
        let mut words = self.written.split_ascii_whitespace();
        let weekdays = words.nth(5)?;
        let numbered = weekdays
            .split(',')
            .any(|item| item.starts_with(|letter: char| letter.is_ascii_digit()));
        let by_name = days_of_week(cron.fields.day_of_week, Naming::Together);
        numbered.then(|| {
            Warning::new(
                WarningKind::Quartz,
                format!(
                    "weekdays count from 0 for Sunday, so {} is {by_name}; Quartz counts from 1",
                    quoted(weekdays)
                ),
                "write names, which mean the same everywhere",
            )
        })
    }
}

impl CronRule {
    fn either_day(&self) -> Option<Warning> {
        (!self.fields.match_both_days()).then(|| {
            let days = self.fields.days_text();
            Warning::new(
                WarningKind::EitherDay,
                format!(
                    "both day fields are restricted, so that a day which matches either one fires: \
                     {days}"
                ),
                "for days that match both, set day_match to `and`; for one field only, write `*` \
                 in the other",
            )
        })
    }

    fn uneven_steps(&self) -> impl Iterator<Item = Warning> {
        let fields = self.fields.with_specs().into_iter();
        fields.filter_map(|(field, spec)| {
            let step = field.step(spec)?;
            let choices = spec.max - spec.min + 1;
            if choices.is_multiple_of(step) && step < choices {
                return None;
            }
            let numbers: Vec<u8> = field.numbers().collect();
            let message = match numbers[..] {
                [only] => format!("`*/{step}` in the {} field is {only} alone", spec.name),
                _ => format!(
                    "`*/{step}` in the {} field begins anew at {}, so that its last step is \
                     shorter",
                    spec.name, spec.min
                ),
            };
            Some(Warning::new(
                WarningKind::UnevenStep,
                message,
                "for a distance that is always the same, use the kind `every`",
            ))
        })
    }

    /// Warn about days 29 to 31 in shorter months.
    fn short_month(&self) -> Option<Warning> {
        let days = self.fields.day_of_month;
        let first = days.numbers().next().filter(|_| days.quartz == 0)?;
        let months = || self.fields.month.numbers();
        let lacking = months().filter(|&month| first > month_days::longest(month));
        let lacking: Vec<String> = lacking.map(|month| month.to_string()).collect();
        let mostly = |month| first == 29 && month_days::longest(month) == 29;
        let message = match &lacking[..] {
            [] if months().any(mostly) => {
                "month 2 mostly has no day 29, and then no slot".to_owned()
            }
            [] => return None,
            [month] => format!("month {month} has no day {first}, and so no slot"),
            months => {
                let months = months.join(", ");
                format!("months {months} have no day {first}, and so no slot")
            }
        };
        Some(Warning::new(
            WarningKind::ShortMonth,
            message,
            "for the last day of every month, write `L` as the day-of-month",
        ))
    }

    fn herd(&self) -> Option<Warning> {
        let fields = self.fields;
        (!fields.has_seconds() && fields.minute == Field::only(0)).then(|| {
            let minute = Field::any_hashed(&MINUTE);
            let spread = Fields { minute, ..fields }.normal_form();
            Warning::new(
                WarningKind::Herd,
                "many schedules fire at minute 0, all at once",
                format!("write `{spread}`: each schedule then has another minute"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::RuleKind;
    use super::super::testing::*;
    use super::*;

    fn warnings(expression: &str, zone: &str) -> Vec<Warning> {
        let rule = cron(expression, zone).unwrap();
        rule.warnings(time("2026-06-01T00:00:00Z"))
    }

    /// Returns the only warning about an expression in UTC.
    fn only(expression: &str) -> (WarningKind, String, String) {
        let mut warnings = warnings(expression, "UTC");
        assert_eq!(warnings.len(), 1, "`{expression}`: {warnings:?}");
        let warning = warnings.remove(0);
        (warning.kind, warning.message, warning.hint)
    }

    #[test]
    fn a_rule_that_may_not_be_meant_has_a_warning() {
        let cases = [
            (
                "5 0 13 * FRI",
                WarningKind::EitherDay,
                "both day fields are restricted, so that a day which matches either one fires: on \
                 the 13th and on Friday",
                "for days that match both, set day_match to `and`; for one field only, write `*` \
                 in the other",
            ),
            (
                "0 5 9 * * 1-5",
                WarningKind::Quartz,
                "weekdays count from 0 for Sunday, so `1-5` is Monday to Friday; Quartz counts \
                 from 1",
                "write names, which mean the same everywhere",
            ),
            (
                "*/40 * * * *",
                WarningKind::UnevenStep,
                "`*/40` in the minute field begins anew at 0, so that its last step is shorter",
                "for a distance that is always the same, use the kind `every`",
            ),
            (
                "*/60 * * * *",
                WarningKind::UnevenStep,
                "`*/60` in the minute field is 0 alone",
                "for a distance that is always the same, use the kind `every`",
            ),
            (
                "5 0 31 * *",
                WarningKind::ShortMonth,
                "months 2, 4, 6, 9, 11 have no day 31, and so no slot",
                "for the last day of every month, write `L` as the day-of-month",
            ),
            (
                "5 0 29 * *",
                WarningKind::ShortMonth,
                "month 2 mostly has no day 29, and then no slot",
                "for the last day of every month, write `L` as the day-of-month",
            ),
            (
                "0 3 * * MON",
                WarningKind::Herd,
                "many schedules fire at minute 0, all at once",
                "write `H 3 * * 1`: each schedule then has another minute",
            ),
        ];
        for (expression, kind, message, hint) in cases {
            let expected = (kind, message.to_owned(), hint.to_owned());
            assert_eq!(only(expression), expected, "`{expression}`");
        }
    }

    #[test]
    fn the_hint_about_a_crowded_minute_fits_the_kind_of_the_rule() {
        for (kind, expression, hint) in [
            (
                RuleKind::Cron,
                "5 3 * * *",
                "write `H` for the minute, or choose another minute",
            ),
            (
                RuleKind::Cron,
                "H 3 * * *",
                "choose another minute instead of `H`",
            ),
            (
                RuleKind::Cron,
                "@every 15m",
                "give an anchor in another minute",
            ),
            (RuleKind::Every, "1h", "give an anchor in another minute"),
            (
                RuleKind::At,
                "2026-11-21T09:00:00Z",
                "choose another minute",
            ),
        ] {
            let warning = parsed(kind, expression, "UTC").unwrap().crowded(10);
            assert_eq!(warning.kind, WarningKind::Herd);
            assert_eq!(
                warning.message,
                "10 other schedules have their next slot in the same minute"
            );
            assert_eq!(warning.hint, hint, "`{expression}`");
        }
    }

    #[test]
    fn an_ordinary_rule_has_no_warning() {
        for expression in [
            "*/15 * * * *",
            "H H * * *",
            "30 9 * * MON-FRI",
            "5 9 * * 1-5",
            "0 5 9 * * MON-FRI",
            "0 5 9 * * MON",
            "5 0 1,15,L * *",
            "5 0 28 * *",
            "5 0 31 1,12 *",
            "@every 40m",
            "@reboot",
        ] {
            assert_eq!(warnings(expression, "UTC"), [], "`{expression}`");
        }
        assert_eq!(warnings("*/5 * * * *", "Europe/Paris"), []);
        assert_eq!(warnings("30 3 * * *", "Europe/Paris"), []);
    }

    #[test]
    fn a_time_in_a_gap_is_shown_with_its_day() {
        let message = |expression| {
            let warnings = warnings(expression, "Europe/Paris");
            let [warning] = &warnings[..] else {
                panic!("{warnings:?}");
            };
            assert_eq!(warning.kind, WarningKind::Gap);
            warning.message.clone()
        };
        assert_eq!(
            message("30 2 * * *"),
            "the clock of Europe/Paris leaves out 2027-03-28 02:30:00: it fires at \
             2027-03-28T03:00:00+02:00[Europe/Paris]"
        );
        assert_eq!(
            message("*/15 2 * * *"),
            "the clock of Europe/Paris leaves out 2027-03-28 02:00:00: nothing fires for it"
        );
    }
}
