//! Compare two forecasts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Forecast, Row, SystemSnapshot};
use campanile_model::clock::Timestamp;
use campanile_store::LaunchStatus;

/// How the launches of a schedule differ between two forecasts, by their slots.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes<'a> {
    pub schedule: &'a str,
    pub added: Vec<&'a Row>,
    pub removed: Vec<&'a Row>,
    /// Launches at another time: before, and after.
    pub moved: Vec<(&'a Row, &'a Row)>,
}

/// The launches of each schedule, by its name and their slot.
type Launches<'a> = BTreeMap<&'a str, BTreeMap<Timestamp, &'a Row>>;

/// Return the schedules whose launches differ between two forecasts of the same span, in the order of names.
pub fn compare<'a>(
    before: (&'a SystemSnapshot, &'a Forecast),
    after: (&'a SystemSnapshot, &'a Forecast),
) -> Vec<Changes<'a>> {
    let (before, after) = (launches(before), launches(after));
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let none = BTreeMap::new();
    let changes = names.into_iter().map(|schedule| {
        let before = before.get(schedule).unwrap_or(&none);
        let after = after.get(schedule).unwrap_or(&none);
        let both = before
            .iter()
            .filter_map(|(slot, row)| Some((*row, *after.get(slot)?)));
        let only = |these: &BTreeMap<Timestamp, &'a Row>, those: &BTreeMap<Timestamp, &'a Row>| {
            let only = these.iter().filter(|(slot, _)| !those.contains_key(slot));
            only.map(|(_, row)| *row).collect()
        };
        Changes {
            schedule,
            added: only(after, before),
            removed: only(before, after),
            moved: both
                .filter(|(before, after)| begins(before) != begins(after))
                .collect(),
        }
    });
    changes.filter(Changes::is_any).collect()
}

impl Changes<'_> {
    fn is_any(&self) -> bool {
        !(self.added.is_empty() && self.removed.is_empty() && self.moved.is_empty())
    }

    pub fn first(&self) -> Option<Timestamp> {
        let moved = self.moved.iter().map(|(before, _)| *before);
        let rows = self.added.iter().chain(&self.removed).copied().chain(moved);
        rows.map(|row| row.scheduled_time).min()
    }
}

fn begins(row: &Row) -> (Timestamp, Option<Timestamp>) {
    (row.fire_time, row.started_at)
}

fn launches<'a>((snapshot, forecast): (&'a SystemSnapshot, &'a Forecast)) -> Launches<'a> {
    let mut launches = Launches::new();
    let rows = forecast.rows.iter();
    for row in rows.filter(|row| row.status != LaunchStatus::Skipped) {
        let name = snapshot.schedules[row.schedule].name.as_str();
        launches
            .entry(name)
            .or_default()
            .insert(row.scheduled_time, row);
    }
    launches
}
