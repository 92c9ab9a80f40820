//! The limits of time: the processor time of a call, and waiting for a guest's function.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

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
/// comes back here, and dropping the future ends the guest. A call whose lease is over, perhaps while the process was
/// suspended, does not continue.
pub(crate) async fn bounded<T>(
    calling: impl Future<Output = Option<wasmtime::Result<T>>>,
    timeout: Duration,
    stop: &StopSignal,
) -> Ended<T> {
    let mut calling = pin!(calling);
    let leased = poll_fn(|cx| {
        if stop.is_dropped() {
            Poll::Ready(Ended::Dropped)
        } else {
            calling.as_mut().poll(cx).map(|returned| match returned {
                Some(Ok(value)) => Ended::Returned(value),
                Some(Err(_)) if stop.is_dropped() => Ended::Dropped,
                Some(Err(error)) => Ended::Broke(error),
                None => Ended::CpuSpent,
            })
        }
    });
    tokio::select! {
        // A finished call counts as finished, even in its last moment. Most calls end at their first poll, and set no
        // timer.
        biased;
        ended = leased => ended,
        () = stop.dropped() => Ended::Dropped,
        () = tokio::time::sleep(timeout) => Ended::TimedOut,
    }
}

/// Await `future` and add to `spent` the processor time of the thread inside each poll. Return none when it has spent
/// `most` and is not done.
///
/// The time covers the guest's code and its host calls. It does not cover waiting, other guests on the same thread, or
/// work that a host call hands to another thread, such as reading a file. A computing guest is polled at every tick of
/// the epoch. One reading of the thread's clock costs about a quarter of a microsecond.
pub(crate) async fn metered<F: Future>(
    future: F,
    spent: &mut Duration,
    most: Option<Duration>,
) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let before = thread_time();
        let polled = future.as_mut().poll(cx);
        *spent += thread_time().saturating_sub(before);
        match polled {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if most.is_some_and(|most| *spent >= most) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Returns the processor time that this thread has used.
pub(crate) fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn computing_counts_and_waiting_does_not() {
        let mut spent = Duration::ZERO;
        let slept = tokio::time::sleep(Duration::from_millis(60));
        let most = Some(Duration::from_millis(20));
        assert_eq!(metered(slept, &mut spent, most).await, Some(()));
        assert!(spent < Duration::from_millis(20), "waiting cost {spent:?}");

        let mut spent = Duration::ZERO;
        metered(
            async {
                let start = thread_time();
                while thread_time() - start < Duration::from_millis(20) {}
            },
            &mut spent,
            None,
        )
        .await;
        assert!(spent >= Duration::from_millis(20), "only {spent:?}");
    }

    #[tokio::test]
    async fn computing_ends_when_all_is_spent() {
        let mut spent = Duration::ZERO;
        let forever = async {
            loop {
                tokio::task::yield_now().await;
            }
        };
        let most = Duration::from_millis(5);
        let ended: Option<()> = metered(forever, &mut spent, Some(most)).await;
        assert_eq!(ended, None);
        assert!(spent >= most);
    }
}
