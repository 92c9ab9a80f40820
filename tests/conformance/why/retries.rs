//! The retries of a schedule that sets its own policy, and why none followed.

use std::time::Duration;

use campanile_schedule::policy::Policies;
use campanile_store::events::EventKind;
use campanile_store::launch::{self, LaunchRow};
use campanile_store::{FailureKind, LaunchStatus, events};
use campanile_tests::{TestDb, on_both};

use super::test_host::{TestHost, clock_time, cron};

on_both!(
    a_schedule_sets_the_number_of_calls,
    a_schedule_sets_the_pauses,
    a_kind_of_failure_is_not_retried,
    no_retry_is_decided_past_the_expiration,
    a_retry_that_cannot_begin_in_time_fails_as_before,
    a_recovered_launch_keeps_its_expiration,
    a_lost_run_is_called_again_past_the_expiration,
);

const EVERY_TEN: &str = "*/10 * * * *";
const SLOT: Option<&str> = Some("2026-05-04T10:10:00Z");

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// Start a host whose schedule calls a task that fails each time, and asks for a pause of 10 s.
async fn host(test: TestDb, policies: Policies) -> TestHost {
    let host = TestHost::new(test).await;
    let task = "fail_retryable";
    host.add_calling(task, cron(EVERY_TEN), policies).await;
    host
}

async fn launch(host: &TestHost) -> LaunchRow {
    let mut tx = host.test.read().await;
    let mut rows = launch::list(&mut tx, None, 10).await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    rows.remove(0)
}

/// Assert that the launch has failed with this message.
async fn assert_failed(host: &TestHost, attempts: i64, message: &str) {
    let row = launch(host).await;
    assert_eq!(
        (row.status, row.failure),
        (LaunchStatus::Failed, Some(FailureKind::Failed))
    );
    assert_eq!(row.attempts, attempts);
    assert_eq!(row.message.as_deref(), Some(message));
}

async fn a_schedule_sets_the_number_of_calls(test: TestDb) {
    let policies = Policies {
        max_attempts: Some(2),
        ..Policies::default()
    };
    let host = host(test, policies).await;
    host.tick_at("10:10").await;
    assert_eq!(launch(&host).await.status, LaunchStatus::Waiting);
    host.tick_at("10:10:10").await;
    assert_failed(&host, 2, "told to fail").await;
}

async fn a_schedule_sets_the_pauses(test: TestDb) {
    let policies = Policies {
        backoff: seconds(40),
        backoff_coefficient: Some("3".parse().unwrap()),
        backoff_max: seconds(100),
        max_attempts: Some(4),
        ..Policies::default()
    };
    let host = host(test, policies).await;
    // Each pause varies by a quarter: 30 to 50 s, then 75 to 125 s twice.
    for (at, attempts) in [
        ("10:10:00", 1),
        ("10:10:29", 1),
        ("10:10:50", 2),
        ("10:12:04", 2),
        ("10:12:55", 3),
        ("10:14:09", 3),
        ("10:15:00", 4),
    ] {
        host.tick_at(at).await;
        assert_eq!(launch(&host).await.attempts, attempts, "{at}");
    }
    assert_failed(&host, 4, "told to fail").await;
}

async fn a_kind_of_failure_is_not_retried(test: TestDb) {
    let policies = Policies {
        non_retryable: Some("failed".parse().unwrap()),
        ..Policies::default()
    };
    let host = host(test, policies).await;
    host.tick_at("10:10").await;
    let message = "told to fail; not retried, since `non_retryable` names `failed`";
    assert_failed(&host, 1, message).await;
    host.assert_why(SLOT, "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail; not retried, since `non_retryable` names `failed`) after 0s
            outcome, 2026-05-04T10:10:00Z: failed for good (told to fail; not retried, since `non_retryable` names `failed`)").await;
}

async fn no_retry_is_decided_past_the_expiration(test: TestDb) {
    let policies = Policies {
        retry_expiration: seconds(15),
        ..Policies::default()
    };
    let host = host(test, policies).await;
    host.tick_at("10:10").await;
    // The retry at 10:10:10 begins in time, and the next one would begin at 10:10:20.
    host.tick_at("10:10:10").await;
    let message =
        "told to fail; not retried, since `retry_expiration` ends at 2026-05-04T10:10:15Z";
    assert_failed(&host, 2, message).await;
    host.assert_why(SLOT, "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:10Z
            called, 2026-05-04T10:10:10Z: task `fail_retryable`, call 2: failed (told to fail; not retried, since `retry_expiration` ends at 2026-05-04T10:10:15Z) after 0s
            outcome, 2026-05-04T10:10:10Z: failed for good (told to fail; not retried, since `retry_expiration` ends at 2026-05-04T10:10:15Z)").await;
}

/// The message of a launch whose retry was due at 10:10:10.
const TOO_LATE: &str = "its retry was due at 2026-05-04T10:10:10Z and did not begin by 2026-05-04T10:10:15Z, when `retry_expiration` ended";

async fn a_retry_that_cannot_begin_in_time_fails_as_before(test: TestDb) {
    let policies = Policies {
        retry_expiration: seconds(15),
        ..Policies::default()
    };
    let host = host(test, policies).await;
    host.tick_at("10:10").await;
    assert_eq!(launch(&host).await.status, LaunchStatus::Waiting);
    host.tick_at("10:10:16").await;
    assert_failed(&host, 2, TOO_LATE).await;
    host.assert_why(SLOT, &format!("
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:10Z
            outcome, 2026-05-04T10:10:16Z: failed for good ({TOO_LATE})")).await;
}

async fn a_recovered_launch_keeps_its_expiration(test: TestDb) {
    let policies = Policies {
        retry_expiration: seconds(15),
        ..Policies::default()
    };
    let host = host(test, policies).await;
    host.tick_at("10:10").await;
    // The host claims the retry in time, and its run is lost before the task is called.
    let now = clock_time("10:10:10");
    host.clock.advance_to(now);
    assert_eq!(host.engine.claim(now).await.unwrap().len(), 1);
    host.tick_at("10:10:45").await;
    let row = launch(&host).await;
    assert_eq!(row.recoveries, 1);
    assert_failed(&host, 3, TOO_LATE).await;
}

/// A recovery is no retry: the call may never have begun.
async fn a_lost_run_is_called_again_past_the_expiration(test: TestDb) {
    let policies = Policies {
        retry_expiration: seconds(15),
        ..Policies::default()
    };
    let host = TestHost::new(test).await;
    host.add(cron(EVERY_TEN), policies).await;
    host.decide_and_claim("10:10").await;
    host.tick_at("10:10:45").await;
    let row = launch(&host).await;
    assert_eq!(
        (row.status, row.recoveries),
        (LaunchStatus::Succeeded, 1),
        "{row:#?}"
    );
    let mut tx = host.test.read().await;
    let events = events::list(&mut tx, None, 10).await.unwrap();
    let is_recovery = |kind| kind == EventKind::LaunchRecovered;
    assert!(events.iter().any(|event| is_recovery(event.kind)));
}
