//! Since when a schedule fails, how often in a row, and when it succeeded last: what the first page groups by cause.

use campanile_control::reports::overview::{Overview, TroubleKind};
use campanile_model::ids::ScheduleId;
use campanile_store::launch::{self, RecoveryAction, RecoveryDecision};
use campanile_store::troubles::{self, Streak};
use campanile_store::{Tx, probe, schedules};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{at, host_with_schedules, insert_and_claim, launch, schedule_id};

on_both!(
    a_streak_begins_with_the_first_failure_and_ends_with_a_success,
    a_late_end_of_an_older_slot_changes_no_streak,
    a_lost_launch_counts_and_a_cancelled_one_does_not,
    failures_of_one_cause_are_one_trouble,
);

async fn streak(tx: &mut Tx, schedule: u128) -> Option<Streak> {
    let found = troubles::streaks(tx, &[schedule_id(schedule)]).await;
    found.unwrap().pop()
}

/// Returns when the schedule began to fail, the failures since then, and its last success, in seconds.
async fn seconds(tx: &mut Tx, schedule: u128) -> (Option<i64>, i64, Option<i64>) {
    let found = streak(tx, schedule).await.unwrap();
    let seconds = |at: Option<campanile_model::clock::Timestamp>| {
        at.map(|time| (time.micros() - at_zero()) / 1_000_000)
    };
    (
        seconds(found.failing_since),
        found.streak,
        seconds(found.last_success_at),
    )
}

fn at_zero() -> i64 {
    at(0).micros()
}

async fn a_streak_begins_with_the_first_failure_and_ends_with_a_success(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    assert_eq!(streak(&mut tx, 1).await, None);
    for (slot, fails, expected) in [
        (10, true, (Some(11), 1, None)),
        (20, true, (Some(11), 2, None)),
        (30, false, (None, 0, Some(31))),
        (40, false, (None, 0, Some(41))),
        (50, true, (Some(51), 1, Some(41))),
        (60, true, (Some(51), 2, Some(41))),
        (70, true, (Some(51), 3, Some(41))),
    ] {
        let run = insert_and_claim(&mut tx, host, &[launch(1, slot)], at(slot)).await[0];
        let end = if fails {
            run.failed("no answer", at(slot + 1))
        } else {
            run.succeeded("1", at(slot + 1))
        };
        launch::finish(&mut tx, &[end]).await.unwrap();
        assert_eq!(seconds(&mut tx, 1).await, expected, "slot {slot}");
    }
}

async fn a_late_end_of_an_older_slot_changes_no_streak(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let slots = [10, 20, 30, 40].map(|slot| launch(1, slot));
    let runs = insert_and_claim(&mut tx, host, &slots, at(50)).await;
    let finish = async |tx: &mut Tx, end| {
        launch::finish(tx, &[end]).await.unwrap();
        seconds(tx, 1).await
    };
    let expected = (None, 0, Some(60));
    assert_eq!(
        finish(&mut tx, runs[2].succeeded("1", at(60))).await,
        expected
    );
    assert_eq!(
        finish(&mut tx, runs[0].failed("late", at(61))).await,
        expected
    );
    let expected = (Some(62), 1, Some(60));
    assert_eq!(
        finish(&mut tx, runs[3].failed("new", at(62))).await,
        expected
    );
    assert_eq!(
        finish(&mut tx, runs[1].succeeded("1", at(63))).await,
        expected
    );
}

async fn a_lost_launch_counts_and_a_cancelled_one_does_not(test: TestDb) {
    let host = host_with_schedules(&test, 2).await;
    let mut tx = test.write().await;
    for (schedule, action, expected) in [
        (1, RecoveryAction::Abandon("recovery_age"), Some(1)),
        (2, RecoveryAction::Cancel, None),
    ] {
        let run = insert_and_claim(&mut tx, host, &[launch(schedule, 10)], at(10)).await[0];
        let decision = RecoveryDecision {
            launch_id: run.launch_id(),
            action,
            not_before: None,
        };
        launch::recover(&mut tx, host, &[decision], "its host died", at(50))
            .await
            .unwrap();
        let found = streak(&mut tx, schedule).await;
        assert_eq!(found.map(|found| found.streak), expected);
    }
}

async fn failures_of_one_cause_are_one_trouble(test: TestDb) {
    let host = host_with_schedules(&test, 4).await;
    let mut tx = test.write().await;
    for (schedule, messages) in [
        (1, ["no answer within 3 s", "no answer within 30 s"]),
        (2, ["disk full", "no answer within 5 s"]),
        (3, ["disk full", "disk full"]),
    ] {
        for (slot, message) in [10, 20].into_iter().zip(messages) {
            let run = insert_and_claim(&mut tx, host, &[launch(schedule, slot)], at(slot)).await[0];
            let end = run.failed(message, at(slot + 1));
            launch::finish(&mut tx, &[end]).await.unwrap();
        }
    }
    let run = insert_and_claim(&mut tx, host, &[launch(4, 10)], at(10)).await[0];
    launch::finish(&mut tx, &[run.failed("once", at(11))])
        .await
        .unwrap();
    let shown = async |tx: &mut Tx| {
        let overview = Overview::read(tx, at(0)).await.unwrap();
        let troubles = overview.troubles.into_iter();
        let ids = |schedules: Vec<(ScheduleId, String)>| {
            Vec::from_iter(schedules.into_iter().map(|(id, _)| id))
        };
        Vec::from_iter(
            troubles.map(|trouble| (trouble.kind, ids(trouble.schedules), trouble.streak)),
        )
    };
    let never = TroubleKind::NeverSucceeded;
    let expected = vec![
        (never, vec![schedule_id(1), schedule_id(2)], 4),
        (never, vec![schedule_id(3)], 2),
        (TroubleKind::FailedOnce, vec![schedule_id(4)], 1),
    ];
    assert_eq!(shown(&mut tx).await, expected);
    let attention = troubles::attention(&mut tx, 100).await.unwrap();
    assert_eq!(
        (attention.failing, attention.pending, attention.firing),
        (3, 0, 0)
    );
    assert_eq!(troubles::attention(&mut tx, 2).await.unwrap().failing, 2);
    // A paused or removed schedule is no trouble.
    let name = schedules::name(&mut tx, schedule_id(3))
        .await
        .unwrap()
        .unwrap();
    let removed = schedules::remove(&mut tx, schedule_id(3), at(90))
        .await
        .unwrap();
    assert!(removed, "{name}");
    assert_eq!(
        shown(&mut tx).await,
        [expected[0].clone(), expected[2].clone()]
    );
    assert_eq!(troubles::attention(&mut tx, 100).await.unwrap().failing, 2);
    // The database refuses a streak without a failure.
    let wrong = "UPDATE schedule_result SET failing_since = NULL";
    assert!(probe::execute(&mut tx, wrong).await.is_err());
}
