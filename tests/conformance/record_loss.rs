//! A database that lost its newest commits, as a standby does that lagged when it was promoted.

use std::time::Duration;

use campanile_engine::EngineError;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::status::EventKind;
use campanile_store::launch;
use campanile_store::{LaunchStatus, events, hosts, schedules};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{host, host_id};
use crate::serving::{self, NOOP, settings};

on_both!(
    no_host_is_marked_dead_when_heartbeats_are_lost,
    a_host_records_itself_and_its_packages_again,
    a_host_whose_name_was_taken_renews_nothing,
);

const SIDECAR: &str = "[[schedules]]\nname = 'often'\ncron = '*/10 * * * *'\n";

fn start_time() -> Timestamp {
    "2026-05-04T20:30:00Z".parse().unwrap()
}

/// The database loses the newest heartbeats. By those that it has, the leases of live hosts have ended.
async fn no_host_is_marked_dead_when_heartbeats_are_lost(test: TestDb) {
    let clock = Clock::simulated(start_time());
    let (engine, _lock) = serving::start(&test, &clock, settings(8), NOOP).await;
    let second = |seconds| start_time().plus(Duration::from_secs(seconds));
    for seconds in [0, 10, 20, 30] {
        clock.advance_to(second(seconds));
        engine.renew(second(seconds)).await.unwrap();
    }
    let lose_heartbeats = async || {
        let mut tx = test.write().await;
        for host in hosts::live(&mut tx).await.unwrap() {
            let recorded = hosts::heartbeat(&mut tx, host.id, second(0), second(30)).await;
            assert!(recorded.unwrap());
        }
        tx.commit().await.unwrap();
    };
    lose_heartbeats().await;
    engine.recover(second(35)).await.unwrap();
    // Another host, which does not renew its lease.
    let mut tx = test.write().await;
    let other = host(host_id(2), "other", second(0));
    hosts::register(&mut tx, &other).await.unwrap();
    tx.commit().await.unwrap();
    for seconds in [36, 46, 56] {
        engine.renew(second(seconds)).await.unwrap();
    }
    lose_heartbeats().await;
    engine.renew(second(66)).await.unwrap();
    engine.recover(second(67)).await.unwrap();
    let mut tx = test.read().await;
    assert_eq!(hosts::live(&mut tx).await.unwrap().len(), 2);
    let mut recorded = events::list(&mut tx, None, 100).await.unwrap().into_iter();
    assert!(recorded.all(|event| event.kind != EventKind::PackageMissing));
    drop(tx);

    // A host that has not renewed its lease for a whole lease is dead.
    for seconds in [76, 86, 96] {
        engine.renew(second(seconds)).await.unwrap();
    }
    engine.recover(second(97)).await.unwrap();
    let live = hosts::live(&mut test.read().await).await.unwrap();
    assert_eq!(live.len(), 1);
    assert_ne!(live[0].name, "other");
}

/// The database loses the host and its package.
async fn a_host_records_itself_and_its_packages_again(test: TestDb) {
    let plugins = test.place.folder.path().join("plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(plugins.join("noop.toml"), SIDECAR).unwrap();
    let clock = Clock::simulated(start_time());
    let (engine, _lock, mut folder) =
        serving::start_with_folder(&test, &clock, settings(8), NOOP).await;
    for table in [
        "schedule_revision",
        "schedule",
        "package_host",
        "package_sidecar",
        "package_version",
        "package",
        "artifact",
        "host",
    ] {
        test.execute(&format!("DELETE FROM {table}")).await;
    }
    let now = start_time().plus(Duration::from_secs(10));
    clock.advance_to(now);
    engine.renew(now).await.unwrap();
    engine.scan(&mut folder).await.unwrap();

    let mut tx = test.read().await;
    let live = hosts::live(&mut tx).await.unwrap();
    assert_eq!((live.len(), live[0].heartbeat_at), (1, now));
    assert!(schedules::find(&mut tx, "often").await.unwrap().is_some());
    drop(tx);
    let slot = start_time().plus(Duration::from_secs(600));
    clock.advance_to(slot);
    engine.renew(slot).await.unwrap();
    let ticked = engine.tick(slot).await.unwrap();
    assert_eq!((ticked.decisions, ticked.finished), (1, 1));
    let launches = launch::list(&mut test.read().await, None, 10).await;
    assert_eq!(launches.unwrap()[0].status, LaunchStatus::Succeeded);
    // While nothing is lost, nothing is recorded again.
    let count = async || {
        events::list(&mut test.read().await, None, 100)
            .await
            .unwrap()
            .len()
    };
    let before = count().await;
    engine
        .renew(slot.plus(Duration::from_secs(10)))
        .await
        .unwrap();
    engine.scan(&mut folder).await.unwrap();
    assert_eq!(count().await, before);
}

/// A host waking up after another process took its name.
async fn a_host_whose_name_was_taken_renews_nothing(test: TestDb) {
    let clock = Clock::simulated(start_time());
    let (zombie, lock) = serving::start(&test, &clock, settings(8), NOOP).await;
    drop(lock);
    let (second, _lock) = serving::start(&test, &clock, settings(8), NOOP).await;
    let now = start_time().plus(Duration::from_secs(1));
    for _ in 0..2 {
        let renewed = zombie.renew(now).await;
        assert!(
            matches!(renewed, Err(EngineError::NameLost(_))),
            "{renewed:?}"
        );
        second.renew(now).await.unwrap();
    }
    // Retention has removed the first one's row.
    for table in [
        "package_host WHERE host_id IN (SELECT id FROM",
        "host WHERE id IN (SELECT id FROM",
    ] {
        test.execute(&format!("DELETE FROM {table} host WHERE number = 1)"))
            .await;
    }
    let renewed = zombie.renew(now).await;
    assert!(matches!(renewed, Err(EngineError::NameLost(_))));
    let live = hosts::live(&mut test.read().await).await.unwrap();
    assert_eq!((live.len(), live[0].heartbeat_at), (1, now));
}
