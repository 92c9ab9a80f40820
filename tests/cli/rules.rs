//! Rules whose slots follow events (`--after-completion`, `@reboot`), and a new time zone database.

use std::time::Duration;

use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, millis};

on_both_empty!(
    after_completion_waits_for_the_end_of_each_launch,
    after_completion_counts_an_abandoned_launch_as_ended,
    after_completion_continues_after_an_edit_and_a_missing_package,
    an_edit_during_a_launch_applies_when_the_launch_ends,
    a_paused_slot_is_skipped_and_a_slot_of_a_wrong_clock_is_corrected,
    a_reboot_rule_launches_once_at_every_start_of_a_host,
    a_startup_launch_replaces_unfinished_startup_launches,
    a_new_time_zone_database_moves_next_slots_and_records_an_event,
);

fn site(place: Place) -> Site {
    let site = Site::new(place);
    site.copy_package("guests");
    site
}

/// Wait until `n` launches of a schedule have ended. Return the ended ones, oldest first.
#[track_caller]
fn wait_for_ended(site: &Site, schedule: &str, n: usize) -> Vec<Value> {
    eventually(|| {
        let mut rows = site.launches(schedule);
        rows.retain(|row| !row["finished_at"].is_null());
        match rows.len() >= n {
            true => Ok(rows),
            false => Err(format!("{rows:#?}")),
        }
    })
}

/// Kill the host while a launch of the schedule runs. Return the launches, which nothing changes any more.
#[track_caller]
fn kill_during_launch(site: &Site, mut host: HostProcess, schedule: &str) -> Vec<Value> {
    let is_running = |row: &Value| row["status"] == "running";
    loop {
        site.wait_for_launch(schedule, is_running);
        host.kill();
        // On a busy machine the launch may have ended before its host.
        let rows = site.launches(schedule);
        if rows.last().is_some_and(is_running) {
            return rows;
        }
        host = site.serve();
    }
}

async fn after_completion_waits_for_the_end_of_each_launch(place: Place) {
    let site = site(place);
    site.configure("[recovery]\ninterval = '100ms'\nmax_attempts = 1\n");
    let host = site.serve();
    let context = json!({"ms": 1_200}).to_string();
    let rule = ["--after-completion", "1s", "--context", &context];
    let added = site.add("pause", "sleep", &rule);
    let first = millis(&added["next_slot"]) - millis(&added["created_at"]);
    assert!((0..=1_000).contains(&first), "due at once: {added:#}");
    site.add("failing", "fail_permanent", &["--after-completion", "1s"]);

    wait_for_ended(&site, "pause", 2);
    // The schedule has no next slot while its launch runs, also after a crash of the host.
    kill_during_launch(&site, host, "pause");
    assert_eq!(
        site.json(["schedule", "show", "pause"])["next_slot"],
        Value::Null
    );
    let _host = site.serve();
    let before = wait_for_ended(&site, "pause", 3).len();
    let rows = wait_for_ended(&site, "pause", before + 2);
    for pair in rows.windows(2) {
        let pause = millis(&pair[1]["scheduled_time"]) - millis(&pair[0]["finished_at"]);
        assert_eq!(pause, 1_000, "{pair:#?}");
    }
    let recovered: i64 = rows
        .iter()
        .filter_map(|row| row["recoveries"].as_i64())
        .sum();
    assert_eq!(recovered, 1, "{rows:#?}");
    assert!(
        rows.iter().all(|row| row["status"] == "succeeded"),
        "{rows:#?}"
    );

    let failed = wait_for_ended(&site, "failing", 3);
    assert!(
        failed.iter().all(|row| row["status"] == "failed"),
        "{failed:#?}"
    );
    assert_eq!(site.json(["schedule", "next", "pause"]), json!([]));
}

async fn after_completion_counts_an_abandoned_launch_as_ended(place: Place) {
    let site = site(place);
    site.configure("[recovery]\ninterval = '100ms'\nmax_attempts = 0\n");
    let host = site.serve();
    let context = json!({"ms": 3_000}).to_string();
    let rule = ["--after-completion", "1s", "--context", &context];
    site.add("pause", "sleep", &rule);
    let last = kill_during_launch(&site, host, "pause").len() - 1;
    let _host = site.serve();
    let rows = wait_for_ended(&site, "pause", last + 2);
    assert_eq!(rows[last]["status"], "abandoned", "{rows:#?}");
    let pause = millis(&rows[last + 1]["scheduled_time"]) - millis(&rows[last]["finished_at"]);
    assert_eq!(pause, 1_000, "{rows:#?}");
}

async fn after_completion_continues_after_an_edit_and_a_missing_package(place: Place) {
    let site = site(place);
    site.sidecar(
        "guests",
        "[[schedules]]\nname = 'on'\ntask = 'ok'\nafter_completion = '1h'\n",
    );
    let _host = site.serve();
    let rows = wait_for_ended(&site, "on", 1);
    let next = |site: &Site| site.json(["schedule", "show", "on"])["next_slot"].clone();
    let an_hour_later = millis(&rows[0]["finished_at"]) + 3_600_000;
    assert_eq!(millis(&next(&site)), an_hour_later);

    // A shorter interval counts from the same end, so the next slot is due at once.
    std::thread::sleep(Duration::from_secs(1));
    site.sidecar(
        "guests",
        "[[schedules]]\nname = 'on'\ntask = 'ok'\nafter_completion = '1s'\n",
    );
    wait_for_ended(&site, "on", 3);

    // The end of a manual launch does not count.
    site.ok(["schedule", "pause", "on"]);
    let last_end_ms = millis(&wait_for_ended(&site, "on", 3).last().expect("a row")["finished_at"]);
    site.trigger("on", &json!({}));
    site.ok(["schedule", "resume", "on"]);
    let is_manual = |row: &Value| row["kind"] == "manual";
    let after_resume = |row: &Value| !is_manual(row) && millis(&row["finished_at"]) > last_end_ms;
    eventually(|| {
        let later = wait_for_ended(&site, "on", 5);
        match later.iter().any(is_manual) && later.iter().any(after_resume) {
            true => Ok(()),
            false => Err(format!("{later:#?}")),
        }
    });

    // Without the package each slot is skipped, and the next slot follows the skipped one. Slots of an hour share a row.
    std::fs::remove_file(site.plugin("guests.wasm")).expect("a file");
    let is_skipped = |row: &Value| row["reason"] == "package_missing";
    let skipped = eventually(|| {
        let rows = site.launches("on");
        let has_two = |row: &&Value| is_skipped(row) && row["slot_count"].as_i64() >= Some(2);
        let found = rows.iter().find(has_two).cloned();
        found.ok_or_else(|| format!("{rows:#?}"))
    });
    let span_ms = millis(&skipped["last_scheduled_time"]) - millis(&skipped["scheduled_time"]);
    let steps = skipped["slot_count"].as_i64().expect("a number") - 1;
    // A busy machine decides a slot late.
    assert!(span_ms / steps >= 1_000, "{skipped:#?}");
    site.copy_package("guests");
    eventually(|| {
        let rows = site.launches("on");
        let before = rows.iter().rposition(is_skipped).expect("a skipped slot");
        let again = rows.last().filter(|row| row["status"] == "succeeded");
        match again {
            Some(row) if row["digest"].is_string() && before + 1 < rows.len() => Ok(()),
            _ => Err(format!("{rows:#?}")),
        }
    });
}

async fn an_edit_during_a_launch_applies_when_the_launch_ends(place: Place) {
    let site = site(place);
    let sidecar = |rule: &str| {
        let text = "[[schedules]]\nname = 'on'\ntask = 'sleep'\ncontext = { ms = 3000 }\n";
        site.sidecar("guests", &format!("{text}{rule}\n"));
    };
    sidecar("cron = '* * * * * *'");
    let host = site.serve();
    site.wait_for_launch("on", |row| row["status"] == "running");
    sidecar("after_completion = '1s'");
    host.wait_for_line("applied the new settings of guests");
    // The audit would correct the schedule too, but only after a minute.
    let shown = eventually(|| {
        let shown = site.json(["schedule", "show", "on"]);
        match shown["kind"] == "after_completion" && !shown["next_slot"].is_null() {
            true => Ok(shown),
            false => Err(format!("{shown:#}")),
        }
    });
    assert_eq!(shown["revision"], 2, "{shown:#}");
    let events = list(site.json(["event", "list"]));
    let corrected = |event: &Value| event["kind"] == "schedule_reconciled";
    assert!(!events.iter().any(corrected), "{events:#?}");
}

async fn a_paused_slot_is_skipped_and_a_slot_of_a_wrong_clock_is_corrected(place: Place) {
    let site = site(place);
    let mut host = site.serve();
    site.add("pause", "ok", &["--after-completion", "2s"]);
    wait_for_ended(&site, "pause", 1);
    site.ok(["schedule", "pause", "pause"]);
    // A launch may go on after the pause began.
    let rows = eventually(|| {
        let rows = site.launches("pause");
        match rows.iter().all(|row| !row["finished_at"].is_null()) {
            true => Ok(rows),
            false => Err(format!("{rows:#?}")),
        }
    });
    let last = rows.last().expect("a row");
    let due = millis(&last["finished_at"]) + 2_000;
    std::thread::sleep(Duration::from_secs(3));
    site.ok(["schedule", "resume", "pause"]);
    let after = wait_for_ended(&site, "pause", rows.len() + 2);
    let paused = &after[rows.len()];
    assert_eq!(
        (&paused["reason"], millis(&paused["scheduled_time"])),
        (&json!("paused"), due),
        "{after:#?}"
    );
    host.terminate();
    host.wait_exit();

    // The state that a host leaves whose clock was three days ahead.
    let three_days = match site.place().url.is_shared() {
        true => "now() + INTERVAL '3 days'",
        false => "unixepoch('now', '+3 days') * 1000000",
    };
    site.execute(&format!("UPDATE schedule SET next_slot = {three_days}"))
        .await;
    site.configure("[audit]\ninterval = '1s'\n");
    let _host = site.serve();
    wait_for_ended(&site, "pause", after.len() + 2);
}

async fn a_startup_launch_replaces_unfinished_startup_launches(place: Place) {
    let site = site(place);
    let mut host = site.serve();
    let [long, short] = [600_000, 100].map(|ms| json!({"ms": ms}).to_string());
    let rule = ["--cron", "@reboot", "--context", &long];
    site.add("start", "sleep", &rule);
    for starts in 1..=2 {
        host.kill();
        host = site.serve();
        eventually(|| {
            let rows = site.launches("start");
            match rows.last() {
                Some(row) if rows.len() == starts && row["status"] == "running" => Ok(()),
                _ => Err(format!("{rows:#?}")),
            }
        });
    }
    host.kill();
    site.ok(["schedule", "edit", "start", "--context", &short]);
    let _host = site.serve();
    let rows = wait_for_ended(&site, "start", 3);
    let statuses: Vec<&Value> = rows.iter().map(|row| &row["status"]).collect();
    assert_eq!(
        statuses,
        ["abandoned", "abandoned", "succeeded"],
        "{rows:#?}"
    );
    assert_eq!(rows[0]["reason"], "superseded");
    let runs = list(site.json(["run", "list", "--schedule", "start"]));
    assert_eq!(runs.len(), 3, "{runs:#?}");
}

async fn a_reboot_rule_launches_once_at_every_start_of_a_host(place: Place) {
    let site = site(place);
    let mut host = site.serve();
    let added = site.add("start", "echo", &["--cron", "@reboot"]);
    assert_eq!(added["next_slot"], Value::Null);
    site.add("paused", "ok", &["--cron", "@reboot"]);
    site.ok(["schedule", "pause", "paused"]);
    site.add("tick", "ok", &["--every", "1s"]);
    wait_for_ended(&site, "tick", 2);
    assert_eq!(site.launches("start"), Vec::<Value>::new());

    for start in 1..=2 {
        host.kill();
        host = site.serve();
        let rows = wait_for_ended(&site, "start", start);
        wait_for_ended(&site, "tick", site.launches("tick").len() + 1);
        assert_eq!(site.launches("start").len(), start, "{rows:#?}");
        let newest = &rows[start - 1];
        assert_eq!(
            (&newest["kind"], &newest["status"]),
            (&json!("startup"), &json!("succeeded"))
        );
        let context = site.run_of(newest)["tasks"][0]["output"].clone();
        assert_eq!(context["trigger"], "startup");
        assert_eq!(context["original_scheduled_time"], newest["scheduled_time"]);
    }
    assert_eq!(site.launches("paused"), Vec::<Value>::new());

    host.terminate();
    host.wait_exit();
    std::fs::remove_file(site.plugin("guests.wasm")).expect("a file");
    let _host = site.serve();
    let missed = site.wait_for_launch("start", |row| row["decision"] == "skipped");
    assert_eq!(
        (&missed["kind"], &missed["reason"]),
        (&json!("startup"), &json!("package_missing"))
    );
}

async fn a_new_time_zone_database_moves_next_slots_and_records_an_event(place: Place) {
    let site = site(place);
    let mut host = site.serve();
    let added = site.add(
        "nightly",
        "ok",
        &["--cron", "30 2 * * *", "--tz", "Europe/Paris"],
    );
    let tick = site.add("tick", "ok", &["--every", "1s"]);
    assert!(tick["next_slot"].is_string());
    let launch = wait_for_ended(&site, "tick", 1).remove(0);
    let version = launch["tzdata_version"].clone();
    assert!(version.is_string(), "{launch:#}");
    host.terminate();
    host.wait_exit();

    // The state that a host leaves whose time zone database had other rules for Paris.
    site.execute("UPDATE host SET tzdata_version = '1999a'")
        .await;
    let an_hour_later = match site.place().url.is_shared() {
        true => "next_slot + INTERVAL '1 hour'",
        false => "next_slot + 3600000000",
    };
    let other = format!("UPDATE schedule SET next_slot = {an_hour_later} WHERE name = 'nightly'");
    site.execute(&other).await;
    let show = || site.json(["schedule", "show", "nightly"])["next_slot"].clone();
    assert_eq!(millis(&show()) - millis(&added["next_slot"]), 3_600_000);

    let _host = site.serve();
    let now = version.as_str().expect("a version");
    eventually(|| match show() == added["next_slot"] {
        true => Ok(()),
        false => Err(format!("still {}", show())),
    });
    let events = list(site.json(["event", "list"]));
    let event = |kind: &str| {
        let found: Vec<&Value> = events
            .iter()
            .filter(|event| event["kind"] == kind)
            .collect();
        assert_eq!(found.len(), 1, "{kind}: {events:#?}");
        found[0].clone()
    };
    let changed = event("tzdata_changed");
    assert_eq!(
        changed["detail"],
        format!("from 1999a to {now}: 1 next slots moved")
    );
    let moved = event("schedule_reconciled");
    assert_eq!(moved["subject"], "nightly");
}
