//! The last result and the last failure, which the next launch of a schedule gets.

use campanile_model::ids::{HostId, RunId};
use campanile_store::launches::{self, NewLaunch};
use campanile_store::recovery::{self, RecoveryAction, RecoveryDecision};
use campanile_store::{Tx, runs};
use campanile_tests::{TestDb, on_both};
use serde_json::{Value, json};

use crate::fixtures::{Held, at, begin, launch, schedule_id, small_setup};

on_both!(
    the_result_of_the_latest_slot_stands_in_whatever_order_runs_finish,
    an_abandoned_launch_is_a_failure_and_a_recovered_one_is_none,
    a_launch_abandoned_late_does_not_count_after_a_later_success,
);

/// Apply a recovery action to a launch.
async fn recover(
    tx: &mut Tx,
    host: HostId,
    held: &Held,
    run_id: Option<RunId>,
    action: RecoveryAction,
) {
    let verdict = RecoveryDecision {
        launch_id: held.launch_id,
        run_id,
        action,
    };
    recovery::apply(tx, host, &[verdict], "its host died", at(50))
        .await
        .unwrap();
}

/// Return the last failure that the launch of the slot `at(70)` gets.
async fn last_failure(tx: &mut Tx, host: HostId, schedule: u128) -> Option<Value> {
    launches::insert(tx, &[launch(schedule, 70)]).await.unwrap();
    let mut open = runs::claimable(tx, host, at(70), 100).await.unwrap();
    open.retain(|open| (open.schedule_id, open.scheduled_time) == (schedule_id(schedule), at(70)));
    let failure = open.remove(0).last_failure;
    failure.map(|json| serde_json::from_str(&json).unwrap())
}

async fn the_result_of_the_latest_slot_stands_in_whatever_order_runs_finish(test: TestDb) {
    // Each end by itself and all in one call, in every order; the schedule's number tells them apart.
    let orders = [
        [0, 1, 2, 3],
        [3, 2, 1, 0],
        [1, 3, 0, 2],
        [2, 0, 3, 1],
        [3, 0, 2, 1],
        [0, 2, 1, 3],
    ];
    let host = small_setup(&test, 24).await;
    // Slot by slot: succeeded, failed, succeeded, failed.
    let expected_both = (r#""third""#, Some("fourth"));
    let expected_cleared = (r#""third""#, None);
    let mut tx = test.write().await;
    for (number, order) in (1..).zip(orders) {
        for (shift, ends, in_one_call) in
            [(0, 4, false), (6, 3, false), (12, 4, true), (18, 3, true)]
        {
            let schedule = number + shift;
            let slots: Vec<NewLaunch> = (1..=4).map(|slot| launch(schedule, slot * 10)).collect();
            let held = begin(&mut tx, host, &slots, schedule * 10, at(50)).await;
            let finishes = [
                held[0].succeeded(r#""first""#, at(60)),
                held[1].failed("second", at(60)),
                held[2].succeeded(r#""third""#, at(60)),
                held[3].failed("fourth", at(60)),
            ];
            let chosen: Vec<_> = order
                .into_iter()
                .filter(|end| *end < ends)
                .map(|end| finishes[end].clone())
                .collect();
            if in_one_call {
                assert_eq!(runs::finish(&mut tx, &chosen).await.unwrap().len(), ends);
            } else {
                for finish in chosen {
                    assert_eq!(runs::finish(&mut tx, &[finish]).await.unwrap().len(), 1);
                }
            }
            // What the next launch gets.
            launches::insert(&mut tx, &[launch(schedule, 70)])
                .await
                .unwrap();
            let next = runs::claimable(&mut tx, host, at(70), 1)
                .await
                .unwrap()
                .remove(0);
            let failure = next
                .last_failure
                .map(|json| serde_json::from_str::<serde_json::Value>(&json).unwrap());
            let told = (
                next.last_result.as_deref().unwrap(),
                failure
                    .as_ref()
                    .map(|failure| failure["message"].as_str().unwrap()),
            );
            let expected = if ends == 4 {
                expected_both
            } else {
                expected_cleared
            };
            assert_eq!(
                told, expected,
                "{order:?}, {ends} ends, in one call: {in_one_call}"
            );
            if let Some(failure) = failure {
                assert_eq!(failure["kind"], "failed");
                assert_eq!(failure["scheduled_time"], at(40).to_string());
            }
            begin(&mut tx, host, &[], schedule * 10 + 5, at(70)).await;
        }
    }
}

async fn an_abandoned_launch_is_a_failure_and_a_recovered_one_is_none(test: TestDb) {
    let host = small_setup(&test, 5).await;
    let mut tx = test.write().await;
    let lost = json!({
        "kind": "lost",
        "message": "its host died",
        "scheduled_time": at(10),
    });
    for (schedule, was_taken, fate, told) in [
        (1, true, RecoveryAction::MarkUnknown, Some(&lost)),
        (
            2,
            true,
            RecoveryAction::Abandon("recovery_age"),
            Some(&lost),
        ),
        (
            3,
            false,
            RecoveryAction::Abandon("recovery_age"),
            Some(&lost),
        ),
        // It was asked to end, and ended.
        (4, true, RecoveryAction::Cancel, None),
        (5, true, RecoveryAction::RunAgain, None),
    ] {
        let held = begin(&mut tx, host, &[launch(schedule, 10)], schedule, at(10)).await[0];
        let mut run = Some(held.run_id);
        if !was_taken {
            // It was reopened, and no host claimed it.
            recover(&mut tx, host, &held, run, RecoveryAction::RunAgain).await;
            run = None;
        }
        recover(&mut tx, host, &held, run, fate).await;
        let failure = last_failure(&mut tx, host, schedule).await;
        assert_eq!(failure.as_ref(), told, "{fate:?}");
        begin(&mut tx, host, &[], 100 * schedule, at(70)).await;
    }
}

async fn a_launch_abandoned_late_does_not_count_after_a_later_success(test: TestDb) {
    let host = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    let slots = [launch(1, 10), launch(1, 20)];
    let held = begin(&mut tx, host, &slots, 1, at(20)).await;
    runs::finish(&mut tx, &[held[1].succeeded("1", at(30))])
        .await
        .unwrap();
    recover(
        &mut tx,
        host,
        &held[0],
        Some(held[0].run_id),
        RecoveryAction::MarkUnknown,
    )
    .await;
    assert_eq!(last_failure(&mut tx, host, 1).await, None);
}
