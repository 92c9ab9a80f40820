//! Pure: explain a moment without a decision, and how a schedule stands.

use std::time::Duration;

use chrono::NaiveDateTime;

use super::history::{ParsedRevision, ScheduleHistory};
use super::{Finding, FindingKind, explained, rule_of, span};
use crate::admin::schedule_admin::pause_text;
use campanile_model::clock::Timestamp;
use campanile_schedule::policy::{Defaults, Policies, SlotEvaluator};
use campanile_schedule::rule::{Rule, SlotCheck, clock_text};
use campanile_store::removed_launches::RemovedDay;
use campanile_store::schedules::Pause;

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
    let new_name = &next.name;
    let text = format!("what was called `{name}` is called `{new_name}` from then on");
    Some(Finding::at(FindingKind::Renamed, next.since, text))
}

pub(super) fn without_decision(history: &ScheduleHistory, instant: Timestamp) -> Vec<Finding> {
    let state = &history.state;
    if let Some(deleted_at) = state.deleted_at.filter(|deleted| *deleted <= instant) {
        return vec![removed(deleted_at)];
    }
    let revision = history.revision_at(instant);
    let readable = match ReadableRevision::new(history, revision) {
        Ok(readable) => readable,
        Err(why) => return vec![unreadable(revision, why)],
    };
    let mut findings = Vec::new();
    let (is_slot, about) = readable.about(instant);
    findings.extend(about);
    if !is_slot {
        findings.extend(readable.neighbours(instant));
        if readable.rule.delay_after_completion().is_some() {
            findings.extend(readable.next_slot());
        }
    } else if instant > state.created_at {
        findings.extend(readable.slot_without_decision(instant));
    }
    if instant <= state.created_at {
        let text = "the schedule was added then, and launches no slot before";
        findings.push(Finding::at(FindingKind::Added, state.created_at, text));
    }
    findings
}

/// Explain a moment of a day with removed launches: which slot it is, and that its decision is not known any more.
pub(super) fn of_removed_day(
    history: &ScheduleHistory,
    instant: Timestamp,
    removed: RemovedDay,
) -> Vec<Finding> {
    let mut findings = slot_of_removed_day(history, instant);
    let (launches, were) = match removed.launches {
        1 => ("1 launch of its slots".to_owned(), "was"),
        n => (format!("{n} launches of its slots"), "were"),
    };
    let text = format!(
        "of the day {} {launches} {were} removed by retention, so the decision about this moment may be gone",
        instant.date_text()
    );
    findings.push(Finding::at(FindingKind::Expired, removed.removed_at, text));
    findings
}

/// The same for a day whose counts of removed launches were removed too.
pub(super) fn of_uncounted_day(history: &ScheduleHistory, instant: Timestamp) -> Vec<Finding> {
    let mut findings = slot_of_removed_day(history, instant);
    let text = format!(
        "retention has removed launches of days before and after {}, and their counts, so the decision about this moment may be gone",
        instant.date_text()
    );
    findings.push(Finding::new(FindingKind::Expired, text));
    findings
}

fn slot_of_removed_day(history: &ScheduleHistory, instant: Timestamp) -> Vec<Finding> {
    let revision = history.revision_at(instant);
    let readable = ReadableRevision::new(history, revision);
    readable.map_or(Vec::new(), |readable| readable.about(instant).1)
}

/// Explain how the schedule stands now: its pause, its next slot, and what is missing for a launch.
pub(super) fn standing(history: &ScheduleHistory) -> Vec<Finding> {
    let state = &history.state;
    if let Some(deleted_at) = state.deleted_at {
        return vec![removed(deleted_at)];
    }
    let readable = match ReadableRevision::new(history, &history.newest) {
        Ok(readable) => readable,
        Err(why) => return vec![unreadable(&history.newest, why)],
    };
    let mut findings = Vec::from_iter(paused(history));
    let no_slot = || Some(readable.no_next_slot());
    findings.extend(match (state.enabled, state.paused_until) {
        (true, _) => readable.next_slot().or_else(no_slot),
        (false, None) => None,
        (false, Some(until)) => {
            let made = state.history.launches_made();
            let slot = readable.policies.next_slot(readable.rule, until, made);
            slot.map(|slot| readable.coming(slot, "the first slot after the pause"))
        }
    });
    findings.extend(hindrances(history));
    findings
}

/// Say that a moment is a slot, and which clock change moved it. `suffix` ends the sentence.
pub(super) fn slot(revision: &ParsedRevision, instant: Timestamp, suffix: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Ok((rule, _)) = &revision.parsed {
        findings.extend(rule.dst_effects_at(instant).iter().map(|effect| {
            let text = rule.dst_effect_text(effect);
            Finding::at(FindingKind::Clock, effect.change, text)
        }));
    }
    let text = format!("a slot of {}{suffix}", rule_of(revision));
    findings.push(Finding::at(FindingKind::Slot, instant, text));
    findings
}

/// A revision that this version can read.
pub(super) struct ReadableRevision<'a> {
    history: &'a ScheduleHistory,
    revision: &'a ParsedRevision,
    pub rule: &'a Rule,
    policies: &'a Policies,
}

impl<'a> ReadableRevision<'a> {
    /// # Errors
    /// Why this version cannot read the revision.
    pub fn new(
        history: &'a ScheduleHistory,
        revision: &'a ParsedRevision,
    ) -> Result<ReadableRevision<'a>, &'a str> {
        let (rule, policies) = revision.parsed.as_ref().map_err(String::as_str)?;
        Ok(ReadableRevision {
            history,
            revision,
            rule,
            policies,
        })
    }

    /// Say why a local time that the clock skips at `change` has no slot.
    pub fn skipped_by_clock(
        &self,
        local: NaiveDateTime,
        change: Timestamp,
        check: &SlotCheck,
    ) -> Vec<Finding> {
        let text = format!("the clock skips {}, and continues here", clock_text(local));
        let mut findings = vec![Finding::at(FindingKind::Clock, change, text)];
        findings.extend(self.misfit(check));
        findings.extend(self.neighbours(change));
        findings
    }

    /// Says whether a moment is a slot, and which one, or why it is none.
    fn about(&self, instant: Timestamp) -> (bool, Vec<Finding>) {
        match self.misfit(&self.rule.check_slot(instant)) {
            None => (true, slot(self.revision, instant, "")),
            Some(misfit) => {
                let at = Some(instant);
                (false, vec![Finding { at, ..misfit }])
            }
        }
    }

    /// Say why a moment is no slot; none when it is one.
    fn misfit(&self, check: &SlotCheck) -> Option<Finding> {
        let (of, rule) = (rule_of(self.revision), self.rule);
        let no_slot = |kind, why: String| Finding::new(kind, format!("no slot of {of}: {why}"));
        Some(match check {
            SlotCheck::Slot => return None,
            SlotCheck::FieldsDiffer(mismatches) => {
                let mismatches: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
                no_slot(FindingKind::NoSlot, mismatches.join(", "))
            }
            SlotCheck::Excluded(item) => {
                let text =
                    format!("a slot of {of}, if its exclusion `{item}` did not leave it out");
                Finding::new(FindingKind::Excluded, text)
            }
            SlotCheck::ClockChange(effect) => {
                no_slot(FindingKind::Clock, rule.dst_effect_text(effect))
            }
            SlotCheck::OffGrid => {
                no_slot(FindingKind::NoSlot, format!("it fires {}", explained(rule)))
            }
            SlotCheck::NoSlots => {
                let fires = explained(rule);
                let text = format!("the clock gives {of} no slots: it fires {fires}");
                Finding::new(FindingKind::NoSlot, text)
            }
        })
    }

    fn neighbours(&self, instant: Timestamp) -> Vec<Finding> {
        let start_at = self.policies.start_at;
        let is_begun = |slot: &Timestamp| start_at.is_none_or(|start| *slot >= start);
        let before = self.rule.prev(instant).filter(is_begun);
        let before = before.map(|at| Finding::at(FindingKind::Before, at, "the slot before it"));
        // `max_launches` does not count here: the finding about the slot itself says when it is reached.
        let after = self.policies.next_slot(self.rule, instant, 0);
        let after = after.map(|at| Finding::at(FindingKind::After, at, "the slot after it"));
        before.into_iter().chain(after).collect()
    }

    fn slot_without_decision(&self, slot: Timestamp) -> Vec<Finding> {
        let (state, now) = (&self.history.state, self.history.now);
        if let Some(start_at) = self.policies.start_at.filter(|start| slot < *start) {
            let text = "`start_at`: nothing before it is launched";
            return vec![Finding::at(FindingKind::NotBegun, start_at, text)];
        }
        if let Some(end_at) = self.policies.end_at.filter(|end| slot > *end) {
            let text = "`end_at`: nothing after it is launched";
            return vec![Finding::at(FindingKind::Ended, end_at, text)];
        }
        if let Some(ended) = self.max_launches_reached() {
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
            return vec![Finding::at(FindingKind::SlotSkipped, slot, text)];
        }
        let mut findings = Vec::from_iter(paused(self.history));
        let is_resumed_by_then = state.paused_until.is_some_and(|until| until < slot);
        let is_active = state.enabled || is_resumed_by_then;
        let is_overdue = state.paused_at.is_some_and(|at| slot < at);
        let undecided = |text| Finding::at(FindingKind::Undecided, slot, text);
        findings.push(match is_active {
            true if slot <= now => undecided(UNDECIDED),
            true => self.coming(slot, "it will be decided then"),
            false if is_overdue => undecided(OVERDUE),
            false => undecided(IN_PAUSE),
        });
        findings.extend(hindrances(self.history));
        findings
    }

    fn next_slot(&self) -> Option<Finding> {
        let slot = self.history.state.next_slot?;
        Some(if slot <= self.history.now {
            Finding::at(FindingKind::Undecided, slot, UNDECIDED)
        } else {
            self.coming(slot, "the next slot")
        })
    }

    /// Say why a schedule that is not paused has no next slot.
    fn no_next_slot(&self) -> Finding {
        if self.rule.at_host_start() || self.rule.delay_after_completion().is_some() {
            let text = format!("the next launch comes {}", explained(self.rule));
            return Finding::new(FindingKind::Coming, text);
        }
        if let Some(ended) = self.max_launches_reached() {
            return ended;
        }
        match self.policies.end_at {
            Some(end_at) => {
                let text = "`end_at`: there is no slot up to it any more";
                Finding::at(FindingKind::Ended, end_at, text)
            }
            None => {
                let text = format!("{} has no slot any more", rule_of(self.revision));
                Finding::new(FindingKind::Ended, text)
            }
        }
    }

    fn max_launches_reached(&self) -> Option<Finding> {
        let state = &self.history.state;
        let made = state.history.launches_made();
        let text = format!("`max_launches` is reached: it has made {made}");
        let is_reached = self.policies.launches_left(made) == Some(0);
        is_reached.then(|| Finding::at(FindingKind::Ended, state.cursor_at, text))
    }

    fn coming(&self, slot: Timestamp, what: &str) -> Finding {
        let evaluator = SlotEvaluator {
            schedule: self.history.state.id,
            rule: self.rule,
            policies: self.policies,
            defaults: &Defaults::default(),
        };
        let text = match evaluator.fire_time(slot).since(slot) {
            Duration::ZERO => what.to_owned(),
            jitter => format!("{what}, to fire {} later by its jitter", span(jitter)),
        };
        Finding::at(FindingKind::Coming, slot, text)
    }
}

fn paused(history: &ScheduleHistory) -> Option<Finding> {
    let state = &history.state;
    let text = pause_text(Pause {
        by: state.paused_by.as_deref().unwrap_or("an unknown person"),
        note: state.pause_note.as_deref(),
        until: state.paused_until,
    });
    Some(Finding::at(FindingKind::Paused, state.paused_at?, text))
}

/// Say what is missing for a launch now: a live host, or the package.
fn hindrances(history: &ScheduleHistory) -> Vec<Finding> {
    let mut findings = Vec::new();
    let newest = history.hosts.iter().max_by_key(|host| host.heartbeat_at);
    match newest {
        None => findings.push(Finding::new(FindingKind::NoHost, "no host serves")),
        Some(host) if history.now.since(host.heartbeat_at) > SILENT => {
            let (name, at) = (&host.name, host.heartbeat_at);
            let text = format!("no host serves: `{name}` sent its last heartbeat then");
            findings.push(Finding::at(FindingKind::NoHost, at, text));
        }
        Some(_) => {}
    }
    let package = &history.newest.definition.package;
    match &history.package {
        None => {
            let text = format!("no host ever had the package `{package}`");
            findings.push(Finding::new(FindingKind::PackageMissing, text));
        }
        Some(row) => findings.extend(row.missing_since.map(|since| {
            let text = format!("no live host has the package `{package}` since then");
            Finding::at(FindingKind::PackageMissing, since, text)
        })),
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
