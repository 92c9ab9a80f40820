//! Alerts: hosts on one database tell each incident once for each channel, in order, and resolve it once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use campanile_control::admin::alert_admin::{self, WantedSilence};
use campanile_control::rules::alert_rule::{
    AlertSettings, Channel, ChannelTemplate, Condition, Heartbeat, Rule, Target, Value,
};
use campanile_control::settings::{SecretSource, Settings};
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::AlertId;
use campanile_model::status::Severity;
use campanile_schedule::policy::Policies;
use campanile_store::alert_messages::{self, AlertMessageRow, MessageStatus};
use campanile_store::alerts::{self, Alert, AlertStatus};
use campanile_store::{HostLock, hosts};
use campanile_tests::{Backend, TestDb, on_both};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use crate::host_steps::{add, add_named, clock_time};
use crate::serving::{self, NOOP, settings};

on_both!(
    two_hosts_tell_an_alert_once_for_each_channel_and_resolve_it_once,
    a_message_is_repeated_with_the_same_content_until_it_is_received,
    alerts_of_a_rule_share_a_message,
    the_recovery_is_sent_only_where_the_failure_was_sent,
    a_silence_holds_messages_back_until_it_ends,
    the_policy_expect_within_fires_without_a_rule,
    a_dead_host_is_missed_by_another,
    a_private_address_needs_private,
    a_host_sends_its_heartbeat_only_while_it_works,
    an_operator_tries_a_channel_and_resolves_an_alert,
);

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request: its headers and its body.
type Request = (BTreeMap<String, String>, String);

/// A receiver that answers each request with the next of its answers, and then with 204.
struct Receiver {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    async fn start(answers: &[&str]) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let seen = Arc::clone(&requests);
        let answers: Vec<String> = answers.iter().map(|text| (*text).to_owned()).collect();
        tokio::spawn(async move {
            let mut answers = answers.into_iter();
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let mut headers = BTreeMap::new();
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).await.unwrap() <= 2 {
                        break;
                    }
                    if let Some((name, value)) = line.trim().split_once(": ") {
                        headers.insert(name.to_ascii_lowercase(), value.to_owned());
                    }
                }
                let length = headers["content-length"].parse().unwrap();
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.unwrap();
                let body = String::from_utf8(body).unwrap();
                seen.lock().unwrap().push((headers, body));
                let answer = answers
                    .next()
                    .unwrap_or_else(|| "204 No Content".to_owned());
                let text =
                    format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        });
        Receiver { port, requests }
    }

    fn channel(&self) -> Channel {
        Channel {
            template: ChannelTemplate::Webhook,
            target: self.target(),
            signing_secrets: vec!["hook".to_owned(), "former".to_owned()],
            headers: BTreeMap::new(),
            group_wait: Duration::ZERO,
            mail: None,
        }
    }

    fn target(&self) -> Target {
        Target {
            url: Value::Plain(format!("http://127.0.0.1:{}/hook", self.port)),
            private: true,
        }
    }

    /// Return the types of the messages so far, each with its number of alerts.
    fn received(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let received = requests.iter().map(|(_, body)| {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let kind = body["type"].as_str().unwrap();
            format!(
                "{kind} {}",
                body["data"]["alerts"].as_array().unwrap().len()
            )
        });
        received.collect()
    }
}

/// A rule that fires when no launch has succeeded for five minutes.
pub fn no_success(channels: &[&str]) -> Rule {
    Rule {
        name: "dead-man".to_owned(),
        condition: Condition::NoSuccessFor {
            than: Duration::from_secs(300),
        },
        subject: None,
        package: None,
        severity: Severity::Critical,
        channels: channels.iter().map(|name| (*name).to_owned()).collect(),
        pending_for: Duration::ZERO,
        resolve_after: Duration::ZERO,
    }
}

pub fn with_alerts(rules: Vec<Rule>, channels: Vec<(&str, Channel)>) -> Settings {
    let value = |value: &str| SecretSource::Env {
        variable: "V".to_owned(),
        value: Some(campanile_sandbox::Secret::new(value)),
    };
    let secrets = [
        ("hook".to_owned(), value(SECRET)),
        ("former".to_owned(), value("another")),
    ];
    let channels = channels.into_iter();
    Settings {
        secrets: secrets.into(),
        alerts: AlertSettings {
            rules,
            channels: channels.map(|(name, it)| (name.to_owned(), it)).collect(),
            heartbeat: None,
            pings: Vec::new(),
        },
        ..settings(8)
    }
}

pub struct Host {
    pub clock: Clock,
    pub engine: Arc<Engine>,
    _lock: HostLock,
}

pub async fn host(test: &TestDb, name: &str, clock: &Clock, settings: Settings) -> Host {
    let names = (name, name);
    let (engine, lock, _) = serving::start_named(test, clock, settings, NOOP, names).await;
    Host {
        clock: clock.clone(),
        engine,
        _lock: lock,
    }
}

impl Host {
    /// Evaluate the rules, and deliver what is due. Return how many alerts changed and how many deliveries there were.
    pub async fn alerts(&self, time: &str) -> (usize, usize) {
        let now = self.at(time);
        self.engine.renew(now).await.unwrap();
        let changed = self.engine.evaluate_alerts(now).await.unwrap();
        (changed, self.engine.deliver_alerts(now).await.unwrap())
    }

    pub fn at(&self, time: &str) -> Timestamp {
        let now = clock_time(time);
        self.clock.advance_to(now);
        now
    }

    /// Launch what is due.
    pub async fn tick(&self, time: &str) {
        let now = self.at(time);
        self.engine.renew(now).await.unwrap();
        self.engine.tick(now).await.unwrap();
    }
}

async fn all_alerts(test: &TestDb) -> Vec<Alert> {
    alerts::list(&mut test.read().await, None, 100)
        .await
        .unwrap()
}

pub async fn messages(test: &TestDb) -> Vec<AlertMessageRow> {
    let mut tx = test.read().await;
    alert_messages::list(&mut tx, None, None, 100)
        .await
        .unwrap()
}

async fn two_hosts_tell_an_alert_once_for_each_channel_and_resolve_it_once(test: TestDb) {
    let (one, two) = (Receiver::start(&[]).await, Receiver::start(&[]).await);
    let settings = || {
        let channels = vec![("one", one.channel()), ("two", two.channel())];
        with_alerts(vec![no_success(&["one", "two"])], channels)
    };
    let clock = Clock::simulated(clock_time("10:30:00"));
    let first = host(&test, "host-1", &clock, settings()).await;
    // One host serves a SQLite file. There, two evaluations of one host race.
    let second = match test.place.backend {
        Backend::Sqlite => None,
        Backend::Postgres => Some(host(&test, "host-2", &clock, settings()).await),
    };
    let second = second.as_ref().unwrap_or(&first);
    // Its first slot is at 11:00.
    add(&test, "noop", None, &Policies::default()).await;
    first.at("10:34:00");
    assert_eq!(first.alerts("10:34:00").await, (0, 0));
    let now = first.at("10:40:00");
    first.engine.renew(now).await.unwrap();
    second.engine.renew(now).await.unwrap();
    let (one_changed, two_changed) = tokio::join!(
        first.engine.evaluate_alerts(now),
        second.engine.evaluate_alerts(now)
    );
    assert_eq!(one_changed.unwrap() + two_changed.unwrap(), 1);
    let (one_sent, two_sent) = tokio::join!(
        first.engine.deliver_alerts(now),
        second.engine.deliver_alerts(now)
    );
    assert_eq!(one_sent.unwrap() + two_sent.unwrap(), 2);
    assert_eq!(second.alerts("10:41:00").await, (0, 0));
    first.tick("11:00:00").await;
    assert_eq!(second.alerts("11:00:05").await, (1, 2));
    assert_eq!(first.alerts("11:00:10").await, (0, 0));
    for receiver in [&one, &two] {
        assert_eq!(receiver.received(), ["alert.firing 1", "alert.resolved 1"]);
        let requests = receiver.requests.lock().unwrap();
        for (headers, body) in requests.iter() {
            let signed = format!(
                "{}.{}.{body}",
                headers["webhook-id"], headers["webhook-timestamp"]
            );
            assert!(campanile_tests::is_signed(
                SECRET,
                &signed,
                &headers["webhook-signature"]
            ));
            // The former secret signs too.
            assert_eq!(headers["webhook-signature"].split(' ').count(), 2);
        }
        assert_ne!(requests[0].0["webhook-id"], requests[1].0["webhook-id"]);
    }
    let found = all_alerts(&test).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].status, AlertStatus::Resolved);
}

async fn a_message_is_repeated_with_the_same_content_until_it_is_received(test: TestDb) {
    let receiver = Receiver::start(&["503 Busy", "503 Busy"]).await;
    let channels = vec![("one", receiver.channel())];
    let settings = with_alerts(vec![no_success(&["one"])], channels);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, settings).await;
    add(&test, "noop", None, &Policies::default()).await;
    assert_eq!(host.alerts("10:50:00").await, (1, 1));
    assert_eq!(host.alerts("10:50:01").await, (0, 0));
    let failing = async |before: &str| {
        let mut tx = test.read().await;
        let failing = alert_messages::failing(&mut tx, clock_time(before), 10).await;
        failing.unwrap()
    };
    assert_eq!(failing("10:50:00").await, []);
    let [(channel, since, why)] = &failing("10:50:01").await[..] else {
        panic!("one channel fails");
    };
    assert_eq!((&**channel, *since), ("one", clock_time("10:50:00")));
    assert!(why.contains("503"), "{why}");
    // It is resolved before it is received: the second message waits for the first.
    host.tick("11:00:00").await;
    assert_eq!(host.alerts("11:00:01").await, (1, 1));
    assert_eq!(host.alerts("11:00:02").await, (0, 0));
    assert_eq!(host.alerts("11:04:00").await, (0, 1));
    assert_eq!(host.alerts("11:04:01").await, (0, 1));
    assert_eq!(failing("11:05:00").await, []);
    assert_eq!(
        receiver.received(),
        [
            "alert.firing 1",
            "alert.firing 1",
            "alert.firing 1",
            "alert.resolved 1"
        ]
    );
    let requests = receiver.requests.lock().unwrap();
    for (headers, body) in &requests[1..3] {
        assert_eq!(headers["webhook-id"], requests[0].0["webhook-id"]);
        assert_eq!(*body, requests[0].1);
    }
}

async fn alerts_of_a_rule_share_a_message(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let channel = Channel {
        group_wait: Duration::from_secs(10),
        ..receiver.channel()
    };
    let settings = with_alerts(vec![no_success(&["one"])], vec![("one", channel)]);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, settings).await;
    for number in 1..=3 {
        let name = format!("schedule-{number}");
        add_named(&test, (number, &name), ("noop", None), &Policies::default()).await;
    }
    assert_eq!(host.alerts("10:50:00").await, (3, 0));
    assert_eq!(host.alerts("10:50:10").await, (0, 1));
    assert_eq!(receiver.received(), ["alert.firing 3"]);
}

async fn the_recovery_is_sent_only_where_the_failure_was_sent(test: TestDb) {
    let (one, gone) = (
        Receiver::start(&[]).await,
        Receiver::start(&["410 Gone"]).await,
    );
    let channels = vec![("gone", gone.channel()), ("one", one.channel())];
    let settings = with_alerts(vec![no_success(&["gone", "one"])], channels);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, settings).await;
    add(&test, "noop", None, &Policies::default()).await;
    assert_eq!(host.alerts("10:50:00").await, (1, 2));
    host.tick("11:00:00").await;
    assert_eq!(host.alerts("11:00:01").await, (1, 1));
    assert_eq!(one.received(), ["alert.firing 1", "alert.resolved 1"]);
    assert_eq!(gone.received(), ["alert.firing 1"]);
}

async fn a_silence_holds_messages_back_until_it_ends(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let channels = vec![("one", receiver.channel())];
    let settings = with_alerts(vec![no_success(&["one"])], channels);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, settings).await;
    add(&test, "noop", None, &Policies::default()).await;
    let now = host.at("10:31:00");
    for (rule, subject, expected) in [
        (Some("dead-mam"), None, "did you mean `dead-man`?"),
        (None, Some("reprot"), "did you mean `report`?"),
        (None, Some("hots-1"), "did you mean `host-1`?"),
        (None, Some("nop"), "did you mean `noop`?"),
        (Some("x"), None, "`x*` silences it all the same"),
    ] {
        let wanted = WantedSilence {
            rule,
            subject,
            rules: &["dead-man"],
            note: None,
            span: Duration::from_secs(60),
            by: "ada",
        };
        let mut tx = test.write().await;
        let refused = alert_admin::silence(&mut tx, wanted, now).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    let wanted = WantedSilence {
        rule: Some("dead-*"),
        subject: None,
        rules: &["dead-man"],
        note: Some("maintenance"),
        span: Duration::from_secs(14 * 60),
        by: "ada",
    };
    let mut tx = test.write().await;
    let silence = alert_admin::silence(&mut tx, wanted, now).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(host.alerts("10:40:00").await, (1, 0));
    assert_eq!(all_alerts(&test).await[0].notified_at, None);
    assert_eq!(host.alerts("10:45:00").await, (1, 1));
    assert_eq!(receiver.received(), ["alert.firing 1"]);
    let mut tx = test.write().await;
    let ended = alert_admin::unsilence(&mut tx, silence.id, "ada", clock_time("10:46:00")).await;
    assert!(ended.is_err(), "it has ended by itself");
}

async fn the_policy_expect_within_fires_without_a_rule(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, with_alerts(vec![], vec![])).await;
    let policies = Policies {
        expect_within: Some(Duration::from_secs(60)),
        ..Policies::default()
    };
    add(&test, "noop", None, &policies).await;
    assert_eq!(host.alerts("11:00:30").await, (0, 0));
    // No host has decided the slot.
    assert_eq!(host.alerts("11:01:30").await, (1, 0));
    assert_eq!(all_alerts(&test).await[0].status, AlertStatus::Firing);
    host.tick("11:02:00").await;
    assert_eq!(host.alerts("11:02:30").await, (1, 0));
    assert_eq!(all_alerts(&test).await[0].status, AlertStatus::Resolved);
    assert_eq!(messages(&test).await, []);
}

async fn a_dead_host_is_missed_by_another(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let rule = Rule {
        name: "hosts".to_owned(),
        condition: Condition::HostSilent,
        ..no_success(&["one"])
    };
    let settings = || with_alerts(vec![rule.clone()], vec![("one", receiver.channel())]);
    let clock = Clock::simulated(clock_time("10:30:00"));
    // It dies before the other one starts, because one host serves a SQLite file.
    drop(host(&test, "host-1", &clock, settings()).await);
    let other = host(&test, "host-2", &clock, settings()).await;
    assert_eq!(other.alerts("10:30:10").await, (0, 0));
    let now = other.at("10:31:00");
    other.engine.renew(now).await.unwrap();
    let mut tx = test.write().await;
    let marked = hosts::mark_silent_dead(&mut tx, now).await.unwrap();
    assert_eq!(marked.len(), 1);
    tx.commit().await.unwrap();
    assert_eq!(other.alerts("10:31:10").await, (1, 1));
    drop(other);
    let back = host(&test, "host-1", &clock, settings()).await;
    assert_eq!(back.alerts("10:32:00").await, (1, 1));
    assert_eq!(receiver.received(), ["alert.firing 1", "alert.resolved 1"]);
}

async fn a_private_address_needs_private(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let channel = Channel {
        target: Target {
            private: false,
            ..receiver.target()
        },
        ..receiver.channel()
    };
    let settings = with_alerts(vec![no_success(&["one"])], vec![("one", channel)]);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, settings).await;
    add(&test, "noop", None, &Policies::default()).await;
    assert_eq!(host.alerts("10:50:00").await, (1, 1));
    assert_eq!(receiver.received(), Vec::<String>::new());
    let message = messages(&test).await.remove(0);
    assert_eq!(message.status, MessageStatus::Pending);
    let error = message.error.unwrap();
    assert!(error.contains("private = true"), "{error}");
}

async fn a_host_sends_its_heartbeat_only_while_it_works(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let mut settings = with_alerts(vec![], vec![]);
    settings.alerts.heartbeat = Some(Heartbeat {
        target: receiver.target(),
        interval: Duration::from_secs(60),
    });
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, settings).await;
    add(&test, "noop", None, &Policies::default()).await;
    host.tick("10:30:00").await;
    assert!(host.engine.ping(clock_time("10:30:00")).await.unwrap());
    // A slot that is undecided for a minute.
    let now = host.at("11:01:10");
    host.engine.renew(now).await.unwrap();
    assert!(!host.engine.ping(now).await.unwrap());
    host.tick("11:01:20").await;
    assert!(host.engine.ping(clock_time("11:01:20")).await.unwrap());
    // Its lease is not renewed.
    let now = host.at("11:10:00");
    assert!(!host.engine.ping(now).await.unwrap());
    assert_eq!(receiver.requests.lock().unwrap().len(), 2);
}

async fn an_operator_tries_a_channel_and_resolves_an_alert(test: TestDb) {
    let receiver = Receiver::start(&[]).await;
    let channels = vec![("one", receiver.channel())];
    let settings = with_alerts(vec![no_success(&[])], channels);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, settings).await;
    add(&test, "noop", None, &Policies::default()).await;
    let now = host.at("10:31:00");
    let mut tx = test.write().await;
    alert_admin::test(&mut tx, "one", Duration::from_secs(60), now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(host.alerts("10:31:00").await, (0, 1));
    assert_eq!(receiver.received(), ["alert.test 0"]);
    assert_eq!(host.alerts("10:40:00").await, (1, 0));
    let id = all_alerts(&test).await[0].id;
    let mut tx = test.write().await;
    let resolved = alert_admin::resolve(&mut tx, id, "ada", now).await.unwrap();
    assert_eq!(resolved.alert.status, AlertStatus::Resolved);
    assert!(alert_admin::resolve(&mut tx, id, "ada", now).await.is_err());
    assert!(alert_admin::find(&mut tx, AlertId::LAST).await.is_err());
}
