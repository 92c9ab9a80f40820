//! Rules against a second implementation that walks every minute, or every second.
//!
//! It shares nothing with the first: it reads the expression's text for each number, asks
//! chrono-tz for the offset at each step, and knows gaps and folds only from a clock that jumps.

mod random;
mod reading;

use chrono::{DateTime, Datelike as _, NaiveDateTime, Offset as _, TimeZone as _};
use chrono_tz::Tz;
use rand::Rng as _;
use rand::rngs::StdRng;

use super::testing::*;
use super::{DayMatch, DstFold, DstGap, Rule, RuleKind, RuleText};
use crate::clock::Timestamp;
use random::{random_start, random_text, random_zone};
use reading::Reading;

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// The end of 2099.
const END: i64 = 4_102_444_800;

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

fn offset(tz: Tz, instant: i64) -> i64 {
    let utc = DateTime::from_timestamp(instant, 0).unwrap().naive_utc();
    i64::from(tz.offset_from_utc_datetime(&utc).fix().local_minus_utc())
}

/// The slots of a rule in `(after, until]`, in seconds, found by walking `step` by `step`.
fn walk(text: &RuleText, reading: &Reading, after: i64, until: i64, step: i64) -> Vec<i64> {
    let tz: Tz = text.timezone.parse().unwrap();
    // No clock ever went back by more than a day.
    let begin = (after - 25 * HOUR).div_euclid(step) * step;
    let mut highest = begin - step + offset(tz, begin);
    let mut slots = Vec::new();
    for instant in (begin..=until).step_by(step as usize) {
        let local = instant + offset(tz, instant);
        let skipped = local - highest - step;
        let again = local <= highest;
        highest = highest.max(local);
        let shown = reading.matches(local);
        let fires = if reading.wildcard {
            shown
        } else {
            let moved = text.dst_gap == DstGap::Shift
                && (step..=3 * HOUR).contains(&skipped)
                && (local - skipped..local)
                    .step_by(step as usize)
                    .any(|local| reading.matches(local));
            let in_its_pass = match text.dst_fold {
                DstFold::First => !again,
                DstFold::Second => shown && !is_shown_again(tz, instant, step),
                DstFold::Both => true,
            };
            moved || shown && in_its_pass
        };
        if fires && instant > after {
            slots.push(instant);
        }
    }
    slots
}

fn is_shown_again(tz: Tz, instant: i64, step: i64) -> bool {
    let before = offset(tz, instant);
    // Only a clock that goes back shows a time again.
    before > offset(tz, instant + 25 * HOUR)
        && (step..=25 * HOUR)
            .step_by(step as usize)
            .any(|later| later + offset(tz, instant + later) == before)
}

/// A random rule, its overrides taken back when they mean nothing to it; `None` if it never fires.
fn random_rule(random: &mut StdRng, tz: Tz, start: i64, seconds: bool) -> Option<(RuleText, Rule)> {
    let mut text = random_text(random, tz, start, seconds);
    for _ in 0..3 {
        let said = match rule(&text) {
            Ok(rule) => return Some((text, rule)),
            Err(error) => error.to_string(),
        };
        if said.starts_with("day_match") {
            text.day_match = DayMatch::Or;
        } else if said.starts_with("dst_") {
            (text.dst_gap, text.dst_fold) = (DstGap::Shift, DstFold::First);
        } else {
            assert!(said.contains("never fires"), "{text:?}: {said}");
            break;
        }
    }
    None
}

/// Compare a random rule with the oracle over `length` seconds. Returns how many slots it had.
fn compare(random: &mut StdRng, seconds: bool, length: i64) -> usize {
    let tz = random_zone(random);
    let start = random_start(random, tz);
    let Some((text, rule)) = random_rule(random, tz, start, seconds) else {
        return 0;
    };
    let context = || format!("{text:?} after {start}");
    let step = if seconds { 1 } else { MINUTE };
    let end = start + length;
    let reading = Reading::of(&text, &rule.resolved_form());
    let timestamp = |second: i64| Timestamp::from_micros(second * 1_000_000);
    let expected: Vec<Timestamp> = walk(&text, &reading, start, end, step)
        .into_iter()
        .map(timestamp)
        .collect();
    let found: Vec<Timestamp> = rule.slots(timestamp(start), timestamp(end)).collect();
    assert_eq!(found, expected, "{}", context());
    let after_end = timestamp(end + 1);
    let backwards = std::iter::successors(rule.prev(after_end), |&slot| rule.prev(slot));
    let mut backwards: Vec<Timestamp> = backwards.take(expected.len()).collect();
    backwards.reverse();
    assert_eq!(backwards, expected, "{}", context());
    for _ in 0..20 {
        let instant = Timestamp::from_micros(random.random_range(start..end) * 1_000_000 + 999_999);
        let next = rule.next(instant);
        assert!(next.is_none_or(|next| next > instant), "{}", context());
        let next = next.filter(|&next| next <= timestamp(end));
        let first = expected.iter().find(|&&slot| slot > instant);
        assert_eq!(next.as_ref(), first, "{} and {instant}", context());
        let prev = rule.prev(instant).filter(|&prev| prev > timestamp(start));
        let last = expected.iter().rfind(|&&slot| slot < instant);
        assert_eq!(prev.as_ref(), last, "{} and {instant}", context());
        assert!(!rule.matches(instant), "{}", context());
    }
    assert!(
        expected.iter().all(|&slot| rule.matches(slot)),
        "{}",
        context()
    );
    expected.len()
}

#[test]
fn every_minute_around_clock_changes_agrees_with_the_oracle() {
    let mut random = seeded("minutes");
    let slots: usize = (0..3_000)
        .map(|_| compare(&mut random, false, 3 * DAY))
        .sum();
    assert!(slots > 10_000, "only {slots} slots were compared");
}

#[test]
fn every_second_around_clock_changes_agrees_with_the_oracle() {
    let mut random = seeded("seconds");
    let slots: usize = (0..100).map(|_| compare(&mut random, true, DAY)).sum();
    assert!(slots > 1_000, "only {slots} slots were compared");
}

#[test]
fn every_minute_of_a_year_agrees_with_the_oracle() {
    let mut random = seeded("years");
    let slots: usize = (0..30)
        .map(|_| compare(&mut random, false, 366 * DAY))
        .sum();
    assert!(slots > 1_000, "only {slots} slots were compared");
}

/// The instants of a local time by asking chrono-tz about every minute around it.
fn instants_of(tz: Tz, local: NaiveDateTime, text: &RuleText) -> Vec<i64> {
    let found = tz.from_local_datetime(&local);
    if let (Some(first), Some(second)) = (found.earliest(), found.latest()) {
        let (first, second) = (first.timestamp(), second.timestamp());
        return match text.dst_fold {
            DstFold::First => vec![first],
            DstFold::Second => vec![second],
            DstFold::Both if first == second => vec![first],
            DstFold::Both => vec![first, second],
        };
    }
    let exists = |minutes: i64| {
        let near = local + chrono::TimeDelta::minutes(minutes);
        tz.from_local_datetime(&near).earliest()
    };
    let (back, _) = (1..)
        .find_map(|minutes| Some((minutes, exists(-minutes)?)))
        .unwrap();
    let (forth, end) = (0..)
        .find_map(|minutes| Some((minutes, exists(minutes)?)))
        .unwrap();
    let moved = text.dst_gap == DstGap::Shift && back - 1 + forth <= 3 * 60;
    moved.then_some(end.timestamp()).into_iter().collect()
}

/// An interval of random overrides and exclusions, and its anchor in seconds.
fn random_interval(random: &mut StdRng, tz: Tz, expression: String) -> (RuleText, i64) {
    // Whole minutes, so that a gap can be measured in minutes.
    let anchor = random_start(random, tz) / MINUTE * MINUTE;
    let of_cron = random_text(random, tz, anchor, false);
    let elapsed = expression.ends_with(['h', 'm', 's']);
    let text = RuleText {
        anchor: Some(Timestamp::from_micros(anchor * 1_000_000)),
        dst_gap: if elapsed {
            DstGap::Shift
        } else {
            of_cron.dst_gap
        },
        dst_fold: if elapsed {
            DstFold::First
        } else {
            of_cron.dst_fold
        },
        exclude: of_cron.exclude,
        ..RuleText::new(RuleKind::Every, expression, tz.name())
    };
    (text, anchor)
}

/// Compare the first slots of an interval with those expected, in seconds, forwards and backwards.
fn compare_interval(random: &mut StdRng, text: &RuleText, anchor: i64, expected: &[i64]) {
    let tz: Tz = text.timezone.parse().unwrap();
    let expected: Vec<Timestamp> = expected
        .iter()
        .filter(|&&second| second + offset(tz, second) < END)
        .map(|second| Timestamp::from_micros(second * 1_000_000))
        .collect();
    let Some(&end) = expected.last() else {
        return;
    };
    let rule = rule(text).unwrap();
    let before = Timestamp::from_micros(anchor * 1_000_000 - 1);
    let found: Vec<Timestamp> = rule.slots(before, end).collect();
    assert_eq!(found, expected, "{text:?}");
    for _ in 0..5 {
        let instant = Timestamp::from_micros(random.random_range(before.micros()..end.micros()));
        let first = expected.iter().find(|&&slot| slot > instant);
        assert_eq!(rule.next(instant).as_ref(), first, "{text:?} {instant}");
        let last = expected.iter().rfind(|&&slot| slot < instant);
        assert_eq!(rule.prev(instant).as_ref(), last, "{text:?} {instant}");
    }
}

#[test]
fn intervals_on_the_wall_clock_agree_with_counting_from_the_anchor() {
    let mut random = seeded("intervals");
    for _ in 0..1_000 {
        let tz = random_zone(&mut random);
        let (unit, one) = [("d", 1), ("w", 7), ("mo", 0)][random.random_range(0..3)];
        let count = random.random_range(1..=3u32);
        let (text, anchor) = random_interval(&mut random, tz, format!("{count}{unit}"));
        let any_time = Reading::of(&text, "* * * * *");
        let local = DateTime::from_timestamp(anchor + offset(tz, anchor), 0)
            .unwrap()
            .naive_utc();
        let mut expected = Vec::new();
        for index in 0..100u32 {
            let local = match one {
                0 => clamped_months(local, index * count),
                _ => local + chrono::TimeDelta::days(i64::from(index * count * one)),
            };
            // The seconds of offsets with seconds are in the anchor.
            let minute = local.and_utc().timestamp() / MINUTE * MINUTE;
            match index {
                _ if !any_time.matches(minute) => {}
                0 => expected.push(anchor),
                _ => expected.extend(instants_of(tz, local, &text)),
            }
        }
        compare_interval(&mut random, &text, anchor, &expected);
    }
}

#[test]
fn intervals_of_elapsed_time_agree_with_counting_from_the_anchor() {
    let mut random = seeded("elapsed intervals");
    for _ in 0..300 {
        let tz = random_zone(&mut random);
        let minutes = random.random_range(1..=90);
        let (text, anchor) = random_interval(&mut random, tz, format!("{minutes}m"));
        let any_time = Reading::of(&text, "* * * * *");
        let slots = (0..2_000).map(|index| anchor + index * minutes * MINUTE);
        let expected: Vec<i64> = slots
            .filter(|&slot| any_time.matches(slot + offset(tz, slot)))
            .collect();
        compare_interval(&mut random, &text, anchor, &expected);
    }
}

/// `months` later on the same day, or on the last of a shorter month.
fn clamped_months(local: NaiveDateTime, months: u32) -> NaiveDateTime {
    let month = local.month0() + months;
    let first = local.with_day(1).unwrap();
    let first = first.with_year(first.year() + (month / 12) as i32).unwrap();
    let first = first.with_month0(month % 12).unwrap();
    (1..=local.day())
        .rev()
        .find_map(|day| first.with_day(day))
        .unwrap()
}
