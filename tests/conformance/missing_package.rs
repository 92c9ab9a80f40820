//! A package whose file is gone: its skipped slots share rows, and its schedules end at last.

use std::time::Duration;

use campanile_control::settings::Settings;
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::status::EventKind;
use campanile_package::PluginsFolder;
use campanile_store::launch::{self, LaunchRow};
use campanile_store::{LaunchStatus, events, schedules, stats};
use campanile_tests::{TestDb, on_both};

use crate::serving::{self, NOOP, settings};

on_both!(
    skipped_slots_of_a_missing_package_share_a_row_an_hour,
    a_launch_begins_another_row,
    schedules_of_a_missing_package_end_after_a_while,
);

const SIDECAR: &str = "[[schedules]]\nname = 'often'\ncron = '*/10 * * * *'\n";
/// From one slot to the next.
const STEP: Duration = Duration::from_secs(600);
const DAY: Duration = Duration::from_secs(86_400);

fn start_time() -> Timestamp {
    "2026-05-04T20:30:00Z".parse().unwrap()
}

struct Site {
    engine: std::sync::Arc<Engine>,
    clock: Clock,
    folder: PluginsFolder,
    file: std::path::PathBuf,
    _lock: campanile_store::HostLock,
}

impl Site {
    /// Start a host with a package whose sidecar has a schedule of every ten minutes, then delete the package's file.
    async fn with_deleted_file(test: &TestDb, settings: Settings) -> Site {
        let plugins = test.place.folder.path().join("plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        std::fs::write(plugins.join("noop.toml"), SIDECAR).unwrap();
        let clock = Clock::simulated(start_time());
        let (engine, lock, folder) = serving::start_with_folder(test, &clock, settings, NOOP).await;
        let mut site = Site {
            engine,
            clock,
            folder,
            file: plugins.join("noop.wasm"),
            _lock: lock,
        };
        std::fs::remove_file(&site.file).unwrap();
        site.engine.scan(&mut site.folder).await.unwrap();
        site
    }

    /// Move the clock, and decide what is due.
    async fn decide_at(&self, at: Timestamp) -> usize {
        self.clock.advance_to(at);
        self.engine.decide(at).await.unwrap().decisions
    }
}

/// Return the launches, oldest slot first.
async fn rows(test: &TestDb) -> Vec<LaunchRow> {
    let mut rows = launch::list(&mut test.read().await, None, 100)
        .await
        .unwrap();
    rows.reverse();
    rows
}

async fn skipped_slots_of_a_missing_package_share_a_row_an_hour(test: TestDb) {
    let site = Site::with_deleted_file(&test, settings(8)).await;
    // 20:40 and 20:50, then 21:00 to 21:50, then 22:00.
    let mut at = start_time();
    for _ in 0..9 {
        at = at.plus(STEP);
        assert_eq!(site.decide_at(at).await, 1);
    }
    let found = rows(&test).await;
    let counts: Vec<i64> = found.iter().map(|row| row.slot_count).collect();
    assert_eq!(counts, [2, 6, 1]);
    for row in &found {
        assert_eq!(row.status, LaunchStatus::Skipped);
        assert_eq!(row.reason.as_deref(), Some("package_missing"));
    }
    let ends = found.iter().map(|row| row.last_scheduled_time.to_string());
    let ends: Vec<String> = ends.collect();
    let expected = ["20:50", "21:50", "22:00"].map(|at| format!("2026-05-04T{at}:00Z"));
    assert_eq!(ends, expected);
    // A row ends when its last slot is decided: retention counts from then.
    assert_eq!(found[1].finished_at, Some(at.minus(STEP)));
    let counted = stats::counts(&mut test.read().await, start_time()).await;
    assert_eq!(counted.unwrap().skipped, 9);

    // The file is back: the next slot has a row of its own.
    std::fs::write(&site.file, NOOP.1).unwrap();
    let mut site = site;
    site.engine.scan(&mut site.folder).await.unwrap();
    site.decide_at(at.plus(STEP)).await;
    let last = rows(&test).await.pop().unwrap();
    assert_eq!((last.slot_count, last.status), (1, LaunchStatus::Open));
}

async fn a_launch_begins_another_row(test: TestDb) {
    let mut site = Site::with_deleted_file(&test, settings(8)).await;
    let slot = start_time().plus(STEP);
    site.decide_at(slot).await;
    // The package is back for one slot, and gone again.
    std::fs::write(&site.file, NOOP.1).unwrap();
    site.engine.scan(&mut site.folder).await.unwrap();
    site.decide_at(slot.plus(STEP)).await;
    std::fs::remove_file(&site.file).unwrap();
    site.engine.scan(&mut site.folder).await.unwrap();
    let gone = start_time().plus(3 * STEP);
    site.decide_at(gone).await;
    let counts = rows(&test).await.into_iter().map(|row| row.slot_count);
    assert_eq!(counts.collect::<Vec<_>>(), [1, 1, 1]);
}

async fn schedules_of_a_missing_package_end_after_a_while(test: TestDb) {
    let patient = Settings {
        forget_after: Some(30 * DAY),
        ..settings(8)
    };
    let mut site = Site::with_deleted_file(&test, patient).await;
    let exists = async || {
        let found = schedules::find(&mut test.read().await, "often").await;
        found.unwrap().is_some()
    };
    site.clock.advance_to(start_time().plus(29 * DAY));
    site.engine.scan(&mut site.folder).await.unwrap();
    assert!(exists().await);

    let later = start_time().plus(31 * DAY);
    site.clock.advance_to(later);
    site.engine.scan(&mut site.folder).await.unwrap();
    assert!(!exists().await);
    let newest = events::list(&mut test.read().await, None, 2).await.unwrap();
    let kinds: Vec<EventKind> = newest.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [EventKind::PackageForgotten, EventKind::ScheduleRemoved]
    );
    assert!(
        newest[0]
            .detail
            .contains("longer than `forget_after` = 30d")
    );

    // The file is back: its sidecar defines the schedule anew.
    std::fs::write(&site.file, NOOP.1).unwrap();
    site.engine.scan(&mut site.folder).await.unwrap();
    assert!(exists().await);
    site.clock.advance_to(later.plus(DAY));
    site.engine.scan(&mut site.folder).await.unwrap();
    assert!(exists().await);
}
