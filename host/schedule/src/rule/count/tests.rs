//! Counting over decades. `oracle.rs` compares counts with walking for all kinds of rules.

use std::time::{Duration, Instant};

use super::super::testing::*;
use super::super::{RuleKind, RuleText};
use campanile_model::clock::Timestamp;

fn with_exclusions(kind: RuleKind, expression: &str, zone: &str, exclude: &[&str]) -> RuleText {
    RuleText {
        exclude: exclude.iter().map(|item| (*item).to_owned()).collect(),
        ..RuleText::new(kind, expression, zone)
    }
}

#[test]
fn every_second_since_1970_is_counted() {
    let until = time("2026-01-01T00:00:00Z");
    let seconds = u64::try_from(until.micros() / 1_000_000).unwrap();
    for (kind, expression) in [(RuleKind::Cron, "* * * * * *"), (RuleKind::Every, "1s")] {
        let rule = rule(&RuleText::new(kind, expression, "UTC")).unwrap();
        assert_eq!(rule.count(Timestamp::EPOCH, until), seconds, "{expression}");
        // Less than another second, so no further slot.
        let later = until.plus(Duration::from_micros(999_999));
        assert_eq!(rule.count(Timestamp::EPOCH, later), seconds, "{expression}");
        assert_eq!(rule.count(later, until), 0, "{expression}");
    }
    // Excluding one hour on weekdays, and a whole year.
    let excluded = ["* 7 * * MON-FRI", "2000-01-01..2000-12-31"];
    for (kind, expression) in [(RuleKind::Cron, "* * * * * *"), (RuleKind::Every, "1s")] {
        let rule = rule(&with_exclusions(kind, expression, "UTC", &excluded)).unwrap();
        // Of 20,454 days, 366 are in 2000. 14,610 are weekdays from Monday to Friday, 260 of those in 2000.
        let expected = (20_454 - 366) * 86_400 - (14_610 - 260) * 3_600;
        let first = Timestamp::EPOCH.minus(Duration::from_micros(1));
        let last = until.minus(Duration::from_micros(1));
        assert_eq!(rule.count(first, last), expected, "{expression}");
    }
}

#[test]
fn a_count_of_decades_is_the_sum_of_its_years() {
    let hostile: Vec<String> = (0..99)
        .map(|n| {
            format!(
                "{}-59/3 {}-23/2 */{} * {}",
                n % 50,
                n % 23,
                n % 9 + 1,
                n % 7
            )
        })
        .collect();
    let hostile: Vec<&str> = hostile.iter().map(String::as_str).collect();
    for (kind, expression, zone, exclude) in [
        (
            RuleKind::Cron,
            "*/7 */5 1-20 * * *",
            "Europe/London",
            &[][..],
        ),
        (
            RuleKind::Cron,
            "30 1,2 * * *",
            "America/New_York",
            &["12-25", "* 2 1-7 * *"],
        ),
        (RuleKind::Cron, "* * * * * *", "Africa/Casablanca", &hostile),
        (RuleKind::Every, "1s", "Australia/Lord_Howe", &hostile),
        (RuleKind::Every, "7s", "Pacific/Apia", &["* 0-5 * * *"]),
        (RuleKind::Every, "1d", "Africa/Casablanca", &hostile[..50]),
        (RuleKind::Every, "1mo", "Pacific/Apia", &[]),
    ] {
        let rule = rule(&with_exclusions(kind, expression, zone, exclude)).unwrap();
        let year = |year: i32| time(&format!("{year}-06-15T01:02:03Z"));
        let begun = Instant::now();
        let whole = rule.count(year(1970), year(2026));
        println!("{expression} {zone}: {whole} in {:?}", begun.elapsed());
        let years = (1970..2026).map(|from| rule.count(year(from), year(from + 1)));
        assert_eq!(years.sum::<u64>(), whole, "{expression} {zone}");
        // Checks a day of each year by walking.
        for from in (1970..2026).map(year) {
            let until = from.plus(Duration::from_secs(86_400));
            let walked = rule.slots(from, until).count() as u64;
            assert_eq!(
                rule.count(from, until),
                walked,
                "{expression} {zone} {from}"
            );
        }
    }
}

#[test]
fn no_slot_is_counted_outside_the_years_of_a_rule() {
    for (kind, expression) in [
        (RuleKind::Cron, "* * * * * *"),
        (RuleKind::Every, "1s"),
        (RuleKind::Every, "1d"),
    ] {
        for zone in ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"] {
            let rule = rule(&RuleText::new(kind, expression, zone)).unwrap();
            let last = rule.prev(Timestamp::LAST).unwrap();
            assert_eq!(rule.count(last, Timestamp::LAST), 0, "{expression} {zone}");
            let before = last.minus(Duration::from_micros(1));
            assert_eq!(
                rule.count(before, Timestamp::LAST),
                1,
                "{expression} {zone}"
            );
            let first = rule.next(Timestamp::FIRST).unwrap();
            assert_eq!(
                rule.count(Timestamp::FIRST, first),
                1,
                "{expression} {zone}"
            );
        }
    }
}
