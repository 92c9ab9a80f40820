//! The effects of clock changes on the local times of a rule. For messages.

use std::iter;

use chrono::{DateTime, NaiveDateTime};

use super::dst_mapping::{DstMapping, LocalTimes};
use super::search::last_before;
use super::zone::Span;
use super::{Rule, Shape};
use campanile_model::clock::Timestamp;
use campanile_model::rule_text::DstFold;

/// A local time of a rule in a gap or a fold, and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DstEffect {
    pub change: Timestamp,
    pub local: NaiveDateTime,
    /// The last local time with the same effect. It differs from `local` only for a rule that follows
    /// the clock: one effect stands for all its local times at one change.
    pub local_last: NaiveDateTime,
    pub action: DstAction,
}

/// What happens to a local time in a gap or a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DstAction {
    /// In a gap: it fires at `to`, the end of the gap, together with the other local times of the gap.
    Shifted { to: Timestamp },
    /// In a gap: it does not fire, because of `dst_gap` or because the gap is longer than 3 hours.
    Skipped,
    /// In a gap: the rule follows the clock, which does not show the local time.
    NotShown,
    /// In a fold: it fires in the pass `at`, and not in the other.
    Once { at: Timestamp, not_at: Timestamp },
    /// In a fold: it fires in both passes.
    Twice { first: Timestamp, second: Timestamp },
}

impl Rule {
    /// Returns the effects of the clock changes after `after` up to `until`, inclusive, in order.
    ///
    /// Elapsed time has no effects: it does not depend on the clock.
    pub fn dst_effects(
        &self,
        after: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = DstEffect> + '_ {
        let changes = self
            .zone
            .spans_from(after.micros())
            .array_windows()
            .take_while(move |[_, span]| span.begin <= until.micros());
        let times = self.local_times();
        changes.flat_map(move |change| {
            let effects = move |(times, dst)| effects(times, dst, change);
            times.into_iter().flat_map(effects)
        })
    }

    /// Print `2027-03-28 02:30 is left out by the clock: it fires at 2027-03-28T03:00:00+02:00`.
    pub fn dst_effect_text(&self, effect: &DstEffect) -> String {
        let at = |instant| {
            let text = self.local_text(instant);
            text.split('[').next().unwrap_or_default().to_owned()
        };
        let (first, last) = (effect.local, effect.local_last);
        let several = first != last;
        let last = if first.date() == last.date() {
            time_text(last)
        } else {
            clock_text(last)
        };
        let first = clock_text(first);
        let (local, are, they) = if several {
            (format!("{first} to {last}"), "are", "they fire")
        } else {
            (first, "is", "it fires")
        };
        let left_out = format!("{local} {are} left out by the clock");
        let twice = format!("{local} {are} shown twice by the clock");
        match effect.action {
            DstAction::Shifted { to } => format!("{left_out}: {they} at {}", at(to)),
            DstAction::Skipped | DstAction::NotShown => format!("{left_out}: nothing fires"),
            DstAction::Once { at: fires, not_at } => {
                format!("{twice}: {they} at {}, not at {}", at(fires), at(not_at))
            }
            DstAction::Twice { first, second } => {
                let (from, both) = if several {
                    ("from", " both times,")
                } else {
                    ("at", "")
                };
                let (first, second) = (at(first), at(second));
                format!("{twice}: {they}{both} {from} {first} and {from} {second}")
            }
        }
    }

    /// Returns the local times of the rule; `None` for elapsed time and for rules without a clock.
    fn local_times(&self) -> Option<(&dyn LocalTimes, DstMapping)> {
        match &self.shape {
            Shape::Cron(cron) => Some((&**cron, cron.dst)),
            Shape::Every(interval) if !interval.is_elapsed() => Some((&**interval, interval.dst)),
            _ => None,
        }
    }
}

/// Returns the effects of the clock change between two spans.
fn effects<'a>(
    times: &'a dyn LocalTimes,
    dst: DstMapping,
    [before, span]: &'a [Span; 2],
) -> impl Iterator<Item = DstEffect> + 'a {
    let begin = span.reached.min(span.local_begin);
    let end = span.reached.max(span.local_begin);
    let first_from = move |from| times.first_from(from).filter(|&local| local < end);
    let next = move |&local: &i64| first_from(local + 1).filter(|_| !dst.follows_clock);
    iter::successors(first_from(begin), next).map(move |local| {
        let last = || last_before(end, local, |from| times.first_from(from));
        let last = dst.follows_clock.then(last).flatten();
        DstEffect {
            change: Timestamp::from_micros(span.begin),
            local: naive(local),
            local_last: naive(last.unwrap_or(local)),
            action: dst.action(local, before, span),
        }
    })
}

impl DstMapping {
    fn action(self, local: i64, before: &Span, span: &Span) -> DstAction {
        let first = Timestamp::from_micros(local - before.offset);
        let second = Timestamp::from_micros(local - span.offset);
        if local >= span.local_begin {
            let (at, not_at) = match self.fold {
                DstFold::First => (first, second),
                DstFold::Second => (second, first),
                DstFold::Both => return DstAction::Twice { first, second },
            };
            return DstAction::Once { at, not_at };
        }
        if self.follows_clock {
            DstAction::NotShown
        } else if self.shifts(span) {
            DstAction::Shifted {
                to: Timestamp::from_micros(span.begin),
            }
        } else {
            DstAction::Skipped
        }
    }
}

/// Print a date and a time: `2027-03-28 02:30`.
pub fn clock_text(local: NaiveDateTime) -> String {
    format!("{} {}", local.date(), time_text(local))
}

/// Print a time of day, with seconds unless they are 0.
fn time_text(local: NaiveDateTime) -> String {
    let text = local.format("%H:%M:%S").to_string();
    text.strip_suffix(":00").unwrap_or(&text).to_owned()
}

pub(super) fn naive(local: i64) -> NaiveDateTime {
    DateTime::from_timestamp_micros(local)
        .unwrap_or_default()
        .naive_utc()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{DstGap, RuleKind, RuleText};
    use super::*;

    /// Returns the effects of 2026: the first and the last local time, and the action.
    fn effects(rule: &Rule) -> Vec<(String, String, DstAction)> {
        let (after, until) = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
        let text = |local: NaiveDateTime| local.format("%m-%d %H:%M").to_string();
        rule.dst_effects(after, until)
            .map(|effect| (text(effect.local), text(effect.local_last), effect.action))
            .collect()
    }

    fn one(local: &str, action: DstAction) -> (String, String, DstAction) {
        (local.to_owned(), local.to_owned(), action)
    }

    #[test]
    fn fixed_times_have_an_effect_each() {
        let text = RuleText::new(RuleKind::Cron, "0,30 1,2 * * *", "America/New_York");
        let moved = DstAction::Shifted {
            to: time("2026-03-08T03:00:00-04:00"),
        };
        let (zero, half) = ("2026-11-01T01:00:00", "2026-11-01T01:30:00");
        let pass = |local: &str, offset: &str| time(&format!("{local}{offset}"));
        let first = |local: &str| DstAction::Once {
            at: pass(local, "-04:00"),
            not_at: pass(local, "-05:00"),
        };
        assert_eq!(
            effects(&rule(&text).unwrap()),
            [
                one("03-08 02:00", moved),
                one("03-08 02:30", moved),
                one("11-01 01:00", first(zero)),
                one("11-01 01:30", first(half)),
            ]
        );
        let text = RuleText {
            dst_gap: DstGap::Skip,
            dst_fold: DstFold::Both,
            exclude: vec!["0 * * * *".to_owned()],
            ..text
        };
        let twice = DstAction::Twice {
            first: pass(half, "-04:00"),
            second: pass(half, "-05:00"),
        };
        assert_eq!(
            effects(&rule(&text).unwrap()),
            [
                one("03-08 02:30", DstAction::Skipped),
                one("11-01 01:30", twice)
            ]
        );
    }

    #[test]
    fn a_rule_that_follows_the_clock_has_one_effect_for_each_change() {
        let rule = cron("*/10 * * * *", "Europe/Paris").unwrap();
        let twice = DstAction::Twice {
            first: time("2026-10-25T02:00:00+02:00"),
            second: time("2026-10-25T02:00:00+01:00"),
        };
        let span = |first: &str, last: &str, action| (first.to_owned(), last.to_owned(), action);
        assert_eq!(
            effects(&rule),
            [
                span("03-29 02:00", "03-29 02:50", DstAction::NotShown),
                span("10-25 02:00", "10-25 02:50", twice),
            ]
        );
    }

    #[test]
    fn elapsed_time_and_other_times_of_day_have_no_effects() {
        assert!(effects(&every("10m", "Europe/Paris").unwrap()).is_empty());
        assert!(effects(&cron("30 3 * * *", "Europe/Paris").unwrap()).is_empty());
        assert!(effects(&cron("30 2 * * *", "UTC").unwrap()).is_empty());
        assert!(effects(&at("2026-03-29T00:30:00Z", "Europe/Paris").unwrap()).is_empty());
        let text = RuleText {
            anchor: Some(time("2026-01-01T02:15:00+01:00")),
            ..RuleText::new(RuleKind::Every, "1d", "Europe/Paris")
        };
        assert_eq!(effects(&rule(&text).unwrap()).len(), 2);
    }

    #[test]
    fn a_day_that_a_country_left_out_is_skipped() {
        let rule = cron("0 12 * * *", "Pacific/Apia").unwrap();
        let (after, until) = (time("2011-12-01T00:00:00Z"), time("2012-01-01T00:00:00Z"));
        let fates: Vec<DstAction> = rule
            .dst_effects(after, until)
            .map(|effect| effect.action)
            .collect();
        assert_eq!(fates, [DstAction::Skipped]);
    }
}
