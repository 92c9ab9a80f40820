//! Pages of two hosts of one database, and of a record whose old launches were removed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use campanile_model::clock::Clock;
use campanile_model::ids::LaunchId;
use campanile_store::{Db, retention};
use campanile_tests::{Backend, HostProcess, PATIENCE, Place, on_both_empty, run_empty_case};
use serde_json::json;

use crate::api::{Answer, Api, next_event, raw};
use crate::browser::{Browser, assert_is_page, encoded, token};
use crate::site::text;

on_both_empty!(the_page_of_a_launch_that_retention_removed_says_so);

/// Each failure hits the streams at a different moment of their reading.
const FAILURES: usize = 5;

/// A session on the second host, which has no plugins folder.
struct Session {
    address: SocketAddr,
    cookie: String,
}

impl Session {
    /// Sign in to the host.
    fn of(host: &HostProcess, secret: &str) -> Session {
        let line = host.wait_for_line("the API answers at http://");
        let (_, rest) = line.split_once("http://").expect("an address");
        let (address, _) = rest.split_once("/api/v1").expect("a path");
        let mut session = Session {
            address: address.parse().expect("an address"),
            cookie: String::new(),
        };
        let entered = session.send("POST", "/login", &[("token", secret)]);
        let cookie = entered.header("set-cookie").expect("a session");
        let cookie = cookie.split(';').next().expect("a value");
        session.cookie = format!("Cookie: {cookie}\r\n");
        session
    }

    fn send(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let Session { address, cookie } = self;
        let body = encoded(fields);
        let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/html\r\nConnection: close\r\n{cookie}{kind}Content-Length: {length}\r\n\r\n{body}"
        );
        raw(*address, &request)
    }
}

/// Open the stream of updates of a page, and wait until the server listens.
fn updates(address: SocketAddr, cookie: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let request = format!(
        "GET /updates HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{cookie}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut reader = BufReader::new(stream);
    let is_listening =
        |line: &std::io::Result<String>| line.as_deref().is_ok_and(|line| line == ":");
    assert!(reader.by_ref().lines().any(|line| is_listening(&line)));
    reader
}

/// Only hosts of one Postgres database serve together.
#[test]
fn a_failure_is_on_the_pages_of_both_hosts_as_soon_as_on_their_streams() {
    run_empty_case(Backend::Postgres, |place| async move {
        let api = Api::start(place, "");
        let other = ["--name", "other", "--listen", "127.0.0.1:0"];
        let other = api.site.serve_with(&other);
        let secret = token(&api, "operator");
        let first = Browser::of(&api, &secret);
        let second = Session::of(&other, &secret);
        api.add("before", "fail_permanent");
        let before = api.post("/api/v1/schedules/before/trigger", json!({}));
        api.end_of(&text(&before["launch"]));
        for number in 0..FAILURES {
            let name = format!("fails-{number}");
            api.add(&name, "fail_permanent");
            // A stream sends each failure since it was opened, also one before its host has read anything for it.
            let mut streams = [
                updates(api.address, &first.cookie),
                updates(second.address, &second.cookie),
            ];
            let launched = api.post(&format!("/api/v1/schedules/{name}/trigger"), json!({}));
            let launch = text(&launched["launch"]);
            for stream in &mut streams {
                // The failures before the stream was opened are on the page, not on the stream.
                let (_, _, news) = next_event(stream, |kind, _| kind == "failure");
                assert_eq!(news["launch"], launched["launch"], "{news}");
                let begin = format!("A launch of {name} failed: ");
                assert!(text(&news["text"]).starts_with(&begin), "{news}");
                assert_eq!(
                    (&news["schedule"], &news["is_new"]),
                    (&json!(name), &json!(true)),
                    "{news}"
                );
            }
            // A page that was read now has it too, with the link to its log.
            for body in [first.page("/"), second.send("GET", "/", &[]).body] {
                let (_, troubles) = body.split_once("Needs a person").expect("a part");
                for part in [
                    name.as_str(),
                    "failed once",
                    &format!("/launches/{launch}#log"),
                ] {
                    assert!(troubles.contains(part), "no `{part}`: {troubles}");
                }
            }
        }
    });
}

async fn the_page_of_a_launch_that_retention_removed_says_so(place: Place) {
    let api = Api::start(place, "");
    api.add("old", "ok");
    let launched = api.post("/api/v1/schedules/old/trigger", json!({}));
    let ended = api.end_of(&text(&launched["launch"]));
    let (launch, run) = (text(&ended["id"]), text(&ended["run_id"]));
    let slot = text(&ended["scheduled_time"]);

    let db = Db::open(&api.site.place().url).await.unwrap();
    let mut tx = db.write().await.unwrap();
    assert!(retention::lock(&mut tx).await.unwrap());
    let id: LaunchId = launch.parse().unwrap();
    let now = Clock::system().now();
    assert_eq!(retention::remove(&mut tx, &[id], now).await.unwrap(), 1);
    tx.commit().await.unwrap();
    db.close().await;

    let browser = Browser::of(&api, &token(&api, "viewer"));
    for path in [format!("/launches/{launch}"), format!("/runs/{run}")] {
        let answer = browser.get(&path);
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
        assert_is_page(&answer);
        for part in [
            "is not on record: retention has removed 1 launch of ",
            "campanile stats",
            "href=\"/\"",
        ] {
            assert!(
                answer.body.contains(part),
                "{path}: no `{part}`: {answer:?}"
            );
        }
    }
    // The page of the schedule says the same about the moment, and the list continues without it.
    let at = slot.replace(':', "%3A");
    let why = browser.page(&format!("/schedules/old?at={at}"));
    assert!(
        why.contains("1 launch of its slots was removed by retention"),
        "{why}"
    );
    let list = browser.page("/launches?schedule=old");
    assert!(list.contains("No launch matches."), "{list}");
    assert!(!list.contains(&launch), "{list}");
}
