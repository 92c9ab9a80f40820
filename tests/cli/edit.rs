//! A schedule that is there: edited, renamed, and a slot of it taken out.

use std::process::Stdio;
use std::time::Duration;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, millis, text};

on_both_empty!(
    an_edit_changes_what_is_given_and_nothing_else,
    an_edit_of_what_somebody_else_has_changed_shows_both_versions,
    edits_that_make_no_sense_are_refused_and_change_nothing,
    an_edit_of_timing_never_looks_back_and_any_other_keeps_the_cursor,
    a_renamed_schedule_keeps_its_slots_and_its_launches,
    a_slot_is_taken_out_and_put_back,
    a_slot_that_was_taken_out_is_on_the_record_as_skipped,
);

fn show(site: &Site, name: &str) -> Value {
    site.json(["schedule", "show", name])
}

/// The events of one kind, newest first: subject and detail.
fn events(site: &Site, kind: &str) -> Vec<(String, String)> {
    list(site.json(["event", "list"]))
        .iter()
        .filter(|event| event["kind"] == kind)
        .map(|event| (text(&event["subject"]), text(&event["detail"])))
        .collect()
}

async fn an_edit_changes_what_is_given_and_nothing_else(place: Place) {
    let site = Site::known(place);
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

    // Nothing new is no revision.
    let same = edit(&["--every", "1d", "--tz", "UTC"]);
    assert_eq!(changed(&last, &same), [""; 0]);
    let words = site.ok(["schedule", "edit", "x", "--jitter", "1m"]);
    let revision = last["revision"].as_i64().unwrap_or(0) + 1;
    assert!(
        words.starts_with(&format!(
            "x is at revision {revision}: every 1d, next slot "
        )),
        "{words}"
    );
}

async fn an_edit_of_what_somebody_else_has_changed_shows_both_versions(place: Place) {
    let site = Site::known(place);
    site.add("x", "ok", &["--every", "1h", "--jitter", "30s"]);
    let mine = [
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
    let now = show(&site, "x");
    let said = site.run(mine);
    said.refused(&[
        "`x` was changed since revision 1, it is at revision 2 now:",
        "\n  every   1h  ->  2h\n",
        "\n  jitter  30s  ->  -\n",
        "hint: look at it with `campanile schedule show x`, then edit it with --revision 2",
    ]);
    for same in ["package", "timezone", "task"] {
        assert!(!said.stderr.contains(same), "{said:?}");
    }
    assert_eq!(show(&site, "x"), now, "nothing was changed");
    site.run([
        "schedule",
        "edit",
        "x",
        "--revision",
        "7",
        "--catchup",
        "all",
    ])
    .refused(&["`x` never had a revision 7; it is at revision 2"]);
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

    // Of many at the same moment with the same token one wins.
    let args = |n: usize| {
        let span = format!("{}s", n + 1);
        let fixed = ["schedule", "edit", "x", "--revision", "3", "--jitter"].map(str::to_owned);
        fixed.into_iter().chain([span]).collect::<Vec<String>>()
    };
    let racing: Vec<_> = (0..6)
        .map(|n| {
            site.command(args(n))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        })
        .collect();
    let codes: Vec<Option<i32>> = racing
        .into_iter()
        .map(|child| {
            child
                .and_then(|mut child| child.wait())
                .expect("a process")
                .code()
        })
        .collect();
    let with = |code: i32| codes.iter().filter(|other| **other == Some(code)).count();
    assert_eq!((with(0), with(2)), (1, 5), "{codes:?}");
    assert_eq!(show(&site, "x")["revision"], json!(4));
}

async fn edits_that_make_no_sense_are_refused_and_change_nothing(place: Place) {
    let site = Site::known(place);
    site.add("x", "ok", &["--every", "1h", "--jitter", "30m"]);
    let before = show(&site, "x");
    let edit = |more: &[&str]| {
        let fixed = ["schedule", "edit", "x"];
        site.run(fixed.into_iter().chain(more.iter().copied()))
    };
    edit(&[]).refused(&["nothing was given to change", "hint: "]);
    edit(&["--every", "10m"])
        .refused(&["jitter is 30m, longer than from one slot to the next, 10m"]);
    edit(&["--jitter", "1m", "--clear", "jitter"]).refused(&[
        "--clear jitter and --jitter contradict each other",
        "hint: keep one",
    ]);
    edit(&["--clear", "jiter"]).refused(&["unknown key; did you mean `jitter`?"]);
    edit(&["--cron", "@daily", "--every", "1d"]).refused(&["cannot be used with"]);
    edit(&["--at", "2020-01-01T00:00:00Z", "--clear", "jitter"])
        .refused(&["2020-01-01T00:00:00Z is in the past"]);
    edit(&["--end-at", "2020-01-01T00:00:00Z"]).refused(&["2020-01-01T00:00:00Z is in the past"]);
    edit(&["--package", "guest"]).refused(&["did you mean `guests`?"]);
    edit(&["--task", "ecco"]).refused(&["has no task `ecco`", "did you mean `echo`?"]);
    edit(&["--max-buffered", "3"]).refused(&["max_buffered means nothing", "`buffer_all`"]);
    edit(&["--anchor", "2020-01-01T00:00:00Z", "--cron", "@daily"]).refused(&["anchor"]);
    site.run(["schedule", "edit", "y", "--jitter", "1m"])
        .refused(&["there is no schedule named `y`"]);
    assert_eq!(show(&site, "x"), before);

    site.sidecar("guests", "[[schedules]]\nname = 'theirs'\nevery = '1h'\n");
    let _host = site.serve();
    for order in [
        &["edit", "theirs", "--jitter", "1m"][..],
        &["rename", "theirs", "mine"],
    ] {
        site.run(["schedule"].into_iter().chain(order.iter().copied()))
            .refused(&[
                "`theirs` is defined in its package's sidecar",
                "guests.toml",
            ]);
    }
}

async fn an_edit_of_timing_never_looks_back_and_any_other_keeps_the_cursor(place: Place) {
    let site = Site::known(place);
    let added = site.add("x", "ok", &["--every", "1s", "--catchup", "all"]);
    std::thread::sleep(Duration::from_secs(3));
    let edited = site.json(["schedule", "edit", "x", "--catchup-max", "50"]);
    assert_eq!(edited["cursor"], added["cursor"]);
    assert_eq!(
        edited["next_slot"], added["next_slot"],
        "what is owed is owed"
    );
    assert_eq!(site.launches("x"), [Value::Null; 0]);

    let edited = site.json(["schedule", "edit", "x", "--every", "1h"]);
    assert!(millis(&edited["next_slot"]) > millis(&edited["updated_at"]));
    let rows = site.launches("x");
    let [range] = &rows[..] else {
        panic!("one row for what the old rule still owed: {rows:#?}")
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
    site.bring("guests");
    let _host = site.serve();
    let before = site.add("old", "ok", &["--cron", "H H * * *"]);
    site.add("other", "ok", &["--every", "1h"]);
    let launch = site.trigger("old", &json!({}));
    site.ended("old", &launch);
    site.run(["schedule", "rename", "old", "other"])
        .refused(&["a schedule named `other` exists already"]);
    site.run(["schedule", "rename", "old", "a b"])
        .refused(&["`a b` cannot name a schedule"]);
    site.run(["schedule", "rename", "olds", "new"])
        .refused(&["there is no schedule named `olds`", "did you mean `old`?"]);
    let words = site.ok(["schedule", "rename", "old", "new"]);
    assert_eq!(words, "renamed old to new, at revision 2\n");
    site.run(["schedule", "show", "old"])
        .refused(&["there is no schedule named `old`"]);
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
    // Its old name is free.
    site.add("old", "ok", &["--every", "1h"]);
    assert_eq!(show(&site, "old")["launches"], json!([]));
}

async fn a_slot_is_taken_out_and_put_back(place: Place) {
    let site = Site::known(place);
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
    skip(&["2091-01-01T04:00:00Z"]).refused(&[
        "2091-01-01T04:00:00Z is no future slot of `x`",
        "the nearest are 2091-01-01T03:00:00Z and 2092-01-01T03:00:00Z",
    ]);
    skip(&["2089-01-01T03:00:00Z"]).refused(&["the nearest is 2090-01-01T03:00:00Z"]);
    skip(&["2020-01-01T03:00:00Z"]).refused(&["2020-01-01T03:00:00Z is in the past"]);
    skip(&["noon"]).refused(&["`noon`", "RFC 3339"]);
    skip(&[slot, "--undo"]).refused(&["the slot 2091-01-01T03:00:00Z of `x` is not skipped"]);

    // The same instant, however it is written.
    let said = skip(&["2091-01-01T04:00:00+01:00", "--by", "Ada"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "skipped the slot 2091-01-01T03:00:00Z of x\n")
    );
    skip(&[slot]).refused(&["the slot 2091-01-01T03:00:00Z of `x` is skipped already"]);
    assert_eq!(show(&site, "x")["skips"], json!([slot]));
    let words = site.ok(["schedule", "next", "x", "-n", "3"]);
    let marked: Vec<&str> = words
        .lines()
        .filter(|line| line.ends_with("  skipped"))
        .collect();
    assert!(marked.len() == 1 && marked[0].starts_with(slot), "{words}");
    let rings = site.json(["schedule", "next", "x", "-n", "2"]);
    assert_eq!(
        rings,
        json!(["2090-01-01T03:00:00Z", "2092-01-01T03:00:00Z"])
    );
    let words = site.ok(["schedule", "show", "x"]);
    assert!(
        words
            .lines()
            .any(|line| line.starts_with("skips ") && line.ends_with(slot)),
        "{words}"
    );

    let said = skip(&[slot, "--undo", "--by", "Ada"]);
    assert_eq!(said.stdout, "restored the slot 2091-01-01T03:00:00Z of x\n");
    assert_eq!(show(&site, "x")["skips"], json!([]));
    let x = |what: &str| {
        [(
            "x".to_owned(),
            format!("by Ada: the slot {slot} was {what}"),
        )]
    };
    assert_eq!(events(&site, "slot_skipped"), x("skipped"));
    assert_eq!(events(&site, "slot_restored"), x("restored"));
    assert_eq!(
        show(&site, "x")["revision"],
        json!(1),
        "it says what it said"
    );
}

async fn a_slot_that_was_taken_out_is_on_the_record_as_skipped(place: Place) {
    let site = Site::new(place);
    site.bring("guests");
    let _host = site.serve();
    site.add("x", "ok", &["--every", "1s"]);
    let slots = list(site.json(["schedule", "next", "x", "-n", "4"]));
    let slot = text(&slots[3]);
    site.ok(["schedule", "skip", "x", &slot]);
    let skipped = site.launch_where("x", |row| row["scheduled_time"] == slot.as_str());
    assert_eq!(
        (&skipped["decision"], &skipped["reason"]),
        (&json!("skipped"), &json!("skipped_once"))
    );
    site.launch_where("x", |row| {
        row["status"] == "succeeded"
            && millis(&row["scheduled_time"]) > millis(&skipped["scheduled_time"])
    });
    // It is decided, and need not be remembered.
    eventually(|| match &show(&site, "x")["skips"] {
        skips if *skips == json!([]) => Ok(()),
        skips => Err(format!("{skips}")),
    });
}
