//! The delay of a slot, chosen by hash.
//!
//! The delay is [`hash_number`] of the schedule and the slot's microseconds, modulo the number of
//! microseconds to choose from. So every host finds the same delay, and schedules with one rule
//! spread. The result must never change: a forecast would not match what happens.

use std::time::Duration;

use crate::rule::hash_number;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;

/// Separates these hashes from all other hashes of the same id.
const DOMAIN: &[u8] = b"campanile/policy/jitter/1";

/// Returns the delay of `slot`: at most `max`, and less than the time to `next`, the slot after it.
pub(super) fn delay(
    schedule: ScheduleId,
    slot: Timestamp,
    next: Option<Timestamp>,
    max: Duration,
) -> Duration {
    let max = u64::try_from(max.as_micros()).unwrap_or(u64::MAX);
    let gap = next.map_or(u64::MAX, |next| {
        (next.micros() - slot.micros()).unsigned_abs()
    });
    let choices = max.saturating_add(1).min(gap).max(1);
    let number = hash_number(DOMAIN, schedule.0, &slot.micros().to_be_bytes());
    Duration::from_micros(number % choices)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::rule::testing::time;

    const MINUTE: Duration = Duration::from_secs(60);

    fn of(id: u128, slot: Timestamp, next: Option<Timestamp>, most: Duration) -> Duration {
        delay(ScheduleId(Uuid::from_u128(id)), slot, next, most)
    }

    #[test]
    fn a_delay_never_changes() {
        let slot = time("2026-01-01T00:00:00Z");
        // The values are part of the contract with forecasts already given.
        let delays = [7, 8].map(|id| of(id, slot, None, MINUTE).as_micros());
        assert_eq!(delays, [29_871_094, 38_479_904]);
    }

    #[test]
    fn a_delay_stays_within_the_jitter_and_before_the_next_slot() {
        let slot = time("2026-01-01T00:00:00Z");
        for id in 0..2_000 {
            for (gap, most) in [(60, 60), (1, 60), (600, 60), (60, 1)] {
                let next = slot.plus(Duration::from_secs(gap));
                let delay = of(id, slot, Some(next), Duration::from_secs(most));
                assert!(slot.plus(delay) < next && delay <= Duration::from_secs(most));
            }
        }
        let next = slot.plus(Duration::from_micros(1));
        assert_eq!(of(7, slot, Some(next), MINUTE), Duration::ZERO);
        assert_eq!(of(7, slot, None, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn delays_spread_evenly_over_schedules_and_over_slots() {
        let first = time("2026-01-01T00:00:00Z");
        let slots = |count: u64| first.plus(MINUTE * u32::try_from(count).unwrap());
        let over_schedules = (0..6_000).map(|id| of(id, first, None, MINUTE));
        let over_slots = (0..6_000).map(|count| of(7, slots(count), None, MINUTE));
        for delays in [
            over_schedules.collect::<Vec<_>>(),
            over_slots.collect::<Vec<_>>(),
        ] {
            let mut counts = [0u32; 60];
            for delay in delays {
                counts[(delay.as_secs() as usize).min(59)] += 1;
            }
            // 59 degrees of freedom, probability 0.00001.
            let sum: f64 = counts
                .iter()
                .map(|&count| (f64::from(count) - 100.0).powi(2) / 100.0)
                .sum();
            assert!(sum < 117.5, "{sum} of {counts:?}");
        }
    }
}
