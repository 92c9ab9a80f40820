//! What is on the record about a schedule.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::schedule_admin::{self, ScheduleError};
use crate::definition::parse;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_schedule::policy::{Catchup, DropReason, Policies};
use campanile_schedule::rule::Rule;
use campanile_store::events::{Event, EventKind};
use campanile_store::history::{self, DecidedLaunch};
use campanile_store::hosts::{self, Host};
use campanile_store::packages::{self, PackageRow};
use campanile_store::runs::RunRow;
use campanile_store::schedules::{self, Revision, ScheduleState};
use campanile_store::task_runs::{self, TaskRun};
use campanile_store::{Decision, Tx};

/// A revision, with its rule and its policies if this version can read them.
pub(super) struct ParsedRevision {
    pub definition: Revision,
    pub parsed: Result<(Rule, Policies), String>,
}

/// A schedule, and what happened to it and around it.
pub(super) struct ScheduleHistory {
    pub now: Timestamp,
    pub state: ScheduleState,
    /// What it says, or said at last.
    pub newest: ParsedRevision,
    /// What it said before, the oldest first.
    pub earlier: Vec<ParsedRevision>,
    /// What happened to it, under the names that it has had, and to its packages.
    pub events: Vec<Event>,
    pub hosts: Vec<Host>,
    pub package: Option<PackageRow>,
}

/// A launch, and what has to do with it.
pub(super) struct LaunchTrace {
    pub decided: DecidedLaunch,
    /// What the schedule said when it was decided.
    pub said: ParsedRevision,
    /// The launch that it was skipped or cancelled for.
    pub overlaps: Option<DecidedLaunch>,
    /// The launch that stands for it.
    pub stands_for_it: Option<DecidedLaunch>,
    /// What was going on when it was decided.
    pub beside: Vec<DecidedLaunch>,
    pub runs: Vec<(RunRow, Vec<TaskRun>)>,
    /// What happened to launches of its schedule while it was not over.
    pub events: Vec<Event>,
}

impl ParsedRevision {
    pub fn new(definition: Revision) -> ParsedRevision {
        let parsed = parse(&definition);
        ParsedRevision { definition, parsed }
    }
}

impl ScheduleHistory {
    /// Read what there is about the schedule called `name`; of several, the one that there was at `about`.
    pub async fn read(
        tx: &mut Tx,
        name: &str,
        about: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<ScheduleHistory, ScheduleError> {
        let bearers = history::schedules_named(tx, name).await?;
        let was_there = |bearer: &&history::NamedSchedule| {
            let gone = |at| bearer.deleted_at.is_some_and(|deleted| deleted <= at);
            about.is_none_or(|at| bearer.created_at <= at && !gone(at))
        };
        let bearer = bearers.iter().find(was_there).or(bearers.first());
        let state = match bearer {
            Some(bearer) => schedules::state(tx, bearer.id).await?,
            None => None,
        };
        let Some(state) = state else {
            // It was never there: this names what is near.
            let schedule = schedule_admin::find(tx, name).await?;
            return Err(ScheduleError::Raced(schedule.definition.name));
        };
        let mut said = history::revisions(tx, state.id).await?;
        let until = state.deleted_at.unwrap_or(now);
        let events = events_of(tx, &said, until).await?;
        let Some(newest) = said.pop() else {
            return Err(ScheduleError::Raced(name.to_owned()));
        };
        let package = packages::find(tx, &newest.package).await?;
        Ok(ScheduleHistory {
            now,
            state,
            newest: ParsedRevision::new(newest),
            earlier: said.into_iter().map(ParsedRevision::new).collect(),
            events,
            hosts: hosts::live(tx).await?,
            package,
        })
    }

    /// What it said at `instant`, or at first.
    pub fn revision_at(&self, instant: Timestamp) -> &ParsedRevision {
        if self.newest.definition.since <= instant {
            return &self.newest;
        }
        let later = self
            .earlier
            .partition_point(|said| said.definition.since <= instant);
        let said = self.earlier.get(later.saturating_sub(1));
        said.unwrap_or(&self.newest)
    }

    /// The last event of that kind up to `until`.
    pub fn last(&self, kind: EventKind, until: Timestamp) -> Option<&Event> {
        let mut events = self.events.iter().rev();
        events.find(|event| event.kind == kind && event.at <= until)
    }

    /// Since when no live host had `package`, at `instant`, if that is on the record.
    pub fn missing_since(&self, package: &str, instant: Timestamp) -> Option<Timestamp> {
        let mut events = self.events.iter().rev();
        let missing =
            |event: &&Event| event.kind == EventKind::PackageMissing && event.subject == package;
        let event = events.find(|event| missing(event) && event.at <= instant);
        event.map(|event| event.at)
    }

    /// The first event of one of those kinds from `since` on.
    pub fn first(&self, kinds: &[EventKind], since: Timestamp) -> Option<&Event> {
        let mut events = self.events.iter();
        events.find(|event| kinds.contains(&event.kind) && event.at >= since)
    }
}

/// What happened to a schedule, under the name that it had at the time, and to its package.
async fn events_of(
    tx: &mut Tx,
    said: &[Revision],
    until: Timestamp,
) -> Result<Vec<Event>, ScheduleError> {
    let mut events = Vec::new();
    for (number, definition) in said.iter().enumerate() {
        // Another schedule may have had the name before, and another may have it since.
        let next = said.get(number + 1).map(|next| next.since);
        let until = next.map_or(until, |next| next.minus(Duration::from_micros(1)));
        for subject in BTreeSet::from([&definition.name, &definition.package]) {
            events.extend(history::events(tx, subject, definition.since, until).await?);
        }
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

impl LaunchTrace {
    /// The decisions about `instant`, in the order in which they were made.
    pub async fn read_all(
        tx: &mut Tx,
        history: &ScheduleHistory,
        instant: Timestamp,
    ) -> Result<Vec<LaunchTrace>, ScheduleError> {
        let id = history.state.id;
        let slot = history::of_slot(tx, id, instant).await?;
        let by_hand = LaunchId::of(id, instant, LaunchKind::Manual);
        let by_hand = history::launch(tx, by_hand).await?;
        let backfills = history::backfills(tx, id, instant).await?;
        let mut traces = Vec::new();
        for decided in slot.into_iter().chain(by_hand).chain(backfills) {
            traces.push(LaunchTrace::read(tx, history, decided).await?);
        }
        Ok(traces)
    }

    /// Read what has to do with a launch.
    pub async fn read(
        tx: &mut Tx,
        history: &ScheduleHistory,
        decided: DecidedLaunch,
    ) -> Result<LaunchTrace, ScheduleError> {
        let id = history.state.id;
        let launch = &decided.launch;
        let mut earlier = history.earlier.iter();
        let said = earlier.find(|said| said.definition.revision == decided.schedule_revision);
        let said = ParsedRevision::new(said.unwrap_or(&history.newest).definition.clone());
        let overlaps = match launch.overlaps {
            Some(other) => history::launch(tx, other).await?,
            None => None,
        };
        let coalesced = launch.reason.as_deref() == Some(DropReason::Coalesced.as_str());
        let stands_for_it = match (&said.parsed, coalesced) {
            (Ok((_, policies)), true) if policies.catchup == Catchup::Earliest => {
                history::caught_up_before(tx, id, launch.scheduled_time).await?
            }
            (_, true) => history::caught_up_after(tx, id, launch.last_scheduled_time).await?,
            (_, false) => None,
        };
        let waited = launch.decision == Decision::Queued || decided.opened_at.is_some();
        let displaced = launch.decision == Decision::Skipped
            && launch
                .finished_at
                .is_some_and(|end| end > launch.claimed_at);
        let beside = match waited || displaced {
            true => history::concurrent(tx, id, launch).await?,
            false => Vec::new(),
        };
        let mut runs = Vec::new();
        for run in history::runs(tx, launch.id).await? {
            let calls = task_runs::of_run(tx, run.id).await?;
            runs.push((run, calls));
        }
        let until = launch.finished_at.unwrap_or(history.now);
        let about = |event: &&Event| (launch.claimed_at..=until).contains(&event.at);
        let events = history.events.iter().filter(about).cloned().collect();
        Ok(LaunchTrace {
            decided,
            said,
            overlaps,
            stands_for_it,
            beside,
            runs,
            events,
        })
    }

    /// Whether it is about `instant`: a range also spans moments that are no slots.
    pub fn holds(&self, instant: Timestamp) -> bool {
        let launch = &self.decided.launch;
        match &self.said.parsed {
            Ok((rule, _)) if launch.slot_count > 1 => rule.matches(instant),
            _ => true,
        }
    }

    /// Whether it says all there is to say about `instant`: a backfill does not say why the slot was not launched
    /// before.
    pub fn answers(&self, instant: Timestamp) -> bool {
        self.decided.launch.kind != LaunchKind::Backfill && self.holds(instant)
    }
}
