//! The signals of the operating system that commands wait for.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{Result, failed};

/// Receive signals of this kind from now on, in place of their usual effect.
pub(crate) fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| failed!("signals cannot be received: {error}"))
}

/// The signals that stop a command: Ctrl-C and SIGTERM.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Receive both signals from now on.
    pub(crate) fn listen() -> Result<StopSignals> {
        Ok(StopSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Wait for the next of them.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
