//! How long a load may take.
//!
//! A load has a low priority, so on a busy machine its process can wait much longer than it works. Only work ends it
//! early: a good package must not be refused because the machine was busy.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How many times the limit a load may take on the clock, if its process had too little of a processor.
const WAIT_FACTOR: u32 = 10;
/// How often the processor time is read after the limit.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The unit of processor time in `/proc`, the same on every architecture that the host is built for.
const TICKS_PER_SECOND: u64 = 100;

/// Returns when the load of the process `pid` is too slow.
pub(super) async fn is_over(pid: Option<u32>, limit: Duration) {
    let begun = Instant::now();
    sleep(limit).await;
    while !is_too_slow(begun.elapsed(), pid.and_then(processor_time), limit) {
        sleep(CHECK_INTERVAL.min(limit)).await;
    }
}

/// Pure: whether a load has taken `limit` both on the clock and in processor time. Where the processor time cannot be
/// read, the clock decides alone.
fn is_too_slow(elapsed: Duration, used: Option<Duration>, limit: Duration) -> bool {
    elapsed >= limit * WAIT_FACTOR || elapsed >= limit && used.is_none_or(|used| used >= limit)
}

/// Returns the processor time of all threads of a process so far; none without `/proc`.
fn processor_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    read_processor_time(&stat)
}

/// Pure: the processor time in a line of `/proc/PID/stat`. The name of the program can hold spaces and parentheses.
fn read_processor_time(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_ascii_whitespace().skip(11);
    let mut ticks = || times.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some(Duration::from_millis(
        (user + system) * 1_000 / TICKS_PER_SECOND,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_the_sum_of_user_and_system_time() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(read_processor_time(stat), Some(Duration::from_secs(3)));
        for broken in ["", "7 (a", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4 1 0 0 0 x 5"] {
            assert_eq!(read_processor_time(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_process_that_waits_has_ten_times_as_long_as_one_that_works() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        for (elapsed, used, expected) in [
            (1, Some(1), false),
            (2, Some(1), false),
            (2, Some(2), true),
            (2, None, true),
            (19, Some(1), false),
            (20, Some(1), true),
        ] {
            let is = is_too_slow(minutes(elapsed), used.map(minutes), minutes(2));
            assert_eq!(is, expected, "{elapsed} {used:?}");
        }
    }

    #[test]
    fn the_processor_time_of_this_process_can_be_read() {
        if cfg!(target_os = "linux") {
            assert!(processor_time(std::process::id()).is_some());
        }
        assert_eq!(processor_time(u32::MAX), None);
    }
}
