//! Why an instant is a slot of a rule, or is not. For messages.

use std::time::Duration;

use chrono::{NaiveDateTime, Timelike as _};

use super::cron::CronRule;
use super::dst_effects::{DstAction, DstEffect, naive};
use super::exclude::Exclude;
use super::field_spec::{DAY_OF_MONTH, DAY_OF_WEEK, SECOND};
use super::interval::Interval;
use super::month_days::Month;
use super::part::words;
use super::zone::DAY;
use super::{Rule, Shape};
use campanile_model::clock::Timestamp;

/// The longest time by which a clock change shifts or repeats a local time.
const SHIFT_MAX: Duration = Duration::from_secs(26 * 3_600);

/// Whether an instant is a slot, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotCheck {
    Slot,
    /// These fields of the expression do not allow the local time.
    FieldsDiffer(Vec<FieldMismatch>),
    /// This exclusion matches the local time.
    Excluded(String),
    /// The rule allows the local time, but because of a clock change it does not fire at this instant.
    ClockChange(DstEffect),
    /// The instant is between the slots of an interval, or is not the instant of an `at` rule.
    OffGrid,
    /// The rule has no slots, or none in that year.
    NoSlots,
}

/// A field of a cron expression that does not allow the local time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {field} field `{written}` does not allow {shown}")]
pub struct FieldMismatch {
    /// `minute`, `day-of-week` and the like.
    pub field: &'static str,
    /// The field as written, with the numbers of hashed values: `H = 17`.
    pub written: String,
    /// What the clock shows: `30`, `Sunday`, `March`.
    pub shown: String,
}

impl Rule {
    /// Check whether `instant` is a slot.
    pub fn check_slot(&self, instant: Timestamp) -> SlotCheck {
        if self.matches(instant) {
            return SlotCheck::Slot;
        }
        let effect = self.dst_effects_at(instant).into_iter().next();
        self.mismatch(self.zone.local_at(instant.micros()), effect)
    }

    /// Check a local time in the gap that ends at `change`.
    pub fn check_slot_in_gap(&self, local: NaiveDateTime, change: Timestamp) -> SlotCheck {
        let before = change.minus(Duration::from_micros(1));
        let holds = |effect: &DstEffect| (effect.local..=effect.local_last).contains(&local);
        let effect = self.dst_effects(before, change).find(holds);
        self.mismatch(local.and_utc().timestamp_micros(), effect)
    }

    /// Returns why a local time is no slot. `effect` is the effect of a clock change on it.
    fn mismatch(&self, local: i64, effect: Option<DstEffect>) -> SlotCheck {
        let exclude = match &self.shape {
            Shape::Cron(cron) => {
                let mismatches = cron.mismatches(&self.written, local);
                if !mismatches.is_empty() {
                    return SlotCheck::FieldsDiffer(mismatches);
                }
                &cron.exclude
            }
            Shape::Every(interval) if self.is_on_grid(interval, local) => &interval.exclude,
            Shape::Every(_) | Shape::At(_) => {
                return effect.map_or(SlotCheck::OffGrid, SlotCheck::ClockChange);
            }
            Shape::AfterCompletion(_) | Shape::HostStart => return SlotCheck::NoSlots,
        };
        match (exclude.item_of(local), effect) {
            (Some(item), _) => SlotCheck::Excluded(item.to_owned()),
            (None, Some(effect)) => SlotCheck::ClockChange(effect),
            (None, None) => SlotCheck::NoSlots,
        }
    }

    /// Whether the interval has a slot at a local time, without its exclusions.
    fn is_on_grid(&self, interval: &Interval, local: i64) -> bool {
        let mut whole = interval.clone();
        whole.exclude = Exclude::default();
        let is_slot = |instant: i64| whole.next(self.zone, instant - 1) == Some(instant);
        self.zone.instants_of(local).into_iter().any(is_slot)
    }

    /// Returns the effects of clock changes at `instant`: a local time fires then, or does not fire then.
    pub fn dst_effects_at(&self, instant: Timestamp) -> Vec<DstEffect> {
        let local = self.local(instant);
        let is_at_instant = |effect: &DstEffect| match effect.action {
            DstAction::Shifted { to } => to == instant,
            DstAction::Once { at, not_at } => at == instant || not_at == instant,
            DstAction::Twice { .. } => (effect.local..=effect.local_last).contains(&local),
            DstAction::Skipped | DstAction::NotShown => false,
        };
        let (after, until) = (instant.minus(SHIFT_MAX), instant.plus(SHIFT_MAX));
        self.dst_effects(after, until)
            .filter(is_at_instant)
            .collect()
    }

    /// Returns the instants at which the clock of the rule's zone shows `local`: none in a gap, two in a fold.
    pub fn instants_of(&self, local: NaiveDateTime) -> Vec<Timestamp> {
        let instants = self.zone.instants_of(local.and_utc().timestamp_micros());
        instants.into_iter().map(Timestamp::from_micros).collect()
    }

    /// Returns the end of the gap that contains `local`.
    pub fn gap_end(&self, local: NaiveDateTime) -> Timestamp {
        let local = local.and_utc().timestamp_micros();
        Timestamp::from_micros(self.zone.gap_end(local))
    }
}

impl CronRule {
    /// Returns the fields that do not allow a local time, in the order of the expression `written`.
    fn mismatches(&self, written: &str, local: i64) -> Vec<FieldMismatch> {
        let (month, day) = Month::of(local.div_euclid(DAY));
        let clock = naive(local);
        let [second, minute, hour] =
            [clock.second(), clock.minute(), clock.hour()].map(|number| number as u8);
        let weekday = month.weekday_of(day);
        let shown = [second, minute, hour, day, month.number, weekday];
        let (allows_day, allows_weekday) = self.fields.allow_day(&month, day);
        let mut mismatches = Vec::new();
        let fields = self.fields.with_specs().into_iter().zip(shown);
        for (((field, spec), shown), written) in fields.zip(self.written_fields(written)) {
            let (fits, shown) = match *spec {
                SECOND => (
                    clock.nanosecond() == 0 && field.contains(shown),
                    clock.format("%-S%.f").to_string(),
                ),
                DAY_OF_MONTH => (allows_day, spec.name_of(shown)),
                DAY_OF_WEEK => (allows_weekday, spec.name_of(shown)),
                _ => (field.contains(shown), spec.name_of(shown)),
            };
            if !fits {
                mismatches.push(FieldMismatch {
                    field: spec.name,
                    written: if field.is_hashed() {
                        format!("{written} = {}", field.resolved().normal_form(spec))
                    } else {
                        written
                    },
                    shown,
                });
            }
        }
        mismatches
    }

    fn written_fields(&self, written: &str) -> Vec<String> {
        let spelled = if written.trim_start_matches([' ', '\t']).starts_with('@') {
            self.fields.normal_form()
        } else {
            written.to_owned()
        };
        let mut texts: Vec<String> = words(&spelled).map(|word| word.text.to_owned()).collect();
        if texts.len() < self.fields.with_specs().len() {
            texts.insert(0, "0".to_owned());
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
    use super::*;

    fn new_york(expression: &str) -> Rule {
        cron(expression, "America/New_York").unwrap()
    }

    fn local(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    /// Returns the messages about the fields that differ.
    fn fields(rule: &Rule, instant: &str) -> Vec<String> {
        match rule.check_slot(time(instant)) {
            SlotCheck::FieldsDiffer(mismatches) => {
                mismatches.iter().map(FieldMismatch::to_string).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_fields_that_do_not_match_are_named() {
        for (expression, instant, expected) in [
            (
                "30 2 * * *",
                "2026-05-04T02:31:00-04:00",
                vec!["the minute field `30` does not allow 31"],
            ),
            (
                "30 2 * 1-3 MON-FRI",
                "2026-05-03T03:30:00-04:00",
                vec![
                    "the hour field `2` does not allow 3",
                    "the month field `1-3` does not allow May",
                    "the day-of-week field `MON-FRI` does not allow Sunday",
                ],
            ),
            // Either of two restricted day fields may match.
            (
                "0 0 13 * FRI",
                "2026-05-14T00:00:00-04:00",
                vec![
                    "the day-of-month field `13` does not allow 14",
                    "the day-of-week field `FRI` does not allow Thursday",
                ],
            ),
            // A star narrows the other field.
            (
                "0 0 13 * *",
                "2026-05-14T00:00:00-04:00",
                vec!["the day-of-month field `13` does not allow 14"],
            ),
            (
                "0 0 L * *",
                "2026-05-30T00:00:00-04:00",
                vec!["the day-of-month field `L` does not allow 30"],
            ),
            (
                "@daily",
                "2026-05-14T00:00:30.5-04:00",
                vec!["the second field `0` does not allow 30.500"],
            ),
        ] {
            assert_eq!(
                fields(&new_york(expression), instant),
                expected,
                "{expression}"
            );
        }
        let text = RuleText {
            day_match: DayMatch::And,
            ..RuleText::new(RuleKind::Cron, "0 0 13 * FRI", "UTC")
        };
        let and = rule(&text).unwrap();
        let only_weekday = ["the day-of-week field `FRI` does not allow Wednesday"];
        assert_eq!(fields(&and, "2026-05-13T00:00:00Z"), only_weekday);
    }

    #[test]
    fn hashed_values_are_shown_with_their_numbers() {
        let rule = new_york("H 3 * * *");
        let chosen = rule.resolved_form();
        let minute = chosen.split(' ').next().unwrap();
        let other = (minute.parse::<u8>().unwrap() + 1) % 60;
        let instant = format!("2026-05-14T03:{other:02}:00-04:00");
        let expected = format!("the minute field `H = {minute}` does not allow {other}");
        assert_eq!(fields(&rule, &instant), [expected]);
    }

    #[test]
    fn an_exclusion_is_named_as_written() {
        let exclude = ["2026-12-24..2027-01-01", "07-04", "* 12 * * SUN"].map(str::to_owned);
        let daily = RuleText {
            exclude: exclude.to_vec(),
            ..RuleText::new(RuleKind::Cron, "0 12 * * *", "UTC")
        };
        let every = RuleText {
            anchor: Some(time("2026-01-01T12:00:00Z")),
            exclude: exclude.to_vec(),
            ..RuleText::new(RuleKind::Every, "1d", "UTC")
        };
        for text in [daily, every] {
            let rule = rule(&text).unwrap();
            for (instant, item) in [
                ("2026-12-31T12:00:00Z", &exclude[0]),
                ("2026-07-04T12:00:00Z", &exclude[1]),
                ("2026-05-03T12:00:00Z", &exclude[2]),
            ] {
                let fit = rule.check_slot(time(instant));
                assert_eq!(fit, SlotCheck::Excluded(item.clone()), "{text:?}");
            }
            assert_eq!(
                rule.check_slot(time("2026-05-04T12:00:00Z")),
                SlotCheck::Slot
            );
        }
    }

    #[test]
    fn a_local_time_in_a_gap_or_a_fold_is_explained() {
        let gap_end = time("2026-03-08T03:00:00-04:00");
        let half_past_two = local("2026-03-08T02:30:00");
        let shown = |text: &str| new_york("30 2 * * *").instants_of(local(text));
        assert_eq!(shown("2026-03-08T02:30:00"), []);
        assert_eq!(new_york("30 2 * * *").gap_end(half_past_two), gap_end);
        assert_eq!(
            shown("2026-03-07T02:30:00"),
            [time("2026-03-07T02:30:00-05:00")]
        );
        let (first, second) = (
            time("2026-11-01T01:45:00-04:00"),
            time("2026-11-01T01:45:00-05:00"),
        );
        assert_eq!(shown("2026-11-01T01:45:00"), [first, second]);

        let action = |fit: SlotCheck| match fit {
            SlotCheck::ClockChange(touched) => touched.action,
            other => panic!("{other:?}"),
        };
        let daily = new_york("30 2 * * *");
        let fit = daily.check_slot_in_gap(half_past_two, gap_end);
        assert_eq!(action(fit), DstAction::Shifted { to: gap_end });
        assert_eq!(daily.check_slot(gap_end), SlotCheck::Slot);
        assert_eq!(daily.dst_effects_at(gap_end).len(), 1);
        let wild = new_york("*/15 * * * *").check_slot_in_gap(half_past_two, gap_end);
        assert_eq!(action(wild), DstAction::NotShown);
        let skip = RuleText {
            dst_gap: DstGap::Skip,
            ..RuleText::new(RuleKind::Cron, "30 2 * * *", "America/New_York")
        };
        let fit = rule(&skip)
            .unwrap()
            .check_slot_in_gap(half_past_two, gap_end);
        assert_eq!(action(fit), DstAction::Skipped);
        let other = daily.check_slot_in_gap(local("2026-03-08T02:31:00"), gap_end);
        assert!(matches!(other, SlotCheck::FieldsDiffer(_)), "{other:?}");

        let daily = new_york("45 1 * * *");
        let once = DstAction::Once {
            at: first,
            not_at: second,
        };
        assert_eq!(action(daily.check_slot(second)), once);
        let text = RuleText {
            dst_fold: DstFold::Second,
            ..RuleText::new(RuleKind::Cron, "45 1 * * *", "America/New_York")
        };
        let once = DstAction::Once {
            at: second,
            not_at: first,
        };
        assert_eq!(action(rule(&text).unwrap().check_slot(first)), once);
    }

    #[test]
    fn rules_without_fields_are_checked() {
        let every = every("10m", "UTC").unwrap();
        assert_eq!(
            every.check_slot(time("2026-01-01T00:10:00Z")),
            SlotCheck::Slot
        );
        assert_eq!(
            every.check_slot(time("2026-01-01T00:11:00Z")),
            SlotCheck::OffGrid
        );
        let once = at("2026-01-01T00:10:00Z", "UTC").unwrap();
        assert_eq!(
            once.check_slot(time("2026-01-01T00:11:00Z")),
            SlotCheck::OffGrid
        );
        let ends = parsed(RuleKind::AfterCompletion, "10m", "UTC").unwrap();
        assert_eq!(
            ends.check_slot(time("2026-01-01T00:10:00Z")),
            SlotCheck::NoSlots
        );
        assert_eq!(
            new_york("@reboot").check_slot(time("2026-01-01T00:10:00Z")),
            SlotCheck::NoSlots
        );
    }
}
