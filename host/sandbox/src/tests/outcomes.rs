//! The outcomes of calls, and their reports.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use campanile_model::clock::{Clock, Timestamp};
use serde_json::json;

use super::guests::*;
use crate::*;

#[tokio::test]
async fn a_completion_returns_output_and_context() {
    let guest = guest("").completes(Some(r#"{"rows":[1,2]}"#), Some(r#"{"next":"b"}"#));
    let report = run(guest).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    assert_eq!(report.output, Some(json!({"rows": [1, 2]}).into()));
    assert_eq!(report.context.unwrap()["next"].value(), "b");
    assert_eq!(report.failure, None);
    assert_eq!(report.usage.memory_peak_bytes, 2 * 65_536);
    assert!(report.usage.cpu_ms > 0.0);
    assert!(report.usage.wall_ms >= report.usage.cpu_ms * 0.5);
}

#[tokio::test]
async fn a_completion_may_be_empty() {
    let report = run(guest("").completes(None, None)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    assert_eq!((report.output, report.context), (None, None));
}

#[tokio::test]
async fn a_failure_reports_the_message_of_the_task() {
    let guest = guest("").fails(
        RESULT,
        &GuestFailure {
            message: "the server is busy",
            retryable: true,
            retry_after_ms: Some(1500),
            details: Some(r#"{"status":503}"#),
        },
    );
    let report = run(guest).await;
    let failure = failure(&report, Outcome::Failed);
    assert_eq!(failure.message, "the server is busy");
    assert!(failure.retryable);
    assert_eq!(failure.retry_after, Some(Duration::from_millis(1500)));
    assert_eq!(failure.details, Some(json!({"status": 503})));
}

#[tokio::test]
async fn a_permanent_failure_is_not_retryable_and_details_may_be_plain_text() {
    let guest = guest("").fails(
        RESULT,
        &GuestFailure {
            message: "no such table",
            details: Some("not json"),
            ..GuestFailure::default()
        },
    );
    let report = run(guest).await;
    let failure = failure(&report, Outcome::Failed);
    assert!(!failure.retryable);
    assert_eq!(failure.retry_after, None);
    assert_eq!(failure.details, Some(json!("not json")));
}

#[tokio::test]
async fn no_words_of_a_task_make_the_outcome_denied() {
    let grant = "/ lies in no granted directory; to allow it, add `grants.directories = [{ host = \"/\", guest = \"/\", access = \"write\" }]` at the top of the package's sidecar file";
    for details in [
        r#"{"kind":"denied"}"#,
        r#"{"kind":"memory_exceeded","note":"raise it"}"#,
        r#"{"outcome":"denied","failure":{"kind":"denied"}}"#,
    ] {
        let guest = guest("").fails(
            RESULT,
            &GuestFailure {
                message: grant,
                details: Some(details),
                ..GuestFailure::default()
            },
        );
        let report = run(guest).await;
        let failure = failure(&report, Outcome::Failed);
        assert_eq!(failure.message, grant);
        assert_eq!(failure.note, None, "the host proposes nothing");
    }
}

#[tokio::test]
async fn what_nests_too_deep_is_refused_where_it_is_returned() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let report = run(guest("").completes(Some(&nested(100)), None)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    for depth in [101, 127, 128, 1_000] {
        let context = format!("{{\"a\":{}}}", nested(depth - 1));
        for guest in [
            guest("").completes(Some(&nested(depth)), None),
            guest("").completes(None, Some(&context)),
        ] {
            let report = run(guest).await;
            let failed = failure(&report, Outcome::InvalidOutput);
            let told = "nests deeper than 100 levels";
            assert!(failed.message.contains(told), "{}", failed.message);
        }
        // Details are just passed on, so here they become text.
        let details = nested(depth);
        let guest = guest("").fails(
            RESULT,
            &GuestFailure {
                message: "no",
                details: Some(&details),
                ..GuestFailure::default()
            },
        );
        let report = run(guest).await;
        let failed = failure(&report, Outcome::Failed);
        assert_eq!(failed.details, Some(json!(details)));
    }
}

#[tokio::test]
async fn a_trap_reports_its_cause_and_place_in_one_line() {
    let guest = guest("(call $outer)").with(
        "(func $outer (call $inner)) (func $inner (drop (i32.div_u (i32.const 1) (i32.const 0))))",
    );
    let report = run(guest).await;
    assert_eq!(
        failure(&report, Outcome::Trapped).message,
        "the task's code trapped: integer divide by zero (in inner, called by outer, called by run)"
    );
    assert!(failure(&report, Outcome::Trapped).retryable);
}

#[tokio::test]
async fn a_panic_printed_to_stderr_becomes_the_message() {
    let text = "thread 'main' panicked at src/lib.rs:7:9:\nno such key\nnote: and so on\n";
    let guest = guest(&format!(
        "(call $write (call $get-stderr) (i32.const 2048) (i32.const {}) (i32.const 512)) unreachable",
        text.len()
    ))
    .data(2048, text);
    let report = run(guest).await;
    assert_eq!(
        failure(&report, Outcome::Trapped).message,
        "the task panicked: no such key, at src/lib.rs:7:9 (in run)"
    );
    assert_eq!(report.stderr, text);
}

#[tokio::test]
async fn exit_is_not_a_return() {
    let report = run(guest("(call $exit (i32.const 1)) unreachable")).await;
    assert!(
        failure(&report, Outcome::Trapped)
            .message
            .starts_with("the task called exit(1) instead of returning")
    );
}

#[tokio::test]
async fn deep_recursion_is_a_trap_and_the_host_survives() {
    let deep =
        "(func $deep (param i64) (result i64) (i64.add (call $deep (local.get 0)) (i64.const 1)))";
    let sandbox = sandbox();
    let guest = guest("(drop (call $deep (i64.const 0)))").with(deep);
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    for _ in 0..3 {
        let report = sandbox.run(&artifact, call()).await;
        assert_eq!(
            failure(&report, Outcome::Trapped).message,
            "the task's code trapped: call stack exhausted (in deep)"
        );
    }
}

#[tokio::test]
async fn an_output_that_is_not_json_is_invalid() {
    let report = run(guest("").completes(Some("{oops"), None)).await;
    let failed = failure(&report, Outcome::InvalidOutput);
    assert!(
        failed.message.contains("output is not JSON"),
        "{}",
        failed.message
    );
    assert!(!failed.retryable);
    let report = run(guest("").completes(None, Some("nope"))).await;
    let failed = failure(&report, Outcome::InvalidOutput);
    assert!(
        failed.message.contains("context is not JSON"),
        "{}",
        failed.message
    );
    let report = run(guest("").completes(None, Some("[1]"))).await;
    let failed = failure(&report, Outcome::InvalidOutput);
    assert!(
        failed.message.contains("not a JSON object"),
        "{}",
        failed.message
    );
}

#[tokio::test]
async fn a_task_sees_a_request_to_stop() {
    // Waits until the host asks it to stop, then returns the other result.
    let body = format!(
        "(loop $again
            (if (call $cancel-requested) (then (return (i32.const {OTHER_RESULT}))))
            (call $block (call $subscribe-duration (i64.const 1000000)))
            (br $again))"
    );
    let guest = guest(&body).fails(
        OTHER_RESULT,
        &GuestFailure {
            message: "stopped tidily",
            ..GuestFailure::default()
        },
    );
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let call = call();
    let stop = call.stop.clone();
    let (report, ()) = tokio::join!(sandbox.run(&artifact, call), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        stop.request();
    });
    assert_eq!(failure(&report, Outcome::Failed).message, "stopped tidily");
}

#[tokio::test]
async fn a_dropped_call_ends_at_once_while_it_computes_or_waits() {
    for body in [
        "(loop $for-ever (br $for-ever))",
        "(call $block (call $subscribe-duration (i64.const 3600000000000)))",
    ] {
        let sandbox = sandbox();
        let artifact = Arc::new(sandbox.load(&guest(body).component()).unwrap());
        let call = call();
        let stop = call.stop.clone();
        let stop_time = Arc::new(Mutex::new(Instant::now()));
        let (report, ()) = tokio::join!(sandbox.run(&artifact, call), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            *stop_time.lock().unwrap() = Instant::now();
            stop.drop_now();
        });
        let waited = stop_time.lock().unwrap().elapsed();
        failure(&report, Outcome::Cancelled);
        assert!(waited < LONG_WAIT, "{waited:?}");
    }
}

#[tokio::test]
async fn a_call_dropped_before_its_start_never_runs() {
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&guest("unreachable").component()).unwrap());
    let call = call();
    call.stop.drop_now();
    let report = sandbox.run(&artifact, call).await;
    failure(&report, Outcome::Cancelled);
}

#[tokio::test]
async fn a_dropped_call_frees_its_slot() {
    let sandbox = sandbox();
    let endless = guest("(loop $for-ever (br $for-ever))").component();
    let endless = Arc::new(sandbox.load(&endless).unwrap());
    for _ in 0..4 {
        tokio::select! {
            _ = sandbox.run(&endless, call()) => panic!("it does not end"),
            _ = sandbox.run(&endless, call()) => panic!("it does not end"),
            () = until_free(&sandbox, 0) => {}
        }
        until_free(&sandbox, 2).await;
    }
    let quick = Arc::new(
        sandbox
            .load(&guest("").completes(None, None).component())
            .unwrap(),
    );
    let report = sandbox.run(&quick, call()).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

#[tokio::test]
async fn a_host_panic_fails_only_its_call() {
    let sandbox = sandbox();
    let quick = guest("").completes(None, None).component();
    let quick = Arc::new(sandbox.load(&quick).unwrap());
    for _ in 0..3 {
        let slot = sandbox.calls.clone().acquire_owned().await;
        let ended: Result<(), String> = sandbox
            .spawn_guest(slot, async { panic!("a bug of number {}", 7) })
            .await;
        assert_eq!(ended.unwrap_err(), "the host panicked: a bug of number 7");
    }
    let report = sandbox.run(&quick, call()).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

#[tokio::test]
async fn calls_beyond_the_slots_wait() {
    let sandbox = sandbox();
    let sleeping = guest("(call $block (call $subscribe-duration (i64.const 30000000)))")
        .completes(Some("1"), None)
        .component();
    let artifact = Arc::new(sandbox.load(&sleeping).unwrap());
    let start = Instant::now();
    let reports = tokio::join!(
        sandbox.run(&artifact, call()),
        sandbox.run(&artifact, call()),
        sandbox.run(&artifact, call()),
        sandbox.run(&artifact, call()),
    );
    for report in [reports.0, reports.1, reports.2, reports.3] {
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
        // The wait for a slot does not count as time of the task.
        assert!(report.usage.wall_ms < 1000.0);
    }
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_task_reads_its_run_info() {
    // Fails unless this is attempt 3 and the deadline is the current time plus the timeout.
    let body = "(if (i32.ne (call $attempt) (i32.const 3)) (then unreachable))
        (call $deadline (i32.const 512))
        (if (i32.ne (i32.load8_u (i32.const 512)) (i32.const 1)) (then unreachable))
        (if (i64.ne (i64.load (i32.const 520)) (i64.const 1007)) (then unreachable))
        (if (i32.ne (i32.load (i32.const 528)) (i32.const 500000000)) (then unreachable))
        (call $task-name (i32.const 512))
        (if (i32.ne (i32.load (i32.const 516)) (i32.const 4)) (then unreachable))
        (if (i32.ne (local.get $task-size) (i32.const 4)) (then unreachable))
        (if (i32.ne (local.get $context-size) (i32.const 2)) (then unreachable))";
    let sandbox = sandbox_at(Clock::simulated(Timestamp::from_micros(1_000_500_000)));
    let guest = guest(body).completes(None, None);
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let mut call = call();
    call.limits.timeout = Duration::from_secs(7);
    // 1000.5 s + 7 s
    let report = sandbox.run(&artifact, call).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

#[tokio::test]
async fn logs_and_progress_have_times_of_the_given_clock() {
    let body =
        "(call $log (i32.const 3) (i32.const 2048) (i32.const 2) (i32.const 2050) (i32.const 5))
        (call $report-progress (i32.const 1) (i32.const 40) (i32.const 2050) (i32.const 5))";
    let now = Timestamp::from_micros(1_800_000_000_000_000);
    let sandbox = sandbox_at(Clock::simulated(now));
    let guest = guest(body).data(2048, "dbhello").completes(None, None);
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox.run(&artifact, call()).await;
    let line = |level: &str, context: &str, message: &str| LogLine {
        at: now,
        level: level.to_owned(),
        context: context.to_owned(),
        message: message.to_owned(),
        by_host: false,
    };
    assert_eq!(
        report.logs,
        [
            line("warn", "db", "hello"),
            line("info", "progress", "40 % hello")
        ]
    );
}
