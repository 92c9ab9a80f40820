//! Rules whose slots are made by what happens, and a time zone database that is another than before.

use std::time::Duration;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, millis};

on_both_empty!(
    a_rule_that_counts_from_ends_waits_for_each_of_them,
    a_launch_that_is_given_up_is_an_end_too,
    an_edit_or_a_missing_package_does_not_stop_a_rule_that_counts_from_ends,
    an_edit_in_the_middle_of_a_launch_is_followed_when_it_ends,
    a_slot_of_a_pause_and_one_of_a_wrong_clock_are_accounted_for,
    a_start_of_a_host_launches_once_what_waits_for_it,
    a_start_stands_for_those_before_it_that_were_not_finished,
    another_time_zone_database_moves_next_slots_and_says_so,
);

fn site(place: Place) -> Site {
    let site = Site::new(place);
    site.bring("guests");
    site
}

/// The launches of a schedule, oldest first, once `n` of them have ended.
#[track_caller]
fn ended(site: &Site, schedule: &str, n: usize) -> Vec<Value> {
    eventually(|| {
        let mut rows = site.launches(schedule);
        rows.retain(|row| !row["finished_at"].is_null());
        match rows.len() >= n {
            true => Ok(rows),
            false => Err(format!("{rows:#?}")),
        }
    })
}

async fn a_rule_that_counts_from_ends_waits_for_each_of_them(place: Place) {
    let site = site(place);
    let recovery = "[recovery]\ninterval = '100ms'\nmax_attempts = 1\n";
    std::fs::write(site.folder().join("campanile.toml"), recovery).expect("a configuration");
    let mut host = site.serve();
    let context = json!({"ms": 1_200}).to_string();
    let rule = ["--after-completion", "1s", "--context", &context];
    let added = site.add("pause", "sleep", &rule);
    let first = millis(&added["next_slot"]) - millis(&added["created_at"]);
    assert!((0..=1_000).contains(&first), "due at once: {added:#}");
    site.add("failing", "fail_permanent", &["--after-completion", "1s"]);

    ended(&site, "pause", 2);
    // One that waits for its run has no next slot; a host that dies under it changes nothing about that.
    site.launch_where("pause", |row| row["status"] == "running");
    assert_eq!(
        site.json(["schedule", "show", "pause"])["next_slot"],
        Value::Null
    );
    host.kill();
    let _host = site.serve();
    let before = ended(&site, "pause", 3).len();
    let rows = ended(&site, "pause", before + 2);
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

    let failed = ended(&site, "failing", 3);
    assert!(
        failed.iter().all(|row| row["status"] == "failed"),
        "{failed:#?}"
    );
    assert_eq!(site.json(["schedule", "next", "pause"]), json!([]));
}

async fn a_launch_that_is_given_up_is_an_end_too(place: Place) {
    let site = site(place);
    let recovery = "[recovery]\ninterval = '100ms'\nmax_attempts = 0\n";
    std::fs::write(site.folder().join("campanile.toml"), recovery).expect("a configuration");
    let mut host = site.serve();
    let context = json!({"ms": 3_000}).to_string();
    let rule = ["--after-completion", "1s", "--context", &context];
    site.add("pause", "sleep", &rule);
    site.launch_where("pause", |row| row["status"] == "running");
    host.kill();
    let _host = site.serve();
    let rows = ended(&site, "pause", 2);
    assert_eq!(rows[0]["status"], "abandoned", "{rows:#?}");
    let pause = millis(&rows[1]["scheduled_time"]) - millis(&rows[0]["finished_at"]);
    assert_eq!(pause, 1_000, "{rows:#?}");
}

async fn an_edit_or_a_missing_package_does_not_stop_a_rule_that_counts_from_ends(place: Place) {
    let site = site(place);
    site.sidecar(
        "guests",
        "[[schedules]]\nname = 'on'\ntask = 'ok'\nafter_completion = '1h'\n",
    );
    let _host = site.serve();
    let rows = ended(&site, "on", 1);
    let next = |site: &Site| site.json(["schedule", "show", "on"])["next_slot"].clone();
    let an_hour_later = millis(&rows[0]["finished_at"]) + 3_600_000;
    assert_eq!(millis(&next(&site)), an_hour_later);

    // Shorter: it counts from the same end, which is long enough ago.
    std::thread::sleep(Duration::from_secs(1));
    site.sidecar(
        "guests",
        "[[schedules]]\nname = 'on'\ntask = 'ok'\nafter_completion = '1s'\n",
    );
    ended(&site, "on", 3);

    // Manual launches count for nothing.
    site.ok(["schedule", "pause", "on"]);
    let ms = millis(&ended(&site, "on", 3).last().expect("a row")["finished_at"]);
    site.trigger("on", &json!({}));
    site.ok(["schedule", "resume", "on"]);
    let later = ended(&site, "on", 5);
    assert!(
        later.iter().any(|row| row["kind"] == "manual"),
        "{later:#?}"
    );
    let after_resume = |row: &&Value| row["kind"] != "manual" && millis(&row["finished_at"]) > ms;
    assert!(later.iter().find(after_resume).is_some(), "{later:#?}");

    // Without its package each slot is skipped, and the next comes all the same.
    std::fs::remove_file(site.plugin("guests.wasm")).expect("a file");
    let skipped = eventually(|| {
        let rows = site.launches("on");
        let skipped: Vec<Value> = rows
            .into_iter()
            .filter(|row| row["reason"] == "package_missing")
            .collect();
        match skipped.len() {
            0 | 1 => Err(format!("{skipped:#?}")),
            _ => Ok(skipped),
        }
    });
    let apart = millis(&skipped[1]["scheduled_time"]) - millis(&skipped[0]["scheduled_time"]);
    assert!((1_000..3_000).contains(&apart), "{skipped:#?}");
    site.bring("guests");
    let skipped = skipped.len();
    eventually(|| {
        let rows = site.launches("on");
        let again = rows
            .iter()
            .skip(skipped)
            .rev()
            .find(|row| row["status"] == "succeeded");
        match again {
            Some(row) if row["digest"].is_string() && rows.last() == Some(row) => Ok(()),
            _ => Err(format!("{rows:#?}")),
        }
    });
}

async fn an_edit_in_the_middle_of_a_launch_is_followed_when_it_ends(place: Place) {
    let site = site(place);
    let sidecar = |rule: &str| {
        let text = "[[schedules]]\nname = 'on'\ntask = 'sleep'\ncontext = { ms = 3000 }\n";
        site.sidecar("guests", &format!("{text}{rule}\n"));
    };
    sidecar("cron = '* * * * * *'");
    let host = site.serve();
    site.launch_where("on", |row| row["status"] == "running");
    sidecar("after_completion = '1s'");
    host.wait_for_line("applied the new settings of guests");
    // The audit would set it right too, but only after a minute.
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

async fn a_slot_of_a_pause_and_one_of_a_wrong_clock_are_accounted_for(place: Place) {
    let site = site(place);
    let mut host = site.serve();
    site.add("pause", "ok", &["--after-completion", "2s"]);
    ended(&site, "pause", 1);
    site.ok(["schedule", "pause", "pause"]);
    let rows = ended(&site, "pause", 1);
    let last = rows.last().expect("a row");
    let owed = millis(&last["finished_at"]) + 2_000;
    std::thread::sleep(Duration::from_secs(3));
    site.ok(["schedule", "resume", "pause"]);
    let after = ended(&site, "pause", rows.len() + 2);
    let paused = &after[rows.len()];
    assert_eq!(
        (&paused["reason"], millis(&paused["scheduled_time"])),
        (&json!("paused"), owed),
        "{after:#?}"
    );
    host.terminate();
    host.wait_exit();

    // As a host would have left it whose clock was three days ahead.
    let three_days = match site.place().url.is_shared() {
        true => "now() + INTERVAL '3 days'",
        false => "strftime('%Y-%m-%dT%H:%M:%S.000000Z', 'now', '+3 days')",
    };
    site.execute(&format!("UPDATE schedule SET next_slot = {three_days}"))
        .await;
    let often = "[audit]\ninterval = '1s'\n";
    std::fs::write(site.folder().join("campanile.toml"), often).expect("a configuration");
    let _host = site.serve();
    ended(&site, "pause", after.len() + 2);
}

async fn a_start_stands_for_those_before_it_that_were_not_finished(place: Place) {
    let site = site(place);
    let mut host = site.serve();
    let context = json!({"ms": 2_000}).to_string();
    site.add(
        "start",
        "sleep",
        &["--cron", "@reboot", "--context", &context],
    );
    for starts in 1..=3 {
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
    let rows = ended(&site, "start", 3);
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

async fn a_start_of_a_host_launches_once_what_waits_for_it(place: Place) {
    let site = site(place);
    let mut host = site.serve();
    let added = site.add("start", "echo", &["--cron", "@reboot"]);
    assert_eq!(added["next_slot"], Value::Null);
    site.add("paused", "ok", &["--cron", "@reboot"]);
    site.ok(["schedule", "pause", "paused"]);
    site.add("tick", "ok", &["--every", "1s"]);
    ended(&site, "tick", 2);
    assert_eq!(site.launches("start"), Vec::<Value>::new());

    for start in 1..=2 {
        host.kill();
        host = site.serve();
        let rows = ended(&site, "start", start);
        ended(&site, "tick", site.launches("tick").len() + 1);
        assert_eq!(site.launches("start").len(), start, "{rows:#?}");
        let newest = &rows[start - 1];
        assert_eq!(
            (&newest["kind"], &newest["status"]),
            (&json!("startup"), &json!("succeeded"))
        );
        let told = site.run_of(newest)["tasks"][0]["output"].clone();
        assert_eq!(told["trigger"], "startup");
        assert_eq!(told["original_scheduled_time"], newest["scheduled_time"]);
    }
    assert_eq!(site.launches("paused"), Vec::<Value>::new());

    host.terminate();
    host.wait_exit();
    std::fs::remove_file(site.plugin("guests.wasm")).expect("a file");
    let _host = site.serve();
    let missed = site.launch_where("start", |row| row["decision"] == "skipped");
    assert_eq!(
        (&missed["kind"], &missed["reason"]),
        (&json!("startup"), &json!("package_missing"))
    );
}

async fn another_time_zone_database_moves_next_slots_and_says_so(place: Place) {
    let site = site(place);
    let mut host = site.serve();
    let added = site.add(
        "nightly",
        "ok",
        &["--cron", "30 2 * * *", "--tz", "Europe/Paris"],
    );
    let tick = site.add("tick", "ok", &["--every", "1s"]);
    assert!(tick["next_slot"].is_string());
    let rung = ended(&site, "tick", 1).remove(0);
    let version = rung["tzdata_version"].clone();
    assert!(version.is_string(), "{rung:#}");
    host.terminate();
    host.wait_exit();

    // As a host would have left them that knew other rules of Paris.
    site.execute("UPDATE host SET tzdata_version = '1999a'")
        .await;
    let an_hour_off = match site.place().url.is_shared() {
        true => "next_slot + INTERVAL '1 hour'",
        false => "strftime('%Y-%m-%dT%H:%M:%S.000000Z', next_slot, '+1 hour')",
    };
    let other = format!("UPDATE schedule SET next_slot = {an_hour_off} WHERE name = 'nightly'");
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
