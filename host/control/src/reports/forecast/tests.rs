//! Forecasts as tables: a line for each decision.

use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::rules::plan::SLOTS_MAX;
use campanile_model::ids::{ArtifactDigest, ScheduleId};
use campanile_model::life::Life;
use campanile_package::quota::Groups;
use campanile_schedule::rule::{HashKey, RuleKind, RuleText};
use campanile_store::Origin;
use campanile_store::schedules::History;

mod groups;
mod labels;

const DAY: &str = "2026-01-01T";

/// Read `08:00` or `08:00:30` on the day of the tests.
fn at(text: &str) -> Timestamp {
    let seconds = if text.len() == 5 { ":00" } else { "" };
    format!("{DAY}{text}{seconds}Z").parse().unwrap()
}

/// Print a time as [`at`] reads it.
fn clock(time: Timestamp) -> String {
    let text = time.to_string();
    let text = text.strip_prefix(DAY).unwrap_or(&text);
    let text = text.trim_end_matches('Z');
    text.strip_suffix(":00").unwrap_or(text).to_owned()
}

const EVERY_FIVE: (RuleKind, &str) = (RuleKind::Cron, "*/5 * * * *");

/// Returns the schedule `number`, decided up to 07:59, whose launches take `seconds`.
fn schedule(
    number: u128,
    rule: (RuleKind, &str),
    policies: &str,
    seconds: u64,
) -> ScheduleSnapshot {
    let id = ScheduleId(Uuid::from_u128(number));
    let text = RuleText::new(rule.0, rule.1, "UTC");
    let rule = Rule::parse(&text, HashKey::of(id)).unwrap();
    let policies: Policies = serde_json::from_str(policies).unwrap();
    let first = policies.next_slot(&rule, at("07:59"), 0);
    let next_slot = match rule.delay_after_completion() {
        Some(_) => Some(at("08:00")),
        None => first,
    };
    ScheduleSnapshot {
        name: format!("job-{number}"),
        due: DueSchedule {
            id,
            revision: 1,
            cursor_at: at("07:59"),
            next_slot: next_slot.unwrap_or(at("07:59")),
            history: History::default(),
            origin: Origin::Operator,
            package: "noop".to_owned(),
            digest: Some(ArtifactDigest::of(b"noop")),
            version_decision: None,
            missing_since: None,
        },
        next_slot,
        enabled: true,
        rule,
        policies,
        duration_estimate: DurationEstimate {
            duration: Duration::from_secs(seconds),
            samples: 3,
        },
        missing_labels: None,
        failing_since: None,
        unfinished: Vec::new(),
    }
}

fn snapshot(capacity: usize, schedules: Vec<ScheduleSnapshot>) -> SystemSnapshot {
    SystemSnapshot {
        now: at("07:59"),
        capacity,
        defaults: Defaults::default(),
        recovery: RecoveryLimits {
            lost_threshold: Duration::from_secs(300),
            age_max: Duration::from_secs(86_400),
            attempts_max: 3,
        },
        groups: Groups::from([("db".to_owned(), 2)]),
        schedules,
    }
}

fn until(to: &str) -> ForecastRequest {
    ForecastRequest {
        from: at("07:59"),
        to: at(to),
        outages: Vec::new(),
        rows_max: 1_000_000,
    }
}

/// Print a launch as `08:05 queued 08:10-08:15 succeeded`, with its schedule in front when there are several.
fn shown(snapshot: &SystemSnapshot, row: &Row) -> String {
    let mut text = match snapshot.schedules.len() {
        1 => clock(row.scheduled_time),
        _ => format!(
            "{} {}",
            snapshot.schedules[row.schedule].name,
            clock(row.scheduled_time)
        ),
    };
    if row.slot_count > 1 {
        text += &format!("-{}", clock(row.last_scheduled_time));
    }
    if row.kind != LaunchKind::Schedule {
        text += &format!(" {}", row.kind);
    }
    text += &format!(" {}", row.decision);
    if row.fire_time != row.scheduled_time {
        text += &format!(" fires {}", clock(row.fire_time));
    }
    if let Some(started_at) = row.started_at {
        let ended = row.finished_at.map(clock).unwrap_or_default();
        text += &format!(" {}-{ended}", clock(started_at));
    }
    if row.status.as_str() != row.decision.as_str() {
        text += &format!(" {}", row.status);
    }
    if let Some(reason) = &row.reason {
        text += &format!(" {reason}");
    }
    text
}

#[track_caller]
fn check(snapshot: &SystemSnapshot, question: &ForecastRequest, rows: &str) -> Forecast {
    let forecast = snapshot.forecast(question);
    let found: Vec<String> = forecast
        .rows
        .iter()
        .map(|row| shown(snapshot, row))
        .collect();
    let rows: Vec<&str> = rows.trim().lines().map(str::trim).collect();
    assert_eq!(found, rows);
    forecast
}

/// Check the launches of a schedule of every five minutes that take seven minutes.
#[track_caller]
fn check_overlap(policies: &str, rows: &str) {
    let snapshot = snapshot(10, vec![schedule(1, EVERY_FIVE, policies, 7 * 60)]);
    check(&snapshot, &until("08:21"), rows);
}

#[test]
fn a_slot_is_skipped_while_the_previous_launch_runs() {
    check_overlap(
        r#"{"overlap":"skip"}"#,
        "08:00 launched 08:00-08:07 succeeded
         08:05 skipped overlap
         08:10 launched 08:10-08:17 succeeded
         08:15 skipped overlap
         08:20 launched 08:20- running",
    );
}

#[test]
fn one_slot_is_queued_behind_the_running_launch() {
    check_overlap(
        r#"{"overlap":"buffer_one"}"#,
        "08:00 launched 08:00-08:07 succeeded
         08:05 queued 08:07-08:14 succeeded
         08:10 queued 08:14- running
         08:15 queued
         08:20 skipped overlap",
    );
    check_overlap(
        r#"{"overlap":"buffer_one","keep":"latest"}"#,
        "08:00 launched 08:00-08:07 succeeded
         08:05 queued 08:07-08:14 succeeded
         08:10 queued 08:14- running
         08:15 queued skipped overlap
         08:20 queued",
    );
}

#[test]
fn launches_run_concurrently_up_to_their_limit() {
    check_overlap(
        r#"{"overlap":"allow"}"#,
        "08:00 launched 08:00-08:07 succeeded
         08:05 launched 08:05-08:12 succeeded
         08:10 launched 08:10-08:17 succeeded
         08:15 launched 08:15- running
         08:20 launched 08:20- running",
    );
    check_overlap(
        r#"{"overlap":"allow","max_concurrent":1}"#,
        "08:00 launched 08:00-08:07 succeeded
         08:05 skipped overlap
         08:10 launched 08:10-08:17 succeeded
         08:15 skipped overlap
         08:20 launched 08:20- running",
    );
}

#[test]
fn a_launch_is_cancelled_for_the_next() {
    check_overlap(
        r#"{"overlap":"terminate_other"}"#,
        "08:00 launched 08:00-08:05 cancelled overlap
         08:05 launched 08:05-08:10 cancelled overlap
         08:10 launched 08:10-08:15 cancelled overlap
         08:15 launched 08:15-08:20 cancelled overlap
         08:20 launched 08:20- running",
    );
    check_overlap(
        r#"{"overlap":"cancel_other","cancel_grace":"1m"}"#,
        "08:00 launched 08:00-08:06 cancelled overlap
         08:05 queued 08:06-08:11 cancelled overlap
         08:10 queued 08:11-08:16 cancelled overlap
         08:15 queued 08:16- running
         08:20 queued",
    );
}

#[test]
fn a_launch_fires_at_its_jitter() {
    let jitter = r#"{"jitter":"2m"}"#;
    let snapshot = snapshot(10, vec![schedule(1, EVERY_FIVE, jitter, 10)]);
    let forecast = snapshot.forecast(&until("09:00"));
    let evaluator = campanile_schedule::policy::SlotEvaluator {
        schedule: snapshot.schedules[0].due.id,
        rule: &snapshot.schedules[0].rule,
        policies: &snapshot.schedules[0].policies,
        defaults: &snapshot.defaults,
    };
    assert_eq!(forecast.rows.len(), 12);
    for row in &forecast.rows {
        assert_eq!(row.fire_time, evaluator.fire_time(row.scheduled_time));
        assert_eq!(row.started_at, Some(row.fire_time));
        assert_eq!(row.lag(), Some(Duration::ZERO));
    }
    assert!(
        forecast
            .rows
            .iter()
            .any(|row| row.fire_time > row.scheduled_time)
    );
}

#[test]
fn the_earliest_launch_gets_the_permit_and_the_others_are_late() {
    let schedules =
        (1..=3).map(|number| schedule(number, (RuleKind::Cron, "*/10 * * * *"), "{}", 90));
    let snapshot = snapshot(1, schedules.collect());
    let forecast = check(
        &snapshot,
        &until("08:10"),
        "job-1 08:00 launched 08:00-08:01:30 succeeded
         job-2 08:00 launched 08:01:30-08:03 succeeded
         job-3 08:00 launched 08:03-08:04:30 succeeded",
    );
    let lags: Vec<u64> = forecast
        .schedules
        .iter()
        .map(|totals| totals.lag.as_secs())
        .collect();
    assert_eq!(lags, [0, 90, 180]);
    assert_eq!(
        (forecast.all.lag.as_secs(), forecast.all.lag_of),
        (180, Some(at("08:00")))
    );
    assert_eq!(
        (forecast.all.peak, forecast.all.peak_at),
        (1, Some(at("08:00")))
    );
    let starts: Vec<(String, u64)> = forecast
        .all
        .starts
        .iter()
        .map(|(&minute, &starts)| (clock(minute), starts))
        .collect();
    assert_eq!(
        starts,
        [("08:00", 1), ("08:01", 1), ("08:03", 1)].map(|(at, n)| (at.to_owned(), n))
    );
}

#[test]
fn after_completion_counts_from_forecast_ends() {
    let rule = (RuleKind::AfterCompletion, "10m");
    let snapshot = snapshot(10, vec![schedule(1, rule, "{}", 150)]);
    let forecast = check(
        &snapshot,
        &until("08:30"),
        "08:00 launched 08:00-08:02:30 succeeded
         08:12:30 launched 08:12:30-08:15 succeeded
         08:25 launched 08:25-08:27:30 succeeded",
    );
    assert_eq!(forecast.all.next, Some(at("08:37:30")));
}

#[test]
fn a_schedule_ends_after_max_launches() {
    let policies = r#"{"max_launches":2}"#;
    let snapshot = snapshot(10, vec![schedule(1, EVERY_FIVE, policies, 1)]);
    let forecast = check(
        &snapshot,
        &until("09:00"),
        "08:00 launched 08:00-08:00:01 succeeded
         08:05 launched 08:05-08:05:01 succeeded",
    );
    assert_eq!(forecast.all.next, None);
}

#[test]
fn slots_without_a_package_are_skipped() {
    let mut missing = schedule(1, EVERY_FIVE, "{}", 1);
    missing.due.missing_since = Some(at("07:00"));
    let forecast = check(
        &snapshot(10, vec![missing]),
        &until("08:10"),
        "08:00 skipped package_missing
         08:05 skipped package_missing",
    );
    assert_eq!(forecast.all.skipped["package_missing"], 2);
    assert_eq!(forecast.all.launches, 0);
}

#[test]
fn a_launch_decided_before_the_span_is_hidden_and_uses_capacity() {
    let snapshot = snapshot(1, vec![schedule(1, EVERY_FIVE, "{}", 20 * 60)]);
    let question = ForecastRequest {
        from: at("08:10"),
        ..until("08:26")
    };
    let forecast = check(
        &snapshot,
        &question,
        "08:10 skipped overlap
         08:15 skipped overlap
         08:20 launched 08:20- running
         08:25 skipped overlap",
    );
    assert_eq!(
        (forecast.all.peak, forecast.all.peak_at),
        (1, Some(at("08:10")))
    );
}

#[test]
fn a_recorded_launch_uses_capacity_for_its_usual_duration() {
    let mut schedule = schedule(1, EVERY_FIVE, "{}", 10 * 60);
    let launch = campanile_store::launch::UnfinishedLaunch {
        id: LaunchId::of(schedule.due.id, at("07:55"), LaunchKind::Schedule),
        schedule_id: schedule.due.id,
        kind: LaunchKind::Schedule,
        scheduled_time: at("07:55"),
        life: Life::decided(Decision::Launched, Some(1)),
        fire_time: at("07:55"),
        decided_at: at("07:55"),
        overlap: None,
        cancel_deadline: None,
    };
    let id = launch.id;
    let run = ActiveRun {
        launch_id: id,
        started_at: at("07:57"),
        retry_at: None,
    };
    schedule.unfinished.push((launch, Some(run)));
    let snapshot = snapshot(1, vec![schedule]);
    let forecast = check(
        &snapshot,
        &until("08:11"),
        "08:00 skipped overlap
         08:05 skipped overlap
         08:10 launched 08:10- running",
    );
    assert_eq!(forecast.rows[0].overlaps, Some(id));
    assert_eq!(forecast.all.peak_at, Some(at("07:59")));
}

/// Returns an outage from 08:02 to 08:33, which loses the launch of 08:00.
fn outage() -> ForecastRequest {
    ForecastRequest {
        outages: vec![Outage {
            from: at("08:02"),
            to: at("08:33"),
        }],
        ..until("08:38")
    }
}

#[test]
fn an_outage_loses_running_launches_and_its_slots_are_caught_up() {
    let snapshot = snapshot(
        10,
        vec![schedule(1, EVERY_FIVE, r#"{"misfire_grace":"1m"}"#, 150)],
    );
    let forecast = check(
        &snapshot,
        &outage(),
        "08:00 launched 08:00-08:35:30 succeeded
         08:05-08:25 skipped coalesced
         08:30 catchup queued 08:35:30- running
         08:35 skipped overlap",
    );
    assert_eq!((forecast.recovered, forecast.rows[0].recoveries), (1, 1));
}

#[test]
fn catchup_launches_are_spaced_by_the_spread() {
    let policies =
        r#"{"catchup":"all","catchup_max":3,"catchup_spread":"40s","misfire_grace":"1m"}"#;
    let mut question = outage();
    question.outages[0].from = at("08:00");
    check(
        &snapshot(10, vec![schedule(1, EVERY_FIVE, policies, 5)]),
        &question,
        "08:00-08:15 skipped catchup_max
         08:20 catchup queued fires 08:33:40 08:33:40-08:33:45 succeeded
         08:25 catchup queued fires 08:34:20 08:34:20-08:34:25 succeeded
         08:30 catchup queued fires 08:35 08:35:05-08:35:10 succeeded
         08:35 launched 08:35-08:35:05 succeeded",
    );
}

#[test]
fn an_at_most_once_launch_is_not_run_again_after_an_outage() {
    let policies = r#"{"delivery":"at_most_once","catchup":"none","misfire_grace":"1m"}"#;
    let forecast = check(
        &snapshot(10, vec![schedule(1, EVERY_FIVE, policies, 150)]),
        &outage(),
        "08:00 launched 08:00-08:33 unknown
         08:05-08:30 skipped catchup_none
         08:35 launched 08:35-08:37:30 succeeded",
    );
    assert_eq!(forecast.recovered, 0);
}

#[test]
fn a_diff_of_forecasts_lists_added_removed_and_moved_launches() {
    let job =
        |number, policies: &str| schedule(number, (RuleKind::Cron, "*/10 * * * *"), policies, 90);
    let before = snapshot(1, vec![job(1, "{}"), job(2, "{}"), job(3, "{}")]);
    let mut hourly = schedule(4, (RuleKind::Cron, "10 * * * *"), "{}", 90);
    hourly.name = "job-1".to_owned();
    let after = snapshot(
        1,
        vec![hourly, job(2, "{}"), job(5, r#"{"max_launches":1}"#)],
    );
    let [told_before, told_after] =
        [&before, &after].map(|snapshot| snapshot.forecast(&until("08:15")));
    let changes = compare((&before, &told_before), (&after, &told_after));
    let slots = |rows: &[&Row]| {
        rows.iter()
            .map(|row| clock(row.scheduled_time))
            .collect::<Vec<_>>()
            .join(",")
    };
    let shown: Vec<String> = changes
        .iter()
        .map(|changes| {
            let moved: Vec<String> = changes
                .moved
                .iter()
                .map(|(before, after)| {
                    let began =
                        [before, after].map(|row| row.started_at.map(clock).unwrap_or_default());
                    began.join(" to ")
                })
                .collect();
            let (added, removed) = (slots(&changes.added), slots(&changes.removed));
            let first = changes.first().map(clock).unwrap_or_default();
            format!(
                "{} +{added} -{removed} {} from {first}",
                changes.schedule,
                moved.join(",")
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "job-1 + -08:00  from 08:00",
            "job-2 + - 08:01:30 to 08:00 from 08:00",
            "job-3 + -08:00,08:10  from 08:00",
            "job-5 +08:00 -  from 08:00",
        ]
    );
    assert_eq!(compare((&after, &told_after), (&after, &told_after)), []);
}

#[test]
fn adjacent_outages_are_merged() {
    let [first, second, other] =
        [("08:00", "08:10"), ("08:05", "08:20"), ("09:00", "09:01")].map(|(from, to)| Outage {
            from: at(from),
            to: at(to),
        });
    let merged = simulator::merged(&[other, second, first]);
    let whole = Outage {
        from: at("08:00"),
        to: at("08:20"),
    };
    assert_eq!(merged, [whole, other]);
}

#[test]
fn a_forecast_stops_at_the_maximum_of_decisions() {
    let snapshot = snapshot(10, vec![schedule(1, (RuleKind::Every, "1s"), "{}", 0)]);
    let question = ForecastRequest {
        rows_max: 5,
        ..until("12:00")
    };
    let forecast = snapshot.forecast(&question);
    assert_eq!(forecast.rows.len(), 5);
    assert_eq!(forecast.cut_at, Some(at("07:59:05")));
}

/// All slots of an outage are decided at one moment, in several batches.
#[test]
fn a_forecast_stops_within_the_decisions_of_one_moment() {
    let policies = r#"{"overlap":"allow","misfire_grace":"1d"}"#;
    let snapshot = snapshot(10, vec![schedule(1, (RuleKind::Every, "1s"), policies, 0)]);
    let question = ForecastRequest {
        outages: vec![Outage {
            from: at("08:00"),
            to: at("12:00"),
        }],
        rows_max: 100,
        ..until("13:00")
    };
    let forecast = snapshot.forecast(&question);
    assert_eq!(forecast.cut_at, Some(at("12:00")));
    assert!(
        forecast.rows.len() <= 100 + SLOTS_MAX,
        "{}",
        forecast.rows.len()
    );
}

#[test]
fn a_paused_schedule_is_left_out() {
    let mut paused = schedule(1, EVERY_FIVE, "{}", 1);
    paused.enabled = false;
    check(&snapshot(10, vec![paused]), &until("09:00"), "");
}

#[test]
fn the_expected_duration_is_the_median() {
    for (seconds, duration) in [
        (vec![], DURATION_DEFAULT),
        (vec![7], Duration::from_secs(7)),
        (vec![1, 900, 3], Duration::from_secs(3)),
        (vec![1, 4, 3, 900], Duration::from_secs(4)),
    ] {
        let durations: Vec<Duration> = seconds.into_iter().map(Duration::from_secs).collect();
        let samples = durations.len();
        let takes = DurationEstimate { duration, samples };
        assert_eq!(DurationEstimate::from_durations(durations), takes);
    }
}

/// Forecast many schedules for an hour, and check the rules of every forecast.
#[test]
fn capacity_and_overlap_limits_are_never_exceeded() {
    let policies = [
        r#"{"overlap":"skip"}"#,
        r#"{"overlap":"buffer_one","jitter":"1m"}"#,
        r#"{"overlap":"buffer_all","catchup":"all"}"#,
        r#"{"overlap":"cancel_other","cancel_grace":"20s"}"#,
        r#"{"overlap":"terminate_other"}"#,
    ];
    let schedules = policies.iter().zip(1..).map(|(policies, number)| {
        schedule(
            number,
            (RuleKind::Cron, "* * * * *"),
            policies,
            45 + 20 * number as u64,
        )
    });
    let snapshot = snapshot(3, schedules.collect());
    let question = ForecastRequest {
        outages: vec![Outage {
            from: at("08:10"),
            to: at("08:20"),
        }],
        ..until("09:00")
    };
    let forecast = snapshot.forecast(&question);
    assert_eq!(forecast.all.peak, 3);
    for (number, totals) in forecast.schedules.iter().enumerate() {
        assert_eq!(totals.peak, 1, "{number}");
        let rows = forecast.rows.iter().filter(|row| row.schedule == number);
        let slots: i64 = rows.map(|row| row.slot_count).sum();
        assert_eq!(slots, 60, "{number}: every slot has a row");
    }
    for row in &forecast.rows {
        assert!(
            row.started_at
                .is_none_or(|at| at >= row.fire_time && at >= row.decided_at)
        );
    }
    assert_eq!(
        snapshot.forecast(&question),
        forecast,
        "the same question has the same answer"
    );
}
