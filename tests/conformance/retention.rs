//! Retention: which rows are removed, which stay, and the counts of removed launches.

mod rest;
mod task_use;

use std::sync::Arc;
use std::time::Duration;

use campanile_control::admin::approval;
use campanile_control::admin::backfill::{self, BackfillRequest};
use campanile_control::settings::{RetentionLimits, Settings};
use campanile_engine::{Engine, Removed};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{BackfillId, ChainHash};
use campanile_package::Packages;
use campanile_store::events::{self, EventKind};
use campanile_store::launch::{self, NewLaunch, RunEnd};
use campanile_store::package_record::{self, DayUse};
use campanile_store::{
    FailureKind, HostLock, LaunchStatus, Origin, history, hosts, package_versions,
    removed_launches, retention, schedules, size, stats, task_runs,
};
use campanile_tests::{TestDb, on_both};

use crate::any_sequence::host::{loader, settings};
use crate::fixtures::{
    BYTES, ClaimedRun, PACKAGE, ada, at, claim_all, host, host_id, insert_schedule, launch, manual,
    publish, revision, schedule_id, skipped, task_run,
};

on_both!(
    launches_go_at_the_age_of_their_outcome,
    statistics_and_hashes_cover_what_was_removed,
    the_newest_launches_of_each_schedule_stay,
    calls_go_before_their_launches,
    a_schedule_may_have_its_own_age,
    launches_that_others_need_stay,
);

const DAY: Duration = Duration::from_secs(86_400);
const DAY_S: u64 = 86_400;
/// Succeeded 2 days, failed 4, skipped 3, calls 1; one launch of each schedule stays.
const LIMITS: RetentionLimits = RetentionLimits {
    succeeded: Some(Duration::from_secs(2 * DAY_S)),
    failed: Some(Duration::from_secs(4 * DAY_S)),
    skipped: Some(Duration::from_secs(3 * DAY_S)),
    logs: Some(Duration::from_secs(DAY_S)),
    ..RetentionLimits::FOR_EVER
};

struct TestHost {
    engine: Arc<Engine>,
    clock: Clock,
    _lock: HostLock,
}

impl TestHost {
    /// Start a host at `at(0)` that has the package.
    async fn start(test: &TestDb, name: &str, retention: RetentionLimits) -> TestHost {
        let clock = Clock::simulated(at(0));
        let settings = Settings {
            retention,
            ..settings()
        };
        let started = Engine::start(
            test.db.clone(),
            clock.clone(),
            Some(name),
            settings,
            Packages::default(),
            loader(&clock),
        );
        let (engine, lock) = started.await.unwrap();
        let mut tx = test.write().await;
        publish(&mut tx, engine.host(), PACKAGE, BYTES, at(0)).await;
        tx.commit().await.unwrap();
        TestHost {
            engine,
            clock,
            _lock: lock,
        }
    }

    /// Do a pass of retention at `now`.
    async fn remove_old(&self, now: Timestamp) -> Removed {
        self.clock.advance_to(now);
        self.engine.hold_chores(now).await.unwrap();
        // A launch is removed after it's sealed.
        self.engine.seal(now).await.unwrap();
        self.engine.remove_old(now).await.unwrap()
    }

    /// Insert launches, run those that are launched, and end them with `end` a second after their slots.
    async fn run(&self, test: &TestDb, decided: &[NewLaunch], end: fn() -> RunEnd) {
        let mut tx = test.write().await;
        launch::insert(&mut tx, decided).await.unwrap();
        let newest = decided.iter().map(|launch| launch.fire_time).max().unwrap();
        let claimed = claim_all(&mut tx, self.engine.host(), newest).await;
        let end = |run: &ClaimedRun| {
            let mut finish = run.finish(end(), run.scheduled_time.plus(Duration::from_secs(1)));
            finish.tasks = vec![task_run("build", 1)];
            finish
        };
        let ends: Vec<_> = claimed.iter().map(end).collect();
        launch::finish(&mut tx, &ends).await.unwrap();
        tx.commit().await.unwrap();
    }
}

fn success() -> RunEnd {
    RunEnd::Succeeded { output: None }
}

fn failure() -> RunEnd {
    RunEnd::Failed {
        kind: FailureKind::Failed,
        message: "no".to_owned(),
    }
}

/// Return the slots of a schedule that have a launch, in seconds after `at(0)`, with the first letter of its status.
async fn remaining(test: &TestDb, schedule: u128) -> Vec<(u64, char)> {
    let mut tx = test.read().await;
    let rows = launch::of_schedule(&mut tx, schedule_id(schedule), 10_000).await;
    let rows = rows.unwrap().into_iter().rev();
    rows.map(|row| {
        let status = row.status.as_str().chars().next().unwrap();
        (row.scheduled_time.since(at(0)).as_secs(), status)
    })
    .collect()
}

async fn count(test: &TestDb, table: &str) -> String {
    test.value(&format!("SELECT CAST(count(*) AS TEXT) FROM {table}"))
        .await
}

/// Add schedules with a slot each 10 seconds, which no host decides yet.
async fn add_schedules(test: &TestDb, schedules: u128) {
    let mut tx = test.write().await;
    for number in 1..=schedules {
        let mut definition = revision(number);
        definition.rule.expression = "10s".to_owned();
        let next = Some(at(1_000 * DAY_S));
        insert_schedule(&mut tx, &definition, Origin::Operator, next)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
}

async fn launches_go_at_the_age_of_their_outcome(test: TestDb) {
    let host = TestHost::start(&test, "host-1", LIMITS).await;
    add_schedules(&test, 1).await;
    host.run(&test, &[launch(1, 10), manual(1, 11)], success)
        .await;
    host.run(&test, &[launch(1, 20)], failure).await;
    let newest = [
        skipped(1, 30, "missed"),
        launch(1, 40),
        launch(1, 41),
        launch(1, 42),
    ];
    host.run(&test, &newest, success).await;

    let days = |days: u64| at(days * DAY_S + 100);
    let newest = [(40, 's'), (41, 's'), (42, 's')];
    assert_eq!(host.remove_old(days(1)).await.launches, 0);
    assert_eq!(host.remove_old(at(2 * DAY_S + 5)).await.launches, 0);
    assert_eq!(host.remove_old(days(2)).await.launches, 2);
    let expected = [&[(20, 'f'), (30, 's')], &newest[..]].concat();
    assert_eq!(remaining(&test, 1).await, expected);
    assert_eq!(host.remove_old(days(3)).await.launches, 1);
    assert_eq!(
        remaining(&test, 1).await,
        [&[(20, 'f')], &newest[..]].concat()
    );
    assert_eq!(host.remove_old(days(4)).await.launches, 1);
    assert_eq!(remaining(&test, 1).await, newest);
    assert_eq!(host.remove_old(days(100)).await.launches, 0);

    // A removed schedule keeps nothing.
    let mut tx = test.write().await;
    schedules::remove(&mut tx, schedule_id(1), days(100))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(host.remove_old(days(100)).await.launches, 3);
    assert_eq!(count(&test, "launch").await, "0");
    assert_eq!(count(&test, "task_run").await, "0");
}

async fn statistics_and_hashes_cover_what_was_removed(test: TestDb) {
    let host = TestHost::start(
        &test,
        "host-1",
        RetentionLimits {
            logs: None,
            ..LIMITS
        },
    )
    .await;
    add_schedules(&test, 2).await;
    let slots: Vec<NewLaunch> = (1..=300).map(|slot| launch(1, slot)).collect();
    host.run(&test, &slots, success).await;
    host.run(
        &test,
        &[launch(2, 20), launch(2, DAY_S), launch(2, 2 * DAY_S)],
        failure,
    )
    .await;
    let range = NewLaunch {
        slot_count: 7,
        last_scheduled_time: at(9_000),
        ..skipped(2, 8_000, "missed")
    };
    host.run(&test, &[range], success).await;
    let read = async || {
        let mut tx = test.read().await;
        stats::counts(&mut tx, at(0).minus(DAY)).await.unwrap()
    };
    let before = read().await;
    let mut tx = test.read().await;
    let all = launch::of_schedule(&mut tx, schedule_id(1), 1_000)
        .await
        .unwrap();
    drop(tx);
    assert_eq!((before.launches, before.skipped), (303, 7));
    // The newest three stay.
    assert_eq!(host.remove_old(at(30 * DAY_S)).await.launches, 297 + 1);
    assert_eq!(read().await, before);
    assert_eq!(count(&test, "launch").await, "6");
    assert_eq!(count(&test, "task_run").await, "6");

    // A list of the launches, made before, leads to the same hash.
    let json = all.iter().rev().take(297).map(|row| {
        let row = serde_json::to_value(row).unwrap();
        let fields = [
            "id",
            "scheduled_time",
            "last_scheduled_time",
            "slot_count",
            "kind",
            "status",
            "reason",
            "package",
            "digest",
            "attempts",
            "recoveries",
            "fire_time",
            "decided_at",
            "started_at",
            "finished_at",
            "failure",
            "message",
        ];
        let fields = fields.map(|key| format!("\"{key}\":{}", row[key]));
        format!("{{{}}}", fields.join(","))
    });
    let hash = json.fold(None, |hash, row| {
        Some(ChainHash::after(hash.as_ref(), &row))
    });
    let hex = match test.db.url().is_shared() {
        true => "encode(hash, 'hex')",
        false => "lower(hex(hash))",
    };
    let sql = format!("SELECT {hex} FROM removed_launches WHERE status = 'succeeded'");
    assert_eq!(test.value(&sql).await, hash.unwrap().to_string());
}

async fn the_newest_launches_of_each_schedule_stay(test: TestDb) {
    let limits = RetentionLimits {
        keep_last: 2,
        ..LIMITS
    };
    let host = TestHost::start(&test, "host-1", limits).await;
    add_schedules(&test, 1).await;
    let mut counting = revision(2);
    counting.policies = r#"{"pause_on_failure":6}"#.to_owned();
    let mut tx = test.write().await;
    let origin = Origin::Operator;
    insert_schedule(&mut tx, &counting, origin, None)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for schedule in [1, 2] {
        let slots: Vec<NewLaunch> = (1..=9).map(|slot| launch(schedule, slot)).collect();
        host.run(&test, &slots, failure).await;
        let skips: Vec<NewLaunch> = (10..=19)
            .map(|slot| skipped(schedule, slot, "overlap"))
            .collect();
        host.run(&test, &skips, failure).await;
    }
    host.remove_old(at(30 * DAY_S)).await;
    let skips = [(18, 's'), (19, 's')];
    let failed = |first| (first..=9).map(|slot| (slot, 'f'));
    let expected: Vec<_> = failed(7).chain(skips).collect();
    assert_eq!(remaining(&test, 1).await, expected);
    let expected: Vec<_> = failed(4).chain(skips).collect();
    assert_eq!(remaining(&test, 2).await, expected);
    let mut tx = test.read().await;
    let outcomes = launch::recent_outcomes(&mut tx, schedule_id(2), 6)
        .await
        .unwrap();
    assert_eq!(outcomes.len(), 6);
    let failing = stats::failing_schedules(&mut tx, 3, 10).await.unwrap();
    assert_eq!(failing.len(), 2);
}

async fn calls_go_before_their_launches(test: TestDb) {
    let host = TestHost::start(&test, "host-1", LIMITS).await;
    add_schedules(&test, 1).await;
    host.run(&test, &[launch(1, 10)], success).await;
    host.run(&test, &[launch(1, DAY_S)], success).await;
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[launch(1, 20)]).await.unwrap();
    // It still runs: recovery may ask for its calls.
    let running = claim_all(&mut tx, host.engine.host(), at(20))
        .await
        .remove(0);
    let calls = [task_run("a", 1)];
    let recorded = launch::record_tasks(&mut tx, running.run_id, running.fence, &calls);
    assert!(recorded.await.unwrap());
    tx.commit().await.unwrap();
    let removed = host.remove_old(at(DAY_S + 100)).await;
    assert_eq!((removed.calls, removed.launches), (1, 0));
    let mut tx = test.read().await;
    for (slot, calls) in [(10, 0), (20, 1), (DAY_S, 1)] {
        let id = launch(1, slot).id;
        assert!(history::launch(&mut tx, id).await.unwrap().is_some());
        assert_eq!(
            task_runs::of_launch(&mut tx, id).await.unwrap().len(),
            calls,
            "{slot}"
        );
    }
}

async fn a_schedule_may_have_its_own_age(test: TestDb) {
    let limits = RetentionLimits {
        logs: None,
        ..LIMITS
    };
    let host = TestHost::start(&test, "host-1", limits).await;
    add_schedules(&test, 1).await;
    for (number, age) in [(2, "1day"), (3, "10days"), (4, "1h")] {
        let mut own = revision(number);
        own.policies = format!(r#"{{"retention":"{age}"}}"#);
        let mut tx = test.write().await;
        let origin = Origin::Operator;
        insert_schedule(&mut tx, &own, origin, None).await.unwrap();
        tx.commit().await.unwrap();
    }
    for schedule in 1..=4 {
        let slots: Vec<NewLaunch> = (1..=5).map(|slot| launch(schedule, slot)).collect();
        host.run(&test, &slots, failure).await;
    }
    let left = async |now| {
        host.remove_old(now).await;
        let mut left = Vec::new();
        for schedule in 1..=4 {
            left.push(remaining(&test, schedule).await.len());
        }
        left
    };
    // Recovery looks back for a day, so no age is shorter.
    assert_eq!(left(at(DAY_S - 100)).await, [5, 5, 5, 5]);
    assert_eq!(left(at(DAY_S + 100)).await, [5, 3, 5, 3]);
    assert_eq!(left(at(9 * DAY_S)).await, [3, 3, 5, 3]);
    assert_eq!(left(at(11 * DAY_S)).await, [3, 3, 3, 3]);
}

async fn launches_that_others_need_stay(test: TestDb) {
    let host = TestHost::start(&test, "host-1", LIMITS).await;
    add_schedules(&test, 1).await;
    let backfill = BackfillId::new(at(0));
    let request = BackfillRequest {
        id: backfill,
        from: at(0),
        to: at(50),
        spread: Duration::ZERO,
        forced: true,
        context: None,
        by: "tester",
    };
    let mut tx = test.write().await;
    let preview = backfill::preview(&mut tx, "schedule-1", &request, at(50))
        .await
        .unwrap();
    backfill::begin(&mut tx, &preview, &request, at(50))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let filled = NewLaunch {
        id: campanile_model::ids::LaunchId::of_backfill(schedule_id(1), at(10), backfill),
        kind: campanile_model::ids::LaunchKind::Backfill,
        backfill_id: Some(backfill),
        ..launch(1, 10)
    };
    host.run(&test, &[filled, launch(1, 20), launch(1, 30)], success)
        .await;
    let newest: Vec<NewLaunch> = (40..=43).map(|slot| launch(1, slot)).collect();
    host.run(&test, &newest, success).await;
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[launch(1, 15)]).await.unwrap();
    claim_all(&mut tx, host.engine.host(), at(15)).await;
    tx.commit().await.unwrap();
    // The running launch refers to the one that displaces it.
    test.execute(&format!(
        "UPDATE launch SET overlaps_id = (SELECT id FROM launch WHERE scheduled_time = {}) WHERE status = 'running'",
        test.backend().instant(at(20))
    ))
    .await;
    assert_eq!(host.remove_old(at(30 * DAY_S)).await.launches, 2);
    let left = remaining(&test, 1).await;
    let slots: Vec<u64> = left.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, [10, 15, 20, 41, 42, 43]);
}
