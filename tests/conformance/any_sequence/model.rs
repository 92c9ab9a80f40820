//! The invariants of the database, checked against the steps of the sequence.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, RunId, ScheduleId};
use campanile_model::life::Life;
use campanile_schedule::policy::{Catchup, Delivery, Overlap};
use campanile_store::launch::{self, LOSS_COUNTS_WITHIN, LaunchRow};
use campanile_store::runs::{self, RunRow};
use campanile_store::schedules::{self, ScheduleState};
use campanile_store::{Decision, LaunchStatus, RunStatus, Tx};

use super::definition::Definition;
use crate::fixtures::at;
use crate::launch_life::statuses_from;

pub const GRACE: Duration = Duration::from_secs(60);
pub const WINDOW: Duration = Duration::from_secs(3_600);
pub const RECOVERIES_MAX: i64 = 3;

/// A schedule as the sequence has defined it.
#[derive(Debug)]
pub struct ModelSchedule {
    pub id: ScheduleId,
    pub name: String,
    pub removed_at: Option<Timestamp>,
    /// The definitions with the instants from which they apply, one for each change of the timing.
    revisions: Vec<(Timestamp, Definition)>,
    was_at_most_once: bool,
    was_at_least_once: bool,
    /// The slots that an operator skipped.
    pub skipped_slots: BTreeSet<Timestamp>,
}

#[derive(Default)]
pub struct Model {
    pub schedules: Vec<ModelSchedule>,
    /// The names of the paused schedules.
    paused: BTreeSet<String>,
    cursors: HashMap<ScheduleId, Timestamp>,
    /// The launches of the previous check.
    seen: HashMap<LaunchId, LaunchRow>,
    /// The statuses that lives lead to, as far as they were asked for.
    reachable: HashMap<Life, HashSet<LaunchStatus>>,
    /// The finished launches, which never change.
    finished_launches: HashMap<LaunchId, LaunchRow>,
    finished_runs: HashMap<RunId, RunRow>,
}

impl ModelSchedule {
    pub fn definition(&self) -> &Definition {
        &self.revisions.last().unwrap().1
    }

    /// Return the first slot after `after`, if it comes within 1000 seconds.
    pub fn next_slot(&self, after: Timestamp) -> Option<Timestamp> {
        let horizon = after.plus(Duration::from_secs(1_000));
        self.definition().slots(after, horizon).next()
    }

    /// Return the slots from the creation up to `until`. Each revision gives the slots of the time in which it applies.
    fn slots(&self, until: Timestamp) -> BTreeSet<Timestamp> {
        let mut slots = BTreeSet::new();
        for (index, (since, definition)) in self.revisions.iter().enumerate() {
            let next = self.revisions.get(index + 1).map(|(since, _)| *since);
            let until = next.map_or(until, |next| next.min(until));
            slots.extend(definition.slots(*since, until));
        }
        slots
    }
}

impl Definition {
    /// Return the slots after `after` and up to `until`: whole intervals after the anchor, within `start_at` and `end_at`.
    fn slots(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        let anchor = at(0);
        let just_before = |start: Timestamp| start.minus(Duration::from_micros(1));
        let after = self
            .policies
            .start_at
            .map_or(after, |start| after.max(just_before(start)));
        let until = self.policies.end_at.map_or(until, |end| until.min(end));
        let first = after.since(anchor).as_micros() / self.interval.as_micros() + 1;
        (first..)
            .map(move |number| anchor.plus(self.interval * u32::try_from(number).unwrap()))
            .take_while(move |slot| *slot <= until)
    }

    /// Return the maximum of concurrently active launches, and the maximum of queued on-time launches.
    fn limits(&self) -> (usize, usize) {
        match self.policies.overlap {
            Overlap::Allow => {
                let max = self.policies.max_concurrent.unwrap() as usize;
                (max, max)
            }
            Overlap::BufferAll => (1, self.policies.max_buffered.unwrap() as usize),
            // The other policies queue nothing, but one launch may wait for its fire time.
            _ => (1, 1),
        }
    }
}

/// Return the unfinished launches.
pub async fn unfinished(tx: &mut Tx) -> Vec<LaunchRow> {
    let mut rows = launch::list(tx, None, i64::MAX).await.unwrap();
    rows.retain(|row| row.finished_at.is_none());
    rows
}

impl Model {
    /// Return the indexes of the schedules that are not removed.
    pub fn existing(&self) -> Vec<usize> {
        let exists = |index: &usize| self.schedules[*index].removed_at.is_none();
        (0..self.schedules.len()).filter(exists).collect()
    }

    pub fn add(&mut self, id: ScheduleId, name: String, definition: Definition, now: Timestamp) {
        let delivery = definition.policies.delivery();
        self.schedules.push(ModelSchedule {
            id,
            name,
            removed_at: None,
            revisions: vec![(now, definition)],
            was_at_most_once: delivery == Delivery::AtMostOnce,
            was_at_least_once: delivery == Delivery::AtLeastOnce,
            skipped_slots: BTreeSet::new(),
        });
    }

    pub fn edit(&mut self, index: usize, definition: Definition, now: Timestamp) {
        let schedule = &mut self.schedules[index];
        let delivery = definition.policies.delivery();
        schedule.was_at_most_once |= delivery == Delivery::AtMostOnce;
        schedule.was_at_least_once |= delivery == Delivery::AtLeastOnce;
        let previous = schedule.definition();
        let same_timing = previous.interval == definition.interval
            && previous.policies.same_timing(&definition.policies);
        match same_timing {
            // The slots stay the same. Only the decisions about them change.
            true => schedule.revisions.last_mut().unwrap().1 = definition,
            false => schedule.revisions.push((now, definition)),
        }
    }

    /// Return whether a launch waits until its schedule is resumed.
    pub fn waits_for_resume(&self, row: &LaunchRow) -> bool {
        row.status == LaunchStatus::Queued
            && !row.kind.is_by_hand()
            && self.paused.contains(&row.schedule)
    }

    /// Check the invariants of all rows. Return the situations that occur in them.
    pub async fn check(&mut self, tx: &mut Tx, now: Timestamp, case: &str) -> Vec<&'static str> {
        let rows = launch::list(tx, None, i64::MAX).await.unwrap();
        let runs = runs::list(tx, None, i64::MAX).await.unwrap();
        let mut by_schedule: BTreeMap<&str, Vec<&LaunchRow>> = BTreeMap::new();
        for row in &rows {
            by_schedule.entry(&row.schedule).or_default().push(row);
        }
        self.paused.clear();
        for index in 0..self.schedules.len() {
            let schedule = &self.schedules[index];
            let state = schedules::state(tx, schedule.id).await.unwrap().unwrap();
            if !state.enabled {
                self.paused.insert(schedule.name.clone());
            }
            let rows = by_schedule
                .remove(schedule.name.as_str())
                .unwrap_or_default();
            self.check_slots(schedule, &state, &rows, now, case);
            check_overlap(schedule, &rows, case);
            let new: Vec<&LaunchRow> = rows
                .iter()
                .copied()
                .filter(|row| !self.seen.contains_key(&row.id))
                .collect();
            check_lateness(schedule, &new, case);
            let before = self.cursors.insert(state.id, state.cursor_at);
            assert!(
                before <= Some(state.cursor_at),
                "a cursor moved back: {case}"
            );
        }
        assert!(
            by_schedule.is_empty(),
            "launches without a schedule: {case}"
        );
        self.check_runs(&rows, &runs, case);
        self.check_history(&rows, &runs, case);
        self.check_lives(&rows, case);
        let situations = situations(&rows, &runs);
        self.seen = rows.into_iter().map(|row| (row.id, row)).collect();
        situations
    }

    /// Check that every slot up to the cursor is decided once, and that the next slot is correct.
    fn check_slots(
        &self,
        schedule: &ModelSchedule,
        state: &ScheduleState,
        rows: &[&LaunchRow],
        now: Timestamp,
        case: &str,
    ) {
        let name = &schedule.name;
        let case = format!("{name} {:?}, {case}", schedule.definition());
        assert!(
            state.cursor_at <= now,
            "the cursor is in the future: {case}"
        );
        // A removal decides the slots that were due by then, and does not move the cursor.
        let slots = schedule.slots(schedule.removed_at.unwrap_or(state.cursor_at));
        let mut decided = BTreeSet::new();
        for row in rows.iter().filter(|row| !row.kind.is_by_hand()) {
            let range = slots.range(row.scheduled_time..=row.last_scheduled_time);
            let covered: Vec<Timestamp> = range.copied().collect();
            assert_eq!(covered.len() as i64, row.slot_count, "{row:#?} {case}");
            assert_eq!(
                covered.first(),
                Some(&row.scheduled_time),
                "{row:#?} {case}"
            );
            assert_eq!(
                covered.last(),
                Some(&row.last_scheduled_time),
                "{row:#?} {case}"
            );
            assert!(
                row.slot_count == 1 || row.decision == Decision::Skipped,
                "{row:#?} {case}"
            );
            for slot in covered {
                assert!(decided.insert(slot), "{slot} is decided twice: {case}");
                let is_skipped = schedule.skipped_slots.contains(&slot);
                assert!(
                    !is_skipped || row.decision == Decision::Skipped,
                    "an operator skipped {slot}: {case}"
                );
            }
            let kind = LaunchKind::Schedule;
            assert_eq!(
                row.id,
                LaunchId::of(schedule.id, row.scheduled_time, kind),
                "{case}"
            );
        }
        // Launches that were skipped after their decision do not count. The count of a removed schedule is not updated.
        let launched = rows.iter().filter(|row| !row.kind.is_by_hand());
        let launched = launched
            .filter(|row| row.decision != Decision::Skipped)
            .count() as i64;
        let launches = state.history.launches;
        assert!(
            launched == launches || schedule.removed_at.is_some(),
            "{launched} launched, {launches} counted: {case}"
        );
        // After `max_launches` the rule's further instants are no slots.
        if schedule
            .revisions
            .iter()
            .all(|(_, definition)| definition.policies.max_launches.is_none())
        {
            let missing: Vec<&Timestamp> = slots.difference(&decided).collect();
            assert!(missing.is_empty(), "not decided: {missing:?}: {case}");
        }
        let max = schedule.definition().policies.max_launches;
        let ended = max.is_some_and(|max| launches >= i64::try_from(max).unwrap());
        let next = schedule.next_slot(state.cursor_at);
        let next = next.filter(|_| state.enabled && state.deleted_at.is_none() && !ended);
        assert_eq!(state.next_slot, next, "{case}");
    }

    /// Check that a launch has at most one run that is not lost, and that its status fits that run.
    fn check_runs(&self, rows: &[LaunchRow], runs: &[RunRow], case: &str) {
        let mut by_schedule: HashMap<LaunchId, Vec<&RunRow>> = HashMap::new();
        for run in runs {
            by_schedule.entry(run.launch_id).or_default().push(run);
        }
        for row in rows {
            let runs = by_schedule.remove(&row.id).unwrap_or_default();
            let case = format!("{row:#?} {runs:#?} {case}");
            let not_lost: Vec<&&RunRow> = runs
                .iter()
                .filter(|run| run.status != RunStatus::Lost)
                .collect();
            assert!(not_lost.len() <= 1, "two runs are not lost: {case}");
            assert!(counted_losses(&runs) <= RECOVERIES_MAX + 1, "{case}");
            let run_status = not_lost.first().map(|run| run.status);
            let is_consistent = match row.status {
                LaunchStatus::Open | LaunchStatus::Queued | LaunchStatus::Skipped => {
                    run_status.is_none() && row.run_id.0.is_none()
                }
                LaunchStatus::Running => run_status == Some(RunStatus::Running),
                LaunchStatus::Waiting => run_status == Some(RunStatus::Waiting),
                LaunchStatus::Succeeded => run_status == Some(RunStatus::Succeeded),
                LaunchStatus::Failed => run_status == Some(RunStatus::Failed),
                LaunchStatus::Cancelled => {
                    run_status.is_none_or(|status| status == RunStatus::Cancelled)
                }
                LaunchStatus::Unknown => run_status.is_none() && runs.len() == 1,
                LaunchStatus::Abandoned => run_status.is_none(),
            };
            assert!(is_consistent, "{case}");
            let schedule = self
                .schedules
                .iter()
                .find(|schedule| schedule.name == row.schedule)
                .unwrap();
            if row.status == LaunchStatus::Unknown {
                assert!(schedule.was_at_most_once, "{case}");
            }
            if !schedule.was_at_least_once {
                assert!(runs.len() <= 1, "run twice: {case}");
            }
        }
        assert!(by_schedule.is_empty(), "runs without a launch: {case}");
    }

    /// Checks that each launch has come from its former status by what can happen to a launch.
    fn check_lives(&mut self, rows: &[LaunchRow], case: &str) {
        for row in rows {
            let Some(before) = self.seen.get(&row.id) else {
                continue;
            };
            assert!(
                before.attempts <= row.attempts && before.recoveries <= row.recoveries,
                "a count went back: {before:#?} {row:#?} {case}"
            );
            let life = Life {
                status: before.status,
                attempts: before.attempts.min(1),
                recoveries: 0,
                lost_runs: 0,
                has_run: before.run_id.0.is_some(),
                must_end: false,
            };
            let reachable = self
                .reachable
                .entry(life)
                .or_insert_with(|| statuses_from(life));
            assert!(
                reachable.contains(&row.status),
                "no arrow leads there: {before:#?} {row:#?} {case}"
            );
        }
    }

    /// Check that finished rows never change.
    fn check_history(&mut self, rows: &[LaunchRow], runs: &[RunRow], case: &str) {
        for row in rows.iter().filter(|row| row.finished_at.is_some()) {
            let before = self
                .finished_launches
                .entry(row.id)
                .or_insert_with(|| row.clone());
            assert_eq!(before, row, "a finished row changed: {case}");
        }
        for run in runs.iter().filter(|run| run.finished_at.is_some()) {
            let before = self
                .finished_runs
                .entry(run.id)
                .or_insert_with(|| run.clone());
            assert_eq!(before, run, "a finished row changed: {case}");
        }
        let exists = |id: &LaunchId| rows.iter().any(|row| row.id == *id);
        let run_exists = |id: &RunId| runs.iter().any(|run| run.id == *id);
        assert!(
            self.finished_launches.keys().all(exists) && self.finished_runs.keys().all(run_exists),
            "a finished row was deleted: {case}"
        );
    }
}

/// Check that the policies allow the numbers of active and of queued launches.
fn check_overlap(schedule: &ModelSchedule, rows: &[&LaunchRow], case: &str) {
    let (active_max, queued_max) = schedule.definition().limits();
    let is_active = |row: &&&LaunchRow| {
        use LaunchStatus::{Open, Running, Waiting};
        matches!(row.status, Open | Running | Waiting)
    };
    // A launch that was decided before its fire time overlaps no other until then.
    let is_queued = |row: &&&LaunchRow| {
        row.status == LaunchStatus::Queued
            && row.fire_time <= row.decided_at
            && !matches!(row.kind, LaunchKind::Catchup | LaunchKind::Backfill)
    };
    let active: Vec<_> = rows.iter().filter(is_active).collect();
    assert!(
        active.len() <= active_max,
        "{active:#?} {:?} {case}",
        schedule.definition()
    );
    // Queued slots of a paused schedule wait behind manual launches, so both are counted separately.
    for by_hand in [false, true] {
        let queued = rows.iter().filter(is_queued);
        let queued: Vec<_> = queued
            .filter(|row| row.kind.is_by_hand() == by_hand)
            .collect();
        assert!(
            queued.len() <= queued_max,
            "{queued:#?} {:?} {case}",
            schedule.definition()
        );
    }
    for row in rows {
        let reason = row.reason.as_deref();
        if reason == Some("overlap") && row.status == LaunchStatus::Skipped {
            assert!(row.overlaps.is_some(), "{row:#?} {case}");
        }
    }
}

/// Check that the decisions since the previous check fit the lateness of their slots.
fn check_lateness(schedule: &ModelSchedule, rows: &[&LaunchRow], case: &str) {
    let policies = &schedule.definition().policies;
    let grace = policies.misfire_grace.unwrap_or(GRACE);
    let window = policies.catchup_window.unwrap_or(WINDOW);
    let jitter = policies.jitter.unwrap_or_default();
    let decided = rows.iter().filter(|row| !row.kind.is_by_hand());
    let mut caught_up: BTreeMap<Timestamp, usize> = BTreeMap::new();
    for row in decided {
        let case = format!("{row:#?} {:?} {case}", schedule.definition());
        let now = row.decided_at;
        let late = now.since(row.scheduled_time);
        let reason = row.reason.as_deref();
        if row.kind == LaunchKind::Catchup {
            *caught_up.entry(now).or_default() += 1;
            assert!(late > grace && late <= window + jitter, "{case}");
            assert!(
                row.fire_time <= now || policies.catchup_spread.is_some(),
                "{case}"
            );
            continue;
        }
        match (reason, policies.catchup()) {
            (None | Some("overlap"), _) => assert!(late <= grace + jitter, "{case}"),
            (Some("catchup_none"), Catchup::None)
            | (Some("coalesced"), Catchup::Latest | Catchup::Earliest)
            | (Some("catchup_max"), Catchup::All) => assert!(late > grace, "{case}"),
            (Some("window"), _) => assert!(late > window, "{case}"),
            (Some("paused" | "overdue" | "edited" | "removed" | "skipped_once"), _) => {}
            _ => panic!("{case}"),
        }
    }
    let most = match policies.catchup() {
        Catchup::None => 0,
        Catchup::Latest | Catchup::Earliest => 1,
        Catchup::All => policies.catchup_max() as usize,
    };
    assert!(
        caught_up.values().all(|times| *times <= most),
        "{caught_up:?} {:?} {case}",
        schedule.definition()
    );
}

/// Return the situations that occur in the rows.
fn situations(rows: &[LaunchRow], runs: &[RunRow]) -> Vec<&'static str> {
    let status = |status| rows.iter().any(|row| row.status == status);
    let reason = |reason| rows.iter().any(|row| row.reason.as_deref() == Some(reason));
    let kind = |kind| rows.iter().any(|row| row.kind == kind);
    let all = [
        ("queued", status(LaunchStatus::Queued)),
        ("retrying", status(LaunchStatus::Waiting)),
        ("succeeded", status(LaunchStatus::Succeeded)),
        ("failed", status(LaunchStatus::Failed)),
        ("cancelled", status(LaunchStatus::Cancelled)),
        ("unknown", status(LaunchStatus::Unknown)),
        ("abandoned", status(LaunchStatus::Abandoned)),
        ("caught up", kind(LaunchKind::Catchup)),
        ("manual", kind(LaunchKind::Manual)),
        ("backfill", kind(LaunchKind::Backfill)),
        ("skipped by an operator", reason("skipped_once")),
        ("overlap", reason("overlap")),
        ("coalesced", reason("coalesced")),
        ("catchup_none", reason("catchup_none")),
        ("catchup_max", reason("catchup_max")),
        ("window", reason("window")),
        ("slots of a pause", reason("paused")),
        ("slots before an edit", reason("edited")),
        ("slots before a removal", reason("removed")),
        (
            "lost runs",
            runs.iter().any(|run| run.status == RunStatus::Lost),
        ),
        ("recovered", rows.iter().any(|row| row.recoveries > 0)),
    ];
    all.iter()
        .filter(|(_, is)| *is)
        .map(|(what, _)| *what)
        .collect()
}

/// The situations that must occur in all sequences together.
pub const EXPECTED: &[&str] = &[
    "queued",
    "retrying",
    "succeeded",
    "failed",
    "cancelled",
    "unknown",
    "abandoned",
    "caught up",
    "manual",
    "backfill",
    "skipped by an operator",
    "overlap",
    "coalesced",
    "catchup_none",
    "catchup_max",
    "window",
    "slots of a pause",
    "slots before an edit",
    "slots before a removal",
    "lost runs",
    "recovered",
    "rollup",
];

/// Returns how many of these runs count as lost. One lost long after it started doesn't, nor do those before it.
fn counted_losses(runs: &[&RunRow]) -> i64 {
    let mut lost: Vec<&&RunRow> = (runs.iter())
        .filter(|run| run.status == RunStatus::Lost)
        .collect();
    lost.sort_by_key(|run| Reverse(run.id));
    let is_young = |run: &&&RunRow| {
        let lost_at = run.finished_at.unwrap_or(run.started_at);
        lost_at.since(run.started_at) < LOSS_COUNTS_WITHIN
    };
    lost.iter().take_while(|run| is_young(run)).count() as i64
}
