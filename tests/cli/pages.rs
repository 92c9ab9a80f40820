//! The pages as a browser without JavaScript sees them: each page, its policy, sessions, forms, and hostile texts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use campanile_tests::{PATIENCE, Place, on_both_empty};
use serde_json::{Value, json};

use crate::api::{Api, next_event, parse, raw};
use crate::browser::{Browser, HOSTILE, assert_is_page, encoded, event, send, token};
use crate::site::{Site, eventually, list, stop, text};

on_both_empty!(
    a_new_installation_leads_to_the_first_launch,
    each_page_answers_with_its_policy,
    a_session_begins_with_a_token_and_ends_with_it,
    a_form_needs_the_role_of_its_route,
    a_form_of_another_site_is_refused,
    forms_work_without_scripts,
    an_action_on_more_than_one_thing_is_confirmed,
    hostile_texts_are_escaped,
    what_is_unknown_or_wrong_has_its_status,
    events_are_streamed_to_a_session,
    a_socket_needs_no_login,
);

async fn a_new_installation_leads_to_the_first_launch(place: Place) {
    let api = Api::start(place, "");
    let browser = Browser::of(&api, &api.token);
    let body = eventually(|| match browser.page("/") {
        body if body.contains("/packages/guests") => Ok(body),
        body => Err(body),
    });
    for part in [
        "Nothing has run yet",
        "Add a package",
        "campanile schedule add",
        "New schedule",
    ] {
        assert!(body.contains(part), "no `{part}`: {body}");
    }
    assert!(
        browser
            .page("/schedules")
            .contains("There is no schedule yet.")
    );
    assert!(
        browser
            .page("/launches")
            .contains("Nothing has been launched yet.")
    );
    api.add("one", "ok");
    let launched = api.post("/api/v1/schedules/one/trigger", json!({}));
    api.end_of(&text(&launched["launch"]));
    assert!(!browser.page("/").contains("Nothing has run yet"));
}

async fn each_page_answers_with_its_policy(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let zoned = json!({"name": "zoned", "package": "guests", "task": "ok", "kind": "cron", "expression": "30 2 * * *", "timezone": "Europe/Paris"});
    api.post("/api/v1/schedules", zoned);
    let launched = api.post("/api/v1/schedules/one/trigger", json!({}));
    let ended = api.end_of(&text(&launched["launch"]));
    let (launch, run) = (text(&ended["id"]), text(&ended["run_id"]));
    let browser = Browser::of(&api, &token(&api, "viewer"));
    for (path, part) in [
        ("/", "Nothing runs now."),
        ("/schedules", "1 succeeded"),
        ("/schedules?q=ZON&state=enabled", "/schedules/zoned"),
        ("/schedules/zoned", "Europe/Paris"),
        ("/schedules/zoned?at=2026-03-29+02:30", "slot"),
        ("/launches", &launch),
        (
            "/launches?status=succeeded&since=1h&schedule=one&until=",
            &launch,
        ),
        ("/launches?q=one+status:succeeded+since:1h", &launch),
        (&format!("/launches/{launch}"), "What happened"),
        (
            &format!("/launches/{launch}?level=warn"),
            "Where the time went",
        ),
        (&format!("/launches/{}", &launch[..13]), "What happened"),
        (&format!("/runs/{run}"), "Calls of the tasks"),
        ("/plan", "campanile plan --to"),
        ("/plan?to=now%2B24h", "1 launch"),
        ("/plan?schedule=zoned", "zoned"),
        ("/packages", "guests"),
        ("/packages/guests", "Versions"),
        ("/hosts", "serving"),
        ("/hosts?all=true", "serving"),
        ("/events", "schedule added"),
        ("/alerts", "No alert."),
        ("/search?q=ZON", "/schedules/zoned"),
        ("/search?q=zoend", "Did you mean"),
        ("/search", "Search for anything."),
    ] {
        let body = browser.page(path);
        assert!(body.contains(part), "{path}: no `{part}`: {body}");
        assert!(body.contains("campanile "), "{path}: no command: {body}");
        assert!(body.contains("aria-current=\"page\""), "{path}: {body}");
    }
    let body = browser.page("/schedules/zoned");
    assert!(
        body.contains("02:30:00 +") && body.contains(" UTC\">"),
        "{body}"
    );
    assert!(!browser.page("/schedules?q=zon").contains("/schedules/one"));
    for (path, kind) in [
        ("/assets/app.css", "text/css; charset=utf-8"),
        ("/assets/app.js", "text/javascript; charset=utf-8"),
        ("/assets/icon.svg", "image/svg+xml"),
    ] {
        let answer = send(&api, "GET", path, "", "");
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some(kind))
        );
        assert!(answer.body.len() < 30_000, "{path}");
    }
}

async fn a_session_begins_with_a_token_and_ends_with_it(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    for path in [
        "/",
        "/schedules?state=paused",
        "/schedules/one",
        "/launches",
        "/plan",
        "/packages",
        "/hosts",
        "/events",
        "/alerts",
    ] {
        let answer = send(&api, "GET", path, "", "");
        assert_eq!(answer.status, 303, "{path}: {answer:?}");
        let to = answer.header("location").expect("a location");
        assert_eq!(
            to,
            format!("/login?{}", encoded(&[("next", path)])),
            "{path}"
        );
    }
    let login = send(
        &api,
        "GET",
        "/login?next=%2Fschedules%3Fstate%3Dpaused",
        "",
        "",
    );
    assert_is_page(&login);
    assert!(
        login.body.contains(r#"value="/schedules?state=paused""#),
        "{login:?}"
    );
    for wrong in ["", "cmp_wrong", &format!("{}x", api.token), HOSTILE] {
        let answer = send(&api, "POST", "/login", "", &encoded(&[("token", wrong)]));
        assert_eq!(answer.status, 401, "{answer:?}");
        assert_is_page(&answer);
        assert_eq!(answer.header("set-cookie"), None);
        assert!(answer.body.contains("the token is wrong"), "{answer:?}");
    }
    let fields = encoded(&[("token", &api.token), ("next", "//evil.example")]);
    let answer = send(&api, "POST", "/login", "", &fields);
    assert_eq!(answer.header("location"), Some("/"), "{answer:?}");

    let browser = Browser::of(&api, &api.token);
    browser.page("/schedules/one");
    assert_eq!(browser.done("/login", &[("do", "sign_out")]), "/login");
    assert_eq!(browser.get("/schedules/one").status, 303);

    let browser = Browser::of(&api, &token(&api, "operator"));
    browser.page("/");
    api.post("/api/v1/tokens/operator/revoke", json!({}));
    eventually(|| match browser.get("/") {
        answer if answer.status == 303 => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    let forged = "Cookie: campanile_session=00\r\n";
    assert_eq!(send(&api, "GET", "/", forged, "").status, 303);
    assert_eq!(send(&api, "GET", "/updates", forged, "").status, 401);
}

async fn a_form_needs_the_role_of_its_route(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let viewer = Browser::of(&api, &token(&api, "viewer"));
    let shown = viewer.page("/schedules/one");
    assert!(!shown.contains("value=\"pause\""), "{shown}");
    assert!(shown.contains("needs the role operator"), "{shown}");
    let answer = viewer.post("/schedules/one", &[("do", "pause"), ("note", "no")]);
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_is_page(&answer);
    assert!(
        answer.body.contains("needs the role operator"),
        "{answer:?}"
    );
    assert_eq!(api.get("/api/v1/schedules/one")["state"], "enabled");
    let operator = Browser::of(&api, &token(&api, "operator"));
    let answer = operator.post("/packages/guests", &[("do", "reject")]);
    assert_eq!(answer.status, 403, "{answer:?}");
    let to = operator.done("/schedules/one", &[("do", "pause"), ("note", "holiday")]);
    assert_eq!(to, "/schedules/one?done=pause");
    assert!(operator.page(&to).contains("The schedule is paused."));
    let paused = event(&api, "schedule_paused");
    assert_eq!(
        [&paused["principal"], &paused["channel"], &paused["address"]],
        [&json!("operator"), &json!("page"), &json!("127.0.0.1")]
    );
}

async fn a_form_of_another_site_is_refused(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let browser = Browser::of(&api, &api.token);
    let body = encoded(&[("do", "pause")]);
    for headers in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
    ] {
        let headers = format!("{}{headers}", browser.cookie);
        let answer = send(&api, "POST", "/schedules/one", &headers, &body);
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.body.contains("another site"), "{answer:?}");
        let fields = encoded(&[("token", &api.token)]);
        assert_eq!(send(&api, "POST", "/login", &headers, &fields).status, 403);
    }
    assert_eq!(api.get("/api/v1/schedules/one")["state"], "enabled");
    let origin = format!("{}Origin: http://{}\r\n", browser.cookie, api.address);
    assert_eq!(
        send(&api, "POST", "/schedules/one", &origin, &body).status,
        303
    );
    assert_eq!(api.get("/api/v1/schedules/one")["state"], "paused");
}

async fn forms_work_without_scripts(place: Place) {
    let api = Api::start(place, "");
    let daily = json!({"name": "daily", "package": "guests", "task": "ok", "kind": "cron", "expression": "0 3 * * *"});
    api.post("/api/v1/schedules", daily);
    let browser = Browser::of(&api, &token(&api, "operator"));
    let page = "/schedules/daily";

    let wrong = browser.post(
        page,
        &[("do", "pause"), ("note", "kept text"), ("until", "soon")],
    );
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert!(wrong.body.contains("value=\"kept text\""), "{wrong:?}");
    assert!(wrong.body.contains("role=\"alert\""), "{wrong:?}");

    browser.done(
        page,
        &[
            ("do", "pause"),
            ("note", "holiday"),
            ("until", "2099-01-01T00:00"),
        ],
    );
    let shown = api.get("/api/v1/schedules/daily");
    assert_eq!(
        (&shown["pause_note"], &shown["paused_until"]),
        (&json!("holiday"), &json!("2099-01-01T00:00:00Z"))
    );
    let twice = browser.post(page, &[("do", "pause")]);
    assert_eq!(twice.status, 409, "{twice:?}");
    assert!(browser.page("/schedules?state=paused").contains("holiday"));
    browser.done(page, &[("do", "resume"), ("catch_up", "yes")]);
    assert_eq!(api.get("/api/v1/schedules/daily")["state"], "enabled");

    let slot = text(&api.get("/api/v1/schedules/daily/next?n=1")[0]);
    browser.done(page, &[("do", "skip"), ("slot", &slot)]);
    assert_ne!(text(&api.get("/api/v1/schedules/daily/next?n=1")[0]), slot);
    assert!(browser.page(page).contains("value=\"restore\""));
    browser.done(page, &[("do", "restore"), ("slot", &slot)]);
    assert_eq!(text(&api.get("/api/v1/schedules/daily/next?n=1")[0]), slot);

    let fields = [("do", "trigger"), ("key", "sent-twice")];
    let to = browser.done(page, &fields);
    assert_eq!(browser.done(page, &fields), to);
    let launch = to
        .strip_prefix("/launches/")
        .and_then(|rest| rest.split('?').next());
    let launch = launch.expect("a launch").to_owned();
    assert_eq!(list(api.get("/api/v1/launches")).len(), 1);
    api.end_of(&launch);
    let launch_page = format!("/launches/{launch}");
    assert!(browser.page(&to).contains("The launch was requested."));
    assert!(browser.page(&launch_page).contains("value=\"retry\""));
    let again = browser.done(&launch_page, &[("do", "retry")]);
    assert!(
        again.starts_with("/launches/") && !again.contains(&launch),
        "{again}"
    );

    api.add("long", "sleep");
    let long = json!({"context": {"ms": 600_000}});
    let long = text(&api.post("/api/v1/schedules/long/trigger", long)["launch"]);
    let long_page = format!("/launches/{long}");
    eventually(|| match browser.page(&long_page) {
        body if body.contains("value=\"cancel\"") && body.contains("running for") => Ok(()),
        body => Err(body),
    });
    assert!(browser.page("/").contains(&long));
    browser.done(&long_page, &[("do", "cancel"), ("grace", "200ms")]);
    assert_eq!(api.end_of(&long)["status"], "cancelled");
    for (kind, wanted) in [("launch_cancelled", "page"), ("slot_restored", "page")] {
        assert_eq!(event(&api, kind)["channel"], wanted);
    }

    let fields = [
        ("do", "silence"),
        ("rule", "fail*"),
        ("subjects", "daily"),
        ("for", "2h"),
        ("note", "known"),
    ];
    browser.done("/alerts", &fields);
    let silences = list(api.get("/api/v1/silences"));
    assert_eq!((silences.len(), &silences[0]["note"]), (1, &json!("known")));
    let id = text(&silences[0]["id"]);
    assert!(browser.page("/alerts").contains(&id));
    browser.done("/alerts", &[("do", "unsilence"), ("id", &id)]);
    assert_eq!(api.get("/api/v1/silences"), json!([]));
    let wrong = browser.post(
        "/alerts",
        &[
            ("do", "silence"),
            ("rule", "failed"),
            ("subjects", "x"),
            ("for", "long"),
        ],
    );
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert!(wrong.body.contains("value=\"long\""), "{wrong:?}");
}

async fn an_action_on_more_than_one_thing_is_confirmed(place: Place) {
    let api = Api::start(place, "");
    let browser = Browser::of(&api, &token(&api, "operator"));
    let host = text(&api.get("/api/v1/hosts")[0]["name"]);
    let asked = browser.post("/hosts", &[("do", "drain"), ("name", &host)]);
    assert_eq!(asked.status, 200, "{asked:?}");
    assert_is_page(&asked);
    assert!(asked.body.contains("Yes, do it"), "{asked:?}");
    assert!(
        asked.body.contains(&format!("value=\"{host}\"")),
        "{asked:?}"
    );
    assert_eq!(api.get("/api/v1/hosts")[0]["drained_at"], Value::Null);
    browser.done(
        "/hosts",
        &[("do", "drain"), ("name", &host), ("confirm", "yes")],
    );
    assert_ne!(api.get("/api/v1/hosts")[0]["drained_at"], Value::Null);
    assert_eq!(event(&api, "host_drained")["channel"], "page");
    browser.done("/hosts", &[("do", "undrain"), ("name", &host)]);
    assert_eq!(api.get("/api/v1/hosts")[0]["drained_at"], Value::Null);
    let asked = browser.post("/alerts", &[("do", "silence"), ("for", "1h")]);
    assert!(asked.body.contains("Yes, do it"), "{asked:?}");
    assert_eq!(api.get("/api/v1/silences"), json!([]));
}

async fn hostile_texts_are_escaped(place: Place) {
    let api = Api::start(place, "");
    let rule = json!({"name": "hostile", "package": "guests", "task": "log_escapes", "kind": "at", "expression": "2099-01-01T00:00:00Z", "context": {"text": HOSTILE}});
    api.post("/api/v1/schedules", rule);
    let launched = api.post("/api/v1/schedules/hostile/trigger", json!({}));
    let ended = api.end_of(&text(&launched["launch"]));
    api.post("/api/v1/schedules/hostile/pause", json!({"note": HOSTILE}));
    api.post(
        "/api/v1/silences",
        json!({"rule": "failed*", "for": "1h", "note": HOSTILE}),
    );
    // The name of a file, the reason why it is refused, and a package in its alerts.
    let file = "<script>alert(1)<\u{202e}\u{1b}.wasm";
    std::fs::write(api.site.plugin(file), "no package").expect("a file");
    let daily = json!({"name": "hostile-daily", "package": "guests", "task": "ok", "kind": "cron", "expression": "0 3 * * *", "context": {"text": HOSTILE}});
    api.post("/api/v1/schedules", daily);
    let backfill = json!({"schedule": "hostile-daily", "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z", "context": {"text": HOSTILE}});
    api.post("/api/v1/backfills", backfill);
    let cancelled = json!({"context": {"ms": 600_000, "text": HOSTILE}});
    api.add("long", "sleep");
    let long = text(&api.post("/api/v1/schedules/long/trigger", cancelled)["launch"]);
    let browser = Browser::of(&api, &api.token);
    let launch = format!("/launches/{}", text(&ended["id"]));
    let run = format!("/runs/{}", text(&ended["run_id"]));
    let escaped = "&lt;script&gt;alert(1)&lt;/script&gt;";
    for path in [
        "/schedules",
        "/schedules/hostile",
        "/schedules?q=alert",
        "/events",
        "/alerts",
        &launch,
        &run,
    ] {
        let body = browser.page(path);
        assert!(body.contains(escaped), "{path}: {body}");
        assert!(body.contains("\\u{202e}"), "{path}: {body}");
    }
    // What is to be edited stays JSON.
    let edit = browser.page("/schedules/hostile/edit");
    assert!(edit.contains(escaped) && edit.contains("\\u202e"), "{edit}");
    let body = eventually(|| match browser.page("/packages") {
        body if body.contains("&lt;script&gt;alert(1)&lt;\\u{202e}\\u{1b}") => Ok(body),
        body => Err(body),
    });
    assert!(body.contains("rejected"), "{body}");
    let name = "%3Cscript%3Ealert(1)%3C%E2%80%AE%1B";
    for path in [
        format!("/packages/{name}"),
        format!("/packages?q={name}"),
        "/events".to_owned(),
        "/".to_owned(),
        "/backfills".to_owned(),
        "/hosts".to_owned(),
        "/plan".to_owned(),
        "/launches".to_owned(),
        "/schedules/hostile-daily/calendar".to_owned(),
        "/schedules/hostile?span=1y".to_owned(),
        "/schedules?view=grid".to_owned(),
        "/statistics?by=schedule".to_owned(),
        format!("/launches/{long}"),
    ] {
        browser.page(&path);
    }
    for path in [
        format!("/packages/{name}"),
        "/events".to_owned(),
        "/statistics".to_owned(),
    ] {
        assert!(
            browser
                .page(&path)
                .contains("&lt;script&gt;alert(1)&lt;\\u{202e}"),
            "{path}"
        );
    }
    let hostile = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%E2%80%AE%1B";
    for path in [
        format!("/schedules?q={hostile}"),
        format!("/launches?reason={hostile}"),
        format!("/packages?q={hostile}"),
    ] {
        assert!(browser.page(&path).contains(escaped), "{path}");
    }
    for path in [
        format!("/schedules/{hostile}"),
        format!("/launches/{hostile}"),
        format!("/packages/{hostile}"),
        format!("/launches?status={hostile}"),
        format!("/schedules?state={hostile}"),
        format!("/schedules?{hostile}=1"),
        format!("/schedules/hostile?at={hostile}"),
        format!("/schedules/hostile?span={hostile}"),
        format!("/schedules?view={hostile}"),
        format!("/statistics?sort={hostile}"),
        format!("/plan?from={hostile}"),
    ] {
        let answer = browser.get(&path);
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        assert_is_page(&answer);
    }
}

async fn what_is_unknown_or_wrong_has_its_status(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let browser = Browser::of(&api, &api.token);
    for (path, status, part) in [
        ("/schedules/on", 404, "did you mean `one`?"),
        ("/schedules/%00", 400, "zero character"),
        ("/schedules?sate=paused", 400, "did you mean `state`?"),
        (
            "/schedules?state=gone",
            400,
            "must be `enabled` or `paused` or `ended`",
        ),
        ("/schedules?limit=500", 400, "limit"),
        ("/schedules/one?at=noon", 400, "RFC 3339"),
        (
            "/schedules/one?at=2100-01-01T00:00:00Z",
            400,
            "outside the years 1970 to 2099",
        ),
        (
            "/schedules/one?at=1969-12-31+23:59",
            400,
            "outside the years",
        ),
        (
            "/launches?since=10000-01-01T00:00:00Z",
            400,
            "neither a time",
        ),
        (
            "/plan?to=2100-01-01T00:00:00Z",
            400,
            "more than a year ahead",
        ),
        ("/plan?to=99999-01-01T00:00:00Z", 400, "`to`"),
        ("/launches?status=faild", 400, "did you mean `failed`?"),
        ("/launches?since=noon", 400, "neither a time"),
        (
            "/launches?q=state:failed",
            400,
            "the search has no filter `state:failed`",
        ),
        ("/launches/zzz", 400, "no id of a launch or a run"),
        (
            "/launches/01a3185c-5059-8d3c-9a6e-2833605df800",
            404,
            "there is no launch",
        ),
        (
            "/runs/01a3185c-5059-8d3c-9a6e-2833605df800",
            404,
            "there is no launch",
        ),
        ("/plan?to=2020-01-01T00:00:00Z", 400, "is not after"),
        ("/packages/guest", 404, "guests"),
        ("/events?after=x", 400, "is no id"),
        ("/alerts?all=maybe", 400, "true"),
        ("/nothing", 404, "there is no such page"),
    ] {
        let answer = browser.get(path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert_is_page(&answer);
        let body = answer.body.replace("&quot;", "\"");
        assert!(body.contains(part), "{path}: no `{part}`: {body}");
        assert!(body.contains("href=\"/\""), "{path}: {body}");
        // What was typed can be corrected.
        let is_wrong_query = status == 400 && path.contains('?');
        assert_eq!(
            body.contains("Send it again"),
            is_wrong_query,
            "{path}: {body}"
        );
    }
    let answer = browser.post("/schedules/one", &[("do", "explode")]);
    assert_eq!(answer.status, 400, "{answer:?}");
    // An action of another page is no action of this one.
    let answer = browser.post("/schedules/one", &[("do", "drain"), ("confirm", "yes")]);
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(
        browser.post("/schedules/none", &[("do", "pause")]).status,
        404
    );
    let json = format!("{}Content-Type: application/json\r\n", browser.cookie);
    let request = format!(
        "POST /schedules/one HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\nConnection: close\r\n{json}Content-Length: 2\r\n\r\n{{}}",
        api.address
    );
    assert_eq!(raw(api.address, &request).status, 415);
}

async fn events_are_streamed_to_a_session(place: Place) {
    let api = Api::start(place, "");
    api.add("one", "ok");
    let browser = Browser::of(&api, &token(&api, "viewer"));
    let mut stream = TcpStream::connect(api.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let request = format!(
        "GET /updates HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n{}\r\n",
        api.address, browser.cookie
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut reader = BufReader::new(stream);
    let mut lines = reader.by_ref().lines().map_while(Result::ok);
    assert!(lines.next().is_some_and(|line| line.contains(" 200 ")));
    // The first comment says that the server listens to events.
    assert!(lines.any(|line| line == ":"));
    api.post("/api/v1/schedules/one/pause", json!({}));
    next_event(&mut reader, |_, data| {
        data.to_string().contains("schedule_paused")
    });
    // The end of a launch is no event.
    api.add("fails", "fail_permanent");
    let launched = api.post("/api/v1/schedules/fails/trigger", json!({}));
    let (_, _, data) = next_event(&mut reader, |kind, _| kind == "failure");
    assert_eq!(data["launch"], launched["launch"]);
    assert!(
        text(&data["text"]).starts_with("A launch of fails failed: "),
        "{data}"
    );
    assert_eq!(
        (&data["schedule"], &data["is_new"]),
        (&json!("fails"), &json!(true)),
        "{data}"
    );
}

async fn a_socket_needs_no_login(place: Place) {
    let site = Site::new(place);
    let mut host = site.serve_with(&["--listen", "unix:pages.sock"]);
    host.wait_for_line("the API answers at unix:pages.sock");
    let get = |path: &str| {
        let mut stream = UnixStream::connect(site.folder().join("pages.sock")).expect("a socket");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("a request");
        parse(stream)
    };
    let shown = get("/hosts");
    assert_eq!(shown.status, 200, "{shown:?}");
    assert_is_page(&shown);
    assert!(shown.body.contains("value=\"drain\""), "{shown:?}");
    assert!(!shown.body.contains("Sign out"), "{shown:?}");
    assert_eq!(get("/login").header("location"), Some("/"));
    stop(&mut host);
}
