//! Sharing streams, and the memory of bodies and answers, between requests. Each principal gets at most a part, with some set aside for
//! those holding nothing yet.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Duration, timeout};

/// A quantity divided between principals.
pub(crate) struct Shares {
    all: usize,
    /// The most one principal may hold.
    of_one: usize,
    /// Set aside for principals holding nothing yet.
    reserve: usize,
    held: Mutex<Held>,
    given_back: Notify,
}

#[derive(Default)]
struct Held {
    total: usize,
    by_principal: HashMap<String, usize>,
}

/// An amount taken from [`Shares`], given back on drop.
pub(crate) struct Share {
    of: Arc<Shares>,
    principal: String,
    amount: usize,
}

impl Shares {
    /// Divides `all`, letting each principal hold up to a quarter and setting aside a tenth.
    pub(crate) fn new(all: usize) -> Arc<Shares> {
        Arc::new(Shares {
            all,
            of_one: all / 4,
            reserve: all / 10,
            held: Mutex::default(),
            given_back: Notify::new(),
        })
    }

    fn locked(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `amount` for a principal without waiting, or returns none if too little is left.
    ///
    /// Asking for more than one principal may hold works only while nobody holds anything, and then takes everything.
    pub(crate) fn try_take(self: &Arc<Shares>, principal: &str, amount: usize) -> Option<Share> {
        let mut held = self.locked();
        let own = held.by_principal.get(principal).copied().unwrap_or(0);
        let total = held.total + amount;
        let (amount, is_allowed) = match amount > self.of_one {
            true => (self.all, held.total == 0),
            false if own == 0 => (amount, total <= self.all),
            false => (
                amount,
                own + amount <= self.of_one && total <= self.all - self.reserve,
            ),
        };
        if !is_allowed {
            return None;
        }
        held.total += amount;
        *held.by_principal.entry(principal.to_owned()).or_default() += amount;
        Some(Share {
            of: Arc::clone(self),
            principal: principal.to_owned(),
            amount,
        })
    }

    /// Takes `amount` for a principal, waiting up to `longest`.
    pub(crate) async fn take(
        self: &Arc<Shares>,
        principal: &str,
        amount: usize,
        longest: Duration,
    ) -> Option<Share> {
        let taken = async {
            loop {
                let mut given_back = pin!(self.given_back.notified());
                // Start listening before trying, so nothing given back in between goes unnoticed.
                given_back.as_mut().enable();
                if let Some(share) = self.try_take(principal, amount) {
                    return share;
                }
                given_back.await;
            }
        };
        timeout(longest, taken).await.ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.of.locked();
        held.total -= self.amount;
        if let Some(own) = held.by_principal.get_mut(&self.principal) {
            *own -= self.amount;
            if *own == 0 {
                held.by_principal.remove(&self.principal);
            }
        }
        drop(held);
        self.of.given_back.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps taking single units for `principal` until refused.
    fn fill(shares: &Arc<Shares>, principal: &str) -> Vec<Share> {
        std::iter::from_fn(|| shares.try_take(principal, 1)).collect()
    }

    #[test]
    fn one_principal_has_a_part_and_the_last_of_it_is_for_those_without_any() {
        let shares = Shares::new(100);
        let held: Vec<Vec<Share>> = ["a", "b", "c", "d", "e"]
            .map(|one| fill(&shares, one))
            .into();
        let sizes = Vec::from_iter(held.iter().map(Vec::len));
        assert_eq!(sizes, [25, 25, 25, 15, 1]);
        let late = Vec::from_iter((0..20).map_while(|n| shares.try_take(&n.to_string(), 1)));
        assert_eq!(late.len(), 9);
        drop((held, late));
        assert_eq!(shares.locked().total, 0);
        assert!(shares.locked().by_principal.is_empty());
        assert_eq!(fill(&shares, "a").len(), 25);
    }

    #[tokio::test]
    async fn more_than_a_part_waits_until_nobody_else_has_any() {
        let shares = Shares::new(100);
        let wait = Duration::from_secs(60);
        let small = shares.try_take("a", 1).unwrap();
        assert!(shares.try_take("b", 1_000).is_none());
        let large = shares.take("b", 1_000, wait);
        let (large, ()) = tokio::join!(large, async { drop(small) });
        let large = large.unwrap();
        assert!(shares.try_take("a", 1).is_none());
        drop(large);
        assert!(shares.try_take("a", 1).is_some());
    }
}
