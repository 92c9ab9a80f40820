//! Tests of effects that happen once: a host dies at each named point, and then restarts. The task writes to a bucket in
//! its session, and sends a message.
//!
//! The table is the documented guarantee. It is the same on both databases, and the test prints it.
//!
//! ```text
//! the host dies                      session  messages  deliveries
//! before_decide_commit                     1         1           1
//! after_decide_commit                      1         1           1
//! after_claim_commit                       1         1           1
//! before_call                              1         1           1
//! after_call                               1         1           1
//! before_call_commit                       1         1           1
//! after_call_commit                        1         1           1
//! before_finish_commit                     1         1           1
//! after_finish_commit                      1         1           1
//! before_recover_commit                    1         1           1
//! after_recover_commit                     1         1           1
//! before_message_claim_commit              1         1           1
//! after_message_claim_commit               1         1           1
//! after_message_delivery                   1         1           2
//! before_message_end_commit                1         1           2
//! after_message_end_commit                 1         1           1
//! ```
//!
//! `session` is the number that the launch's call incremented in its bucket, `messages` are the messages on record, and
//! `deliveries` those that the receiver got. A message is delivered twice only if the host dies between the receiver's
//! answer and its record. Both deliveries have one idempotency key.
//!
//! At the points before `before_message_claim_commit` the receiver is down until the host has died.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use campanile_engine::crash::{CALL_POINTS, MESSAGE_POINTS, POINTS};
use campanile_store::outbox::{self, MessageRow, MessageStatus};
use campanile_store::{LaunchStatus, buckets};
use campanile_tests::{Backend, HostProcess, once_package};

use crate::site::Site;

/// What happened for the launch at which the host died.
#[derive(Debug, PartialEq, Eq)]
struct Effects {
    session: u64,
    messages: usize,
    deliveries: usize,
}

fn expected(point: &str) -> Effects {
    let deliveries = match point {
        "after_message_delivery" | "before_message_end_commit" => 2,
        _ => 1,
    };
    Effects {
        session: 1,
        messages: 1,
        deliveries,
    }
}

#[test]
fn effects_happen_once_after_a_crash_at_every_point_on_sqlite() {
    crash_at_every_point(Backend::Sqlite);
}

#[test]
fn effects_happen_once_after_a_crash_at_every_point_on_postgres() {
    crash_at_every_point(Backend::Postgres);
}

fn crash_at_every_point(backend: Backend) {
    let mut table = format!(
        "{:<34} {:>7} {:>9} {:>11} on {}\n",
        "the host dies",
        "session",
        "messages",
        "deliveries",
        backend.name()
    );
    let points = [&POINTS[..], &CALL_POINTS, &MESSAGE_POINTS].concat();
    // Several cases at a time, because each case mostly waits.
    for points in points.chunks(4) {
        std::thread::scope(|scope| {
            let cases: Vec<_> = points
                .iter()
                .map(|point| (point, scope.spawn(move || crash_at(point, backend))))
                .collect();
            for (point, case) in cases {
                let effects = case
                    .join()
                    .unwrap_or_else(|_| panic!("{point} on {}", backend.name()));
                table.push_str(&format!(
                    "{point:<34} {:>7} {:>9} {:>11}\n",
                    effects.session, effects.messages, effects.deliveries
                ));
                assert_eq!(effects, expected(point), "{point} on {}", backend.name());
            }
        });
    }
    println!("{table}");
}

/// A receiver of messages.
#[derive(Default)]
struct Receiver {
    /// Whether it answers. Else it closes each connection, and the delivery fails.
    is_up: AtomicBool,
    /// The bodies that it got, by the idempotency keys of the requests.
    bodies: Mutex<BTreeMap<String, Vec<String>>>,
}

/// Start a receiver on a port of this machine.
fn receiver(is_up: bool) -> (u16, Arc<Receiver>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let receiver = Arc::new(Receiver {
        is_up: AtomicBool::new(is_up),
        ..Receiver::default()
    });
    let of_thread = Arc::clone(&receiver);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if of_thread.is_up.load(Ordering::SeqCst) {
                // A host that dies leaves half a request, which is an error here.
                let _ = receive(stream, &of_thread);
            }
        }
    });
    (port, receiver)
}

/// Let a receiver answer the connections that begin from now on.
fn bring_up(receiver: &Receiver, port: u16) {
    if !receiver.is_up.load(Ordering::SeqCst) {
        // Connections are accepted in their order: once this one is closed, those of the dead host are.
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
        receiver.is_up.store(true, Ordering::SeqCst);
    }
}

fn receive(mut stream: TcpStream, receiver: &Receiver) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim().to_ascii_lowercase();
        match line.split_once(": ") {
            Some(("idempotency-key", value)) => value.clone_into(&mut key),
            Some(("content-length", value)) => length = value.parse().unwrap_or(0),
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let mut all = receiver.bodies.lock().expect("no reader panics");
    all.entry(key).or_default().push(body);
    drop(all);
    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
}

fn crash_at(point: &str, backend: Backend) -> Effects {
    let site = Site::new(backend);
    // A message is delivered while the end of its run is recorded. A receiver that is up could answer just before the
    // host dies at a point of the run, and would get the message twice.
    let (port, receiver) = receiver(MESSAGE_POINTS.contains(&point));
    // A launch that waits for its fire time is claimed by itself.
    let policy = match point {
        "after_claim_commit" => "jitter = \"200ms\"",
        _ => "",
    };
    site.install_bytes(
        "once",
        &once_package(),
        &format!(
            "[[grants.keyvalue]]\nbucket = \"state\"\naccess = \"write\"\n\
             [[grants.http]]\nscheme = \"http\"\nhost = \"127.0.0.1\"\nport = {port}\n\
             [grants.config]\nurl = \"http://127.0.0.1:{port}/hook\"\n\
             [[schedules]]\nname = \"schedule-000\"\nevery = \"1s\"\noverlap = \"allow\"\n{policy}\n"
        ),
    );
    if point.contains("recover") {
        site.crash_at("after_decide_commit");
    }
    site.crash_at(point);
    bring_up(&receiver, port);

    let mut host = site.start("host-1");
    let limit = Duration::from_secs(30);
    site.record_when("two launches after the crash", limit, &[&host], |record| {
        record.count(LaunchStatus::Succeeded) >= 3
    });
    let record = site.pause_and_finish(limit, &[&host]);
    let messages = all_delivered(&site, &host);
    host.terminate();
    assert!(host.wait_exit().success());

    let launches = &record.launches["schedule-000"];
    let succeeded = record.count(LaunchStatus::Succeeded);
    assert_eq!(succeeded, launches.len(), "{}", record.shown());
    let entries = entries(&site);
    let received = receiver.bodies.lock().expect("no reader panics");
    for launch in launches {
        let id = launch.id.to_string();
        let sent: Vec<&MessageRow> = messages
            .iter()
            .filter(|message| message.launch_id == launch.id)
            .collect();
        assert_eq!(sent.len(), 1, "the messages of {id}");
        assert_eq!(entries[&id], "1", "the effects of {id} in its session");
        let bodies = &received[&sent[0].id.to_string()];
        assert!(bodies.iter().all(|body| *body == id), "{bodies:?}");
    }
    assert_eq!(entries["count"], succeeded.to_string());
    assert_eq!(received.len(), succeeded, "one key for each launch");
    let most = received.values().map(Vec::len).max();
    let all: usize = received.values().map(Vec::len).sum();
    let deliveries = most.unwrap_or_default();
    assert!(
        all < succeeded + deliveries,
        "only one message was delivered again: {all}"
    );
    let crashed = &launches[0];
    Effects {
        session: entries[&crashed.id.to_string()].parse().expect("a number"),
        messages: messages
            .iter()
            .filter(|message| message.launch_id == crashed.id)
            .count(),
        deliveries,
    }
}

/// Wait until all messages are delivered, and return them.
fn all_delivered(site: &Site, host: &HostProcess) -> Vec<MessageRow> {
    let until = Instant::now() + Duration::from_secs(30);
    site.with_db(async |db| {
        loop {
            let mut tx = db.read().await.expect("a transaction");
            let messages = outbox::list(&mut tx, None, None, None, 10_000).await;
            let messages = messages.expect("messages");
            drop(tx);
            let is_delivered = |message: &MessageRow| message.status == MessageStatus::Delivered;
            if messages.iter().all(is_delivered) {
                return messages;
            }
            assert!(
                Instant::now() < until,
                "not all messages were delivered: {messages:?}\n{}",
                host.stderr_lines().join("\n")
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

/// Return the entries of the bucket `state`.
fn entries(site: &Site) -> BTreeMap<String, String> {
    site.with_db(async |db| {
        let mut tx = db.read().await.expect("a transaction");
        let keys = buckets::keys(&mut tx, "once/state", 0, 10_000).await;
        let keys: Vec<String> = keys
            .expect("keys")
            .into_iter()
            .map(|row| String::from_utf8(row.key).expect("a text"))
            .collect();
        let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
        let values = buckets::values(&mut tx, "once/state", &asked).await;
        let text = |bytes| String::from_utf8(bytes).expect("a text");
        values
            .expect("values")
            .into_iter()
            .map(|(key, value)| (text(key), text(value)))
            .collect()
    })
}
