//! Stopping a call from outside.

use std::sync::Arc;

use tokio::sync::watch;

/// A way to stop a call from outside. Clones stop the same call.
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<watch::Sender<Flags>>);

#[derive(Debug, Default)]
struct Flags {
    requested: bool,
    cancelled: bool,
    dropped: bool,
}

impl StopSignal {
    /// Ask the task to stop: its `cancel-requested` answers true from now on.
    pub fn request(&self) {
        self.0.send_modify(|flags| flags.requested = true);
    }

    /// Ask the task to stop because its launch was cancelled.
    pub fn cancel(&self) {
        self.0.send_modify(|flags| flags.cancelled = true);
        self.request();
    }

    /// Drop the call now and refuse everything that it still tries. Its report says `cancelled`.
    pub fn drop_now(&self) {
        self.request();
        self.0.send_modify(|flags| flags.dropped = true);
    }

    /// Whether the task was asked to stop.
    pub fn is_requested(&self) -> bool {
        self.0.borrow().requested
    }

    /// Whether the launch was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.borrow().cancelled
    }

    /// Whether the call is to be dropped.
    pub fn is_dropped(&self) -> bool {
        self.0.borrow().dropped
    }

    /// Wait until the call is to be dropped.
    pub async fn dropped(&self) {
        // It cannot fail: `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|flags| flags.dropped).await;
    }
}
