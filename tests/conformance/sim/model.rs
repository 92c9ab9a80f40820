//! What must hold of the record, worked out anew from the rows and from what the sequence has asked for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, RunId, ScheduleId};
use campanile_schedule::policy::{Catchup, Delivery, Overlap};
use campanile_store::launches::{self, LaunchRow};
use campanile_store::runs::{self, RunRow};
use campanile_store::schedules::{self, ScheduleState};
use campanile_store::{Decision, LaunchStatus, RunStatus, Tx};
use campanile_tests::Backend;
use uuid::Uuid;

use super::said::Said;
use crate::fixtures::at;

pub const GRACE: Duration = Duration::from_secs(60);
pub const WINDOW: Duration = Duration::from_secs(3_600);
pub const RECOVERIES_MAX: i64 = 3;

/// A schedule as the sequence knows it.
#[derive(Debug)]
pub struct Known {
    pub id: ScheduleId,
    pub name: String,
    pub removed_at: Option<Timestamp>,
    /// Its definitions and since when each holds, one for each change of timing.
    revisions: Vec<(Timestamp, Said)>,
    was_ever_at_most_once: bool,
    was_ever_at_least_once: bool,
    /// The slots that a person skipped.
    pub taken_out: BTreeSet<Timestamp>,
}

#[derive(Default)]
pub struct Model {
    pub schedules: Vec<Known>,
    /// The names of those that are paused.
    paused: BTreeSet<String>,
    cursors: HashMap<ScheduleId, Timestamp>,
    seen: HashSet<LaunchId>,
    /// What was over stays as it was.
    over: HashMap<LaunchId, LaunchRow>,
    runs_over: HashMap<RunId, RunRow>,
}

impl Known {
    pub fn said(&self) -> &Said {
        &self.revisions.last().unwrap().1
    }

    /// The first slot after `after`, if one comes soon.
    pub fn next_slot(&self, after: Timestamp) -> Option<Timestamp> {
        let horizon = after.plus(Duration::from_secs(1_000));
        self.said().slots(after, horizon).next()
    }

    /// Its slots after its creation and up to `until`: each revision's own, in its time.
    fn slots(&self, until: Timestamp) -> BTreeSet<Timestamp> {
        let mut slots = BTreeSet::new();
        for (place, (since, said)) in self.revisions.iter().enumerate() {
            let next = self.revisions.get(place + 1).map(|(since, _)| *since);
            let until = next.map_or(until, |next| next.min(until));
            slots.extend(said.slots(*since, until));
        }
        slots
    }
}

impl Said {
    /// The slots after `after` and up to `until`: whole intervals after the anchor, from the start to the end.
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

    /// The most launches that are active at the same time, and the most on-time launches that are queued.
    fn limits(&self) -> (usize, usize) {
        match self.policies.overlap {
            Overlap::Allow => {
                let max = self.policies.max_concurrent.unwrap() as usize;
                (max, max)
            }
            Overlap::BufferAll => (1, self.policies.max_buffered.unwrap() as usize),
            // Where nothing may wait, one waits for its own fire time.
            _ => (1, 1),
        }
    }
}

pub fn id_literal(backend: Backend, id: Uuid) -> String {
    match backend {
        Backend::Sqlite => format!("x'{}'", id.simple()),
        Backend::Postgres => format!("'{id}'"),
    }
}

/// The launches that are not over.
pub async fn unfinished(tx: &mut Tx) -> Vec<LaunchRow> {
    let mut rows = launches::list(tx, None, i64::MAX).await.unwrap();
    rows.retain(|row| row.finished_at.is_none());
    rows
}

impl Model {
    pub fn living(&self) -> Vec<usize> {
        let living = |place: &usize| self.schedules[*place].removed_at.is_none();
        (0..self.schedules.len()).filter(living).collect()
    }

    pub fn added(&mut self, id: ScheduleId, name: String, said: Said, now: Timestamp) {
        let delivery = said.policies.delivery;
        self.schedules.push(Known {
            id,
            name,
            removed_at: None,
            revisions: vec![(now, said)],
            was_ever_at_most_once: delivery == Delivery::AtMostOnce,
            was_ever_at_least_once: delivery == Delivery::AtLeastOnce,
            taken_out: BTreeSet::new(),
        });
    }

    pub fn edited(&mut self, place: usize, said: Said, now: Timestamp) {
        let known = &mut self.schedules[place];
        let delivery = said.policies.delivery;
        known.was_ever_at_most_once |= delivery == Delivery::AtMostOnce;
        known.was_ever_at_least_once |= delivery == Delivery::AtLeastOnce;
        let before = known.said();
        let same_timing =
            before.interval == said.interval && before.policies.same_timing(&said.policies);
        match same_timing {
            // The slots are the same; only what becomes of them is not.
            true => known.revisions.last_mut().unwrap().1 = said,
            false => known.revisions.push((now, said)),
        }
    }

    /// Whether a launch waits for as long as its schedule is paused.
    pub fn waits_while_paused(&self, row: &LaunchRow) -> bool {
        row.status == LaunchStatus::Queued
            && !row.kind.is_by_hand()
            && self.paused.contains(&row.schedule)
    }

    /// Look whether everything on the record can be; gives what was seen there.
    pub async fn check(&mut self, tx: &mut Tx, now: Timestamp, case: &str) -> Vec<&'static str> {
        let rows = launches::list(tx, None, i64::MAX).await.unwrap();
        let runs = runs::list(tx, None, i64::MAX).await.unwrap();
        let mut of_each: BTreeMap<&str, Vec<&LaunchRow>> = BTreeMap::new();
        for row in &rows {
            of_each.entry(&row.schedule).or_default().push(row);
        }
        self.paused.clear();
        for place in 0..self.schedules.len() {
            let known = &self.schedules[place];
            let state = schedules::state(tx, known.id).await.unwrap().unwrap();
            if !state.enabled {
                self.paused.insert(known.name.clone());
            }
            let rows = of_each.remove(known.name.as_str()).unwrap_or_default();
            self.check_slots(known, &state, &rows, now, case);
            check_overlap(known, &rows, case);
            let new: Vec<&LaunchRow> = rows
                .iter()
                .copied()
                .filter(|row| !self.seen.contains(&row.id))
                .collect();
            check_lateness(known, &new, case);
            let before = self.cursors.insert(state.id, state.cursor_at);
            assert!(
                before <= Some(state.cursor_at),
                "a cursor went back: {case}"
            );
        }
        assert!(of_each.is_empty(), "launches of nobody: {case}");
        self.check_runs(&rows, &runs, case);
        self.check_history(&rows, &runs, case);
        self.seen = rows.iter().map(|row| row.id).collect();
        seen(&rows, &runs)
    }

    /// Every slot is decided once, up to the cursor, and the next one is the next.
    fn check_slots(
        &self,
        known: &Known,
        state: &ScheduleState,
        rows: &[&LaunchRow],
        now: Timestamp,
        case: &str,
    ) {
        let name = &known.name;
        let case = format!("{name} {:?}, {case}", known.said());
        assert!(state.cursor_at <= now, "it looks ahead: {case}");
        // A removal accounts for what had come by then, and leaves the cursor where it was.
        let slots = known.slots(known.removed_at.unwrap_or(state.cursor_at));
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
                let is_out = known.taken_out.contains(&slot);
                assert!(
                    !is_out || row.decision == Decision::Skipped,
                    "{slot} was taken out: {case}"
                );
            }
            let kind = LaunchKind::Schedule;
            assert_eq!(
                row.id,
                LaunchId::of(known.id, row.scheduled_time, kind),
                "{case}"
            );
        }
        // Launches that were skipped later do not count. A removed schedule counts no more.
        let made = rows.iter().filter(|row| !row.kind.is_by_hand());
        let made = made.filter(|row| row.decision != Decision::Skipped).count() as i64;
        let launches = state.history.launches;
        assert!(
            made == launches || known.removed_at.is_some(),
            "{made} made, {launches} counted: {case}"
        );
        // What the rule yields after the last launch that a schedule may have is no slot.
        if known
            .revisions
            .iter()
            .all(|(_, said)| said.policies.max_launches.is_none())
        {
            let missing: Vec<&Timestamp> = slots.difference(&decided).collect();
            assert!(missing.is_empty(), "not decided: {missing:?}: {case}");
        }
        let max = known.said().policies.max_launches;
        let ended = max.is_some_and(|max| launches >= i64::try_from(max).unwrap());
        let next = known.next_slot(state.cursor_at);
        let next = next.filter(|_| state.enabled && state.deleted_at.is_none() && !ended);
        assert_eq!(state.next_slot, next, "{case}");
    }

    /// A launch has one run that is active, succeeded or failed, and one lost run for each recovery.
    fn check_runs(&self, rows: &[LaunchRow], runs: &[RunRow], case: &str) {
        let mut of_each: HashMap<LaunchId, Vec<&RunRow>> = HashMap::new();
        for run in runs {
            of_each.entry(run.launch_id).or_default().push(run);
        }
        for row in rows {
            let runs = of_each.remove(&row.id).unwrap_or_default();
            let case = format!("{row:#?} {runs:#?} {case}");
            let not_lost: Vec<&&RunRow> = runs
                .iter()
                .filter(|run| run.status != RunStatus::Lost)
                .collect();
            assert!(not_lost.len() <= 1, "two runs that count: {case}");
            assert!(row.recoveries <= RECOVERIES_MAX, "{case}");
            let state = not_lost.first().map(|run| run.status);
            let fits = match row.status {
                LaunchStatus::Open | LaunchStatus::Queued | LaunchStatus::Skipped => {
                    state.is_none() && row.run_id.is_none()
                }
                LaunchStatus::Running => state == Some(RunStatus::Running),
                LaunchStatus::Waiting => state == Some(RunStatus::Waiting),
                LaunchStatus::Succeeded => state == Some(RunStatus::Succeeded),
                LaunchStatus::Failed => state == Some(RunStatus::Failed),
                LaunchStatus::Cancelled => state.is_none_or(|state| state == RunStatus::Cancelled),
                LaunchStatus::Unknown => state.is_none() && runs.len() == 1,
                LaunchStatus::Abandoned => state.is_none(),
            };
            assert!(fits, "{case}");
            let known = self
                .schedules
                .iter()
                .find(|known| known.name == row.schedule)
                .unwrap();
            if row.status == LaunchStatus::Unknown {
                assert!(known.was_ever_at_most_once, "{case}");
            }
            if !known.was_ever_at_least_once {
                assert!(runs.len() <= 1, "run twice: {case}");
            }
        }
        assert!(of_each.is_empty(), "runs of nobody: {case}");
    }

    /// A finished row never changes.
    fn check_history(&mut self, rows: &[LaunchRow], runs: &[RunRow], case: &str) {
        for row in rows.iter().filter(|row| row.finished_at.is_some()) {
            let before = self.over.entry(row.id).or_insert_with(|| row.clone());
            assert_eq!(before, row, "history was rewritten: {case}");
        }
        for run in runs.iter().filter(|run| run.finished_at.is_some()) {
            let before = self.runs_over.entry(run.id).or_insert_with(|| run.clone());
            assert_eq!(before, run, "history was rewritten: {case}");
        }
        let kept = |id: &LaunchId| rows.iter().any(|row| row.id == *id);
        assert!(self.over.keys().all(kept), "history was lost: {case}");
    }
}

/// No more launches are active, and no more queued, than the policies allow.
fn check_overlap(known: &Known, rows: &[&LaunchRow], case: &str) {
    let (at_once, waiting) = known.said().limits();
    let goes_on = |row: &&&LaunchRow| {
        use LaunchStatus::{Open, Running, Waiting};
        matches!(row.status, Open | Running | Waiting)
    };
    // A launch that was decided before its fire time overlaps nothing until then.
    let waits = |row: &&&LaunchRow| {
        row.status == LaunchStatus::Queued
            && row.fire_time <= row.claimed_at
            && !matches!(row.kind, LaunchKind::Catchup | LaunchKind::Backfill)
    };
    let going_on: Vec<_> = rows.iter().filter(goes_on).collect();
    assert!(
        going_on.len() <= at_once,
        "{going_on:#?} {:?} {case}",
        known.said()
    );
    // Queued slots of a paused schedule wait behind manual launches.
    for by_hand in [false, true] {
        let queued = rows.iter().filter(waits);
        let queued: Vec<_> = queued
            .filter(|row| row.kind.is_by_hand() == by_hand)
            .collect();
        assert!(
            queued.len() <= waiting,
            "{queued:#?} {:?} {case}",
            known.said()
        );
    }
    for row in rows {
        let reason = row.reason.as_deref();
        if reason == Some("overlap") && row.status == LaunchStatus::Skipped {
            assert!(row.overlaps.is_some(), "{row:#?} {case}");
        }
    }
}

/// What was decided since the last look follows from how late the slot was then.
fn check_lateness(known: &Known, rows: &[&LaunchRow], case: &str) {
    let policies = &known.said().policies;
    let grace = policies.misfire_grace.unwrap_or(GRACE);
    let window = policies.catchup_window.unwrap_or(WINDOW);
    let jitter = policies.jitter.unwrap_or_default();
    let decided = rows.iter().filter(|row| !row.kind.is_by_hand());
    let mut caught_up: BTreeMap<Timestamp, usize> = BTreeMap::new();
    for row in decided {
        let case = format!("{row:#?} {:?} {case}", known.said());
        let now = row.claimed_at;
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
        match (reason, policies.catchup) {
            (None | Some("overlap"), _) => assert!(late <= grace + jitter, "{case}"),
            (Some("catchup_none"), Catchup::None)
            | (Some("coalesced"), Catchup::Latest | Catchup::Earliest)
            | (Some("catchup_max"), Catchup::All) => assert!(late > grace, "{case}"),
            (Some("window"), _) => assert!(late > window, "{case}"),
            (Some("paused" | "overdue" | "edited" | "removed" | "skipped_once"), _) => {}
            _ => panic!("{case}"),
        }
    }
    let most = match policies.catchup {
        Catchup::None => 0,
        Catchup::Latest | Catchup::Earliest => 1,
        Catchup::All => policies.catchup_max() as usize,
    };
    assert!(
        caught_up.values().all(|times| *times <= most),
        "{caught_up:?} {:?} {case}",
        known.said()
    );
}

/// What of all that can be there is there.
fn seen(rows: &[LaunchRow], runs: &[RunRow]) -> Vec<&'static str> {
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
        ("by hand", kind(LaunchKind::Manual)),
        ("filled back", kind(LaunchKind::Backfill)),
        ("skipped once", reason("skipped_once")),
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

/// What must have been seen in the end.
pub const EXPECTED: &[&str] = &[
    "queued",
    "retrying",
    "succeeded",
    "failed",
    "cancelled",
    "unknown",
    "abandoned",
    "caught up",
    "by hand",
    "filled back",
    "skipped once",
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
];
