//! The hosts as one table: what each runs, and whether it claims launches.

use maud::{Markup, html};

use super::charts;
use super::parts::{ActionForm, badge, badge_of, command, empty};
use super::words::{Clock, counted, line, moment, shell};
use super::{View, Visit};
use crate::call::Result;
use campanile_control::admin::host_admin::{self, HostReport, HostState};
use campanile_control::questions::hosts::ListHosts;

/// The hosts that are shown.
const SHOWN_MAX: usize = 50;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let ListHosts { all } = call.query.question()?;
    let clock = visit.clock();
    let hosts = host_admin::list(&mut call.read().await?, all, clock.now).await?;
    let flag = if all { " --all" } else { "" };
    let head = html! {
        div.head {
            h1 { "Hosts" }
            nav.filters aria-label="Filters" {
                a href="/hosts" aria-current=[(!all).then_some("true")] { "Live and drained" }
                a href="/hosts?all=true" aria-current=[all.then_some("true")] { "Also stopped and dead" }
            }
            @if !hosts.is_empty() { p.far { (summary(&hosts)) } }
        }
    };
    let main = html! {
        @if hosts.is_empty() {
            (empty("No host is on record.", html! { "Start one: " code { "campanile serve" } "." }))
        } @else {
            div.stack { section.card {
                (table(visit, &hosts, clock))
                @if hosts.len() > SHOWN_MAX { p.more { "The first " (SHOWN_MAX) " of " (counted(hosts.len() as u64, "host")) " by name." } }
                div.more { (command(&format!("campanile host list{flag}"))) }
            } }
        }
    };
    View::with_head("Hosts", head, main)
}

/// Says how many hosts serve, and what they run together.
fn summary(hosts: &[HostReport]) -> String {
    let serving = hosts
        .iter()
        .filter(|host| host.state == HostState::Serving)
        .count();
    let live = hosts.iter().filter(|host| host.ended_at.is_none());
    let runs: i64 = live.clone().map(|host| host.runs).sum();
    let runs_max: i64 = live.map(|host| host.runs_max).sum();
    format!(
        "{serving} of {} serving · {runs} of {runs_max} runs",
        counted(hosts.len() as u64, "host")
    )
}

fn table(visit: &Visit, hosts: &[HostReport], clock: Clock) -> Markup {
    html! {
        table.cards {
            thead {
                tr {
                    th scope="col" { "Host" }
                    th scope="col" { "Runs" }
                    th.number scope="col" { "Up since" }
                    th.number scope="col" { "Heartbeat" }
                    th scope="col" { "Version" }
                    th scope="col" { "Labels" }
                    th.number scope="col" { "Actions" }
                }
            }
            tbody { @for host in hosts.iter().take(SHOWN_MAX) { (row(visit, host, clock)) } }
        }
    }
}

fn row(visit: &Visit, host: &HostReport, clock: Clock) -> Markup {
    let labels = Vec::from_iter(host.labels.iter()).join(", ");
    let fails = matches!(host.state, HostState::Silent | HostState::Died);
    let looks = matches!(host.state, HostState::Draining | HostState::Drained);
    let runs = format!("{} of {}", host.runs, counted(host.runs_max, "run"));
    let idle = (host.runs_max - host.runs).max(0);
    html! {
        tr.fails[fails].looks[looks] {
            td {
                span.name { (line(&host.name)) }
                @if host.state != HostState::Serving { " " (badge(host.state.as_str())) }
                @if host.chores_since.is_some() { " " span title="It does the chores of all hosts" { (badge_of("run", "chores")) } }
            }
            td { div.share { (runs) (charts::shares(&[("run", host.runs), ("none", idle)], &runs)) } }
            td.number.rest {
                @match host.ended_at {
                    Some(at) => { "ended " (moment(at, clock)) },
                    None => (moment(host.started_at, clock)),
                }
            }
            td.number.rest { (moment(host.heartbeat_at, clock)) }
            td.rest { (line(&host.version)) }
            td.rest { @if labels.is_empty() { "–" } @else { (line(&labels)) } }
            td.number { @if host.ended_at.is_none() || host.drained_at.is_some() { (drain(visit, host)) } }
        }
        tr.rest-of { td.text colspan="7" { (rest(host, &labels, clock)) } }
    }
}

/// Shows the form that lets a host claim nothing, or lets it claim launches again.
fn drain(visit: &Visit, host: &HostReport) -> Markup {
    let name = shell(&host.name);
    let is_drained = host.drained_at.is_some();
    let form = if is_drained {
        ActionForm {
            action: "undrain",
            label: "Let it claim launches again",
            hidden: &[("name", &host.name)],
            fields: html! { p { "It claims launches again from now on." } },
            command: format!("campanile host drain {name} --undo"),
        }
    } else {
        ActionForm {
            action: "drain",
            label: "Drain",
            hidden: &[("name", &host.name)],
            fields: html! { p { "Stop giving it launches; its runs finish." } },
            command: format!("campanile host drain {name}"),
        }
    };
    html! {
        details.menu.small {
            summary { @if is_drained { "End the drain" } @else { "Drain" } }
            div { (form.show(visit)) }
        }
    }
}

fn rest(host: &HostReport, labels: &str, clock: Clock) -> Markup {
    html! {
        details {
            summary.far { "More about " (line(&host.name)) }
            dl.facts {
                dt { "Heartbeat" } dd { (moment(host.heartbeat_at, clock)) }
                dt { "Lease until" } dd { (moment(host.lease_until, clock)) }
                dt { "Started" } dd { (moment(host.started_at, clock)) }
                @if let Some(at) = host.ended_at { dt { "Ended" } dd { (moment(at, clock)) } }
                @if let Some(at) = host.drained_at {
                    dt { "Drained" } dd { (moment(at, clock)) " by " (line(host.drained_by.as_deref().unwrap_or("unknown"))) }
                }
                @if let Some(at) = host.chores_since { dt { "Does the chores of all hosts" } dd { "since " (moment(at, clock)) } }
                dt { "Labels" } dd { @if labels.is_empty() { "none" } @else { (line(labels)) } }
                dt { "Versions" } dd { "Campanile " (line(&host.version)) ", wasmtime " (line(&host.wasmtime_version)) ", time zones " (line(&host.tzdata_version)) }
                dt { "Process" } dd { code { (host.incarnation) } }
            }
        }
    }
}
