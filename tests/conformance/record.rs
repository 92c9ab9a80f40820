//! Events, the counter of changes, and the numbers that are counted from the record.

use campanile_store::events::{self, EventKind};
use campanile_store::recovery::{self, RecoveryAction, RecoveryDecision};
use campanile_store::runs::{self, RunEnd};
use campanile_store::stats::{self, Counts, HealthSigns};
use campanile_store::{Db, changes, hosts, launches, schedules};
use campanile_tests::{Backend, TestDb, on_both};

use crate::fixtures::{PAUSE, at, begin, launch, manual, schedule_id, skipped, small_setup};

on_both!(
    events_come_newest_first,
    a_change_is_noticed_by_every_host,
    launches_are_counted_by_what_became_of_them,
    lag_is_of_launches_decided_in_time_that_have_started,
    signs_of_ill_health_are_counted,
    a_transaction_that_is_dropped_never_happened,
    what_one_reads_is_of_one_moment,
    only_a_server_has_a_clock,
    who_only_reads_cannot_write,
);

async fn events_come_newest_first(test: TestDb) {
    let mut tx = test.write().await;
    for second in [5, 1, 3] {
        events::record(
            &mut tx,
            at(second),
            EventKind::HealthChanged,
            "tower",
            &second.to_string(),
        )
        .await
        .unwrap();
    }
    let details = |events: Vec<events::Event>| {
        events
            .into_iter()
            .map(|event| event.detail)
            .collect::<Vec<_>>()
    };
    let all = details(events::list(&mut tx, 10).await.unwrap());
    assert_eq!(all, ["5", "3", "1"]);
    assert_eq!(details(events::list(&mut tx, 2).await.unwrap()), all[..2]);
}

async fn a_change_is_noticed_by_every_host(test: TestDb) {
    let other = Db::open(&test.place.url).await.unwrap();
    let before = changes::counter(&mut other.read().await.unwrap())
        .await
        .unwrap();
    let mut tx = test.write().await;
    changes::bump(&mut tx).await.unwrap();
    assert_eq!(
        changes::counter(&mut other.read().await.unwrap())
            .await
            .unwrap(),
        before,
        "not yet committed"
    );
    tx.commit().await.unwrap();
    let after = changes::counter(&mut other.read().await.unwrap())
        .await
        .unwrap();
    assert_eq!(after, before + 1);
}

async fn launches_are_counted_by_what_became_of_them(test: TestDb) {
    let host = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    assert_eq!(
        stats::counts(&mut tx, at(0)).await.unwrap(),
        Counts::default()
    );
    let slots: Vec<_> = (10..17).map(|slot| launch(1, slot)).collect();
    let held = begin(&mut tx, host, &slots, 1, at(20)).await;
    // 10 and 11 were lost; one succeeded later and one failed. 12 succeeded, 13 was given up, 14 waits, 15 and 16 run.
    let verdict = |held: &crate::fixtures::Held, action| RecoveryDecision {
        launch_id: held.launch_id,
        run_id: Some(held.run_id),
        action,
    };
    let lost = [
        verdict(&held[0], RecoveryAction::RunAgain),
        verdict(&held[1], RecoveryAction::RunAgain),
        verdict(&held[3], RecoveryAction::Abandon("recovery_age")),
    ];
    recovery::apply(&mut tx, host, &lost, "gone", at(21))
        .await
        .unwrap();
    let again = crate::fixtures::take(&mut tx, host, 20, at(22)).await;
    recovery::apply(
        &mut tx,
        host,
        &[verdict(&again[0], RecoveryAction::RunAgain)],
        "gone",
        at(23),
    )
    .await
    .unwrap();
    let once_more = crate::fixtures::take(&mut tx, host, 30, at(24)).await;
    let ends = [
        once_more[0].succeeded("1", at(25)),
        again[1].failed("no", at(25)),
        held[2].succeeded("1", at(25)),
        held[4].finish(RunEnd::Waiting { retry_at: at(50) }, at(25)),
    ];
    assert_eq!(runs::finish(&mut tx, &ends).await.unwrap().len(), 4);
    let range = launches::NewLaunch {
        last_scheduled_time: at(40),
        slot_count: 11,
        ..skipped(1, 30, "missed")
    };
    launches::insert(&mut tx, &[range, skipped(1, 41, "missed"), launch(1, 42)])
        .await
        .unwrap();
    let counts = stats::counts(&mut tx, at(0)).await.unwrap();
    let expected = Counts {
        launches: 8,
        succeeded: 2,
        failed: 1,
        cancelled: 0,
        unknown: 0,
        unfinished: 4,
        skipped: 12,
        recovered: 2,
        recovery_attempts: 3,
        recovery_successes: 1,
        recovery_failures: 1,
        abandoned: 1,
    };
    assert_eq!(counts, expected);
    assert_eq!(stats::unfinished(&mut tx).await.unwrap(), 4);
    let newest = stats::counts(&mut tx, at(41)).await.unwrap();
    assert_eq!(
        (newest.launches, newest.skipped, newest.unfinished),
        (1, 1, 1)
    );
}

async fn lag_is_of_launches_decided_in_time_that_have_started(test: TestDb) {
    let host = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    let caught_up = launches::NewLaunch {
        kind: campanile_model::ids::LaunchKind::Catchup,
        ..launch(1, 11)
    };
    begin(
        &mut tx,
        host,
        &[launch(1, 10), caught_up, launch(1, 12), manual(1, 13)],
        1,
        at(15),
    )
    .await;
    launches::insert(&mut tx, &[launch(1, 20)]).await.unwrap();
    let lags = stats::lags(&mut tx, at(0), 9).await.unwrap();
    assert_eq!(lags, [(at(12), at(15)), (at(10), at(15))]);
    assert_eq!(stats::lags(&mut tx, at(11), 9).await.unwrap(), lags[..1]);
    assert_eq!(stats::lags(&mut tx, at(0), 1).await.unwrap(), lags[..1]);
}

async fn signs_of_ill_health_are_counted(test: TestDb) {
    let host = small_setup(&test, 4).await;
    let mut tx = test.write().await;
    let well = HealthSigns {
        live_hosts: 1,
        schedules: 4,
        ..HealthSigns::default()
    };
    assert_eq!(
        stats::health_signs(&mut tx, at(0), at(3600)).await.unwrap(),
        well
    );
    // 1 is overdue, 2 is far ahead, 3 is paused, 4 is removed; one launch is unclaimed, one run's lease has expired.
    let ahead = schedules::CursorMove {
        id: schedule_id(2),
        revision: 1,
        from: at(0),
        to: at(7_000),
        next_slot: Some(at(8_000)),
        launches: 0,
        caught_up: None,
    };
    schedules::advance(&mut tx, &[ahead]).await.unwrap();
    schedules::pause(&mut tx, schedule_id(3), PAUSE, at(5))
        .await
        .unwrap();
    schedules::remove(&mut tx, schedule_id(4), at(5))
        .await
        .unwrap();
    begin(&mut tx, host, &[launch(1, 10)], 1, at(10)).await;
    launches::insert(&mut tx, &[launch(1, 20), launch(1, 100)])
        .await
        .unwrap();
    let expected = HealthSigns {
        overdue_schedules: 1,
        stalled: 2,
        cursors_ahead: 1,
        live_hosts: 0,
        schedules: 2,
    };
    assert_eq!(
        stats::health_signs(&mut tx, at(41), at(3600))
            .await
            .unwrap(),
        expected
    );
    hosts::heartbeat(&mut tx, host, at(41)).await.unwrap();
    assert_eq!(
        stats::health_signs(&mut tx, at(41), at(3600))
            .await
            .unwrap()
            .live_hosts,
        1
    );
}

async fn a_transaction_that_is_dropped_never_happened(test: TestDb) {
    let before = campanile_tests::dump::dump(&test).await;
    let mut tx = test.write().await;
    changes::bump(&mut tx).await.unwrap();
    crate::fixtures::add_schedule(&mut tx, 1, 10).await;
    drop(tx);
    let mut tx = test.write().await;
    changes::bump(&mut tx).await.unwrap();
    drop(tx);
    assert_eq!(campanile_tests::dump::dump(&test).await, before);
}

async fn what_one_reads_is_of_one_moment(test: TestDb) {
    let mut reading = test.read().await;
    let before = changes::counter(&mut reading).await.unwrap();
    let mut tx = test.write().await;
    changes::bump(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(changes::counter(&mut reading).await.unwrap(), before);
    drop(reading);
    assert_eq!(
        changes::counter(&mut test.read().await).await.unwrap(),
        before + 1
    );
}

async fn only_a_server_has_a_clock(test: TestDb) {
    let time = test.db.server_time().await.unwrap();
    assert_eq!(time.is_some(), test.backend() == Backend::Postgres);
    if let Some(time) = time {
        let again = test.db.server_time().await.unwrap().unwrap();
        assert!(
            again >= time && time > at(0).minus(std::time::Duration::from_secs(3 * 365 * 86_400))
        );
    }
}

async fn who_only_reads_cannot_write(test: TestDb) {
    let mut tx = test.read().await;
    assert!(changes::bump(&mut tx).await.is_err());
}
