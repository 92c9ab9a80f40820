//! Which slots a change of offset touches, and what happens to each. For people to read.

use std::iter;

use chrono::{DateTime, NaiveDateTime};

use super::passes::{LocalTimes, Passes};
use super::zone::Span;
use super::{Rule, Shape};
use campanile_model::clock::Timestamp;
use campanile_model::rule_text::DstFold;

/// A local time that a change of offset leaves out or shows twice, and what a rule does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The instant at which the offset changes.
    pub change: Timestamp,
    /// The local time that the rule names.
    pub local: NaiveDateTime,
    /// The last local time touched alike. Other than `local` only for a rule that follows the
    /// clock: all its local times of one change are told together.
    pub local_last: NaiveDateTime,
    /// What happens to it.
    pub fate: Fate,
}

/// What happens to a local time that a change of offset touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// In a gap: it fires when the gap ends, once with all others that do.
    Moved {
        /// The end of the gap.
        to: Timestamp,
    },
    /// In a gap: it does not fire, since the rule says so or the gap is longer than 3 hours.
    Skipped,
    /// In a gap: the clock does not show it, and the rule follows the clock.
    NotShown,
    /// In a fold: it fires in one of its two passes.
    Once {
        /// When it fires.
        at: Timestamp,
        /// The other pass, in which it does not.
        not_at: Timestamp,
    },
    /// In a fold: it fires in both passes.
    Twice {
        /// The first pass.
        first: Timestamp,
        /// The second pass.
        second: Timestamp,
    },
}

impl Rule {
    /// The local times of the rule touched by the changes of offset after `after`, up to and with
    /// `until`, in order. None for elapsed time, which does not look at the clock.
    pub fn touched(
        &self,
        after: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = Touched> + '_ {
        let changes = self
            .zone
            .spans_from(after.micros())
            .array_windows()
            .take_while(move |[_, span]| span.begin <= until.micros());
        let named = self.named();
        named.into_iter().flat_map(move |named| {
            changes
                .clone()
                .flat_map(move |change| named.touched(change))
        })
    }

    /// `2027-03-28 02:30 is left out by the clock: it fires at 2027-03-28T03:00:00+02:00`.
    pub fn touched_text(&self, touched: &Touched) -> String {
        let at = |instant| {
            let mut text = self.local_text(instant);
            text.truncate(text.find('[').unwrap_or(text.len()));
            text
        };
        let several = touched.local != touched.local_last;
        let (first, last) = (touched.local, touched.local_last);
        let local = match several {
            true if first.date() == last.date() => {
                format!("{} to {}", clock_text(first), time_text(last))
            }
            true => format!("{} to {}", clock_text(first), clock_text(last)),
            false => clock_text(first),
        };
        let (are, they) = if several {
            ("are", "they fire")
        } else {
            ("is", "it fires")
        };
        let left_out = format!("{local} {are} left out by the clock");
        let twice = format!("{local} {are} shown twice by the clock");
        match touched.fate {
            Fate::Moved { to } => format!("{left_out}: {they} at {}", at(to)),
            Fate::Skipped | Fate::NotShown => format!("{left_out}: nothing fires"),
            Fate::Once { at: fires, not_at } => {
                format!("{twice}: {they} at {}, not at {}", at(fires), at(not_at))
            }
            Fate::Twice { first, second } if several => {
                format!(
                    "{twice}: {they} both times, from {} and from {}",
                    at(first),
                    at(second)
                )
            }
            Fate::Twice { first, second } => {
                format!("{twice}: {they} at {} and at {}", at(first), at(second))
            }
        }
    }

    /// The local times that the rule names, if it does.
    fn named(&self) -> Option<Named<'_>> {
        match &self.shape {
            Shape::Cron(cron) => Some(Named {
                times: &**cron,
                passes: cron.passes,
                follows_clock: cron.follows_clock(),
            }),
            Shape::Every(interval) if !interval.is_elapsed() => Some(Named {
                times: &**interval,
                passes: interval.passes,
                follows_clock: false,
            }),
            _ => None,
        }
    }
}

/// The local times of a rule, and how it meets them.
#[derive(Clone, Copy)]
struct Named<'a> {
    times: &'a dyn LocalTimes,
    passes: Passes,
    follows_clock: bool,
}

impl<'a> Named<'a> {
    /// The local times that the change between two spans leaves out or shows twice.
    fn touched(self, [before, span]: &'a [Span; 2]) -> impl Iterator<Item = Touched> + 'a {
        let begin = span.reached.min(span.local_begin);
        let end = span.reached.max(span.local_begin);
        let first_from = move |from| self.times.first_from(from).filter(|&local| local < end);
        let next = move |&local: &i64| first_from(local + 1).filter(|_| !self.follows_clock);
        iter::successors(first_from(begin), next).map(move |local| {
            let last = self.times.last_before(end).filter(|_| self.follows_clock);
            Touched {
                change: Timestamp::from_micros(span.begin),
                local: naive(local),
                local_last: naive(last.unwrap_or(local)),
                fate: self.fate(local, before, span),
            }
        })
    }

    fn fate(self, local: i64, before: &Span, span: &Span) -> Fate {
        let first = Timestamp::from_micros(local - before.offset);
        let second = Timestamp::from_micros(local - span.offset);
        if local >= span.local_begin {
            return match self.passes.fold {
                DstFold::First => Fate::Once {
                    at: first,
                    not_at: second,
                },
                DstFold::Second => Fate::Once {
                    at: second,
                    not_at: first,
                },
                DstFold::Both => Fate::Twice { first, second },
            };
        }
        if self.follows_clock {
            Fate::NotShown
        } else if self.passes.moves(span) {
            Fate::Moved {
                to: Timestamp::from_micros(span.begin),
            }
        } else {
            Fate::Skipped
        }
    }
}

/// Date and time as people write them: `2027-03-28 02:30`.
pub fn clock_text(local: NaiveDateTime) -> String {
    format!("{} {}", local.date(), time_text(local))
}

/// A time of day, with seconds if there are any.
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

    /// The touched local times of 2026: their first and last on the clock, and their fate.
    fn touched(rule: &Rule) -> Vec<(String, String, Fate)> {
        let (after, until) = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
        let text = |local: NaiveDateTime| local.format("%m-%d %H:%M").to_string();
        rule.touched(after, until)
            .map(|touched| (text(touched.local), text(touched.local_last), touched.fate))
            .collect()
    }

    fn one(local: &str, fate: Fate) -> (String, String, Fate) {
        (local.to_owned(), local.to_owned(), fate)
    }

    #[test]
    fn fixed_times_are_told_one_by_one() {
        let text = RuleText::new(RuleKind::Cron, "0,30 1,2 * * *", "America/New_York");
        let moved = Fate::Moved {
            to: time("2026-03-08T03:00:00-04:00"),
        };
        let (zero, half) = ("2026-11-01T01:00:00", "2026-11-01T01:30:00");
        let pass = |local: &str, offset: &str| time(&format!("{local}{offset}"));
        let first = |local: &str| Fate::Once {
            at: pass(local, "-04:00"),
            not_at: pass(local, "-05:00"),
        };
        assert_eq!(
            touched(&rule(&text).unwrap()),
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
        let twice = Fate::Twice {
            first: pass(half, "-04:00"),
            second: pass(half, "-05:00"),
        };
        assert_eq!(
            touched(&rule(&text).unwrap()),
            [one("03-08 02:30", Fate::Skipped), one("11-01 01:30", twice)]
        );
    }

    #[test]
    fn the_times_of_a_rule_that_follows_the_clock_are_told_together() {
        let rule = cron("*/10 * * * *", "Europe/Paris").unwrap();
        let twice = Fate::Twice {
            first: time("2026-10-25T02:00:00+02:00"),
            second: time("2026-10-25T02:00:00+01:00"),
        };
        let span = |first: &str, last: &str, fate| (first.to_owned(), last.to_owned(), fate);
        assert_eq!(
            touched(&rule),
            [
                span("03-29 02:00", "03-29 02:50", Fate::NotShown),
                span("10-25 02:00", "10-25 02:50", twice),
            ]
        );
    }

    #[test]
    fn elapsed_time_and_other_times_of_day_are_not_touched() {
        assert!(touched(&every("10m", "Europe/Paris").unwrap()).is_empty());
        assert!(touched(&cron("30 3 * * *", "Europe/Paris").unwrap()).is_empty());
        assert!(touched(&cron("30 2 * * *", "UTC").unwrap()).is_empty());
        assert!(touched(&at("2026-03-29T00:30:00Z", "Europe/Paris").unwrap()).is_empty());
        let text = RuleText {
            anchor: Some(time("2026-01-01T02:15:00+01:00")),
            ..RuleText::new(RuleKind::Every, "1d", "Europe/Paris")
        };
        assert_eq!(touched(&rule(&text).unwrap()).len(), 2);
    }

    #[test]
    fn a_day_that_a_country_left_out_is_skipped() {
        let rule = cron("0 12 * * *", "Pacific/Apia").unwrap();
        let (after, until) = (time("2011-12-01T00:00:00Z"), time("2012-01-01T00:00:00Z"));
        let fates: Vec<Fate> = rule
            .touched(after, until)
            .map(|touched| touched.fate)
            .collect();
        assert_eq!(fates, [Fate::Skipped]);
    }
}
