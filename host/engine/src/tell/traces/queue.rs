//! The ended launches whose traces wait.

use std::collections::VecDeque;
use std::mem;
use std::sync::Mutex;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

use campanile_control::lock::lock;
use campanile_model::ids::LaunchId;

/// The ended launches whose traces wait. Of more, the oldest are dropped.
const WAITING_MAX: usize = 8_192;
/// The launches of one batch.
const BATCH: usize = 64;

/// The ended launches whose traces wait, the oldest first.
#[derive(Default)]
pub(crate) struct TraceQueue {
    waiting: Mutex<VecDeque<LaunchId>>,
    /// Launches were added.
    pub(crate) wake: Notify,
    /// The launches whose traces were dropped.
    dropped: Counter,
}

impl TraceQueue {
    /// Returns an empty queue that counts the launches that it drops.
    pub(crate) fn new(dropped: Counter) -> TraceQueue {
        TraceQueue {
            dropped,
            ..TraceQueue::default()
        }
    }

    /// Add launches. Of too many, the oldest are dropped.
    pub(crate) fn add(&self, launches: impl IntoIterator<Item = LaunchId>) {
        let mut waiting = lock(&self.waiting);
        waiting.extend(launches);
        self.trim(&mut waiting);
        drop(waiting);
        self.wake.notify_one();
    }

    /// Take the oldest launches; none when none waits.
    pub(crate) fn take(&self) -> Option<TraceBatch<'_>> {
        let launches: Vec<LaunchId> = {
            let mut waiting = lock(&self.waiting);
            let count = waiting.len().min(BATCH);
            waiting.drain(..count).collect()
        };
        // A batch locks the queue when it is dropped, so it is made after the lock ends, and only if it has launches.
        (!launches.is_empty()).then(|| TraceBatch {
            queue: self,
            launches,
        })
    }

    /// Returns how many launches wait.
    pub(crate) fn len(&self) -> usize {
        lock(&self.waiting).len()
    }

    fn trim(&self, waiting: &mut VecDeque<LaunchId>) {
        let surplus = waiting.len().saturating_sub(WAITING_MAX);
        waiting.drain(..surplus);
        self.dropped.inc_by(surplus as u64);
    }
}

/// Launches that were taken. When they are dropped, they wait again.
pub(crate) struct TraceBatch<'q> {
    queue: &'q TraceQueue,
    pub(crate) launches: Vec<LaunchId>,
}

impl TraceBatch<'_> {
    /// Do not send these traces again. Return how many there were.
    pub(crate) fn finish(mut self) -> u64 {
        mem::take(&mut self.launches).len() as u64
    }

    /// Drop these traces, and count them.
    pub(crate) fn give_up(self) {
        let queue = self.queue;
        queue.dropped.inc_by(self.finish());
    }
}

impl Drop for TraceBatch<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.queue.waiting);
        for launch in self.launches.drain(..).rev() {
            waiting.push_front(launch);
        }
        self.queue.trim(&mut waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(number: usize) -> LaunchId {
        LaunchId(uuid::Uuid::from_u128(number as u128))
    }

    #[test]
    fn a_full_queue_drops_its_oldest_launches_and_counts_them() {
        let queue = TraceQueue::default();
        assert!(queue.take().is_none());
        queue.add((0..WAITING_MAX + 3).map(launch));
        assert_eq!((queue.len(), queue.dropped.get()), (WAITING_MAX, 3));
        let batch = queue.take().unwrap();
        assert_eq!(
            (batch.launches.len(), batch.launches[0]),
            (BATCH, launch(3))
        );
        drop(batch);
        assert_eq!((queue.len(), queue.dropped.get()), (WAITING_MAX, 3));
        let batch = queue.take().unwrap();
        assert_eq!(batch.launches[0], launch(3));
        queue.add([launch(1)]);
        drop(batch);
        assert_eq!(queue.dropped.get(), 4);
        assert_eq!(queue.take().unwrap().finish(), BATCH as u64);
        assert_eq!(queue.len(), WAITING_MAX - BATCH);
        queue.take().unwrap().give_up();
        assert_eq!(queue.dropped.get(), 4 + BATCH as u64);
    }
}
