//! Dividing a budget fairly between packages: however greedy some are, the next one still gets a share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Rules for dividing a budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    /// Fraction (numerator, denominator) of the remainder a package may hold, so even packages that never give anything back
    /// leave some for the next.
    part: (u64, u64),
    /// Set aside for packages holding at most `floor`.
    spare: u64,
    floor: u64,
}

impl Division {
    /// A quarter of the remainder: out of 32, greedy packages get 8, 6, 5, 4 and so on.
    pub(crate) const QUARTERS: Division = Division {
        part: (1, 4),
        spare: 0,
        floor: 0,
    };

    /// Two thirds of the remainder, setting aside an eighth of `total` out of reach of greedy packages: a minimum for 32 others.
    pub(crate) fn with_spare(total: u64) -> Division {
        Division {
            part: (2, 3),
            spare: total / 8,
            floor: total / 256,
        }
    }
}

/// A budget lent to packages, serving waiting ones in turn.
pub(crate) struct FairShares {
    total: u64,
    division: Division,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The sum of `held`.
    all: u64,
    held: BTreeMap<Arc<str>, u64>,
    /// Waiters by package, first come first served. Queues are never empty.
    waiting: BTreeMap<Arc<str>, VecDeque<Waiter>>,
    /// Waiting packages, each listed once, in serving order.
    turns: VecDeque<Arc<str>>,
}

struct Waiter {
    amount: u64,
    most: u64,
    give: oneshot::Sender<FairShare>,
}

/// An amount on loan to a package, returned on drop.
pub(crate) struct FairShare {
    of: Arc<FairShares>,
    package: Arc<str>,
    amount: u64,
}

impl Drop for FairShare {
    fn drop(&mut self) {
        let amount = self.amount;
        self.give_back(amount);
    }
}

impl FairShare {
    /// Borrows `amount` more if the package may have that now, up to `most` in total. Returns whether it did.
    pub(crate) fn try_grow(&mut self, amount: u64, most: u64) -> bool {
        let mut state = self.of.state();
        let may = self.of.may_take(&state, &self.package, amount, most);
        if may {
            state.lend(&self.package, amount);
            self.amount += amount;
        }
        may
    }

    /// Returns the package's total, including its other loans.
    pub(crate) fn of_package(&self) -> u64 {
        self.of.held(&self.package)
    }

    /// Returns part of the loan.
    pub(crate) fn give_back(&mut self, amount: u64) {
        let amount = amount.min(self.amount);
        if amount == 0 {
            return;
        }
        self.amount -= amount;
        let mut state = self.of.state();
        state.take_back(&self.package, amount);
        self.of.serve(&mut state);
    }
}

impl FairShares {
    pub(crate) fn new(total: u64, division: Division) -> Arc<FairShares> {
        Arc::new(FairShares {
            total,
            division,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the whole budget.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the most a package can hold with no others around.
    pub(crate) fn most_of_one(&self) -> u64 {
        self.part_of(self.total - self.division.spare)
            .max(self.division.floor)
    }

    /// Returns one package's part of `left`, rounding up.
    fn part_of(&self, left: u64) -> u64 {
        let (numerator, denominator) = self.division.part;
        let part = (u128::from(left) * u128::from(numerator)).div_ceil(u128::from(denominator));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    fn may_take(&self, state: &State, package: &str, amount: u64, most: u64) -> bool {
        let held = state.held.get(package).copied().unwrap_or(0);
        let (after, all) = (
            held.saturating_add(amount),
            state.all.saturating_add(amount),
        );
        if all > self.total || after > most {
            return false;
        }
        let lent = self.total - self.division.spare;
        let left_by_others = lent.saturating_sub(state.all - held);
        after <= self.division.floor || (all <= lent && after <= self.part_of(left_by_others))
    }

    /// Waits until `package` can borrow `amount`, up to `most` in total. Returns none if it never can.
    pub(crate) async fn acquire(
        self: &Arc<FairShares>,
        package: &str,
        amount: u64,
        most: u64,
    ) -> Option<FairShare> {
        if amount > self.most_of_one().min(most) {
            return None;
        }
        let given = {
            let mut state = self.state();
            let queued = state.waiting.contains_key(package);
            if !queued && self.may_take(&state, package, amount, most) {
                return Some(self.share(&mut state, package.into(), amount));
            }
            let (give, given) = oneshot::channel();
            let package: Arc<str> = package.into();
            let waiter = Waiter { amount, most, give };
            let queue = state.waiting.entry(Arc::clone(&package)).or_default();
            queue.push_back(waiter);
            if queue.len() == 1 {
                state.turns.push_back(package);
            }
            given
        };
        given.await.ok()
    }

    /// Borrows `amount` for `package` without waiting, up to `most` in total.
    pub(crate) fn try_acquire(
        self: &Arc<FairShares>,
        package: &str,
        amount: u64,
        most: u64,
    ) -> Option<FairShare> {
        let mut state = self.state();
        let may = self.may_take(&state, package, amount, most);
        may.then(|| self.share(&mut state, package.into(), amount))
    }

    fn share(self: &Arc<Self>, state: &mut State, package: Arc<str>, amount: u64) -> FairShare {
        state.lend(&package, amount);
        FairShare {
            of: Arc::clone(self),
            package,
            amount,
        }
    }

    /// Returns the total on loan to `package`.
    pub(crate) fn held(&self, package: &str) -> u64 {
        self.state().held.get(package).copied().unwrap_or(0)
    }

    /// Serves waiting packages round-robin.
    fn serve(self: &Arc<Self>, state: &mut State) {
        let may = |state: &State| {
            let mut turns = state.turns.iter();
            turns.position(|package| {
                let first = state.waiting.get(package).and_then(VecDeque::front);
                // A waiter that gave up shouldn't block the rest.
                first.is_none_or(|first| {
                    first.give.is_closed()
                        || self.may_take(state, package, first.amount, first.most)
                })
            })
        };
        while let Some(turn) = may(state) {
            let Some(package) = state.turns.remove(turn) else {
                return;
            };
            let Some(queue) = state.waiting.get_mut(&package) else {
                continue;
            };
            let first = queue.pop_front();
            if queue.is_empty() {
                drop(state.waiting.remove(&package))
            } else {
                state.turns.push_back(Arc::clone(&package))
            }
            let Some(Waiter { amount, give, .. }) = first.filter(|first| !first.give.is_closed())
            else {
                continue;
            };
            let share = self.share(state, package, amount);
            if let Err(mut unwanted) = give.send(share) {
                // The waiter just gave up. Dropping the share here would lock the state again.
                state.take_back(&unwanted.package, amount);
                unwanted.amount = 0;
            }
        }
    }
}

impl State {
    fn lend(&mut self, package: &Arc<str>, amount: u64) {
        self.all += amount;
        match self.held.get_mut(package) {
            Some(held) => *held += amount,
            None => drop(self.held.insert(Arc::clone(package), amount)),
        }
    }

    fn take_back(&mut self, package: &Arc<str>, amount: u64) {
        self.all -= amount;
        if let Some(held) = self.held.get_mut(package) {
            *held -= amount;
            if *held == 0 {
                self.held.remove(package);
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

    type Waiting = Pin<Box<dyn Future<Output = Option<FairShare>>>>;

    fn asks(permits: &Arc<FairShares>, package: &'static str) -> Waiting {
        let permits = Arc::clone(permits);
        let mut asks: Waiting =
            Box::pin(async move { permits.acquire(package, 1, u64::MAX).await });
        // It takes its place in the queue when it is first polled.
        assert!(poll(&mut asks).is_none());
        asks
    }

    fn poll(asks: &mut Waiting) -> Option<FairShare> {
        match asks.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }

    fn try_now(permits: &Arc<FairShares>, package: &'static str) -> Option<FairShare> {
        permits.try_acquire(package, 1, u64::MAX)
    }

    fn hold_all(permits: &Arc<FairShares>, package: &'static str) -> Vec<FairShare> {
        std::iter::from_fn(|| try_now(permits, package)).collect()
    }

    #[test]
    fn each_package_holds_a_quarter_of_what_the_others_leave() {
        let permits = FairShares::new(32, Division::QUARTERS);
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
        let permits = FairShares::new(2, Division::QUARTERS);
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
        let permits = FairShares::new(4, Division::QUARTERS);
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

    #[test]
    fn a_package_alone_has_much_and_greedy_ones_leave_the_spare_to_those_with_little() {
        let shares = FairShares::new(1024, Division::with_spare(1024));
        assert_eq!(shares.most_of_one(), 598);
        let packages: Vec<String> = (0..40).map(|n| format!("greedy-{n}")).collect();
        let mut all = Vec::new();
        for package in &packages {
            while let Some(share) = shares.try_acquire(package, 1, u64::MAX) {
                all.push(share);
            }
        }
        assert_eq!(shares.held("greedy-0"), 598);
        // The first takes most, and each of 31 others still has its floor.
        assert!((1..32).all(|n| shares.held(&packages[n]) >= 4));
        drop(all);
        assert_eq!(shares.state().all, 0);
    }

    #[test]
    fn a_package_never_has_more_than_its_own_bound_nor_waits_for_what_it_can_never_have() {
        let shares = FairShares::new(1000, Division::with_spare(1000));
        let mut share = shares.try_acquire("a", 10, 20).unwrap();
        assert!(share.try_grow(10, 20) && !share.try_grow(1, 20));
        assert!(shares.try_acquire("a", 1, 20).is_none());
        share.give_back(5);
        assert_eq!(shares.held("a"), 15);
        let mut never = Box::pin(shares.acquire("a", 999, u64::MAX));
        let polled = never.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(None)));
    }

    #[test]
    fn one_that_waits_for_much_is_not_overtaken_within_its_package() {
        let shares = FairShares::new(1000, Division::with_spare(1000));
        let half = shares.try_acquire("a", 500, u64::MAX).unwrap();
        let asks = |amount| {
            let shares = Arc::clone(&shares);
            let mut asks: Waiting =
                Box::pin(async move { shares.acquire("a", amount, u64::MAX).await });
            assert!(poll(&mut asks).is_none());
            asks
        };
        let (mut much, mut little) = (asks(400), asks(1));
        assert!(poll(&mut little).is_none());
        drop(half);
        assert!(poll(&mut much).is_some() && poll(&mut little).is_some());
    }
}
