//! `campanile bench`: the figures that the README names, and nothing left behind.

use campanile_tests::{Place, on_both_empty};
use serde_json::Value;

use crate::tower::Tower;

on_both_empty!(
    a_backlog_is_measured_beside_its_floors,
    a_burst_is_measured_and_accounted_for,
);

async fn a_backlog_is_measured_beside_its_floors(place: Place) {
    let tower = Tower::new(place);
    let report = tower.json(["bench", "launches", "-n", "20"]);
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
    left_nothing(&tower);
}

async fn a_burst_is_measured_and_accounted_for(place: Place) {
    let tower = Tower::new(place);
    let report = tower.json(["bench", "burst", "--schedules", "2", "--seconds", "1"]);
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
    left_nothing(&tower);
}

fn has_lag(report: &Value) {
    for key in ["p50", "p99", "max"] {
        assert!(report["lag_ms"][key].is_f64(), "lag_ms.{key}: {report:#}");
    }
}

/// The database of the measurement is gone, and that of the tower was not made.
fn left_nothing(tower: &Tower) {
    let entries = std::fs::read_dir(tower.folder()).expect("the folder");
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["plugins"]);
}
