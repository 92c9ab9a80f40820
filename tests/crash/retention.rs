//! Tests of a host that dies while it removes old launches: each launch and each call is on record, or counted as removed,
//! once.

use std::time::Duration;

use campanile_engine::crash::RETENTION_POINTS;
use campanile_model::ids::LaunchKind;
use campanile_store::launch::{self, NewLaunch};
use campanile_store::{Decision, probe, schedules};
use campanile_tests::{Backend, HostProcess};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt as _;

use crate::site::{Site, now};

/// More than one transaction removes.
pub const LAUNCHES: u64 = 600;

#[test]
fn a_launch_is_removed_or_kept_after_a_crash_on_sqlite() {
    crash_at_every_point(Backend::Sqlite);
}

#[test]
fn a_launch_is_removed_or_kept_after_a_crash_on_postgres() {
    crash_at_every_point(Backend::Postgres);
}

fn crash_at_every_point(backend: Backend) {
    let site = Site::new(backend);
    site.configure(
        "[recovery]\nlost_threshold = \"1s\"\nmax_age = \"1m\"\n[late]\nmisfire_grace = \"1m\"\ncatchup_window = \"1m\"\n\
         [retention]\nskipped = \"1m\"\nkeep_last = 1\n",
    );
    site.install_append("[[schedules]]\nname = \"yearly\"\ncron = \"0 0 1 1 *\"\n");
    let mut host = site.start("host-1");
    host.terminate();
    assert!(host.wait_exit().success());
    insert_old(&site);

    let mut kept = LAUNCHES;
    for point in RETENTION_POINTS {
        let mut host = HostProcess::spawn(site.serve("host-1").env("CAMPANILE_CRASH_AT", point));
        assert_eq!(
            host.wait_exit().signal(),
            Some(Signal::ABORT.as_raw()),
            "{point}"
        );
        let (left, removed) = counts(&site);
        assert_eq!(left + removed, LAUNCHES, "{point}");
        assert_eq!(calls(&site), (left, removed), "{point}");
        match point.starts_with("before") {
            true => assert_eq!(left, kept, "{point}"),
            false => assert!(left < kept, "{point}"),
        }
        kept = left;
    }
    let mut host = site.start("host-1");
    host.wait_for_line("removed what is older");
    host.terminate();
    assert!(host.wait_exit().success());
    // The newest one stays.
    assert_eq!(counts(&site), (1, LAUNCHES - 1));
    assert_eq!(calls(&site), (1, LAUNCHES - 1));
}

/// Insert skipped slots of an hour ago, each with a call: skipped slots may be removed soon.
pub fn insert_old(site: &Site) {
    let start = now().minus(Duration::from_secs(3_600));
    site.with_db(async |db| {
        let mut tx = db.write().await.expect("a transaction");
        let found = schedules::all(&mut tx).await.expect("schedules");
        let schedule = found.first().expect("a schedule");
        let slots = (0..LAUNCHES).map(|n| start.plus(Duration::from_secs(n)));
        let revision = (schedule.state.id, schedule.state.revision);
        let skipped = slots.map(|slot| NewLaunch {
            decision: Decision::Skipped,
            reason: Some("overlap"),
            ..NewLaunch::of_slot(revision, "append".to_owned(), (LaunchKind::Schedule, slot), slot)
        });
        let skipped: Vec<NewLaunch> = skipped.collect();
        launch::insert(&mut tx, &skipped).await.expect("launches");
        let calls = "INSERT INTO task_run (launch_id, task, attempt, run_number, succeeded, started_at, finished_at, stdout, stderr,
                logs, wall_ms, cpu_ms, memory_peak_bytes, usage)
            SELECT id, 'append', 1, 1, TRUE, decided_at, decided_at, '', '', '[]', 1, 2, 65536, '{}' FROM launch";
        probe::execute(&mut tx, calls).await.expect("calls");
        tx.commit().await.expect("a commit");
    });
}

/// Return how many launches are on record, and how many are counted as removed.
fn counts(site: &Site) -> (u64, u64) {
    let removed = "SELECT coalesce(sum(launches), 0) FROM removed_launches";
    two_numbers(site, "SELECT count(*) FROM launch", removed)
}

/// The same of calls.
fn calls(site: &Site) -> (u64, u64) {
    let removed = "SELECT coalesce(sum(calls), 0) FROM removed_calls";
    two_numbers(site, "SELECT count(*) FROM task_run", removed)
}

fn two_numbers(site: &Site, first: &str, second: &str) -> (u64, u64) {
    let rows = site.with_db(async |db| {
        let mut tx = db.read().await.expect("a transaction");
        let sql = format!("SELECT CAST(({first}) AS TEXT), CAST(({second}) AS TEXT)");
        probe::rows(&mut tx, &sql).await.expect("rows")
    });
    let number = |text: &String| text.parse().expect("a number");
    (number(&rows[0][0]), number(&rows[0][1]))
}
