//! Pure: explain a moment without a decision, and how a schedule stands.

use std::time::Duration;

use chrono::NaiveDateTime;

use super::history::{ParsedRevision, ScheduleHistory};
use super::{Finding, FindingKind, explained, rule_of, span};
use campanile_model::clock::Timestamp;
use campanile_schedule::policy::{Defaults, Policies, SlotEvaluator};
use campanile_schedule::rule::{Rule, SlotCheck, clock_text};

const UNDECIDED: &str = "its time has come, and no host has decided it yet";
const OVERDUE: &str = "no host had decided it when the pause began, and it is skipped when that ends, unless `resume --catch-up` ends it";
const IN_PAUSE: &str =
    "it falls into the pause, and is skipped when that ends, unless `resume --catch-up` ends it";

/// A host without a heartbeat for longer counts as absent.
const SILENT: Duration = Duration::from_secs(60);

pub(super) fn renamed(history: &ScheduleHistory, name: &str) -> Option<Finding> {
    let newest = &history.newest.definition;
    if newest.name == name {
        return None;
    }
    let earlier = history.earlier.iter().map(|revision| &revision.definition);
    let mut later = earlier.skip_while(|earlier| earlier.name != name);
    let next = later.find(|later| later.name != name).unwrap_or(newest);
    let text = format!(
        "what was called `{name}` is called `{}` from then on",
        next.name
    );
    Some(Finding::at(FindingKind::Renamed, next.since, text))
}

pub(super) fn without_decision(history: &ScheduleHistory, instant: Timestamp) -> Vec<Finding> {
    let state = &history.state;
    if let Some(deleted_at) = state.deleted_at.filter(|deleted| *deleted <= instant) {
        return vec![removed(deleted_at)];
    }
    let revision = history.revision_at(instant);
    let (rule, policies) = match &revision.parsed {
        Ok(parsed) => parsed,
        Err(why) => return vec![unreadable(revision, why)],
    };
    let mut findings = Vec::new();
    match misfit(revision, rule, &rule.check_slot(instant)) {
        Some((kind, text)) => {
            findings.push(Finding::at(kind, instant, text));
            findings.extend(neighbours(revision, instant));
            if rule.delay_after_completion().is_some() {
                findings.extend(next_slot(history, rule, policies));
            }
        }
        None => {
            findings.extend(slot(revision, rule, instant, ""));
            if instant > state.created_at {
                findings.extend(slot_without_decision(history, rule, policies, instant));
            }
        }
    }
    if instant <= state.created_at {
        let text = "the schedule was added then, and launches no slot before";
        findings.push(Finding::at(FindingKind::Added, state.created_at, text));
    }
    findings
}

/// Say why a local time that the clock skips at `change` has no slot.
pub(super) fn skipped_by_clock(
    revision: &ParsedRevision,
    rule: &Rule,
    local: NaiveDateTime,
    change: Timestamp,
    fit: &SlotCheck,
) -> Vec<Finding> {
    let text = format!("the clock skips {}, and continues here", clock_text(local));
    let mut findings = vec![Finding::at(FindingKind::Clock, change, text)];
    let misfit = misfit(revision, rule, fit);
    findings.extend(misfit.map(|(kind, text)| Finding::new(kind, text)));
    findings.extend(neighbours(revision, change));
    findings
}

/// Say that a moment is a slot, and which clock change moved it. `suffix` ends the sentence.
pub(super) fn slot(
    revision: &ParsedRevision,
    rule: &Rule,
    instant: Timestamp,
    suffix: &str,
) -> Vec<Finding> {
    let touched = rule.dst_effects_at(instant).into_iter();
    let clock_change = |touched| {
        let text = rule.dst_effect_text(&touched);
        Finding::at(FindingKind::Clock, touched.change, text)
    };
    let mut findings: Vec<Finding> = touched.map(clock_change).collect();
    let text = format!("a slot of {}{suffix}", rule_of(revision));
    findings.push(Finding::at(FindingKind::Slot, instant, text));
    findings
}

/// Say why a moment is no slot; none when it is one.
fn misfit(
    revision: &ParsedRevision,
    rule: &Rule,
    fit: &SlotCheck,
) -> Option<(FindingKind, String)> {
    let of = rule_of(revision);
    Some(match fit {
        SlotCheck::Slot => return None,
        SlotCheck::FieldsDiffer(mismatches) => {
            let mismatches: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
            let text = format!("no slot of {of}: {}", mismatches.join(", "));
            (FindingKind::NoSlot, text)
        }
        SlotCheck::Excluded(item) => {
            let text = format!("a slot of {of}, if its exclusion `{item}` did not leave it out");
            (FindingKind::LeftOut, text)
        }
        SlotCheck::ClockChange(touched) => {
            let text = format!("no slot of {of}: {}", rule.dst_effect_text(touched));
            (FindingKind::Clock, text)
        }
        SlotCheck::OffGrid => {
            let text = format!("no slot of {of}: it fires {}", explained(rule));
            (FindingKind::NoSlot, text)
        }
        SlotCheck::NoSlots => {
            let text = format!(
                "the clock gives {of} no slots: it fires {}",
                explained(rule)
            );
            (FindingKind::NoSlot, text)
        }
    })
}

fn neighbours(revision: &ParsedRevision, instant: Timestamp) -> Vec<Finding> {
    let Ok((rule, policies)) = &revision.parsed else {
        return Vec::new();
    };
    let is_begun = |slot: &Timestamp| policies.start_at.is_none_or(|start| *slot >= start);
    let before = rule.prev(instant).filter(is_begun);
    // `max_launches` does not count here: the finding about the slot itself says when it is reached.
    let after = policies.next_slot(rule, instant, 0);
    let before = before.map(|slot| Finding::at(FindingKind::Before, slot, "the slot before it"));
    let after = after.map(|slot| Finding::at(FindingKind::After, slot, "the slot after it"));
    before.into_iter().chain(after).collect()
}

fn slot_without_decision(
    history: &ScheduleHistory,
    rule: &Rule,
    policies: &Policies,
    slot: Timestamp,
) -> Vec<Finding> {
    let state = &history.state;
    if let Some(start_at) = policies.start_at.filter(|start| slot < *start) {
        let text = "`start_at`: nothing before it is launched";
        return vec![Finding::at(FindingKind::NotBegun, start_at, text)];
    }
    if let Some(end_at) = policies.end_at.filter(|end| slot > *end) {
        let text = "`end_at`: nothing after it is launched";
        return vec![Finding::at(FindingKind::Ended, end_at, text)];
    }
    if let Some(ended) = max_launches_reached(history, policies) {
        return vec![ended];
    }
    if slot <= state.cursor_at {
        let cursor = state.cursor_at;
        let text = format!(
            "no decision about it is recorded, although all slots up to {cursor} are decided"
        );
        return vec![Finding::at(FindingKind::Undecided, slot, text)];
    }
    if state.history.skipped_slots().contains(&slot) {
        let text =
            "a person skipped this slot: it will not be launched, and the slots after it will";
        return vec![Finding::at(FindingKind::TakenOut, slot, text)];
    }
    let mut findings: Vec<Finding> = paused(history).into_iter().collect();
    let is_resumed_by_then = state.paused_until.is_some_and(|until| until < slot);
    let is_overdue = state.paused_at.is_some_and(|at| slot < at);
    findings.push(
        match (state.enabled || is_resumed_by_then, slot <= history.now) {
            (true, true) => Finding::at(FindingKind::Undecided, slot, UNDECIDED),
            (true, false) => coming(history, rule, policies, slot, "it will be decided then"),
            (false, _) if is_overdue => Finding::at(FindingKind::Undecided, slot, OVERDUE),
            (false, _) => Finding::at(FindingKind::Undecided, slot, IN_PAUSE),
        },
    );
    findings.extend(hindrances(history));
    findings
}

pub(super) fn standing(history: &ScheduleHistory) -> Vec<Finding> {
    let state = &history.state;
    if let Some(deleted_at) = state.deleted_at {
        return vec![removed(deleted_at)];
    }
    let (rule, policies) = match &history.newest.parsed {
        Ok(parsed) => parsed,
        Err(why) => return vec![unreadable(&history.newest, why)],
    };
    let mut findings: Vec<Finding> = paused(history).into_iter().collect();
    findings.extend(match (state.enabled, state.paused_until) {
        (true, _) => next_slot(history, rule, policies)
            .or_else(|| Some(no_next_slot(history, rule, policies))),
        (false, None) => None,
        (false, Some(until)) => {
            let slot = policies.next_slot(rule, until, state.history.launches_made());
            let what = "the first slot after the pause";
            slot.map(|slot| coming(history, rule, policies, slot, what))
        }
    });
    findings.extend(hindrances(history));
    findings
}

fn next_slot(history: &ScheduleHistory, rule: &Rule, policies: &Policies) -> Option<Finding> {
    let slot = history.state.next_slot?;
    Some(match slot <= history.now {
        true => Finding::at(FindingKind::Undecided, slot, UNDECIDED),
        false => coming(history, rule, policies, slot, "the next slot"),
    })
}

/// Say why a schedule that is not paused has no next slot.
fn no_next_slot(history: &ScheduleHistory, rule: &Rule, policies: &Policies) -> Finding {
    if rule.at_host_start() || rule.delay_after_completion().is_some() {
        let text = format!("the next launch comes {}", explained(rule));
        return Finding::new(FindingKind::Coming, text);
    }
    if let Some(ended) = max_launches_reached(history, policies) {
        return ended;
    }
    match policies.end_at {
        Some(end_at) => {
            let text = "`end_at`: there is no slot up to it any more";
            Finding::at(FindingKind::Ended, end_at, text)
        }
        None => {
            let text = format!("{} has no slot any more", rule_of(&history.newest));
            Finding::new(FindingKind::Ended, text)
        }
    }
}

fn max_launches_reached(history: &ScheduleHistory, policies: &Policies) -> Option<Finding> {
    let made = history.state.history.launches_made();
    let text = format!("`max_launches` is reached: it has made {made}");
    let is_reached = policies.launches_left(made) == Some(0);
    is_reached.then(|| Finding::at(FindingKind::Ended, history.state.cursor_at, text))
}

fn coming(
    history: &ScheduleHistory,
    rule: &Rule,
    policies: &Policies,
    slot: Timestamp,
    what: &str,
) -> Finding {
    let evaluator = SlotEvaluator {
        schedule: history.state.id,
        rule,
        policies,
        defaults: &Defaults::default(),
    };
    let text = match evaluator.fire_time(slot).since(slot) {
        Duration::ZERO => what.to_owned(),
        jitter => format!("{what}, to fire {} later by its jitter", span(jitter)),
    };
    Finding::at(FindingKind::Coming, slot, text)
}

fn paused(history: &ScheduleHistory) -> Option<Finding> {
    let state = &history.state;
    let by = state.paused_by.as_deref().unwrap_or("an unknown person");
    let mut text = format!("by {by}");
    if let Some(until) = state.paused_until {
        text += &format!(", until {until}");
    }
    if let Some(note) = &state.pause_note {
        text += &format!(": {note}");
    }
    Some(Finding::at(FindingKind::Paused, state.paused_at?, text))
}

/// Say what is missing for a launch now: a live host, or the package.
fn hindrances(history: &ScheduleHistory) -> Vec<Finding> {
    let mut findings = Vec::new();
    let newest = history.hosts.iter().max_by_key(|host| host.heartbeat_at);
    match newest {
        None => findings.push(Finding::new(FindingKind::NoHost, "no host serves")),
        Some(host) if history.now.since(host.heartbeat_at) > SILENT => {
            let text = format!(
                "no host serves: `{}` sent its last heartbeat then",
                host.name
            );
            findings.push(Finding::at(FindingKind::NoHost, host.heartbeat_at, text));
        }
        Some(_) => {}
    }
    let package = &history.newest.definition.package;
    match history
        .package
        .as_ref()
        .map(|package| package.missing_since)
    {
        Some(None) => {}
        Some(Some(since)) => {
            let text = format!("no live host has the package `{package}` since then");
            findings.push(Finding::at(FindingKind::PackageMissing, since, text));
        }
        None => {
            let text = format!("no host ever had the package `{package}`");
            findings.push(Finding::new(FindingKind::PackageMissing, text));
        }
    }
    findings
}

fn removed(deleted_at: Timestamp) -> Finding {
    let text = "it was removed; nothing after that is launched";
    Finding::at(FindingKind::Removed, deleted_at, text)
}

fn unreadable(revision: &ParsedRevision, why: &str) -> Finding {
    let number = revision.definition.revision;
    let text = format!("this version cannot read revision {number}: {why}");
    Finding::new(FindingKind::Unreadable, text)
}
