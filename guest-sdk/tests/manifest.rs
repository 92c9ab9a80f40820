//! Checks that the SDK's manifest conforms to `wit/manifest.schema.json`.

use std::collections::BTreeSet;

use campanile_sdk::{AnyContext, Package, Request, Result, Run, Schedule, Task};
use serde_json::{Value, json};

fn nothing(_: &Run, _: AnyContext) -> Result<()> {
    Ok(())
}

/// Return a package that uses every key of a manifest.
fn full() -> Package {
    Package::new("full", "1.2.3")
        .summary("Everything")
        .task(
            Task::new("first", nothing)
                .summary("The first")
                .timeout("30s"),
        )
        .task(
            Task::new("second", nothing)
                .depends_on(["first"])
                .max_attempts(5),
        )
        .schedule(
            Schedule::cron("0 2 * * *")
                .timezone("Europe/Rome")
                .name("nightly"),
        )
        .schedule(
            Schedule::every("10s")
                .anchor("2026-01-01T00:00:00Z")
                .task("second"),
        )
        .schedule(Schedule::at("2027-01-01T00:00:00Z").context(json!({"name": "Ada"})))
        .schedule(
            Schedule::cron("30 2 13 * FRI")
                .day_match("and")
                .dst_gap("skip")
                .dst_fold("both")
                .exclude(["12-25"])
                .exclude(["01-01"])
                .catchup("all")
                .catchup_window("6h")
                .catchup_max(12)
                .catchup_spread("30s")
                .misfire_grace("1m")
                .delivery("at_most_once")
                .jitter("10s")
                .start_at("2027-01-01T00:00:00Z")
                .end_at("2028-01-01T00:00:00Z")
                .max_launches(365)
                .pause_on_failure(3)
                .priority(7)
                .group("db")
                .run_on(["gpu", "ssd"])
                .retention("7days")
                .expect_within("1h")
                .max_attempts(5)
                .backoff("10s")
                .backoff_coefficient(1.5)
                .backoff_max("5m")
                .retry_expiration("1h")
                .non_retryable(["trapped", "timed_out"]),
        )
        .schedule(
            Schedule::after_completion("10m")
                .overlap("buffer_one")
                .keep("latest"),
        )
        .schedule(Schedule::every("1m").overlap("buffer_all").max_buffered(10))
        .schedule(Schedule::every("2m").overlap("allow").max_concurrent(4))
        .schedule(
            Schedule::every("3m")
                .overlap("cancel_other")
                .cancel_grace("2m"),
        )
        .context_schema(json!({"type": "object"}))
        .request(Request::read_directory("/in").because("to read"))
        .request(Request::write_directory("/out"))
        .request(Request::http("https", "example.com").because("to query the API"))
        .request(Request::env("REGION"))
        .request(Request::config("token"))
        .request(Request::read_bucket("facts"))
        .request(Request::write_bucket("state").because("to store the position"))
        .request(Request::tcp("db.example.com", 5432).because("to store the rows"))
        .request(Request::udp("metrics.example.com", 8125))
}

#[test]
fn a_manifest_has_exactly_the_keys_that_were_set() {
    assert_eq!(
        full().manifest(),
        json!({
            "name": "full",
            "version": "1.2.3",
            "summary": "Everything",
            "tasks": [
                {"id": "first", "summary": "The first", "depends_on": [], "timeout": "30s"},
                {"id": "second", "depends_on": ["first"], "max_attempts": 5},
            ],
            "schedules": [
                {"name": "nightly", "cron": "0 2 * * *", "timezone": "Europe/Rome"},
                {"task": "second", "every": "10s", "anchor": "2026-01-01T00:00:00Z"},
                {"at": "2027-01-01T00:00:00Z", "context": {"name": "Ada"}},
                {
                    "cron": "30 2 13 * FRI", "day_match": "and", "dst_gap": "skip", "dst_fold": "both",
                    "exclude": ["12-25", "01-01"],
                    "catchup": "all", "catchup_window": "6h", "catchup_max": 12, "catchup_spread": "30s",
                    "misfire_grace": "1m", "delivery": "at_most_once", "jitter": "10s",
                    "start_at": "2027-01-01T00:00:00Z", "end_at": "2028-01-01T00:00:00Z",
                    "max_launches": 365, "pause_on_failure": 3, "priority": 7, "group": "db", "run_on": ["gpu", "ssd"],
                    "retention": "7days", "expect_within": "1h", "max_attempts": 5, "backoff": "10s", "backoff_coefficient": 1.5,
                    "backoff_max": "5m", "retry_expiration": "1h", "non_retryable": ["trapped", "timed_out"],
                },
                {"after_completion": "10m", "overlap": "buffer_one", "keep": "latest"},
                {"every": "1m", "overlap": "buffer_all", "max_buffered": 10},
                {"every": "2m", "overlap": "allow", "max_concurrent": 4},
                {"every": "3m", "overlap": "cancel_other", "cancel_grace": "2m"},
            ],
            "context_schema": {"type": "object"},
            "requests": {
                "directories": [
                    {"guest": "/in", "access": "read", "reason": "to read"},
                    {"guest": "/out", "access": "write"},
                ],
                "env": ["REGION"],
                "http": [{"scheme": "https", "host": "example.com", "reason": "to query the API"}],
                "config": ["token"],
                "keyvalue": [
                    {"bucket": "facts", "access": "read"},
                    {"bucket": "state", "access": "write", "reason": "to store the position"},
                ],
                "sockets": [
                    {"protocol": "tcp", "host": "db.example.com", "port": 5432, "reason": "to store the rows"},
                    {"protocol": "udp", "host": "metrics.example.com", "port": 8125},
                ],
            },
        })
    );
}

#[test]
fn the_published_schema_covers_every_key_and_accepts_every_value() {
    let schema = schema();
    let mut faults = Vec::new();
    check(&full().manifest(), &schema, &schema, "", &mut faults);
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn the_builder_can_set_every_key_of_a_schedule() {
    let schema = schema();
    let manifest = full().manifest();
    let set: BTreeSet<&String> = manifest["schedules"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|schedule| schedule.as_object().unwrap().keys())
        .collect();
    let published = schema["$defs"]["schedule"]["properties"]
        .as_object()
        .unwrap();
    assert_eq!(set, published.keys().collect());
}

#[test]
fn the_published_schema_rejects_invalid_manifests() {
    let schema = schema();
    for (manifest, expected) in [
        (json!([]), " is not a object"),
        (json!({"tasks": [{}]}), "/tasks/0 lacks id"),
        (
            json!({"schedules": [{"name": "x"}]}),
            "/schedules/0 matches 0 of oneOf",
        ),
        (
            json!({"schedules": [{"at": "x", "cron": "y"}]}),
            "/schedules/0 matches 2 of oneOf",
        ),
        (
            json!({"requests": {"directories": [{"guest": "/a", "access": "own"}]}}),
            "/requests/directories/0/access is none of enum",
        ),
        (json!({"colour": "red"}), "/colour is not in the schema"),
    ] {
        let mut faults = Vec::new();
        check(&manifest, &schema, &schema, "", &mut faults);
        assert_eq!(faults, [expected]);
    }
}

fn schema() -> Value {
    serde_json::from_str(include_str!("../wit/manifest.schema.json")).unwrap()
}

/// Validate `value` against the keywords of JSON Schema that this schema uses, except patterns and formats.
///
/// Stricter than JSON Schema: every key must be in the schema.
fn check(value: &Value, schema: &Value, root: &Value, path: &str, faults: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return check(value, target, root, path, faults);
    }
    if let Some(wanted) = schema["type"].as_str() {
        let fits = match wanted {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_u64(),
            "number" => value.is_number(),
            other => panic!("this test does not know the type {other}"),
        };
        if !fits {
            faults.push(format!("{path} is not a {wanted}"));
            return;
        }
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        faults.push(format!("{path} is none of enum"));
    }
    if let Some(required) = schema["required"].as_array() {
        for key in required
            .iter()
            .filter(|key| value.get(key.as_str().unwrap()).is_none())
        {
            faults.push(format!("{path} lacks {}", key.as_str().unwrap()));
        }
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let matching = choices.iter().filter(|choice| {
            let mut inner = Vec::new();
            check(value, choice, root, path, &mut inner);
            inner.is_empty()
        });
        let count = matching.count();
        if count != 1 {
            faults.push(format!("{path} matches {count} of oneOf"));
        }
    }
    if let (Some(items), Some(elements)) = (schema.get("items"), value.as_array()) {
        for (index, element) in elements.iter().enumerate() {
            check(element, items, root, &format!("{path}/{index}"), faults);
        }
    }
    if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object())
    {
        for (key, element) in object {
            let path = format!("{path}/{key}");
            match properties.get(key) {
                Some(property) => check(element, property, root, &path, faults),
                None => faults.push(format!("{path} is not in the schema")),
            }
        }
    }
}
