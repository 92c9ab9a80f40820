//! Launches that are claimed in the transaction that decides them: which start at once, and which are opened.

use std::time::Duration;

use campanile_control::settings::Settings;
use campanile_engine::{Engine, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_model::status::RunStatus;
use campanile_schedule::policy::{Overlap, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::launch::{self, LaunchRow};
use campanile_store::{LaunchStatus, Origin, Tx, runs, schedules};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{self, add_host, at, insert_schedule, revision, schedule_id};
use crate::serving::{self, NOOP, settings};

on_both!(
    a_due_launch_runs_from_its_decision_on,
    a_slot_that_was_decided_before_is_not_run_again,
    what_a_host_may_not_start_is_opened,
    the_most_urgent_launches_start_first,
    nothing_overtakes_launches_that_wait,
    a_run_that_nobody_executes_is_recovered,
    the_next_launch_gets_the_result_of_the_last,
    a_transaction_decides_no_more_schedules_than_can_start,
    a_schedule_with_many_slots_waits_until_all_of_them_can_start,
);

/// All schedules of these tests are due.
fn now() -> Timestamp {
    at(10)
}

async fn start(test: &TestDb, settings: Settings) -> (std::sync::Arc<Engine>, Clock) {
    let clock = Clock::simulated(now());
    let (engine, lock) = serving::start(test, &clock, settings, NOOP).await;
    std::mem::forget(lock);
    (engine, clock)
}

/// Add the schedules 1 to `schedules` of the host's package, with the policies that `policies` gives to each.
async fn add(test: &TestDb, schedules: u128, policies: impl Fn(u128) -> Policies) {
    let mut tx = test.write().await;
    for number in 1..=schedules {
        add_one(&mut tx, number, NOOP.0, &policies(number)).await;
    }
    tx.commit().await.unwrap();
}

/// Add a schedule of every 10 seconds that is due at `at(10)`.
async fn add_one(tx: &mut Tx, number: u128, package: &str, policies: &Policies) {
    let definition = schedules::Revision {
        package: package.to_owned(),
        policies: serde_json::to_string(policies).unwrap(),
        rule: RuleText {
            anchor: Some(at(0)),
            ..RuleText::new(RuleKind::Every, "10s", "UTC")
        },
        ..revision(number)
    };
    insert_schedule(tx, &definition, Origin::Operator, Some(at(10)))
        .await
        .unwrap();
}

async fn rows(test: &TestDb) -> Vec<LaunchRow> {
    let mut rows = launch::list(&mut test.read().await, None, 1_000)
        .await
        .unwrap();
    rows.sort_by(|a, b| a.schedule.cmp(&b.schedule));
    rows
}

async fn statuses(test: &TestDb) -> Vec<LaunchStatus> {
    rows(test).await.iter().map(|row| row.status).collect()
}

/// A busy machine needs several transactions, as planning stops after 20 ms.
async fn claim_at_once(engine: &Engine, now: Timestamp) -> Vec<Work> {
    let mut all = Vec::new();
    loop {
        let (decided, work) = engine.decide_and_claim(now).await.unwrap();
        all.extend(work);
        if !decided.more {
            return all;
        }
    }
}

async fn a_due_launch_runs_from_its_decision_on(test: TestDb) {
    let (engine, _) = start(&test, settings(8)).await;
    add(&test, 1, |_| Policies::default()).await;
    let work = claim_at_once(&engine, now()).await;
    assert_eq!(work.len(), 1);
    let row = rows(&test).await.remove(0);
    assert_eq!(
        (row.status, row.attempts, row.started_at, row.run_id.0),
        (
            LaunchStatus::Running,
            1,
            Some(now()),
            Some(work[0].run_id())
        )
    );
    let mut tx = test.read().await;
    let run = runs::find(&mut tx, work[0].run_id())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (run.status, run.host.as_deref(), run.is_recovery),
        (RunStatus::Running, Some("host-1"), false)
    );
    assert!(run.grants_hash.is_some() && run.context_hash.is_some());
    drop(tx);

    assert!(engine.claim(now()).await.unwrap().is_empty());
    let held = [(work[0].run_id(), work[0].fence())];
    let mut tx = test.write().await;
    let renewed = launch::renew(&mut tx, &held, at(60)).await.unwrap();
    assert_eq!(renewed.len(), 1, "its fence is that of the claim");
    tx.commit().await.unwrap();
    let end = launch::RunEnd::Succeeded { output: None };
    let finish = work[0].finished(end, Vec::new(), at(11));
    assert_eq!(engine.finish(&[finish]).await.unwrap(), 1);
    assert_eq!(statuses(&test).await, [LaunchStatus::Succeeded]);
}

async fn a_slot_that_was_decided_before_is_not_run_again(test: TestDb) {
    let (engine, _) = start(&test, settings(8)).await;
    add(&test, 2, |_| Policies::default()).await;
    let earlier = launch::NewLaunch {
        package: NOOP.0.to_owned(),
        ..fixtures::skipped(1, 10, "earlier")
    };
    assert_eq!(
        earlier.id,
        LaunchId::of(schedule_id(1), at(10), LaunchKind::Schedule)
    );
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[earlier]).await.unwrap();
    tx.commit().await.unwrap();

    let work = claim_at_once(&engine, now()).await;
    let schedules: Vec<_> = work.iter().map(|work| work.launch.schedule_id).collect();
    assert_eq!(schedules, [schedule_id(2)]);
    assert_eq!(
        statuses(&test).await,
        [LaunchStatus::Skipped, LaunchStatus::Running]
    );
}

async fn what_a_host_may_not_start_is_opened(test: TestDb) {
    // A package may hold seven of eight permits. The second launch is in a group, and the third fires later.
    let (engine, _) = start(&test, settings(8)).await;
    add(&test, 10, |number| Policies {
        group: (number == 2).then(|| "db".parse().unwrap()),
        jitter: (number == 3).then_some(Duration::from_secs(10)),
        ..Policies::default()
    })
    .await;
    let work = claim_at_once(&engine, now()).await;
    assert_eq!(work.len(), 7);
    let started: Vec<u128> = (1..=10)
        .filter(|number| {
            let id = schedule_id(*number);
            work.iter().any(|work| work.launch.schedule_id == id)
        })
        .collect();
    assert!(
        !started.contains(&2) && !started.contains(&3),
        "{started:?}"
    );
    let statuses = statuses(&test).await;
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!(
        (count(LaunchStatus::Open), count(LaunchStatus::Queued)),
        (2, 1)
    );

    // A package that this host does not have: another one claims its launches.
    let mut tx = test.write().await;
    let other = add_host(&mut tx, 9, now()).await;
    fixtures::publish(&mut tx, other, "elsewhere", b"other", now()).await;
    add_one(&mut tx, 20, "elsewhere", &Policies::default()).await;
    tx.commit().await.unwrap();
    drop(work);
    assert!(claim_at_once(&engine, now()).await.is_empty());
}

async fn the_most_urgent_launches_start_first(test: TestDb) {
    let (engine, _) = start(&test, settings(2)).await;
    add(&test, 6, |number| Policies {
        priority: Some(number as u32),
        ..Policies::default()
    })
    .await;
    let work = claim_at_once(&engine, now()).await;
    let mut priorities: Vec<_> = work.iter().map(|work| work.launch.schedule_id).collect();
    priorities.sort();
    assert_eq!(priorities, [schedule_id(5), schedule_id(6)]);
}

async fn nothing_overtakes_launches_that_wait(test: TestDb) {
    let (engine, _) = start(&test, settings(1)).await;
    add(&test, 2, |_| Policies::default()).await;
    let first = claim_at_once(&engine, now()).await;
    assert_eq!(first.len(), 1);
    drop(first);
    // A permit is free, but the second launch of the last step waits for it.
    assert!(claim_at_once(&engine, at(20)).await.is_empty());
    let waiting = engine.claim(at(20)).await.unwrap();
    assert_eq!(waiting[0].launch.scheduled_time, at(10));
}

async fn a_run_that_nobody_executes_is_recovered(test: TestDb) {
    let (engine, clock) = start(&test, settings(8)).await;
    add(&test, 1, |_| Policies::default()).await;
    let lost = claim_at_once(&engine, now()).await.remove(0);
    // It was committed, and its host crashed before it began.
    clock.advance_to(at(50));
    engine.renew(at(50)).await.unwrap();
    assert_eq!(engine.recover(at(50)).await.unwrap().reopened, 1);
    let again = engine.claim(at(50)).await.unwrap().remove(0);
    assert_eq!(again.launch.launch_id, lost.launch.launch_id);
    assert!(again.launch.is_recovery() && again.fence() > lost.fence());
    assert_eq!((lost.run_id().number(), again.run_id().number()), (1, 2));
    let end = launch::RunEnd::Succeeded { output: None };
    let late = lost.finished(end, Vec::new(), at(51));
    assert_eq!(engine.finish(&[late]).await.unwrap(), 0);
    let mut tx = test.read().await;
    let run = runs::find(&mut tx, lost.run_id()).await.unwrap().unwrap();
    assert_eq!(
        (run.status, run.finished_at),
        (RunStatus::Lost, Some(at(50)))
    );
}

async fn the_next_launch_gets_the_result_of_the_last(test: TestDb) {
    let (engine, _) = start(&test, settings(8)).await;
    add(&test, 1, |_| Policies::default()).await;
    let first = claim_at_once(&engine, now()).await.remove(0);
    assert_eq!(first.launch.last_result, None);
    let output = Some("{\"n\":1}".to_owned());
    let end = launch::RunEnd::Succeeded { output };
    let finish = first.finished(end, Vec::new(), at(11));
    engine.finish(&[finish]).await.unwrap();
    let second = claim_at_once(&engine, at(20)).await.remove(0);
    assert_eq!(second.launch.last_result.as_deref(), Some("{\"n\":1}"));
}

async fn a_transaction_decides_no_more_schedules_than_can_start(test: TestDb) {
    let (engine, _) = start(&test, settings(40)).await;
    add(&test, 60, |_| Policies::default()).await;
    let (decided, mut work) = engine.decide_and_claim(now()).await.unwrap();
    // None is opened, and a slow machine may decide fewer.
    assert_eq!((decided.decisions, decided.more), (work.len(), true));
    // Nothing or little can start now. The rest is opened, so that it is on record.
    work.extend(claim_at_once(&engine, now()).await);
    assert_eq!((work.len(), rows(&test).await.len()), (35, 60));
    drop(work);
    assert_eq!(engine.claim(now()).await.unwrap().len(), 25);
}

async fn a_schedule_with_many_slots_waits_until_all_of_them_can_start(test: TestDb) {
    let mut settings = settings(40);
    settings.late.misfire_grace = Duration::from_secs(3_600);
    let (engine, clock) = start(&test, settings).await;
    let policies = Policies {
        overlap: Overlap::Allow,
        max_concurrent: Some(100),
        ..Policies::default()
    };
    add(&test, 5, |_| policies.clone()).await;
    // Each has 10 slots, and 35 launches of one package can start.
    clock.advance_to(at(100));
    let mut started = 0;
    loop {
        let (decided, work) = engine.decide_and_claim(at(100)).await.unwrap();
        // None is opened, and a slow machine may decide fewer.
        assert_eq!(decided.decisions, work.len());
        started += work.len();
        if !decided.more {
            break;
        }
    }
    assert_eq!(started, 50);
}
