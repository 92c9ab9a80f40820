//! The pages with which an installation is run: tokens, the outbox, the configuration, and changes of many launches.

use campanile_model::ids::{LaunchId, MessageId};
use campanile_tests::{Backend, Place, on_both_empty};
use serde_json::{Value, json};

use crate::api::Api;
use crate::browser::{Browser, HOSTILE, assert_is_page, token};
use crate::site::{eventually, list, text};

on_both_empty!(
    a_token_is_created_shown_once_and_revoked,
    only_administrators_see_tokens_and_the_configuration,
    the_configuration_shows_what_is_set_where_and_no_secret,
    a_message_is_retried_and_discarded_on_its_page,
    ticked_launches_run_again,
    all_launches_that_match_run_again_or_are_cancelled,
    a_change_of_many_launches_is_refused_when_it_is_not_what_was_counted,
);

async fn a_token_is_created_shown_once_and_revoked(place: Place) {
    let api = Api::start(place, "");
    let admin = Browser::of(&api, &api.token);
    let body = admin.page("/tokens");
    for part in [
        "No token was created.",
        "campanile token create",
        "href=\"/outbox\"",
    ] {
        assert!(body.contains(part), "no `{part}`: {body}");
    }
    let fields = [
        ("do", "create_token"),
        ("name", "ci"),
        ("role", "operator"),
        ("namespace", ""),
        ("expires", "90d"),
    ];
    let created = admin.post("/tokens", &fields);
    assert_eq!(created.status, 200, "{created:?}");
    // The page is in no cache, and nothing leads back to the secret.
    assert_is_page(&created);
    assert_eq!(created.header("location"), None);
    for part in [
        "The secret of ci",
        "shown only now",
        "data-once",
        "data-copy=\"secret\"",
    ] {
        assert!(created.body.contains(part), "no `{part}`: {created:?}");
    }
    let (_, rest) = created
        .body
        .split_once("id=\"secret\" readonly value=\"")
        .expect("a secret");
    let secret = rest.split('"').next().expect("an end").to_owned();
    assert!(secret.starts_with("cmp_"), "{secret}");
    let browser = Browser::of(&api, &secret);
    browser.page("/schedules");
    let body = admin.page("/tokens");
    assert!(!body.contains(&secret), "{body}");
    for part in [">ci<", "operator", "in 89 d", "value=\"revoke_token\""] {
        assert!(body.contains(part), "no `{part}`: {body}");
    }

    // What was typed is kept when the name is taken.
    let again = admin.post("/tokens", &fields);
    assert_eq!(again.status, 409, "{again:?}");
    assert!(
        again.body.contains("a token named `ci` exists already"),
        "{again:?}"
    );
    assert!(
        again.body.contains("name=\"expires\" value=\"90d\""),
        "{again:?}"
    );
    assert!(!again.body.contains("The secret of"), "{again:?}");
    let wrong = admin.post(
        "/tokens",
        &[
            ("do", "create_token"),
            ("name", HOSTILE),
            ("role", "viewer"),
        ],
    );
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert_is_page(&wrong);

    let revoke = [("do", "revoke_token"), ("name", "ci")];
    let asked = admin.post("/tokens", &revoke);
    assert!(asked.body.contains("refused from now on"), "{asked:?}");
    assert_eq!(list(api.get("/api/v1/tokens"))[0]["state"], "active");
    let confirmed = [&revoke[..], &[("confirm", "yes")]].concat();
    let to = admin.done("/tokens", &confirmed);
    assert!(admin.page(&to).contains("The token is revoked."));
    assert!(admin.page("/tokens?all=true").contains("revoked"));
    eventually(|| match browser.get("/schedules") {
        answer if answer.status == 303 => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

async fn only_administrators_see_tokens_and_the_configuration(place: Place) {
    let api = Api::start(place, "");
    let approver = Browser::of(&api, &token(&api, "approver"));
    let body = approver.page("/outbox");
    for path in ["/tokens", "/configuration"] {
        let refused = approver.get(path);
        assert_eq!(refused.status, 403, "{path}: {refused:?}");
        assert_is_page(&refused);
        assert!(
            !body.contains(&format!("href=\"{path}\"")),
            "{path}: {body}"
        );
    }
    let fields = [("do", "create_token"), ("name", "eve"), ("role", "admin")];
    assert_eq!(approver.post("/tokens", &fields).status, 403);
    assert_eq!(list(api.get("/api/v1/tokens")).len(), 1);
}

async fn the_configuration_shows_what_is_set_where_and_no_secret(place: Place) {
    let configuration =
        "[retention]\nlogs = '3days'\n[secrets.db]\ncommand = ['vault', '--token=hunter2']\n";
    let api = Api::start(place, configuration);
    let browser = Browser::of(&api, &api.token);
    let body = browser.page("/configuration");
    for part in [
        "retention.logs",
        "&quot;3days&quot;",
        "&quot;14days&quot;",
        ">file<",
        "server.listen",
        ">flag<",
        "secrets.db.command",
        "vault",
        "[quota]",
        "campanile config check",
    ] {
        assert!(body.contains(part), "no `{part}`: {body}");
    }
    assert!(!body.contains("hunter2"), "{body}");
    assert!(!body.contains("retention.keep_last"), "{body}");
    let found = browser.page("/configuration?q=keep_last");
    assert!(
        found.contains("keep_last") && !found.contains("3days"),
        "{found}"
    );
    assert!(
        browser
            .page("/configuration?q=zzz")
            .contains("No key matches.")
    );
}

/// Inserts messages with these statuses and an error each. Returns their ids.
async fn insert_messages(api: &Api, statuses: &[&str]) -> Vec<String> {
    let backend = api.site.place().backend;
    let mut ids = Vec::new();
    for (number, status) in statuses.iter().enumerate() {
        let id = MessageId::of(LaunchId::FIRST, "send", number as u64);
        let (next, finished) = match (*status, backend) {
            ("pending", Backend::Sqlite) => ("9000000000000000", "NULL"),
            ("pending", Backend::Postgres) => ("TIMESTAMPTZ '2250-01-01T00:00:00Z'", "NULL"),
            (_, Backend::Sqlite) => ("NULL", "1"),
            (_, Backend::Postgres) => ("NULL", "TIMESTAMPTZ '2026-01-01T00:00:00Z'"),
        };
        let at = match backend {
            Backend::Sqlite => "1",
            Backend::Postgres => "TIMESTAMPTZ '2026-01-01T00:00:00Z'",
        };
        let far = match backend {
            Backend::Sqlite => "9000000000000000",
            Backend::Postgres => "TIMESTAMPTZ '2250-01-01T00:00:00Z'",
        };
        api.site
            .execute(&format!(
                "INSERT INTO outbox_message (id, status, launch_id, package, task, number, method, url, headers, body, created_at,
                    give_up_at, attempts, next_attempt_at, answer, error, finished_at)
                VALUES ({}, '{status}', {}, 'guests', 'send', {number}, 'POST', 'https://example.com/<b>', '[]', {}, {at}, {far}, 3, {next},
                    503, 'it is <i>busy</i>', {finished})",
                backend.id(id.0),
                backend.id(LaunchId::FIRST.0),
                backend.bytes("00"),
            ))
            .await;
        ids.push(id.to_string());
    }
    ids
}

async fn a_message_is_retried_and_discarded_on_its_page(place: Place) {
    let api = Api::start(place, "");
    let operator = Browser::of(&api, &token(&api, "operator"));
    assert!(
        operator
            .page("/outbox")
            .contains("No task has sent a message.")
    );
    let ids = insert_messages(&api, &["pending", "dead", "discarded"]).await;
    let body = operator.page("/outbox");
    for part in [
        "https://example.com/&lt;b&gt;",
        "it is &lt;i&gt;busy&lt;/i&gt;",
        "/packages/guests",
        "value=\"retry_message\"",
        "value=\"discard_message\"",
    ] {
        assert!(body.contains(part), "no `{part}`: {body}");
    }
    let body = operator.page("/outbox?status=dead");
    assert!(body.contains(&ids[1]) && !body.contains(&ids[0]), "{body}");
    assert!(
        operator
            .page("/outbox?package=none")
            .contains("No message matches.")
    );
    assert_eq!(operator.get("/outbox?status=lost").status, 400);

    let status = |id: &str| text(&api.get(&format!("/api/v1/outbox/{id}"))["status"]);
    let discard = [("do", "discard_message"), ("id", ids[1].as_str())];
    let asked = operator.post("/outbox", &discard);
    assert!(asked.body.contains("never delivered"), "{asked:?}");
    assert_eq!(status(&ids[1]), "dead");
    operator.done("/outbox", &[&discard[..], &[("confirm", "yes")]].concat());
    assert_eq!(status(&ids[1]), "discarded");
    let to = operator.done("/outbox", &[("do", "retry_message"), ("id", &ids[0])]);
    assert!(operator.page(&to).contains("delivered again"));
    assert_ne!(
        api.get(&format!("/api/v1/outbox/{}", ids[0]))["next_attempt_at"],
        "2250-01-01T00:00:00Z"
    );
    let viewer = Browser::of(&api, &token(&api, "viewer"));
    let body = viewer.page("/outbox");
    assert!(!body.contains("retry_message"), "{body}");
    let retry = [("do", "retry_message"), ("id", ids[2].as_str())];
    assert_eq!(viewer.post("/outbox", &retry).status, 403);
}

/// Adds a schedule, and returns its launches that ended, one for each of these.
fn launched(api: &Api, name: &str, task: &str, count: usize) -> Vec<String> {
    api.add(name, task);
    let launches = (0..count).map(|_| {
        let launched = api.post(&format!("/api/v1/schedules/{name}/trigger"), json!({}));
        text(&api.end_of(&text(&launched["launch"]))["id"])
    });
    launches.collect()
}

/// Returns the launches of a schedule.
fn launches(api: &Api, schedule: &str) -> Vec<Value> {
    list(api.get(&format!("/api/v1/launches?schedule={schedule}")))
}

async fn ticked_launches_run_again(place: Place) {
    let api = Api::start(place, "");
    let failed = launched(&api, "bad", "fail_permanent", 5);
    let succeeded = launched(&api, "good", "ok", 1);
    let operator = Browser::of(&api, &token(&api, "operator"));
    let page = "/launches?schedule=bad";
    let body = operator.page(page);
    // Equal failures are folded, with one tick for all of them.
    let folded = failed.iter().rev().skip(1).cloned().collect::<Vec<_>>();
    for part in [failed[4].clone(), folded.join(",")] {
        assert!(
            body.contains(&format!("name=\"ids\" value=\"{part}\"")),
            "no `{part}`: {body}"
        );
    }
    let some = folded[..2].join(",");
    let fields = [
        ("do", "retry_many"),
        ("ticked", "yes"),
        ("ids", failed[4].as_str()),
        ("ids", some.as_str()),
        ("ids", succeeded[0].as_str()),
    ];
    let asked = operator.post(page, &fields);
    assert_eq!(asked.status, 200, "{asked:?}");
    assert_is_page(&asked);
    for part in [
        "Run again 3 launches (3 failed) of bad. 1 of those ticked are left out.",
        "name=\"count\" value=\"3\"",
        "action=\"/launches?schedule=bad\"",
    ] {
        assert!(asked.body.contains(part), "no `{part}`: {asked:?}");
    }
    assert_eq!(launches(&api, "bad").len(), 5);
    let confirmed = [
        &fields[..],
        &[("count", "3"), ("confirm", "yes"), ("key", "once")],
    ]
    .concat();
    let to = operator.done(page, &confirmed);
    assert_eq!(to, "/launches?schedule=bad&done=retry_many");
    // A form that is sent twice is done once.
    operator.done(page, &confirmed);
    assert!(
        operator
            .page(&to)
            .contains("The launches were requested again.")
    );
    let again = launches(&api, "bad");
    assert_eq!(again.len(), 8);
    let retried = again.iter().filter(|launch| !launch["retry_of"].is_null());
    assert_eq!(retried.count(), 3);

    let none = operator.post(page, &[("do", "retry_many"), ("ticked", "yes")]);
    assert_eq!(none.status, 400, "{none:?}");
    assert!(none.body.contains("no row is ticked"), "{none:?}");
    let viewer = Browser::of(&api, &token(&api, "viewer"));
    assert!(!viewer.page(page).contains("name=\"ids\""));
    assert_eq!(viewer.post(page, &fields).status, 403);
}

async fn all_launches_that_match_run_again_or_are_cancelled(place: Place) {
    let api = Api::start(place, "");
    launched(&api, "bad", "fail_permanent", 2);
    launched(&api, "worse", "fail_permanent", 1);
    let operator = Browser::of(&api, &token(&api, "operator"));
    let body = operator.page("/launches?status=failed");
    assert!(body.contains("All that match, on all pages"), "{body}");
    let fields = [("do", "retry_many"), ("status", "failed"), ("since", "1h")];
    let asked = operator.post("/launches?status=failed", &fields);
    assert!(
        asked
            .body
            .contains("Run again 3 launches (3 failed) of bad, worse."),
        "{asked:?}"
    );
    let confirmed = [&fields[..], &[("count", "3"), ("confirm", "yes")]].concat();
    operator.done("/launches?status=failed", &confirmed);
    assert_eq!(
        (launches(&api, "bad").len(), launches(&api, "worse").len()),
        (4, 2)
    );

    for name in ["slow-1", "slow-2"] {
        let slow = json!({
            "name": name, "package": "guests", "task": "sleep", "kind": "at", "expression": "2099-01-01T00:00:00Z",
            "context": {"ms": 600_000}, "policies": {"overlap": "cancel_other", "cancel_grace": "100ms"},
        });
        api.post("/api/v1/schedules", slow);
        api.post(&format!("/api/v1/schedules/{name}/trigger"), json!({}));
    }
    let count = |query: &str| api.get(&format!("/api/v1/bulk/launches/count?{query}"));
    eventually(|| match count("change=cancel") {
        counted if counted["statuses"] == json!({"running": 2}) => Ok(()),
        counted => Err(counted.to_string()),
    });
    let fields = [("do", "cancel_many")];
    let asked = operator.post("/launches", &fields);
    assert!(
        asked
            .body
            .contains("Cancel 2 launches (2 running) of slow-1, slow-2."),
        "{asked:?}"
    );
    operator.done(
        "/launches",
        &[("do", "cancel_many"), ("count", "2"), ("confirm", "yes")],
    );
    for name in ["slow-1", "slow-2"] {
        eventually(|| match launches(&api, name)[0]["status"].as_str() {
            Some("cancelled") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

async fn a_change_of_many_launches_is_refused_when_it_is_not_what_was_counted(place: Place) {
    let api = Api::start(place, "");
    let failed = launched(&api, "bad", "fail_permanent", 2);
    let bulk = "/api/v1/bulk/launches";
    let post = |body: Value| api.send("POST", bulk, &[], Some(&body));
    let of = json!({"change": "retry", "schedule": "bad"});
    post(json!({"of": of, "count": 1}))
        .assert_problem(409, "2 launches would be changed now, not 1");
    let both = json!({"change": "retry", "schedule": "bad", "ids": [failed[0]]});
    post(json!({"of": both, "count": 1})).assert_problem(400, "`ids` comes without other filters");
    let running = json!({"change": "cancel", "ids": failed});
    post(json!({"of": running, "count": 2})).assert_problem(409, "is unfinished");
    let ids = vec!["01a1fd88"; 201];
    post(json!({"of": {"change": "retry", "ids": ids}, "count": 1}))
        .assert_problem(403, "more than 200");
    let unknown = json!({"change": "retry", "schedule": "bed"});
    post(json!({"of": unknown, "count": 1})).assert_problem(404, "did you mean `bad`");
    // All or none: the schedule of one of them is gone.
    launched(&api, "gone", "fail_permanent", 1);
    let removed = api.send(
        "DELETE",
        "/api/v1/schedules/gone",
        &[("If-Match", "*")],
        None,
    );
    assert!(removed.status < 300, "{removed:?}");
    let all = json!({"change": "retry", "status": ["failed"]});
    post(json!({"of": all, "count": 3})).assert_problem(409, "`gone` of the launch");
    assert_eq!(launches(&api, "bad").len(), 2);
    let done = api.post(bulk, json!({"of": of, "count": 2}));
    assert_eq!(
        (&done["count"], &done["done"]),
        (&json!(2), &json!("retried"))
    );
    assert_eq!(list(done["launches"].clone()).len(), 2);
}
