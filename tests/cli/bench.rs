//! `campanile bench`: the figures of its reports, and that it leaves no files behind.

use std::time::{Duration, Instant};

use campanile_tests::{Backend, Place, on_both_empty, run_empty_case};
use serde_json::Value;

use crate::site::{Site, eventually, package};

on_both_empty!(
    bench_launches_reports_rates_and_ratios,
    bench_burst_reports_every_slot_as_succeeded,
    bench_load_reports_start_drop_and_lag_times,
    bench_outage_catches_up_every_missed_slot,
    bench_growth_fills_a_database_once_and_measures_it_again,
);

async fn bench_launches_reports_rates_and_ratios(place: Place) {
    let site = Site::new(place);
    let report = site.json(["bench", "launches", "-n", "20"]);
    assert_eq!(report["launches"], 20);
    for key in [
        "launches_per_s",
        "cpu_us_per_launch",
        "ratio_to_sandbox",
        "ratio_to_database",
    ] {
        let figure = report[key].as_f64().unwrap_or_default();
        assert!(figure > 0.0, "{key}: {report:#}");
    }
    assert_percentiles(&report, "lag_ms");
    assert_no_files_left(&site);
}

async fn bench_growth_fills_a_database_once_and_measures_it_again(place: Place) {
    let site = Site::new(place);
    let growth = ["bench", "growth", "--launches", "1000"];
    let report = site.json(growth);
    assert_eq!(report["launches"], 1_000);
    assert!(report["filled_per_s"].is_number(), "{report:#}");
    // The launches of the first measurement are still on the record.
    let report = site.json(growth);
    assert_eq!(report["launches"], 1_000);
    assert!(report["filled_per_s"].is_null(), "{report:#}");
    for key in ["bytes_per_launch", "launches_per_s_full", "ratio"] {
        let figure = report[key].as_f64().unwrap_or_default();
        assert!(figure > 0.0, "{key}: {report:#}");
    }
    assert_percentiles(&report, "why_ms");
}

#[test]
fn bench_launches_runs_several_hosts_on_one_server() {
    run_empty_case(Backend::Postgres, async |place| {
        let site = Site::new(place);
        let report = site.json(["bench", "launches", "-n", "200", "--hosts", "2"]);
        assert_eq!(
            (&report["hosts"], &report["launches"]),
            (&2.into(), &200.into())
        );
        assert_no_files_left(&site);
    });
}

#[test]
fn bench_launches_refuses_several_hosts_on_one_file() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = Site::new(place);
        let refused = site.run(["bench", "launches", "--hosts", "2"]);
        refused.assert_refused(&["a SQLite file is served by one host", "leave `--hosts` out"]);
        assert_no_files_left(&site);
    });
}

/// This takes more than a minute, the age at which launches are sealed. Without a seal the benchmark fails.
#[test]
fn bench_seals_waits_for_a_seal_and_reports_ratios() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = Site::new(place);
        let report = site.json(["bench", "seals", "-n", "1000", "--rounds", "1"]);
        let round = &report["rounds"][0];
        // Seals cover the launches of the first half.
        let sealed = round["sealed"].as_i64();
        assert!(
            sealed.is_some_and(|sealed| (0..=1_000).contains(&sealed)),
            "{report:#}"
        );
        for ratio in [&round["ratio"], &report["ratio"]] {
            assert!(
                ratio.as_f64().is_some_and(|ratio| ratio > 0.0),
                "{report:#}"
            );
        }
        assert_no_files_left(&site);
    });
}

async fn bench_burst_reports_every_slot_as_succeeded(place: Place) {
    let site = Site::new(place);
    let size = ["--schedules", "2", "--seconds", "1"];
    let beside = ["--idle", "3", "--warm-up", "3"];
    let command = ["bench", "burst", "--json"];
    let command = [&command[..], &size, &beside].concat();
    // The benchmark waits two seconds for the last launches, too short on a busy machine.
    let report = eventually(|| {
        let begun = Instant::now();
        let output = site.run(command.iter().copied());
        // The slots of one second have two seconds before and after them.
        assert!(begun.elapsed() >= Duration::from_secs(3 + 2 + 1 + 2));
        let report = output.json();
        assert_eq!(report["doubled"], 0, "{report:#}");
        if report["missed"] != 0 {
            return Err(format!("{report:#}"));
        }
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
        Ok(report)
    });
    let count = |key: &str| {
        report[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {report:#}"))
    };
    assert_eq!(count("idle_schedules"), 3, "{report:#}");
    assert!(count("slots") >= 2, "{report:#}");
    // A launch of an idle schedule would be one more.
    assert_eq!(count("succeeded"), count("slots"), "{report:#}");
    assert_eq!((count("missed"), count("doubled")), (0, 0), "{report:#}");
    assert!(report["cpu_us_per_launch"].as_f64().is_some(), "{report:#}");
    assert_percentiles(&report, "lag_ms");
    assert_no_files_left(&site);
}

async fn bench_load_reports_start_drop_and_lag_times(place: Place) {
    let site = Site::new(place);
    let component = package("diamond");
    let report = site.json([
        "bench",
        "load",
        "--packages",
        "2",
        "--seconds",
        "2",
        "--component",
        component.to_str().expect("a path"),
    ]);
    assert_eq!(report["packages"], 2);
    for figure in [
        &report["start_ms"]["empty"],
        &report["start_ms"]["cold"],
        &report["start_ms"]["warm"],
        &report["component_cached_ms"],
    ] {
        assert!(figure.as_f64().unwrap_or_default() > 0.0, "{report:#}");
    }
    for key in ["drop_ms", "lag_alone_ms", "lag_compiling_ms"] {
        assert_percentiles(&report, key);
    }
    assert_no_files_left(&site);
}

async fn bench_outage_catches_up_every_missed_slot(place: Place) {
    let site = Site::new(place);
    let report = site.json(["bench", "outage", "--schedules", "300"]);
    assert_eq!(report["schedules"], 300);
    for key in ["seconds", "launches_per_s"] {
        let figure = report[key].as_f64().unwrap_or_default();
        assert!(figure > 0.0, "{key}: {report:#}");
    }
    assert_percentiles(&report, "write_wait_ms");
    let several = ["--schedules", "20", "--slots", "7", "--on-time", "4"];
    let report = site.json(["bench", "outage"].into_iter().chain(several));
    assert_eq!(report["launches"], 140);
    assert_eq!(report["on_time_schedules"], 4);
    assert_percentiles(&report, "on_time_lag_ms");
    assert_no_files_left(&site);
}

/// Assert that the report has percentiles under the key `of`.
fn assert_percentiles(report: &Value, of: &str) {
    for key in ["p50", "p99", "max"] {
        assert!(report[of][key].is_f64(), "{of}.{key}: {report:#}");
    }
}

/// Assert that the benchmark deleted its database and created none for the site.
fn assert_no_files_left(site: &Site) {
    let entries = std::fs::read_dir(site.folder()).expect("the folder");
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["plugins"]);
}
