//! Tests that call the tasks one after the other, and merge the passed values into the context like the host.

use super::*;
use serde_json::Value;

fn run_with(context: &Value) -> Run {
    Run::fake()
        .at("2026-11-21T08:01:00Z")
        .context(json!({
            "interval_start": "2026-11-21T08:00:00Z",
            "interval_end": "2026-11-21T08:01:00Z",
        }))
        .context(context.clone())
        .build()
}

/// Call `task`, and return its output and the context of the tasks after it.
fn step(task: &str, context: &Value) -> Result<(Value, Value)> {
    let run = run_with(context);
    let output = package().call(task, &run)?;
    let mut after = context.clone();
    after.as_object_mut().unwrap().extend(run.passed());
    Ok((output, after))
}

#[test]
fn the_data_passes_through_all_tasks_unchanged() {
    let (extracted, after_extract) = step("extract", &json!({})).unwrap();
    assert_eq!(
        extracted["readings"], 48,
        "four sensors, every five seconds of a minute"
    );
    assert_eq!(extracted["after"], "2026-11-21T08:00:00Z");
    assert_eq!(after_extract["readings"]["checksum"], extracted["checksum"]);
    let (audited, _) = step("audit", &after_extract).unwrap();
    assert_eq!(audited, json!({"readings": 48, "faults": 0}));
    let (transformed, after_transform) = step("transform", &after_extract).unwrap();
    assert_eq!(
        (&transformed["sensors"], &transformed["readings"]),
        (&json!(4), &json!(48))
    );
    let (loaded, _) = step("load", &after_transform).unwrap();
    assert_eq!(loaded["checksum"], transformed["checksum"]);
    let rows = loaded["rows"].as_object().unwrap();
    assert_eq!(
        rows.keys().collect::<Vec<_>>(),
        ["east", "north", "south", "west"]
    );
    for row in rows.values() {
        let number = |key: &str| row[key].as_i64().unwrap();
        assert_eq!(number("readings"), 12);
        assert!(number("min") <= number("mean") && number("mean") <= number("max"));
    }
}

#[test]
fn the_data_depends_only_on_the_slot() {
    let checksum = |context: Value| step("extract", &context).unwrap().0["checksum"].clone();
    assert_eq!(checksum(json!({})), checksum(json!({"is_recovery": true})));
    let next =
        json!({"interval_start": "2026-11-21T08:01:00Z", "interval_end": "2026-11-21T08:02:00Z"});
    assert_ne!(checksum(json!({})), checksum(next));
}

#[test]
fn a_long_interval_has_at_most_120_readings() {
    let week = json!({"sensors": ["north"], "interval_start": "2026-11-14T08:01:00Z"});
    let (extracted, context) = step("extract", &week).unwrap();
    assert_eq!(extracted["readings"], 120);
    assert!(step("audit", &context).is_ok());
}

#[test]
fn a_run_without_an_interval_reads_the_minute_before_its_slot() {
    let (extracted, _) = step("extract", &json!({"interval_start": null})).unwrap();
    assert_eq!(extracted["after"], "2026-11-21T08:00:00Z");
    assert_eq!(extracted["until"], "2026-11-21T08:01:00Z");
}

#[test]
fn data_that_was_changed_between_the_tasks_is_a_permanent_error() {
    let (_, mut context) = step("extract", &json!({})).unwrap();
    context["readings"]["value"][0]["millicelsius"] = json!(99_999);
    for task in ["transform", "audit"] {
        let error = step(task, &context).unwrap_err();
        assert!(
            error
                .message()
                .starts_with("`readings` was changed between the tasks"),
            "{error}"
        );
        assert!(!error.is_retryable());
    }
    let (_, context) = step("extract", &json!({})).unwrap();
    let (_, mut context) = step("transform", &context).unwrap();
    context["summaries"]["value"]["north"]["max"] = json!(1);
    let error = step("load", &context).unwrap_err();
    assert!(
        error
            .message()
            .starts_with("`summaries` was changed between the tasks"),
        "{error}"
    );
}

#[test]
fn the_audit_rejects_readings_outside_the_range_or_the_interval() {
    let faulty = |reading: Value| {
        let readings: Vec<Reading> = serde_json::from_value(json!([reading])).unwrap();
        let checked = serde_json::to_value(Checked::new(readings).unwrap()).unwrap();
        step("audit", &json!({ "readings": checked })).is_err()
    };
    let reading =
        |at: &str, value: i64| json!({"sensor": "north", "at": at, "millicelsius": value});
    assert!(!faulty(reading("2026-11-21T08:01:00Z", 20_000)));
    assert!(
        faulty(reading("2026-11-21T08:00:00Z", 20_000)),
        "the start is outside"
    );
    assert!(faulty(reading("2026-11-21T08:01:01Z", 20_000)));
    assert!(faulty(reading("2026-11-21T08:01:00Z", 35_001)));
}

#[test]
fn the_manifest_has_the_dependencies_and_requests_nothing() {
    let manifest = package().manifest();
    let tasks = manifest["tasks"].as_array().unwrap();
    let order: Vec<_> = tasks
        .iter()
        .map(|task| (&task["id"], &task["depends_on"]))
        .collect();
    assert_eq!(
        json!(order),
        json!([
            ["extract", []],
            ["transform", ["extract"]],
            ["audit", ["extract"]],
            ["load", ["transform"]]
        ])
    );
    assert_eq!(manifest["requests"]["directories"], json!([]));
    assert_eq!(manifest["schedules"], json!([{"every": "1m"}]));
}
