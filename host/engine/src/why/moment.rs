//! Pure: what keeps a moment from being launched, and how a schedule stands.

use std::time::Duration;

use chrono::NaiveDateTime;

use super::history::{ParsedRevision, ScheduleHistory};
use super::{Finding, FindingKind, explained, rule_of, span};
use campanile_model::clock::Timestamp;
use campanile_schedule::policy::{Defaults, Policies, SlotEvaluator};
use campanile_schedule::rule::{Rule, SlotCheck, clock_text};

/// ParsedRevision of a slot that a host should have decided.
const UNDECIDED: &str = "its time has come, and no host has decided it yet";

/// ParsedRevision of a slot that nobody had decided when a pause began.
const OVERDUE: &str = "nobody had decided it when the pause began, and it is skipped when that ends, unless `resume --catch-up` ends it";

/// ParsedRevision of a slot that nobody decides for now.
const IN_PAUSE: &str =
    "it falls into the pause, and is skipped when that ends, unless `resume --catch-up` ends it";

/// A host that was silent for longer may be gone.
const SILENT: Duration = Duration::from_secs(60);

/// That the schedule has another name than the one asked for.
pub(super) fn renamed(history: &ScheduleHistory, name: &str) -> Option<Finding> {
    let newest = &history.newest.definition;
    if newest.name == name {
        return None;
    }
    let mut later = history
        .earlier
        .iter()
        .skip_while(|said| said.definition.name != name);
    let next = later.find(|said| said.definition.name != name);
    let next = next.map_or(newest, |said| &said.definition);
    let text = format!(
        "what was called `{name}` is called `{}` from then on",
        next.name
    );
    Some(Finding::at(FindingKind::Renamed, next.since, text))
}

/// Why nothing was decided about `instant`, or not yet.
pub(super) fn without_decision(history: &ScheduleHistory, instant: Timestamp) -> Vec<Finding> {
    let state = &history.state;
    if let Some(deleted_at) = state.deleted_at.filter(|deleted| *deleted <= instant) {
        return vec![removed(deleted_at)];
    }
    let said = history.revision_at(instant);
    let (rule, policies) = match &said.parsed {
        Ok(parsed) => parsed,
        Err(why) => return vec![unreadable(said, why)],
    };
    let mut findings = Vec::new();
    match misfit(said, rule, &rule.check_slot(instant)) {
        Some((kind, text)) => {
            findings.push(Finding::at(kind, instant, text));
            findings.extend(neighbours(said, instant));
            if rule.delay_after_completion().is_some() {
                findings.extend(next_slot(history, rule, policies));
            }
        }
        None => {
            findings.extend(slot(said, rule, instant, ""));
            if instant > state.created_at {
                findings.extend(slot_without_decision(history, rule, policies, instant));
            }
        }
    }
    if instant <= state.created_at {
        let text = "the schedule was added only then, and owes nothing before";
        findings.push(Finding::at(FindingKind::Added, state.created_at, text));
    }
    findings
}

/// Why a local time did not fire that the clock leaves out at `change`.
pub(super) fn left_out_by_clock(
    said: &ParsedRevision,
    rule: &Rule,
    local: NaiveDateTime,
    change: Timestamp,
    fit: &SlotCheck,
) -> Vec<Finding> {
    let text = format!(
        "the clock leaves {} out, and goes on here",
        clock_text(local)
    );
    let mut findings = vec![Finding::at(FindingKind::Clock, change, text)];
    let misfit = misfit(said, rule, fit);
    findings.extend(misfit.map(|(kind, text)| Finding::new(kind, text)));
    findings.extend(neighbours(said, change));
    findings
}

/// That a moment is a slot, after what changes of offset have to do with that; `also` ends the sentence.
pub(super) fn slot(
    said: &ParsedRevision,
    rule: &Rule,
    instant: Timestamp,
    also: &str,
) -> Vec<Finding> {
    let touched = rule.dst_effects_at(instant).into_iter();
    let mut findings: Vec<Finding> = touched
        .map(|touched| {
            let text = rule.dst_effect_text(&touched);
            Finding::at(FindingKind::Clock, touched.change, text)
        })
        .collect();
    let text = format!("a slot of {}{also}", rule_of(said));
    findings.push(Finding::at(FindingKind::Slot, instant, text));
    findings
}

/// Why a moment is no slot; none when it is one.
fn misfit(said: &ParsedRevision, rule: &Rule, fit: &SlotCheck) -> Option<(FindingKind, String)> {
    let of = rule_of(said);
    Some(match fit {
        SlotCheck::Slot => return None,
        SlotCheck::FieldsDiffer(mismatches) => {
            let mismatches: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
            (
                FindingKind::NoSlot,
                format!("no slot of {of}: {}", mismatches.join(", ")),
            )
        }
        SlotCheck::Excluded(item) => (
            FindingKind::LeftOut,
            format!("a slot of {of}, if its exclusion `{item}` did not leave it out"),
        ),
        SlotCheck::ClockChange(touched) => (
            FindingKind::Clock,
            format!("no slot of {of}: {}", rule.dst_effect_text(touched)),
        ),
        SlotCheck::OffGrid => (
            FindingKind::NoSlot,
            format!("no slot of {of}: it rings {}", explained(rule)),
        ),
        SlotCheck::NoSlots => (
            FindingKind::NoSlot,
            format!(
                "the clock gives {of} no slots: it rings {}",
                explained(rule)
            ),
        ),
    })
}

/// The slots around a moment that is none.
fn neighbours(said: &ParsedRevision, instant: Timestamp) -> Vec<Finding> {
    let Ok((rule, policies)) = &said.parsed else {
        return Vec::new();
    };
    let begun = |slot: &Timestamp| policies.start_at.is_none_or(|start| *slot >= start);
    let before = rule.prev(instant).filter(begun);
    // Whether the launches are made by then is not asked: that is told where a slot is.
    let after = policies.next_slot(rule, instant, 0);
    let before = before.map(|slot| Finding::at(FindingKind::Before, slot, "the slot before it"));
    let after = after.map(|slot| Finding::at(FindingKind::After, slot, "the slot after it"));
    before.into_iter().chain(after).collect()
}

/// Why there is no decision about a slot.
fn slot_without_decision(
    history: &ScheduleHistory,
    rule: &Rule,
    policies: &Policies,
    slot: Timestamp,
) -> Vec<Finding> {
    let state = &history.state;
    if let Some(start_at) = policies.start_at.filter(|start| slot < *start) {
        return vec![Finding::at(
            FindingKind::NotBegun,
            start_at,
            "`start_at`: nothing before it is launched",
        )];
    }
    if let Some(end_at) = policies.end_at.filter(|end| slot > *end) {
        return vec![Finding::at(
            FindingKind::Ended,
            end_at,
            "`end_at`: nothing after it is launched",
        )];
    }
    if let Some(ended) = all_made(history, policies) {
        return vec![ended];
    }
    if slot <= state.cursor_at {
        let text = format!(
            "no decision about it is on the record, though all up to {} is decided",
            state.cursor_at
        );
        return vec![Finding::at(FindingKind::Undecided, slot, text)];
    }
    if state.history.skipped_slots().contains(&slot) {
        let text = "a person took it out: it will be skipped, and the slots after it will not";
        return vec![Finding::at(FindingKind::TakenOut, slot, text)];
    }
    let mut findings: Vec<Finding> = paused(history).into_iter().collect();
    let resumed_by_then = state.paused_until.is_some_and(|until| until < slot);
    findings.push(
        match (state.enabled || resumed_by_then, slot <= history.now) {
            (true, true) => Finding::at(FindingKind::Undecided, slot, UNDECIDED),
            (true, false) => coming(history, rule, policies, slot, "it will be decided then"),
            (false, _) => {
                let is_overdue = state.paused_at.is_some_and(|at| slot < at);
                let text = if is_overdue { OVERDUE } else { IN_PAUSE };
                Finding::at(FindingKind::Undecided, slot, text)
            }
        },
    );
    findings.extend(hindrances(history));
    findings
}

/// How the schedule stands, and what comes next.
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
    let launches = u64::try_from(state.history.launches).unwrap_or_default();
    findings.extend(match (state.enabled, state.paused_until) {
        (true, _) => next_slot(history, rule, policies)
            .or_else(|| Some(no_next_slot(history, rule, policies))),
        (false, None) => None,
        (false, Some(until)) => policies.next_slot(rule, until, launches).map(|slot| {
            coming(
                history,
                rule,
                policies,
                slot,
                "the first slot after the pause",
            )
        }),
    });
    findings.extend(hindrances(history));
    findings
}

/// The slot that is to be decided next, if there is one.
fn next_slot(history: &ScheduleHistory, rule: &Rule, policies: &Policies) -> Option<Finding> {
    let slot = history.state.next_slot?;
    Some(match slot <= history.now {
        true => Finding::at(FindingKind::Undecided, slot, UNDECIDED),
        false => coming(history, rule, policies, slot, "the next slot"),
    })
}

/// Why a schedule that is not paused has no next slot.
fn no_next_slot(history: &ScheduleHistory, rule: &Rule, policies: &Policies) -> Finding {
    if rule.at_host_start() || rule.delay_after_completion().is_some() {
        return Finding::new(
            FindingKind::Coming,
            format!("the next launch comes {}", explained(rule)),
        );
    }
    if let Some(ended) = all_made(history, policies) {
        return ended;
    }
    match policies.end_at {
        Some(end_at) => Finding::at(
            FindingKind::Ended,
            end_at,
            "`end_at`: there is no slot up to it any more",
        ),
        None => Finding::new(
            FindingKind::Ended,
            format!("{} has no slot any more", rule_of(&history.newest)),
        ),
    }
}

/// That all launches were made which the schedule may have.
fn all_made(history: &ScheduleHistory, policies: &Policies) -> Option<Finding> {
    let made = u64::try_from(history.state.history.launches).unwrap_or_default();
    let ended = policies.launches_left(made) == Some(0);
    let text = format!("`max_launches` is reached: it has made {made}");
    ended.then(|| Finding::at(FindingKind::Ended, history.state.cursor_at, text))
}

/// That a slot comes, and when it fires.
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

/// That it is paused now.
fn paused(history: &ScheduleHistory) -> Option<Finding> {
    let state = &history.state;
    let paused_at = state.paused_at?;
    let mut text = format!(
        "by {}",
        state.paused_by.as_deref().unwrap_or("nobody knows whom")
    );
    if let Some(until) = state.paused_until {
        text += &format!(", until {until}");
    }
    if let Some(note) = &state.pause_note {
        text += &format!(": {note}");
    }
    Some(Finding::at(FindingKind::Paused, paused_at, text))
}

/// What is missing for anything to be launched now.
fn hindrances(history: &ScheduleHistory) -> Vec<Finding> {
    let mut findings = Vec::new();
    let newest = history.hosts.iter().max_by_key(|host| host.heartbeat_at);
    match newest {
        None => findings.push(Finding::new(FindingKind::NoHost, "no host serves")),
        Some(host) if history.now.since(host.heartbeat_at) > SILENT => {
            let text = format!(
                "no host serves: `{}` gave its last sign of life then",
                host.name
            );
            findings.push(Finding::at(FindingKind::NoHost, host.heartbeat_at, text));
        }
        Some(_) => {}
    }
    findings.extend(package_missing(history));
    findings
}

/// That no host has its package now.
fn package_missing(history: &ScheduleHistory) -> Option<Finding> {
    let package = history.package.as_ref();
    let name = &history.newest.definition.package;
    let text = format!("no live host has the package `{name}` since then");
    match package.map(|package| package.missing_since) {
        Some(None) => None,
        Some(Some(since)) => Some(Finding::at(FindingKind::PackageMissing, since, text)),
        None => Some(Finding::new(
            FindingKind::PackageMissing,
            format!("no host ever had the package `{name}`"),
        )),
    }
}

fn removed(deleted_at: Timestamp) -> Finding {
    Finding::at(
        FindingKind::Removed,
        deleted_at,
        "it was removed; nothing after that is launched",
    )
}

fn unreadable(said: &ParsedRevision, why: &str) -> Finding {
    let text = format!(
        "this version cannot read revision {}: {why}",
        said.definition.revision
    );
    Finding::new(FindingKind::Unreadable, text)
}
