use super::super::testing::policies;
use super::*;
use crate::rule::RuleKind;
use crate::rule::testing::{cron, parsed};

/// Check a table of lines `policies => message => hint`, with a rule.
fn refused(rule: &Rule, table: &str) {
    for line in table.trim().lines() {
        let parts: Vec<&str> = line.split(" => ").map(str::trim).collect();
        let [json, message, hint] = parts[..] else {
            panic!("not three parts: {line}");
        };
        let error = policies(json).check(rule).expect_err(json);
        assert_eq!(
            (error.to_string().as_str(), error.hint()),
            (message, hint),
            "{json}"
        );
    }
}

fn accepted(rule: &Rule, table: &str) {
    for json in table.trim().lines() {
        assert_eq!(policies(json).check(rule), Ok(()), "{json}");
    }
}

fn hourly() -> Rule {
    cron("0 * * * *", "UTC").unwrap()
}

#[test]
fn zeros_are_refused() {
    refused(
        &hourly(),
        r#"
{"misfire_grace":"0s"} => misfire_grace is zero => write a time such as `30s`, or leave misfire_grace out
{"catchup_window":"0s"} => catchup_window is zero => write a time such as `30s`, or leave catchup_window out
{"catchup_spread":"0s"} => catchup_spread is zero => write a time such as `30s`, or leave catchup_spread out
{"jitter":"0s"} => jitter is zero => write a time such as `30s`, or leave jitter out
{"catchup":"all","catchup_max":0} => catchup_max is 0 => write at least 1, or leave catchup_max out
{"overlap":"buffer_all","max_buffered":0} => max_buffered is 0 => write at least 1, or leave max_buffered out
{"overlap":"allow","max_concurrent":0} => max_concurrent is 0 => write at least 1, or leave max_concurrent out
{"max_launches":0} => max_launches is 0 => write at least 1, or leave max_launches out
{"priority":10} => priority is 10 => write at most 9
{"retention":"1h"} => retention is 1h, shorter than catchup_window, 1day => write a retention of at least 1day, or a shorter catchup_window
{"pause_on_failure":0} => pause_on_failure is 0 => write at least 1, or leave pause_on_failure out
{"max_attempts":0} => max_attempts is 0 => write at least 1, or leave max_attempts out
{"max_attempts":1001} => max_attempts is 1001 => write at most 1000
{"backoff":"0s"} => backoff is zero => write a time such as `30s`, or leave backoff out
{"backoff":"61s"} => backoff is 1m 1s, longer than backoff_max, 1m => write a backoff_max of at least 1m 1s, or a shorter backoff
{"backoff_max":"500ms"} => backoff is 1s, longer than backoff_max, 500ms => write a backoff_max of at least 1s, or a shorter backoff
"#,
    );
}

#[test]
fn a_policy_without_a_meaning_is_refused() {
    refused(
        &hourly(),
        r#"
{"catchup":"none","catchup_window":"1h"} => catchup_window means nothing with catchup = `none` => leave catchup_window out, or choose catchup = `latest` or `earliest` or `all`
{"catchup":"none","catchup_spread":"1m"} => catchup_spread means nothing with catchup = `none` => leave catchup_spread out, or choose catchup = `latest` or `earliest` or `all`
{"catchup":"none","catchup_max":5} => catchup_max means nothing with catchup = `none` => leave catchup_max out, or choose catchup = `all`
{"catchup_max":5} => catchup_max means nothing with catchup = `latest` => leave catchup_max out, or choose catchup = `all`
{"max_buffered":5} => max_buffered means nothing with overlap = `skip` => leave max_buffered out, or choose overlap = `buffer_all`
{"overlap":"buffer_one","max_buffered":5} => max_buffered means nothing with overlap = `buffer_one` => leave max_buffered out, or choose overlap = `buffer_all`
{"overlap":"buffer_all","keep":"first"} => keep means nothing with overlap = `buffer_all` => leave keep out, or choose overlap = `buffer_one`
{"overlap":"buffer_all","max_concurrent":2} => max_concurrent means nothing with overlap = `buffer_all` => leave max_concurrent out, or choose overlap = `allow`
"#,
    );
    accepted(
        &hourly(),
        r#"
{}
{"catchup":"none"}
{"catchup":"none","misfire_grace":"48h"}
{"catchup":"earliest","catchup_window":"1h","catchup_spread":"1m"}
{"catchup":"all","catchup_window":"1h","catchup_spread":"1m","catchup_max":1000}
{"overlap":"buffer_all","max_buffered":5}
{"overlap":"buffer_one","keep":"first"}
{"overlap":"allow","max_concurrent":2}
"#,
    );
}

#[test]
fn a_value_one_beyond_a_bound_is_refused() {
    refused(
        &hourly(),
        r#"
{"catchup":"all","catchup_max":1001} => catchup_max is 1001 => write at most 1000; for more, use a backfill
{"catchup_window":"4m 59s"} => catchup_window is 4m 59s, shorter than misfire_grace, 5m => write a catchup_window of at least 5m, a shorter misfire_grace, or catchup = `none` to catch nothing up
{"misfire_grace":"86401s"} => catchup_window is 1day, shorter than misfire_grace, 1day 1s => write a catchup_window of at least 1day 1s, a shorter misfire_grace, or catchup = `none` to catch nothing up
{"start_at":"2026-01-01T00:00:00Z","end_at":"2026-01-01T00:00:00Z"} => end_at, 2026-01-01T00:00:00Z, is not after start_at, 2026-01-01T00:00:00Z => write a later end_at, or leave one of them out
{"jitter":"1h 1s"} => jitter is 1h 1s, longer than from one slot to the next, 1h => write a jitter of at most 1h
"#,
    );
    accepted(
        &hourly(),
        r#"
{"catchup_window":"5m"}
{"misfire_grace":"86400s"}
{"catchup_window":"1m","misfire_grace":"1m"}
{"start_at":"2026-01-01T00:00:00Z","end_at":"2026-01-01T00:00:00.000001Z"}
{"jitter":"1h"}
"#,
    );
}

#[test]
fn a_span_without_slots_is_refused() {
    refused(
        &hourly(),
        r#"
{"start_at":"2026-01-01T00:00:01Z","end_at":"2026-01-01T00:59:59Z"} => the rule has no slot from 2026-01-01T00:00:01Z to 2026-01-01T00:59:59Z, so the schedule would never launch => write a start_at and an end_at with a slot between them, or leave them out
{"start_at":"2100-01-01T00:00:00Z"} => the rule has no slot from 2100-01-01T00:00:00Z on, so the schedule would never launch => write a start_at and an end_at with a slot between them, or leave them out
"#,
    );
    let once = parsed(RuleKind::At, "2026-01-01T12:00:00Z", "UTC").unwrap();
    refused(
        &once,
        r#"
{"end_at":"2026-01-01T11:00:00Z"} => the rule has no slot up to 2026-01-01T11:00:00Z, so the schedule would never launch => write a start_at and an end_at with a slot between them, or leave them out
"#,
    );
    accepted(&once, r#"{"start_at":"2026-01-01T12:00:00Z"}"#);
}

#[test]
fn the_shortest_time_between_slots_bounds_the_jitter() {
    let rule = |kind, expression| parsed(kind, expression, "Europe/London").unwrap();
    for (rule, most) in [
        (rule(RuleKind::Cron, "*/5 9-17 * * MON-FRI"), "5m"),
        (rule(RuleKind::Cron, "0 0,1 * * *"), "1h"),
        (rule(RuleKind::Every, "90s"), "1m 30s"),
        (rule(RuleKind::AfterCompletion, "10m"), "10m"),
    ] {
        accepted(&rule, &format!(r#"{{"jitter":"{most}"}}"#));
        let error = policies(&format!(r#"{{"jitter":"{most} 1ms"}}"#)).check(&rule);
        let hint = error.unwrap_err().hint().to_owned();
        assert_eq!(hint, format!("write a jitter of at most {most}"));
    }
    let once = rule(RuleKind::At, "2026-01-01T12:00:00Z");
    accepted(&once, r#"{"jitter":"48h"}"#);
    accepted(
        &rule(RuleKind::AfterCompletion, "10m"),
        r#"{"end_at":"2026-01-01T11:00:00Z"}"#,
    );
}
