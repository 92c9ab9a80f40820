//! The commands by which an operator finds, follows, ends and repeats launches, and what a host logs about them.

use campanile_model::clock::{Clock, Timestamp};
use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, text};

on_both_empty!(
    an_id_may_be_short_and_that_of_the_launch_or_of_the_run,
    a_list_of_launches_is_filtered,
    a_running_launch_is_ended_by_its_host_and_an_ended_one_is_not,
    a_launch_is_retried_and_its_end_awaited,
    a_run_and_the_events_are_followed,
    a_schedule_is_added_disabled,
    a_schedules_file_disables_and_enables_a_schedule,
    the_next_slots_after_a_time_are_listed,
    a_host_logs_failed_and_skipped_launches_and_with_verbose_also_the_others,
);

/// Return the part of an id that lists show.
fn short(id: &str) -> &str {
    &id[..18]
}

async fn an_id_may_be_short_and_that_of_the_launch_or_of_the_run(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["ok"]);
    let first = site.trigger_and_wait("ok");
    let second = site.trigger_and_wait("ok");
    let (launch, run) = (text(&second["id"]), text(&second["run_id"]));

    for id in [&launch, &run, short(&launch)] {
        assert_eq!(site.json(["launch", "show", id])["id"], launch.as_str());
        assert_eq!(site.json(["run", "show", id])["id"], run.as_str());
        assert_eq!(site.json(["run", "logs", id])[0]["task"], "ok");
    }
    let numbered = format!("{}.1", short(&launch));
    assert_eq!(site.json(["run", "show", &numbered])["id"], run.as_str());
    let other = format!("{}.2", short(&launch));
    site.run(["run", "show", &other])
        .assert_refused(&["there is no run"]);
    let printed = site.ok(["launch", "list"]);
    assert!(
        printed.contains(short(&launch)) && !printed.contains(&launch),
        "{printed}"
    );
    let printed = site.ok(["run", "list"]);
    assert!(
        printed.contains(&numbered) && !printed.contains(&run),
        "{printed}"
    );
    for command in ["launch", "run"] {
        let page = site.json([command, "list", "--after", short(&launch)]);
        let page = list(page);
        let ids: Vec<String> = page.iter().map(|row| text(&row["id"])).collect();
        let expected = if command == "run" {
            &first["run_id"]
        } else {
            &first["id"]
        };
        assert_eq!(ids, [text(expected)]);
    }

    let (ambiguous, one) = (&launch[..4], text(&first["id"]));
    let refused = site.run(["launch", "show", ambiguous]);
    refused.assert_refused(&[
        "several launches",
        &launch,
        &one,
        "more digits",
        "succeeded",
    ]);
    site.run(["run", "cancel", ambiguous])
        .assert_refused(&["several launches"]);
    site.run(["run", "logs", "ffff"])
        .assert_refused(&["no launch whose id begins with ffff"]);
    for invalid in ["01a", "nightly", "01a1fd88.0"] {
        let refused = site.run(["launch", "show", invalid]);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
        refused.assert_stderr("no id of a launch or a run");
    }
}

async fn a_list_of_launches_is_filtered(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["ok", "fail_permanent"]);
    let good = text(&site.trigger_and_wait("ok")["id"]);
    let bad = text(&site.trigger_and_wait("fail_permanent")["id"]);
    let ids = |more: &[&str]| -> Vec<String> {
        let found = site.json([&["launch", "list"][..], more].concat());
        list(found).iter().map(|row| text(&row["id"])).collect()
    };
    for (more, expected) in [
        (&["--status", "failed,abandoned"][..], &[&bad][..]),
        (&["--status", "succeeded"], &[&good]),
        (&["--kind", "manual"], &[&bad, &good]),
        (&["--kind", "catchup"], &[]),
        (&["--reason", "failed"], &[&bad]),
        (&["--package", "guests", "--schedule", "ok"], &[&good]),
        (&["--since", "1h"], &[&bad, &good]),
        (&["--until", "1h"], &[]),
        (
            &["--since", "2020-01-01T00:00:00Z", "--status", "failed"],
            &[&bad],
        ),
    ] {
        let expected: Vec<String> = expected.iter().map(|id| (*id).clone()).collect();
        assert_eq!(ids(more), expected, "{more:?}");
    }
    for (more, part) in [
        (["--status", "faild"], "did you mean `failed`?"),
        (["--kind", "cron"], "must be `schedule`"),
        (["--since", "noon"], "neither a time"),
    ] {
        let refused = site.run([&["launch", "list"][..], &more].concat());
        assert_eq!(
            (refused.code, refused.stdout.as_str()),
            (2, ""),
            "{refused:?}"
        );
        refused.assert_stderr(part);
    }
}

async fn a_running_launch_is_ended_by_its_host_and_an_ended_one_is_not(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["sleep", "sleep_until_cancelled", "ok"]);
    // A task that does not look at the request is dropped after the grace, and one that does ends by itself.
    for (task, more, succeeds) in [
        ("sleep", &["--grace", "300ms"][..], false),
        ("sleep_until_cancelled", &["--grace", "60s"], true),
    ] {
        let launch = site.trigger(task, &json!({"ms": 600_000}));
        site.wait_for_launch(task, |row| row["status"] == "running");
        let asked = ["run", "cancel", short(&launch), "--by", "ada"];
        let asked = site.json([&asked[..], more].concat());
        assert_eq!(
            (&asked["launch"], &asked["status"]),
            (&json!(launch), &json!("running"))
        );
        assert!(asked["deadline"].is_string(), "{asked}");
        let row = site.wait_until_ended(task, &launch);
        if succeeds {
            assert_eq!(
                (&row["status"], &row["reason"]),
                (&json!("succeeded"), &Value::Null)
            );
        } else {
            assert_eq!(
                (&row["status"], &row["reason"]),
                (&json!("cancelled"), &json!("operator"))
            );
            assert!(
                text(&row["message"]).starts_with("ada asked it to end; "),
                "{row:#}"
            );
        }
        let events = list(site.json(["event", "list", "--limit", "20"]));
        let is_named =
            |event: &&Value| event["kind"] == "launch_cancelled" && event["subject"] == task;
        let event = events.iter().find(is_named).expect("an event");
        assert!(text(&event["detail"]).contains("ada asked slot"), "{event}");
        let before = site.json(["launch", "show", &launch]);
        site.run(["run", "cancel", &launch])
            .assert_refused(&["has ended already", "run retry"]);
        assert_eq!(site.json(["launch", "show", &launch]), before);
    }
    let unknown = "00000000-0000-0000-0000-000000000000";
    site.run(["run", "cancel", unknown])
        .assert_refused(&["there is no launch"]);
    site.run(["run", "retry", unknown])
        .assert_refused(&["there is no launch"]);
}

async fn a_launch_is_retried_and_its_end_awaited(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["echo", "fail_permanent", "sleep"]);
    let first = site.trigger("echo", &json!({"day": 7}));
    site.wait_until_ended("echo", &first);
    let done = site.json(["run", "retry", short(&first), "--wait", "--by", "ada"]);
    assert_eq!(
        (&done["status"], &done["retry_of"]),
        (&json!("succeeded"), &json!(first))
    );
    assert_eq!(done["tasks"][0]["output"]["day"], 7);
    let again = text(&done["id"]);
    let shown = site.json(["launch", "show", &first]);
    assert_eq!(done["scheduled_time"], shown["scheduled_time"]);
    assert_eq!(
        (&shown["status"], &shown["retry_of"]),
        (&json!("succeeded"), &Value::Null)
    );
    assert!(site.ok(["launch", "show", &again]).contains(&first));

    let printed = site.run([
        "schedule",
        "trigger",
        "echo",
        "--wait",
        "--context",
        "{\"day\": 8}",
    ]);
    assert_eq!(printed.code, 0, "{printed:?}");
    printed.assert_stdout("== echo (attempt 1)");
    assert!(
        printed.stdout.contains("echo: {") && printed.stdout.contains("\"day\":8"),
        "{printed:?}"
    );
    assert!(
        printed.stderr.contains("triggered echo") && printed.stderr.contains("succeeded"),
        "{printed:?}"
    );

    let failed = site.run(["schedule", "trigger", "fail_permanent", "--wait", "--json"]);
    assert_eq!(
        (failed.code, &failed.json()["status"]),
        (1, &json!("failed")),
        "{failed:?}"
    );
    let failed = site.run(["run", "retry", &text(&failed.json()["id"]), "--wait"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    failed.assert_stderr("failed: failed: ");

    let running = site.trigger("sleep", &json!({"ms": 600_000}));
    site.wait_for_launch("sleep", |row| row["status"] == "running");
    site.run(["run", "retry", &running])
        .assert_refused(&["has not ended: it is running", "run cancel"]);
    assert_eq!(site.launches("sleep").len(), 1);
    // A launch that its overlap policy skips is not awaited.
    let skipped = site.run(["schedule", "trigger", "sleep", "--wait", "--json"]);
    assert_eq!(
        (skipped.code, &skipped.json()["decision"]),
        (1, &json!("skipped"))
    );
}

async fn a_run_and_the_events_are_followed(place: Place) {
    let tasks = ["sleep", "sleep_until_cancelled", "progress"];
    let (site, _host) = Site::with_tasks(place, &tasks);
    let mut events = site.command(["event", "list", "--follow", "--limit", "1"]);
    let events = HostProcess::spawn(&mut events);
    let wait_for_event = |kind: &str| {
        eventually(|| {
            let lines = events.stdout_lines();
            let found = lines.iter().position(|line| line.contains(kind));
            found.ok_or_else(|| lines.join("\n"))
        })
    };
    assert_eq!(
        wait_for_event("schedule_added"),
        0,
        "the newest event comes first"
    );
    // The earlier ones are beyond the limit, also at the next reads.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(
        events.stdout_lines().len(),
        1,
        "{:?}",
        events.stdout_lines()
    );
    site.ok(["schedule", "pause", "progress", "--by", "ada"]);
    let paused = wait_for_event("schedule_paused");
    site.ok(["schedule", "resume", "progress"]);
    assert!(wait_for_event("schedule_resumed") > paused);
    let lines = events.stdout_lines();
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.contains("schedule_paused"))
            .count(),
        1
    );
    drop(events);

    // This task runs until it is asked to end, and then succeeds.
    let task = "sleep_until_cancelled";
    let launch = site.trigger(task, &json!({"ms": 600_000}));
    site.wait_for_launch(task, |row| row["status"] == "running");
    let mut follow = HostProcess::spawn(&mut site.command(["run", "logs", &launch, "--follow"]));
    follow.stays_up(std::time::Duration::from_secs(1));
    site.ok(["run", "cancel", &launch, "--grace", "60s"]);
    assert!(follow.wait_exit().success(), "{:?}", follow.stderr_lines());
    let first = format!("== {task} (attempt 1)");
    assert_eq!(follow.stdout_lines()[0], first);
    follow.wait_for_line("succeeded");
    let launch = site.trigger("sleep", &json!({"ms": 600_000}));
    site.wait_for_launch("sleep", |row| row["status"] == "running");
    let mut follow = site.command(["run", "logs", &launch, "--follow", "--json"]);
    let mut follow = HostProcess::spawn(&mut follow);
    site.ok(["run", "cancel", &launch, "--grace", "0s"]);
    assert_eq!(follow.wait_exit().code(), Some(1));
    follow.wait_for_line("cancelled");
}

async fn a_schedule_is_added_disabled(place: Place) {
    let (site, _host) = Site::with_tasks(place, &[]);
    let added = site.add("off", "ok", &["--every", "1s", "--disabled"]);
    assert_eq!(
        (&added["enabled"], &added["next_slot"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(added["paused_by"], "the operator");
    assert!(site.ok(["schedule", "list"]).contains("paused"));
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(site.launches("off").len(), 0);
    let resumed_after = Clock::system().now();
    site.ok(["schedule", "resume", "off"]);
    site.wait_for_launch("off", |row| row["status"] == "succeeded");
    // Slots of the pause are skipped, not caught up.
    let launches = site.launches("off");
    let of_pause = |row: &&Value| {
        let first = text(&row["scheduled_time"]).parse::<Timestamp>();
        first.expect("a time") < resumed_after
    };
    let mut of_pause = launches.iter().filter(of_pause);
    assert!(
        of_pause.clone().count() > 0 && of_pause.all(|row| row["reason"] == "paused"),
        "{launches:#?}"
    );
    assert!(launches.iter().all(|row| row["kind"] == "schedule"));
}

async fn a_schedules_file_disables_and_enables_a_schedule(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let write = |lines: &str| {
        let schedule =
            "[[schedules]]\nname = 'hourly'\npackage = 'guests'\ntask = 'ok'\nevery = '1h'\n";
        let path = site.folder().join("schedules.toml");
        std::fs::write(path, format!("{schedule}{lines}")).expect("a schedules file");
    };
    let wait_for = |expected: Value| {
        eventually(|| {
            // The file is applied only once its package is loaded.
            let shown = site.run(["schedule", "show", "hourly", "--json"]).json();
            let found = json!([shown["enabled"], shown["paused_by"], shown["revision"]]);
            (found == expected)
                .then_some(())
                .ok_or_else(|| found.to_string())
        });
    };
    write("enabled = false\n");
    let _host = site.serve();
    wait_for(json!([false, "its definition", 1]));
    write("");
    wait_for(json!([true, null, 1]));
    write("enabled = false\njitter = '1m'\n");
    wait_for(json!([false, "its definition", 2]));
    let path = site.folder().join("schedules.toml");
    std::fs::copy(&path, site.folder().join("other.toml")).expect("a copy");
    write("enabled = true\njitter = '1m'\n");
    wait_for(json!([true, null, 2]));
    let check = site.run(["schedule", "check", "other.toml"]);
    assert_eq!(check.code, 0, "{check:?}");
    check.assert_stdout("enabled  -  ->  false");
    // An operator's pause with an end would let it launch again, so the definition replaces it.
    site.ok([
        "schedule",
        "pause",
        "hourly",
        "--by",
        "ada",
        "--until",
        "2099-01-01T00:00:00Z",
    ]);
    write("enabled = false\njitter = '1m'\n");
    wait_for(json!([false, "its definition", 2]));
    assert_eq!(
        site.json(["schedule", "show", "hourly"])["paused_until"],
        Value::Null
    );
    write("enabled = true\njitter = '1m'\n");
    wait_for(json!([true, null, 2]));
    // An operator's pause without one stays.
    site.ok(["schedule", "pause", "hourly", "--by", "ada"]);
    write("enabled = true\njitter = '2m'\n");
    wait_for(json!([false, "ada", 3]));
}

async fn the_next_slots_after_a_time_are_listed(place: Place) {
    let (site, _host) = Site::with_tasks(place, &[]);
    site.add("daily", "ok", &["--cron", "0 8 * * *"]);
    let after = [
        "schedule",
        "next",
        "daily",
        "-n",
        "2",
        "--after",
        "2040-02-28T09:00:00Z",
    ];
    assert_eq!(
        site.json(after),
        json!(["2040-02-29T08:00:00Z", "2040-03-01T08:00:00Z"])
    );
    site.add(
        "twice",
        "ok",
        &[
            "--every",
            "1h",
            "--anchor",
            "2026-01-01T00:00:00Z",
            "--max-launches",
            "2",
        ],
    );
    let all = list(site.json(["schedule", "next", "twice"]));
    assert_eq!(all.len(), 2);
    let rest = site.json(["schedule", "next", "twice", "--after", &text(&all[0])]);
    assert_eq!(list(rest), all[1..]);
    let none = site.json(["schedule", "next", "twice", "--after", &text(&all[1])]);
    assert_eq!(none, json!([]));
}

async fn a_host_logs_failed_and_skipped_launches_and_with_verbose_also_the_others(place: Place) {
    let (site, mut host) = Site::with_tasks(place, &["ok", "fail_permanent", "sleep"]);
    let bad = site.trigger("fail_permanent", &json!({}));
    let line = host.wait_for_line("`fail_permanent`");
    assert!(
        line.contains("WARN") && line.contains(short(&bad)),
        "{line}"
    );
    assert!(line.contains(": failed: failed: "), "{line}");
    // One launch runs, so each further slot is skipped.
    site.add(
        "busy",
        "sleep",
        &["--every", "1s", "--context", "{\"ms\": 600000}"],
    );
    let line = host.wait_for_line(": skipped: overlap");
    assert!(line.contains("`busy`"), "{line}");
    site.ok(["schedule", "pause", "busy"]);
    // A queued launch is skipped when a newer one takes its place.
    let options = [
        "--every",
        "1s",
        "--context",
        "{\"ms\": 600000}",
        "--overlap",
        "buffer_one",
        "--keep",
        "latest",
    ];
    site.add("newest", "sleep", &options);
    let line = host.wait_for_line("took its place");
    assert!(
        line.contains("WARN") && line.contains("`newest`, launch "),
        "{line}"
    );
    assert!(line.contains(": skipped: overlap: launch "), "{line}");
    site.ok(["schedule", "pause", "newest"]);
    site.trigger_and_wait("ok");
    let is_success = |line: &String| line.contains("`ok`") && line.contains("succeeded");
    assert!(!host.stderr_lines().iter().any(is_success));
    host.kill();

    let host = site.serve_with(&["--verbose"]);
    let good = site.trigger("ok", &json!({}));
    let line = host.wait_for_line(": succeeded");
    assert!(
        line.contains("`ok`") && line.contains(short(&good)),
        "{line}"
    );
}
