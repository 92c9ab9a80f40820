//! What tasks used: the sums over calls on record and removed calls, and the schedules whose use grows.
use campanile_control::reports::health;
use campanile_control::reports::use_statistics::{day_statistics, package_statistics};
use campanile_store::disk::DiskSigns;
use campanile_store::launch::{self, RecoveryAction, RecoveryDecision};
use campanile_store::task_runs::TaskRun;
use campanile_store::task_use::{self, PackageDay, UseSums};

use super::*;
use crate::fixtures::{host_with_schedules, insert_and_claim};

on_both!(
    sums_of_use_stay_when_calls_and_launches_are_removed,
    sums_of_removed_calls_end_at_the_age_of_counts,
    a_call_of_a_lost_run_counts_once,
    use_is_listed_by_package_and_by_day,
    a_schedule_whose_use_grows_is_noted_until_it_does_not,
);

const MIB: i64 = 1 << 20;

/// Return a call that used so much. It adds 10 bytes to the record.
fn call(cpu_ms: f64, memory_peak_bytes: i64, requests: u64) -> TaskRun {
    TaskRun {
        output: Some("\"ä\"".to_owned()),
        stdout: "four".to_owned(),
        cpu_ms,
        memory_peak_bytes,
        usage: match requests {
            0 => "{}".to_owned(),
            requests => format!("{{\"memory\":[1,2],\"http_requests\":[{requests},1000]}}"),
        },
        ..task_run("build", 1)
    }
}

/// Insert launches, claim them, and end each with `end` and the call that `call` returns for it.
async fn run(
    test: &TestDb,
    host: &TestHost,
    decided: &[NewLaunch],
    end: fn() -> RunEnd,
    call: impl Fn(&ClaimedRun) -> TaskRun,
) {
    let mut tx = test.write().await;
    launch::insert(&mut tx, decided).await.unwrap();
    let newest = decided.iter().map(|launch| launch.fire_time).max().unwrap();
    let claimed = claim_all(&mut tx, host.engine.host(), newest).await;
    assert_eq!(claimed.len(), decided.len());
    let end = |run: &ClaimedRun| {
        let mut finish = run.finish(end(), run.scheduled_time.plus(Duration::from_secs(1)));
        finish.tasks = vec![call(run)];
        finish
    };
    let ends: Vec<_> = claimed.iter().map(end).collect();
    launch::finish(&mut tx, &ends).await.unwrap();
    tx.commit().await.unwrap();
}

/// Return the sums of all calls: by day and package, and of schedules 1 and 2.
async fn sums(test: &TestDb) -> (Vec<PackageDay>, Vec<Option<UseSums>>) {
    let since = at(0).minus(DAY);
    let mut tx = test.read().await;
    let days = task_use::by_package_and_day(&mut tx, since).await.unwrap();
    let ids = [1, 2].map(schedule_id);
    let schedules = task_use::of_schedules(&mut tx, &ids, since).await.unwrap();
    let schedules = ids.map(|id| schedules.get(&id).copied()).to_vec();
    (days, schedules)
}

async fn sums_of_use_stay_when_calls_and_launches_are_removed(test: TestDb) {
    let host = TestHost::start(&test, "host-1", LIMITS).await;
    add_schedules(&test, 2).await;
    assert_eq!(sums(&test).await, (Vec::new(), vec![None, None]));
    // Five slots of the first day, and three of the second one.
    let slots = [10, 20, 30, 40, 50, DAY_S, DAY_S + 10, DAY_S + 20];
    let slots: Vec<NewLaunch> = slots.iter().map(|slot| launch(1, *slot)).collect();
    let by_slot = |run: &ClaimedRun| {
        let slot = run.scheduled_time.since(at(0)).as_secs();
        match slot {
            20 => call(0.25, 7 * MIB, 0),
            _ => call(1.5, MIB, 3),
        }
    };
    run(&test, &host, &slots, success, by_slot).await;
    let failed = |_: &ClaimedRun| call(10.0, 2 * MIB, 1);
    run(&test, &host, &[launch(2, 15)], failure, failed).await;
    let before = sums(&test).await;
    let day = |day, calls, cpu_us, memory_peak_bytes, http_requests| PackageDay {
        day,
        package: PACKAGE.to_owned(),
        used: UseSums {
            calls,
            cpu_us,
            memory_peak_bytes,
            record_bytes: 10 * calls,
            http_requests,
        },
    };
    let first = at(0).day();
    let expected = [
        day(first, 6, 4 * 1_500 + 250 + 10_000, 7 * MIB, 4 * 3 + 1),
        day(first + 1, 3, 4_500, MIB, 9),
    ];
    assert_eq!(before.0, expected);
    let of_second = before.1[1].unwrap();
    assert_eq!((of_second.calls, of_second.cpu_us), (1, 10_000));

    // The calls go at their age, before their launches.
    let removed = host.remove_old(at(DAY_S + 300)).await;
    assert_eq!((removed.calls, removed.launches), (6, 0));
    assert_eq!(count(&test, "task_run").await, "3");
    assert_eq!(sums(&test).await, before);
    // All launches but the newest go, with the rest of the calls.
    let removed = host.remove_old(at(30 * DAY_S)).await;
    assert_eq!(removed.launches, 5);
    assert_eq!(count(&test, "task_run").await, "0");
    assert_eq!(sums(&test).await, before);
    assert_eq!(host.remove_old(at(31 * DAY_S)).await.launches, 0);
    assert_eq!(sums(&test).await, before);

    // Removed calls count for whole days alone.
    let mut tx = test.read().await;
    let days = task_use::by_package_and_day(&mut tx, at(5)).await.unwrap();
    assert_eq!(days, before.0[1..]);
}

async fn sums_of_removed_calls_end_at_the_age_of_counts(test: TestDb) {
    let limits = RetentionLimits {
        counts: Some(DAY * 100),
        ..LIMITS
    };
    let host = TestHost::start(&test, "host-1", limits).await;
    add_schedules(&test, 1).await;
    let used = |_: &ClaimedRun| call(1.0, MIB, 0);
    run(&test, &host, &[launch(1, 10)], success, used).await;
    run(&test, &host, &[launch(1, DAY_S)], success, used).await;
    host.remove_old(at(20 * DAY_S)).await;
    assert_eq!(count(&test, "removed_calls").await, "2");
    // The first day is older than a hundred days, and the second one is not.
    host.remove_old(at(101 * DAY_S)).await;
    assert_eq!(count(&test, "removed_calls").await, "1");
    host.remove_old(at(102 * DAY_S)).await;
    assert_eq!(count(&test, "removed_calls").await, "0");
}

async fn a_call_of_a_lost_run_counts_once(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let lost = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    let first = call(1.0, MIB, 0);
    let calls = [first.clone()];
    let recorded = launch::record_tasks(&mut tx, lost.run_id, lost.fence, &calls);
    assert!(recorded.await.unwrap());
    let again = RecoveryDecision {
        launch_id: lost.launch_id(),
        action: RecoveryAction::RunAgain,
        not_before: None,
    };
    launch::recover(&mut tx, host, &[again], "gone", at(50))
        .await
        .unwrap();
    let second = claim_all(&mut tx, host, at(51)).await[0];
    let rest = TaskRun {
        task: "publish".to_owned(),
        ..call(2.0, MIB, 0)
    };
    // The lost run comes to its end too late.
    let mut late = lost.succeeded("1", at(52));
    late.tasks = vec![rest.clone()];
    assert_eq!(launch::finish(&mut tx, &[late]).await.unwrap(), []);
    // The end of the second run is recorded once more, because the answer to the commit was lost.
    let mut end = second.succeeded("1", at(53));
    end.tasks = vec![first, rest];
    assert_eq!(
        launch::finish(&mut tx, &[end.clone()]).await.unwrap().len(),
        1
    );
    assert_eq!(launch::finish(&mut tx, &[end]).await.unwrap(), []);
    tx.commit().await.unwrap();
    let (days, _) = sums(&test).await;
    let used = days[0].used;
    assert_eq!((days.len(), used.calls, used.cpu_us), (1, 2, 3_000));
    // So it is after the removal.
    let mut tx = test.write().await;
    let removable = [lost.launch_id()];
    let removed = retention::remove(&mut tx, &removable, at(60));
    assert_eq!(removed.await.unwrap(), 1);
    let again = retention::remove(&mut tx, &removable, at(61));
    assert_eq!(again.await.unwrap(), 0);
    tx.commit().await.unwrap();
    assert_eq!(sums(&test).await.0, days);
}

async fn use_is_listed_by_package_and_by_day(test: TestDb) {
    let host = TestHost::start(&test, "host-1", RetentionLimits::FOR_EVER).await;
    add_schedules(&test, 1).await;
    let mut tx = test.write().await;
    publish(&mut tx, host.engine.host(), "other", b"other", at(0)).await;
    tx.commit().await.unwrap();
    let used = |_: &ClaimedRun| call(0.5, MIB, 2);
    let other = NewLaunch {
        package: "other".to_owned(),
        ..launch(1, DAY_S)
    };
    run(&test, &host, &[launch(1, 10), launch(1, 20)], success, used).await;
    run(&test, &host, &[other, launch(1, DAY_S + 10)], success, used).await;
    let now = at(DAY_S + 100);
    let mut tx = test.read().await;
    let tx = &mut tx;
    let packages = package_statistics(tx, now, 2 * DAY, None, None, 10)
        .await
        .unwrap();
    let figures = packages
        .iter()
        .map(|row| (&*row.package, row.used.calls, row.used.http_requests));
    let expected = [(PACKAGE, 3, 6), ("other", 1, 2)];
    assert_eq!(figures.collect::<Vec<_>>(), expected);
    let rest = package_statistics(tx, now, 2 * DAY, None, Some(PACKAGE), 10).await;
    assert_eq!(rest.unwrap(), packages[1..]);
    let first = package_statistics(tx, now, 2 * DAY, None, None, 1).await;
    assert_eq!(first.unwrap(), packages[..1]);
    let newest = package_statistics(tx, now, Duration::from_secs(100), None, None, 10);
    assert_eq!(newest.await.unwrap().len(), 2);

    let days = day_statistics(tx, now, 2 * DAY, None, None, 10)
        .await
        .unwrap();
    let figures = days
        .iter()
        .map(|row| (&*row.day, &*row.package, row.used.calls));
    let expected = [
        ("2027-01-15", PACKAGE, 2),
        ("2027-01-16", PACKAGE, 1),
        ("2027-01-16", "other", 1),
    ];
    assert_eq!(figures.collect::<Vec<_>>(), expected);
    let after = days[1].key();
    let rest = day_statistics(tx, now, 2 * DAY, None, Some(&after), 10).await;
    assert_eq!(rest.unwrap(), days[2..]);
}

async fn a_schedule_whose_use_grows_is_noted_until_it_does_not(test: TestDb) {
    let host = TestHost::start(&test, "host-1", RetentionLimits::FOR_EVER).await;
    add_schedules(&test, 2).await;
    let week = 7 * DAY_S;
    for schedule in [1, 2] {
        for (first, cpu_ms) in [(0, 20.0), (week, 50.0)] {
            let slots = (1..=20).map(|n| launch(schedule, first + 1_000 * n));
            let cpu_ms = match schedule {
                1 => cpu_ms,
                _ => 20.0,
            };
            let used = |_: &ClaimedRun| call(cpu_ms, MIB, 0);
            run(&test, &host, &slots.collect::<Vec<_>>(), success, used).await;
        }
    }
    let notes = async |now: Timestamp| {
        let settings = settings();
        let health = health::read(
            &mut test.read().await,
            now,
            &settings,
            0,
            DiskSigns::default(),
        )
        .await;
        let notes = health.unwrap().notes.into_iter();
        notes
            .filter(|note| note.contains("use more"))
            .collect::<Vec<_>>()
    };
    let now = at(2 * week);
    host.clock.advance_to(now);
    assert!(host.engine.hold_chores(now).await.unwrap());
    assert_eq!(notes(now).await, Vec::<String>::new());
    host.engine.check_growth(now).await.unwrap();
    let found = notes(now).await;
    assert_eq!(found.len(), 1, "{found:?}");
    for part in ["`schedule-1`", "processor time", "50.0 ms", "20.0 ms"] {
        assert!(found[0].contains(part), "{part}: {found:?}");
    }
    if test.db.url().is_shared() {
        // The host that does the chores looks, and no other one.
        let second = TestHost::start(&test, "host-2", RetentionLimits::FOR_EVER).await;
        let later = now.plus(DAY * 10);
        second.clock.advance_to(later);
        second.engine.check_growth(later).await.unwrap();
        assert_eq!(notes(now).await, found);
    }
    // A week later there is nothing to compare with.
    let later = now.plus(DAY * 7);
    host.clock.advance_to(later);
    assert!(host.engine.hold_chores(later).await.unwrap());
    host.engine.check_growth(later).await.unwrap();
    assert_eq!(notes(later).await, Vec::<String>::new());
    assert_eq!(count(&test, "schedule_growth").await, "0");
}
