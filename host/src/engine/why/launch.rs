//! Pure: what was decided about a slot, and what became of it.

use std::time::Duration;

use super::dossier::{Dossier, Traced};
use super::{Finding, FindingKind, moment, rule_of, span};
use crate::clock::Timestamp;
use crate::db::events::EventKind;
use crate::db::overlap::REASON as OVERLAP;
use crate::db::runs::RunRow;
use crate::db::task_runs::TaskRun;
use crate::db::trail::Decided;
use crate::db::{Decision, FailureKind, LaunchStatus, RunState};
use crate::engine::plan::PACKAGE_MISSING;
use crate::ids::LaunchKind;
use crate::policy::{Catchup, DropReason, Policies};

/// Waiting for less is not worth a line.
const NOTICED: Duration = Duration::from_secs(1);

/// Calls of tasks that are told of each run.
const CALLS_TOLD: usize = 20;

/// Everything about one launch; about one `slot` of it, when it is a range.
pub(super) fn chain(dossier: &Dossier, traced: &Traced, slot: Option<Timestamp>) -> Vec<Finding> {
    let mut findings = what_it_is(traced, slot);
    findings.extend(decision(dossier, traced));
    let mut path = path(traced);
    path.sort_by_key(|finding| finding.at);
    findings.extend(path);
    findings.extend(outcome(dossier, traced));
    findings
}

/// The slot, or what else asked for a launch.
fn what_it_is(traced: &Traced, slot: Option<Timestamp>) -> Vec<Finding> {
    let launch = &traced.decided.launch;
    let at = launch.scheduled_time;
    let asked = |text: &str| {
        vec![Finding::at(
            FindingKind::Asked,
            at,
            format!("{text}: launch {}", launch.id),
        )]
    };
    match launch.kind {
        LaunchKind::Manual => {
            return asked("a person or a program asked for a launch besides the slots");
        }
        LaunchKind::Backfill => return asked("a backfill asked for the slot"),
        LaunchKind::Startup => return asked("a host started"),
        LaunchKind::Schedule | LaunchKind::Catchup => {}
    }
    let of = rule_of(&traced.said);
    if launch.slot_count > 1 {
        let text = format!(
            "one of {} slots of {of} that were dropped together, from {at} to {}",
            launch.slot_count, launch.scheduled_last
        );
        let slot = slot.unwrap_or(launch.scheduled_last);
        return vec![Finding::at(FindingKind::Slot, slot, text)];
    }
    match &traced.said.parsed {
        Ok((rule, _)) => moment::slot(&traced.said, rule, at),
        Err(_) => vec![Finding::at(
            FindingKind::Slot,
            at,
            format!("a slot of {of}"),
        )],
    }
}

/// What was decided, and why.
fn decision(dossier: &Dossier, traced: &Traced) -> Vec<Finding> {
    let launch = &traced.decided.launch;
    let dropped_later = launch
        .finished_at
        .is_some_and(|end| end > launch.claimed_at);
    let mut findings = Vec::new();
    if launch.decision == Decision::Skipped {
        // It had waited for its turn before that.
        if dropped_later {
            findings.extend(queued(traced));
        }
        findings.extend(skipped(dossier, traced));
        return findings;
    }
    let late = launch.claimed_at.since(launch.scheduled_time);
    if launch.kind == LaunchKind::Catchup {
        let word = policies(traced).map_or(Catchup::default(), |policies| policies.catchup);
        let text = format!(
            "missed: it was decided {} after its time, and caught up, since `catchup` is `{word}`",
            span(late)
        );
        findings.push(Finding::at(FindingKind::Late, launch.claimed_at, text));
    } else if launch.kind == LaunchKind::Schedule && late >= NOTICED {
        let text = format!("decided {} after its time, within the grace", span(late));
        findings.push(Finding::at(FindingKind::Late, launch.claimed_at, text));
    }
    let waited = traced.decided.opened_at.is_some() || launch.decision == Decision::Queued;
    if waited {
        findings.extend(queued(traced));
    } else {
        let by = decided_by(traced);
        let text = format!("decided{by}, to run the package `{}`", launch.package);
        findings.push(Finding::at(FindingKind::Launched, launch.claimed_at, text));
    }
    findings
}

/// ` by `tower` with tzdata 2026a`, where that is on the record: whoever opens a launch again signs it too.
fn decided_by(traced: &Traced) -> String {
    let Decided { launch, host, .. } = &traced.decided;
    match (host, &launch.tzdata_version) {
        (Some(host), Some(version)) if launch.recoveries == 0 => {
            format!(" by `{host}` with tzdata {version}")
        }
        _ => String::new(),
    }
}

/// That it had to wait for its turn, and behind what.
fn queued(traced: &Traced) -> Vec<Finding> {
    let launch = &traced.decided.launch;
    let others: Vec<String> = traced.beside.iter().map(named).collect();
    let text = match &others[..] {
        [] if launch.fire_time > launch.claimed_at => {
            "decided, to wait for its fire time".to_owned()
        }
        [] => "decided, to wait for its turn".to_owned(),
        others => format!(
            "decided, to wait for its turn behind {}",
            others.join(" and ")
        ),
    };
    let mut findings = vec![Finding::at(FindingKind::Queued, launch.claimed_at, text)];
    if let Some(opened_at) = traced.decided.opened_at {
        let after = span(opened_at.since(launch.claimed_at));
        let text = format!("let go{} after {after}", decided_by(traced));
        findings.push(Finding::at(FindingKind::Turn, opened_at, text));
    }
    findings
}

/// Why it was skipped.
fn skipped(dossier: &Dossier, traced: &Traced) -> Vec<Finding> {
    let launch = &traced.decided.launch;
    let at = launch.finished_at.unwrap_or(launch.claimed_at);
    let reason = launch.reason.as_deref().unwrap_or_default();
    if let Some(drop) = DropReason::ALL.iter().find(|drop| drop.as_str() == reason) {
        return vec![dropped(traced, *drop)];
    }
    let one = |kind, text: String| vec![Finding::at(kind, at, text)];
    match reason {
        OVERLAP => vec![overlapped(traced, at)],
        PACKAGE_MISSING => one(
            FindingKind::PackageMissing,
            format!(
                "skipped{}: no live host had the package `{}` in its folder",
                decided_by(traced),
                launch.package
            ),
        ),
        "paused" => pause(dossier, traced),
        "edited" => {
            let change = dossier.first(&[EventKind::ScheduleChanged], at);
            let became = change.map_or_else(String::new, |change| format!(", {}", change.detail));
            one(
                FindingKind::Edited,
                format!("skipped: the timing was changed before anybody had decided it{became}"),
            )
        }
        "removed" => one(
            FindingKind::Removed,
            "skipped: the schedule was removed before anybody had decided it".to_owned(),
        ),
        reason => one(FindingKind::Skipped, format!("skipped: {reason}")),
    }
}

/// What the judge of slots said.
fn dropped(traced: &Traced, reason: DropReason) -> Finding {
    let launch = &traced.decided.launch;
    let policies = policies(traced);
    let at = launch.claimed_at;
    let by = decided_by(traced);
    let missed = format!(
        "missed, and skipped{by}: it was decided {} after its time",
        span(at.since(launch.scheduled_last))
    );
    let own = |value: Option<Duration>, of_host: &str| {
        value.map_or_else(|| of_host.to_owned(), |value| format!("`{}`", span(value)))
    };
    let text = match reason {
        DropReason::SkippedOnce => {
            let text = format!("skipped{by}: a person had taken it out");
            return Finding::at(FindingKind::TakenOut, at, text);
        }
        DropReason::CatchupNone => format!("{missed}, and `catchup` is `none`"),
        DropReason::Window => {
            let window = policies.and_then(|policies| policies.catchup_window);
            format!(
                "{missed}, past `catchup_window`, {}",
                own(window, "which is its host's")
            )
        }
        DropReason::Coalesced => {
            let word = policies.map_or(Catchup::default(), |policies| policies.catchup);
            let other = traced.stands_for_it.as_ref();
            let other = other.map_or_else(
                || "another one".to_owned(),
                |other| format!("the slot {}", other.launch.scheduled_time),
            );
            format!("{missed}, and since `catchup` is `{word}`, {other} stands for it")
        }
        DropReason::CatchupMax => {
            let most = policies.map_or(0, Policies::catchup_max);
            format!("{missed}, and `catchup_max`, {most}, keeps only newer ones")
        }
    };
    Finding::at(FindingKind::Late, at, text)
}

/// With what it overlapped.
fn overlapped(traced: &Traced, at: Timestamp) -> Finding {
    let policy = policies(traced).map_or_else(String::new, |policies| {
        format!("since `overlap` is `{}`", policies.overlap)
    });
    let text = match &traced.overlaps {
        Some(other) => format!("skipped {policy}, for {}", named(other)),
        None => format!("skipped {policy}, for another launch"),
    };
    Finding::at(FindingKind::Overlapped, at, text)
}

/// The pause in which it fell, and its end.
fn pause(dossier: &Dossier, traced: &Traced) -> Vec<Finding> {
    let launch = &traced.decided.launch;
    let begin = dossier.last(EventKind::SchedulePaused, launch.claimed_at);
    let text = |detail: &str| format!("{detail}; no slot was decided from then on");
    let mut findings = vec![match begin {
        Some(event) => Finding::at(FindingKind::Paused, event.at, text(&event.detail)),
        None => Finding::new(FindingKind::Paused, "the schedule was paused"),
    }];
    let ends = [EventKind::ScheduleResumed, EventKind::ScheduleRemoved];
    if let Some(event) = dossier.first(&ends, launch.claimed_at) {
        let (kind, text) = match event.kind {
            EventKind::ScheduleResumed => (
                FindingKind::Resumed,
                format!(
                    "{}; the pause owed its slots to nobody, and they were skipped",
                    event.detail
                ),
            ),
            _ => (
                FindingKind::Removed,
                "the schedule was removed while it was paused".to_owned(),
            ),
        };
        findings.push(Finding::at(kind, event.at, text));
    }
    findings
}

/// From the decision to the end: waiting, runs, calls, recoveries.
fn path(traced: &Traced) -> Vec<Finding> {
    let launch = &traced.decided.launch;
    if launch.decision != Decision::Launched {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = late_fire(traced).into_iter().collect();
    let opened_at = traced.decided.opened_at.unwrap_or(launch.claimed_at);
    let ready = opened_at.max(launch.fire_time);
    for (number, (run, calls)) in traced.runs.iter().enumerate() {
        let waited = run.started_at.since(ready);
        if number == 0 && waited >= NOTICED {
            let text = format!(
                "for {}, until a host with the package `{}` had a free place",
                span(waited),
                launch.package
            );
            findings.push(Finding::at(FindingKind::Waited, ready, text));
        }
        findings.push(taken(run));
        findings.extend(called(calls));
        if run.state == RunState::Lost {
            let why = run
                .message
                .as_deref()
                .unwrap_or("nobody carries it out any more");
            let text = format!("the run of {} was lost: {why}", host(run));
            findings.push(Finding::at(
                FindingKind::Lost,
                run.finished_at.unwrap_or(run.started_at),
                text,
            ));
        }
    }
    findings.extend(recoveries(traced));
    findings
}

/// That it fired after its slot.
fn late_fire(traced: &Traced) -> Option<Finding> {
    let launch = &traced.decided.launch;
    let policies = policies(traced)?;
    let ready = launch.claimed_at.max(launch.scheduled_time);
    if launch.fire_time <= ready {
        return None;
    }
    let later = span(launch.fire_time.since(launch.scheduled_time));
    let text = match launch.kind {
        LaunchKind::Schedule if policies.jitter.is_some() => {
            format!("until it fired, {later} after its slot by its jitter")
        }
        LaunchKind::Catchup if policies.catchup_spread.is_some() => {
            format!("until it fired, {later} after its slot by `catchup_spread`")
        }
        LaunchKind::Backfill => "until the backfill let it fire".to_owned(),
        _ => "until it fired".to_owned(),
    };
    Some(Finding::at(FindingKind::Waited, launch.fire_time, text))
}

fn taken(run: &RunRow) -> Finding {
    let again = match run.is_recovery {
        true => ", as a recovery",
        false => "",
    };
    let text = format!("by {}{again}: run {}", host(run), run.id);
    Finding::at(FindingKind::Taken, run.started_at, text)
}

fn host(run: &RunRow) -> String {
    let host = run.host.as_deref();
    host.map_or_else(|| "a host".to_owned(), |host| format!("`{host}`"))
}

/// The calls of tasks in one run.
fn called(calls: &[TaskRun]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = calls.iter().take(CALLS_TOLD).map(call).collect();
    if let Some(next) = calls.get(CALLS_TOLD) {
        let text = format!(
            "and {} more calls, which `run show` lists",
            calls.len() - CALLS_TOLD
        );
        findings.push(Finding::at(FindingKind::Called, next.started_at, text));
    }
    findings
}

fn call(call: &TaskRun) -> Finding {
    let took = span(call.finished_at.since(call.started_at));
    let mut text = format!("task `{}`, call {}: ", call.task, call.attempt);
    match call.failure {
        None => text += &format!("succeeded after {took}"),
        Some(kind) => text += &format!("{}{} after {took}", kind, said(call.message.as_deref())),
    }
    if let Some(retry_at) = call.retry_at {
        text += &format!("; to be called again at {retry_at}");
    }
    Finding::at(FindingKind::Called, call.started_at, text)
}

/// A message in parentheses, if there is one.
fn said(message: Option<&str>) -> String {
    message.map_or_else(String::new, |message| format!(" ({message})"))
}

/// When it was opened again, from the events about its slot.
fn recoveries(traced: &Traced) -> Vec<Finding> {
    let begin = format!(
        "slot {} is run again, ",
        traced.decided.launch.scheduled_time
    );
    let recovered = traced
        .events
        .iter()
        .filter(|event| event.kind == EventKind::LaunchRecovered);
    recovered
        .filter_map(|event| {
            let detail = event.detail.strip_prefix(&begin)?;
            Some(Finding::at(
                FindingKind::Recovered,
                event.at,
                format!("opened again, {detail}"),
            ))
        })
        .collect()
}

/// How it ended, or how it stands; none when it was skipped, which its decision tells.
fn outcome(dossier: &Dossier, traced: &Traced) -> Option<Finding> {
    let launch = &traced.decided.launch;
    let at = launch.finished_at.unwrap_or(dossier.now);
    let failure = launch
        .failure
        .map_or_else(String::new, |kind: FailureKind| format!(", {kind}"));
    let message = said(launch.message.as_deref());
    let text = match launch.status {
        LaunchStatus::Skipped => return None,
        LaunchStatus::Succeeded => match launch.attempts {
            0 | 1 => "succeeded".to_owned(),
            attempts => format!("succeeded, in run {attempts}"),
        },
        LaunchStatus::Failed => format!("failed for good{failure}{message}"),
        LaunchStatus::Cancelled => match &traced.overlaps {
            Some(other) => format!("cancelled{message} for {}", named(other)),
            None => format!("cancelled{message}"),
        },
        LaunchStatus::Unknown => "unknown: it was to be run at most once and its run was lost, so nobody knows what it did".to_owned(),
        LaunchStatus::Abandoned => {
            let reason = launch.reason.as_deref().unwrap_or_default();
            format!("abandoned, {reason}: {}", given_up(reason, launch.recoveries))
        }
        LaunchStatus::Open => format!("open: it waits for a host with the package `{}` and a free place", launch.package),
        LaunchStatus::Queued if launch.fire_time > dossier.now => format!("queued: it waits for its fire time, {}", launch.fire_time),
        LaunchStatus::Queued => "queued: it waits for its turn".to_owned(),
        LaunchStatus::Running => match &traced.overlaps {
            Some(other) => format!("running, and asked to end for {}", named(other)),
            None => "running".to_owned(),
        },
        LaunchStatus::Waiting => "waiting until its task is called again".to_owned(),
    };
    Some(Finding::at(FindingKind::Outcome, at, text))
}

/// A reason of recovery to give up, as a clause.
fn given_up(reason: &str, recoveries: i64) -> String {
    match reason {
        "schedule_disabled" => "its schedule was paused when it was to be run again".to_owned(),
        "schedule_deleted" => "its schedule was removed before it could be run again".to_owned(),
        PACKAGE_MISSING => "no live host had its package for too long".to_owned(),
        "recovery_age" => "too long after its decision to be run again".to_owned(),
        "recovery_attempts" => format!("it was run again {recoveries} times, and lost each time"),
        "superseded" => "a later launch took its place".to_owned(),
        _ => "it was given up".to_owned(),
    }
}

/// A launch of the schedule by its slot, and what became of it.
fn named(other: &Decided) -> String {
    let launch = &other.launch;
    let run = launch
        .run_id
        .map_or_else(String::new, |run| format!(" in run {run}"));
    let became = match launch.finished_at {
        Some(end) => format!("which {} at {end}", ended(launch.status)),
        None => format!("which is {} now", launch.status),
    };
    format!(
        "the launch {} of {}{run}, {became}",
        launch.id, launch.scheduled_time
    )
}

fn ended(status: LaunchStatus) -> &'static str {
    match status {
        LaunchStatus::Cancelled => "was cancelled",
        LaunchStatus::Abandoned => "was abandoned",
        LaunchStatus::Skipped => "was skipped",
        LaunchStatus::Unknown => "ended unknown",
        other => other.as_str(),
    }
}

fn policies(traced: &Traced) -> Option<&Policies> {
    let parsed = traced.said.parsed.as_ref();
    parsed.ok().map(|(_, policies)| policies)
}
