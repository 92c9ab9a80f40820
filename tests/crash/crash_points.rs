//! Tests of a host that dies at each named point of a launch's path, and then restarts.
//!
//! The table is the documented guarantee. It is the same on both databases, and the test prints it.
//!
//! ```text
//! the host dies              runs  recoveries  effects  last run
//! before_decide_commit          1           0        1  not a recovery: the launch did not exist
//! after_decide_commit           2           1        1  is_recovery: the launch was claimed with its decision
//! after_claim_commit            2           1        1  is_recovery: the launch had waited for its fire time
//! before_call                   2           1        1  is_recovery
//! after_call                    2           1        2  is_recovery
//! before_finish_commit          2           1        2  is_recovery
//! after_finish_commit           1           0        1  not a recovery: the launch had ended
//! before_recover_commit         2           1        1  is_recovery
//! after_recover_commit          2           2        1  is_recovery
//! ```
//!
//! In every case the slot has one launch row with one execution id, which succeeds. An effect is repeated only if the
//! host dies between the end of the call and its record, because the host cannot tell this from a crash during the call.

use campanile_engine::crash::POINTS;
use campanile_store::launch::LaunchRow;
use campanile_store::{LaunchStatus, RunStatus};
use campanile_tests::Backend;

use crate::consistency;
use crate::point_table::PointTable;
use crate::site::{Site, now};

/// The counts are those of the slot at which the host died. `is_recovery` is 1 if the last run was told that it is one.
const TABLE: PointTable<4> = PointTable {
    columns: ["runs", "recoveries", "effects", "is_recovery"],
    crash_at,
    expected: |point| match point {
        "before_decide_commit" | "after_finish_commit" => [1, 0, 1, 0],
        "after_decide_commit" | "after_claim_commit" | "before_call" | "before_recover_commit" => {
            [2, 1, 1, 1]
        }
        "after_call" | "before_finish_commit" => [2, 1, 2, 1],
        "after_recover_commit" => [2, 2, 1, 1],
        other => panic!("no expectation for {other}"),
    },
};

#[test]
fn a_launch_is_executed_after_a_crash_at_every_point_on_sqlite() {
    TABLE.check(&POINTS, Backend::Sqlite);
}

#[test]
fn a_launch_is_executed_after_a_crash_at_every_point_on_postgres() {
    TABLE.check(&POINTS, Backend::Postgres);
}

fn crash_at(point: &str, backend: Backend) -> [usize; 4] {
    let site = Site::new(backend);
    match point {
        // A launch that waits for its fire time is claimed by itself.
        "after_claim_commit" => site.install_schedules_with(1, "{}", "jitter = \"200ms\""),
        _ => site.install_schedules(1, "{}"),
    }
    if point.contains("recover") {
        site.crash_at("after_decide_commit");
    }
    site.crash_at(point);
    let died = now();

    let mut host = site.start("host-1");
    site.record_when("two launches after the crash", &[&host], |record| {
        let launches = record
            .launches
            .get("schedule-000")
            .map(Vec::as_slice)
            .unwrap_or_default();
        launches.len() >= 3
            && launches[..3]
                .iter()
                .all(|launch| launch.status == LaunchStatus::Succeeded)
    });
    let record = site.pause_and_finish(&[&host]);
    host.terminate();
    assert!(host.wait_exit().success());

    let effects = site.effects();
    let totals = consistency::check(&record, &effects, 2);
    // Before its jitter has passed, a launch of a paused schedule stays queued. A busy machine may decide several at once.
    let queued = record.count(LaunchStatus::Queued);
    assert!(queued == 0 || point == "after_claim_commit", "{totals}");
    assert_eq!(totals.succeeded + queued, totals.launched, "{totals}");
    assert_eq!(totals.skipped, 0, "{totals}");
    let launches = &record.launches["schedule-000"];
    let effects_of = |launch: &LaunchRow| {
        let id = launch.id.to_string();
        let of_launch = effects.iter().filter(|effect| effect.execution_id == id);
        of_launch.count()
    };
    // With a short jitter, the first launch may be claimed with its decision. Then the host dies at a later one. On a busy
    // machine, other launches may be running then: the call of the crashed one had ended, or it had not begun.
    let recovered = launches.iter().filter(|launch| launch.recoveries > 0);
    let crashed = match point {
        "after_finish_commit" => launches
            .iter()
            .find(|launch| launch.finished_at < Some(died)),
        "after_call" | "before_finish_commit" => recovered.max_by_key(|launch| effects_of(launch)),
        _ => recovered.min_by_key(|launch| effects_of(launch)),
    };
    let crashed = crashed.unwrap_or(&launches[0]);
    let mut others = launches.iter().filter(|launch| launch.id != crashed.id);
    let other = others.find(|launch| launch.recoveries > 0);
    // What ran beside it had begun before the crash.
    assert!(
        other.is_none_or(|launch| launch.scheduled_time < died),
        "{totals}"
    );
    let runs = record.runs_of(crashed);
    let last = runs.last().expect("a run");
    assert_eq!(last.status, RunStatus::Succeeded);
    assert!(
        runs[..runs.len() - 1]
            .iter()
            .all(|run| run.status == RunStatus::Lost),
        "{runs:?}"
    );
    let crashed_effects: Vec<_> = effects
        .iter()
        .filter(|effect| effect.execution_id == crashed.id.to_string())
        .collect();
    // The task and the record agree about the recovery.
    assert_eq!(
        crashed_effects.last().map(|effect| effect.is_recovery),
        Some(last.is_recovery)
    );
    if other.is_none() {
        // The crash did not affect other slots.
        assert_eq!(
            totals.repeated,
            usize::from(crashed_effects.len() > 1),
            "{totals}"
        );
        assert_eq!(
            totals.recovered,
            usize::from(crashed.recoveries > 0),
            "{totals}"
        );
    }
    [
        runs.len(),
        usize::try_from(crashed.recoveries).expect("a count"),
        crashed_effects.len(),
        usize::from(last.is_recovery),
    ]
}
