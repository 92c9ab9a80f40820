//! Simulated sensors, whose readings are computed from their names and the time.

use std::ops::RangeInclusive;
use std::time::Duration;

use campanile_sdk::{Run, Timestamp};
use serde::{Deserialize, Serialize};

use crate::checksum::fnv1a;

/// The range of a sensor, in thousandths of a degree Celsius.
pub const MILLICELSIUS_RANGE: RangeInclusive<i64> = -10_000..=35_000;

/// The minimum time between two readings of a sensor, in seconds.
const STEP_SECONDS: u64 = 5;

/// The maximum number of readings of a sensor in a run. A longer interval increases the time between them.
const READINGS_MAX: u64 = 120;

/// A reading of a sensor.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reading {
    pub sensor: String,
    pub at: Timestamp,
    pub millicelsius: i64,
}

/// Return the run's interval, or the minute before the slot if the run has none.
pub fn interval(run: &Run) -> (Timestamp, Timestamp) {
    run.interval().unwrap_or_else(|| {
        let until = run.original_scheduled_time();
        (Timestamp::new(until.unix_seconds() - 60, 0), until)
    })
}

/// Return the readings of all sensors after `after`, up to and including `until`.
pub fn read(sensors: &[String], after: Timestamp, until: Timestamp) -> Vec<Reading> {
    let span = until.since(after).as_secs();
    let step = STEP_SECONDS.max(span.div_ceil(READINGS_MAX));
    sensors
        .iter()
        .flat_map(|sensor| {
            (1..=span / step).map(move |index| {
                let at = after.plus(Duration::from_secs(index * step));
                Reading {
                    sensor: sensor.clone(),
                    at,
                    millicelsius: measure(sensor, at),
                }
            })
        })
        .collect()
}

/// Return the value of a sensor, a hash within the range.
fn measure(sensor: &str, at: Timestamp) -> i64 {
    let hash = fnv1a(format!("{sensor} {}", at.unix_seconds()).as_bytes());
    let (low, high) = (*MILLICELSIUS_RANGE.start(), *MILLICELSIUS_RANGE.end());
    // The remainder is below 45 000, so it fits.
    low + i64::try_from(hash % high.abs_diff(low)).unwrap_or(0)
}
