use super::*;
use campanile_model::ids::{BackfillId, ScheduleId};
use campanile_store::BackfillStatus;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the instant this many minutes after the start of a day.
pub(in crate::admin::backfill) fn minute(minute: u64) -> Timestamp {
    time("2026-01-01T00:00:00Z").plus(Duration::from_secs(60 * minute))
}

pub(in crate::admin::backfill) fn backfill() -> Backfill {
    Backfill {
        id: BackfillId(uuid::Uuid::from_u128(1)),
        schedule_id: ScheduleId(uuid::Uuid::from_u128(2)),
        schedule: "nightly".to_owned(),
        schedule_revision: 1,
        status: BackfillStatus::Running,
        from: minute(0),
        to: minute(9),
        spread_ms: 0,
        forced: false,
        context: Some(r#"{"a":1,"b":2}"#.to_owned()),
        cursor_at: minute(0),
        next_fire: minute(60),
        slots: 10,
        launched: 0,
        slots_skipped: 0,
        created_at: minute(60),
        created_by: "ada".to_owned(),
        finished_at: None,
    }
}

fn minutes(minutes: impl IntoIterator<Item = u64>) -> Vec<Timestamp> {
    minutes.into_iter().map(minute).collect()
}

fn batch_of(backfill: &Backfill, succeeded: &[u64], capacity: usize, now: u64) -> Batch {
    let slots_skipped = SkippedSlots {
        slots: minutes(succeeded.iter().copied()).into_iter().collect(),
        ranges: Vec::new(),
        removed_days: BTreeSet::new(),
        uncounted_before: None,
    };
    batch(
        backfill,
        &minutes(1..=9),
        &slots_skipped,
        capacity,
        minute(now),
    )
}

#[test]
fn launches_fill_the_capacity_and_the_cursor_stops_before_the_first_slot_without_it() {
    for (succeeded, capacity, launched, slots_skipped, cursor) in [
        (&[][..], 100, 9, 0, 9),
        (&[], 4, 4, 0, 4),
        (&[2, 3], 4, 4, 2, 6),
        // Skipped slots need no capacity.
        (&[5, 6], 4, 4, 2, 6),
        (&[1, 2, 3], 0, 0, 3, 3),
        (&[], 0, 0, 0, 0),
        (&[1, 2, 3, 4, 5, 6, 7, 8, 9], 1, 0, 9, 9),
    ] {
        let batch = batch_of(&backfill(), succeeded, capacity, 60);
        let step = (batch.step.launched, batch.step.slots_skipped, batch.step.to);
        assert_eq!(
            step,
            (launched, slots_skipped, minute(cursor)),
            "{succeeded:?}, {capacity}"
        );
        assert_eq!(batch.fire_times.len() as i64, launched);
        assert!(
            batch
                .fire_times
                .iter()
                .all(|(_, fire_time)| *fire_time == minute(60))
        );
    }
}

#[test]
fn the_spread_counts_from_the_previous_launch_even_after_a_long_time() {
    let spread = Backfill {
        spread_ms: 300_000,
        ..backfill()
    };
    let first = batch_of(&spread, &[], 3, 60);
    let fire_times = |batch: &Batch| -> Vec<Timestamp> {
        batch
            .fire_times
            .iter()
            .map(|(_, fire_time)| *fire_time)
            .collect()
    };
    assert_eq!(fire_times(&first), minutes([60, 65, 70]));
    let later = Backfill {
        next_fire: first.step.next_fire,
        ..spread
    };
    assert_eq!(fire_times(&batch_of(&later, &[], 2, 61)), minutes([75, 80]));
    // Launches that are late do not start all at once.
    assert_eq!(
        fire_times(&batch_of(&later, &[], 2, 100)),
        minutes([100, 105])
    );
}

#[test]
fn a_backfill_covers_only_past_slots_between_start_and_end() {
    let policies = |start: Option<u64>, end: Option<u64>| Policies {
        start_at: start.map(minute),
        end_at: end.map(minute),
        ..Policies::default()
    };
    for (start, end, asked_at, first, last) in [
        (None, None, 60, 2, 8),
        (Some(1), Some(9), 60, 2, 8),
        (Some(3), Some(7), 60, 3, 7),
        (None, None, 5, 2, 5),
    ] {
        let policies = policies(start, end);
        let (before, until) = span(&policies, minute(2), minute(8), minute(asked_at));
        assert_eq!(
            (before.plus(MICROSECOND), until),
            (minute(first), minute(last))
        );
    }
}

#[test]
fn a_backfill_launches_no_slot_of_a_skipped_range() {
    let slots_skipped = SkippedSlots {
        slots: BTreeSet::new(),
        ranges: vec![(minute(3), minute(5))],
        removed_days: BTreeSet::new(),
        uncounted_before: None,
    };
    let batch = batch(
        &backfill(),
        &minutes(1..=9),
        &slots_skipped,
        100,
        minute(60),
    );
    let launched: Vec<Timestamp> = batch.fire_times.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(launched, minutes([1, 2, 6, 7, 8, 9]));
    assert_eq!(batch.step.slots_skipped, 3);
}
