//! Versions of a package: what waits, what a person decides, what holds over restarts, and what a run records of it.

use std::path::Path;

use campanile_engine::crash::PACKAGE_POINTS;
use campanile_tests::{Backend, HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::guest::described;
use crate::site::{Said, Site, eventually, keys, list, text};

on_both_empty!(
    a_version_that_asks_for_more_waits_until_a_person_decides,
    a_wider_sidecar_lets_in_what_waits,
    a_rollback_is_at_once_and_holds_for_every_host_and_every_start,
    a_rollback_is_followed_while_the_newest_file_is_broken,
    what_waits_is_forgotten_when_the_file_is_put_back,
    a_file_that_is_not_the_pinned_one_changes_nothing,
    orders_about_versions_that_make_no_sense_are_refused,
    a_run_records_what_it_goes_by,
    a_host_that_dies_with_a_version_in_its_hands_leaves_nothing_half_done,
);

/// The package of the first version: a schedule, two tasks, and no wishes.
fn first() -> Value {
    json!({
        "name": "chimes", "version": "1.0.0",
        "tasks": [{"id": "strike"}, {"id": "echo", "depends_on": ["strike"]}],
        "schedules": [{"name": "hourly", "every": "1h"}],
    })
}

/// The second, which wants a variable and has another schedule.
fn second() -> Value {
    json!({
        "name": "chimes", "version": "2.0.0",
        "tasks": [{"id": "strike", "timeout": "5s"}, {"id": "hum"}],
        "schedules": [{"name": "hourly", "every": "2h"}, {"name": "daily", "every": "1d"}],
        "requests": {"env": ["TOKEN"], "http": [{"host": "api.example.com", "reason": "to\nask"}]},
    })
}

/// The third, which wants nothing either.
fn third() -> Value {
    json!({"name": "chimes", "version": "3.0.0", "schedules": [{"name": "yearly", "every": "1y"}]})
}

fn put(folder: &Path, description: &Value) {
    let temporary = folder.join(".chimes.tmp");
    std::fs::write(&temporary, described(description)).expect("a package");
    std::fs::rename(&temporary, folder.join("chimes.wasm")).expect("a package");
}

fn digest_of(description: &Value) -> String {
    campanile_model::ids::ArtifactDigest::of(&described(description)).to_string()
}

/// A site that serves the first version.
fn chiming(place: Place) -> (Site, HostProcess) {
    let site = Site::new(place);
    put(&site.folder().join("plugins"), &first());
    let host = site.serve();
    (site, host)
}

impl Site {
    fn drop_in(&self, description: &Value) {
        put(&self.folder().join("plugins"), description);
    }

    fn chimes(&self) -> Value {
        self.json(["package", "show", "chimes"])
    }

    /// Wait until the package is in this state, with this version in force.
    #[track_caller]
    fn stands(&self, state: &str, in_force: &Value) -> Value {
        let digest = digest_of(in_force);
        eventually(|| {
            let shown = self.chimes();
            match shown["state"] == state && shown["digest"] == digest.as_str() {
                true => Ok(shown),
                false => Err(format!("{shown:#}")),
            }
        })
    }

    /// Launch it by hand; gives the launch when it is over.
    #[track_caller]
    fn struck(&self) -> Value {
        let launch = self.trigger("hourly", &json!({}));
        self.ended("hourly", &launch)
    }

    fn schedule_names(&self) -> Vec<String> {
        let all = list(self.json(["schedule", "list"]));
        all.iter().map(|schedule| text(&schedule["name"])).collect()
    }

    #[track_caller]
    fn schedules_are(&self, wanted: &[&str]) {
        eventually(|| match self.schedule_names() {
            names if names == wanted => Ok(()),
            names => Err(format!("{names:?}")),
        });
    }
}

async fn a_version_that_asks_for_more_waits_until_a_person_decides(place: Place) {
    let (site, host) = chiming(place);
    site.drop_in(&second());
    let said = host.wait_for_line("waits for approval");
    let digest = digest_of(&second());
    let order = format!(
        "campanile package approve chimes --digest {}",
        &digest[..12]
    );
    for part in [
        "env TOKEN",
        "http https://api.example.com",
        "package diff chimes",
        &order,
    ] {
        assert!(said.contains(part), "{said}");
    }
    let shown = site.stands("pending_approval", &first());
    assert_eq!(shown["pending_digest"], digest_of(&second()).as_str());
    let states: Vec<String> = list(shown["versions"].clone())
        .iter()
        .map(|version| format!("{} {}", text(&version["version"]), text(&version["state"])))
        .collect();
    assert_eq!(states, ["1.0.0 active", "2.0.0 pending_approval"]);
    let sizes = [first(), second()].map(|version| described(&version).len());
    assert_eq!(shown["bytes_kept"], sizes.iter().sum::<usize>());
    site.schedules_are(&["hourly"]);
    let struck = site.struck();
    assert_eq!(
        (&struck["status"], &struck["digest"]),
        (&json!("succeeded"), &json!(digest_of(&first())))
    );

    let diff = site.json(["package", "diff", "chimes"]);
    assert_eq!(diff["from"], digest_of(&first()).as_str());
    assert_eq!(
        diff["about"][0],
        json!({"key": "version", "before": "1.0.0", "after": "2.0.0"})
    );
    assert_eq!(
        (&diff["tasks"]["added"], &diff["tasks"]["removed"]),
        (&json!(["hum"]), &json!(["echo"]))
    );
    assert_eq!(diff["schedules"]["added"], json!(["daily"]));
    assert_eq!(diff["schedules"]["changed"][0]["name"], "hourly");
    assert_eq!(
        diff["imports"],
        json!({"added": [], "removed": [], "changed": []})
    );
    let token = &diff["requests"][0];
    assert_eq!(
        (&token["kind"], &token["what"]),
        (&json!("env"), &json!("TOKEN"))
    );
    assert_eq!(
        (&token["is_granted"], &token["change"]),
        (&json!(false), &json!("added"))
    );
    let printed = site.ok(["package", "diff", "chimes"]);
    for line in [
        "task added: hum",
        "proposed schedule changed: hourly",
        "request added: http https://api.example.com (to\\nask), not granted",
        "to grant what is missing, add to chimes.toml:",
        "env = [\"TOKEN\"]",
    ] {
        assert!(printed.contains(line), "no `{line}`:\n{printed}");
    }

    for show in [
        ["package", "list"].as_slice(),
        &["package", "diff", "chimes"],
    ] {
        let said = site.run(show.iter().copied());
        assert!(said.stderr.contains(&order), "{said:?}");
    }

    // Rejected, it stays out; approved after all, it is in force at once and granted no more than before.
    let note = "not this one";
    let done = site.json(["package", "reject", "chimes", "--note", note, "--by", "ada"]);
    assert_eq!(
        (&done["done"], &done["digest"], &done["denied"]),
        (&json!("rejected"), &json!(digest), &json!([]))
    );
    let shown = site.stands("rejected", &first());
    let version = &shown["versions"][1];
    assert_eq!(
        (&version["decided_by"], &version["note"]),
        (&json!("ada"), &json!(note))
    );
    let listed = site.ok(["package", "list"]);
    assert!(listed.contains("rejected"), "{listed}");
    let shown = site.ok(["package", "show", "chimes"]);
    assert!(
        shown.contains(note) && shown.contains("chimes  2.0.0"),
        "{shown}"
    );

    let said = site.ok(["package", "approve", "chimes", "--digest", &digest[..10]]);
    for part in [
        "which replaces",
        "not granted: env TOKEN, http https://api.example.com",
        "to grant what is missing, add to chimes.toml:\n[grants]\nenv = [\"TOKEN\"]\n[[grants.http]]",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(site.chimes()["state"], "active");
    host.wait_for_line("updated chimes");
    site.schedules_are(&["daily", "hourly"]);
    let denied = site.struck();
    assert_eq!(
        (&denied["failure"], &denied["digest"]),
        (&json!("denied"), &json!(digest))
    );
    assert!(text(&denied["message"]).contains("TOKEN"), "{denied:#}");
    site.sidecar("chimes", "grants.env = ['TOKEN=abc']\n");
    host.wait_for_line("applied the new settings");
    assert_eq!(site.struck()["status"], "succeeded");
    let kinds: Vec<Value> = list(site.json(["event", "list"]))
        .into_iter()
        .filter(|event| event["subject"] == "chimes")
        .map(|event| event["kind"].clone())
        .collect();
    assert_eq!(
        kinds,
        [
            "package_loaded",
            "package_loaded",
            "version_approved",
            "version_rejected",
            "version_pending",
            "package_loaded"
        ]
    );
}

async fn a_wider_sidecar_lets_in_what_waits(place: Place) {
    let (site, mut host) = chiming(place);
    site.drop_in(&second());
    host.wait_for_line("waits for approval");
    // Half of it is not enough, and holds for the version in force meanwhile; nor does a restart let it in.
    site.sidecar("chimes", "grants.env = ['TOKEN=abc']\n");
    host.wait_for_line("applied the new settings");
    let shown = site.stands("pending_approval", &first());
    assert_eq!(shown["grants"], json!([["env", "TOKEN"]]));
    let diff = site.json(["package", "diff", "chimes"]);
    let granted = list(diff["requests"].clone());
    let granted: Vec<&Value> = granted
        .iter()
        .map(|request| &request["is_granted"])
        .collect();
    assert_eq!(granted, [true, false]);
    host.terminate();
    assert!(host.wait_exit().success());
    let host = site.serve();
    site.stands("pending_approval", &first());
    assert_eq!(site.struck()["digest"], digest_of(&first()).as_str());

    let both = "grants.env = ['TOKEN=abc']\n[[grants.http]]\nhost = '*.example.com'\n";
    site.sidecar("chimes", both);
    host.wait_for_line("updated chimes");
    site.stands("active", &second());
    site.schedules_are(&["daily", "hourly"]);
    assert_eq!(site.struck()["status"], "succeeded");
}

async fn a_rollback_is_at_once_and_holds_for_every_host_and_every_start(place: Place) {
    let (site, mut host) = chiming(place);
    site.drop_in(&third());
    host.wait_for_line("updated chimes");
    site.schedules_are(&["yearly"]);
    site.ok([
        "schedule",
        "add",
        "hourly-mine",
        "--package",
        "chimes",
        "--every",
        "1h",
    ]);

    let back = site.json(["package", "rollback", "chimes", "--note", "it hums"]);
    assert_eq!(
        (&back["digest"], &back["before"]),
        (&json!(digest_of(&first())), &json!(digest_of(&third())))
    );
    let launch = site.trigger("hourly-mine", &json!({}));
    let launch = site.ended("hourly-mine", &launch);
    assert_eq!(launch["digest"], digest_of(&first()).as_str(), "at once");
    assert_eq!(launch["status"], "succeeded");
    host.wait_for_line("restored the active version from the database");
    site.schedules_are(&["hourly", "hourly-mine"]);
    let shown = site.stands("rolled_back", &first());
    assert_eq!(shown["pending_digest"], digest_of(&third()).as_str());

    // Another host, whose folder has the file too: at the same time where that can be, and else after the other.
    let elsewhere = site.folder().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    put(&elsewhere, &third());
    if site.place().backend == Backend::Sqlite {
        host.terminate();
        assert!(host.wait_exit().success());
    }
    let mut other = site.serve_with(&["--name", "other", "--plugins", "elsewhere"]);
    assert!(
        other
            .stderr_lines()
            .join("\n")
            .contains("restored the active version from the database")
    );
    site.stands("rolled_back", &first());
    assert_eq!(site.struck()["digest"], digest_of(&first()).as_str());
    other.terminate();
    assert!(other.wait_exit().success());
    if site.place().backend == Backend::Postgres {
        host.terminate();
        assert!(host.wait_exit().success());
    }
    let host = site.serve();
    site.stands("rolled_back", &first());
    assert_eq!(site.struck()["digest"], digest_of(&first()).as_str());
    site.schedules_are(&["hourly", "hourly-mine"]);

    // The bytes of both are on the record, so a diff needs no folder.
    let diff = site.json(["package", "diff", "chimes"]);
    assert_eq!(
        (&diff["from"], &diff["to"]),
        (&json!(digest_of(&first())), &json!(digest_of(&third())))
    );
    let digest = digest_of(&third());
    let other_way = site.json(["package", "diff", "chimes", &digest[..8]]);
    assert_eq!(
        (&other_way["from"], &other_way["to"]),
        (&diff["to"], &diff["from"])
    );

    site.ok(["package", "approve", "chimes"]);
    host.wait_for_line("updated chimes");
    site.stands("active", &third());
    site.schedules_are(&["hourly-mine", "yearly"]);
    // What was rolled back to is a former version like any other.
    let warned = site.run([
        "schedule",
        "add",
        "echoes",
        "--package",
        "chimes",
        "--task",
        "echo",
        "--every",
        "1h",
    ]);
    warned.refused(&["has no task `echo`"]);
    site.ok(["package", "rollback", "chimes"]);
    site.ok([
        "schedule",
        "add",
        "echoes",
        "--package",
        "chimes",
        "--task",
        "echo",
        "--every",
        "1h",
    ]);
    let said = site.run(["package", "approve", "chimes"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stderr
            .contains("warning: the schedule `echoes` launches the task `echo`"),
        "{said:?}"
    );
}

async fn a_rollback_is_followed_while_the_newest_file_is_broken(place: Place) {
    let (site, mut host) = chiming(place);
    site.drop_in(&third());
    host.wait_for_line("updated chimes");
    std::fs::write(site.plugin("chimes.wasm"), "a broken build").expect("a file");
    host.wait_for_line("rejected chimes");
    site.ok(["package", "rollback", "chimes"]);
    host.wait_for_line("restored the active version from the database");
    site.schedules_are(&["hourly"]);
    site.stands("rejected", &first());
    assert_eq!(site.struck()["digest"], digest_of(&first()).as_str());
    host.terminate();
    assert!(host.wait_exit().success());
    let _host = site.serve();
    site.stands("rejected", &first());
    assert_eq!(site.struck()["digest"], digest_of(&first()).as_str());
}

async fn what_waits_is_forgotten_when_the_file_is_put_back(place: Place) {
    let (site, host) = chiming(place);
    site.drop_in(&second());
    host.wait_for_line("waits for approval");
    site.drop_in(&first());
    host.wait_for_line("restored chimes");
    let shown = site.stands("active", &first());
    assert_eq!(shown["pending_digest"], Value::Null);
    assert_eq!(shown["versions"][1]["state"], "replaced");
    // The same with a file that cannot be used.
    std::fs::write(site.plugin("chimes.wasm"), "a broken build").expect("a file");
    host.wait_for_line("rejected chimes");
    site.stands("rejected", &first());
    site.drop_in(&first());
    assert_eq!(site.stands("active", &first())["rejection"], Value::Null);
}

async fn a_file_that_is_not_the_pinned_one_changes_nothing(place: Place) {
    let (site, host) = chiming(place);
    let pin = digest_of(&first());
    site.sidecar("chimes", &format!("sha256 = '{pin}'\n"));
    host.wait_for_line("applied the new settings");
    site.drop_in(&third());
    host.wait_for_line("rejected chimes");
    let shown = site.stands("rejected", &first());
    let rejection = text(&shown["rejection"]);
    for part in [&pin, &digest_of(&third()), "chimes.toml", "change `sha256`"] {
        assert!(rejection.contains(part), "{rejection}");
    }
    assert_eq!(site.struck()["digest"], pin.as_str());

    // The pin is the operator's word too: an order against it is refused, and does nothing.
    site.sidecar("chimes", &format!("sha256 = '{}'\n", digest_of(&third())));
    host.wait_for_line("updated chimes");
    site.run(["package", "rollback", "chimes"]).refused(&[
        "accepts no version of `chimes` but",
        &digest_of(&third()),
        "hint: change or remove",
    ]);
    site.stands("active", &third());
}

async fn orders_about_versions_that_make_no_sense_are_refused(place: Place) {
    let (site, host) = chiming(place);
    std::fs::write(site.plugin("bad.wasm"), "a broken build").expect("a file");
    host.wait_for_line("rejected bad");
    let before = site.json(["event", "list"]);
    let other = "0".repeat(64);
    let run = |args: &[&'static str]| -> Said { site.run(["package"].iter().chain(args).copied()) };
    for (args, expected) in [
        (&["show", "chime"][..], "did you mean `chimes`?"),
        (&["diff", "chime"], "did you mean `chimes`?"),
        (&["approve", "chime"], "did you mean `chimes`?"),
        (&["reject", "chime"], "did you mean `chimes`?"),
        (&["rollback", "chime"], "did you mean `chimes`?"),
        (
            &["approve", "bad"],
            "no version of `bad` was ever active: this is not WebAssembly",
        ),
        (&["rollback", "bad"], "no version of `bad` was ever active"),
        (&["diff", "bad"], "no version of `bad` was ever active"),
        (&["diff", "chimes"], "has no pending version"),
        (&["diff", "chimes", "zzzz"], "at least 4"),
        (
            &["diff", "chimes", "0000", "0000"],
            "has no version `0000`; it has ",
        ),
        (&["approve", "chimes"], "has no pending version"),
        (&["reject", "chimes"], "has no pending version"),
        (&["rollback", "chimes"], "no former version"),
        (&["rollback", "chimes", "--to", "12"], "at least 4"),
        (
            &["rollback", "chimes", "--to", "0000"],
            "has no version `0000`",
        ),
    ] {
        run(args).refused(&[expected]);
    }
    let in_force = digest_of(&first());
    let to = ["package", "rollback", "chimes", "--to", &in_force];
    site.run(to).refused(&["is active already"]);
    site.drop_in(&second());
    host.wait_for_line("waits for approval");
    let approve = ["package", "approve", "chimes", "--digest", &other];
    site.run(approve).refused(&[
        "the pending version of `chimes` is",
        "hint: look at it with",
    ]);
    let waits = digest_of(&second());
    let to = ["package", "rollback", "chimes", "--to", &waits];
    site.run(to).refused(&["was never active"]);
    let json = site.run(["package", "approve", "nothing", "--json"]);
    assert_eq!(json.code, 2, "{json:?}");
    assert!(
        text(&json.json()["error"]).contains("no package named"),
        "{json:?}"
    );
    site.stands("pending_approval", &first());
    let after = list(site.json(["event", "list"]));
    assert_eq!(after.len(), list(before).len() + 1, "{after:#?}");
}

async fn a_run_records_what_it_goes_by(place: Place) {
    let (site, host) = chiming(place);
    let run = |context: &Value| {
        let launch = site.trigger("hourly", context);
        site.run_of(&site.ended("hourly", &launch))
    };
    let plain = run(&json!({"b": 1, "a": {"d": 1, "c": 2}}));
    for key in [
        "host_version",
        "wasmtime_version",
        "tzdata_version",
        "schedule_revision",
    ] {
        assert!(
            keys(&plain).contains(&key) && !plain[key].is_null(),
            "{plain:#}"
        );
    }
    assert_eq!(
        plain["wasmtime_version"],
        campanile_sandbox::WASMTIME_VERSION
    );
    assert_eq!(plain["schedule_revision"], 1);
    // The SHA-256 of nothing: no line of grants.
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(plain["grants_hash"], nothing);
    let same = run(&json!({"a": {"c": 2, "d": 1}, "b": 1}));
    assert_eq!(same["context_hash"], plain["context_hash"], "in any order");
    assert_ne!(run(&json!({"b": 2}))["context_hash"], plain["context_hash"]);

    site.sidecar("chimes", "grants.env = ['TOKEN=abc']\n");
    host.wait_for_line("applied the new settings");
    let granted = run(&json!({}));
    assert_ne!(granted["grants_hash"], nothing);
    site.sidecar("chimes", "grants.env = ['TOKEN=other']\n# a remark\n");
    eventually(|| {
        let said = host.stderr_lines();
        let times = said
            .iter()
            .filter(|line| line.contains("applied the new settings"));
        (times.count() == 2)
            .then_some(())
            .ok_or_else(|| said.join("\n"))
    });
    assert_eq!(
        run(&json!({}))["grants_hash"],
        granted["grants_hash"],
        "a value is no grant"
    );

    let launch = text(&granted["launch_id"]);
    let shown = site.json(["launch", "show", &launch]);
    assert_eq!(
        (&shown["id"], &shown["schedule_revision"]),
        (&granted["launch_id"], &json!(1))
    );
    assert_eq!(shown["runs"][0]["grants_hash"], granted["grants_hash"]);
    let printed = site.ok(["launch", "show", &launch]);
    let short = &text(&granted["grants_hash"])[..12];
    assert!(
        printed.contains(short) && printed.contains("wasmtime"),
        "{printed}"
    );
    let printed = site.ok(["run", "show", &text(&granted["id"])]);
    assert!(
        printed.contains("wasmtime version") && printed.contains(short),
        "{printed}"
    );
    let unknown = "00000000-0000-0000-0000-000000000000";
    site.run(["launch", "show", unknown])
        .refused(&["there is no launch", "launch list"]);
}

/// A host that dies while it puts a version on the record, or keeps one out, leaves all of it or nothing.
async fn a_host_that_dies_with_a_version_in_its_hands_leaves_nothing_half_done(place: Place) {
    let (site, mut host) = chiming(place);
    host.terminate();
    assert!(host.wait_exit().success());
    let crash = |point: &str| {
        let mut crashing = site.command(["serve"]);
        let mut host = HostProcess::spawn(crashing.env("CAMPANILE_CRASH_AT", point));
        assert!(!host.wait_exit().success(), "{point}");
    };
    let [before, after] = PACKAGE_POINTS;
    // Kept out: while it was down the file became one that asks for more.
    site.drop_in(&second());
    crash(before);
    assert_eq!(list(site.chimes()["versions"].clone()).len(), 1);
    site.stands("active", &first());
    crash(after);
    site.stands("pending_approval", &first());
    // Taken: one that asks for nothing.
    site.drop_in(&third());
    crash(before);
    site.stands("pending_approval", &first());
    assert_eq!(site.schedule_names(), ["hourly"]);
    crash(after);
    site.stands("active", &third());
    assert_eq!(site.schedule_names(), ["yearly"], "with its schedules");
    // Rolled back while nobody serves, and followed by a host that dies of it first.
    site.ok(["package", "rollback", "chimes"]);
    crash(before);
    crash(after);
    let _host = site.serve();
    site.stands("rolled_back", &first());
    site.schedules_are(&["hourly"]);
    assert_eq!(site.struck()["digest"], digest_of(&first()).as_str());
}
