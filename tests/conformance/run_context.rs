//! The contexts and outputs of one run together have a limit, also when a recovery reads them; and large graphs of tasks
//! run and are recovered at once.

use std::sync::Arc;

use campanile_engine::Engine;
use campanile_model::clock::Clock;
use campanile_sandbox::SandboxSettings;
use campanile_schedule::policy::Policies;
use campanile_store::task_runs::{self, LaunchCall, TaskRun};
use campanile_store::{FailureKind, HostLock, LaunchStatus, launch};
use campanile_tests::{TestDb, on_both};

use crate::host_steps::{add, claim_one, clock_time};
use crate::serving::{self, Guest, settings};

on_both!(
    forty_layers_are_recovered,
    all_layers_are_recovered,
    a_run_whose_tasks_pass_on_too_much_fails_with_the_limit,
    a_recovery_reads_no_more_than_a_run_may_hold,
    runs_that_the_host_can_not_keep_fail_with_the_bound_of_all_runs,
    a_recovery_of_more_than_the_host_can_keep_fails_with_the_bound_of_all_runs,
);

const LAYERS: Guest = ("layers", include_bytes!("../guests/layers.wasm"));
const WIDE: Guest = ("wide", include_bytes!("../guests/wide.wasm"));

async fn forty_layers_are_recovered(test: TestDb) {
    let calls = recovered_layers(&test, Some("l39a"), 20).await;
    assert_eq!(calls.len(), 79);
    assert_eq!(output(&calls, "l39a"), Some("78"));
}

async fn all_layers_are_recovered(test: TestDb) {
    let calls = recovered_layers(&test, None, 100).await;
    assert_eq!(calls.len(), 256);
    assert_eq!(output(&calls, "l127b"), Some("254"));
}

fn output<'c>(calls: &'c [LaunchCall], task: &str) -> Option<&'c str> {
    let call = calls.iter().find(|call| call.task == task);
    call.and_then(|call| call.output.as_deref())
}

/// Run layers of tasks on a host that dies after the first `recorded` layers. Return the calls of both runs.
async fn recovered_layers(test: &TestDb, task: Option<&str>, recorded: usize) -> Vec<LaunchCall> {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, _lock) = serving::start(test, &clock, settings(8), LAYERS).await;
    add(test, "layers", task, &Policies::default()).await;
    let ids = (0..recorded).flat_map(|layer| ["a", "b"].map(|side| format!("l{layer}{side}")));
    let calls = ids.map(|id| recorded_call(&id, format!(r#"{{"{id}":0}}"#)));
    lose_run_after(test, &engine, &clock, &calls.collect::<Vec<_>>()).await;

    let mut tx = test.read().await;
    let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
    assert_eq!(launch.status, LaunchStatus::Succeeded, "{launch:?}");
    task_runs::of_launch(&mut tx, launch.id).await.unwrap()
}

fn recorded_call(task: &str, context: String) -> TaskRun {
    let [started_at, finished_at] = ["11:00:00", "11:00:01"].map(clock_time);
    TaskRun {
        context: Some(context),
        ..TaskRun::succeeded(task, 1, started_at, finished_at)
    }
}

/// Claim a run, record `calls`, lose the run, and recover and execute its launch.
async fn lose_run_after(test: &TestDb, engine: &Engine, clock: &Clock, calls: &[TaskRun]) {
    let work = claim_one(engine, clock, "11:00:00").await;
    let mut tx = test.write().await;
    let recorded = launch::record_tasks(&mut tx, work.run_id(), work.fence(), calls).await;
    assert!(recorded.unwrap());
    tx.commit().await.unwrap();
    // The run is not tracked, so its lease expires.
    clock.advance_to(clock_time("11:01:00"));
    engine.renew(clock_time("11:01:00")).await.unwrap();
    let tick = engine.tick(clock_time("11:01:00")).await.unwrap();
    assert_eq!((tick.recovered, tick.finished), (1, 1));
}

/// Start a host with a schedule of the task `few`, which depends on 60 tasks that each pass on almost 1 MiB. A run may
/// hold 4 MiB.
async fn start_wide(test: &TestDb, clock: &Clock) -> (Arc<Engine>, HostLock) {
    let plugins = test.place.folder.path().join("plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(
        plugins.join("wide.toml"),
        "[limits]\nrun_context = '4MiB'\n",
    )
    .unwrap();
    let started = serving::start(test, clock, settings(8), WIDE).await;
    add(test, "wide", Some("few"), &Policies::default()).await;
    started
}

async fn a_run_whose_tasks_pass_on_too_much_fails_with_the_limit(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, _lock) = start_wide(&test, &clock).await;
    clock.advance_to(clock_time("11:00:00"));
    let tick = engine.tick(clock_time("11:00:00")).await.unwrap();
    assert_eq!((tick.claimed, tick.finished), (1, 1));

    let mut tx = test.read().await;
    let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
    assert_eq!(
        launch.failure,
        Some(FailureKind::InvalidOutput),
        "{launch:?}"
    );
    let message = launch.message.unwrap();
    let parts = [
        "task `t",
        "returned 1048",
        "their limit is 4MiB",
        "raise `limits.run_context` in the package's sidecar file",
    ];
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");

    // The results within the limit are on record. The others failed, and `few` was not called.
    let calls = task_runs::of_launch(&mut tx, launch.id).await.unwrap();
    let (kept, refused): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.succeeded);
    assert_eq!(kept.len(), 4);
    assert!(calls.iter().all(|call| call.task != "few"));
    for call in refused {
        assert_eq!(call.failure, Some(FailureKind::InvalidOutput), "{call:?}");
        assert_eq!(call.retry_at, None);
    }
    let bytes = task_runs::bytes_of_launch(&mut tx, launch.id)
        .await
        .unwrap();
    assert!((4_000_000..4 << 20).contains(&bytes), "{bytes} bytes");
    let run = task_runs::of_run(&mut tx, launch.run_id.0.unwrap())
        .await
        .unwrap();
    assert!(
        run.iter()
            .all(|call| call.succeeded || call.context.is_none())
    );
    let usage = run.iter().map(|call| call.usage.as_str());
    let full = usage.filter(|usage| usage.contains(r#""run_context":[4192"#));
    assert_eq!(
        full.count(),
        run.len() - 3,
        "all but the first three found it full"
    );
}

async fn a_recovery_reads_no_more_than_a_run_may_hold(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, _lock) = start_wide(&test, &clock).await;
    // An earlier host allowed more.
    let large = "x".repeat(1 << 20);
    let calls = (0..5).map(|n| recorded_call(&format!("t{n}"), format!(r#"{{"t{n}":"{large}"}}"#)));
    lose_run_after(&test, &engine, &clock, &calls.collect::<Vec<_>>()).await;

    let mut tx = test.read().await;
    let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
    assert_eq!(
        launch.failure,
        Some(FailureKind::InvalidOutput),
        "{launch:?}"
    );
    let message = launch.message.unwrap();
    let parts = [
        "earlier runs of this launch recorded have 5242",
        "limit is 4MiB",
        "raise `limits.run_context`",
    ];
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    let calls = task_runs::of_launch(&mut tx, launch.id).await.unwrap();
    assert_eq!(calls.len(), 5, "nothing is called");
}

/// Starts a host keeping 16 MiB for all runs, at most 9.3 MiB of it for one package's, with the schedule of [`start_wide`]. A
/// single run may hold 64 MiB.
async fn start_with_little_memory(test: &TestDb, clock: &Clock) -> (Arc<Engine>, HostLock) {
    let sandbox = SandboxSettings {
        memory_total_bytes: 64 << 20,
        ..serving::sandbox_settings()
    };
    let names = ("host-1", "plugins");
    let (engine, lock, _) = serving::start_in(test, clock, settings(8), WIDE, names, sandbox).await;
    add(test, "wide", Some("few"), &Policies::default()).await;
    (engine, lock)
}

fn assert_bound_of_all_runs(launch: &launch::LaunchRow) {
    let kind = Some(FailureKind::InvalidOutput);
    assert_eq!(launch.failure, kind, "{launch:?}");
    let message = launch.message.as_ref().unwrap();
    let parts = [
        "in memory for the calls and runs of this package",
        "of the 16.0 MiB for all packages",
        "raise `memory_total` under `[sandbox]`",
    ];
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}

async fn runs_that_the_host_can_not_keep_fail_with_the_bound_of_all_runs(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, _lock) = start_with_little_memory(&test, &clock).await;
    // Ended runs keep nothing, so later ones get as far as the first.
    for hour in ["11:00:00", "12:00:00", "13:00:00", "14:00:00"] {
        clock.advance_to(clock_time(hour));
        let tick = engine.tick(clock_time(hour)).await.unwrap();
        assert_eq!((tick.claimed, tick.finished), (1, 1), "{hour}");
        let mut tx = test.read().await;
        let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
        assert_bound_of_all_runs(&launch);
        let calls = task_runs::of_launch(&mut tx, launch.id).await.unwrap();
        let kept = calls.iter().filter(|call| call.succeeded).count();
        assert!((2..=8).contains(&kept), "{kept} results at {hour}");
        assert!(calls.iter().all(|call| call.task != "few"));
    }
}

async fn a_recovery_of_more_than_the_host_can_keep_fails_with_the_bound_of_all_runs(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, _lock) = start_with_little_memory(&test, &clock).await;
    let large = "x".repeat(1 << 20);
    let calls = (0..7).map(|n| recorded_call(&format!("t{n}"), format!(r#"{{"t{n}":"{large}"}}"#)));
    lose_run_after(&test, &engine, &clock, &calls.collect::<Vec<_>>()).await;
    let mut tx = test.read().await;
    let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
    assert_bound_of_all_runs(&launch);
    let calls = task_runs::of_launch(&mut tx, launch.id).await.unwrap();
    assert_eq!(calls.len(), 7, "nothing is called");
}
