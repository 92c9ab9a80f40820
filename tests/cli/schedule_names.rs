//! Who keeps a schedule's name: the operator's definitions and a package's own name take precedence over proposals.

use std::fs;

use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::guest::described;
use crate::schedules::assert_every_second_is_decided_once;
use crate::site::{Site, eventually, list, millis, stop, text};

on_both_empty!(
    the_operators_definitions_take_names_from_proposals,
    a_replaced_proposal_of_the_same_package_keeps_its_slots,
    between_proposals_the_first_keeps_a_name_that_is_not_the_others_own,
);

/// Puts a package proposing schedules of these names into the plugins folder.
fn propose(site: &Site, package: &str, every: &str, names: &[&str]) {
    let schedules = names
        .iter()
        .map(|name| json!({"name": name, "every": every}));
    let description = json!({
        "tasks": [{"id": "t"}],
        "schedules": schedules.collect::<Vec<_>>(),
    });
    let file = site.plugin(&format!("{package}.wasm"));
    let unfinished = file.with_extension("part");
    fs::write(&unfinished, described(&description)).expect("a package");
    fs::rename(&unfinished, &file).expect("a package");
}

/// Every schedule's name, package and origin.
type Owners = Vec<[String; 3]>;

fn owners(expected: &[[&str; 3]]) -> Owners {
    let owned = |row: &[&str; 3]| row.map(str::to_owned);
    expected.iter().map(owned).collect()
}

#[track_caller]
fn wait_for(site: &Site, host: &HostProcess, expected: &[[&str; 3]]) {
    let expected = owners(expected);
    eventually(|| {
        let rows = list(site.json(["schedule", "list"]));
        let found = rows
            .iter()
            .map(|row| ["name", "package", "origin"].map(|key| text(&row[key])));
        let found: Owners = found.collect();
        match found == expected {
            true => Ok(()),
            false => Err(format!("{found:?}\n{}", host.stderr_lines().join("\n"))),
        }
    });
}

/// Returns the subjects of events of one kind.
fn subjects(site: &Site, kind: &str) -> Vec<String> {
    let events = list(site.json(["event", "list"]));
    let events = events.iter().filter(|event| event["kind"] == kind);
    let mut subjects = Vec::from_iter(events.map(|event| text(&event["subject"])));
    subjects.sort_unstable();
    subjects
}

async fn the_operators_definitions_take_names_from_proposals(place: Place) {
    let site = Site::new(place);
    let all = ["hello", "later", "nightly", "side", "tick"];
    propose(&site, "aaa", "1h", &all);
    let mut host = site.serve();
    wait_for(&site, &host, &all.map(|name| [name, "aaa", "package"]));

    site.copy_package("hello");
    fs::copy(site.plugin("hello.wasm"), site.plugin("side.wasm")).expect("a package");
    site.sidecar("side", "[[schedules]]\nname = 'side'\nevery = '1s'\n");
    let file = "[[schedules]]\nname = 'tick'\npackage = 'hello'\nevery = '1s'\n";
    fs::write(site.folder().join("schedules.toml"), file).expect("a schedules file");
    site.ok(["schedule", "add", "nightly", "--package=aaa", "--every=1d"]);
    host.wait_for_line("added hello");
    site.ok(["schedule", "add", "other", "--package=hello", "--every=1d"]);
    site.ok(["schedule", "rename", "other", "later"]);
    let expected = [
        ["hello", "hello", "package"],
        ["later", "hello", "operator"],
        ["nightly", "aaa", "operator"],
        ["side", "side", "sidecar"],
        ["tick", "hello", "file"],
    ];
    wait_for(&site, &host, &expected);
    assert_eq!(subjects(&site, "proposal_replaced"), all);
    for name in ["side", "tick"] {
        site.wait_for_launch(name, |row| row["status"] == "succeeded");
    }

    // Unused proposals are shown, with the reason.
    let unused = list(site.json(["package", "show", "aaa"])["unused_proposals"].clone());
    let unused: Vec<String> = unused.iter().map(|it| text(&it["why"])).collect();
    let why = [
        "`hello` is proposed by the package `hello`",
        "`later` is the operator's",
        "`nightly` is the operator's",
        "`side` is defined in side.toml",
        "`tick` is defined in the schedules file",
    ];
    assert_eq!(unused, why);
    for name in all {
        let shown = site.json(["schedule", "show", name]);
        let expected = match name {
            // Its sidecar replaces its own proposal too.
            "side" => json!(["aaa", "side"]),
            _ => json!(["aaa"]),
        };
        assert_eq!(shown["replaces_proposals_of"], expected, "{name}");
    }

    // Asking again for the names, even after a restart, is in vain, while the package's other proposals are followed.
    propose(
        &site,
        "aaa",
        "1h",
        &["free", "hello", "nightly", "side", "tick"],
    );
    let with_free = [&[["free", "aaa", "package"]], &expected[..]].concat();
    wait_for(&site, &host, &with_free);
    propose(&site, "aaa", "1h", &all);
    wait_for(&site, &host, &expected);
    site.ok(["schedule", "remove", "nightly"]);
    stop(&mut host);
    let host = site.serve();
    let expected = expected.map(|[name, package, origin]| match name {
        // The name is free again.
        "nightly" => [name, package, "package"],
        _ => [name, package, origin],
    });
    wait_for(&site, &host, &expected);
    assert_eq!(subjects(&site, "proposal_replaced"), all);
}

async fn a_replaced_proposal_of_the_same_package_keeps_its_slots(place: Place) {
    let site = Site::new(place);
    propose(&site, "pack", "1s", &["tick"]);
    let _host = site.serve();
    site.wait_for_launch("tick", |row| row["status"] == "succeeded");
    let before = site.json(["schedule", "show", "tick"]);
    let add = [
        "schedule",
        "add",
        "tick",
        "--package=pack",
        "--every=1s",
        "--max-attempts=2",
    ];
    let added = site.json(add);
    let key = |row: &Value| (row["id"].clone(), row["created_at"].clone());
    assert_eq!(key(&added), key(&before));
    assert_eq!(
        (&added["revision"], &added["origin"]),
        (&json!(2), &json!("operator"))
    );
    let since = millis(&added["updated_at"]);
    site.wait_for_launch("tick", |row| {
        row["status"] == "succeeded" && millis(&row["scheduled_time"]) > since + 2_000
    });
    // Each second has one decision, with none missing or doubled at the changeover.
    assert_every_second_is_decided_once(&site.launches("tick"));
    // Operators' definitions don't yield to one another.
    site.run(add)
        .assert_refused(&["`tick` exists already", "the operator's"]);
}

async fn between_proposals_the_first_keeps_a_name_that_is_not_the_others_own(place: Place) {
    let site = Site::new(place);
    let names = ["second", "second-nightly", "secondary"];
    propose(&site, "first", "1h", &names);
    let mut host = site.serve();
    wait_for(&site, &host, &names.map(|name| [name, "first", "package"]));
    propose(&site, "second", "1h", &names);
    let expected = [
        ["second", "second", "package"],
        ["second-nightly", "second", "package"],
        ["secondary", "first", "package"],
    ];
    wait_for(&site, &host, &expected);
    let line = host.wait_for_line("`secondary` exists already");
    assert!(line.contains("proposed by the package `first`"), "{line}");
    stop(&mut host);
    let host = site.serve();
    wait_for(&site, &host, &expected);
    let replaced = subjects(&site, "proposal_replaced");
    assert_eq!(replaced, ["second", "second-nightly"]);
}
