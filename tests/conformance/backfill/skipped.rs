//! Backfills of slots that an operator skipped.

use campanile_control::admin::schedule_admin::Skip;
use campanile_control::reports::why::{FindingKind, When, why};

use super::*;

on_both!(
    slots_skipped_by_an_operator_are_not_backfilled_unless_forced,
    a_skipped_slot_within_a_pause_keeps_its_reason,
    a_skipped_slot_that_no_host_has_decided_is_not_backfilled,
);

async fn skip(system: &System, slot: Timestamp) {
    let skip = Skip {
        slot,
        by: "ada",
        undo: false,
    };
    let mut tx = system.test.write().await;
    schedule_admin::skip(&mut tx, "report", skip, system.clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

fn request_of(number: u128, from: u64, to: u64, forced: bool) -> BackfillRequest<'static> {
    BackfillRequest {
        from: at(from),
        to: at(to),
        forced,
        ..request(number, 0, 0)
    }
}

/// Return the slots that backfills launched.
async fn backfilled_slots(system: &System) -> Vec<Timestamp> {
    slots(&system.rows().await)
}

/// Return the kinds of all findings about `slot`.
async fn findings(system: &System, slot: Timestamp) -> Vec<FindingKind> {
    let mut tx = system.test.read().await;
    let when = slot.to_string().parse::<When>().expect("a moment");
    let answer = why(&mut tx, "report", Some(when), system.clock.now())
        .await
        .unwrap();
    answer.findings.iter().map(|finding| finding.kind).collect()
}

/// Run a backfill and require that its preview and its result skip `slots_skipped` of `slots` slots.
async fn run_backfill(
    system: &System,
    request: &BackfillRequest<'_>,
    slots: u64,
    slots_skipped: u64,
) {
    let preview = system.begin(request).await;
    assert_eq!(
        (preview.survey.slots, preview.survey.slots_skipped),
        (slots, slots_skipped)
    );
    system.tick_until_finished(request.id, 20).await;
    let (backfill, _) = system.backfill_and_totals(request.id).await;
    let counts = (backfill.launched as u64, backfill.slots_skipped as u64);
    assert_eq!(counts, (slots - slots_skipped, slots_skipped));
}

async fn slots_skipped_by_an_operator_are_not_backfilled_unless_forced(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    // Two skipped slots that follow each other are one row.
    for slot in [at(60), at(120), at(240)] {
        skip(&system, slot).await;
    }
    for minute in 1..=5 {
        system.clock.advance_to(at(60 * minute));
        system.tick().await;
    }
    assert!(
        findings(&system, at(120))
            .await
            .contains(&FindingKind::SlotSkipped)
    );
    // The slots 180 and 300 have succeeded.
    run_backfill(&system, &request_of(1, 60, 300, false), 5, 5).await;
    // A backfill that begins inside of the skipped range.
    run_backfill(&system, &request_of(2, 120, 240, false), 3, 3).await;
    assert_eq!(backfilled_slots(&system).await, []);
    assert!(
        !findings(&system, at(120))
            .await
            .contains(&FindingKind::Requested)
    );

    run_backfill(&system, &request_of(3, 60, 240, true), 4, 0).await;
    assert_eq!(
        backfilled_slots(&system).await,
        [at(60), at(120), at(180), at(240)]
    );
    let findings_of_120 = findings(&system, at(120)).await;
    for kind in [FindingKind::SlotSkipped, FindingKind::Requested] {
        assert!(findings_of_120.contains(&kind), "{findings_of_120:?}");
    }
}

async fn a_skipped_slot_within_a_pause_keeps_its_reason(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    skip(&system, at(120)).await;
    system.pause().await;
    system.clock.advance_to(at(200));
    let mut tx = system.test.write().await;
    schedule_admin::resume(&mut tx, "report", "ada", false, system.clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let sql =
        "SELECT CAST(count(*) AS TEXT) FROM launch WHERE reason = 'paused' AND slot_count IS NULL";
    assert_eq!(system.test.value(sql).await, "2");
    assert!(
        findings(&system, at(120))
            .await
            .contains(&FindingKind::SlotSkipped)
    );
    assert!(
        findings(&system, at(180))
            .await
            .contains(&FindingKind::Paused)
    );
    // A later skip deletes the skips of decided slots.
    skip(&system, at(240)).await;
    run_backfill(&system, &request_of(1, 60, 180, false), 3, 1).await;
    assert_eq!(backfilled_slots(&system).await, [at(60), at(180)]);
}

async fn a_skipped_slot_that_no_host_has_decided_is_not_backfilled(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    skip(&system, at(120)).await;
    system.pause().await;
    system.clock.advance_to(at(200));
    run_backfill(&system, &request_of(1, 60, 180, false), 3, 1).await;
    assert_eq!(backfilled_slots(&system).await, [at(60), at(180)]);
}
