//! Launches that overlap: queued, displaced, and how they count, with a host that decides on a simulated clock.

use std::time::Duration;

use campanile_engine::schedule_admin::{self, Trigger};
use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::policy::{Keep, Overlap, OverlapDecision, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::launches::{self, LaunchRow};
use campanile_store::runs::RunEnd;
use campanile_store::schedules::{self, Revision};
use campanile_store::{Origin, Tx};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{at, revision, schedule_id};
use crate::sim::host::{self, LiveHost, finish};

on_both!(
    a_launch_that_must_run_alone_waits_until_none_is_active,
    an_after_completion_schedule_continues_after_a_launch_that_was_skipped_as_it_fired,
    a_launch_that_is_skipped_as_it_fires_does_not_count,
    a_queued_launch_that_is_displaced_does_not_count,
    a_cancelled_launch_counts_if_it_had_started,
);

/// A host, and the schedule `bell-1`, of every minute unless another rule is given.
struct Stage {
    test: TestDb,
    clock: Clock,
    host: LiveHost,
}

impl Stage {
    async fn new(test: TestDb, policies: Policies) -> Stage {
        let rule = RuleText {
            anchor: Some(at(0)),
            ..RuleText::new(RuleKind::Every, "60s", "UTC")
        };
        Stage::with_rule(test, rule, policies, at(60)).await
    }

    async fn with_rule(test: TestDb, rule: RuleText, policies: Policies, next: Timestamp) -> Stage {
        let clock = Clock::simulated(at(0));
        let host = host::start(&test, &clock, &host::sandbox(&clock), "tower").await;
        let definition = Revision {
            rule,
            policies: serde_json::to_string(&policies).unwrap(),
            ..revision(1)
        };
        let mut tx = test.write().await;
        schedules::insert(&mut tx, &definition, Origin::Operator, Some(next))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        Stage { test, clock, host }
    }

    /// Decide what is due by then, and claim nothing.
    async fn decide(&self, now: Timestamp) {
        self.clock.advance_to(now);
        self.host.engine.renew(now).await.unwrap();
        while self.host.engine.decide(now).await.unwrap().more {}
        self.host.engine.release(now).await.unwrap();
    }

    /// Decide and start what is due by then.
    async fn pass_to(&mut self, now: Timestamp) {
        self.decide(now).await;
        for work in self.host.engine.claim(now).await.unwrap() {
            let stop = self.host.engine.track(&work);
            self.host.held.push((work, stop));
        }
    }

    /// Let the run that started first succeed.
    async fn end_first(&mut self) {
        let (work, _) = self.host.held.remove(0);
        let end = RunEnd::Succeeded { output: None };
        let end = finish(&work, end, self.clock.now());
        assert_eq!(self.host.engine.finish(&[end]).await.unwrap(), 1);
        self.host.engine.untrack(work.run_id, work.fence);
    }

    async fn trigger(&self, overlap: Option<Overlap>) -> OverlapDecision {
        let trigger = Trigger {
            overlap,
            ..Trigger::default()
        };
        let mut tx = self.test.write().await;
        let triggered = schedule_admin::trigger(&mut tx, "bell-1", trigger, self.clock.now()).await;
        tx.commit().await.unwrap();
        triggered.unwrap().turn
    }

    async fn rows(&self) -> Vec<LaunchRow> {
        let mut tx: Tx = self.test.read().await;
        let mut rows = launches::list(&mut tx, None, 100).await.unwrap();
        rows.sort_by_key(|row| row.scheduled_time);
        rows
    }

    /// Return every launch, by its slot: `schedule running, manual queued`.
    async fn shown(&self) -> String {
        let rows = self.rows().await;
        let shown = rows
            .iter()
            .map(|row| format!("{} {}", row.kind, row.status));
        shown.collect::<Vec<String>>().join(", ")
    }

    /// Return the launch count and the next slot.
    async fn standing(&self) -> (i64, Option<Timestamp>) {
        let mut tx = self.test.read().await;
        let state = schedules::state(&mut tx, schedule_id(1)).await.unwrap();
        let state = state.unwrap();
        (state.history.launches, state.next_slot)
    }
}

async fn a_launch_that_must_run_alone_waits_until_none_is_active(test: TestDb) {
    let policies = Policies {
        overlap: Overlap::Allow,
        ..Policies::default()
    };
    let mut stage = Stage::new(test, policies).await;
    stage.pass_to(at(60)).await;
    stage.clock.advance_to(at(70));
    assert_eq!(
        stage.trigger(Some(Overlap::BufferOne)).await,
        OverlapDecision::Queue
    );
    // It delays no other launch.
    stage.pass_to(at(120)).await;
    let both_run = "schedule running, manual queued, schedule running";
    assert_eq!(stage.shown().await, both_run);
    stage.end_first().await;
    stage.pass_to(at(130)).await;
    let one_runs = "schedule succeeded, manual queued, schedule running";
    assert_eq!(stage.shown().await, one_runs);
    stage.end_first().await;
    stage.pass_to(at(140)).await;
    let its_turn = "schedule succeeded, manual running, schedule succeeded";
    assert_eq!(stage.shown().await, its_turn);
    // A trigger without a policy uses the schedule's policy.
    assert_eq!(stage.trigger(None).await, OverlapDecision::Start);
}

async fn an_after_completion_schedule_continues_after_a_launch_that_was_skipped_as_it_fired(
    test: TestDb,
) {
    let rule = RuleText::new(RuleKind::AfterCompletion, "60s", "UTC");
    let policies = Policies {
        jitter: Some(Duration::from_secs(30)),
        ..Policies::default()
    };
    let mut stage = Stage::with_rule(test, rule, policies, at(10)).await;
    stage.pass_to(at(10)).await;
    assert_eq!(stage.shown().await, "schedule queued");
    let fires = stage.rows().await[0].fire_time;
    assert_eq!(stage.standing().await, (1, None));
    assert_eq!(
        stage.trigger(Some(Overlap::Allow)).await,
        OverlapDecision::Start
    );
    stage.pass_to(fires).await;
    let rows = stage.rows().await;
    let skipped = rows.iter().find(|row| row.reason.is_some()).unwrap();
    assert_eq!(skipped.reason.as_deref(), Some("overlap"));
    let next = fires.plus(Duration::from_secs(60));
    assert_eq!(stage.standing().await, (0, Some(next)));
}

async fn a_launch_that_is_skipped_as_it_fires_does_not_count(test: TestDb) {
    let policies = Policies {
        jitter: Some(Duration::from_secs(30)),
        max_launches: Some(1),
        ..Policies::default()
    };
    let mut stage = Stage::new(test, policies).await;
    stage.pass_to(at(60)).await;
    assert_eq!(stage.standing().await, (1, None));
    let fires = stage.rows().await[0].fire_time;
    assert_eq!(
        stage.trigger(Some(Overlap::Allow)).await,
        OverlapDecision::Start
    );
    stage.pass_to(fires).await;
    assert_eq!(stage.standing().await, (0, Some(at(120))));
    // The schedule may have one more launch: the next slot.
    stage.end_first().await;
    stage.pass_to(at(120)).await;
    stage.pass_to(at(150)).await;
    assert_eq!(stage.standing().await, (1, None));
    let newest = stage.rows().await.pop().unwrap();
    assert_eq!(
        (newest.scheduled_time, newest.status.as_str()),
        (at(120), "running")
    );
}

async fn a_queued_launch_that_is_displaced_does_not_count(test: TestDb) {
    let policies = Policies {
        overlap: Overlap::BufferOne,
        keep: Some(Keep::Latest),
        max_launches: Some(2),
        ..Policies::default()
    };
    let mut stage = Stage::new(test, policies).await;
    stage.pass_to(at(60)).await;
    stage.pass_to(at(120)).await;
    assert_eq!(stage.shown().await, "schedule running, schedule queued");
    assert_eq!(stage.standing().await, (2, None));
    stage.clock.advance_to(at(130));
    assert_eq!(stage.trigger(None).await, OverlapDecision::Queue);
    let displaced = "schedule running, schedule skipped, manual queued";
    assert_eq!(stage.shown().await, displaced);
    assert_eq!(stage.standing().await, (1, Some(at(180))));
    // A manual launch counts neither when it starts nor when it is displaced.
    stage.pass_to(at(180)).await;
    let replaced = "schedule running, schedule skipped, manual skipped, schedule queued";
    assert_eq!(stage.shown().await, replaced);
    assert_eq!(stage.standing().await, (2, None));
}

async fn a_cancelled_launch_counts_if_it_had_started(test: TestDb) {
    let policies = Policies {
        overlap: Overlap::TerminateOther,
        max_launches: Some(1),
        ..Policies::default()
    };
    let mut stage = Stage::new(test, policies).await;
    stage.decide(at(60)).await;
    assert_eq!(stage.standing().await, (1, None));
    stage.clock.advance_to(at(70));
    assert_eq!(stage.trigger(None).await, OverlapDecision::Start);
    assert_eq!(stage.shown().await, "schedule skipped, manual open");
    assert_eq!(stage.standing().await, (0, Some(at(120))));
    stage.pass_to(at(120)).await;
    stage.clock.advance_to(at(130));
    assert_eq!(stage.trigger(None).await, OverlapDecision::Start);
    let begun = "schedule skipped, manual skipped, schedule cancelled, manual open";
    assert_eq!(stage.shown().await, begun);
    assert_eq!(stage.standing().await, (1, None));
}
