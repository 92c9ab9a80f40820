//! Numbers that do not fit into 64 bits stay as they're written: from the operator to the task, and back to the operator.

use campanile_tests::{Place, on_both_empty};

use crate::api::Api;
use crate::site::{CommandOutput, text};

on_both_empty!(
    numbers_stay_as_they_are_written,
    what_no_reader_can_hold_is_refused_where_it_is_given,
);

/// Prints its context, which so becomes its output.
const CAT: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (loop $more
            (i32.store (i32.const 0) (i32.const 64))
            (i32.store (i32.const 4) (i32.const 60000))
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (if (i32.load (i32.const 8)) (then
                (i32.store (i32.const 4) (i32.load (i32.const 8)))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))
                (br $more))))))"#;

/// The numbers, each in a key of its own, in lists and in objects.
const NUMBERS: &str = r#""large":12345678901234567890123,"long":{"list":[1.10,0.12345678901234567890]},"small":-0,"thousand":1E+3"#;

/// Runs a command on the database, or over the API.
type Run<'r> = &'r dyn Fn(&[&str]) -> CommandOutput;

/// Asserts that an output has all numbers as they were written, whatever spaces it has.
#[track_caller]
fn assert_numbers(what: &str, output: &CommandOutput) {
    assert_eq!(output.code, 0, "{what}: {output:?}");
    let found: String = output.stdout.split_whitespace().collect();
    assert!(found.contains(NUMBERS), "{what}: {output:?}");
}

async fn numbers_stay_as_they_are_written(place: Place) {
    let site = crate::site::Site::new(place);
    let cat = wat::parse_str(CAT).expect("WebAssembly");
    std::fs::write(site.plugin("cat.wasm"), cat).expect("a package");
    let api = Api::of(site);
    let local = |args: &[&str]| api.site.run(args.iter().copied());
    let remote = |args: &[&str]| api.run(args);
    let ways: [(&str, Run<'_>); 2] = [("local", &local), ("remote", &remote)];
    let context = format!("{{{NUMBERS}}}");
    let fixed = ["--package", "cat", "--at", "2099-01-01T00:00:00Z"];
    for (way, run) in ways {
        // As the context of a schedule, and after an edit of something else.
        let add = ["schedule", "add", way, "--context", &context];
        let added = run(&[&add[..], &fixed].concat());
        assert_eq!(added.code, 0, "{added:?}");
        let edited = run(&["schedule", "edit", way, "--priority", "7"]);
        assert_eq!(edited.code, 0, "{edited:?}");
        let launch = api.post(
            &format!("/api/v1/schedules/{way}/trigger"),
            serde_json::json!({}),
        );
        let launch = text(&launch["launch"]);
        api.end_of(&launch);
        // As that of one launch.
        let plain = format!("{way}-plain");
        let added = run(&[&["schedule", "add", &plain][..], &fixed].concat());
        assert_eq!(added.code, 0, "{added:?}");
        let triggered = run(&[
            "schedule",
            "trigger",
            &plain,
            "--context",
            &context,
            "--json",
        ]);
        let triggered = text(&triggered.json()["launch"]);
        api.end_of(&triggered);
        // And as that of a backfill.
        let range = [
            "--from",
            "2026-01-01T00:00:00Z",
            "--to",
            "2026-01-01T02:00:00Z",
        ];
        let hourly = format!("{way}-hourly");
        let every = ["--package", "cat", "--cron", "0 * * * *"];
        let added = run(&[&["schedule", "add", &hourly][..], &every].concat());
        assert_eq!(added.code, 0, "{added:?}");
        let fill = [
            "schedule",
            "backfill",
            &hourly,
            "--context",
            &context,
            "--json",
        ];
        let backfill = run(&[&fill[..], &range].concat());
        let backfill = text(&backfill.json()["id"]);

        for (shown, show) in ways {
            for more in [&["--json"][..], &[]] {
                for (what, args) in [
                    ("a run of a schedule", &["run", "show", &launch][..]),
                    ("a triggered run", &["run", "show", &triggered]),
                    ("a schedule", &["schedule", "show", way]),
                    ("a backfill", &["backfill", "show", &backfill]),
                ] {
                    let what = format!("{way}, {shown}: {what} {more:?}");
                    // For people, a detail of a schedule has no context.
                    if more.is_empty() && args[0] != "run" {
                        continue;
                    }
                    assert_numbers(&what, &show(&[args, more].concat()));
                }
                let listed = show(&["schedule", "list", "--json"]);
                assert_numbers("a list of schedules", &listed);
            }
        }
        // Both ways show the same.
        for args in [
            ["run", "show", &launch],
            ["launch", "show", &launch],
            ["schedule", "show", way],
        ] {
            let args = [&args[..], &["--json"]].concat();
            assert_eq!(local(&args).stdout, remote(&args).stdout, "{args:?}");
        }
    }
    // A form of a page has the context as it is, and stores it so.
    let browser = crate::browser::Browser::of(&api, &api.token);
    let page = browser.get("/schedules/local/edit");
    for number in [
        "12345678901234567890123",
        "1.10",
        "0.12345678901234567890",
        "1E+3",
    ] {
        assert!(page.body.contains(number), "{number}: {:.300}", page.body);
    }
    // The tool for assistants reads the same record.
    let message = serde_json::json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "show_schedule", "arguments": {"schedule": "local"}}});
    let accept = ("Accept", "application/json, text/event-stream");
    let answer = api.send("POST", "/mcp", &[accept], Some(&message));
    assert!(
        answer.body.contains("12345678901234567890123"),
        "{answer:?}"
    );

    let run = [
        "task",
        "run",
        "plugins/cat.wasm",
        "--context",
        &context,
        "--json",
    ];
    assert_numbers("a trial", &api.site.run(run));
}

async fn what_no_reader_can_hold_is_refused_where_it_is_given(place: Place) {
    let api = Api::start(place, "");
    api.add("echo", "echo");
    for context in [r#"{"n":1e400}"#, r#"{"a":[{"n":-1e999}]}"#] {
        for args in [
            &["schedule", "trigger", "echo", "--context", context][..],
            &["schedule", "edit", "echo", "--context", context],
            &[
                "schedule",
                "add",
                "a",
                "--package",
                "guests",
                "--at",
                "2099-01-01T00:00:00Z",
                "--context",
                context,
            ],
        ] {
            for refused in [api.site.run(args.iter().copied()), api.run(args)] {
                refused.assert_refused(&["--context: not JSON: number out of range"]);
            }
        }
        let body = format!("{{\"context\":{context}}}");
        let head = api.head("POST", "/api/v1/schedules/echo/trigger");
        let request = format!(
            "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        crate::api::raw(api.address, &request).assert_problem(400, "number out of range");
    }
}
