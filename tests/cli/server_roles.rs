//! Tokens and roles over the API: the matrix of all routes and roles, and what the record says about a change.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use campanile_tests::{PATIENCE, Place, on_both_empty};
use serde_json::{Value, json};

use crate::api::{Answer, Api};
use crate::site::{eventually, list, text};

/// In order: each may do what those before it may.
const ROLES: [&str; 5] = ["viewer", "operator", "editor", "approver", "admin"];

on_both_empty!(
    each_route_refuses_the_roles_below_its_own,
    the_record_names_the_token_of_a_change,
    a_trigger_with_a_context_needs_an_editor,
    tokens_are_created_and_revoked_over_http,
    a_viewer_reads_the_metrics,
    a_stream_ends_when_its_token_is_revoked,
    a_new_token_of_a_name_gets_no_answers_to_the_former_one,
);

/// Create a token for each role. Return their secrets.
fn tokens(api: &Api) -> Vec<String> {
    let create = |role: &str| {
        let token = api.post("/api/v1/tokens", json!({"name": role, "role": role}));
        text(&token["secret"])
    };
    ROLES.into_iter().map(create).collect()
}

/// A route of the OpenAPI document.
struct Route {
    method: String,
    path: String,
    /// The place of its role among [`ROLES`].
    role: usize,
    is_stream: bool,
}

/// Return all routes that need a role.
fn routes(document: &Value) -> Vec<Route> {
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let Some(role) = operation["x-role"].as_str() else {
                let public = ["/healthz", "/readyz"];
                assert!(public.contains(&path.as_str()), "{path} needs no role");
                continue;
            };
            let role = ROLES.iter().position(|one| *one == role);
            routes.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                role: role.expect("a known role"),
                is_stream: path.ends_with("/stream"),
            });
        }
    }
    routes
}

/// Send a request that means nothing on record, and return its status and its body. Only the head of a stream is read.
fn send(api: &Api, route: &Route) -> (u16, String) {
    let path = (route.path.split('/'))
        .map(|part| if part.starts_with('{') { "none" } else { part })
        .collect::<Vec<_>>()
        .join("/");
    if route.is_stream {
        let mut stream = TcpStream::connect(api.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let request = format!("{}\r\n", api.head("GET", &path));
        stream.write_all(request.as_bytes()).expect("a request");
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("a status");
        let status = String::from_utf8_lossy(&head[9..]).parse();
        return (status.expect("a number"), String::new());
    }
    let body = json!({});
    let body = (route.method != "GET").then_some(&body);
    let Answer { status, body, .. } = api.send(&route.method, &path, &[("If-Match", "*")], body);
    (status, body)
}

async fn each_route_refuses_the_roles_below_its_own(place: Place) {
    let mut api = Api::start(place, "");
    api.add("one", "ok");
    let tokens = tokens(&api);
    let routes = routes(&api.get("/openapi.json"));
    assert!(routes.len() > 55, "only {} routes", routes.len());
    let local = api.token.clone();
    let shown = |api: &mut Api| {
        api.token.clone_from(&local);
        let shown = ["events?limit=500", "schedules", "launches", "packages"]
            .map(|path| list(api.get(&format!("/api/v1/{path}"))));
        // The refusals themselves are on record.
        shown.map(|rows| {
            let rows = rows.into_iter();
            let changed = rows.filter(|row| row["kind"] != "request_refused");
            changed.collect::<Vec<_>>()
        })
    };
    let before = shown(&mut api);
    for route in &routes {
        for (place, token) in tokens.iter().enumerate() {
            api.token.clone_from(token);
            let (status, body) = send(&api, route);
            let case = format!(
                "{} {} {}: {status} {body}",
                ROLES[place], route.method, route.path
            );
            // The list of events has the refusals, with their words.
            let is_of_role = status == 403 && (body.contains("needs the role") || route.is_stream);
            assert_ne!(status, 401, "{case}");
            assert!(status < 500, "{case}");
            assert_eq!(is_of_role, place < route.role, "{case}");
            if is_of_role {
                assert_eq!(status, 403, "{case}");
            }
        }
    }
    assert_eq!(shown(&mut api), before);
}

async fn the_record_names_the_token_of_a_change(place: Place) {
    let mut api = Api::start(place, "");
    api.add("one", "ok");
    let tokens = tokens(&api);
    api.token.clone_from(&tokens[1]);
    api.post("/api/v1/schedules/one/pause", json!({"note": "holiday"}));
    let events = list(api.site.json(["event", "list"])).into_iter();
    let paused = { events }.find(|event| event["kind"] == "schedule_paused");
    let paused = paused.expect("an event");
    assert_eq!(
        [&paused["principal"], &paused["channel"], &paused["address"]],
        [&json!("operator"), &json!("api"), &json!("127.0.0.1")]
    );
    let shown = api.get("/api/v1/schedules/one");
    assert_eq!(shown["paused_by"], "operator", "{shown}");
    api.post("/api/v1/schedules/one/resume", json!({}));
    let launched = api.post("/api/v1/schedules/one/trigger", json!({}));
    let events = list(api.site.json(["event", "list"])).into_iter();
    let triggered = { events }.find(|event| event["kind"] == "launch_triggered");
    let triggered = triggered.expect("an event");
    assert_eq!(triggered["principal"], "operator");
    assert!(text(&triggered["detail"]).contains(&text(&launched["launch"])));
}

async fn a_trigger_with_a_context_needs_an_editor(place: Place) {
    let mut api = Api::start(place, "");
    api.add("one", "ok");
    let tokens = tokens(&api);
    let trigger = "/api/v1/schedules/one/trigger";
    let own = [
        json!({"context": {"day": 7}}),
        json!({"args": ["x"]}),
        json!({"overlap": "allow"}),
    ];
    api.token.clone_from(&tokens[1]);
    for body in &own {
        let answer = api.send("POST", trigger, &[], Some(body));
        answer.assert_problem(403, "needs the role editor");
    }
    assert_eq!(api.get("/api/v1/launches"), json!([]));
    let launched = api.post(trigger, json!({}));
    assert_eq!(launched["decision"], "launched");
    api.end_of(&text(&launched["launch"]));
    api.token.clone_from(&tokens[2]);
    assert_eq!(api.post(trigger, own[0].clone())["decision"], "launched");
}

async fn tokens_are_created_and_revoked_over_http(place: Place) {
    let mut api = Api::start(place, "");
    let body = json!({"name": "ci", "role": "operator", "expires": "90d"});
    let keyed = api.send(
        "POST",
        "/api/v1/tokens",
        &[("Idempotency-Key", "k")],
        Some(&body),
    );
    keyed.assert_problem(400, "cannot have an `Idempotency-Key`");
    let created = api.post("/api/v1/tokens", body.clone());
    assert_eq!(created["state"], "active");
    let secret = text(&created["secret"]);
    api.send("POST", "/api/v1/tokens", &[], Some(&body))
        .assert_problem(409, "exists already");
    for (wrong, part) in [
        (
            json!({"name": "a b", "role": "viewer"}),
            "cannot name a token",
        ),
        (json!({"name": "x", "role": "root"}), "root"),
        (
            json!({"name": "x", "role": "viewer", "expires": "1s"}),
            "1s",
        ),
    ] {
        let answer = api.send("POST", "/api/v1/tokens", &[], Some(&wrong));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains(part), "{answer:?}");
    }
    let local = std::mem::replace(&mut api.token, secret);
    api.get("/api/v1/schedules");
    api.token = local;
    let listed = api.get("/api/v1/tokens");
    assert_eq!(listed[0]["name"], "ci");
    assert!(!listed.to_string().contains("cmp_"), "{listed}");
    api.post("/api/v1/tokens/ci/revoke", json!({}));
    api.send("POST", "/api/v1/tokens/ci/revoke", &[], Some(&json!({})))
        .assert_problem(404, "no token named");
    api.token = text(&created["secret"]);
    eventually(|| match api.send("GET", "/api/v1/schedules", &[], None) {
        answer if answer.status == 401 => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

async fn a_viewer_reads_the_metrics(place: Place) {
    let mut api = Api::start(place, "");
    api.add("one", "ok");
    let tokens = tokens(&api);
    let launched = api.post("/api/v1/schedules/one/trigger", json!({}));
    api.end_of(&text(&launched["launch"]));
    api.token.clone_from(&tokens[0]);
    // A run may be counted after its end is on record, and a busy host may be late with its heartbeat.
    eventually(|| {
        let answer = api.send("GET", "/metrics?schedules=10", &[], None);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("text/plain; version=0.0.4; charset=utf-8")
        );
        let parts = [
            "campanile_live_hosts 1",
            "campanile_runs_total{status=\"succeeded\",failure=\"\"} 1",
            "{schedule=\"one\"}",
        ];
        match parts.iter().find(|part| !answer.body.contains(**part)) {
            None => Ok(()),
            Some(part) => Err(format!("no `{part}`: {}", answer.body)),
        }
    });
    api.send("GET", "/metrics?schedules=10001", &[], None)
        .assert_problem(400, "from 0 to 10000");
}

async fn a_stream_ends_when_its_token_is_revoked(place: Place) {
    let mut api = Api::start(place, "");
    let tokens = tokens(&api);
    let local = std::mem::replace(&mut api.token, tokens[0].clone());
    let mut events = api.stream("/api/v1/events/stream", "");
    api.token = local;
    api.post("/api/v1/tokens/viewer/revoke", json!({}));
    let mut rest = String::new();
    events
        .read_to_string(&mut rest)
        .expect("the end of the stream");
    assert!(rest.contains("token_revoked"), "{rest}");
}

async fn a_new_token_of_a_name_gets_no_answers_to_the_former_one(place: Place) {
    let mut api = Api::start(place, "");
    api.add("one", "ok");
    let local = api.token.clone();
    let create = json!({"name": "ci", "role": "operator"});
    let trigger = |api: &Api| {
        let key = [("Idempotency-Key", "nightly")];
        api.send(
            "POST",
            "/api/v1/schedules/one/trigger",
            &key,
            Some(&json!({})),
        )
    };
    api.token = text(&api.post("/api/v1/tokens", create.clone())["secret"]);
    let first = trigger(&api).json();
    api.end_of(&text(&first["launch"]));
    assert_eq!(trigger(&api).header("idempotency-replayed"), Some("true"));
    api.token.clone_from(&local);
    api.post("/api/v1/tokens/ci/revoke", json!({}));
    api.token = text(&api.post("/api/v1/tokens", create)["secret"]);
    let second = trigger(&api);
    assert_eq!(second.header("idempotency-replayed"), None);
    assert_ne!(second.json()["launch"], first["launch"]);
}
