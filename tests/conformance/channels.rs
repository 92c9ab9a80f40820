//! Channels that get e-mails, and the pings of runs.

use std::collections::BTreeMap;
use std::time::Duration;

use campanile_control::rules::alert_rule::{
    Channel, ChannelTemplate, MailSettings, Ping, Target, Value,
};
use campanile_control::settings::Settings;
use campanile_model::clock::Clock;
use campanile_model::ids::RunId;
use campanile_schedule::policy::Policies;
use campanile_store::alert_messages::MessageStatus;
use campanile_tests::mail_server::{Encryption, MailServer};
use campanile_tests::receiver::receiver;
use campanile_tests::{TestDb, on_both};

use crate::alerts::{host, messages, no_success, with_alerts};
use crate::host_steps::{add, add_named, clock_time, tick_all};
use crate::serving;

on_both!(
    a_mail_is_delivered_again_until_its_server_accepts_it,
    a_mail_that_its_server_refuses_says_why,
    a_monitor_is_told_the_start_and_the_end_of_each_run,
);

fn channel(server: &MailServer, to: &str) -> Channel {
    Channel {
        template: ChannelTemplate::Email,
        target: Target {
            url: Value::Plain(format!("smtp://127.0.0.1:{}", server.port)),
            private: true,
        },
        signing_secrets: Vec::new(),
        headers: BTreeMap::new(),
        group_wait: Duration::ZERO,
        mail: Some(MailSettings {
            from: "Campanile <campanile@example.com>".to_owned(),
            to: vec!["ops@example.com".to_owned(), to.to_owned()],
            login: None,
        }),
    }
}

fn mailing(server: &MailServer, to: &str) -> Settings {
    with_alerts(
        vec![no_success(&["mail"])],
        vec![("mail", channel(server, to))],
    )
}

async fn a_mail_is_delivered_again_until_its_server_accepts_it(test: TestDb) {
    let server = MailServer::start(Encryption::None, 1);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let host = host(&test, "host-1", &clock, mailing(&server, "b@example.com")).await;
    add(&test, "noop", None, &Policies::default()).await;
    assert_eq!(host.alerts("10:50:00").await, (1, 1));
    let message = messages(&test).await.remove(0);
    assert_eq!(
        (message.status, message.answer),
        (MessageStatus::Pending, Some(451))
    );
    assert_eq!(host.alerts("10:51:00").await, (0, 1));
    host.tick("11:00:00").await;
    assert_eq!(host.alerts("11:00:05").await, (1, 1));
    let mails = server.mails();
    let subjects: Vec<_> = mails.iter().map(|mail| mail.header("Subject")).collect();
    assert_eq!(
        subjects,
        [
            Some("Campanile: dead-man: 1 alert firing"),
            Some("Campanile: dead-man: 1 alert resolved")
        ]
    );
    for mail in &mails {
        assert_eq!(mail.to, ["ops@example.com", "b@example.com"]);
        assert_eq!(
            mail.header("From"),
            Some("Campanile <campanile@example.com>")
        );
        assert_eq!(mail.header("Auto-Submitted"), Some("auto-generated"));
        assert!(mail.data.contains("critical: "), "{}", mail.data);
        assert!(mail.data.contains("`report`"), "{}", mail.data);
    }
    let id = format!("<{}@example.com>", message.id);
    assert_eq!(mails[0].header("Message-ID"), Some(id.as_str()));
    assert_ne!(mails[1].header("Message-ID"), Some(id.as_str()));
}

async fn a_mail_that_its_server_refuses_says_why(test: TestDb) {
    let server = MailServer::start(Encryption::None, 0);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let settings = mailing(&server, "nobody@example.com");
    let host = host(&test, "host-1", &clock, settings).await;
    add(&test, "noop", None, &Policies::default()).await;
    assert_eq!(host.alerts("10:50:00").await, (1, 1));
    let message = messages(&test).await.remove(0);
    assert_eq!(
        (message.status, message.answer),
        (MessageStatus::Pending, Some(550))
    );
    let error = message.error.unwrap();
    assert!(error.contains("there is no such person"), "{error}");
    assert_eq!(server.mails().len(), 0);
}

async fn a_monitor_is_told_the_start_and_the_end_of_each_run(test: TestDb) {
    let (port, received) = receiver(&[]);
    let mut settings = serving::settings(8);
    settings.alerts.pings = vec![Ping {
        schedule: "report-*".parse().unwrap(),
        target: Target {
            url: Value::Plain(format!(
                "http://127.0.0.1:{port}/ping/{{schedule}}?create=1"
            )),
            private: true,
        },
    }];
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, _lock) = serving::start(&test, &clock, settings, serving::GUESTS).await;
    for (number, name, task) in [
        (1, "report-a", "ok"),
        (2, "report-b", "fail_permanent"),
        (3, "other", "ok"),
    ] {
        let package = ("guests", Some(task));
        add_named(&test, (number, name), package, &Policies::default()).await;
    }
    clock.advance_to(clock_time("11:00:00"));
    tick_all(&engine, clock_time("11:00:00")).await;
    engine.send_pings().await;
    let mut heard: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while let Ok(request) = received.try_recv() {
        let line = request.head.lines().next().unwrap().to_owned();
        let path = line
            .trim_start_matches("post /ping/")
            .trim_end_matches(" http/1.1");
        let (stage, run) = path.split_once("?create=1&rid=").unwrap();
        assert!(run.parse::<RunId>().is_ok(), "{run}");
        let body = String::from_utf8(request.body).unwrap();
        heard
            .entry(run.to_owned())
            .or_default()
            .push(format!("{stage} {body}"));
    }
    let mut heard: Vec<Vec<String>> = heard.into_values().collect();
    heard.sort();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert_eq!(heard[0], ["report-a/start ", "report-a "]);
    assert_eq!(heard[1][0], "report-b/start ");
    assert!(
        heard[1][1].starts_with("report-b/fail failed: "),
        "{heard:?}"
    );
}
