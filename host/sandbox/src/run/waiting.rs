//! Waiting for a guest's function within its limits of time.

use std::time::Duration;

use crate::stop_signal::StopSignal;

/// How a guest's function ended.
pub(crate) enum Ended<T> {
    Returned(T),
    Broke(wasmtime::Error),
    /// It has used up its processor time.
    CpuSpent,
    TimedOut,
    Dropped,
}

/// Await a guest's function until `timeout`, or until `stop` drops the call. `calling` gives none when the processor
/// time is used up.
///
/// A computing guest yields at every tick of the epoch, and a waiting one is suspended in the host. Either way control
/// comes back here, and dropping the future ends the guest.
pub(crate) async fn bounded<T>(
    calling: impl Future<Output = Option<wasmtime::Result<T>>>,
    timeout: Duration,
    stop: &StopSignal,
) -> Ended<T> {
    tokio::select! {
        // A finished call counts as finished, even in its last moment. Most calls end at their first poll, and set no
        // timer.
        biased;
        returned = calling => match returned {
            Some(Ok(value)) => Ended::Returned(value),
            Some(Err(error)) => Ended::Broke(error),
            None => Ended::CpuSpent,
        },
        () = stop.dropped() => Ended::Dropped,
        () = tokio::time::sleep(timeout) => Ended::TimedOut,
    }
}
