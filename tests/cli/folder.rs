//! A host and its plugins folder: what is dropped in rings, whatever happens to the file later.

use std::fmt::Write as _;
use std::time::Duration;

use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::guest::with_functions;
use crate::site::{Site, eventually, keys, list, millis, package, text};

on_both_empty!(
    a_package_dropped_into_a_running_hosts_folder_rings_by_its_own_schedule,
    the_last_good_version_rings_on_until_a_better_one_comes,
    slots_of_a_deleted_package_are_skipped_until_it_is_back,
    a_sidecar_with_a_wrong_rule_changes_nothing_and_says_where,
    no_schedule_is_ended_for_one_that_was_refused,
    a_new_sidecar_holds_also_while_the_newest_file_is_broken,
    a_package_and_its_schedules_are_on_the_record_together_or_not_at_all,
    a_host_that_still_compiles_can_be_stopped,
);

async fn a_package_dropped_into_a_running_hosts_folder_rings_by_its_own_schedule(place: Place) {
    let site = Site::new(place);
    let host = site.serve();
    site.bring("hello");
    host.wait_for_line("added hello");
    let schedule = eventually(|| {
        let all = list(site.json(["schedule", "list"]));
        all.first().cloned().ok_or_else(|| "no schedule".to_owned())
    });
    assert_eq!(schedule["name"], "hello");
    assert_eq!(schedule["origin"], "package");
    assert_eq!(schedule["expression"], "10s");
    let first_slot = text(&schedule["next_slot"]);
    let launch = site.launch_where("hello", |row| row["status"] == "succeeded");
    for key in [
        "id",
        "schedule",
        "scheduled_time",
        "decision",
        "reason",
        "status",
        "run_id",
        "attempts",
        "claimed_at",
        "started_at",
        "finished_at",
    ] {
        assert!(keys(&launch).contains(&key), "no `{key}`: {launch:#}");
    }
    assert_eq!(launch["scheduled_time"], first_slot.as_str());
    assert_eq!(launch["decision"], "launched");
    assert_eq!(launch["reason"], Value::Null);
    assert_eq!(launch["attempts"], 1);
    let in_order = ["scheduled_time", "claimed_at", "started_at", "finished_at"];
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

/// A site whose package `noop` rings every second by its sidecar.
fn ringing(place: Place) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.bring("noop");
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    let host = site.serve();
    (site, host)
}

/// The next launch that succeeds after all those there are now.
fn next_success(site: &Site) -> Value {
    let seen = site.launches("noop").len();
    let newest = site.launches("noop")[..seen]
        .iter()
        .map(|row| millis(&row["scheduled_time"]))
        .max()
        .unwrap_or(0);
    site.launch_where("noop", |row| {
        row["status"] == "succeeded" && millis(&row["scheduled_time"]) > newest
    })
}

fn package_state(site: &Site, name: &str) -> Value {
    let all = list(site.json(["package", "list"]));
    let found = all.into_iter().find(|package| package["name"] == name);
    found.unwrap_or(Value::Null)
}

async fn the_last_good_version_rings_on_until_a_better_one_comes(place: Place) {
    let (site, mut host) = ringing(place);
    let first = next_success(&site)["digest"].clone();

    std::fs::write(site.plugin("noop.wasm"), "a broken build").expect("a broken file");
    let said = host.wait_for_line("rejected noop");
    assert!(said.contains("this is not WebAssembly"), "{said}");
    assert_eq!(next_success(&site)["digest"], first, "the old one goes on");
    let state = package_state(&site, "noop");
    assert_eq!(state["digest"], first);
    let rejection = text(&state["rejection"]);
    assert!(rejection.contains("this is not WebAssembly"), "{state:#}");

    // Its bytes are on the record: a restart with the broken file still there changes nothing.
    host.terminate();
    assert!(host.wait_exit().success());
    let host = site.serve();
    assert_eq!(next_success(&site)["digest"], first, "also after a restart");

    // A custom section changes the file and not the code.
    let mut better = std::fs::read(package("noop")).expect("a package");
    better.extend_from_slice(&[0, 5, 4, b'n', b'o', b't', b'e']);
    std::fs::write(site.plugin("noop.wasm"), better).expect("a better file");
    host.wait_for_line("updated noop");
    let second = next_success(&site)["digest"].clone();
    assert_ne!(second, first, "the newer one takes over");
    let state = package_state(&site, "noop");
    assert_eq!(
        (&state["digest"], &state["rejection"]),
        (&second, &Value::Null)
    );
}

async fn slots_of_a_deleted_package_are_skipped_until_it_is_back(place: Place) {
    let (site, host) = ringing(place);
    let before = next_success(&site);

    std::fs::remove_file(site.plugin("noop.wasm")).expect("the file");
    host.wait_for_line("removed noop");
    let skipped = site.launch_where("noop", |row| row["reason"] == "package_missing");
    assert_eq!(skipped["decision"], "skipped");
    assert_eq!(skipped["status"], "skipped");
    assert_eq!(skipped["run_id"], Value::Null);
    assert_eq!(package_state(&site, "noop")["state"], "missing");
    assert!(site.launches("noop").contains(&before), "history stays");
    assert_eq!(list(site.json(["schedule", "list"])).len(), 1);
    site.run(["schedule", "trigger", "noop"])
        .refused(&["the package `noop` is in no live host's folder"]);

    site.bring("noop");
    host.wait_for_line("added noop");
    let back = next_success(&site);
    assert_eq!(back["digest"], before["digest"]);
    // Every second from the first to the last has exactly one row.
    let rows = site.launches("noop");
    let slots: Vec<i64> = rows
        .iter()
        .map(|row| millis(&row["scheduled_time"]) / 1000)
        .collect();
    let every: Vec<i64> = (slots[0]..=slots[slots.len() - 1]).collect();
    assert_eq!(slots, every);
}

fn schedule_names(site: &Site) -> Vec<String> {
    let all = list(site.json(["schedule", "list"]));
    all.iter().map(|schedule| text(&schedule["name"])).collect()
}

async fn a_sidecar_with_a_wrong_rule_changes_nothing_and_says_where(place: Place) {
    let (site, host) = ringing(place);
    next_success(&site);
    site.sidecar(
        "noop",
        "[[schedules]]\nname = 'new'\ncron = '* * * * MOO'\n",
    );
    let said = host.wait_for_line("rejected noop");
    assert!(
        said.contains("noop.toml:3:1: `schedules[0].cron` is refused"),
        "{said}"
    );
    next_success(&site);
    assert_eq!(schedule_names(&site), ["noop"]);
    let rejection = text(&package_state(&site, "noop")["rejection"]);
    assert!(rejection.contains("noop.toml:3"), "{rejection}");
}

async fn no_schedule_is_ended_for_one_that_was_refused(place: Place) {
    let (site, host) = ringing(place);
    site.ok([
        "schedule",
        "add",
        "mine",
        "--package",
        "noop",
        "--every",
        "1h",
    ]);
    // A new name for the same schedule, which the operator's has already.
    site.sidecar("noop", "[[schedules]]\nname = 'mine'\nevery = '1s'\n");
    let said = host.wait_for_line("is refused");
    assert!(said.contains("`mine` exists already"), "{said}");
    next_success(&site);
    assert_eq!(schedule_names(&site), ["mine", "noop"]);
    let events = list(site.json(["event", "list"]));
    let refused = events
        .iter()
        .find(|event| event["kind"] == "schedule_refused");
    assert_eq!(refused.expect("an event")["subject"], "mine");
}

async fn a_new_sidecar_holds_also_while_the_newest_file_is_broken(place: Place) {
    let (site, host) = ringing(place);
    let first = next_success(&site)["digest"].clone();
    std::fs::write(site.plugin("noop.wasm"), "a broken build").expect("a broken file");
    host.wait_for_line("rejected noop");
    site.sidecar("noop", "[[schedules]]\nname = 'other'\nevery = '1s'\n");
    host.wait_for_line("applied the new settings of noop");
    let launch = site.launch_where("other", |row| row["status"] == "succeeded");
    assert_eq!(launch["digest"], first);
    assert_eq!(schedule_names(&site), ["other"]);
    eventually(|| match &package_state(&site, "noop")["rejection"] {
        Value::Null => Err("the rejection is forgotten".to_owned()),
        _ => Ok(()),
    });
}

async fn a_package_and_its_schedules_are_on_the_record_together_or_not_at_all(place: Place) {
    let site = Site::new(place);
    let often = "[watch]\nrescan = '1s'\n";
    std::fs::write(site.folder().join("campanile.toml"), often).expect("a configuration");
    let host = site.serve();
    site.execute("ALTER TABLE schedule_revision RENAME TO elsewhere")
        .await;
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    site.bring("noop");
    host.wait_for_line("following the plugin folder");
    assert_eq!(package_state(&site, "noop"), Value::Null);
    site.execute("ALTER TABLE elsewhere RENAME TO schedule_revision")
        .await;
    eventually(|| match schedule_names(&site) {
        names if names == ["noop"] => Ok(()),
        names => Err(format!("{names:?}")),
    });
    site.launch_where("noop", |row| row["status"] == "succeeded");

    // A rejection too is found again until it is on the record.
    site.execute("ALTER TABLE event RENAME TO elsewhere").await;
    std::fs::write(site.plugin("bad.wasm"), "a broken build").expect("a broken file");
    eventually(|| {
        let said = host.stderr_lines();
        let is_it =
            |line: &String| line.contains("following the plugin folder") && line.contains("event");
        match said.iter().any(is_it) {
            true => Ok(()),
            false => Err(said.join("\n")),
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

/// A component that is sound and takes the compiler tens of seconds.
fn laborious() -> Vec<u8> {
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

async fn a_host_that_still_compiles_can_be_stopped(place: Place) {
    let site = Site::new(place);
    let anew = "[sandbox]\ncache = false\n";
    std::fs::write(site.folder().join("campanile.toml"), anew).expect("a configuration");
    site.bring("noop");
    let mut host = site.serve();
    std::fs::write(site.plugin("slow.wasm"), laborious()).expect("a package");
    // What needs no compiling does not wait for what does.
    site.sidecar("noop", "[[schedules]]\nevery = '1h'\n");
    host.wait_for_line("applied the new settings of noop");
    host.terminate();
    assert!(host.wait_exit_within(Duration::from_secs(10)).success());
    assert!(!host.stderr_lines().join("\n").contains("slow"));

    // Nor is a stop at the start waited for.
    let mut host = site.start(&[]);
    host.wait_for_line("added noop");
    host.terminate();
    assert!(host.wait_exit_within(Duration::from_secs(10)).success());
    let said = host.stderr_lines().join("\n");
    assert!(
        said.contains("stopped before the plugin folder was scanned"),
        "{said}"
    );
    assert!(!said.contains("serving"), "{said}");
}
