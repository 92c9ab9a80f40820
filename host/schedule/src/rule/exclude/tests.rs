//! Exclusions, in UTC.

use super::super::testing::*;
use super::super::{RuleKind, RuleText};
use campanile_model::clock::Timestamp;

/// Returns the first slots of a UTC rule in 2026 without its exclusions, as `MM-DDTHH:MM`.
fn first(kind: RuleKind, expression: &str, exclude: &[&str], count: usize) -> Vec<String> {
    let text = RuleText {
        exclude: exclude.iter().map(|item| (*item).to_owned()).collect(),
        ..RuleText::new(kind, expression, "UTC")
    };
    let rule = rule(&text).unwrap();
    let mut slots = vec![rule.next(time("2025-12-31T23:59:59Z")).unwrap()];
    while slots.len() < count {
        let last = slots[slots.len() - 1];
        let next = rule.next(last).unwrap();
        assert_eq!(rule.prev(next), Some(last), "{text:?}");
        slots.push(next);
    }
    let short = |slot: &Timestamp| slot.to_string()[5..16].to_owned();
    slots.iter().map(short).collect()
}

#[test]
fn dates_are_excluded() {
    let cron = |exclude: &[&str]| first(RuleKind::Cron, "0 9 * * *", exclude, 3);
    assert_eq!(
        cron(&["2026-01-02"]),
        ["01-01T09:00", "01-03T09:00", "01-04T09:00"]
    );
    assert_eq!(
        cron(&["01-01", "01-03"]),
        ["01-02T09:00", "01-04T09:00", "01-05T09:00"]
    );
    assert_eq!(
        cron(&["2026-01-02..2026-02-27", " 2026-02-27..2026-03-01"]),
        ["01-01T09:00", "03-02T09:00", "03-03T09:00"]
    );
    assert_eq!(
        cron(&["2020-01-01..2026-01-31", "2026-03-01..2030-01-01"])[..2],
        ["02-01T09:00", "02-02T09:00"]
    );
}

#[test]
fn a_whole_month_can_be_excluded() {
    let cron = |exclude: &[&str]| first(RuleKind::Every, "12h", exclude, 2);
    assert_eq!(cron(&["* * * 1,2 *"]), ["03-01T00:00", "03-01T12:00"]);
    assert_eq!(
        cron(&["2026-01-01..2026-02-28"]),
        ["03-01T00:00", "03-01T12:00"]
    );
}

#[test]
fn minutes_are_excluded() {
    assert_eq!(
        first(
            RuleKind::Cron,
            "*/20 * * * *",
            &["20-59 0 * * *", "* 1-21 * * *"],
            5
        ),
        [
            "01-01T00:00",
            "01-01T22:00",
            "01-01T22:20",
            "01-01T22:40",
            "01-01T23:00"
        ]
    );
    // An exclusion has no second field, also for a rule that has one.
    assert_eq!(
        first(RuleKind::Cron, "30 */20 * * * *", &["0 0 * * *"], 2),
        ["01-01T00:20", "01-01T00:40"]
    );
    // Thursday the 1st, Friday, and the weekend.
    assert_eq!(
        first(
            RuleKind::Cron,
            "0 9 * * *",
            &["* * * * SAT,SUN", "0-5 9 2 * *"],
            3
        ),
        ["01-01T09:00", "01-05T09:00", "01-06T09:00"]
    );
    assert_eq!(
        first(RuleKind::Every, "90m", &["* 0-2 * * *", "30 * * * *"], 4),
        ["01-01T03:00", "01-01T06:00", "01-01T09:00", "01-01T12:00"]
    );
    assert_eq!(
        first(RuleKind::Every, "1w", &["0 0 1-14 * *"], 3),
        ["01-15T00:00", "01-22T00:00", "01-29T00:00"]
    );
}

#[test]
fn an_excluded_anchor_still_counts() {
    let text = RuleText {
        anchor: Some(time("2026-12-25T09:00:00Z")),
        exclude: vec!["12-25".to_owned()],
        ..RuleText::new(RuleKind::Every, "2d", "UTC")
    };
    let rule = rule(&text).unwrap();
    let slot = time("2026-12-27T09:00:00Z");
    assert_eq!(rule.next(time("2026-01-01T00:00:00Z")), Some(slot));
    assert_eq!(rule.prev(slot), None);
}
