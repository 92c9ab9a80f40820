//! Steps of a host that need more than one transaction.

use campanile_engine::{Engine, Tick, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{HashKey, Rule, RuleKind, RuleText};
use campanile_store::launch::{self, RunEnd};
use campanile_store::schedules::{self, Revision};
use campanile_store::task_runs::{self, TaskRun};
use campanile_store::{FailureKind, LaunchStatus, Origin, probe};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{insert_schedule, schedule_id};
use crate::serving::{self, GUESTS, Guest, settings};

on_both!(
    a_lost_run_counts_only_for_the_tasks_that_it_may_have_called,
    a_failed_automatic_pause_does_not_fail_the_finish,
);

const DIAMOND: Guest = ("diamond", include_bytes!("../guests/diamond.wasm"));

pub fn clock_time(text: &str) -> Timestamp {
    format!("2026-05-04T{text}Z").parse().unwrap()
}

/// Add the schedule `report` of `package`, which is due every hour.
pub async fn add(test: &TestDb, package: &str, task: Option<&str>, policies: &Policies) {
    add_named(test, (1, "report"), (package, task), policies).await;
}

/// The same with the number and the name of the schedule.
pub async fn add_named(
    test: &TestDb,
    (number, name): (u128, &str),
    (package, task): (&str, Option<&str>),
    policies: &Policies,
) {
    let rule = RuleText::new(RuleKind::Cron, "0 * * * *", "UTC");
    let id = schedule_id(number);
    let now = clock_time("10:30:00");
    let parsed = Rule::parse(&rule, HashKey::of(id)).unwrap();
    let definition = Revision {
        schedule_id: id,
        revision: 1,
        name: name.to_owned(),
        package: package.to_owned(),
        task: task.map(str::to_owned),
        policies: serde_json::to_string(policies).unwrap(),
        defaults: "{}".to_owned(),
        args: None,
        context: "{}".to_owned(),
        since: now,
        rule,
    };
    let next = policies.next_slot(&parsed, now, 0);
    let mut tx = test.write().await;
    insert_schedule(&mut tx, &definition, Origin::Operator, next)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// Let the host do its steps until no slot is due. A busy machine needs several transactions, as planning stops after 20 ms.
pub async fn tick_all(engine: &Engine, now: Timestamp) -> Tick {
    let mut all = Tick::default();
    loop {
        let tick = engine.tick(now).await.unwrap();
        all = Tick {
            recovered: all.recovered + tick.recovered,
            ended_by_recovery: all.ended_by_recovery + tick.ended_by_recovery,
            decisions: all.decisions + tick.decisions,
            backfill_launches: all.backfill_launches + tick.backfill_launches,
            claimed: all.claimed + tick.claimed,
            finished: all.finished + tick.finished,
        };
        let mut tx = engine.db().read().await.unwrap();
        let due = schedules::next_due(&mut tx).await.unwrap();
        if tick.decisions == 0 || due.is_none_or(|due| due > now) {
            return all;
        }
    }
}

pub async fn claim_one(engine: &Engine, clock: &Clock, at: &str) -> Work {
    clock.advance_to(clock_time(at));
    assert_eq!(engine.decide(clock_time(at)).await.unwrap().decisions, 1);
    let mut claimed = engine.claim(clock_time(at)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

/// The workflow is `a`, then `b` and `c`, then `d`. The host dies after `a`: `d` begins with attempt 1.
async fn a_lost_run_counts_only_for_the_tasks_that_it_may_have_called(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, _lock) = serving::start(&test, &clock, settings(8), DIAMOND).await;
    add(&test, "diamond", None, &Policies::default()).await;
    let work = claim_one(&engine, &clock, "11:00:00").await;
    let a = TaskRun::succeeded("a", 1, clock_time("11:00:00"), clock_time("11:00:01"));
    let mut tx = test.write().await;
    let recorded = launch::record_tasks(&mut tx, work.run_id(), work.fence(), &[a]).await;
    assert!(recorded.unwrap());
    tx.commit().await.unwrap();

    // The run is not tracked, so its lease expires.
    clock.advance_to(clock_time("11:01:00"));
    engine.renew(clock_time("11:01:00")).await.unwrap();
    let tick = engine.tick(clock_time("11:01:00")).await.unwrap();
    assert_eq!((tick.recovered, tick.finished), (1, 1));
    let mut tx = test.read().await;
    let calls = task_runs::of_launch(&mut tx, work.launch.launch_id);
    let mut attempts: Vec<(String, i64)> = calls
        .await
        .unwrap()
        .into_iter()
        .map(|call| (call.task, call.attempt))
        .collect();
    attempts.sort();
    // The lost run may have called `b` and `c`.
    let expected = [("a", 1), ("b", 2), ("c", 2), ("d", 1)];
    assert_eq!(attempts, expected.map(|(task, n)| (task.to_owned(), n)));
}

async fn a_failed_automatic_pause_does_not_fail_the_finish(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, _lock) = serving::start(&test, &clock, settings(8), GUESTS).await;
    let policies = Policies {
        pause_on_failure: Some(1),
        ..Policies::default()
    };
    add(&test, "guests", Some("ok"), &policies).await;
    let work = claim_one(&engine, &clock, "11:00:00").await;
    let end = RunEnd::Failed {
        kind: FailureKind::Failed,
        message: "no".to_owned(),
    };
    let (forbid, allow) = match test.db.url().is_shared() {
        true => (
            "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'forbidden'; END $$;
             CREATE TRIGGER forbid BEFORE UPDATE ON schedule FOR EACH ROW EXECUTE FUNCTION forbid();",
            "DROP TRIGGER forbid ON schedule;",
        ),
        false => (
            "CREATE TRIGGER forbid BEFORE UPDATE ON schedule
                BEGIN SELECT RAISE(ABORT, 'forbidden'); END;",
            "DROP TRIGGER forbid;",
        ),
    };
    let execute = async |sql: &str| {
        let mut tx = test.write().await;
        probe::execute(&mut tx, sql).await.unwrap();
        tx.commit().await.unwrap();
    };
    let is_enabled = async || {
        let mut tx = test.read().await;
        let schedule = schedules::find(&mut tx, "report").await.unwrap().unwrap();
        schedule.state.enabled
    };
    execute(forbid).await;
    let ends = [work.finished(end, Vec::new(), clock_time("11:00:01"))];
    assert_eq!(engine.finish(&ends).await.unwrap(), 1);
    let mut tx = test.read().await;
    let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
    assert_eq!(launch.status, LaunchStatus::Failed);
    drop(tx);
    assert!(is_enabled().await);

    // The next recovery counts the failures again.
    execute(allow).await;
    engine.recover(clock_time("11:00:02")).await.unwrap();
    assert!(!is_enabled().await);
}
