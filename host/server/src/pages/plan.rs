//! The forecast: when launches will start, and what is skipped.

use maud::{Markup, html};

use super::parts::{command, empty, filter};
use super::words::{counted, line, moment, shell, span, time};
use super::{View, Visit, charts, links};
use crate::call::Result;
use crate::read;
use campanile_control::reports::forecast::FIRST_SCHEDULES_MAX;
use campanile_control::reports::forecast::report::PlanReport;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The most columns of the chart.
const COLUMNS_MAX: u64 = 96;
/// The most schedules and decisions that are shown.
const SCHEDULES_SHOWN: usize = 100;
const ROWS_SHOWN: usize = 50;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let query = &visit.call.query;
    let is_asked = ["from", "to", "schedule", "outage"]
        .iter()
        .any(|name| query.all(name).next().is_some());
    let (report, more_at) = if is_asked {
        (read::forecast(&visit.call, None).await?, None)
    } else {
        read::beginning_of_forecast(&visit.call).await?
    };
    let now = visit.call.now();
    let day_end = now.plus(DAY).to_string();
    let whole = format!("/plan{}", links::query(&[("to", day_end.as_str())]));
    let schedule = query.text("schedule").unwrap_or_default();
    let mut same = "campanile plan".to_owned();
    for name in ["from", "to", "schedule", "outage"] {
        for value in query.all(name) {
            same += &format!(" --{name} {}", shell(value));
        }
    }
    let starts = report.starts.iter().map(|starts| (starts.at, starts.count));
    let columns = charts::parts(starts, report.from, report.to, COLUMNS_MAX, |from, to| {
        let part = [
            ("from", from.to_string()),
            ("to", to.to_string()),
            ("schedule", schedule.to_owned()),
        ];
        let part = Vec::from_iter(part.iter().map(|(name, value)| (*name, value.as_str())));
        format!("/plan{}", links::query(&part))
    });
    View::new(
        "Plan",
        html! {
            form.filter method="get" action="/plan" {
                (filter(visit, "from", "From", "now"))
                (filter(visit, "to", "To", "one day later"))
                (filter(visit, "schedule", "Schedule", "all"))
                (filter(visit, "outage", "Outage of all hosts", "2026-11-22T02:00:00Z..2026-11-22T05:00:00Z"))
                button { "Forecast" }
                " " a href="/plan" { "The next day" }
            }
            p {
                "From " (moment(report.from, now)) " to " (moment(report.to, now)) ": " strong { (counted(report.launches, "launch")) }
                ", at most " (counted(report.peak.running as u64, "run")) " at once"
                @if let Some(at) = report.peak.at { " at " (time(at)) }
                ", of " (report.capacity) " that the hosts can run. The longest wait is " (span(Duration::from_millis(report.lag_ms_max))) "."
            }
            @if let Some(at) = more_at {
                p.warning {
                    "This is the beginning, of the first " (FIRST_SCHEDULES_MAX) " schedules with a slot: more have slots from " (time(at)) " on. "
                    a href=(whole) { "Forecast the whole day" } " takes longer."
                }
            }
            @if let Some(cut) = report.cut_at { p.warning { "The forecast has too many decisions: it stops at " (time(cut)) ". Choose an earlier end." } }
            @if !report.skipped.is_empty() {
                p { "Not launched:" @for (reason, slots) in &report.skipped { " " (counted(*slots, "slot")) " for " code { (reason) } "." } }
            }
            @if report.launches == 0 {
                (empty("Nothing will be launched in this time.", html! { "Choose a later end, or see which " a href="/schedules?state=paused" { "schedules are paused" } "." }))
            } @else {
                section aria-labelledby="starts" {
                    h2 #starts { "Starts" }
                    (charts::columns(&columns))
                }
            }
            (schedules(&report))
            (decisions(&report))
            (command(&same))
        },
    )
}

fn schedules(report: &PlanReport) -> Markup {
    html! {
        section aria-labelledby="schedules" {
            h2 #schedules { "Schedules" }
            div.wide tabindex="0" {
                table {
                    thead { tr { th scope="col" { "Schedule" } th scope="col" { "Launches" } th scope="col" { "First" } th scope="col" { "Usual duration" } th scope="col" { "Longest wait" } } }
                    tbody {
                        @for forecast in report.schedules.iter().take(SCHEDULES_SHOWN) {
                            tr {
                                td {
                                    (links::schedule(&forecast.schedule))
                                    @if let Some(labels) = &forecast.missing_labels { " " span.warning { "waits for a host with " (line(&labels.named())) } }
                                }
                                td { (forecast.totals.launches) }
                                td { @if let Some(first) = forecast.totals.first { (time(first)) } @else { "none" } }
                                td { (span(Duration::from_millis(forecast.duration_ms))) @if forecast.duration_from == 0 { " (a guess)" } }
                                td { (span(Duration::from_millis(forecast.lag_ms_max))) }
                            }
                        }
                    }
                }
            }
            @if report.schedules.len() > SCHEDULES_SHOWN { p { "The first " (SCHEDULES_SHOWN) " of " (counted(report.schedules.len() as u64, "schedule")) "." } }
            @if !report.omitted.is_empty() {
                details {
                    summary { (counted(report.omitted.len() as u64, "schedule")) " without a forecast" }
                    ul { @for omitted in report.omitted.iter().take(SCHEDULES_SHOWN) { li { (links::schedule(&omitted.name)) ": " (line(&omitted.why)) } } }
                }
            }
        }
    }
}

fn decisions(report: &PlanReport) -> Markup {
    html! {
        @if !report.rows.is_empty() {
            details {
                summary { "The first " (report.rows.len().min(ROWS_SHOWN)) " of " (counted(report.rows.len() as u64, "decision")) }
                div.wide tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "Slot" } th scope="col" { "Schedule" } th scope="col" { "Decision" } th scope="col" { "Starts" } } }
                        tbody {
                            @for planned in report.rows.iter().take(ROWS_SHOWN) {
                                tr {
                                    td { (time(planned.row.scheduled_time)) }
                                    td { (links::schedule(&planned.schedule)) }
                                    td { (planned.row.decision.as_str()) @if let Some(reason) = &planned.row.reason { " " code { (reason) } } }
                                    td { @if let Some(start) = planned.row.started_at { (time(start)) } @else { "not in this time" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
