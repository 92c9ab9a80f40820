//! The dialect in UTC.

use super::super::testing::*;
use super::super::{DayMatch, RuleKind, RuleText};

fn first(expression: &str, after: &str, count: usize) -> Vec<String> {
    let rule = cron(expression, "UTC").unwrap();
    let end = time("2099-12-31T00:00:00Z");
    let slots = rule.slots(time(after), end).take(count);
    slots.map(|slot| slot.to_string()).collect()
}

fn days(expression: &str, count: usize) -> Vec<String> {
    let slots = first(expression, "2025-12-31T12:00:00Z", count);
    slots.iter().map(|slot| slot[..10].to_owned()).collect()
}

#[test]
fn two_restricted_day_fields_are_alternatives() {
    assert_eq!(
        days("0 0 13 * FRI", 5),
        [
            "2026-01-02",
            "2026-01-09",
            "2026-01-13",
            "2026-01-16",
            "2026-01-23"
        ]
    );
    // A field without a star is restricted, even if it allows every number.
    assert_eq!(days("0 0 1-31 * MON", 2), ["2026-01-01", "2026-01-02"]);
    assert_eq!(days("0 0 13 * 0-6", 2), ["2026-01-01", "2026-01-02"]);
    assert_eq!(days("0 0 31 2 MON", 2), ["2026-02-02", "2026-02-09"]);
}

#[test]
fn a_day_field_that_begins_with_a_star_narrows_the_other() {
    assert_eq!(days("0 0 13 * *", 2), ["2026-01-13", "2026-02-13"]);
    assert_eq!(days("0 0 * * MON", 2), ["2026-01-05", "2026-01-12"]);
    // Mondays on odd days; the 13th on a Sunday, Wednesday or Saturday.
    assert_eq!(days("0 0 */2 * MON", 2), ["2026-01-05", "2026-01-19"]);
    assert_eq!(days("0 0 13 * */3", 2), ["2026-05-13", "2026-06-13"]);
    assert_eq!(days("0 0 13 * *,MON", 2), ["2026-01-13", "2026-02-13"]);
}

#[test]
fn weekdays_count_from_sunday_as_zero() {
    assert_eq!(
        days("0 0 * * 1-5", 3),
        ["2026-01-01", "2026-01-02", "2026-01-05"]
    );
    assert_eq!(days("0 0 * * 0", 1), ["2026-01-04"]);
    assert_eq!(days("0 0 * * 7", 1), ["2026-01-04"]);
    assert_eq!(
        days("0 0 * * sat-Sun", 3),
        ["2026-01-03", "2026-01-04", "2026-01-10"]
    );
}

#[test]
fn six_fields_begin_with_seconds() {
    assert_eq!(
        first("*/30 59 23 * * *", "2026-01-01T23:58:00Z", 3),
        [
            "2026-01-01T23:59:00Z",
            "2026-01-01T23:59:30Z",
            "2026-01-02T23:59:00Z"
        ]
    );
}

#[test]
fn macros_stand_for_their_fields() {
    let cases = [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        (" @hourly\t", "0 * * * *"),
    ];
    for (name, fields) in cases {
        assert_eq!(cron(name, "UTC"), cron(fields, "UTC"), "{name}");
    }
}

#[test]
fn rare_days_are_found_and_their_end_is_none() {
    assert_eq!(
        days("0 0 29 2 */6", 3),
        ["2032-02-29", "2048-02-29", "2060-02-29"]
    );
    assert!(first("0 0 29 2 *", "2096-02-29T00:00:00Z", 1).is_empty());
    assert!(first("* * 29 2 *", "2096-02-29T23:59:00Z", 1).is_empty());
}

#[test]
fn a_part_of_a_second_is_before_the_next_whole_one() {
    assert_eq!(
        first("0 0 * * *", "2025-12-31T23:59:59.999999Z", 1),
        ["2026-01-01T00:00:00Z"]
    );
    assert_eq!(
        first("0 0 * * *", "2026-01-01T00:00:00.000001Z", 1),
        ["2026-01-02T00:00:00Z"]
    );
}

#[test]
fn blanks_around_fields_do_not_matter_and_positions_count_them() {
    assert_eq!(cron(" \t0  2\t* * *\t", "UTC"), cron("0 2 * * *", "UTC"));
    let error = cron("  0\t\t24 * * *", "UTC").unwrap_err();
    assert!(error.to_string().contains("at position 6 "), "{error}");
}

#[test]
fn quartz_days_depend_on_the_month() {
    let cases: [(&str, &[&str]); 13] = [
        ("0 0 L * *", &["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("0 0 L 2 *", &["2026-02-28", "2027-02-28", "2028-02-29"]),
        ("0 0 L-3 * *", &["2026-01-28", "2026-02-25", "2026-03-28"]),
        ("0 0 L-30 * *", &["2026-01-01", "2026-03-01", "2026-05-01"]),
        (
            "0 0 1,15,L * *",
            &["2026-01-01", "2026-01-15", "2026-01-31"],
        ),
        // The 15th of February and March is a Sunday, of August a Saturday.
        ("0 0 15W 2,8 *", &["2026-02-16", "2026-08-14"]),
        // The 1st of August is a Saturday, of February a Sunday; the result stays in its month.
        ("0 0 1W 2,8 *", &["2026-02-02", "2026-08-03"]),
        ("0 0 31W * *", &["2026-01-30", "2026-03-31", "2026-05-29"]),
        ("0 0 LW * *", &["2026-01-30", "2026-02-27", "2026-03-31"]),
        ("0 0 * * MON#2", &["2026-01-12", "2026-02-09", "2026-03-09"]),
        (
            "0 0 * * 7#1,FRIL",
            &["2026-01-04", "2026-01-30", "2026-02-01"],
        ),
        // A February with five Mondays is one of 29 days that begins on one.
        ("0 0 * 2 MON#5", &["2044-02-29", "2072-02-29"]),
        ("0 0 L * FRI#1", &["2026-01-02", "2026-01-31", "2026-02-06"]),
    ];
    for (expression, expected) in cases {
        assert_eq!(days(expression, expected.len()), expected, "{expression}");
    }
}

#[test]
fn day_match_and_requires_both_day_fields() {
    let days = |expression: &str, count| -> Vec<String> {
        let text = RuleText {
            day_match: DayMatch::And,
            ..RuleText::new(RuleKind::Cron, expression, "UTC")
        };
        let rule = rule(&text).unwrap();
        let slots = rule.slots(time("2025-12-31T12:00:00Z"), time("2099-12-31T00:00:00Z"));
        let days = slots.map(|slot| slot.to_string()[..10].to_owned());
        days.take(count).collect()
    };
    assert_eq!(
        days("0 0 13 * FRI", 3),
        ["2026-02-13", "2026-03-13", "2026-11-13"]
    );
    assert_eq!(days("0 0 30 * SAT", 2), ["2026-05-30", "2027-01-30"]);
    assert_eq!(days("0 0 L * SUN", 2), ["2026-05-31", "2027-01-31"]);
}
