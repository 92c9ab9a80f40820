//! How much processor a call used.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Await `future`, adding to `spent` the processor time of the thread inside each poll: the guest's code and
/// the host calls it made, and not the time in which it waited or another guest had the thread.
///
/// One reading of the thread's clock costs about a quarter of a microsecond. Work that a host call hands to
/// another thread, such as reading a file, is not seen.
pub(super) async fn metered<F: Future>(future: F, spent: &mut Duration) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let before = thread_time();
        let polled = future.as_mut().poll(cx);
        *spent += thread_time().saturating_sub(before);
        polled
    })
    .await
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn computing_counts_and_waiting_does_not() {
        let mut spent = Duration::ZERO;
        metered(tokio::time::sleep(Duration::from_millis(60)), &mut spent).await;
        assert!(spent < Duration::from_millis(20), "waiting cost {spent:?}");

        let mut spent = Duration::ZERO;
        metered(
            async {
                let start = thread_time();
                while thread_time() - start < Duration::from_millis(20) {}
            },
            &mut spent,
        )
        .await;
        assert!(spent >= Duration::from_millis(20), "only {spent:?}");
    }
}
