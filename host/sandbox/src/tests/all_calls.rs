//! Guests staying within each call's limits, but together taking what the host needs.

use std::sync::Arc;
use std::time::Duration;

use super::guests::*;
use crate::engine::Engines;
use crate::ledger::Ledger;
use crate::*;

const MIB: u64 = 1 << 20;

/// Returns a sandbox running up to `calls_max` calls on the budgets of `ledger`.
pub(super) fn sandbox_with(calls_max: u32, ledger: Ledger) -> Arc<Sandbox> {
    let settings = SandboxSettings {
        calls_max,
        guest_threads: 2,
        memory_bytes_max: 64 << 20,
        ..SandboxSettings::default()
    };
    let mut sandbox = Sandbox::new(settings, campanile_model::clock::Clock::system()).unwrap();
    sandbox.ledger = Arc::new(ledger);
    Arc::new(sandbox)
}

pub(super) fn of_package(package: &str) -> Call {
    Call {
        package: package.to_owned(),
        ..call()
    }
}

/// Sleeps until timing out.
const SLEEP: &str = "(call $block (call $subscribe-duration (i64.const 3600000000000)))";

/// Starts `times` calls of `package`.
fn begin(
    sandbox: &Arc<Sandbox>,
    artifact: &Arc<Artifact>,
    package: &str,
    times: usize,
) -> Vec<tokio::task::JoinHandle<Report>> {
    let calls = (0..times).map(|_| {
        let (sandbox, artifact) = (Arc::clone(sandbox), Arc::clone(artifact));
        let call = of_package(package);
        tokio::spawn(async move { sandbox.run(&artifact, call).await })
    });
    calls.collect()
}

/// Waits until `package` holds at least `amount` of memory.
async fn until_held(sandbox: &Sandbox, package: &str, amount: u64) {
    let wait = async {
        while sandbox.ledger.memory.held(package) < amount {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG_WAIT, wait).await.unwrap();
}

#[tokio::test]
async fn a_package_with_many_memories_is_refused_when_it_is_loaded() {
    let guest = guest("").with(&"(memory 1)".repeat(73));
    let refusal = sandbox().load(&guest.component()).err().unwrap();
    assert_eq!(
        refusal.message,
        "a call of this package would have 74 memories, and the limit is 8; build it with fewer, \
         or raise `memories_max` under `[sandbox]` in the host's configuration"
    );
}

#[tokio::test]
async fn instances_have_the_same_bounds_without_the_pool() {
    let engines = Engines::without_pool(&SandboxSettings::default()).unwrap();
    let globals = "(global i32 (i32.const 0))".repeat(600_000);
    for (definitions, what) in [
        (globals.as_str(), "`instance_max`"),
        (&"(memory 1)".repeat(73), "`memories_max`"),
        (&"(table 1 funcref)".repeat(50), "`tables_max`"),
    ] {
        let component = guest("").with(definitions).component();
        let loaded = crate::load::artifact::load(&engines, &component, false);
        let message = loaded.err().unwrap().message;
        assert!(message.contains(what), "{message}");
    }
}

#[tokio::test]
async fn large_instances_count_as_memory() {
    // Each takes sixteen bytes.
    let globals = "(global i32 (i32.const 0))".repeat(200_000);
    let guest = guest("").with(&globals).completes(None, None);
    let report = run(guest).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    let pages = report.usage.memory_peak_bytes / 65_536;
    assert!((50..60).contains(&pages), "{pages}");
}

#[tokio::test]
async fn many_calls_of_a_package_leave_memory_for_another() {
    let sandbox = sandbox_with(40, Ledger::new(64 * MIB, 10_000, 100));
    let sleeps = guest(SLEEP).pages(64).completes(None, None);
    let sleeps = Arc::new(sandbox.load(&sleeps.component()).unwrap());
    let quick = guest("").pages(64).completes(None, None);
    let quick = Arc::new(sandbox.load(&quick.component()).unwrap());
    let hogs = begin(&sandbox, &sleeps, "hog", 30);
    until_held(&sandbox, "hog", 28 * MIB).await;
    let report = sandbox.run(&quick, of_package("honest")).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    let held = sandbox.ledger.memory.held("hog");
    assert!(held <= sandbox.ledger.memory.most_of_one(), "{held}");
    hogs.iter().for_each(|hog| hog.abort());
    for hog in hogs {
        let _ = hog.await;
    }
    // Finished calls hold nothing.
    let wait = async {
        while sandbox.ledger.memory.held("hog") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG_WAIT, wait).await.unwrap();
}

#[tokio::test]
async fn a_call_that_waits_for_memory_begins_when_another_ends() {
    let sandbox = sandbox_with(8, Ledger::new(16 * MIB, 10_000, 100));
    let waits = guest("(call $block (call $subscribe-duration (i64.const 20000000)))");
    let waits = waits.pages(80).completes(None, None);
    let waits = Arc::new(sandbox.load(&waits.component()).unwrap());
    // Each takes 5 MiB, and the package gets at most 9.
    for call in begin(&sandbox, &waits, "package", 8) {
        let report = call.await.unwrap();
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    }
}

#[tokio::test]
async fn a_call_that_needs_more_than_there_is_fails_and_says_what_to_do() {
    let sandbox = sandbox_with(2, Ledger::new(4 * MIB, 10_000, 100));
    let large = guest("").pages(80).completes(None, None);
    let large = Arc::new(sandbox.load(&large.component()).unwrap());
    let report = sandbox.run(&large, call()).await;
    let failed = failure(&report, Outcome::MemoryExceeded);
    assert!(
        failed.message.contains("`memory_total`"),
        "{}",
        failed.message
    );
    assert!(failed.precedes_call);

    let sandbox = sandbox_with(2, Ledger::new(64 * MIB, 8, 100));
    let report = sandbox.run(&large, call()).await;
    let failed = failure(&report, Outcome::MemoryExceeded);
    assert!(
        failed.message.contains("vm.max_map_count"),
        "{}",
        failed.message
    );
}

#[tokio::test]
async fn growth_is_refused_when_all_calls_have_too_much() {
    let sandbox = sandbox_with(2, Ledger::new(8 * MIB, 10_000, 100));
    let grows = guest(
        "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (unreachable)",
    );
    let grows = Arc::new(sandbox.load(&grows.component()).unwrap());
    let report = sandbox.run(&grows, call()).await;
    let failed = failure(&report, Outcome::MemoryExceeded);
    assert!(
        failed.message.contains("the host's memory"),
        "{}",
        failed.message
    );
    assert!(failed.retryable);
    assert_eq!(sandbox.ledger.memory.held("package"), 0);
}

/// Keeps opening the empty root until refused, then continues with `then`.
fn opens_much(then: &str) -> Guest {
    guest(&format!(
        "(call $get-directories (i32.const 512))
        (loop $more
            (call $open-at (i32.load (i32.load (i32.const 512))) (i32.const 0)
                (i32.const 2048) (i32.const 1) (i32.const 2) (i32.const 1) (i32.const 520))
            (br_if $more (i32.eqz (i32.load8_u (i32.const 520)))))
        {then}"
    ))
    .data(2048, ".")
    .completes(None, None)
}

#[tokio::test]
async fn many_calls_of_a_package_leave_descriptors_for_another() {
    let sandbox = sandbox_with(8, Ledger::new(1 << 30, 10_000, 96));
    let hoards = opens_much(SLEEP);
    let hoards = Arc::new(sandbox.load(&hoards.component()).unwrap());
    let hogs = begin(&sandbox, &hoards, "hog", 6);
    let most = sandbox.ledger.descriptors.most_of_one();
    let wait = async {
        while sandbox.ledger.descriptors.held("hog") < most {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG_WAIT, wait).await.unwrap();
    // Another package can still open some, and its report says why it got no more.
    let fails = opens_much("(unreachable)");
    let fails = Arc::new(sandbox.load(&fails.component()).unwrap());
    let report = sandbox.run(&fails, of_package("honest")).await;
    let message = &failure(&report, Outcome::Trapped).message;
    assert!(message.contains("files and connections open"), "{message}");
    assert!(message.contains("ulimit -n"), "{message}");
    let opened = report.usage.shares.iter();
    let opened = opened.filter(|share| share.resource == Resource::OpenFiles);
    assert!(opened.map(|share| share.used).sum::<u64>() >= 8);
    assert!(sandbox.ledger.descriptors.held("hog") <= most);
    hogs.iter().for_each(|hog| hog.abort());
}

/// Counts the mappings of this process.
#[cfg(target_os = "linux")]
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn calls_have_no_more_mappings_than_they_are_charged() {
    const CALLS: usize = 16;
    let sandbox = sandbox_with(CALLS as u32, Ledger::new(1 << 30, 10_000, 100));
    // Too many memories for the pool.
    let sleeps = guest(SLEEP)
        .with(&"(memory 1)".repeat(6))
        .with("(data (memory 1) (i32.const 0) \"x\")")
        .completes(None, None);
    let sleeps = Arc::new(sandbox.load(&sleeps.component()).unwrap());
    let before = mappings();
    let calls = begin(&sandbox, &sleeps, "package", CALLS);
    let charged = |sandbox: &Sandbox| sandbox.ledger.mappings.held("package") as usize;
    until_held(&sandbox, "package", CALLS as u64 * 8 * 65_536).await;
    until_free(&sandbox, 0).await;
    // Other tests in this process map memory too.
    let made = mappings().saturating_sub(before);
    assert!(
        made <= charged(&sandbox) + 300,
        "{made} mappings, {} charged",
        charged(&sandbox)
    );
    calls.iter().for_each(|call| call.abort());
}
