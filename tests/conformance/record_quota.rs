//! The record quota of a package: the most bytes that its tasks add in a day.

use std::sync::Arc;
use std::time::Duration;

use campanile_control::settings::Settings;
use campanile_model::clock::{Clock, Timestamp};
use campanile_package::Quota;
use campanile_package::quota::{NamespaceQuota, Namespaces};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::events::{self, EventKind};
use campanile_store::schedules::{self, Revision};
use campanile_store::{FailureKind, LaunchStatus, Origin, launch, package_record, probe};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{insert_schedule, schedule_id};
use crate::host_steps::{clock_time, tick_all};
use crate::serving::{self, GUESTS, settings};

on_both!(
    a_package_that_prints_too_much_fails_until_midnight,
    the_packages_of_a_namespace_fail_together,
    proposed_schedules_pause_when_their_launches_use_up_the_quota,
);

const QUOTA: u64 = 100 << 10;

fn with_quota(bytes: u64) -> Settings {
    Settings {
        quota: Quota {
            record_bytes_per_day: bytes,
            ..Quota::default()
        },
        ..settings(8)
    }
}

/// Insert a schedule that is due each minute from 23:51 on, and whose task gives `bytes` bytes.
async fn add_schedule(test: &TestDb, id: u128, origin: Origin, bytes: u64) {
    insert(test, &definition(id, bytes), origin).await;
}

fn definition(id: u128, bytes: u64) -> Revision {
    Revision {
        schedule_id: schedule_id(id),
        revision: 1,
        name: format!("flood-{id}"),
        package: "guests".to_owned(),
        task: Some("big_output".to_owned()),
        policies: "{}".to_owned(),
        defaults: "{}".to_owned(),
        args: None,
        context: format!(r#"{{"bytes": {bytes}}}"#),
        since: clock_time("23:50:00"),
        rule: RuleText::new(RuleKind::Cron, "* * * * *", "UTC"),
    }
}

async fn insert(test: &TestDb, definition: &Revision, origin: Origin) {
    let first = Some(clock_time("23:51:00"));
    let mut tx = test.write().await;
    insert_schedule(&mut tx, definition, origin, first)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// The package may add more than its namespace.
async fn the_packages_of_a_namespace_fail_together(test: TestDb) {
    let of_team = NamespaceQuota {
        record_bytes_per_day: Some(QUOTA),
        ..NamespaceQuota::default()
    };
    let team = "team".parse().unwrap();
    let settings = Settings {
        namespaces: Arc::new(Namespaces::from([(team, of_team)])),
        ..with_quota(1 << 30)
    };
    let clock = Clock::simulated(clock_time("23:50:00"));
    let guest = ("@team/guests", GUESTS.1);
    let (engine, _lock) = serving::start(&test, &clock, settings, guest).await;
    for id in [1, 2] {
        let definition = Revision {
            name: format!("@team/flood-{id}"),
            package: guest.0.to_owned(),
            ..definition(id, 40_000)
        };
        insert(&test, &definition, Origin::Operator).await;
    }
    let mut failed = Vec::new();
    for minute in ["23:51:00", "23:52:00"] {
        let now = clock_time(minute);
        clock.advance_to(now);
        assert_eq!(tick_all(&engine, now).await.finished, 2, "{minute}");
        let newest = launch::list(&mut test.read().await, None, 2).await;
        let newest = newest.unwrap().into_iter();
        failed.extend(newest.filter_map(|launch| launch.message));
    }
    assert_eq!(failed.len(), 2, "{failed:?}");
    for message in failed {
        let told = "raise `record_per_day` in `[namespaces.team]`";
        assert!(message.contains(told), "{message}");
    }
    let day = clock_time("23:51:00").day();
    let exceeded = package_record::exceeded(&mut test.read().await, day).await;
    assert_eq!(exceeded.unwrap(), ["@team/"]);
}

/// Each launch of a proposed schedule counts 1 KiB, so the third exceeds 3 KiB together with the outputs.
async fn proposed_schedules_pause_when_their_launches_use_up_the_quota(test: TestDb) {
    let clock = Clock::simulated(clock_time("23:50:00"));
    let (engine, _lock) = serving::start(&test, &clock, with_quota(3 << 10), GUESTS).await;
    add_schedule(&test, 1, Origin::Package, 10).await;
    add_schedule(&test, 2, Origin::Operator, 10).await;
    let state = async || {
        let mut tx = test.read().await;
        let found = schedules::state(&mut tx, schedule_id(1)).await.unwrap();
        found.unwrap()
    };
    let mut now = clock_time("23:51:00");
    for expected in [2, 2, 2, 1, 1] {
        clock.advance_to(now);
        assert_eq!(tick_all(&engine, now).await.finished, expected, "{now}");
        now = now.plus(Duration::from_secs(60));
    }
    let paused = state().await;
    assert!(!paused.enabled);
    let midnight = clock_time("00:00:00").plus(Duration::from_secs(24 * 3600));
    assert_eq!(paused.paused_until, Some(midnight));
    assert_eq!(paused.paused_by.as_deref(), Some("quota"));
    let note = paused.pause_note.unwrap();
    assert!(note.contains("3KiB a day is their quota"), "{note}");
    let mut tx = test.read().await;
    let of_proposed = launch::of_schedule(&mut tx, schedule_id(1), 10).await;
    assert_eq!(of_proposed.unwrap().len(), 3);
    drop(tx);

    clock.advance_to(midnight);
    // The pause ends, and the slot of midnight is decided.
    assert_eq!(tick_all(&engine, midnight).await.finished, 2);
    assert!(state().await.enabled);
}

/// A task prints 40 KB each minute, so the third call of the day exceeds 100 KiB.
async fn a_package_that_prints_too_much_fails_until_midnight(test: TestDb) {
    let clock = Clock::simulated(clock_time("23:50:00"));
    let (engine, _lock) = serving::start(&test, &clock, with_quota(QUOTA), GUESTS).await;
    add_schedule(&test, 1, Origin::Operator, 40_000).await;

    let mut now = clock_time("23:51:00");
    let mut minute = async || {
        clock.advance_to(now);
        assert_eq!(engine.tick(now).await.unwrap().finished, 1);
        let mut tx = test.read().await;
        let newest = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
        now = now.plus(Duration::from_secs(60));
        newest
    };
    for _ in 0..2 {
        assert_eq!(minute().await.status, LaunchStatus::Succeeded);
    }
    for _ in 0..3 {
        let launch = minute().await;
        assert_eq!(launch.failure, Some(FailureKind::QuotaExceeded));
        let message = launch.message.unwrap();
        assert!(message.contains("100KiB a day is their quota"), "{message}");
    }
    let today = |at: Timestamp| at.day();
    let mut tx = test.read().await;
    let day = today(clock_time("23:51:00"));
    let bytes = format!(
        "SELECT CAST(bytes AS TEXT) FROM package_record WHERE package = 'guests' AND day = {day}"
    );
    let bytes = probe::rows(&mut tx, &bytes).await.unwrap();
    let [row] = &bytes[..] else {
        panic!("{bytes:?}");
    };
    assert!(row[0].parse::<u64>().unwrap() <= QUOTA, "{bytes:?}");
    assert_eq!(
        package_record::exceeded(&mut tx, day).await.unwrap(),
        ["guests"]
    );
    let told = events::list(&mut tx, None, 100).await.unwrap();
    let told = told
        .iter()
        .filter(|event| event.kind == EventKind::QuotaExceeded);
    assert_eq!(told.count(), 1, "one event a day");
    drop(tx);
    // 23:56 to 23:59, then the next day.
    for _ in 0..4 {
        assert_eq!(minute().await.failure, Some(FailureKind::QuotaExceeded));
    }
    assert_eq!(minute().await.status, LaunchStatus::Succeeded);
}
