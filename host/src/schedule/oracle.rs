//! Rules against a second implementation that walks every minute, or every second.
//!
//! It shares nothing with the first: it reads the expression's text for each number, asks
//! chrono-tz for the offset at each step, and knows gaps and folds only from a clock that jumps.

use chrono::{DateTime, Datelike as _, NaiveDateTime, Offset as _, TimeZone as _, Timelike as _};
use chrono_tz::{TZ_VARIANTS, Tz};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::testing::*;
use super::{RuleKind, RuleText};
use crate::clock::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// 1973, when the last offset with seconds was gone: walking by minutes misses nothing after it.
const START_MIN: i64 = 94_694_400;
/// The end of 2099.
const END: i64 = 4_102_444_800;
/// A year and a clock change before the end.
const START_MAX: i64 = END - 800 * DAY;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Which numbers the fields of an expression allow, found by trying each.
struct Expression {
    allowed: [Vec<bool>; 6],
    both_days: bool,
    wildcard: bool,
}

impl Expression {
    fn read(text: &str) -> Expression {
        let mut texts: Vec<&str> = text.split(' ').collect();
        if texts.len() == 5 {
            texts.insert(0, "0");
        }
        let starts = [0, 0, 0, 1, 1, 0];
        let ends = [59, 59, 23, 31, 12, 6];
        let allowed = std::array::from_fn(|field| {
            (0..64)
                .map(|number| {
                    let is = |number| allows(texts[field], field, starts[field], number);
                    (starts[field]..=ends[field]).contains(&number)
                        && (is(number) || field == 5 && number == 0 && is(7))
                })
                .collect()
        });
        Expression {
            allowed,
            both_days: texts[3].starts_with('*') || texts[5].starts_with('*'),
            wildcard: texts[..3].iter().any(|text| text.starts_with('*')),
        }
    }

    fn matches(&self, local: i64) -> bool {
        let local = DateTime::from_timestamp(local, 0).unwrap();
        let is = |field: usize, number: u32| self.allowed[field][number as usize];
        let day_of_month = is(3, local.day());
        let day_of_week = is(5, local.weekday().num_days_from_sunday());
        is(0, local.second())
            && is(1, local.minute())
            && is(2, local.hour())
            && is(4, local.month())
            && if self.both_days {
                day_of_month && day_of_week
            } else {
                day_of_month || day_of_week
            }
    }

    /// The slots in `(after, until]`, in seconds, found by walking `step` by `step`.
    fn walk(&self, tz: Tz, after: i64, until: i64, step: i64) -> Vec<i64> {
        // No clock ever went back by more than a day.
        let begin = (after - 25 * HOUR).div_euclid(step) * step;
        let mut highest = begin - step + offset(tz, begin);
        let mut slots = Vec::new();
        for instant in (begin..=until).step_by(step as usize) {
            let local = instant + offset(tz, instant);
            let fires = if self.wildcard {
                self.matches(local)
            } else if local <= highest {
                false
            } else {
                let skipped = local - highest - step;
                let first = if skipped <= 3 * HOUR {
                    highest + step
                } else {
                    local
                };
                (first..=local)
                    .step_by(step as usize)
                    .any(|local| self.matches(local))
            };
            highest = highest.max(local);
            if fires && instant > after {
                slots.push(instant);
            }
        }
        slots
    }
}

fn allows(text: &str, field: usize, start: u32, number: u32) -> bool {
    text.split(',').any(|item| {
        let (base, step) = item.split_once('/').unwrap_or((item, "1"));
        let value = |text: &str| match text.parse() {
            Ok(number) => number,
            Err(_) => {
                let names = if field == 4 {
                    &MONTHS[..]
                } else {
                    &WEEKDAYS[..]
                };
                let is = |name: &&str| **name == text.to_lowercase();
                start + names.iter().position(is).unwrap() as u32
            }
        };
        let (first, last) = match base.split_once('-') {
            Some((first, last)) => (value(first), value(last)),
            None if base == "*" => (start, 63),
            None => (value(base), value(base)),
        };
        let step: u32 = step.parse().unwrap();
        (first..=last).contains(&number) && (number - first).is_multiple_of(step)
    })
}

fn offset(tz: Tz, instant: i64) -> i64 {
    let utc = DateTime::from_timestamp(instant, 0).unwrap().naive_utc();
    i64::from(tz.offset_from_utc_datetime(&utc).fix().local_minus_utc())
}

fn random_zone(random: &mut StdRng) -> Tz {
    const TELLING: [Tz; 12] = [
        Tz::America__New_York,
        Tz::Europe__London,
        Tz::Australia__Lord_Howe,
        Tz::Africa__Casablanca,
        Tz::Pacific__Apia,
        Tz::Asia__Beirut,
        Tz::America__Sao_Paulo,
        Tz::Antarctica__Troll,
        Tz::Antarctica__Casey,
        Tz::Antarctica__Vostok,
        Tz::Pacific__Chatham,
        Tz::Asia__Gaza,
    ];
    if random.random_bool(0.5) {
        TELLING[random.random_range(0..TELLING.len())]
    } else {
        TZ_VARIANTS[random.random_range(0..TZ_VARIANTS.len())]
    }
}

/// An instant; mostly one that is up to two days before a change of offset.
fn random_start(random: &mut StdRng, tz: Tz) -> i64 {
    let start = random.random_range(START_MIN..START_MAX);
    let change = (0..400)
        .map(|day| start + day * DAY)
        .find(|&day| offset(tz, day) != offset(tz, day + DAY));
    match change {
        Some(day) if random.random_bool(0.8) => day - random.random_range(-DAY..DAY),
        _ => start,
    }
}

fn random_field(random: &mut StdRng, field: usize, star_chance: f64) -> String {
    let (start, end) = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)][field];
    if random.random_bool(star_chance) {
        return match random.random_range(0..4) {
            0 => format!("*/{}", random.random_range(1..=end + 2)),
            _ => "*".to_owned(),
        };
    }
    let items: Vec<String> = (0..random.random_range(1..=3))
        .map(|_| {
            let first = random.random_range(start..=end);
            let last = random.random_range(first..=end);
            match random.random_range(0..6) {
                0 => format!("{first}-{last}"),
                1 => format!("{first}-{last}/{}", random.random_range(1..10)),
                2 if field == 4 => MONTHS[first as usize - 1].to_uppercase(),
                2 if field == 5 => WEEKDAYS[first as usize % 7].to_owned(),
                _ => first.to_string(),
            }
        })
        .collect();
    items.join(",")
}

/// An expression with times of day around those at which clocks change.
fn random_expression(random: &mut StdRng, seconds: bool) -> String {
    let mut fields: Vec<String> = [(0, 0.3), (1, 0.3), (2, 0.3), (3, 0.6), (4, 0.8), (5, 0.6)]
        .into_iter()
        .map(|(field, star)| random_field(random, field, star))
        .collect();
    if random.random_bool(0.5) {
        let hours = [0, 1, 2, 3, 4, 23];
        fields[2] = hours[random.random_range(0..hours.len())].to_string();
    }
    if !seconds {
        fields.remove(0);
    }
    fields.join(" ")
}

/// Compare a random rule with the oracle over `length` seconds. Returns how many slots it had.
fn compare(random: &mut StdRng, seconds: bool, length: i64) -> usize {
    let expression = random_expression(random, seconds);
    let tz = random_zone(random);
    let start = random_start(random, tz);
    let rule = match cron(&expression, tz.name()) {
        Ok(rule) => rule,
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains("never fires"), "`{expression}`: {said}");
            return 0;
        }
    };
    let context = || format!("`{expression}` in {tz} after {start}");
    let step = if seconds { 1 } else { MINUTE };
    let end = start + length;
    let expected: Vec<Timestamp> = Expression::read(&expression)
        .walk(tz, start, end, step)
        .into_iter()
        .map(|second| Timestamp::from_micros(second * 1_000_000))
        .collect();
    let timestamp = |second: i64| Timestamp::from_micros(second * 1_000_000);
    let found: Vec<Timestamp> = rule.slots(timestamp(start), timestamp(end)).collect();
    assert_eq!(found, expected, "{}", context());
    for _ in 0..20 {
        let after = Timestamp::from_micros(random.random_range(start..end) * 1_000_000 + 999_999);
        let next = rule.next(after);
        assert!(next.is_none_or(|next| next > after), "{}", context());
        let next = next.filter(|&next| next <= timestamp(end));
        let first = expected.iter().find(|&&slot| slot > after);
        assert_eq!(next.as_ref(), first, "{} and {after}", context());
    }
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

/// The instant of a local time by asking chrono-tz about every minute around it.
fn instant_of(tz: Tz, local: NaiveDateTime) -> Option<i64> {
    if let Some(instant) = tz.from_local_datetime(&local).earliest() {
        return Some(instant.timestamp());
    }
    let exists = |minutes: i64| {
        let near = local + chrono::TimeDelta::minutes(minutes);
        tz.from_local_datetime(&near).earliest()
    };
    let (back, _) = (1..).find_map(|minutes| Some((minutes, exists(-minutes)?)))?;
    let (forth, end) = (0..).find_map(|minutes| Some((minutes, exists(minutes)?)))?;
    (back - 1 + forth <= 3 * 60).then_some(end.timestamp())
}

#[test]
fn intervals_on_the_wall_clock_agree_with_counting_from_the_anchor() {
    let mut random = seeded("intervals");
    for _ in 0..1_000 {
        let tz = random_zone(&mut random);
        // Whole minutes, so that a gap can be measured in minutes.
        let anchor = random_start(&mut random, tz) / MINUTE * MINUTE;
        let (unit, one) = [("d", 1), ("w", 7), ("mo", 0)][random.random_range(0..3)];
        let count = random.random_range(1..=3u32);
        let rule = rule(&RuleText {
            anchor: Some(Timestamp::from_micros(anchor * 1_000_000)),
            ..RuleText::new(RuleKind::Every, &format!("{count}{unit}"), tz.name())
        })
        .unwrap();
        let local = DateTime::from_timestamp(anchor + offset(tz, anchor), 0)
            .unwrap()
            .naive_utc();
        let expected: Vec<Timestamp> = (0..100u32)
            .filter_map(|index| match (index, one) {
                (0, _) => Some(anchor),
                (_, 0) => instant_of(tz, clamped_months(local, index * count)),
                _ => {
                    let days = i64::from(index * count * one);
                    instant_of(tz, local + chrono::TimeDelta::days(days))
                }
            })
            .filter(|&second| second + offset(tz, second) < END)
            .map(|second| Timestamp::from_micros(second * 1_000_000))
            .collect();
        let before = Timestamp::from_micros(anchor * 1_000_000 - 1);
        let end = expected[expected.len() - 1];
        let found: Vec<Timestamp> = rule.slots(before, end).collect();
        assert_eq!(found, expected, "{count}{unit} in {tz} from {anchor}");
        let after = random.random_range(before.micros()..end.micros());
        let first = expected.iter().find(|slot| slot.micros() > after);
        assert_eq!(rule.next(Timestamp::from_micros(after)).as_ref(), first);
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
