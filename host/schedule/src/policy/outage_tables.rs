//! A host was down from 02:00 to 05:00: its decisions about a schedule of every five minutes, in
//! every mode of `catchup`. The last slot decided before is 01:55.

use super::testing::*;
use crate::rule::testing::cron;

/// Check the decisions at 05:00, one a line.
fn check(json: &str, rows: &str) {
    let rule = cron("*/5 * * * *", "UTC").unwrap();
    let policies = policies(json);
    let evaluator = evaluator(&rule, &policies);
    let rows: Vec<&str> = rows.trim().lines().map(str::trim).collect();
    for slots_max in [usize::MAX, 10, 1] {
        let judgement =
            evaluated_in_parts(evaluator, &progress_at(at("01:55")), at("05:00"), slots_max);
        assert_eq!(lines(&judgement), rows, "{json}, {slots_max}");
        let end = (judgement.cursor, judgement.next);
        assert_eq!(end, (Some(at("05:00")), Some(at("05:05"))));
    }
}

#[test]
fn none() {
    check(
        r#"{"catchup":"none"}"#,
        "02:00-04:50 catchup_none, 35
         04:55 launch
         05:00 launch",
    );
}

#[test]
fn latest() {
    check(
        r#"{"catchup":"latest"}"#,
        "02:00-04:45 coalesced, 34
         04:50 catchup
         04:55 launch
         05:00 launch",
    );
}

#[test]
fn latest_with_a_grace_of_a_second() {
    check(
        r#"{"misfire_grace":"1s"}"#,
        "02:00-04:50 coalesced, 35
         04:55 catchup
         05:00 launch",
    );
}

#[test]
fn earliest() {
    check(
        r#"{"catchup":"earliest"}"#,
        "02:00 catchup
         02:05-04:50 coalesced, 34
         04:55 launch
         05:00 launch",
    );
}

#[test]
fn all() {
    check(
        r#"{"catchup":"all"}"#,
        "02:00 catchup
         02:05 catchup
         02:10 catchup
         02:15 catchup
         02:20 catchup
         02:25 catchup
         02:30 catchup
         02:35 catchup
         02:40 catchup
         02:45 catchup
         02:50 catchup
         02:55 catchup
         03:00 catchup
         03:05 catchup
         03:10 catchup
         03:15 catchup
         03:20 catchup
         03:25 catchup
         03:30 catchup
         03:35 catchup
         03:40 catchup
         03:45 catchup
         03:50 catchup
         03:55 catchup
         04:00 catchup
         04:05 catchup
         04:10 catchup
         04:15 catchup
         04:20 catchup
         04:25 catchup
         04:30 catchup
         04:35 catchup
         04:40 catchup
         04:45 catchup
         04:50 catchup
         04:55 launch
         05:00 launch",
    );
}

#[test]
fn all_within_a_window_and_a_cap() {
    check(
        r#"{"catchup":"all","catchup_window":"1h","catchup_max":6}"#,
        "02:00-03:55 window, 24
         04:00-04:20 catchup_max, 5
         04:25 catchup
         04:30 catchup
         04:35 catchup
         04:40 catchup
         04:45 catchup
         04:50 catchup
         04:55 launch
         05:00 launch",
    );
}

#[test]
fn all_of_a_short_window_spread() {
    check(
        r#"{"catchup":"all","catchup_window":"20m","catchup_spread":"90s"}"#,
        "02:00-04:35 window, 32
         04:40 catchup, fires 05:01:30
         04:45 catchup, fires 05:03
         04:50 catchup, fires 05:04:30
         04:55 launch
         05:00 launch",
    );
}
