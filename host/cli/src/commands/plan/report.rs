//! The answer of `campanile plan`, for people and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::{Plan, ROWS_MAX, chart};
use crate::output::{self, Record, Result, optional};
use campanile_engine::forecast::snapshot::OmittedSchedule;
use campanile_engine::forecast::{
    Changes, ForecastRequest, Outage, Row, SystemSnapshot, Totals, compare,
};
use campanile_engine::schedule_admin::Refusal;
use campanile_model::clock::Timestamp;
use campanile_model::labels::Labels;
use campanile_model::text::{counted, duration_text};
use campanile_store::Decision;

/// A forecast of launches.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct PlanReport {
    /// The differences from the present schedules. Null without `--diff`.
    changes: Option<Vec<ScheduleChanges>>,
    /// The schedules of the `--diff` file that would be refused.
    pub refused: Vec<Refusal>,
    from: Timestamp,
    to: Timestamp,
    outages: Vec<Outage>,
    /// The most runs at one time, on all hosts.
    capacity: usize,
    launches: u64,
    /// The number of slots that are not launched, by reason.
    skipped: BTreeMap<&'static str, u64>,
    peak: Peak,
    lag_ms_max: u64,
    /// The slot of the launch that waits longest.
    #[serde(skip)]
    lag_of: Option<Timestamp>,
    /// The number of launches that an outage interrupts and that run again after it.
    recovered: u64,
    /// Where the forecast stops because it has too many decisions.
    cut_at: Option<Timestamp>,
    /// The schedules with a slot before `to` or with an unfinished launch, and the first 1,000 by name.
    schedules: Vec<ScheduleForecast>,
    /// The schedules among them that have no forecast, such as paused ones.
    omitted: Vec<OmittedSchedule>,
    /// The number of launches that start in each minute.
    starts: Vec<Starts>,
    rows: Vec<PlannedLaunch>,
    #[serde(skip)]
    with_rows: bool,
}

/// The most runs at one time, and when.
#[derive(Serialize, schemars::JsonSchema)]
struct Peak {
    running: usize,
    at: Option<Timestamp>,
}

/// The number of launches that start in one minute.
#[derive(Serialize, schemars::JsonSchema)]
struct Starts {
    at: Timestamp,
    count: u64,
}

/// The forecast of one schedule.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ScheduleForecast {
    schedule: String,
    #[serde(flatten)]
    totals: Totals,
    duration_ms: u64,
    /// The number of launches from which the duration is learned. It is a guess when this is 0.
    duration_from: usize,
    /// The labels of `run_on`, when no live host has all: its launches wait. Null otherwise.
    #[schemars(with = "Option<Vec<String>>")]
    missing_labels: Option<Labels>,
    lag_ms_max: u64,
}

/// A decision of the forecast.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct PlannedLaunch {
    schedule: String,
    #[serde(flatten)]
    row: Row,
    /// How long the launch waits.
    lag_ms: Option<u64>,
}

/// How the launches of a schedule differ from those of the present schedules.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ScheduleChanges {
    schedule: String,
    /// Slots that are launched only with the file.
    added: Vec<Timestamp>,
    /// Slots that are launched only without the file.
    removed: Vec<Timestamp>,
    moved: Vec<MovedLaunch>,
    /// The first slot that differs.
    #[serde(skip)]
    first: Option<Timestamp>,
    #[serde(skip)]
    launches: Vec<ChangedLaunch>,
}

/// A slot whose launch starts at another time.
#[derive(Serialize, schemars::JsonSchema)]
struct MovedLaunch {
    scheduled_time: Timestamp,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
}

/// A launch that is added, removed or moved: a row for people.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ChangedLaunch {
    change: &'static str,
    scheduled_time: Timestamp,
    schedule: String,
    start_before: Option<Timestamp>,
    start_after: Option<Timestamp>,
}

/// The skipped slots of a schedule with one reason: a row for people.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct SkippedSlots {
    skipped: String,
    reason: &'static str,
    slots: u64,
    first: Timestamp,
}

impl Record for ScheduleForecast {
    const LIST: &'static str = "schedule launches skipped first next_slot duration peak lag";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "skipped" => Some(self.totals.skipped.values().sum::<u64>().to_string()),
            "duration" => {
                let guess = if self.duration_from == 0 { "~" } else { "" };
                Some(format!("{guess}{}", span_text(self.duration_ms)))
            }
            "lag" => Some(span_text(self.lag_ms_max)),
            _ => None,
        }
    }
}

impl Record for PlannedLaunch {
    const LIST: &'static str = "scheduled_time schedule kind decision reason fire_time slot_count";

    fn text(&self, key: &str) -> Option<String> {
        let row = &self.row;
        let is_skipped_at_once = row.finished_at == Some(row.decided_at);
        match key {
            "scheduled_time" if row.slot_count > 1 => Some(format!(
                "{} … {}",
                row.scheduled_time, row.last_scheduled_time
            )),
            "reason" if !is_skipped_at_once => Some(String::new()),
            "fire_time" if row.decision == Decision::Skipped => Some(String::new()),
            _ => None,
        }
    }
}

impl Record for ScheduleChanges {
    const LIST: &'static str = "schedule added removed moved first";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "added" => Some(self.added.len().to_string()),
            "removed" => Some(self.removed.len().to_string()),
            "moved" => Some(self.moved.len().to_string()),
            "first" => Some(optional(&self.first)),
            _ => None,
        }
    }
}

impl Record for ChangedLaunch {
    const LIST: &'static str = "change scheduled_time schedule start_before start_after";
}

impl Record for SkippedSlots {
    const LIST: &'static str = "skipped reason slots first";
}

impl PlanReport {
    /// Forecast `snapshot`; with a `present` one, compare its forecast too.
    pub(super) fn new(
        plan: &Plan,
        question: ForecastRequest,
        snapshot: &SystemSnapshot,
        present: Option<&SystemSnapshot>,
        mut omitted: Vec<OmittedSchedule>,
        refused: Vec<Refusal>,
    ) -> PlanReport {
        let name = plan.schedule.as_deref();
        let is_requested = |schedule: &str| name.is_none_or(|name| name == schedule);
        omitted.retain(|omitted| is_requested(&omitted.name));
        let forecast = snapshot.forecast(&question);
        let changes = present.map(|present| {
            let before = present.forecast(&question);
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
            refused,
            from: question.from,
            to: question.to,
            outages: question.outages,
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
            with_rows: plan.rows,
        }
    }
}

impl Record for PlanReport {
    fn print(&self) -> Result {
        if let Some(changes) = &self.changes {
            output::print_table(changes)?;
            output::print_line("")?;
            if self.with_rows {
                output::print_table(changes.iter().flat_map(|changes| &changes.launches))?;
                output::print_line("")?;
            }
        }
        for back_at in self.outages.iter().map(|outage| outage.to) {
            output::print_line!("decisions when a host starts at {back_at}:")?;
            output::print_table(self.rows.iter().filter(|row| row.row.decided_at == back_at))?;
            output::print_line("")?;
        }
        if self.with_rows && self.outages.is_empty() && self.changes.is_none() {
            output::print_table(&self.rows)?;
            output::print_line("")?;
        }
        output::print_table(&self.schedules)?;
        self.print_skips()?;
        self.print_starts()?;
        self.print_notes();
        Ok(())
    }
}

impl PlanReport {
    /// Print the skipped slots by schedule and reason.
    fn print_skips(&self) -> Result {
        let mut skips: BTreeMap<(&str, &'static str), SkippedSlots> = BTreeMap::new();
        for PlannedLaunch { schedule, row, .. } in &self.rows {
            let Some(reason) = row.reason.filter(|_| row.status.as_str() == "skipped") else {
                continue;
            };
            let skip = skips
                .entry((schedule, reason))
                .or_insert_with(|| SkippedSlots {
                    skipped: schedule.clone(),
                    reason,
                    slots: 0,
                    first: row.scheduled_time,
                });
            skip.slots += u64::try_from(row.slot_count).unwrap_or_default();
        }
        if skips.is_empty() {
            return Ok(());
        }
        output::print_line("")?;
        output::print_table(skips.values())
    }

    /// Print the chart of starts, the peak and the longest wait.
    fn print_starts(&self) -> Result {
        let to = self.cut_at.unwrap_or(self.to);
        output::print_line("")?;
        let starts = self.starts.iter().map(|starts| (starts.at, starts.count));
        for line in chart::lines(starts, self.from, to) {
            output::print_line(line.trim_end())?;
        }
        let first = optional(&self.peak.at.map(|at| format!(", first at {at}")));
        output::print_line!(
            "\nat most {} of {} possible runs at one time{first}",
            self.peak.running,
            self.capacity
        )?;
        let slot = optional(&self.lag_of.map(|slot| format!(", the slot {slot}")));
        output::print_line!(
            "a launch waits at most {}{slot}",
            span_text(self.lag_ms_max)
        )
    }

    fn print_notes(&self) {
        for OmittedSchedule { name, why } in &self.omitted {
            output::print_message!("`{name}` is left out: {why}");
        }
        for Refusal { schedule, error } in &self.refused {
            output::print_message!("`{schedule}` would be refused: {error}");
        }
        for forecast in &self.schedules {
            if let Some(labels) = &forecast.missing_labels {
                output::print_message!(
                    "no live host has {}: the launches of `{}` wait, and a later slot meets its overlap policy",
                    labels.named(),
                    forecast.schedule
                );
            }
        }
        let is_guess = |forecast: &ScheduleForecast| {
            forecast.duration_from == 0 && forecast.totals.launches > 0
        };
        if self.schedules.iter().any(is_guess) {
            output::print_message(
                "~ marks a guessed duration: no launch of that schedule has succeeded yet",
            );
        }
        if self.recovered > 0 {
            output::print_message!(
                "an outage interrupts {}, to be run again after it",
                counted(self.recovered, "launch")
            );
        }
        if let Some(cut_at) = self.cut_at {
            output::print_message!(
                "the forecast stops at {cut_at}, after {ROWS_MAX} decisions; give an earlier --to"
            );
        }
    }
}

impl From<Changes<'_>> for ScheduleChanges {
    fn from(changes: Changes<'_>) -> ScheduleChanges {
        let times = |rows: &[&Row]| rows.iter().map(|row| row.scheduled_time).collect();
        let launch = |change, row: &Row, start_before, start_after| ChangedLaunch {
            change,
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

fn span_text(ms: u64) -> String {
    duration_text(Duration::from_millis(ms))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
