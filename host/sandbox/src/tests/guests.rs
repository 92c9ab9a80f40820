//! A sandbox for tests, and calls of guests in it.

use std::sync::Arc;
use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{LaunchId, RunId};
use uuid::Uuid;

use crate::*;

pub use super::guest_text::*;

/// Much less than an endless guest takes, and much more than a quick one, even beside builds and other tests.
pub const LONG_WAIT: Duration = Duration::from_secs(60);

/// Returns a sandbox for two concurrent calls.
pub fn sandbox() -> Sandbox {
    sandbox_at(Clock::system())
}

pub fn sandbox_at(clock: Clock) -> Sandbox {
    let settings = SandboxSettings {
        calls_max: 2,
        guest_threads: 2,
        code_cache: CodeCache::None,
        memory_bytes_max: 64 << 20,
        ..SandboxSettings::default()
    };
    Sandbox::new(settings, clock).unwrap()
}

/// Returns a call without grants.
pub fn call() -> Call {
    Call {
        package: "package".to_owned(),
        task: "test".to_owned(),
        context: "{}".to_owned(),
        facts: RunFacts {
            execution_id: LaunchId(Uuid::from_u128(1)),
            run_id: RunId(Uuid::from_u128(2)),
            attempt: 3,
            is_recovery: false,
            scheduled_time: Timestamp::EPOCH,
            original_scheduled_time: Timestamp::EPOCH,
            traceparent: None,
        },
        program: Arc::default(),
        grants: Arc::new(Grants::default()),
        secrets: Arc::default(),
        limits: Limits::default(),
        world: World::real(Arc::new(MemoryBuckets::default())),
        stop: StopSignal::default(),
    }
}

/// Returns a call with `grants`.
pub fn granted(grants: Grants) -> Call {
    Call {
        grants: Arc::new(grants),
        ..call()
    }
}

/// Wait until exactly this number of slots of `sandbox` is free.
pub async fn until_free(sandbox: &Sandbox, slots: usize) {
    let wait = async {
        while sandbox.calls.available_permits() != slots {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(LONG_WAIT, wait).await;
    waited.unwrap_or_else(|_| panic!("never {slots} slots free"));
}

/// Load `guest` and call it once with `limits`.
pub async fn run_within(guest: Guest, limits: Limits) -> Report {
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let call = Call { limits, ..call() };
    sandbox.run(&artifact, call).await
}

/// Load `guest` and call it once.
pub async fn run(guest: Guest) -> Report {
    run_within(guest, Limits::default()).await
}

/// Returns the failure of a report. Assert the outcome of the report.
#[track_caller]
pub fn failure(report: &Report, kind: Outcome) -> &Failure {
    assert_eq!(report.outcome, kind, "{report:#?}");
    let failure = report.failure.as_ref().unwrap();
    assert_eq!(failure.kind, kind);
    failure
}
