//! Pure: which launches are late, and how late.
//!
//! After an outage, a host faces an endless supply of late launches. Whatever is on time gets its own share: of the slots decided
//! in a transaction (`decide.rs`), of the permits (`shares.rs`), and of the launches claimed (`choose.rs`).

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use serde::{Deserialize, Serialize};

/// A launch is on time up to this long after its fire time. Health also reports lags beyond it.
pub const ON_TIME_MAX: Duration = Duration::from_secs(10);

/// Slots undecided, or launches unclaimed, for longer than this are a sign of bad health.
pub const OVERDUE: Duration = Duration::from_secs(60);

/// Whether a launch is late at `now`. Catching up and backfilling always count as late, whatever the fire time.
pub fn is_late(kind: LaunchKind, fire_time: Timestamp, now: Timestamp) -> bool {
    let for_past_slot = matches!(kind, LaunchKind::Catchup | LaunchKind::Backfill);
    for_past_slot || now.since(fire_time) >= ON_TIME_MAX
}

/// A run that has lasted this many times as long as usual looks stuck, unless it's shorter than [`STUCK_MIN`].
const STUCK_TIMES: u32 = 3;
const STUCK_MIN: Duration = Duration::from_secs(60);

/// Whether a run that has lasted so long looks stuck, given how long those of its schedule usually take.
pub fn looks_stuck(lasted: Duration, usual: Duration) -> bool {
    lasted > (usual * STUCK_TIMES).max(STUCK_MIN)
}

/// How late launches started, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Lag {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Lag {
    /// Returns the lag of launches, given as pairs of fire time and start.
    pub fn of(launches: impl IntoIterator<Item = (Timestamp, Timestamp)>) -> Lag {
        let lags = launches.into_iter();
        Lag::of_times(lags.map(|(fire_time, started_at)| started_at.since(fire_time)))
    }

    /// Returns the percentiles of waiting times.
    pub fn of_times(times: impl IntoIterator<Item = Duration>) -> Lag {
        let lags = times.into_iter();
        let mut lags: Vec<f64> = lags.map(|lag| lag.as_micros() as f64 / 1e3).collect();
        lags.sort_by(f64::total_cmp);
        let at = |share: f64| -> f64 {
            let place = (lags.len() as f64 * share).ceil() as usize;
            lags.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Lag {
            p50: at(0.50),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_looks_stuck_after_three_times_as_long_as_usual_and_a_minute() {
        let seconds = Duration::from_secs;
        for (lasted, usual, expected) in [
            (60, 1, false),
            (61, 1, true),
            (300, 100, false),
            (301, 100, true),
            (61, 0, true),
        ] {
            let is = looks_stuck(seconds(lasted), seconds(usual));
            assert_eq!(is, expected, "{lasted} s of {usual} s");
        }
    }

    #[test]
    fn lag_percentiles_are_of_the_launches_themselves() {
        let launches = (1..=200).map(|ms| {
            let fire_time = Timestamp::EPOCH;
            (fire_time, fire_time.plus(Duration::from_millis(ms)))
        });
        let lag = Lag::of(launches);
        assert_eq!((lag.p50, lag.p99, lag.max), (100.0, 198.0, 200.0));
        assert_eq!(Lag::of([]), Lag::default());
    }
}
