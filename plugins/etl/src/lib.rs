//! Four tasks that hand data to each other.
//!
//! ```text
//! extract ──▶ transform ──▶ load
//!    └──────▶ audit
//! ```
//!
//! The "sensors" are made up, from nothing but their names and the time: the same slot always gives the
//! same readings, so that a recovered or backfilled run can be compared with the first. Whatever goes from one
//! task to the next carries a checksum, which the receiver checks.

mod checksum;
mod sensors;

use std::collections::BTreeMap;

use campanile_sdk::{Error, Package, Result, Run, Schedule, Task, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use checksum::Checked;
use sensors::{MILLICELSIUS_RANGE, Reading};

/// What the schedule's context may say.
#[derive(Deserialize)]
struct Wishes {
    /// The sensors to read.
    #[serde(default = "four_winds")]
    sensors: Vec<String>,
}

fn four_winds() -> Vec<String> {
    ["north", "east", "south", "west"].map(str::to_owned).into()
}

/// What goes on the record of `extract`.
#[derive(Serialize)]
struct Extracted {
    readings: usize,
    /// The stretch of time that was read: after the first instant, up to and including the second.
    after: Timestamp,
    until: Timestamp,
    checksum: String,
}

/// Reads every sensor over the run's interval, and passes `readings` on.
fn extract(run: &Run, wishes: Wishes) -> Result<Extracted> {
    if wishes.sensors.is_empty() {
        return Err(Error::permanent(
            "`sensors` is empty: name at least one, or leave it out",
        ));
    }
    let (after, until) = sensors::interval(run);
    let readings = sensors::read(&wishes.sensors, after, until);
    let count = readings.len();
    run.info(format!("{count} readings after {after} until {until}"));
    let checked = Checked::seal(readings)?;
    let checksum = checked.checksum.clone();
    run.pass("readings", checked)?;
    Ok(Extracted {
        readings: count,
        after,
        until,
        checksum,
    })
}

/// What `extract` passed.
#[derive(Deserialize)]
struct AfterExtract {
    readings: Checked<Vec<Reading>>,
}

/// One sensor over the interval, in thousandths of a degree Celsius.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Summary {
    readings: i64,
    min: i64,
    max: i64,
    mean: i64,
}

/// What goes on the record of `transform`.
#[derive(Serialize)]
struct Transformed {
    sensors: usize,
    readings: usize,
    checksum: String,
}

/// Sums each sensor up, and passes `summaries` on.
fn transform(run: &Run, context: AfterExtract) -> Result<Transformed> {
    let readings = context.readings.open("readings")?;
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
        // The sum, until every reading is in.
        summary.mean += value;
    }
    for summary in summaries.values_mut() {
        summary.mean /= summary.readings;
    }
    let sensors = summaries.len();
    let checked = Checked::seal(summaries)?;
    let checksum = checked.checksum.clone();
    run.pass("summaries", checked)?;
    Ok(Transformed {
        sensors,
        readings: readings.len(),
        checksum,
    })
}

/// What goes on the record of `audit`.
#[derive(Serialize)]
struct Audited {
    readings: usize,
    /// Readings outside the interval or the range of the sensors, or read twice.
    faults: usize,
}

/// Looks every reading over. Needs `extract` only, so it runs beside `transform`.
fn audit(run: &Run, context: AfterExtract) -> Result<Audited> {
    let readings = context.readings.open("readings")?;
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
            "{faults} of {} readings are outside the interval or the sensors' range, or double",
            readings.len()
        ))
        .details(json!({ "faults": faults })));
    }
    Ok(Audited {
        readings: readings.len(),
        faults,
    })
}

/// What `transform` passed.
#[derive(Deserialize)]
struct AfterTransform {
    summaries: Checked<BTreeMap<String, Summary>>,
}

/// What goes on the record of `load`: without a capability, the record is the warehouse.
#[derive(Serialize)]
struct Loaded {
    /// By sensor.
    rows: BTreeMap<String, Summary>,
    /// The same for every run of the slot.
    checksum: String,
}

/// Puts the summaries on the record.
fn load(run: &Run, context: AfterTransform) -> Result<Loaded> {
    let checksum = context.summaries.checksum.clone();
    let rows = context.summaries.open("summaries")?;
    run.info(format!("loaded {} rows", rows.len()));
    Ok(Loaded { rows, checksum })
}

fn package() -> Package {
    Package::new("etl", env!("CARGO_PKG_VERSION"))
        .summary("Reads made-up sensors, sums them up and checks every hand-over")
        .task(Task::new("extract", extract).summary("Reads the sensors over the run's interval"))
        .task(
            Task::new("transform", transform)
                .summary("Sums each sensor up")
                .depends_on(["extract"]),
        )
        .task(
            Task::new("audit", audit)
                .summary("Looks every reading over, beside transform")
                .depends_on(["extract"]),
        )
        .task(
            Task::new("load", load)
                .summary("Puts the summaries on the record")
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
