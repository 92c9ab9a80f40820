//! One launch and one of its runs: its states with their times, the calls of its tasks, and what they wrote.

use std::fmt::Display;

use maud::{Markup, html};

use super::parts::{ActionForm, badge, command, field};
use super::words::{both, line, moment, shell, span, tail, time};
use super::{View, Visit, charts, links};
use crate::call::Result;
use campanile_control::records::ids;
use campanile_control::records::launch::{LaunchDetail, next_step};
use campanile_control::records::run::{RunDetail, TaskCall, TaskLogs};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ShortId;
use campanile_store::runs::RunRow;

/// The calls that are shown.
const CALLS_MAX: usize = 50;
/// The bytes of all outputs and logs that are shown, as HTML. The last text may exceed them.
const TEXT_BYTES_MAX: usize = 40 << 10;
/// The bytes that are shown of one text.
const ONE_TEXT_BYTES_MAX: usize = 4 << 10;
/// The runs that are listed.
const RUNS_MAX: usize = 50;

/// Show a launch with its newest run.
pub(super) async fn of_launch(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let id = call.id::<ShortId>("id")?;
    let mut tx = call.read().await?;
    let detail = LaunchDetail::read(&mut tx, &id, call.namespace()).await?;
    let newest = detail.decided.launch.run_id.0;
    let newest = detail.runs.iter().find(|run| Some(run.id) == newest);
    let run = match newest {
        Some(run) => Some(RunDetail::shown(&mut tx, run.clone()).await?),
        None => None,
    };
    let title = format!("Launch {}", detail.decided.launch.id.short());
    View::new(title, main(visit, &detail, run))
}

/// Show a run with its launch.
pub(super) async fn of_run(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let id = call.id::<ShortId>("id")?;
    let mut tx = call.read().await?;
    let run = ids::run(&mut tx, &id, call.namespace()).await?;
    let launch = run.launch_id.to_string().parse::<ShortId>();
    let launch = launch.map_err(crate::problem::ApiProblem::invalid)?;
    let detail = LaunchDetail::read(&mut tx, &launch, call.namespace()).await?;
    let title = format!("Run {}", run.id.short());
    let run = RunDetail::shown(&mut tx, run).await?;
    View::new(title, main(visit, &detail, Some(run)))
}

fn main(visit: &Visit, detail: &LaunchDetail, run: Option<RunDetail>) -> Markup {
    let now = visit.call.now();
    let launch = &detail.decided.launch;
    html! {
        p {
            (badge(launch.status.as_str())) " " (launch.kind.as_str()) " launch of " (links::schedule(&launch.schedule))
            ", of the package " (links::package(&launch.package)) "."
        }
        @if let Some(message) = &launch.message {
            @let (message, left_out) = tail(message, ONE_TEXT_BYTES_MAX);
            div.problem {
                p { strong { @if let Some(failure) = launch.failure { (failure.as_str()) } @else { "Why" } } }
                pre tabindex="0" { @if left_out > 0 { "…" } (message) }
                @if let Some(note) = &detail.note { p.from-host { strong { "The host notes: " } (line(note)) } }
                @if let Some(next) = next_step(launch) { p { "Next: " (next) "." } }
            }
        }
        (steps(detail, now))
        (runs(detail, run.as_ref(), now))
        @if let Some(run) = run { (calls(visit, run, now)) }
        (forms(visit, detail))
        (facts(detail))
        (command(&format!("campanile launch show {}", launch.id)))
    }
}

/// Show the states of a launch, each with its time.
fn steps(detail: &LaunchDetail, now: Timestamp) -> Markup {
    let decided = &detail.decided;
    let launch = &decided.launch;
    let by = decided
        .host
        .as_deref()
        .map_or("a person".to_owned(), |host| {
            format!("the host {}", line(host))
        });
    html! {
        section aria-labelledby="steps" {
            h2 #steps { "What happened" }
            ol.steps {
                li { strong { "slot " } (both(launch.scheduled_time, launch.scheduled_local.as_str(), now)) }
                li {
                    strong { (launch.decision.as_str()) " " } (moment(launch.decided_at, now)) ", decided by " (by)
                    @if let Some(reason) = &launch.reason { ", reason " code { (line(reason)) } }
                    @if let Some(other) = launch.overlaps { ", because of the launch " (links::launch(other)) }
                    @if let Some(other) = launch.retry_of { ", a retry of " (links::launch(other)) }
                }
                @if let Some(opened) = decided.opened_at { li { strong { "left the queue " } (moment(opened, now)) } }
                @if launch.fire_time != launch.scheduled_time { li { strong { "could start " } (moment(launch.fire_time, now)) } }
                @for lost in detail.runs.iter().filter(|run| run.finished_at.is_some() && run.status.as_str() == "lost").take(RUNS_MAX) {
                    li { strong { "lost a run " } @if let Some(at) = lost.finished_at { (moment(at, now)) } " on the host " (line(lost.host.as_deref().unwrap_or("unknown"))) }
                }
                @if let Some(started) = launch.started_at {
                    li { strong { "started " } (moment(started, now)) ", " (span(started.since(launch.fire_time))) " after it could" }
                }
                @match launch.finished_at {
                    Some(ended) => li {
                        strong { (launch.status.as_str()) " " } (moment(ended, now))
                        @if let Some(started) = launch.started_at { ", after " (span(ended.since(started))) }
                    },
                    None => li { strong { (launch.status.as_str()) " now" } },
                }
            }
            (command(&format!("campanile schedule why {} --at {}", shell(&launch.schedule), launch.scheduled_time)))
        }
    }
}

fn runs(detail: &LaunchDetail, shown: Option<&RunDetail>, now: Timestamp) -> Markup {
    let is_shown = |run: &RunRow| shown.is_some_and(|shown| shown.run.id == run.id);
    html! {
        section aria-labelledby="runs" {
            h2 #runs { "Runs" }
            @if detail.runs.is_empty() {
                p { "It has no run: no host has claimed it." }
            } @else {
                div.wide tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "Run" } th scope="col" { "Status" } th scope="col" { "Host" } th scope="col" { "Started" } th scope="col" { "Took" } } }
                        tbody {
                            @for run in detail.runs.iter().rev().take(RUNS_MAX) {
                                tr {
                                    td { a.id href=(links::path(&["runs", &run.id.to_string()])) aria-current=[is_shown(run).then_some("true")] { (run.id.short()) } }
                                    td { (badge(run.status.as_str())) @if run.is_recovery { " recovery" } }
                                    td { (line(run.host.as_deref().unwrap_or("unknown"))) }
                                    td { (moment(run.started_at, now)) }
                                    td {
                                        (span(run.finished_at.unwrap_or(now).since(run.started_at)))
                                        @if run.finished_at.is_none() { " so far" }
                                        @if let Some(retry) = run.retry_at { ", called again " (moment(retry, now)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Show the calls of a run as a Gantt chart, and what each wrote.
fn calls(visit: &Visit, run: RunDetail, now: Timestamp) -> Markup {
    let RunDetail {
        run,
        tasks,
        traceparent,
    } = run;
    let all = tasks.len();
    let begin = tasks
        .iter()
        .map(|call| call.row.started_at)
        .chain([run.started_at])
        .min();
    let begin = begin.unwrap_or(run.started_at);
    let end = tasks
        .iter()
        .map(|call| call.row.finished_at)
        .chain([run.finished_at.unwrap_or(now)])
        .max();
    let end = end.unwrap_or(now);
    let tasks = Vec::from_iter(tasks.into_iter().rev().take(CALLS_MAX).rev());
    let id = run.id.to_string();
    html! {
        section aria-labelledby="calls" {
            h2 #calls { "Calls of the tasks of " a.id href=(links::path(&["runs", &id])) { (run.id.short()) } }
            @if tasks.is_empty() {
                p { "No call has ended yet. A call is on record when it ends." }
            } @else {
                @if all > CALLS_MAX { p { "The last " (CALLS_MAX) " of " (all) " calls." } }
                div.wide tabindex="0" {
                    table.gantt {
                        caption { "From " (time(begin)) " to " (time(end)) ", " (span(end.since(begin))) }
                        thead { tr { th scope="col" { "Task" } th scope="col" { "Attempt" } th scope="col" { "Result" } th scope="col" { "When" } th scope="col" { "Began after" } th scope="col" { "Took" } th scope="col" { "CPU" } th scope="col" { "Memory" } } }
                        tbody { @for call in &tasks { (gantt_row(call, begin, end)) } }
                    }
                }
                (texts(visit, tasks))
            }
            p { "Trace context: " code { (traceparent) } }
            (command(&format!("campanile run logs {id}")))
        }
    }
}

fn gantt_row(call: &TaskCall, begin: Timestamp, end: Timestamp) -> Markup {
    let row = &call.row;
    let result = if row.succeeded { "succeeded" } else { "failed" };
    let memory = campanile_model::text::size_rounded(row.memory_peak_bytes.unsigned_abs());
    html! {
        tr {
            th scope="row" { (line(&row.task)) }
            td { (row.attempt) }
            td { (badge(result)) @if let Some(failure) = row.failure { " " (failure.as_str()) } }
            td.chart { (charts::bar(row.started_at, row.finished_at, begin, end, result)) }
            td { (span(row.started_at.since(begin))) }
            td { (span(row.finished_at.since(row.started_at))) }
            td { (format!("{:.0} ms", row.cpu_ms)) }
            td { (memory) }
        }
    }
}

/// Show what the calls returned and wrote, up to a number of bytes.
fn texts(visit: &Visit, tasks: Vec<TaskCall>) -> Markup {
    let mut budget = TEXT_BYTES_MAX;
    let api = format!("/api/v1{}", visit.call.uri);
    let mut shown = Vec::new();
    for call in tasks {
        let limits = call
            .usage
            .iter()
            .map(|share| format!("{}: {} of {}", share.resource, share.used, share.limit));
        let limits = Vec::from_iter(limits).join(", ");
        let (output, context) = (call.row.output.clone(), call.row.context.clone());
        let message = call.row.message.clone();
        let note = call.row.note.clone();
        let logs = TaskLogs::from(call.row);
        let of_host = notes_of_host(&logs, note);
        let lines = logs.logs.iter().filter(|log| !log.by_host).map(|log| {
            let group = if log.context.is_empty() {
                String::new()
            } else {
                format!(" [{}]", log.context)
            };
            format!("{} {}{group} {}\n", log.at, log.level, log.message)
        });
        let lines: String = lines.collect();
        let parts = [
            ("Failure", message.as_deref().unwrap_or_default()),
            ("Logs", lines.as_str()),
            ("Standard output", logs.stdout.as_str()),
            ("Standard error", logs.stderr.as_str()),
            ("Output, JSON", output.as_deref().unwrap_or_default()),
            (
                "Context for the next tasks, JSON",
                context.as_deref().unwrap_or_default(),
            ),
            ("Use of limits", limits.as_str()),
        ];
        let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
        let mut blocks = Vec::new();
        for (title, text) in parts {
            let (text, left_out) = tail(text, ONE_TEXT_BYTES_MAX.min(budget));
            let text = html! { (text) };
            budget = budget.saturating_sub(text.0.len());
            blocks.push(html! {
                h4 { (title) }
                @if left_out > 0 { p.far { "The first " (left_out) " bytes are left out; the command and the API show them." } }
                pre tabindex="0" { (text) }
            });
        }
        let is_open = message.is_some();
        shown.push(html! {
            details open[is_open] {
                summary { (line(&logs.task)) ", attempt " (logs.attempt) }
                @if blocks.is_empty() { p { "It wrote and returned nothing, or the calls after it so much that this page leaves it out; the command shows it." } }
                @for block in &blocks { (block) }
                @for note in &of_host { p.from-host { strong { "The host notes: " } (line(note)) } }
            }
        });
    }
    html! {
        h3 { "What they wrote" }
        @for block in &shown { (block) }
        p.far { "As JSON: " code { (line(&api)) } }
    }
}

/// Returns the host's own notes on a call. They're shown apart from the task's texts, which could imitate them.
fn notes_of_host(logs: &TaskLogs, note: Option<String>) -> Vec<String> {
    let of_log = logs.logs.iter().filter(|log| log.by_host);
    let of_log = of_log.map(|log| log.message.clone());
    let dropped = [
        ("standard output", logs.stdout_bytes_dropped),
        ("standard error", logs.stderr_bytes_dropped),
    ];
    let dropped = dropped.into_iter().filter(|(_, bytes)| *bytes > 0);
    let dropped =
        dropped.map(|(stream, bytes)| format!("{bytes} more bytes of {stream} were dropped"));
    note.into_iter().chain(of_log).chain(dropped).collect()
}

fn forms(visit: &Visit, detail: &LaunchDetail) -> Markup {
    let launch = &detail.decided.launch;
    let id = launch.id.to_string();
    let cancel = ActionForm {
        action: "cancel",
        label: "Cancel",
        hidden: &[("id", &id)],
        fields: html! {
            p { "End it on whatever host runs it." }
            (field(visit, "grace", "Time to end by itself", "30s, or empty for that of the schedule"))
        },
        command: format!("campanile run cancel {id} --grace SPAN"),
    };
    let retry = ActionForm {
        action: "retry",
        label: "Retry",
        hidden: &[("id", &id)],
        fields: html! { p { "Launch its slot again, with its context and the active version of its package." } },
        command: format!("campanile run retry {id}"),
    };
    html! {
        section aria-labelledby="change" {
            h2 #change { "Change" }
            div.forms {
                @match launch.finished_at {
                    Some(_) => (retry.show(visit)),
                    None => (cancel.show(visit)),
                }
            }
        }
    }
}

fn facts(detail: &LaunchDetail) -> Markup {
    let decided = &detail.decided;
    let launch = &decided.launch;
    let fact = |name: &str, value: Option<&dyn Display>| {
        html! { @if let Some(value) = value { dt { (name) } dd { code { (line(&value.to_string())) } } } }
    };
    let run = detail.runs.last();
    html! {
        details {
            summary { "All facts" }
            dl.facts {
                (fact("Id", Some(&launch.id)))
                (fact("Revision of the schedule", Some(&decided.schedule_revision)))
                (fact("Revision of the schedule now", Some(&decided.newest_revision)))
                (fact("Digest of the package", launch.digest.as_ref().map(|it| it as &dyn Display)))
                (fact("Priority", Some(&launch.priority)))
                (fact("Concurrency group", launch.group.as_ref().map(|it| it as &dyn Display)))
                (fact("Claims", Some(&launch.attempts)))
                (fact("Recoveries", Some(&launch.recoveries)))
                (fact("Time zone database", launch.tzdata_version.as_ref().map(|it| it as &dyn Display)))
                (fact("Arguments", decided.args.as_ref().map(|it| it as &dyn Display)))
                (fact("Hash of the grants", run.and_then(|run| run.grants_hash.as_ref()).map(|it| it as &dyn Display)))
                (fact("Hash of the context", run.and_then(|run| run.context_hash.as_ref()).map(|it| it as &dyn Display)))
                (fact("Version of the host", run.and_then(|run| run.host_version.as_ref()).map(|it| it as &dyn Display)))
                (fact("Version of wasmtime", run.and_then(|run| run.wasmtime_version.as_ref()).map(|it| it as &dyn Display)))
            }
        }
    }
}
