//! The chart of a plan: how many launches start in each part of its time, and how many run.

use std::time::Duration;

use maud::{Markup, html};

use super::super::charts::{Axes, with_axes};
use super::super::links;
use super::super::words::{Clock, counted, rough};
use super::{MINUTE, Plan, floor};
use campanile_model::clock::Timestamp;

const WIDTH: f64 = 1_000.0;
const TALL: f64 = 120.0;
/// The most columns.
const COLUMNS_MAX: u64 = 96;
/// The minutes of a column, and the marks of the axis below.
const STEPS: [u64; 12] = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1_440, 10_080];
const MARKS_MAX: u64 = 8;

/// A part of the time.
struct Column {
    from: Timestamp,
    to: Timestamp,
    starts: u64,
    /// The most runs at once.
    runs: i64,
}

/// Shows the starts over time.
pub(super) fn card(plan: &Plan, schedule: &str) -> Markup {
    let (columns, step) = columns(plan);
    let most = columns
        .iter()
        .map(|column| column.starts)
        .max()
        .unwrap_or(0)
        .max(1);
    let runs_most = columns.iter().map(|column| column.runs).max().unwrap_or(0);
    let capacity = plan.report.capacity as i64;
    let runs_top = runs_most.max(1);
    let Some(first) = columns.first().map(|column| column.from) else {
        return html! {};
    };
    let whole = plan.to.since(first).as_secs_f64().max(1.0);
    let x = |at: Timestamp| at.max(first).since(first).as_secs_f64() / whole * WIDTH;
    let mut line = String::new();
    for (place, column) in columns.iter().enumerate() {
        let pen = if place == 0 { 'M' } else { 'L' };
        let y = TALL * (1.0 - column.runs as f64 / runs_top as f64);
        line.push_str(&format!(
            "{pen}{:.1} {y:.1}H{:.1}",
            x(column.from),
            x(column.to)
        ));
    }
    let href = |place: usize, column: &Column| {
        // The first part begins now: seen a second later, its beginning would be in the past.
        let from = if place == 0 {
            String::new()
        } else {
            column.from.to_string()
        };
        let to = column.to.to_string();
        format!(
            "/plan{}",
            links::query(&[
                ("from", from.as_str()),
                ("to", to.as_str()),
                ("schedule", schedule)
            ])
        )
    };
    let chart = html! {
        @for outage in &plan.report.outages {
            rect.queue x=(format!("{:.1}", x(outage.from))) y="0" width=(format!("{:.1}", (x(outage.to) - x(outage.from)).max(2.0))) height=(TALL) { title { "Outage" } }
        }
        @for (place, column) in columns.iter().enumerate().filter(|(_, column)| column.starts > 0) {
            @let tall = (column.starts as f64 / most as f64 * TALL).max(3.0);
            @let (left, right) = (x(column.from), x(column.to));
            a href=(href(place, column)) {
                title { (plan.clock.short(column.from)) ": " (counted(column.starts, "start")) ", at most " (counted(column.runs.unsigned_abs(), "run")) " at once" }
                rect.column x=(format!("{left:.1}")) y=(format!("{:.1}", TALL - tall)) width=(format!("{:.1}", (right - left - 1.0).max(1.0))) height=(format!("{tall:.1}")) {}
            }
        }
        path.line.second d=(line) {}
    };
    let axes = Axes {
        tall: TALL as i64,
        has_rules: true,
        left: vec![(0.0, most.to_string()), (100.0, "0".to_owned())],
        below: marks(first, plan.to, plan.clock),
    };
    html! {
        section.card.w12 aria-labelledby="starts" {
            header {
                h2 #starts { "Starts / " (rough(step)) }
                span.far {
                    "up to " (most) " · dashed: runs at once, up to " (runs_most) " of " (capacity) " that the hosts can run · click a column"
                    @if !plan.report.outages.is_empty() { " · grey: outage" }
                }
            }
            div.pad { (with_axes(&axes, "group", "Starts of launches over time; each column links to its part", chart)) }
        }
    }
}

/// Returns the parts of the time, on full minutes, and how long each is.
fn columns(plan: &Plan) -> (Vec<Column>, Duration) {
    let (from, to) = (plan.report.from, plan.to);
    let minutes = to.since(from).as_secs().div_ceil(60).max(1);
    let step = STEPS.into_iter().find(|step| minutes / step < COLUMNS_MAX);
    let step = MINUTE * u32::try_from(step.unwrap_or(10_080)).unwrap_or(u32::MAX);
    let mut columns = Vec::new();
    let mut begin = floor(from, step);
    while begin < to {
        let end = begin.plus(step);
        let column = Column {
            from: begin,
            to: end.min(to),
            starts: 0,
            runs: 0,
        };
        columns.push(column);
        begin = end;
    }
    let first = floor(from, step);
    let place =
        |at: Timestamp| (at.max(first).since(first).as_micros() / step.as_micros()) as usize;
    for starts in &plan.report.starts {
        if let Some(column) = columns.get_mut(place(starts.at)) {
            column.starts += starts.count;
        }
    }
    for (at, runs) in runs(plan) {
        if let Some(column) = columns.get_mut(place(at)) {
            column.runs = column.runs.max(runs);
        }
    }
    (columns, step)
}

/// Returns how many of the planned launches run, each time that changes.
fn runs(plan: &Plan) -> Vec<(Timestamp, i64)> {
    let mut changes = Vec::new();
    for row in &plan.report.rows {
        changes.extend(row.row.started_at.map(|at| (at, 1)));
        let end = row.row.started_at.and(row.row.finished_at);
        changes.extend(end.map(|at| (at, -1)));
    }
    changes.sort_unstable();
    let mut running = 0;
    let count = |(at, change): (Timestamp, i64)| {
        running += change;
        (at, running)
    };
    changes.into_iter().map(count).collect()
}

/// Returns the marks of the time axis: round times on the reader's clock.
fn marks(from: Timestamp, to: Timestamp, clock: Clock) -> Vec<(f64, String)> {
    let minutes = to.since(from).as_secs() / 60;
    let step = STEPS.into_iter().find(|step| minutes / step <= MARKS_MAX);
    let step = i64::try_from(step.unwrap_or(10_080) * 60).unwrap_or(i64::MAX);
    let offset = clock.utc_offset(from);
    let first = (from.micros() / 1_000_000 + offset).div_euclid(step) + 1;
    let whole = (to.micros() - from.micros()).max(1) as f64;
    let mark = |number: i64| Timestamp::from_micros((number * step - offset) * 1_000_000);
    let marks = (first..).map(mark).take_while(|at| *at < to);
    let words = |at: Timestamp| {
        if step >= 86_400 {
            let text = clock.whole(at);
            text.get(5..10).unwrap_or(&text).to_owned()
        } else {
            clock.hour(at)
        }
    };
    marks
        .map(|at| {
            (
                (at.micros() - from.micros()) as f64 / whole * 100.0,
                words(at),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono_tz::Tz;

    #[test]
    fn the_marks_of_an_axis_are_round_on_the_readers_clock() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let from = at("2026-11-28T05:40:00Z");
        let clock = Clock {
            now: from,
            zone: Tz::Asia__Kolkata,
        };
        let six_hours = marks(from, from.plus(MINUTE * 360), clock);
        let words = Vec::from_iter(six_hours.iter().map(|(_, words)| words.as_str()));
        assert_eq!(
            words,
            ["12:00", "13:00", "14:00", "15:00", "16:00", "17:00"]
        );
        assert!(
            six_hours
                .iter()
                .all(|(share, _)| (0.0..100.0).contains(share))
        );
        let days = marks(from, from.plus(MINUTE * 60 * 24 * 5), clock);
        assert_eq!(days.first().map(|(_, words)| words.as_str()), Some("11-29"));
    }
}
