//! Stopping a call from outside.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use campanile_model::clock::{Clock, Monotonic};
use tokio::sync::watch;

/// A way to stop a call from outside. Clones stop the same call.
///
/// A call with a lease also stops by itself when its lease is over. It then makes no outward call, even in a process
/// that was suspended and in which nothing else has noticed the time yet.
#[derive(Clone, Default)]
pub struct StopSignal {
    flags: Arc<watch::Sender<Flags>>,
    lease: Arc<OnceLock<Lease>>,
}

#[derive(Debug, Default)]
struct Flags {
    requested: bool,
    cancelled: bool,
    dropped: bool,
}

/// Until when the call may continue, in microseconds of the clock's monotonic time.
struct Lease {
    clock: Clock,
    until_us: AtomicI64,
}

impl StopSignal {
    /// Let the call continue until `until` at most. A later call of this function renews the lease.
    pub fn set_lease(&self, clock: &Clock, until: Monotonic) {
        let lease = self.lease.get_or_init(|| Lease {
            clock: clock.clone(),
            until_us: AtomicI64::new(until.micros()),
        });
        lease.until_us.store(until.micros(), Ordering::Release);
    }

    /// Ask the task to stop: its `cancel-requested` answers true from now on.
    pub fn request(&self) {
        self.flags.send_modify(|flags| flags.requested = true);
    }

    /// Ask the task to stop because its launch was cancelled.
    pub fn cancel(&self) {
        self.flags.send_modify(|flags| flags.cancelled = true);
        self.request();
    }

    /// Drop the call now and refuse everything that it still tries. Its report says `cancelled`.
    pub fn drop_now(&self) {
        self.request();
        self.flags.send_modify(|flags| flags.dropped = true);
    }

    /// Whether the task was asked to stop.
    pub fn is_requested(&self) -> bool {
        self.flags.borrow().requested
    }

    /// Whether the launch was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.flags.borrow().cancelled
    }

    /// Whether the call is to be dropped. A call whose lease is over is dropped by this question.
    pub fn is_dropped(&self) -> bool {
        if self.flags.borrow().dropped {
            return true;
        }
        let is_over = self.is_lease_over();
        if is_over {
            self.drop_now();
        }
        is_over
    }

    /// Whether the call has a lease that is over.
    pub fn is_lease_over(&self) -> bool {
        let lease = self.lease.get();
        lease.is_some_and(|lease| {
            lease.clock.monotonic().micros() >= lease.until_us.load(Ordering::Acquire)
        })
    }

    /// Wait until the call is to be dropped.
    pub async fn dropped(&self) {
        // It cannot fail: `self` holds the sender.
        let _ = self.flags.subscribe().wait_for(|flags| flags.dropped).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use campanile_model::clock::Timestamp;

    use super::*;

    #[test]
    fn a_call_stops_by_itself_when_its_lease_is_over() {
        let clock = Clock::simulated(Timestamp::EPOCH);
        let second = |n| clock.monotonic().plus(Duration::from_secs(n));
        let (end, later) = (second(10), second(20));
        let stop = StopSignal::default();
        assert!(!stop.is_dropped(), "a call without a lease continues");
        stop.set_lease(&clock, end);
        let clone = stop.clone();
        clock.advance_to(Timestamp::from_micros(9_999_999));
        assert!(!clone.is_dropped());
        clone.set_lease(&clock, later);
        clock.advance_to(Timestamp::from_micros(19_999_999));
        assert!(!stop.is_dropped() && !stop.is_requested());
        clock.advance_to(Timestamp::from_micros(20_000_000));
        assert!(stop.is_dropped() && clone.is_requested());
        // A renewal that comes too late does not bring it back.
        stop.set_lease(&clock, later.plus(Duration::from_secs(30)));
        assert!(clone.is_dropped());
    }
}
