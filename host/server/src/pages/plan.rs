//! The forecast: what won't run, when launches start, and which schedules take how long.

mod columns;

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::parts::{badge_of, command, empty, filter};
use super::words::{Clock, counted, line, moment, rough, shell, span, time};
use super::{View, Visit, charts, links};
use crate::call::{Call, Result};
use crate::query::{Query, parameters};
use crate::read;
use campanile_control::reports::forecast::report::{PlanReport, PlannedLaunch};
use campanile_control::reports::forecast::{FIRST_SCHEDULES_MAX, GetPlan};
use campanile_model::clock::Timestamp;
use campanile_store::LaunchStatus;

/// How far ahead the page looks at first.
const AHEAD: Duration = Duration::from_secs(6 * 3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
const MINUTE: Duration = Duration::from_secs(60);
/// The most schedules and decisions that are shown.
const SCHEDULES_SHOWN: usize = 60;
const ROWS_SHOWN: usize = 50;
/// The most groups of slots that won't run.
const MISSED_SHOWN: usize = 12;
/// The most schedules with a lane, and its parts.
const LANES_MAX: usize = 30;
const LANE_PARTS: usize = 200;
const NAMES: [&str; 4] = ["from", "to", "schedule", "outage"];

/// What the page shows.
struct Plan {
    report: PlanReport,
    /// Where the forecast ends.
    to: Timestamp,
    /// From when on schedules that are left out have slots.
    more_at: Option<Timestamp>,
    /// Whether it's the beginning that's shown without a query.
    is_beginning: bool,
    clock: Clock,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let query = &visit.call.query;
    let clock = visit.clock();
    let asked = asked(visit, clock.now)?;
    let is_asked = NAMES.iter().any(|name| query.all(name).next().is_some());
    let (report, more_at) = if is_asked {
        (read::forecast(&asked, None).await?, None)
    } else {
        read::beginning_of_forecast(&asked).await?
    };
    let plan = Plan {
        to: report.cut_at.unwrap_or(report.to),
        report,
        more_at,
        is_beginning: !is_asked,
        clock,
    };
    let report = &plan.report;
    let schedule = query.text("schedule").unwrap_or_default();
    let mut same = "campanile plan".to_owned();
    for name in NAMES {
        for value in asked.query.all(name) {
            same += &format!(" --{name} {}", shell(value));
        }
    }
    let main = html! {
        form.filter method="get" action="/plan" {
            (filter(visit, "from", "From", "now, or today 18:00"))
            (filter(visit, "to", "To", "now+6h"))
            (filter(visit, "schedule", "Schedule", "all"))
            (filter(visit, "outage", "Outage of all hosts", "now+1h..now+3h"))
            button { "Forecast" }
        }
        (cuts(&plan))
        div.grid {
            (missed(&plan))
            @if report.launches == 0 {
                section.card.w12 { div.pad { (empty("Nothing will be launched in this time.", html! { "Choose a later end, or see which " a href="/schedules?state=paused" { "schedules are paused" } "." })) } }
            } @else {
                (columns::card(&plan, schedule))
            }
            (schedules(&plan))
            (decisions(&plan))
        }
        (command(&same))
    };
    View::with_head("Plan", head(&plan, schedule), main)
}

/// Returns the call with the query that's meant: six hours if none is given, and from now on if its beginning has passed while
/// the page was open.
fn asked(visit: &Visit, now: Timestamp) -> Result<Call> {
    let given = visit.call.query.question::<GetPlan>()?;
    let query = &visit.call.query;
    let has_begun =
        given.from.is_some_and(|from| from.0 < now) && given.to.is_none_or(|to| to.0 > now);
    let is_default = NAMES.iter().all(|name| query.all(name).next().is_none());
    let to = is_default.then(|| floor(now.plus(AHEAD), MINUTE).plus(MINUTE).to_string());
    let mut kept = Vec::new();
    for name in NAMES.iter().filter(|name| **name != "from" || !has_begun) {
        kept.extend(query.all(name).map(|value| (*name, value)));
    }
    kept.extend(to.as_deref().map(|to| ("to", to)));
    let text = links::query(&kept);
    let mut call = visit.call.clone();
    call.query = Query::read(text.trim_start_matches('?'), parameters::<GetPlan>())?;
    Ok(call)
}

/// Returns the last multiple of a step up to a time.
fn floor(at: Timestamp, step: Duration) -> Timestamp {
    campanile_control::records::schedule::floor(at, step)
}

fn head(plan: &Plan, schedule: &str) -> Markup {
    let (report, clock) = (&plan.report, plan.clock);
    let ahead = |length: Duration| {
        let to = floor(clock.now.plus(length), MINUTE)
            .plus(MINUTE)
            .to_string();
        format!(
            "/plan{}",
            links::query(&[("to", to.as_str()), ("schedule", schedule)])
        )
    };
    html! {
        div.head {
            h1 { "Plan" }
            span.far {
                (time(report.from, clock)) " to " (time(plan.to, clock)) ": " strong { (counted(report.launches, "launch")) }
                ", at most " (report.peak.running) " of " (counted(report.capacity as u64, "run")) " at once"
                @if let Some(at) = report.peak.at { ", first at " (time(at, clock)) }
                ". The longest wait is " (span(Duration::from_millis(report.lag_ms_max))) "."
            }
            nav.filters aria-label="Span of the plan" {
                a href=(ahead(MINUTE * 60)) { "1 h" }
                a href="/plan" { "6 h" }
                a href=(ahead(DAY)) { "24 h" }
                a href=(ahead(DAY * 7)) { "7 d" }
            }
        }
    }
}

/// Says where the forecast ends earlier than it was meant to.
fn cuts(plan: &Plan) -> Markup {
    let clock = plan.clock;
    let whole = floor(clock.now.plus(AHEAD), MINUTE)
        .plus(MINUTE)
        .to_string();
    let whole = format!("/plan{}", links::query(&[("to", whole.as_str())]));
    html! {
        @if let Some(at) = plan.more_at {
            p.warning {
                "This is the beginning, of the first " (FIRST_SCHEDULES_MAX) " schedules with a slot: more have slots from " (time(at, clock)) " on. "
            }
        }
        @if let Some(cut) = plan.report.cut_at {
            p.warning { "The forecast stops at " (time(cut, clock)) ", after " (plan.report.rows.len()) " decisions. Choose one schedule, or a later beginning." }
        }
        @if plan.is_beginning && (plan.more_at.is_some() || plan.report.cut_at.is_some()) {
            p { a href=(whole) { "Forecast all six hours" } " takes longer." }
        }
    }
}

/// Slots of a schedule that are skipped for one reason.
#[derive(Default)]
struct Missed {
    slots: i64,
    first: Option<Timestamp>,
}

/// Lists what won't run: first, since that's what surprises.
fn missed(plan: &Plan) -> Markup {
    let report = &plan.report;
    let mut missed: BTreeMap<(&str, &str), Missed> = BTreeMap::new();
    for row in report.rows.iter().filter(|row| is_skipped(row)) {
        let reason = row.row.reason.as_deref().unwrap_or_default();
        let group = missed.entry((&row.schedule, reason)).or_default();
        group.slots += row.row.slot_count;
        group.first = group.first.or(Some(row.row.scheduled_time));
    }
    let mut missed = Vec::from_iter(missed);
    missed.sort_by_key(|(_, group)| -group.slots);
    let without_host = report
        .schedules
        .iter()
        .filter_map(|forecast| Some((&forecast.schedule, forecast.missing_labels.as_ref()?)));
    let without_host = Vec::from_iter(without_host.take(MISSED_SHOWN));
    html! {
        @if !missed.is_empty() || !without_host.is_empty() || !report.omitted.is_empty() {
            section.card.w12 aria-labelledby="missed" {
                header {
                    h2 #missed { "What won't run" }
                    @for (reason, slots) in &report.skipped { (badge_of("skip", &format!("{} for {reason}", counted(*slots, "slot")))) " " }
                }
                @for (schedule, labels) in &without_host {
                    div.row { p { (links::schedule(schedule)) " waits for a host with " (line(&labels.named())) } span {} (badge_of("warn", "no host")) }
                }
                @for ((schedule, reason), group) in missed.iter().take(MISSED_SHOWN) {
                    div.row {
                        p { (links::schedule(schedule)) " skips " (counted(group.slots.unsigned_abs(), "slot")) " for " code { (line(reason)) } }
                        span.far { @if let Some(first) = group.first { "the first " (moment(first, plan.clock)) } }
                        (badge_of("skip", "skipped"))
                    }
                }
                @if missed.len() > MISSED_SHOWN { p.more { "And " (missed.len() - MISSED_SHOWN) " more." } }
                @if !report.omitted.is_empty() {
                    details {
                        summary.more { (counted(report.omitted.len() as u64, "schedule")) " without a forecast, such as paused ones" }
                        ul { @for omitted in report.omitted.iter().take(SCHEDULES_SHOWN) { li { (links::schedule(&omitted.name)) ": " (line(&omitted.why)) } } }
                    }
                }
            }
        }
    }
}

fn is_skipped(row: &PlannedLaunch) -> bool {
    row.row.status == LaunchStatus::Skipped
}

fn schedules(plan: &Plan) -> Markup {
    let (report, clock) = (&plan.report, plan.clock);
    let shown = report.schedules.iter().take(SCHEDULES_SHOWN);
    let lanes = lanes(plan);
    html! {
        section.card.w12 aria-labelledby="schedules" {
            header { h2 #schedules { "Schedules" } span.far { "boxes: from the start to the predicted end" } }
            div.wide tabindex="0" role="region" aria-label="Schedules of the plan" {
                table.cards {
                    thead { tr { th scope="col" { "Schedule" } th.number scope="col" { "Launches" } th scope="col" { "When" } th.number scope="col" { "First" } th.number scope="col" { "Takes" } th.number scope="col" { "Longest wait" } } }
                    tbody {
                        @for forecast in shown {
                            tr.looks[forecast.missing_labels.is_some()] {
                                td {
                                    span.apart { (links::schedule(&forecast.schedule)) }
                                    @if let Some(since) = forecast.failing_since { " " (badge_of("bad", &format!("failing {}", rough(clock.now.since(since))))) }
                                }
                                td.number { (forecast.totals.launches) }
                                td.lane {
                                    @if let Some(path) = lanes.get(forecast.schedule.as_str()) {
                                        svg.bar viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
                                            rect.track x="0" y="9" width="1000" height="1" {}
                                            path.planned d=(path) {}
                                        }
                                    }
                                }
                                td.number.rest { @if let Some(first) = forecast.totals.first { (moment(first, clock)) } @else { "none" } }
                                td.number.rest { (span(Duration::from_millis(forecast.duration_ms))) @if forecast.duration_from == 0 { " (a guess)" } }
                                td.number.rest { (span(Duration::from_millis(forecast.lag_ms_max))) }
                            }
                        }
                    }
                }
            }
            @if report.schedules.len() > SCHEDULES_SHOWN { p.more { "The first " (SCHEDULES_SHOWN) " of " (counted(report.schedules.len() as u64, "schedule")) "." } }
        }
    }
}

/// Returns the paths of the lanes: a box from the start of each launch to its predicted end. Boxes that touch are one.
fn lanes(plan: &Plan) -> BTreeMap<&str, String> {
    const WIDTH: f64 = 1_000.0;
    let whole = plan.to.since(plan.report.from).as_secs_f64().max(1.0);
    let mut parts: BTreeMap<&str, [bool; LANE_PARTS]> = BTreeMap::new();
    let first = plan.report.schedules.iter().take(LANES_MAX);
    for forecast in first {
        parts.insert(&forecast.schedule, [false; LANE_PARTS]);
    }
    let part = |at: Timestamp| {
        let share = at
            .max(plan.report.from)
            .since(plan.report.from)
            .as_secs_f64()
            / whole;
        ((share * LANE_PARTS as f64) as usize).min(LANE_PARTS - 1)
    };
    for row in &plan.report.rows {
        let (Some(lane), Some(start)) = (parts.get_mut(row.schedule.as_str()), row.row.started_at)
        else {
            continue;
        };
        let end = row.row.finished_at.unwrap_or(start);
        if let Some(run) = lane.get_mut(part(start)..=part(end)) {
            run.fill(true);
        }
    }
    let wide = WIDTH / LANE_PARTS as f64;
    let path = |lane: [bool; LANE_PARTS]| {
        let mut path = String::new();
        let mut begin = 0;
        for run in lane.chunk_by(|a, b| a == b) {
            if run.first() == Some(&true) {
                let x = begin as f64 * wide;
                charts::push_box(&mut path, x, 1.0, run.len() as f64 * wide, 8.0);
            }
            begin += run.len();
        }
        path
    };
    parts
        .into_iter()
        .map(|(name, lane)| (name, path(lane)))
        .collect()
}

fn decisions(plan: &Plan) -> Markup {
    let (report, clock) = (&plan.report, plan.clock);
    html! {
        @if !report.rows.is_empty() {
            section.card.w12 { details.more {
                summary { "The first " (report.rows.len().min(ROWS_SHOWN)) " of " (counted(report.rows.len() as u64, "decision")) }
                div.wide tabindex="0" role="region" aria-label="Decisions" {
                    table {
                        thead { tr { th scope="col" { "Slot" } th scope="col" { "Schedule" } th scope="col" { "Decision" } th scope="col" { "Starts" } } }
                        tbody {
                            @for planned in report.rows.iter().take(ROWS_SHOWN) {
                                tr {
                                    td { (time(planned.row.scheduled_time, clock)) }
                                    td { (links::schedule(&planned.schedule)) }
                                    td { (planned.row.decision.as_str()) @if let Some(reason) = &planned.row.reason { " " code { (line(reason)) } } }
                                    td { @if let Some(start) = planned.row.started_at { (time(start, clock)) " " span.far { "in " (rough(start.since(clock.now.min(start)))) } } @else { "not in this time" } }
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}
