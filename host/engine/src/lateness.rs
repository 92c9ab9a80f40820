//! Pure: which launches are late, and how late.
//!
//! After an outage a host has launches without end that are late. What is on time beside them has a share of its own: of the
//! slots that a transaction decides (`decide.rs`), of the permits (`shares.rs`), and of the launches that it claims (`choose.rs`).

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use serde::{Deserialize, Serialize};

/// Up to this long after its fire time, a launch is on time. Health reports a greater lag, too.
pub(crate) const ON_TIME_MAX: Duration = Duration::from_secs(10);

/// A slot that is undecided for longer, or a launch that is unclaimed for longer, is a sign of bad health.
pub(crate) const OVERDUE: Duration = Duration::from_secs(60);

/// Whether a launch is late at `now`: one that is caught up or backfilled always is, whenever it fires.
pub(crate) fn is_late(kind: LaunchKind, fire_time: Timestamp, now: Timestamp) -> bool {
    let for_past_slot = matches!(kind, LaunchKind::Catchup | LaunchKind::Backfill);
    for_past_slot || now.since(fire_time) >= ON_TIME_MAX
}

/// How late launches started, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Lag {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Lag {
    /// Return the lag of launches, each with its fire time and its start.
    pub fn of(launches: impl IntoIterator<Item = (Timestamp, Timestamp)>) -> Lag {
        let lags = launches.into_iter();
        Lag::of_times(lags.map(|(fire_time, started_at)| started_at.since(fire_time)))
    }

    /// Return the percentiles of waiting times.
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
