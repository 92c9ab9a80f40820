//! The limits of a call, and the results of exceeding them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_model::clock::Clock;

use super::guests::*;
use crate::*;

#[tokio::test]
async fn the_timeout_stops_a_loop_and_a_wait() {
    for body in [
        "(loop $for-ever (br $for-ever))",
        "(call $block (call $subscribe-duration (i64.const 3600000000000)))",
        // Fills 32 MiB again and again: the epoch is checked only between bulk operations.
        "(loop $for-ever (memory.fill (i32.const 65536) (i32.const 7) (i32.const 33000000)) (br $for-ever))",
    ] {
        let sandbox = sandbox();
        let guest = guest(body).pages(510);
        let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
        let mut call = call();
        call.limits.timeout = Duration::from_millis(100);
        let start = Instant::now();
        let report = sandbox.run(&artifact, call).await;
        let elapsed = start.elapsed();
        assert_eq!(
            failure(&report, Outcome::TimedOut).message,
            "the task was stopped after its time-out of 100ms; \
             to give it more, raise `limits.timeout` in the package's sidecar file"
        );
        assert!(elapsed < LONG_WAIT, "{body}: {elapsed:?}");
        assert!(report.usage.wall_ms >= 100.0);
    }
}

#[tokio::test]
async fn busy_guests_do_not_block_others() {
    let sandbox = Sandbox::new(
        SandboxSettings {
            calls_max: 3,
            guest_threads: 1,
            code_cache: CodeCache::None,
            memory_bytes_max: 64 << 20,
            ..SandboxSettings::default()
        },
        Clock::system(),
    )
    .unwrap();
    let endless = guest("(loop $for-ever (br $for-ever))").component();
    let endless = Arc::new(sandbox.load(&endless).unwrap());
    let quick = guest("(call $block (call $subscribe-duration (i64.const 1000000)))")
        .completes(None, None)
        .component();
    let quick = Arc::new(sandbox.load(&quick).unwrap());
    let stop = StopSignal::default();
    let busy_call = || {
        let mut call = call();
        call.limits.timeout = LONG_WAIT;
        call.stop = stop.clone();
        sandbox.run(&endless, call)
    };
    let (first, second, ()) = tokio::join!(busy_call(), busy_call(), async {
        until_free(&sandbox, 1).await;
        let report = sandbox.run(&quick, call()).await;
        assert_eq!(report.outcome, Outcome::Succeeded);
        stop.drop_now();
    });
    // They ended only when the quick call had.
    failure(&first, Outcome::Cancelled);
    failure(&second, Outcome::Cancelled);
    // The busy calls shared one thread, and each counts only its own processor time.
    let cpu_ms = first.usage.cpu_ms + second.usage.cpu_ms;
    let wall_ms = first.usage.wall_ms.max(second.usage.wall_ms);
    assert!(
        cpu_ms < wall_ms * 1.5,
        "{cpu_ms} ms on one thread in {wall_ms}"
    );
}

/// Returns a guest that grows both memories in turn until refused, and then executes `then`.
fn allocate_until_refused(then: &str) -> Guest {
    guest(&format!(
        "(loop $more
            (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then {then}))
            (if (i32.eq (memory.grow $second (i32.const 1)) (i32.const -1)) (then {then}))
            (br $more))"
    ))
    .with("(memory $second 1)")
}

fn sixteen_pages() -> Limits {
    Limits {
        memory_bytes_max: 16 * 65_536,
        ..Limits::default()
    }
}

#[tokio::test]
async fn two_memories_share_one_limit() {
    let report = run_within(allocate_until_refused("unreachable"), sixteen_pages()).await;
    let failed = failure(&report, Outcome::MemoryExceeded);
    assert_eq!(
        failed.message,
        "the task wanted 1.1 MiB of memory and its limit is 1.0 MiB; raise `limits.memory` in the package's sidecar file, or use less"
    );
    assert_eq!(report.usage.memory_peak_bytes, 16 * 65_536);
}

#[tokio::test]
async fn a_task_that_handles_a_refused_allocation_succeeds() {
    let guest =
        allocate_until_refused(&format!("(return (i32.const {RESULT}))")).completes(None, None);
    let report = run_within(guest, sixteen_pages()).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

#[tokio::test]
async fn a_failure_after_a_refused_allocation_is_memory_exceeded() {
    let guest = allocate_until_refused(&format!("(return (i32.const {RESULT}))")).fails(
        RESULT,
        &GuestFailure {
            message: "out of memory",
            ..GuestFailure::default()
        },
    );
    let report = run_within(guest, sixteen_pages()).await;
    failure(&report, Outcome::MemoryExceeded);
}

#[tokio::test]
async fn initial_memory_counts_towards_the_limit() {
    let report = run_within(guest("").pages(17), sixteen_pages()).await;
    failure(&report, Outcome::MemoryExceeded);
    assert_eq!(report.usage.memory_peak_bytes, 0);
}

#[tokio::test]
async fn a_limit_above_the_sandbox_maximum_is_clamped() {
    let limits = Limits {
        memory_bytes_max: u64::MAX,
        ..Limits::default()
    };
    let report = run_within(allocate_until_refused("unreachable"), limits).await;
    failure(&report, Outcome::MemoryExceeded);
    assert_eq!(report.usage.memory_peak_bytes, 64 << 20);
}

#[tokio::test]
async fn a_package_with_more_memories_than_a_slot_is_allocated_on_demand() {
    let guest = guest("")
        .with(&"(memory 1)".repeat(6))
        .completes(None, None);
    let report = run(guest).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    assert_eq!(report.usage.memory_peak_bytes, 8 * 65_536);
}

#[tokio::test]
async fn a_package_larger_than_a_slot_loads_and_its_call_reports_that() {
    let report = run(guest("").pages(1200)).await;
    let message = &failure(&report, Outcome::MemoryExceeded).message;
    assert!(
        message.contains("wanted 75.0 MiB of memory and its limit is 64.0 MiB"),
        "{message}"
    );
}

#[tokio::test]
async fn tables_share_one_limit() {
    let guest = guest(
        "(loop $more
            (if (i32.eq (table.grow $first (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable))
            (if (i32.eq (table.grow $second (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable))
            (br $more))",
    )
    .with("(table $first 1 funcref) (table $second 1 funcref)");
    let limits = Limits {
        table_elements_max: 20_000,
        ..Limits::default()
    };
    let report = run_within(guest, limits).await;
    let message = &failure(&report, Outcome::MemoryExceeded).message;
    assert!(message.contains("its limit is 20000"), "{message}");
}

#[tokio::test]
async fn an_output_that_is_too_large_is_invalid() {
    let limits = Limits {
        output_bytes_max: 1000,
        ..Limits::default()
    };
    let guest = guest("").data(RESULT, completion_of(0, 1001));
    let report = run_within(guest, limits).await;
    let failed = failure(&report, Outcome::InvalidOutput);
    assert!(
        failed.message.contains("1001 bytes and its limit is 1000"),
        "{}",
        failed.message
    );
}

#[tokio::test]
async fn an_output_far_beyond_any_limit_is_invalid_too() {
    let guest = guest("")
        .pages(600)
        .data(RESULT, completion_of(0, 36 << 20));
    let report = run(guest).await;
    let failed = failure(&report, Outcome::InvalidOutput);
    assert!(
        failed.message.contains("its limit is 1048576"),
        "{}",
        failed.message
    );
}

/// Returns code that executes `code` a thousand times.
fn repeat_1000_times(code: &str) -> String {
    format!(
        "(local $n i32) (local $stdout i32)
        (loop $again
            {code}
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.const 1000))))"
    )
}

#[tokio::test]
async fn excess_logs_and_output_are_cut_and_the_task_continues() {
    let body = repeat_1000_times(
        "(if (i32.eqz (local.get $n)) (then (local.set $stdout (call $get-stdout))))
        (call $write (local.get $stdout) (i32.const 2048) (i32.const 100) (i32.const 512))
        (if (i32.load8_u (i32.const 512)) (then unreachable))
        (call $log (i32.const 2) (i32.const 2048) (i32.const 0) (i32.const 2048) (i32.const 100))",
    );
    let guest = guest(&body)
        .data(2048, "x".repeat(100))
        .completes(Some("\"still here\""), None);
    let limits = Limits {
        stdio_bytes_max: 1000,
        log_bytes_max: 1320,
        ..Limits::default()
    };
    let report = run_within(guest, limits).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    assert_eq!(report.stdout, "x".repeat(1000));
    assert_eq!(report.stdout_bytes_dropped, 99_000);
    assert_eq!(report.logs.len(), 11);
    assert_eq!(
        report.logs[10].message,
        "990 log lines were dropped or cut here; the limit is 1320 bytes; to keep more, \
         raise `limits.log` in the package's sidecar file"
    );
}

#[tokio::test]
async fn a_task_cannot_make_the_host_allocate_without_limit() {
    // Requests a gigabyte of random bytes, and more handles than a task may have.
    let report = run(guest(
        "(call $random (i64.const 1000000000) (i32.const 512))",
    ))
    .await;
    failure(&report, Outcome::Trapped);
    let report = run(guest(
        "(call $log (i32.const 0) (i32.const 0) (i32.const 20000000) (i32.const 0) (i32.const 0))",
    )
    .pages(400))
    .await;
    let message = &failure(&report, Outcome::Trapped).message;
    assert!(
        message.contains("more than 16777216 bytes in one call; raise `limits.host_call` in"),
        "{message}"
    );
    let endless = "(loop $more (drop (call $subscribe-duration (i64.const 1))) (br $more))";
    let report = run(guest(endless)).await;
    let message = &failure(&report, Outcome::Trapped).message;
    assert!(
        message.contains(
            "more than 1000 files, streams, requests and other handles at once; raise `limits.handles` in"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn memory_of_a_call_is_zeroed_for_the_next_call() {
    let body = "(if (i32.load (i32.const 100000)) (then unreachable))
        (i32.store (i32.const 100000) (i32.const 7))";
    let sandbox = sandbox();
    let guest = guest(body).completes(None, None);
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    for _ in 0..20 {
        let report = sandbox.run(&artifact, call()).await;
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    }
}

#[tokio::test]
async fn random_bytes_are_counted_over_the_whole_call() {
    let draw = |times: u32| {
        let body = "(call $random (i64.const 100) (i32.const 512))".repeat(times as usize);
        guest(&body).completes(None, None)
    };
    let limits = Limits {
        random_bytes_max: 1_000,
        ..Limits::default()
    };
    let report = run_within(draw(10), limits.clone()).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    let shares = &report.usage.shares;
    let random = shares
        .iter()
        .find(|share| share.resource == Resource::Random);
    assert_eq!(
        random.map(|share| (share.used, share.limit)),
        Some((1_000, 1_000))
    );
    let report = run_within(draw(11), limits).await;
    let failed = failure(&report, Outcome::Trapped);
    assert!(
        failed.message.contains("more than 1000 random bytes"),
        "{}",
        failed.message
    );
}
