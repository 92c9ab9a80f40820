//! The trace of a launch whose first run was lost, as a receiver of OTLP gets it.

use std::collections::BTreeMap;

use campanile_control::settings::Settings;
use campanile_model::clock::Clock;
use campanile_model::ids::RunId;
use campanile_model::trace_context::TraceContext;
use campanile_schedule::policy::Policies;
use campanile_store::launch;
use campanile_store::task_runs::TaskRun;
use campanile_tests::receiver::{attribute, receiver, spans};
use campanile_tests::{PATIENCE, TestDb, on_both};

use crate::host_steps::{add, claim_one, clock_time};
use crate::serving::{self, Guest, settings};

on_both!(a_recovered_launch_is_one_trace_with_its_lost_run);

const DIAMOND: Guest = ("diamond", include_bytes!("../guests/diamond.wasm"));

/// The workflow is `a`, then `b` and `c`, then `d`. The host dies after `a`.
async fn a_recovered_launch_is_one_trace_with_its_lost_run(test: TestDb) {
    let (port, received) = receiver(&[]);
    let clock = Clock::simulated(clock_time("10:30:00"));
    let settings = Settings {
        traces: Some(format!("http://127.0.0.1:{port}").parse().unwrap()),
        ..settings(8)
    };
    let (engine, _lock) = serving::start(&test, &clock, settings, DIAMOND).await;
    add(&test, "diamond", None, &Policies::default()).await;
    let work = claim_one(&engine, &clock, "11:00:00").await;
    let a = TaskRun::succeeded("a", 1, clock_time("11:00:00"), clock_time("11:00:01"));
    let mut tx = test.write().await;
    let recorded = launch::record_tasks(&mut tx, work.run_id(), work.fence(), &[a]).await;
    assert!(recorded.unwrap());
    tx.commit().await.unwrap();
    // A launch that has not ended has no trace.
    assert_eq!(engine.export_traces().await, 0);

    // The run is not tracked, so its lease expires.
    clock.advance_to(clock_time("11:01:00"));
    engine.renew(clock_time("11:01:00")).await.unwrap();
    let tick = engine.tick(clock_time("11:01:00")).await.unwrap();
    assert_eq!((tick.recovered, tick.finished), (1, 1));
    assert_eq!(engine.export_traces().await, 0);
    let request = received.recv_timeout(PATIENCE).unwrap();
    let spans = spans(&request);
    let names: BTreeMap<&[u8], &str> = spans
        .iter()
        .map(|span| (&*span.span_id, &*span.name))
        .collect();
    let mut shown: Vec<(&str, &str)> = spans
        .iter()
        .map(|span| {
            let parent = names.get(&*span.parent_span_id);
            (&*span.name, parent.copied().unwrap_or_default())
        })
        .collect();
    shown.sort_unstable();
    let root = "launch report";
    assert_eq!(
        shown,
        [
            ("call a", "run 1"),
            ("call b", "run 2"),
            ("call c", "run 2"),
            ("call d", "run 2"),
            ("claim", root),
            ("claim", root),
            ("decide", root),
            (root, ""),
            ("recovery", root),
            ("run 1", root),
            ("run 2", root),
        ]
    );
    let launch = work.launch.launch_id;
    let context = TraceContext::of_launch(launch, None);
    let second = context.of_run(RunId::of(launch, 2));
    let find = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    for span in &spans {
        assert_eq!(span.trace_id, context.trace_id(), "{}", span.name);
    }
    assert_eq!(find("run 2").span_id, second.span_id());
    // The lost run may have called `b`, so this is its second call.
    assert_eq!(find("call b").span_id, second.of_call("b", 2).span_id());
    assert_eq!(
        attribute(find("run 1"), "campanile.status").as_deref(),
        Some("lost")
    );
    assert_eq!(
        attribute(find(root), "campanile.recoveries").as_deref(),
        Some("1")
    );
    // One trace for one launch.
    assert!(received.try_recv().is_err());
}
