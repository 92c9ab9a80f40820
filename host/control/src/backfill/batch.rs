//! Pure: which slots a backfill launches next.

use std::collections::BTreeSet;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_schedule::policy::Policies;
use campanile_store::backfills::{self, Backfill, BackfillStep};
use campanile_store::schedules::ScheduleState;
use campanile_store::{DbError, Tx, removed_launches};

/// The least time between two slots.
pub const MICROSECOND: Duration = Duration::from_micros(1);

/// The slots that a backfill skips.
#[derive(Debug, Default)]
pub struct SkippedSlots {
    slots: BTreeSet<Timestamp>,
    /// Ranges of slots that a person skipped, each by its first and its last slot.
    ranges: Vec<(Timestamp, Timestamp)>,
    /// Days (since 1970, in UTC) of slots that succeeded, or that a person skipped, and whose launches were removed. Which
    /// slots of the day they were is not on record.
    removed_days: BTreeSet<i64>,
    /// Before this day (since 1970, in UTC) no removed launch is counted any more.
    uncounted_before: Option<i64>,
}

impl SkippedSlots {
    /// Read which slots from `first` to `last` to skip: none, if the backfill is `forced`.
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
        // A slot that a person skipped has no row before the schedule decides it.
        let mut skipped = SkippedSlots {
            slots: state.history.skipped_slots(),
            uncounted_before: removed_launches::uncounted_before(tx, state.id).await?,
            ..SkippedSlots::default()
        };
        for (first, last) in backfills::slots_to_skip(tx, state.id, first, last).await? {
            match first == last {
                true => _ = skipped.slots.insert(first),
                false => skipped.ranges.push((first, last)),
            }
        }
        let days = removed_launches::settled_days(tx, state.id, first.day(), last.day()).await?;
        skipped.removed_days.extend(days);
        Ok(skipped)
    }

    /// Whether the slot is skipped only because launches of its day were removed.
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

/// Pure: return the instant after which the slots of a backfill begin, and the last instant that may be one.
///
/// A schedule has no slots before its start and after its end. Slots after the request belong to the schedule.
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

/// The launches of one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Each slot with its fire time.
    pub fire_times: Vec<(Timestamp, Timestamp)>,
    pub step: BackfillStep,
}

/// Pure: return which of `slots` to launch: at most `capacity`, and none that is in `skipped`. They follow the cursor.
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
