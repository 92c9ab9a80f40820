//! Sensors made of nothing but their names and the time.

use std::ops::RangeInclusive;
use std::time::Duration;

use campanile_sdk::{Run, Timestamp};
use serde::{Deserialize, Serialize};

use crate::checksum::fnv1a;

/// What a sensor can measure, in thousandths of a degree Celsius.
pub const MILLICELSIUS_RANGE: RangeInclusive<i64> = -10_000..=35_000;

/// How far apart a sensor's readings are, in seconds, unless the interval is long.
const STEP_SECONDS: u64 = 5;

/// Of one sensor in one run: after a long downtime the readings are further apart, not more.
const READINGS_MAX: u64 = 120;

/// One value of one sensor.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reading {
    pub sensor: String,
    pub at: Timestamp,
    pub millicelsius: i64,
}

/// The run's own interval, or the minute that ends with the slot when the run has none.
pub fn interval(run: &Run) -> (Timestamp, Timestamp) {
    run.interval().unwrap_or_else(|| {
        let until = run.original_scheduled_time();
        (Timestamp::new(until.unix_seconds() - 60, 0), until)
    })
}

/// Every sensor's readings after `after`, up to and including `until`.
pub fn read(sensors: &[String], after: Timestamp, until: Timestamp) -> Vec<Reading> {
    let span = until.since(after).as_secs();
    let step = STEP_SECONDS.max(span.div_ceil(READINGS_MAX));
    sensors
        .iter()
        .flat_map(|sensor| {
            (1..=span / step).map(move |nth| {
                let at = after.plus(Duration::from_secs(nth * step));
                Reading {
                    sensor: sensor.clone(),
                    at,
                    millicelsius: measure(sensor, at),
                }
            })
        })
        .collect()
}

fn measure(sensor: &str, at: Timestamp) -> i64 {
    let hash = fnv1a(format!("{sensor} {}", at.unix_seconds()).as_bytes());
    let (low, high) = (*MILLICELSIUS_RANGE.start(), *MILLICELSIUS_RANGE.end());
    // The span is positive and small, so the remainder fits.
    low + i64::try_from(hash % high.abs_diff(low)).unwrap_or(0)
}
