//! Edits of a schedule: `schedule edit`, `rename` and `skip`.

use std::process::Stdio;
use std::time::Duration;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, millis, text};

on_both_empty!(
    an_edit_changes_only_the_given_keys,
    times_without_an_offset_are_on_the_clock_of_the_rules_zone,
    an_edit_of_a_stale_revision_is_refused_with_the_differences,
    an_invalid_edit_is_refused_and_changes_nothing,
    only_an_edit_of_timing_moves_the_cursor,
    a_renamed_schedule_keeps_its_slots_and_its_launches,
    a_slot_can_be_skipped_and_restored,
    a_skipped_slot_is_recorded_as_skipped,
    a_launch_of_an_earlier_revision_says_so,
);

fn show(site: &Site, name: &str) -> Value {
    site.json(["schedule", "show", name])
}

/// Return the subject and the detail of each event of one kind, newest first.
fn events(site: &Site, kind: &str) -> Vec<(String, String)> {
    list(site.json(["event", "list"]))
        .iter()
        .filter(|event| event["kind"] == kind)
        .map(|event| (text(&event["subject"]), text(&event["detail"])))
        .collect()
}

async fn times_without_an_offset_are_on_the_clock_of_the_rules_zone(place: Place) {
    let site = Site::with_guests(place);
    let paris = ["--tz", "Europe/Paris"];
    let once = [&["--at", "2099-06-01 9:00"][..], &paris].concat();
    let added = site.add("once", "ok", &once);
    assert_eq!(added["expression"], "2099-06-01T07:00:00Z");
    let ends = [
        "--every",
        "1h",
        "--anchor",
        "2026-06-01 9:00",
        "--end-at",
        "2099-06-01",
    ];
    let added = site.add("hourly", "ok", &[&ends[..], &paris].concat());
    assert_eq!(added["anchor"], "2026-06-01T07:00:00Z");
    assert_eq!(added["policies"]["end_at"], "2099-05-31T22:00:00Z");
    let utc = site.add("utc", "ok", &["--at", "2099-06-01 9:00"]);
    assert_eq!(utc["expression"], "2099-06-01T09:00:00Z");

    // An edit without `--tz` takes the zone of the schedule.
    let edit = |args: &[&str]| site.json([&["schedule", "edit"][..], args].concat());
    let edited = edit(&["once", "--at", "2099-12-01 9:00"]);
    assert_eq!(edited["expression"], "2099-12-01T08:00:00Z");
    let edited = edit(&["hourly", "--start-at", "2099-01-01"]);
    assert_eq!(edited["policies"]["start_at"], "2098-12-31T23:00:00Z");
    let edited = edit(&["once", "--at", "2099-12-01 9:00", "--tz", "UTC"]);
    assert_eq!(edited["expression"], "2099-12-01T09:00:00Z");

    let gap = [
        "schedule",
        "edit",
        "hourly",
        "--start-at",
        "2027-03-28 2:30",
    ];
    site.run(gap).assert_refused(&[
        "the clock of Europe/Paris never shows 2027-03-28 02:30",
        "hint: add the offset from UTC",
    ]);
    let skipped = site.ok(["schedule", "skip", "hourly", "2099-01-02 00:00"]);
    assert!(skipped.contains("2099-01-02T00:00:00Z"), "{skipped}");
}

async fn an_edit_changes_only_the_given_keys(place: Place) {
    let site = Site::with_guests(place);
    let hashed = [
        "--cron",
        "H 3 * * *",
        "--tz",
        "Europe/Paris",
        "--exclude",
        "12-25",
    ];
    let policies = ["--jitter", "30s", "--context", r#"{"a": 1}"#];
    let before = site.add("x", "ok", &[&hashed[..], &policies].concat());
    let edit = |more: &[&str]| {
        let fixed = ["schedule", "edit", "x"];
        site.json(fixed.into_iter().chain(more.iter().copied()))
    };
    let changed = |before: &Value, after: &Value| -> Vec<String> {
        let before = before.as_object().expect("an object");
        let changes = before.iter().filter(|(key, _)| !key.starts_with("updated"));
        let changes =
            changes.filter(|(key, value)| after.get(key.as_str()).is_some_and(|new| new != *value));
        let mut changed: Vec<String> = changes.map(|(key, _)| key.clone()).collect();
        changed.sort_unstable();
        changed
    };
    let mut last = before;
    for (more, keys) in [
        (&["--overlap", "allow"][..], &["policies", "revision"][..]),
        (&["--task", "echo"], &["revision", "task"]),
        (&["--clear", "task"], &["revision", "task"]),
        (
            &["--tz", "UTC"],
            &["cursor", "next_slot", "revision", "timezone"],
        ),
        (&["--clear", "exclude"], &["cursor", "exclude", "revision"]),
        (&["--context", r#"{"b": 2}"#], &["context", "revision"]),
        (
            &["--clear", "jitter", "--clear", "overlap"],
            &["cursor", "policies", "revision"],
        ),
        (
            &["--every", "1d"],
            &[
                "cursor",
                "expression",
                "kind",
                "next_slot",
                "resolved",
                "revision",
            ],
        ),
    ] {
        let after = edit(more);
        assert_eq!(changed(&last, &after), keys, "{more:?}");
        let next_revision = last["revision"].as_i64().map(|revision| revision + 1);
        assert_eq!(after["revision"].as_i64(), next_revision);
        last = after;
    }
    assert_eq!(last["policies"], json!({}));

    // An edit without a change makes no revision.
    let unchanged = edit(&["--every", "1d", "--tz", "UTC"]);
    assert_eq!(changed(&last, &unchanged), [""; 0]);
    let stdout = site.ok(["schedule", "edit", "x", "--jitter", "1m"]);
    let revision = last["revision"].as_i64().unwrap_or(0) + 1;
    assert!(
        stdout.starts_with(&format!(
            "x is at revision {revision}: every 1d, next slot "
        )),
        "{stdout}"
    );
}

async fn an_edit_of_a_stale_revision_is_refused_with_the_differences(place: Place) {
    let site = Site::with_guests(place);
    site.add("x", "ok", &["--every", "1h", "--jitter", "30s"]);
    let stale_edit = [
        "schedule",
        "edit",
        "x",
        "--revision",
        "1",
        "--catchup",
        "all",
    ];
    site.ok([
        "schedule", "edit", "x", "--every", "2h", "--clear", "jitter",
    ]);
    let current = show(&site, "x");
    let output = site.run(stale_edit);
    output.assert_refused(&[
        "`x` was changed since revision 1, it is at revision 2 now:",
        "\n  every   1h  ->  2h\n",
        "\n  jitter  30s  ->  -\n",
        "hint: look at it with `campanile schedule show x`, then edit it with --revision 2",
    ]);
    for unchanged in ["package", "timezone", "task"] {
        assert!(!output.stderr.contains(unchanged), "{output:?}");
    }
    assert_eq!(show(&site, "x"), current, "nothing was changed");
    site.run([
        "schedule",
        "edit",
        "x",
        "--revision",
        "7",
        "--catchup",
        "all",
    ])
    .assert_refused(&["`x` never had a revision 7; it is at revision 2"]);
    let edited = site.json([
        "schedule",
        "edit",
        "x",
        "--revision",
        "2",
        "--catchup",
        "all",
    ]);
    assert_eq!(edited["revision"], json!(3));

    // One of several concurrent edits of the same revision succeeds.
    let args = |n: usize| {
        let span = format!("{}s", n + 1);
        let fixed = ["schedule", "edit", "x", "--revision", "3", "--jitter"].map(str::to_owned);
        fixed.into_iter().chain([span]).collect::<Vec<String>>()
    };
    let children: Vec<_> = (0..6)
        .map(|n| {
            site.command(args(n))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        })
        .collect();
    let codes: Vec<Option<i32>> = children
        .into_iter()
        .map(|child| {
            child
                .and_then(|mut child| child.wait())
                .expect("a process")
                .code()
        })
        .collect();
    let count_of = |code: i32| codes.iter().filter(|other| **other == Some(code)).count();
    assert_eq!((count_of(0), count_of(2)), (1, 5), "{codes:?}");
    assert_eq!(show(&site, "x")["revision"], json!(4));
}

async fn an_invalid_edit_is_refused_and_changes_nothing(place: Place) {
    let site = Site::with_guests(place);
    site.add("x", "ok", &["--every", "1h", "--jitter", "30m"]);
    let before = show(&site, "x");
    let edit = |more: &[&str]| {
        let fixed = ["schedule", "edit", "x"];
        site.run(fixed.into_iter().chain(more.iter().copied()))
    };
    edit(&[]).assert_refused(&["nothing was given to change", "hint: "]);
    edit(&["--every", "10m"])
        .assert_refused(&["jitter is 30m, longer than from one slot to the next, 10m"]);
    edit(&["--jitter", "1m", "--clear", "jitter"]).assert_refused(&[
        "--clear jitter and --jitter contradict each other",
        "hint: keep one",
    ]);
    edit(&["--clear", "jiter"]).assert_refused(&["unknown key; did you mean `jitter`?"]);
    edit(&["--cron", "@daily", "--every", "1d"]).assert_refused(&["cannot be used with"]);
    edit(&["--at", "2020-01-01T00:00:00Z", "--clear", "jitter"])
        .assert_refused(&["2020-01-01T00:00:00Z is in the past"]);
    edit(&["--end-at", "2020-01-01T00:00:00Z"])
        .assert_refused(&["2020-01-01T00:00:00Z is in the past"]);
    edit(&["--package", "guest"]).assert_refused(&["did you mean `guests`?"]);
    edit(&["--task", "ecco"]).assert_refused(&["has no task `ecco`", "did you mean `echo`?"]);
    edit(&["--max-buffered", "3"]).assert_refused(&["max_buffered means nothing", "`buffer_all`"]);
    edit(&["--anchor", "2020-01-01T00:00:00Z", "--cron", "@daily"]).assert_refused(&["anchor"]);
    site.run(["schedule", "edit", "y", "--jitter", "1m"])
        .assert_refused(&["there is no schedule named `y`"]);
    assert_eq!(show(&site, "x"), before);

    site.sidecar("guests", "[[schedules]]\nname = 'theirs'\nevery = '1h'\n");
    let _host = site.serve();
    for command in [
        &["edit", "theirs", "--jitter", "1m"][..],
        &["rename", "theirs", "mine"],
    ] {
        site.run(["schedule"].into_iter().chain(command.iter().copied()))
            .assert_refused(&["`theirs` is defined in guests.toml", "guests.toml"]);
    }
}

async fn only_an_edit_of_timing_moves_the_cursor(place: Place) {
    let site = Site::with_guests(place);
    let added = site.add("x", "ok", &["--every", "1s", "--catchup", "all"]);
    std::thread::sleep(Duration::from_secs(3));
    let edited = site.json(["schedule", "edit", "x", "--catchup-max", "50"]);
    assert_eq!(edited["cursor"], added["cursor"]);
    assert_eq!(
        edited["next_slot"], added["next_slot"],
        "a slot that is due stays due"
    );
    assert_eq!(site.launches("x"), [Value::Null; 0]);

    let edited = site.json(["schedule", "edit", "x", "--every", "1h"]);
    assert!(millis(&edited["next_slot"]) > millis(&edited["updated_at"]));
    let rows = site.launches("x");
    let [range] = &rows[..] else {
        panic!("one row for the due slots of the old rule: {rows:#?}")
    };
    assert_eq!(
        (&range["reason"], &range["scheduled_time"]),
        (&json!("edited"), &added["next_slot"])
    );
    assert!(range["slot_count"].as_i64() >= Some(2), "{range:#}");
    let cursor = millis(&edited["cursor"]);
    assert!(
        cursor >= millis(&range["last_scheduled_time"]),
        "{edited:#}"
    );
}

async fn a_renamed_schedule_keeps_its_slots_and_its_launches(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let _host = site.serve();
    let before = site.add("old", "ok", &["--cron", "H H * * *"]);
    site.add("other", "ok", &["--every", "1h"]);
    let launch = site.trigger("old", &json!({}));
    site.wait_until_ended("old", &launch);
    site.run(["schedule", "rename", "old", "other"])
        .assert_refused(&["a schedule named `other` exists already"]);
    site.run(["schedule", "rename", "old", "a b"])
        .assert_refused(&["`a b` cannot name a schedule"]);
    site.run(["schedule", "rename", "olds", "new"])
        .assert_refused(&["there is no schedule named `olds`", "did you mean `old`?"]);
    let stdout = site.ok(["schedule", "rename", "old", "new"]);
    assert_eq!(stdout, "renamed old to new, at revision 2\n");
    site.run(["schedule", "show", "old"])
        .assert_refused(&["there is no schedule named `old`"]);
    let after = show(&site, "new");
    for key in ["id", "resolved", "next_slot", "cursor", "created_at"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    assert_eq!(after["launches"][0]["id"], launch.as_str());
    assert_eq!(
        events(&site, "schedule_renamed"),
        [
            (
                "new".to_owned(),
                "was called `old` before revision 2".to_owned()
            ),
            (
                "old".to_owned(),
                "is called `new` from revision 2 on".to_owned()
            ),
        ]
    );
    // Another schedule can take the old name.
    site.add("old", "ok", &["--at", "2099-01-01T00:00:00Z"]);
    assert_eq!(show(&site, "old")["launches"], json!([]));
}

async fn a_slot_can_be_skipped_and_restored(place: Place) {
    let site = Site::with_guests(place);
    site.add(
        "x",
        "ok",
        &["--cron", "0 3 1 1 *", "--start-at", "2090-01-01T00:00:00Z"],
    );
    let slot = "2091-01-01T03:00:00Z";
    let skip = |more: &[&str]| {
        let fixed = ["schedule", "skip", "x"];
        site.run(fixed.into_iter().chain(more.iter().copied()))
    };
    skip(&["2091-01-01T04:00:00Z"]).assert_refused(&[
        "2091-01-01T04:00:00Z is no future slot of `x`",
        "the nearest are 2091-01-01T03:00:00Z and 2092-01-01T03:00:00Z",
    ]);
    skip(&["2089-01-01T03:00:00Z"]).assert_refused(&["the nearest is 2090-01-01T03:00:00Z"]);
    skip(&["2020-01-01T03:00:00Z"]).assert_refused(&["2020-01-01T03:00:00Z is in the past"]);
    skip(&["noon"]).assert_refused(&["`noon`", "RFC 3339"]);
    skip(&[slot, "--undo"])
        .assert_refused(&["the slot 2091-01-01T03:00:00Z of `x` is not skipped"]);

    // The same instant with another offset.
    let output = skip(&["2091-01-01T04:00:00+01:00", "--by", "Ada"]);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (0, "skipped the slot 2091-01-01T03:00:00Z of x\n")
    );
    skip(&[slot]).assert_refused(&["the slot 2091-01-01T03:00:00Z of `x` is skipped already"]);
    assert_eq!(show(&site, "x")["skips"], json!([slot]));
    let stdout = site.ok(["schedule", "next", "x", "-n", "3"]);
    let marked: Vec<&str> = stdout
        .lines()
        .filter(|line| line.ends_with("  skipped"))
        .collect();
    assert!(marked.len() == 1 && marked[0].starts_with(slot), "{stdout}");
    let slots = site.json(["schedule", "next", "x", "-n", "2"]);
    assert_eq!(
        slots,
        json!(["2090-01-01T03:00:00Z", "2092-01-01T03:00:00Z"])
    );
    let stdout = site.ok(["schedule", "show", "x"]);
    assert!(
        stdout
            .lines()
            .any(|line| line.starts_with("skips ") && line.ends_with(slot)),
        "{stdout}"
    );

    let output = skip(&[slot, "--undo", "--by", "Ada"]);
    assert_eq!(
        output.stdout,
        "restored the slot 2091-01-01T03:00:00Z of x\n"
    );
    assert_eq!(show(&site, "x")["skips"], json!([]));
    let event = |change: &str| {
        [(
            "x".to_owned(),
            format!("by Ada: the slot {slot} was {change}"),
        )]
    };
    assert_eq!(events(&site, "slot_skipped"), event("skipped"));
    assert_eq!(events(&site, "slot_restored"), event("restored"));
    assert_eq!(
        show(&site, "x")["revision"],
        json!(1),
        "a skip makes no revision"
    );
}

async fn a_skipped_slot_is_recorded_as_skipped(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let _host = site.serve();
    site.add("x", "ok", &["--every", "1s"]);
    // A slot can be skipped only while it is ahead, and on a busy machine a command takes seconds.
    let skip = |ahead: usize| {
        let count = ahead.to_string();
        let slots = list(site.json(["schedule", "next", "x", "-n", &count]));
        let slot = text(&slots[ahead - 1]);
        let skipped = site.run(["schedule", "skip", "x", &slot]);
        (skipped.code == 0).then_some(slot)
    };
    let slot = [4, 16, 64].into_iter().find_map(skip);
    let slot = slot.expect("a skipped slot");
    let skipped = site.wait_for_launch("x", |row| row["scheduled_time"] == slot.as_str());
    assert_eq!(
        (&skipped["decision"], &skipped["reason"]),
        (&json!("skipped"), &json!("skipped_once"))
    );
    site.wait_for_launch("x", |row| {
        row["status"] == "succeeded"
            && millis(&row["scheduled_time"]) > millis(&skipped["scheduled_time"])
    });
    // The slot is decided, so its skip is deleted.
    eventually(|| match &show(&site, "x")["skips"] {
        skips if *skips == json!([]) => Ok(()),
        skips => Err(format!("{skips}")),
    });
}

async fn a_launch_of_an_earlier_revision_says_so(place: Place) {
    let (site, host) = Site::with_tasks(place, &["ok"]);
    let launch = site.trigger("ok", &json!({}));
    let shown = site.ok(["launch", "show", &launch]);
    assert!(!shown.contains("was edited since"), "{shown}");
    site.ok(["schedule", "edit", "ok", "--jitter", "1m"]);
    let detail = site.json(["launch", "show", &launch]);
    let revisions = [&detail["schedule_revision"], &detail["newest_revision"]];
    assert_eq!(revisions, [&json!(1), &json!(2)]);
    let shown = site.ok(["launch", "show", &launch]);
    assert!(
        shown.contains("1, and 2 now: the schedule was edited since"),
        "{shown}"
    );
    drop(host);
}
