//! `audit verify` and `audit export`.

use campanile_tests::{Backend, Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, stop};

on_both_empty!(
    a_record_is_verified_against_a_signed_checkpoint,
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

async fn a_record_is_verified_against_a_signed_checkpoint(place: Place) {
    let (site, mut host) = Site::with_tasks(place, &["ok", "fail_permanent"]);
    for task in ["ok", "fail_permanent"] {
        site.trigger_and_wait(task);
    }
    age(&site).await;
    let report = eventually(|| {
        let report = site.json(["audit", "verify"]);
        let is_sealed = report["seals"] == 1 && report["launches_unsealed"] == 0;
        is_sealed
            .then_some(report.clone())
            .ok_or(report.to_string())
    });
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
    assert_eq!(exported["number"], 1);
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
    std::fs::write(&path, text.replace("\"number\": 1", "\"number\": 2")).expect("a file");
    let forged = site.run(signed);
    assert_eq!(forged.code, 1, "{forged:?}");
    assert!(forged.stderr.contains("signature"), "{forged:?}");
    std::fs::write(&path, text).expect("a file");

    site.execute("UPDATE launch SET message = 'all is well' WHERE status = 'failed'")
        .await;
    let found = site.run(signed);
    assert_eq!(found.code, 1, "{found:?}");
    assert!(found.stdout.contains("launch_changed  "), "{found:?}");
    assert!(
        found.stdout.ends_with("the record has faults\n"),
        "{found:?}"
    );
    stop(&mut host);
}

async fn requests_that_cannot_be_answered_are_refused(place: Place) {
    let (site, mut host) = Site::with_tasks(place, &["ok"]);
    let early = site.run(["audit", "export", "early.json"]);
    assert_eq!(early.code, 1, "{early:?}");
    assert!(early.stderr.contains("nothing is sealed yet"), "{early:?}");
    let span = [
        "audit",
        "verify",
        "--from",
        "2026-01-02",
        "--to",
        "2026-01-01",
    ];
    site.run(span)
        .assert_refused(&["--from is later than --to"]);
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
    stop(&mut host);
}
