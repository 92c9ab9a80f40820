//! Periods, anchors and grids.

use super::super::part::Part;
use super::super::testing::*;
use super::super::{Rule, RuleKind, RuleText};
use super::*;

fn anchored(expression: &str, anchor: &str, zone: &str) -> Rule {
    rule(&RuleText {
        anchor: Some(time(anchor)),
        ..RuleText::new(RuleKind::Every, expression, zone)
    })
    .unwrap()
}

#[test]
fn a_period_is_the_sum_of_its_parts() {
    let cases = [
        ("10s", Period::of(10, Unit::Seconds), "10s"),
        ("15m", Period::of(900, Unit::Seconds), "15m"),
        ("1h30m", Period::of(5_400, Unit::Seconds), "1h30m"),
        ("90m", Period::of(5_400, Unit::Seconds), "1h30m"),
        ("0h5s", Period::of(5, Unit::Seconds), "5s"),
        ("48h", Period::of(172_800, Unit::Seconds), "48h"),
        ("1d", Period::of(1, Unit::Days), "1d"),
        ("1w3d", Period::of(10, Unit::Days), "1w3d"),
        ("5 minutes", Period::of(300, Unit::Seconds), "5m"),
        ("1 hour 30min", Period::of(5_400, Unit::Seconds), "1h30m"),
        ("2hrs 10 secs", Period::of(7_210, Unit::Seconds), "2h10s"),
        ("1 week 1\tday", Period::of(8, Unit::Days), "1w1d"),
        ("14d", Period::of(14, Unit::Days), "2w"),
        ("1mo", Period::of(1, Unit::Months), "1mo"),
        ("1y6mo", Period::of(18, Unit::Months), "1y6mo"),
        ("100y", Period::of(1_200, Unit::Months), "100y"),
    ];
    for (text, period, normal) in cases {
        assert_eq!(Period::parse(Part::whole(text)), Ok(period), "{text}");
        assert_eq!(period.to_string(), normal);
        assert_eq!(Period::parse(Part::whole(normal)), Ok(period));
    }
}

#[test]
fn without_an_anchor_the_grid_is_that_of_the_zone() {
    let next = |expression, zone, after| every(expression, zone).unwrap().next(time(after));
    let cases = [
        (
            "10s",
            "UTC",
            "2026-05-01T00:00:03.2Z",
            "2026-05-01T00:00:10Z",
        ),
        ("10s", "UTC", "2026-05-01T00:00:10Z", "2026-05-01T00:00:20Z"),
        (
            "15m",
            "Asia/Kolkata",
            "2026-05-01T09:01:00+05:30",
            "2026-05-01T09:15:00+05:30",
        ),
        (
            "1d",
            "Europe/Paris",
            "2026-05-01T09:01:00+02:00",
            "2026-05-02T00:00:00+02:00",
        ),
        (
            "1mo",
            "Europe/Paris",
            "2026-05-01T09:01:00+02:00",
            "2026-06-01T00:00:00+02:00",
        ),
        (
            "1y",
            "Europe/Paris",
            "2026-05-01T09:01:00+02:00",
            "2027-01-01T00:00:00+01:00",
        ),
    ];
    for (expression, zone, after, slot) in cases {
        assert_eq!(
            next(expression, zone, after),
            Some(time(slot)),
            "{expression} {zone}"
        );
    }
}

#[test]
fn month_ends_clamp_from_the_day_of_the_anchor() {
    let rule = anchored("1mo", "2027-10-31T12:00:00Z", "UTC");
    let slots: Vec<String> = rule
        .slots(time("2027-10-31T12:00:00Z"), time("2028-04-30T12:00:00Z"))
        .map(|slot| slot.to_string()[..10].to_owned())
        .collect();
    assert_eq!(
        slots,
        [
            "2027-11-30",
            "2027-12-31",
            "2028-01-31",
            "2028-02-29",
            "2028-03-31",
            "2028-04-30"
        ]
    );
    let leap = anchored("1y", "2024-02-29T12:00:00Z", "UTC");
    assert_eq!(
        leap.next(time("2026-12-01T00:00:00Z")),
        Some(time("2027-02-28T12:00:00Z"))
    );
    assert_eq!(
        leap.next(time("2027-12-01T00:00:00Z")),
        Some(time("2028-02-29T12:00:00Z"))
    );
}

#[test]
fn no_slot_is_before_the_anchor_and_its_microseconds_stay() {
    let anchor = "2030-01-01T00:00:00.25Z";
    for (expression, second) in [
        ("1h", "2030-01-01T01:00:00.25Z"),
        ("1d", "2030-01-02T00:00:00.25Z"),
        ("1mo", "2030-02-01T00:00:00.25Z"),
    ] {
        let rule = anchored(expression, anchor, "UTC");
        assert_eq!(rule.next(time("2026-01-01T00:00:00Z")), Some(time(anchor)));
        assert_eq!(rule.next(time(anchor)), Some(time(second)));
    }
}

#[test]
fn an_anchor_of_another_century_is_refused() {
    for anchor in ["1969-12-31T23:59:59Z", "2100-01-01T00:00:00Z"] {
        let error = rule(&RuleText {
            anchor: Some(time(anchor)),
            ..RuleText::new(RuleKind::Every, "1h", "UTC")
        })
        .unwrap_err();
        let message = format!("the anchor {anchor} is outside the years 1970 to 2099");
        assert_eq!(error.to_string(), message);
    }
}
