//! A host on a simulated clock, with one schedule.

use std::sync::Arc;

use campanile_control::admin::schedule_admin;
use campanile_control::reports::why::{Finding, why};
use campanile_engine::{Engine, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{HashKey, Rule, RuleKind, RuleText, tzdata_version};
use campanile_store::launch::{self, Finish, RunEnd};
use campanile_store::schedules::{Pause, Revision};
use campanile_store::{HostLock, Origin};
use campanile_tests::TestDb;

use crate::fixtures::{insert_schedule, schedule_id};
use crate::serving::{GUESTS, settings, start};

/// A host whose clock starts on Monday, 2026-05-04, at 10:00 UTC.
pub struct TestHost {
    pub test: TestDb,
    pub clock: Clock,
    pub engine: Arc<Engine>,
    _lock: HostLock,
}

/// Return the time `10:05` or `10:05:30` on 2026-05-04.
pub fn clock_time(text: &str) -> Timestamp {
    let seconds = if text.len() == 5 { ":00" } else { "" };
    format!("2026-05-04T{text}{seconds}Z").parse().unwrap()
}

pub fn cron(expression: &str) -> RuleText {
    RuleText::new(RuleKind::Cron, expression, "UTC")
}

impl TestHost {
    pub async fn new(test: TestDb) -> TestHost {
        let clock = Clock::simulated(clock_time("10:00"));
        let (engine, lock) = start(&test, &clock, settings(8), GUESTS).await;
        TestHost {
            test,
            clock,
            engine,
            _lock: lock,
        }
    }

    /// Add the schedule `report`, which calls the task `ok`.
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
            name: "report".to_owned(),
            package: "guests".to_owned(),
            task: Some(task.to_owned()),
            rule,
            policies: serde_json::to_string(&policies).unwrap(),
            defaults: "{}".to_owned(),
            args: None,
            context: r#"{"retry_after_ms": 10000}"#.to_owned(),
            since: now,
        };
        let mut tx = self.test.write().await;
        insert_schedule(&mut tx, &definition, Origin::Operator, next)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Advance the clock and tick the host.
    pub async fn tick_at(&self, text: &str) {
        self.clock.advance_to(clock_time(text));
        self.engine.renew(clock_time(text)).await.unwrap();
        self.engine.tick(clock_time(text)).await.unwrap();
    }

    /// Advance the clock and decide slots, without claiming launches.
    pub async fn decide(&self, text: &str) {
        self.clock.advance_to(clock_time(text));
        self.engine.decide(clock_time(text)).await.unwrap();
    }

    /// Decide slots and claim their launches, without executing the runs.
    pub async fn decide_and_claim(&self, text: &str) -> Vec<Work> {
        self.decide(text).await;
        self.engine.claim(clock_time(text)).await.unwrap()
    }

    /// Finish a claimed run with a success.
    pub async fn finish(&self, work: &Work, text: &str) {
        self.clock.advance_to(clock_time(text));
        let finish = Finish {
            run_id: work.run_id(),
            fence: work.fence(),
            schedule_id: work.launch.schedule_id,
            scheduled_time: work.launch.scheduled_time,
            at: clock_time(text),
            end: RunEnd::Succeeded { output: None },
            tasks: Vec::new(),
        };
        let mut tx = self.test.write().await;
        assert_eq!(launch::finish(&mut tx, &[finish]).await.unwrap().len(), 1);
        tx.commit().await.unwrap();
    }

    pub async fn pause(&self, text: &str, note: Option<&str>, until: Option<&str>) {
        self.clock.advance_to(clock_time(text));
        let pause = Pause {
            by: "ada",
            note,
            until: until.map(clock_time),
        };
        let mut tx = self.test.write().await;
        schedule_admin::pause(&mut tx, "report", pause, clock_time(text))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    pub async fn resume(&self, text: &str) {
        self.clock.advance_to(clock_time(text));
        let mut tx = self.test.write().await;
        schedule_admin::resume(&mut tx, "report", "ben", false, clock_time(text))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Require the findings about `report`, one line each.
    pub async fn assert_why(&self, at: Option<&str>, expected: &str) {
        self.assert_why_of("report", at, expected).await;
    }

    /// Require the findings about the schedule `name`, one line each.
    pub async fn assert_why_of(&self, name: &str, at: Option<&str>, expected: &str) {
        let mut tx = self.test.read().await;
        let when = at.map(|at| at.parse().unwrap());
        let answer = why(&mut tx, name, when, self.clock.now()).await.unwrap();
        let lines: Vec<String> = answer.findings.iter().map(line).collect();
        let found = lines.join("\n");
        let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(found, expected.join("\n"), "\n{found}\n");
    }
}

/// Return a finding as `kind, time: text`.
fn line(finding: &Finding) -> String {
    let at = finding.at.map_or_else(String::new, |at| format!(", {at}"));
    let text = without_ids(&finding.text).replace(tzdata_version(), "<tzdata>");
    format!("{}{at}: {text}", finding.kind)
}

/// Return the text with `<id>` for each id.
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
