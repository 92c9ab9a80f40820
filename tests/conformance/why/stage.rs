//! The stage of a play: a host on a simulated clock, with one schedule.

use std::sync::Arc;

use campanile_engine::schedule_admin;
use campanile_engine::why::{Finding, why};
use campanile_engine::{Engine, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{HashKey, Rule, RuleKind, RuleText, tzdata_version};
use campanile_store::runs::{self, Finish, RunEnd};
use campanile_store::schedules::{self, Pause, Revision};
use campanile_store::{HostLock, Origin};
use campanile_tests::TestDb;

use crate::fixtures::schedule_id;
use crate::serving::{GUESTS, settings, start};

/// A host in the morning of a Monday.
pub struct Stage {
    pub test: TestDb,
    pub clock: Clock,
    pub engine: Arc<Engine>,
    _lock: HostLock,
}

/// On the morning of the play, `10:05` or `10:05:30`.
pub fn time(text: &str) -> Timestamp {
    let seconds = if text.len() == 5 { ":00" } else { "" };
    format!("2026-05-04T{text}{seconds}Z").parse().unwrap()
}

pub fn cron(expression: &str) -> RuleText {
    RuleText::new(RuleKind::Cron, expression, "UTC")
}

impl Stage {
    pub async fn new(test: TestDb) -> Stage {
        let clock = Clock::simulated(time("10:00"));
        let (engine, lock) = start(&test, &clock, settings(8), GUESTS).await;
        Stage {
            test,
            clock,
            engine,
            _lock: lock,
        }
    }

    /// Add the schedule `bell`, which calls the task `ok`.
    pub async fn add(&self, rule: RuleText, policies: Policies) {
        self.add_calling("ok", rule, policies).await;
    }

    pub async fn add_calling(&self, task: &str, rule: RuleText, policies: Policies) {
        let id = schedule_id(1);
        let now = self.clock.now();
        let parsed = Rule::parse(&rule, HashKey::of(id)).unwrap();
        let next = policies.next_slot(&parsed, now, 0);
        let definition = Revision {
            schedule_id: id,
            revision: 1,
            name: "bell".to_owned(),
            package: "guests".to_owned(),
            task: Some(task.to_owned()),
            rule,
            policies: serde_json::to_string(&policies).unwrap(),
            context: r#"{"retry_after_ms": 10000}"#.to_owned(),
            since: now,
        };
        let mut tx = self.test.write().await;
        schedules::insert(&mut tx, &definition, Origin::Operator, next)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Let everything happen that is to happen by then.
    pub async fn pass_to(&self, text: &str) {
        self.clock.advance_to(time(text));
        self.engine.renew(time(text)).await.unwrap();
        self.engine.tick(time(text)).await.unwrap();
    }

    /// Decide slots, and claim nothing.
    pub async fn decide(&self, text: &str) {
        self.clock.advance_to(time(text));
        self.engine.decide(time(text)).await.unwrap();
    }

    /// Decide and claim slots, by a host that then is silent.
    pub async fn begin(&self, text: &str) -> Vec<Work> {
        self.decide(text).await;
        self.engine.claim(time(text)).await.unwrap()
    }

    /// Let a started run succeed.
    pub async fn end(&self, work: &Work, text: &str) {
        self.clock.advance_to(time(text));
        let finish = Finish {
            run_id: work.run_id,
            fence: work.fence,
            launch_id: work.launch.launch_id,
            schedule_id: work.launch.schedule_id,
            scheduled_time: work.launch.scheduled_time,
            at: time(text),
            end: RunEnd::Succeeded { output: None },
            tasks: Vec::new(),
        };
        let mut tx = self.test.write().await;
        assert_eq!(runs::finish(&mut tx, &[finish]).await.unwrap().len(), 1);
        tx.commit().await.unwrap();
    }

    pub async fn pause(&self, text: &str, note: Option<&str>, until: Option<&str>) {
        self.clock.advance_to(time(text));
        let pause = Pause {
            by: "ada",
            note,
            until: until.map(time),
        };
        let mut tx = self.test.write().await;
        schedule_admin::pause(&mut tx, "bell", pause, time(text))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    pub async fn resume(&self, text: &str) {
        self.clock.advance_to(time(text));
        let mut tx = self.test.write().await;
        schedule_admin::resume(&mut tx, "bell", "ben", false, time(text))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Require the answer for `bell`, a line for each finding.
    pub async fn tells(&self, at: Option<&str>, expected: &str) {
        self.tells_of("bell", at, expected).await;
    }

    pub async fn tells_of(&self, name: &str, at: Option<&str>, expected: &str) {
        let mut tx = self.test.read().await;
        let when = at.map(|at| at.parse().unwrap());
        let answer = why(&mut tx, name, when, self.clock.now()).await.unwrap();
        let lines: Vec<String> = answer.findings.iter().map(line).collect();
        let told = lines.join("\n");
        let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(told, expected.join("\n"), "\n{told}\n");
    }
}

/// `kind, time: text`.
fn line(finding: &Finding) -> String {
    let at = finding.at.map_or_else(String::new, |at| format!(", {at}"));
    let text = without_ids(&finding.text).replace(tzdata_version(), "<tzdata>");
    format!("{}{at}: {text}", finding.kind)
}

/// The text with `<id>` for each id.
fn without_ids(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let id = word.trim_matches(['(', ')', ',', ':', ';']);
        match uuid::Uuid::parse_str(id) {
            Ok(_) => word.replace(id, "<id>"),
            Err(_) => word.to_owned(),
        }
    });
    words.collect::<Vec<String>>().join(" ")
}
