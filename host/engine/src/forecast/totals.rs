//! Totals of rows and starts.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Row;
use campanile_model::clock::Timestamp;
use campanile_store::LaunchStatus;

const MINUTE_US: i64 = 60_000_000;

/// The totals of a forecast, for one schedule or for all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    /// How many decisions to launch were not skipped later.
    pub launches: u64,
    /// How many slots are skipped, by reason; each slot of a range counts.
    pub skipped: BTreeMap<&'static str, u64>,
    pub first: Option<Timestamp>,
    /// The next slot when the forecast ends.
    pub next: Option<Timestamp>,
    pub starts: BTreeMap<Timestamp, u64>,
    /// The most runs at the same time, and when that was first.
    pub peak: usize,
    pub peak_at: Option<Timestamp>,
    /// The longest wait of a launch in the queue and for capacity.
    pub lag: Duration,
    /// The slot of that launch.
    pub lag_of: Option<Timestamp>,
}

impl Totals {
    pub(super) fn count(&mut self, row: &Row) {
        if row.status == LaunchStatus::Skipped {
            let reason = row.reason.unwrap_or_default();
            let slots = u64::try_from(row.slot_count).unwrap_or_default();
            *self.skipped.entry(reason).or_default() += slots;
        } else {
            self.launches += 1;
            self.first = self.first.into_iter().chain([row.scheduled_time]).min();
        }
    }

    pub(super) fn start(&mut self, now: Timestamp, lag: Duration, slot: Timestamp) {
        let minute = now.micros() - now.micros().rem_euclid(MINUTE_US);
        let minute = Timestamp::from_micros(minute);
        *self.starts.entry(minute).or_default() += 1;
        if lag > self.lag {
            self.lag = lag;
            self.lag_of = Some(slot);
        }
    }

    pub(super) fn running(&mut self, runs: usize, now: Timestamp) {
        if runs > self.peak {
            self.peak = runs;
            self.peak_at = Some(now);
        }
    }
}
