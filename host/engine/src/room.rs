//! Room for runs: how much there is on this host, and since when.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use campanile_model::clock::Timestamp;

/// The places of this host, one for each run at the same time.
pub(super) struct Room {
    places: Arc<Semaphore>,
    all: u32,
    /// When there was last no place free, in microseconds; at first the beginning.
    full_at: AtomicI64,
}

/// The place of one run.
pub(super) type Place = OwnedSemaphorePermit;

impl Room {
    /// `all` places, free from `now` on.
    pub(super) fn new(all: usize, now: Timestamp) -> Room {
        Room {
            places: Arc::new(Semaphore::new(all)),
            all: u32::try_from(all).unwrap_or(u32::MAX),
            full_at: AtomicI64::new(now.micros()),
        }
    }

    /// How many places are free.
    pub(super) fn free(&self) -> usize {
        self.places.available_permits()
    }

    /// A place, if one is free.
    pub(super) fn take(&self) -> Option<Place> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Every free place has been promised at `now`, and is taken in a moment.
    pub(super) fn promised(&self, now: Timestamp) {
        self.full_at.store(now.micros(), Ordering::Relaxed);
    }

    /// Free the places of runs that are over, noting when there was none until now.
    pub(super) fn give_back(&self, places: impl IntoIterator<Item = Place>, now: Timestamp) {
        if self.free() == 0 {
            self.promised(now);
        }
        places.into_iter().for_each(drop);
    }

    /// Whether a place is free at `now`, and one was all the time for `span`.
    ///
    /// That one is free in this instant says little: on a host that is always full one is, between every run
    /// and the next.
    pub(super) fn has_lasted(&self, span: Duration, now: Timestamp) -> bool {
        let full_at = Timestamp::from_micros(self.full_at.load(Ordering::Relaxed));
        self.free() > 0 && now.since(full_at) >= span
    }

    /// Wait until every place is free.
    pub(super) async fn empty(&self) {
        // It is never closed.
        let _all = self.places.acquire_many(self.all).await;
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
    fn room_begins_anew_when_a_full_host_gives_a_place_back() {
        let room = Room::new(2, at(0));
        assert!(!room.has_lasted(SPAN, at(9)));
        assert!(room.has_lasted(SPAN, at(10)));

        // One of two: there was room all the time.
        let first = room.take().unwrap();
        assert!(room.has_lasted(SPAN, at(20)));
        room.give_back([first], at(20));
        assert!(room.has_lasted(SPAN, at(20)));

        // Both, and for long.
        let both = [room.take().unwrap(), room.take().unwrap()];
        assert!(room.take().is_none());
        assert!(!room.has_lasted(SPAN, at(100)));
        room.give_back(both, at(100));
        assert_eq!(room.free(), 2);
        assert!(!room.has_lasted(SPAN, at(109)));
        assert!(room.has_lasted(SPAN, at(110)));
    }

    #[test]
    fn places_that_are_promised_are_no_room() {
        let room = Room::new(1, at(0));
        room.promised(at(50));
        assert!(!room.has_lasted(SPAN, at(59)));
        assert!(room.has_lasted(SPAN, at(60)));
    }
}
