//! The pause of a launch after a recovery.

use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{ArtifactDigest, LaunchKind};
use campanile_store::launch::{self, NewLaunch, RecoveryAction, RecoveryDecision};
use campanile_store::{LaunchStatus, hosts};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{
    add_host, add_schedule, at, claim_all, host_with_schedules, insert_and_claim, launch,
};
use crate::serving::{self, NOOP, settings};

on_both!(
    a_launch_that_pauses_after_a_recovery_is_not_claimed_before,
    a_crash_loop_loses_no_third_run_and_abandons_nothing,
    a_launch_without_a_run_keeps_its_pause,
    lost_runs_age,
    openings_without_a_run_leave_numbers_for_runs,
);

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
    launch::recover(&mut tx, host, &paused, "gone", at(100))
        .await
        .unwrap();
    for (now, expected) in [(at(109), 0), (at(110), 1)] {
        let open = launch::claimable(&mut tx, host, now, 9).await.unwrap();
        assert_eq!(open.len(), expected);
        let packages = launch::waiting_packages(&mut tx, now).await.unwrap();
        assert_eq!(packages.len(), expected);
        let groups = launch::waiting_groups(&mut tx, now).await.unwrap();
        assert_eq!(groups.len(), expected);
        for class in &groups {
            let open = launch::open_of_group(&mut tx, host, now, 9, class).await;
            assert_eq!(open.unwrap().len(), 1);
        }
    }
    // Another loss finds the earlier one.
    claim_all(&mut tx, host, at(110)).await;
    let lost = launch::orphaned_runs(&mut tx, at(200), at(0), 9)
        .await
        .unwrap();
    assert_eq!(
        (lost.len(), lost[0].life.recoveries, lost[0].life.lost_runs),
        (1, 1, 1)
    );
}

/// A host dying within a second of each start loses two runs of a launch but never a third, as it doesn't live through the pause.
async fn a_crash_loop_loses_no_third_run_and_abandons_nothing(test: TestDb) {
    const LIVES: u64 = 25;
    const LAUNCHES: usize = 6;
    let clock = Clock::simulated(at(10));
    let live = async |now: Timestamp| {
        clock.advance_to(now);
        // The previous process died without a word, so its lock is free. One permit is kept for on-time launches.
        serving::start(&test, &clock, settings(LAUNCHES + 1), NOOP).await
    };
    let (engine, lock) = live(at(10)).await;
    let mut tx = test.write().await;
    let slots = (1..=LAUNCHES as u128).map(|number| NewLaunch {
        package: NOOP.0.to_owned(),
        digest: Some(ArtifactDigest::of(NOOP.1)),
        kind: LaunchKind::Manual,
        ..launch(number, 10)
    });
    for number in 1..=LAUNCHES as u128 {
        add_schedule(&mut tx, number, 10_000).await;
    }
    let decided_by = hosts::live(&mut tx).await.unwrap().remove(0).id;
    let slots: Vec<NewLaunch> = slots
        .map(|launch| NewLaunch {
            decided_by: Some(decided_by),
            ..launch
        })
        .collect();
    launch::insert(&mut tx, &slots).await.unwrap();
    tx.commit().await.unwrap();
    let mut now = at(10);
    let mut claimed = engine.claim(now).await.unwrap().len();
    drop((engine, lock));
    for _ in 1..LIVES {
        now = now.plus(Duration::from_millis(900));
        let (engine, lock) = live(now).await;
        engine.recover(now).await.unwrap();
        claimed += engine.claim(now).await.unwrap().len();
        drop((engine, lock));
    }
    let rows = launch::list(&mut test.read().await, None, 100).await;
    for row in rows.unwrap() {
        assert_eq!(row.status, LaunchStatus::Open, "{row:#?}");
    }
    assert_eq!(claimed, 2 * LAUNCHES);

    // A host staying alive runs each of them once its pause is over.
    now = now.plus(Duration::from_millis(900));
    let (engine, _lock) = live(now).await;
    engine.recover(now).await.unwrap();
    clock.advance_to(now.plus(Duration::from_millis(4_999)));
    engine.renew(clock.now()).await.unwrap();
    assert!(engine.claim(clock.now()).await.unwrap().is_empty());
    clock.advance_to(now.plus(Duration::from_secs(5)));
    let paused = engine.tick(clock.now()).await.unwrap();
    assert_eq!(paused.finished, LAUNCHES);
}

/// A launch keeps its pause, whatever reopens it before a host claims it.
async fn a_launch_without_a_run_keeps_its_pause(test: TestDb) {
    let host_1 = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let host_2 = add_host(&mut tx, 2, at(0)).await;
    let claimed = insert_and_claim(&mut tx, host_1, &[launch(1, 10)], at(10)).await[0];
    let again = |not_before| {
        [RecoveryDecision {
            launch_id: claimed.launch_id(),
            action: RecoveryAction::RunAgain,
            not_before,
        }]
    };
    launch::recover(&mut tx, host_1, &again(Some(at(160))), "gone", at(100))
        .await
        .unwrap();
    // Its host stops or dies, or nobody claims it, so a host of another name reopens it.
    launch::recover(&mut tx, host_2, &again(None), "gone", at(110))
        .await
        .unwrap();
    for (now, expected) in [(at(159), 0), (at(160), 1)] {
        let open = launch::claimable(&mut tx, host_2, now, 9).await.unwrap();
        assert_eq!(open.len(), expected);
    }
    let lost = launch::orphaned_launches(&mut tx, host_2, at(111), 9).await;
    assert_eq!(
        lost.unwrap()
            .first()
            .map(|lost| (lost.life.lost_runs, lost.not_before)),
        Some((1, Some(at(160))))
    );
    // Claiming it ends the pause.
    claim_all(&mut tx, host_2, at(160)).await;
    launch::recover(&mut tx, host_2, &again(None), "gone", at(170))
        .await
        .unwrap();
    assert_eq!(claim_all(&mut tx, host_2, at(170)).await.len(), 1);
}

/// The limit counts lost runs in a row: losing one long after its start resets the count.
async fn lost_runs_age(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[launch(1, 10)]).await.unwrap();
    let mut now = 10;
    for (lived, counted) in [(30, 1), (599, 2), (31, 3), (600, 0), (7_200, 0), (40, 1)] {
        let claimed = claim_all(&mut tx, host, at(now)).await[0];
        now += lived;
        let lost = launch::orphaned_runs(&mut tx, at(now), at(0), 9).await;
        assert_eq!(lost.unwrap()[0].lost_runs_at(at(now)), counted);
        let again = RecoveryDecision {
            launch_id: claimed.launch_id(),
            action: RecoveryAction::RunAgain,
            not_before: None,
        };
        launch::recover(&mut tx, host, &[again], "gone", at(now))
            .await
            .unwrap();
    }
    claim_all(&mut tx, host, at(now)).await;
    let lost = launch::orphaned_runs(&mut tx, at(now + 30), at(0), 9).await;
    let lost = lost.unwrap().remove(0);
    assert_eq!((lost.life.lost_runs, lost.life.recoveries), (1, 6));
}

/// A launch reopened very often without a run saves numbers for its runs.
async fn openings_without_a_run_leave_numbers_for_runs(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[launch(1, 10)]).await.unwrap();
    let again = [RecoveryDecision {
        launch_id: launch(1, 10).id,
        action: RecoveryAction::RunAgain,
        not_before: None,
    }];
    for _ in 0..300 {
        launch::recover(&mut tx, host, &again, "gone", at(20))
            .await
            .unwrap();
    }
    let claimed = claim_all(&mut tx, host, at(20)).await[0];
    assert_eq!(claimed.run_id.number(), 101);
}
