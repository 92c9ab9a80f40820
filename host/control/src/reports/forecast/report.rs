//! A forecast as a record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::prepare::PreparedForecast;
use super::snapshot::OmittedSchedule;
use super::{Changes, Outage, Row, Totals, compare};
use crate::admin::schedule_admin::Refusal;
use campanile_model::clock::Timestamp;
use campanile_model::labels::Labels;

/// A forecast of launches.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlanReport {
    /// The differences from the present schedules. Null without `--diff`.
    pub changes: Option<Vec<ScheduleChanges>>,
    /// The schedules of the `--diff` file that would be refused.
    pub refused: Vec<Refusal>,
    pub from: Timestamp,
    pub to: Timestamp,
    pub outages: Vec<Outage>,
    /// The most runs at one time, on all hosts.
    pub capacity: usize,
    pub launches: u64,
    /// The number of slots that are not launched, by reason.
    pub skipped: BTreeMap<Cow<'static, str>, u64>,
    pub peak: Peak,
    pub lag_ms_max: u64,
    /// The slot of the launch that waits longest.
    pub lag_of: Option<Timestamp>,
    /// The number of launches that an outage interrupts and that run again after it.
    pub recovered: u64,
    /// Where the forecast stops because it has too many decisions.
    pub cut_at: Option<Timestamp>,
    /// The schedules with a slot before `to` or with an unfinished launch, and the first 1,000 by name.
    pub schedules: Vec<ScheduleForecast>,
    /// The schedules among them that have no forecast, such as paused ones.
    pub omitted: Vec<OmittedSchedule>,
    /// The number of launches that start in each minute.
    pub starts: Vec<Starts>,
    pub rows: Vec<PlannedLaunch>,
}

/// The most runs at one time, and when.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct Peak {
    pub running: usize,
    pub at: Option<Timestamp>,
}

/// The number of launches that start in one minute.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct Starts {
    pub at: Timestamp,
    pub count: u64,
}

/// The forecast of one schedule.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct ScheduleForecast {
    pub schedule: String,
    #[serde(flatten)]
    pub totals: Totals,
    pub duration_ms: u64,
    /// The number of launches from which the duration is learned. It is a guess when this is 0.
    pub duration_from: usize,
    /// The labels of `run_on`, when no live host has all: its launches wait. Null otherwise.
    #[schemars(with = "Option<Vec<String>>")]
    pub missing_labels: Option<Labels>,
    /// When the first failure ended since which all launches failed. Null if the last one succeeded, or if none has ended.
    pub failing_since: Option<Timestamp>,
    pub lag_ms_max: u64,
}

/// A decision of the forecast.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlannedLaunch {
    pub schedule: String,
    #[serde(flatten)]
    pub row: Row,
    /// How long the launch waits.
    pub lag_ms: Option<u64>,
}

/// How the launches of a schedule differ from those of the present schedules.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct ScheduleChanges {
    pub schedule: String,
    /// Slots that are launched only with the file.
    pub added: Vec<Timestamp>,
    /// Slots that are launched only without the file.
    pub removed: Vec<Timestamp>,
    pub moved: Vec<MovedLaunch>,
    /// The first slot that differs.
    pub first: Option<Timestamp>,
    /// The launches of all these slots, with the times of their starts.
    pub launches: Vec<ChangedLaunch>,
}

/// A slot whose launch starts at another time.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct MovedLaunch {
    pub scheduled_time: Timestamp,
    pub before: Option<Timestamp>,
    pub after: Option<Timestamp>,
}

/// A launch that is added, removed or moved.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangedLaunch {
    /// `added`, `removed` or `moved`.
    pub change: Cow<'static, str>,
    pub scheduled_time: Timestamp,
    pub schedule: String,
    pub start_before: Option<Timestamp>,
    pub start_after: Option<Timestamp>,
}

impl PreparedForecast {
    /// Compute the forecast. When the snapshot has the schedules of a file, compare it with the forecast of the present ones.
    pub fn report(self) -> PlanReport {
        let (name, snapshot, request) = (self.name.as_deref(), &self.snapshot, self.request);
        let is_requested = |schedule: &str| name.is_none_or(|name| name == schedule);
        let mut omitted = self.omitted;
        omitted.retain(|omitted| is_requested(&omitted.name));
        let forecast = snapshot.forecast(&request);
        let changes = self.present.as_ref().map(|present| {
            let before = present.forecast(&request);
            let changes = compare((present, &before), (snapshot, &forecast)).into_iter();
            let changes = changes.filter(|changes| is_requested(changes.schedule));
            changes.map(ScheduleChanges::from).collect()
        });
        let schedules = snapshot.schedules.iter().zip(forecast.schedules);
        let schedules = schedules.filter(|(scheduled, _)| match name {
            Some(name) => scheduled.name == name,
            None => scheduled.enabled,
        });
        let schedules = schedules.map(|(scheduled, totals)| ScheduleForecast {
            schedule: scheduled.name.clone(),
            duration_ms: millis(scheduled.duration_estimate.duration),
            duration_from: scheduled.duration_estimate.samples,
            missing_labels: scheduled.missing_labels.clone(),
            failing_since: scheduled.failing_since,
            lag_ms_max: millis(totals.lag),
            totals,
        });
        let schedules: Vec<_> = schedules.collect();
        // A schedule that is left out has no totals.
        let none = Totals::default();
        let totals = match name {
            Some(_) => schedules.first().map_or(&none, |first| &first.totals),
            None => &forecast.all,
        };
        let starts = totals.starts.iter();
        let rows = forecast.rows.into_iter().map(|row| PlannedLaunch {
            schedule: snapshot.schedules[row.schedule].name.clone(),
            lag_ms: row.lag().map(millis),
            row,
        });
        PlanReport {
            changes,
            refused: self.refused,
            from: request.from,
            to: request.to,
            outages: request.outages,
            capacity: snapshot.capacity,
            launches: totals.launches,
            skipped: totals.skipped.clone(),
            peak: Peak {
                running: totals.peak,
                at: totals.peak_at,
            },
            lag_ms_max: millis(totals.lag),
            lag_of: totals.lag_of,
            recovered: forecast.recovered,
            cut_at: forecast.cut_at,
            starts: starts.map(|(&at, &count)| Starts { at, count }).collect(),
            schedules,
            omitted,
            rows: rows.filter(|row| is_requested(&row.schedule)).collect(),
        }
    }
}

impl From<Changes<'_>> for ScheduleChanges {
    fn from(changes: Changes<'_>) -> ScheduleChanges {
        let times = |rows: &[&Row]| rows.iter().map(|row| row.scheduled_time).collect();
        let launch = |change, row: &Row, start_before, start_after| ChangedLaunch {
            change: Cow::Borrowed(change),
            scheduled_time: row.scheduled_time,
            schedule: changes.schedule.to_owned(),
            start_before,
            start_after,
        };
        let added = changes.added.iter();
        let removed = changes.removed.iter();
        let moved = changes.moved.iter().map(|(row, after)| MovedLaunch {
            scheduled_time: row.scheduled_time,
            before: row.started_at,
            after: after.started_at,
        });
        let launches = added
            .map(|row| launch("added", row, None, row.started_at))
            .chain(removed.map(|row| launch("removed", row, row.started_at, None)))
            .chain(
                (changes.moved.iter())
                    .map(|(row, after)| launch("moved", row, row.started_at, after.started_at)),
            );
        ScheduleChanges {
            schedule: changes.schedule.to_owned(),
            added: times(&changes.added),
            removed: times(&changes.removed),
            moved: moved.collect(),
            first: changes.first(),
            launches: launches.collect(),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
