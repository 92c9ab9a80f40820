//! Whether this host claims launches. A drained host does not.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{RwLock, RwLockReadGuard};

/// Lets transactions that claim begin, until it is closed.
#[derive(Default)]
pub(crate) struct ClaimGate {
    is_closed: AtomicBool,
    /// Read by each transaction that claims, until it has ended.
    claiming: RwLock<()>,
}

impl ClaimGate {
    /// Returns what a transaction that claims holds until its end; none while the gate is closed.
    pub(crate) async fn enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let entered = self.claiming.read().await;
        (!self.is_closed.load(Ordering::SeqCst)).then_some(entered)
    }

    /// Close the gate, and wait until each transaction that entered before has ended.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        drop(self.claiming.write().await);
    }

    pub(crate) fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn a_closed_gate_has_no_claim_behind_it() {
        let gate = ClaimGate::default();
        let entered = gate.enter().now_or_never().flatten();
        assert!(entered.is_some());
        let mut closing = std::pin::pin!(gate.close());
        assert!(
            closing.as_mut().now_or_never().is_none(),
            "a claim is under way"
        );
        assert!(
            gate.enter().now_or_never().flatten().is_none(),
            "no other begins meanwhile"
        );
        drop(entered);
        assert!(closing.now_or_never().is_some());
        assert!(gate.enter().now_or_never().flatten().is_none());
        gate.open();
        assert!(gate.enter().now_or_never().flatten().is_some());
    }
}
