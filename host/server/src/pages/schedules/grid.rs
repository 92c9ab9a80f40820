//! The schedules as a grid: a row for each, a column for each hour or day, and in a cell how its launches went.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{Markup, html};

use super::super::charts::{heat_legend, percent};
use super::super::heat_map::HeatCell;
use super::super::parts::launches_where;
use super::super::words::{counted, line};
use super::super::{Visit, links};
use super::{Listed, Shown, group_words, sort_link, state, success};
use campanile_model::clock::Timestamp;
use campanile_model::rollup::Period;

/// The width of a row in its own units.
const WIDTH: usize = 1_000;
/// The columns from one mark of the axis to the next.
const HOURS_APART: usize = 3;
const DAYS_APART: usize = 5;
/// The statuses of failed launches.
const FAILED: &str = "failed,abandoned,unknown";

/// Shows the grid.
pub(super) fn grid(visit: &Visit, listed: &[Listed], shown: &Shown) -> Markup {
    let starts = Vec::from_iter(shown.span.starts(shown.clock.now));
    let head = |by: &str, words: &str| sort_link(visit, shown, by, words);
    html! {
        div.lanes role="group" aria-label="Schedules by time" {
            div.label.far { (head("name", "Schedule")) span.mid { " · " (head("state", "State")) } }
            (axis(&starts, shown))
            div.after { (head("success", "Success")) }
            @for (place, one) in listed.iter().enumerate() {
                @let before = place.checked_sub(1).and_then(|before| listed.get(before));
                @if shown.is_grouped && before.is_none_or(|before| before.package() != one.package()) { div.group { (group_words(listed, one.package(), shown.clock.now)) } }
                (row(one, &starts, shown))
            }
        }
    }
}

/// Says what the colours mean.
pub(super) fn legend() -> Markup {
    html! {
        (heat_legend())
        span.legend { svg.key viewBox="0 0 10 10" aria-hidden="true" { rect.skip y="6" width="10" height="4" {} } "only skipped" }
    }
}

fn axis(starts: &[Timestamp], shown: &Shown) -> Markup {
    let apart = match shown.span.period {
        Period::Hour => HOURS_APART,
        Period::Day => DAYS_APART,
    };
    let step = 100.0 / starts.len().max(1) as f64;
    let marks = starts.iter().enumerate().step_by(apart);
    html! {
        svg.axis height="26" aria-hidden="true" {
            @for (place, start) in marks {
                @let (x, anchor) = if place == 0 { (0.0, "start") } else { ((place as f64 + 0.5) * step, "middle") };
                text.odd[place / apart % 2 == 1] x={ (format!("{x:.2}")) "%" } y="17" text-anchor=(anchor) { (name(*start, shown)) }
            }
        }
    }
}

/// Returns the name of a column: an hour on the reader's clock, or a day in UTC.
fn name(start: Timestamp, shown: &Shown) -> String {
    match shown.span.period {
        Period::Hour => shown.clock.hour(start),
        Period::Day => start.to_chrono().format("%b %-d").to_string(),
    }
}

fn row(one: &Listed, starts: &[Timestamp], shown: &Shown) -> Markup {
    let sum = one.sum();
    let name = one.record.name();
    let since = starts.first().map(Timestamp::to_string).unwrap_or_default();
    let failed = launches_where(&[("schedule", name), ("status", FAILED), ("since", &since)]);
    html! {
        div.label {
            a.name href=(links::path(&["schedules", name])) { (line(name)) } " " (state(one, shown.clock.now))
        }
        svg viewBox="0 0 1000 26" height="26" preserveAspectRatio="none" role="img" {
            title { (words(one, shown)) }
            @for (class, path) in paths(one, starts) { path.(class) d=(path) {} }
        }
        div.after {
            @if sum.failed > 0 { a href=(failed) title={ (sum.failed) " failed" } { (percent(sum.succeeded, sum.ended())) } }
            @else { (success(&sum)) }
        }
    }
}

/// Pure: returns the path of each class of cells, and last that of the marks of failures.
fn paths(one: &Listed, starts: &[Timestamp]) -> Vec<(&'static str, String)> {
    let cells = starts
        .iter()
        .map(|start| one.periods.get(start).map(HeatCell::from));
    let cells = Vec::from_iter(cells.map(Option::unwrap_or_default));
    let busiest = cells.iter().map(HeatCell::ended).max().unwrap_or(0);
    let step = WIDTH / cells.len().max(1);
    let mut paths: BTreeMap<&str, String> = BTreeMap::new();
    let mut marks = String::new();
    for (place, cell) in cells.iter().enumerate() {
        let class = cell.class(busiest);
        if class == "none" {
            continue;
        }
        let (x, wide) = (place * WIDTH / cells.len() + 1, step - 3);
        let (y, tall) = if class == "skip" { (17, 5) } else { (4, 18) };
        // Writing to a String cannot fail.
        let path = paths.entry(class).or_default();
        let _ = write!(path, "M{x} {y}h{wide}v{tall}h-{wide}z");
        if cell.failed > 0 {
            let _ = write!(marks, "M{} 8v10", x + wide / 2);
        }
    }
    let mut paths = Vec::from_iter(paths);
    if !marks.is_empty() {
        paths.push(("cut", marks));
    }
    paths
}

/// Says in words what a row shows.
fn words(one: &Listed, shown: &Shown) -> String {
    let what = shown.span.period.as_str();
    if one.periods.is_empty() {
        return "no launches".to_owned();
    }
    let sum = one.sum();
    let with = |of: fn(&HeatCell) -> bool| {
        let cells = one.periods.values().map(HeatCell::from);
        counted(cells.filter(of).count() as u64, what)
    };
    let worst = one.periods.iter().filter(|(_, rollup)| rollup.failed > 0);
    let worst = worst.max_by_key(|(_, rollup)| rollup.failed * 1_000_000 / rollup.ended());
    let worst = worst.map(|(start, rollup)| {
        let at = match shown.span.period {
            Period::Hour => shown.clock.hour(*start),
            Period::Day => start.date_text(),
        };
        format!("; the worst {at}: {}", HeatCell::from(rollup).words())
    });
    format!(
        "{} with a failure, {} with skipped slots; {} in all{}",
        with(|cell| cell.failed > 0),
        with(|cell| cell.skipped > 0),
        HeatCell::from(&sum).words(),
        worst.unwrap_or_default()
    )
}
