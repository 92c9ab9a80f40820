//! What an operator does with one launch: it ends, or it is launched again; and what both leave in the record.

use std::time::Duration;

use campanile_control::admin::launch_admin::{self, Cancelled};
use campanile_control::admin::schedule_admin::{Result, Triggered};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, RunId};
use campanile_schedule::policy::{Overlap, OverlapDecision, Policies};
use campanile_store::launch::{self, LaunchRow, RunEnd};
use campanile_store::{
    FailureKind, LaunchStatus, Tx, backfills, events, removed_launches, retention, schedules,
};
use campanile_tests::dump::dump;
use campanile_tests::{TestDb, on_both};

use crate::any_sequence::host::{self, finish};
use crate::fixtures::{at, launch, schedule_id, skipped};
use crate::overlap::TestHost;

on_both!(
    a_running_launch_is_asked_to_end_and_its_host_ends_it,
    a_second_request_can_only_shorten_the_grace,
    a_launch_that_succeeds_within_its_grace_has_succeeded,
    a_launch_that_does_not_run_is_ended_at_once,
    a_waiting_launch_is_cancelled_at_once,
    a_run_that_ends_to_be_retried_after_the_request_is_cancelled_by_the_operator,
    a_launch_whose_host_dies_after_the_request_is_cancelled,
    an_ended_launch_and_a_lost_run_cannot_be_cancelled,
    a_retry_launches_the_slot_again_with_the_context_of_the_launch,
    a_retry_that_succeeded_counts_for_its_slot_in_a_backfill,
    a_retry_follows_the_overlap_policy,
    a_launch_that_has_not_ended_cannot_be_retried,
    a_range_of_slots_and_a_removed_schedule_cannot_be_retried,
);

async fn host_of(test: TestDb, overlap: Overlap) -> TestHost {
    let policies = Policies {
        overlap,
        ..Policies::default()
    };
    TestHost::new(test, policies).await
}

async fn cancel(
    test: &TestDb,
    launch: LaunchId,
    grace: Option<u64>,
    now: Timestamp,
) -> Result<Cancelled> {
    let grace = grace.map(Duration::from_secs);
    let mut tx = test.write().await;
    let done = launch_admin::cancel(&mut tx, (launch, None), grace, "ada", now).await?;
    tx.commit().await.unwrap();
    Ok(done)
}

async fn retry(test: &TestDb, launch: LaunchId, now: Timestamp) -> Result<Triggered> {
    let mut tx = test.write().await;
    let (triggered, ..) = launch_admin::retry(&mut tx, launch, "ada", now).await?;
    tx.commit().await.unwrap();
    Ok(triggered)
}

async fn newest_event(test: &TestDb) -> String {
    let event = events::list(&mut test.read().await, None, 1)
        .await
        .unwrap()
        .remove(0);
    format!("{} {}: {}", event.kind, event.subject, event.detail)
}

async fn row(test: &TestDb, id: LaunchId) -> LaunchRow {
    let mut tx = test.read().await;
    launch::with_ids(&mut tx, &[id]).await.unwrap().remove(0)
}

/// Return what the row says about the end of a launch.
fn ending(row: &LaunchRow) -> (&str, Option<&str>, Option<&str>) {
    (
        row.status.as_str(),
        row.reason.as_deref(),
        row.message.as_deref(),
    )
}

/// Finish the earliest claimed run as the executor ends a run that was asked to end.
async fn finish_cancelled(host: &mut TestHost, now: Timestamp) {
    let (work, _) = host.live_host.claimed.remove(0);
    let message = "it ended when it was asked to".to_owned();
    let end = finish(&work, RunEnd::Cancelled { message }, now);
    assert_eq!(host.live_host.engine.finish(&[end]).await.unwrap(), 1);
}

/// Assert that a request is refused with a message that contains `part`, and that it changes nothing.
async fn assert_refused<T: std::fmt::Debug>(
    test: &TestDb,
    request: impl Future<Output = Result<T>>,
    part: &str,
) {
    let before = dump(test).await;
    let refused = request.await.unwrap_err().to_string();
    assert!(refused.contains(part), "no `{part}`: {refused}");
    assert_eq!(dump(test).await, before);
}

async fn a_running_launch_is_asked_to_end_and_its_host_ends_it(test: TestDb) {
    let mut host = host_of(test, Overlap::Skip).await;
    host.decide_and_claim(at(60)).await;
    let id = host.rows().await[0].id;
    host.clock.advance_to(at(65));
    let done = cancel(&host.test, id, Some(20), at(65)).await.unwrap();
    assert_eq!(done, Cancelled::Asked(at(85)));
    let event = newest_event(&host.test).await;
    let slot = at(60);
    let expected = format!(
        "launch_cancelled schedule-1: ada asked slot {slot} to end by {}: launch {id}",
        at(85)
    );
    assert_eq!(event, expected);
    let (_, stop) = &host.live_host.claimed[0];
    assert!(!stop.is_cancelled());
    host.live_host.engine.renew(at(66)).await.unwrap();
    let (_, stop) = &host.live_host.claimed[0];
    assert!(stop.is_cancelled() && !stop.is_dropped());
    finish_cancelled(&mut host, at(70)).await;
    let row = row(&host.test, id).await;
    let message = "ada asked it to end; it ended when it was asked to";
    assert_eq!(ending(&row), ("cancelled", Some("operator"), Some(message)));
    assert_eq!(row.finished_at, Some(at(70)));
}

async fn a_second_request_can_only_shorten_the_grace(test: TestDb) {
    let mut host = host_of(test, Overlap::Skip).await;
    host.decide_and_claim(at(60)).await;
    let id = host.rows().await[0].id;
    let deadline = async |host: &TestHost| {
        let sql = "SELECT CAST(cancel_deadline AS TEXT) FROM launch";
        host.test.value(sql).await
    };
    // Without a grace of its own, the schedule's applies.
    let grace = Policies::default().cancel_grace();
    let asked = cancel(&host.test, id, None, at(60)).await.unwrap();
    assert_eq!(asked, Cancelled::Asked(at(60).plus(grace)));
    let asked = cancel(&host.test, id, Some(20), at(61)).await.unwrap();
    assert_eq!(asked, Cancelled::Asked(at(81)));
    let first = deadline(&host).await;
    let asked = cancel(&host.test, id, Some(60), at(62)).await.unwrap();
    assert_eq!(asked, Cancelled::Asked(at(81)), "the recorded deadline");
    assert_eq!(deadline(&host).await, first);
    cancel(&host.test, id, Some(0), at(63)).await.unwrap();
    assert!(deadline(&host).await < first);
    let asked = cancel(&host.test, id, None, at(70)).await.unwrap();
    assert_eq!(asked, Cancelled::Asked(at(63)));
}

async fn a_launch_that_succeeds_within_its_grace_has_succeeded(test: TestDb) {
    let mut host = host_of(test, Overlap::Skip).await;
    host.decide_and_claim(at(60)).await;
    let id = host.rows().await[0].id;
    cancel(&host.test, id, Some(20), at(61)).await.unwrap();
    assert_eq!(ending(&row(&host.test, id).await).1, Some("operator"));
    host.finish_first_run().await;
    assert_eq!(
        ending(&row(&host.test, id).await),
        ("succeeded", None, None)
    );
}

async fn a_launch_that_does_not_run_is_ended_at_once(test: TestDb) {
    let policies = Policies {
        overlap: Overlap::BufferAll,
        max_launches: Some(2),
        ..Policies::default()
    };
    let mut host = TestHost::new(test, policies).await;
    host.decide_and_claim(at(60)).await;
    host.decide(at(120)).await;
    assert_eq!(host.statuses().await, "schedule running, schedule queued");
    assert_eq!(host.launch_count_and_next_slot().await, (2, None));
    let queued = host.rows().await[1].id;
    let done = cancel(&host.test, queued, Some(20), at(125)).await.unwrap();
    assert_eq!(done, Cancelled::Ended(LaunchStatus::Skipped));
    let message = Some("ada asked it to end");
    let skipped = row(&host.test, queued).await;
    assert_eq!(ending(&skipped), ("skipped", Some("operator"), message));
    // It does not count, so the schedule has one more slot.
    assert_eq!(host.launch_count_and_next_slot().await, (1, Some(at(180))));
    let event = newest_event(&host.test).await;
    assert!(event.contains("was skipped by ada"), "{event}");

    // An open launch too.
    host.finish_first_run().await;
    host.decide(at(180)).await;
    let open = host.rows().await[2].id;
    let done = cancel(&host.test, open, None, at(181)).await.unwrap();
    assert_eq!(done, Cancelled::Ended(LaunchStatus::Skipped));
    host.decide_and_claim(at(182)).await;
    assert!(host.live_host.claimed.is_empty());
}

async fn a_waiting_launch_is_cancelled_at_once(test: TestDb) {
    let mut host = host_of(test, Overlap::Skip).await;
    host.decide_and_claim(at(60)).await;
    let (work, _) = host.live_host.claimed.remove(0);
    let retry_at = at(100);
    let end = finish(&work, RunEnd::Waiting { retry_at }, at(61));
    assert_eq!(host.live_host.engine.finish(&[end]).await.unwrap(), 1);
    let id = host.rows().await[0].id;
    let done = cancel(&host.test, id, Some(20), at(62)).await.unwrap();
    assert_eq!(done, Cancelled::Ended(LaunchStatus::Cancelled));
    let row = row(&host.test, id).await;
    assert_eq!(
        ending(&row),
        ("cancelled", Some("operator"), Some("ada asked it to end"))
    );
    assert_eq!(
        row.failure.map(|failure| failure.as_str()),
        Some("cancelled")
    );
}

/// The host learns of the request only after its run has failed.
async fn a_run_that_ends_to_be_retried_after_the_request_is_cancelled_by_the_operator(
    test: TestDb,
) {
    let mut host = host_of(test, Overlap::Skip).await;
    host.decide_and_claim(at(60)).await;
    let id = host.rows().await[0].id;
    cancel(&host.test, id, Some(20), at(61)).await.unwrap();
    let (work, _) = host.live_host.claimed.remove(0);
    let retry_at = at(100);
    let end = finish(&work, RunEnd::Waiting { retry_at }, at(62));
    assert_eq!(host.live_host.engine.finish(&[end]).await.unwrap(), 1);
    host.clock.advance_to(at(110));
    host.live_host.engine.renew(at(110)).await.unwrap();
    host.live_host.engine.recover(at(110)).await.unwrap();
    let row = row(&host.test, id).await;
    let (status, reason, message) = ending(&row);
    assert_eq!((status, reason), ("cancelled", Some("operator")));
    let message = message.unwrap_or_default();
    assert!(message.starts_with("ada asked it to end"), "{message}");
}

async fn a_launch_whose_host_dies_after_the_request_is_cancelled(test: TestDb) {
    let mut host = host_of(test, Overlap::Skip).await;
    host.decide_and_claim(at(60)).await;
    let id = host.rows().await[0].id;
    cancel(&host.test, id, Some(20), at(61)).await.unwrap();
    let TestHost {
        test,
        clock,
        live_host,
    } = host;
    drop(live_host);
    let other = host::start(&test, &clock, &host::loader(&clock), "host-2").await;
    for second in [80, 90, 100, 110] {
        clock.advance_to(at(second));
        other.engine.renew(at(second)).await.unwrap();
        other.engine.recover(at(second)).await.unwrap();
    }
    let row = row(&test, id).await;
    let (status, reason, message) = ending(&row);
    assert_eq!((status, reason), ("cancelled", Some("operator")));
    let message = message.unwrap_or_default();
    assert!(message.starts_with("ada asked it to end; "), "{message}");
}

async fn an_ended_launch_and_a_lost_run_cannot_be_cancelled(test: TestDb) {
    let mut host = host_of(test, Overlap::Skip).await;
    host.decide_and_claim(at(60)).await;
    let id = host.rows().await[0].id;
    for (number, part) in [(2, "there is no run"), (3, "there is no run")] {
        let run = Some(RunId::of(id, number));
        let request = async {
            let mut tx = host.test.write().await;
            launch_admin::cancel(&mut tx, (id, run), None, "ada", at(61)).await
        };
        assert_refused(&host.test, request, part).await;
    }
    host.finish_first_run().await;
    let request = cancel(&host.test, id, None, at(62));
    assert_refused(&host.test, request, "has ended already, as `succeeded`").await;
    let unknown = LaunchId::of(schedule_id(9), at(1), LaunchKind::Schedule);
    let request = cancel(&host.test, unknown, None, at(62));
    assert_refused(&host.test, request, "there is no launch").await;

    // Of a launch that was recovered, the first run is lost.
    host.decide_and_claim(at(120)).await;
    let id = host.rows().await[1].id;
    let sql = "UPDATE launch SET recoveries = 1 WHERE status = 'running'";
    host.test.execute(sql).await;
    let request = async {
        let mut tx = host.test.write().await;
        let run = Some(RunId::of(id, 1));
        launch_admin::cancel(&mut tx, (id, run), None, "ada", at(121)).await
    };
    assert_refused(&host.test, request, "was lost").await;
}

async fn a_retry_launches_the_slot_again_with_the_context_of_the_launch(test: TestDb) {
    let mut host = host_of(test, Overlap::Allow).await;
    host.decide_and_claim(at(60)).await;
    let (work, _) = host.live_host.claimed.remove(0);
    let end = RunEnd::Failed {
        kind: campanile_store::FailureKind::Failed,
        message: "it broke".to_owned(),
    };
    let end = finish(&work, end, at(61));
    host.live_host.engine.finish(&[end]).await.unwrap();
    let original = host.rows().await[0].clone();
    let sql = r#"UPDATE launch SET context = '{"day":1}'"#;
    host.test.execute(sql).await;

    host.clock.advance_to(at(100));
    let again = retry(&host.test, original.id, at(100)).await.unwrap();
    assert_eq!(again.decision, OverlapDecision::Start);
    let launched = row(&host.test, again.launch).await;
    assert_eq!(
        (launched.retry_of, launched.kind),
        (Some(original.id), LaunchKind::Manual)
    );
    assert_eq!(launched.scheduled_time, original.scheduled_time);
    assert_eq!(
        (launched.fire_time, launched.decided_at),
        (at(100), at(100))
    );
    let event = newest_event(&host.test).await;
    let expected = format!("is launched again by ada: launch {}", again.launch);
    assert!(
        event.starts_with("launch_retried schedule-1: ") && event.contains(&expected),
        "{event}"
    );
    let claimed = host.live_host.engine.claim(at(100)).await.unwrap();
    let launch = &claimed[0].launch;
    assert_eq!(launch.launch_id, again.launch);
    assert_eq!(launch.context.as_deref(), Some(r#"{"day":1}"#));
    assert_eq!(launch.interval_start, work.launch.interval_start);
    // The ended launch is history, and does not change. It can be launched again once more.
    assert_eq!(row(&host.test, original.id).await, original);
    let third = retry(&host.test, original.id, at(101)).await.unwrap();
    assert_ne!(third.launch, again.launch);
}

async fn a_retry_that_succeeded_counts_for_its_slot_in_a_backfill(test: TestDb) {
    let mut host = host_of(test, Overlap::Allow).await;
    host.decide_and_claim(at(60)).await;
    let (work, _) = host.live_host.claimed.remove(0);
    let (kind, message) = (FailureKind::Failed, "it broke".to_owned());
    let end = finish(&work, RunEnd::Failed { kind, message }, at(61));
    host.live_host.engine.finish(&[end]).await.unwrap();
    let original = host.rows().await[0].clone();
    let skipped = async |host: &TestHost| {
        let mut tx = host.test.read().await;
        let slots = backfills::slots_to_skip(&mut tx, schedule_id(1), at(1), at(61)).await;
        slots.unwrap()
    };
    assert_eq!(skipped(&host).await, []);
    host.clock.advance_to(at(100));
    retry(&host.test, original.id, at(100)).await.unwrap();
    assert_eq!(skipped(&host).await, [(at(60), at(60))], "it is under way");
    host.decide_and_claim(at(100)).await;
    host.finish_first_run().await;
    assert_eq!(skipped(&host).await, [(at(60), at(60))], "it succeeded");

    // Also when retention has removed it.
    let ids: Vec<LaunchId> = host.rows().await.iter().map(|row| row.id).collect();
    let mut tx = host.test.write().await;
    retention::remove(&mut tx, &ids, at(200)).await.unwrap();
    let (first, last) = (at(1).day(), at(61).day());
    let days = removed_launches::settled_days(&mut tx, schedule_id(1), first, last).await;
    assert_eq!(days.unwrap(), [first]);
}

async fn a_retry_follows_the_overlap_policy(test: TestDb) {
    let mut host = host_of(test, Overlap::Skip).await;
    host.decide_and_claim(at(60)).await;
    host.finish_first_run().await;
    host.decide_and_claim(at(120)).await;
    let rows = host.rows().await;
    let again = retry(&host.test, rows[0].id, at(121)).await.unwrap();
    assert_eq!(again.decision, OverlapDecision::Skip(rows[1].id));
    let skipped = row(&host.test, again.launch).await;
    assert_eq!(ending(&skipped), ("skipped", Some("overlap"), None));
}

async fn a_launch_that_has_not_ended_cannot_be_retried(test: TestDb) {
    let mut host = host_of(test, Overlap::BufferAll).await;
    host.decide_and_claim(at(60)).await;
    host.decide(at(120)).await;
    let rows = host.rows().await;
    for (row, part) in rows
        .iter()
        .zip(["has not ended: it is running", "it is queued"])
    {
        assert_refused(&host.test, retry(&host.test, row.id, at(121)), part).await;
    }
}

async fn a_range_of_slots_and_a_removed_schedule_cannot_be_retried(test: TestDb) {
    let TestHost {
        test,
        live_host: _live_host,
        ..
    } = host_of(test, Overlap::Allow).await;
    let range = launch::NewLaunch {
        last_scheduled_time: at(40),
        slot_count: 4,
        ..skipped(1, 10, "paused")
    };
    let single = skipped(1, 50, "overlap");
    let mut tx: Tx = test.write().await;
    launch::insert(&mut tx, &[range.clone(), single.clone()])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let request = retry(&test, range.id, at(60));
    assert_refused(
        &test,
        request,
        "4 skipped slots; `campanile schedule backfill",
    )
    .await;
    // One skipped slot can be launched.
    let again = retry(&test, single.id, at(60)).await.unwrap();
    assert_eq!(row(&test, again.launch).await.status, LaunchStatus::Open);

    let mut tx = test.write().await;
    assert!(
        schedules::remove(&mut tx, schedule_id(1), at(70))
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    let request = retry(&test, single.id, at(71));
    assert_refused(&test, request, "`schedule-1` of the launch").await;
    let never = LaunchId::of(
        schedule_id(1),
        launch(1, 99).scheduled_time,
        LaunchKind::Manual,
    );
    assert_refused(&test, retry(&test, never, at(71)), "there is no launch").await;
    let count = "SELECT CAST(count(*) AS TEXT) FROM launch";
    assert_eq!(test.value(count).await, "3");
}
