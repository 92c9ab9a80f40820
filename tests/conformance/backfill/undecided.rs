//! Backfills of slots that the schedule has not decided yet.

use super::*;

on_both!(
    a_due_slot_is_not_backfilled_before_it_is_decided,
    a_backfill_is_not_done_before_its_slots_are_decided,
);

/// Return a system with a due slot that no host has decided.
async fn system_with_undecided_slot(test: TestDb) -> System {
    let system = System::new(test, Overlap::Allow).await;
    system.clock.advance_to(at(70));
    system
}

/// Return the kind and status of all launches of the slot `at(60)`.
async fn launches_of_the_slot(system: &System) -> Vec<(LaunchKind, LaunchStatus)> {
    let mut tx = system.test.read().await;
    let mut rows = launch::list(&mut tx, None, 100).await.unwrap();
    rows.retain(|row| row.scheduled_time == at(60));
    rows.iter().map(|row| (row.kind, row.status)).collect()
}

async fn a_due_slot_is_not_backfilled_before_it_is_decided(test: TestDb) {
    let system = system_with_undecided_slot(test).await;
    let request = BackfillRequest {
        from: ago(2),
        to: at(60),
        ..request(1, 0, 0)
    };
    assert_eq!(system.begin(&request).await.survey.slots, 4);
    for _ in 0..2 {
        system
            .engine()
            .run_backfills(system.clock.now())
            .await
            .unwrap();
        let (backfill, _) = system.backfill_and_totals(id(1)).await;
        let counts = (backfill.launched, backfill.slots_skipped);
        assert_eq!((backfill.status, counts), (BackfillStatus::Running, (3, 0)));
    }
    assert_eq!(launches_of_the_slot(&system).await, []);

    system.tick_until_finished(id(1), 10).await;
    let (backfill, totals) = system.backfill_and_totals(id(1)).await;
    let counts = (backfill.launched, backfill.slots_skipped);
    assert_eq!((backfill.status, counts), (BackfillStatus::Done, (3, 1)));
    assert_eq!(totals.succeeded, 3);
    let own = (LaunchKind::Schedule, LaunchStatus::Succeeded);
    assert_eq!(launches_of_the_slot(&system).await, [own]);
}

async fn a_backfill_is_not_done_before_its_slots_are_decided(test: TestDb) {
    let system = system_with_undecided_slot(test).await;
    let request = BackfillRequest {
        from: at(60),
        to: at(60),
        ..request(1, 0, 0)
    };
    system.begin(&request).await;
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
    system.tick_until_finished(id(1), 10).await;
    let (backfill, _) = system.backfill_and_totals(id(1)).await;
    assert_eq!((backfill.launched, backfill.slots_skipped), (1, 0));
}
