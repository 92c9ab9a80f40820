use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use campanile_model::ids::{LaunchId, RunId, ScheduleId};
use campanile_sandbox::{Resource, Share};
use campanile_store::Decision;

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn finish(end: RunEnd) -> Finish {
    Finish {
        run_id: RunId::of(LaunchId(uuid::Uuid::nil()), 1),
        fence: 1,
        schedule_id: ScheduleId(uuid::Uuid::nil()),
        scheduled_time: at(0),
        at: at(1),
        end,
        tasks: Vec::new(),
    }
}

/// Returns a text in which every metric of a host and of the record appears.
fn full_text() -> String {
    let metrics = Metrics::default();
    metrics
        .launches
        .get_or_create(&LaunchLabels {
            decision: Decision::Skipped.as_str(),
            kind: LaunchKind::Schedule.as_str(),
            reason: "overlap",
        })
        .inc();
    metrics.count_call("demo", &Usage::default(), 1);
    metrics.text(3, 16) + &RecordMetrics::example().text() + "campanile_record_readable 1\n"
}

/// Returns the names of the samples in a text of metrics.
fn samples(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split(['{', ' ']).next());
    names.map(str::to_owned).collect()
}

/// Returns the names of metrics of Campanile in `text`, whatever format it has.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    let names = words.filter(|word| word.starts_with("campanile_"));
    names.map(str::to_owned).collect()
}

#[test]
fn a_host_counts_what_it_does() {
    let metrics = Metrics::default();
    metrics.count_claim(LaunchKind::Schedule, true, at(10), at(12));
    metrics.count_claim(LaunchKind::Schedule, false, at(10), at(90));
    metrics.count_claim(LaunchKind::Backfill, true, at(10), at(90));
    metrics.observe_run(Duration::from_millis(250));
    let failed = RunEnd::Failed {
        kind: FailureKind::TimedOut,
        message: String::new(),
    };
    let ends = [
        finish(RunEnd::Succeeded { output: None }),
        finish(failed),
        // It has not ended.
        finish(RunEnd::Waiting { retry_at: at(9) }),
    ];
    metrics.count_ends(ends.iter());
    metrics.count_lost(2);
    metrics.count_recoveries(&[NewEvent::new(EventKind::LaunchRecovered, "", "")]);
    metrics.observe_commit(CommitOf::Finish, Duration::from_millis(3));
    metrics.count_load(false);
    let usage = Usage {
        cpu_ms: 1_500.0,
        memory_peak_bytes: 65_536,
        shares: vec![Share {
            resource: Resource::HttpRequests,
            used: 3,
            limit: 1_000,
        }],
        ..Usage::default()
    };
    metrics.count_call("demo", &usage, 42);
    metrics.count_call("demo", &Usage::default(), 0);
    metrics.note_tick(at(1_800_000_000));
    let text = metrics.text(3, 16);
    for line in [
        "# TYPE campanile_claims_total counter",
        "campanile_claims_total 3",
        "campanile_start_lag_seconds_sum 2.0",
        "campanile_start_lag_seconds_count 1",
        "campanile_run_duration_seconds_count 1",
        "campanile_runs_total{status=\"succeeded\",failure=\"\"} 1",
        "campanile_runs_total{status=\"failed\",failure=\"timed_out\"} 1",
        "campanile_runs_total{status=\"failed\",failure=\"trapped\"} 0",
        "campanile_lost_leases_total 2",
        "campanile_recoveries_total{event=\"launch_recovered\"} 1",
        "campanile_recoveries_total{event=\"launch_unknown\"} 0",
        "campanile_commit_seconds_count{transaction=\"finish\"} 1",
        "campanile_commit_seconds_count{transaction=\"claim\"} 0",
        "campanile_package_loads_total{result=\"rejected\"} 1",
        "campanile_package_calls_total{package=\"demo\"} 2",
        "campanile_package_cpu_seconds_total{package=\"demo\"} 1.5",
        "campanile_package_memory_peak_bytes{package=\"demo\"} 65536",
        "campanile_package_record_bytes_total{package=\"demo\"} 42",
        "campanile_package_http_requests_total{package=\"demo\"} 3",
        "campanile_host_runs 3.0",
        "campanile_host_runs_max 16.0",
        "campanile_host_last_tick_timestamp_seconds 1800000000.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn the_record_gives_values_and_leaves_out_unknown_ones() {
    let mut record = RecordMetrics::example();
    let text = record.text();
    for line in [
        "campanile_schedules{state=\"active\"} 2",
        "campanile_schedules{state=\"inactive\"} 1",
        "campanile_overdue_slots 11.0",
        "campanile_executions_per_minute 4.0",
        "campanile_average_time_seconds 2.0",
        "campanile_failed_ratio 0.25",
        "campanile_success_ratio 0.75",
        "campanile_recovery_success_ratio 1.0",
        "campanile_host_last_heartbeat_timestamp_seconds{host=\"one\"} 1800000000.0",
        "campanile_schedule_next_slot_timestamp_seconds{schedule=\"night \\\"ly\\\"\"} 1800000060.0",
        "campanile_schedule_paused{schedule=\"night \\\"ly\\\"\"} 0",
        "campanile_schedules_left_out 1.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    record.clear_launches_and_schedules();
    let text = record.text();
    for name in [
        "failed_ratio",
        "average_time",
        "schedule_paused",
        "left_out",
    ] {
        assert!(!text.contains(name), "{name}\n{text}");
    }
}

#[test]
fn every_sample_has_a_type_and_a_help_text() {
    let text = full_text();
    let described = |what: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(what));
        let names = lines.filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect()
    };
    let (types, helps) = (described("# TYPE "), described("# HELP "));
    assert_eq!(types, helps);
    for sample in samples(&text) {
        if sample == "campanile_record_readable" {
            continue;
        }
        let base = ["_bucket", "_sum", "_count"];
        let mut bases = base.iter().filter_map(|end| sample.strip_suffix(end));
        assert!(
            types.contains(&sample) || bases.any(|base| types.contains(base)),
            "{sample}\n{text}"
        );
    }
}

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring")
}

/// The alert rules, the board and the guide name only metrics that exist.
#[test]
fn the_examples_and_the_guide_name_exported_metrics() {
    let exported = samples(&full_text());
    let files = [
        monitoring().join("rules.yml"),
        monitoring().join("grafana.json"),
        monitoring().join("../../docs/src/guides/metrics.md"),
    ];
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let named = named(&text);
        assert!(named.len() > 5, "{file:?}: {named:?}");
        let histograms = |name: &String| exported.contains(&format!("{name}_bucket"));
        let unknown: Vec<&String> = named
            .iter()
            .filter(|name| !exported.contains(*name) && !histograms(name))
            .collect();
        assert!(unknown.is_empty(), "{file:?}: {unknown:?}");
    }
}

#[test]
fn the_guide_lists_every_metric() {
    let file = monitoring().join("../../docs/src/guides/metrics.md");
    let named = named(&fs::read_to_string(file).unwrap());
    let text = full_text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.filter_map(|line| line.split(' ').next());
    let missing: Vec<&str> = names.filter(|name| !named.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_grafana_board_is_json_and_each_panel_has_an_expression() {
    let text = fs::read_to_string(monitoring().join("grafana.json")).unwrap();
    let board: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    assert!(panels.len() >= 10, "{}", panels.len());
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        let is_metric = |target: &serde_json::Value| {
            target["expr"]
                .as_str()
                .is_some_and(|expr| !named(expr).is_empty())
        };
        assert!(
            !targets.is_empty() && targets.iter().all(is_metric),
            "{panel:#}"
        );
    }
}

/// `promtool` is of Prometheus. Where it is not installed, the names alone are checked.
#[test]
fn promtool_accepts_the_rules() {
    let rules = monitoring().join("rules.yml");
    let text = fs::read_to_string(&rules).unwrap();
    let alerts = text.matches("- alert:").count();
    assert!(alerts >= 8, "{alerts}");
    assert_eq!(text.matches("expr:").count(), alerts);
    let checked = std::process::Command::new("promtool")
        .args(["check", "rules"])
        .arg(&rules)
        .output();
    if let Ok(checked) = checked {
        assert!(checked.status.success(), "{checked:?}");
    }
}
