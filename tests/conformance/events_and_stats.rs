//! Events, the change counter, statistics, and the isolation of transactions.

use campanile_control::reports::health;
use campanile_store::disk::DiskSigns;
use campanile_store::events::{self, EventKind};
use campanile_store::launch::{self, Finish, NewLaunch, RecoveryAction, RecoveryDecision, RunEnd};
use campanile_store::stats::{self, Counts, HealthSigns};
use campanile_store::{Db, Tx, changes, hosts, retention, schedules};
use campanile_tests::{Backend, TestDb, on_both};
use std::time::Duration;

use crate::fixtures::{
    ClaimedRun, PAUSE, at, host_with_schedules, insert_and_claim, launch, lease_until, manual,
    publish, schedule_id, skipped,
};

on_both!(
    events_are_listed_newest_first,
    a_committed_change_is_visible_to_other_connections,
    launches_are_counted_by_status,
    launches_are_counted_by_schedule,
    lag_counts_only_on_time_launches_that_have_started,
    health_signs_are_counted,
    a_failing_schedule_a_starved_package_and_a_silent_host_are_named,
    what_a_package_does_to_itself_leaves_the_installation_healthy,
    a_dropped_transaction_changes_nothing,
    an_abandoned_begin_leaves_its_connection_free,
    a_read_transaction_sees_one_snapshot,
    only_a_database_server_has_a_clock,
    a_read_transaction_cannot_write,
);

async fn events_are_listed_newest_first(test: TestDb) {
    let mut tx = test.write().await;
    for second in [5, 1, 3] {
        events::record(
            &mut tx,
            at(second),
            EventKind::HealthChanged,
            "host-1",
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
    let all = details(events::list(&mut tx, None, 10).await.unwrap());
    assert_eq!(all, ["5", "3", "1"]);
    assert_eq!(
        details(events::list(&mut tx, None, 2).await.unwrap()),
        all[..2]
    );
}

async fn a_committed_change_is_visible_to_other_connections(test: TestDb) {
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
        "the change is not committed yet"
    );
    tx.commit().await.unwrap();
    let after = changes::counter(&mut other.read().await.unwrap())
        .await
        .unwrap();
    assert_eq!(after, before + 1);
}

async fn launches_are_counted_by_status(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    assert_eq!(
        stats::counts(&mut tx, at(0)).await.unwrap(),
        Counts::default()
    );
    let slots: Vec<_> = (10..17).map(|slot| launch(1, slot)).collect();
    let claimed = insert_and_claim(&mut tx, host, &slots, at(20)).await;
    // 10 and 11 were lost; one succeeded later and one failed. 12 succeeded, 13 was abandoned, 14 waits, 15 and 16 run.
    let decision = |run: &crate::fixtures::ClaimedRun, action| RecoveryDecision {
        launch_id: run.launch_id(),
        action,
        not_before: None,
    };
    let lost = [
        decision(&claimed[0], RecoveryAction::RunAgain),
        decision(&claimed[1], RecoveryAction::RunAgain),
        decision(&claimed[3], RecoveryAction::Abandon("recovery_age")),
    ];
    launch::recover(&mut tx, host, &lost, "gone", at(21))
        .await
        .unwrap();
    let second_claims = crate::fixtures::claim_all(&mut tx, host, at(22)).await;
    launch::recover(
        &mut tx,
        host,
        &[decision(&second_claims[0], RecoveryAction::RunAgain)],
        "gone",
        at(23),
    )
    .await
    .unwrap();
    let third_claims = crate::fixtures::claim_all(&mut tx, host, at(24)).await;
    let ends = [
        third_claims[0].succeeded("1", at(25)),
        second_claims[1].failed("no", at(25)),
        claimed[2].succeeded("1", at(25)),
        claimed[4].finish(RunEnd::Waiting { retry_at: at(50) }, at(25)),
    ];
    assert_eq!(launch::finish(&mut tx, &ends).await.unwrap().len(), 4);
    let range = launch::NewLaunch {
        last_scheduled_time: at(40),
        slot_count: 11,
        ..skipped(1, 30, "missed")
    };
    launch::insert(&mut tx, &[range, skipped(1, 41, "missed"), launch(1, 42)])
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

async fn launches_are_counted_by_schedule(test: TestDb) {
    let host = host_with_schedules(&test, 3).await;
    let mut tx = test.write().await;
    let slots = [launch(1, 10), launch(1, 11), launch(2, 10), launch(1, 5)];
    let claimed = insert_and_claim(&mut tx, host, &slots, at(20)).await;
    let run_of = |slot: u64, schedule: u128| {
        let id = launch(schedule, slot).id;
        claimed.iter().find(|run| run.launch_id() == id).unwrap()
    };
    let ends = [
        run_of(10, 1).succeeded("1", at(22)),
        run_of(11, 1).failed("no", at(26)),
        run_of(5, 1).succeeded("1", at(29)),
    ];
    assert_eq!(launch::finish(&mut tx, &ends).await.unwrap().len(), 3);
    launch::insert(&mut tx, &[skipped(1, 30, "missed")])
        .await
        .unwrap();
    let ids = [1, 2, 3].map(schedule_id);
    let counts = stats::counts_of(&mut tx, &ids, at(10)).await.unwrap();
    let first = Counts {
        launches: 2,
        succeeded: 1,
        failed: 1,
        skipped: 1,
        ..Counts::default()
    };
    let second = Counts {
        launches: 1,
        unfinished: 1,
        ..Counts::default()
    };
    assert_eq!(counts.get(&schedule_id(1)), Some(&first), "{counts:?}");
    assert_eq!(counts.get(&schedule_id(2)), Some(&second), "{counts:?}");
    assert_eq!(counts.len(), 2, "the third has no launch: {counts:?}");
    let executions = stats::executions_of(&mut tx, schedule_id(1), at(10), 9);
    let expected = [(at(20), at(26)), (at(20), at(22))];
    assert_eq!(executions.await.unwrap(), expected, "newest slot first");
    let newest = stats::executions_of(&mut tx, schedule_id(1), at(10), 1);
    assert_eq!(newest.await.unwrap(), expected[..1]);
    assert_eq!(stats::executions(&mut tx, at(0), 9).await.unwrap().len(), 3);

    // Whatever retention removed is counted on.
    let day = Duration::from_secs(24 * 3_600);
    let removed = [launch(1, 10).id, launch(1, 5).id];
    retention::remove(&mut tx, &removed, at(40)).await.unwrap();
    let since = at(0).minus(day);
    let counts = stats::counts_of(&mut tx, &ids, since).await.unwrap();
    let first = counts[&schedule_id(1)];
    assert_eq!((first.launches, first.succeeded, first.failed), (3, 2, 1));
}

async fn lag_counts_only_on_time_launches_that_have_started(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let caught_up = launch::NewLaunch {
        kind: campanile_model::ids::LaunchKind::Catchup,
        ..launch(1, 11)
    };
    insert_and_claim(
        &mut tx,
        host,
        &[launch(1, 10), caught_up, launch(1, 12), manual(1, 13)],
        at(15),
    )
    .await;
    launch::insert(&mut tx, &[launch(1, 20)]).await.unwrap();
    let lags = stats::lags(&mut tx, at(0), 9).await.unwrap();
    assert_eq!(lags, [(at(12), at(15)), (at(10), at(15))]);
    assert_eq!(stats::lags(&mut tx, at(11), 9).await.unwrap(), lags[..1]);
    assert_eq!(stats::lags(&mut tx, at(0), 1).await.unwrap(), lags[..1]);
}

async fn health_signs_are_counted(test: TestDb) {
    let host = host_with_schedules(&test, 4).await;
    let mut tx = test.write().await;
    let healthy = HealthSigns {
        live_hosts: 1,
        ..HealthSigns::default()
    };
    assert_eq!(
        stats::health_signs(&mut tx, at(0), at(0), at(3600))
            .await
            .unwrap(),
        healthy
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
    insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await;
    launch::insert(&mut tx, &[launch(1, 20), launch(1, 100)])
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
        stats::health_signs(&mut tx, at(41), at(41), at(3600))
            .await
            .unwrap(),
        expected
    );
    hosts::heartbeat(&mut tx, host, at(41), lease_until(at(41)))
        .await
        .unwrap();
    assert_eq!(
        stats::health_signs(&mut tx, at(41), at(41), at(3600))
            .await
            .unwrap()
            .live_hosts,
        1
    );
}

async fn a_failing_schedule_a_starved_package_and_a_silent_host_are_named(test: TestDb) {
    let host = host_with_schedules(&test, 2).await;
    let mut tx = test.write().await;
    let slots = [launch(1, 10), launch(1, 20), launch(1, 30), launch(2, 10)];
    let runs = insert_and_claim(&mut tx, host, &slots, at(31)).await;
    let fail = |run: ClaimedRun| run.failed(&format!("of {}", run.scheduled_time), at(32));
    let ends: Vec<Finish> = runs.into_iter().map(fail).collect();
    assert_eq!(launch::finish(&mut tx, &ends).await.unwrap().len(), 4);
    let failing = async |tx: &mut Tx, failures| {
        let failing = stats::failing_schedules(tx, failures, 9).await.unwrap();
        let last = |(_, failure): &(String, String)| failure.contains(&format!("of {}", at(30)));
        (failing.len(), failing.iter().any(last))
    };
    assert_eq!(failing(&mut tx, 1).await, (2, true));
    assert_eq!(failing(&mut tx, 3).await, (1, true));
    assert_eq!(failing(&mut tx, 4).await, (0, false));

    let silent = stats::silent_hosts(&mut tx, at(0)).await.unwrap();
    assert_eq!(silent, []);
    let silent = stats::silent_hosts(&mut tx, at(40)).await.unwrap();
    assert_eq!(silent.len(), 1);

    let starved = async |tx: &mut Tx, since| stats::starved_packages(tx, since, 9).await.unwrap();
    let waiting = NewLaunch {
        package: "other".to_owned(),
        ..launch(2, 40)
    };
    launch::insert(&mut tx, &[waiting]).await.unwrap();
    insert_and_claim(&mut tx, host, &[launch(1, 60)], at(60)).await;
    assert_eq!(starved(&mut tx, at(50)).await, [], "no host has it");
    publish(&mut tx, host, "other", b"other", at(41)).await;
    let named = [("other".to_owned(), 1, at(40))];
    assert_eq!(starved(&mut tx, at(50)).await, named);
    assert_eq!(starved(&mut tx, at(61)).await, [], "nothing else began");
    assert_eq!(starved(&mut tx, at(40)).await, [], "it is not overdue");
}

async fn what_a_package_does_to_itself_leaves_the_installation_healthy(test: TestDb) {
    let host = host_with_schedules(&test, 2).await;
    let mut tx = test.write().await;
    // 20 launches of one package are waiting, and those already started were late. Another package's schedule skips most of its
    // slots.
    publish(&mut tx, host, "greedy", b"greedy", at(1)).await;
    let greedy = |slot| NewLaunch {
        package: "greedy".to_owned(),
        ..launch(2, slot)
    };
    let late = Vec::from_iter((10..20).map(greedy));
    assert_eq!(
        insert_and_claim(&mut tx, host, &late, at(100)).await.len(),
        10
    );
    let waiting = Vec::from_iter((20..40).map(greedy));
    let skips = (50..62).map(|slot| match slot % 3 {
        0 => launch(1, slot),
        _ => skipped(1, slot, "overlap"),
    });
    for launch in skips {
        let is_launched = launch.reason.is_none();
        let now = launch.scheduled_time;
        let claimed = insert_and_claim(&mut tx, host, &[launch], now).await;
        assert_eq!(claimed.len(), usize::from(is_launched));
    }
    launch::insert(&mut tx, &waiting).await.unwrap();
    tx.commit().await.unwrap();

    let health = async |disk: DiskSigns| {
        let mut tx = test.read().await;
        let settings = crate::serving::settings(8);
        let now = at(101);
        health::read(&mut tx, now, &settings, 0, disk)
            .await
            .unwrap()
    };
    let found = health(DiskSigns::default()).await;
    let of_all = ["start late", "stood still", "wait for a host", "skipped"];
    for issue in &found.issues {
        assert!(!of_all.iter().any(|words| issue.contains(words)), "{issue}");
    }
    for words in [
        "20 launches of the package `greedy` wait for a host",
        "launches of the package `greedy` start late",
        "the schedule `schedule-1` has skipped 8 of its last 12 slots",
    ] {
        assert!(
            found.notes.iter().any(|note| note.contains(words)),
            "{words}: {found:#?}"
        );
    }
    assert!(found.signs.stalled >= 20, "{found:#?}");
    let grown = DiskSigns {
        wal_bytes: Some(1 << 30),
        ..DiskSigns::default()
    };
    let notes = health(grown).await.notes;
    assert!(
        notes
            .iter()
            .any(|note| note.contains("`-wal`, has grown to 1.0 GiB")),
        "{notes:#?}"
    );
}

async fn a_dropped_transaction_changes_nothing(test: TestDb) {
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

async fn an_abandoned_begin_leaves_its_connection_free(test: TestDb) {
    for round in 0..300 {
        // Stop waiting at another moment in each round: some of them fall between the statement and its answer.
        let pause = async {
            for _ in 0..round * 4 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = test.db.read() => {}
            () = pause => {}
        }
        let mut tx = test.write().await;
        changes::bump(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    }
}

async fn a_read_transaction_sees_one_snapshot(test: TestDb) {
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

async fn only_a_database_server_has_a_clock(test: TestDb) {
    let time = test.db.server_time().await.unwrap();
    assert_eq!(time.is_some(), test.backend() == Backend::Postgres);
    if let Some(time) = time {
        let again = test.db.server_time().await.unwrap().unwrap();
        assert!(
            again >= time && time > at(0).minus(std::time::Duration::from_secs(3 * 365 * 86_400))
        );
    }
}

async fn a_read_transaction_cannot_write(test: TestDb) {
    let mut tx = test.read().await;
    assert!(changes::bump(&mut tx).await.is_err());
}
