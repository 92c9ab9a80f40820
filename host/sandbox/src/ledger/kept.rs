//! Host memory charged to a package's calls and runs: captured output, logs, results and buffered effects.
//!
//! Holders never wait for more, which rules out deadlock: at the limit, output is cut and results are refused.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use campanile_model::text::size_rounded;

use crate::ledger::fair_shares::{FairShare, FairShares};

/// Free of charge for each call or run, without touching the ledger or its lock. It comes out of the host's own reserve.
pub const KEPT_FREE_BYTES: u64 = 4 << 10;
/// The rest is charged in steps of this size.
const STEP_BYTES: u64 = 16 << 10;

/// Charge for one call or run, released on drop.
pub struct Kept {
    shares: Arc<FairShares>,
    package: String,
    bytes: u64,
    /// None until the free bytes are used up.
    share: Option<FairShare>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (package, bytes) = (&self.package, self.bytes);
        write!(f, "Kept({bytes} bytes of {package})")
    }
}

impl Kept {
    pub(crate) fn new(shares: &Arc<FairShares>, package: &str) -> Kept {
        Kept {
            shares: Arc::clone(shares),
            package: package.to_owned(),
            bytes: 0,
            share: None,
        }
    }

    /// Sets the total to `bytes`, growing or shrinking the charge.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the package can't grow that far right now, leaving the charge unchanged.
    pub fn cover(&mut self, bytes: u64) -> Result<(), String> {
        let (charged, charge) = (charge_of(self.bytes), charge_of(bytes));
        if charge > charged {
            self.charge(charge - charged)
                .map_err(|()| self.refusal(bytes - self.bytes))?;
        } else if let Some(share) = &mut self.share {
            share.give_back(charged - charge);
        }
        self.bytes = bytes;
        Ok(())
    }

    fn charge(&mut self, more: u64) -> Result<(), ()> {
        let charged = match &mut self.share {
            Some(share) => share.try_grow(more, u64::MAX),
            None => {
                self.share = self.shares.try_acquire(&self.package, more, u64::MAX);
                self.share.is_some()
            }
        };
        charged.then_some(()).ok_or(())
    }

    /// Releases the current charge, then waits until `bytes` can be charged.
    ///
    /// # Errors
    ///
    /// Returns a sentence if no package can ever have that much.
    pub async fn wait_for(&mut self, bytes: u64) -> Result<(), String> {
        (self.share, self.bytes) = (None, 0);
        let charge = charge_of(bytes);
        if charge > 0 {
            let share = self.shares.acquire(&self.package, charge, u64::MAX).await;
            self.share = Some(share.ok_or_else(|| self.refusal(bytes))?);
        }
        self.bytes = bytes;
        Ok(())
    }

    fn refusal(&self, more: u64) -> String {
        format!(
            "the host keeps {} in memory for the calls and runs of this package and can't keep {} more now: its share of the {} for all packages, a quarter of `memory_total`, is used up; let fewer run at once, print and return less, or raise `memory_total` under `[sandbox]`",
            size_rounded(self.shares.held(&self.package)),
            size_rounded(more),
            size_rounded(self.shares.total()),
        )
    }

    /// Freezes the current charge.
    pub fn into_share(self) -> KeptShare {
        KeptShare(self.share.map(Arc::new))
    }
}

/// Returns the ledger charge for `bytes`.
fn charge_of(bytes: u64) -> u64 {
    let beyond = bytes.saturating_sub(KEPT_FREE_BYTES);
    beyond.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES)
}

/// Charge for what a finished call left behind. Keep it alongside those bytes; dropping the last clone releases it.
#[derive(Clone, Default)]
pub struct KeptShare(Option<Arc<FairShare>>);

impl KeptShare {
    /// Whether nothing is charged to the ledger.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for KeptShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptShare")
    }
}

/// Reports compare by content, ignoring charges.
impl PartialEq for KeptShare {
    fn eq(&self, _: &KeptShare) -> bool {
        true
    }
}

/// Charge for a running call, shared by everything buffering on its behalf.
pub(crate) struct KeptOfCall(Mutex<Kept>);

impl KeptOfCall {
    pub(crate) fn new(kept: Kept) -> Arc<KeptOfCall> {
        Arc::new(KeptOfCall(Mutex::new(kept)))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `more` bytes to the charge.
    ///
    /// # Errors
    ///
    /// As for [`Kept::cover`].
    pub(crate) fn keep(&self, more: u64) -> Result<(), String> {
        let mut kept = self.lock();
        let bytes = kept.bytes.saturating_add(more);
        kept.cover(bytes)
    }

    /// Subtracts `bytes` from the charge.
    pub(crate) fn release(&self, bytes: u64) {
        let mut kept = self.lock();
        let bytes = kept.bytes.saturating_sub(bytes);
        // Shrinking never fails.
        let _ = kept.cover(bytes);
    }

    /// Charges `bytes` until the guard is dropped.
    ///
    /// # Errors
    ///
    /// As for [`Kept::cover`].
    pub(crate) fn keep_for_now(self: &Arc<Self>, bytes: u64) -> Result<KeptForNow, String> {
        let mut kept = self.nothing_for_now();
        kept.grow(bytes)?;
        Ok(kept)
    }

    pub(crate) fn nothing_for_now(self: &Arc<Self>) -> KeptForNow {
        KeptForNow {
            kept: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Ends the call, keeping only a charge for the `bytes` it left. Usually that shrinks the charge, though redacting secrets can
    /// lengthen a text.
    pub(crate) fn end(&self, bytes: u64) -> KeptShare {
        let mut kept = self.lock();
        let _ = kept.cover(bytes);
        let nothing = Kept::new(&kept.shares, "");
        std::mem::replace(&mut *kept, nothing).into_share()
    }
}

/// Temporary charge, released on drop.
pub(crate) struct KeptForNow {
    kept: Arc<KeptOfCall>,
    bytes: u64,
}

impl KeptForNow {
    /// Adds `more` bytes.
    ///
    /// # Errors
    ///
    /// As for [`Kept::cover`].
    pub(crate) fn grow(&mut self, more: u64) -> Result<(), String> {
        self.kept.keep(more)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for KeptForNow {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.kept.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::ledger::Ledger;

    const MIB: u64 = 1 << 20;

    /// Allows 1 MiB in total and 597 KiB per package.
    fn ledger() -> Ledger {
        Ledger::new(4 * MIB, 1_000, 1_000)
    }

    #[test]
    fn little_takes_nothing_of_the_ledger_and_much_is_taken_in_steps_and_given_back() {
        let ledger = ledger();
        let mut kept = ledger.nothing_kept("a");
        kept.cover(KEPT_FREE_BYTES).unwrap();
        assert_eq!(ledger.kept.held("a"), 0);
        kept.cover(KEPT_FREE_BYTES + 1).unwrap();
        assert_eq!(ledger.kept.held("a"), STEP_BYTES);
        kept.cover(100 << 10).unwrap();
        assert_eq!(ledger.kept.held("a"), 96 << 10);
        kept.cover(50 << 10).unwrap();
        assert_eq!(ledger.kept.held("a"), 48 << 10);
        kept.cover(0).unwrap();
        assert_eq!(ledger.kept.held("a"), 0);
    }

    #[test]
    fn what_a_package_can_not_have_is_refused_and_leaves_the_count_as_it_was() {
        let ledger = ledger();
        let (mut a, mut b) = (ledger.nothing_kept("a"), ledger.nothing_kept("b"));
        a.cover(MIB / 2).unwrap();
        let held = ledger.kept.held("a");
        let refusal = a.cover(MIB).unwrap_err();
        assert!(refusal.contains("keeps 512.0 KiB"), "{refusal}");
        assert!(refusal.contains("512.0 KiB more now"), "{refusal}");
        assert!(refusal.contains("1.0 MiB for all packages"), "{refusal}");
        assert_eq!(ledger.kept.held("a"), held);
        b.cover(100 << 10).unwrap();
        let share = a.into_share();
        let clone = share.clone();
        drop(share);
        assert_eq!(ledger.kept.held("a"), held);
        drop(clone);
        assert_eq!(ledger.kept.held("a"), 0);
    }

    #[test]
    fn one_that_waits_has_nothing_meanwhile_and_is_served_when_another_ends() {
        let ledger = ledger();
        let (mut first, mut second) = (ledger.nothing_kept("a"), ledger.nothing_kept("a"));
        first.cover(MIB / 2).unwrap();
        second.cover(64 << 10).unwrap();
        {
            let mut waits = pin!(second.wait_for(MIB / 2));
            let mut poll = || waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(poll().is_pending());
            assert_eq!(ledger.kept.held("a"), MIB / 2);
            drop(first);
            assert_eq!(poll(), Poll::Ready(Ok(())));
        }
        second.cover(MIB / 2).unwrap();
        let mut never = pin!(second.wait_for(2 * MIB));
        let polled = never.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Err(_))));
    }

    #[test]
    fn bytes_that_are_kept_for_a_wait_are_released_after_it() {
        let ledger = ledger();
        let kept = KeptOfCall::new(ledger.nothing_kept("a"));
        kept.keep(MIB / 4).unwrap();
        let held = ledger.kept.held("a");
        let now = kept.keep_for_now(MIB / 4).unwrap();
        assert!(kept.keep_for_now(MIB / 4).is_err());
        assert!(ledger.kept.held("a") > held);
        drop(now);
        assert_eq!(ledger.kept.held("a"), held);
        drop(kept.end(0));
        assert_eq!(ledger.kept.held("a"), 0);
    }
}
