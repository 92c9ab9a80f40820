//! The limit of requests: each route has a cost in units, and each principal may spend a number of units in a second.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A principal may spend the units of this time at once.
const BURST: Duration = Duration::from_secs(4);
/// With more principals than this, those that have all their units are forgotten.
const KEPT_MAX: usize = 1_024;

/// The cost of a route from which on it is a costly one: it reads a large part of the record, or computes for long.
pub(crate) const COSTLY: u32 = 10;

/// The units that each principal has spent.
pub(crate) struct RateLimit {
    units_per_second: u32,
    /// For each principal, the time at which it has all its units again.
    whole_at: Mutex<HashMap<String, Instant>>,
}

impl RateLimit {
    pub(crate) fn new(units_per_second: u32) -> RateLimit {
        RateLimit {
            units_per_second,
            whole_at: Mutex::default(),
        }
    }

    /// Take `cost` units of `principal` at `now`.
    ///
    /// # Errors
    ///
    /// The time until the principal has enough units.
    pub(crate) fn take(&self, principal: &str, cost: u32, now: Instant) -> Result<(), Duration> {
        let mut all = self.whole_at.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > KEPT_MAX {
            all.retain(|_, whole_at| *whole_at > now);
        }
        let lasts = Duration::from_secs(cost.into()) / self.units_per_second.max(1);
        let whole_at = all.get(principal).copied().unwrap_or(now).max(now);
        let used = whole_at.duration_since(now);
        // A principal that has all its units may send any request, also one that costs more.
        if !used.is_zero() && used + lasts > BURST {
            return Err((used + lasts).saturating_sub(BURST).min(used));
        }
        all.insert(principal.to_owned(), whole_at + lasts);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_units_of_four_seconds_at_once_and_then_those_of_each_second() {
        let limit = RateLimit::new(100);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let take = |principal, cost, millis| limit.take(principal, cost, at(millis));
        for _ in 0..400 {
            assert_eq!(take("ada", 1, 0), Ok(()));
        }
        assert_eq!(take("ada", 1, 0), Err(Duration::from_millis(10)));
        assert_eq!(take("ada", 50, 0), Err(Duration::from_millis(500)));
        // Others have their own.
        assert_eq!(take("bob", 50, 0), Ok(()));
        assert_eq!(take("ada", 50, 500), Ok(()));
        assert_eq!(take("ada", 1, 500), Err(Duration::from_millis(10)));
        // A request that costs more than there ever is waits until all units are there.
        assert_eq!(take("ada", 5_000, 500), Err(Duration::from_millis(4_000)));
        assert_eq!(take("ada", 5_000, 4_500), Ok(()));
        assert_eq!(take("ada", 1, 4_500), Err(Duration::from_millis(46_010)));
    }

    #[test]
    fn principals_that_owe_nothing_are_forgotten() {
        let limit = RateLimit::new(10);
        let start = Instant::now();
        for number in 0..5_000_u64 {
            let now = start + Duration::from_millis(number);
            limit.take(&number.to_string(), 1, now).unwrap();
        }
        let kept = limit.whole_at.lock().unwrap().len();
        assert!(kept <= KEPT_MAX + 2, "{kept}");
    }
}
