//! Memory held for one run: contexts, outputs, and calls awaiting their record.

use std::sync::Arc;

use campanile_package::PackageLoader;
use campanile_sandbox::{KEPT_FREE_BYTES, Kept, KeptShare, StopSignal};

/// A run's charge in the sandbox's ledger, released once the end of the run is recorded.
///
/// A run only waits while starting, when it holds nothing yet, so runs can't deadlock waiting for each other.
pub(crate) struct KeptOfRun {
    values: Kept,
    /// Bytes waited for.
    room: u64,
    /// Calls not recorded yet.
    calls: Vec<KeptShare>,
}

impl KeptOfRun {
    pub(crate) fn new(loader: &Arc<PackageLoader>, package: &str) -> KeptOfRun {
        KeptOfRun {
            values: loader.sandbox().nothing_kept(package),
            room: KEPT_FREE_BYTES,
            calls: Vec::new(),
        }
    }

    /// Whether a run with `bytes` of values can begin without waiting.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        needed(bytes) <= self.room
    }

    /// Waits for room for `bytes` of values plus one call's context, which copies them. Returns none if the run is dropped while
    /// waiting.
    ///
    /// # Errors
    ///
    /// Returns a sentence if no run of the package can ever have that much.
    pub(crate) async fn wait_for(
        &mut self,
        bytes: usize,
        stop: &StopSignal,
    ) -> Option<Result<(), String>> {
        if self.has_room(bytes) {
            return Some(Ok(()));
        }
        let needed = needed(bytes);
        let waited = tokio::select! {
            biased;
            () = stop.dropped() => return None,
            waited = self.values.wait_for(needed) => waited,
        };
        self.room = needed;
        Some(waited)
    }

    /// Sets the charge for values and contexts to `bytes`.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the package can't have that much right now.
    pub(crate) fn cover(&mut self, bytes: usize) -> Result<(), String> {
        self.values.cover(bytes as u64)
    }

    /// Keeps a call's charge until [`KeptOfRun::calls_are_recorded`].
    pub(crate) fn add_call(&mut self, share: KeptShare) {
        if !share.is_empty() {
            self.calls.push(share);
        }
    }

    pub(crate) fn calls_are_recorded(&mut self) {
        self.calls.clear();
    }
}

fn needed(bytes: usize) -> u64 {
    (bytes as u64).saturating_mul(2)
}
