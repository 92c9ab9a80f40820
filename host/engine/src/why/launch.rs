//! Pure: what was decided about a slot.

use std::time::Duration;

use super::history::{LaunchTrace, ScheduleHistory};
use super::{Finding, FindingKind, moment, path, rule_of, span};
use crate::plan::PACKAGE_MISSING;
use crate::schedule_admin::{OVERDUE, PAUSED};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_schedule::policy::{Catchup, DropReason, Policies};
use campanile_store::events::EventKind;
use campanile_store::history::DecidedLaunch;
use campanile_store::overlap::REASON as OVERLAP;
use campanile_store::{Decision, LaunchStatus};

/// Waiting for less is not worth a line.
pub(super) const NOTICED: Duration = Duration::from_secs(1);

/// Everything about one launch; about one `slot` of it, when it is a range.
pub(super) fn chain(
    history: &ScheduleHistory,
    trace: &LaunchTrace,
    slot: Option<Timestamp>,
) -> Vec<Finding> {
    let slot = slot.unwrap_or(trace.decided.launch.last_scheduled_time);
    let mut findings = what_it_is(trace, slot);
    findings.extend(decision(history, trace, slot));
    findings.extend(path::path(trace));
    if trace.decided.launch.reason.as_deref() == Some("schedule_disabled") {
        findings.extend(paused(history, trace));
    }
    findings.extend(path::outcome(history, trace));
    findings
}

/// The slot, or what else asked for a launch.
fn what_it_is(trace: &LaunchTrace, slot: Timestamp) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let asked = |text: &str| {
        let text = format!("{text}: launch {}", launch.id);
        vec![Finding::at(FindingKind::Asked, slot, text)]
    };
    match launch.kind {
        LaunchKind::Manual => {
            return asked("a person or a program asked for a launch besides the slots");
        }
        LaunchKind::Backfill => return asked("a backfill asked for the slot"),
        LaunchKind::Startup => return asked("a host started"),
        LaunchKind::Schedule | LaunchKind::Catchup => {}
    }
    let of = rule_of(&trace.said);
    if launch.slot_count > 1 {
        let text = format!(
            "one of {} slots of {of} that were dropped together, from {} to {}",
            launch.slot_count, launch.scheduled_time, launch.last_scheduled_time
        );
        return vec![Finding::at(FindingKind::Slot, slot, text)];
    }
    let also = format!(", launch {}", launch.id);
    match &trace.said.parsed {
        Ok((rule, _)) => moment::slot(&trace.said, rule, slot, &also),
        Err(_) => {
            let text = format!("a slot of {of}{also}");
            vec![Finding::at(FindingKind::Slot, slot, text)]
        }
    }
}

/// What was decided, and why.
fn decision(history: &ScheduleHistory, trace: &LaunchTrace, slot: Timestamp) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let had_waited = launch
        .finished_at
        .is_some_and(|end| end > launch.claimed_at);
    let mut findings = Vec::new();
    if launch.decision == Decision::Skipped {
        findings.extend(had_waited.then(|| queued(trace)));
        findings.extend(skipped(history, trace, slot));
        return findings;
    }
    findings.extend(late(trace));
    let waited = trace.decided.opened_at.is_some() || launch.decision == Decision::Queued;
    findings.push(match waited {
        true => queued(trace),
        false => launched(trace),
    });
    findings
}

/// That it was decided after its time, and launched all the same.
fn late(trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let late = launch.claimed_at.since(launch.scheduled_time);
    let so = match launch.kind {
        LaunchKind::Catchup => {
            let word = policies(trace).map_or(Catchup::default(), |policies| policies.catchup);
            format!("; caught up, since `catchup` is `{word}`")
        }
        LaunchKind::Schedule if late >= NOTICED => ", within the grace".to_owned(),
        _ => return None,
    };
    let text = format!("decided {} after its time{so}", span(late));
    Some(Finding::at(FindingKind::Late, launch.claimed_at, text))
}

fn launched(trace: &LaunchTrace) -> Finding {
    let launch = &trace.decided.launch;
    let by = decided_by(trace);
    let text = format!("decided{by}, to run the package `{}`", launch.package);
    Finding::at(FindingKind::Launched, launch.claimed_at, text)
}

/// ` by `tower` with tzdata 2026a`, where that is on the record: whoever opens a launch again signs it too.
pub(super) fn decided_by(trace: &LaunchTrace) -> String {
    let DecidedLaunch { launch, host, .. } = &trace.decided;
    match (host, &launch.tzdata_version) {
        (Some(host), Some(version)) if launch.recoveries == 0 => {
            format!(" by `{host}` with tzdata {version}")
        }
        _ => String::new(),
    }
}

/// That it had to wait for its turn, and behind what.
fn queued(trace: &LaunchTrace) -> Finding {
    let launch = &trace.decided.launch;
    // Whoever lets it go signs it too.
    let by = match trace.decided.opened_at {
        Some(_) => String::new(),
        None => decided_by(trace),
    };
    let others: Vec<String> = trace.beside.iter().map(named).collect();
    let wait = match &others[..] {
        [] if launch.fire_time > launch.claimed_at => "its fire time".to_owned(),
        [] => "its turn".to_owned(),
        others => format!("its turn behind {}", others.join(" and ")),
    };
    let text = format!("decided{by}, to wait for {wait}");
    Finding::at(FindingKind::Queued, launch.claimed_at, text)
}

/// Why it was skipped.
fn skipped(history: &ScheduleHistory, trace: &LaunchTrace, slot: Timestamp) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let at = launch.finished_at.unwrap_or(launch.claimed_at);
    let reason = launch.reason.as_deref().unwrap_or_default();
    if let Ok(drop) = reason.parse() {
        return vec![dropped(trace, drop, slot)];
    }
    let (kind, text) = match reason {
        OVERLAP => return vec![overlapped(trace, at)],
        OVERDUE | PAUSED => return pause(history, trace),
        PACKAGE_MISSING => (
            FindingKind::PackageMissing,
            format!(
                "skipped{}: no live host had the package `{}` in its folder{}",
                decided_by(trace),
                launch.package,
                history
                    .missing_since(&launch.package, at)
                    .map_or_else(String::new, |since| format!(", since {since}"))
            ),
        ),
        "edited" => {
            let change = history.first(&[EventKind::ScheduleChanged], at);
            let change = change.map_or_else(String::new, |event| format!(" ({})", event.detail));
            (
                FindingKind::Edited,
                format!("skipped: the timing was changed before anybody had decided it{change}"),
            )
        }
        "removed" => (
            FindingKind::Removed,
            "skipped: the schedule was removed before anybody had decided it".to_owned(),
        ),
        reason => (FindingKind::Skipped, format!("skipped: {reason}")),
    };
    vec![Finding::at(kind, at, text)]
}

/// What the judge of slots said about `slot`.
fn dropped(trace: &LaunchTrace, reason: DropReason, slot: Timestamp) -> Finding {
    let at = trace.decided.launch.claimed_at;
    let by = decided_by(trace);
    let policies = policies(trace);
    let why = match reason {
        DropReason::SkippedOnce => {
            let text = format!("skipped{by}: a person had taken it out");
            return Finding::at(FindingKind::TakenOut, at, text);
        }
        DropReason::CatchupNone => "`catchup` is `none`".to_owned(),
        DropReason::Window => match policies.and_then(|policies| policies.catchup_window) {
            Some(window) => format!("`catchup_window` is {}", span(window)),
            None => "that is past the host's catch-up window".to_owned(),
        },
        DropReason::Coalesced => {
            let word = policies.map_or(Catchup::default(), |policies| policies.catchup);
            let other = match &trace.stands_for_it {
                Some(other) => format!("the slot {}", other.launch.scheduled_time),
                None => "another slot".to_owned(),
            };
            format!("`catchup` is `{word}` and {other} stands for it")
        }
        DropReason::CatchupMax => {
            let most = policies.map_or(0, Policies::catchup_max);
            format!("`catchup_max` is {most} and newer slots are caught up")
        }
    };
    let late = span(at.since(slot));
    let text = format!("decided{by}, {late} after its time; skipped, since {why}");
    Finding::at(FindingKind::Late, at, text)
}

/// With what it overlapped.
fn overlapped(trace: &LaunchTrace, at: Timestamp) -> Finding {
    // Whoever asks for a launch by hand may choose another policy, which is not on the record.
    let by_hand = trace.decided.launch.kind == LaunchKind::Manual;
    let since = match policies(trace) {
        Some(policies) if !by_hand => format!(", since `overlap` is `{}`", policies.overlap),
        _ => String::new(),
    };
    let other = match &trace.overlaps {
        Some(other) => named(other),
        None => "another launch".to_owned(),
    };
    let text = format!("skipped{}{since}, beside {other}", decided_by(trace));
    Finding::at(FindingKind::Overlapped, at, text)
}

/// The pause in which it fell, or that began before it was decided, and what ended that.
fn pause(history: &ScheduleHistory, trace: &LaunchTrace) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let is_overdue = launch.reason.as_deref() == Some(OVERDUE);
    let mut findings: Vec<Finding> = paused(history, trace).into_iter().collect();
    if is_overdue {
        let text = "nobody had decided it when the pause began";
        findings.insert(0, Finding::new(FindingKind::Overdue, text));
    }
    let ends = [
        EventKind::ScheduleChanged,
        EventKind::ScheduleResumed,
        EventKind::ScheduleRemoved,
    ];
    let end = history.first(&ends, launch.claimed_at);
    findings.extend(end.map(|event| match event.kind {
        EventKind::ScheduleRemoved => {
            let text = "skipped: the schedule was removed while it was paused";
            Finding::at(FindingKind::Removed, event.at, text)
        }
        EventKind::ScheduleChanged => {
            let text = format!(
                "skipped: the timing was changed while it was paused ({})",
                event.detail
            );
            Finding::at(FindingKind::Edited, event.at, text)
        }
        _ => {
            let what = match is_overdue {
                true => "as a pause owes nothing that was not decided before it",
                false => "as what falls into a pause is",
            };
            let text = format!("{}; skipped, {what}", event.detail);
            Finding::at(FindingKind::Resumed, event.at, text)
        }
    }));
    findings
}

/// The pause that there was when the launch came to its end.
fn paused(history: &ScheduleHistory, trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let until = launch.finished_at.unwrap_or(launch.claimed_at);
    let event = history.last(EventKind::SchedulePaused, until)?;
    Some(Finding::at(FindingKind::Paused, event.at, &event.detail))
}

/// A launch of the schedule by its slot, and what became of it.
pub(super) fn named(other: &DecidedLaunch) -> String {
    let launch = &other.launch;
    let run = launch.run_id;
    let run = run.map_or_else(String::new, |run| format!(", run {run}"));
    let became = match launch.finished_at {
        Some(end) => format!("{} at {end}", ended(launch.status)),
        None => format!("is {} now", launch.status),
    };
    format!(
        "the launch of {} ({}{run}), which {became}",
        launch.scheduled_time, launch.id
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

/// What the schedule said when it was decided, if this version can read it.
pub(super) fn policies(trace: &LaunchTrace) -> Option<&Policies> {
    let parsed = trace.said.parsed.as_ref();
    parsed.ok().map(|(_, policies)| policies)
}
