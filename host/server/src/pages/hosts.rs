//! The hosts as one table: what each runs, whether it claims launches, and when it was up in the last day.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::charts;
use super::parts::{ActionForm, badge, badge_of, command, empty};
use super::timeline::{self, Lane, Window};
use super::words::{Clock, counted, line, moment, rough, shell};
use super::{View, Visit};
use crate::call::Result;
use campanile_control::admin::host_admin::{self, HostReport, HostState};
use campanile_control::questions::hosts::ListHosts;
use campanile_store::hosts::{self, EndReason, HostLife};

/// The hosts that are shown.
const SHOWN_MAX: usize = 50;
/// The newest processes of each host that the lanes show.
const LIVES_MAX: i64 = 50;
/// The time that the lanes show.
const DAY: Duration = Duration::from_secs(86_400);

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let ListHosts { all } = call.query.question()?;
    let clock = visit.clock();
    let mut tx = call.read().await?;
    let hosts = host_admin::list(&mut tx, all, clock.now).await?;
    let mut names = Vec::from_iter(hosts.iter().map(|host| host.name.as_str()));
    names.dedup();
    names.truncate(SHOWN_MAX);
    let lives = hosts::lives(&mut tx, &names, LIVES_MAX).await?;
    drop(tx);
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
            }
            (lanes(lives, clock))
            }
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

/// Shows when each host was up in the last day, and when it had died.
fn lanes(lives: Vec<HostLife>, clock: Clock) -> Markup {
    let window = Window {
        from: clock.now.minus(DAY),
        to: clock.now,
    };
    let mut by_name: BTreeMap<String, Vec<HostLife>> = BTreeMap::new();
    for life in lives {
        by_name.entry(life.name.clone()).or_default().push(life);
    }
    let lanes = by_name.into_iter().map(|(name, mut lives)| {
        lives.sort_by_key(|life| life.started_at);
        lane(&name, &lives, window)
    });
    let lanes = Vec::from_iter(lanes);
    html! {
        section.card aria-labelledby="up" {
            header { h2 #up { "Up in the last 24 h" } span.far { "green while a host was up, red after it died, empty while it was stopped" } }
            (timeline::lanes(&[("", lanes)], "up", window, clock))
        }
    }
}

/// Returns the lane of a host with these processes, the oldest first.
fn lane(name: &str, lives: &[HostLife], window: Window) -> Lane {
    let mut spans = Vec::new();
    let mut up = Duration::ZERO;
    for (place, life) in lives.iter().enumerate() {
        // A host that died was up until its last heartbeat, and counts as dead until its next process starts.
        let end = match life.end_reason {
            Some(EndReason::Died) => life.heartbeat_at,
            _ => life.ended_at.unwrap_or(window.to),
        };
        let (from, to) = (life.started_at.max(window.from), end.min(window.to));
        up += to.since(from.min(to));
        spans.push(("ok", life.started_at, end));
        if life.end_reason == Some(EndReason::Died) {
            let next = lives
                .get(place + 1)
                .map_or(window.to, |next| next.started_at);
            spans.push(("bad", end, next));
        }
    }
    let starts = lives.iter().filter(|life| life.started_at > window.from);
    let label = html! {
        (line(name))
        @match starts.count() { 0 => {}, starts => { " " span.far { (counted(starts as u64, "start")) } } }
    };
    Lane::of_spans((label, html! { (rough(up)) }), &spans, window)
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
            fields: html! { p { "It's given no more launches; its " (counted(host.runs.unsigned_abs(), "run")) " finish, and other hosts launch what is due." } },
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

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::clock::Timestamp;
    use chrono_tz::Tz;

    #[test]
    fn a_host_is_up_until_its_last_heartbeat_and_dead_until_its_next_start() {
        let now = Timestamp::EPOCH.plus(20 * DAY);
        let at = |hours: u64| now.minus(Duration::from_secs(hours * 3_600));
        let life = |started, heartbeat, ended: Option<u64>, end_reason| HostLife {
            name: "zurich-1".to_owned(),
            started_at: at(started),
            heartbeat_at: at(heartbeat),
            ended_at: ended.map(at),
            end_reason,
        };
        let lives = vec![
            life(3, 0, None, None),
            life(48, 18, Some(17), Some(EndReason::Died)),
            life(12, 6, Some(6), Some(EndReason::Stopped)),
        ];
        let shown = lanes(lives, Clock { now, zone: Tz::UTC }).into_string();
        for part in [
            "class=\"bad\" d=\"M250.0 6.0h250.0",
            "M0.0 6.0h250.0",
            "M500.0 6.0h250.0",
            "M875.0 6.0h125.0",
            "<span class=\"far\">2 starts</span>",
            "15 h 0 min",
        ] {
            assert!(shown.contains(part), "no `{part}`: {shown}");
        }
    }
}
