//! `campanile schedule backfill` and `campanile backfill` as a script meets them.

use std::time::Duration;

use campanile_engine::crash::BACKFILL_POINTS;
use campanile_tests::{HostProcess, Place, on_both_empty};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::site::{Site, eventually, keys, list, text};

on_both_empty!(
    a_backfill_is_tried_asked_for_and_looked_at,
    a_launch_that_fails_is_exit_code_1,
    what_is_asked_for_wrongly_is_refused_with_the_fix,
    a_backfill_outlives_the_command_that_asked_for_it,
    a_backfill_is_left_with_ctrl_c_and_cancelled,
    a_backfill_that_nobody_carries_out_says_so,
    a_host_that_dies_over_a_backfill_launches_nothing_twice,
);

const FIRST: &str = "2026-01-01T00:00:00Z";
const FIFTH: &str = "2026-01-05T00:00:00Z";

/// A site that serves the schedule `daily`, of midnight, of one task of the guests.
fn site(place: Place, task: &str) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.bring("guests");
    let host = site.serve();
    site.add("daily", task, &["--cron", "0 0 * * *"]);
    (site, host)
}

/// The arguments that fill `daily` back, from the first to the fifth of January.
fn five<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["schedule", "backfill", "daily", "--from", FIRST];
    all.extend(["--to", FIFTH]);
    all.extend(more);
    all
}

/// The launches of backfills, as the record has them.
fn filled_back(site: &Site) -> Vec<Value> {
    let mut rows = site.launches("daily");
    rows.retain(|row| row["kind"] == "backfill");
    rows
}

fn until_state(site: &Site, id: &str, state: &str) -> Value {
    eventually(|| {
        let seen = site.json(["backfill", "show", id]);
        let is = seen["status"] == state;
        is.then(|| seen.clone()).ok_or_else(|| format!("{seen:#}"))
    })
}

async fn a_backfill_is_tried_asked_for_and_looked_at(place: Place) {
    let (site, _host) = site(place, "ok");
    let tried = site.json(five(&["--dry-run"]));
    let expected = json!({
        "schedule": "daily", "slots": 5, "slots_skipped": 0, "first": FIRST, "last": FIFTH,
    });
    assert_eq!(tried, expected);
    assert_eq!(site.json(["backfill", "list"]), json!([]), "only tried");

    let id = "01234567-89ab-cdef-0123-456789abcdef";
    let request = five(&["--id", id, "--context", r#"{"why": "back"}"#, "--by", "ada"]);
    let done = site.json(request.clone());
    let known = [
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
    assert_eq!(keys(&done), known);
    let told = (&done["id"], &done["status"], &done["succeeded"]);
    assert_eq!(told, (&json!(id), &json!("done"), &json!(5)), "{done:#}");
    assert_eq!(done["context"], json!({"why": "back"}));
    let rows = filled_back(&site);
    assert_eq!(rows.len(), 5, "{rows:#?}");
    assert!(rows.iter().all(|row| row["status"] == "succeeded"));

    // The same again is the same one; under its id there is no other.
    let again = site.run(request.iter().copied().chain(["--json"]));
    assert_eq!((again.code, again.json()), (0, done));
    assert!(again.stderr.contains("was requested before, and is done"));
    assert_eq!(filled_back(&site).len(), 5);
    site.run(five(&["--id", id, "--force"]))
        .refused(&["--force false instead of true", "choose another id"]);

    let tried = site.ok(five(&["--dry-run"]));
    let expected = format!(
        "5 slots from {FIRST} to {FIFTH}; 5 are left alone: they succeeded, are unfinished, or were skipped by a person\n"
    );
    assert_eq!(tried, expected);
    let forced = site.run(five(&["--force", "--spread", "5ms"]));
    assert_eq!(forced.code, 0, "{forced:?}");
    let lines: Vec<&str> = forced.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{forced:?}");
    assert!(lines[0].ends_with(&format!(": 5 slots from {FIRST} to {FIFTH}")));
    assert_eq!(lines[1], "done: 5 of 5 slots finished, 5 succeeded");
    assert_eq!(filled_back(&site).len(), 10);

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

async fn a_launch_that_fails_is_exit_code_1(place: Place) {
    let (site, _host) = site(place, "fail_permanent");
    let failed = site.run(five(&[]));
    assert_eq!(failed.code, 1, "{failed:?}");
    let last = failed.stdout.lines().last();
    assert_eq!(last, Some("done: 5 of 5 slots finished, 5 failed"));
    // What failed is not left alone.
    let tried = site.json(five(&["--dry-run"]));
    assert_eq!(tried["slots_skipped"], 0);
}

async fn what_is_asked_for_wrongly_is_refused_with_the_fix(place: Place) {
    let (site, _host) = site(place, "ok");
    site.add("minutely", "ok", &["--cron", "* * * * *"]);
    let ask = |name, from, to, more: &[&str]| {
        let whole = ["schedule", "backfill", name, "--from", from, "--to", to];
        site.run(whole.into_iter().chain(more.iter().copied()))
    };
    ask("daily", FIFTH, FIRST, &[]).refused(&["would end before it begins", "exchange the two"]);
    let never = "2099-01-01T00:00:00Z";
    ask("daily", never, never, &[]).refused(&["is in the future", "a time that is past"]);
    ask("daily", "2026-01-01T00:00:01Z", "2026-01-01T23:59:59Z", &[]).refused(&[
        "no slot from",
        "the next one after that is 2026-01-02T00:00:00Z",
    ]);
    ask("dayly", FIRST, FIFTH, &[]).refused(&["no schedule named", "did you mean `daily`?"]);
    let quarter = "2026-04-01T00:00:00Z";
    ask("minutely", FIRST, quarter, &[]).refused(&[
        "has 129601 slots",
        "more than 100000",
        "`--yes`",
    ]);
    ask("minutely", "1970-01-01T00:00:00Z", FIRST, &["--yes"])
        .refused(&["more than 1000000 slots", "a shorter one"]);
    ask("daily", FIRST, FIFTH, &["--context", "[1]"]).refused(&["must be a JSON object"]);
    ask("daily", FIRST, FIFTH, &["--context", r#"{"run_id": 1}"#]).refused(&["run_id"]);
    ask("daily", FIRST, FIFTH, &["--spread", "0s"]).refused(&["must be from \"1ms\""]);
    ask("daily", FIRST, FIFTH, &["--id", "five"]).refused(&["--id"]);
    ask("daily", "yesterday", FIFTH, &[]).refused(&["is not an RFC 3339 time"]);
    let unknown = "01234567-89ab-cdef-0123-456789abcdef";
    for what in ["show", "cancel"] {
        site.run(["backfill", what, unknown])
            .refused(&["there is no backfill", "`campanile backfill list`"]);
    }
    assert_eq!(
        site.json(["backfill", "list"]),
        json!([]),
        "nothing half-done"
    );
    // Tried, it is counted all the same.
    let tried = ask("minutely", FIRST, quarter, &["--dry-run"]);
    assert_eq!(tried.code, 0, "{tried:?}");
    assert!(tried.stdout.starts_with("129601 slots"), "{tried:?}");
    assert!(tried.stderr.contains("need `--yes`"), "{tried:?}");
}

async fn a_backfill_outlives_the_command_that_asked_for_it(place: Place) {
    let (site, _host) = site(place, "sleep");
    let id = "01234567-89ab-cdef-0123-456789abcdef";
    let request = five(&["--id", id, "--context", r#"{"ms": 600}"#]);
    let mut asking = HostProcess::spawn(&mut site.command(&request));
    asking.wait_for_line("slots finished");
    asking.kill();
    let seen = site.json(["backfill", "show", id]);
    assert_eq!(seen["status"], "running", "{seen:#}");
    // The same request takes up where that one ended.
    let said = site.run(request);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stderr.contains("was requested before, and is running"),
        "{said:?}"
    );
    assert_eq!(said.stdout, "done: 5 of 5 slots finished, 5 succeeded\n");
    assert_eq!(filled_back(&site).len(), 5);
}

async fn a_backfill_is_left_with_ctrl_c_and_cancelled(place: Place) {
    let (site, _host) = site(place, "ok");
    let id = "01234567-89ab-cdef-0123-456789abcdef";
    let request = five(&["--id", id, "--spread", "1h"]);
    let mut asking = HostProcess::spawn(&mut site.command(&request));
    asking.wait_for_line("slots finished");
    asking.signal(Signal::INT);
    assert_eq!(asking.wait_exit().code(), Some(1));
    let said = asking.stderr_lines().join("\n");
    for part in [
        "continues without this command".to_owned(),
        format!("campanile backfill show {id} --follow"),
        format!("campanile backfill cancel {id}"),
    ] {
        assert!(said.contains(&part), "{said}");
    }
    eventually(|| {
        let seen = site.json(["backfill", "show", id]);
        let begun = (&seen["succeeded"], &seen["unfinished"]) == (&json!(1), &json!(4));
        begun.then_some(()).ok_or_else(|| format!("{seen:#}"))
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
        "not all were launched"
    );
    let last = following.stdout_lines().pop();
    let expected = "cancelled: 5 of 5 slots finished, 1 succeeded, 4 cancelled";
    assert_eq!(last.as_deref(), Some(expected));
    site.run(["backfill", "cancel", id])
        .refused(&["is cancelled already"]);
    let skipped = filled_back(&site);
    let skipped = skipped.iter().filter(|row| row["reason"] == "cancelled");
    assert_eq!(skipped.count(), 4);
    let events = list(site.json(["event", "list"]));
    let event = events
        .iter()
        .find(|event| event["kind"] == "backfill_cancelled");
    let detail = text(&event.expect("an event")["detail"]);
    assert!(detail.contains("by bob"), "{detail}");
}

async fn a_backfill_that_nobody_carries_out_says_so(place: Place) {
    let (site, mut host) = site(place, "ok");
    host.terminate();
    assert!(host.wait_exit().success());
    let mut asking = HostProcess::spawn(&mut site.command(five(&["--json"])));
    let said = asking.wait_for_line("no host serves");
    assert!(said.contains("start `campanile serve`"), "{said}");
    asking.stays_up(Duration::from_secs(1));
    assert_eq!(asking.stdout_lines(), [""; 0], "nothing before the end");
    let _host = site.serve();
    assert_eq!(
        asking.wait_exit().code(),
        Some(0),
        "{:?}",
        asking.stderr_lines()
    );
    let done: Value = serde_json::from_str(&asking.stdout_lines().join("\n")).expect("JSON");
    assert_eq!(
        (&done["status"], &done["succeeded"]),
        (&json!("done"), &json!(5))
    );
}

async fn a_host_that_dies_over_a_backfill_launches_nothing_twice(place: Place) {
    let (site, mut host) = site(place, "ok");
    host.terminate();
    assert!(host.wait_exit().success());
    for (number, point) in (1..).zip(BACKFILL_POINTS) {
        let mut command = site.command(["serve"]);
        let mut dying = HostProcess::spawn(command.env("CAMPANILE_CRASH_AT", point));
        dying.wait_for_line("serving");
        let asked = site.json(five(&["--force", "--detach"]));
        assert_eq!(dying.wait_exit().code(), None, "it aborts");
        let id = text(&asked["id"]);
        let seen = site.json(["backfill", "show", &id]);
        let launched = if point.starts_with("before") { 0 } else { 5 };
        assert_eq!(seen["launched"], launched, "{point}");
        assert_eq!(seen["unfinished"], launched, "{point}");

        let mut host = site.serve();
        let seen = until_state(&site, &id, "done");
        assert_eq!(
            (&seen["launched"], &seen["succeeded"]),
            (&json!(5), &json!(5))
        );
        assert_eq!(filled_back(&site).len(), 5 * number, "{point}");
        host.terminate();
        assert!(host.wait_exit().success());
    }
}
