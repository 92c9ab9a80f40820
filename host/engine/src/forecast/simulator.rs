//! The simulated clock: it goes from one event to the next.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use uuid::Uuid;

use super::launches::{LaunchTable, SimulatedLaunch};
use super::{
    CurrentLaunch, Forecast, ForecastRequest, Outage, ScheduleSnapshot, SystemSnapshot, Totals,
    outage,
};
use crate::decide::SLOTS_MAX;
use crate::plan::{self, Plan, slot_after_end};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId};
use campanile_schedule::policy::{self, Active, Displaced, Displacements, OverlapState};
use campanile_store::launches::NewLaunch;
use campanile_store::overlap::{REASON, UnfinishedLaunch};
use campanile_store::schedules::DueSchedule;
use campanile_store::{Decision, LaunchStatus};

/// The one simulated host.
const HOST: HostId = HostId(Uuid::nil());

/// Something to do at a moment. An event that no longer applies is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The end of a launch, if it is still the foreseen one.
    End(LaunchId, u32),
    /// A task of a launch is to be called again.
    Retry(LaunchId),
    /// A schedule may have a slot.
    Slot(usize),
    /// A queued launch of a schedule may be opened.
    Queue(usize),
}

/// Why a launch waits for capacity. Retries come before starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Waiting {
    Retry,
    Start,
}

struct Cursor {
    due: DueSchedule,
    next_slot: Option<Timestamp>,
}

pub(super) struct Simulator<'a> {
    pub(super) snapshot: &'a SystemSnapshot,
    request: &'a ForecastRequest,
    pub(super) now: Timestamp,
    events: BinaryHeap<Reverse<(Timestamp, Event)>>,
    cursors: Vec<Cursor>,
    pub(super) launches: LaunchTable,
    /// The launches that wait for capacity: retries first, then the earliest.
    claimable: BTreeSet<(Waiting, Timestamp, u64, LaunchId)>,
    /// How many launches have waited for capacity: it orders those with the same fire time.
    opened: u64,
    decided: usize,
    /// The result, without the rows.
    pub(super) forecast: Forecast,
}

/// Simulate `snapshot` up to the end of `request`.
pub(super) fn run(snapshot: &SystemSnapshot, request: &ForecastRequest) -> Forecast {
    let mut simulator = Simulator {
        snapshot,
        request,
        now: snapshot.now,
        events: BinaryHeap::new(),
        cursors: Vec::with_capacity(snapshot.schedules.len()),
        launches: LaunchTable::new(snapshot.schedules.len()),
        claimable: BTreeSet::new(),
        opened: 0,
        decided: 0,
        forecast: Forecast {
            rows: Vec::new(),
            schedules: vec![Totals::default(); snapshot.schedules.len()],
            all: Totals::default(),
            recovered: 0,
            cut_at: None,
        },
    };
    for (index, schedule) in snapshot.schedules.iter().enumerate() {
        simulator.add_schedule(index, schedule);
    }
    simulator.run_events();
    simulator.finish()
}

impl Simulator<'_> {
    fn add_schedule(&mut self, index: usize, schedule: &ScheduleSnapshot) {
        self.cursors.push(Cursor {
            due: schedule.due.clone(),
            next_slot: None,
        });
        self.set_next_slot(index, schedule.next_slot.filter(|_| schedule.enabled));
        for current in &schedule.unfinished {
            self.add_current(index, current);
        }
        self.at(self.now, Event::Queue(index));
    }

    /// Add a launch that the database holds already.
    fn add_current(&mut self, schedule: usize, current: &CurrentLaunch) {
        let launch = &current.launch;
        self.launches.add(SimulatedLaunch {
            has_started: current.started_at.is_some(),
            ..SimulatedLaunch::new(schedule, launch.clone())
        });
        match launch.status {
            LaunchStatus::Running => {
                self.run_since(launch.id, current.started_at.unwrap_or(self.now));
            }
            LaunchStatus::Waiting => {
                let retry_at = current.retry_at.unwrap_or(self.now);
                self.at(retry_at, Event::Retry(launch.id));
            }
            LaunchStatus::Queued => self.at(launch.fire_time, Event::Queue(schedule)),
            _ => self.make_claimable(launch.id),
        }
    }

    fn run_events(&mut self) {
        let mut outages = outage::merged(&self.request.outages);
        let mut is_reporting = self.is_reported();
        while let Some(next) = self.next_time(outages.front()) {
            if next >= self.request.from && !is_reporting {
                is_reporting = true;
                self.sample_all();
            }
            self.now = next;
            if let Some(outage) = outages.pop_front_if(|outage| outage.from <= next) {
                if outage.to >= self.request.to {
                    // No host returns before the end of the forecast.
                    return;
                }
                self.pass(outage);
            }
            self.tick();
            if self.decided >= self.request.rows_max {
                self.forecast.cut_at = Some(self.now);
                return;
            }
        }
        if !is_reporting {
            self.sample_all();
        }
    }

    fn next_time(&self, outage: Option<&Outage>) -> Option<Timestamp> {
        let event = self.events.peek().map(|Reverse((at, _))| *at);
        let outage = outage.map(|outage| outage.from);
        let next = event.into_iter().chain(outage).min()?.max(self.now);
        Some(next).filter(|&next| next < self.request.to)
    }

    /// Whether what happens now belongs to the requested span.
    pub(super) fn is_reported(&self) -> bool {
        self.now >= self.request.from
    }

    /// Do everything that is due now, in the order in which a host does it.
    fn tick(&mut self) {
        let mut slots = BTreeSet::new();
        let mut queues = BTreeSet::new();
        while let Some(&Reverse((at, event))) = self.events.peek()
            && at <= self.now
        {
            self.events.pop();
            match event {
                Event::End(id, end) => self.end_run(id, end),
                Event::Retry(id) => self.make_claimable(id),
                Event::Slot(schedule) => _ = slots.insert(schedule),
                Event::Queue(schedule) => _ = queues.insert(schedule),
            }
        }
        for &schedule in &slots {
            self.decide(schedule);
        }
        for &schedule in slots.union(&queues) {
            self.release(schedule);
        }
        while self.launches.running() < self.snapshot.capacity
            && let Some((.., id)) = self.claimable.pop_first()
        {
            self.start(id);
        }
    }

    /// Decide the slots of a schedule that have come, up to the limit of decisions.
    fn decide(&mut self, schedule: usize) {
        let of = &self.snapshot.schedules[schedule];
        while let Some(next_slot) = self.cursors[schedule]
            .next_slot
            .filter(|&slot| slot <= self.now && self.decided < self.request.rows_max)
        {
            let beside = match of.policies.has_limit_at_once() {
                true => OverlapState::new(self.active(schedule)),
                false => OverlapState::default(),
            };
            let due = DueSchedule {
                next_slot,
                ..self.cursors[schedule].due.clone()
            };
            let spec = of.effective_spec(&self.snapshot.defaults);
            let plan = plan::plan(&due, spec, beside, HOST, self.now, SLOTS_MAX);
            self.apply(schedule, plan);
        }
    }

    /// Apply a plan, as its transaction does.
    fn apply(&mut self, schedule: usize, plan: Plan) {
        self.decided += plan.launches.len();
        for launch in &plan.launches {
            self.add_decided(schedule, launch);
        }
        let due = &mut self.cursors[schedule].due;
        due.cursor_at = plan.advance.to;
        due.history.launches += plan.advance.launches;
        if let Some((decided_at, fire_time)) = plan.advance.caught_up {
            due.history.last_catchup_at = Some(decided_at);
            due.history.last_catchup_fire_time = Some(fire_time);
        }
        self.set_next_slot(schedule, plan.advance.next_slot);
        self.displace(&plan.displacements, plan.cancel_grace);
    }

    fn add_decided(&mut self, schedule: usize, launch: &NewLaunch) {
        let status = match launch.decision {
            Decision::Launched => LaunchStatus::Open,
            Decision::Queued => LaunchStatus::Queued,
            Decision::Skipped => LaunchStatus::Skipped,
        };
        let row = self
            .is_reported()
            .then(|| self.launches.add_row(schedule, launch, status));
        if status == LaunchStatus::Skipped {
            return;
        }
        let unfinished = UnfinishedLaunch {
            id: launch.id,
            schedule_id: launch.schedule_id,
            kind: launch.kind,
            scheduled_time: launch.scheduled_time,
            status,
            fire_time: launch.fire_time,
            claimed_at: self.now,
            recoveries: 0,
            overlap: launch.overlap,
            cancel_deadline: None,
        };
        self.launches.add(SimulatedLaunch {
            row,
            scheduled_time: Some(launch.scheduled_time),
            ..SimulatedLaunch::new(schedule, unfinished)
        });
        match status {
            LaunchStatus::Open => self.make_claimable(launch.id),
            _ => self.at(launch.fire_time, Event::Queue(schedule)),
        }
    }

    /// Open the queued launches that the overlap policy admits now.
    fn release(&mut self, schedule: usize) {
        if !self.launches.has_queue(schedule) {
            return;
        }
        let policies = &self.snapshot.schedules[schedule].policies;
        let released = policy::release(policies, self.active(schedule));
        self.displace(&released.displacements, policies.cancel_grace());
        for id in released.open {
            self.launches.set_status(id, LaunchStatus::Open);
            if let Some(launch) = self.launches.get_mut(id) {
                launch.opened_at = self.now;
            }
            self.make_claimable(id);
        }
    }

    fn start(&mut self, id: LaunchId) {
        let (now, is_reported) = (self.now, self.is_reported());
        let Some(launch) = self.launches.get_mut(id) else {
            return;
        };
        let is_first = !std::mem::replace(&mut launch.has_started, true);
        let lag = match is_first {
            true => now.since(launch.ready_at),
            false => Duration::ZERO,
        };
        let (schedule, slot) = (launch.schedule, launch.scheduled_time);
        if let Some(row) = self.launches.row(id) {
            row.started_at.get_or_insert(now);
        }
        if is_reported {
            self.forecast.schedules[schedule].start(now, lag, slot);
            self.forecast.all.start(now, lag, slot);
        }
        self.run_since(id, now);
    }

    /// Run a launch that began at `since`, for as long as launches of its schedule take.
    fn run_since(&mut self, id: LaunchId, since: Timestamp) {
        let Some(launch) = self.launches.get_mut(id) else {
            return;
        };
        let schedule = launch.schedule;
        let estimate = self.snapshot.schedules[schedule].duration_estimate;
        let ends_at = since.plus(estimate.duration).max(self.now);
        let deadline = launch.launch.cancel_deadline;
        let event = launch.end_at(deadline.map_or(ends_at, |deadline| ends_at.min(deadline)));
        let ends_at = launch.ends_at;
        self.launches.set_status(id, LaunchStatus::Running);
        self.at(ends_at, Event::End(id, event));
        if self.is_reported() {
            self.sample(schedule);
        }
    }

    /// End a run, unless another end was foreseen since.
    fn end_run(&mut self, id: LaunchId, end: u32) {
        let launch = self.launches.get(id).filter(|launch| launch.ends == end);
        match launch.map(|launch| launch.launch.cancel_deadline) {
            None => {}
            Some(Some(_)) => self.end(id, LaunchStatus::Cancelled, Some(REASON)),
            Some(None) => self.end(id, LaunchStatus::Succeeded, None),
        }
    }

    /// Apply displacements. A launch that is asked to end and does not run ends at once.
    fn displace(&mut self, displacements: &Displacements, cancel_grace: Duration) {
        for displaced in &displacements.skipped {
            self.end_displaced(displaced, LaunchStatus::Skipped);
        }
        let deadline = self.now.plus(cancel_grace);
        for displaced in &displacements.cancelled {
            self.cancel(displaced, deadline);
        }
        for displaced in &displacements.terminated {
            self.cut_short(displaced);
        }
    }

    fn cancel(&mut self, displaced: &Displaced, deadline: Timestamp) {
        let Some(launch) = self.launches.get_mut(displaced.launch) else {
            return;
        };
        if launch.launch.status != LaunchStatus::Running {
            return self.cut_short(displaced);
        }
        launch.launch.cancel_deadline.get_or_insert(deadline);
        let event = launch.end_at(launch.ends_at.min(deadline));
        let ends_at = launch.ends_at;
        if let Some(row) = self.launches.row(displaced.launch) {
            row.overlaps = Some(displaced.by);
        }
        self.at(ends_at, Event::End(displaced.launch, event));
    }

    /// End a displaced launch now: one that no host claimed is skipped.
    fn cut_short(&mut self, displaced: &Displaced) {
        let launch = self.launches.get(displaced.launch);
        let status = match launch.is_some_and(|launch| !launch.has_started) {
            true => LaunchStatus::Skipped,
            false => LaunchStatus::Cancelled,
        };
        self.end_displaced(displaced, status);
    }

    fn end_displaced(&mut self, displaced: &Displaced, status: LaunchStatus) {
        if let Some(row) = self.launches.row(displaced.launch) {
            row.overlaps = Some(displaced.by);
        }
        self.end(displaced.launch, status, Some(REASON));
    }

    pub(super) fn end(&mut self, id: LaunchId, status: LaunchStatus, reason: Option<&'static str>) {
        let Some(ended) = self.launches.end(id, status, reason, self.now) else {
            return;
        };
        let (kind, schedule) = (ended.launch.kind, ended.schedule);
        if kind.is_of_slot() && status == LaunchStatus::Skipped {
            self.cursors[schedule].due.history.launches -= 1;
        }
        if !kind.is_by_hand() {
            self.make_next_slot(schedule);
        }
        self.at(self.now, Event::Queue(schedule));
    }

    /// Make the next slot of a schedule that has none, if this end allows one.
    fn make_next_slot(&mut self, schedule: usize) {
        let of = &self.snapshot.schedules[schedule];
        let Cursor { due, next_slot } = &self.cursors[schedule];
        if next_slot.is_some() || !of.enabled {
            return;
        }
        let (rule, policies, history) = (&of.rule, &of.policies, &due.history);
        let next = match rule.delay_after_completion() {
            Some(delay) => slot_after_end(delay, policies, history, due.cursor_at, self.now),
            None => policies.next_slot(rule, due.cursor_at, history.launches_made()),
        };
        self.set_next_slot(schedule, next);
    }

    /// Let a launch wait for capacity. No host has any while its package is missing.
    pub(super) fn make_claimable(&mut self, id: LaunchId) {
        let Some(launch) = self.launches.get(id) else {
            return;
        };
        let due = &self.snapshot.schedules[launch.schedule].due;
        if due.missing_since.is_some() {
            return;
        }
        let waiting = match launch.launch.status {
            LaunchStatus::Waiting => Waiting::Retry,
            _ => Waiting::Start,
        };
        let fire_time = launch.launch.fire_time;
        self.opened += 1;
        self.claimable.insert((waiting, fire_time, self.opened, id));
    }

    /// Keep only the retries among the launches that wait for capacity: no host owns those.
    pub(super) fn keep_retries(&mut self) {
        self.claimable
            .retain(|(waiting, ..)| *waiting == Waiting::Retry);
    }

    fn active(&self, schedule: usize) -> Vec<Active> {
        let enabled = self.snapshot.schedules[schedule].enabled;
        self.launches.active(schedule, enabled, self.now)
    }

    fn set_next_slot(&mut self, schedule: usize, next_slot: Option<Timestamp>) {
        self.cursors[schedule].next_slot = next_slot;
        if let Some(slot) = next_slot {
            self.at(slot, Event::Slot(schedule));
        }
    }

    fn at(&mut self, time: Timestamp, event: Event) {
        self.events.push(Reverse((time, event)));
    }

    /// Count the runs of every schedule at the beginning of the requested span.
    fn sample_all(&mut self) {
        for schedule in 0..self.cursors.len() {
            self.sample(schedule);
        }
    }

    fn sample(&mut self, schedule: usize) {
        let at = self.now.max(self.request.from);
        let running = self.launches.running_of(schedule);
        self.forecast.schedules[schedule].running(running, at);
        self.forecast.all.running(self.launches.running(), at);
    }

    fn finish(self) -> Forecast {
        let mut forecast = self.forecast;
        forecast.rows = self.launches.into_rows();
        for row in &forecast.rows {
            forecast.schedules[row.schedule].count(row);
            forecast.all.count(row);
        }
        for (totals, cursor) in forecast.schedules.iter_mut().zip(&self.cursors) {
            totals.next = cursor.next_slot;
        }
        forecast.all.next = self
            .cursors
            .iter()
            .filter_map(|cursor| cursor.next_slot)
            .min();
        forecast
    }
}
