//! `campanile schedule` while a host serves: the host follows each change, and the launches show it.

use std::time::{Duration, Instant};

use campanile_model::clock::{Clock, Timestamp};
use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, keys, list, millis, stop, text};

on_both_empty!(
    a_schedule_is_added_paused_resumed_and_removed,
    slots_missed_while_no_host_served_are_caught_up_by_one_launch,
    each_kind_of_rule_launches_at_the_slots_of_its_zone,
    a_rule_is_shown_with_its_options_notes_and_warnings,
    add_warns_when_ten_schedules_share_a_minute,
    the_context_of_a_task_describes_its_launch,
    a_launch_that_waits_for_capacity_is_late_and_not_recovered,
);

/// Return a site with the package `guests` and this sidecar.
fn site(place: Place, sidecar: &str) -> Site {
    let site = Site::new(place);
    site.copy_package("guests");
    site.sidecar("guests", sidecar);
    site
}

/// The most milliseconds until a host notices a command: two seconds, and more where a command takes long itself.
fn noticed_within(site: &Site) -> i64 {
    let begun = Instant::now();
    site.json(["schedule", "list"]);
    let took = i64::try_from(begun.elapsed().as_millis()).expect("a short time");
    2_000 + 10 * took
}

async fn a_schedule_is_added_paused_resumed_and_removed(place: Place) {
    let site = site(place, "");
    let _host = site.serve();
    let added = site.add("tick", "ok", &["--every", "1s"]);
    let expected_keys = [
        "anchor",
        "args",
        "context",
        "created_at",
        "cursor",
        "day_match",
        "defaults",
        "dst_fold",
        "dst_gap",
        "enabled",
        "exclude",
        "expression",
        "id",
        "kind",
        "launches_made",
        "name",
        "next_slot",
        "notes",
        "origin",
        "package",
        "pause_note",
        "paused_at",
        "paused_by",
        "paused_until",
        "policies",
        "resolved",
        "revision",
        "skips",
        "state",
        "task",
        "timezone",
        "updated_at",
        "warnings",
    ];
    assert_eq!(keys(&added), expected_keys);
    assert_eq!(
        (&added["origin"], &added["enabled"]),
        (&json!("operator"), &json!(true))
    );

    // The command does not notify the host. The host has to find the schedule by its first slot, or within two
    // seconds after it.
    let first = site.wait_for_launch("tick", |row| row["status"] == "succeeded");
    assert_eq!(first["scheduled_time"], added["next_slot"]);
    let late = millis(&first["started_at"]) - millis(&first["scheduled_time"]);
    assert!(
        late < noticed_within(&site),
        "noticed {late} ms after the slot"
    );

    let triggered = site.trigger("tick", &json!({}));
    let manual = site.wait_until_ended("tick", &triggered);
    assert_eq!(
        (&manual["kind"], &manual["status"]),
        (&json!("manual"), &json!("succeeded"))
    );
    let late = millis(&manual["started_at"]) - millis(&manual["scheduled_time"]);
    assert!(
        late < noticed_within(&site),
        "a trigger was noticed after {late} ms"
    );

    assert_eq!(site.ok(["schedule", "pause", "tick"]), "paused tick\n");
    site.run(["schedule", "pause", "tick"])
        .assert_refused(&["`tick` is paused already"]);
    let shown = site.json(["schedule", "show", "tick"]);
    assert_eq!(
        (&shown["enabled"], &shown["next_slot"]),
        (&json!(false), &Value::Null)
    );
    let from = millis(&next_slots(&site, "tick", 1)[0]);
    eventually(|| match millis(&next_slots(&site, "tick", 1)[0]) - from {
        since if since >= 2_000 => Ok(()),
        since => Err(format!("only {since} ms of pause")),
    });
    let in_pause = site.trigger("tick", &json!({}));
    assert_eq!(
        site.wait_until_ended("tick", &in_pause)["status"],
        "succeeded",
        "triggers still work"
    );
    site.ok(["schedule", "resume", "tick"]);
    site.run(["schedule", "resume", "tick"])
        .assert_refused(&["`tick` is not paused"]);
    let last = site.launches("tick").len();
    let rows = eventually(|| match site.launches("tick") {
        rows if rows.len() >= last + 2 => Ok(rows),
        rows => Err(format!("{} rows", rows.len())),
    });
    let skipped: Vec<&Value> = rows
        .iter()
        .filter(|row| row["decision"] == "skipped" && row["reason"] == "paused")
        .collect();
    assert_eq!(
        skipped.len(),
        1,
        "one row for the whole pause: {skipped:#?}"
    );
    let range = skipped[0];
    let count = range["slot_count"].as_i64().expect("a number");
    assert!(count >= 2, "{range:#}");
    let span = millis(&range["last_scheduled_time"]) - millis(&range["scheduled_time"]);
    assert_eq!(span, (count - 1) * 1_000, "{range:#}");
    assert_every_second_is_decided_once(&rows);

    assert_eq!(site.ok(["schedule", "remove", "tick"]), "removed tick\n");
    site.run(["schedule", "show", "tick"])
        .assert_refused(&["there is no schedule named `tick`"]);
    assert_eq!(site.json(["schedule", "list"]), json!([]));
    let remaining = site.launches("tick");
    assert!(remaining.len() >= rows.len(), "its launches stay");
    // A new schedule can take the name, and it launches.
    let new = site.add("tick", "ok", &["--every", "1s"]);
    assert_ne!(new["id"], added["id"]);
    eventually(|| {
        let rows = list(site.json(["schedule", "show", "tick"])["launches"].clone());
        let has_succeeded = rows.iter().any(|row| row["status"] == "succeeded");
        has_succeeded
            .then_some(())
            .ok_or_else(|| format!("{rows:#?}"))
    });
}

/// Assert that every second between the first and the last slot has exactly one decision.
#[track_caller]
pub fn assert_every_second_is_decided_once(rows: &[Value]) {
    let mut slots: Vec<i64> = rows
        .iter()
        .filter(|row| row["kind"] != "manual")
        .flat_map(|row| (0..row["slot_count"].as_i64().unwrap_or(0)).map(move |n| (row, n)))
        .map(|(row, n)| millis(&row["scheduled_time"]) / 1_000 + n)
        .collect();
    slots.sort_unstable();
    let expected: Vec<i64> = (slots[0]..).take(slots.len()).collect();
    assert_eq!(slots, expected);
}

async fn slots_missed_while_no_host_served_are_caught_up_by_one_launch(place: Place) {
    let site = site(place, "");
    site.configure("[late]\nmisfire_grace = \"5s\"\n");
    let mut host = site.serve();
    site.add("tick", "ok", &["--every", "1s"]);
    site.wait_for_launch("tick", |row| row["status"] == "succeeded");
    stop(&mut host);
    let before = site.launches("tick").len();
    // Wait until at least three slots are older than the grace.
    std::thread::sleep(Duration::from_secs(9));

    let _host = site.serve();
    let caught_up = eventually(|| {
        let rows = site.launches("tick");
        let row = rows.get(before + 1);
        let row = row.filter(|row| row["status"] == "succeeded").cloned();
        row.ok_or_else(|| format!("{rows:#?}"))
    });
    site.wait_for_launch("tick", |row| {
        row["status"] == "succeeded"
            && millis(&row["scheduled_time"]) > millis(&caught_up["scheduled_time"])
    });
    site.ok(["schedule", "pause", "tick"]);
    let rows = site.launches("tick");
    assert_every_second_is_decided_once(&rows);
    let [range, caught_up, later @ ..] = &rows[before..] else {
        panic!("no slot was missed: {rows:#?}")
    };
    // One row has all skipped slots, and the catchup launch comes next.
    assert_eq!(range["reason"], "coalesced", "{rows:#?}");
    assert!(range["slot_count"].as_i64() >= Some(2), "{range:#}");
    assert_eq!(caught_up["kind"], "catchup", "{rows:#?}");
    // They are all that were older than the grace. A busy host may have been late again afterwards.
    let late = |row: &Value| millis(&caught_up["decided_at"]) - millis(&row["scheduled_time"]);
    assert!(late(caught_up) >= 5_000, "{rows:#?}");
    assert!(later.iter().all(|row| late(row) <= 5_000), "{rows:#?}");
}

fn next_slots(site: &Site, schedule: &str, n: usize) -> Vec<Value> {
    list(site.json(["schedule", "next", schedule, "-n", &n.to_string()]))
}

async fn each_kind_of_rule_launches_at_the_slots_of_its_zone(place: Place) {
    let site = site(place, "");
    let _host = site.serve();
    let add = |name: &str, rule: &[&str]| site.add(name, "ok", rule);
    // Tokyo has no summer time: 03:30 there is always 18:30 UTC.
    add("tokyo", &["--cron", "30 3 * * *", "--tz", "Asia/Tokyo"]);
    let slots = next_slots(&site, "tokyo", 3);
    assert_eq!(slots.len(), 3);
    for (nth, slot) in slots.iter().enumerate() {
        assert!(text(slot).ends_with("T18:30:00Z"), "{slot}");
        let days = (millis(slot) - millis(&slots[0])) / 86_400_000;
        assert_eq!(days, nth as i64);
    }
    let stdout = site.ok(["schedule", "next", "tokyo", "-n", "1"]);
    assert!(stdout.contains("T03:30:00+09:00[Asia/Tokyo]"), "{stdout}");

    // Every slot is a whole number of periods from the anchor.
    let anchor = json!("2020-01-01T00:10:00Z");
    add(
        "grid",
        &["--every", "6h", "--anchor", "2020-01-01T00:10:00Z"],
    );
    for slot in next_slots(&site, "grid", 4) {
        assert_eq!((millis(&slot) - millis(&anchor)) % 21_600_000, 0, "{slot}");
    }

    let first = millis(&next_slots(&site, "grid", 1)[0]);
    let now = millis(&add("now", &["--every", "1h"])["created_at"]);
    assert!(first > now, "only future slots");
    // On a busy machine the time may have passed before the command reads it.
    let once = [2_500, 20_000, 120_000].into_iter().find_map(|ahead| {
        let soon = Clock::system().now().micros() / 1_000 + ahead;
        let soon = Timestamp::from_micros(soon * 1_000).to_string();
        let output = site.run_add("once", "ok", &["--at", &soon, "--json"]);
        (output.code == 0).then(|| (soon, output.json()))
    });
    let (soon, once) = once.expect("a time that is ahead");
    assert_eq!(once["next_slot"], soon.as_str());
    let launch = site.wait_for_launch("once", |row| row["status"] == "succeeded");
    assert_eq!(launch["scheduled_time"], soon.as_str());
    assert_eq!(
        site.json(["schedule", "show", "once"])["next_slot"],
        Value::Null
    );
    assert_eq!(
        next_slots(&site, "once", 3),
        Vec::<Value>::new(),
        "no further slots"
    );
    assert_eq!(site.launches("once").len(), 1);

    let cron = add("cron", &["--cron", "* * * * * *", "--tz", "Europe/Paris"]);
    let launch = site.wait_for_launch("cron", |row| row["status"] == "succeeded");
    assert_eq!(launch["scheduled_time"], cron["next_slot"]);
    let local = text(&launch["scheduled_local"]);
    assert!(local.ends_with("[Europe/Paris]"), "{local}");
}

async fn a_rule_is_shown_with_its_options_notes_and_warnings(place: Place) {
    let site = site(place, "");
    let _host = site.serve();
    let add = |name: &str, rule: &[&str]| {
        let fixed = ["schedule", "add", name, "--package", "guests"];
        site.run(fixed.into_iter().chain(rule.iter().copied()))
    };
    let output = add("own", &["--cron", "H 3 * * *"]);
    let shown = site.json(["schedule", "show", "own"]);
    let resolved = text(&shown["resolved"]);
    let minute: u32 = resolved
        .strip_suffix(" 3 * * *")
        .and_then(|minute| minute.parse().ok())
        .unwrap_or_else(|| panic!("{shown:#}"));
    assert!(minute < 60, "{shown:#}");
    assert_eq!(shown["expression"], "H 3 * * *");
    assert_eq!(
        shown["explanation"],
        format!("At 03:{minute:02} every day, in UTC.").as_str()
    );
    let rule = format!("cron H 3 * * * = {resolved}");
    assert!(
        output
            .stdout
            .starts_with(&format!("added own: {rule}, next slot ")),
        "{output:?}"
    );
    assert_eq!(output.stderr, "");
    for listed in [&["schedule", "list"][..], &["schedule", "show", "own"]] {
        let stdout = site.ok(listed.iter().copied());
        assert!(stdout.contains(&rule), "{stdout}");
        assert!(!stdout.contains("dst gap"), "{stdout}");
    }

    let friday = [
        "--cron",
        "0 30 2 * * FRI",
        "--tz",
        "Europe/Paris",
        "--dst-gap",
        "skip",
        "--dst-fold",
        "both",
        "--exclude",
        "12-25",
        "--exclude",
        "2027-01-01..2027-01-06",
    ];
    let output = add("friday", &friday);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.stderr, "");
    let shown = site.json(["schedule", "show", "friday"]);
    for (key, value) in [
        ("day_match", json!("or")),
        ("dst_gap", json!("skip")),
        ("dst_fold", json!("both")),
        ("exclude", json!(["12-25", "2027-01-01..2027-01-06"])),
        ("resolved", json!("30 2 * * 5")),
        ("warnings", json!([])),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    let stdout = site.ok(["schedule", "show", "friday"]);
    for row in [
        "\ndst gap       skip\n",
        "\ndst fold      both\n",
        "\nexclude       12-25\n              2027-01-01..2027-01-06\n",
    ] {
        assert!(stdout.contains(row), "no {row:?}: {stdout}");
    }
    let calendar = ["schedule", "next", "friday", "--calendar", "--months", "2"];
    let stdout = site.ok(calendar);
    assert!(
        stdout.contains("Mo  Tu  We  Th  Fr  Sa  Su    Mo"),
        "{stdout}"
    );
    let days = list(site.json(calendar));
    assert!(!days.is_empty() && days.iter().all(|day| day["count"] == 1));

    let output = add("either", &["--cron", "5 2 13 * FRI"]);
    assert!(
        output
            .stderr
            .starts_with("warning: both day fields are restricted"),
        "{output:?}"
    );
    let shown = site.json(["schedule", "show", "either"]);
    assert_eq!(shown["warnings"][0]["kind"], "either_day", "{shown:#}");
    let output = add("start", &["--cron", "@reboot"]);
    let when = "the rule has no slots: it launches once at every start of a host\n";
    assert_eq!(output.stderr, when);
    let output = site.run(["schedule", "next", "start"]);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", when));
    let output = add("both", &["--cron", "5 2 13 * FRI", "--day-match", "and"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let stdout = site.ok(["schedule", "show", "both"]);
    assert!(stdout.contains("day match     and\n"), "{stdout}");
}

async fn add_warns_when_ten_schedules_share_a_minute(place: Place) {
    let site = site(place, "");
    let _host = site.serve();
    let add = |name: &str, second: usize| {
        let at = format!("2099-01-01T00:00:{second:02}Z");
        let fixed = ["schedule", "add", name, "--package", "guests", "--at"];
        site.run(fixed.into_iter().chain([at.as_str()]))
    };
    for second in 0..10 {
        let output = add(&format!("at-{second}"), second);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    }
    let output = add("eleventh", 59);
    assert_eq!(
        output.stderr,
        "warning: 10 other schedules have their next slot in the same minute; choose another \
         minute\n"
    );
    // Paused schedules do not count.
    site.ok(["schedule", "pause", "at-0"]);
    site.ok(["schedule", "pause", "at-1"]);
    assert_eq!(add("twelfth", 30).stderr, "");
    site.ok(["schedule", "resume", "at-0"]);
    let added = site.json([
        "schedule",
        "add",
        "thirteenth",
        "--package",
        "guests",
        "--at",
        "2099-01-01T00:00:31Z",
    ]);
    assert_eq!(added["warnings"][0]["kind"], "herd", "{added:#}");
}

async fn the_context_of_a_task_describes_its_launch(place: Place) {
    // The small output limit makes `echo` fail with a large context.
    let site = site(
        place,
        "[context]\nsidecar = 1\nabove = 'sidecar'\n[limits]\noutput = '32KiB'\n",
    );
    let _host = site.serve();
    let added = site.json([
        "schedule",
        "add",
        "echo",
        "--package",
        "guests",
        "--task",
        "echo",
        "--every",
        "1s",
        // Each slot is launched, also where the machine is so busy that a launch takes a second.
        "--overlap",
        "buffer_one",
        "--tz",
        "Europe/Paris",
        "--context",
        r#"{"schedule_s": 2, "above": "schedule", "top": "schedule"}"#,
    ]);
    let output = |launch: &Value| site.run_of(launch)["tasks"][0]["output"].clone();
    let nth = |n: usize| {
        eventually(|| {
            let rows = site.launches("echo");
            let launch = rows
                .get(n)
                .filter(|row| row["status"] == "succeeded")
                .cloned();
            launch.ok_or_else(|| format!("{rows:#?}"))
        })
    };
    let (first, second) = (nth(0), nth(1));
    site.ok(["schedule", "pause", "echo"]);
    eventually(|| {
        let rows = site.launches("echo");
        match rows.iter().all(|row| !row["finished_at"].is_null()) {
            true => Ok(()),
            false => Err(format!("a launch goes on: {rows:#?}")),
        }
    });
    let context = output(&first);
    assert_eq!(context["sidecar"], 1);
    assert_eq!(context["schedule_s"], 2);
    assert_eq!(context["above"], "schedule");
    assert_eq!(context["execution_id"], first["id"]);
    assert_eq!(context["run_id"], first["run_id"]);
    assert_eq!(context["trigger"], "schedule");
    assert_eq!(
        (&context["attempt"], &context["is_recovery"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(context["recovery_attempt_time"], Value::Null);
    assert_eq!(context["original_scheduled_time"], first["scheduled_time"]);
    assert_eq!(context["scheduled_local"], first["scheduled_local"]);
    assert!(text(&context["scheduled_local"]).ends_with("[Europe/Paris]"));
    assert_eq!(
        context["interval_start"], added["created_at"],
        "the first interval begins with the schedule"
    );
    assert_eq!(context["interval_end"], first["scheduled_time"]);
    assert_eq!(
        (&context["last_result"], &context["last_failure"]),
        (&Value::Null, &Value::Null)
    );
    let schedule = json!({
        "id": added["id"], "name": "echo", "expression": "1s", "timezone": "Europe/Paris",
    });
    assert_eq!(context["schedule"], schedule);
    let second_context = output(&second);
    assert_eq!(second_context["interval_start"], first["scheduled_time"]);
    assert_eq!(second_context["interval_end"], second["scheduled_time"]);
    assert_eq!(
        second_context["last_result"], context,
        "the output of the previous success"
    );

    // The context of a trigger overrides the others, for that launch only.
    let succeeded = site.trigger("echo", &json!({"top": "trigger", "mine": true}));
    let succeeded = site.wait_until_ended("echo", &succeeded);
    let context = output(&succeeded);
    assert_eq!(
        (&context["top"], &context["mine"]),
        (&json!("trigger"), &json!(true))
    );
    assert_eq!(
        (&context["above"], &context["sidecar"]),
        (&json!("schedule"), &json!(1))
    );
    assert_eq!(context["trigger"], "manual");
    assert_eq!(context["interval_end"], succeeded["scheduled_time"]);

    let failed = site.trigger("echo", &json!({"much": "x".repeat(40_000)}));
    let failed = site.wait_until_ended("echo", &failed);
    assert_eq!(
        (&failed["status"], &failed["failure"]),
        (&json!("failed"), &json!("invalid_output"))
    );
    assert_eq!(failed["attempts"], 1, "an invalid output is not retried");
    let after = site.trigger("echo", &json!({}));
    let context_after = output(&site.wait_until_ended("echo", &after));
    assert_eq!(
        context_after["last_result"], context,
        "a failure keeps the last result"
    );
    assert_eq!(context_after["last_failure"]["kind"], "invalid_output");
    assert_eq!(context_after["last_failure"]["message"], failed["message"]);
    assert_eq!(
        context_after["last_failure"]["scheduled_time"],
        failed["scheduled_time"]
    );
    assert_eq!(
        context_after.get("mine"),
        None,
        "the context of a trigger applies to one launch"
    );
    let succeeded_again = site.trigger("echo", &json!({}));
    let context = output(&site.wait_until_ended("echo", &succeeded_again));
    assert_eq!(
        context["last_failure"],
        Value::Null,
        "a success clears the last failure"
    );
}

async fn a_launch_that_waits_for_capacity_is_late_and_not_recovered(place: Place) {
    const WAITING: usize = 3;
    let site = site(place, "");
    site.configure(
        "[host]\nruns_max = 1\n[recovery]\nlost_threshold = \"5s\"\ninterval = \"100ms\"\n",
    );
    let _host = site.serve();
    site.ok([
        "schedule",
        "add",
        "queue",
        "--package",
        "guests",
        "--task",
        "sleep",
        "--at",
        "2099-01-01T00:00:00Z",
    ]);
    // The first launch takes all capacity until the others have waited for longer than the threshold.
    let first = site.trigger("queue", &json!({"ms": 600_000}));
    site.wait_for_launch("queue", |row| row["status"] == "running");
    for _ in 0..WAITING {
        site.trigger("queue", &json!({"ms": 1_000}));
    }
    std::thread::sleep(Duration::from_secs(6));
    site.ok(["run", "cancel", &first, "--grace", "0s"]);
    let rows = eventually(|| {
        let mut rows = site.launches("queue");
        rows.retain(|row| row["id"] != first.as_str() && !row["finished_at"].is_null());
        match rows.len() {
            WAITING => Ok(rows),
            ended => Err(format!("{ended} ended: {rows:#?}")),
        }
    });
    let waited = |row: &Value| millis(&row["started_at"]) - millis(&row["scheduled_time"]);
    let shortest = rows.iter().map(waited).min();
    assert!(shortest > Some(5_000), "a launch did not wait: {rows:#?}");
    for row in &rows {
        let run = site.run_of(row);
        assert_eq!(
            (&row["status"], &row["attempts"], &run["is_recovery"]),
            (&json!("succeeded"), &json!(1), &json!(false)),
            "{row:#} {run:#}"
        );
    }
}
