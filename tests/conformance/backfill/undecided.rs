//! Backfills of slots that the schedule has yet to decide.

use super::*;

on_both!(
    a_slot_that_is_due_is_the_schedules_own_until_it_is_decided,
    a_backfill_is_not_done_before_its_slots_are_decided,
);

/// Slots that have come, and nobody has decided any of them.
async fn behind(test: TestDb) -> Tower {
    let tower = Tower::new(test, Overlap::Allow).await;
    tower.clock.advance_to(at(70));
    tower
}

/// All launches of the slot `at(60)`.
async fn of_the_slot(tower: &Tower) -> Vec<(LaunchKind, LaunchStatus)> {
    let mut tx = tower.test.read().await;
    let mut rows = launches::list(&mut tx, None, 100).await.unwrap();
    rows.retain(|row| row.scheduled_time == at(60));
    rows.iter().map(|row| (row.kind, row.status)).collect()
}

async fn a_slot_that_is_due_is_the_schedules_own_until_it_is_decided(test: TestDb) {
    let tower = behind(test).await;
    let asked = BackfillRequest {
        from: ago(2),
        to: at(60),
        ..asked(1, 0, 0)
    };
    assert_eq!(tower.begin(&asked).await.slots, 4);
    for _ in 0..2 {
        tower
            .engine()
            .run_backfills(tower.clock.now())
            .await
            .unwrap();
        let (backfill, _) = tower.seen(id(1)).await;
        let counts = (backfill.launched, backfill.slots_skipped);
        assert_eq!((backfill.status, counts), (BackfillStatus::Running, (3, 0)));
    }
    assert_eq!(of_the_slot(&tower).await, []);

    tower.until_over(id(1), 10).await;
    let (backfill, ends) = tower.seen(id(1)).await;
    let counts = (backfill.launched, backfill.slots_skipped);
    assert_eq!((backfill.status, counts), (BackfillStatus::Done, (3, 1)));
    assert_eq!(ends.succeeded, 3);
    let own = (LaunchKind::Schedule, LaunchStatus::Succeeded);
    assert_eq!(of_the_slot(&tower).await, [own]);
}

async fn a_backfill_is_not_done_before_its_slots_are_decided(test: TestDb) {
    let tower = behind(test).await;
    let asked = BackfillRequest {
        from: at(60),
        to: at(60),
        ..asked(1, 0, 0)
    };
    tower.begin(&asked).await;
    let step = tower
        .engine()
        .run_backfills(tower.clock.now())
        .await
        .unwrap();
    assert!(
        step.is_running && !step.has_more && step.launched == 0,
        "{step:?}"
    );
    assert_eq!(tower.status(id(1)).await, BackfillStatus::Running);
    // It says whose the slot is by filling nothing back; a schedule that is paused does not decide it any more.
    tower.pause().await;
    tower.until_over(id(1), 10).await;
    let (backfill, _) = tower.seen(id(1)).await;
    assert_eq!((backfill.launched, backfill.slots_skipped), (1, 0));
}
