//! The host dies at each named point of a launch's path, and what is left after the next start.
//!
//! The table is the guarantee: the same on both databases, and printed by the test.
//!
//! ```text
//! the host dies              runs  recoveries  effects  the last run knows
//! before_decide_commit          1           0        1  nothing: nothing had happened
//! after_decide_commit           1           1        1  is_recovery
//! after_claim_commit             2           1        1  is_recovery
//! before_call                   2           1        1  is_recovery
//! after_call                    2           1        2  is_recovery
//! before_finish_commit          2           1        2  is_recovery
//! after_finish_commit           1           0        1  nothing: it was over
//! before_recover_commit         2           1        1  is_recovery
//! after_recover_commit          2           2        1  is_recovery
//! ```
//!
//! In every case: one launch row for the slot, which ends as succeeded, under one execution id. An
//! effect is doubled only if the host dies between the call and the record of its end, which no
//! host can tell from dying during the call.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use campanile_engine::crash::POINTS;
use campanile_store::{LaunchStatus, RunStatus};
use campanile_tests::{Backend, HostProcess};
use rustix::process::Signal;

use crate::account;
use crate::tower::Tower;

/// What is left of the slot at which the host died.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    runs: usize,
    recoveries: i64,
    effects: usize,
    is_recovery: bool,
}

fn expected(point: &str) -> Left {
    let (runs, recoveries, effects, is_recovery) = match point {
        "before_decide_commit" | "after_finish_commit" => (1, 0, 1, false),
        "after_decide_commit" => (1, 1, 1, true),
        "after_claim_commit" | "before_call" | "before_recover_commit" => (2, 1, 1, true),
        "after_call" | "before_finish_commit" => (2, 1, 2, true),
        "after_recover_commit" => (2, 2, 1, true),
        other => panic!("nothing is promised for {other}"),
    };
    Left {
        runs,
        recoveries,
        effects,
        is_recovery,
    }
}

#[test]
fn a_host_that_dies_anywhere_leaves_one_launch_that_is_carried_out_on_sqlite() {
    die_everywhere(Backend::Sqlite);
}

#[test]
fn a_host_that_dies_anywhere_leaves_one_launch_that_is_carried_out_on_postgres() {
    die_everywhere(Backend::Postgres);
}

fn die_everywhere(backend: Backend) {
    // A few at a time: each one mostly waits for the next second.
    let mut table = format!(
        "{:<26} {:>4} {:>11} {:>8}  {} on {}\n",
        "the host dies",
        "runs",
        "recoveries",
        "effects",
        "is_recovery",
        backend.name()
    );
    for points in POINTS.chunks(3) {
        std::thread::scope(|scope| {
            let cases: Vec<_> = points
                .iter()
                .map(|point| (point, scope.spawn(move || die_at(point, backend))))
                .collect();
            for (point, case) in cases {
                let left = case
                    .join()
                    .unwrap_or_else(|_| panic!("{point} on {}", backend.name()));
                table.push_str(&format!(
                    "{point:<26} {:>4} {:>11} {:>8}  {}\n",
                    left.runs, left.recoveries, left.effects, left.is_recovery
                ));
                assert_eq!(left, expected(point), "{point} on {}", backend.name());
            }
        });
    }
    println!("{table}");
}

fn die_at(point: &str, backend: Backend) -> Left {
    let tower = Tower::new(backend);
    tower.install_bells(1, "{}");
    let crash = |point: &str| {
        let mut host = HostProcess::spawn(tower.serve("tower").env("CAMPANILE_CRASH_AT", point));
        let status = host.wait_exit();
        assert_eq!(
            status.signal(),
            Some(Signal::ABORT.as_raw()),
            "{point}: the host did not die there but ended with {status}; it said:\n{}",
            host.stderr_lines().join("\n")
        );
    };
    if point.contains("recover") {
        crash("after_claim_commit");
    }
    crash(point);

    let mut host = tower.start("tower");
    tower.record_when(
        "two launches after the crash",
        Duration::from_secs(20),
        &[&host],
        |record| {
            let launches = record
                .launches
                .get("bell-000")
                .map(Vec::as_slice)
                .unwrap_or_default();
            launches.len() >= 3
                && launches[..3]
                    .iter()
                    .all(|launch| launch.status == LaunchStatus::Succeeded)
        },
    );
    let record = tower.quiet(Duration::from_secs(10), &[&host]);
    host.terminate();
    assert!(host.wait_exit().success());

    let effects = tower.effects();
    let account = account::check(&record, &effects, 2);
    assert_eq!(account.succeeded, account.launched, "{account}");
    assert_eq!(account.skipped, 0, "{account}");
    let struck = &record.launches["bell-000"][0];
    let runs = record.runs_of(struck);
    let last = runs.last().expect("a run");
    assert_eq!(last.status, RunStatus::Succeeded);
    assert!(
        runs[..runs.len() - 1]
            .iter()
            .all(|run| run.status == RunStatus::Lost),
        "{runs:?}"
    );
    let of_struck: Vec<_> = effects
        .iter()
        .filter(|effect| effect.execution_id == struck.id.to_string())
        .collect();
    // What the task was told is what the record says.
    assert_eq!(
        of_struck.last().map(|effect| effect.is_recovery),
        Some(last.is_recovery)
    );
    // No other slot was touched by the crash.
    assert_eq!(
        account.repeated,
        usize::from(of_struck.len() > 1),
        "{account}"
    );
    assert_eq!(
        account.recovered,
        usize::from(struck.recoveries > 0),
        "{account}"
    );
    Left {
        runs: runs.len(),
        recoveries: struck.recoveries,
        effects: of_struck.len(),
        is_recovery: last.is_recovery,
    }
}
