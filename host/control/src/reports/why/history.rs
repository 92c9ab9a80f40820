//! Read what the database holds about a schedule.

use std::collections::BTreeSet;

use crate::admin::schedule_admin::{self, Result, ScheduleError};
use crate::schedules::definition::{own_policies, parse};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_schedule::policy::{Catchup, DropReason, Policies};
use campanile_schedule::rule::Rule;
use campanile_store::events::{Event, EventKind};
use campanile_store::history::{self, DecidedLaunch, RunningBeside};
use campanile_store::hosts::{self, Host};
use campanile_store::packages::{self, PackageRow};
use campanile_store::runs::RunRow;
use campanile_store::schedules::{self, Revision, ScheduleState};
use campanile_store::task_runs::{self, TaskRun};
use campanile_store::{Decision, LaunchStatus, Tx};

/// A revision with its rule and its policies, if this version can read them.
pub(super) struct ParsedRevision {
    pub definition: Revision,
    pub parsed: Result<(Rule, Policies), String>,
}

pub(super) struct ScheduleHistory {
    pub now: Timestamp,
    pub state: ScheduleState,
    pub newest: ParsedRevision,
    /// The former revisions, the oldest first.
    pub earlier: Vec<ParsedRevision>,
    /// The events of the schedule, under each of its names, and of its packages.
    pub events: Vec<Event>,
    pub hosts: Vec<Host>,
    pub package: Option<PackageRow>,
}

pub(super) struct LaunchTrace {
    pub decided: DecidedLaunch,
    /// The revision that decided it.
    pub revision: ParsedRevision,
    /// The launch that it was skipped or cancelled for.
    pub overlaps: Option<DecidedLaunch>,
    /// The launch that was caught up in its place.
    pub replaced_by: Option<DecidedLaunch>,
    /// The launches that were not over when it was decided.
    pub beside: Vec<DecidedLaunch>,
    pub runs: Vec<(RunRow, Vec<TaskRun>)>,
    /// The events of the schedule while it was not over.
    pub events: Vec<Event>,
    /// While it waits for a host: how many runs of its package, and of its group, have not ended.
    pub running_beside: Option<RunningBeside>,
}

impl ParsedRevision {
    pub fn new(definition: Revision) -> ParsedRevision {
        let parsed = parse(&definition);
        ParsedRevision { definition, parsed }
    }
}

impl ScheduleHistory {
    /// Read the history of the schedule `name`. Of several schedules, choose the one that existed at `about`.
    pub async fn read(
        tx: &mut Tx,
        name: &str,
        about: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<ScheduleHistory> {
        let named = history::schedules_named(tx, name).await?;
        let existed = |schedule: &&history::NamedSchedule| {
            let is_deleted = |at| schedule.deleted_at.is_some_and(|deleted| deleted <= at);
            about.is_none_or(|at| schedule.created_at <= at && !is_deleted(at))
        };
        let state = match named.iter().find(existed).or(named.first()) {
            Some(schedule) => schedules::state(tx, schedule.id).await?,
            None => None,
        };
        let Some(state) = state else {
            // No schedule ever had this name: the error suggests a similar one.
            let schedule = schedule_admin::find(tx, name).await?;
            return Err(ScheduleError::Raced(schedule.definition.name));
        };
        let mut revisions = history::revisions(tx, state.id).await?;
        let events = events_of(tx, &revisions, state.deleted_at.unwrap_or(now)).await?;
        let Some(newest) = revisions.pop() else {
            return Err(ScheduleError::Raced(name.to_owned()));
        };
        let package = packages::find(tx, &newest.package).await?;
        Ok(ScheduleHistory {
            now,
            state,
            newest: ParsedRevision::new(newest),
            earlier: revisions.into_iter().map(ParsedRevision::new).collect(),
            events,
            hosts: hosts::live(tx).await?,
            package,
        })
    }

    /// Returns the revision that was the newest at `instant`, or the first one.
    pub fn revision_at(&self, instant: Timestamp) -> &ParsedRevision {
        let is_made = |revision: &ParsedRevision| revision.definition.since <= instant;
        if is_made(&self.newest) {
            return &self.newest;
        }
        let made = self.earlier.partition_point(is_made);
        let revision = self.earlier.get(made.saturating_sub(1));
        revision.unwrap_or(&self.newest)
    }

    /// Returns the last event of a kind up to `until`, about `subject` if one is given.
    pub fn last(&self, kind: EventKind, subject: Option<&str>, until: Timestamp) -> Option<&Event> {
        let is_about = |event: &Event| subject.is_none_or(|subject| event.subject == subject);
        let mut events = self.events.iter().rev();
        events.find(|event| event.kind == kind && event.at <= until && is_about(event))
    }

    pub fn first(&self, kinds: &[EventKind], since: Timestamp) -> Option<&Event> {
        let mut events = self.events.iter();
        events.find(|event| kinds.contains(&event.kind) && event.at >= since)
    }
}

/// Returns the events of a schedule, under the name it had at the time, and of the package it had at the time.
async fn events_of(tx: &mut Tx, revisions: &[Revision], until: Timestamp) -> Result<Vec<Event>> {
    let Some(first) = revisions.first() else {
        return Ok(Vec::new());
    };
    let subjects = revisions.iter();
    let subjects = subjects.flat_map(|revision| [&*revision.name, &*revision.package]);
    let mut events = Vec::new();
    for subject in subjects.collect::<BTreeSet<&str>>() {
        events.extend(history::events(tx, subject, first.since, until).await?);
    }
    // Other schedules may have had the same name before, and may have it since.
    events.retain(|event: &Event| {
        let made = revisions.partition_point(|revision| revision.since <= event.at);
        let revision = &revisions[made.saturating_sub(1)];
        [&revision.name, &revision.package].contains(&&event.subject)
    });
    events.sort_by_key(|event| event.at);
    Ok(events)
}

impl LaunchTrace {
    /// Read the decisions about `instant`, in the order in which they were made.
    pub async fn read_all(
        tx: &mut Tx,
        history: &ScheduleHistory,
        instant: Timestamp,
    ) -> Result<Vec<LaunchTrace>> {
        let id = history.state.id;
        let slot = history::of_slot(tx, id, instant).await?;
        let manual = LaunchId::of(id, instant, LaunchKind::Manual);
        let manual = history::launch(tx, manual).await?;
        let backfills = history::backfills(tx, id, instant).await?;
        let mut traces = Vec::new();
        for decided in slot.into_iter().chain(manual).chain(backfills) {
            traces.push(LaunchTrace::read(tx, history, decided).await?);
        }
        Ok(traces)
    }

    pub async fn read(
        tx: &mut Tx,
        history: &ScheduleHistory,
        decided: DecidedLaunch,
    ) -> Result<LaunchTrace> {
        let id = history.state.id;
        let launch = &decided.launch;
        let number = decided.schedule_revision;
        let mut earlier = history.earlier.iter();
        let revision = earlier.find(|earlier| earlier.definition.revision == number);
        let revision = ParsedRevision::new(revision.unwrap_or(&history.newest).definition.clone());
        let overlaps = match launch.overlaps {
            Some(other) => history::launch(tx, other).await?,
            None => None,
        };
        let is_coalesced = launch.reason.as_deref() == Some(DropReason::Coalesced.as_str());
        let replaced_by = match &revision.parsed {
            _ if !is_coalesced => None,
            Ok((_, policies)) if policies.catchup() == Catchup::Earliest => {
                history::caught_up_before(tx, id, launch.scheduled_time).await?
            }
            _ => history::caught_up_after(tx, id, launch.last_scheduled_time).await?,
        };
        let beside = if was_queued(&decided) {
            history::concurrent(tx, id, launch).await?
        } else {
            Vec::new()
        };
        let mut runs = Vec::new();
        for run in history::runs(tx, launch.id).await? {
            let calls = task_runs::summaries_of_run(tx, run.id).await?;
            runs.push((run, calls));
        }
        let running_beside = match launch.status {
            LaunchStatus::Open => {
                Some(history::running_beside(tx, &launch.package, launch.group.as_deref()).await?)
            }
            _ => None,
        };
        let until = launch.finished_at.unwrap_or(history.now);
        let is_during = |event: &&Event| (launch.decided_at..=until).contains(&event.at);
        let events = history.events.iter().filter(is_during).cloned().collect();
        Ok(LaunchTrace {
            decided,
            revision,
            overlaps,
            replaced_by,
            beside,
            runs,
            events,
            running_beside,
        })
    }

    /// Whether it is about `instant`: a range of slots also spans moments that are no slots.
    pub fn is_about(&self, instant: Timestamp) -> bool {
        match &self.revision.parsed {
            Ok((rule, _)) if self.decided.launch.slot_count > 1 => rule.matches(instant),
            _ => true,
        }
    }

    /// Whether it explains `instant` completely: a backfill does not say why the slot was not launched before.
    pub fn decides(&self, instant: Timestamp) -> bool {
        self.decided.launch.kind != LaunchKind::Backfill && self.is_about(instant)
    }

    /// Returns the policies that the definition itself sets, if this version can read them.
    pub fn own_policies(&self) -> Option<Policies> {
        own_policies(&self.revision.definition).ok()
    }

    /// Returns the policies that decided it, if this version can read them.
    pub fn policies(&self) -> Option<&Policies> {
        let parsed = self.revision.parsed.as_ref();
        parsed.ok().map(|(_, policies)| policies)
    }

    /// Returns ` by `host` with tzdata 2026a`, if recorded. Recovery overwrites the host that decided.
    pub fn decided_by(&self) -> String {
        let DecidedLaunch { launch, host, .. } = &self.decided;
        match (host, &launch.tzdata_version) {
            (Some(host), Some(version)) if launch.recoveries == 0 => {
                format!(" by `{host}` with tzdata {version}")
            }
            _ => String::new(),
        }
    }
}

/// Whether a launch waited in the queue.
pub(super) fn was_queued(decided: &DecidedLaunch) -> bool {
    let launch = &decided.launch;
    match launch.decision {
        Decision::Launched => decided.opened_at.is_some(),
        Decision::Queued => true,
        // A launch that was skipped later than it was decided was displaced.
        Decision::Skipped => launch.finished_at > Some(launch.decided_at),
    }
}
