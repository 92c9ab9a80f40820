//! Bounds across all requests rather than on each: streams, large answers, and names and texts at the limits.

use std::io::Write as _;
use std::net::TcpStream;

use campanile_tests::{Place, on_both_empty};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api::{Answer, Api, next_event};
use crate::site::{list, stop, text};

on_both_empty!(
    one_viewer_leaves_streams_to_others,
    a_run_with_much_output_is_shown_in_parts,
    every_package_is_listed_however_long_their_descriptions_are,
    what_one_client_sends_leaves_room_for_others,
    what_no_address_or_reader_can_hold_is_refused,
    a_host_outlives_signals_that_end_other_programs,
);

/// More streams than one principal may have, but fewer than there are.
const STREAMS: usize = 400;

fn token(api: &Api, name: &str) -> String {
    let body = json!({"name": name, "role": "viewer"});
    text(&api.post("/api/v1/tokens", body)["secret"])
}

/// Asks for a stream with this token, returning the connection and the status.
fn open_stream(api: &Api, token: &str, path: &str) -> (TcpStream, u16) {
    let mut stream = TcpStream::connect(api.address).expect("a connection");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
        api.address
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(stream.try_clone().expect("a stream"));
    std::io::BufRead::read_line(&mut reader, &mut line).expect("a status");
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (stream, status.unwrap_or(0))
}

async fn one_viewer_leaves_streams_to_others(place: Place) {
    let mut api = Api::start(place, "");
    api.add("long", "sleep");
    let context = json!({"context": {"ms": 600_000}});
    let launch = text(&api.post("/api/v1/schedules/long/trigger", context)["launch"]);
    let run = crate::site::eventually(
        || match &api.get(&format!("/api/v1/launches/{launch}"))["run_id"] {
            Value::String(run) => Ok(run.clone()),
            other => Err(other.to_string()),
        },
    );
    let [greedy, other] = ["greedy", "other"].map(|name| token(&api, name));
    // Following logs counts as a stream too, sharing the limit.
    let paths = [
        "/api/v1/events/stream".to_owned(),
        format!("/api/v1/runs/{run}/logs?follow=true"),
    ];
    let mut open = Vec::new();
    let refused = (0..STREAMS).find(|number| {
        let (stream, status) = open_stream(&api, &greedy, &paths[number % 2]);
        open.push(stream);
        assert!([200, 503].contains(&status), "{status}");
        status == 503
    });
    let refused = refused.expect("one principal has a share of all streams");
    assert!(
        refused > 50,
        "{refused} streams are too few for the pages of one person"
    );
    for path in &paths {
        let (_stream, status) = open_stream(&api, &other, path);
        assert_eq!(status, 200, "{path}");
        let (_stream, status) = open_stream(&api, &greedy, path);
        assert_eq!(status, 503, "{path}");
    }
    let local = std::mem::replace(&mut api.token, greedy);
    api.send("GET", &paths[0], &[], None)
        .assert_problem(503, "no more streams of events for greedy");
    // Closing a stream frees it for others, and events still arrive.
    open.clear();
    crate::site::eventually(|| match open_stream(&api, &api.token, &paths[0]).1 {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    api.token = local;
    let mut events = api.stream(&paths[0], "");
    api.post("/api/v1/schedules/long/pause", json!({}));
    next_event(&mut events, |_, event| event["kind"] == "schedule_paused");
    api.post(
        &format!("/api/v1/launches/{launch}/cancel"),
        json!({"grace": "0s"}),
    );
}

/// Calls added to a run, and the bytes printed by each.
const CALLS: usize = 40;
const PRINTED: usize = 256 << 10;
/// An answer has about 4 MiB of texts, plus their keys.
const ANSWER_BYTES_MAX: usize = 5 << 20;

/// Returns an answer's pages, each with its path.
fn pages(api: &Api, path: &str) -> Vec<(String, Answer)> {
    let (mut pages, mut next) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = next {
        let answer = api.send("GET", &path, &[], None);
        assert_eq!(answer.status, 200, "{path}: {:.300}", answer.body);
        assert!(
            answer.body.len() <= ANSWER_BYTES_MAX,
            "{path}: {} bytes",
            answer.body.len()
        );
        next = answer.header("link").map(|link| {
            let (url, _) = link
                .trim_start_matches('<')
                .split_once('>')
                .expect("a link");
            url.to_owned()
        });
        pages.push((path, answer));
    }
    pages
}

async fn a_run_with_much_output_is_shown_in_parts(place: Place) {
    let api = Api::start(place, "");
    api.add("much", "ok");
    let launched = api.post("/api/v1/schedules/much/trigger", json!({}));
    let launch = text(&launched["launch"]);
    let run = text(&api.end_of(&launch)["run_id"]);
    let printed = "0123456789abcdef".repeat(PRINTED / 16);
    api.site
        .execute(&format!("UPDATE task_run SET stdout = '{printed}'"))
        .await;
    let numbers = Vec::from_iter((1..=CALLS).map(|number| format!("({number})"))).join(", ");
    let columns = "succeeded, started_at, finished_at, stdout, stderr, logs, wall_ms, cpu_ms, memory_peak_bytes, usage";
    let add = format!(
        "INSERT INTO task_run (launch_id, task, attempt, run_number, {columns})
        SELECT launch_id, 'more', n.column1, run_number, {columns} FROM task_run, (VALUES {numbers}) AS n WHERE task = 'ok'"
    );
    api.site.execute(&add).await;

    let mut calls = Vec::new();
    let logs = pages(&api, &format!("/api/v1/runs/{run}/logs"));
    assert!(logs.len() > 1, "one answer has all of {CALLS} calls");
    for (path, answer) in &logs {
        for call in list(answer.json()) {
            assert_eq!(
                call["stdout"].as_str().map(str::len),
                Some(PRINTED),
                "{path}"
            );
            calls.push((
                text(&call["task"]),
                call["attempt"].as_i64().expect("a number"),
            ));
        }
    }
    let all = |calls: &[(String, i64)]| {
        std::collections::BTreeSet::from_iter(calls.iter().cloned()).len()
    };
    assert_eq!((calls.len(), all(&calls)), (CALLS + 1, CALLS + 1));
    let shown = pages(&api, &format!("/api/v1/runs/{run}"));
    assert_eq!(shown.len(), logs.len());
    let tasks = shown
        .iter()
        .map(|(_, answer)| list(answer.json()["tasks"].clone()).len());
    assert_eq!(tasks.sum::<usize>(), CALLS + 1);
    api.send(
        "GET",
        &format!("/api/v1/runs/{run}/logs?after=x"),
        &[],
        None,
    )
    .assert_problem(400, "no place among the calls");

    // Commands put the parts together, over the API as well as from the database.
    for args in [["run", "logs", run.as_str()], ["run", "show", run.as_str()]] {
        let with_json = [&args[..], &["--json"]].concat();
        for args in [&args[..], &with_json] {
            let (remote, local) = (api.run(args), api.site.run(args.iter().copied()));
            assert_eq!(
                (remote.code, local.code),
                (0, 0),
                "{args:?}: {}",
                remote.stderr
            );
            assert!(
                remote.stdout.len() > CALLS * PRINTED || args[1] == "show",
                "{args:?}"
            );
            assert!(remote.stdout == local.stdout, "{args:?}");
        }
    }
    // An assistant gets the newest of them, and a page the end of each.
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "run_logs", "arguments": {"id": run, "bytes_max": 1_000}}});
    let accept = ("Accept", "application/json, text/event-stream");
    let answer = api.send("POST", "/mcp", &[accept], Some(&message));
    assert_eq!(
        answer.json()["result"]["isError"],
        false,
        "{:.300}",
        answer.body
    );
    assert!(
        answer.body.contains("bytes of older text are left out"),
        "{:.300}",
        answer.body
    );
    let browser = crate::browser::Browser::of(&api, &api.token);
    let page = browser.get(&format!("/runs/{run}"));
    assert_eq!(page.status, 200, "{:.300}", page.body);
    assert!(page.body.len() < 1 << 20, "{} bytes", page.body.len());
}

/// Packages added, and the bytes of each one's description and rejection.
const PACKAGES: usize = 1_200;
const DESCRIPTION: usize = 256 << 10;
const REJECTION: usize = 2 << 10;
/// How much the host's memory may grow while showing them. Their descriptions take 300 MiB, and each reader of a SQLite file caches
/// 16 MiB.
const GROWTH_BYTES_MAX: u64 = 128 << 20;

async fn every_package_is_listed_however_long_their_descriptions_are(place: Place) {
    let api = Api::start(place, "");
    let description = json!({"summary": "x".repeat(DESCRIPTION)});
    let names = Vec::from_iter((0..PACKAGES).map(|number| format!("many-{number:04}")));
    let values = Vec::from_iter(names.iter().map(|name| format!("('{name}')"))).join(", ");
    let add = format!(
        "INSERT INTO package (name, manifest, missing_since, rejection, rejected_at, rejected_by)
        SELECT n.column1, '{description}', p.loaded_at, '{}', p.loaded_at, (SELECT id FROM host)
        FROM package p, (VALUES {values}) AS n WHERE p.name = 'guests'",
        "y".repeat(REJECTION)
    );
    api.site.execute(&add).await;
    let before = api.host.peak_memory();

    let listed = pages(&api, "/api/v1/packages?limit=500");
    assert_eq!(listed.len(), 3);
    let rows = Vec::from_iter(listed.iter().flat_map(|(_, answer)| list(answer.json())));
    let shown = Vec::from_iter(rows.iter().map(|row| text(&row["name"])));
    assert_eq!(shown, [&["guests".to_owned()], &*names].concat());
    assert_eq!(text(&rows[1]["rejection"]).len(), REJECTION);
    api.send("GET", "/api/v1/packages?limit=501", &[], None)
        .assert_problem(400, "`limit`");
    // A single package comes with its description.
    let one = api.get("/api/v1/packages/many-0000");
    assert_eq!(one["manifest"], description);
    // An unknown name is compared with all of them.
    api.send("GET", "/api/v1/packages/many-00000", &[], None)
        .assert_problem(404, "did you mean `many-0000`?");

    // Browser pages list all of them too, and find the last one.
    let browser = crate::browser::Browser::of(&api, &api.token);
    for path in ["/packages", "/packages?q=many-1199&state=rejected", "/plan"] {
        let page = browser.get(path);
        assert_eq!(page.status, 200, "{path}: {:.300}", page.body);
        let last = path.contains("1199");
        assert_eq!(page.body.contains("packages/many-1199"), last, "{path}");
    }
    let growth = api.host.peak_memory().saturating_sub(before);
    assert!(
        growth < GROWTH_BYTES_MAX,
        "the host took {growth} bytes more"
    );

    for args in [&["package", "list"][..], &["package", "list", "--json"]] {
        let (remote, local) = (api.run(args), api.site.run(args.iter().copied()));
        assert_eq!((remote.code, local.code), (0, 0), "{:.300}", remote.stderr);
        assert!(remote.stdout == local.stdout, "{args:?}");
        assert_eq!(remote.stdout.matches("many-").count(), PACKAGES, "{args:?}");
    }
}

async fn what_one_client_sends_leaves_room_for_others(place: Place) {
    let api = Api::start(place, "");
    let other = token(&api, "other");
    // Bodies announced but never sent don't stop other clients from being answered, or from sending their own.
    let mut held = Vec::new();
    for _ in 0..120 {
        let mut stream = TcpStream::connect(api.address).expect("a connection");
        let head = format!(
            "{}Content-Type: application/json\r\nContent-Length: 1048576\r\n\r\n{{",
            api.head("POST", "/api/v1/schedules")
        );
        stream.write_all(head.as_bytes()).expect("a request");
        held.push(stream);
    }
    let text = "x".repeat(100 << 10);
    let body = json!({"name": text}).to_string();
    let head = format!(
        "POST /api/v1/schedules HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {other}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    );
    let answer = crate::api::raw(
        api.address,
        &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
    );
    answer.assert_problem(403, "needs the role");
    let answer = api.send("GET", "/api/v1/schedules", &[], None);
    assert_eq!(answer.status, 200, "{answer:?}");
}

async fn what_no_address_or_reader_can_hold_is_refused(place: Place) {
    let api = Api::start(place, "");
    let site = &api.site;
    for name in [".", ".."] {
        let fixed = ["--package", "guests", "--task", "ok", "--cron", "0 3 * * *"];
        let added = site.run([&["schedule", "add", name], &fixed[..]].concat());
        assert_eq!(added.code, 2, "{added:?}");
        assert!(added.stderr.contains("not `.` or `..` alone"), "{added:?}");
        let body = json!({"name": name, "package": "guests", "task": "ok", "kind": "cron", "expression": "0 3 * * *"});
        api.send("POST", "/api/v1/schedules", &[], Some(&body))
            .assert_problem(400, "not `.` or `..` alone");
        let created = site.run(["token", "create", name, "--role", "viewer"]);
        assert_eq!(created.code, 2, "{created:?}");
        let started = site.run(["serve", "--name", name]);
        assert_eq!(started.code, 2, "{started:?}");
    }
    api.add("one", "echo");
    let renamed = site.run(["schedule", "rename", "one", ".."]);
    assert_eq!(renamed.code, 2, "{renamed:?}");

    let nested = |depth: usize| {
        format!(
            "{{\"a\":{}{}}}",
            "[".repeat(depth - 1),
            "]".repeat(depth - 1)
        )
    };
    for depth in [101, 120, 127] {
        let refused = site.run(["schedule", "trigger", "one", "--context", &nested(depth)]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(
            refused.stderr.contains("nests deeper than 100"),
            "{refused:?}"
        );
        let body = serde_json::from_str(&format!("{{\"context\":{}}}", nested(depth - 1)));
        let body: Value = body.expect("JSON");
        api.send("POST", "/api/v1/schedules/one/trigger", &[], Some(&body))
            .assert_problem(400, "nests deeper than 100");
    }
    // The deepest accepted nesting comes back in the output, readable everywhere.
    let launch = site.trigger("one", &serde_json::from_str(&nested(99)).expect("JSON"));
    let ended = api.end_of(&launch);
    assert_eq!(ended["status"], "succeeded", "{ended}");
    let shown = api.run(&["run", "show", &launch, "--json"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let again = site.trigger("one", &json!({}));
    assert_eq!(api.end_of(&again)["status"], "succeeded");

    for wrong in [
        "é".repeat(12),
        "0123456789aé".to_owned(),
        "日本語".to_owned(),
    ] {
        let body = json!({"digest": wrong});
        for action in ["approve", "reject", "rollback"] {
            let path = format!("/api/v1/packages/guests/{action}");
            let answer = api.send("POST", &path, &[], Some(&body));
            assert!((400..500).contains(&answer.status), "{action}: {answer:?}");
        }
    }
}

async fn a_host_outlives_signals_that_end_other_programs(place: Place) {
    let mut api = Api::start(place, "");
    for (signal, name) in [
        (Signal::HUP, "SIGHUP"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
    ] {
        api.host.signal(signal);
        api.host.wait_for_line(&format!("{name} is ignored"));
        assert_eq!(api.send("GET", "/healthz", &[], None).status, 200);
    }
    stop(&mut api.host);
}
