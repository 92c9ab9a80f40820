//! `campanile mcp`, as a client of the Model Context Protocol speaks to it: one JSON-RPC message a line.

mod client;
mod http;
mod parts;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, keys, list, stop, text};
use client::{Client, first_json, note};

on_both_empty!(
    a_client_learns_the_tools_of_its_role,
    why_of_a_skipped_slot_is_the_answer_of_the_command,
    a_read_tool_answers_with_the_json_of_its_command,
    a_viewer_changes_nothing,
    an_operator_pauses_resumes_triggers_and_cancels_on_record,
    wrong_arguments_are_refused_by_name,
    a_malformed_message_does_not_end_the_server,
    a_server_without_tables_does_not_start,
);

const READ_TOOLS: [&str; 10] = [
    "why",
    "list_schedules",
    "show_schedule",
    "list_launches",
    "show_launch",
    "show_run",
    "run_logs",
    "plan",
    "list_events",
    "health",
];
const WRITE_TOOLS: [&str; 4] = [
    "trigger_schedule",
    "pause_schedule",
    "resume_schedule",
    "cancel_launch",
];

/// Return the names in the answer to `tools/list`.
fn names(answer: &Value) -> Vec<String> {
    let tools = list(answer["result"]["tools"].clone());
    tools.iter().map(|tool| text(&tool["name"])).collect()
}

/// Return a site whose database has tables, without a running host.
fn empty_site(place: Place) -> Site {
    let site = Site::new(place);
    site.ok(["db", "migrate"]);
    site
}

async fn a_client_learns_the_tools_of_its_role(place: Place) {
    let site = empty_site(place);
    let mut viewer = Client::start(&site, &[]);
    let server = viewer.initialize();
    assert_eq!(server["serverInfo"]["name"], "campanile", "{server}");
    assert_eq!(server["protocolVersion"], "2025-06-18");
    assert_eq!(keys(&server["capabilities"]), ["tools"]);
    assert!(text(&server["instructions"]).contains("call `why` first"));

    let listed = viewer.request("tools/list", json!({}));
    assert_eq!(names(&listed), READ_TOOLS);
    for tool in list(listed["result"]["tools"].clone()) {
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        assert!(text(&tool["description"]).len() > 20, "{tool}");
    }
    assert_eq!(viewer.close(), Some(0));

    let mut operator = Client::connect(&site, &["--role", "operator"]);
    let listed = operator.request("tools/list", json!({}));
    assert_eq!(names(&listed), [&READ_TOOLS[..], &WRITE_TOOLS[..]].concat());
    for tool in list(listed["result"]["tools"].clone()) {
        let is_change = WRITE_TOOLS.contains(&text(&tool["name"]).as_str());
        assert_eq!(tool["annotations"]["readOnlyHint"], !is_change, "{tool}");
    }
    assert_eq!(operator.close(), Some(0));

    // A client that says nothing.
    assert_eq!(Client::start(&site, &[]).close(), Some(0));
    site.run(["mcp", "--role", "admin"])
        .assert_refused(&["invalid value 'admin'", "viewer, operator"]);
}

async fn why_of_a_skipped_slot_is_the_answer_of_the_command(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    site.add("backup", "ok", &["--every", "1s"]);
    site.ok(["schedule", "pause", "backup", "--note", "a full disk"]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    site.ok(["schedule", "resume", "backup"]);
    let skipped = site.wait_for_launch("backup", |row| row["reason"] == "paused");
    stop(&mut host);

    let slot = text(&skipped["scheduled_time"]);
    let mut client = Client::connect(&site, &[]);
    let answer = client.ok("why", json!({"schedule": "backup", "at": slot}));
    let expected = site.json(["schedule", "why", "backup", "--at", &slot]);
    assert_eq!(answer, expected);
    let findings = list(answer["findings"].clone());
    let is_pause = |finding: &Value| {
        finding["kind"] == "paused" && text(&finding["text"]).contains("a full disk")
    };
    assert!(findings.iter().any(is_pause), "{answer:#}");

    let filter =
        json!({"schedule": "backup", "status": ["skipped"], "reason": "paused", "since": "1h"});
    let listed = client.ok("list_launches", filter);
    let expected = site.json([
        "launch",
        "list",
        "--schedule",
        "backup",
        "--status",
        "skipped",
        "--reason",
        "paused",
    ]);
    assert_eq!(listed, expected);
    assert_eq!(client.close(), Some(0));
}

async fn a_read_tool_answers_with_the_json_of_its_command(place: Place) {
    let (site, mut host) = Site::with_tasks(place, &["ok", "fail_permanent", "echo"]);
    let good = site.trigger_and_wait("ok");
    let bad = site.trigger_and_wait("fail_permanent");
    stop(&mut host);
    let mut client = Client::connect(&site, &[]);

    let (good_id, bad_run) = (text(&good["id"]), text(&bad["run_id"]));
    for (tool, arguments, command) in [
        ("list_schedules", json!({}), vec!["schedule", "list"]),
        (
            "show_schedule",
            json!({"schedule": "ok"}),
            vec!["schedule", "show", "ok"],
        ),
        ("list_launches", json!({}), vec!["launch", "list"]),
        (
            "list_launches",
            json!({"kind": "manual", "package": "guests", "until": "now", "after": bad["id"]}),
            vec!["launch", "list", "--after", bad["id"].as_str().unwrap()],
        ),
        (
            "show_launch",
            json!({"id": good_id}),
            vec!["launch", "show", &good_id],
        ),
        (
            "show_run",
            json!({"id": good_id}),
            vec!["run", "show", &good_id],
        ),
        (
            "show_run",
            json!({"id": bad_run}),
            vec!["run", "show", &bad_run],
        ),
        (
            "run_logs",
            json!({"id": bad_run}),
            vec!["run", "logs", &bad_run],
        ),
        (
            "list_events",
            json!({"limit": 500}),
            vec!["event", "list", "--limit", "500"],
        ),
        (
            "why",
            json!({"schedule": "echo"}),
            vec!["schedule", "why", "echo"],
        ),
    ] {
        let expected = site.json(command);
        assert_eq!(
            client.ok(tool, arguments.clone()),
            expected,
            "{tool} {arguments}"
        );
    }

    // The present moves on between two forecasts, so their span is given.
    let span = json!({"from": "2098-12-31T00:00:00Z", "to": "2099-01-02T00:00:00Z"});
    let error = client.refused("plan", span);
    assert!(
        text(&error["error"]).contains("more than a year ahead"),
        "{error}"
    );
    let plan = client.ok("plan", json!({"schedule": "ok"}));
    assert_eq!(keys(&plan), keys(&site.json(["plan", "--schedule", "ok"])));
    let health = client.ok("health", json!({}));
    let command = site.run(["health", "--json"]).json();
    assert_eq!(keys(&health), keys(&command));
    assert_eq!(health["healthy"], command["healthy"]);

    // A full page says how to continue, and the next page begins there.
    let first = client.call("list_launches", json!({"limit": 1}));
    assert_eq!(first_json(&first)[0]["id"], bad["id"]);
    let after = format!("`after` \"{}\"", text(&bad["id"]));
    assert!(note(&first).contains(&after), "{first}");
    let next = client.ok("list_launches", json!({"limit": 1, "after": bad["id"]}));
    assert_eq!(next[0]["id"], good["id"]);
    assert_eq!(client.close(), Some(0));
}

async fn a_viewer_changes_nothing(place: Place) {
    let (site, mut host) = Site::with_tasks(place, &["ok"]);
    stop(&mut host);
    let before = site.json(["schedule", "show", "ok"]);
    let events = site.json(["event", "list"]);
    let mut client = Client::connect(&site, &["--role", "viewer"]);
    for tool in WRITE_TOOLS {
        let argument = if tool == "cancel_launch" {
            "id"
        } else {
            "schedule"
        };
        let error = client.refused(tool, json!({argument: "ok"}));
        assert_eq!(error["code"], "refused", "{tool}: {error}");
        assert_eq!(
            error["error"],
            format!("`{tool}` needs the role `operator`")
        );
        assert!(text(&error["hint"]).contains("campanile mcp --role operator"));
    }
    assert_eq!(client.close(), Some(0));
    assert_eq!(site.json(["schedule", "show", "ok"]), before);
    assert_eq!(site.json(["event", "list"]), events);
    assert_eq!(site.launches("ok").len(), 0);
}

async fn an_operator_pauses_resumes_triggers_and_cancels_on_record(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["ok", "sleep"]);
    site.ok([
        "schedule",
        "edit",
        "sleep",
        "--context",
        r#"{"ms": 600000}"#,
    ]);
    let mut client = Client::connect(&site, &["--role", "operator"]);

    let paused = client.ok(
        "pause_schedule",
        json!({"schedule": "ok", "note": "disk \u{1b}[2J full", "until": "now+2h"}),
    );
    assert_eq!(paused, json!({"schedule": "ok", "done": "paused"}));
    let shown = site.json(["schedule", "show", "ok"]);
    assert_eq!(shown["state"], "paused", "{shown}");
    assert_eq!(shown["paused_by"], "test\\u{202e}-assistant", "{shown}");
    let error = client.refused(
        "pause_schedule",
        json!({"schedule": "ok", "until": "now-1h"}),
    );
    assert_eq!(error["code"], "invalid_argument", "{error}");
    let resumed = client.ok(
        "resume_schedule",
        json!({"schedule": "ok", "catch_up": true}),
    );
    assert_eq!(resumed["done"], "resumed");
    let error = client.refused("resume_schedule", json!({"schedule": "ok"}));
    assert_eq!(error["code"], "conflict", "{error}");

    let triggered = client.ok("trigger_schedule", json!({"schedule": "sleep"}));
    assert_eq!(triggered["decision"], "launched", "{triggered}");
    let launch = text(&triggered["launch"]);
    site.wait_for_launch("sleep", |row| row["status"] == "running");
    // A second one overlaps it. That is an answer, not an error.
    let overlapping = client.call("trigger_schedule", json!({"schedule": "sleep"}));
    assert_eq!(first_json(&overlapping)["decision"], "skipped");
    assert!(note(&overlapping).contains(&launch), "{overlapping}");

    let cancelled = client.ok("cancel_launch", json!({"id": launch, "grace": "100ms"}));
    assert_eq!(cancelled["launch"], launch, "{cancelled}");
    let ended = site.wait_until_ended("sleep", &launch);
    assert_eq!(ended["status"], "cancelled", "{ended}");
    let error = client.refused("cancel_launch", json!({"id": launch}));
    assert_eq!(error["code"], "conflict", "{error}");
    assert_eq!(client.close(), Some(0));

    let events = list(site.json(["event", "list"]));
    let user = std::process::Command::new("id").arg("-un").output();
    let user = String::from_utf8(user.expect("id").stdout).expect("a name");
    for kind in ["schedule_paused", "schedule_resumed", "launch_cancelled"] {
        let event = events.iter().find(|event| event["kind"] == kind);
        let event = event.unwrap_or_else(|| panic!("no {kind}: {events:#?}"));
        assert_eq!(event["channel"], "mcp", "{event}");
        assert_eq!(event["principal"], user.trim(), "{event}");
        assert!(
            text(&event["detail"]).contains("test\\u{202e}-assistant"),
            "{event}"
        );
    }
}

async fn wrong_arguments_are_refused_by_name(place: Place) {
    let (site, mut host) = Site::with_tasks(place, &["ok"]);
    stop(&mut host);
    let mut client = Client::connect(&site, &["--role", "operator"]);
    for (tool, arguments, parts) in [
        ("why", json!({}), &["`why`", "missing field `schedule`"][..]),
        (
            "why",
            json!({"schedule": "ok", "when": "now"}),
            &["unknown field `when`", "`at`"],
        ),
        (
            "why",
            json!({"schedule": 7}),
            &["invalid type: integer `7`"],
        ),
        (
            "why",
            json!({"schedule": "ok", "at": "noon"}),
            &["`at`: `noon` is not a time"],
        ),
        (
            "why",
            json!({"schedule": "okk"}),
            &["no schedule named `okk`", "did you mean `ok`?"],
        ),
        ("health", json!({"all": true}), &["unknown field `all`"]),
        (
            "list_launches",
            json!({"limit": 501}),
            &["`limit`: must be a number from 1 to 500"],
        ),
        (
            "list_launches",
            json!({"limit": 0}),
            &["`limit`: must be a number from 1 to 500"],
        ),
        (
            "list_launches",
            json!({"limit": "many"}),
            &["must be a number"],
        ),
        (
            "list_launches",
            json!({"status": ["done"]}),
            &["`status[0]`: `done` must be `open`", "`succeeded`"],
        ),
        (
            "list_launches",
            json!({"since": "noon"}),
            &["`since`: `noon` is neither a time"],
        ),
        (
            "list_launches",
            json!({"schedule": "okk"}),
            &["no schedule named `okk`"],
        ),
        ("list_events", json!({"after": "x"}), &["`after`:"]),
        (
            "show_launch",
            json!({"id": "nightly"}),
            &["`id`:", "no id of a launch or a run"],
        ),
        (
            "show_run",
            json!({"id": "ffff"}),
            &["no launch whose id begins with ffff"],
        ),
        (
            "run_logs",
            json!({"id": "ffff", "bytes_max": 0}),
            &["`bytes_max`: must be a number from 1 to 200000"],
        ),
        (
            "run_logs",
            json!({"id": "ffff", "bytes_max": -1}),
            &["`bytes_max`: must be a number from 1 to 200000"],
        ),
        (
            "plan",
            json!({"outage": ["noon"]}),
            &["`outage[0]`: write two times"],
        ),
        ("plan", json!({"to": "yesterday"}), &["is not after"]),
        (
            "pause_schedule",
            json!({"schedule": "ok", "note": "x".repeat(2_001)}),
            &["`note`: must have 0 to 2000 characters, not 2001"],
        ),
        (
            "pause_schedule",
            json!({"schedule": "ok\0"}),
            &["`schedule`: it has a zero character"],
        ),
        (
            "pause_schedule",
            json!({"schedule": "ok", "by": "root"}),
            &["unknown field `by`"],
        ),
        (
            "trigger_schedule",
            json!({"schedule": "ok", "context": {}}),
            &["unknown field `context`"],
        ),
        (
            "cancel_launch",
            json!({"id": "ffff", "grace": "soon"}),
            &["`grace`:"],
        ),
    ] {
        let error = client.refused(tool, arguments.clone());
        for part in parts {
            let message = text(&error["error"]);
            assert!(
                message.contains(part),
                "{tool} {arguments}: no `{part}`: {error}"
            );
        }
        assert!(
            ["invalid_argument", "not_found"].contains(&error["code"].as_str().unwrap()),
            "{tool} {arguments}: {error}"
        );
    }
    let unknown = client.request(
        "tools/call",
        json!({"name": "list_schedule", "arguments": {}}),
    );
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let message = text(&unknown["error"]["message"]);
    assert!(
        message.contains("no tool `list_schedule`")
            && message.contains("did you mean `list_schedules`?"),
        "{unknown}"
    );
    let unknown = client.request("resources/read", json!({"uri": "file:///etc/passwd"}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    // Nothing was changed.
    assert_eq!(site.json(["schedule", "show", "ok"])["state"], "enabled");
    assert_eq!(site.launches("ok").len(), 0);
    assert_eq!(client.close(), Some(0));
}

async fn a_malformed_message_does_not_end_the_server(place: Place) {
    let site = empty_site(place);
    let mut client = Client::start(&site, &[]);
    client.send("{not json");
    client.send("");
    client.initialize();
    let too_long = json!({"jsonrpc": "2.0", "id": 77, "method": "ping", "x": "y".repeat(2 << 20)});
    for line in [
        "{not json",
        "\u{0}",
        "[]",
        "7",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"1.0","id":9000,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":9000,"method":"tools/call","params":"why"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        &too_long.to_string(),
    ] {
        client.send(line);
        let answer = client.request("tools/list", json!({}));
        assert_eq!(names(&answer), READ_TOOLS, "after {line:.60}");
    }
    assert_eq!(client.ok("list_schedules", json!({})), json!([]));
    assert_eq!(client.close(), Some(0));
}

async fn a_server_without_tables_does_not_start(place: Place) {
    let site = Site::new(place);
    let command = ["mcp"];
    site.run(command).assert_refused(&["error: "]);
    site.ok(["db", "migrate"]);
    // Its stdin is empty.
    let output = site.run(command);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    // A call that the client sends before it closes stdin is answered.
    let mut client = Client::connect(&site, &[]);
    let call = json!({"jsonrpc": "2.0", "id": 70, "method": "tools/call", "params": {"name": "list_schedules"}});
    client.send(&call.to_string());
    drop(client.stdin.take());
    let answer = client.receive();
    assert_eq!(
        (&answer["id"], first_json(&answer["result"])),
        (&json!(70), json!([]))
    );
    eventually(|| match client.lines.try_recv() {
        Err(std::sync::mpsc::TryRecvError::Disconnected) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(client.close(), Some(0));
}
