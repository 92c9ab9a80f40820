//! Backfills of slots that a person skipped.

use campanile_engine::schedule_admin::Skip;
use campanile_engine::why::{FindingKind, When, why};

use super::*;

on_both!(
    a_slot_that_a_person_skipped_is_left_alone_unless_forced,
    a_skipped_slot_keeps_its_reason_when_a_pause_or_an_edit_drops_it,
    a_skipped_slot_that_no_host_has_decided_is_left_alone,
);

async fn skip(system: &System, slot: Timestamp) {
    let skip = Skip {
        slot,
        by: "ada",
        undo: false,
    };
    let mut tx = system.test.write().await;
    schedule_admin::skip(&mut tx, "bell", skip, system.clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

fn asked_for(number: u128, from: u64, to: u64, forced: bool) -> BackfillRequest<'static> {
    BackfillRequest {
        from: at(from),
        to: at(to),
        forced,
        ..asked(number, 0, 0)
    }
}

/// The slots that backfills launched.
async fn filled(system: &System) -> Vec<Timestamp> {
    slots(&system.rows().await)
}

/// The kinds of all findings about `slot`.
async fn findings(system: &System, slot: Timestamp) -> Vec<FindingKind> {
    let mut tx = system.test.read().await;
    let when = Some(When::Instant(slot));
    let answer = why(&mut tx, "bell", when, system.clock.now())
        .await
        .unwrap();
    answer.findings.iter().map(|finding| finding.kind).collect()
}

/// The preview counts the slots that are skipped, and the backfill skips as many.
async fn left_alone(system: &System, asked: &BackfillRequest<'_>, of: u64, left_alone: u64) {
    let preview = system.begin(asked).await;
    assert_eq!((preview.slots, preview.slots_skipped), (of, left_alone));
    system.until_over(asked.id, 20).await;
    let (backfill, _) = system.seen(asked.id).await;
    let counts = (backfill.launched as u64, backfill.slots_skipped as u64);
    assert_eq!(counts, (of - left_alone, left_alone));
}

async fn a_slot_that_a_person_skipped_is_left_alone_unless_forced(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    // Two that follow each other are one row.
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
            .contains(&FindingKind::TakenOut)
    );
    // Those at 180 and 300 have succeeded.
    left_alone(&system, &asked_for(1, 60, 300, false), 5, 5).await;
    // A backfill that begins inside of the skipped range.
    left_alone(&system, &asked_for(2, 120, 240, false), 3, 3).await;
    assert_eq!(filled(&system).await, []);
    assert!(
        !findings(&system, at(120))
            .await
            .contains(&FindingKind::Asked)
    );

    left_alone(&system, &asked_for(3, 60, 240, true), 4, 0).await;
    assert_eq!(filled(&system).await, [at(60), at(120), at(180), at(240)]);
    let of_120 = findings(&system, at(120)).await;
    for kind in [FindingKind::TakenOut, FindingKind::Asked] {
        assert!(of_120.contains(&kind), "{of_120:?}");
    }
}

async fn a_skipped_slot_keeps_its_reason_when_a_pause_or_an_edit_drops_it(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    skip(&system, at(120)).await;
    system.pause().await;
    system.clock.advance_to(at(200));
    let mut tx = system.test.write().await;
    schedule_admin::resume(&mut tx, "bell", "ada", false, system.clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let sql =
        "SELECT CAST(count(*) AS TEXT) FROM launch WHERE reason = 'paused' AND slot_count = 1";
    assert_eq!(system.test.value(sql).await, "2");
    assert!(
        findings(&system, at(120))
            .await
            .contains(&FindingKind::TakenOut)
    );
    assert!(
        findings(&system, at(180))
            .await
            .contains(&FindingKind::Paused)
    );
    // A later skip forgets those that are decided.
    skip(&system, at(240)).await;
    left_alone(&system, &asked_for(1, 60, 180, false), 3, 1).await;
    assert_eq!(filled(&system).await, [at(60), at(180)]);
}

async fn a_skipped_slot_that_no_host_has_decided_is_left_alone(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    skip(&system, at(120)).await;
    system.pause().await;
    system.clock.advance_to(at(200));
    left_alone(&system, &asked_for(1, 60, 180, false), 3, 1).await;
    assert_eq!(filled(&system).await, [at(60), at(180)]);
}
