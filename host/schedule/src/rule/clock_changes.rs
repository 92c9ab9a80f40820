//! What rules do when the clocks change: tables that were worked out by hand.

use super::testing::*;
use super::{Rule, RuleKind, RuleText};

/// Rule, zone, the instant after which to look, and the first slots.
pub(super) type Case<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

pub(super) fn check(rule: impl Fn(&str, &str) -> Rule, cases: &[Case]) {
    for &(expression, zone, after, slots) in cases {
        let rule = rule(expression, zone);
        let slots = times(slots);
        let end = slots[slots.len() - 1];
        let found: Vec<_> = rule.slots(time(after), end).collect();
        assert_eq!(found, slots, "`{expression}` in {zone} after {after}");
        for pair in slots.windows(2) {
            assert_eq!(
                rule.prev(pair[1]),
                Some(pair[0]),
                "`{expression}` in {zone}"
            );
        }
    }
}

pub(super) fn check_cron(cases: &[Case]) {
    check(|expression, zone| cron(expression, zone).unwrap(), cases);
}

#[test]
fn a_fixed_time_in_a_gap_rings_once_when_the_gap_ends() {
    check_cron(&[
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T00:00:00-05:00",
            &[
                "2026-03-07T02:30:00-05:00",
                "2026-03-08T03:00:00-04:00",
                "2026-03-09T02:30:00-04:00",
            ],
        ),
        (
            "0,15,30 2,3 * * *",
            "America/New_York",
            "2026-03-08T00:00:00-05:00",
            &[
                "2026-03-08T03:00:00-04:00",
                "2026-03-08T03:15:00-04:00",
                "2026-03-08T03:30:00-04:00",
                "2026-03-09T02:00:00-04:00",
            ],
        ),
        (
            "30 1 * * *",
            "Europe/London",
            "2026-03-28T12:00:00Z",
            &["2026-03-29T02:00:00+01:00", "2026-03-30T01:30:00+01:00"],
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00:00+10:30",
            &["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"],
        ),
        (
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-03-21T12:00:00Z",
            &["2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00"],
        ),
        (
            "30 1,2 * * *",
            "Antarctica/Troll",
            "2026-03-28T12:00:00Z",
            &["2026-03-29T03:00:00+02:00", "2026-03-30T01:30:00+02:00"],
        ),
        (
            "0 3 * * *",
            "Pacific/Chatham",
            "2026-09-26T12:00:00+12:45",
            &["2026-09-27T03:45:00+13:45", "2026-09-28T03:00:00+13:45"],
        ),
    ]);
}

#[test]
fn a_midnight_that_does_not_exist_keeps_its_day() {
    check_cron(&[
        (
            "0 0 * * *",
            "Asia/Beirut",
            "2026-03-28T12:00:00+02:00",
            &["2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"],
        ),
        (
            "@weekly",
            "Asia/Beirut",
            "2026-03-28T12:00:00+02:00",
            &["2026-03-29T01:00:00+03:00", "2026-04-05T00:00:00+03:00"],
        ),
        (
            "0 0 * * *",
            "America/Sao_Paulo",
            "2018-11-03T12:00:00-03:00",
            &["2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"],
        ),
    ]);
}

#[test]
fn the_end_of_a_gap_is_found_from_the_second_before_it() {
    check_cron(&[
        (
            "0 0 * * *",
            "Asia/Beirut",
            "2026-03-28T23:59:59+02:00",
            &["2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"],
        ),
        (
            "0 0 * * *",
            "Asia/Beirut",
            "2026-03-29T01:00:00+03:00",
            &["2026-03-30T00:00:00+03:00"],
        ),
        (
            "59 59 23,0 * * *",
            "Asia/Beirut",
            "2026-03-28T23:59:58+02:00",
            &[
                "2026-03-28T23:59:59+02:00",
                "2026-03-29T01:00:00+03:00",
                "2026-03-29T23:59:59+03:00",
            ],
        ),
    ]);
}

#[test]
fn a_fixed_time_in_a_fold_rings_at_the_first_pass() {
    check_cron(&[
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00:00-04:00",
            &["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
        ),
        (
            "15 1 * * *",
            "Europe/London",
            "2026-10-24T12:00:00+01:00",
            &["2026-10-25T01:15:00+01:00", "2026-10-26T01:15:00Z"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T12:00:00+11:00",
            &["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"],
        ),
        (
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-02-14T12:00:00+01:00",
            &["2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00Z"],
        ),
        (
            "30 2 * * *",
            "Antarctica/Troll",
            "2026-10-24T12:00:00+02:00",
            &["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00Z"],
        ),
        (
            "0 3 * * *",
            "Pacific/Chatham",
            "2026-04-04T12:00:00+13:45",
            &["2026-04-05T03:00:00+13:45", "2026-04-06T03:00:00+12:45"],
        ),
        (
            "59 23 * * SAT",
            "America/Sao_Paulo",
            "2019-02-16T12:00:00-02:00",
            &["2019-02-16T23:59:00-02:00", "2019-02-23T23:59:00-03:00"],
        ),
        // The clock goes back from 00:00 to 23:00 before it shows 00:00.
        (
            "0 0 * * *",
            "Asia/Beirut",
            "2026-10-24T12:00:00+03:00",
            &["2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+02:00"],
        ),
    ]);
}

#[test]
fn the_next_slot_is_later_also_from_within_a_second_pass() {
    check_cron(&[
        (
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T01:15:00-05:00",
            &["2026-11-02T01:30:00-05:00"],
        ),
        (
            "30 1,2 * * *",
            "America/New_York",
            "2026-11-01T01:00:00-05:00",
            &["2026-11-01T02:30:00-05:00"],
        ),
        (
            "*/30 1 * * *",
            "America/New_York",
            "2026-11-01T01:15:00-05:00",
            &["2026-11-01T01:30:00-05:00", "2026-11-02T01:00:00-05:00"],
        ),
    ]);
}

#[test]
fn a_wildcard_follows_the_clock_through_gaps_and_folds() {
    check_cron(&[
        (
            "*/30 * * * *",
            "America/New_York",
            "2026-03-08T01:00:00-05:00",
            &[
                "2026-03-08T01:30:00-05:00",
                "2026-03-08T03:00:00-04:00",
                "2026-03-08T03:30:00-04:00",
            ],
        ),
        (
            "*/30 2 * * *",
            "America/New_York",
            "2026-03-07T02:30:00-05:00",
            &["2026-03-09T02:00:00-04:00"],
        ),
        (
            "*/30 1 * * *",
            "America/New_York",
            "2026-11-01T00:59:00-04:00",
            &[
                "2026-11-01T01:00:00-04:00",
                "2026-11-01T01:30:00-04:00",
                "2026-11-01T01:00:00-05:00",
                "2026-11-01T01:30:00-05:00",
                "2026-11-02T01:00:00-05:00",
            ],
        ),
        (
            "@hourly",
            "America/New_York",
            "2026-11-01T00:30:00-04:00",
            &[
                "2026-11-01T01:00:00-04:00",
                "2026-11-01T01:00:00-05:00",
                "2026-11-01T02:00:00-05:00",
            ],
        ),
        (
            "*/15 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-05T01:15:00+11:00",
            &[
                "2026-04-05T01:30:00+11:00",
                "2026-04-05T01:45:00+11:00",
                "2026-04-05T01:30:00+10:30",
                "2026-04-05T01:45:00+10:30",
                "2026-04-06T01:00:00+10:30",
            ],
        ),
        (
            "* 30 1 * * *",
            "Europe/London",
            "2026-10-25T01:30:58+01:00",
            &["2026-10-25T01:30:59+01:00", "2026-10-25T01:30:00Z"],
        ),
    ]);
}

#[test]
fn a_day_that_a_country_left_out_does_not_happen() {
    check_cron(&[
        (
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-28T13:00:00-10:00",
            &["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"],
        ),
        (
            "0 0 * * *",
            "Pacific/Apia",
            "2011-12-28T13:00:00-10:00",
            &["2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"],
        ),
        (
            "0 12 30 12 *",
            "Pacific/Apia",
            "2011-06-01T00:00:00Z",
            &["2012-12-30T12:00:00+14:00"],
        ),
        (
            "0 * * * *",
            "Pacific/Apia",
            "2011-12-29T22:30:00-10:00",
            &["2011-12-29T23:00:00-10:00", "2011-12-31T00:00:00+14:00"],
        ),
    ]);
}

#[test]
fn a_gap_of_three_hours_is_moved_over_and_one_of_seven_is_not() {
    check_cron(&[
        (
            "0 3 * * *",
            "Antarctica/Casey",
            "2009-10-17T12:00:00+08:00",
            &["2009-10-18T05:00:00+11:00", "2009-10-19T03:00:00+11:00"],
        ),
        (
            "0 3 * * *",
            "Antarctica/Vostok",
            "1994-10-31T12:00:00Z",
            &["1994-11-02T03:00:00+07:00"],
        ),
    ]);
}

#[test]
fn every_change_of_offset_counts_not_only_summer_time() {
    check_cron(&[
        (
            "5 0 * * *",
            "Asia/Kathmandu",
            "1985-12-31T12:00:00+05:30",
            &["1986-01-01T00:15:00+05:45", "1986-01-02T00:05:00+05:45"],
        ),
        (
            "0 9 * * *",
            "Asia/Kathmandu",
            "2026-01-01T00:00:00+05:45",
            &["2026-01-01T09:00:00+05:45", "2026-01-02T09:00:00+05:45"],
        ),
        (
            "45 2 * * *",
            "America/Caracas",
            "2016-04-30T12:00:00-04:30",
            &["2016-05-01T03:00:00-04:00", "2016-05-02T02:45:00-04:00"],
        ),
        // Monrovia's offset had seconds until 1972.
        (
            "0 12 * * *",
            "Africa/Monrovia",
            "1972-01-06T00:00:00Z",
            &["1972-01-06T12:44:30Z", "1972-01-07T12:00:00Z"],
        ),
    ]);
}

#[test]
fn intervals_of_days_follow_the_wall_clock_and_of_hours_do_not() {
    let anchored = |anchor: &'static str| {
        move |expression: &str, zone: &str| {
            rule(&RuleText {
                anchor: Some(time(anchor)),
                ..RuleText::new(RuleKind::Every, expression, zone)
            })
            .unwrap()
        }
    };
    check(
        anchored("2026-03-06T02:30:00-05:00"),
        &[
            (
                "1d",
                "America/New_York",
                "2026-03-06T00:00:00-05:00",
                &[
                    "2026-03-06T02:30:00-05:00",
                    "2026-03-07T02:30:00-05:00",
                    "2026-03-08T03:00:00-04:00",
                    "2026-03-09T02:30:00-04:00",
                ],
            ),
            (
                "24h",
                "America/New_York",
                "2026-03-07T00:00:00-05:00",
                &[
                    "2026-03-07T02:30:00-05:00",
                    "2026-03-08T03:30:00-04:00",
                    "2026-03-09T03:30:00-04:00",
                ],
            ),
        ],
    );
    check(
        anchored("2026-10-18T01:30:00-04:00"),
        &[(
            "1w",
            "America/New_York",
            "2026-10-18T02:00:00-04:00",
            &[
                "2026-10-25T01:30:00-04:00",
                "2026-11-01T01:30:00-04:00",
                "2026-11-08T01:30:00-05:00",
            ],
        )],
    );
    check(
        anchored("2011-12-28T12:00:00-10:00"),
        &[(
            "1d",
            "Pacific/Apia",
            "2011-12-28T12:00:00-10:00",
            &["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"],
        )],
    );
}

#[test]
fn an_anchor_in_a_second_pass_is_the_first_slot_itself() {
    let anchor = time("2026-11-01T01:30:00-05:00");
    let rule = rule(&RuleText {
        anchor: Some(anchor),
        ..RuleText::new(RuleKind::Every, "1d", "America/New_York")
    })
    .unwrap();
    assert_eq!(rule.next(time("2026-11-01T01:00:00-04:00")), Some(anchor));
    assert_eq!(rule.next(anchor), Some(time("2026-11-02T01:30:00-05:00")));
}
