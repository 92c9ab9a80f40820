//! The decision about a slot, one line for each case: the specification of the slot policies.

use super::testing::*;
use super::{LastCatchup, SlotProgress};
use crate::rule::testing::cron;

/// Check a table of lines `policies | last slot decided | now | decisions`, for the slots of `expression`.
fn check_table(expression: &str, table: &str) {
    for line in table.trim().lines() {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [policies, cursor, now, decisions] = parts[..] else {
            panic!("not four parts: {line}");
        };
        check(
            expression,
            policies,
            &progress_at(at(cursor)),
            now,
            decisions,
        );
    }
}

/// Check the decisions, `; ` between them; `-` for none.
fn check(expression: &str, json: &str, progress: &SlotProgress, now: &str, decisions: &str) {
    let rule = cron(expression, "UTC").unwrap();
    let policies = policies(json);
    let evaluator = evaluator(&rule, &policies);
    let expected: Vec<&str> = decisions.split("; ").filter(|text| *text != "-").collect();
    for slots_max in [usize::MAX, 2, 1] {
        let decided = evaluated_in_parts(evaluator, progress, at(now), slots_max);
        assert_eq!(lines(&decided), expected, "{json} at {now}, {slots_max}");
    }
}

#[test]
fn one_slot_in_every_mode_at_every_lateness() {
    check_table(
        "0 8 * * *",
        r#"
{"catchup":"none"}                           | 07:00 | 07:59:59.999999 | -
{"catchup":"none"}                           | 07:00 | 08:00           | 08:00 launch
{"catchup":"none"}                           | 07:00 | 08:05           | 08:00 launch
{"catchup":"none"}                           | 07:00 | 08:05:00.000001 | 08:00 catchup_none
{"catchup":"none"}                           | 07:00 | 23:00           | 08:00 catchup_none
{"catchup":"latest","catchup_window":"4h"}   | 07:00 | 08:00           | 08:00 launch
{"catchup":"latest","catchup_window":"4h"}   | 07:00 | 08:05           | 08:00 launch
{"catchup":"latest","catchup_window":"4h"}   | 07:00 | 08:05:00.000001 | 08:00 catchup
{"catchup":"latest","catchup_window":"4h"}   | 07:00 | 12:00           | 08:00 catchup
{"catchup":"latest","catchup_window":"4h"}   | 07:00 | 12:00:00.000001 | 08:00 window
{"catchup":"earliest","catchup_window":"4h"} | 07:00 | 08:00           | 08:00 launch
{"catchup":"earliest","catchup_window":"4h"} | 07:00 | 08:05           | 08:00 launch
{"catchup":"earliest","catchup_window":"4h"} | 07:00 | 08:05:00.000001 | 08:00 catchup
{"catchup":"earliest","catchup_window":"4h"} | 07:00 | 12:00           | 08:00 catchup
{"catchup":"earliest","catchup_window":"4h"} | 07:00 | 12:00:00.000001 | 08:00 window
{"catchup":"all","catchup_window":"4h"}      | 07:00 | 08:00           | 08:00 launch
{"catchup":"all","catchup_window":"4h"}      | 07:00 | 08:05           | 08:00 launch
{"catchup":"all","catchup_window":"4h"}      | 07:00 | 08:05:00.000001 | 08:00 catchup
{"catchup":"all","catchup_window":"4h"}      | 07:00 | 12:00           | 08:00 catchup
{"catchup":"all","catchup_window":"4h"}      | 07:00 | 12:00:00.000001 | 08:00 window
{"catchup":"all","catchup_max":1}            | 07:00 | 23:00           | 08:00 catchup
{"misfire_grace":"2h"}                       | 07:00 | 10:00           | 08:00 launch
{"misfire_grace":"2h"}                       | 07:00 | 10:00:00.000001 | 08:00 catchup
"#,
    );
}

#[test]
fn several_slots_in_every_mode_under_every_cap() {
    check_table(
        "0 * * * *",
        r#"
{"catchup":"none"}                                           | 05:00 | 12:02 | 06:00-11:00 catchup_none, 6; 12:00 launch
{"catchup":"latest"}                                         | 05:00 | 12:02 | 06:00-10:00 coalesced, 5; 11:00 catchup; 12:00 launch
{"catchup":"latest","catchup_window":"270m"}                 | 05:00 | 12:02 | 06:00-07:00 window, 2; 08:00-10:00 coalesced, 3; 11:00 catchup; 12:00 launch
{"catchup":"latest","catchup_window":"30m"}                  | 05:00 | 12:02 | 06:00-11:00 window, 6; 12:00 launch
{"catchup":"earliest"}                                       | 05:00 | 12:02 | 06:00 catchup; 07:00-11:00 coalesced, 5; 12:00 launch
{"catchup":"earliest","catchup_window":"270m"}               | 05:00 | 12:02 | 06:00-07:00 window, 2; 08:00 catchup; 09:00-11:00 coalesced, 3; 12:00 launch
{"catchup":"earliest","catchup_window":"30m"}                | 05:00 | 12:02 | 06:00-11:00 window, 6; 12:00 launch
{"catchup":"all"}                                            | 08:00 | 12:02 | 09:00 catchup; 10:00 catchup; 11:00 catchup; 12:00 launch
{"catchup":"all","catchup_window":"150m"}                    | 05:00 | 12:02 | 06:00-09:00 window, 4; 10:00 catchup; 11:00 catchup; 12:00 launch
{"catchup":"all","catchup_max":6}                            | 08:00 | 12:02 | 09:00 catchup; 10:00 catchup; 11:00 catchup; 12:00 launch
{"catchup":"all","catchup_max":3}                            | 08:00 | 12:02 | 09:00 catchup; 10:00 catchup; 11:00 catchup; 12:00 launch
{"catchup":"all","catchup_max":2}                            | 08:00 | 12:02 | 09:00 catchup_max; 10:00 catchup; 11:00 catchup; 12:00 launch
{"catchup":"all","catchup_max":1}                            | 08:00 | 12:02 | 09:00-10:00 catchup_max, 2; 11:00 catchup; 12:00 launch
{"catchup":"all","catchup_max":1,"catchup_window":"150m"}    | 05:00 | 12:02 | 06:00-09:00 window, 4; 10:00 catchup_max; 11:00 catchup; 12:00 launch
"#,
    );
}

#[test]
fn caught_up_slots_are_spread_from_now() {
    check_table(
        "0 * * * *",
        r#"
{"catchup":"latest","catchup_spread":"30s"}   | 09:00 | 12:02 | 10:00 coalesced; 11:00 catchup, fires 12:02:30; 12:00 launch
{"catchup":"earliest","catchup_spread":"30s"} | 09:00 | 12:02 | 10:00 catchup, fires 12:02:30; 11:00 coalesced; 12:00 launch
{"catchup":"all","catchup_spread":"30s"}      | 08:00 | 12:02 | 09:00 catchup, fires 12:02:30; 10:00 catchup, fires 12:03; 11:00 catchup, fires 12:03:30; 12:00 launch
"#,
    );
}

#[test]
fn caught_up_slots_are_spread_from_the_last_one() {
    let mut progress = progress_at(at("09:00"));
    for (fire_time, fires) in [("12:00", "12:02:30"), ("12:10", "12:10:30")] {
        progress.caught_up = Some(LastCatchup {
            decided_at: at("08:30"),
            fire_time: at(fire_time),
        });
        let json = r#"{"catchup_spread":"30s"}"#;
        let decisions = format!("10:00 coalesced; 11:00 catchup, fires {fires}; 12:00 launch");
        check("0 * * * *", json, &progress, "12:02", &decisions);
    }
}

#[test]
fn earliest_catches_up_once_for_each_outage() {
    let mut progress = progress_at(at("09:00"));
    for (decided_at, decisions) in [
        // Both slots were already missed at the last catchup.
        ("12:01", "10:00-11:00 coalesced, 2; 12:00 launch"),
        ("11:30", "10:00-11:00 coalesced, 2; 12:00 launch"),
        // One slot was not.
        ("10:30", "10:00 coalesced; 11:00 catchup; 12:00 launch"),
        // No slot was.
        ("09:30", "10:00 catchup; 11:00 coalesced; 12:00 launch"),
    ] {
        progress.caught_up = Some(LastCatchup {
            decided_at: at(decided_at),
            fire_time: at(decided_at),
        });
        let json = r#"{"catchup":"earliest"}"#;
        check("0 * * * *", json, &progress, "12:02", decisions);
    }
}

#[test]
fn there_are_no_slots_outside_start_and_end() {
    check_table(
        "0 * * * *",
        r#"
{"start_at":"2026-01-01T10:00:00Z"}                       | 08:00 | 11:02 | 10:00 catchup; 11:00 launch
{"start_at":"2026-01-01T10:00:00.000001Z"}                | 08:00 | 11:02 | 11:00 launch
{"end_at":"2026-01-01T10:00:00Z"}                         | 08:00 | 12:02 | 09:00 coalesced; 10:00 catchup
{"end_at":"2026-01-01T09:59:59.999999Z"}                  | 08:00 | 12:02 | 09:00 catchup
{"catchup":"all","catchup_max":1,"end_at":"2026-01-01T10:00:00Z"} | 08:00 | 12:02 | 09:00 catchup_max; 10:00 catchup
"#,
    );
}

#[test]
fn max_launches_ends_the_schedule() {
    let mut progress = progress_at(at("08:00"));
    for (json, launches, decisions) in [
        (
            r#"{"max_launches":4}"#,
            2,
            "09:00-10:00 coalesced, 2; 11:00 catchup; 12:00 launch",
        ),
        (
            r#"{"max_launches":4}"#,
            3,
            "09:00-10:00 coalesced, 2; 11:00 catchup",
        ),
        (r#"{"max_launches":4}"#, 4, "-"),
        (r#"{"max_launches":4}"#, 5, "-"),
        (
            r#"{"max_launches":4,"catchup":"none"}"#,
            3,
            "09:00-11:00 catchup_none, 3; 12:00 launch",
        ),
        (
            r#"{"max_launches":4,"catchup":"earliest"}"#,
            3,
            "09:00 catchup",
        ),
        (
            r#"{"max_launches":4,"catchup":"all"}"#,
            2,
            "09:00 catchup; 10:00 catchup",
        ),
    ] {
        progress.launches = launches;
        check("0 * * * *", json, &progress, "12:02", decisions);
    }
}

#[test]
fn a_skipped_slot_is_dropped_and_represents_no_other() {
    let mut progress = progress_at(at("08:00"));
    for (json, skip, decisions) in [
        (
            "{}",
            "12:00",
            "09:00-10:00 coalesced, 2; 11:00 catchup; 12:00 skipped_once",
        ),
        (
            "{}",
            "11:00",
            "09:00 coalesced; 10:00 catchup; 11:00 skipped_once; 12:00 launch",
        ),
        (
            r#"{"catchup":"earliest"}"#,
            "09:00",
            "09:00 skipped_once; 10:00 catchup; 11:00 coalesced; 12:00 launch",
        ),
        (
            r#"{"catchup":"all","catchup_max":2}"#,
            "10:00",
            "09:00 catchup; 10:00 skipped_once; 11:00 catchup; 12:00 launch",
        ),
    ] {
        progress.skips = [at(skip)].into();
        check("0 * * * *", json, &progress, "12:02", decisions);
    }
}

#[test]
fn a_slot_is_late_from_its_fire_time() {
    // The slot of 08:00 of this schedule fires 334.6 s later.
    check_table(
        "0 8 * * *",
        r#"
{"jitter":"10m"} | 07:00 | 08:00           | 08:00 launch, fires 08:05:34.609360
{"jitter":"10m"} | 07:00 | 08:10:34.609360 | 08:00 launch, fires 08:05:34.609360
{"jitter":"10m"} | 07:00 | 08:10:34.609361 | 08:00 catchup, fires 08:05:34.609360
"#,
    );
}

#[test]
fn the_next_slot_respects_the_limits() {
    let rule = cron("0 * * * *", "UTC").unwrap();
    for (json, after, launches, next) in [
        ("{}", "08:00", 9, Some("09:00")),
        (
            r#"{"start_at":"2026-01-01T11:00:00Z"}"#,
            "08:00",
            0,
            Some("11:00"),
        ),
        (
            r#"{"start_at":"2026-01-01T11:00:00.000001Z"}"#,
            "08:00",
            0,
            Some("12:00"),
        ),
        (
            r#"{"start_at":"2026-01-01T11:00:00Z"}"#,
            "12:00",
            0,
            Some("13:00"),
        ),
        (
            r#"{"end_at":"2026-01-01T11:00:00Z"}"#,
            "10:00",
            0,
            Some("11:00"),
        ),
        (r#"{"end_at":"2026-01-01T11:00:00Z"}"#, "11:00", 0, None),
        (r#"{"max_launches":3}"#, "08:00", 2, Some("09:00")),
        (r#"{"max_launches":3}"#, "08:00", 3, None),
    ] {
        let policies = policies(json);
        let evaluator = evaluator(&rule, &policies);
        assert_eq!(
            policies.next_slot(&rule, at(after), launches),
            next.map(at),
            "{json}"
        );
        let mut progress = progress_at(at(after));
        progress.launches = launches;
        let decided = evaluator.evaluate(&progress, at(after), 10);
        assert_eq!(
            (decided.cursor, decided.next),
            (None, next.map(at)),
            "{json}"
        );
    }
}
