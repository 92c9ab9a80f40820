//! The answer of `campanile plan`, for people and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::chart;
use crate::output::{self, Record, Result, optional};
use campanile_control::admin::schedule_admin::Refusal;
use campanile_control::reports::forecast::report::{
    ChangedLaunch, PlanReport, PlannedLaunch, ScheduleChanges, ScheduleForecast,
};
use campanile_control::reports::forecast::snapshot::OmittedSchedule;
use campanile_model::clock::Timestamp;
use campanile_model::text::{counted, duration_text};
use campanile_store::Decision;

/// The skipped slots of a schedule with one reason: a row for people.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct SkippedSlots {
    skipped: String,
    reason: String,
    slots: u64,
    first: Timestamp,
}

/// A forecast as it is printed.
#[derive(Serialize)]
pub(super) struct PrintedPlan {
    #[serde(flatten)]
    pub report: PlanReport,
    #[serde(skip)]
    pub with_rows: bool,
}

impl Record for ScheduleForecast {
    const LIST: &'static str = "schedule launches skipped first next_slot duration peak lag";
    const DECIDING: &'static str = "launches skipped first";

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
    const DECIDING: &'static str = "schedule decision reason";

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

impl Record for PrintedPlan {
    fn print(&self) -> Result {
        if let Some(changes) = &self.report.changes {
            output::print_table(changes)?;
            output::print_line("")?;
            if self.with_rows {
                output::print_table(changes.iter().flat_map(|changes| &changes.launches))?;
                output::print_line("")?;
            }
        }
        for back_at in self.report.outages.iter().map(|outage| outage.to) {
            output::print_line!("decisions when a host starts at {back_at}:")?;
            output::print_table(
                self.report
                    .rows
                    .iter()
                    .filter(|row| row.row.decided_at == back_at),
            )?;
            output::print_line("")?;
        }
        if self.with_rows && self.report.outages.is_empty() && self.report.changes.is_none() {
            output::print_table(&self.report.rows)?;
            output::print_line("")?;
        }
        output::print_table(&self.report.schedules)?;
        self.print_skips()?;
        self.print_starts()?;
        self.print_notes();
        Ok(())
    }
}

impl PrintedPlan {
    /// Print the skipped slots by schedule and reason.
    fn print_skips(&self) -> Result {
        let mut skips: BTreeMap<(&str, &str), SkippedSlots> = BTreeMap::new();
        for PlannedLaunch { schedule, row, .. } in &self.report.rows {
            let reason = row.reason.as_deref();
            let Some(reason) = reason.filter(|_| row.status.as_str() == "skipped") else {
                continue;
            };
            let skip = skips
                .entry((schedule, reason))
                .or_insert_with(|| SkippedSlots {
                    skipped: schedule.clone(),
                    reason: reason.to_owned(),
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
        let to = self.report.cut_at.unwrap_or(self.report.to);
        output::print_line("")?;
        let starts = self
            .report
            .starts
            .iter()
            .map(|starts| (starts.at, starts.count));
        for line in chart::lines(starts, self.report.from, to) {
            output::print_line(line.trim_end())?;
        }
        let first = optional(&self.report.peak.at.map(|at| format!(", first at {at}")));
        output::print_line!(
            "\nat most {} of {} possible runs at one time{first}",
            self.report.peak.running,
            self.report.capacity
        )?;
        let slot = optional(&self.report.lag_of.map(|slot| format!(", the slot {slot}")));
        output::print_line!(
            "a launch waits at most {}{slot}",
            span_text(self.report.lag_ms_max)
        )
    }

    fn print_notes(&self) {
        for OmittedSchedule { name, why } in &self.report.omitted {
            output::print_message!("`{name}` is left out: {why}");
        }
        for Refusal { schedule, error } in &self.report.refused {
            output::print_message!("`{schedule}` would be refused: {error}");
        }
        for forecast in &self.report.schedules {
            if let Some(labels) = &forecast.missing_labels {
                output::print_message!(
                    "no live host has {}: the launches of `{}` wait, and a later slot meets its overlap policy",
                    labels.named(),
                    forecast.schedule
                );
            }
            if let Some(since) = forecast.failing_since {
                output::print_message!(
                    "`{}` has failed since {since}: see `campanile schedule why {0}`",
                    forecast.schedule
                );
            }
        }
        let is_guess = |forecast: &ScheduleForecast| {
            forecast.duration_from == 0 && forecast.totals.launches > 0
        };
        if self.report.schedules.iter().any(is_guess) {
            output::print_message(
                "~ marks a guessed duration: no launch of that schedule has succeeded yet",
            );
        }
        if self.report.recovered > 0 {
            output::print_message!(
                "an outage interrupts {}, to be run again after it",
                counted(self.report.recovered, "launch")
            );
        }
        if let Some(cut_at) = self.report.cut_at {
            output::print_message!(
                "the forecast stops at {cut_at}, because it has too many decisions; give an earlier --to"
            );
        }
    }
}

fn span_text(ms: u64) -> String {
    duration_text(Duration::from_millis(ms))
}
