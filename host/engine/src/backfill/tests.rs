use super::*;
use campanile_model::ids::{BackfillId, ScheduleId};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// So many minutes after the beginning of a day.
pub(super) fn minute(minute: u64) -> Timestamp {
    time("2026-01-01T00:00:00Z").plus(Duration::from_secs(60 * minute))
}

pub(super) fn backfill() -> Backfill {
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

fn of(backfill: &Backfill, succeeded: &[u64], room: usize, now: u64) -> Batch {
    let slots_skipped = SkippedSlots {
        slots: minutes(succeeded.iter().copied()).into_iter().collect(),
        ranges: Vec::new(),
    };
    batch(backfill, &minutes(1..=9), &slots_skipped, room, minute(now))
}

#[test]
fn launches_are_made_up_to_the_room_and_the_cursor_stays_behind_the_first_that_has_none() {
    for (succeeded, room, launched, slots_skipped, cursor) in [
        (&[][..], 100, 9, 0, 9),
        (&[], 4, 4, 0, 4),
        (&[2, 3], 4, 4, 2, 6),
        // Those that are left alone need no room.
        (&[5, 6], 4, 4, 2, 6),
        (&[1, 2, 3], 0, 0, 3, 3),
        (&[], 0, 0, 0, 0),
        (&[1, 2, 3, 4, 5, 6, 7, 8, 9], 1, 0, 9, 9),
    ] {
        let batch = of(&backfill(), succeeded, room, 60);
        let step = (batch.step.launched, batch.step.slots_skipped, batch.step.to);
        assert_eq!(
            step,
            (launched, slots_skipped, minute(cursor)),
            "{succeeded:?}, {room}"
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
fn the_spread_counts_from_the_launch_before_also_when_that_was_long_ago() {
    let spread = Backfill {
        spread_ms: 300_000,
        ..backfill()
    };
    let first = of(&spread, &[], 3, 60);
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
    assert_eq!(fire_times(&of(&later, &[], 2, 61)), minutes([75, 80]));
    // What was not launched in time is not made up for by a burst.
    assert_eq!(fire_times(&of(&later, &[], 2, 100)), minutes([100, 105]));
}

#[test]
fn a_backfill_keeps_to_the_life_of_its_schedule_and_to_what_is_past() {
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
fn all_slots_of_a_skipped_range_are_left_alone() {
    let slots_skipped = SkippedSlots {
        slots: BTreeSet::new(),
        ranges: vec![(minute(3), minute(5))],
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
