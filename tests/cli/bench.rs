//! `campanile bench`: the figures that the README names, and nothing left behind.

use campanile_tests::{Place, on_both_empty};
use serde_json::Value;

use crate::site::{Site, package};

on_both_empty!(
    a_backlog_is_measured_beside_its_floors,
    a_burst_is_measured_and_accounted_for,
    starts_drops_and_the_lag_beside_a_compilation_are_measured,
);

async fn a_backlog_is_measured_beside_its_floors(place: Place) {
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
    has_lag(&report);
    left_nothing(&site);
}

async fn a_burst_is_measured_and_accounted_for(place: Place) {
    let site = Site::new(place);
    let report = site.json(["bench", "burst", "--schedules", "2", "--seconds", "1"]);
    let count = |key: &str| {
        report[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {report:#}"))
    };
    assert!(count("slots") >= 2, "{report:#}");
    assert_eq!(count("succeeded"), count("slots"), "{report:#}");
    assert_eq!((count("missed"), count("doubled")), (0, 0), "{report:#}");
    assert!(report["cpu_us_per_launch"].as_f64().is_some(), "{report:#}");
    has_lag(&report);
    left_nothing(&site);
}

async fn starts_drops_and_the_lag_beside_a_compilation_are_measured(place: Place) {
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
        has_figures(&report, key);
    }
    left_nothing(&site);
}

fn has_lag(report: &Value) {
    has_figures(report, "lag_ms");
}

fn has_figures(report: &Value, of: &str) {
    for key in ["p50", "p99", "max"] {
        assert!(report[of][key].is_f64(), "{of}.{key}: {report:#}");
    }
}

/// The database of the measurement is gone, and that of the site was not made.
fn left_nothing(site: &Site) {
    let entries = std::fs::read_dir(site.folder()).expect("the folder");
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["plugins"]);
}
