//! The pause of a launch after a recovery.

use campanile_store::claims;
use campanile_store::launches::NewLaunch;
use campanile_store::recovery::{self, RecoveryAction, RecoveryDecision};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{at, claim_all, host_with_schedules, insert_and_claim, launch};

on_both!(a_launch_that_pauses_after_a_recovery_is_not_claimed_before);

async fn a_launch_that_pauses_after_a_recovery_is_not_claimed_before(test: TestDb) {
    let host = host_with_schedules(&test, 2).await;
    let mut tx = test.write().await;
    let grouped = NewLaunch {
        group_name: Some("g".to_owned()),
        ..launch(2, 11)
    };
    let both = [launch(1, 10), grouped];
    // The fixture claims launches of no group.
    let claimed = insert_and_claim(&mut tx, host, &both, at(11)).await;
    assert_eq!(claimed.len(), 1);
    let paused = both.map(|launch| RecoveryDecision {
        launch_id: launch.id,
        action: RecoveryAction::RunAgain,
        not_before: Some(at(110)),
    });
    recovery::apply(&mut tx, host, &paused, "gone", at(100))
        .await
        .unwrap();
    for (now, expected) in [(at(109), 0), (at(110), 1)] {
        let open = claims::claimable(&mut tx, host, now, 9).await.unwrap();
        assert_eq!(open.len(), expected);
        let packages = claims::waiting_packages(&mut tx, now).await.unwrap();
        assert_eq!(packages.len(), expected);
        let groups = claims::waiting_groups(&mut tx, now).await.unwrap();
        assert_eq!(groups.len(), expected);
        for class in &groups {
            let open = claims::open_of_group(&mut tx, host, now, 9, class).await;
            assert_eq!(open.unwrap().len(), 1);
        }
    }
    // Another loss finds the earlier one.
    claim_all(&mut tx, host, at(110)).await;
    let lost = recovery::orphaned_runs(&mut tx, at(200), at(0), 9)
        .await
        .unwrap();
    assert_eq!(
        (lost.len(), lost[0].recoveries, lost[0].lost_runs),
        (1, 1, 1)
    );
}
