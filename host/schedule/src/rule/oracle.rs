//! Rules against a second implementation that walks every minute, or every second.
//!
//! It shares no code with the first: it reads the expression's text for each number, asks
//! chrono-tz for the offset at each step, and knows gaps and folds only from a clock that jumps.
//!
//! [`compare`] asserts the properties of every rule: `next(t)` is after `t`, no slot is between them,
//! `prev(next(t))` is not after `t`, and the normal form means the same. `hash.rs` tests hashed values,
//! and `tests/conformance/rule_texts.rs` the properties of every text.

mod intervals;
mod random;
mod reading;

use std::collections::BTreeSet;
use std::ops::Range;

use chrono::{DateTime, Offset as _, TimeZone as _};
use chrono_tz::Tz;
use rand::Rng as _;
use rand::rngs::StdRng;

use super::testing::*;
use super::{DayMatch, DstFold, DstGap, Rule, RuleText};
use campanile_model::clock::Timestamp;
use random::{changes, random_start, random_text, random_zone};
use reading::Reading;

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// The end of 2099.
const END: i64 = 4_102_444_800;

/// The clock changes that every seed meets: gaps and folds of half an hour and of one, two and three
/// hours, at midnight, one without summer time, and a day that a zone skipped.
const KNOWN: [(Tz, &str); 14] = [
    (Tz::America__New_York, "2026-03-08T07:00:00Z"),
    (Tz::America__New_York, "2026-11-01T06:00:00Z"),
    (Tz::Australia__Lord_Howe, "2026-04-04T15:00:00Z"),
    (Tz::Australia__Lord_Howe, "2026-10-03T15:30:00Z"),
    (Tz::Antarctica__Troll, "2026-03-29T01:00:00Z"),
    (Tz::Antarctica__Troll, "2026-10-25T01:00:00Z"),
    (Tz::Antarctica__Casey, "2009-10-17T18:00:00Z"),
    (Tz::Africa__Casablanca, "2026-02-15T02:00:00Z"),
    (Tz::Africa__Casablanca, "2026-03-22T02:00:00Z"),
    (Tz::Pacific__Apia, "2011-12-30T10:00:00Z"),
    (Tz::Asia__Beirut, "2026-03-28T22:00:00Z"),
    (Tz::America__Sao_Paulo, "2018-11-04T03:00:00Z"),
    (Tz::Asia__Kathmandu, "1985-12-31T18:30:00Z"),
    (Tz::Pacific__Chatham, "2026-09-26T14:00:00Z"),
];

/// The triples around each of these changes.
const EACH_KNOWN: usize = 20;

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

fn offset(tz: Tz, instant: i64) -> i64 {
    let utc = DateTime::from_timestamp(instant, 0).unwrap().naive_utc();
    i64::from(tz.offset_from_utc_datetime(&utc).fix().local_minus_utc())
}

/// Returns the slots of a rule in `(after, until]`, in seconds, by a walk in steps of `step`.
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
        if instant <= after {
            continue;
        }
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
        if fires {
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

/// Returns a random rule, without overrides that mean nothing to it; `None` if it never fires.
fn random_rule(random: &mut StdRng, tz: Tz, start: i64, seconds: bool) -> Option<(RuleText, Rule)> {
    let mut text = random_text(random, tz, start, seconds);
    for _ in 0..3 {
        let message = match rule(&text) {
            Ok(rule) => return Some((text, rule)),
            Err(error) => error.to_string(),
        };
        if message.starts_with("day_match") {
            text.day_match = DayMatch::Or;
        } else if message.starts_with("dst_") {
            (text.dst_gap, text.dst_fold) = (DstGap::Shift, DstFold::First);
        } else {
            assert!(message.contains("never fires"), "{text:?}: {message}");
            break;
        }
    }
    None
}

/// The comparisons. A triple is an expression, a zone and a start.
#[derive(Default)]
struct Tally {
    triples: usize,
    /// The triples with a clock change.
    around_changes: usize,
    /// The triples with slots. The oracle found none for the others either.
    ringing: usize,
    slots: usize,
    zones: BTreeSet<&'static str>,
    /// The clock changes, as zone and instant.
    met: BTreeSet<(&'static str, i64)>,
}

impl Tally {
    /// Compare `triples` random rules with the oracle, each over `length` seconds: some around each
    /// of the `known` changes, and then others.
    fn of(what: &str, known: &[(Tz, &str)], triples: usize, seconds: bool, length: i64) -> Tally {
        let mut random = seeded(what);
        let mut tally = Tally::default();
        while tally.triples < triples {
            let (tz, start) = match known.get(tally.triples / EACH_KNOWN) {
                Some(&(tz, change)) => {
                    let change = time(change).micros() / 1_000_000;
                    (tz, change - random.random_range(1..length))
                }
                None => {
                    let tz = random_zone(&mut random);
                    (tz, random_start(&mut random, tz, length))
                }
            };
            tally.compare(&mut random, tz, start, seconds, length);
        }
        println!(
            "{what}: {triples} triples in {} zones, {} around {} changes, {} with {} slots",
            tally.zones.len(),
            tally.around_changes,
            tally.met.len(),
            tally.ringing,
            tally.slots
        );
        tally
    }

    fn compare(&mut self, random: &mut StdRng, tz: Tz, start: i64, seconds: bool, length: i64) {
        let Some((text, rule)) = random_rule(random, tz, start, seconds) else {
            return;
        };
        let slots = compare(random, &text, &rule, seconds, start..start + length);
        self.slots += slots;
        self.ringing += usize::from(slots > 0);
        self.triples += 1;
        self.zones.insert(tz.name());
        let during = |change: &&i64| (start + 1..=start + length).contains(*change);
        let mut changes = changes(tz).iter().filter(during).peekable();
        self.around_changes += usize::from(changes.peek().is_some());
        self.met.extend(changes.map(|&change| (tz.name(), change)));
    }
}

/// Compare a rule with the oracle over a range of seconds. Return the number of its slots.
fn compare(
    random: &mut StdRng,
    text: &RuleText,
    rule: &Rule,
    seconds: bool,
    range: Range<i64>,
) -> usize {
    let context = || format!("{text:?} during {range:?}");
    let step = if seconds { 1 } else { MINUTE };
    let reading = Reading::of(text, &rule.resolved_form());
    let timestamp = |second: i64| Timestamp::from_micros(second * 1_000_000);
    let (start, end) = (timestamp(range.start), timestamp(range.end));
    let expected: Vec<Timestamp> = walk(text, &reading, range.start, range.end, step)
        .into_iter()
        .map(timestamp)
        .collect();
    let found: Vec<Timestamp> = rule.slots(start, end).collect();
    assert_eq!(found, expected, "{}", context());
    compare_counts(random, rule, &expected, (start, end), &context);
    let after_end = timestamp(range.end + 1);
    let backwards = std::iter::successors(rule.prev(after_end), |&slot| rule.prev(slot));
    let mut backwards: Vec<Timestamp> = backwards.take(expected.len()).collect();
    backwards.reverse();
    assert_eq!(backwards, expected, "{}", context());
    for _ in 0..5 {
        let instant =
            Timestamp::from_micros(random.random_range(range.clone()) * 1_000_000 + 999_999);
        let next = rule.next(instant);
        assert!(next.is_none_or(|next| next > instant), "{}", context());
        let before_next = next.and_then(|next| rule.prev(next));
        assert!(
            before_next.is_none_or(|prev| prev <= instant),
            "{} and {instant}",
            context()
        );
        let next = next.filter(|&next| next <= end);
        let first = expected.iter().find(|&&slot| slot > instant);
        assert_eq!(next.as_ref(), first, "{} and {instant}", context());
        let prev = rule.prev(instant).filter(|&prev| prev > start);
        let last = expected.iter().rfind(|&&slot| slot < instant);
        assert_eq!(prev.as_ref(), last, "{} and {instant}", context());
        assert!(!rule.matches(instant), "{}", context());
    }
    let matches = |&slot: &Timestamp| rule.matches(slot);
    assert!(expected.iter().all(matches), "{}", context());
    let normal = RuleText {
        expression: rule.normal_form(),
        ..text.clone()
    };
    assert_eq!(
        super::testing::rule(&normal).as_ref(),
        Ok(rule),
        "{}",
        context()
    );
    expected.len()
}

/// Compares counts for the whole range and for random parts of it.
fn compare_counts(
    random: &mut StdRng,
    rule: &Rule,
    expected: &[Timestamp],
    (start, end): (Timestamp, Timestamp),
    context: &dyn Fn() -> String,
) {
    assert_eq!(
        rule.count(start, end),
        expected.len() as u64,
        "{}",
        context()
    );
    for _ in 0..3 {
        let mut any = || random.random_range(start.micros()..=end.micros());
        let (after, until) = (Timestamp::from_micros(any()), Timestamp::from_micros(any()));
        let within = expected
            .iter()
            .filter(|&&slot| after < slot && slot <= until);
        let count = rule.count(after, until);
        assert_eq!(
            count,
            within.count() as u64,
            "{} {after} {until}",
            context()
        );
    }
    let Some((first, last)) = expected.first().zip(expected.last()) else {
        return;
    };
    assert_eq!(
        rule.count(*first, *last),
        expected.len() as u64 - 1,
        "{}",
        context()
    );
}

/// Returns ten times as many cases with `CAMPANILE_LONG_TESTS=1`.
fn many(cases: usize) -> usize {
    match std::env::var_os("CAMPANILE_LONG_TESTS") {
        Some(_) => 10 * cases,
        None => cases,
    }
}

/// Compare a quarter of the triples by minutes. Each quarter is a test, so that the cores share them.
fn compare_a_quarter(number: usize) {
    const QUARTER: usize = 13_000;
    let what = format!("minutes {number}");
    let tally = Tally::of(&what, &KNOWN, many(QUARTER), false, 2 * DAY);
    assert!(tally.triples >= QUARTER);
    assert!(2 * tally.around_changes >= tally.triples);
    assert!(tally.zones.len() >= 60);
    assert!(4 * tally.ringing >= tally.triples);
    assert!(tally.slots > 10 * QUARTER);
    for (tz, change) in KNOWN {
        let met = (tz.name(), time(change).micros() / 1_000_000);
        assert!(tally.met.contains(&met), "{tz} at {change} was not met");
    }
}

#[test]
fn a_first_quarter_of_minutes_around_clock_changes_agrees_with_the_oracle() {
    compare_a_quarter(1);
}

#[test]
fn a_second_quarter_of_minutes_around_clock_changes_agrees_with_the_oracle() {
    compare_a_quarter(2);
}

#[test]
fn a_third_quarter_of_minutes_around_clock_changes_agrees_with_the_oracle() {
    compare_a_quarter(3);
}

#[test]
fn a_fourth_quarter_of_minutes_around_clock_changes_agrees_with_the_oracle() {
    compare_a_quarter(4);
}

#[test]
fn every_second_around_clock_changes_agrees_with_the_oracle() {
    let tally = Tally::of("seconds", &[], many(200), true, DAY);
    assert!(3 * tally.around_changes >= tally.triples);
    assert!(tally.slots > 1_000, "only {} slots", tally.slots);
}

#[test]
fn every_minute_of_a_year_agrees_with_the_oracle() {
    let tally = Tally::of("years", &[], many(100), false, 366 * DAY);
    assert!(2 * tally.ringing >= tally.triples);
    assert!(tally.slots > 1_000, "only {} slots", tally.slots);
}
