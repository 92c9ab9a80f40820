//! The API of a real host: a whole life, its answers beside those of the commands, edits, keys and streams.

use std::io::Read as _;
use std::path::Path;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::api::{Api, next_event, raw};
use crate::site::{eventually, list, stop, text};

on_both_empty!(
    a_whole_life_is_driven_over_http,
    each_answer_is_the_json_of_the_command,
    an_edit_needs_the_present_revision,
    a_key_makes_a_request_happen_once,
    events_and_logs_are_streamed_and_resumed,
);

async fn a_whole_life_is_driven_over_http(place: Place) {
    let mut api = Api::start(place, "[policy]\napproval = 'always'\n");
    let pending = eventually(|| {
        let package = api.get("/api/v1/packages/guests");
        match package["state"] == "pending_approval" {
            true => Ok(package),
            false => Err(package.to_string()),
        }
    });
    let digest = text(&pending["pending_digest"]);
    let approved = api.post(
        "/api/v1/packages/guests/approve",
        json!({"digest": digest[..12], "note": "read"}),
    );
    assert_eq!(
        (&approved["done"], &approved["digest"]),
        (&json!("approved"), &json!(digest))
    );

    let added = eventually(|| {
        let body = json!({"name": "life", "package": "guests", "task": "echo", "kind": "cron", "expression": "0 3 * * *", "policies": {"overlap": "allow"}});
        let answer = api.send("POST", "/api/v1/schedules", &[], Some(&body));
        match answer.status {
            201 => Ok(answer),
            _ => Err(format!("{answer:?}")),
        }
    });
    assert_eq!(added.header("etag"), Some("\"1\""));
    let mut events = api.stream("/api/v1/events/stream", "");
    let triggered = api.post(
        "/api/v1/schedules/life/trigger",
        json!({"context": {"day": 7}}),
    );
    assert_eq!(triggered["decision"], "launched");
    let launch = text(&triggered["launch"]);
    let ended = api.end_of(&launch);
    assert_eq!(ended["status"], "succeeded");
    let run = text(&ended["run_id"]);
    let shown = api.get(&format!("/api/v1/runs/{run}"));
    assert_eq!(shown["tasks"][0]["output"]["day"], 7);

    let retried = api.post(&format!("/api/v1/launches/{launch}/retry"), json!({}));
    let again = api.end_of(&text(&retried["launch"]));
    assert_eq!(
        (&again["retry_of"], &again["status"]),
        (&json!(launch), &json!("succeeded"))
    );
    next_event(&mut events, |_, event| {
        event["kind"] == "launch_retried" && event["subject"] == "life"
    });

    api.add("long", "sleep");
    let long = text(
        &api.post(
            "/api/v1/schedules/long/trigger",
            json!({"context": {"ms": 600_000}}),
        )["launch"],
    );
    eventually(
        || match api.get(&format!("/api/v1/launches/{long}"))["status"].as_str() {
            Some("running") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    let cancelled = api.post(
        &format!("/api/v1/launches/{long}/cancel"),
        json!({"grace": "200ms"}),
    );
    assert_eq!(cancelled["status"], "running");
    assert_eq!(api.end_of(&long)["status"], "cancelled");

    let span =
        json!({"schedule": "life", "from": "2026-01-01T00:00:00Z", "to": "2026-01-03T12:00:00Z"});
    let preview = api.post("/api/v1/backfills/preview", span.clone());
    assert_eq!(preview["slots"], 3);
    let backfill = text(&api.post("/api/v1/backfills", span)["id"]);
    eventually(|| {
        let shown = api.get(&format!("/api/v1/backfills/{backfill}"));
        match shown["status"] == "done" && shown["succeeded"] == 3 {
            true => Ok(()),
            false => Err(shown.to_string()),
        }
    });

    let slot = text(&api.get("/api/v1/schedules/life/next?n=1")[0]);
    api.post(
        "/api/v1/schedules/life/skip",
        json!({"scheduled_time": slot}),
    );
    assert_ne!(text(&api.get("/api/v1/schedules/life/next?n=1")[0]), slot);
    api.post("/api/v1/schedules/life/pause", json!({"note": "holiday"}));
    assert_eq!(api.get("/api/v1/schedules/life")["state"], "paused");
    api.post("/api/v1/schedules/life/resume", json!({}));
    let host = text(&api.get("/api/v1/hosts")[0]["name"]);
    api.post(&format!("/api/v1/hosts/{host}/drain"), json!({}));
    assert_ne!(api.get("/api/v1/hosts")[0]["drained_at"], Value::Null);
    let removed = api.send(
        "DELETE",
        "/api/v1/schedules/life",
        &[("If-Match", "*")],
        None,
    );
    assert_eq!(
        removed.json(),
        json!({"schedule": "life", "done": "removed"})
    );
    stop(&mut api.host);
}

async fn each_answer_is_the_json_of_the_command(place: Place) {
    let api = Api::start(place, "");
    for name in ["a", "b"] {
        api.add(name, "ok");
        let launch =
            text(&api.post(&format!("/api/v1/schedules/{name}/trigger"), json!({}))["launch"]);
        api.end_of(&launch);
    }
    let launch = text(&api.get("/api/v1/launches")[0]["id"]);
    for (path, command) in [
        ("schedules", &["schedule", "list"][..]),
        ("schedules/a", &["schedule", "show", "a"]),
        (
            "schedules/a/next?n=3",
            &["schedule", "next", "a", "-n", "3"],
        ),
        ("schedules/a/why", &["schedule", "why", "a"]),
        ("launches", &["launch", "list"]),
        (
            "launches?status=succeeded&schedule=b",
            &["launch", "list", "--status", "succeeded", "--schedule", "b"],
        ),
        (
            &format!("launches?after={launch}"),
            &["launch", "list", "--after", &launch],
        ),
        (&format!("launches/{launch}"), &["launch", "show", &launch]),
        ("runs", &["run", "list"]),
        (&format!("runs/{launch}"), &["run", "show", &launch]),
        (&format!("runs/{launch}/logs"), &["run", "logs", &launch]),
        ("backfills", &["backfill", "list"]),
        ("packages", &["package", "list"]),
        ("packages/guests", &["package", "show", "guests"]),
        ("events?limit=20", &["event", "list", "--limit", "20"]),
    ] {
        assert_eq!(
            api.get(&format!("/api/v1/{path}")),
            api.site.json(command.iter().copied()),
            "{path}"
        );
    }
    // Times that advance are left out.
    for (path, command, moving) in [
        (
            "hosts",
            &["host", "list"][..],
            &["heartbeat_at", "lease_until"][..],
        ),
        ("stats", &["stats"], &["since", "executions_per_minute"]),
        (
            "stats/schedules",
            &["stats", "--by", "schedule"],
            &["since", "executions_per_minute"],
        ),
        ("stats/packages", &["stats", "--by", "package"], &["since"]),
        ("stats/days", &["stats", "--by", "day"], &[]),
        (
            "schedules/a/stats",
            &["stats", "--schedule", "a"],
            &["since", "executions_per_minute"],
        ),
        ("plan", &["plan"], &["from", "to"]),
        ("health", &["health"], &[]),
    ] {
        let still = |mut value: Value| {
            let rows = match &mut value {
                Value::Array(rows) => rows.iter_mut().collect(),
                one => vec![one],
            };
            for row in rows {
                moving.iter().for_each(|key| row[key] = Value::Null);
            }
            value
        };
        // The host of a busy machine may be unhealthy for a moment.
        eventually(|| {
            let answer = still(api.get(&format!("/api/v1/{path}")));
            let output = api.site.run(command.iter().copied().chain(["--json"]));
            let is_fine = (output.code, output.stderr.as_str()) == (0, "");
            match is_fine && still(output.json()) == answer {
                true => Ok(()),
                false => Err(format!("{path}: {answer:#}\n{output:?}")),
            }
        });
    }
    let page = api.send("GET", "/api/v1/schedules?limit=1", &[], None);
    assert_eq!(
        page.header("link"),
        Some("</api/v1/schedules?limit=1&after=a>; rel=\"next\"")
    );
    assert_eq!(list(api.get("/api/v1/schedules?limit=1&after=a")).len(), 1);
    // Without a token.
    for path in ["/healthz", "/readyz"] {
        let answer = raw(
            api.address,
            &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        );
        assert_eq!(
            (answer.status, answer.json()),
            (200, json!({"status": "ok"}))
        );
    }
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let committed = std::fs::read_to_string(committed).expect("docs/openapi.json");
    let committed: Value = serde_json::from_str(&committed).expect("JSON");
    assert_eq!(api.get("/openapi.json"), committed);
}

async fn an_edit_needs_the_present_revision(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let path = "/api/v1/schedules/one";
    let shown = api.send("GET", path, &[], None);
    assert_eq!(shown.header("etag"), Some("\"1\""));
    let later = json!({"expression": "2098-01-01T00:00:00Z"});
    api.send("PATCH", path, &[], Some(&later))
        .assert_problem(428, "If-Match");
    api.send("PATCH", path, &[("If-Match", "1")], Some(&later))
        .assert_problem(400, "quotes");
    let edited = api.send("PATCH", path, &[("If-Match", "\"1\"")], Some(&later));
    assert_eq!(
        (edited.status, edited.header("etag")),
        (200, Some("\"2\"")),
        "{edited:?}"
    );
    assert_eq!(edited.json()["expression"], "2098-01-01T00:00:00Z");
    let again = json!({"context": {"a": 1}});
    let stale = api.send("PATCH", path, &[("If-Match", "\"1\"")], Some(&again));
    stale.assert_problem(412, "2098-01-01T00:00:00Z");
    assert_eq!(stale.json()["revision"], 2);
    api.send("PATCH", path, &[("If-Match", "\"9\"")], Some(&again))
        .assert_problem(412, "never had a revision 9");
    api.send("DELETE", path, &[("If-Match", "\"1\"")], None)
        .assert_problem(412, "at revision 2");
    api.send("DELETE", path, &[], None)
        .assert_problem(428, "If-Match");
    // A key that is null is cleared, and an unknown one is refused.
    let cleared = api.send(
        "PATCH",
        path,
        &[("If-Match", "\"2\"")],
        Some(&json!({"task": null})),
    );
    assert_eq!(cleared.json()["task"], Value::Null);
    api.send(
        "PATCH",
        path,
        &[("If-Match", "*")],
        Some(&json!({"tsk": null, "policy": {}})),
    )
    .assert_problem(400, "unknown field `policy`");
    api.send(
        "PATCH",
        path,
        &[("If-Match", "*")],
        Some(&json!({"disabled": true})),
    )
    .assert_problem(400, "pause");
    let body =
        json!({"name": "two", "package": "guests", "kind": "cron", "expression": "0 3 * * *"});
    api.send("PUT", path, &[("If-Match", "*")], Some(&body))
        .assert_problem(400, "rename");
    let body =
        json!({"name": "one", "package": "guests", "kind": "cron", "expression": "0 3 * * *"});
    let replaced = api.send("PUT", path, &[("If-Match", "\"3\"")], Some(&body));
    assert_eq!(
        (replaced.status, &replaced.json()["kind"]),
        (200, &json!("cron")),
        "{replaced:?}"
    );
    let renamed = api.post("/api/v1/schedules/one/rename", json!({"name": "two"}));
    assert_eq!(
        (&renamed["schedule"], &renamed["revision"]),
        (&json!("two"), &json!(5))
    );
    let removed = api.send(
        "DELETE",
        "/api/v1/schedules/two",
        &[("If-Match", "\"5\"")],
        None,
    );
    assert_eq!(removed.status, 200, "{removed:?}");
}

async fn a_key_makes_a_request_happen_once(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let path = "/api/v1/schedules/one/trigger";
    let key = [("Idempotency-Key", "order-1")];
    let first = api.send("POST", path, &key, Some(&json!({"overlap": "allow"})));
    assert_eq!(
        (first.status, first.header("idempotency-replayed")),
        (200, None),
        "{first:?}"
    );
    let second = api.send("POST", path, &key, Some(&json!({"overlap": "allow"})));
    assert_eq!(
        (second.status, second.header("idempotency-replayed")),
        (200, Some("true"))
    );
    assert_eq!(second.body, first.body);
    assert_eq!(list(api.get("/api/v1/launches")).len(), 1);
    api.send("POST", path, &key, Some(&json!({"overlap": "skip"})))
        .assert_problem(422, "order-1");
    api.send(
        "POST",
        "/api/v1/schedules/one/pause",
        &key,
        Some(&json!({})),
    )
    .assert_problem(422, "order-1");
    api.send("POST", path, &[("Idempotency-Key", "")], None)
        .assert_problem(400, "Idempotency-Key");
    // A refused request leaves its key free.
    let free = [("Idempotency-Key", "order-2")];
    api.send(
        "POST",
        "/api/v1/schedules/two/trigger",
        &free,
        Some(&json!({})),
    )
    .assert_problem(404, "no schedule named");
    assert_eq!(
        api.send("POST", path, &free, Some(&json!({"overlap": "allow"})))
            .status,
        200
    );
    // Requests at the same time: one of them changes something.
    let at_once = std::thread::scope(|scope| {
        let send = || {
            api.send(
                "POST",
                path,
                &[("Idempotency-Key", "order-3")],
                Some(&json!({"overlap": "allow"})),
            )
        };
        let threads = [scope.spawn(send), scope.spawn(send), scope.spawn(send)];
        threads.map(|thread| thread.join().expect("an answer"))
    });
    assert!(
        at_once.iter().all(|answer| answer.status == 200),
        "{at_once:?}"
    );
    assert_eq!(
        at_once
            .iter()
            .filter(|answer| answer.header("idempotency-replayed").is_none())
            .count(),
        1
    );
    assert_eq!(list(api.get("/api/v1/launches")).len(), 3);
}

async fn events_and_logs_are_streamed_and_resumed(place: Place) {
    let api = Api::start(place, "");
    let mut events = api.stream("/api/v1/events/stream", "");
    api.add("one", "ok");
    let (kind, id, event) = next_event(&mut events, |_, event| event["kind"] == "schedule_added");
    assert_eq!(
        (kind.as_str(), &event["subject"], &event["id"]),
        ("event", &json!("one"), &json!(id))
    );
    drop(events);
    api.add("two", "ok");
    let mut events = api.stream("/api/v1/events/stream", &format!("Last-Event-ID: {id}\r\n"));
    next_event(&mut events, |_, event| {
        event["kind"] == "schedule_added" && event["subject"] == "two"
    });

    let launch = text(&api.post("/api/v1/schedules/one/trigger", json!({}))["launch"]);
    let ended = api.end_of(&launch);
    let path = format!("/api/v1/runs/{launch}/logs?follow=true");
    let mut logs = api.stream(&path, "");
    let (kind, id, call) = next_event(&mut logs, |_, _| true);
    assert_eq!((kind.as_str(), &call["task"]), ("call", &json!("ok")));
    let (kind, _, run) = next_event(&mut logs, |_, _| true);
    assert_eq!((kind.as_str(), &run["id"]), ("end", &ended["run_id"]));
    let mut rest = String::new();
    logs.read_to_string(&mut rest)
        .expect("the end of the stream");
    assert!(!rest.contains("data: "), "{rest}");
    let after: i64 = id.parse::<i64>().expect("a number") + 1;
    let mut logs = api.stream(&path, &format!("Last-Event-ID: {after}\r\n"));
    assert_eq!(next_event(&mut logs, |_, _| true).0, "end");
    let wrong = api.send(
        "GET",
        "/api/v1/events/stream",
        &[("Last-Event-ID", "x")],
        None,
    );
    wrong.assert_problem(400, "Last-Event-ID");
}
