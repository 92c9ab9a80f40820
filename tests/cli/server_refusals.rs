//! Wrong requests to the API, slow clients, and wrong configurations of it.

use std::fs::Permissions;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use campanile_tests::{Backend, PATIENCE, Place, on_both_empty};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::api::{Api, parse, raw};
use crate::site::{Site, eventually, stop};

on_both_empty!(
    wrong_requests_are_refused_and_change_nothing,
    a_slow_client_is_cut_off_and_others_are_answered,
    more_connections_than_the_limit_wait_and_are_served,
    ten_thousand_connections_harm_no_launch,
    edits_and_keys_that_race_are_done_once,
    a_taken_port_and_a_readable_token_leave_the_host_without_its_api,
    a_socket_needs_no_token,
    a_wrong_address_or_certificate_is_refused_at_the_start,
);

async fn wrong_requests_are_refused_and_change_nothing(place: Place) {
    let mut api = Api::start(place, "");
    api.add("one", "ok");
    let before = api.get("/api/v1/schedules");
    let bare = |head: &str| raw(api.address, &format!("{head}\r\nConnection: close\r\n\r\n"));
    let created = api.post("/api/v1/tokens", json!({"name": "old", "role": "admin"}));
    let times = match api.site.place().backend {
        Backend::Sqlite => "created_at = 1000000, expires_at = 2000000",
        Backend::Postgres => {
            "created_at = now() - INTERVAL '2 minutes', expires_at = now() - INTERVAL '1 minute'"
        }
    };
    let expire = format!("UPDATE token SET {times} WHERE name = 'old'");
    api.site.execute(&expire).await;
    let expired = created["secret"].as_str().expect("a secret");
    bare("GET /api/v1/schedules HTTP/1.1\r\nHost: x").assert_problem(401, "no token");
    bare("GET /openapi.json HTTP/1.1\r\nHost: x").assert_problem(401, "no token");
    for given in [
        "Bearer",
        "Bearer cmp_0",
        "Basic eDp5",
        "bearer ",
        &format!("Bearer {expired}"),
        &format!("Bearer {}x", api.token),
    ] {
        let head = format!("GET /api/v1/schedules HTTP/1.1\r\nHost: x\r\nAuthorization: {given}");
        let answer = bare(&head);
        answer.assert_problem(401, "token");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let token = &api.token;
    let authorization = format!("Authorization: Bearer {token}");
    bare(&format!(
        "GET /api/v1/schedules HTTP/1.1\r\nHost: x\r\n{authorization}\r\n{authorization}"
    ))
    .assert_problem(401, "no token");
    bare(&format!(
        "GET /api/v1/schedules HTTP/1.1\r\nHost: x\r\nHost: y\r\n{authorization}"
    ))
    .assert_problem(400, "Host");
    for path in [
        "/",
        "/api/v1",
        "/api/v1/../v1/schedules",
        "/api/v1//schedules",
        "/api/v2/schedules",
        "/API/V1/schedules",
        "/api/v1/schedules/",
    ] {
        api.send("GET", path, &[], None)
            .assert_problem(404, "no such path");
    }
    api.send("GET", "/api/v1/schedules/..%2f..%2fetc%2fpasswd", &[], None)
        .assert_problem(404, "no schedule named");
    api.send("GET", "/api/v1/schedules/%00", &[], None)
        .assert_problem(400, "zero character");
    api.send("POST", "/api/v1/health", &[], None)
        .assert_problem(405, "method");
    for (path, part) in [
        ("schedules?limt=3", "did you mean `limit`?"),
        ("schedules?limit=501", "from 1 to 500"),
        ("schedules?limit=1&limit=2", "twice"),
        ("launches?after=nonsense", "no id of a launch or a run"),
        ("launches?status=faild", "did you mean `failed`?"),
        ("launches?since=noon", "neither a time"),
        ("events?after=x", "`x` is no id"),
        ("launches/zzz", "no id of a launch or a run"),
        ("plan?to=2020-01-01T00:00:00Z", "is not after"),
        ("plan?outage=x", "two times"),
        ("plan?decisions=0", "from 1 to 10000"),
        ("plan?decisions=10001", "from 1 to 10000"),
        ("stats?since=9999days", "since"),
        ("schedules/one/next?n=100000", "from 1 to 1000"),
    ] {
        api.send("GET", &format!("/api/v1/{path}"), &[], None)
            .assert_problem(400, part);
    }
    api.send("GET", "/api/v1/schedules/on", &[], None)
        .assert_problem(404, "did you mean `one`?");
    let post = |body: &str, kind: &str| {
        let head = api.head("POST", "/api/v1/schedules");
        raw(
            api.address,
            &format!(
                "{head}Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        )
    };
    let json = "application/json";
    post("{}", "text/plain").assert_problem(415, "application/json");
    post("{", json).assert_problem(400, "the body");
    post(&format!("{{\"context\":{}", "[".repeat(100_000)), json).assert_problem(400, "the body");
    post(
        r#"{"name":"x","package":"guests","kind":"cron","expression":"* * * * *","contxt":{}}"#,
        json,
    )
    .assert_problem(400, "unknown field `contxt`");
    post(
        r#"{"name":"x","package":"guests","kind":"cron","expression":"61 * * * *"}"#,
        json,
    )
    .assert_problem(400, "61");
    post(
        r#"{"name":"x","package":"guest","kind":"cron","expression":"* * * * *"}"#,
        json,
    )
    .assert_problem(404, "did you mean `guests`?");
    post(
        r#"{"name":"one","package":"guests","kind":"cron","expression":"* * * * *"}"#,
        json,
    )
    .assert_problem(409, "exists already");
    post("{\"name\": \"a\\u0000\"}", json).assert_problem(400, "zero character");
    api.send("GET", "/api/v1/schedules/%ff", &[], None)
        .assert_problem(400, "the path");
    let nothing = json!({});
    api.send("GET", "/api/v1/schedules", &[], Some(&nothing))
        .assert_problem(413, "takes no body");
    let twice = [("If-Match", "\"1\""), ("If-Match", "\"2\"")];
    for headers in [&twice[..], &[("If-Match", "\"+1\"")]] {
        api.send("PATCH", "/api/v1/schedules/one", headers, Some(&nothing))
            .assert_problem(400, "If-Match");
    }
    let long = "x".repeat(2_001);
    for (path, body) in [
        ("schedules/one/pause", json!({"note": long})),
        ("bulk/pause", json!({"count": 1, "note": long})),
        ("packages/guests/reject", json!({"note": long})),
        ("silences", json!({"for": "1h", "note": long})),
    ] {
        let path = format!("/api/v1/{path}");
        api.send("POST", &path, &[], Some(&body))
            .assert_problem(400, "`note`: must have 0 to 2000 characters, not 2001");
    }
    let silence = json!({"for": "1h", "rule": "a b"});
    api.send("POST", "/api/v1/silences", &[], Some(&silence))
        .assert_problem(400, "which matches no name: use 1 to 128");
    for file in ["", &long] {
        let body = json!({"file": file, "schedules": []});
        api.send("POST", "/api/v1/schedules-file/check", &[], Some(&body))
            .assert_problem(400, "`file`: must have 1 to 1000 characters");
    }
    let head = api.head("POST", "/api/v1/schedules");
    raw(
        api.address,
        &format!("{head}Content-Length: 2000000\r\n\r\n"),
    )
    .assert_problem(413, "bytes");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 19, "x".repeat(1 << 19));
    let endless = format!(
        "{head}Content-Type: {json}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}5\r\nxxxxx\r\n"
    );
    raw(api.address, &endless).assert_problem(413, "bytes");
    let long = format!(
        "{}X-Long: {}\r\n\r\n",
        api.head("GET", "/api/v1/schedules"),
        "x".repeat(100_000)
    );
    assert!([0, 400, 431].contains(&raw(api.address, &long).status));
    assert!([0, 400].contains(&raw(api.address, "NONSENSE\r\n\r\n").status));
    assert_eq!(api.get("/api/v1/schedules"), before);
    api.host.stays_up(Duration::from_millis(100));
}

async fn a_slow_client_is_cut_off_and_others_are_answered(place: Place) {
    let mut api = Api::start(place, "");
    let mut slow = TcpStream::connect(api.address).expect("a connection");
    slow.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    slow.write_all(b"GET /api/v1/schedules HTTP/1.1\r\nHost: x\r\n")
        .expect("half a head");
    let silent: Vec<TcpStream> = (0..50)
        .map(|_| TcpStream::connect(api.address).expect("a connection"))
        .collect();
    assert_eq!(api.get("/api/v1/schedules"), json!([]));
    // The server closes the connection after ten seconds.
    let mut rest = Vec::new();
    let ended = slow.read_to_end(&mut rest);
    let has_timed_out = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
    assert!(
        !ended.is_err_and(|error| has_timed_out(&error)),
        "the connection stayed open"
    );
    drop(silent);
    // A stop ends the streams too.
    let mut events = api.stream("/api/v1/events/stream", "");
    stop(&mut api.host);
    let mut rest = String::new();
    let _ = events.read_to_string(&mut rest);
}

async fn more_connections_than_the_limit_wait_and_are_served(place: Place) {
    // The server accepts 2,000.
    const CONNECTIONS: usize = 2_100;
    let mut api = Api::start(place, "");
    let connect = |_| TcpStream::connect(api.address).expect("a connection");
    let silent: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    // A silent connection is closed after ten seconds, which makes room for this request.
    assert_eq!(api.get("/api/v1/schedules"), json!([]));
    drop(silent);
    assert_eq!(api.get("/api/v1/schedules"), json!([]));
    api.host.stays_up(Duration::from_millis(100));
}

/// The tests share the limit of open files, so one of them at a time has so many.
static TEN_THOUSAND: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn ten_thousand_connections_harm_no_launch(place: Place) {
    let _turn = TEN_THOUSAND.lock().await;
    const CONNECTIONS: usize = 10_000;
    // What the test has open beside them.
    const OTHERS: u64 = 500;
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        ..limits
    };
    setrlimit(Resource::Nofile, raised).expect("more open files");
    let allowed = limits.maximum.unwrap_or(u64::MAX);
    assert!(
        allowed > CONNECTIONS as u64 + OTHERS,
        "only {allowed} open files"
    );
    let mut api = Api::start(place, "");
    api.site.add("every", "ok", &["--every", "1s"]);
    api.site
        .wait_for_launch("every", |row| row["status"] == "succeeded");
    // Each connects again when the server has closed its connection.
    let connected = Arc::new(AtomicUsize::new(0));
    let connect = |_| {
        let (address, connected) = (api.address, Arc::clone(&connected));
        tokio::spawn(async move {
            let mut is_first = true;
            loop {
                let Ok(stream) = tokio::net::TcpStream::connect(address).await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                connected.fetch_add(usize::from(is_first), Ordering::Relaxed);
                is_first = false;
                let _ = stream.readable().await;
            }
        })
    };
    let connections = Vec::from_iter((0..CONNECTIONS).map(connect));
    eventually(|| match connected.load(Ordering::Relaxed) {
        2_000.. => Ok(()),
        few => Err(format!("only {few} connections")),
    });
    // Slots are launched meanwhile. The record is read past the API.
    let done = || {
        let launches = api.site.launches("every");
        launches
            .iter()
            .filter(|row| row["status"] == "succeeded")
            .count()
    };
    let before = done();
    eventually(|| match done() - before {
        4.. => Ok(()),
        few => Err(format!("{few} launches beside the connections")),
    });
    for connection in connections {
        connection.abort();
    }
    assert_eq!(api.get("/api/v1/schedules")[0]["name"], "every");
    api.host.stays_up(Duration::from_millis(100));
}

async fn edits_and_keys_that_race_are_done_once(place: Place) {
    const RACERS: usize = 8;
    let api = Api::start(place, "");
    api.add("one", "ok");
    let race = |send: &(dyn Fn() -> u16 + Sync)| {
        std::thread::scope(|scope| {
            let racers = Vec::from_iter((0..RACERS).map(|_| scope.spawn(send)));
            let mut statuses =
                Vec::from_iter(racers.into_iter().map(|it| it.join().expect("a status")));
            statuses.sort_unstable();
            statuses
        })
    };
    let year = AtomicU32::new(2050);
    let edits = race(&|| {
        let year = year.fetch_add(1, Ordering::Relaxed);
        let body = json!({"expression": format!("{year}-01-01T00:00:00Z")});
        let headers = [("If-Match", "\"1\"")];
        let edited = api.send("PATCH", "/api/v1/schedules/one", &headers, Some(&body));
        edited.status
    });
    assert_eq!(edits[..2], [200, 412], "{edits:?}");
    assert_eq!(edits[RACERS - 1], 412, "{edits:?}");
    assert_eq!(api.get("/api/v1/schedules/one")["revision"], 2);
    let key = [("Idempotency-Key", "only-once")];
    let triggers = race(&|| {
        let trigger = "/api/v1/schedules/one/trigger";
        api.send("POST", trigger, &key, Some(&json!({}))).status
    });
    assert_eq!(triggers, [200; RACERS]);
    let launches = api.get("/api/v1/launches");
    assert_eq!(launches.as_array().map(Vec::len), Some(1), "{launches}");
}

async fn a_taken_port_and_a_readable_token_leave_the_host_without_its_api(place: Place) {
    let site = Site::new(place);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut host = site.serve_with(&["--listen", &address]);
    host.wait_for_line("the API is off");
    let lines = host.stderr_lines();
    let about: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("the API is off"))
        .collect();
    assert_eq!(about.len(), 1, "{lines:?}");
    assert!(about[0].contains("another process listens on"), "{lines:?}");
    stop(&mut host);
    site.configure("[server]\ntoken_file = 'token'\n");
    std::fs::write(site.folder().join("token"), "cmp_0").expect("a file");
    let mut host = site.serve_with(&["--listen", "127.0.0.1:0"]);
    host.wait_for_line("can be read or written by other users");
    stop(&mut host);
}

async fn a_socket_needs_no_token(place: Place) {
    let site = Site::new(place);
    let mut host = site.serve_with(&["--listen", "unix:api.sock"]);
    host.wait_for_line("the API answers at unix:api.sock");
    let get = || {
        let mut stream = UnixStream::connect(site.folder().join("api.sock")).expect("a socket");
        stream
            .write_all(b"GET /api/v1/schedules HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .expect("a request");
        parse(stream)
    };
    let answer = get();
    assert_eq!((answer.status, answer.json()), (200, json!([])));
    site.wait_until_healthy();
    // The socket of a host that was killed is replaced.
    host.kill();
    let mut host = site.serve_with(&["--listen", "unix:api.sock"]);
    host.wait_for_line("the API answers at unix:api.sock");
    assert_eq!(get().status, 200);
    stop(&mut host);
}

async fn a_wrong_address_or_certificate_is_refused_at_the_start(place: Place) {
    let site = Site::new(place);
    let pem =
        |name: &str, text: String| std::fs::write(site.folder().join(name), text).expect("a file");
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    pem("a.pem", cert.pem());
    pem("a.key", signing_key.serialize_pem());
    let CertifiedKey { signing_key, .. } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    pem("b.key", signing_key.serialize_pem());
    pem("open.key", signing_key.serialize_pem());
    for (key, mode) in [("a.key", 0o640), ("b.key", 0o600), ("open.key", 0o644)] {
        let path = site.folder().join(key);
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
    }
    for (configuration, part) in [
        ("[server]\nlisten = '0.0.0.0:0'\n", "`[server.tls]`"),
        ("[server]\nlisten = 'localhost'\n", "no address"),
        ("[server.tls]\ncertificate = 'a.pem'\n", "no `key`"),
        (
            "[server.tls]\ncertificate = 'a.pem'\nkey = 'b.key'\n",
            "cannot be used together",
        ),
        (
            "[server.tls]\ncertificate = 'a.pem'\nkey = 'c.key'\n",
            "cannot be read",
        ),
        (
            "[server.tls]\ncertificate = 'a.pem'\nkey = 'open.key'\n",
            "chmod o= open.key",
        ),
        ("[server.tls]\ncertificat = 'a.pem'\n", "certificate"),
    ] {
        site.configure(configuration);
        for command in [&["config", "check"][..], &["serve"]] {
            let mut command = site.command(command);
            command.env_remove(campanile_tests::LISTEN);
            let output = command.output().expect("the program");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{configuration}: {stderr}");
            assert!(stderr.contains(part), "no `{part}`: {stderr}");
        }
    }
    site.configure("[server.tls]\ncertificate = 'a.pem'\nkey = 'a.key'\n");
    let mut host = site.serve_with(&["--listen", "127.0.0.1:0"]);
    host.wait_for_line("the API answers at https://127.0.0.1:");
    stop(&mut host);
}
