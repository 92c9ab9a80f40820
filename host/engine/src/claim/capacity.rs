//! The capacity of a host: how many runs it may execute at once, which packages hold it, and since when some of it has
//! been free.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::claim::shares::{Ask, OVERTAKING_PART, Refused, Shares, Waiting};
use campanile_control::lock::lock;
use campanile_model::clock::Timestamp;
use campanile_package::quota::Namespaces;

/// How often a host without concurrency groups looks for launches of some, which another host defines.
const UNDEFINED_GROUPS_INTERVAL: Duration = Duration::from_secs(1);

/// One permit for each run at the same time.
pub(crate) struct Capacity {
    permits: Arc<Semaphore>,
    shares: Arc<Mutex<Shares>>,
    /// Set while launches wait although they are due. Then the host divides what is free between packages.
    pub(crate) is_short: AtomicBool,
    /// Set while on-time launches are waiting too. Otherwise they may start at once, overtaking waiting late ones.
    pub(crate) is_short_on_time: AtomicBool,
    /// Whether the last launches to choose from included late ones. Only then does the host look for on-time ones first.
    pub(crate) has_late: AtomicBool,
    /// Turns in full concurrency groups.
    pub(crate) group_turns: GroupTurns,
    /// Notified when permits are given back.
    released: Notify,
    /// When a host without concurrency groups may look for launches of some again, in microseconds.
    groups_due_at: AtomicI64,
    total: u32,
    /// When no permit was free for the last time, in microseconds; at first the time of the start.
    full_at: AtomicI64,
}

/// Launches claimed in each full concurrency group since an on-time one last overtook late ones.
#[derive(Default)]
pub(crate) struct GroupTurns(Mutex<HashMap<String, usize>>);

impl GroupTurns {
    /// Returns how many of a group's on-time launches may overtake others with `room` in the group: one in [`OVERTAKING_PART`], or
    /// none if the group had room for everything.
    pub(crate) fn overtaking(&self, group: &str, room: usize) -> usize {
        let turns = lock(&self.0);
        turns
            .get(group)
            .map_or(0, |claimed| (claimed + room) / OVERTAKING_PART)
    }

    /// Notes how many of a group's launches were claimed, and how many of them overtook others.
    pub(crate) fn note(&self, group: &str, is_full: bool, claimed: usize, overtaking: usize) {
        let mut turns = lock(&self.0);
        if !is_full {
            turns.remove(group);
            return;
        }
        match turns.get_mut(group) {
            Some(since) => *since = (*since + claimed).saturating_sub(overtaking * OVERTAKING_PART),
            // The first turn comes next.
            None => _ = turns.insert(group.to_owned(), OVERTAKING_PART - 1),
        }
    }
}

/// Held by one run from its claim until it has ended, or until its end is being recorded: see
/// [`UnrecordedEnds`](crate::claim::unrecorded::UnrecordedEnds).
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
    shares: Arc<Mutex<Shares>>,
    package: String,
    proposed: bool,
    late: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.shares).give_back(&self.package, self.proposed, self.late);
    }
}

impl Capacity {
    /// Begin with `total` permits, all free since `now`.
    pub(crate) fn new(total: usize, namespaces: Arc<Namespaces>, now: Timestamp) -> Capacity {
        Capacity {
            permits: Arc::new(Semaphore::new(total)),
            shares: Arc::new(Mutex::new(Shares::new(namespaces))),
            is_short: AtomicBool::new(false),
            is_short_on_time: AtomicBool::new(false),
            has_late: AtomicBool::new(false),
            group_turns: GroupTurns::default(),
            released: Notify::new(),
            groups_due_at: AtomicI64::new(0),
            total: u32::try_from(total).unwrap_or(u32::MAX),
            full_at: AtomicI64::new(now.micros()),
        }
    }

    /// Returns how many permits are free.
    pub(crate) fn free(&self) -> usize {
        self.permits.available_permits()
    }

    /// Returns how many permits are taken.
    pub(crate) fn taken(&self) -> usize {
        (self.total as usize).saturating_sub(self.free())
    }

    /// Returns how many permits any one package may take now, for launches either `late` or all on time.
    pub(crate) fn free_for_one(&self, late: bool) -> usize {
        lock(&self.shares).free_for_one(self.free(), late)
    }

    /// Returns how many permits on-time launches may take now ahead of waiting late ones.
    pub(crate) fn overtaking(&self) -> usize {
        lock(&self.shares).overtaking(self.free())
    }

    /// Whether a launch may start ahead of waiting ones: either none are waiting, or it's on time and within the share of on-time
    /// launches, and they're all late.
    pub(crate) fn may_overtake(&self, late: bool) -> bool {
        !self.is_short.load(Ordering::Relaxed)
            || !late && !self.is_short_on_time.load(Ordering::Relaxed) && self.overtaking() > 0
    }

    /// Notes a due launch waiting for a permit.
    pub(crate) fn note_waiting(&self, late: bool) {
        self.is_short.store(true, Ordering::Relaxed);
        if !late {
            self.is_short_on_time.store(true, Ordering::Relaxed);
        }
    }

    /// Divides at most `most` of the free permits between packages waiting for them, with launches either `late` or all on time.
    pub(crate) fn divide(
        &self,
        most: usize,
        waiting: &[Waiting<'_>],
        late: bool,
        now: Timestamp,
    ) -> Vec<usize> {
        lock(&self.shares).divide((self.free(), most), waiting, late, now)
    }

    /// Takes a permit for a launch.
    ///
    /// # Errors
    ///
    /// Returns the reason for a refusal.
    pub(crate) fn take(&self, ask: &Ask<'_>, now: Timestamp) -> Result<Permit, Refused> {
        let mut shares = lock(&self.shares);
        shares.may_take(self.free(), ask, now)?;
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| Refused::Share)?;
        shares.count(ask, now);
        Ok(Permit {
            _permit: permit,
            shares: Arc::clone(&self.shares),
            package: ask.package.to_owned(),
            proposed: ask.proposed,
            late: ask.late,
        })
    }

    /// Wait until permits are given back, at most `patience`. Return whether any were.
    pub(crate) async fn wait_for_release(&self, patience: Duration) -> bool {
        timeout(patience, self.released.notified()).await.is_ok()
    }

    /// Whether it is time to look for launches of groups that this host does not define. There are hardly ever any.
    pub(crate) fn may_look_for_groups(&self, now: Timestamp) -> bool {
        let is_due = now.micros() >= self.groups_due_at.load(Ordering::Relaxed);
        if is_due {
            let next = now.plus(UNDEFINED_GROUPS_INTERVAL);
            self.groups_due_at.store(next.micros(), Ordering::Relaxed);
        }
        is_due
    }

    /// Note that at `now` every permit is taken, or will be in a moment, or that launches may not have the free ones.
    pub(crate) fn note_full(&self, now: Timestamp) {
        self.full_at.store(now.micros(), Ordering::Relaxed);
    }

    /// Free the permits of runs that ended. Note when all were taken until now.
    pub(crate) fn release(&self, permits: impl IntoIterator<Item = Permit>, now: Timestamp) {
        if self.free() == 0 {
            self.note_full(now);
        }
        permits.into_iter().for_each(drop);
        self.released.notify_one();
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
    use campanile_package::Quota;

    const SPAN: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    fn acquire(capacity: &Capacity) -> Option<Permit> {
        let ask = Ask {
            package: "hello",
            quota: Quota::default(),
            proposed: false,
            late: false,
        };
        capacity.take(&ask, at(0)).ok()
    }

    #[test]
    fn free_time_begins_again_when_a_full_host_releases_a_permit() {
        let capacity = Capacity::new(2, Arc::default(), at(0));
        assert!(!capacity.is_free_for(SPAN, at(9)));
        assert!(capacity.is_free_for(SPAN, at(10)));

        // With one of two taken, the other was free all the time.
        let first = acquire(&capacity).unwrap();
        assert!(capacity.is_free_for(SPAN, at(20)));
        capacity.release([first], at(20));
        assert!(capacity.is_free_for(SPAN, at(20)));

        let both = [acquire(&capacity).unwrap(), acquire(&capacity).unwrap()];
        assert!(acquire(&capacity).is_none());
        assert!(!capacity.is_free_for(SPAN, at(100)));
        capacity.release(both, at(100));
        assert_eq!(capacity.free(), 2);
        assert!(!capacity.is_free_for(SPAN, at(109)));
        assert!(capacity.is_free_for(SPAN, at(110)));
    }

    #[test]
    fn permits_that_are_about_to_be_taken_are_not_free() {
        let capacity = Capacity::new(1, Arc::default(), at(0));
        capacity.note_full(at(50));
        assert!(!capacity.is_free_for(SPAN, at(59)));
        assert!(capacity.is_free_for(SPAN, at(60)));
    }
}
