//! Overlapping launches: queued and displaced launches and the launch count, on a simulated clock.

use std::time::Duration;

use campanile_control::admin::schedule_admin::{self, Trigger};
use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::policy::{Keep, Overlap, OverlapDecision, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::launch::{self, LaunchRow, RunEnd};
use campanile_store::schedules::{self, Revision};
use campanile_store::{Origin, Tx};
use campanile_tests::{TestDb, on_both};

use crate::any_sequence::host::{self, LiveHost, finish};
use crate::fixtures::{at, insert_schedule, revision, schedule_id};

on_both!(
    a_launch_that_must_run_alone_waits_until_no_other_is_active,
    an_after_completion_schedule_continues_after_a_launch_that_is_skipped_at_its_fire_time,
    a_launch_that_is_skipped_at_its_fire_time_does_not_count,
    a_displaced_queued_launch_does_not_count,
    a_cancelled_launch_counts_only_if_it_has_started,
);

/// A host and the schedule `schedule-1`, which is due every minute unless a test sets another rule.
pub struct TestHost {
    pub test: TestDb,
    pub clock: Clock,
    pub live_host: LiveHost,
}

impl TestHost {
    pub async fn new(test: TestDb, policies: Policies) -> TestHost {
        let rule = RuleText {
            anchor: Some(at(0)),
            ..RuleText::new(RuleKind::Every, "60s", "UTC")
        };
        TestHost::with_rule(test, rule, policies, at(60)).await
    }

    async fn with_rule(
        test: TestDb,
        rule: RuleText,
        policies: Policies,
        next: Timestamp,
    ) -> TestHost {
        let clock = Clock::simulated(at(0));
        let live_host = host::start(&test, &clock, &host::loader(&clock), "host-1").await;
        let definition = Revision {
            rule,
            policies: serde_json::to_string(&policies).unwrap(),
            ..revision(1)
        };
        let mut tx = test.write().await;
        insert_schedule(&mut tx, &definition, Origin::Operator, Some(next))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        TestHost {
            test,
            clock,
            live_host,
        }
    }

    /// Decide the slots that are due at `now`, and claim no launch.
    pub async fn decide(&self, now: Timestamp) {
        self.clock.advance_to(now);
        self.live_host.engine.renew(now).await.unwrap();
        while self.live_host.engine.decide(now).await.unwrap().more {}
        self.live_host.engine.release(now).await.unwrap();
    }

    /// Decide the slots that are due at `now`, and claim the open launches.
    pub async fn decide_and_claim(&mut self, now: Timestamp) {
        self.decide(now).await;
        for work in self.live_host.engine.claim(now).await.unwrap() {
            let stop = self.live_host.engine.track(&work);
            // A run without a call would be handed back at the end of its lease.
            assert!(
                self.live_host
                    .engine
                    .begin_call(work.run_id(), work.fence())
            );
            self.live_host.claimed.push((work, stop));
        }
    }

    /// Finish the earliest claimed run with a success.
    pub async fn finish_first_run(&mut self) {
        let (work, _) = self.live_host.claimed.remove(0);
        let end = RunEnd::Succeeded { output: None };
        let end = finish(&work, end, self.clock.now());
        assert_eq!(self.live_host.engine.finish(&[end]).await.unwrap(), 1);
        self.live_host.engine.untrack(work.run_id(), work.fence());
    }

    pub async fn trigger(&self, overlap: Option<Overlap>) -> OverlapDecision {
        let trigger = Trigger {
            overlap,
            ..Trigger::default()
        };
        let mut tx = self.test.write().await;
        let triggered =
            schedule_admin::trigger(&mut tx, "schedule-1", trigger, self.clock.now()).await;
        tx.commit().await.unwrap();
        triggered.unwrap().decision
    }

    pub async fn rows(&self) -> Vec<LaunchRow> {
        let mut tx: Tx = self.test.read().await;
        let mut rows = launch::list(&mut tx, None, 100).await.unwrap();
        rows.sort_by_key(|row| row.scheduled_time);
        rows
    }

    /// Return kind and status of every launch in slot order, such as `schedule running, manual queued`.
    pub async fn statuses(&self) -> String {
        let rows = self.rows().await;
        let statuses = rows
            .iter()
            .map(|row| format!("{} {}", row.kind, row.status));
        statuses.collect::<Vec<String>>().join(", ")
    }

    /// Return the launch count and the next slot.
    pub async fn launch_count_and_next_slot(&self) -> (i64, Option<Timestamp>) {
        let mut tx = self.test.read().await;
        let state = schedules::state(&mut tx, schedule_id(1)).await.unwrap();
        let state = state.unwrap();
        (state.history.launches, state.next_slot)
    }
}

async fn a_launch_that_must_run_alone_waits_until_no_other_is_active(test: TestDb) {
    let policies = Policies {
        overlap: Overlap::Allow,
        ..Policies::default()
    };
    let mut host = TestHost::new(test, policies).await;
    host.decide_and_claim(at(60)).await;
    host.clock.advance_to(at(70));
    assert_eq!(
        host.trigger(Some(Overlap::BufferOne)).await,
        OverlapDecision::Queue
    );
    // It delays no other launch.
    host.decide_and_claim(at(120)).await;
    let both_run = "schedule running, manual queued, schedule running";
    assert_eq!(host.statuses().await, both_run);
    host.finish_first_run().await;
    host.decide_and_claim(at(130)).await;
    let one_runs = "schedule succeeded, manual queued, schedule running";
    assert_eq!(host.statuses().await, one_runs);
    host.finish_first_run().await;
    host.decide_and_claim(at(140)).await;
    let manual_runs = "schedule succeeded, manual running, schedule succeeded";
    assert_eq!(host.statuses().await, manual_runs);
    // A trigger without a policy uses the schedule's policy.
    assert_eq!(host.trigger(None).await, OverlapDecision::Start);
}

async fn an_after_completion_schedule_continues_after_a_launch_that_is_skipped_at_its_fire_time(
    test: TestDb,
) {
    let rule = RuleText::new(RuleKind::AfterCompletion, "60s", "UTC");
    let policies = Policies {
        jitter: Some(Duration::from_secs(30)),
        ..Policies::default()
    };
    let mut host = TestHost::with_rule(test, rule, policies, at(10)).await;
    host.decide_and_claim(at(10)).await;
    assert_eq!(host.statuses().await, "schedule queued");
    let fire_time = host.rows().await[0].fire_time;
    assert_eq!(host.launch_count_and_next_slot().await, (1, None));
    assert_eq!(
        host.trigger(Some(Overlap::Allow)).await,
        OverlapDecision::Start
    );
    host.decide_and_claim(fire_time).await;
    let rows = host.rows().await;
    let skipped = rows.iter().find(|row| row.reason.is_some()).unwrap();
    assert_eq!(skipped.reason.as_deref(), Some("overlap"));
    let next = fire_time.plus(Duration::from_secs(60));
    assert_eq!(host.launch_count_and_next_slot().await, (0, Some(next)));
}

async fn a_launch_that_is_skipped_at_its_fire_time_does_not_count(test: TestDb) {
    let policies = Policies {
        jitter: Some(Duration::from_secs(30)),
        max_launches: Some(1),
        ..Policies::default()
    };
    let mut host = TestHost::new(test, policies).await;
    host.decide_and_claim(at(60)).await;
    assert_eq!(host.launch_count_and_next_slot().await, (1, None));
    let fire_time = host.rows().await[0].fire_time;
    assert_eq!(
        host.trigger(Some(Overlap::Allow)).await,
        OverlapDecision::Start
    );
    host.decide_and_claim(fire_time).await;
    assert_eq!(host.launch_count_and_next_slot().await, (0, Some(at(120))));
    // The schedule may have one more launch: the next slot.
    host.finish_first_run().await;
    host.decide_and_claim(at(120)).await;
    host.decide_and_claim(at(150)).await;
    assert_eq!(host.launch_count_and_next_slot().await, (1, None));
    let newest = host.rows().await.pop().unwrap();
    assert_eq!(
        (newest.scheduled_time, newest.status.as_str()),
        (at(120), "running")
    );
}

async fn a_displaced_queued_launch_does_not_count(test: TestDb) {
    let policies = Policies {
        overlap: Overlap::BufferOne,
        keep: Some(Keep::Latest),
        max_launches: Some(2),
        ..Policies::default()
    };
    let mut host = TestHost::new(test, policies).await;
    host.decide_and_claim(at(60)).await;
    host.decide_and_claim(at(120)).await;
    assert_eq!(host.statuses().await, "schedule running, schedule queued");
    assert_eq!(host.launch_count_and_next_slot().await, (2, None));
    host.clock.advance_to(at(130));
    assert_eq!(host.trigger(None).await, OverlapDecision::Queue);
    let displaced = "schedule running, schedule skipped, manual queued";
    assert_eq!(host.statuses().await, displaced);
    assert_eq!(host.launch_count_and_next_slot().await, (1, Some(at(180))));
    // A manual launch counts neither when it starts nor when it is displaced.
    host.decide_and_claim(at(180)).await;
    let replaced = "schedule running, schedule skipped, manual skipped, schedule queued";
    assert_eq!(host.statuses().await, replaced);
    assert_eq!(host.launch_count_and_next_slot().await, (2, None));
}

async fn a_cancelled_launch_counts_only_if_it_has_started(test: TestDb) {
    let policies = Policies {
        overlap: Overlap::TerminateOther,
        max_launches: Some(1),
        ..Policies::default()
    };
    let mut host = TestHost::new(test, policies).await;
    host.decide(at(60)).await;
    assert_eq!(host.launch_count_and_next_slot().await, (1, None));
    host.clock.advance_to(at(70));
    assert_eq!(host.trigger(None).await, OverlapDecision::Start);
    assert_eq!(host.statuses().await, "schedule skipped, manual open");
    assert_eq!(host.launch_count_and_next_slot().await, (0, Some(at(120))));
    host.decide_and_claim(at(120)).await;
    host.clock.advance_to(at(130));
    assert_eq!(host.trigger(None).await, OverlapDecision::Start);
    let cancelled = "schedule skipped, manual skipped, schedule cancelled, manual open";
    assert_eq!(host.statuses().await, cancelled);
    assert_eq!(host.launch_count_and_next_slot().await, (1, None));
}
