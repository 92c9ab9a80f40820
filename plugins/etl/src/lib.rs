//! Four tasks that pass data to each other.
//!
//! ```text
//! extract ──▶ transform ──▶ load
//!    └──────▶ audit
//! ```
//!
//! The readings of the simulated sensors are computed from their names and the time, so the same slot always gives
//! the same readings. The data that the tasks pass has a checksum, which the receiving task verifies.

mod checksum;
mod sensors;

use std::collections::BTreeMap;

use campanile_sdk::{Error, Package, Result, Run, Schedule, Task, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use checksum::Checked;
use sensors::{MILLICELSIUS_RANGE, Reading};

/// The context of `extract`.
#[derive(Deserialize)]
struct Params {
    /// The sensors to read.
    #[serde(default = "default_sensors")]
    sensors: Vec<String>,
}

fn default_sensors() -> Vec<String> {
    ["north", "east", "south", "west"].map(str::to_owned).into()
}

/// The output of `extract`.
#[derive(Serialize)]
struct Extracted {
    readings: usize,
    /// The interval that was read, from `after` (exclusive) to `until` (inclusive).
    after: Timestamp,
    until: Timestamp,
    checksum: String,
}

/// Read every sensor over the run's interval, and pass `readings` on.
fn extract(run: &Run, params: Params) -> Result<Extracted> {
    if params.sensors.is_empty() {
        return Err(Error::permanent(
            "`sensors` is empty; name at least one sensor, or remove the key",
        ));
    }
    let (after, until) = sensors::interval(run);
    let readings = sensors::read(&params.sensors, after, until);
    let count = readings.len();
    run.info(format!("{count} readings after {after} until {until}"));
    let checked = Checked::new(readings)?;
    let checksum = checked.checksum.clone();
    run.pass("readings", checked)?;
    Ok(Extracted {
        readings: count,
        after,
        until,
        checksum,
    })
}

/// The context of the tasks after `extract`.
#[derive(Deserialize)]
struct AfterExtract {
    readings: Checked<Vec<Reading>>,
}

/// The summary of one sensor over the interval, in thousandths of a degree Celsius.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Summary {
    readings: i64,
    min: i64,
    max: i64,
    mean: i64,
}

/// The output of `transform`.
#[derive(Serialize)]
struct Transformed {
    sensors: usize,
    readings: usize,
    checksum: String,
}

/// Summarize each sensor, and pass `summaries` on.
fn transform(run: &Run, context: AfterExtract) -> Result<Transformed> {
    let readings = context.readings.verify("readings")?;
    let mut summaries: BTreeMap<String, Summary> = BTreeMap::new();
    for reading in &readings {
        let value = reading.millicelsius;
        let summary = summaries.entry(reading.sensor.clone()).or_insert(Summary {
            readings: 0,
            min: value,
            max: value,
            mean: 0,
        });
        summary.readings += 1;
        summary.min = summary.min.min(value);
        summary.max = summary.max.max(value);
        // The sum of the readings, which is divided below.
        summary.mean += value;
    }
    for summary in summaries.values_mut() {
        summary.mean /= summary.readings;
    }
    let sensors = summaries.len();
    let checked = Checked::new(summaries)?;
    let checksum = checked.checksum.clone();
    run.pass("summaries", checked)?;
    Ok(Transformed {
        sensors,
        readings: readings.len(),
        checksum,
    })
}

/// The output of `audit`.
#[derive(Serialize)]
struct Audited {
    readings: usize,
    /// The number of readings outside the interval or the sensors' range, and of duplicates.
    faults: usize,
}

/// Check each reading. Depends only on `extract`, so it can run at the same time as `transform`.
fn audit(run: &Run, context: AfterExtract) -> Result<Audited> {
    let readings = context.readings.verify("readings")?;
    let (after, until) = sensors::interval(run);
    let mut seen = std::collections::BTreeSet::new();
    let faults = readings
        .iter()
        .filter(|reading| {
            let in_time = after < reading.at && reading.at <= until;
            let in_range = MILLICELSIUS_RANGE.contains(&reading.millicelsius);
            let first = seen.insert((&reading.sensor, reading.at));
            !(in_time && in_range && first)
        })
        .count();
    if faults > 0 {
        return Err(Error::permanent(format!(
            "{faults} of {} readings are outside the interval or the sensors' range, or duplicates",
            readings.len()
        ))
        .details(json!({ "faults": faults })));
    }
    Ok(Audited {
        readings: readings.len(),
        faults,
    })
}

/// The context of `load`.
#[derive(Deserialize)]
struct AfterTransform {
    summaries: Checked<BTreeMap<String, Summary>>,
}

/// The output of `load`.
#[derive(Serialize)]
struct Loaded {
    /// The summaries by sensor.
    rows: BTreeMap<String, Summary>,
    /// The checksum of the summaries, which is the same for every run of the slot.
    checksum: String,
}

/// Return the summaries.
fn load(run: &Run, context: AfterTransform) -> Result<Loaded> {
    let checksum = context.summaries.checksum.clone();
    let rows = context.summaries.verify("summaries")?;
    run.info(format!("loaded {} rows", rows.len()));
    Ok(Loaded { rows, checksum })
}

fn package() -> Package {
    Package::new("etl", env!("CARGO_PKG_VERSION"))
        .summary("Reads simulated sensors and summarizes them, in four tasks")
        .task(Task::new("extract", extract).summary("Reads the sensors over the run's interval"))
        .task(
            Task::new("transform", transform)
                .summary("Summarizes each sensor")
                .depends_on(["extract"]),
        )
        .task(
            Task::new("audit", audit)
                .summary("Checks each reading")
                .depends_on(["extract"]),
        )
        .task(
            Task::new("load", load)
                .summary("Returns the summaries")
                .depends_on(["transform"]),
        )
        .schedule(Schedule::every("1m"))
        .context_schema(json!({
            "type": "object",
            "properties": {
                "sensors": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "default": ["north", "east", "south", "west"],
                    "description": "The sensors to read"
                }
            }
        }))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests;
