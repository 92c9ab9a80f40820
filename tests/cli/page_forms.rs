//! The forms of the pages that change a definition, many schedules, or past slots; and forms of a session that has ended.

use campanile_tests::{Place, on_both_empty};
use serde_json::json;

use crate::api::Api;
use crate::browser::{Browser, HOSTILE, assert_is_page, encoded, event, send, token};
use crate::site::{list, text};

on_both_empty!(
    a_definition_is_previewed_and_saved,
    a_wrong_definition_keeps_what_was_typed,
    two_versions_are_shown_side_by_side,
    many_schedules_are_paused_and_resumed,
    a_change_of_many_is_refused_when_their_number_is_another,
    a_backfill_is_counted_confirmed_and_cancelled,
    a_form_without_a_session_is_kept,
);

/// Add a schedule that launches in the night, in Paris.
fn add_nightly(api: &Api) {
    let nightly = json!({
        "name": "nightly", "package": "guests", "task": "ok", "kind": "cron", "expression": "30 2 * * *",
        "timezone": "Europe/Paris", "policies": {"jitter": "1m"}, "context": {"a": [1, "x=y"]},
    });
    api.post("/api/v1/schedules", nightly);
}

/// Return what the form on a page has, as a browser would send it.
fn fields(body: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let (_, form) = body
        .split_once("<form class=\"action edit\"")
        .expect("a form");
    let form = form.split("</form>").next().expect("an end");
    let read = |text: &str| {
        let text = text
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"");
        text.replace("&amp;", "&")
    };
    let attribute = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        Some(read(rest.split('"').next()?))
    };
    for tag in form.split('<') {
        let Some(name) = attribute(tag, "name").filter(|name| name != "do") else {
            continue;
        };
        let value = match tag.split(' ').next() {
            Some("input") => attribute(tag, "value").unwrap_or_default(),
            Some("textarea") => {
                let (_, text) = tag.split_once('>').expect("a text");
                read(text).trim_start_matches('\n').to_owned()
            }
            Some("select") => {
                let (_, rest) = form
                    .split_once(&format!("<select name=\"{name}\""))
                    .expect("a choice");
                let (_, rest) = rest
                    .split_once("</select>")
                    .map_or(("", rest), |(options, _)| ("", options));
                let chosen = rest
                    .split("<option")
                    .find(|option| option.contains(" selected"));
                chosen
                    .and_then(|chosen| attribute(chosen, "value"))
                    .unwrap_or_default()
            }
            _ => continue,
        };
        fields.push((name, value));
    }
    fields
}

/// Return the fields with some changed.
fn with(fields: &[(String, String)], changed: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut all = fields.to_vec();
    for (name, value) in changed {
        all.retain(|(other, _)| other != name);
        all.push(((*name).to_owned(), (*value).to_owned()));
    }
    all
}

fn borrowed(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    Vec::from_iter(
        fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    )
}

async fn a_definition_is_previewed_and_saved(place: Place) {
    let api = Api::start(place, "");
    add_nightly(&api);
    let editor = Browser::of(&api, &token(&api, "editor"));
    let page = "/schedules/nightly/edit";
    let shown = editor.page(page);
    let form = fields(&shown);
    assert!(
        form.contains(&("policies".to_owned(), "jitter = 1m".to_owned())),
        "{form:?}"
    );

    // As it is, the form changes nothing.
    let same = with(&form, &[("do", "edit")]);
    assert_eq!(
        editor.done(page, &borrowed(&same)),
        "/schedules/nightly?done=edit"
    );
    assert_eq!(api.get("/api/v1/schedules/nightly")["revision"], 1);

    let changes = [
        ("expression", "45 3 * * *"),
        ("exclude", "12-25\r\n01-01"),
        (
            "policies",
            "jitter = 2m\noverlap = allow\nmax_concurrent = 2",
        ),
        ("context", "{\"a\": 2}"),
        ("do", "preview"),
    ];
    let preview = editor.post(page, &borrowed(&with(&form, &changes)));
    assert_eq!(preview.status, 200, "{preview:?}");
    assert_is_page(&preview);
    for part in [
        "With this change",
        "03:45:00 +",
        "Europe/Paris",
        "12-25; 01-01",
        "jitter",
        "45 3 * * *",
    ] {
        assert!(preview.body.contains(part), "no `{part}`: {preview:?}");
    }
    assert_eq!(preview.body.matches("<ol><li>").count(), 1, "{preview:?}");
    assert_eq!(api.get("/api/v1/schedules/nightly")["revision"], 1);

    // What a preview shows is saved.
    let again = with(&fields(&preview.body), &[("do", "edit")]);
    assert_eq!(
        editor.done(page, &borrowed(&again)),
        "/schedules/nightly?done=edit"
    );
    let saved = api.get("/api/v1/schedules/nightly");
    assert_eq!(saved["revision"], 2);
    assert_eq!(saved["expression"], "45 3 * * *", "{saved}");
    assert_eq!(saved["exclude"], json!(["12-25", "01-01"]), "{saved}");
    assert_eq!(saved["effective_policies"]["max_concurrent"], 2, "{saved}");
    let changed = event(&api, "schedule_changed");
    assert_eq!(
        (&changed["principal"], &changed["channel"]),
        (&json!("editor"), &json!("page"))
    );

    let viewer = Browser::of(&api, &token(&api, "viewer"));
    let shown = viewer.page(page);
    assert!(
        shown.contains("needs the role editor") && !shown.contains("<textarea"),
        "{shown}"
    );
    assert_eq!(viewer.post(page, &borrowed(&again)).status, 403);
}

async fn a_wrong_definition_keeps_what_was_typed(place: Place) {
    let api = Api::start(place, "");
    add_nightly(&api);
    let editor = Browser::of(&api, &api.token);
    let page = "/schedules/nightly/edit";
    let form = fields(&editor.page(page));
    for (name, value, status, part) in [
        ("expression", "61 * * * *", 400, "61"),
        ("kind", "hourly", 400, "hourly"),
        ("timezone", "Europe/Pari", 400, "Europe/Pari`"),
        ("package", "gests", 404, "did you mean `guests`?"),
        ("task", "okay", 403, "did you mean `ok`?"),
        ("policies", "overlap", 400, "has no `=`"),
        ("policies", "overlop = skip", 400, "overlop"),
        ("context", "{", 400, "`context` is no JSON"),
        ("context", "[]", 400, "the body"),
        ("args", "-v", 400, "`args` is no JSON"),
        ("anchor", "noon", 400, "noon"),
        ("context", HOSTILE, 400, "`context` is no JSON"),
    ] {
        for (action, status) in [("edit", status), ("preview", 200)] {
            let typed = with(&form, &[(name, value), ("do", action)]);
            let answer = editor.post(page, &borrowed(&typed));
            assert_eq!(answer.status, status, "{name} {action}: {answer:?}");
            assert_is_page(&answer);
            let kept = fields(&answer.body)
                .into_iter()
                .find(|(other, _)| other == name);
            // A choice has only its words, and hostile characters cannot be sent back as they are.
            if name != "kind" && value != HOSTILE {
                assert_eq!(
                    kept.map(|(_, kept)| kept).as_deref(),
                    Some(value),
                    "{answer:?}"
                );
            }
            let body = answer.body.replace("&quot;", "\"");
            // The page of a preview is made of the same parts.
            let part = if action == "preview" && part == "the body" {
                "the form"
            } else {
                part
            };
            assert!(
                body.contains("role=\"alert\"") && body.contains(part),
                "{name}: no `{part}`: {body}"
            );
        }
    }
    assert_eq!(api.get("/api/v1/schedules/nightly")["revision"], 1);
    assert_eq!(editor.get("/schedules/none/edit").status, 404);
    let answer = editor.post(page, &[("do", "edit")]);
    assert_eq!(answer.status, 428, "{answer:?}");
}

async fn two_versions_are_shown_side_by_side(place: Place) {
    let api = Api::start(place, "");
    add_nightly(&api);
    let editor = Browser::of(&api, &api.token);
    let page = "/schedules/nightly/edit";
    let form = fields(&editor.page(page));
    let patch = json!({"expression": "0 5 * * *", "timezone": "UTC"});
    let patched = api.send(
        "PATCH",
        "/api/v1/schedules/nightly",
        &[("If-Match", "\"1\"")],
        Some(&patch),
    );
    assert_eq!(patched.status, 200, "{patched:?}");

    let typed = with(&form, &[("expression", "15 4 * * *"), ("do", "edit")]);
    let conflict = editor.post(page, &borrowed(&typed));
    assert_eq!(conflict.status, 412, "{conflict:?}");
    assert_is_page(&conflict);
    for part in [
        "was changed since revision 1",
        "Your version, and the one on record now",
        "<code>0 5 * * *</code></td><td><code>15 4 * * *</code>",
        "<code>UTC</code></td><td><code>Europe/Paris</code>",
    ] {
        assert!(conflict.body.contains(part), "no `{part}`: {conflict:?}");
    }
    let kept = fields(&conflict.body);
    assert!(
        kept.contains(&("expression".to_owned(), "15 4 * * *".to_owned())),
        "{kept:?}"
    );
    assert!(
        kept.contains(&("revision".to_owned(), "2".to_owned())),
        "{kept:?}"
    );
    assert_eq!(api.get("/api/v1/schedules/nightly")["revision"], 2);
    // Who has seen both versions can save.
    editor.done(page, &borrowed(&with(&kept, &[("do", "edit")])));
    assert_eq!(
        api.get("/api/v1/schedules/nightly")["expression"],
        "15 4 * * *"
    );
}

async fn many_schedules_are_paused_and_resumed(place: Place) {
    let api = Api::start(place, "");
    for name in ["etl-a", "etl-b", "etl-c", "other"] {
        api.add(name, "ok");
    }
    let paused = || {
        let all = list(api.get("/api/v1/schedules"));
        Vec::from_iter(
            all.iter()
                .filter(|one| one["state"] == "paused")
                .map(|one| text(&one["name"])),
        )
    };
    api.post("/api/v1/schedules/etl-b/pause", json!({"note": "by hand"}));
    let browser = Browser::of(&api, &token(&api, "operator"));
    assert!(
        browser
            .page("/schedules?q=etl")
            .contains("value=\"pause_many\"")
    );
    let fields = [
        ("do", "pause_many"),
        ("q", "etl"),
        ("state", ""),
        ("note", "upgrade"),
    ];
    let asked = browser.post("/schedules", &fields);
    assert_eq!(asked.status, 200, "{asked:?}");
    assert_is_page(&asked);
    for part in [
        "Pause 2 schedules: etl-a, etl-c.",
        "Yes, do it",
        "name=\"count\" value=\"2\"",
    ] {
        assert!(asked.body.contains(part), "no `{part}`: {asked:?}");
    }
    assert_eq!(paused(), ["etl-b"]);
    let confirmed = [
        &fields[..],
        &[("confirm", "yes"), ("count", "2"), ("key", "once")],
    ]
    .concat();
    let to = browser.done("/schedules", &confirmed);
    assert!(browser.page(&to).contains("The schedules are paused."));
    assert_eq!(paused(), ["etl-a", "etl-b", "etl-c"]);
    assert_eq!(api.get("/api/v1/schedules/etl-a")["pause_note"], "upgrade");
    assert_eq!(api.get("/api/v1/schedules/etl-b")["pause_note"], "by hand");
    assert_eq!(event(&api, "schedule_paused")["channel"], "page");

    let none = browser.post("/schedules", &fields);
    assert_eq!(none.status, 409, "{none:?}");
    assert!(
        none.body
            .contains("no schedule of the search is not paused"),
        "{none:?}"
    );
    let fields = [("do", "resume_many"), ("q", "upgrade"), ("state", "paused")];
    let asked = browser.post("/schedules", &fields);
    assert!(
        asked.body.contains("Resume 2 schedules: etl-a, etl-c."),
        "{asked:?}"
    );
    let confirmed = [&fields[..], &[("confirm", "yes"), ("count", "2")]].concat();
    browser.done("/schedules", &confirmed);
    assert_eq!(paused(), ["etl-b"]);
}

async fn a_change_of_many_is_refused_when_their_number_is_another(place: Place) {
    let api = Api::start(place, "");
    for name in ["a", "b"] {
        api.add(name, "ok");
    }
    let counted = api.get("/api/v1/bulk/count?change=pause");
    assert_eq!(
        counted,
        json!({"count": 2, "names": ["a", "b"], "is_complete": true})
    );
    api.add("c", "ok");
    let body = json!({"count": 2, "note": "x"});
    let answer = api.send("POST", "/api/v1/bulk/pause", &[], Some(&body));
    answer.assert_problem(409, "the search finds 3 schedules to change now, not 2");
    for (path, body, part) in [
        ("pause", json!({"note": "x"}), "count"),
        (
            "pause",
            json!({"count": 3, "state": "asleep"}),
            "`state`: `asleep` must be `enabled`",
        ),
        ("resume", json!({"count": 1, "note": "x"}), "note"),
    ] {
        let answer = api.send("POST", &format!("/api/v1/bulk/{path}"), &[], Some(&body));
        answer.assert_problem(400, part);
    }
    api.send("GET", "/api/v1/bulk/count?change=explode", &[], None)
        .assert_problem(400, "explode");
    let past = json!({"count": 3, "until": "2020-01-01T00:00:00Z"});
    let answer = api.send("POST", "/api/v1/bulk/pause", &[], Some(&past));
    answer.assert_problem(400, "is in the past");
    // All or none.
    let states = list(api.get("/api/v1/schedules"));
    assert!(
        states.iter().all(|one| one["state"] == "enabled"),
        "{states:?}"
    );
    let done = api.post("/api/v1/bulk/pause", json!({"count": 3}));
    assert_eq!(
        done,
        json!({"count": 3, "names": ["a", "b", "c"], "done": "paused"})
    );
    let browser = Browser::of(&api, &token(&api, "viewer"));
    assert_eq!(
        browser.post("/schedules", &[("do", "resume_many")]).status,
        403
    );
}

async fn a_backfill_is_counted_confirmed_and_cancelled(place: Place) {
    let api = Api::start(place, "");
    add_nightly(&api);
    let browser = Browser::of(&api, &token(&api, "editor"));
    let page = "/schedules/nightly";
    let span = [("from", "2026-01-01T00:00"), ("to", "2026-01-04T00:00")];
    let form = |more: &[(&'static str, &'static str)]| {
        [
            &[
                ("do", "backfill"),
                ("schedule", "nightly"),
                ("spread", "1h"),
            ][..],
            &span,
            more,
        ]
        .concat()
    };
    let asked = browser.post(page, &form(&[]));
    assert_eq!(asked.status, 200, "{asked:?}");
    assert_is_page(&asked);
    let question = "Launch 3 slots of nightly, from 2026-01-01T01:30:00Z to 2026-01-03T01:30:00Z.";
    assert!(asked.body.contains(question), "{asked:?}");
    assert_eq!(api.get("/api/v1/backfills"), json!([]));
    let to = browser.done(page, &form(&[("confirm", "yes"), ("key", "once")]));
    assert_eq!(
        browser.done(page, &form(&[("confirm", "yes"), ("key", "once")])),
        to
    );
    assert_eq!(to, "/backfills?done=backfill");
    let shown = browser.page(&to);
    assert!(
        shown.contains("The backfill has begun.") && shown.contains("3 slots"),
        "{shown}"
    );
    let begun = list(api.get("/api/v1/backfills"));
    assert_eq!(begun.len(), 1, "{begun:?}");
    let id = text(&begun[0]["id"]);
    browser.done("/backfills", &[("do", "cancel_backfill"), ("id", &id)]);
    assert_eq!(
        api.get(&format!("/api/v1/backfills/{id}"))["status"],
        "cancelled"
    );
    for (changed, part) in [
        (("from", ""), "from"),
        (("from", "noon"), "noon"),
        (("to", "2025-01-01T00:00"), "is before"),
        (("spread", "soon"), "`spread`"),
        (("to", "2026-01-01T00:01"), "has no slot"),
    ] {
        let mut fields = form(&[("confirm", "yes")]);
        fields.retain(|(name, _)| *name != changed.0);
        fields.push(changed);
        let answer = browser.post(page, &fields);
        assert_eq!(answer.status, 400, "{changed:?}: {answer:?}");
        assert!(answer.body.contains(part), "no `{part}`: {answer:?}");
        assert!(answer.body.contains("value=\"2026-01-"), "{answer:?}");
    }
    let operator = Browser::of(&api, &token(&api, "operator"));
    assert_eq!(operator.post(page, &form(&[])).status, 403);
}

async fn a_form_without_a_session_is_kept(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let note = format!("long text {HOSTILE}");
    let fields = [
        ("do", "pause"),
        ("note", &*note),
        ("until", ""),
        ("key", "k1"),
    ];
    let ended = send(
        &api,
        "POST",
        "/schedules/one",
        "Sec-Fetch-Site: same-origin\r\n",
        &encoded(&fields),
    );
    assert_eq!(ended.status, 401, "{ended:?}");
    assert_is_page(&ended);
    assert!(ended.body.contains("your session has ended"), "{ended:?}");
    let (_, kept) = ended
        .body
        .split_once("name=\"kept\" value=\"")
        .expect("what was typed");
    let kept = kept
        .split('"')
        .next()
        .expect("an end")
        .replace("&amp;", "&");
    // A wrong token does not lose it.
    let login = |token: &str| {
        let fields = [
            ("token", token),
            ("next", "/schedules/one"),
            ("kept", &*kept),
        ];
        send(&api, "POST", "/login", "", &encoded(&fields))
    };
    let wrong = login("cmp_wrong");
    assert_eq!(wrong.status, 401);
    assert!(wrong.body.contains("name=\"kept\""), "{wrong:?}");
    let entered = login(&api.token);
    assert_eq!(entered.status, 200, "{entered:?}");
    assert_is_page(&entered);
    for part in [
        "nothing of it was done yet",
        "long text",
        "&lt;script&gt;",
        "Send it now",
        "name=\"do\" value=\"pause\"",
    ] {
        assert!(entered.body.contains(part), "no `{part}`: {entered:?}");
    }
    assert_eq!(api.get("/api/v1/schedules/one")["state"], "enabled");
    let cookie = entered
        .header("set-cookie")
        .expect("a cookie")
        .split(';')
        .next()
        .expect("a value");
    let browser = Browser {
        api: &api,
        cookie: format!("Cookie: {cookie}\r\n"),
    };
    browser.done("/schedules/one", &fields);
    assert_eq!(api.get("/api/v1/schedules/one")["state"], "paused");
    // What cannot be kept is not said to be kept.
    let long = "x".repeat(60_000);
    let answer = send(
        &api,
        "POST",
        "/schedules/one",
        "",
        &encoded(&[("do", "pause"), ("note", &long)]),
    );
    assert_eq!(answer.status, 401);
    assert!(
        answer.body.contains("was not kept") && !answer.body.contains("name=\"kept\""),
        "{answer:?}"
    );
    // A form of another site is refused before anything of it is kept.
    let foreign = send(
        &api,
        "POST",
        "/schedules/one",
        "Sec-Fetch-Site: cross-site\r\n",
        &encoded(&fields),
    );
    assert_eq!(foreign.status, 403);
}
