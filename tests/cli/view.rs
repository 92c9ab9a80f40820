//! What an operator looks at again and again: statistics, `--watch`, `top`; and the error codes that programs read.

use std::io::Read as _;
use std::process::Stdio;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{CommandOutput, Site, eventually, keys, list, stop, text};

on_both_empty!(
    statistics_are_shown_of_all_and_of_each_schedule,
    a_command_is_repeated_until_it_is_stopped,
    top_shows_hosts_runs_slots_and_failures,
    an_error_has_a_stable_code,
);

/// A task that fails for good.
const FAILING: &str = "fail_permanent";

async fn statistics_are_shown_of_all_and_of_each_schedule(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["echo", FAILING, "ok"]);
    site.trigger_and_wait("ok");
    site.trigger_and_wait("ok");
    site.trigger_and_wait(FAILING);

    let all = site.json(["stats", "--since", "10m"]);
    assert_eq!(all["launches"], 3, "{all:#}");
    assert_eq!(all["executions_per_minute"], json!(0.3));
    assert_eq!(all["failed_rate"], json!(1.0 / 3.0));
    assert_eq!(all["success_rate"], json!(2.0 / 3.0));
    assert!(all["average_time_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    assert_eq!(
        (&all["lost"], &all["recovery_success_rate"]),
        (&json!(0), &Value::Null)
    );
    let printed = site.ok(["stats", "--since", "10m"]);
    assert!(printed.contains("33.33 %"), "{printed}");

    let each = list(site.json(["stats", "--by", "schedule", "--since", "10m"]));
    let figures = each.iter().map(|row| {
        let ended = [&row["succeeded"], &row["failed"]].map(|count| count.as_i64().unwrap());
        (text(&row["schedule"]), ended, row["failed_rate"].as_f64())
    });
    assert_eq!(
        figures.collect::<Vec<_>>(),
        [
            ("echo".to_owned(), [0, 0], None),
            (FAILING.to_owned(), [0, 1], Some(1.0)),
            ("ok".to_owned(), [2, 0], Some(0.0)),
        ]
    );
    assert_eq!(each[0]["average_time_ms"], Value::Null);
    let page = [
        "stats", "--by", "schedule", "--limit", "1", "--after", "echo",
    ];
    let page = list(site.json(page));
    assert_eq!((page.len(), &page[0]["schedule"]), (1, &json!(FAILING)));
    let one = site.json(["stats", "--schedule", "ok", "--since", "10m"]);
    assert_eq!(one["executions_per_minute"], json!(0.2));
    assert_eq!(keys(&one), keys(&each[2]));
    assert_eq!(
        (&each[0]["calls"], &each[2]["calls"]),
        (&json!(0), &json!(2))
    );

    let packages = list(site.json(["stats", "--by", "package", "--since", "10m"]));
    let calls = packages.iter().map(|row| row["calls"].as_i64().unwrap());
    assert_eq!(calls.sum::<i64>(), 3, "{packages:#?}");
    let used = ["calls", "cpu_ms", "http_requests", "memory_peak_bytes"];
    for row in &packages {
        let columns = [&used[..], &["package", "record_bytes", "since"]].concat();
        assert_eq!(keys(row), columns, "{row:#}");
        assert!(row["cpu_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{row:#}");
        assert!(
            row["record_bytes"].as_i64().is_some_and(|bytes| bytes > 0),
            "{row:#}"
        );
    }
    let table = site.ok(["stats", "--by", "package"]);
    assert!(table.starts_with("PACKAGE"), "{table}");
    assert!(table.contains("CPU MS") && table.contains("iB"), "{table}");
    // The calls are of one day, unless midnight has passed.
    let days = list(site.json(["stats", "--by", "day"]));
    let calls = days.iter().map(|row| row["calls"].as_i64().unwrap());
    assert_eq!(calls.sum::<i64>(), 3, "{days:#?}");
    let last = days.last().unwrap();
    let last = format!("{}/{}", text(&last["day"]), text(&last["package"]));
    let rest = ["stats", "--by", "day", "--after", &last];
    assert_eq!(site.json(rest), json!([]));

    let table = site.ok(["stats", "--by", "schedule"]);
    assert!(
        table.starts_with("SCHEDULE        LAUNCHES  FAILED  SKIPPED"),
        "{table}"
    );
    assert!(table.contains("100.00 %"), "{table}");

    site.run(["stats", "--schedule", "okk"])
        .assert_refused(&["there is no schedule named `okk`", "did you mean `ok`?"]);
    site.run(["stats", "--limit", "3"])
        .assert_refused(&["--by"]);
    site.run(["stats", "--by", "host"])
        .assert_refused(&["'host'", "schedule"]);
}

/// Start a command that is repeated, end it as Ctrl-C does when its output has `part` that many times, and return its output.
fn watched(site: &Site, args: &[&str], times: usize, part: &str) -> CommandOutput {
    let mut command = site.command(args.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let mut stdout = child.stdout.take().expect("its output");
    let mut seen = Vec::new();
    let mut piece = [0; 4_096];
    while String::from_utf8_lossy(&seen).matches(part).count() < times {
        let read = stdout.read(&mut piece).expect("its output");
        assert_ne!(read, 0, "it ended: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..read]);
    }
    let id = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.expect("an id"), rustix::process::Signal::INT)
        .expect("a signal");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).expect("its output");
    let ended = child.wait_with_output().expect("its end");
    CommandOutput {
        code: ended.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&seen).into_owned(),
        stderr: String::from_utf8(ended.stderr).expect("UTF-8"),
    }
}

async fn a_command_is_repeated_until_it_is_stopped(place: Place) {
    let (site, mut host) = Site::with_tasks(place, &["ok"]);
    let output = watched(&site, &["schedule", "list", "--watch=0.1"], 3, "NAME");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let rounds: Vec<&str> = output.stdout.split("\n\n").collect();
    assert!(rounds.len() >= 3, "{output:?}");
    assert!(
        rounds[0].starts_with("NAME") && rounds[0].contains("\nok "),
        "{output:?}"
    );
    assert!(!output.stdout.contains('\u{1b}'), "no terminal: {output:?}");

    let lines = watched(
        &site,
        &["launch", "list", "--json", "--watch=0.1"],
        2,
        "[]\n",
    );
    assert!(lines.stdout.starts_with("[]\n[]\n"), "{lines:?}");

    // Bad health does not end it.
    stop(&mut host);
    site.add("next", "ok", &["--every", "1h"]);
    let unhealthy = ["health", "--watch=0.1", "--json"];
    let output = watched(&site, &unhealthy, 2, "\"healthy\":false");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    // An error does.
    site.run(["schedule", "show", "no", "--watch"])
        .assert_refused(&["there is no schedule named `no`"]);
    site.run(["stats", "--watch=often"])
        .assert_refused(&["--watch", "a number of seconds from 0.1 to 86400"]);
    site.run(["schedule", "pause", "ok", "--watch"])
        .assert_refused(&["unexpected argument '--watch'"]);
    site.run(["event", "list", "--watch", "--follow"])
        .assert_refused(&["cannot be used with"]);
}

async fn top_shows_hosts_runs_slots_and_failures(place: Place) {
    let (site, _host) = Site::with_tasks(place, &[FAILING, "sleep"]);
    site.add("soon", "ok", &["--every", "1h"]);
    let running = site.trigger("sleep", &json!({"ms": 600_000}));
    site.wait_for_launch("sleep", |row| row["status"] == "running");

    // On a busy machine the minute may be over before the command looks.
    let report = eventually(|| {
        site.trigger_and_wait(FAILING);
        let report = site.json(["top", "--once"]);
        match report["last_minute"]["failed"].as_i64() {
            Some(1..) => Ok(report),
            _ => Err(format!("{report:#}")),
        }
    });
    assert_eq!(
        report["hosts"].as_array().map(Vec::len),
        Some(1),
        "{report:#}"
    );
    assert_eq!(
        report["unfinished"],
        json!({"running": 1, "open": 0, "queued": 0})
    );
    let run = &report["runs"][0];
    assert_eq!(
        (&run["launch"], &run["schedule"]),
        (&json!(running), &json!("sleep"))
    );
    // In seconds.
    let age = run["age"].as_f64();
    assert!(age.is_some_and(|age| age < 600.0), "{run:#}");
    assert_eq!(report["next"][0]["schedule"], "soon");
    assert!(
        report["next"][0]["due_in"]
            .as_f64()
            .is_some_and(|s| s > 0.0)
    );
    assert_eq!(report["failures"][0]["schedule"], FAILING);

    let printed = site.ok(["top", "--once"]);
    for part in [
        "1 running, 0 open, 0 queued",
        "hosts\nNAME",
        "runs\nLAUNCH",
        "next slots\nSCHEDULE",
        "failures\nLAUNCH",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(!printed.contains('\u{1b}'), "{printed}");
    let rounds = watched(&site, &["top", "--watch=0.1"], 2, "last minute");
    assert_eq!((rounds.code, rounds.stderr.as_str()), (0, ""), "{rounds:?}");
    site.ok(["run", "cancel", &running, "--grace", "0s"]);
}

async fn an_error_has_a_stable_code(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["ok"]);
    site.trigger_and_wait("ok");
    site.trigger_and_wait("ok");
    std::fs::write(site.folder().join("wrong.toml"), "[host]\nruns_max = 'x'\n").expect("a file");
    let unavailable = "postgres://nobody@127.0.0.1:1/none";
    let launch = text(&site.launches("ok")[0]["id"]);
    let cases: &[(&[&str], &str)] = &[
        (&["launch", "list", "--limt", "3"], "invalid_argument"),
        (&["schedule", "show"], "invalid_argument"),
        (&[], "invalid_argument"),
        (&["launch", "list", "--since", "noon"], "invalid_argument"),
        (&["cron", "next", "61 * * * *"], "invalid_argument"),
        (
            &["cron", "next", "@daily", "--tz", "PST"],
            "invalid_argument",
        ),
        (
            &["--config", "wrong.toml", "stats"],
            "invalid_configuration",
        ),
        (&["schedule", "show", "no"], "not_found"),
        (&["package", "show", "no"], "not_found"),
        (&["launch", "show", "00000000"], "not_found"),
        (
            &["backfill", "show", "01934f6e-6b00-7000-8000-000000000000"],
            "not_found",
        ),
        (&["launch", "show", &launch[..4]], "ambiguous"),
        (&["run", "cancel", &launch], "conflict"),
        (&["schedule", "resume", "ok"], "conflict"),
        (
            &[
                "schedule",
                "add",
                "ok",
                "--package",
                "guests",
                "--task",
                "ok",
                "--every",
                "1h",
            ],
            "conflict",
        ),
        (&["stats", "--database", unavailable], "unavailable"),
    ];
    for (args, code) in cases {
        let output = site.run(args.iter().copied().chain(["--json"]));
        assert_eq!(output.code, 2, "{args:?}: {output:?}");
        let error = output.json();
        assert_eq!(error["code"], *code, "{args:?}: {output:?}");
        assert_eq!(keys(&error), ["code", "error", "hint"], "{output:?}");
        let message = text(&error["error"]);
        assert!(
            !message.contains('\n') || *code == "ambiguous",
            "{output:?}"
        );
        assert!(!message.starts_with("error"), "{output:?}");
        // Without JSON, stdout stays empty.
        let plain = site.run(args.iter().copied());
        assert_eq!((plain.code, plain.stdout.as_str()), (2, ""), "{plain:?}");
    }
    // A value that looks like the flag is no flag.
    let value = site.run(["launch", "list", "--limt", "--", "--json"]);
    assert_eq!((value.code, value.stdout.as_str()), (2, ""), "{value:?}");
}
