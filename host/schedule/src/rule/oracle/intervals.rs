//! Intervals, compared with counting from their anchors.

use chrono::{DateTime, Datelike as _, NaiveDateTime, TimeZone as _};
use chrono_tz::Tz;
use rand::Rng as _;
use rand::rngs::StdRng;

use super::super::testing::*;
use super::super::{DstFold, DstGap, RuleKind, RuleText};
use super::random::{random_start, random_text, random_zone};
use super::reading::Reading;
use super::{DAY, END, MINUTE, compare_counts, offset};
use campanile_model::clock::Timestamp;

/// Returns the instants of a local time, from the answers of chrono-tz for every minute around it.
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

/// Returns an interval with random overrides and exclusions, and its anchor in seconds.
fn random_interval(random: &mut StdRng, tz: Tz, expression: String) -> (RuleText, i64) {
    // Whole minutes, so that a gap can be measured in minutes.
    let anchor = random_start(random, tz, DAY) / MINUTE * MINUTE;
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

/// Compare the first slots of an interval with the expected slots, in seconds, forwards and backwards.
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
    let context = || format!("{text:?}");
    compare_counts(random, &rule, &expected, (before, end), &context);
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
            // The anchor has the seconds of an offset with seconds.
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

/// Returns the same day `months` later, or the last day of a shorter month.
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
