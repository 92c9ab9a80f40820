//! Runs dropped before their first call are handed back and don't count. Only the claiming host knows.

use std::sync::Arc;
use std::time::Duration;

use campanile_engine::{Engine, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::policy::{Delivery, Policies};
use campanile_store::launch::{self, LaunchRow, RunEnd, UncalledClaim};
use campanile_store::runs;
use campanile_store::{HostLock, LaunchStatus, RunStatus, hosts};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{
    add_host, at, claim_all, claim_retries, host_with_schedules, insert_and_claim, launch,
};
use crate::host_steps::{add, claim_one, clock_time};
use crate::serving::{self, GUESTS, settings};

on_both!(
    a_claim_whose_answer_came_after_its_lease_is_handed_back,
    a_run_that_is_dropped_before_its_first_call_is_handed_back_however_often,
    a_run_that_called_a_task_is_lost,
    a_retry_that_is_dropped_before_its_call_waits_again,
    a_claim_is_handed_back_only_as_it_was_made,
    a_launch_that_was_asked_to_end_is_not_opened_again,
    another_host_leaves_a_live_host_time_to_hand_back,
);

/// Starts a host with the schedule `report` calling the task `ok`.
async fn start(test: &TestDb, delivery: Delivery) -> (Arc<Engine>, Clock, HostLock) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, lock) = serving::start(test, &clock, settings(8), GUESTS).await;
    let policies = Policies {
        delivery: Some(delivery),
        ..Policies::default()
    };
    add(test, "guests", Some("ok"), &policies).await;
    (engine, clock, lock)
}

async fn newest(test: &TestDb) -> LaunchRow {
    let rows = launch::list(&mut test.read().await, None, 9).await;
    rows.unwrap().remove(0)
}

/// Lets the lease end, with the host noticing, and returns the time for renewing what it has.
async fn lose_lease(engine: &Engine, clock: &Clock) -> Timestamp {
    let now = clock.now().plus(Duration::from_secs(31));
    clock.advance_to(now);
    engine.drop_expired();
    now
}

async fn assert_open_as_before(test: &TestDb, claims: i64) {
    let row = newest(test).await;
    assert_eq!(
        (row.status, row.attempts, row.recoveries, row.started_at),
        (LaunchStatus::Open, claims, 0, None)
    );
    assert_eq!(row.run_id.0, None);
    let runs = runs::list(&mut test.read().await, None, 9).await;
    assert_eq!(runs.unwrap(), [], "no run counts");
}

async fn claim(engine: &Engine, now: Timestamp) -> Work {
    let mut claimed = engine.claim(now).await.unwrap();
    assert_eq!(claimed.len(), 1);
    claimed.remove(0)
}

async fn a_claim_whose_answer_came_after_its_lease_is_handed_back(test: TestDb) {
    let (engine, clock, _lock) = start(&test, Delivery::AtMostOnce).await;
    let late = claim_one(&engine, &clock, "11:00:00").await;
    let now = lose_lease(&engine, &clock).await;
    let stop = engine.track(&late);
    assert!(stop.is_dropped());
    engine.untrack(late.run_id(), late.fence());
    // Renewal and recovery may come in either order.
    engine.recover(now).await.unwrap();
    assert_open_as_before(&test, 1).await;

    // The next run is the first.
    let again = engine.tick(now).await.unwrap();
    assert_eq!((again.claimed, again.finished), (1, 1));
    let row = newest(&test).await;
    assert_eq!((row.status, row.attempts), (LaunchStatus::Succeeded, 2));
    let run = runs::list(&mut test.read().await, None, 9)
        .await
        .unwrap()
        .remove(0);
    assert_eq!((run.id.number(), run.is_recovery), (1, false));
    let end = late.finished(RunEnd::Succeeded { output: None }, Vec::new(), now);
    assert_eq!(engine.finish(&[end]).await.unwrap(), 0, "its fence is old");
}

async fn a_run_that_is_dropped_before_its_first_call_is_handed_back_however_often(test: TestDb) {
    let (engine, clock, _lock) = start(&test, Delivery::AtLeastOnce).await;
    let mut work = claim_one(&engine, &clock, "11:00:00").await;
    for claims in 1..=6 {
        engine.track(&work);
        let now = lose_lease(&engine, &clock).await;
        engine.renew(now).await.unwrap();
        assert_open_as_before(&test, claims).await;
        let earlier = work.fence();
        work = claim(&engine, now).await;
        assert_eq!(work.fence(), earlier + 1);
        assert!(!work.launch.is_recovery() && work.launch.begins_run);
        // Only now does the former run end on this host.
        engine.untrack(work.run_id(), earlier);
        assert_eq!(engine.recover(now).await.unwrap().reopened, 0);
    }
    engine.track(&work);
    assert!(engine.begin_call(work.run_id(), work.fence()));
}

async fn a_run_that_called_a_task_is_lost(test: TestDb) {
    let (engine, clock, _lock) = start(&test, Delivery::AtMostOnce).await;
    let work = claim_one(&engine, &clock, "11:00:00").await;
    engine.track(&work);
    assert!(engine.begin_call(work.run_id(), work.fence()));
    let now = lose_lease(&engine, &clock).await;
    assert!(
        !engine.begin_call(work.run_id(), work.fence()),
        "it is dropped"
    );
    engine.untrack(work.run_id(), work.fence());
    engine.renew(now).await.unwrap();
    assert_eq!(newest(&test).await.status, LaunchStatus::Running);
    assert_eq!(engine.recover(now).await.unwrap().ended, 1);
    assert_eq!(newest(&test).await.status, LaunchStatus::Unknown);
}

async fn a_retry_that_is_dropped_before_its_call_waits_again(test: TestDb) {
    let (engine, clock, _lock) = start(&test, Delivery::AtLeastOnce).await;
    let work = claim_one(&engine, &clock, "11:00:00").await;
    let retry_at = clock_time("11:00:10");
    let end = work.finished(RunEnd::Waiting { retry_at }, Vec::new(), clock.now());
    assert_eq!(engine.finish(&[end]).await.unwrap(), 1);
    clock.advance_to(retry_at);
    let retry = claim(&engine, retry_at).await;
    assert!(!retry.launch.begins_run);
    engine.track(&retry);
    let now = lose_lease(&engine, &clock).await;
    engine.renew(now).await.unwrap();
    let row = newest(&test).await;
    assert_eq!((row.status, row.recoveries), (LaunchStatus::Waiting, 0));
    let run = runs::list(&mut test.read().await, None, 9)
        .await
        .unwrap()
        .remove(0);
    assert_eq!((run.status, run.retry_at), (RunStatus::Waiting, Some(now)));
    let again = claim(&engine, now).await;
    assert_eq!((again.run_id(), again.fence()), (work.run_id(), 3));
}

/// After losing the reply to a claim, a host may make the same claim again.
async fn a_claim_is_handed_back_only_as_it_was_made(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let other = add_host(&mut tx, 2, at(0)).await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    let claim = UncalledClaim {
        launch_id: claimed.launch_id(),
        fence: claimed.fence,
        begins_run: true,
        lease_until: Some(at(40)),
        not_before: None,
    };
    for (host, claim) in [
        (other, claim),
        (host, UncalledClaim { fence: 2, ..claim }),
        (
            host,
            UncalledClaim {
                lease_until: Some(at(41)),
                ..claim
            },
        ),
    ] {
        let handed_back = launch::hand_back(&mut tx, host, &[claim], at(20)).await;
        assert_eq!(handed_back.unwrap(), [], "{claim:?}");
    }
    let paused = UncalledClaim {
        not_before: Some(at(80)),
        ..claim
    };
    let handed_back = launch::hand_back(&mut tx, host, &[paused], at(20)).await;
    assert_eq!(handed_back.unwrap(), [claim.launch_id]);
    assert_eq!(claim_all(&mut tx, host, at(79)).await, []);
    let again = claim_all(&mut tx, other, at(80)).await;
    assert_eq!((again[0].run_id, again[0].fence), (claimed.run_id, 2));
    let finished = launch::finish(&mut tx, &[again[0].succeeded("1", at(81))]).await;
    assert_eq!(finished.unwrap().len(), 1);
    // Finished launches are never written again.
    let claim = UncalledClaim { fence: 2, ..claim };
    let handed_back = launch::hand_back(&mut tx, other, &[claim], at(82)).await;
    assert_eq!(handed_back.unwrap(), []);
}

async fn a_launch_that_was_asked_to_end_is_not_opened_again(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    let id = claimed.launch_id();
    let asked = campanile_store::launch::ask_to_end(&mut tx, id, at(20), "by a person").await;
    assert_eq!(asked.unwrap(), Some(at(20)));
    let claim = UncalledClaim {
        launch_id: id,
        fence: claimed.fence,
        begins_run: true,
        lease_until: None,
        not_before: None,
    };
    let handed_back = launch::hand_back(&mut tx, host, &[claim], at(20)).await;
    assert_eq!(handed_back.unwrap(), []);
    let retries = claim_retries(&mut tx, host, at(99), at(130), 9).await;
    assert_eq!(retries.unwrap(), []);
}

async fn another_host_leaves_a_live_host_time_to_hand_back(test: TestDb) {
    let (engine, clock, _lock) = start(&test, Delivery::AtLeastOnce).await;
    let begun = clock.now();
    let second = |n| begun.plus(Duration::from_secs(n));
    let mut tx = test.write().await;
    let other = add_host(&mut tx, 2, begun).await;
    let stays = second(10_000);
    hosts::heartbeat(&mut tx, other, begun, stays)
        .await
        .unwrap();
    let slot = launch::NewLaunch {
        decided_by: Some(other),
        ..launch(1, 10)
    };
    let slot = launch::NewLaunch {
        id: slot.id,
        schedule_id: crate::fixtures::schedule_id(1),
        scheduled_time: begun,
        fire_time: begun,
        decided_at: begun,
        ..slot
    };
    let claimed = insert_and_claim(&mut tx, other, &[slot], begun).await;
    assert_eq!(claimed.len(), 1);
    tx.commit().await.unwrap();
    // Its lease ends after 30 s.
    for (now, reopened) in [(10, 0), (20, 0), (30, 0), (34, 0), (35, 1)] {
        clock.advance_to(second(now));
        engine.renew(second(now)).await.unwrap();
        let recovered = engine.recover(second(now)).await.unwrap();
        assert_eq!(recovered.reopened, reopened, "after {now} s");
    }
    assert_eq!(newest(&test).await.recoveries, 1);
}
