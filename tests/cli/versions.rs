//! Versions of a package: pending versions, approval, rollback, restarts, and what a run records of them.

mod invalid_commands;

use std::path::Path;

use campanile_engine::crash::PACKAGE_POINTS;
use campanile_tests::{Backend, HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::guest::described;
use crate::site::{Site, eventually, keys, list, stop, text};

on_both_empty!(
    a_version_with_new_requests_is_pending_until_it_is_approved,
    a_pending_version_becomes_active_when_the_sidecar_grants_its_requests,
    a_rollback_applies_at_once_to_every_host_and_every_start,
    a_rollback_applies_while_the_newest_file_is_broken,
    a_pending_version_is_replaced_when_the_old_file_returns,
    a_file_with_another_digest_than_the_pin_is_rejected,
    a_run_records_its_versions_and_hashes,
    a_host_crash_while_recording_a_version_leaves_no_partial_state,
);

/// The first version: a schedule, two tasks, and no requests.
fn first() -> Value {
    json!({
        "name": "chimes", "version": "1.0.0",
        "tasks": [{"id": "strike"}, {"id": "echo", "depends_on": ["strike"]}],
        "schedules": [{"name": "hourly", "every": "1h"}],
    })
}

/// The second version: it requests a variable and a host, and has another schedule.
fn second() -> Value {
    json!({
        "name": "chimes", "version": "2.0.0",
        "tasks": [{"id": "strike", "timeout": "4m"}, {"id": "hum"}],
        "schedules": [{"name": "hourly", "every": "2h"}, {"name": "daily", "every": "1d"}],
        "requests": {"env": ["TOKEN"], "http": [{"host": "api.example.com", "reason": "to\nask"}]},
    })
}

/// The third version: no requests and another schedule.
fn third() -> Value {
    json!({"name": "chimes", "version": "3.0.0", "schedules": [{"name": "yearly", "every": "1y"}]})
}

fn write_package(folder: &Path, description: &Value) {
    let temporary = folder.join(".chimes.tmp");
    std::fs::write(&temporary, described(description)).expect("a package");
    std::fs::rename(&temporary, folder.join("chimes.wasm")).expect("a package");
}

fn digest_of(description: &Value) -> String {
    campanile_model::ids::ArtifactDigest::of(&described(description)).to_string()
}

/// Return a site with a host that serves the first version.
fn serve_first_version(place: Place) -> (Site, HostProcess) {
    let site = Site::new(place);
    write_package(&site.folder().join("plugins"), &first());
    let host = site.serve();
    (site, host)
}

impl Site {
    fn replace_package(&self, description: &Value) {
        write_package(&self.folder().join("plugins"), description);
    }

    fn show_package(&self) -> Value {
        self.json(["package", "show", "chimes"])
    }

    /// Wait until the package has `state` and `active` is its active version.
    #[track_caller]
    fn wait_for_state(&self, state: &str, active: &Value) -> Value {
        let digest = digest_of(active);
        eventually(|| {
            let shown = self.show_package();
            match shown["state"] == state && shown["digest"] == digest.as_str() {
                true => Ok(shown),
                false => Err(format!("{shown:#}")),
            }
        })
    }

    fn schedule_names(&self) -> Vec<String> {
        let all = list(self.json(["schedule", "list"]));
        all.iter().map(|schedule| text(&schedule["name"])).collect()
    }

    #[track_caller]
    fn wait_for_schedules(&self, expected: &[&str]) {
        eventually(|| match self.schedule_names() {
            names if names == expected => Ok(()),
            names => Err(format!("{names:?}")),
        });
    }
}

async fn a_version_with_new_requests_is_pending_until_it_is_approved(place: Place) {
    let (site, host) = serve_first_version(place);
    site.replace_package(&second());
    let line = host.wait_for_line("waits for approval");
    let digest = digest_of(&second());
    let approve_command = format!("campanile package approve chimes --digest {digest}");
    for part in [
        "env TOKEN",
        "http https://api.example.com",
        "package diff chimes",
        &approve_command,
    ] {
        assert!(line.contains(part), "{line}");
    }
    let shown = site.wait_for_state("pending_approval", &first());
    assert_eq!(shown["pending_digest"], digest_of(&second()).as_str());
    let states: Vec<String> = list(shown["versions"].clone())
        .iter()
        .map(|version| format!("{} {}", text(&version["version"]), text(&version["state"])))
        .collect();
    assert_eq!(states, ["1.0.0 active", "2.0.0 pending_approval"]);
    let sizes = [first(), second()].map(|version| described(&version).len());
    assert_eq!(shown["bytes_kept"], sizes.iter().sum::<usize>());
    site.wait_for_schedules(&["hourly"]);
    let launch = site.trigger_and_wait("hourly");
    assert_eq!(
        (&launch["status"], &launch["digest"]),
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

    for command in [
        ["package", "list"].as_slice(),
        &["package", "diff", "chimes"],
    ] {
        let output = site.run(command.iter().copied());
        output.assert_stderr(&approve_command);
    }

    // A rejected version stays inactive. An approval activates it at once and grants nothing.
    let note = "not this one";
    let rejected = site.json(["package", "reject", "chimes", "--note", note, "--by", "ada"]);
    assert_eq!(
        (&rejected["done"], &rejected["digest"], &rejected["denied"]),
        (&json!("rejected"), &json!(digest), &json!([]))
    );
    let shown = site.wait_for_state("rejected", &first());
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

    let approve = ["package", "approve", "chimes", "--digest", &digest[..10]];
    site.run(approve).assert_refused(&[
        "asks for what its sidecar doesn't grant; with it active, all calls are denied until it grants env TOKEN",
        "calls that need http https://api.example.com are denied",
        "add to chimes.toml:",
        "env = [\"TOKEN\"]",
        "hint: grant it first",
        "--anyway",
    ]);
    site.wait_for_state("rejected", &first());
    let stdout = site.ok(approve.into_iter().chain(["--anyway"]));
    for part in [
        "which replaces",
        "not granted: env TOKEN, http https://api.example.com",
        "to grant what is missing, add to chimes.toml:\n[grants]\nenv = [\"TOKEN\"]\n[[grants.http]]",
    ] {
        assert!(stdout.contains(part), "{stdout}");
    }
    assert_eq!(site.show_package()["state"], "active");
    host.wait_for_line("updated chimes");
    site.wait_for_schedules(&["daily", "hourly"]);
    let denied = site.trigger_and_wait("hourly");
    assert_eq!(
        (&denied["failure"], &denied["digest"]),
        (&json!("denied"), &json!(digest))
    );
    assert!(text(&denied["message"]).contains("TOKEN"), "{denied:#}");
    site.sidecar("chimes", "grants.env = ['TOKEN=abc']\n");
    host.wait_for_line("applied the new settings");
    assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
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

async fn a_pending_version_becomes_active_when_the_sidecar_grants_its_requests(place: Place) {
    let (site, mut host) = serve_first_version(place);
    site.replace_package(&second());
    host.wait_for_line("waits for approval");
    // A grant of one request applies to the active version and activates no other. A restart does not either.
    site.sidecar("chimes", "grants.env = ['TOKEN=abc']\n");
    host.wait_for_line("applied the new settings");
    let shown = site.wait_for_state("pending_approval", &first());
    assert_eq!(shown["grants"], json!([["env", "TOKEN"]]));
    let diff = site.json(["package", "diff", "chimes"]);
    let granted = list(diff["requests"].clone());
    let granted: Vec<&Value> = granted
        .iter()
        .map(|request| &request["is_granted"])
        .collect();
    assert_eq!(granted, [true, false]);
    stop(&mut host);
    let host = site.serve();
    site.wait_for_state("pending_approval", &first());
    assert_eq!(
        site.trigger_and_wait("hourly")["digest"],
        digest_of(&first()).as_str()
    );

    let both = "grants.env = ['TOKEN=abc']\n[[grants.http]]\nhost = '*.example.com'\n";
    site.sidecar("chimes", both);
    host.wait_for_line("updated chimes");
    site.wait_for_state("active", &second());
    site.wait_for_schedules(&["daily", "hourly"]);
    assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
}

async fn a_rollback_applies_at_once_to_every_host_and_every_start(place: Place) {
    let (site, mut host) = serve_first_version(place);
    site.replace_package(&third());
    host.wait_for_line("updated chimes");
    site.wait_for_schedules(&["yearly"]);
    site.ok([
        "schedule",
        "add",
        "hourly-mine",
        "--package",
        "chimes",
        "--every",
        "1h",
    ]);

    let rollback = site.json(["package", "rollback", "chimes", "--note", "it hums"]);
    assert_eq!(
        (&rollback["digest"], &rollback["before"]),
        (&json!(digest_of(&first())), &json!(digest_of(&third())))
    );
    let launch = site.trigger("hourly-mine", &json!({}));
    let launch = site.wait_until_ended("hourly-mine", &launch);
    assert_eq!(launch["digest"], digest_of(&first()).as_str(), "at once");
    assert_eq!(launch["status"], "succeeded");
    host.wait_for_line("restored the active version from the database");
    site.wait_for_schedules(&["hourly", "hourly-mine"]);
    let shown = site.wait_for_state("rolled_back", &first());
    assert_eq!(shown["pending_digest"], digest_of(&third()).as_str());

    // Another host has the file in its folder too. On Postgres both serve at the same time; on SQLite one after
    // the other.
    let other_plugins = site.folder().join("elsewhere");
    std::fs::create_dir(&other_plugins).expect("a folder");
    write_package(&other_plugins, &third());
    if site.place().backend == Backend::Sqlite {
        stop(&mut host);
    }
    let mut other = site.serve_with(&["--name", "other", "--plugins", "elsewhere"]);
    other.wait_for_line("restored the active version from the database");
    site.wait_for_state("rolled_back", &first());
    assert_eq!(
        site.trigger_and_wait("hourly")["digest"],
        digest_of(&first()).as_str()
    );
    stop(&mut other);
    if site.place().backend == Backend::Postgres {
        stop(&mut host);
    }
    let host = site.serve();
    site.wait_for_state("rolled_back", &first());
    assert_eq!(
        site.trigger_and_wait("hourly")["digest"],
        digest_of(&first()).as_str()
    );
    site.wait_for_schedules(&["hourly", "hourly-mine"]);

    // The database has the bytes of both versions, so a diff needs no folder.
    let diff = site.json(["package", "diff", "chimes"]);
    assert_eq!(
        (&diff["from"], &diff["to"]),
        (&json!(digest_of(&first())), &json!(digest_of(&third())))
    );
    let digest = digest_of(&third());
    let reverse_diff = site.json(["package", "diff", "chimes", &digest[..8]]);
    assert_eq!(
        (&reverse_diff["from"], &reverse_diff["to"]),
        (&diff["to"], &diff["from"])
    );

    site.ok(["package", "approve", "chimes"]);
    host.wait_for_line("updated chimes");
    site.wait_for_state("active", &third());
    site.wait_for_schedules(&["hourly-mine", "yearly"]);
    // The version that a rollback activated can be the target of a later rollback.
    let refused = site.run([
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
    refused.assert_refused(&["has no task `echo`"]);
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
    let output = site.run(["package", "approve", "chimes"]);
    assert_eq!(output.code, 0, "{output:?}");
    output.assert_stderr("warning: the schedule `echoes` launches the task `echo`");
}

async fn a_rollback_applies_while_the_newest_file_is_broken(place: Place) {
    let (site, mut host) = serve_first_version(place);
    site.replace_package(&third());
    host.wait_for_line("updated chimes");
    std::fs::write(site.plugin("chimes.wasm"), "a broken build").expect("a file");
    host.wait_for_line("rejected chimes");
    site.ok(["package", "rollback", "chimes"]);
    host.wait_for_line("restored the active version from the database");
    site.wait_for_schedules(&["hourly"]);
    site.wait_for_state("rejected", &first());
    assert_eq!(
        site.trigger_and_wait("hourly")["digest"],
        digest_of(&first()).as_str()
    );
    stop(&mut host);
    let _host = site.serve();
    site.wait_for_state("rejected", &first());
    assert_eq!(
        site.trigger_and_wait("hourly")["digest"],
        digest_of(&first()).as_str()
    );
}

async fn a_pending_version_is_replaced_when_the_old_file_returns(place: Place) {
    let (site, host) = serve_first_version(place);
    site.replace_package(&second());
    host.wait_for_line("waits for approval");
    site.replace_package(&first());
    host.wait_for_line("restored chimes");
    let shown = site.wait_for_state("active", &first());
    assert_eq!(shown["pending_digest"], Value::Null);
    assert_eq!(shown["versions"][1]["state"], "replaced");
    // The same with an invalid file.
    std::fs::write(site.plugin("chimes.wasm"), "a broken build").expect("a file");
    host.wait_for_line("rejected chimes");
    site.wait_for_state("rejected", &first());
    site.replace_package(&first());
    assert_eq!(
        site.wait_for_state("active", &first())["rejection"],
        Value::Null
    );
}

async fn a_file_with_another_digest_than_the_pin_is_rejected(place: Place) {
    let (site, host) = serve_first_version(place);
    let pin = digest_of(&first());
    site.sidecar("chimes", &format!("sha256 = '{pin}'\n"));
    host.wait_for_line("applied the new settings");
    site.replace_package(&third());
    host.wait_for_line("rejected chimes");
    let shown = site.wait_for_state("rejected", &first());
    let rejection = text(&shown["rejection"]);
    for part in [&pin, &digest_of(&third()), "chimes.toml", "change `sha256`"] {
        assert!(rejection.contains(part), "{rejection}");
    }
    assert_eq!(site.trigger_and_wait("hourly")["digest"], pin.as_str());

    // The operator set the pin, so a rollback to another digest is refused.
    site.sidecar("chimes", &format!("sha256 = '{}'\n", digest_of(&third())));
    host.wait_for_line("updated chimes");
    site.run(["package", "rollback", "chimes"])
        .assert_refused(&[
            "accepts no version of `chimes` but",
            &digest_of(&third()),
            "hint: change or remove",
        ]);
    site.wait_for_state("active", &third());
}

async fn a_run_records_its_versions_and_hashes(place: Place) {
    let (site, host) = serve_first_version(place);
    let run = |context: &Value| {
        let launch = site.trigger("hourly", context);
        site.run_of(&site.wait_until_ended("hourly", &launch))
    };
    let first_run = run(&json!({"b": 1, "a": {"d": 1, "c": 2}}));
    for key in [
        "host_version",
        "wasmtime_version",
        "tzdata_version",
        "schedule_revision",
    ] {
        assert!(
            keys(&first_run).contains(&key) && !first_run[key].is_null(),
            "{first_run:#}"
        );
    }
    assert_eq!(
        first_run["wasmtime_version"],
        campanile_sandbox::WASMTIME_VERSION
    );
    assert_eq!(first_run["schedule_revision"], 1);
    // The SHA-256 of an empty text: there are no grants.
    let empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(first_run["grants_hash"], empty_hash);
    let reordered = run(&json!({"a": {"c": 2, "d": 1}, "b": 1}));
    assert_eq!(
        reordered["context_hash"], first_run["context_hash"],
        "the order of keys does not matter"
    );
    assert_ne!(
        run(&json!({"b": 2}))["context_hash"],
        first_run["context_hash"]
    );

    site.sidecar("chimes", "grants.env = ['TOKEN=abc']\n");
    host.wait_for_line("applied the new settings");
    let granted = run(&json!({}));
    assert_ne!(granted["grants_hash"], empty_hash);
    site.sidecar("chimes", "grants.env = ['TOKEN=other']\n# a remark\n");
    eventually(|| {
        let lines = host.stderr_lines();
        let times = lines
            .iter()
            .filter(|line| line.contains("applied the new settings"));
        (times.count() == 2)
            .then_some(())
            .ok_or_else(|| lines.join("\n"))
    });
    assert_eq!(
        run(&json!({}))["grants_hash"],
        granted["grants_hash"],
        "the value of a variable is no part of the grants"
    );

    let launch = text(&granted["launch_id"]);
    let shown = site.json(["launch", "show", &launch]);
    assert_eq!(
        (&shown["id"], &shown["schedule_revision"]),
        (&granted["launch_id"], &json!(1))
    );
    assert_eq!(shown["runs"][0]["grants_hash"], granted["grants_hash"]);
    let printed = site.ok(["launch", "show", &launch]);
    let short_hash = &text(&granted["grants_hash"])[..12];
    assert!(
        printed.contains(short_hash) && printed.contains("wasmtime"),
        "{printed}"
    );
    let printed = site.ok(["run", "show", &text(&granted["id"])]);
    assert!(
        printed.contains("wasmtime version") && printed.contains(short_hash),
        "{printed}"
    );
    let unknown = "00000000-0000-0000-0000-000000000000";
    site.run(["launch", "show", unknown])
        .assert_refused(&["there is no launch", "launch list"]);
}

/// A host that crashes while it records an active or pending version leaves all of it or nothing.
async fn a_host_crash_while_recording_a_version_leaves_no_partial_state(place: Place) {
    let (site, mut host) = serve_first_version(place);
    stop(&mut host);
    let crash = |point: &str| {
        let mut crashing = site.command(["serve"]);
        let mut host = HostProcess::spawn(crashing.env("CAMPANILE_CRASH_AT", point));
        assert!(!host.wait_exit().success(), "{point}");
    };
    let [before, after] = PACKAGE_POINTS;
    // Pending: the new file has requests without grants.
    site.replace_package(&second());
    crash(before);
    assert_eq!(list(site.show_package()["versions"].clone()).len(), 1);
    site.wait_for_state("active", &first());
    crash(after);
    site.wait_for_state("pending_approval", &first());
    // Active: the new file has no requests.
    site.replace_package(&third());
    crash(before);
    site.wait_for_state("pending_approval", &first());
    assert_eq!(site.schedule_names(), ["hourly"]);
    crash(after);
    site.wait_for_state("active", &third());
    assert_eq!(site.schedule_names(), ["yearly"], "with its schedules");
    // A rollback while no host serves; the next hosts crash while they apply it.
    site.ok(["package", "rollback", "chimes"]);
    crash(before);
    crash(after);
    let _host = site.serve();
    site.wait_for_state("rolled_back", &first());
    site.wait_for_schedules(&["hourly"]);
    assert_eq!(
        site.trigger_and_wait("hourly")["digest"],
        digest_of(&first()).as_str()
    );
}
