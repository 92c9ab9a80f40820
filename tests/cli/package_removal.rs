//! A package ends: `package remove`, and what `schedule remove` says about a schedule that is not the operator's.

use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, stop, text};

on_both_empty!(
    a_removed_package_leaves_nothing_but_its_launches,
    a_removed_package_can_keep_its_history,
    a_package_that_is_still_needed_is_not_removed,
    schedule_remove_says_how_a_proposed_schedule_ends,
);

/// Return a site with a host and the package `hello`, which proposes the schedule `hello`.
fn site(place: Place) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.copy_package("hello");
    let host = site.serve();
    assert_eq!(schedule_names(&site), ["hello"]);
    (site, host)
}

fn schedule_names(site: &Site) -> Vec<String> {
    let rows = list(site.json(["schedule", "list"]));
    rows.iter().map(|row| text(&row["name"])).collect()
}

fn package_names(site: &Site) -> Vec<String> {
    let rows = list(site.json(["package", "list"]));
    rows.iter().map(|row| text(&row["name"])).collect()
}

/// Delete the file of `hello`, and wait until the host has noticed.
fn delete_file(site: &Site) {
    std::fs::remove_file(site.plugin("hello.wasm")).expect("a file");
    eventually(|| {
        let state = site.json(["package", "show", "hello"])["state"].clone();
        (state == "missing")
            .then_some(())
            .ok_or_else(|| state.to_string())
    });
}

async fn a_removed_package_leaves_nothing_but_its_launches(place: Place) {
    let (site, _host) = site(place);
    site.trigger_and_wait("hello");
    delete_file(&site);
    // On a busy machine a launch of a slot may still go on.
    let removed = eventually(|| {
        let removed = site.run(["package", "remove", "hello", "--by", "ada", "--json"]);
        match removed.code {
            0 => Ok(removed.json()),
            _ => Err(format!("{removed:?}")),
        }
    });
    assert_eq!(
        (&removed["schedules"], &removed["history_kept"]),
        (&json!(["hello"]), &json!(false))
    );
    assert!(
        removed["bytes"].as_i64().is_some_and(|bytes| bytes > 1_000),
        "{removed}"
    );
    assert!(schedule_names(&site).is_empty() && package_names(&site).is_empty());
    let launches = list(site.json([
        "launch",
        "list",
        "--package",
        "hello",
        "--status",
        "succeeded",
    ]));
    assert!(!launches.is_empty());
    let event = &list(site.json(["event", "list", "--limit", "1"]))[0];
    assert_eq!(
        (&event["kind"], &event["subject"], &event["detail"]),
        (&json!("package_removed"), &json!("hello"), &json!("by ada"))
    );
    site.run(["package", "remove", "hello"])
        .assert_refused(&["there is no package named `hello`"]);
    // The file can come back, as a new package.
    site.copy_package("hello");
    eventually(|| {
        let names = schedule_names(&site);
        (names == ["hello"])
            .then_some(())
            .ok_or_else(|| names.join(", "))
    });
    site.trigger_and_wait("hello");
}

async fn a_removed_package_can_keep_its_history(place: Place) {
    let (site, mut host) = site(place);
    let active = text(&site.json(["package", "show", "hello"])["digest"]);
    stop(&mut host);
    let removed = site.ok(["package", "remove", "hello", "--keep-history"]);
    assert!(
        removed.contains("ended hello") && removed.contains("stay on record"),
        "{removed}"
    );
    let shown = site.json(["package", "show", "hello"]);
    assert_eq!(
        (&shown["state"], &shown["digest"]),
        (&json!("missing"), &json!(active))
    );
    let versions = list(shown["versions"].clone());
    assert_eq!(versions.len(), 1);
    assert!(versions[0]["removed_at"].is_string(), "{versions:?}");
    // The file is still there, so the next host has the package again.
    let _host = site.serve();
    assert_eq!(schedule_names(&site), ["hello"]);
    let shown = site.json(["package", "show", "hello"]);
    assert_eq!(shown["versions"][0]["removed_at"], Value::Null);
    site.trigger_and_wait("hello");
}

async fn a_package_that_is_still_needed_is_not_removed(place: Place) {
    let (site, _host) = site(place);
    site.copy_package("guests");
    eventually(|| {
        let added = [
            "schedule",
            "add",
            "mine",
            "--package",
            "guests",
            "--task",
            "sleep",
            "--at",
        ];
        let added = site.run(added.into_iter().chain(["2099-01-01T00:00:00Z"]));
        (added.code == 0)
            .then_some(())
            .ok_or_else(|| format!("{added:?}"))
    });
    let refused = |name: &str, parts: &[&str]| {
        // Not the next slots of `hello`, which move on.
        let state = || (site.json(["package", "list"]), schedule_names(&site));
        let before = state();
        site.run(["package", "remove", name]).assert_refused(parts);
        let after = state();
        assert_eq!(before, after);
    };
    refused(
        "hello",
        &[
            "has hello.wasm or hello.toml in its folder",
            "delete the file",
        ],
    );
    refused(
        "helo",
        &["no package named `helo`", "did you mean `hello`?"],
    );
    let launch = site.trigger("mine", &json!({"ms": 600_000}));
    site.wait_for_launch("mine", |row| row["status"] == "running");
    std::fs::remove_file(site.plugin("guests.wasm")).expect("a file");
    eventually(|| {
        let state = site.json(["package", "show", "guests"])["state"].clone();
        (state == "missing")
            .then_some(())
            .ok_or_else(|| state.to_string())
    });
    refused(
        "guests",
        &[
            "schedules launch the package `guests`: `mine`",
            "schedule remove",
        ],
    );
    site.ok(["schedule", "remove", "mine"]);
    refused(
        "guests",
        &[
            "a launch of the package `guests` has not ended",
            "run cancel",
        ],
    );
    site.ok(["run", "cancel", &launch, "--grace", "0s"]);
    eventually(|| {
        let removed = site.run(["package", "remove", "guests"]);
        (removed.code == 0)
            .then_some(())
            .ok_or_else(|| format!("{removed:?}"))
    });
    assert_eq!(package_names(&site), ["hello"]);
}

async fn schedule_remove_says_how_a_proposed_schedule_ends(place: Place) {
    let (site, _host) = site(place);
    site.run(["schedule", "remove", "hello"]).assert_refused(&[
        "`hello` is proposed by the package `hello`",
        "write `schedules = []`",
    ]);
    site.sidecar("hello", "schedules = []\n");
    eventually(|| {
        let names = schedule_names(&site);
        names
            .is_empty()
            .then_some(())
            .ok_or_else(|| names.join(", "))
    });
    site.sidecar("hello", "[[schedules]]\nevery = '1h'\n");
    eventually(|| {
        let names = schedule_names(&site);
        (names == ["hello"])
            .then_some(())
            .ok_or_else(|| names.join(", "))
    });
    site.run(["schedule", "remove", "hello"])
        .assert_refused(&["defined in hello.toml", "take it out of hello.toml"]);
    delete_file(&site);
    let refused = site.run(["schedule", "remove", "hello"]);
    refused.assert_refused(&[
        "no live host has the file",
        "`campanile package remove hello`",
    ]);
    eventually(|| {
        let removed = site.run(["package", "remove", "hello"]);
        let is_noted = removed.stderr.contains("hello.toml is still there");
        (removed.code == 0 && is_noted)
            .then_some(())
            .ok_or_else(|| format!("{removed:?}"))
    });
    assert!(schedule_names(&site).is_empty());
}
