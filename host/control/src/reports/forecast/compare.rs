//! Compare two forecasts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Forecast, Row, SystemSnapshot};
use campanile_model::clock::Timestamp;
use campanile_store::LaunchStatus;

/// How the launches of a schedule differ between two forecasts, by their slots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes<'a> {
    pub schedule: &'a str,
    pub added: Vec<&'a Row>,
    pub removed: Vec<&'a Row>,
    /// Launches at another time: before, and after.
    pub moved: Vec<(&'a Row, &'a Row)>,
}

/// Returns the schedules whose launches differ between two forecasts of the same span, in the order of names.
pub fn compare<'a>(
    before: (&'a SystemSnapshot, &'a Forecast),
    after: (&'a SystemSnapshot, &'a Forecast),
) -> Vec<Changes<'a>> {
    let (before, after) = (launches(before), launches(after));
    let slots: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut changes: BTreeMap<&str, Changes<'a>> = BTreeMap::new();
    for slot in slots {
        let (before, after) = (before.get(slot).copied(), after.get(slot).copied());
        if before.map(begins) == after.map(begins) {
            continue;
        }
        let of_schedule = changes.entry(slot.0).or_default();
        of_schedule.schedule = slot.0;
        match (before, after) {
            (Some(before), Some(after)) => of_schedule.moved.push((before, after)),
            (before, after) => {
                of_schedule.removed.extend(before);
                of_schedule.added.extend(after);
            }
        }
    }
    changes.into_values().collect()
}

impl Changes<'_> {
    pub fn first(&self) -> Option<Timestamp> {
        let moved = self.moved.iter().map(|(before, _)| *before);
        let rows = self.added.iter().chain(&self.removed).copied().chain(moved);
        rows.map(|row| row.scheduled_time).min()
    }
}

fn begins(row: &Row) -> (Timestamp, Option<Timestamp>) {
    (row.fire_time, row.started_at)
}

/// Returns the launches by schedule and slot.
fn launches<'a>(
    (snapshot, forecast): (&'a SystemSnapshot, &'a Forecast),
) -> BTreeMap<(&'a str, Timestamp), &'a Row> {
    let rows = forecast.rows.iter();
    let launched = rows.filter(|row| row.status != LaunchStatus::Skipped);
    let launches = launched.map(|row| {
        let name = snapshot.schedules[row.schedule].name.as_str();
        ((name, row.scheduled_time), row)
    });
    launches.collect()
}
