//! How one moment fits a rule, and what keeps it from being a slot. For people to read.

use std::fmt;
use std::time::Duration;

use chrono::{NaiveDateTime, Timelike as _};

use super::cron::CronRule;
use super::days::Month;
use super::explain::{MONTHS, WEEKDAYS};
use super::field::{Field, FieldSpec};
use super::fields::words;
use super::interval::Interval;
use super::touched::{Fate, Touched, naive};
use super::zone::DAY;
use super::{Rule, Shape};
use campanile_model::clock::Timestamp;

/// No change of offset moves a slot, or shows a local time again, by more than this.
const MOVED_MAX: Duration = Duration::from_secs(26 * 3_600);

/// How one moment fits a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is a slot.
    Slot,
    /// These fields of the expression do not allow what the clock shows.
    Fields(Vec<Misfit>),
    /// It would be a slot, but this exclusion leaves it out.
    LeftOut(String),
    /// The rule names what the clock shows, and a change of offset keeps it from firing at this moment.
    Touched(Touched),
    /// It is none of the slots of an interval, or not the one of an instant.
    Between,
    /// The clock gives the rule no slots, or none of that year.
    NoSlots,
}

/// A field of a cron expression that does not allow what the clock shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// `minute`, `day-of-week` and the like.
    pub field: &'static str,
    /// As it was written, with the numbers of hashed values: `H = 17`.
    pub written: String,
    /// What the clock shows: `30`, `Sunday`, `March`.
    pub shown: String,
}

/// When a clock shows a local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// As most: once.
    Once(Timestamp),
    /// In a fold.
    Twice(Timestamp, Timestamp),
    /// In a gap: never, it is left out by this change of offset.
    Never {
        /// The end of the gap.
        change: Timestamp,
    },
}

impl Rule {
    /// How `instant` fits.
    pub fn fit(&self, instant: Timestamp) -> Fit {
        if self.matches(instant) {
            return Fit::Slot;
        }
        let touched = self.touched_at(instant).into_iter().next();
        self.misfit(self.zone.local_at(instant.micros()), touched)
    }

    /// How a local time fits that the clock leaves out at `change`.
    pub fn fit_left_out(&self, local: NaiveDateTime, change: Timestamp) -> Fit {
        let before = change.minus(Duration::from_micros(1));
        let holds = |touched: &Touched| (touched.local..=touched.local_last).contains(&local);
        let touched = self.touched(before, change).find(holds);
        self.misfit(local.and_utc().timestamp_micros(), touched)
    }

    /// Why a local time is no slot, which a change of offset may have `touched`.
    fn misfit(&self, local: i64, touched: Option<Touched>) -> Fit {
        let exclude = match &self.shape {
            Shape::Cron(cron) => {
                let misfits = cron.misfits(&self.written, local);
                if !misfits.is_empty() {
                    return Fit::Fields(misfits);
                }
                &cron.exclude
            }
            Shape::Every(interval) if self.is_on_grid(interval, local) => &interval.exclude,
            Shape::Every(_) | Shape::At(_) => {
                return touched.map_or(Fit::Between, Fit::Touched);
            }
            Shape::AfterCompletion(_) | Shape::HostStart => return Fit::NoSlots,
        };
        match (exclude.of(local), touched) {
            (Some(item), _) => Fit::LeftOut(item.to_owned()),
            (None, Some(touched)) => Fit::Touched(touched),
            (None, None) => Fit::NoSlots,
        }
    }

    /// Whether the interval would have a slot at a local time if it left nothing out.
    fn is_on_grid(&self, interval: &Interval, local: i64) -> bool {
        let whole = interval.whole();
        let is_slot = |instant: i64| {
            let before = Timestamp::from_micros(instant - 1);
            whole.next(self.zone, before) == Some(Timestamp::from_micros(instant))
        };
        self.zone.instants_of(local).into_iter().any(is_slot)
    }

    /// The changes of offset that have a part in what happens at `instant`: by which a local time fires then, or does
    /// not although the clock shows it.
    pub fn touched_at(&self, instant: Timestamp) -> Vec<Touched> {
        let local = self.local(instant);
        let has_part = |touched: &Touched| match touched.fate {
            Fate::Moved { to } => to == instant,
            Fate::Once { at, not_at } => at == instant || not_at == instant,
            Fate::Twice { .. } => (touched.local..=touched.local_last).contains(&local),
            Fate::Skipped | Fate::NotShown => false,
        };
        let (after, until) = (instant.minus(MOVED_MAX), instant.plus(MOVED_MAX));
        self.touched(after, until).filter(has_part).collect()
    }

    /// When the clock of the rule's zone shows `local`.
    pub fn shown(&self, local: NaiveDateTime) -> Shown {
        let local = local.and_utc().timestamp_micros();
        match self.zone.instants_of(local)[..] {
            [] => Shown::Never {
                change: Timestamp::from_micros(self.zone.gap_end(local)),
            },
            [once] => Shown::Once(Timestamp::from_micros(once)),
            [first, second, ..] => Shown::Twice(
                Timestamp::from_micros(first),
                Timestamp::from_micros(second),
            ),
        }
    }
}

impl CronRule {
    /// The fields that do not allow a local time, in the order of the expression, which is `written`.
    fn misfits(&self, written: &str, local: i64) -> Vec<Misfit> {
        let (month, day) = Month::of(local.div_euclid(DAY));
        let (number, weekday) = self.fields.days(self.day_match).allow(&month, day);
        let clock = naive(local);
        let [second, minute, hour] =
            [clock.second(), clock.minute(), clock.hour()].map(|number| number as u8);
        let fields = &self.fields;
        let shown: [(bool, String); 6] = [
            (
                clock.nanosecond() == 0 && fields.second.contains(second),
                clock.format("%-S%.f").to_string(),
            ),
            (fields.minute.contains(minute), minute.to_string()),
            (fields.hour.contains(hour), hour.to_string()),
            (number, day.to_string()),
            (
                fields.month.contains(month.number),
                MONTHS[usize::from(month.number - 1)].to_owned(),
            ),
            (
                weekday,
                WEEKDAYS[usize::from(month.weekday_of(day))].to_owned(),
            ),
        ];
        let written = self.written_fields(written);
        let fields = fields.with_specs().into_iter().zip(written).zip(shown);
        fields
            .filter(|(_, (fits, _))| !fits)
            .map(|(((field, spec), text), (_, shown))| Misfit {
                field: spec.name,
                written: with_numbers(field, spec, text),
                shown,
            })
            .collect()
    }

    /// The text of each field, seconds first.
    fn written_fields(&self, written: &str) -> Vec<String> {
        let spelled = match written.trim_start_matches([' ', '\t']).starts_with('@') {
            true => self.fields.normal_form(),
            false => written.to_owned(),
        };
        let mut texts: Vec<String> = words(&spelled).map(|(_, text)| text.to_owned()).collect();
        if texts.len() < self.fields.with_specs().len() {
            texts.insert(0, "0".to_owned());
        }
        texts
    }
}

/// A field as it was written, and what hashed values in it are.
fn with_numbers(field: Field, spec: &FieldSpec, written: String) -> String {
    match field.is_hashed() {
        true => format!("{written} = {}", field.resolved().normal_form(spec)),
        false => written,
    }
}

/// `the hour field `2` does not allow 3`.
impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misfit {
            field,
            written,
            shown,
        } = self;
        write!(f, "the {field} field `{written}` does not allow {shown}")
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

    /// Which fields are in the way, as a person reads it.
    fn fields(rule: &Rule, instant: &str) -> Vec<String> {
        match rule.fit(time(instant)) {
            Fit::Fields(misfits) => misfits.iter().map(Misfit::to_string).collect(),
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
            // Of two restricted day fields either will do.
            (
                "0 0 13 * FRI",
                "2026-05-14T00:00:00-04:00",
                vec![
                    "the day-of-month field `13` does not allow 14",
                    "the day-of-week field `FRI` does not allow Thursday",
                ],
            ),
            // A star narrows.
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
    fn hashed_values_are_told_with_their_numbers() {
        let rule = new_york("H 3 * * *");
        let chosen = rule.resolved_form();
        let minute = chosen.split(' ').next().unwrap();
        let other = (minute.parse::<u8>().unwrap() + 1) % 60;
        let instant = format!("2026-05-14T03:{other:02}:00-04:00");
        let expected = format!("the minute field `H = {minute}` does not allow {other}");
        assert_eq!(fields(&rule, &instant), [expected]);
    }

    #[test]
    fn an_exclusion_is_named_as_it_was_written() {
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
                let fit = rule.fit(time(instant));
                assert_eq!(fit, Fit::LeftOut(item.clone()), "{text:?}");
            }
            assert_eq!(rule.fit(time("2026-05-04T12:00:00Z")), Fit::Slot);
        }
    }

    #[test]
    fn a_time_that_the_clock_leaves_out_or_shows_twice_is_told() {
        let gap_end = time("2026-03-08T03:00:00-04:00");
        let half_past_two = local("2026-03-08T02:30:00");
        let shown = |text: &str| new_york("30 2 * * *").shown(local(text));
        let left_out = Shown::Never { change: gap_end };
        assert_eq!(shown("2026-03-08T02:30:00"), left_out);
        assert_eq!(
            shown("2026-03-07T02:30:00"),
            Shown::Once(time("2026-03-07T02:30:00-05:00"))
        );
        let (first, second) = (
            time("2026-11-01T01:45:00-04:00"),
            time("2026-11-01T01:45:00-05:00"),
        );
        assert_eq!(shown("2026-11-01T01:45:00"), Shown::Twice(first, second));

        let fate = |fit: Fit| match fit {
            Fit::Touched(touched) => touched.fate,
            other => panic!("{other:?}"),
        };
        let daily = new_york("30 2 * * *");
        let fit = daily.fit_left_out(half_past_two, gap_end);
        assert_eq!(fate(fit), Fate::Moved { to: gap_end });
        assert_eq!(daily.fit(gap_end), Fit::Slot);
        assert_eq!(daily.touched_at(gap_end).len(), 1);
        let wild = new_york("*/15 * * * *").fit_left_out(half_past_two, gap_end);
        assert_eq!(fate(wild), Fate::NotShown);
        let skip = RuleText {
            dst_gap: DstGap::Skip,
            ..RuleText::new(RuleKind::Cron, "30 2 * * *", "America/New_York")
        };
        let fit = rule(&skip).unwrap().fit_left_out(half_past_two, gap_end);
        assert_eq!(fate(fit), Fate::Skipped);
        let other = daily.fit_left_out(local("2026-03-08T02:31:00"), gap_end);
        assert!(matches!(other, Fit::Fields(_)), "{other:?}");

        let daily = new_york("45 1 * * *");
        let once = Fate::Once {
            at: first,
            not_at: second,
        };
        assert_eq!(fate(daily.fit(second)), once);
        let text = RuleText {
            dst_fold: DstFold::Second,
            ..RuleText::new(RuleKind::Cron, "45 1 * * *", "America/New_York")
        };
        let once = Fate::Once {
            at: second,
            not_at: first,
        };
        assert_eq!(fate(rule(&text).unwrap().fit(first)), once);
    }

    #[test]
    fn rules_without_fields_say_less() {
        let every = every("10m", "UTC").unwrap();
        assert_eq!(every.fit(time("2026-01-01T00:10:00Z")), Fit::Slot);
        assert_eq!(every.fit(time("2026-01-01T00:11:00Z")), Fit::Between);
        let once = at("2026-01-01T00:10:00Z", "UTC").unwrap();
        assert_eq!(once.fit(time("2026-01-01T00:11:00Z")), Fit::Between);
        let ends = parsed(RuleKind::AfterCompletion, "10m", "UTC").unwrap();
        assert_eq!(ends.fit(time("2026-01-01T00:10:00Z")), Fit::NoSlots);
        assert_eq!(
            new_york("@reboot").fit(time("2026-01-01T00:10:00Z")),
            Fit::NoSlots
        );
    }
}
