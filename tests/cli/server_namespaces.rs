//! Namespaces: a token of one sees nothing of another one, and everything of its own.

use std::fs;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::api::{Answer, Api, next_event};
use crate::browser::{Browser, assert_is_page};
use crate::site::{Site, eventually, list, package, run_until_exit, text};

on_both_empty!(
    each_route_refuses_what_another_namespace_has,
    a_token_of_a_namespace_does_all_that_its_role_may_there,
    the_names_of_a_namespace_stay_in_it,
    a_namespace_appears_while_a_host_serves,
    a_failure_of_the_database_does_not_look_like_an_absent_id,
    first_digits_mean_only_launches_of_the_namespace,
);

const TEAMS: [&str; 2] = ["team", "other"];

/// Start a host that has the package `guests` in both namespaces and in none.
fn start(place: Place, configuration: &str) -> Api {
    let site = Site::new(place);
    site.copy_package("guests");
    for team in TEAMS {
        fs::create_dir(site.plugin(&format!("@{team}"))).expect("a folder");
        let file = site.plugin(&format!("@{team}/guests.wasm"));
        fs::copy(package("guests"), file).expect("a copy");
    }
    site.configure(configuration);
    Api::of(site)
}

/// Return the path of something that has a name with a slash.
fn named(list: &str, name: &str) -> String {
    format!("/api/v1/{list}/{}", name.replace('/', "%2F"))
}

/// Add a schedule that launches only when it is triggered, and let it launch once. Return the launch.
fn add(api: &Api, name: &str, package: &str) -> String {
    let body = json!({"name": name, "package": package, "task": "ok", "kind": "at", "expression": "2099-01-01T00:00:00Z"});
    api.post("/api/v1/schedules", body);
    let launched = api.post(&format!("{}/trigger", named("schedules", name)), json!({}));
    let launch = text(&launched["launch"]);
    api.end_of(&launch);
    launch
}

/// Return the secret of a token of the namespace `team`.
fn token(api: &Api, role: &str) -> String {
    let name = format!("team-{role}");
    let body = json!({"name": name, "role": role, "namespace": "team"});
    let created = api.post("/api/v1/tokens", body);
    assert_eq!(created["namespace"], "team", "{created}");
    text(&created["secret"])
}

/// Return the path with what `other` has in the place of each parameter, and the status of its refusal.
fn path_of(path: &str, launch: &str) -> (String, u16) {
    let kind = path.split('/').nth(3).unwrap_or_default();
    let name = match kind {
        "packages" => "@other%2Fguests",
        _ => "@other%2Fone",
    };
    let id = match kind {
        "launches" | "runs" => launch,
        // There is none of such an id in any namespace, which is answered in the same way.
        _ => "01900000-0000-7000-8000-000000000000",
    };
    let status = if path.contains("{id}") { 404 } else { 403 };
    (path.replace("{name}", name).replace("{id}", id), status)
}

async fn each_route_refuses_what_another_namespace_has(place: Place) {
    let mut api = start(place, "[server]\nupload = true\n");
    let launches = ["@team/one", "@other/one", "one"].map(|name| {
        let package = name.replace("one", "guests");
        add(&api, name, &package)
    });
    let document = api.get("/openapi.json");
    let seen_by_all = |api: &Api| {
        ["schedules", "launches", "packages", "backfills"]
            .map(|path| api.get(&format!("/api/v1/{path}")))
    };
    let before = seen_by_all(&api);
    let secret = token(&api, "approver");
    let local = std::mem::replace(&mut api.token, secret);
    let (mut of_installation, mut of_namespaces) = (0, 0);
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let (method, scope) = (method.to_uppercase(), operation["x-scope"].as_str());
            let case = format!("{method} {path}");
            if operation["x-role"] == "admin" || path == "/mcp" || path.ends_with("/stream") {
                continue;
            }
            let Some(scope) = scope else {
                assert!(["/healthz", "/readyz"].contains(&&**path), "{case}");
                continue;
            };
            let (url, status) = path_of(path, &launches[1]);
            let body = json!({"name": "@other/two", "schedule": "@other/one", "package": "@other/guests",
                "kind": "at", "expression": "2099-01-01T00:00:00Z",
                "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"});
            let is_collection = !path.contains('{');
            let body = match operation.get("requestBody") {
                None => None,
                // The bodies of other routes have no such keys.
                Some(_) if is_collection && scope == "namespace" => Some(fields(&body, path)),
                Some(_) => Some(json!({})),
            };
            let answer = api.send(&method, &url, &[("If-Match", "*")], body.as_ref());
            if scope == "installation" {
                of_installation += 1;
                answer.assert_problem(403, "the whole installation");
                continue;
            }
            of_namespaces += 1;
            if method == "GET" && is_collection {
                sees_only_its_own(&case, &answer);
                continue;
            }
            assert_eq!(answer.status, status, "{case}: {answer:?}");
            let told = if status == 404 {
                "in the namespace team"
            } else {
                "is not in the namespace team"
            };
            answer.assert_problem(status, told);
        }
    }
    assert!(of_installation > 20, "only {of_installation} routes");
    assert!(of_namespaces > 35, "only {of_namespaces} routes");
    for filter in [
        "launches?schedule=one",
        "launches?package=@other/guests",
        "runs?schedule=@other/one",
    ] {
        let answer = api.send("GET", &format!("/api/v1/{filter}"), &[], None);
        answer.assert_problem(403, "is not in the namespace team");
    }
    let accept = ("Accept", "application/json, text/event-stream");
    let message = json!({"jsonrpc": "2.0", "id": 6, "method": "tools/list"});
    let listed = api.send("POST", "/mcp", &[accept], Some(&message)).json();
    let tools = listed["result"]["tools"].as_array().expect("tools").clone();
    assert!(tools.len() > 10, "{listed}");
    for tool in tools {
        let schema = &tool["inputSchema"];
        let tool = tool["name"].as_str().expect("a name");
        let mut arguments = json!({});
        for key in schema["required"].as_array().into_iter().flatten() {
            let key = key.as_str().expect("a key");
            arguments[key] = match key {
                "schedule" => json!("@other/one"),
                "id" => json!(launches[1]),
                _ => json!("text"),
            };
        }
        match tool {
            // These two have only what the namespace has.
            "list_schedules" | "list_events" => continue,
            "list_launches" => arguments["schedule"] = json!("@other/one"),
            _ => {}
        }
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}});
        let answer = api.send("POST", "/mcp", &[accept], Some(&message));
        let result = &answer.json()["result"];
        assert_eq!(result["isError"], true, "{tool}: {answer:?}");
        let told = ["namespace team", "the whole installation"];
        assert!(
            told.iter().any(|told| answer.body.contains(told)),
            "{tool}: {answer:?}"
        );
    }
    // The error about a short id would name the launches of others.
    let short = &launches[1][..9];
    let answer = api.send("GET", &format!("/api/v1/launches/{short}"), &[], None);
    assert!(!answer.body.contains("@other"), "{answer:?}");
    api.token = local;
    assert_eq!(seen_by_all(&api), before);
}

/// Return those keys of `body` that a route takes.
fn fields(body: &Value, path: &str) -> Value {
    let keys: &[&str] = match path {
        "/api/v1/schedules" => &["name", "package", "kind", "expression"],
        _ => &["schedule", "from", "to"],
    };
    keys.iter().map(|key| (*key, body[key].clone())).collect()
}

/// A list has only what the namespace has, or says that it needs a name of the namespace.
#[track_caller]
fn sees_only_its_own(case: &str, answer: &Answer) {
    if answer.status == 403 {
        return answer.assert_problem(403, "=@team/NAME");
    }
    assert_eq!(answer.status, 200, "{case}: {answer:?}");
    if case.ends_with("/openapi.json") {
        return;
    }
    assert!(!answer.body.contains("@other"), "{case}: {answer:?}");
    for row in list(answer.json()) {
        let names = ["schedule", "package", "subject", "name"].map(|key| &row[key]);
        let name = names.into_iter().find_map(Value::as_str);
        assert!(
            name.is_some_and(|name| name.starts_with("@team/")),
            "{case}: {row}"
        );
    }
}

async fn a_token_of_a_namespace_does_all_that_its_role_may_there(place: Place) {
    let mut api = start(place, "");
    add(&api, "one", "guests");
    let secret = token(&api, "approver");
    let refused = json!({"name": "x", "role": "admin", "namespace": "team"});
    api.send("POST", "/api/v1/tokens", &[], Some(&refused))
        .assert_problem(400, "at most approver");
    api.token = secret;

    let launch = add(&api, "@team/two", "@team/guests");
    let shown = api.get(&named("schedules", "@team/two"));
    assert_eq!(shown["package"], "@team/guests", "{shown}");
    for path in [
        "schedules".to_owned(),
        "launches".to_owned(),
        "runs?schedule=@team/two".to_owned(),
        "packages".to_owned(),
        "stats/schedules".to_owned(),
        "stats/packages".to_owned(),
        "stats/days".to_owned(),
        "events".to_owned(),
    ] {
        let rows = list(api.get(&format!("/api/v1/{path}")));
        assert!(!rows.is_empty(), "{path}");
        let shown = Value::from(rows).to_string();
        assert!(shown.contains("@team/"), "{path}: {shown}");
    }
    for path in ["", "/logs"] {
        api.get(&format!("/api/v1/runs/{launch}{path}"));
    }
    let retried = api.post(&format!("/api/v1/launches/{launch}/retry"), json!({}));
    api.end_of(&text(&retried["launch"]));
    let paused = named("schedules", "@team/two") + "/pause";
    api.post(&paused, json!({"note": "holiday"}));
    let body = json!({"schedule": "@team/two", "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"});
    let answer = api.send("POST", "/api/v1/backfills/preview", &[], Some(&body));
    // The rule has no slot in the span, which is another matter than the namespace.
    assert_ne!(answer.status, 403, "{answer:?}");

    // The command line over the API shows the same.
    let mut listed = api.site.command(["schedule", "list", "--json"]);
    listed.env_remove("CAMPANILE_DATABASE_URL");
    listed.env("CAMPANILE_SERVER", format!("http://{}", api.address));
    listed.env("CAMPANILE_TOKEN", &api.token);
    let listed = run_until_exit(&mut listed);
    assert_eq!(listed.code, 0, "{listed:?}");
    let names = list(listed.json())
        .into_iter()
        .map(|row| text(&row["name"]));
    assert_eq!(Vec::from_iter(names), ["@team/two"]);

    let browser = Browser::of(&api, &api.token);
    for path in ["/", "/schedules", "/schedules/%40team%2Ftwo"] {
        let answer = browser.get(path);
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        assert_is_page(&answer);
        assert!(
            answer.body.contains("show the whole installation"),
            "{answer:?}"
        );
    }
    let answer = browser.post("/schedules/%40team%2Ftwo", &[("do", "resume")]);
    assert_eq!(answer.status, 403, "{answer:?}");
}

async fn the_names_of_a_namespace_stay_in_it(place: Place) {
    let api = start(place, "");
    let add = |name: &str, package: &str| {
        let body = json!({"name": name, "package": package, "task": "ok", "kind": "at", "expression": "2099-01-01T00:00:00Z"});
        api.send("POST", "/api/v1/schedules", &[], Some(&body))
    };
    for (name, package) in [
        ("one", "@team/guests"),
        ("@team/one", "guests"),
        ("@other/one", "@team/guests"),
    ] {
        add(name, package).assert_problem(400, "are not in the same namespace");
    }
    for name in ["@Team/one", "@team/", "@/one", "@a/b/c", "team/one"] {
        add(name, "@team/guests").assert_problem(400, "cannot name a schedule");
    }
    assert_eq!(add("@team/one", "@team/guests").status, 201);
    let rename = named("schedules", "@team/one") + "/rename";
    api.send("POST", &rename, &[], Some(&json!({"name": "one"})))
        .assert_problem(400, "are not in the same namespace");
    api.post(&rename, json!({"name": "@team/two"}));

    // A sidecar names its schedules without the namespace.
    let sidecar = "[[schedules]]\nname = 'nightly'\ntask = 'ok'\ncron = '0 3 * * *'\n";
    api.site.sidecar("@team/guests", sidecar);
    let nightly = named("schedules", "@team/nightly");
    eventually(|| match api.send("GET", &nightly, &[], None) {
        answer if answer.status == 200 => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    let shown = api.get(&nightly);
    assert_eq!(shown["package"], "@team/guests", "{shown}");
    let wrong = "[[schedules]]\nname = '@other/nightly'\ntask = 'ok'\ncron = '0 3 * * *'\n";
    api.site.sidecar("@team/guests", wrong);
    eventually(|| {
        let shown = api.get(&named("packages", "@team/guests"));
        match shown["rejection"].as_str() {
            Some(why) if why.contains("are not in the same namespace") => Ok(()),
            _ => Err(shown.to_string()),
        }
    });
}

async fn a_namespace_appears_while_a_host_serves(place: Place) {
    let mut api = start(place, "");
    let listed = |api: &Api, name: &str| {
        let rows = list(api.get("/api/v1/packages"));
        rows.into_iter().find(|row| row["name"] == name)
    };
    let new = api.site.plugin("@new");
    fs::create_dir(&new).expect("a folder");
    fs::copy(package("guests"), new.join("guests.wasm")).expect("a copy");
    eventually(|| match listed(&api, "@new/guests") {
        Some(row) if row["state"] == "active" => Ok(()),
        row => Err(format!("{row:?}")),
    });
    // Events of the namespace reach its listener, and others do not.
    let body = json!({"name": "new", "role": "viewer", "namespace": "new"});
    let secret = text(&api.post("/api/v1/tokens", body)["secret"]);
    let local = std::mem::replace(&mut api.token, secret);
    let mut stream = api.stream("/api/v1/events/stream", "");
    api.token = local;
    add(&api, "@team/one", "@team/guests");
    add(&api, "@new/one", "@new/guests");
    let (_, _, event) = next_event(&mut stream, |kind, _| kind == "event");
    assert_eq!(event["subject"], "@new/one", "{event}");
    fs::remove_dir_all(&new).expect("removed");
    eventually(|| match listed(&api, "@new/guests") {
        Some(row) if row["state"] == "missing" => Ok(()),
        row => Err(format!("{row:?}")),
    });
}

async fn a_failure_of_the_database_does_not_look_like_an_absent_id(place: Place) {
    let mut api = start(place, "");
    let launch = add(&api, "@team/one", "@team/guests");
    api.token = token(&api, "viewer");
    let id = "01900000-0000-7000-8000-000000000000";
    for (table, path, status) in [
        ("launch", format!("/api/v1/launches/{launch}"), 200),
        // The beginning of an id is looked up in another way.
        ("launch", format!("/api/v1/launches/{}", &launch[..18]), 200),
        ("backfill", format!("/api/v1/backfills/{id}"), 404),
        ("outbox_message", format!("/api/v1/outbox/{id}"), 404),
    ] {
        let ask = || api.send("GET", &path, &[], None).status;
        assert_eq!(ask(), status, "{path}");
        // Without its table, a lookup fails as it does without the database.
        let rename = |from: &str, to: &str| format!("ALTER TABLE {from} RENAME TO {to}");
        api.site.execute(&rename(table, "elsewhere")).await;
        let failed = ask();
        api.site.execute(&rename("elsewhere", table)).await;
        assert!(failed >= 500, "{path}: {failed}");
        assert_eq!(ask(), status, "{path}");
    }
}

/// Leading digits of an id, unchanged for weeks, so all of this test's launches begin with them.
fn first_digits(launch: &str) -> &str {
    &launch[..4]
}

async fn first_digits_mean_only_launches_of_the_namespace(place: Place) {
    let mut api = start(place, "");
    let own = add(&api, "@team/one", "@team/guests");
    let others = ["@other/one", "@other/two", "one"].map(|name| {
        let package = if name == "one" {
            "guests"
        } else {
            "@other/guests"
        };
        add(&api, name, package)
    });
    let digits = first_digits(&own).to_owned();
    assert!(others.iter().all(|id| first_digits(id) == digits));
    api.send(
        "GET",
        &format!("/api/v1/launches?after={digits}"),
        &[],
        None,
    )
    .assert_problem(409, "several launches");
    api.token = token(&api, "approver");

    let names_no_other = |case: &str, answer: &Answer| {
        let body = &answer.body;
        let is_named = |id: &String| body.contains(id.as_str());
        assert!(!others.iter().any(is_named), "{case}: {answer:?}");
        assert!(!body.contains("@other"), "{case}: {answer:?}");
    };
    let call = |tool: &str, arguments: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}});
        let accept = ("Accept", "application/json, text/event-stream");
        api.send("POST", "/mcp", &[accept], Some(&message))
    };
    let requests = [
        ("GET", "launches?after=ID".to_owned()),
        ("GET", "runs?schedule=%40team%2Fone&after=ID".to_owned()),
        ("GET", "launches/ID".to_owned()),
        ("GET", "runs/ID".to_owned()),
        ("GET", "runs/ID/logs".to_owned()),
        ("POST", "launches/ID/retry".to_owned()),
        ("POST", "runs/ID/cancel".to_owned()),
    ];
    let send = |method: &str, path: &str, id: &str| {
        let path = format!("/api/v1/{}", path.replace("ID", id));
        let body = (method == "POST").then(|| json!({}));
        api.send(method, &path, &[], body.as_ref())
    };
    // Just one launch of the namespace begins with the digits, so they mean that one, whatever else there is.
    for (method, path) in &requests {
        if path.contains("retry") {
            continue;
        }
        let answer = send(method, path, &digits);
        let ended = path.contains("cancel");
        assert_eq!(
            answer.status,
            if ended { 409 } else { 200 },
            "{path}: {answer:?}"
        );
        names_no_other(path, &answer);
    }
    for (tool, arguments) in [
        ("list_launches", json!({"after": digits})),
        ("show_launch", json!({"id": digits})),
        ("run_logs", json!({"id": digits})),
    ] {
        let answer = call(tool, arguments);
        assert_eq!(
            answer.json()["result"]["isError"],
            false,
            "{tool}: {answer:?}"
        );
        names_no_other(tool, &answer);
    }
    // A whole id from another namespace is treated as nonexistent, and as a position reveals nothing about its slot.
    let absent = format!("{}0000-7000-8000-000000000000", &own[..9]);
    for (method, path) in &requests[2..] {
        let told = [others[0].as_str(), absent.as_str()].map(|id| {
            let answer = send(method, path, id);
            (answer.status, answer.body.replace(id, "ID"))
        });
        assert_eq!(told[0], told[1], "{method} {path}");
        assert_eq!(told[0].0, 404, "{method} {path}");
    }
    for (_, path) in &requests[..2] {
        let [other, absent] = [others[0].as_str(), absent.as_str()].map(|id| send("GET", path, id));
        assert_eq!((other.status, absent.status), (200, 200), "{path}");
        names_no_other(path, &other);
    }
    // Two of its own are ambiguous, and the answer lists just these two.
    let second = add(&api, "@team/two", "@team/guests");
    for (method, path) in &requests {
        let answer = send(method, path, &digits);
        answer.assert_problem(409, "several launches");
        assert!(
            answer.body.contains(&own) && answer.body.contains(&second),
            "{answer:?}"
        );
        names_no_other(path, &answer);
    }
    let answer = call("list_launches", json!({"after": digits}));
    assert!(answer.body.contains(&second), "{answer:?}");
    names_no_other("list_launches", &answer);
}
