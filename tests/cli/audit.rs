//! `audit verify` and `audit export`.

use std::fmt::Debug;

use campanile_tests::{Backend, Place, on_both_empty};
use serde_json::{Value, json};

use crate::api::Api;
use crate::site::{Site, eventually, stop};

on_both_empty!(
    a_record_is_verified_against_a_signed_checkpoint,
    a_host_verifies_as_the_command_does,
    requests_that_cannot_be_answered_are_refused,
);

/// Move what is on record two minutes into the past, so that the host seals it at its next look.
async fn age(site: &Site) {
    let earlier = match site.place().backend {
        Backend::Sqlite => "- 120000000",
        Backend::Postgres => "- INTERVAL '2 minutes'",
    };
    let columns = [
        "scheduled_time",
        "fire_time",
        "decided_at",
        "started_at",
        "finished_at",
    ];
    let columns = columns.map(|column| format!("{column} = {column} {earlier}"));
    let sql = format!(
        "UPDATE event SET at = at {earlier}; UPDATE launch SET {}",
        columns.join(", ")
    );
    site.execute(&sql).await;
}

/// The error shows both sides. Both are asked again until they are equal: the host may have added a seal between the two.
fn equal<T: PartialEq + Debug>(on_database: T, by_api: T) -> Result<(), String> {
    if on_database == by_api {
        return Ok(());
    }
    Err(format!(
        "on the database {on_database:?}, by the API {by_api:?}"
    ))
}

/// Waits until the host has sealed all launches and events, and returns what `audit verify` reports then.
fn all_sealed(site: &Site) -> Value {
    eventually(|| {
        let report = site.json(["audit", "verify"]);
        let is_sealed = report["launches_unsealed"] == 0;
        is_sealed
            .then_some(report.clone())
            .ok_or(report.to_string())
    })
}

async fn a_record_is_verified_against_a_signed_checkpoint(place: Place) {
    let (site, mut host) = Site::with_tasks(place, &["ok", "fail_permanent"]);
    for task in ["ok", "fail_permanent"] {
        site.trigger_and_wait(task);
    }
    age(&site).await;
    let report = all_sealed(&site);
    assert_eq!(
        (&report["ok"], &report["faults"]),
        (&json!(true), &json!([]))
    );
    assert_eq!(
        (&report["launches"], &report["artifacts"]),
        (&json!(2), &json!(1))
    );
    assert!(site.ok(["audit", "verify"]).ends_with("no fault\n"));

    site.ok(["package", "keygen", "audit.key", "--no-passphrase"]);
    let exported = site.json(["audit", "export", "checkpoint.json", "--key", "audit.key"]);
    assert!(exported["number"].as_i64() >= report["seals"].as_i64());
    let signed = [
        "audit",
        "verify",
        "--checkpoint",
        "checkpoint.json",
        "--key",
        "audit.key.pub",
    ];
    assert!(site.ok(signed).ends_with("no fault\n"));
    let again = site.run(["audit", "export", "checkpoint.json"]);
    again.assert_refused(&["checkpoint.json", "exists"]);

    // A signature is of one text.
    let path = site.folder().join("checkpoint.json");
    let text = std::fs::read_to_string(&path).expect("a checkpoint");
    let number = format!("\"number\": {}", exported["number"]);
    assert!(text.contains(&number), "{text}");
    std::fs::write(&path, text.replace(&number, "\"number\": 1000")).expect("a file");
    let forged = site.run(signed);
    assert_eq!(forged.code, 1, "{forged:?}");
    forged.assert_stderr("signature");
    std::fs::write(&path, text).expect("a file");

    site.execute("UPDATE launch SET message = 'all is well' WHERE status = 'failed'")
        .await;
    let found = site.run(signed);
    assert_eq!(found.code, 1, "{found:?}");
    found.assert_stdout("launch_changed  ");
    assert!(
        found.stdout.ends_with("the record has faults\n"),
        "{found:?}"
    );
    stop(&mut host);
}

async fn a_host_verifies_as_the_command_does(place: Place) {
    let mut api = Api::start(place, "");
    for task in ["ok", "fail_permanent"] {
        api.add(task, task);
        api.site.trigger_and_wait(task);
    }
    age(&api.site).await;
    all_sealed(&api.site);
    eventually(|| {
        let on_database = api.site.json(["audit", "verify"]);
        let by_api = api.post("/api/v1/audit/verify", json!({}));
        equal(on_database, by_api)
    });
    api.site
        .ok(["package", "keygen", "audit.key", "--no-passphrase"]);
    let export = ["audit", "export", "a.json", "--key", "audit.key", "--json"];
    eventually(|| {
        let folder = api.site.folder();
        for name in ["a.json", "a.json.minisig", "b.json", "b.json.minisig"] {
            let _ = std::fs::remove_file(folder.join(name));
        }
        let on_database = api.site.run(export);
        let by_api = api.ask(export.map(|word| if word == "a.json" { "b.json" } else { word }));
        assert_eq!((on_database.code, by_api.code), (0, 0), "{by_api:?}");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a checkpoint");
        equal(read("a.json"), read("b.json"))?;
        equal(
            on_database.stdout.replace("a.json", "b.json"),
            by_api.stdout,
        )
    });
    let same = |command: &[&str], code: i32| {
        eventually(|| {
            let on_database = api.site.run(command.iter().copied());
            let by_api = api.ask(command.iter().copied());
            assert_eq!(by_api.code, code, "{command:?}: {by_api:?}");
            equal(
                (on_database.code, on_database.stdout, on_database.stderr),
                (by_api.code, by_api.stdout, by_api.stderr),
            )
        });
    };
    let signed = [
        "audit",
        "verify",
        "--checkpoint",
        "b.json",
        "--key",
        "audit.key.pub",
    ];
    same(&signed, 0);
    same(&["audit", "export", "a.json"], 2);
    api.site
        .execute("UPDATE launch SET message = 'all is well' WHERE status = 'failed'")
        .await;
    same(&signed, 1);
    same(&["audit", "verify", "--json"], 1);

    // One at a time: the others are told to come again.
    let statuses = std::thread::scope(|scope| {
        let send = || {
            let path = "/api/v1/audit/verify";
            api.send("POST", path, &[], Some(&json!({}))).status
        };
        let racers = Vec::from_iter((0..8).map(|_| scope.spawn(send)));
        Vec::from_iter(
            racers
                .into_iter()
                .map(|racer| racer.join().expect("a status")),
        )
    });
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)),
        "{statuses:?}"
    );
    let wrong = json!({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"});
    api.send("POST", "/api/v1/audit/verify", &[], Some(&wrong))
        .assert_problem(400, "`from` is later than `to`");
    let other = json!({"checkpoint": {"first": "ab".repeat(32), "number": 1, "until": "2026-01-01T00:00:00Z", "hash": "cd".repeat(32)}});
    api.send("POST", "/api/v1/audit/verify", &[], Some(&other))
        .assert_problem(400, "the checkpoint is of another database");
    stop(&mut api.host);
}

async fn requests_that_cannot_be_answered_are_refused(place: Place) {
    // No host adds a seal.
    let site = Site::new(place);
    site.ok(["db", "migrate"]);
    let early = site.run(["audit", "export", "early.json"]);
    assert_eq!(early.code, 1, "{early:?}");
    early.assert_stderr("nothing is sealed yet");
    let span = [
        "audit",
        "verify",
        "--from",
        "2026-01-02",
        "--to",
        "2026-01-01",
    ];
    site.run(span)
        .assert_refused(&["`from` is later than `to`"]);
    let write = |name: &str, value: &Value| {
        std::fs::write(site.folder().join(name), value.to_string()).expect("a file");
    };
    write("no.json", &json!({"colour": "red"}));
    let other = json!({"first": "ab".repeat(32), "number": 1, "until": "2026-01-01T00:00:00Z", "hash": "cd".repeat(32)});
    write("other.json", &other);
    for (file, part) in [
        ("no.json", "no.json is no checkpoint"),
        ("other.json", "the checkpoint is of another database"),
        ("absent.json", "absent.json"),
    ] {
        site.run(["audit", "verify", "--checkpoint", file])
            .assert_refused(&[part]);
    }
}
