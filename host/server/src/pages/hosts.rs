//! The hosts: what each runs, and whether it claims launches.

use maud::{Markup, html};

use super::parts::{ActionForm, badge, command, empty};
use super::words::{counted, line, moment, shell};
use super::{View, Visit};
use crate::call::Result;
use campanile_control::admin::host_admin::{self, HostReport};
use campanile_control::questions::hosts::ListHosts;
use campanile_model::clock::Timestamp;

/// The hosts that are shown.
const SHOWN_MAX: usize = 50;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let ListHosts { all } = call.query.question()?;
    let now = call.now();
    let hosts = host_admin::list(&mut call.read().await?, all, now).await?;
    let flag = if all { " --all" } else { "" };
    View::new(
        "Hosts",
        html! {
            p {
                @if all { a href="/hosts" { "Only live and drained hosts" } } @else { a href="/hosts?all=true" { "Also hosts that have stopped or died" } }
            }
            @if hosts.is_empty() {
                (empty("No host is on record.", html! { "Start one: " code { "campanile serve" } "." }))
            }
            @for host in hosts.iter().take(SHOWN_MAX) { (part(visit, host, now)) }
            @if hosts.len() > SHOWN_MAX { p { "The first " (SHOWN_MAX) " of " (counted(hosts.len() as u64, "host")) " by name." } }
            (command(&format!("campanile host list{flag}")))
        },
    )
}

fn part(visit: &Visit, host: &HostReport, now: Timestamp) -> Markup {
    let labels = Vec::from_iter(host.labels.iter()).join(", ");
    let is_drained = host.drained_at.is_some();
    let name = shell(&host.name);
    let form = if is_drained {
        ActionForm {
            action: "undrain",
            label: "Let it claim launches again",
            hidden: &[("name", &host.name)],
            fields: html! {},
            command: format!("campanile host drain {name} --undo"),
        }
    } else {
        ActionForm {
            action: "drain",
            label: "Drain",
            hidden: &[("name", &host.name)],
            fields: html! { p { "It claims nothing more. Its runs end." } },
            command: format!("campanile host drain {name}"),
        }
    };
    html! {
        article.host {
            h2 { (line(&host.name)) " " (badge(host.state.as_str())) }
            dl.facts {
                dt { "Runs" }
                dd { (host.runs) " of " (counted(host.runs_max, "run")) " at once " meter min="0" max=(host.runs_max.max(1)) value=(host.runs) aria-label="Runs of the most at once" {} }
                dt { "Heartbeat" } dd { (moment(host.heartbeat_at, now)) }
                dt { "Lease until" } dd { (moment(host.lease_until, now)) }
                dt { "Started" } dd { (moment(host.started_at, now)) }
                @if let Some(at) = host.ended_at { dt { "Ended" } dd { (moment(at, now)) } }
                @if let Some(at) = host.drained_at {
                    dt { "Drained" } dd { (moment(at, now)) " by " (line(host.drained_by.as_deref().unwrap_or("unknown"))) }
                }
                @if let Some(at) = host.chores_since { dt { "Does the chores of all hosts" } dd { "since " (moment(at, now)) } }
                dt { "Labels" } dd { @if labels.is_empty() { "none" } @else { (labels) } }
                dt { "Versions" } dd { "Campanile " (line(&host.version)) ", wasmtime " (line(&host.wasmtime_version)) ", time zones " (line(&host.tzdata_version)) }
                dt { "Process" } dd { code { (host.incarnation) } }
            }
            @if host.ended_at.is_none() || is_drained { (form.show(visit)) }
        }
    }
}
