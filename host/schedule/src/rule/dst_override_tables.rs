//! Rules with overrides, exclusions and Quartz days at clock changes: tables worked out by hand.

use super::dst_tables::{Case, check, check_cron};
use super::testing::*;
use super::{DstFold, DstGap, RuleKind, RuleText};

/// Check cron rules with these overrides.
fn check_with(gap: DstGap, fold: DstFold, cases: &[Case]) {
    let with = |expression: &str, zone: &str| {
        rule(&RuleText {
            dst_gap: gap,
            dst_fold: fold,
            ..RuleText::new(RuleKind::Cron, expression, zone)
        })
        .unwrap()
    };
    check(with, cases);
}

#[test]
fn dst_gap_skip_skips_local_times_in_a_gap() {
    check_with(
        DstGap::Skip,
        DstFold::First,
        &[
            (
                "30 2 * * *",
                "America/New_York",
                "2026-03-07T00:00:00-05:00",
                &["2026-03-07T02:30:00-05:00", "2026-03-09T02:30:00-04:00"],
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
                "15 2 * * *",
                "Australia/Lord_Howe",
                "2026-10-03T12:00:00+10:30",
                &["2026-10-05T02:15:00+11:00"],
            ),
            (
                "30 1,2 * * *",
                "Antarctica/Troll",
                "2026-03-28T12:00:00Z",
                &["2026-03-30T01:30:00+02:00", "2026-03-30T02:30:00+02:00"],
            ),
            (
                "30 2 * * *",
                "Africa/Casablanca",
                "2026-03-21T12:00:00Z",
                &["2026-03-23T02:30:00+01:00"],
            ),
            (
                "0 0 * * *",
                "Asia/Beirut",
                "2026-03-28T12:00:00+02:00",
                &["2026-03-30T00:00:00+03:00"],
            ),
            (
                "0 0 * * *",
                "America/Sao_Paulo",
                "2018-11-03T12:00:00-03:00",
                &["2018-11-05T00:00:00-02:00"],
            ),
            (
                "0 12 * * *",
                "Pacific/Apia",
                "2011-12-28T13:00:00-10:00",
                &["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"],
            ),
            // A fold is not a gap.
            (
                "30 1 * * *",
                "America/New_York",
                "2026-10-31T12:00:00-04:00",
                &["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
            ),
        ],
    );
}

#[test]
fn dst_fold_second_fires_in_the_second_pass() {
    check_with(
        DstGap::Shift,
        DstFold::Second,
        &[
            (
                "30 1 * * *",
                "America/New_York",
                "2026-10-31T12:00:00-04:00",
                &["2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"],
            ),
            // Times before and after the fold fire as usual.
            (
                "0 0,1,2 * * *",
                "America/New_York",
                "2026-10-31T12:00:00-04:00",
                &[
                    "2026-11-01T00:00:00-04:00",
                    "2026-11-01T01:00:00-05:00",
                    "2026-11-01T02:00:00-05:00",
                    "2026-11-02T00:00:00-05:00",
                ],
            ),
            (
                "15,45 1 * * *",
                "Australia/Lord_Howe",
                "2026-04-04T12:00:00+11:00",
                &[
                    "2026-04-05T01:15:00+11:00",
                    "2026-04-05T01:45:00+10:30",
                    "2026-04-06T01:15:00+10:30",
                ],
            ),
            (
                "30 2 * * *",
                "Africa/Casablanca",
                "2026-02-14T12:00:00+01:00",
                &["2026-02-15T02:30:00Z", "2026-02-16T02:30:00Z"],
            ),
            (
                "30 1,2 * * *",
                "Antarctica/Troll",
                "2026-10-24T12:00:00+02:00",
                &[
                    "2026-10-25T01:30:00Z",
                    "2026-10-25T02:30:00Z",
                    "2026-10-26T01:30:00Z",
                ],
            ),
            (
                "59 23 * * SAT",
                "America/Sao_Paulo",
                "2019-02-16T12:00:00-02:00",
                &["2019-02-16T23:59:00-03:00", "2019-02-23T23:59:00-03:00"],
            ),
            // A gap is not a fold.
            (
                "30 2 * * *",
                "America/New_York",
                "2026-03-07T12:00:00-05:00",
                &["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"],
            ),
        ],
    );
}

#[test]
fn dst_fold_both_fires_in_both_passes() {
    check_with(
        DstGap::Skip,
        DstFold::Both,
        &[
            (
                "0,30 1 * * *",
                "America/New_York",
                "2026-10-31T12:00:00-04:00",
                &[
                    "2026-11-01T01:00:00-04:00",
                    "2026-11-01T01:30:00-04:00",
                    "2026-11-01T01:00:00-05:00",
                    "2026-11-01T01:30:00-05:00",
                    "2026-11-02T01:00:00-05:00",
                ],
            ),
            (
                "45 1 * * *",
                "Australia/Lord_Howe",
                "2026-04-04T12:00:00+11:00",
                &[
                    "2026-04-05T01:45:00+11:00",
                    "2026-04-05T01:45:00+10:30",
                    "2026-04-06T01:45:00+10:30",
                ],
            ),
            (
                "30 2 * * *",
                "Antarctica/Troll",
                "2026-10-24T12:00:00+02:00",
                &[
                    "2026-10-25T02:30:00+02:00",
                    "2026-10-25T02:30:00Z",
                    "2026-10-26T02:30:00Z",
                ],
            ),
            (
                "30 2 * * *",
                "America/New_York",
                "2026-03-07T12:00:00-05:00",
                &["2026-03-09T02:30:00-04:00"],
            ),
        ],
    );
}

#[test]
fn intervals_of_days_have_the_same_overrides() {
    let daily = |gap, fold| {
        move |expression: &str, zone: &str| {
            rule(&RuleText {
                anchor: Some(time("2026-03-01T02:30:00-05:00")),
                dst_gap: gap,
                dst_fold: fold,
                ..RuleText::new(RuleKind::Every, expression, zone)
            })
            .unwrap()
        }
    };
    check(
        daily(DstGap::Skip, DstFold::First),
        &[(
            "1d",
            "America/New_York",
            "2026-03-06T12:00:00-05:00",
            &["2026-03-07T02:30:00-05:00", "2026-03-09T02:30:00-04:00"],
        )],
    );
    // Half past two of New York is half past one of Chicago.
    for (fold, slots) in [
        (
            DstFold::Second,
            &["2026-11-01T01:30:00-06:00", "2026-11-02T01:30:00-06:00"][..],
        ),
        (
            DstFold::Both,
            &[
                "2026-11-01T01:30:00-05:00",
                "2026-11-01T01:30:00-06:00",
                "2026-11-02T01:30:00-06:00",
            ],
        ),
    ] {
        let after = "2026-10-31T12:00:00-05:00";
        check(
            daily(DstGap::Shift, fold),
            &[("1d", "America/Chicago", after, slots)],
        );
    }
}

#[test]
fn hashed_values_and_quartz_days_are_local_times_too() {
    check_cron(&[
        // The clocks change on the last Sunday of March.
        (
            "30 2 * 3 SUNL",
            "Europe/Paris",
            "2026-03-01T00:00:00Z",
            &["2026-03-29T03:00:00+02:00", "2027-03-28T03:00:00+02:00"],
        ),
        (
            "30 H(2-2) 8 3 *",
            "America/New_York",
            "2026-03-01T00:00:00Z",
            &["2026-03-08T03:00:00-04:00", "2027-03-08T02:30:00-05:00"],
        ),
        (
            "H(30-30) H(1-1) * 11 SUN#1",
            "America/New_York",
            "2026-03-01T00:00:00Z",
            &["2026-11-01T01:30:00-04:00", "2027-11-07T01:30:00-04:00"],
        ),
        (
            "0 0 L 12 *",
            "Pacific/Apia",
            "2011-12-28T13:00:00-10:00",
            &["2011-12-31T00:00:00+14:00"],
        ),
    ]);
}

#[test]
fn exclusions_match_the_local_time_of_the_rule() {
    let without = |item: &'static str| {
        move |expression: &str, zone: &str| {
            rule(&RuleText {
                exclude: vec![item.to_owned()],
                ..RuleText::new(RuleKind::Cron, expression, zone)
            })
            .unwrap()
        }
    };
    let zone = "America/New_York";
    // 02:30, in the gap, is excluded although it would fire at 03:00; 03:00 is no time of the rule.
    check(
        without("* 2 * * *"),
        &[(
            "0,30 1,2 * * *",
            zone,
            "2026-03-08T00:00:00-05:00",
            &[
                "2026-03-08T01:00:00-05:00",
                "2026-03-08T01:30:00-05:00",
                "2026-03-09T01:00:00-04:00",
            ],
        )],
    );
    check(
        without("* 3 * * *"),
        &[(
            "30 2,3 * * *",
            zone,
            "2026-03-08T00:00:00-05:00",
            &["2026-03-08T03:00:00-04:00"],
        )],
    );
    // Both passes of a minute in a fold are excluded.
    check(
        without("30 1 * * *"),
        &[(
            "*/30 * * * *",
            zone,
            "2026-11-01T00:30:00-04:00",
            &[
                "2026-11-01T01:00:00-04:00",
                "2026-11-01T01:00:00-05:00",
                "2026-11-01T02:00:00-05:00",
            ],
        )],
    );
    check(
        without("2026-03-28..2026-03-29"),
        &[(
            "0 0 * * *",
            "Asia/Beirut",
            "2026-03-26T12:00:00+02:00",
            &["2026-03-27T00:00:00+02:00", "2026-03-30T00:00:00+03:00"],
        )],
    );
}
