//! Pure: explain the decision about a slot.

use super::history::{LaunchTrace, ScheduleHistory, was_queued};
use super::{Finding, FindingKind, NOTICED, moment, named, path, rule_of, span};
use crate::admin::schedule_admin::{OVERDUE, PAUSED, RESTORED};
use crate::rules::plan::PACKAGE_MISSING;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_schedule::policy::{Catchup, DropReason, Policies};
use campanile_store::Decision;
use campanile_store::events::EventKind;
use campanile_store::launch::{OPERATOR, OVERLAP};

/// Explain a launch; `slot` names one slot of a range.
pub(super) fn chain(
    history: &ScheduleHistory,
    trace: &LaunchTrace,
    slot: Option<Timestamp>,
) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let slot = slot.unwrap_or(launch.last_scheduled_time);
    let mut findings = origin(trace, slot);
    findings.extend(decision(history, trace, slot));
    findings.extend(path::path(trace));
    if launch.reason.as_deref() == Some("schedule_disabled") {
        findings.extend(last_pause(history, trace));
    }
    findings.extend(path::outcome(history, trace));
    findings
}

/// Say which slot it is, or what else requested the launch.
fn origin(trace: &LaunchTrace, slot: Timestamp) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let requested = |by: &str| {
        let text = format!("{by}: launch {}", launch.id);
        vec![Finding::at(FindingKind::Requested, slot, text)]
    };
    match launch.kind {
        LaunchKind::Manual => match launch.retry_of {
            Some(original) => requested(&format!(
                "an operator asked to run the launch {original} again"
            )),
            None => requested("a person or a program asked for a launch besides the slots"),
        },
        LaunchKind::Backfill => requested("a backfill asked for the slot"),
        LaunchKind::Startup => requested("a host started"),
        LaunchKind::Schedule | LaunchKind::Catchup if launch.slot_count > 1 => {
            let (count, of) = (launch.slot_count, rule_of(&trace.revision));
            let (first, last) = (launch.scheduled_time, launch.last_scheduled_time);
            let text = format!(
                "one of {count} slots of {of} that were dropped together, from {first} to {last}"
            );
            vec![Finding::at(FindingKind::Slot, slot, text)]
        }
        LaunchKind::Schedule | LaunchKind::Catchup => {
            moment::slot(&trace.revision, slot, &format!(", launch {}", launch.id))
        }
    }
}

fn decision(history: &ScheduleHistory, trace: &LaunchTrace, slot: Timestamp) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let queued = was_queued(&trace.decided).then(|| queued(trace));
    if launch.decision == Decision::Skipped {
        let skipped = skipped(history, trace, slot);
        return queued.into_iter().chain(skipped).collect();
    }
    let decided = queued.unwrap_or_else(|| {
        let (by, package) = (trace.decided_by(), &launch.package);
        let text = format!("decided{by}, to run the package `{package}`");
        Finding::at(FindingKind::Launched, launch.decided_at, text)
    });
    late(trace).into_iter().chain([decided]).collect()
}

fn late(trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let late = launch.decided_at.since(launch.scheduled_time);
    let because = match launch.kind {
        LaunchKind::Catchup => format!("; caught up, since `catchup` is `{}`", catchup(trace)),
        LaunchKind::Schedule if late >= NOTICED => ", within the grace".to_owned(),
        _ => return None,
    };
    let text = format!("decided {} after its time{because}", span(late));
    Some(Finding::at(FindingKind::Late, launch.decided_at, text))
}

fn catchup(trace: &LaunchTrace) -> Catchup {
    let policies = trace.policies();
    policies.map_or_else(Catchup::default, |policies| policies.catchup())
}

fn queued(trace: &LaunchTrace) -> Finding {
    let launch = &trace.decided.launch;
    // The host that ended its wait is recorded instead of the host that decided.
    let by = match trace.decided.opened_at {
        Some(_) => String::new(),
        None => trace.decided_by(),
    };
    let others: Vec<String> = trace.beside.iter().map(named).collect();
    let wait = match &others[..] {
        [] if launch.fire_time > launch.decided_at => "its fire time".to_owned(),
        [] => "its turn".to_owned(),
        others => format!("its turn behind {}", others.join(" and ")),
    };
    let text = format!("decided{by}, to wait for {wait}");
    Finding::at(FindingKind::Queued, launch.decided_at, text)
}

fn skipped(history: &ScheduleHistory, trace: &LaunchTrace, slot: Timestamp) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let at = launch.finished_at.unwrap_or(launch.decided_at);
    let reason = launch.reason.as_deref().unwrap_or_default();
    if let Ok(reason) = reason.parse() {
        return vec![dropped(trace, reason, slot)];
    }
    let (kind, text) = match reason {
        OVERLAP => return vec![overlapped(trace, at)],
        OVERDUE | PAUSED => return pause(history, trace),
        PACKAGE_MISSING => {
            let (by, package) = (trace.decided_by(), &launch.package);
            let event = history.last(EventKind::PackageMissing, Some(package), at);
            let since = event.map_or_else(String::new, |event| format!(", since {}", event.at));
            let text = format!(
                "skipped{by}: no live host had the package `{package}` in its folder{since}"
            );
            (FindingKind::PackageMissing, text)
        }
        "edited" => {
            let change = history.first(&[EventKind::ScheduleChanged], at);
            let change = change.map_or_else(String::new, |event| format!(" ({})", event.detail));
            let text = format!("skipped: the timing was changed before a host decided it{change}");
            (FindingKind::Edited, text)
        }
        "removed" => (
            FindingKind::Removed,
            "skipped: the schedule was removed before a host decided it".to_owned(),
        ),
        OPERATOR => {
            let who = launch.message.as_deref().unwrap_or("an operator ended it");
            let text = format!("skipped: {who} before a host claimed it");
            (FindingKind::Skipped, text)
        }
        RESTORED => (
            FindingKind::Skipped,
            "skipped: the database was restored from a copy without it".to_owned(),
        ),
        reason => (FindingKind::Skipped, format!("skipped: {reason}")),
    };
    vec![Finding::at(kind, at, text)]
}

fn dropped(trace: &LaunchTrace, reason: DropReason, slot: Timestamp) -> Finding {
    let at = trace.decided.launch.decided_at;
    let by = trace.decided_by();
    let policies = trace.policies();
    let why = match reason {
        DropReason::SkippedOnce => {
            let text = format!("skipped{by}: a person skipped this slot");
            return Finding::at(FindingKind::SlotSkipped, at, text);
        }
        DropReason::CatchupNone => {
            let is_own = trace
                .own_policies()
                .is_some_and(|own| own.catchup.is_some());
            let by = if is_own {
                ""
            } else {
                " by the configuration of the hosts"
            };
            format!("`catchup` is `none`{by}")
        }
        DropReason::Window => match policies.and_then(|policies| policies.catchup_window) {
            Some(window) => format!("`catchup_window` is {}", span(window)),
            None => "that is past the host's catch-up window".to_owned(),
        },
        DropReason::Coalesced => {
            let other = match &trace.replaced_by {
                Some(other) => format!("the slot {}", other.launch.scheduled_time),
                None => "another slot".to_owned(),
            };
            let catchup = catchup(trace);
            format!("`catchup` is `{catchup}` and {other} is caught up instead")
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

/// Say which launch the overlap policy preferred.
fn overlapped(trace: &LaunchTrace, at: Timestamp) -> Finding {
    // The policy of a manual launch may differ from the schedule's, and is not recorded.
    let is_manual = trace.decided.launch.kind == LaunchKind::Manual;
    let since = match trace.policies() {
        Some(policies) if !is_manual => format!(", since `overlap` is `{}`", policies.overlap),
        _ => String::new(),
    };
    let other = trace.overlaps.as_ref().map(named);
    let other = other.unwrap_or_else(|| "another launch".to_owned());
    let text = format!("skipped{}{since}, beside {other}", trace.decided_by());
    Finding::at(FindingKind::Overlapped, at, text)
}

/// Say which pause dropped it, and what ended the pause.
fn pause(history: &ScheduleHistory, trace: &LaunchTrace) -> Vec<Finding> {
    let launch = &trace.decided.launch;
    let is_overdue = launch.reason.as_deref() == Some(OVERDUE);
    let mut findings = Vec::new();
    if is_overdue {
        let text = "no host had decided it when the pause began";
        findings.push(Finding::new(FindingKind::Overdue, text));
    }
    findings.extend(last_pause(history, trace));
    let ends = [
        EventKind::ScheduleChanged,
        EventKind::ScheduleResumed,
        EventKind::ScheduleRemoved,
    ];
    findings.extend(history.first(&ends, launch.decided_at).map(|event| {
        let detail = &event.detail;
        let (kind, text) = match event.kind {
            EventKind::ScheduleRemoved => (
                FindingKind::Removed,
                "skipped: the schedule was removed while it was paused".to_owned(),
            ),
            EventKind::ScheduleChanged => (
                FindingKind::Edited,
                format!("skipped: the timing was changed while it was paused ({detail})"),
            ),
            _ => {
                let which = if is_overdue {
                    "that was undecided when a pause began"
                } else {
                    "of a pause"
                };
                let text = format!("{detail}; skipped, as is each slot {which}");
                (FindingKind::Resumed, text)
            }
        };
        Finding::at(kind, event.at, text)
    }));
    findings
}

/// Returns the pause that was in effect when the launch ended.
fn last_pause(history: &ScheduleHistory, trace: &LaunchTrace) -> Option<Finding> {
    let launch = &trace.decided.launch;
    let until = launch.finished_at.unwrap_or(launch.decided_at);
    let event = history.last(EventKind::SchedulePaused, None, until)?;
    Some(Finding::at(FindingKind::Paused, event.at, &event.detail))
}
