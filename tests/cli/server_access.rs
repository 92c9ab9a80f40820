//! Who the API lets in and how often: identities by a proxy, the record of refused requests, and the limit of requests.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use campanile_store::{Db, probe};
use campanile_tests::{Backend, PATIENCE, Place, on_both_empty, run_empty_case};
use serde_json::{Value, json};

use crate::api::{Answer, Api, raw};
use crate::site::{eventually, list, text};

on_both_empty!(
    a_user_of_a_proxy_has_a_role_and_is_on_record,
    a_proxy_that_is_not_listed_is_nobody,
    refused_requests_are_events_and_few,
    too_many_requests_get_429_and_others_none,
);

/// Send a request without a token, with these headers.
fn send(api: &Api, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", api.address);
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    raw(api.address, &format!("{head}Connection: close\r\n\r\n"))
}

/// Returns the events of refused requests, once one of them has these values for these keys.
#[track_caller]
fn refusals(api: &Api, wanted: &[(&str, &str)]) -> Vec<Value> {
    eventually(|| {
        let events = list(api.site.json(["event", "list", "--limit", "200"])).into_iter();
        let refused = events.filter(|event| event["kind"] == "request_refused");
        let refused: Vec<Value> = refused.collect();
        let is_there =
            |(key, value): &(&str, &str)| refused.iter().any(|event| event[key] == *value);
        match wanted.iter().all(is_there) {
            true => Ok(refused),
            false => Err(format!("not all of {wanted:?} in {refused:#?}")),
        }
    })
}

async fn a_user_of_a_proxy_has_a_role_and_is_on_record(place: Place) {
    let api = Api::start(
        place,
        "[server]\ntrusted_proxies = ['10.9.8.7', '127.0.0.0/8']\nproxy_roles = { 'ada@example.com' = 'operator', bob = 'viewer' }\n",
    );
    api.add("one", "ok");
    let (ada, bob) = (
        ("X-Forwarded-User", "ada@example.com"),
        ("X-Forwarded-User", "bob"),
    );
    assert_eq!(send(&api, "GET", "/api/v1/schedules", &[bob]).status, 200);
    let pause = "/api/v1/schedules/one/pause";
    send(&api, "POST", pause, &[bob]).assert_problem(403, "the user bob has the role viewer");
    assert_eq!(send(&api, "POST", pause, &[ada]).status, 200);
    let events = list(api.site.json(["event", "list"])).into_iter();
    let paused = { events }.find(|event| event["kind"] == "schedule_paused");
    let paused = paused.expect("an event");
    assert_eq!(
        [&paused["principal"], &paused["channel"], &paused["address"]],
        [
            &json!("ada@example.com"),
            &json!("proxy"),
            &json!("127.0.0.1")
        ]
    );
    // A page needs no login.
    let page = send(&api, "GET", "/schedules", &[ada, ("Accept", "text/html")]);
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("ada@example.com"), "{page:?}");

    let token = format!("Bearer {}", api.token);
    for (headers, status, part) in [
        (
            vec![ada, ("Authorization", &*token)],
            401,
            "a token and the header",
        ),
        (vec![ada, ada], 401, "once"),
        (vec![bob, ada], 401, "once"),
        (vec![("x-forwarded-user", "bob"), ada], 401, "once"),
        (
            vec![("X-Forwarded-User", "local token")],
            401,
            "names no user",
        ),
        (vec![("X-Forwarded-User", "")], 401, "names no user"),
        (
            vec![("X-Forwarded-User", "eve")],
            403,
            "the user eve has no role",
        ),
        (
            vec![("X-Forwarded-User", "bob, ada@example.com")],
            401,
            "names no user",
        ),
        (vec![], 401, "no token"),
    ] {
        send(&api, "GET", "/api/v1/schedules", &headers).assert_problem(status, part);
    }
    for other in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Origin", "https://evil.example"),
    ] {
        send(&api, "POST", "/api/v1/schedules/one/resume", &[ada, other])
            .assert_problem(403, "a page of another site");
    }
    // A token of the same name is another principal.
    let created = api.post("/api/v1/tokens", json!({"name": "bob", "role": "operator"}));
    let bearer = format!("Bearer {}", text(&created["secret"]));
    let resume = "/api/v1/schedules/one/resume";
    assert_eq!(
        send(&api, "POST", resume, &[("Authorization", &*bearer)]).status,
        200
    );
    send(&api, "POST", resume, &[bob]).assert_problem(403, "the user bob");
    let refused = refusals(
        &api,
        &[("principal", "bob"), ("principal", "unknown client")],
    );
    let of_bob = refused
        .iter()
        .find(|event| event["principal"] == "bob")
        .expect("an event");
    assert_eq!(
        (&of_bob["channel"], &of_bob["address"]),
        (&json!("proxy"), &json!("127.0.0.1"))
    );
}

async fn a_proxy_that_is_not_listed_is_nobody(place: Place) {
    let api = Api::start(
        place,
        "[server]\ntrusted_proxies = ['10.9.8.7']\nuser_header = 'Remote-User'\nrole_header = 'Remote-Role'\n",
    );
    let (user, role) = (("Remote-User", "ada"), ("Remote-Role", "admin"));
    let token = format!("Bearer {}", api.token);
    for headers in [
        vec![user, role],
        vec![role],
        vec![user, role, ("Authorization", &*token)],
    ] {
        send(&api, "GET", "/api/v1/schedules", &headers)
            .assert_problem(403, "`server.trusted_proxies` does not list");
    }
    let page = send(&api, "GET", "/", &[user, role, ("Accept", "text/html")]);
    assert_eq!(page.status, 403, "{page:?}");
    // Headers of other proxies mean nothing.
    send(
        &api,
        "GET",
        "/api/v1/schedules",
        &[("X-Forwarded-User", "ada")],
    )
    .assert_problem(401, "no token");
    assert_eq!(api.get("/api/v1/schedules"), json!([]));
}

async fn refused_requests_are_events_and_few(place: Place) {
    let mut api = Api::start(place, "");
    let viewer =
        text(&api.post("/api/v1/tokens", json!({"name": "v", "role": "viewer"}))["secret"]);
    let local = std::mem::replace(&mut api.token, viewer);
    let begun = Instant::now();
    for _ in 0..30 {
        api.send("GET", "/api/v1/tokens", &[], None)
            .assert_problem(403, "needs the role admin");
        send(
            &api,
            "GET",
            "/api/v1/schedules/my-secret-path",
            &[("Authorization", "Bearer cmp_wrong")],
        )
        .assert_problem(401, "token");
    }
    let refused = refusals(&api, &[("principal", "v"), ("principal", "unknown client")]);
    // One in a minute, and a busy machine takes more than a minute for these requests.
    let most = begun.elapsed().as_secs() / 60 + 1;
    let of = |principal: &str| {
        let found = refused
            .iter()
            .filter(|event| event["principal"] == principal);
        let found: Vec<&Value> = found.collect();
        assert!(found.len() as u64 <= most, "{refused:#?}");
        *found.first().expect("an event")
    };
    let of_viewer = of("v");
    assert_eq!(of_viewer["subject"], "GET /api/v1/tokens");
    assert!(
        text(&of_viewer["detail"]).contains("needs the role admin"),
        "{of_viewer}"
    );
    let unknown = of("unknown client");
    assert_eq!(unknown["subject"], "GET /api/v1/schedules/{name}");
    assert_eq!(
        (&unknown["channel"], &unknown["address"]),
        (&json!("api"), &json!("127.0.0.1"))
    );
    let all = api.site.ok(["event", "list", "--json", "--limit", "200"]);
    assert!(
        !all.contains("cmp_wrong") && !all.contains("my-secret-path"),
        "{all}"
    );
    // A request that is wrong in another way is none.
    api.token = local;
    api.send("GET", "/api/v1/schedules/none", &[], None)
        .assert_problem(404, "no schedule");
    let login = send(&api, "GET", "/updates", &[]);
    assert_eq!(login.status, 401, "{login:?}");
    refusals(&api, &[("channel", "page")]);
}

async fn too_many_requests_get_429_and_others_none(place: Place) {
    let mut api = Api::start(place, "[server]\nrate_limit = 10\n");
    let secret = |api: &Api, name: &str| {
        let token = json!({"name": name, "role": "viewer"});
        text(&api.post("/api/v1/tokens", token)["secret"])
    };
    let (one, other) = (secret(&api, "one"), secret(&api, "other"));
    api.token = one;
    // It costs more than there ever is at once, so it waits for all.
    let plan = || api.send("GET", "/api/v1/plan", &[], None);
    assert_eq!(plan().status, 200);
    // At the same time: a busy machine would take longer between two requests than until all is there again.
    let refused = eventually(|| {
        let answers = std::thread::scope(|scope| {
            let threads = [scope.spawn(plan), scope.spawn(plan)];
            threads.map(|thread| thread.join().expect("an answer"))
        });
        let statuses = answers.each_ref().map(|answer| answer.status);
        let refused = answers.into_iter().find(|answer| answer.status == 429);
        refused.ok_or_else(|| format!("{statuses:?}"))
    });
    refused.assert_problem(429, "one has sent more requests than `server.rate_limit`");
    let wait: u64 = refused
        .header("retry-after")
        .expect("a time")
        .parse()
        .expect("a number");
    assert!((1..=5).contains(&wait), "{refused:?}");
    // A probe needs no token and has no limit.
    assert_eq!(api.send("GET", "/healthz", &[], None).status, 200);
    let one = std::mem::replace(&mut api.token, other);
    assert_eq!(api.get("/api/v1/schedules"), json!([]));
    api.token = one;
    eventually(|| match api.send("GET", "/api/v1/schedules", &[], None) {
        answer if answer.status == 200 => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

/// Begin a request, and return what gets its status.
fn begin(api: &Api, path: &'static str) -> Receiver<u16> {
    let (sender, receiver) = channel();
    let (address, head) = (api.address, api.head("GET", path));
    std::thread::spawn(move || {
        // This fails when the test has failed, because the receiver was dropped with it.
        let _ = sender.send(raw(address, &format!("{head}\r\n")).status);
    });
    receiver
}

/// A lock on one table keeps one request from its end, as only Postgres can.
#[test]
fn cheap_requests_are_answered_one_at_a_time_while_launches_wait() {
    const SOON: Duration = Duration::from_millis(700);
    run_empty_case(Backend::Postgres, |place| async move {
        let api = Api::start(place, "[host]\nruns_max = 1\n");
        let db = Db::open(&api.site.place().url).await.expect("a database");
        // Whether a request is answered while another one waits for the lock.
        let is_answered_beside = async || {
            let mut tx = db.write().await.expect("a transaction");
            let lock = "LOCK TABLE alert_silence IN ACCESS EXCLUSIVE MODE";
            probe::execute(&mut tx, lock).await.expect("a lock");
            let waits = begin(&api, "/api/v1/silences");
            std::thread::sleep(SOON);
            let beside = begin(&api, "/api/v1/events?limit=1");
            let answered = beside.recv_timeout(SOON);
            assert!(waits.try_recv().is_err(), "it does not wait for the lock");
            tx.commit().await.expect("a commit");
            assert_eq!(waits.recv_timeout(PATIENCE), Ok(200));
            match answered {
                Ok(status) => assert_eq!(status, 200),
                Err(_) => assert_eq!(beside.recv_timeout(PATIENCE), Ok(200)),
            }
            answered.is_ok()
        };
        let is_seen = async |wanted: bool| {
            let until = Instant::now() + PATIENCE;
            while is_answered_beside().await != wanted {
                assert!(Instant::now() < until, "never {wanted}");
            }
        };
        is_seen(true).await;
        for name in ["runs", "waits"] {
            api.add(name, "sleep");
            let body = json!({"context": {"ms": 600_000}});
            api.post(&format!("/api/v1/schedules/{name}/trigger"), body);
        }
        is_seen(false).await;
    });
}
