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
use std::time::{Duration, Instant};

use campanile_engine::crash::{CALL_POINTS, MESSAGE_POINTS, POINTS};
use campanile_store::outbox::{self, MessageRow, MessageStatus};
use campanile_store::{LaunchStatus, buckets};
use campanile_tests::{Backend, HostProcess, PATIENCE, once_package};

use crate::point_table::PointTable;
use crate::receiver::Receiver;
use crate::site::{Site, now};

/// The counts are those of the launch at which the host died.
const TABLE: PointTable<3> = PointTable {
    columns: ["session", "messages", "deliveries"],
    crash_at,
    expected: |point| match point {
        "after_message_delivery" | "before_message_end_commit" => [1, 1, 2],
        _ => [1, 1, 1],
    },
};

#[test]
fn effects_happen_once_after_a_crash_at_every_point_on_sqlite() {
    crash_at_every_point(Backend::Sqlite);
}

#[test]
fn effects_happen_once_after_a_crash_at_every_point_on_postgres() {
    crash_at_every_point(Backend::Postgres);
}

fn crash_at_every_point(backend: Backend) {
    let points = [&POINTS[..], &CALL_POINTS, &MESSAGE_POINTS].concat();
    TABLE.check(&points, backend);
}

fn crash_at(point: &str, backend: Backend) -> [usize; 3] {
    let site = Site::new(backend);
    // A message is delivered while the end of its run is recorded. A receiver that is up could answer just before the
    // host dies at a point of the run, and would get the message twice.
    let receiver = Receiver::start(MESSAGE_POINTS.contains(&point));
    let port = receiver.port;
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
    let died = now();
    receiver.bring_up();

    let mut host = site.start("host-1");
    site.record_when("two launches after the crash", &[&host], |record| {
        record.count(LaunchStatus::Succeeded) >= 3
    });
    let record = site.pause_and_finish(&[&host]);
    let messages = all_delivered(&site, &host);
    host.terminate();
    assert!(host.wait_exit().success());

    let launches = record.launches["schedule-000"].iter();
    // Before its jitter has passed, a launch of a paused schedule stays queued.
    let launches = launches.filter(|launch| launch.status != LaunchStatus::Queued);
    let launches = Vec::from_iter(launches);
    let succeeded = record.count(LaunchStatus::Succeeded);
    assert_eq!(succeeded, launches.len(), "{}", record.shown());
    let entries = entries(&site);
    let mut received: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for request in receiver.received() {
        let key = request.headers["idempotency-key"].clone();
        received.entry(key).or_default().push(request.body);
    }
    for launch in &launches {
        let id = launch.id.to_string();
        let sent: Vec<&MessageRow> = messages
            .iter()
            .filter(|message| message.launch_id == launch.id)
            .collect();
        assert_eq!(sent.len(), 1, "the messages of {id}");
        assert_eq!(entries[&id], "1", "the effects of {id} in its session");
        let bodies = &received[&sent[0].id.to_string()];
        assert!(bodies.iter().all(|body| *body == id), "{bodies:?}");
        // On a busy machine, the dead host may have delivered several messages at once.
        let is_again = bodies.len() > 1;
        assert!(!is_again || launch.scheduled_time < died, "{launch:?}");
    }
    assert_eq!(entries["count"], succeeded.to_string());
    assert_eq!(received.len(), succeeded, "one key for each launch");
    let most = received.values().map(Vec::len).max();
    let deliveries = most.unwrap_or_default();
    let crashed = launches[0];
    let of_crashed = |message: &&MessageRow| message.launch_id == crashed.id;
    [
        entries[&crashed.id.to_string()].parse().expect("a number"),
        messages.iter().filter(of_crashed).count(),
        deliveries,
    ]
}

/// Wait until all messages are delivered, and return them.
fn all_delivered(site: &Site, host: &HostProcess) -> Vec<MessageRow> {
    let until = Instant::now() + PATIENCE;
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
