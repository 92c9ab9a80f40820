//! A host and its plugins folder: packages are added, replaced, broken and deleted while it serves.

use std::fmt::Write as _;

use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::guest::with_functions;
use crate::site::{Site, eventually, keys, list, millis, package, stop, text};

on_both_empty!(
    a_package_added_to_the_plugins_folder_launches_on_its_schedule,
    the_last_good_version_stays_active_until_a_valid_one_arrives,
    slots_of_a_deleted_package_are_skipped_until_its_file_returns,
    a_sidecar_with_an_invalid_rule_is_rejected_with_its_line,
    a_refused_schedule_ends_no_existing_schedule,
    a_new_sidecar_applies_while_the_package_file_is_broken,
    a_package_and_its_schedules_are_recorded_in_one_transaction,
    a_host_stops_while_a_package_compiles,
);

async fn a_package_added_to_the_plugins_folder_launches_on_its_schedule(place: Place) {
    let site = Site::new(place);
    let host = site.serve();
    site.copy_package("hello");
    host.wait_for_line("added hello");
    let schedule = eventually(|| {
        let all = list(site.json(["schedule", "list"]));
        all.first().cloned().ok_or_else(|| "no schedule".to_owned())
    });
    assert_eq!(schedule["name"], "hello");
    assert_eq!(schedule["origin"], "package");
    assert_eq!(schedule["expression"], "10s");
    // An earlier slot may have been launched before the list was read, and a slow host may skip
    // this one.
    let next_slot = millis(&schedule["next_slot"]);
    let launch = site.wait_for_launch("hello", |row| {
        millis(&row["scheduled_time"]) >= next_slot && row["status"] == "succeeded"
    });
    for key in [
        "id",
        "schedule",
        "scheduled_time",
        "decision",
        "reason",
        "status",
        "run_id",
        "attempts",
        "decided_at",
        "started_at",
        "finished_at",
    ] {
        assert!(keys(&launch).contains(&key), "no `{key}`: {launch:#}");
    }
    assert_eq!(launch["decision"], "launched");
    assert_eq!(launch["reason"], Value::Null);
    assert_eq!(launch["attempts"], 1);
    let in_order = ["scheduled_time", "decided_at", "started_at", "finished_at"];
    for (earlier, later) in in_order.iter().zip(&in_order[1..]) {
        assert!(
            millis(&launch[*earlier]) <= millis(&launch[*later]),
            "{launch:#}"
        );
    }
    let run = site.run_of(&launch);
    assert_eq!(run["launch_id"], launch["id"]);
    assert_eq!(
        run["tasks"][0]["output"],
        json!({"message": "Hello, world!"})
    );
    let logs = site.json(["run", "logs", &text(&launch["run_id"])]);
    assert_eq!(logs[0]["logs"][0]["message"], "Hello, world!");
}

/// Return a site with a host whose package `noop` launches every second.
fn serve_noop(place: Place) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.copy_package("noop");
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    let host = site.serve();
    (site, host)
}

/// Wait for a successful launch of a slot after those of all existing launches.
fn next_success(site: &Site) -> Value {
    let existing = site.launches("noop").len();
    let newest = site.launches("noop")[..existing]
        .iter()
        .map(|row| millis(&row["scheduled_time"]))
        .max()
        .unwrap_or(0);
    site.wait_for_launch("noop", |row| {
        row["status"] == "succeeded" && millis(&row["scheduled_time"]) > newest
    })
}

fn package_state(site: &Site, name: &str) -> Value {
    let all = list(site.json(["package", "list"]));
    let found = all.into_iter().find(|package| package["name"] == name);
    found.unwrap_or(Value::Null)
}

async fn the_last_good_version_stays_active_until_a_valid_one_arrives(place: Place) {
    let (site, mut host) = serve_noop(place);
    let first = next_success(&site)["digest"].clone();

    std::fs::write(site.plugin("noop.wasm"), "a broken build").expect("a broken file");
    let line = host.wait_for_line("rejected noop");
    assert!(line.contains("this is not WebAssembly"), "{line}");
    assert_eq!(
        next_success(&site)["digest"],
        first,
        "the old version stays active"
    );
    let state = package_state(&site, "noop");
    assert_eq!(state["digest"], first);
    let rejection = text(&state["rejection"]);
    assert!(rejection.contains("this is not WebAssembly"), "{state:#}");

    // The database has the bytes of the version, so a restart with the broken file changes nothing.
    stop(&mut host);
    let host = site.serve();
    assert_eq!(
        next_success(&site)["digest"],
        first,
        "the version is active after a restart"
    );

    // A custom section changes the file and not the code.
    let mut better = std::fs::read(package("noop")).expect("a package");
    better.extend_from_slice(&[0, 5, 4, b'n', b'o', b't', b'e']);
    std::fs::write(site.plugin("noop.wasm"), better).expect("a better file");
    host.wait_for_line("updated noop");
    let second = next_success(&site)["digest"].clone();
    assert_ne!(second, first, "the new version is active");
    let state = package_state(&site, "noop");
    assert_eq!(
        (&state["digest"], &state["rejection"]),
        (&second, &Value::Null)
    );
}

async fn slots_of_a_deleted_package_are_skipped_until_its_file_returns(place: Place) {
    let (site, host) = serve_noop(place);
    let before = next_success(&site);

    std::fs::remove_file(site.plugin("noop.wasm")).expect("the file");
    host.wait_for_line("removed noop");
    let skipped = site.wait_for_launch("noop", |row| row["reason"] == "package_missing");
    assert_eq!(skipped["decision"], "skipped");
    assert_eq!(skipped["status"], "skipped");
    assert_eq!(skipped["run_id"], Value::Null);
    assert_eq!(package_state(&site, "noop")["state"], "missing");
    assert!(
        site.launches("noop").contains(&before),
        "earlier launches stay"
    );
    assert_eq!(list(site.json(["schedule", "list"])).len(), 1);
    site.run(["schedule", "trigger", "noop"])
        .assert_refused(&["the package `noop` is in no live host's folder"]);

    site.copy_package("noop");
    host.wait_for_line("added noop");
    let back = next_success(&site);
    assert_eq!(back["digest"], before["digest"]);
    // Every second from the first to the last has exactly one row. A row of skipped slots stands for several.
    let rows = site.launches("noop");
    let second = |row: &Value, key: &str| millis(&row[key]) / 1000;
    let slots = rows
        .iter()
        .flat_map(|row| second(row, "scheduled_time")..=second(row, "last_scheduled_time"));
    let slots: Vec<i64> = slots.collect();
    let every: Vec<i64> = (slots[0]..=slots[slots.len() - 1]).collect();
    assert_eq!(slots, every);
}

fn schedule_names(site: &Site) -> Vec<String> {
    let all = list(site.json(["schedule", "list"]));
    all.iter().map(|schedule| text(&schedule["name"])).collect()
}

async fn a_sidecar_with_an_invalid_rule_is_rejected_with_its_line(place: Place) {
    let (site, host) = serve_noop(place);
    next_success(&site);
    site.sidecar(
        "noop",
        "[[schedules]]\nname = 'new'\ncron = '* * * * MOO'\n",
    );
    let line = host.wait_for_line("rejected noop");
    assert!(
        line.contains("noop.toml:3:1: `schedules[0].cron` is refused"),
        "{line}"
    );
    next_success(&site);
    assert_eq!(schedule_names(&site), ["noop"]);
    let rejection = text(&package_state(&site, "noop")["rejection"]);
    assert!(rejection.contains("noop.toml:3"), "{rejection}");
}

async fn a_refused_schedule_ends_no_existing_schedule(place: Place) {
    let (site, host) = serve_noop(place);
    site.ok([
        "schedule",
        "add",
        "mine",
        "--package",
        "noop",
        "--every",
        "1h",
    ]);
    // The sidecar renames its schedule to the name of the operator's schedule.
    site.sidecar("noop", "[[schedules]]\nname = 'mine'\nevery = '1s'\n");
    let line = host.wait_for_line("is refused");
    assert!(line.contains("`mine` exists already"), "{line}");
    next_success(&site);
    assert_eq!(schedule_names(&site), ["mine", "noop"]);
    let events = list(site.json(["event", "list"]));
    let refused = events
        .iter()
        .find(|event| event["kind"] == "schedule_refused");
    assert_eq!(refused.expect("an event")["subject"], "mine");
}

async fn a_new_sidecar_applies_while_the_package_file_is_broken(place: Place) {
    let (site, host) = serve_noop(place);
    let first = next_success(&site)["digest"].clone();
    std::fs::write(site.plugin("noop.wasm"), "a broken build").expect("a broken file");
    host.wait_for_line("rejected noop");
    site.sidecar("noop", "[[schedules]]\nname = 'other'\nevery = '1s'\n");
    host.wait_for_line("applied the new settings of noop");
    let launch = site.wait_for_launch("other", |row| row["status"] == "succeeded");
    assert_eq!(launch["digest"], first);
    assert_eq!(schedule_names(&site), ["other"]);
    eventually(|| match &package_state(&site, "noop")["rejection"] {
        Value::Null => Err("the rejection is gone".to_owned()),
        _ => Ok(()),
    });
}

async fn a_package_and_its_schedules_are_recorded_in_one_transaction(place: Place) {
    let site = Site::new(place);
    site.configure("[watch]\nrescan = '1s'\n");
    let host = site.serve();
    site.execute("ALTER TABLE schedule_revision RENAME TO elsewhere")
        .await;
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    site.copy_package("noop");
    host.wait_for_line("following the plugin folder");
    assert_eq!(package_state(&site, "noop"), Value::Null);
    site.execute("ALTER TABLE elsewhere RENAME TO schedule_revision")
        .await;
    eventually(|| match schedule_names(&site) {
        names if names == ["noop"] => Ok(()),
        names => Err(format!("{names:?}")),
    });
    site.wait_for_launch("noop", |row| row["status"] == "succeeded");

    // The host retries until it can record a rejection.
    site.execute("ALTER TABLE event RENAME TO elsewhere").await;
    std::fs::write(site.plugin("bad.wasm"), "a broken build").expect("a broken file");
    eventually(|| {
        let lines = host.stderr_lines();
        let is_expected =
            |line: &String| line.contains("following the plugin folder") && line.contains("event");
        match lines.iter().any(is_expected) {
            true => Ok(()),
            false => Err(lines.join("\n")),
        }
    });
    assert_eq!(package_state(&site, "bad"), Value::Null);
    site.execute("ALTER TABLE elsewhere RENAME TO event").await;
    let package = eventually(|| match package_state(&site, "bad") {
        Value::Null => Err("no package".to_owned()),
        package => Ok(package),
    });
    assert_eq!(package["state"], "rejected");
}

/// Return a valid component that takes the compiler tens of seconds.
fn slow_component() -> Vec<u8> {
    const FUNCTIONS: usize = 60;
    const LOCALS: usize = 300;
    const CHOICES: usize = 2_500;
    let mut functions = String::new();
    for function in 0..FUNCTIONS {
        write!(functions, "(func (local{})", " i64".repeat(LOCALS)).expect("text");
        for choice in 0..CHOICES {
            let local = |factor: usize| (choice * factor + function) % LOCALS;
            write!(
                functions,
                "(if (i64.eq (local.get {}) (local.get {})) (then (local.set {} (i64.load (i32.wrap_i64 (local.get {}))))))",
                local(7), local(13), local(31), local(53),
            )
            .expect("text");
        }
        functions.push(')');
    }
    with_functions(&functions)
}

async fn a_host_stops_while_a_package_compiles(place: Place) {
    let site = Site::new(place);
    site.configure("[sandbox]\ncache = false\n");
    site.copy_package("noop");
    let mut host = site.serve();
    std::fs::write(site.plugin("slow.wasm"), slow_component()).expect("a package");
    // A change of a compiled package does not wait for the compilation of another one.
    site.sidecar("noop", "[[schedules]]\nevery = '1h'\n");
    host.wait_for_line("applied the new settings of noop");
    host.terminate();
    let status = host.wait_exit();
    let log = host.stderr_lines().join("\n");
    assert!(status.success(), "{status}: {log}");
    assert!(
        !log.contains("rejected slow") && !log.contains("added slow"),
        "{log}"
    );

    // A stop during the first scan does not wait for the compilation either.
    let mut host = site.start(&[]);
    host.wait_for_line("loading slow");
    host.terminate();
    let status = host.wait_exit();
    let log = host.stderr_lines().join("\n");
    assert!(status.success(), "{status}: {log}");
    assert!(
        log.contains("stopped before the plugin folder was scanned"),
        "{log}"
    );
    assert!(!log.contains("serving"), "{log}");
}
