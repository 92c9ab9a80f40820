//! Pure: which slots a backfill launches next.

use std::collections::BTreeSet;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_schedule::policy::Policies;
use campanile_store::backfills::{self, Backfill, BackfillStep};
use campanile_store::schedules::ScheduleState;
use campanile_store::{DbError, Tx, removed_launches};

/// Minimum spacing of slots.
pub const MICROSECOND: Duration = Duration::from_micros(1);

/// Slots skipped when backfilling.
#[derive(Debug, Default)]
pub struct SkippedSlots {
    slots: BTreeSet<Timestamp>,
    /// Manually skipped ranges, as first and last slot.
    ranges: Vec<(Timestamp, Timestamp)>,
    /// UTC days since 1970 having slots settled by success or manual skipping, with launches already removed. Which slots those
    /// were is lost, so the whole day is skipped.
    removed_days: BTreeSet<i64>,
    /// Removed launches aren't counted before this UTC day since 1970.
    uncounted_before: Option<i64>,
}

impl SkippedSlots {
    /// Reads the slots to skip between `first` and `last`, inclusive. Skips nothing if `forced`.
    pub async fn read(
        tx: &mut Tx,
        state: &ScheduleState,
        forced: bool,
        first: Timestamp,
        last: Timestamp,
    ) -> Result<SkippedSlots, DbError> {
        if forced {
            return Ok(SkippedSlots::default());
        }
        // Manual skips have no row until the schedule decides them.
        let mut skipped = SkippedSlots {
            slots: state.history.skipped_slots(),
            uncounted_before: removed_launches::uncounted_before(tx, state.id).await?,
            ..SkippedSlots::default()
        };
        for (first, last) in backfills::slots_to_skip(tx, state.id, first, last).await? {
            if first == last {
                _ = skipped.slots.insert(first)
            } else {
                skipped.ranges.push((first, last))
            }
        }
        let days = removed_launches::settled_days(tx, state.id, first.day(), last.day()).await?;
        skipped.removed_days.extend(days);
        Ok(skipped)
    }

    /// Whether removed launches are the only reason for skipping the slot.
    pub fn is_by_removal(&self, slot: Timestamp) -> bool {
        self.contains(slot) && !self.is_on_record(slot)
    }

    pub fn contains(&self, slot: Timestamp) -> bool {
        let day = slot.day();
        let is_uncounted = self.uncounted_before.is_some_and(|before| day < before);
        is_uncounted || self.removed_days.contains(&day) || self.is_on_record(slot)
    }

    fn is_on_record(&self, slot: Timestamp) -> bool {
        let holds = |(first, last): &(Timestamp, Timestamp)| (*first..=*last).contains(&slot);
        self.slots.contains(&slot) || self.ranges.iter().any(holds)
    }
}

/// Pure: returns the span of slots to backfill, starting point excluded.
///
/// Slots outside the schedule's start and end don't exist, and those after the request are left to the schedule.
pub fn span(
    policies: &Policies,
    from: Timestamp,
    to: Timestamp,
    asked_at: Timestamp,
) -> (Timestamp, Timestamp) {
    let from = policies.start_at.map_or(from, |start| start.max(from));
    let to = policies.end_at.map_or(to, |end| end.min(to));
    (from.minus(MICROSECOND), to.min(asked_at))
}

/// Launches to insert in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Slots paired with fire times.
    pub fire_times: Vec<(Timestamp, Timestamp)>,
    pub step: BackfillStep,
}

/// Pure: picks up to `capacity` of `slots` for launching, passing over `skipped` ones. `slots` start after the cursor.
pub fn batch(
    backfill: &Backfill,
    slots: &[Timestamp],
    skipped: &SkippedSlots,
    capacity: usize,
    now: Timestamp,
) -> Batch {
    let spread = Duration::from_millis(u64::try_from(backfill.spread_ms).unwrap_or_default());
    let mut step = BackfillStep {
        id: backfill.id,
        from: backfill.cursor_at,
        to: backfill.cursor_at,
        next_fire: backfill.next_fire,
        launched: 0,
        slots_skipped: 0,
    };
    let mut fire_times = Vec::new();
    for &slot in slots {
        if skipped.contains(slot) {
            step.slots_skipped += 1;
        } else if fire_times.len() < capacity {
            let fire_time = step.next_fire.max(now);
            step.next_fire = fire_time.plus(spread);
            step.launched += 1;
            fire_times.push((slot, fire_time));
        } else {
            break;
        }
        step.to = slot;
    }
    Batch { fire_times, step }
}

#[cfg(test)]
pub(super) mod tests;
