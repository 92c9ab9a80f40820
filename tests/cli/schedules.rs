//! `campanile schedule` while a host serves: what is ordered is followed, and the record says so.

use std::time::Duration;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, keys, list, millis, text};

on_both_empty!(
    a_schedule_lives_from_add_to_remove,
    slots_missed_while_nobody_served_are_caught_up_with_once,
    rules_of_every_kind_give_their_slots_in_their_zone,
    a_rule_is_shown_with_all_its_choices_and_what_may_not_be_meant,
    a_new_schedule_is_told_of_the_crowd_in_its_minute,
    a_task_is_told_what_its_launch_is,
    launches_that_wait_behind_others_are_late_and_not_lost,
);

/// A site with `guests`, whose sidecar says `sidecar`.
fn site(place: Place, sidecar: &str) -> Site {
    let site = Site::new(place);
    site.bring("guests");
    site.sidecar("guests", sidecar);
    site
}

async fn a_schedule_lives_from_add_to_remove(place: Place) {
    let site = site(place, "");
    let _host = site.serve();
    let added = site.add("tick", "ok", &["--every", "1s"]);
    let known = [
        "anchor",
        "context",
        "created_at",
        "cursor",
        "day_match",
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
    assert_eq!(keys(&added), known);
    assert_eq!(
        (&added["origin"], &added["enabled"]),
        (&json!("operator"), &json!(true))
    );

    // The host was not told: it has to notice, in time for the first slot or within a second of it.
    let first = site.launch_where("tick", |row| row["status"] == "succeeded");
    assert_eq!(first["scheduled_time"], added["next_slot"]);
    let late = millis(&first["started_at"]) - millis(&first["scheduled_time"]);
    assert!(late < 2_000, "noticed {late} ms after the slot");

    let triggered = site.trigger("tick", &json!({}));
    let manual = site.ended("tick", &triggered);
    assert_eq!(
        (&manual["kind"], &manual["status"]),
        (&json!("manual"), &json!("succeeded"))
    );
    let late = millis(&manual["started_at"]) - millis(&manual["scheduled_time"]);
    assert!(late < 2_000, "a trigger was noticed after {late} ms");

    assert_eq!(site.ok(["schedule", "pause", "tick"]), "paused tick\n");
    site.run(["schedule", "pause", "tick"])
        .refused(&["`tick` is paused already"]);
    let shown = site.json(["schedule", "show", "tick"]);
    assert_eq!(
        (&shown["enabled"], &shown["next_slot"]),
        (&json!(false), &Value::Null)
    );
    let from = millis(&next(&site, "tick", 1)[0]);
    eventually(|| match millis(&next(&site, "tick", 1)[0]) - from {
        since if since >= 2_000 => Ok(()),
        since => Err(format!("only {since} ms of pause")),
    });
    let in_pause = site.trigger("tick", &json!({}));
    assert_eq!(
        site.ended("tick", &in_pause)["status"],
        "succeeded",
        "triggers still work"
    );
    site.ok(["schedule", "resume", "tick"]);
    site.run(["schedule", "resume", "tick"])
        .refused(&["`tick` is not paused"]);
    let last = site.launches("tick").len();
    let rows = eventually(|| match site.launches("tick") {
        rows if rows.len() >= last + 2 => Ok(rows),
        rows => Err(format!("{} rows", rows.len())),
    });
    let dropped: Vec<&Value> = rows
        .iter()
        .filter(|row| row["decision"] == "skipped")
        .collect();
    assert_eq!(
        dropped.len(),
        1,
        "one row for the whole pause: {dropped:#?}"
    );
    let range = dropped[0];
    assert_eq!(range["reason"], "paused");
    let count = range["slot_count"].as_i64().expect("a number");
    assert!(count >= 2, "{range:#}");
    let span = millis(&range["last_scheduled_time"]) - millis(&range["scheduled_time"]);
    assert_eq!(span, (count - 1) * 1_000, "{range:#}");
    every_second_is_decided_once(&rows);

    assert_eq!(site.ok(["schedule", "remove", "tick"]), "removed tick\n");
    site.run(["schedule", "show", "tick"])
        .refused(&["there is no schedule named `tick`"]);
    assert_eq!(site.json(["schedule", "list"]), json!([]));
    let left = site.launches("tick");
    assert!(left.len() >= rows.len(), "its launches stay");
    // The name is free again, and the new schedule rings.
    let new = site.add("tick", "ok", &["--every", "1s"]);
    assert_ne!(new["id"], added["id"]);
    eventually(|| {
        let rows = list(site.json(["schedule", "show", "tick"])["launches"].clone());
        let rung = rows.iter().any(|row| row["status"] == "succeeded");
        rung.then_some(()).ok_or_else(|| format!("{rows:#?}"))
    });
}

/// No second between the first and the last is without its decision, and none has two.
#[track_caller]
fn every_second_is_decided_once(rows: &[Value]) {
    let mut slots: Vec<i64> = rows
        .iter()
        .filter(|row| row["kind"] != "manual")
        .flat_map(|row| (0..row["slot_count"].as_i64().unwrap_or(0)).map(move |n| (row, n)))
        .map(|(row, n)| millis(&row["scheduled_time"]) / 1_000 + n)
        .collect();
    slots.sort_unstable();
    let every: Vec<i64> = (slots[0]..).take(slots.len()).collect();
    assert_eq!(slots, every);
}

async fn slots_missed_while_nobody_served_are_caught_up_with_once(place: Place) {
    let site = site(place, "");
    let file = site.folder().join("campanile.toml");
    std::fs::write(file, "[late]\nmisfire_grace = \"5s\"\n").expect("a configuration");
    let mut host = site.serve();
    site.add("tick", "ok", &["--every", "1s"]);
    site.launch_where("tick", |row| row["status"] == "succeeded");
    host.terminate();
    assert!(host.wait_exit().success());
    let before = site.launches("tick").len();
    // Until three slots at least are older than the grace.
    std::thread::sleep(Duration::from_secs(9));

    let _host = site.serve();
    let caught_up = site.launch_where("tick", |row| {
        row["kind"] == "catchup" && row["status"] == "succeeded"
    });
    site.launch_where("tick", |row| {
        row["status"] == "succeeded"
            && millis(&row["scheduled_time"]) > millis(&caught_up["scheduled_time"])
    });
    site.ok(["schedule", "pause", "tick"]);
    let rows = site.launches("tick");
    every_second_is_decided_once(&rows);
    let of = |key: &str, word: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row[key] == word).collect()
    };
    assert_eq!(of("kind", "catchup").len(), 1, "{rows:#?}");
    let dropped = of("reason", "coalesced");
    let [range] = dropped[..] else {
        panic!("one row for all that is dropped: {rows:#?}")
    };
    // Those that were merely late may have overlapped what was caught up.
    let overlapped = of("reason", "overlap").len();
    assert_eq!(of("decision", "skipped").len(), 1 + overlapped, "{rows:#?}");
    assert!(range["slot_count"].as_i64() >= Some(2), "{range:#}");
    assert_eq!(rows[before], *range, "what was dropped comes first");
    assert_eq!(
        rows[before + 1]["id"],
        caught_up["id"],
        "then what stands for it"
    );
}

fn next(site: &Site, schedule: &str, n: usize) -> Vec<Value> {
    list(site.json(["schedule", "next", schedule, "-n", &n.to_string()]))
}

async fn rules_of_every_kind_give_their_slots_in_their_zone(place: Place) {
    let site = site(place, "");
    let _host = site.serve();
    let add = |name: &str, rule: &[&str]| site.add(name, "ok", rule);
    // Tokyo has no summer time: 03:30 there is 18:30 UTC all year.
    add("tokyo", &["--cron", "30 3 * * *", "--tz", "Asia/Tokyo"]);
    let slots = next(&site, "tokyo", 3);
    assert_eq!(slots.len(), 3);
    for (nth, slot) in slots.iter().enumerate() {
        assert!(text(slot).ends_with("T18:30:00Z"), "{slot}");
        let days = (millis(slot) - millis(&slots[0])) / 86_400_000;
        assert_eq!(days, nth as i64);
    }
    let talk = site.ok(["schedule", "next", "tokyo", "-n", "1"]);
    assert!(talk.contains("T03:30:00+09:00[Asia/Tokyo]"), "{talk}");

    // Every slot is a whole number of periods from the anchor.
    let anchor = json!("2020-01-01T00:10:00Z");
    add(
        "grid",
        &["--every", "6h", "--anchor", "2020-01-01T00:10:00Z"],
    );
    for slot in next(&site, "grid", 4) {
        assert_eq!((millis(&slot) - millis(&anchor)) % 21_600_000, 0, "{slot}");
    }

    let first = millis(&next(&site, "grid", 1)[0]);
    let now = millis(&add("now", &["--every", "1h"])["created_at"]);
    assert!(first > now, "only slots to come");
    let soon = campanile_model::clock::Timestamp::from_micros((now + 2_500) * 1_000).to_string();
    let once = add("once", &["--at", &soon]);
    assert_eq!(once["next_slot"], soon.as_str());
    let rung = site.launch_where("once", |row| row["status"] == "succeeded");
    assert_eq!(rung["scheduled_time"], soon.as_str());
    assert_eq!(
        site.json(["schedule", "show", "once"])["next_slot"],
        Value::Null
    );
    assert_eq!(
        next(&site, "once", 3),
        Vec::<Value>::new(),
        "once and never again"
    );
    assert_eq!(site.launches("once").len(), 1);

    let cron = add("cron", &["--cron", "* * * * * *", "--tz", "Europe/Paris"]);
    let rung = site.launch_where("cron", |row| row["status"] == "succeeded");
    assert_eq!(rung["scheduled_time"], cron["next_slot"]);
    let local = text(&rung["scheduled_local"]);
    assert!(local.ends_with("[Europe/Paris]"), "{local}");
}

async fn a_rule_is_shown_with_all_its_choices_and_what_may_not_be_meant(place: Place) {
    let site = site(place, "");
    let _host = site.serve();
    let add = |name: &str, rule: &[&str]| {
        let fixed = ["schedule", "add", name, "--package", "guests"];
        site.run(fixed.into_iter().chain(rule.iter().copied()))
    };
    let said = add("own", &["--cron", "H 3 * * *"]);
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
        said.stdout
            .starts_with(&format!("added own: {rule}, next slot ")),
        "{said:?}"
    );
    assert_eq!(said.stderr, "");
    for listed in [&["schedule", "list"][..], &["schedule", "show", "own"]] {
        let words = site.ok(listed.iter().copied());
        assert!(words.contains(&rule), "{words}");
        assert!(!words.contains("dst gap"), "{words}");
    }

    let friday = [
        "--cron",
        "0 30 2 ? * FRI",
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
    let said = add("friday", &friday);
    assert_eq!(said.code, 0, "{said:?}");
    let note = "`?` in the day-of-month field at position 8 was read as `*`, as in Quartz";
    assert_eq!(said.stderr, format!("note: {note}\n"));
    let shown = site.json(["schedule", "show", "friday"]);
    for (key, value) in [
        ("day_match", json!("or")),
        ("dst_gap", json!("skip")),
        ("dst_fold", json!("both")),
        ("exclude", json!(["12-25", "2027-01-01..2027-01-06"])),
        ("resolved", json!("30 2 * * 5")),
        ("notes", json!([note])),
        ("warnings", json!([])),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    let words = site.ok(["schedule", "show", "friday"]);
    for row in [
        "\ndst gap       skip\n",
        "\ndst fold      both\n",
        "\nexclude       12-25\n              2027-01-01..2027-01-06\n",
    ] {
        assert!(words.contains(row), "no {row:?}: {words}");
    }
    let calendar = ["schedule", "next", "friday", "--calendar", "--months", "2"];
    let words = site.ok(calendar);
    assert!(
        words.contains("Mo  Tu  We  Th  Fr  Sa  Su    Mo"),
        "{words}"
    );
    let days = list(site.json(calendar));
    assert!(!days.is_empty() && days.iter().all(|day| day["count"] == 1));

    let said = add("either", &["--cron", "5 2 13 * FRI"]);
    assert!(
        said.stderr
            .starts_with("warning: both day fields are restricted"),
        "{said:?}"
    );
    let shown = site.json(["schedule", "show", "either"]);
    assert_eq!(shown["warnings"][0]["kind"], "either_day", "{shown:#}");
    let said = add("start", &["--cron", "@reboot"]);
    let when = "the rule has no slots: it launches once at every start of a host\n";
    assert_eq!(said.stderr, when);
    let said = site.run(["schedule", "next", "start"]);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", when));
    let said = add("both", &["--cron", "5 2 13 * FRI", "--day-match", "and"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let words = site.ok(["schedule", "show", "both"]);
    assert!(words.contains("day match     and\n"), "{words}");
}

async fn a_new_schedule_is_told_of_the_crowd_in_its_minute(place: Place) {
    let site = site(place, "");
    let _host = site.serve();
    let add = |name: &str, second: usize| {
        let at = format!("2099-01-01T00:00:{second:02}Z");
        let fixed = ["schedule", "add", name, "--package", "guests", "--at"];
        site.run(fixed.into_iter().chain([at.as_str()]))
    };
    for second in 0..10 {
        let said = add(&format!("at-{second}"), second);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    }
    let said = add("eleventh", 59);
    assert_eq!(
        said.stderr,
        "warning: 10 other schedules have their next slot in the same minute; choose another \
         minute\n"
    );
    // Those that are paused are in nobody's way.
    site.ok(["schedule", "pause", "at-0"]);
    site.ok(["schedule", "pause", "at-1"]);
    assert_eq!(add("twelfth", 30).stderr, "");
    site.ok(["schedule", "resume", "at-0"]);
    let crowd = site.json([
        "schedule",
        "add",
        "thirteenth",
        "--package",
        "guests",
        "--at",
        "2099-01-01T00:00:31Z",
    ]);
    assert_eq!(crowd["warnings"][0]["kind"], "herd", "{crowd:#}");
}

async fn a_task_is_told_what_its_launch_is(place: Place) {
    // The small output limit is what makes `echo` fail, when it is handed a lot.
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
        "--tz",
        "Europe/Paris",
        "--context",
        r#"{"schedule_s": 2, "above": "schedule", "top": "schedule"}"#,
    ]);
    let output = |launch: &Value| site.run_of(launch)["tasks"][0]["output"].clone();
    let nth = |n: usize| {
        eventually(|| {
            let rows = site.launches("echo");
            let rung = rows
                .get(n)
                .filter(|row| row["status"] == "succeeded")
                .cloned();
            rung.ok_or_else(|| format!("{rows:#?}"))
        })
    };
    let (first, second) = (nth(0), nth(1));
    site.ok(["schedule", "pause", "echo"]);
    let told = output(&first);
    assert_eq!(told["sidecar"], 1);
    assert_eq!(told["schedule_s"], 2);
    assert_eq!(told["above"], "schedule");
    assert_eq!(told["execution_id"], first["id"]);
    assert_eq!(told["run_id"], first["run_id"]);
    assert_eq!(told["trigger"], "schedule");
    assert_eq!(
        (&told["attempt"], &told["is_recovery"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(told["recovery_attempt_time"], Value::Null);
    assert_eq!(told["original_scheduled_time"], first["scheduled_time"]);
    assert_eq!(told["scheduled_local"], first["scheduled_local"]);
    assert!(text(&told["scheduled_local"]).ends_with("[Europe/Paris]"));
    assert_eq!(
        told["interval_start"], added["created_at"],
        "the first interval begins with the schedule"
    );
    assert_eq!(told["interval_end"], first["scheduled_time"]);
    assert_eq!(
        (&told["last_result"], &told["last_failure"]),
        (&Value::Null, &Value::Null)
    );
    let schedule = json!({
        "id": added["id"], "name": "echo", "expression": "1s", "timezone": "Europe/Paris",
    });
    assert_eq!(told["schedule"], schedule);
    let again = output(&second);
    assert_eq!(again["interval_start"], first["scheduled_time"]);
    assert_eq!(again["interval_end"], second["scheduled_time"]);
    assert_eq!(
        again["last_result"], told,
        "the output of the success before"
    );

    // A trigger's context lies on top, for that launch only.
    let good = site.trigger("echo", &json!({"top": "trigger", "mine": true}));
    let good = site.ended("echo", &good);
    let told = output(&good);
    assert_eq!(
        (&told["top"], &told["mine"]),
        (&json!("trigger"), &json!(true))
    );
    assert_eq!(
        (&told["above"], &told["sidecar"]),
        (&json!("schedule"), &json!(1))
    );
    assert_eq!(told["trigger"], "manual");
    assert_eq!(told["interval_end"], good["scheduled_time"]);

    let bad = site.trigger("echo", &json!({"much": "x".repeat(40_000)}));
    let bad = site.ended("echo", &bad);
    assert_eq!(
        (&bad["status"], &bad["failure"]),
        (&json!("failed"), &json!("invalid_output"))
    );
    assert_eq!(bad["attempts"], 1, "a wrong output is not tried again");
    let after = site.trigger("echo", &json!({}));
    let told_after = output(&site.ended("echo", &after));
    assert_eq!(told_after["last_result"], told, "kept across the failure");
    assert_eq!(told_after["last_failure"]["kind"], "invalid_output");
    assert_eq!(told_after["last_failure"]["message"], bad["message"]);
    assert_eq!(
        told_after["last_failure"]["scheduled_time"],
        bad["scheduled_time"]
    );
    assert_eq!(
        told_after.get("mine"),
        None,
        "a trigger's context is of one launch"
    );
    let well = site.trigger("echo", &json!({}));
    let told = output(&site.ended("echo", &well));
    assert_eq!(
        told["last_failure"],
        Value::Null,
        "a success ends the trouble"
    );
}

async fn launches_that_wait_behind_others_are_late_and_not_lost(place: Place) {
    const LAUNCHES: usize = 12;
    let site = site(place, "");
    let config =
        "[host]\nruns_max = 1\n[recovery]\nlost_threshold = \"1s\"\ninterval = \"100ms\"\n";
    std::fs::write(site.folder().join("campanile.toml"), config).expect("a configuration");
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
    for _ in 0..LAUNCHES {
        site.trigger("queue", &json!({"ms": 300}));
    }
    let rows = eventually(|| {
        let rows = site.launches("queue");
        let ended = rows.iter().filter(|row| !row["finished_at"].is_null());
        match ended.count() {
            LAUNCHES => Ok(rows),
            ended => Err(format!("{ended} ended: {rows:#?}")),
        }
    });
    let waited = |row: &Value| millis(&row["started_at"]) - millis(&row["scheduled_time"]);
    let longest = rows.iter().map(waited).max();
    assert!(longest > Some(2_000), "nothing had to wait: {rows:#?}");
    for row in &rows {
        let run = site.run_of(row);
        assert_eq!(
            (&row["status"], &row["attempts"], &run["is_recovery"]),
            (&json!("succeeded"), &json!(1), &json!(false)),
            "{row:#} {run:#}"
        );
    }
}
