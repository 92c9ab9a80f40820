//! A host and its plugins folder: what is dropped in rings, whatever happens to the file later.

use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::tower::{Tower, eventually, keys, list, millis, package, text};

on_both_empty!(
    a_package_dropped_into_a_running_hosts_folder_rings_by_its_own_schedule,
    the_last_good_version_rings_on_until_a_better_one_comes,
    slots_of_a_deleted_package_are_skipped_until_it_is_back,
);

async fn a_package_dropped_into_a_running_hosts_folder_rings_by_its_own_schedule(place: Place) {
    let tower = Tower::new(place);
    let host = tower.serve();
    tower.bring("hello");
    host.wait_for_line("added hello");
    let schedule = eventually(|| {
        let all = list(tower.json(["schedule", "list"]));
        all.first().cloned().ok_or_else(|| "no schedule".to_owned())
    });
    assert_eq!(schedule["name"], "hello");
    assert_eq!(schedule["origin"], "package");
    assert_eq!(schedule["expression"], "10s");
    let first_slot = text(&schedule["next_slot"]);
    let launch = tower.launch_where("hello", |row| row["status"] == "succeeded");
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
    let run = tower.run_of(&launch);
    assert_eq!(run["launch_id"], launch["id"]);
    assert_eq!(
        run["tasks"][0]["output"],
        json!({"message": "Hello, world!"})
    );
    let logs = tower.json(["run", "logs", &text(&launch["run_id"])]);
    assert_eq!(logs[0]["logs"][0]["message"], "Hello, world!");
}

/// A tower whose package `noop` rings every second by its sidecar.
fn ringing(place: Place) -> (Tower, HostProcess) {
    let tower = Tower::new(place);
    tower.bring("noop");
    tower.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    let host = tower.serve();
    (tower, host)
}

/// The next launch that succeeds after all those there are now.
fn next_success(tower: &Tower) -> Value {
    let seen = tower.launches("noop").len();
    let newest = tower.launches("noop")[..seen]
        .iter()
        .map(|row| millis(&row["scheduled_time"]))
        .max()
        .unwrap_or(0);
    tower.launch_where("noop", |row| {
        row["status"] == "succeeded" && millis(&row["scheduled_time"]) > newest
    })
}

fn package_state(tower: &Tower, name: &str) -> Value {
    let all = list(tower.json(["package", "list"]));
    let found = all.into_iter().find(|package| package["name"] == name);
    found.unwrap_or(Value::Null)
}

async fn the_last_good_version_rings_on_until_a_better_one_comes(place: Place) {
    let (tower, mut host) = ringing(place);
    let first = next_success(&tower)["digest"].clone();

    std::fs::write(tower.plugin("noop.wasm"), "a broken build").expect("a broken file");
    let said = host.wait_for_line("rejected noop");
    assert!(said.contains("this is not WebAssembly"), "{said}");
    assert_eq!(next_success(&tower)["digest"], first, "the old one goes on");
    let state = package_state(&tower, "noop");
    assert_eq!(state["digest"], first);
    let rejection = text(&state["rejection"]);
    assert!(rejection.contains("this is not WebAssembly"), "{state:#}");

    // Its bytes are on the record: a restart with the broken file still there changes nothing.
    host.terminate();
    assert!(host.wait_exit().success());
    let host = tower.serve();
    assert_eq!(
        next_success(&tower)["digest"],
        first,
        "also after a restart"
    );

    // A custom section changes the file and not the code.
    let mut better = std::fs::read(package("noop")).expect("a package");
    better.extend_from_slice(&[0, 5, 4, b'n', b'o', b't', b'e']);
    std::fs::write(tower.plugin("noop.wasm"), better).expect("a better file");
    host.wait_for_line("updated noop");
    let second = next_success(&tower)["digest"].clone();
    assert_ne!(second, first, "the newer one takes over");
    let state = package_state(&tower, "noop");
    assert_eq!(
        (&state["digest"], &state["rejection"]),
        (&second, &Value::Null)
    );
}

async fn slots_of_a_deleted_package_are_skipped_until_it_is_back(place: Place) {
    let (tower, host) = ringing(place);
    let before = next_success(&tower);

    std::fs::remove_file(tower.plugin("noop.wasm")).expect("the file");
    host.wait_for_line("removed noop");
    let skipped = tower.launch_where("noop", |row| row["reason"] == "package_missing");
    assert_eq!(skipped["decision"], "skipped");
    assert_eq!(skipped["status"], "skipped");
    assert_eq!(skipped["run_id"], Value::Null);
    assert_eq!(package_state(&tower, "noop")["state"], "missing");
    assert!(tower.launches("noop").contains(&before), "history stays");
    assert_eq!(list(tower.json(["schedule", "list"])).len(), 1);
    tower
        .run(["schedule", "trigger", "noop"])
        .refused(&["the package `noop` is in no live host's folder"]);

    tower.bring("noop");
    host.wait_for_line("added noop");
    let back = next_success(&tower);
    assert_eq!(back["digest"], before["digest"]);
    // Every second from the first to the last has exactly one row.
    let rows = tower.launches("noop");
    let slots: Vec<i64> = rows
        .iter()
        .map(|row| millis(&row["scheduled_time"]) / 1000)
        .collect();
    let every: Vec<i64> = (slots[0]..=slots[slots.len() - 1]).collect();
    assert_eq!(slots, every);
}
