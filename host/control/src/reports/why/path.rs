//! Pure: explain what followed the decision to launch, up to the end.

use super::history::{LaunchTrace, ScheduleHistory};
use super::{Finding, FindingKind, NOTICED, named, span};
use crate::admin::schedule_admin::RESTORED;
use crate::rules::plan::PACKAGE_MISSING;
use campanile_model::ids::LaunchKind;
use campanile_store::events::EventKind;
use campanile_store::runs::RunRow;
use campanile_store::task_runs::TaskRun;
use campanile_store::{Decision, FailureKind, LaunchStatus, RunStatus};

/// Calls listed for each run, at most.
const CALLS_MAX: usize = 20;

/// List waits, runs, calls and recoveries in the order in which they happened.
pub(super) fn path(trace: &LaunchTrace) -> Vec<Finding> {
    if trace.decided.launch.decision != Decision::Launched {
        return Vec::new();
    }
    let mut findings = Vec::from_iter(later_fire_time(trace));
    findings.extend(opened(trace));
    findings.extend(waited_for_capacity(trace));
    // The order of findings at one moment: a run is lost, recovered, and claimed again.
    findings.extend(trace.runs.iter().filter_map(|(run, _)| lost(run)));
    findings.extend(recoveries(trace));
    for (run, calls) in &trace.runs {
        findings.push(claimed(run));
        findings.extend(called(calls));
    }
    findings.sort_by_key(|finding| finding.at);
    findings
}

fn later_fire_time(trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let policies = trace.policies()?;
    if launch.fire_time <= launch.decided_at.max(launch.scheduled_time) {
        return None;
    }
    let later = span(launch.fire_time.since(launch.scheduled_time));
    let because = match launch.kind {
        LaunchKind::Schedule => policies.jitter.map(|_| "its jitter"),
        LaunchKind::Catchup => policies.catchup_spread.map(|_| "`catchup_spread`"),
        _ => None,
    };
    let because = because.map_or_else(String::new, |because| {
        format!(", {later} after its slot by {because}")
    });
    let text = format!("until its fire time{because}");
    Some(Finding::at(FindingKind::Waited, launch.fire_time, text))
}

fn opened(trace: &LaunchTrace) -> Option<Finding> {
    let opened_at = trace.decided.opened_at?;
    let after = span(opened_at.since(trace.decided.launch.decided_at));
    let text = format!("left the queue{} after {after}", trace.decided_by());
    Some(Finding::at(FindingKind::Opened, opened_at, text))
}

fn waited_for_capacity(trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let (first, _) = trace.runs.first()?;
    let opened_at = trace.decided.opened_at.unwrap_or(launch.decided_at);
    let ready = opened_at.max(launch.fire_time);
    let waited = first.started_at.since(ready);
    let (time, package) = (span(waited), &launch.package);
    let group = launch
        .group
        .as_ref()
        .map(|group| format!(" and its group `{group}` had room"));
    let group = group.unwrap_or_default();
    let labels = launch.run_on.as_ref();
    let labels = labels.map_or_else(String::new, |labels| format!(" and {}", labels.named()));
    let text = format!(
        "for {time}, until a host with the package `{package}`{labels} had free capacity{group}"
    );
    (waited >= NOTICED).then(|| Finding::at(FindingKind::Waited, ready, text))
}

fn claimed(run: &RunRow) -> Finding {
    let recovery = if run.is_recovery {
        ", as a recovery"
    } else {
        ""
    };
    let text = format!("by {}{recovery}: run {}", host(run), run.id);
    Finding::at(FindingKind::Claimed, run.started_at, text)
}

fn host(run: &RunRow) -> String {
    let host = run.host.as_deref();
    host.map_or_else(|| "a host".to_owned(), |host| format!("`{host}`"))
}

fn called(calls: &[TaskRun]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = calls.iter().take(CALLS_MAX).map(call).collect();
    if let Some(next) = calls.get(CALLS_MAX) {
        let more = calls.len() - CALLS_MAX;
        let text = format!("and {more} more calls, which `run show` lists");
        findings.push(Finding::at(FindingKind::Called, next.started_at, text));
    }
    findings
}

fn call(call: &TaskRun) -> Finding {
    let took = span(call.finished_at.since(call.started_at));
    let became = match call.failure {
        None => "succeeded".to_owned(),
        Some(kind) => format!("{kind}{}", in_parentheses(call.message.as_deref())),
    };
    let retry = call.retry_at.map_or_else(String::new, |retry_at| {
        format!("; to be called again at {retry_at}")
    });
    let (task, attempt) = (&call.task, call.attempt);
    let text = format!("task `{task}`, call {attempt}: {became} after {took}{retry}");
    Finding::at(FindingKind::Called, call.started_at, text)
}

fn in_parentheses(message: Option<&str>) -> String {
    message.map_or_else(String::new, |message| format!(" ({message})"))
}

fn lost(run: &RunRow) -> Option<Finding> {
    let at = run.finished_at.filter(|_| run.status == RunStatus::Lost)?;
    let why = run.message.as_deref();
    let why = why.unwrap_or("no host executed it any more");
    let text = format!("the run of {}: {why}", host(run));
    Some(Finding::at(FindingKind::Lost, at, text))
}

fn recoveries(trace: &LaunchTrace) -> Vec<Finding> {
    let launch = Some(trace.decided.launch.id);
    let events = trace.events.iter();
    let recoveries = events
        .filter(|event| event.kind == EventKind::LaunchRecovered && event.launch_id == launch);
    recoveries
        .map(|event| Finding::at(FindingKind::Recovered, event.at, &event.detail))
        .collect()
}

/// Say how it ended, or its status; none when it was skipped, which its decision says.
pub(super) fn outcome(history: &ScheduleHistory, trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let message = in_parentheses(launch.message.as_deref());
    let other = trace.overlaps.as_ref().map(named);
    let other = |before: &str| other.map_or_else(String::new, |other| format!("{before}{other}"));
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
        LaunchStatus::Cancelled => format!("cancelled{message}{}", other(", for ")),
        LaunchStatus::Unknown => {
            "unknown: it runs at most once, and what the lost run did is not known".to_owned()
        }
        LaunchStatus::Abandoned => {
            let reason = launch.reason.as_deref().unwrap_or_default();
            let because = abandoned_because(reason, launch.recoveries);
            format!("abandoned ({reason}): {because}")
        }
        LaunchStatus::Open => format!("open: it waits for {}", waits_for(history, trace)),
        LaunchStatus::Queued if launch.fire_time > history.now => {
            format!("queued: it waits for its fire time, {}", launch.fire_time)
        }
        LaunchStatus::Queued => "queued: it waits for its turn".to_owned(),
        LaunchStatus::Running => format!("running{}", other(", and asked to end for ")),
        LaunchStatus::Waiting => "waiting until its task is called again".to_owned(),
    };
    let at = launch.finished_at.unwrap_or(history.now);
    Some(Finding::at(FindingKind::Outcome, at, text))
}

/// Say what an open launch waits for, as a noun.
fn waits_for(history: &ScheduleHistory, trace: &LaunchTrace) -> String {
    let launch = &trace.decided.launch;
    let (package, priority) = (&launch.package, launch.priority);
    let labels = launch.run_on.as_ref();
    let named = labels.map_or_else(String::new, |labels| format!(", {}", labels.named()));
    let live = history
        .hosts
        .iter()
        .filter(|host| host.is_alive(history.now));
    let mut able = live.filter(|host| host.labels.satisfy(labels)).peekable();
    if able.peek().is_none()
        && let Some(labels) = labels
    {
        return format!(
            "a host with {}: no live host has them; give a host the labels, or change `run_on` of the schedule",
            labels.named()
        );
    }
    if able.peek().is_some() && able.all(|host| host.drained_at.is_some()) {
        return format!(
            "a host with the package `{package}`{named} that is not drained; `campanile host list` shows the drained ones"
        );
    }
    let beside = trace.running_beside.unwrap_or_default();
    let of_package = beside.of_package;
    let host = format!(
        "a host with the package `{package}`{named} and free capacity; {of_package} runs of the package have not ended, and its priority is {priority}"
    );
    match &launch.group {
        Some(group) => format!(
            "room in its group `{group}`, of which {} runs have not ended, and for {host}",
            beside.of_group
        ),
        None => host,
    }
}

/// Say why recovery abandoned a launch, as a clause.
fn abandoned_because(reason: &str, recoveries: i64) -> String {
    match reason {
        "schedule_disabled" => "its schedule was paused when it was to be run again".to_owned(),
        "schedule_deleted" => "its schedule was removed before it could be run again".to_owned(),
        PACKAGE_MISSING => "no live host had its package for too long".to_owned(),
        "recovery_age" => "it was too long ago to be run again".to_owned(),
        RESTORED => {
            "the database was restored from a copy that was made before it ended".to_owned()
        }
        "recovery_attempts" => format!("it was run again {recoveries} times, and lost each time"),
        _ => "it was given up".to_owned(),
    }
}
