//! Random rules, zones and instants for the oracle.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use chrono::DateTime;
use chrono_tz::{TZ_VARIANTS, Tz};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::super::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use super::{DAY, END, HOUR, MONTHS, WEEKDAYS, offset};

/// 1973: from then on no offset has seconds, so a walk by minutes misses no slot.
const START_MIN: i64 = 94_694_400;
/// More than a year and a clock change before the end.
const START_MAX: i64 = END - 800 * DAY;

pub(super) fn random_zone(random: &mut StdRng) -> Tz {
    const TELLING: [Tz; 13] = [
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
        Tz::Asia__Kathmandu,
    ];
    if random.random_bool(0.5) {
        TELLING[random.random_range(0..TELLING.len())]
    } else {
        TZ_VARIANTS[random.random_range(0..TZ_VARIANTS.len())]
    }
}

/// Returns the clock changes of a zone, from a look at every day.
pub(super) fn changes(tz: Tz) -> &'static [i64] {
    static KNOWN: Mutex<BTreeMap<&str, &[i64]>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(tz.name()).or_insert_with(|| {
        let days = (START_MIN..END).step_by(DAY as usize);
        let found = days.filter(|&day| offset(tz, day) != offset(tz, day + DAY));
        let found: Vec<i64> = found.map(|day| first_with_new_offset(tz, day)).collect();
        found.leak()
    })
}

fn first_with_new_offset(tz: Tz, day: i64) -> i64 {
    let (mut before, mut after) = (day, day + DAY);
    while after - before > 1 {
        let middle = before.midpoint(after);
        if offset(tz, middle) == offset(tz, day) {
            before = middle;
        } else {
            after = middle;
        }
    }
    after
}

/// Returns an instant, mostly less than `length` seconds before a clock change, or in the hours after
/// it, where a second pass may be.
pub(super) fn random_start(random: &mut StdRng, tz: Tz, length: i64) -> i64 {
    let changes = changes(tz);
    let changes = &changes[..changes.partition_point(|&change| change < START_MAX)];
    if changes.is_empty() || random.random_bool(0.2) {
        return random.random_range(START_MIN..START_MAX);
    }
    let change = changes[random.random_range(0..changes.len())];
    change - random.random_range(-3 * HOUR..length)
}

fn random_field(random: &mut StdRng, field: usize, star_chance: f64) -> String {
    let (start, end) = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)][field];
    if random.random_bool(star_chance) {
        return match random.random_range(0..4) {
            0 => format!("*/{}", random.random_range(1..=end + 2)),
            _ => "*".to_owned(),
        };
    }
    if random.random_bool(0.1) {
        return random_hashed(random, start, end);
    }
    let items: Vec<String> = (0..random.random_range(1..=3))
        .map(|_| {
            let first = random.random_range(start..=end);
            let last = random.random_range(first..=end);
            match random.random_range(0..8) {
                0 => format!("{first}-{last}"),
                1 => format!("{first}-{last}/{}", random.random_range(1..10)),
                2 if field == 4 => MONTHS[first as usize - 1].to_uppercase(),
                2 if field == 5 => WEEKDAYS[first as usize % 7].to_owned(),
                3 if field == 3 => random_quartz_day(random, first),
                3 if field == 5 && last % 2 == 0 => format!("{first}L"),
                3 if field == 5 => format!("{first}#{}", random.random_range(1..=5)),
                _ => first.to_string(),
            }
        })
        .collect();
    items.join(",")
}

fn random_hashed(random: &mut StdRng, start: u32, end: u32) -> String {
    let first = random.random_range(start..=end);
    let last = random.random_range(first..=end);
    let step = random.random_range(1..=end);
    match random.random_range(0..4) {
        0 => format!("H({first}-{last})"),
        1 => format!("H/{step}"),
        2 => format!("H({first}-{last})/{step}"),
        _ => "H".to_owned(),
    }
}

fn random_quartz_day(random: &mut StdRng, day: u32) -> String {
    match random.random_range(0..4) {
        0 => "L".to_owned(),
        1 => format!("L-{}", day.min(30)),
        2 => "LW".to_owned(),
        _ => format!("{day}W"),
    }
}

/// Returns an expression with times of day at which clocks change.
fn random_expression(random: &mut StdRng, seconds: bool) -> String {
    let mut fields: Vec<String> = [(0, 0.3), (1, 0.3), (2, 0.3), (3, 0.7), (4, 0.9), (5, 0.7)]
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

/// Returns an exclusion near `start`.
fn random_exclusion(random: &mut StdRng, start: i64) -> String {
    let date = |day: i64| {
        let time = DateTime::from_timestamp(start + day * DAY, 0).unwrap();
        time.format("%Y-%m-%d").to_string()
    };
    let day = random.random_range(-2..5);
    match random.random_range(0..4) {
        0 => date(day),
        1 => date(day)[5..].to_owned(),
        2 => format!("{}..{}", date(day), date(day + random.random_range(0..5))),
        _ => {
            let fields = [(1, 0.5), (2, 0.3), (3, 0.8), (4, 0.9), (5, 0.7)];
            let texts = fields.map(|(field, star)| {
                loop {
                    let text = random_field(random, field, star);
                    if !text.starts_with('H') {
                        break text;
                    }
                }
            });
            texts.join(" ")
        }
    }
}

/// Returns a rule with random overrides and exclusions, for times from `start` on.
pub(super) fn random_text(random: &mut StdRng, tz: Tz, start: i64, seconds: bool) -> RuleText {
    let mut text = RuleText::new(
        RuleKind::Cron,
        random_expression(random, seconds),
        tz.name(),
    );
    if random.random_bool(0.3) {
        text.dst_gap = DstGap::Skip;
    }
    text.dst_fold = DstFold::ALL[random.random_range(0..DstFold::ALL.len())];
    if random.random_bool(0.5) {
        text.day_match = DayMatch::And;
    }
    if random.random_bool(0.3) {
        let items = 0..random.random_range(1..=4);
        text.exclude = items.map(|_| random_exclusion(random, start)).collect();
    }
    text
}
