//! `token create`, `list` and `revoke`, and who an event says made a change.

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, keys, list, stop, text};

on_both_empty!(
    a_token_is_created_listed_and_revoked,
    a_wrong_token_is_refused,
    events_say_who_made_a_change,
);

/// Return a site whose database has tables, without a running host.
fn empty_site(place: Place) -> Site {
    let site = Site::new(place);
    site.ok(["db", "migrate"]);
    site
}

async fn a_token_is_created_listed_and_revoked(place: Place) {
    let site = empty_site(place);
    let created = site.json([
        "token",
        "create",
        "ci",
        "--role",
        "operator",
        "--expires",
        "90d",
    ]);
    assert_eq!(
        keys(&created).join(" "),
        "created_at expires_at last_used_at name namespace revoked_at role secret state"
    );
    assert_eq!(
        (&created["role"], &created["state"]),
        (&json!("operator"), &json!("active"))
    );
    let secret = text(&created["secret"]);
    assert!(secret.starts_with("cmp_") && secret.len() == 47, "{secret}");

    // Without `--json`, stdout is the secret alone, for `TOKEN=$(…)`.
    let plain = site.run(["token", "create", "grafana", "--role", "viewer"]);
    assert!(
        plain.code == 0 && plain.stdout.starts_with("cmp_") && plain.stdout.lines().count() == 1,
        "{plain:?}"
    );
    plain.assert_stderr("shown only now");

    let listed = site.json(["token", "list"]);
    assert!(!listed.to_string().contains(&secret), "{listed}");
    let names = |listed: &Value| -> Vec<String> {
        let tokens = listed.as_array().unwrap().iter();
        tokens.map(|token| text(&token["name"])).collect()
    };
    assert_eq!(names(&listed), ["ci", "grafana"]);
    assert!(listed[1]["expires_at"].is_null(), "{listed}");

    let revoked = site.json(["token", "revoke", "ci"]);
    assert_eq!(revoked["state"], "revoked");
    assert_eq!(names(&site.json(["token", "list"])), ["grafana"]);
    assert_eq!(
        names(&site.json(["token", "list", "--all"])),
        ["ci", "grafana"]
    );
    let events = list(site.json(["event", "list"]));
    let kinds: Vec<&Value> = events.iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["token_revoked", "token_created", "token_created"]);
    assert!(
        events
            .iter()
            .all(|event| !event.to_string().contains("cmp_"))
    );
}

async fn a_wrong_token_is_refused(place: Place) {
    let site = empty_site(place);
    site.ok(["token", "create", "ci", "--role", "admin"]);
    let create = |rest: &[&str]| {
        let fixed = ["token", "create"].into_iter();
        site.run(fixed.chain(rest.iter().copied()))
    };
    create(&["x", "--role", "oprator"]).assert_refused(&["viewer", "did you mean `operator`?"]);
    create(&["x"]).assert_refused(&["--role"]);
    create(&["ci", "--role", "viewer"]).assert_refused(&["exists already", "token revoke ci"]);
    create(&["a b", "--role", "viewer"]).assert_refused(&["cannot name a token", "64"]);
    create(&["x", "--role", "viewer", "--expires", "0s"]).assert_refused(&["cannot expire after"]);
    create(&["x", "--role", "viewer", "--expires", "soon"]).assert_refused(&["not a duration"]);
    let revoked = site.run(["token", "revoke", "nobody"]);
    revoked.assert_refused(&["no token named", "token list"]);
    assert_eq!(list(site.json(["token", "list"])).len(), 1);
}

async fn events_say_who_made_a_change(place: Place) {
    let site = Site::with_guests(place);
    site.add("nightly", "sleep", &["--at", "2099-01-01T00:00:00Z"]);
    site.ok(["schedule", "pause", "nightly", "--by", "someone else"]);
    let mut host = site.serve();
    stop(&mut host);
    let events = list(site.json(["event", "list"]));
    let of_kind = |kind: &str| {
        let event = events.iter().find(|event| event["kind"] == kind);
        event.unwrap_or_else(|| panic!("no {kind}: {events:#?}"))
    };
    let user = std::process::Command::new("id")
        .arg("-un")
        .output()
        .unwrap();
    let user = String::from_utf8(user.stdout).unwrap();
    for kind in ["schedule_added", "schedule_paused"] {
        let event = of_kind(kind);
        assert_eq!(
            (&event["principal"], &event["channel"], &event["address"]),
            (&json!(user.trim()), &json!("cli"), &Value::Null),
            "{event}"
        );
    }
    let started = of_kind("host_started");
    assert_eq!(
        (&started["principal"], &started["channel"]),
        (&Value::Null, &json!("host"))
    );
    let printed = site.ok(["event", "list"]);
    let head = printed.lines().next().unwrap_or_default();
    let columns: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(
        columns,
        ["AT", "KIND", "SUBJECT", "PRINCIPAL", "CHANNEL", "DETAIL"]
    );
}
