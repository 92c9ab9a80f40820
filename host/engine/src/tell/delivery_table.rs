//! The delivery table: the deliveries of messages that are under way, and until when this host may continue them.
//!
//! Another host may deliver the messages of a host that is marked as dead. So a delivery ends with the lease of its host, by
//! the monotonic clock, as a run ends with its own lease. That is before other hosts may mark this one as dead.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use campanile_control::lock::lock;
use campanile_model::clock::{Clock, Monotonic};
use campanile_model::ids::MessageId;
use campanile_sandbox::StopSignal;

/// The deliveries of this host.
pub(crate) struct DeliveryTable {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the lease of this host ends for itself; none before it is on record.
    until: Option<Monotonic>,
    /// Counts the leases that were over before they were renewed. What was claimed under an earlier one is not delivered.
    lease: u64,
    /// By message, and the number of its delivery.
    stops: HashMap<(MessageId, i64), StopSignal>,
}

/// A delivery that is under way. It is untracked when this is dropped.
pub(crate) struct TrackedDelivery<'t> {
    table: &'t DeliveryTable,
    key: (MessageId, i64),
    /// Stops the delivery when the lease of its host is over.
    pub(crate) stop: StopSignal,
}

impl Drop for TrackedDelivery<'_> {
    fn drop(&mut self) {
        self.table.state().stops.remove(&self.key);
    }
}

impl DeliveryTable {
    /// Create a table whose lease ends by the monotonic time of `clock`.
    pub(crate) fn new(clock: Clock) -> DeliveryTable {
        DeliveryTable {
            clock,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the number of the lease under which this host may claim messages and deliver them; none while it may not.
    pub(crate) fn lease(&self) -> Option<u64> {
        let state = self.state();
        let is_held = state
            .until
            .is_some_and(|until| self.clock.monotonic() < until);
        is_held.then_some(state.lease)
    }

    /// Track a delivery of a message that was claimed under `lease`. It is dropped when that lease is over already, also when
    /// this host has a new one: another host may have begun the delivery again meanwhile.
    pub(crate) fn track(
        &self,
        message: MessageId,
        attempt: i64,
        lease: u64,
    ) -> TrackedDelivery<'_> {
        let stop = StopSignal::default();
        let key = (message, attempt);
        let mut state = self.state();
        match state.until {
            Some(until) if lease == state.lease => stop.set_lease(&self.clock, until),
            _ => stop.drop_now(),
        }
        state.stops.insert(key, stop.clone());
        drop(state);
        TrackedDelivery {
            table: self,
            key,
            stop,
        }
    }

    /// Note that the lease of this host ends at `until`. A delivery whose lease was over before stays dropped.
    pub(crate) fn renew(&self, until: Monotonic) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        if state.until.is_some_and(|held| held <= now) {
            state.lease += 1;
        }
        for stop in state.stops.values() {
            // `is_dropped` drops a delivery whose lease is over.
            if !stop.is_dropped() {
                stop.set_lease(&self.clock, until);
            }
        }
        state.until = Some(until);
    }

    /// Drop the deliveries whose lease is over.
    pub(crate) fn drop_expired(&self) {
        for stop in self.state().stops.values() {
            stop.is_dropped();
        }
    }

    /// Drop all deliveries: another host may have begun them again.
    pub(crate) fn drop_all(&self) {
        let mut state = self.state();
        state.lease += 1;
        for stop in state.stops.values() {
            stop.drop_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use campanile_model::clock::Timestamp;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn deliveries_end_with_the_lease_of_their_host() {
        let clock = Clock::simulated(at(0));
        let monotonic = |seconds| Clock::simulated(at(seconds)).monotonic();
        let table = DeliveryTable::new(clock.clone());
        assert_eq!(table.lease(), None);
        assert!(table.track(MessageId::FIRST, 1, 0).stop.is_dropped());
        table.renew(monotonic(10));
        let lease = table.lease().unwrap();
        let first = table.track(MessageId::FIRST, 2, lease);
        clock.advance_to(at(9));
        table.renew(monotonic(20));
        clock.advance_to(at(19));
        assert!(!first.stop.is_dropped());
        assert_eq!(table.lease(), Some(lease));
        clock.advance_to(at(20));
        assert_eq!(table.lease(), None);
        // The host was suspended, and its heartbeat comes first.
        table.renew(monotonic(30));
        assert!(first.stop.is_dropped());
        // What it had claimed before, without having begun, is not delivered either.
        assert!(table.track(MessageId::FIRST, 3, lease).stop.is_dropped());
        let lease = table.lease().unwrap();
        let second = table.track(MessageId::FIRST, 4, lease);
        table.drop_expired();
        assert!(!second.stop.is_dropped());
        table.drop_all();
        assert!(second.stop.is_dropped());
        assert!(table.track(MessageId::FIRST, 5, lease).stop.is_dropped());
        drop((first, second));
        assert!(table.state().stops.is_empty());
    }
}
