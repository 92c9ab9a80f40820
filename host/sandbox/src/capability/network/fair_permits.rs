//! Permits that packages share: none can hold so many that the others wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A package may hold one in this number of the permits that other packages leave. Packages that never give theirs back
/// therefore leave some for the next package: of 32 permits, they hold 8, 6, 5, 4 and so on.
const PART: usize = 4;

/// A limited number of permits, given to the packages in turn.
pub(super) struct FairPermits {
    permits_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: BTreeMap<Arc<str>, usize>,
    /// Who waits, first come first served within a package. No queue is empty.
    waiting: BTreeMap<Arc<str>, VecDeque<oneshot::Sender<FairPermit>>>,
    /// The packages that wait, each once. The first has waited longest for its turn.
    turns: VecDeque<Arc<str>>,
}

/// A permit of a package, until it is dropped.
pub(super) struct FairPermit {
    /// None for a permit that was never given.
    of: Option<(Arc<FairPermits>, Arc<str>)>,
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let Some((permits, package)) = self.of.take() else {
            return;
        };
        let mut state = permits.state();
        if let Some(held) = state.held.get_mut(&package) {
            *held -= 1;
            if *held == 0 {
                state.held.remove(&package);
            }
        }
        state.give(&permits);
    }
}

impl FairPermits {
    pub(super) fn new(permits_max: usize) -> Arc<FairPermits> {
        Arc::new(FairPermits {
            permits_max,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait for a permit for `package`. None only when the permits are gone.
    pub(super) async fn acquire(self: &Arc<FairPermits>, package: &str) -> Option<FairPermit> {
        let (give, given) = oneshot::channel();
        {
            let package: Arc<str> = package.into();
            let mut state = self.state();
            let queue = state.waiting.entry(Arc::clone(&package)).or_default();
            queue.push_back(give);
            if queue.len() == 1 {
                state.turns.push_back(package);
            }
            state.give(self);
        }
        given.await.ok()
    }

    #[cfg(test)]
    pub(super) fn held(&self, package: &str) -> usize {
        self.state().held.get(package).copied().unwrap_or(0)
    }
}

impl State {
    fn may_hold_more(&self, package: &str, permits_max: usize) -> bool {
        let all: usize = self.held.values().sum();
        let held = self.held.get(package).copied().unwrap_or(0);
        let left_by_others = permits_max - (all - held);
        all < permits_max && held < left_by_others.div_ceil(PART)
    }

    /// Give permits to those who wait, one package after the other.
    fn give(&mut self, permits: &Arc<FairPermits>) {
        let may = |state: &State| {
            let mut turns = state.turns.iter();
            turns.position(|package| state.may_hold_more(package, permits.permits_max))
        };
        while let Some(turn) = may(self) {
            let Some(package) = self.turns.remove(turn) else {
                return;
            };
            let Some(queue) = self.waiting.get_mut(&package) else {
                continue;
            };
            let first = queue.pop_front();
            match queue.is_empty() {
                true => drop(self.waiting.remove(&package)),
                false => self.turns.push_back(Arc::clone(&package)),
            }
            let permit = FairPermit {
                of: Some((Arc::clone(permits), Arc::clone(&package))),
            };
            match first.map(|first| first.send(permit)) {
                Some(Ok(())) => *self.held.entry(package).or_default() += 1,
                // The waiting call was dropped. Dropping the permit would give it back.
                Some(Err(mut unwanted)) => unwanted.of = None,
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Option<FairPermit>>>>;

    fn asks(permits: &Arc<FairPermits>, package: &'static str) -> Waiting {
        let permits = Arc::clone(permits);
        let mut asks: Waiting = Box::pin(async move { permits.acquire(package).await });
        // It takes its place in the queue when it is first polled.
        assert!(poll(&mut asks).is_none());
        asks
    }

    fn poll(asks: &mut Waiting) -> Option<FairPermit> {
        match asks.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }

    fn try_now(permits: &Arc<FairPermits>, package: &'static str) -> Option<FairPermit> {
        let permits = Arc::clone(permits);
        let mut asks: Waiting = Box::pin(async move { permits.acquire(package).await });
        poll(&mut asks)
    }

    fn hold_all(permits: &Arc<FairPermits>, package: &'static str) -> Vec<FairPermit> {
        std::iter::from_fn(|| try_now(permits, package)).collect()
    }

    #[test]
    fn each_package_holds_a_quarter_of_what_the_others_leave() {
        let permits = FairPermits::new(32);
        let packages = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
        let all: Vec<_> = packages.map(|package| hold_all(&permits, package)).into();
        let held: Vec<usize> = all.iter().map(Vec::len).collect();
        assert_eq!(held, [8, 6, 5, 4, 3, 2, 1, 1, 1, 1, 0]);
        drop(all);
        assert_eq!(permits.held("a"), 0);
        assert_eq!(hold_all(&permits, "k").len(), 8);
    }

    #[test]
    fn packages_take_turns_and_each_serves_its_own_in_order() {
        let permits = FairPermits::new(2);
        let mut held: VecDeque<_> = ["x", "y"]
            .into_iter()
            .flat_map(|package| try_now(&permits, package))
            .collect();
        assert_eq!(held.len(), 2);
        let order = ["a", "a", "a", "b", "c", "b"];
        let mut waiting: Vec<_> = order.map(|package| asks(&permits, package)).into();
        let mut served = Vec::new();
        while let Some(permit) = held.pop_front() {
            drop(permit);
            for (number, waits) in waiting.iter_mut().enumerate() {
                if !served.contains(&number)
                    && let Some(permit) = poll(waits)
                {
                    served.push(number);
                    held.push_back(permit);
                }
            }
        }
        assert_eq!(served, [0, 3, 4, 1, 5, 2]);
    }

    #[test]
    fn who_stops_waiting_gets_no_permit_and_loses_none() {
        let permits = FairPermits::new(4);
        let held = try_now(&permits, "a").unwrap();
        let mut gone = asks(&permits, "a");
        let mut stays = asks(&permits, "a");
        let given_and_gone = asks(&permits, "a");
        assert!(poll(&mut gone).is_none());
        drop(gone);
        drop(held);
        let permit = poll(&mut stays).unwrap();
        drop(permit);
        // It has its permit, and was not polled since.
        assert_eq!(permits.held("a"), 1);
        drop(given_and_gone);
        assert_eq!(permits.held("a"), 0);
    }
}
