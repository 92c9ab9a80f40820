//! Stopping a call from outside.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A way to stop a call from outside.
///
/// Cheap to clone; every clone speaks of the same call.
#[derive(Clone, Default)]
pub struct StopSignal(Arc<Flags>);

#[derive(Default)]
struct Flags {
    requested: AtomicBool,
    cancelled: AtomicBool,
    dropped: AtomicBool,
    on_drop: Notify,
}

impl StopSignal {
    /// Ask the task to stop: its `cancel-requested` answers true from now on.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::Release);
    }

    /// Ask the task to stop, because its launch is to end before its time.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.request();
    }

    /// Drop the call now, refusing whatever it still tries; its report says `cancelled`.
    pub fn drop_now(&self) {
        self.request();
        self.0.dropped.store(true, Ordering::Release);
        self.0.on_drop.notify_waiters();
    }

    /// Whether the task was asked to stop.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Whether the launch is to end before its time.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Whether the call is to be dropped.
    pub fn is_dropped(&self) -> bool {
        self.0.dropped.load(Ordering::Acquire)
    }

    /// Wait until the call is to be dropped.
    pub async fn dropped(&self) {
        let mut notified = std::pin::pin!(self.0.on_drop.notified());
        // Enlist first and look second, so that a `drop_now` in between is not missed.
        notified.as_mut().enable();
        if !self.is_dropped() {
            notified.await;
        }
    }
}

impl fmt::Debug for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopSignal")
            .field("requested", &self.is_requested())
            .field("dropped", &self.is_dropped())
            .finish()
    }
}
