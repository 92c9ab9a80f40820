//! Pure: the way of a launch from its decision to its end.

use super::history::{LaunchTrace, ScheduleHistory};
use super::launch::{NOTICED, decided_by, named, policies};
use super::{Finding, FindingKind, span};
use crate::plan::PACKAGE_MISSING;
use campanile_model::ids::LaunchKind;
use campanile_store::events::EventKind;
use campanile_store::runs::RunRow;
use campanile_store::task_runs::TaskRun;
use campanile_store::{Decision, FailureKind, LaunchStatus, RunStatus};

/// Calls of tasks that are told of each run.
const CALLS_TOLD: usize = 20;

/// Waiting, runs, calls and recoveries, in the order in which they happened.
pub(super) fn path(trace: &LaunchTrace) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    if launch.decision != Decision::Launched {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = later_fire_time(trace).into_iter().collect();
    findings.extend(turn(trace));
    findings.extend(waited_for_room(trace));
    let mut recoveries = recoveries(trace).into_iter().peekable();
    for (run, calls) in &trace.runs {
        let before = |finding: &Finding| finding.at <= Some(run.started_at);
        while let Some(finding) = recoveries.next_if(before) {
            findings.push(finding);
        }
        findings.push(taken(run));
        findings.extend(called(calls));
        findings.extend(lost(run));
    }
    findings.extend(recoveries);
    findings.sort_by_key(|finding| finding.at);
    findings
}

/// That it fired after its slot.
fn later_fire_time(trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let policies = policies(trace)?;
    if launch.fire_time <= launch.claimed_at.max(launch.scheduled_time) {
        return None;
    }
    let later = span(launch.fire_time.since(launch.scheduled_time));
    let because = match launch.kind {
        LaunchKind::Schedule if policies.jitter.is_some() => {
            format!(", {later} after its slot by its jitter")
        }
        LaunchKind::Catchup if policies.catchup_spread.is_some() => {
            format!(", {later} after its slot by `catchup_spread`")
        }
        _ => String::new(),
    };
    let text = format!("until its fire time{because}");
    Some(Finding::at(FindingKind::Waited, launch.fire_time, text))
}

/// That its turn came.
fn turn(trace: &LaunchTrace) -> Option<Finding> {
    let opened_at = trace.decided.opened_at?;
    let after = span(opened_at.since(trace.decided.launch.claimed_at));
    let text = format!("let go{} after {after}", decided_by(trace));
    Some(Finding::at(FindingKind::Turn, opened_at, text))
}

/// That no host took it at once.
fn waited_for_room(trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let (first, _) = trace.runs.first()?;
    let opened_at = trace.decided.opened_at.unwrap_or(launch.claimed_at);
    let ready = opened_at.max(launch.fire_time);
    let waited = first.started_at.since(ready);
    let text = format!(
        "for {}, until a host with the package `{}` had a free place",
        span(waited),
        launch.package
    );
    (waited >= NOTICED).then(|| Finding::at(FindingKind::Waited, ready, text))
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
        let more = calls.len() - CALLS_TOLD;
        let text = format!("and {more} more calls, which `run show` lists");
        findings.push(Finding::at(FindingKind::Called, next.started_at, text));
    }
    findings
}

fn call(call: &TaskRun) -> Finding {
    let took = span(call.finished_at.since(call.started_at));
    let became = match call.failure {
        None => "succeeded".to_owned(),
        Some(kind) => format!("{kind}{}", said(call.message.as_deref())),
    };
    let again = call.retry_at.map_or_else(String::new, |retry_at| {
        format!("; to be called again at {retry_at}")
    });
    let text = format!(
        "task `{}`, call {}: {became} after {took}{again}",
        call.task, call.attempt
    );
    Finding::at(FindingKind::Called, call.started_at, text)
}

/// A message in parentheses, if there is one.
fn said(message: Option<&str>) -> String {
    message.map_or_else(String::new, |message| format!(" ({message})"))
}

/// That a run was lost.
fn lost(run: &RunRow) -> Option<Finding> {
    let at = run.finished_at.filter(|_| run.status == RunStatus::Lost)?;
    let why = run.message.as_deref();
    let why = why.unwrap_or("nobody carried it out any more");
    let text = format!("the run of {}: {why}", host(run));
    Some(Finding::at(FindingKind::Lost, at, text))
}

/// When it was opened again, from the events about its slot.
fn recoveries(trace: &LaunchTrace) -> Vec<Finding> {
    let slot = trace.decided.launch.scheduled_time;
    let begin = format!("slot {slot} is run again, ");
    let recovered = trace
        .events
        .iter()
        .filter(|event| event.kind == EventKind::LaunchRecovered);
    recovered
        .filter_map(|event| {
            let text = event.detail.strip_prefix(&begin)?;
            let text = format!("opened again, {text}");
            Some(Finding::at(FindingKind::Recovered, event.at, text))
        })
        .collect()
}

/// How it ended, or how it stands; none when it was skipped, which its decision tells.
pub(super) fn outcome(history: &ScheduleHistory, trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let message = said(launch.message.as_deref());
    let other = trace.overlaps.as_ref().map(named);
    let text = match launch.status {
        LaunchStatus::Skipped => return None,
        LaunchStatus::Succeeded if launch.attempts > 1 => {
            format!("succeeded, in run {}", launch.attempts)
        }
        LaunchStatus::Succeeded => "succeeded".to_owned(),
        LaunchStatus::Failed => match launch.failure {
            None | Some(FailureKind::Failed) => format!("failed for good{message}"),
            Some(kind) => format!("failed for good: {kind}{message}"),
        },
        LaunchStatus::Cancelled => match other {
            Some(other) => format!("cancelled{message}, for {other}"),
            None => format!("cancelled{message}"),
        },
        LaunchStatus::Unknown => {
            "unknown: it was to be run at most once, and nobody knows what the lost run did"
                .to_owned()
        }
        LaunchStatus::Abandoned => {
            let reason = launch.reason.as_deref().unwrap_or_default();
            let text = given_up(reason, launch.recoveries);
            format!("abandoned ({reason}): {text}")
        }
        LaunchStatus::Open => format!(
            "open: it waits for a host with the package `{}` and a free place",
            launch.package
        ),
        LaunchStatus::Queued if launch.fire_time > history.now => {
            format!("queued: it waits for its fire time, {}", launch.fire_time)
        }
        LaunchStatus::Queued => "queued: it waits for its turn".to_owned(),
        LaunchStatus::Running => match other {
            Some(other) => format!("running, and asked to end for {other}"),
            None => "running".to_owned(),
        },
        LaunchStatus::Waiting => "waiting until its task is called again".to_owned(),
    };
    let at = launch.finished_at.unwrap_or(history.now);
    Some(Finding::at(FindingKind::Outcome, at, text))
}

/// A reason of recovery to give up, as a clause.
fn given_up(reason: &str, recoveries: i64) -> String {
    match reason {
        "schedule_disabled" => "its schedule was paused when it was to be run again".to_owned(),
        "schedule_deleted" => "its schedule was removed before it could be run again".to_owned(),
        PACKAGE_MISSING => "no live host had its package for too long".to_owned(),
        "recovery_age" => "it was too long ago to be run again".to_owned(),
        "recovery_attempts" => format!("it was run again {recoveries} times, and lost each time"),
        _ => "it was given up".to_owned(),
    }
}
