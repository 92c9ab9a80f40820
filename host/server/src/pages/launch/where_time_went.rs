//! Where the time of a launch went: rows are its runs and tasks, x is the time, over all runs on all hosts.

use std::time::Duration;

use maud::{Markup, html};

use super::super::charts::{self, class, push_box};
use super::super::parts::badge;
use super::super::words::{counted, line, moment, short, span, time};
use super::super::{Clock, links};
use super::Shown;
use campanile_control::records::run::{RunDetail, TaskCall};
use campanile_model::clock::Timestamp;
use campanile_model::text::size_rounded;
use campanile_store::runs::RunRow;
use campanile_store::{LaunchStatus, RunStatus};

/// The width of a lane in its own units.
const WIDTH: f64 = 1_000.0;
/// The least width of a bar.
const LEAST: f64 = 2.0;
/// The most lanes of runs, the most of tasks, and the newest calls that are drawn and listed.
const RUN_LANES_MAX: usize = 12;
const TASK_LANES_MAX: usize = 24;
const CALLS_MAX: usize = 200;
const LISTED_MAX: usize = 50;
/// The most characters of a name in a lane.
const NAME_MAX: usize = 40;
/// An axis of less than this has tenths of milliseconds.
const SHORT: Duration = Duration::from_millis(40);

/// The time that the lanes show.
#[derive(Clone, Copy)]
struct Window {
    /// When the first run began: zero on the axis.
    start: Timestamp,
    from: Timestamp,
    to: Timestamp,
}

/// A row of the chart.
struct Lane {
    label: Markup,
    after: Markup,
    /// The same in words.
    text: String,
    /// Each class with its path.
    paths: Vec<(&'static str, String)>,
}

impl Window {
    /// Returns the time from the wait before the first run to the end. A wait that is longer than the runs is cut.
    fn of(shown: &Shown) -> Option<Window> {
        let launch = shown.launch();
        let start = shown.started()?;
        let end = launch.finished_at.unwrap_or(shown.clock.now);
        let retry = shown.detail.runs.last().and_then(|run| run.retry_at);
        let to = end.max(
            retry
                .filter(|_| launch.finished_at.is_none())
                .unwrap_or(end),
        );
        let to = to.max(start.plus(Duration::from_millis(1)));
        let ready = match shown.detail.decided.opened_at {
            Some(_) => launch.decided_at,
            None => launch.fire_time,
        };
        let from = ready.max(start.minus(to.since(start) / 4)).min(start);
        Some(Window { start, from, to })
    }

    fn x(self, at: Timestamp) -> f64 {
        let whole = (self.to.micros() - self.from.micros()).max(1) as f64;
        let part = (at.micros() - self.from.micros()) as f64;
        (part / whole * WIDTH).clamp(0.0, WIDTH)
    }

    /// Adds a bar between two times to a path.
    fn add(self, path: &mut String, (begin, end): (Timestamp, Timestamp), (y, tall): (f64, f64)) {
        let left = self.x(begin).min(WIDTH - LEAST);
        push_box(path, left, y, (self.x(end) - left).max(LEAST), tall);
    }
}

/// Shows the chart; nothing for a launch without a run that has ended.
pub(super) fn card(shown: &Shown) -> Markup {
    let launch = shown.launch();
    let Some(window) = Window::of(shown) else {
        return waits(shown);
    };
    let calls = shown.runs.iter().flat_map(|run| &run.tasks);
    let mut calls = Vec::from_iter(calls);
    calls.sort_by_key(|call| (call.row.started_at, call.row.attempt));
    let left_out = calls.len().saturating_sub(CALLS_MAX);
    let calls = calls.get(left_out..).unwrap_or_default();
    let mut lanes = Vec::new();
    lanes.extend(waiting_lane(shown, window));
    lanes.extend(run_lanes(shown, window));
    lanes.extend(task_lanes(calls, window));
    lanes.extend(open_lane(shown, calls, window));
    let usual = shown.usual();
    let lag = launch
        .started_at
        .map(|_| window.start.since(launch.fire_time));
    html! {
        section.card.w12 aria-labelledby="time" {
            header {
                h2 #time { "Where the time went" }
                span.far {
                    @if let Some(lag) = lag { "lag " (span(lag)) " · " }
                    @if let Some((middle, late)) = usual { "usual " (span(middle)) " · p95 " (span(late)) " · " }
                    (legend(&lanes))
                }
            }
            (drawn(&lanes, window, usual.map(|(middle, _)| window.start.plus(middle))))
            @if calls.is_empty() {
                p.more {
                    @if launch.finished_at.is_some() { "No call of a task is on record: none ended, or retention has removed them." }
                    @else { "No call has ended yet. A call is on record when it ends." }
                }
            }
            @for run in shown.detail.runs.iter().filter(|run| run.status == RunStatus::Lost).take(RUN_LANES_MAX) { (lost(shown, run)) }
            (tables(shown, calls, left_out, window))
        }
    }
}

/// Says what a launch without a run waits for, or that it never ran.
fn waits(shown: &Shown) -> Markup {
    let launch = shown.launch();
    let clock = shown.clock;
    html! {
        section.card.w12 aria-labelledby="time" {
            header { h2 #time { "Where the time went" } }
            p.more {
                "It has no run: no host has claimed it. "
                @match launch.status {
                    LaunchStatus::Queued => "It waits for other launches of its schedule, or for its time.",
                    LaunchStatus::Open => {
                        "It could have started " (moment(launch.fire_time, clock)) ". "
                        @if let Some(labels) = &launch.run_on { "Its host must have the labels " code { (line(&labels.to_string())) } "." }
                    },
                    _ => { "It was " (launch.status.as_str()) @if let Some(at) = launch.finished_at { " " (moment(at, clock)) } "." },
                }
            }
        }
    }
}

/// The lane of the time before the first run, if that's worth a look.
fn waiting_lane(shown: &Shown, window: Window) -> Option<Lane> {
    let launch = shown.launch();
    let opened = shown.detail.decided.opened_at;
    let waited = window.start.since(match opened {
        Some(_) => launch.decided_at,
        None => launch.fire_time,
    });
    if opened.is_none() && waited < window.to.since(window.start) / 20 {
        return None;
    }
    let (mut queue, mut lag) = (String::new(), String::new());
    let ready = opened.unwrap_or(launch.fire_time).min(window.start);
    if ready > window.from && opened.is_some() {
        window.add(&mut queue, (window.from, ready), (6.0, 14.0));
    }
    window.add(&mut lag, (ready, window.start), (6.0, 14.0));
    let after = span(waited);
    Some(Lane {
        label: html! { "before it ran" },
        text: format!("before it ran: {after}"),
        after: html! { (after) },
        paths: vec![("queue", queue), ("lag", lag)],
    })
}

/// The lanes of its runs, if there's more than one or a host died.
fn run_lanes(shown: &Shown, window: Window) -> Vec<Lane> {
    let runs = &shown.detail.runs;
    if runs.len() < 2 && runs.iter().all(|run| run.status != RunStatus::Lost) {
        return Vec::new();
    }
    let first = runs.len().saturating_sub(RUN_LANES_MAX);
    let lane = |run: &RunRow| {
        let mut path = String::new();
        let end = run.finished_at.unwrap_or(shown.clock.now);
        let is_lost = run.status == RunStatus::Lost;
        let (y, tall) = if is_lost { (6.0, 14.0) } else { (11.0, 4.0) };
        window.add(&mut path, (run.started_at, end), (y, tall));
        let host = run.host.as_deref().unwrap_or("unknown");
        let status = run.status.as_str();
        let number = run.id.number();
        Lane {
            label: html! {
                a href=(links::path(&["runs", &run.id.to_string()])) aria-current=[(shown.only == Some(run.id)).then_some("true")] { "run " (number) }
                " " span.far { (short(host, NAME_MAX)) }
            },
            text: format!("run {number} on {}: {status}", line(host)),
            after: html! { @if is_lost { "lost" } @else { (span(end.since(run.started_at))) } },
            paths: vec![(if is_lost { "recovered" } else { class(status) }, path)],
        }
    };
    let kept = runs.get(first..).unwrap_or_default();
    kept.iter().map(lane).collect()
}

/// The lanes of the tasks, in the order in which they were called first.
fn task_lanes(calls: &[&TaskCall], window: Window) -> Vec<Lane> {
    let mut tasks: Vec<(&str, Vec<&TaskCall>)> = Vec::new();
    for call in calls {
        match tasks.iter_mut().find(|(task, _)| *task == call.row.task) {
            Some((_, of)) => of.push(call),
            None => tasks.push((&call.row.task, vec![call])),
        }
    }
    let left_out = tasks.len().saturating_sub(TASK_LANES_MAX);
    let lane = |(task, calls): (&str, Vec<&TaskCall>)| task_lane(task, &calls, window);
    let mut lanes = Vec::from_iter(tasks.into_iter().take(TASK_LANES_MAX).map(lane));
    if left_out > 0 {
        lanes.push(Lane {
            label: html! { span.far { "and " (counted(left_out as u64, "more task")) } },
            after: html! {},
            text: String::new(),
            paths: Vec::new(),
        });
    }
    lanes
}

fn task_lane(task: &str, calls: &[&TaskCall], window: Window) -> Lane {
    let [mut ok, mut bad, mut pause] = [const { String::new() }; 3];
    let mut took = Duration::ZERO;
    for (place, call) in calls.iter().enumerate() {
        let row = &call.row;
        let path = if row.succeeded { &mut ok } else { &mut bad };
        window.add(path, (row.started_at, row.finished_at), (6.0, 14.0));
        took += row.finished_at.since(row.started_at);
        let next = calls.get(place + 1).map(|next| next.row.started_at);
        if let Some(until) = row.retry_at.map(|retry| next.unwrap_or(retry)) {
            window.add(&mut pause, (row.finished_at, until), (12.0, 2.0));
        }
    }
    let failed = calls.iter().filter(|call| !call.row.succeeded).count();
    let count = counted(calls.len() as u64, "call");
    Lane {
        label: html! { (short(task, NAME_MAX)) @if calls.len() > 1 { " " span.far { (count) } } },
        text: format!("{}: {count}, {failed} failed, {}", line(task), span(took)),
        after: html! { (span(took)) },
        paths: vec![("warn", pause), ("ok", ok), ("bad", bad)],
    }
}

/// The lane of what goes on now.
fn open_lane(shown: &Shown, calls: &[&TaskCall], window: Window) -> Option<Lane> {
    let run = shown
        .detail
        .runs
        .last()
        .filter(|run| run.finished_at.is_none())?;
    let ended = calls.iter().map(|call| call.row.finished_at).max();
    let from = ended.unwrap_or(run.started_at).max(run.started_at);
    let mut path = String::new();
    let (class, words, shape, to) = match run.retry_at {
        Some(retry) => ("warn", "waits for a retry", (12.0, 2.0), retry),
        None => ("run", "runs now", (6.0, 14.0), shown.clock.now),
    };
    window.add(&mut path, (from, to), shape);
    let after = span(to.since(from));
    Some(Lane {
        label: html! { (words) },
        text: format!("{words}: {after}"),
        after: html! { (after) },
        paths: vec![(class, path)],
    })
}

/// Shows the lanes under an axis, with a mark where the launch usually ends.
fn drawn(lanes: &[Lane], window: Window, usual: Option<Timestamp>) -> Markup {
    let usual = usual.filter(|at| *at < window.to).map(|at| window.x(at));
    let at = |quarter: u32| window.from.plus(window.to.since(window.from) / 4 * quarter);
    let is_short = window.to.since(window.from) < SHORT;
    let words = |at: Timestamp| {
        let (sign, from_start) = if at >= window.start {
            ("", at.since(window.start))
        } else {
            ("−", window.start.since(at))
        };
        if is_short {
            format!("{sign}{:.1} ms", from_start.as_secs_f64() * 1e3)
        } else {
            format!("{sign}{}", span(from_start))
        }
    };
    html! {
        div.lanes {
            div.label.far { "task" }
            svg.axis height="26" aria-hidden="true" {
                text x="0" y="17" { (words(at(0))) }
                @for quarter in 1..4 {
                    text.odd[quarter != 2] x={ (quarter * 25) "%" } y="17" text-anchor="middle" { (words(at(quarter))) }
                }
                text x="100%" y="17" text-anchor="end" { (words(window.to)) }
            }
            div.after { "took" }
            @for lane in lanes {
                div.label { (lane.label) }
                svg viewBox="0 0 1000 26" height="26" preserveAspectRatio="none" role="img" aria-label=(lane.text) {
                    path.rule d="M250 0V26M500 0V26M750 0V26" {}
                    @for (class, path) in lane.paths.iter().filter(|(_, path)| !path.is_empty()) { path class=(class) d=(path) {} }
                    @if let Some(x) = usual { path.mark d=(format!("M{x:.1} 0V26")) {} }
                }
                div.after { (lane.after) }
            }
        }
    }
}

/// Shows what the colours mean that are in the chart.
fn legend(lanes: &[Lane]) -> Markup {
    let has = |class: &str| {
        let mut paths = lanes.iter().flat_map(|lane| &lane.paths);
        paths.any(|(of, path)| *of == class && !path.is_empty())
    };
    let words = [
        ("queue", "queued"),
        ("lag", "waited for a host"),
        ("ok", "succeeded"),
        ("bad", "failed"),
        ("warn", "waits for a retry"),
        ("run", "runs"),
        ("recovered", "lost with its host"),
    ];
    html! {
        @for (class, words) in words.iter().filter(|(class, _)| has(class)) {
            span.legend { svg.key viewBox="0 0 10 10" aria-hidden="true" { path class=(class) d="M.5 .5h9v9h-9z" {} } (words) }
        }
    }
}

/// Says which host was lost with a run, and who went on.
fn lost(shown: &Shown, run: &RunRow) -> Markup {
    let clock = shown.clock;
    let next = shown
        .detail
        .runs
        .iter()
        .find(|next| next.started_at > run.started_at);
    let host = |run: &RunRow| line(run.host.as_deref().unwrap_or("an unknown host"));
    html! {
        p.more {
            "Run " (run.id.number()) " was lost with " strong { (host(run)) }
            @if let Some(at) = run.finished_at { " " (time(at, clock)) }
            @if let Some(message) = &run.message { ": " (short(message, 300)) }
            @if let Some(next) = next {
                "; " strong { (host(next)) } " went on "
                @if let Some(at) = run.finished_at { (span(next.started_at.since(at))) " later" } @else { (time(next.started_at, clock)) }
            }
            "."
        }
    }
}

/// Shows the runs and the calls as tables.
fn tables(shown: &Shown, calls: &[&TaskCall], left_out: usize, window: Window) -> Markup {
    let listed = calls.len().saturating_sub(LISTED_MAX);
    let left_out = left_out + listed;
    html! {
        details.more {
            summary { "Calls of the tasks, and runs, as tables" }
            div.wide tabindex="0" role="region" aria-label="Runs" { (run_table(shown)) }
            @if left_out > 0 { p { "The last " (calls.len() - listed) " of " (calls.len() - listed + left_out) " calls." } }
            @if !calls.is_empty() {
                div.wide tabindex="0" role="region" aria-label="Calls" {
                    table.gantt {
                        caption { "From " (time(window.start, shown.clock)) " to " (time(window.to, shown.clock)) ", " (span(window.to.since(window.start))) }
                        thead { tr { @for head in ["Task", "Call", "Result", "When", "Began after", "Took", "CPU", "Memory"] { th scope="col" { (head) } } } }
                        tbody { @for call in calls.iter().skip(listed) { (call_row(call, window)) } }
                    }
                }
            }
            @for RunDetail { run, traceparent, .. } in &shown.runs {
                p.far { "Trace context of run " (run.id.number()) ": " code { (traceparent) } }
            }
        }
    }
}

fn run_table(shown: &Shown) -> Markup {
    let clock: Clock = shown.clock;
    let runs = shown.detail.runs.iter().rev().take(LISTED_MAX);
    html! {
        table {
            thead { tr { @for head in ["Run", "Status", "Host", "Started", "Took"] { th scope="col" { (head) } } } }
            tbody {
                @for run in runs {
                    tr {
                        td { a.id href=(links::path(&["runs", &run.id.to_string()])) aria-current=[(shown.only == Some(run.id)).then_some("true")] { (run.id.short()) } }
                        td { (badge(run.status.as_str())) @if run.is_recovery { " recovery" } }
                        td { (line(run.host.as_deref().unwrap_or("unknown"))) }
                        td { (moment(run.started_at, clock)) }
                        td {
                            (span(run.finished_at.unwrap_or(clock.now).since(run.started_at)))
                            @if run.finished_at.is_none() { " so far" }
                            @if let Some(retry) = run.retry_at { ", called again " (moment(retry, clock)) }
                        }
                    }
                }
            }
        }
    }
}

fn call_row(call: &TaskCall, window: Window) -> Markup {
    let row = &call.row;
    let result = if row.succeeded { "succeeded" } else { "failed" };
    html! {
        tr {
            th scope="row" { (line(&row.task)) }
            td { (row.attempt) }
            td { (badge(result)) @if let Some(failure) = row.failure { " " (failure.as_str()) } }
            td.chart { (charts::bar(row.started_at, row.finished_at, window.start, window.to, result)) }
            td { (span(row.started_at.since(window.start))) }
            td { (span(row.finished_at.since(row.started_at))) }
            td { (format!("{:.0} ms", row.cpu_ms)) }
            td { (size_rounded(row.memory_peak_bytes.unsigned_abs())) }
        }
    }
}
