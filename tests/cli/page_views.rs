//! Pages that show more than one launch or version at once: the calendar, the comparison of versions, and what runs.

use std::time::Duration;

use campanile_model::clock::Clock;
use campanile_tests::{Backend, Place, on_both_empty, run_empty_case};
use serde_json::{Value, json};

use crate::api::{Api, raw};
use crate::browser::{Browser, HOSTILE, assert_is_page, encoded, token};
use crate::guest::described;
use crate::site::{Site, eventually, list, text};

on_both_empty!(
    a_calendar_has_the_days_of_the_zone,
    a_year_that_is_none_is_refused,
    two_versions_are_compared,
    a_run_is_shown_against_the_usual_duration,
    a_plan_says_which_schedule_fails,
);

/// Launch the slots of a past time, and wait until they have ended.
fn backfill(api: &Api, schedule: &str, from: &str, to: &str) {
    let begun = api.post(
        "/api/v1/backfills",
        json!({"schedule": schedule, "from": from, "to": to}),
    );
    let path = format!("/api/v1/backfills/{}", text(&begun["id"]));
    eventually(|| match api.get(&path) {
        row if row["status"] == "done" => Ok(()),
        row => Err(row.to_string()),
    });
}

async fn a_calendar_has_the_days_of_the_zone(place: Place) {
    let api = Api::start(place, "");
    for (name, task, rule) in [
        ("good", "ok", "30 0 * * *"),
        ("bad", "fail_permanent", "0 12 * * 1"),
    ] {
        let schedule = json!({"name": name, "package": "guests", "task": task, "kind": "cron", "expression": rule, "timezone": "Europe/Paris"});
        api.post("/api/v1/schedules", schedule);
    }
    // In Paris these are the slots of the 2nd to the 4th of March, and in UTC of the day before each.
    backfill(&api, "good", "2025-03-01T12:00:00Z", "2025-03-04T12:00:00Z");
    backfill(&api, "bad", "2025-03-01T00:00:00Z", "2025-03-20T00:00:00Z");
    let days = |name: &str| {
        let calendar = api.get(&format!("/api/v1/schedules/{name}/calendar?year=2025"));
        assert_eq!(
            (&calendar["timezone"], &calendar["counted_from"]),
            (&json!("Europe/Paris"), &Value::Null)
        );
        let days = list(calendar["days"].clone());
        Vec::from_iter(days.iter().map(|day| {
            assert_eq!(day["lag_ms"], Value::Null, "{day}");
            (
                text(&day["day"]),
                day["succeeded"].clone(),
                day["failed"].clone(),
                day["duration_ms"].is_null(),
            )
        }))
    };
    let day = |day: &str, succeeded: i64, failed: i64| {
        (
            day.to_owned(),
            json!(succeeded),
            json!(failed),
            succeeded == 0,
        )
    };
    assert_eq!(
        days("good"),
        [
            day("2025-03-02", 1, 0),
            day("2025-03-03", 1, 0),
            day("2025-03-04", 1, 0)
        ]
    );
    assert_eq!(
        days("bad"),
        [
            day("2025-03-03", 0, 1),
            day("2025-03-10", 0, 1),
            day("2025-03-17", 0, 1)
        ]
    );

    let browser = Browser::of(&api, &token(&api, "viewer"));
    let now = browser.page("/");
    assert!(now.contains("3 of 3 launches failed"), "{now}");
    let shown = browser.page("/schedules/bad/calendar?year=2025");
    for part in [
        "Calendar of bad, 2025",
        "3 days with a slot, 3 days with a failure",
        "<title>2025-03-10: 1 failed</title>",
        "Duration, the median of a day: no day has one.",
        "<th scope=\"row\">2025-03</th><td class=\"number\">0</td><td class=\"number\">3</td>",
        "calendar?year=2024",
    ] {
        assert!(shown.contains(part), "no `{part}`: {shown}");
    }
    // A day leads to its launches.
    let (_, rest) = shown
        .split_once("<ul><li><a href=\"")
        .expect("a day with a failure");
    let link = rest
        .split('"')
        .next()
        .expect("an end")
        .replace("&amp;", "&");
    let launches = browser.page(&link);
    assert_eq!(
        launches.matches("class=\"badge bad\"").count(),
        1,
        "{launches}"
    );
    let good = browser.page("/schedules/good/calendar?year=2025");
    assert!(
        good.contains("No launch failed.") && good.contains("in the median"),
        "{good}"
    );
    let empty = browser.page("/schedules/good/calendar?year=1999");
    assert!(
        empty.contains("No slot of this year is on record."),
        "{empty}"
    );
    assert!(
        browser
            .page("/schedules/good")
            .contains("/schedules/good/calendar")
    );
    // The present year is the default.
    assert!(
        browser
            .page("/schedules/good/calendar")
            .contains("Calendar of good, 20")
    );
}

async fn a_year_that_is_none_is_refused(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let browser = Browser::of(&api, &api.token);
    for (year, part) in [
        ("1969", "must be a number from 1970 to 2099"),
        ("2100", "must be a number from 1970 to 2099"),
        ("-1", "must be a number from 1970 to 2099"),
        ("9223372036854775807", "must be a number from 1970 to 2099"),
        ("9223372036854775808", "must be a number from 1970 to 2099"),
        ("now", "must be a number from 1970 to 2099"),
    ] {
        let path = format!("/schedules/one/calendar?year={year}");
        let refused = api.send("GET", &format!("/api/v1{path}"), &[], None);
        refused.assert_problem(400, part);
        let page = browser.get(&path);
        assert_eq!(page.status, 400, "{page:?}");
        assert_is_page(&page);
        assert!(
            page.body.contains(part) && page.body.contains("Send it again"),
            "{page:?}"
        );
    }
    assert_eq!(browser.get("/schedules/none/calendar").status, 404);
}

async fn two_versions_are_compared(place: Place) {
    let site = Site::new(place);
    let write = |site: &Site, description: &Value| {
        std::fs::write(site.plugin("pack.wasm.tmp"), described(description)).expect("a package");
        std::fs::rename(site.plugin("pack.wasm.tmp"), site.plugin("pack.wasm")).expect("a package");
    };
    write(
        &site,
        &json!({"name": "pack", "version": "1.0.0", "tasks": [{"id": "strike"}]}),
    );
    site.configure("[policy]\napproval = \"always\"\n");
    let api = Api::of(site);
    let digests = |state: &str| {
        let row = api.send("GET", "/api/v1/packages/pack", &[], None);
        let versions = row.json()["versions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = versions.iter().filter(|version| version["state"] == state);
        Vec::from_iter(found.map(|version| text(&version["digest"])))
    };
    let one = |state: &str| {
        eventually(|| match digests(state).as_slice() {
            [one] => Ok(one.clone()),
            other => Err(format!("{state}: {other:?}")),
        })
    };
    let first = one("pending_approval");
    let browser = Browser::of(&api, &api.token);
    let early = browser.get("/packages/pack/diff");
    assert_eq!(early.status, 409, "{early:?}");
    assert_is_page(&early);
    api.post("/api/v1/packages/pack/approve", json!({"digest": first}));
    assert_eq!(one("active"), first);
    let requests = json!({"env": ["TOKEN"], "http": [{"host": "api.example.com", "reason": format!("to\nask {HOSTILE}")}]});
    let newer = json!({"name": "pack", "version": "2.0.0", "tasks": [{"id": "strike", "summary": HOSTILE}, {"id": "hum"}], "requests": requests});
    write(&api.site, &newer);
    let second = one("pending_approval");
    let shown = browser.page("/packages/pack/diff");
    for part in [
        &first[..12],
        &second[..12],
        "waits for approval",
        "Tasks",
        "Added: hum",
        "2.0.0",
        "request added: env TOKEN, not granted",
        "to\\nask &lt;script&gt;",
        "Requests that are not granted: 2",
        "env = [&quot;TOKEN&quot;]",
        "With this version active, all calls are denied until it grants env TOKEN.",
        "name=\"anyway\"",
        "value=\"approve\"",
    ] {
        assert!(shown.contains(part), "no `{part}`: {shown}");
    }
    // It may have been active before.
    api.site
        .execute("UPDATE package_version SET succeeded = 2, failed = 3 WHERE activated_at IS NULL")
        .await;
    let before = browser.page("/packages/pack");
    let part = "It ran before: 3 launches failed, and 2 succeeded.";
    assert!(before.contains(part), "{before}");
    // An approval says that it's meant although requests aren't granted, on the page that asks at the latest.
    let approve = [("do", "approve"), ("digest", second.as_str())];
    let asked = browser.post("/packages/pack", &approve);
    assert_eq!(asked.status, 200, "{asked:?}");
    for part in [
        "Yes, do it",
        "name=\"anyway\" value=\"yes\" required",
        "env = [&quot;TOKEN&quot;]",
    ] {
        assert!(asked.body.contains(part), "no `{part}`: {asked:?}");
    }
    for fields in [
        &[&approve[..], &[("confirm", "yes")]].concat()[..],
        &[("do", "approve"), ("confirm", "yes")],
    ] {
        let refused = browser.post("/packages/pack", fields);
        assert_eq!(refused.status, 403, "{refused:?}");
        let part = "asks for what its sidecar doesn&#39;t grant";
        assert!(
            refused.body.replace("'", "&#39;").contains(part),
            "{refused:?}"
        );
    }
    let ticked = [&approve[..], &[("anyway", "yes")]].concat();
    let asked = browser.post("/packages/pack", &ticked);
    assert!(asked.body.contains("Yes, do it"), "{asked:?}");
    assert!(!asked.body.contains("required"), "{asked:?}");
    assert_eq!(one("active"), first);
    let link = format!(
        "/packages/pack/diff?from={}&amp;to={}",
        &first[..12],
        &second[..12]
    );
    assert!(browser.page("/packages/pack").contains(&link));
    let diff = api.get("/api/v1/packages/pack/diff");
    assert_eq!(
        (text(&diff["from"]), text(&diff["to"])),
        (first.clone(), second.clone())
    );
    let back = api.get(&format!(
        "/api/v1/packages/pack/diff?from={second}&to={first}"
    ));
    assert_eq!(back["tasks"]["removed"], diff["tasks"]["added"]);
    for (query, status) in [
        ("from=zz", 400),
        ("from=0000", 404),
        ("from=", 200),
        ("form=1", 400),
    ] {
        let answer = browser.get(&format!("/packages/pack/diff?{query}"));
        assert_eq!(answer.status, status, "{query}: {answer:?}");
        assert_is_page(&answer);
    }
    assert_eq!(browser.get("/packages/none/diff").status, 404);
}

async fn a_run_is_shown_against_the_usual_duration(place: Place) {
    let api = Api::start(place, "");
    let cron = json!({"name": "slow", "package": "guests", "task": "sleep", "kind": "cron", "expression": "0 0 1 1 *", "context": {"ms": 50}});
    api.post("/api/v1/schedules", cron);
    let browser = Browser::of(&api, &api.token);
    let running = |name: &str, part: &str| {
        let launched = api.post(
            &format!("/api/v1/schedules/{name}/trigger"),
            json!({"context": {"ms": 600_000}}),
        );
        let launch = text(&launched["launch"]);
        eventually(|| match browser.page("/") {
            body if body.contains(&launch) && body.contains(part) => Ok(()),
            body => Err(body),
        });
        api.post(
            &format!("/api/v1/launches/{launch}/cancel"),
            json!({"grace": "0s"}),
        );
        api.end_of(&launch);
    };
    running("slow", "no usual time yet");
    // Launches of slots count; those by hand may have another context. A host decides a slot that has come.
    // On a busy machine it may have come before the request is read.
    let is_added = [1_500, 20_000, 120_000].into_iter().any(|ahead| {
        let at = Clock::system().now().plus(Duration::from_millis(ahead));
        let soon = json!({"name": "soon", "package": "guests", "task": "sleep", "kind": "at", "expression": at.to_string(), "context": {"ms": 50}});
        let answer = api.send("POST", "/api/v1/schedules", &[], Some(&soon));
        answer.status == 201
    });
    assert!(is_added, "no time was ahead");
    eventually(|| {
        match list(api.get("/api/v1/launches?schedule=soon&status=succeeded")).as_slice() {
            [] => Err("it has not launched".to_owned()),
            _ => Ok(()),
        }
    });
    running("soon", "of about");

    let launched = api.post(
        "/api/v1/schedules/soon/trigger",
        json!({"context": {"ms": 600_000}}),
    );
    let launch = text(&launched["launch"]);
    api.site
        .wait_for_launch("soon", |row| row["status"] == "running");
    let earlier = match api.site.place().backend {
        Backend::Sqlite => "started_at - 600000000",
        Backend::Postgres => "started_at - INTERVAL '10 minutes'",
    };
    api.site
        .execute(&format!(
            "UPDATE launch SET started_at = {earlier} WHERE status = 'running'"
        ))
        .await;
    let page = browser.page(&format!("/launches/{launch}"));
    assert!(page.contains("launches around it took"), "{page}");
    let needs = browser.page("/");
    assert_eq!(needs.matches(">stuck?<").count(), 2, "{needs}");
}

async fn a_plan_says_which_schedule_fails(place: Place) {
    let api = Api::start(place, "");
    for (name, task) in [("one", "fail_permanent"), ("two", "ok")] {
        api.add(name, task);
        let launched = api.post(&format!("/api/v1/schedules/{name}/trigger"), json!({}));
        api.end_of(&text(&launched["launch"]));
    }
    let plan = api.get("/api/v1/plan");
    let forecasts = list(plan["schedules"].clone());
    let since = text(&forecasts[0]["failing_since"]);
    assert!(forecasts[1]["failing_since"].is_null(), "{plan}");
    let notes = api.site.run(["plan"]).stderr;
    let note = format!("`one` has failed since {since}: see `campanile schedule why one`\n");
    assert!(notes.contains(&note) && !notes.contains("`two`"), "{notes}");
    let secret = token(&api, "viewer");
    let page = Browser::of(&api, &secret).page("/plan");
    assert_eq!(page.matches(">failing ").count(), 1, "{page}");
}

/// Only hosts of one Postgres database serve together.
#[test]
fn two_hosts_show_the_same() {
    run_empty_case(Backend::Postgres, |place| async move {
        let api = Api::start(place, "");
        api.add("one", "fail_permanent");
        let launched = api.post("/api/v1/schedules/one/trigger", json!({}));
        let launch = text(&api.end_of(&text(&launched["launch"]))["id"]);
        let other = api
            .site
            .serve_with(&["--name", "other", "--listen", "127.0.0.1:0"]);
        let line = other.wait_for_line("the API answers at http://");
        let (_, rest) = line.split_once("http://").expect("an address");
        let (address, _) = rest.split_once("/api/v1").expect("a path");
        let secret = token(&api, "operator");
        let first = Browser::of(&api, &secret);
        // A page says how long ago something was, and a form has a key of its own.
        let without_time = |body: String| {
            let mut shown = String::new();
            for (place, part) in body.split('<').enumerate() {
                let is_time = part.starts_with("span class=\"far\"")
                    || part.starts_with("p class=\"far\"")
                    || part.starts_with("time ");
                let is_hidden = part.starts_with("input type=\"hidden\"");
                if place > 0 && !is_time && !is_hidden {
                    shown += part;
                }
            }
            shown
        };
        let at_other = |method: &str, path: &str, cookie: &str, fields: &[(&str, &str)]| {
            let body = encoded(fields);
            let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/html\r\nConnection: close\r\n{cookie}{kind}Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            raw(address.parse().expect("an address"), &request)
        };
        let entered = at_other("POST", "/login", "", &[("token", &secret)]);
        let cookie = entered
            .header("set-cookie")
            .expect("a session")
            .split(';')
            .next()
            .expect("a value");
        let cookie = format!("Cookie: {cookie}\r\n");
        let at = format!("/launches/{launch}");
        for path in [
            "/schedules",
            "/schedules/one",
            "/launches",
            &at,
            "/packages",
            "/packages/guests",
            "/hosts",
            "/events",
            "/alerts",
        ] {
            // The page of the hosts also says how long each is up, and a busy machine takes its time between both.
            eventually(|| {
                let [one, two] =
                    [first.page(path), at_other("GET", path, &cookie, &[]).body].map(without_time);
                match one == two {
                    true => Ok(()),
                    false => Err(format!("{path}:\n{one}\n{two}")),
                }
            });
        }
        // What is done on one host is on the page of the other.
        at_other(
            "POST",
            "/schedules/one",
            &cookie,
            &[("do", "pause"), ("note", "there")],
        );
        assert!(first.page("/schedules?state=paused").contains("there"));
    });
}
