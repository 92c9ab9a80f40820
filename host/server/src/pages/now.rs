//! The first page: how the installation is, what runs, what failed, what comes next; and the way to the first launch.

use std::collections::HashMap;
use std::time::Duration;

use maud::{Markup, html};

use super::parts::{badge, command, launches_where, number};
use super::words::{counted, distance, line, moment, short, span};
use super::{View, Visit, charts, links};
use crate::call::Result;
use crate::probes;
use campanile_control::records::launch::next_step;
use campanile_control::reports::health::Health;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_store::alerts::{self, Alert};
use campanile_store::launch::{
    self, LOOKED_AT_FOR_BROWSER_MAX, LaunchFilter, LaunchPage, LaunchRow,
};
use campanile_store::packages::{self, PackageRow};
use campanile_store::stats::{self, NextSlot, OldRun, RecentCounts, Unfinished};
use campanile_store::{DbError, LaunchStatus, Tx};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The most rows of each table.
const ROWS_MAX: i64 = 20;
/// The most slots of the strip.
const SLOTS_MAX: i64 = 200;
/// The most launches of the last hour that are counted.
const COUNTED_MAX: i64 = 2_000;
/// The most packages that a new installation lists.
const PACKAGES_MAX: i64 = 50;
const FAILURES: [LaunchStatus; 3] = [
    LaunchStatus::Failed,
    LaunchStatus::Abandoned,
    LaunchStatus::Unknown,
];

/// What the page shows.
struct Now {
    at: Timestamp,
    health: Health,
    unfinished: Unfinished,
    last_hour: RecentCounts,
    runs: Vec<OldRun>,
    /// How long the launches of their schedules usually take.
    usual: HashMap<ScheduleId, Duration>,
    failures: Vec<LaunchRow>,
    next: Vec<NextSlot>,
    alerts: Vec<Alert>,
    /// The packages, when nothing was ever launched.
    first_packages: Option<Vec<PackageRow>>,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let at = call.now();
    let health = probes::judged(call).await?;
    let mut tx = call.read().await?;
    let failed = LaunchFilter {
        statuses: &FAILURES,
        since: Some(at.minus(DAY)),
        ..LaunchFilter::default()
    };
    let LaunchPage { rows: failures, .. } =
        launch::search(&mut tx, &failed, None, ROWS_MAX, LOOKED_AT_FOR_BROWSER_MAX).await?;
    let first_packages = if launch::list(&mut tx, None, 1).await?.is_empty() {
        Some(packages::list(&mut tx, None, None, PACKAGES_MAX).await?)
    } else {
        None
    };
    let running = stats::oldest_runs(&mut tx, ROWS_MAX).await?;
    let now = Now {
        at,
        usual: usual(&mut tx, &running).await?,
        health,
        unfinished: stats::unfinished_by_status(&mut tx).await?,
        last_hour: stats::counts_of_newest(&mut tx, at.minus(HOUR), COUNTED_MAX).await?,
        runs: running,
        failures,
        next: stats::next_slots(&mut tx, SLOTS_MAX).await?,
        alerts: alerts::list_unresolved(&mut tx, None, ROWS_MAX).await?,
        first_packages,
    };
    View::new(
        "Now",
        html! {
            (health_part(&now))
            @if let Some(packages) = &now.first_packages { (first_launch(packages)) }
            (numbers(&now))
            (alert_part(&now))
            (runs(&now))
            (failures_part(&now))
            (next(&now))
        },
    )
}

/// Returns how long the launches of the schedules of `runs` usually take: the median of the newest that succeeded.
async fn usual(tx: &mut Tx, runs: &[OldRun]) -> Result<HashMap<ScheduleId, Duration>, DbError> {
    /// The newest successes that count, among so many of the newest slots.
    const COUNTED: i64 = 11;
    const SEARCHED: i64 = 50;
    let mut all = HashMap::new();
    for run in runs {
        if all.contains_key(&run.schedule_id) {
            continue;
        }
        let ended = stats::successes(tx, run.schedule_id, COUNTED, SEARCHED).await?;
        let took = ended.iter().map(|(started, ended)| ended.since(*started));
        let mut took = Vec::from_iter(took);
        took.sort_unstable();
        if let Some(middle) = took.get(took.len() / 2) {
            all.insert(run.schedule_id, *middle);
        }
    }
    Ok(all)
}

fn health_part(now: &Now) -> Markup {
    let Health {
        healthy,
        issues,
        notes,
        ..
    } = &now.health;
    html! {
        section aria-labelledby="health" {
            h2 #health { "Health " (badge(if *healthy { "healthy" } else { "unhealthy" })) }
            @if !issues.is_empty() {
                ul { @for issue in issues { li { (line(issue)) } } }
            }
            @if !notes.is_empty() {
                p { "To look at:" }
                ul { @for note in notes { li { (line(note)) } } }
            }
            @if issues.is_empty() && notes.is_empty() { p { "Nothing to look at." } }
            (command("campanile health"))
        }
    }
}

/// Show how the first launch comes about.
fn first_launch(packages: &[PackageRow]) -> Markup {
    html! {
        section aria-labelledby="first" {
            h2 #first { "To the first launch" }
            p { "Nothing has been launched yet." }
            ol {
                li {
                    p {
                        strong { "Drop a file. " }
                        "Copy a WebAssembly file to the plugins folder of a host, which its configuration names: "
                        code { "cp backup.wasm plugins/" } ". The host loads the file within seconds. "
                        code { "campanile new backup" } " makes a task of your own."
                    }
                    @if packages.is_empty() {
                        p { "The folder has no package yet." }
                    } @else {
                        p { "In the folder now:" }
                        ul {
                            @for package in packages {
                                li { (links::package(&package.name)) " " (badge(package.state().as_str())) }
                            }
                        }
                    }
                }
                li {
                    strong { "Give it a schedule. " }
                    code { "campanile schedule add nightly --package backup --cron '0 2 * * *'" }
                }
                li {
                    strong { "Do not wait for the slot. " }
                    "Open the schedule on " a href="/schedules" { "Schedules" } " and trigger it, or write "
                    code { "campanile schedule trigger nightly" } "."
                }
            }
        }
    }
}

fn numbers(now: &Now) -> Markup {
    let Unfinished {
        running,
        open,
        queued,
    } = now.unfinished;
    let hour = &now.last_hour.counts;
    let of = |status: &str| launches_where(&[("status", status), ("since", "1h")]);
    html! {
        section aria-labelledby="numbers" {
            h2 #numbers { "In numbers" }
            dl.numbers {
                dt { "Running or waiting for a retry" }
                dd { (number(running, "launch", &launches_where(&[("status", "running,waiting")]))) }
                dt { "Waiting for a host" }
                dd { (number(open, "launch", &launches_where(&[("status", "open")]))) }
                dt { "Waiting for another launch" }
                dd { (number(queued, "launch", &launches_where(&[("status", "queued")]))) }
                dt { "Succeeded in the last hour" }
                dd { (number(hour.succeeded, "launch", &of("succeeded"))) }
                dt { "Failed in the last hour" }
                dd { (number(hour.failed, "launch", &of("failed"))) }
                dt { "Abandoned or unknown in the last hour" }
                dd { (number(hour.abandoned + hour.unknown, "launch", &of("abandoned,unknown"))) }
                dt { "Skipped in the last hour" }
                dd { (number(hour.skipped, "slot", &of("skipped"))) }
                dt { "Schedules with an overdue slot" }
                dd { (number(now.health.signs.overdue_schedules, "schedule", "/schedules?state=enabled")) }
                dt { "Live hosts" }
                dd { (number(now.health.signs.live_hosts, "host", "/hosts")) }
            }
            @if let Some(from) = now.last_hour.counted_from {
                p.far {
                    "The numbers of the last hour are those of its newest " (counted(COUNTED_MAX as u64, "decision")) ", since " (moment(from, now.at))
                    ". " code { "campanile stats --since 1h" } " counts all."
                }
            }
            (command("campanile top"))
        }
    }
}

fn alert_part(now: &Now) -> Markup {
    html! {
        @if !now.alerts.is_empty() {
            section aria-labelledby="alerts" {
                h2 #alerts { a href="/alerts" { "Alerts" } }
                ul {
                    @for alert in &now.alerts {
                        li {
                            (badge(alert.status.as_str())) " " (alert.severity.as_str()) " " strong { (line(&alert.subject)) } ": "
                            (line(&alert.detail)) ", " (moment(alert.fired_at.unwrap_or(alert.since_at), now.at))
                        }
                    }
                }
            }
        }
    }
}

fn runs(now: &Now) -> Markup {
    html! {
        section aria-labelledby="runs" {
            h2 #runs { "What runs" }
            @if now.runs.is_empty() {
                p { "Nothing runs now." }
            } @else {
                div.wide tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "Launch" } th scope="col" { "Schedule" } th scope="col" { "Status" } th scope="col" { "Host" } th scope="col" { "For" } th scope="col" { "Since" } } }
                        tbody {
                            @for run in &now.runs {
                                tr {
                                    td { (links::launch(run.launch)) }
                                    td { (links::schedule(&run.schedule)) }
                                    td { (badge(run.status.as_str())) }
                                    td { (line(run.host.as_deref().unwrap_or("none"))) }
                                    td { (lasted(now, run)) }
                                    td { (moment(run.started_at, now.at)) }
                                }
                            }
                        }
                    }
                }
                @if now.runs.len() as i64 == ROWS_MAX {
                    p { "These are the oldest. " a href=(launches_where(&[("status", "running,waiting")])) { "All that run" } }
                }
            }
        }
    }
}

/// Show how long a run has lasted, against the usual duration.
fn lasted(now: &Now, run: &OldRun) -> Markup {
    let lasted = now.at.since(run.started_at);
    html! {
        (span(lasted))
        @match now.usual.get(&run.schedule_id) {
            Some(usual) => {
                @if lasted > *usual { ", " strong { "longer than usual" } ": " } @else { " of usually " }
                (span(*usual))
                (charts::against(lasted, *usual, run.status.as_str()))
            }
            None => span.far { ", none has succeeded before" },
        }
    }
}

fn failures_part(now: &Now) -> Markup {
    let all = launches_where(&[("status", "failed,abandoned,unknown"), ("since", "24h")]);
    html! {
        section aria-labelledby="failures" {
            h2 #failures { "What failed in the last 24 h" }
            @if now.failures.is_empty() {
                p { "No launch failed." }
            } @else {
                div.wide tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "Launch" } th scope="col" { "Schedule" } th scope="col" { "Status" } th scope="col" { "Slot" } th scope="col" { "Why, and what to do next" } } }
                        tbody {
                            @for row in &now.failures {
                                tr {
                                    td { (links::launch(row.id)) }
                                    td { (links::schedule(&row.schedule)) }
                                    td { (badge(row.status.as_str())) }
                                    td { (super::words::both(row.scheduled_time, row.scheduled_local.as_str(), now.at)) }
                                    td {
                                        (why(row))
                                        @if let Some(next) = next_step(row) { br; span.far { "Next: " (next) "." } }
                                    }
                                }
                            }
                        }
                    }
                }
                p { a href=(all) { "All that failed" } }
            }
        }
    }
}

/// Returns why a launch did not succeed, in short.
pub(super) fn why(row: &LaunchRow) -> Markup {
    /// The most characters of a message in a list.
    const SHOWN_MAX: usize = 120;
    let message = row.message.as_deref().unwrap_or_default();
    html! {
        @if let Some(reason) = &row.reason { (line(reason)) " " }
        @if let Some(failure) = row.failure { (failure.as_str()) " " }
        (short(message, SHOWN_MAX))
    }
}

fn next(now: &Now) -> Markup {
    let end = now.at.plus(HOUR);
    let coming = now.next.iter().filter(|next| next.slot <= end);
    let coming = Vec::from_iter(coming.map(|next| (next.slot, next.schedule.as_str())));
    html! {
        section aria-labelledby="next" {
            h2 #next { "Next 60 minutes" }
            @if now.next.is_empty() {
                (super::parts::empty("No schedule has a next slot.", html! {
                    "Add one with " code { "campanile schedule add NAME --package PACKAGE --cron '0 2 * * *'" } ", or see the paused ones on "
                    a href="/schedules?state=paused" { "Schedules" } "."
                }))
            } @else {
                (charts::strip(&coming, now.at, end))
                p { (counted(coming.len() as u64, "schedule")) " with a slot until then, by their next slot alone. " a href="/plan" { "The plan" } " has all slots." }
                table {
                    thead { tr { th scope="col" { "Schedule" } th scope="col" { "Next slot" } th scope="col" { "When" } } }
                    tbody {
                        @for next in now.next.iter().take(ROWS_MAX as usize) {
                            tr {
                                td { (links::schedule(&next.schedule)) }
                                td { (super::words::time(next.slot)) }
                                td {
                                    @if next.slot < now.at { (badge("late")) " by " (span(now.at.since(next.slot))) }
                                    @else { (distance(next.slot, now.at)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
