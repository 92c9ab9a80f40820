//! Explanations of records that no host makes, and the parser of moments. `tests/cli/why.rs` tests records of hosts.

use super::history::ParsedRevision;
use super::*;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::Origin;
use campanile_store::schedules::{History, Revision, ScheduleState};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn revision(number: i64, name: &str, rule: RuleText, since: &str) -> Revision {
    Revision {
        schedule_id: ScheduleId(uuid::Uuid::nil()),
        revision: number,
        name: name.to_owned(),
        package: "hello".to_owned(),
        task: None,
        rule,
        policies: serde_json::to_string(&Policies::default()).unwrap(),
        defaults: "{}".to_owned(),
        args: None,
        context: "{}".to_owned(),
        since: time(since),
    }
}

/// Returns a schedule created at midnight and decided up to 02:00. The current time is 02:30.
fn history(newest: Revision, earlier: Vec<Revision>) -> ScheduleHistory {
    let state = ScheduleState {
        id: newest.schedule_id,
        origin: Origin::Operator,
        revision: newest.revision,
        enabled: true,
        cursor_at: time("2026-01-01T02:00:00Z"),
        next_slot: None,
        history: History::default(),
        paused_at: None,
        paused_by: None,
        pause_note: None,
        paused_until: None,
        resumed_at: None,
        created_at: time("2026-01-01T00:00:00Z"),
        updated_at: time("2026-01-01T00:00:00Z"),
        deleted_at: None,
    };
    ScheduleHistory {
        now: time("2026-01-01T02:30:00Z"),
        state,
        newest: ParsedRevision::new(newest),
        earlier: earlier.into_iter().map(ParsedRevision::new).collect(),
        events: Vec::new(),
        hosts: Vec::new(),
        package: None,
    }
}

fn cron(expression: &str) -> RuleText {
    RuleText::new(RuleKind::Cron, expression, "UTC")
}

fn lines(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .map(|finding| format!("{}: {}", finding.kind, finding.text))
        .collect()
}

#[test]
fn a_moment_is_read_as_people_type_it() {
    for text in [
        "2026-03-08T02:30:00-05:00",
        "2026-03-08",
        "2026-03-08 02:30",
        "2026-03-08T02:30",
        "2026-03-08 02:30:15",
        "2026-03-08T02:30:15.5",
        "yesterday 14:00",
        "tomorrow 9:00",
        "now-2h",
    ] {
        let when = text.parse().map(When);
        assert_eq!(text.parse::<When>(), Ok(when.unwrap()), "{text}");
    }
}

#[test]
fn an_invalid_moment_is_refused() {
    for (text, refusal) in [
        ("", "`` is not a time"),
        ("noon", "`noon` is not a time"),
        ("2026-02-30 02:30", "`2026-02-30 02:30` is not a time"),
        ("2026-03-08 25:00", "`2026-03-08 25:00` is not a time"),
        (
            "1969-12-31 23:59",
            "`1969-12-31 23:59` is outside the years 1970 to 2099",
        ),
        (
            "2100-01-01T00:00:00Z",
            "`2100-01-01T00:00:00Z` is outside the years 1970 to 2099",
        ),
    ] {
        let error = text.parse::<When>().unwrap_err();
        assert_eq!(error.to_string(), refusal);
        assert!(error.hint().contains("RFC 3339"), "{}", error.hint());
    }
}

#[test]
fn a_slot_without_a_decision_is_reported_as_undecided() {
    let history = history(
        revision(1, "hourly", cron("0 * * * *"), "2026-01-01T00:00:00Z"),
        Vec::new(),
    );
    let findings = moment::without_decision(&history, time("2026-01-01T01:00:00Z"));
    assert_eq!(
        lines(&findings),
        [
            "slot: a slot of cron `0 * * * *` (revision 1)",
            "undecided: no decision about it is recorded, although all slots up to 2026-01-01T02:00:00Z are decided",
        ]
    );
}

#[test]
fn an_unreadable_revision_is_reported() {
    let history = history(
        revision(1, "hourly", cron("0 25 * * *"), "2026-01-01T00:00:00Z"),
        Vec::new(),
    );
    for findings in [
        moment::without_decision(&history, time("2026-01-01T01:00:00Z")),
        moment::standing(&history),
    ] {
        let [finding] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert_eq!(finding.kind, FindingKind::Unreadable);
        assert!(
            finding
                .text
                .starts_with("this version cannot read revision 1: "),
            "{}",
            finding.text
        );
    }
}

#[test]
fn a_moment_is_explained_by_the_revision_of_that_time() {
    let earlier = revision(1, "old", cron("30 * * * *"), "2026-01-01T00:00:00Z");
    let newest = revision(2, "new", cron("0 * * * *"), "2026-01-01T01:15:00Z");
    let history = history(newest, vec![earlier]);
    for (instant, revision) in [
        ("2025-12-31T00:00:00Z", 1),
        ("2026-01-01T01:14:59Z", 1),
        ("2026-01-01T01:15:00Z", 2),
        ("2027-01-01T00:00:00Z", 2),
    ] {
        assert_eq!(
            history.revision_at(time(instant)).definition.revision,
            revision,
            "{instant}"
        );
    }
    assert_eq!(moment::renamed(&history, "new"), None);
    let renamed = moment::renamed(&history, "old").unwrap();
    assert_eq!(renamed.at, Some(time("2026-01-01T01:15:00Z")));
    assert_eq!(
        renamed.text,
        "what was called `old` is called `new` from then on"
    );
}

#[test]
fn a_rule_without_slots_reports_when_it_launches() {
    let ends = RuleText::new(RuleKind::AfterCompletion, "10m", "UTC");
    for (rule, expected) in [
        (
            ends,
            "coming: the next launch comes 10 minutes after each launch ends",
        ),
        (
            cron("@reboot"),
            "coming: the next launch comes once at every start of a host",
        ),
    ] {
        let history = history(
            revision(1, "hourly", rule, "2026-01-01T00:00:00Z"),
            Vec::new(),
        );
        let missing = [
            "no_host: no host serves",
            "no_package: no host ever had the package `hello`",
        ];
        let standing = lines(&moment::standing(&history));
        assert_eq!(standing, [&[expected], &missing[..]].concat());
    }
}

#[test]
fn a_span_is_printed_in_significant_units() {
    for (micros, text) in [
        (0, "0s"),
        (1_500, "1ms"),
        (10_671_286, "10s 671ms"),
        (61_900_000, "1m 1s"),
        (9_000_000_000, "2h 30m"),
    ] {
        assert_eq!(span(Duration::from_micros(micros)), text);
    }
}
