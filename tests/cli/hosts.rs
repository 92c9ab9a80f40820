//! `host list` and `host drain`: what an operator sees of hosts, and a host that claims nothing more.

use std::time::Duration;

use campanile_tests::{Backend, Place, fresh_place, on_both_empty, run_empty_case};
use serde_json::{Value, json};

use crate::site::{Site, eventually, keys, list, stop, text};

on_both_empty!(
    a_drained_host_ends_its_runs_and_claims_nothing_until_the_drain_is_undone,
    a_drain_outlives_a_restart,
    a_wrong_drain_is_refused,
    a_launch_waits_for_a_host_with_its_labels,
    labels_of_a_schedule_are_set_in_every_way,
);

/// Return the only host with that name.
#[track_caller]
fn host(site: &Site, name: &str) -> Value {
    let hosts = list(site.json(["host", "list", "--all"]));
    let mut named = hosts.iter().filter(|host| host["name"] == name);
    let host = named.next().cloned();
    assert!(named.next().is_none(), "{hosts:#?}");
    host.unwrap_or_else(|| panic!("no {name}: {hosts:#?}"))
}

#[track_caller]
fn wait_for_state(site: &Site, name: &str, state: &str) -> Value {
    eventually(|| {
        let host = host(site, name);
        match host["state"] == state {
            true => Ok(host),
            false => Err(format!("{host:#}")),
        }
    })
}

#[track_caller]
fn events(site: &Site, kind: &str) -> Vec<(String, String)> {
    let events = list(site.json(["event", "list"]));
    let of_kind = events.iter().filter(|event| event["kind"] == kind);
    let shown = of_kind.map(|event| (text(&event["subject"]), text(&event["detail"])));
    shown.collect()
}

async fn a_drained_host_ends_its_runs_and_claims_nothing_until_the_drain_is_undone(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    // With a longer lease, a slow host loses no run.
    site.configure("[host]\nruns_max = 9\n[recovery]\nlease = '60s'\n");
    let mut serving = site.serve_with(&["--name", "one"]);
    site.add("sleep", "sleep", &["--at", "2099-01-01T00:00:00Z"]);
    let shown = host(&site, "one");
    let all = "chores_since drained_at drained_by ended_at heartbeat_at incarnation labels lease_until name runs runs_max started_at state tzdata_version version wasmtime_version";
    assert_eq!(keys(&shown).join(" "), all);
    assert_eq!(
        (&shown["state"], &shown["runs"], &shown["runs_max"]),
        (&json!("serving"), &json!(0), &json!(9))
    );
    let first = site.trigger("sleep", &json!({"ms": 600_000}));
    site.wait_for_launch("sleep", |row| row["status"] == "running");
    assert_eq!(host(&site, "one")["runs"], 1);
    eventually(|| {
        let shown = host(&site, "one");
        match shown["chores_since"].is_string() {
            true => Ok(()),
            false => Err(format!("{shown:#}")),
        }
    });

    let drained = site.json(["host", "drain", "one", "--by", "ada"]);
    assert_eq!(
        (&drained["state"], &drained["drained_by"]),
        (&json!("draining"), &json!("ada"))
    );
    serving.wait_for_line("this host claims nothing more");
    let second = site.trigger("sleep", &json!({"ms": 0}));
    // The run keeps going. Once it ends, the host is drained, and the next launch keeps waiting.
    assert_eq!(host(&site, "one")["runs"], 1);
    site.ok(["run", "cancel", &first, "--grace", "0s"]);
    let end = site.wait_until_ended("sleep", &first);
    assert_eq!(
        (&end["status"], &end["attempts"]),
        (&json!("cancelled"), &json!(1))
    );
    wait_for_state(&site, "one", "drained");
    let printed = site.ok(["host", "list"]);
    assert!(
        printed.contains("drained") && printed.contains("0     9"),
        "{printed}"
    );
    let health = site.run(["health", "--json"]).json();
    assert_eq!(health["healthy"], false, "{health:#}");
    let issues = health["issues"].to_string();
    assert!(issues.contains("every live host is drained"), "{issues}");
    let notes = health["notes"].to_string();
    assert!(
        notes.contains("the host `one` is drained since") && notes.contains("by ada"),
        "{notes}"
    );
    assert_eq!(site.json(["top", "--once"])["hosts"][0]["state"], "drained");
    let waiting = site.launches("sleep").pop().expect("a launch");
    assert_eq!(
        (&waiting["id"], &waiting["status"]),
        (&json!(second), &json!("open"))
    );

    site.ok(["host", "drain", "one", "--undo", "--by", "bob"]);
    let end = site.wait_until_ended("sleep", &second);
    assert_eq!(
        (&end["status"], &end["recoveries"]),
        (&json!("succeeded"), &json!(0))
    );
    wait_for_state(&site, "one", "serving");
    let one = |detail: &str| vec![("one".to_owned(), detail.to_owned())];
    assert_eq!(
        events(&site, "host_drained"),
        one("by ada: the host claims nothing more")
    );
    assert_eq!(
        events(&site, "host_resumed"),
        one("by bob: the host claims launches again")
    );
    stop(&mut serving);
    let stopped = host(&site, "one");
    assert_eq!(
        (&stopped["state"], &stopped["chores_since"]),
        (&json!("stopped"), &Value::Null)
    );
    assert_eq!(site.json(["host", "list"]), json!([]));
}

async fn a_drain_outlives_a_restart(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut first = site.serve_with(&["--name", "one"]);
    site.add("ok", "ok", &["--at", "2099-01-01T00:00:00Z"]);
    stop(&mut first);
    let printed = site.ok(["host", "drain", "one"]);
    assert!(
        printed.contains("claims nothing when it starts again"),
        "{printed}"
    );
    let listed = site.json(["host", "list"]);
    assert_eq!(
        listed[0]["state"], "stopped",
        "a drained host is listed: {listed:#}"
    );

    let mut second = site.serve_with(&["--name", "one"]);
    second.wait_for_line("this host is drained");
    let launch = site.trigger("ok", &json!({}));
    wait_for_state(&site, "one", "drained");
    let waiting = site.launches("ok").pop().expect("a launch");
    assert_eq!(waiting["status"], "open");
    site.ok(["host", "drain", "one", "--undo"]);
    assert_eq!(site.wait_until_ended("ok", &launch)["status"], "succeeded");
    stop(&mut second);
}

async fn a_wrong_drain_is_refused(place: Place) {
    let site = Site::new(place);
    let mut serving = site.serve_with(&["--name", "one"]);
    site.run(["host", "drain", "onr"])
        .assert_refused(&["no host named `onr` is on record; did you mean `one`?"]);
    site.run(["host", "drain", "one", "--undo"])
        .assert_refused(&["the host `one` is not drained"]);
    site.ok(["host", "drain", "one", "--by", "ada"]);
    site.run(["host", "drain", "one"])
        .assert_refused(&["the host `one` is drained already, since", "by ada"]);
    stop(&mut serving);
}

/// SQLite has one host.
#[tokio::test(flavor = "multi_thread")]
async fn another_host_takes_the_launches_of_a_drained_one() {
    let site = Site::new(fresh_place(Backend::Postgres).await);
    site.copy_package("guests");
    // With a longer lease, a slow host loses no run to the other one.
    site.configure("[recovery]\nlease = '60s'\n");
    let mut one = site.serve_with(&["--name", "one"]);
    let mut two = site.serve_with(&["--name", "two"]);
    site.ok(["host", "drain", "one"]);
    one.wait_for_line("this host claims nothing more");
    site.add("ok", "ok", &["--every", "1s"]);
    let rows = eventually(|| {
        let rows = site.launches("ok");
        let ended = rows.iter().filter(|row| row["status"] == "succeeded");
        match ended.count() >= 5 {
            true => Ok(rows),
            false => Err(format!("{rows:#?}")),
        }
    });
    let runs = list(site.json(["run", "list", "--schedule", "ok"]));
    assert!(runs.iter().all(|run| run["host"] == "two"), "{runs:#?}");
    assert!(rows.iter().all(|row| row["recoveries"] == 0), "{rows:#?}");
    // One host claims launches.
    site.wait_until_healthy();
    stop(&mut one);
    stop(&mut two);
}

async fn a_launch_waits_for_a_host_with_its_labels(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    site.configure("[host]\nlabels = ['ssd']\n");
    let mut serving = site.serve_with(&["--name", "one"]);
    assert_eq!(host(&site, "one")["labels"], json!(["ssd"]));
    let far = ["--at", "2099-01-01T00:00:00Z", "--run-on", "gpu,ssd"];
    site.add("ok", "ok", &far);
    let launch = site.trigger("ok", &json!({}));
    site.wait_for_launch("ok", |row| row["status"] == "open");
    let why = site.ok(["schedule", "why", "ok"]);
    let expected = "it waits for a host with the labels `gpu`, `ssd`: no live host has them";
    assert!(why.contains(expected), "{why}");
    let plan = site.json(["plan"]);
    let missing = |plan: &Value| plan["schedules"][0]["missing_labels"].clone();
    assert_eq!(missing(&plan), json!(["gpu", "ssd"]), "{plan:#}");
    stop(&mut serving);
    // Only a wait of a second or more is explained later.
    std::thread::sleep(Duration::from_secs(1));

    site.configure("[host]\nlabels = ['gpu', 'ssd', 'eu']\n");
    let mut serving = site.serve_with(&["--name", "one"]);
    assert_eq!(host(&site, "one")["labels"], json!(["eu", "gpu", "ssd"]));
    let plan = site.json(["plan"]);
    assert_eq!(missing(&plan), Value::Null, "{plan:#}");
    let end = site.wait_until_ended("ok", &launch);
    assert_eq!(
        (&end["status"], &end["run_on"]),
        (&json!("succeeded"), &json!(["gpu", "ssd"]))
    );
    let why = site.ok(["schedule", "why", "ok"]);
    let expected = "a host with the package `guests` and the labels `gpu`, `ssd` had free capacity";
    assert!(why.contains(expected), "{why}");
    stop(&mut serving);
}

async fn labels_of_a_schedule_are_set_in_every_way(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let at = "at = '2099-01-01T00:00:00Z'\nrun_on = ['gpu']\n";
    site.sidecar(
        "guests",
        &format!("[[schedules]]\nname = 'of-sidecar'\ntask = 'ok'\n{at}"),
    );
    let file = site.folder().join("schedules.toml");
    let of_file = format!("[[schedules]]\nname = 'of-file'\npackage = 'guests'\ntask = 'ok'\n{at}");
    std::fs::write(file, of_file).expect("a schedules file");
    let mut serving = site.serve();
    site.add(
        "of-flag",
        "ok",
        &["--at", "2099-01-01T00:00:00Z", "--run-on", "gpu"],
    );
    for name in ["of-sidecar", "of-file", "of-flag"] {
        // The schedules file is applied only once its package is loaded.
        eventually(|| {
            let shown = site.run(["schedule", "show", name, "--json"]).json();
            match shown["effective_policies"]["run_on"] == json!(["gpu"]) {
                true => Ok(()),
                false => Err(format!("{shown:#}")),
            }
        });
    }
    site.ok(["schedule", "edit", "of-flag", "--run-on", "eu,arm"]);
    let shown = site.json(["schedule", "show", "of-flag"]);
    assert_eq!(shown["effective_policies"]["run_on"], json!(["arm", "eu"]));
    site.run_add("new", "ok", &["--every", "1h", "--run-on", "GPU"])
        .assert_refused(&["--run-on names \"GPU\", which is no label"]);
    stop(&mut serving);
}

/// SQLite has one host.
#[tokio::test(flavor = "multi_thread")]
async fn a_launch_goes_to_the_host_with_its_labels() {
    let site = Site::new(fresh_place(Backend::Postgres).await);
    site.copy_package("guests");
    let mut plain = site.serve_with(&["--name", "plain"]);
    site.configure("[host]\nlabels = ['gpu']\n");
    let mut gpu = site.serve_with(&["--name", "gpu"]);
    site.add("ok", "ok", &["--every", "1s", "--run-on", "gpu"]);
    eventually(|| {
        let rows = site.launches("ok");
        let ended = rows.iter().filter(|row| row["status"] == "succeeded");
        match ended.count() >= 5 {
            true => Ok(()),
            false => Err(format!("{rows:#?}")),
        }
    });
    let runs = list(site.json(["run", "list", "--schedule", "ok"]));
    assert!(runs.iter().all(|run| run["host"] == "gpu"), "{runs:#?}");
    stop(&mut plain);
    stop(&mut gpu);
}

/// Only hosts of one Postgres database serve together.
#[test]
fn a_file_that_two_hosts_reject_is_one_event() {
    run_empty_case(Backend::Postgres, |place| async move {
        let site = Site::new(place);
        let hosts = ["one", "other"].map(|name| site.serve_with(&["--name", name]));
        let rejections = || {
            let events = list(site.json(["event", "list"]));
            let rejected = events
                .iter()
                .filter(|event| event["kind"] == "package_rejected");
            rejected.count()
        };
        // The file changes once.
        for (times, text) in [(1, "this is no package"), (2, "nor is this one")] {
            std::fs::write(site.plugin("bad.wasm"), text).expect("a file");
            for host in &hosts {
                eventually(|| {
                    let lines = host.stderr_lines();
                    let rejected = lines.iter().filter(|line| line.contains("rejected bad"));
                    match rejected.count() {
                        count if count == times => Ok(()),
                        _ => Err(lines.join("\n")),
                    }
                });
            }
            assert_eq!(rejections(), times);
        }
    });
}
