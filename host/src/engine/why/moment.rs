//! Pure: what keeps a moment from being launched, and how a schedule stands.

use std::time::Duration;

use chrono::NaiveDateTime;

use super::dossier::{Dossier, Said};
use super::{Finding, FindingKind, explained, rule_of, span};
use crate::clock::Timestamp;
use crate::engine::plan;
use crate::policy::{Defaults, Policies, Terms};
use crate::schedule::{Fate, Fit, Rule};

/// A host that was silent for longer may be gone.
const SILENT: Duration = Duration::from_secs(60);

/// That the schedule has another name than the one asked for.
pub(super) fn renamed(dossier: &Dossier, name: &str) -> Option<Finding> {
    let newest = &dossier.newest.says;
    let renamed = newest.name != name;
    let mut later = dossier
        .earlier
        .iter()
        .skip_while(|said| said.says.name != name);
    let since = later.find(|said| said.says.name != name);
    renamed.then(|| {
        let since = since.map_or(newest.since, |said| said.says.since);
        let text = format!(
            "from then on it is not called `{name}`, now it is `{}`",
            newest.name
        );
        Finding::at(FindingKind::Renamed, since, text)
    })
}

/// Why nothing was decided about `instant`, or not yet.
pub(super) fn without_decision(dossier: &Dossier, instant: Timestamp) -> Vec<Finding> {
    let state = &dossier.state;
    let said = dossier.in_force(instant);
    let (rule, policies) = match &said.parsed {
        Ok(parsed) => parsed,
        Err(why) => return vec![unreadable(said, why)],
    };
    let mut findings = Vec::new();
    if instant <= state.created_at {
        let text = "it was added only then, and owes nothing before";
        findings.push(Finding::at(FindingKind::Added, state.created_at, text));
    } else if let Some(deleted_at) = state.deleted_at.filter(|deleted| *deleted <= instant) {
        findings.push(removed(deleted_at));
        return findings;
    }
    match misfit(said, rule, &rule.fit(instant)) {
        Some((kind, text)) => {
            findings.push(Finding::at(kind, instant, text));
            findings.extend(neighbours(rule, policies, instant));
        }
        None => {
            findings.extend(slot(said, rule, instant));
            if instant > state.created_at {
                findings.extend(slot_without_decision(dossier, rule, policies, instant));
            }
        }
    }
    findings
}

/// What the clock leaves out, before what becomes of it.
pub(super) fn left_out_by_clock(
    said: &Said,
    local: NaiveDateTime,
    change: Timestamp,
    fit: &Fit,
) -> Vec<Finding> {
    let text = format!("the clock never shows {local}: it goes on to this then");
    let mut findings = vec![Finding::at(FindingKind::Clock, change, text)];
    let Ok((rule, policies)) = &said.parsed else {
        return findings;
    };
    let moved = match fit {
        Fit::Touched(touched) => matches!(touched.fate, Fate::Moved { .. }),
        _ => false,
    };
    // What is moved is told with the slot that it became.
    if !moved && let Some((kind, text)) = misfit(said, rule, fit) {
        findings.push(Finding::new(kind, text));
        findings.extend(neighbours(rule, policies, change));
    }
    findings
}

/// That a moment is a slot, and what changes of offset have to do with that.
pub(super) fn slot(said: &Said, rule: &Rule, instant: Timestamp) -> Vec<Finding> {
    let text = format!("a slot of {}", rule_of(said));
    let mut findings = vec![Finding::at(FindingKind::Slot, instant, text)];
    let touched = rule.touched_at(instant).into_iter();
    findings.extend(
        touched.map(|touched| Finding::at(FindingKind::Clock, touched.change, rule.told(&touched))),
    );
    findings
}

/// Why a moment is no slot; none when it is one.
fn misfit(said: &Said, rule: &Rule, fit: &Fit) -> Option<(FindingKind, String)> {
    let of = rule_of(said);
    Some(match fit {
        Fit::Slot => return None,
        Fit::Fields(misfits) => {
            let misfits: Vec<String> = misfits.iter().map(ToString::to_string).collect();
            (
                FindingKind::NoSlot,
                format!("{of} has none then: {}", misfits.join(", ")),
            )
        }
        Fit::LeftOut(item) => (
            FindingKind::LeftOut,
            format!("a slot of {of}, but for its exclusion `{item}`"),
        ),
        Fit::Touched(touched) => (
            FindingKind::Clock,
            format!("no slot of {of}: {}", rule.told(touched)),
        ),
        Fit::Between => (
            FindingKind::NoSlot,
            format!("{of} has none then: {}", explained(rule)),
        ),
        Fit::NoSlots => (
            FindingKind::NoSlot,
            format!(
                "the clock gives {of} no slots: it rings {}",
                explained(rule)
            ),
        ),
    })
}

/// The slots around a moment that is none.
fn neighbours(rule: &Rule, policies: &Policies, instant: Timestamp) -> Vec<Finding> {
    let begun = |slot: &Timestamp| policies.start_at.is_none_or(|start| *slot >= start);
    let before = rule.prev(instant).filter(begun);
    let after = policies.next_slot(rule, instant, 0);
    let before = before.map(|slot| Finding::at(FindingKind::Before, slot, "the slot before it"));
    let after = after.map(|slot| Finding::at(FindingKind::After, slot, "the slot after it"));
    before.into_iter().chain(after).collect()
}

/// Why there is no decision about a slot.
fn slot_without_decision(
    dossier: &Dossier,
    rule: &Rule,
    policies: &Policies,
    slot: Timestamp,
) -> Vec<Finding> {
    let state = &dossier.state;
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
    if let Some(ended) = all_made(dossier, policies) {
        return vec![ended];
    }
    if slot <= state.cursor_at {
        let text = format!(
            "no decision about it is on the record, though all up to {} is decided",
            state.cursor_at
        );
        return vec![Finding::at(FindingKind::Undecided, slot, text)];
    }
    if plan::taken_out(state.history.skips.as_deref()).contains(&slot) {
        let text = "a person took it out: it will be skipped, and the slots after it will not";
        return vec![Finding::at(FindingKind::TakenOut, slot, text)];
    }
    let mut findings: Vec<Finding> = paused(dossier).into_iter().collect();
    let resumed_by_then = state.paused_until.is_some_and(|until| until <= slot);
    if slot <= dossier.now {
        let text = match state.enabled {
            true => "its time has come, and no host has decided it yet",
            false => "it is decided when the schedule is resumed",
        };
        findings.push(Finding::at(FindingKind::Undecided, slot, text));
    } else if state.enabled || resumed_by_then {
        findings.push(coming(dossier, rule, policies, slot));
    }
    findings.extend(hindrances(dossier));
    findings
}

/// How the schedule stands, and what comes next.
pub(super) fn standing(dossier: &Dossier) -> Vec<Finding> {
    let state = &dossier.state;
    if let Some(deleted_at) = state.deleted_at {
        return vec![removed(deleted_at)];
    }
    let (rule, policies) = match &dossier.newest.parsed {
        Ok(parsed) => parsed,
        Err(why) => return vec![unreadable(&dossier.newest, why)],
    };
    let mut findings: Vec<Finding> = paused(dossier).into_iter().collect();
    match state.next_slot {
        Some(slot) if slot <= dossier.now => {
            let text = "its time has come, and no host has decided it yet";
            findings.push(Finding::at(FindingKind::Undecided, slot, text));
        }
        Some(slot) => findings.push(coming(dossier, rule, policies, slot)),
        None if state.enabled => findings.push(no_next_slot(dossier, rule, policies)),
        None => {}
    }
    findings.extend(hindrances(dossier));
    findings
}

/// Why a schedule that is not paused has no next slot.
fn no_next_slot(dossier: &Dossier, rule: &Rule, policies: &Policies) -> Finding {
    if rule.at_host_start() || rule.delay_after_completion().is_some() {
        return Finding::new(
            FindingKind::Coming,
            format!("the next launch comes {}", explained(rule)),
        );
    }
    if let Some(ended) = all_made(dossier, policies) {
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
            format!("{} has no slot any more", rule_of(&dossier.newest)),
        ),
    }
}

/// That all launches were made which the schedule may have.
fn all_made(dossier: &Dossier, policies: &Policies) -> Option<Finding> {
    let made = u64::try_from(dossier.state.history.launches).unwrap_or_default();
    let ended = policies.launches_left(made) == Some(0);
    let text = format!("all {made} launches of `max_launches` were made");
    ended.then(|| Finding::at(FindingKind::Ended, dossier.state.cursor_at, text))
}

fn coming(dossier: &Dossier, rule: &Rule, policies: &Policies, slot: Timestamp) -> Finding {
    let terms = Terms {
        schedule: dossier.state.id,
        rule,
        policies,
        defaults: &Defaults::default(),
    };
    let fire_time = terms.fire_time(slot);
    let text = match fire_time.since(slot) {
        Duration::ZERO => "this slot will be decided then".to_owned(),
        jitter => format!(
            "this slot will be decided then, to fire {} later by its jitter",
            span(jitter)
        ),
    };
    Finding::at(FindingKind::Coming, slot, text)
}

/// That it is paused now.
fn paused(dossier: &Dossier) -> Option<Finding> {
    let state = &dossier.state;
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
fn hindrances(dossier: &Dossier) -> Vec<Finding> {
    let mut findings = Vec::new();
    let newest = dossier.hosts.iter().max_by_key(|host| host.heartbeat_at);
    match newest {
        None => findings.push(Finding::new(FindingKind::NoHost, "no host serves")),
        Some(host) if dossier.now.since(host.heartbeat_at) > SILENT => {
            let text = format!(
                "no host serves: the last sign of life was this one, of `{}`",
                host.name
            );
            findings.push(Finding::at(FindingKind::NoHost, host.heartbeat_at, text));
        }
        Some(_) => {}
    }
    findings.extend(package_missing(dossier));
    findings
}

/// That no host has its package now.
fn package_missing(dossier: &Dossier) -> Option<Finding> {
    let package = dossier.package.as_ref();
    let name = &dossier.newest.says.package;
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

fn unreadable(said: &Said, why: &str) -> Finding {
    let text = format!(
        "this version cannot read revision {}: {why}",
        said.says.revision
    );
    Finding::new(FindingKind::Unreadable, text)
}
