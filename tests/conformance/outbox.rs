//! The outbox: a message is recorded with the success of its call, delivered until the receiver accepts it, and given up
//! after its time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use campanile_control::admin::message_admin;
use campanile_control::admin::schedule_admin::{self, Trigger};
use campanile_control::settings::Settings;
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::MessageId;
use campanile_model::trace_context::TraceContext;
use campanile_schedule::policy::Policies;
use campanile_store::events::{self, EventKind};
use campanile_store::messages::MessageTable as _;
use campanile_store::outbox::{self, MessageRow, MessageStatus, OutboxTable};
use campanile_store::{FailureKind, HostLock, LaunchStatus, hosts, launch};
use campanile_tests::{Backend, PATIENCE, TestDb, on_both, once_package};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use crate::fixtures::add_host;
use crate::host_steps::{add, clock_time};
use crate::serving::{self, settings};

on_both!(
    a_message_is_delivered_once_with_its_key_and_signature,
    a_message_carries_the_trace_of_its_launch,
    a_failed_attempt_sends_nothing_and_the_next_one_sends_the_same_message,
    a_failed_delivery_is_repeated_until_the_message_is_given_up,
    a_message_without_a_grant_denies_the_call,
    a_revoked_grant_stops_the_delivery,
    a_message_that_holds_a_secret_is_refused,
    two_hosts_deliver_a_message_once,
    a_delivery_ends_with_the_lease_of_its_host,
    a_dead_hosts_message_waits_for_the_end_of_its_lease,
    the_claim_of_an_ended_host_is_released,
    an_operator_retries_and_discards_messages,
    retention_keeps_messages_that_were_not_delivered,
);

/// A receiver of messages, which answers each with the next of its answers, and then with 204.
struct Receiver {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    async fn start(answers: &[&str]) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let mut answers: Vec<String> = answers
            .iter()
            .rev()
            .map(|text| (*text).to_owned())
            .collect();
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let (mut head, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).await.unwrap() <= 2 {
                        break;
                    }
                    if let Some(value) = line.strip_prefix("content-length: ") {
                        length = value.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.unwrap();
                head.push_str(&String::from_utf8(body).unwrap());
                seen.lock().unwrap().push(head);
                let answer = answers.pop().unwrap_or_else(|| "204 No Content".to_owned());
                let text =
                    format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        });
        Receiver { port, heads }
    }

    /// Return the requests so far: the head, and then the body.
    fn requests(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Return a sidecar that grants the receiver, with more lines in the grant and at the end.
    fn sidecar(&self, grant: &str, config: &str) -> String {
        let port = self.port;
        format!(
            "[[grants.keyvalue]]\nbucket = 'state'\naccess = 'write'\n\
             [[grants.http]]\nscheme = 'http'\nhost = '127.0.0.1'\nport = {port}\n{grant}\n\
             [grants.config]\nurl = 'http://127.0.0.1:{port}/hook'\n{config}\n"
        )
    }
}

/// The value of a header of a request.
fn header<'r>(request: &'r str, name: &str) -> Option<&'r str> {
    let mut lines = request.lines();
    lines.find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

/// A host with the package `once`, and its schedule that is due at 11:00.
struct Host {
    clock: Clock,
    engine: Arc<Engine>,
    folder: campanile_package::PluginsFolder,
    _lock: HostLock,
}

fn with_secrets() -> Settings {
    let value = |value: &str| campanile_control::settings::SecretSource::Env {
        variable: "V".to_owned(),
        value: Some(campanile_sandbox::Secret::new(value)),
    };
    let secrets = [
        (
            "hook".to_owned(),
            value("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ),
        ("token".to_owned(), value("hunter2hunter2")),
    ];
    Settings {
        secrets: secrets.into(),
        ..settings(8)
    }
}

async fn host(test: &TestDb, name: &str, clock: &Clock, sidecar: &str) -> Host {
    let plugins = test.place.folder.path().join(name);
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(plugins.join("once.toml"), sidecar).unwrap();
    let package = once_package();
    let guest = ("once", package.as_slice());
    let (engine, lock, folder) =
        serving::start_named(test, clock, with_secrets(), guest, (name, name)).await;
    Host {
        clock: clock.clone(),
        engine,
        folder,
        _lock: lock,
    }
}

impl Host {
    async fn start(test: &TestDb, sidecar: &str) -> Host {
        let clock = Clock::simulated(clock_time("10:30:00"));
        let host = host(test, "host-1", &clock, sidecar).await;
        add(test, "once", None, &Policies::default()).await;
        host
    }

    /// Do what is due at a time: launches, and then deliveries. Return the number of deliveries.
    async fn step(&self, time: &str) -> usize {
        let now = self.launch(time).await;
        self.engine.deliver_messages(now).await.unwrap()
    }

    /// Launch what is due at a time, and return the time.
    async fn launch(&self, time: &str) -> Timestamp {
        let now = clock_time(time);
        self.clock.advance_to(now);
        self.engine.renew(now).await.unwrap();
        self.engine.tick(now).await.unwrap();
        now
    }
}

async fn messages(test: &TestDb) -> Vec<MessageRow> {
    let mut tx = test.read().await;
    outbox::list(&mut tx, None, None, None, 100).await.unwrap()
}

async fn only_message(test: &TestDb) -> MessageRow {
    let mut messages = messages(test).await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

async fn events_of(test: &TestDb, kind: EventKind) -> Vec<String> {
    let mut tx = test.read().await;
    let all = events::list(&mut tx, None, 100).await.unwrap();
    let of_kind = all.into_iter().filter(|event| event.kind == kind);
    of_kind.map(|event| event.detail).collect()
}

async fn a_message_is_delivered_once_with_its_key_and_signature(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let config = "authorization = 'Bearer {secret:token}'";
    let sidecar = receiver.sidecar("signing_secret = 'hook'", config);
    let sidecar = format!("grants.secrets = ['token']\n{sidecar}");
    let host = Host::start(&test, &sidecar).await;
    assert_eq!(host.step("11:00:00").await, 1);
    assert_eq!(host.step("11:05:00").await, 0);

    let message = only_message(&test).await;
    assert_eq!(message.status, MessageStatus::Delivered, "{message:?}");
    assert_eq!((message.attempts, message.answer), (1, Some(204)));
    assert_eq!(message.id, MessageId::of(message.launch_id, "once", 0));
    let requests = receiver.requests();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert!(request.starts_with("POST /hook HTTP/1.1\r\n"), "{request}");
    assert!(
        request.ends_with(&message.launch_id.to_string()),
        "{request}"
    );
    let id = message.id.to_string();
    assert_eq!(header(request, "idempotency-key"), Some(&*id));
    assert_eq!(header(request, "webhook-id"), Some(&*id));
    assert_eq!(
        header(request, "authorization"),
        Some("Bearer hunter2hunter2")
    );
    let timestamp = clock_time("11:00:00").micros() / 1_000_000;
    assert_eq!(
        header(request, "webhook-timestamp"),
        Some(&*timestamp.to_string())
    );
    let signature = header(request, "webhook-signature").unwrap();
    assert!(
        signature.starts_with("v1,") && signature.len() == 47,
        "{signature}"
    );
    // The record has the placeholder.
    let mut tx = test.read().await;
    let content = outbox::find(&mut tx, message.id).await.unwrap().unwrap();
    assert_eq!(
        content.headers,
        r#"[["authorization","Bearer {secret:token}"]]"#
    );
}

async fn a_message_carries_the_trace_of_its_launch(test: TestDb) {
    let receiver = Receiver::start(&["503 Busy"]).await;
    let host = Host::start(&test, &receiver.sidecar("", "")).await;
    // A launch without a caller, on a host that sends no traces, has none.
    assert_eq!(host.step("11:00:00").await, 1);
    host.step("11:01:00").await;
    let caller: TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        .parse()
        .unwrap();
    let mut tx = test.write().await;
    let trigger = Trigger {
        context: None,
        args: None,
        overlap: None,
        caller_traceparent: Some(caller),
    };
    let now = clock_time("11:10:00");
    host.clock.advance_to(now);
    let triggered = schedule_admin::trigger(&mut tx, "report", trigger, now).await;
    let launch = triggered.unwrap().launch;
    tx.commit().await.unwrap();
    assert_eq!(host.step("11:10:01").await, 1);
    let requests = receiver.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert_eq!(header(&requests[0], "traceparent"), None);
    assert_eq!(header(&requests[1], "traceparent"), None);
    let of_launch = TraceContext::of_launch(launch, Some(caller)).to_string();
    assert_eq!(
        header(&requests[2], "traceparent"),
        Some(of_launch.as_str())
    );
    assert_eq!(of_launch[3..35], caller.to_string()[3..35]);
}

async fn a_failed_attempt_sends_nothing_and_the_next_one_sends_the_same_message(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let host = Host::start(&test, &receiver.sidecar("", "succeed_on = '2'")).await;
    assert_eq!(host.step("11:00:00").await, 0);
    assert!(messages(&test).await.is_empty());
    assert_eq!(host.step("11:00:30").await, 1);
    let message = only_message(&test).await;
    assert_eq!(message.id, MessageId::of(message.launch_id, "once", 0));
    assert_eq!(receiver.requests().len(), 1);
}

async fn a_failed_delivery_is_repeated_until_the_message_is_given_up(test: TestDb) {
    let answers = [
        "503 Busy",
        "500 Broken",
        "302 Found",
        "404 Missing",
        "503 Busy",
    ];
    let receiver = Receiver::start(&answers).await;
    let host = Host::start(&test, &receiver.sidecar("", "")).await;
    // The pauses are 5 s, 15 s, 45 s and 135 s, each up to a quarter longer. The host gives up after an hour.
    for time in ["11:00:00", "11:00:10", "11:00:30", "11:01:30"] {
        assert_eq!(host.step(time).await, 1, "{time}");
        let message = only_message(&test).await;
        assert_eq!(message.status, MessageStatus::Pending, "{message:?}");
    }
    assert_eq!(host.step("11:01:31").await, 0, "it is not due");
    let message = only_message(&test).await;
    assert_eq!((message.attempts, message.answer), (4, Some(404)));
    assert_eq!(message.error.as_deref(), Some("the receiver answered 404"));
    assert_eq!(
        events_of(&test, EventKind::MessageDead).await,
        Vec::<String>::new()
    );

    let late = clock_time("12:00:01");
    host.clock.advance_to(late);
    let deliveries = host.engine.deliver_messages(late).await.unwrap();
    assert_eq!(deliveries, 0, "its time is over");
    let message = only_message(&test).await;
    assert_eq!(message.status, MessageStatus::Dead, "{message:?}");
    let dead = events_of(&test, EventKind::MessageDead).await;
    let [dead] = dead.as_slice() else {
        panic!("{dead:?}");
    };
    assert!(
        dead.contains("was given up after 4 deliveries: the receiver answered 404"),
        "{dead}"
    );
}

async fn a_message_without_a_grant_denies_the_call(test: TestDb) {
    let sidecar = "[[grants.keyvalue]]\nbucket = 'state'\naccess = 'write'\n\
        [grants.config]\nurl = 'https://example.com/hook'\n";
    let host = Host::start(&test, sidecar).await;
    assert_eq!(host.step("11:00:00").await, 0);
    let mut tx = test.read().await;
    let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
    assert_eq!(launch.status, LaunchStatus::Failed);
    assert_eq!(launch.failure, Some(FailureKind::Denied));
    let message = launch.message.unwrap();
    assert!(
        message
            .starts_with("POST https://example.com is not granted; to allow it, add `grants.http"),
        "{message}"
    );
    assert!(messages(&test).await.is_empty());
}

async fn a_revoked_grant_stops_the_delivery(test: TestDb) {
    let receiver = Receiver::start(&["503 Busy"]).await;
    let mut host = Host::start(&test, &receiver.sidecar("", "")).await;
    assert_eq!(host.step("11:00:00").await, 1);
    let sidecar = test.place.folder.path().join("host-1/once.toml");
    std::fs::write(sidecar, "").unwrap();
    host.engine.scan(&mut host.folder).await.unwrap();
    assert_eq!(host.step("11:00:10").await, 1);
    assert_eq!(
        receiver.requests().len(),
        1,
        "nothing is sent without the grant"
    );
    let message = only_message(&test).await;
    assert_eq!(message.status, MessageStatus::Pending);
    assert!(
        message.error.as_ref().unwrap().contains("is not granted"),
        "{message:?}"
    );
}

async fn a_message_that_holds_a_secret_is_refused(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let sidecar = receiver.sidecar("", "authorization = 'Bearer hunter2hunter2'");
    let sidecar = format!("grants.secrets = ['token']\n{sidecar}");
    let host = Host::start(&test, &sidecar).await;
    assert_eq!(host.step("11:00:00").await, 0);
    let mut tx = test.read().await;
    let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
    assert_eq!(launch.status, LaunchStatus::Failed, "{launch:?}");
    let message = launch.message.unwrap();
    assert!(
        message.starts_with("the message holds the value of a secret"),
        "{message}"
    );
    assert!(messages(&test).await.is_empty());
}

async fn two_hosts_deliver_a_message_once(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let sidecar = receiver.sidecar("", "");
    let first = Host::start(&test, &sidecar).await;
    // One host serves a SQLite file. There, two deliveries of one host race.
    let second = match test.place.backend {
        Backend::Sqlite => None,
        Backend::Postgres => Some(host(&test, "host-2", &first.clock, &sidecar).await),
    };
    let other = second.as_ref().unwrap_or(&first);
    let now = clock_time("11:00:00");
    first.clock.advance_to(now);
    first.engine.renew(now).await.unwrap();
    other.engine.renew(now).await.unwrap();
    first.engine.tick(now).await.unwrap();
    let (one, two) = tokio::join!(
        first.engine.deliver_messages(now),
        other.engine.deliver_messages(now)
    );
    assert_eq!(one.unwrap() + two.unwrap(), 1);
    assert_eq!(receiver.requests().len(), 1);
    assert_eq!(only_message(&test).await.status, MessageStatus::Delivered);
}

async fn the_claim_of_an_ended_host_is_released(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let host = Host::start(&test, &receiver.sidecar("", "")).await;
    let now = host.launch("11:00:00").await;
    let claim = async |id| {
        let mut tx = test.write().await;
        let due = outbox::due(&mut tx, "once", now, 10).await.unwrap();
        let until = now.plus(Duration::from_secs(600));
        let claimed = OutboxTable::claim(&mut tx, due[0], id, until)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        claimed.unwrap()
    };
    let mut tx = test.write().await;
    let dead = add_host(&mut tx, 9, now).await;
    tx.commit().await.unwrap();
    assert_eq!(claim(dead).await.attempts, 1);
    assert_eq!(
        host.engine.deliver_messages(now).await.unwrap(),
        0,
        "another host has it"
    );
    let mut tx = test.write().await;
    hosts::end(&mut tx, dead, now).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(host.engine.deliver_messages(now).await.unwrap(), 1);
    let message = only_message(&test).await;
    assert_eq!(
        (message.status, message.attempts),
        (MessageStatus::Delivered, 2)
    );
}

/// The lease of 30 s ends for its holder after 27 s.
async fn a_delivery_ends_with_the_lease_of_its_host(test: TestDb) {
    // It accepts a connection and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let receiver = Receiver {
        port: listener.local_addr().unwrap().port(),
        heads: Arc::default(),
    };
    let host = Host::start(&test, &receiver.sidecar("", "")).await;
    let now = host.launch("11:00:00").await;
    let engine = Arc::clone(&host.engine);
    let delivery = tokio::spawn(async move { engine.deliver_messages(now).await.unwrap() });
    let (_stream, _) = listener.accept().await.unwrap();
    host.clock.advance_to(clock_time("11:00:26"));
    host.engine.drop_expired();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!delivery.is_finished());
    host.clock.advance_to(clock_time("11:00:27"));
    host.engine.drop_expired();
    let ended = tokio::time::timeout(PATIENCE, delivery).await;
    assert_eq!(ended.expect("the delivery is dropped").unwrap(), 1);
    // Its end is not known. It is due again when the claim of 60 s has ended.
    let message = only_message(&test).await;
    assert_eq!(
        (message.status, message.attempts, message.error),
        (MessageStatus::Pending, 1, None)
    );
    assert_eq!(message.next_attempt_at, Some(clock_time("11:01:00")));
    // Without a lease, the host begins no other delivery.
    let late = clock_time("11:01:00");
    host.clock.advance_to(late);
    assert_eq!(host.engine.deliver_messages(late).await.unwrap(), 0);
    assert_eq!(only_message(&test).await.attempts, 1);
}

async fn a_dead_hosts_message_waits_for_the_end_of_its_lease(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let host = Host::start(&test, &receiver.sidecar("", "")).await;
    let now = host.launch("11:00:00").await;
    let mut tx = test.write().await;
    let dead = add_host(&mut tx, 9, now).await;
    let lease_until = clock_time("11:00:08");
    hosts::heartbeat(&mut tx, dead, now, lease_until)
        .await
        .unwrap();
    let due = outbox::due(&mut tx, "once", now, 10).await.unwrap();
    let until = clock_time("11:01:00");
    let claimed = OutboxTable::claim(&mut tx, due[0], dead, until)
        .await
        .unwrap();
    assert!(claimed.is_some());
    tx.commit().await.unwrap();
    // A process of the same name locked the name after the connection of the first one broke.
    test.execute(
        "UPDATE host SET ended_at = heartbeat_at, end_reason = 'died' WHERE name = 'host-9'",
    )
    .await;
    for (time, deliveries) in [("11:00:07", 0), ("11:00:08", 1)] {
        let now = clock_time(time);
        host.clock.advance_to(now);
        assert_eq!(
            host.engine.deliver_messages(now).await.unwrap(),
            deliveries,
            "{time}"
        );
    }
    assert_eq!(receiver.requests().len(), 1);
}

async fn an_operator_retries_and_discards_messages(test: TestDb) {
    let receiver = Receiver::start(&["410 Gone", "503 Busy"]).await;
    let host = Host::start(&test, &receiver.sidecar("", "")).await;
    assert_eq!(host.step("11:00:00").await, 1);
    let message = only_message(&test).await;
    assert_eq!(
        message.status,
        MessageStatus::Dead,
        "the receiver wants none"
    );
    let retry = async |time: &str| {
        let mut tx = test.write().await;
        let now = clock_time(time);
        let done =
            message_admin::retry(&mut tx, message.id, Duration::from_secs(60), "ada", now).await;
        tx.commit().await.unwrap();
        done.map(|message| message.row.status)
            .map_err(|error| error.to_string())
    };
    let discard = async |time: &str| {
        let mut tx = test.write().await;
        let done = message_admin::discard(&mut tx, message.id, "ada", clock_time(time)).await;
        tx.commit().await.unwrap();
        done.map(|message| message.row.status)
            .map_err(|error| error.to_string())
    };
    assert_eq!(retry("11:10:00").await, Ok(MessageStatus::Pending));
    assert_eq!(host.step("11:10:00").await, 1);
    assert_eq!(only_message(&test).await.status, MessageStatus::Pending);
    assert_eq!(discard("11:10:01").await, Ok(MessageStatus::Discarded));
    assert_eq!(host.step("11:20:00").await, 0);
    let error = discard("11:20:00").await.unwrap_err();
    assert!(error.contains("is discarded already"), "{error}");
    assert_eq!(retry("11:30:00").await, Ok(MessageStatus::Pending));
    assert_eq!(host.step("11:30:00").await, 1);
    assert_eq!(only_message(&test).await.status, MessageStatus::Delivered);
    let error = retry("11:40:00").await.unwrap_err();
    assert!(
        error.contains("is delivered, so it is not delivered again"),
        "{error}"
    );
    let retried = events_of(&test, EventKind::MessageRetried).await;
    assert_eq!(retried.len(), 2);
    assert!(
        retried[0].starts_with("ada asked to deliver the message"),
        "{retried:?}"
    );
    assert_eq!(events_of(&test, EventKind::MessageDiscarded).await.len(), 1);
    let mut tx = test.write().await;
    let missing =
        message_admin::discard(&mut tx, MessageId::LAST, "ada", clock_time("11:40:00")).await;
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .starts_with("there is no message")
    );
}

async fn retention_keeps_messages_that_were_not_delivered(test: TestDb) {
    let receiver = Receiver::start(&["410 Gone"]).await;
    let host = Host::start(&test, &receiver.sidecar("", "")).await;
    assert_eq!(host.step("11:00:00").await, 1);
    assert_eq!(host.step("12:00:00").await, 1);
    let mut tx = test.write().await;
    let later = clock_time("23:00:00");
    assert_eq!(outbox::remove_old(&mut tx, later, 100).await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(only_message(&test).await.status, MessageStatus::Dead);
}
