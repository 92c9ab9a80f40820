//! A plan as it is shown.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Answer, Before, ROWS_MAX, chart};
use crate::output::{self, Failure, cell};
use campanile_engine::forecast::snapshot::OmittedSchedule;
use campanile_engine::forecast::{
    Changes, DurationEstimate, Row, ScheduleSnapshot, Totals, compare,
};
use campanile_model::clock::Timestamp;
use campanile_model::text::duration_text;
use campanile_model::text::printable_line;

/// A plan as JSON. Its rows may be a million, so they are written without being made values first.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    #[serde(flatten)]
    totals: Value,
    rows: Vec<RowShown<'a>>,
}

#[derive(Serialize)]
struct RowShown<'a> {
    schedule: &'a str,
    #[serde(flatten)]
    row: &'a Row,
    lag_ms: Option<u64>,
}

impl Answer {
    /// The schedules that are asked for, with what they come to.
    fn asked(&self) -> impl Iterator<Item = (&ScheduleSnapshot, &Totals)> {
        let schedules = self.tower.schedules.iter().zip(&self.forecast.schedules);
        let is_asked = |(scheduled, _): &(&ScheduleSnapshot, &Totals)| match &self.name {
            Some(name) => scheduled.name == *name,
            None => scheduled.enabled,
        };
        schedules.filter(is_asked)
    }

    /// What the answer comes to: for the one schedule that is asked for, or for all.
    fn totals(&self) -> Cow<'_, Totals> {
        if self.name.is_none() {
            return Cow::Borrowed(&self.forecast.all);
        }
        // One that is left out comes to nothing.
        let only = self.asked().next();
        only.map_or_else(Cow::default, |(_, totals)| Cow::Borrowed(totals))
    }

    fn is_asked(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|asked| asked == name)
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        let rows = self.forecast.rows.iter();
        rows.filter(|row| self.is_asked(self.name(row)))
    }

    fn left_out(&self) -> impl Iterator<Item = &OmittedSchedule> {
        let left_out = self.left_out.iter();
        left_out.filter(|left_out| self.is_asked(&left_out.name))
    }

    fn name(&self, row: &Row) -> &str {
        &self.tower.schedules[row.schedule].name
    }

    /// Everything as JSON.
    pub(super) fn shown(&self) -> Shown<'_> {
        let all = self.totals();
        let schedules: Vec<Value> = self
            .asked()
            .map(|(scheduled, totals)| schedule_value(scheduled, totals))
            .collect();
        let rows = self.rows().map(|row| RowShown {
            schedule: self.name(row),
            lag_ms: row.lag().map(millis),
            row,
        });
        let starts: Vec<Value> = all
            .starts
            .iter()
            .map(|(at, count)| json!({ "at": at, "count": count }))
            .collect();
        let outages: Vec<Value> = self
            .question
            .outages
            .iter()
            .map(|outage| json!({ "from": outage.from, "to": outage.to }))
            .collect();
        let left_out: Vec<Value> = self
            .left_out()
            .map(|left_out| json!({ "schedule": left_out.name, "reason": left_out.why }))
            .collect();
        let changes = self.before.as_ref().map(|before| {
            let changes = self.changes(before);
            changes.iter().map(changes_value).collect::<Vec<_>>()
        });
        let refused = self.before.iter().flat_map(|before| &before.refusals);
        let refused: Vec<Value> = refused
            .map(|(name, why)| json!({ "schedule": name, "error": why }))
            .collect();
        let totals = json!({
            "changes": changes,
            "refused": refused,
            "from": self.question.from,
            "to": self.question.to,
            "outages": outages,
            "places": self.tower.capacity,
            "launches": all.launches,
            "skipped": all.skipped,
            "peak": { "running": all.peak, "at": all.peak_at },
            "lag_ms_max": millis(all.lag),
            "recovered": self.forecast.recovered,
            "cut_at": self.forecast.cut_at,
            "schedules": schedules,
            "left_out": left_out,
            "starts": starts,
        });
        Shown {
            totals,
            rows: rows.collect(),
        }
    }

    /// Decisions as they go on the record.
    pub(super) fn print_rows(&self, is_asked: impl Fn(&Row) -> bool) -> Result<(), Failure> {
        let rows = self.rows().filter(|row| is_asked(row));
        output::table(
            [
                "SLOT", "SCHEDULE", "KIND", "DECISION", "REASON", "FIRES", "COUNT",
            ],
            rows.map(|row| {
                let slots = match row.slot_count {
                    1 => row.scheduled_time.to_string(),
                    _ => format!("{} … {}", row.scheduled_time, row.last_scheduled_time),
                };
                let skipped_at_once = row.finished_at == Some(row.decided_at);
                let reason = row.reason.filter(|_| skipped_at_once);
                let fires = (row.decision.as_str() != "skipped").then_some(row.fire_time);
                [
                    slots,
                    self.name(row).to_owned(),
                    row.kind.to_string(),
                    row.decision.to_string(),
                    cell(&reason),
                    cell(&fires),
                    row.slot_count.to_string(),
                ]
            }),
        )
    }

    pub(super) fn print_schedules(&self) -> Result<(), Failure> {
        output::table(
            [
                "SCHEDULE",
                "LAUNCHES",
                "SKIPS",
                "FIRST",
                "NEXT AFTER",
                "TAKES",
                "AT ONCE",
                "LAG",
            ],
            self.asked().map(|(scheduled, totals)| {
                [
                    scheduled.name.clone(),
                    totals.launches.to_string(),
                    totals.skipped.values().sum::<u64>().to_string(),
                    cell(&totals.first),
                    cell(&totals.next),
                    takes_text(scheduled.duration_estimate),
                    totals.peak.to_string(),
                    span_text(totals.lag),
                ]
            }),
        )
    }

    /// In what the launches differ from those of the schedules as they are.
    fn changes<'a>(&'a self, before: &'a Before) -> Vec<Changes<'a>> {
        let before = (&before.tower, &before.forecast);
        let mut changes = compare(before, (&self.tower, &self.forecast));
        changes.retain(|changes| self.is_asked(changes.schedule));
        changes
    }

    /// The same as it is shown, with every launch of which something is different if `rows`.
    pub(super) fn print_changes(&self, before: &Before, rows: bool) -> Result<(), Failure> {
        let changes = self.changes(before);
        output::table(
            ["CHANGES", "ADDED", "REMOVED", "MOVED", "FROM"],
            changes.iter().map(|changes| {
                [
                    changes.schedule.to_owned(),
                    changes.added.len().to_string(),
                    changes.removed.len().to_string(),
                    changes.moved.len().to_string(),
                    cell(&changes.first()),
                ]
            }),
        )?;
        output::line("")?;
        if rows {
            output::table(
                ["CHANGE", "SLOT", "SCHEDULE", "BEGINS", "BEGINS NOW"],
                changes.iter().flat_map(change_rows),
            )?;
            output::line("")?;
        }
        Ok(())
    }

    /// What is skipped, by schedule and reason.
    pub(super) fn print_skips(&self) -> Result<(), Failure> {
        let mut skips: BTreeMap<(&str, &str), (u64, Timestamp)> = BTreeMap::new();
        for row in self.rows() {
            let Some(reason) = row.reason.filter(|_| row.status.as_str() == "skipped") else {
                continue;
            };
            let skip = skips
                .entry((self.name(row), reason))
                .or_insert((0, row.scheduled_time));
            skip.0 += u64::try_from(row.slot_count).unwrap_or_default();
        }
        if skips.is_empty() {
            return Ok(());
        }
        output::line("")?;
        output::table(
            ["SKIPPED", "REASON", "SLOTS", "FIRST"],
            skips.into_iter().map(|((name, reason), (slots, first))| {
                [
                    name.to_owned(),
                    reason.to_owned(),
                    slots.to_string(),
                    first.to_string(),
                ]
            }),
        )
    }

    /// The chart, and what it comes to.
    pub(super) fn print_starts(&self) -> Result<(), Failure> {
        let totals = self.totals();
        let to = self.forecast.cut_at.unwrap_or(self.question.to);
        output::line("")?;
        for line in chart::lines(&totals.starts, self.question.from, to) {
            output::line(line.trim_end())?;
        }
        output::line("")?;
        let at = totals
            .peak_at
            .map_or(String::new(), |at| format!(", first at {at}"));
        output::line(&format!(
            "at most {} of {} places are taken{at}",
            totals.peak, self.tower.capacity
        ))?;
        let slot = totals
            .lag_of
            .map_or(String::new(), |slot| format!(", the slot {slot}"));
        output::line(&format!(
            "a launch waits at most {}{slot}",
            span_text(totals.lag)
        ))
    }

    /// What has to be known besides.
    pub(super) fn talk(&self) {
        for left_out in self.left_out() {
            output::talk(&format!(
                "`{}` is left out: {}",
                left_out.name,
                printable_line(&left_out.why)
            ));
        }
        for (name, why) in self.before.iter().flat_map(|before| &before.refusals) {
            output::talk(&format!("`{name}` would be refused: {why}"));
        }
        let is_guess = |(scheduled, totals): (&ScheduleSnapshot, &Totals)| {
            scheduled.duration_estimate.samples == 0 && totals.launches > 0
        };
        if self.asked().any(is_guess) {
            output::talk("~ marks a guess: no launch of that schedule has succeeded yet");
        }
        if self.forecast.recovered > 0 {
            output::talk(&format!(
                "{} launches are interrupted by an outage and run again after it",
                self.forecast.recovered
            ));
        }
        if let Some(cut_at) = self.forecast.cut_at {
            output::talk(&format!(
                "the plan breaks off at {cut_at}, after {ROWS_MAX} decisions; give an earlier --to"
            ));
        }
    }
}

/// A line for each launch that is added, removed or moved.
fn change_rows(changes: &Changes<'_>) -> Vec<[String; 5]> {
    let line = |change: &str, before: Option<&Row>, after: Option<&Row>| {
        let slot = before.or(after).map(|row| row.scheduled_time);
        let begins = |row: Option<&Row>| cell(&row.and_then(|row| row.started_at));
        let schedule = changes.schedule.to_owned();
        [
            change.to_owned(),
            cell(&slot),
            schedule,
            begins(before),
            begins(after),
        ]
    };
    let added = changes
        .added
        .iter()
        .map(|row| line("added", None, Some(row)));
    let removed = changes
        .removed
        .iter()
        .map(|row| line("removed", Some(row), None));
    let moved = changes.moved.iter();
    let moved = moved.map(|(before, after)| line("moved", Some(before), Some(after)));
    added.chain(removed).chain(moved).collect()
}

fn changes_value(changes: &Changes<'_>) -> Value {
    let slots = |rows: &[&Row]| {
        rows.iter()
            .map(|row| row.scheduled_time)
            .collect::<Vec<_>>()
    };
    let moved = changes.moved.iter().map(|(before, after)| {
        json!({ "scheduled_time": before.scheduled_time, "before": before.started_at, "after": after.started_at })
    });
    json!({
        "schedule": changes.schedule,
        "added": slots(&changes.added),
        "removed": slots(&changes.removed),
        "moved": moved.collect::<Vec<Value>>(),
    })
}

fn schedule_value(scheduled: &ScheduleSnapshot, totals: &Totals) -> Value {
    json!({
        "schedule": scheduled.name,
        "launches": totals.launches,
        "skipped": totals.skipped,
        "first": totals.first,
        "next_slot": totals.next,
        "duration_ms": millis(scheduled.duration_estimate.duration),
        "duration_from": scheduled.duration_estimate.samples,
        "peak": totals.peak,
        "lag_ms_max": millis(totals.lag),
    })
}

fn takes_text(takes: DurationEstimate) -> String {
    let guess = if takes.samples == 0 { "~" } else { "" };
    format!("{guess}{}", span_text(takes.duration))
}

/// A span in whole milliseconds.
fn span_text(span: Duration) -> String {
    duration_text(Duration::from_millis(millis(span)))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
