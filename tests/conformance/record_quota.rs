//! The record quota of a package: its tasks add at most so many bytes a day.

use std::time::Duration;

use campanile_engine::Settings;
use campanile_model::clock::{Clock, Timestamp};
use campanile_package::Quota;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::events::{self, EventKind};
use campanile_store::schedules::{self, Revision};
use campanile_store::{FailureKind, LaunchStatus, Origin, launches, package_record};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::schedule_id;
use crate::host_steps::clock_time;
use crate::serving::{self, GUESTS, settings};

on_both!(a_package_that_prints_too_much_fails_until_midnight);

const QUOTA: u64 = 100 << 10;

/// A task prints 40 KB each minute, so the third call of the day exceeds 100 KiB.
async fn a_package_that_prints_too_much_fails_until_midnight(test: TestDb) {
    let clock = Clock::simulated(clock_time("23:50:00"));
    let settings = Settings {
        quota: Quota {
            record_bytes_per_day: QUOTA,
            ..Quota::default()
        },
        ..settings(8)
    };
    let (engine, _lock) = serving::start(&test, &clock, settings, GUESTS).await;
    let id = schedule_id(1);
    let definition = Revision {
        schedule_id: id,
        revision: 1,
        name: "flood".to_owned(),
        package: "guests".to_owned(),
        task: Some("big_output".to_owned()),
        policies: "{}".to_owned(),
        context: r#"{"bytes": 40000}"#.to_owned(),
        since: clock_time("23:50:00"),
        rule: RuleText::new(RuleKind::Cron, "* * * * *", "UTC"),
    };
    let first = Some(clock_time("23:51:00"));
    let mut tx = test.write().await;
    schedules::insert(&mut tx, &definition, Origin::Operator, first)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let mut now = clock_time("23:51:00");
    let mut minute = async || {
        clock.advance_to(now);
        assert_eq!(engine.tick(now).await.unwrap().finished, 1);
        let mut tx = test.read().await;
        let newest = launches::list(&mut tx, None, 1).await.unwrap().remove(0);
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
    let bytes = package_record::of_day(&mut tx, "guests", day)
        .await
        .unwrap();
    assert!(bytes.unwrap() <= QUOTA as i64, "{bytes:?}");
    assert_eq!(
        package_record::exceeded(&mut tx, day).await.unwrap(),
        ["guests"]
    );
    let told = events::list(&mut tx, 100).await.unwrap();
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
