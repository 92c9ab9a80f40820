//! Backfills of slots that the schedule has yet to decide.

use super::*;

on_both!(
    a_slot_that_is_due_is_the_schedules_own_until_it_is_decided,
    a_backfill_is_not_done_before_its_slots_are_decided,
);

/// Slots that have come while no host decided them.
async fn behind(test: TestDb) -> System {
    let system = System::new(test, Overlap::Allow).await;
    system.clock.advance_to(at(70));
    system
}

/// All launches of the slot `at(60)`.
async fn of_the_slot(system: &System) -> Vec<(LaunchKind, LaunchStatus)> {
    let mut tx = system.test.read().await;
    let mut rows = launches::list(&mut tx, None, 100).await.unwrap();
    rows.retain(|row| row.scheduled_time == at(60));
    rows.iter().map(|row| (row.kind, row.status)).collect()
}

async fn a_slot_that_is_due_is_the_schedules_own_until_it_is_decided(test: TestDb) {
    let system = behind(test).await;
    let asked = BackfillRequest {
        from: ago(2),
        to: at(60),
        ..asked(1, 0, 0)
    };
    assert_eq!(system.begin(&asked).await.slots, 4);
    for _ in 0..2 {
        system
            .engine()
            .run_backfills(system.clock.now())
            .await
            .unwrap();
        let (backfill, _) = system.seen(id(1)).await;
        let counts = (backfill.launched, backfill.slots_skipped);
        assert_eq!((backfill.status, counts), (BackfillStatus::Running, (3, 0)));
    }
    assert_eq!(of_the_slot(&system).await, []);

    system.until_over(id(1), 10).await;
    let (backfill, ends) = system.seen(id(1)).await;
    let counts = (backfill.launched, backfill.slots_skipped);
    assert_eq!((backfill.status, counts), (BackfillStatus::Done, (3, 1)));
    assert_eq!(ends.succeeded, 3);
    let own = (LaunchKind::Schedule, LaunchStatus::Succeeded);
    assert_eq!(of_the_slot(&system).await, [own]);
}

async fn a_backfill_is_not_done_before_its_slots_are_decided(test: TestDb) {
    let system = behind(test).await;
    let asked = BackfillRequest {
        from: at(60),
        to: at(60),
        ..asked(1, 0, 0)
    };
    system.begin(&asked).await;
    let step = system
        .engine()
        .run_backfills(system.clock.now())
        .await
        .unwrap();
    assert!(
        step.is_running && !step.has_more && step.launched == 0,
        "{step:?}"
    );
    assert_eq!(system.status(id(1)).await, BackfillStatus::Running);
    // The backfill leaves the slot to the schedule. A paused schedule does not decide it any more.
    system.pause().await;
    system.until_over(id(1), 10).await;
    let (backfill, _) = system.seen(id(1)).await;
    assert_eq!((backfill.launched, backfill.slots_skipped), (1, 0));
}
