//! The last result and the last failure that the next launch of a schedule gets.

use campanile_model::ids::HostId;
use campanile_store::Tx;
use campanile_store::launch::{self, NewLaunch, RecoveryAction, RecoveryDecision};
use campanile_tests::{TestDb, on_both};
use serde_json::{Value, json};

use crate::fixtures::{ClaimedRun, at, host_with_schedules, insert_and_claim, launch, schedule_id};

on_both!(
    the_last_result_is_of_the_latest_slot_in_any_order_of_finishes,
    an_abandoned_launch_is_a_failure_and_a_recovered_launch_is_not,
    a_launch_abandoned_late_does_not_count_after_a_later_success,
);

/// Apply a recovery action to a launch.
async fn recover(tx: &mut Tx, host: HostId, run: &ClaimedRun, action: RecoveryAction) {
    let decision = RecoveryDecision {
        launch_id: run.launch_id(),
        action,
        not_before: None,
    };
    launch::recover(tx, host, &[decision], "its host died", at(50))
        .await
        .unwrap();
}

/// Return the last failure that the launch of the slot `at(70)` gets.
async fn last_failure(tx: &mut Tx, host: HostId, schedule: u128) -> Option<Value> {
    launch::insert(tx, &[launch(schedule, 70)]).await.unwrap();
    let mut open = launch::claimable(tx, host, at(70), 100).await.unwrap();
    open.retain(|open| (open.schedule_id, open.scheduled_time) == (schedule_id(schedule), at(70)));
    let failure = open.remove(0).last_failure;
    failure.map(|json| serde_json::from_str(&json).unwrap())
}

async fn the_last_result_is_of_the_latest_slot_in_any_order_of_finishes(test: TestDb) {
    // Finish the runs in several orders, one by one and all in one call. Each case has a schedule of its own.
    let orders = [
        [0, 1, 2, 3],
        [3, 2, 1, 0],
        [1, 3, 0, 2],
        [2, 0, 3, 1],
        [3, 0, 2, 1],
        [0, 2, 1, 3],
    ];
    let host = host_with_schedules(&test, 24).await;
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
            let runs = insert_and_claim(&mut tx, host, &slots, at(50)).await;
            let finishes = [
                runs[0].succeeded(r#""first""#, at(60)),
                runs[1].failed("second", at(60)),
                runs[2].succeeded(r#""third""#, at(60)),
                runs[3].failed("fourth", at(60)),
            ];
            let chosen: Vec<_> = order
                .into_iter()
                .filter(|end| *end < ends)
                .map(|end| finishes[end].clone())
                .collect();
            if in_one_call {
                assert_eq!(launch::finish(&mut tx, &chosen).await.unwrap().len(), ends);
            } else {
                for finish in chosen {
                    assert_eq!(launch::finish(&mut tx, &[finish]).await.unwrap().len(), 1);
                }
            }
            // Claim the next launch, which gets the last result and the last failure.
            launch::insert(&mut tx, &[launch(schedule, 70)])
                .await
                .unwrap();
            let next = launch::claimable(&mut tx, host, at(70), 1)
                .await
                .unwrap()
                .remove(0);
            let failure = next
                .last_failure
                .map(|json| serde_json::from_str::<serde_json::Value>(&json).unwrap());
            let found = (
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
                found, expected,
                "{order:?}, {ends} ends, in one call: {in_one_call}"
            );
            if let Some(failure) = failure {
                assert_eq!(failure["kind"], "failed");
                assert_eq!(failure["scheduled_time"], at(40).to_string());
            }
            insert_and_claim(&mut tx, host, &[], at(70)).await;
        }
    }
}

async fn an_abandoned_launch_is_a_failure_and_a_recovered_launch_is_not(test: TestDb) {
    let host = host_with_schedules(&test, 5).await;
    let mut tx = test.write().await;
    let lost = json!({
        "kind": "lost",
        "message": "its host died",
        "scheduled_time": at(10),
    });
    for (schedule, is_claimed, action, expected) in [
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
        // A cancelled launch is no failure.
        (4, true, RecoveryAction::Cancel, None),
        (5, true, RecoveryAction::RunAgain, None),
    ] {
        let claimed = insert_and_claim(&mut tx, host, &[launch(schedule, 10)], at(10)).await[0];
        if !is_claimed {
            // The launch is opened again, and no host claims it.
            recover(&mut tx, host, &claimed, RecoveryAction::RunAgain).await;
        }
        recover(&mut tx, host, &claimed, action).await;
        let failure = last_failure(&mut tx, host, schedule).await;
        assert_eq!(failure.as_ref(), expected, "{action:?}");
        insert_and_claim(&mut tx, host, &[], at(70)).await;
    }
}

async fn a_launch_abandoned_late_does_not_count_after_a_later_success(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let slots = [launch(1, 10), launch(1, 20)];
    let runs = insert_and_claim(&mut tx, host, &slots, at(20)).await;
    launch::finish(&mut tx, &[runs[1].succeeded("1", at(30))])
        .await
        .unwrap();
    recover(&mut tx, host, &runs[0], RecoveryAction::MarkUnknown).await;
    assert_eq!(last_failure(&mut tx, host, 1).await, None);
}
