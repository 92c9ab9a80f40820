//! `campanile schedule backfill` and `campanile backfill` as a script uses them.

use std::time::Duration;

use campanile_engine::crash::BACKFILL_POINTS;
use campanile_tests::{HostProcess, Place, on_both_empty};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::site::{Site, eventually, keys, list, stop, text};

on_both_empty!(
    a_backfill_request_launches_each_slot_once,
    a_backfill_with_a_failed_launch_exits_with_1,
    an_invalid_backfill_request_is_refused_with_a_hint,
    a_backfill_continues_after_its_command_is_killed,
    ctrl_c_leaves_a_backfill_running_until_it_is_cancelled,
    a_backfill_without_a_host_prints_that_no_host_serves,
    a_host_crash_during_a_backfill_launches_no_slot_twice,
);

const FIRST: &str = "2026-01-01T00:00:00Z";
const FIFTH: &str = "2026-01-05T00:00:00Z";

/// Return a site with a host and the schedule `daily`, which calls one task of `guests` at midnight.
fn site(place: Place, task: &str) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.copy_package("guests");
    let host = site.serve();
    site.add("daily", task, &["--cron", "0 0 * * *"]);
    (site, host)
}

/// Return the arguments of a backfill of `daily` from the first to the fifth of January.
fn backfill_args<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["schedule", "backfill", "daily", "--from", FIRST];
    all.extend(["--to", FIFTH]);
    all.extend(more);
    all
}

/// Return the launches of `daily` that backfills made.
fn backfill_launches(site: &Site) -> Vec<Value> {
    let mut rows = site.launches("daily");
    rows.retain(|row| row["kind"] == "backfill");
    rows
}

fn wait_for_status(site: &Site, id: &str, status: &str) -> Value {
    eventually(|| {
        let shown = site.json(["backfill", "show", id]);
        let is_reached = shown["status"] == status;
        is_reached
            .then(|| shown.clone())
            .ok_or_else(|| format!("{shown:#}"))
    })
}

async fn a_backfill_request_launches_each_slot_once(place: Place) {
    let (site, _host) = site(place, "ok");
    let dry_run = site.json(backfill_args(&["--dry-run"]));
    let expected = json!({
        "schedule": "daily", "slots": 5, "slots_skipped": 0, "slots_removed": 0, "first": FIRST, "last": FIFTH,
    });
    assert_eq!(dry_run, expected);
    assert_eq!(
        site.json(["backfill", "list"]),
        json!([]),
        "a dry run requests nothing"
    );

    let id = "01234567-89ab-cdef-0123-456789abcdef";
    let request = backfill_args(&[
        "--id",
        id,
        "--context",
        r#"{"why": "again"}"#,
        "--by",
        "ada",
    ]);
    let done = site.json(request.clone());
    let expected_keys = [
        "cancelled",
        "context",
        "created_at",
        "created_by",
        "failed",
        "finished_at",
        "forced",
        "from",
        "id",
        "launched",
        "schedule",
        "slots",
        "slots_skipped",
        "spread_ms",
        "status",
        "succeeded",
        "to",
        "unfinished",
    ];
    assert_eq!(keys(&done), expected_keys);
    let summary = (&done["id"], &done["status"], &done["succeeded"]);
    assert_eq!(summary, (&json!(id), &json!("done"), &json!(5)), "{done:#}");
    assert_eq!(done["context"], json!({"why": "again"}));
    let rows = backfill_launches(&site);
    assert_eq!(rows.len(), 5, "{rows:#?}");
    assert!(rows.iter().all(|row| row["status"] == "succeeded"));

    // The same request with the same id is the same backfill. Another request with that id is refused.
    let again = site.run(request.iter().copied().chain(["--json"]));
    assert_eq!((again.code, again.json()), (0, done));
    again.assert_stderr("was requested before, and is done");
    assert_eq!(backfill_launches(&site).len(), 5);
    site.run(backfill_args(&["--id", id, "--force"]))
        .assert_refused(&["--force false instead of true", "choose another id"]);

    let dry_run = site.ok(backfill_args(&["--dry-run"]));
    let expected = format!(
        "5 slots from {FIRST} to {FIFTH}; 5 are left alone: they succeeded, are unfinished, or were skipped by a person\n"
    );
    assert_eq!(dry_run, expected);
    let forced = site.run(backfill_args(&["--force", "--spread", "5ms"]));
    assert_eq!(forced.code, 0, "{forced:?}");
    let lines: Vec<&str> = forced.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{forced:?}");
    assert!(lines[0].ends_with(&format!(": 5 slots from {FIRST} to {FIFTH}")));
    assert_eq!(lines[1], "done: 5 of 5 slots finished, 5 succeeded");
    assert_eq!(backfill_launches(&site).len(), 10);

    let all = list(site.json(["backfill", "list"]));
    assert_eq!(all.len(), 2);
    assert_eq!(all[1], site.json(["backfill", "show", id]));
    let shown = site.ok(["backfill", "show", id]);
    assert!(
        shown.contains("created by  ada") && shown.contains("5 succeeded"),
        "{shown}"
    );
    let events = list(site.json(["event", "list"]));
    let of = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!((of("backfill_started"), of("backfill_done")), (2, 2));
}

async fn a_backfill_with_a_failed_launch_exits_with_1(place: Place) {
    let (site, _host) = site(place, "fail_permanent");
    let failed = site.run(backfill_args(&[]));
    assert_eq!(failed.code, 1, "{failed:?}");
    let last = failed.stdout.lines().last();
    assert_eq!(last, Some("done: 5 of 5 slots finished, 5 failed"));
    // A failed launch does not protect its slot from another backfill.
    let dry_run = site.json(backfill_args(&["--dry-run"]));
    assert_eq!(dry_run["slots_skipped"], 0);
}

async fn an_invalid_backfill_request_is_refused_with_a_hint(place: Place) {
    let (site, _host) = site(place, "ok");
    site.add("minutely", "ok", &["--cron", "* * * * *"]);
    let request = |name, from, to, more: &[&str]| {
        let fixed = ["schedule", "backfill", name, "--from", from, "--to", to];
        site.run(fixed.into_iter().chain(more.iter().copied()))
    };
    request("daily", FIFTH, FIRST, &[])
        .assert_refused(&["would end before it begins", "exchange the two"]);
    let never = "2099-01-01T00:00:00Z";
    request("daily", never, never, &[])
        .assert_refused(&["is in the future", "a time that is past"]);
    request("daily", "2026-01-01T00:00:01Z", "2026-01-01T23:59:59Z", &[]).assert_refused(&[
        "no slot from",
        "the next one after that is 2026-01-02T00:00:00Z",
    ]);
    request("dayly", FIRST, FIFTH, &[])
        .assert_refused(&["no schedule named", "did you mean `daily`?"]);
    let quarter = "2026-04-01T00:00:00Z";
    request("minutely", FIRST, quarter, &[]).assert_refused(&[
        "has 129601 slots",
        "more than 100000",
        "`--yes`",
    ]);
    request("minutely", "1970-01-01T00:00:00Z", FIRST, &["--yes"])
        .assert_refused(&["more than 1000000 slots", "a shorter one"]);
    request("daily", FIRST, FIFTH, &["--context", "[1]"])
        .assert_refused(&["must be a JSON object"]);
    request("daily", FIRST, FIFTH, &["--context", r#"{"run_id": 1}"#]).assert_refused(&["run_id"]);
    request("daily", FIRST, FIFTH, &["--spread", "0s"]).assert_refused(&["must be from \"1ms\""]);
    request("daily", FIRST, FIFTH, &["--id", "five"]).assert_refused(&["--id"]);
    request("daily", "noon", FIFTH, &[]).assert_refused(&["is not a time", "`yesterday 14:00`"]);
    let unknown = "01234567-89ab-cdef-0123-456789abcdef";
    for what in ["show", "cancel"] {
        site.run(["backfill", what, unknown])
            .assert_refused(&["there is no backfill", "`campanile backfill list`"]);
    }
    assert_eq!(
        site.json(["backfill", "list"]),
        json!([]),
        "no request was stored"
    );
    // A dry run counts the slots without `--yes`.
    let dry_run = request("minutely", FIRST, quarter, &["--dry-run"]);
    assert_eq!(dry_run.code, 0, "{dry_run:?}");
    assert!(dry_run.stdout.starts_with("129601 slots"), "{dry_run:?}");
    dry_run.assert_stderr("need `--yes`");
}

async fn a_backfill_continues_after_its_command_is_killed(place: Place) {
    let (site, host) = site(place, "ok");
    // A drained host launches nothing, so the backfill cannot end before its command is killed.
    let name = text(&site.json(["host", "list"])[0]["name"]);
    site.ok(["host", "drain", &name]);
    host.wait_for_line("this host claims nothing more");
    let id = "01234567-89ab-cdef-0123-456789abcdef";
    let request = backfill_args(&["--id", id]);
    let mut backfill = HostProcess::spawn(&mut site.command(&request));
    backfill.wait_for_line("slots finished");
    backfill.kill();
    let shown = site.json(["backfill", "show", id]);
    assert_eq!(shown["status"], "running", "{shown:#}");
    // The same request follows the running backfill.
    let mut again = HostProcess::spawn(&mut site.command(&request));
    again.wait_for_line("was requested before, and is running");
    site.ok(["host", "drain", &name, "--undo"]);
    assert_eq!(
        again.wait_exit().code(),
        Some(0),
        "{:?}",
        again.stderr_lines()
    );
    assert_eq!(
        again.stdout_lines(),
        ["done: 5 of 5 slots finished, 5 succeeded"]
    );
    assert_eq!(backfill_launches(&site).len(), 5);
}

async fn ctrl_c_leaves_a_backfill_running_until_it_is_cancelled(place: Place) {
    let (site, _host) = site(place, "ok");
    let id = "01234567-89ab-cdef-0123-456789abcdef";
    let request = backfill_args(&["--id", id, "--spread", "1h"]);
    let mut backfill = HostProcess::spawn(&mut site.command(&request));
    backfill.wait_for_line("slots finished");
    backfill.signal(Signal::INT);
    assert_eq!(backfill.wait_exit().code(), Some(1));
    let log = backfill.stderr_lines().join("\n");
    for part in [
        "continues without this command".to_owned(),
        format!("campanile backfill show {id} --follow"),
        format!("campanile backfill cancel {id}"),
    ] {
        assert!(log.contains(&part), "{log}");
    }
    eventually(|| {
        let shown = site.json(["backfill", "show", id]);
        let is_started = (&shown["succeeded"], &shown["unfinished"]) == (&json!(1), &json!(4));
        is_started.then_some(()).ok_or_else(|| format!("{shown:#}"))
    });
    let mut following = HostProcess::spawn(&mut site.command(["backfill", "show", id, "--follow"]));
    following.wait_for_line("slots finished");
    let cancelled = site.ok(["backfill", "cancel", id, "--by", "bob"]);
    assert_eq!(
        cancelled,
        format!("cancelled backfill {id}: 4 launches had not started\n")
    );
    assert_eq!(
        following.wait_exit().code(),
        Some(1),
        "exit code 1: not all launches succeeded"
    );
    let last = following.stdout_lines().pop();
    let expected = "cancelled: 5 of 5 slots finished, 1 succeeded, 4 cancelled";
    assert_eq!(last.as_deref(), Some(expected));
    site.run(["backfill", "cancel", id])
        .assert_refused(&["is cancelled already"]);
    let skipped = backfill_launches(&site);
    let skipped = skipped.iter().filter(|row| row["reason"] == "cancelled");
    assert_eq!(skipped.count(), 4);
    let events = list(site.json(["event", "list"]));
    let event = events
        .iter()
        .find(|event| event["kind"] == "backfill_cancelled");
    let detail = text(&event.expect("an event")["detail"]);
    assert!(detail.contains("by bob"), "{detail}");
}

async fn a_backfill_without_a_host_prints_that_no_host_serves(place: Place) {
    let (site, mut host) = site(place, "ok");
    stop(&mut host);
    let mut backfill = HostProcess::spawn(&mut site.command(backfill_args(&["--json"])));
    let line = backfill.wait_for_line("no host serves");
    assert!(line.contains("start `campanile serve`"), "{line}");
    backfill.stays_up(Duration::from_secs(1));
    assert_eq!(
        backfill.stdout_lines(),
        [""; 0],
        "stdout is empty until the end"
    );
    let _host = site.serve();
    assert_eq!(
        backfill.wait_exit().code(),
        Some(0),
        "{:?}",
        backfill.stderr_lines()
    );
    let done: Value = serde_json::from_str(&backfill.stdout_lines().join("\n")).expect("JSON");
    assert_eq!(
        (&done["status"], &done["succeeded"]),
        (&json!("done"), &json!(5))
    );
}

async fn a_host_crash_during_a_backfill_launches_no_slot_twice(place: Place) {
    let (site, mut host) = site(place, "ok");
    stop(&mut host);
    for (number, point) in (1..).zip(BACKFILL_POINTS) {
        let mut command = site.command(["serve"]);
        let mut crashing = HostProcess::spawn(command.env("CAMPANILE_CRASH_AT", point));
        crashing.wait_for_line("serving");
        let detached = site.json(backfill_args(&["--force", "--detach"]));
        assert_eq!(crashing.wait_exit().code(), None, "the host aborts");
        let id = text(&detached["id"]);
        let shown = site.json(["backfill", "show", &id]);
        let launched = if point.starts_with("before") { 0 } else { 5 };
        assert_eq!(shown["launched"], launched, "{point}");
        assert_eq!(shown["unfinished"], launched, "{point}");

        let mut host = site.serve();
        let shown = wait_for_status(&site, &id, "done");
        assert_eq!(
            (&shown["launched"], &shown["succeeded"]),
            (&json!(5), &json!(5))
        );
        assert_eq!(backfill_launches(&site).len(), 5 * number, "{point}");
        stop(&mut host);
    }
}
