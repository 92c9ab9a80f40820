//! The capacity of a host: how many runs it may execute at once, and since when a permit has been free.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use campanile_model::clock::Timestamp;

/// One permit for each run at the same time.
pub(crate) struct Capacity {
    permits: Arc<Semaphore>,
    total: u32,
    /// When no permit was free for the last time, in microseconds; at first the time of the start.
    full_at: AtomicI64,
}

/// Held by one run until its end is recorded.
pub(crate) type Permit = OwnedSemaphorePermit;

impl Capacity {
    /// Begin with `total` permits, all free since `now`.
    pub(crate) fn new(total: usize, now: Timestamp) -> Capacity {
        Capacity {
            permits: Arc::new(Semaphore::new(total)),
            total: u32::try_from(total).unwrap_or(u32::MAX),
            full_at: AtomicI64::new(now.micros()),
        }
    }

    /// Return how many permits are free.
    pub(crate) fn free(&self) -> usize {
        self.permits.available_permits()
    }

    /// Take a permit, if one is free.
    pub(crate) fn acquire(&self) -> Option<Permit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Note that every permit is taken at `now`, or will be in a moment.
    pub(crate) fn note_full(&self, now: Timestamp) {
        self.full_at.store(now.micros(), Ordering::Relaxed);
    }

    /// Free the permits of runs that ended. Note when all were taken until now.
    pub(crate) fn release(&self, permits: impl IntoIterator<Item = Permit>, now: Timestamp) {
        if self.free() == 0 {
            self.note_full(now);
        }
        permits.into_iter().for_each(drop);
    }

    /// Whether a permit is free at `now` and one was free all the time for `span`.
    ///
    /// One free permit at this instant proves little: a host that is always full has one between every run and the next.
    pub(crate) fn is_free_for(&self, span: Duration, now: Timestamp) -> bool {
        let full_at = Timestamp::from_micros(self.full_at.load(Ordering::Relaxed));
        self.free() > 0 && now.since(full_at) >= span
    }

    /// Wait until every permit is free.
    pub(crate) async fn wait_until_idle(&self) {
        // The semaphore is never closed.
        let _all = self.permits.acquire_many(self.total).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn free_time_begins_again_when_a_full_host_releases_a_permit() {
        let capacity = Capacity::new(2, at(0));
        assert!(!capacity.is_free_for(SPAN, at(9)));
        assert!(capacity.is_free_for(SPAN, at(10)));

        // With one of two taken, the other was free all the time.
        let first = capacity.acquire().unwrap();
        assert!(capacity.is_free_for(SPAN, at(20)));
        capacity.release([first], at(20));
        assert!(capacity.is_free_for(SPAN, at(20)));

        let both = [capacity.acquire().unwrap(), capacity.acquire().unwrap()];
        assert!(capacity.acquire().is_none());
        assert!(!capacity.is_free_for(SPAN, at(100)));
        capacity.release(both, at(100));
        assert_eq!(capacity.free(), 2);
        assert!(!capacity.is_free_for(SPAN, at(109)));
        assert!(capacity.is_free_for(SPAN, at(110)));
    }

    #[test]
    fn permits_that_are_about_to_be_taken_are_not_free() {
        let capacity = Capacity::new(1, at(0));
        capacity.note_full(at(50));
        assert!(!capacity.is_free_for(SPAN, at(59)));
        assert!(capacity.is_free_for(SPAN, at(60)));
    }
}
