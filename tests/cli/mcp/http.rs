//! `POST /mcp`: the protocol over HTTP, with the tokens, roles and bounds of the API.

use campanile_tests::{Backend, Place, on_both_empty};
use serde_json::{Value, json};

use super::client::{Client, first_json, note};
use super::{READ_TOOLS, WRITE_TOOLS, names};
use crate::api::{Answer, Api, raw};
use crate::site::{Site, eventually, keys, list, run_until_exit, stop, text};

on_both_empty!(
    a_client_without_a_session_learns_the_tools,
    a_read_tool_answers_over_http_as_on_stdio,
    each_tool_needs_the_role_of_its_route,
    an_operator_changes_over_http_and_is_on_record,
    no_other_client_is_answered,
    a_call_costs_what_its_route_costs,
    the_command_asks_the_host_of_server,
);

/// What each client says that it takes.
const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");

/// Send a message with these headers.
fn post(api: &Api, headers: &[(&str, &str)], message: &Value) -> Answer {
    api.send("POST", "/mcp", headers, Some(message))
}

/// Send a request of the protocol. Return the message that answers it.
#[track_caller]
fn ask(api: &Api, method: &str, params: Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let answer = post(api, &[ACCEPT], &message);
    assert_eq!(answer.status, 200, "{method}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let answer = answer.json();
    assert_eq!(
        (&answer["jsonrpc"], &answer["id"]),
        (&json!("2.0"), &json!(7))
    );
    answer
}

/// Call a tool. Return its result.
#[track_caller]
fn call(api: &Api, tool: &str, arguments: Value) -> Value {
    let answer = ask(
        api,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    );
    assert!(answer["error"].is_null(), "{tool}: {answer}");
    answer["result"].clone()
}

/// Call a tool, which must succeed. Return the JSON of its answer.
#[track_caller]
fn ok(api: &Api, tool: &str, arguments: Value) -> Value {
    let result = call(api, tool, arguments);
    assert_eq!(result["isError"], false, "{tool}: {result}");
    first_json(&result)
}

/// Call a tool, which must fail. Return the JSON of its error.
#[track_caller]
fn refused(api: &Api, tool: &str, arguments: Value) -> Value {
    let result = call(api, tool, arguments);
    assert_eq!(result["isError"], true, "{tool}: {result}");
    let error = first_json(&result);
    assert_eq!(keys(&error), ["code", "error", "hint"], "{tool}");
    error
}

/// Create a token, and return its secret.
fn token(api: &Api, role: &str) -> String {
    let created = api.site.json(["token", "create", role, "--role", role]);
    text(&created["secret"])
}

/// Return the events of the record, without those of refused requests.
fn changes(site: &Site) -> Vec<Value> {
    let events = list(site.json(["event", "list", "--limit", "500"])).into_iter();
    let is_change = |event: &Value| event["kind"] != "request_refused";
    events.filter(is_change).collect()
}

async fn a_client_without_a_session_learns_the_tools(place: Place) {
    let mut api = Api::start(place, "");
    let begin = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test-assistant", "version": "1"},
    });
    let begun = ask(&api, "initialize", begin.clone())["result"].clone();
    assert_eq!(begun["serverInfo"]["name"], "campanile", "{begun}");
    assert_eq!(begun["protocolVersion"], "2025-06-18");
    assert_eq!(keys(&begun["capabilities"]), ["tools"]);
    assert!(text(&begun["instructions"]).contains("call `why` first"));
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin});
    let answer = post(&api, &[ACCEPT], &message);
    assert_eq!(answer.header("mcp-session-id"), None, "{answer:?}");

    // A notification has no answer.
    let message = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let version = ("MCP-Protocol-Version", "2025-06-18");
    let answer = post(&api, &[ACCEPT, version], &message);
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));

    let viewer = token(&api, "viewer");
    let local = std::mem::replace(&mut api.token, viewer);
    let listed = ask(&api, "tools/list", json!({}));
    assert_eq!(names(&listed), READ_TOOLS);
    api.token = local;
    let listed = ask(&api, "tools/list", json!({}));
    assert_eq!(names(&listed), [&READ_TOOLS[..], &WRITE_TOOLS[..]].concat());
    // The definitions are those of stdio.
    let mut on_stdio = Client::connect(&api.site, &["--role", "operator"]);
    let expected = on_stdio.request("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"], expected["result"]["tools"]);
    assert_eq!(on_stdio.close(), Some(0));
}

async fn a_read_tool_answers_over_http_as_on_stdio(place: Place) {
    let mut api = Api::start(place, "");
    for task in ["ok", "fail_permanent", "echo"] {
        api.add(task, task);
    }
    let good = api.site.trigger_and_wait("ok");
    let bad = api.site.trigger_and_wait("fail_permanent");
    api.site
        .ok(["schedule", "pause", "echo", "--note", "a full disk"]);
    let mut on_stdio = Client::connect(&api.site, &[]);
    api.token = token(&api, "viewer");
    let (good, bad_run) = (text(&good["id"]), text(&bad["run_id"]));
    for (tool, arguments) in [
        ("why", json!({"schedule": "ok"})),
        (
            "why",
            json!({"schedule": "echo", "at": "2026-01-01T00:00:00Z"}),
        ),
        ("list_schedules", json!({})),
        ("list_schedules", json!({"limit": 1, "after": "echo"})),
        ("show_schedule", json!({"schedule": "fail_permanent"})),
        ("list_launches", json!({})),
        ("list_launches", json!({"limit": 1})),
        (
            "list_launches",
            json!({"status": ["failed", "skipped"], "kind": "manual", "since": "1h", "until": "now"}),
        ),
        (
            "list_launches",
            json!({"schedule": "ok", "package": "guests", "reason": "overlap"}),
        ),
        (
            "list_launches",
            json!({"since": "yesterday 14:00", "after": bad["id"]}),
        ),
        ("show_launch", json!({"id": good})),
        ("show_run", json!({"id": bad_run})),
        ("run_logs", json!({"id": bad_run})),
        ("run_logs", json!({"id": good, "bytes_max": 1})),
        ("list_events", json!({"limit": 500})),
        ("list_events", json!({"limit": 2})),
    ] {
        let expected = on_stdio.call(tool, arguments.clone());
        assert_eq!(expected["isError"], false, "{tool} {arguments}: {expected}");
        assert_eq!(
            call(&api, tool, arguments.clone()),
            expected,
            "{tool} {arguments}"
        );
    }
    // Their times advance.
    for (tool, arguments) in [
        (
            "plan",
            json!({"schedule": "ok", "outage": ["now+1h..now+2h"]}),
        ),
        ("health", json!({})),
    ] {
        let expected = on_stdio.ok(tool, arguments.clone());
        let found = ok(&api, tool, arguments);
        assert_eq!(keys(&found), keys(&expected), "{tool}");
    }
    for (tool, arguments) in [
        ("why", json!({})),
        ("why", json!({"schedule": "okk"})),
        ("why", json!({"schedule": "ok", "at": "noon"})),
        ("list_launches", json!({"limit": 501})),
        ("list_launches", json!({"status": ["done"]})),
        ("list_launches", json!({"since": "noon"})),
        ("list_launches", json!({"schedule": "x".repeat(1_001)})),
        ("show_launch", json!({"id": "nightly"})),
        ("show_schedule", json!({"schedule": "ok\0"})),
        ("run_logs", json!({"id": "ffff", "bytes_max": 0})),
        ("run_logs", json!({"id": bad_run, "task": "none"})),
        ("plan", json!({"outage": ["noon"]})),
        ("health", json!({"all": true})),
    ] {
        let expected = on_stdio.refused(tool, arguments.clone());
        assert_eq!(
            refused(&api, tool, arguments.clone()),
            expected,
            "{tool} {arguments}"
        );
    }
    assert_eq!(on_stdio.close(), Some(0));
}

async fn each_tool_needs_the_role_of_its_route(place: Place) {
    let mut api = Api::start(place, "");
    api.add("ok", "ok");
    let [viewer, operator] = ["viewer", "operator"].map(|role| token(&api, role));
    let before = (changes(&api.site), api.get("/api/v1/schedules/ok"));
    let local = std::mem::replace(&mut api.token, viewer);
    for tool in WRITE_TOOLS {
        let argument = if tool == "cancel_launch" {
            "id"
        } else {
            "schedule"
        };
        let error = refused(&api, tool, json!({argument: "ok"}));
        assert_eq!(error["code"], "refused", "{tool}: {error}");
        let expected = format!(
            "the tool `{tool}` needs the role operator, and the token viewer has the role viewer"
        );
        assert_eq!(error["error"], expected);
        assert!(text(&error["hint"]).contains("--role operator"), "{error}");
    }
    for tool in READ_TOOLS {
        let result = call(&api, tool, json!({}));
        // A list of events has the refusals from before.
        let is_refused = result["isError"] == true && result.to_string().contains("needs the role");
        assert!(!is_refused, "{tool}: {result}");
    }
    api.token = local;
    assert_eq!(
        (changes(&api.site), api.get("/api/v1/schedules/ok")),
        before
    );
    // The refusals are on record, as those of the API.
    let refusal = eventually(|| {
        let events = list(api.site.json(["event", "list"])).into_iter();
        let found = { events }.find(|event| event["kind"] == "request_refused");
        found.ok_or_else(|| "no event".to_owned())
    });
    assert_eq!(
        [
            &refusal["principal"],
            &refusal["channel"],
            &refusal["address"]
        ],
        [&json!("viewer"), &json!("mcp"), &json!("127.0.0.1")]
    );
    assert!(
        text(&refusal["subject"]).starts_with("POST /mcp "),
        "{refusal}"
    );
    api.token = operator;
    assert_eq!(
        ok(&api, "trigger_schedule", json!({"schedule": "ok"}))["decision"],
        "launched"
    );
}

async fn an_operator_changes_over_http_and_is_on_record(place: Place) {
    let mut api = Api::start(place, "");
    api.add("ok", "ok");
    api.add("sleep", "sleep");
    api.site.ok([
        "schedule",
        "edit",
        "sleep",
        "--context",
        r#"{"ms": 600000}"#,
    ]);
    let operator = token(&api, "operator");
    let local = std::mem::replace(&mut api.token, operator);
    let paused = ok(
        &api,
        "pause_schedule",
        json!({"schedule": "ok", "note": "disk full", "until": "now+2h"}),
    );
    assert_eq!(paused, json!({"schedule": "ok", "done": "paused"}));
    let shown = api.get("/api/v1/schedules/ok");
    assert_eq!(
        (&shown["state"], &shown["paused_by"]),
        (&json!("paused"), &json!("operator"))
    );
    let error = refused(
        &api,
        "pause_schedule",
        json!({"schedule": "ok", "until": "now-1h"}),
    );
    assert_eq!(error["code"], "invalid_argument", "{error}");
    let resumed = ok(
        &api,
        "resume_schedule",
        json!({"schedule": "ok", "catch_up": true}),
    );
    assert_eq!(resumed["done"], "resumed");
    assert_eq!(
        refused(&api, "resume_schedule", json!({"schedule": "ok"}))["code"],
        "conflict"
    );

    // The launch belongs to the trace of the request.
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let message = json!({
        "jsonrpc": "2.0", "id": "a", "method": "tools/call",
        "params": {"name": "trigger_schedule", "arguments": {"schedule": "sleep"}},
    });
    let span = format!("00-{trace}-b7ad6b7169203331-01");
    let answer = post(&api, &[ACCEPT, ("traceparent", &span)], &message);
    let launch = text(&first_json(&answer.json()["result"])["launch"]);
    let shown = api.get(&format!("/api/v1/launches/{launch}"));
    assert!(text(&shown["traceparent"]).contains(trace), "{shown}");
    api.site
        .wait_for_launch("sleep", |row| row["status"] == "running");
    let overlapping = call(&api, "trigger_schedule", json!({"schedule": "sleep"}));
    assert_eq!(first_json(&overlapping)["decision"], "skipped");
    assert!(note(&overlapping).contains(&launch), "{overlapping}");
    let cancelled = ok(
        &api,
        "cancel_launch",
        json!({"id": launch, "grace": "100ms"}),
    );
    assert_eq!(cancelled["launch"], launch, "{cancelled}");
    assert_eq!(api.end_of(&launch)["status"], "cancelled");
    api.token = local;

    let events = changes(&api.site);
    for kind in [
        "schedule_paused",
        "schedule_resumed",
        "launch_triggered",
        "launch_cancelled",
    ] {
        let event = events.iter().find(|event| event["kind"] == kind);
        let event = event.unwrap_or_else(|| panic!("no {kind}: {events:#?}"));
        assert_eq!(
            [&event["principal"], &event["channel"], &event["address"]],
            [&json!("operator"), &json!("mcp"), &json!("127.0.0.1")]
        );
    }
}

async fn no_other_client_is_answered(place: Place) {
    let mut api = Api::start(place, "");
    api.add("ok", "ok");
    let [expired, revoked] = ["viewer", "operator"].map(|role| token(&api, role));
    api.site.ok(["token", "revoke", "operator"]);
    let past = match api.site.place().backend {
        Backend::Sqlite => "created_at = 1000000, expires_at = 2000000",
        Backend::Postgres => {
            "created_at = now() - INTERVAL '2 minutes', expires_at = now() - INTERVAL '1 minute'"
        }
    };
    let expire = format!("UPDATE token SET {past} WHERE name = 'viewer'");
    api.site.execute(&expire).await;
    let before = changes(&api.site);
    let trigger = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "trigger_schedule", "arguments": {"schedule": "ok"}},
    });
    let bare = |headers: &str| {
        let body = trigger.to_string();
        let length = body.len();
        let json = "Content-Type: application/json\r\nAccept: application/json, text/event-stream";
        raw(
            api.address,
            &format!(
                "POST /mcp HTTP/1.1\r\n{headers}{json}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            ),
        )
    };
    bare("Host: x\r\n").assert_problem(401, "no token");
    let given = format!("Authorization: Bearer {}\r\n", api.token);
    bare(&format!("Host: x\r\n{given}{given}")).assert_problem(401, "no token");
    bare(&format!("Host: x\r\nHost: y\r\n{given}")).assert_problem(400, "Host");
    bare(&given).assert_problem(400, "Host");
    for wrong in [
        expired,
        revoked,
        format!("{}x", api.token),
        "cmp_0".to_owned(),
    ] {
        let answer = bare(&format!("Host: x\r\nAuthorization: Bearer {wrong}\r\n"));
        answer.assert_problem(401, "the token is wrong, has expired or was revoked");
    }
    // A page of a browser, also one whose name leads to this host by now.
    let own = format!("http://{}", api.address);
    for header in [
        ("Origin", "https://attacker.example"),
        ("Origin", "null"),
        ("Origin", &own),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-origin"),
    ] {
        let answer = post(&api, &[ACCEPT, header], &trigger);
        answer.assert_problem(403, "sent by a browser");
    }
    for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
        api.send(method, "/mcp", &[ACCEPT], None)
            .assert_problem(405, "method");
    }
    post(&api, &[], &trigger).assert_problem(406, "text/event-stream");
    post(
        &api,
        &[ACCEPT, ("MCP-Protocol-Version", "1999-01-01")],
        &trigger,
    )
    .assert_problem(400, "1999-01-01");
    api.send("POST", "/mcp?session=1", &[ACCEPT], Some(&trigger))
        .assert_problem(400, "no query parameter");
    api.send("POST", "/mcp/", &[ACCEPT], Some(&trigger))
        .assert_problem(404, "no such path");
    let send = |kind: &str, body: &str| {
        let head = api.head("POST", "/mcp");
        let accept = format!("Accept: {}\r\nContent-Type: {kind}\r\n", ACCEPT.1);
        raw(
            api.address,
            &format!("{head}{accept}Content-Length: {}\r\n\r\n{body}", body.len()),
        )
    };
    send("text/plain", &trigger.to_string()).assert_problem(415, "application/json");
    let head = api.head("POST", "/mcp");
    raw(
        api.address,
        &format!("{head}Content-Length: 2000000\r\n\r\n"),
    )
    .assert_problem(413, "bytes");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 19, "x".repeat(1 << 19));
    let endless = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}5\r\nxxxxx\r\n");
    raw(api.address, &endless).assert_problem(413, "bytes");
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let batch = json!([trigger, trigger]).to_string();
    for body in [
        "",
        "{not json",
        "7",
        "null",
        "\u{0}",
        r#"{"jsonrpc":"2.0"}"#,
        &deep,
        &batch,
    ] {
        let answer = send("application/json", body);
        assert!(
            (400..500).contains(&answer.status),
            "{body:.60}: {answer:?}"
        );
    }
    let unknown = ask(&api, "resources/read", json!({"uri": "file:///etc/passwd"}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let unknown = ask(
        &api,
        "tools/call",
        json!({"name": "list_schedule", "arguments": {}}),
    );
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    for (tool, arguments, part) in [
        (
            "trigger_schedule",
            json!({"schedule": "ok", "context": {}}),
            "unknown field `context`",
        ),
        (
            "pause_schedule",
            json!({"schedule": "ok", "by": "root"}),
            "unknown field `by`",
        ),
        (
            "pause_schedule",
            json!({"schedule": "../ok"}),
            "no schedule named `../ok`",
        ),
    ] {
        let error = refused(&api, tool, arguments);
        assert!(text(&error["error"]).contains(part), "{error}");
    }
    assert_eq!(changes(&api.site), before);
    assert_eq!(api.site.launches("ok").len(), 0);
    // A session of another server means nothing here.
    let listed = post(
        &api,
        &[ACCEPT, ("Mcp-Session-Id", "0123456789")],
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    );
    assert_eq!(listed.status, 200, "{listed:?}");
    stop(&mut api.host);
}

async fn a_call_costs_what_its_route_costs(place: Place) {
    let mut api = Api::start(place, "[server]\nrate_limit = 10\n");
    let viewer = token(&api, "viewer");
    let local = std::mem::replace(&mut api.token, viewer);
    // A forecast costs 50 units, and a second has 10. It costs more than there ever is at once, so it waits for all.
    ok(&api, "plan", json!({}));
    // They are back after five seconds, and a busy machine may take that long for one request.
    let mut forecasts = (0..100).map(|_| call(&api, "plan", json!({})));
    let limited = forecasts.find(|result| result["isError"] == true);
    let error = first_json(&limited.expect("a limit"));
    assert_eq!(keys(&error), ["code", "error", "hint"]);
    assert_eq!(error["code"], "unavailable", "{error}");
    let message = text(&error["error"]);
    assert!(message.contains("viewer has sent more requests"), "{error}");
    // Another message costs 1. Right after a forecast there is less.
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let limited = (0..100).find_map(|_| {
        call(&api, "plan", json!({}));
        let answer = post(&api, &[ACCEPT], &message);
        (answer.status == 429).then_some(answer)
    });
    let limited = limited.expect("a limit");
    limited.assert_problem(429, "viewer has sent more requests");
    assert!(limited.header("retry-after").is_some(), "{limited:?}");
    api.token = local;
    assert_eq!(ok(&api, "list_schedules", json!({})), json!([]));
}

async fn the_command_asks_the_host_of_server(place: Place) {
    let api = Api::start(place, "");
    api.add("ok", "ok");
    let [viewer, operator] = ["viewer", "operator"].map(|role| token(&api, role));
    let launched = api.site.trigger_and_wait("ok");
    let id = text(&launched["id"]);
    let connect = |token: &str, more: &[&str]| {
        let mut command = api.client(["mcp"].into_iter().chain(more.iter().copied()));
        command.env("CAMPANILE_TOKEN", token);
        let mut client = Client::of(command);
        client.initialize();
        client
    };
    let mut on_database = Client::connect(&api.site, &[]);
    let mut by_api = connect(&viewer, &[]);
    assert_eq!(names(&by_api.request("tools/list", json!({}))), READ_TOOLS);
    for (tool, arguments) in [
        ("why", json!({"schedule": "ok"})),
        ("list_launches", json!({"limit": 1})),
        ("show_run", json!({"id": id})),
        ("run_logs", json!({"id": id})),
        ("show_schedule", json!({"schedule": "none"})),
        ("why", json!({"when": "now"})),
        ("pause_schedule", json!({"schedule": "ok"})),
    ] {
        let expected = on_database.call(tool, arguments.clone());
        assert_eq!(
            by_api.call(tool, arguments.clone()),
            expected,
            "{tool} {arguments}"
        );
    }
    assert_eq!((on_database.close(), by_api.close()), (Some(0), Some(0)));

    // The token bounds the client, whatever role it was started with.
    let mut by_viewer = connect(&viewer, &["--role", "operator"]);
    let error = by_viewer.refused("pause_schedule", json!({"schedule": "ok"}));
    assert_eq!(error["code"], "refused", "{error}");
    assert!(
        text(&error["error"]).contains("the token viewer has the role viewer"),
        "{error}"
    );
    assert_eq!(by_viewer.close(), Some(0));
    let mut by_operator = connect(&operator, &["--role", "operator"]);
    let paused = by_operator.ok("pause_schedule", json!({"schedule": "ok"}));
    assert_eq!(paused["done"], "paused");
    assert_eq!(by_operator.close(), Some(0));
    let events = changes(&api.site);
    let paused = events
        .iter()
        .find(|event| event["kind"] == "schedule_paused");
    let paused = paused.expect("an event");
    assert_eq!(
        (&paused["principal"], &paused["channel"]),
        (&json!("operator"), &json!("mcp"))
    );

    // A server without a host, or without a right token, does not start.
    let wrong = format!("cmp_{}", "A".repeat(43));
    let mut command = api.client(["mcp", "--token", &wrong]);
    run_until_exit(command.env_remove("CAMPANILE_TOKEN"))
        .assert_refused(&["the token is wrong", "campanile token create"]);
    let mut command = api.client(["mcp"]);
    run_until_exit(command.env("CAMPANILE_SERVER", "http://127.0.0.1:9"))
        .assert_refused(&["http://127.0.0.1:9 cannot be reached"]);
}
