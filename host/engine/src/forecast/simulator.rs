//! The simulated clock: from one moment at which something is to be done to the next.

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
use crate::plan::{self, Plan};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId};
use campanile_schedule::policy::{self, Active, Displaced, Displacements, OverlapState};
use campanile_store::launches::NewLaunch;
use campanile_store::overlap::{REASON, UnfinishedLaunch};
use campanile_store::schedules::DueSchedule;
use campanile_store::{Decision, LaunchStatus};

/// The host that decides and runs everything.
const HOST: HostId = HostId(Uuid::nil());

/// Something to be done at a moment. What has been overtaken meanwhile is passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The run of a launch is over, if it is still this one of its runs.
    End(LaunchId, u32),
    /// A task of a launch is to be called again.
    Retry(LaunchId),
    /// A schedule may have a slot.
    Slot(usize),
    /// A schedule may have a launch whose turn it is.
    Turn(usize),
}

/// Why a launch waits for a place, the first of these before the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Retry,
    Start,
}

/// A schedule as it moves.
struct State {
    due: DueSchedule,
    next_slot: Option<Timestamp>,
}

pub(super) struct Simulator<'a> {
    pub(super) snapshot: &'a SystemSnapshot,
    pub(super) question: &'a ForecastRequest,
    pub(super) now: Timestamp,
    agenda: BinaryHeap<Reverse<(Timestamp, Event)>>,
    states: Vec<State>,
    pub(super) ledger: LaunchTable,
    /// Launches for the next free place: retries first, then the earliest.
    open: BTreeSet<(Entry, Timestamp, u64, LaunchId)>,
    opened: u64,
    decided: usize,
    /// What is told, except for the rows.
    pub(super) forecast: Forecast,
}

/// What `question` asks of `snapshot`.
pub(super) fn run(snapshot: &SystemSnapshot, question: &ForecastRequest) -> Forecast {
    let mut simulator = Simulator::new(snapshot, question);
    simulator.go();
    simulator.told()
}

impl<'a> Simulator<'a> {
    fn new(snapshot: &'a SystemSnapshot, question: &'a ForecastRequest) -> Simulator<'a> {
        let forecast = Forecast {
            rows: Vec::new(),
            schedules: vec![Totals::default(); snapshot.schedules.len()],
            all: Totals::default(),
            recovered: 0,
            cut_at: None,
        };
        let mut simulator = Simulator {
            snapshot,
            question,
            now: snapshot.now,
            agenda: BinaryHeap::new(),
            states: Vec::with_capacity(snapshot.schedules.len()),
            ledger: LaunchTable::new(snapshot.schedules.len()),
            open: BTreeSet::new(),
            opened: 0,
            decided: 0,
            forecast,
        };
        for (schedule, scheduled) in snapshot.schedules.iter().enumerate() {
            simulator.set_up(schedule, scheduled);
        }
        simulator
    }

    fn set_up(&mut self, schedule: usize, scheduled: &ScheduleSnapshot) {
        self.states.push(State {
            due: scheduled.due.clone(),
            next_slot: None,
        });
        self.wait_for(schedule, scheduled.next_slot.filter(|_| scheduled.enabled));
        for unfinished in &scheduled.unfinished {
            self.take_over(schedule, unfinished);
        }
        self.at(self.now, Event::Turn(schedule));
    }

    /// Begin with a launch that is on the record already.
    fn take_over(&mut self, schedule: usize, unfinished: &CurrentLaunch) {
        let launch = &unfinished.launch;
        let id = launch.id;
        let started_at = unfinished.started_at;
        self.ledger.add(SimulatedLaunch {
            schedule,
            launch: launch.clone(),
            row: None,
            scheduled_time: None,
            ready_at: launch.fire_time.max(launch.claimed_at),
            opened_at: launch.claimed_at,
            ends: 0,
            ends_at: self.now,
            has_started: started_at.is_some(),
        });
        match launch.status {
            LaunchStatus::Running => self.runs_since(id, started_at.unwrap_or(self.now)),
            LaunchStatus::Waiting => {
                let retry_at = unfinished.retry_at.unwrap_or(self.now);
                self.at(retry_at, Event::Retry(id));
            }
            LaunchStatus::Queued => self.at(launch.fire_time, Event::Turn(schedule)),
            _ => self.opens(id),
        }
    }

    /// Go from event to event until the end.
    fn go(&mut self) {
        let mut outages = outage::merged(&self.question.outages);
        let mut is_told = self.now >= self.question.from;
        while let Some(next) = self.next(outages.front()) {
            if next >= self.question.from && !is_told {
                is_told = true;
                self.look();
            }
            self.now = next;
            if let Some(outage) = outages.pop_front_if(|outage| outage.from <= next) {
                if outage.to >= self.question.to {
                    // Nobody comes back in time to decide anything.
                    return;
                }
                self.pass(outage);
            }
            self.turn();
            if self.decided >= self.question.rows_max {
                self.forecast.cut_at = Some(self.now);
                return;
            }
        }
        if !is_told {
            self.look();
        }
    }

    /// When there is next something to do, if there is before the end.
    fn next(&self, outage: Option<&Outage>) -> Option<Timestamp> {
        let event = self.agenda.peek().map(|Reverse((at, _))| *at);
        let next = event
            .into_iter()
            .chain(outage.map(|outage| outage.from))
            .min()?;
        Some(next.max(self.now)).filter(|&next| next < self.question.to)
    }

    /// Everything that is to be done now, in the order in which a host does it.
    fn turn(&mut self) {
        let mut slots = BTreeSet::new();
        let mut turns = BTreeSet::new();
        while let Some(event) = self.pop() {
            match event {
                Event::End(id, end) => self.end_of_run(id, end),
                Event::Retry(id) => self.opens(id),
                Event::Slot(schedule) => {
                    slots.insert(schedule);
                }
                Event::Turn(schedule) => {
                    turns.insert(schedule);
                }
            }
        }
        for &schedule in &slots {
            self.decide(schedule);
        }
        for &schedule in slots.union(&turns) {
            self.release(schedule);
        }
        while self.ledger.running() < self.snapshot.capacity
            && let Some((.., id)) = self.open.pop_first()
        {
            self.begin(id);
        }
    }

    /// Decide the slots of a schedule that have come, as long as there are not too many decisions.
    fn decide(&mut self, schedule: usize) {
        let scheduled = &self.snapshot.schedules[schedule];
        while let Some(next_slot) = self.states[schedule]
            .next_slot
            .filter(|&slot| slot <= self.now && self.decided < self.question.rows_max)
        {
            let beside = match scheduled.policies.has_limit_at_once() {
                true => OverlapState::new(self.active(schedule)),
                false => OverlapState::default(),
            };
            let due = DueSchedule {
                next_slot,
                ..self.states[schedule].due.clone()
            };
            let spec = scheduled.effective_spec(&self.snapshot.defaults);
            let plan = plan::plan(&due, spec, beside, HOST, self.now, SLOTS_MAX);
            self.record(schedule, plan);
        }
    }

    /// Put a plan on the record, as its transaction does.
    fn record(&mut self, schedule: usize, plan: Plan) {
        self.decided += plan.launches.len();
        for launch in &plan.launches {
            self.insert(schedule, launch);
        }
        let state = &mut self.states[schedule];
        state.due.cursor_at = plan.advance.to;
        let history = &mut state.due.history;
        history.launches += plan.advance.launches;
        if let Some((decided_at, fire_time)) = plan.advance.caught_up {
            history.last_catchup_at = Some(decided_at);
            history.last_catchup_fire_time = Some(fire_time);
        }
        self.wait_for(schedule, plan.advance.next_slot);
        self.apply_displacements(&plan.displacements, plan.cancel_grace);
    }

    fn insert(&mut self, schedule: usize, launch: &NewLaunch) {
        let status = match launch.decision {
            Decision::Launched => LaunchStatus::Open,
            Decision::Queued => LaunchStatus::Queued,
            Decision::Skipped => LaunchStatus::Skipped,
        };
        let is_told = self.now >= self.question.from;
        let row = is_told.then(|| self.ledger.tell(schedule, launch, status));
        if status == LaunchStatus::Skipped {
            return;
        }
        self.ledger.add(SimulatedLaunch {
            schedule,
            launch: UnfinishedLaunch {
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
            },
            row,
            scheduled_time: Some(launch.scheduled_time),
            ready_at: launch.fire_time.max(self.now),
            opened_at: self.now,
            ends: 0,
            ends_at: self.now,
            has_started: false,
        });
        match status {
            LaunchStatus::Open => self.opens(launch.id),
            _ => self.at(launch.fire_time, Event::Turn(schedule)),
        }
    }

    /// Let those go whose turn it is.
    fn release(&mut self, schedule: usize) {
        if !self.ledger.has_queue(schedule) {
            return;
        }
        let active = self.active(schedule);
        let policies = &self.snapshot.schedules[schedule].policies;
        let grace = policies.cancel_grace();
        let released = policy::release(policies, active);
        self.apply_displacements(&released.displacements, grace);
        for id in released.open {
            self.ledger.set_status(id, LaunchStatus::Open);
            if let Some(simulated) = self.ledger.get_mut(id) {
                simulated.opened_at = self.now;
            }
            self.opens(id);
        }
    }

    /// A place is free for it.
    fn begin(&mut self, id: LaunchId) {
        let Some(simulated) = self.ledger.get_mut(id) else {
            return;
        };
        let (schedule, now) = (simulated.schedule, self.now);
        let lag = now.since(simulated.ready_at);
        let is_first = !simulated.has_started;
        simulated.has_started = true;
        let slot = simulated.scheduled_time;
        if let Some(row) = self.ledger.row(id) {
            row.started_at.get_or_insert(now);
        }
        if now >= self.question.from {
            for totals in [
                &mut self.forecast.schedules[schedule],
                &mut self.forecast.all,
            ] {
                totals.start(now, if is_first { lag } else { Duration::ZERO }, slot);
            }
        }
        self.runs_since(id, now);
    }

    /// It holds a place, and will for as long as launches of its schedule take.
    fn runs_since(&mut self, id: LaunchId, since: Timestamp) {
        let Some(simulated) = self.ledger.get_mut(id) else {
            return;
        };
        let estimate = self.snapshot.schedules[simulated.schedule].duration_estimate;
        let ends_at = since.plus(estimate.duration).max(self.now);
        simulated.ends_at = simulated
            .launch
            .cancel_deadline
            .map_or(ends_at, |at| ends_at.min(at));
        simulated.ends += 1;
        let (ends_at, end) = (simulated.ends_at, simulated.ends);
        let schedule = simulated.schedule;
        self.ledger.set_status(id, LaunchStatus::Running);
        self.at(ends_at, Event::End(id, end));
        if self.now >= self.question.from {
            self.look_at(schedule);
        }
    }

    /// A run is over, if it was not over before.
    fn end_of_run(&mut self, id: LaunchId, end: u32) {
        let simulated = self.ledger.get(id);
        let Some(simulated) = simulated.filter(|simulated| simulated.ends == end) else {
            return;
        };
        match simulated.launch.cancel_deadline {
            Some(_) => self.over(id, LaunchStatus::Cancelled, Some(REASON)),
            None => self.over(id, LaunchStatus::Succeeded, None),
        }
    }

    /// Ask a launch to end; one that nobody carries out at the moment ends at once.
    fn ask_to_end(&mut self, displaced: &Displaced, until: Timestamp) {
        let Some(simulated) = self.ledger.get_mut(displaced.launch) else {
            return;
        };
        if simulated.launch.status != LaunchStatus::Running {
            let status = self.cut_short(displaced);
            return self.end_for(displaced, status);
        }
        simulated.launch.cancel_deadline.get_or_insert(until);
        simulated.ends += 1;
        simulated.ends_at = simulated.ends_at.min(until);
        let (ends_at, end) = (simulated.ends_at, simulated.ends);
        if let Some(row) = self.ledger.row(displaced.launch) {
            row.overlaps = Some(displaced.by);
        }
        self.at(ends_at, Event::End(displaced.launch, end));
    }

    /// Launches make way for others.
    fn apply_displacements(&mut self, displacements: &Displacements, cancel_grace: Duration) {
        for displaced in &displacements.skipped {
            self.end_for(displaced, LaunchStatus::Skipped);
        }
        let until = self.now.plus(cancel_grace);
        for displaced in &displacements.cancelled {
            self.ask_to_end(displaced, until);
        }
        for displaced in &displacements.terminated {
            let status = self.cut_short(displaced);
            self.end_for(displaced, status);
        }
    }

    /// What a launch is that ends before its time: one that nobody had taken is skipped after all.
    fn cut_short(&self, displaced: &Displaced) -> LaunchStatus {
        match self.ledger.get(displaced.launch) {
            Some(simulated) if !simulated.has_started => LaunchStatus::Skipped,
            _ => LaunchStatus::Cancelled,
        }
    }

    /// A launch ends for another.
    fn end_for(&mut self, displaced: &Displaced, status: LaunchStatus) {
        if let Some(row) = self.ledger.row(displaced.launch) {
            row.overlaps = Some(displaced.by);
        }
        self.over(displaced.launch, status, Some(REASON));
    }

    /// A launch has come to its end.
    pub(super) fn over(
        &mut self,
        id: LaunchId,
        status: LaunchStatus,
        reason: Option<&'static str>,
    ) {
        let Some(simulated) = self.ledger.end(id, status, reason, self.now) else {
            return;
        };
        let kind = simulated.launch.kind;
        if kind.is_of_slot() && status == LaunchStatus::Skipped {
            self.states[simulated.schedule].due.history.launches -= 1;
        }
        if !kind.is_by_hand() {
            self.go_on(simulated.schedule);
        }
        self.at(self.now, Event::Turn(simulated.schedule));
    }

    /// Make the next slot of a schedule that has none, if there is one after this end.
    fn go_on(&mut self, schedule: usize) {
        let scheduled = &self.snapshot.schedules[schedule];
        let state = &self.states[schedule];
        if state.next_slot.is_some() || !scheduled.enabled {
            return;
        }
        let (cursor, policies) = (state.due.cursor_at, &scheduled.policies);
        let made = u64::try_from(state.due.history.launches).unwrap_or_default();
        let next = match scheduled.rule.delay_after_completion() {
            Some(delay) => {
                let soonest = Timestamp::from_micros(cursor.micros() + 1);
                policies.allowed_from(self.now.plus(delay).max(soonest), made)
            }
            None => policies.next_slot(&scheduled.rule, cursor, made),
        };
        self.wait_for(schedule, next);
    }

    /// Let it wait for a place, which nobody has for it while its package is missing.
    pub(super) fn opens(&mut self, id: LaunchId) {
        let Some(simulated) = self.ledger.get(id) else {
            return;
        };
        let due = &self.snapshot.schedules[simulated.schedule].due;
        if due.missing_since.is_some() {
            return;
        }
        let entry = match simulated.launch.status {
            LaunchStatus::Waiting => Entry::Retry,
            _ => Entry::Start,
        };
        self.opened += 1;
        self.open
            .insert((entry, simulated.launch.fire_time, self.opened, id));
    }

    /// Let none wait for a place any more but retries: those belong to no host.
    pub(super) fn keep_retries(&mut self) {
        self.open.retain(|(entry, ..)| *entry == Entry::Retry);
    }

    /// What of a schedule is not over.
    fn active(&self, schedule: usize) -> Vec<Active> {
        let enabled = self.snapshot.schedules[schedule].enabled;
        self.ledger.active(schedule, enabled, self.now)
    }

    fn wait_for(&mut self, schedule: usize, next_slot: Option<Timestamp>) {
        self.states[schedule].next_slot = next_slot;
        if let Some(slot) = next_slot {
            self.at(slot, Event::Slot(schedule));
        }
    }

    fn at(&mut self, time: Timestamp, event: Event) {
        self.agenda.push(Reverse((time, event)));
    }

    /// The next event whose time has come.
    fn pop(&mut self) -> Option<Event> {
        let Reverse((at, _)) = self.agenda.peek()?;
        if *at > self.now {
            return None;
        }
        self.agenda.pop().map(|Reverse((_, event))| event)
    }

    /// Look how many runs there are at the beginning of what is told.
    fn look(&mut self) {
        for schedule in 0..self.states.len() {
            self.look_at(schedule);
        }
    }

    fn look_at(&mut self, schedule: usize) {
        let at = self.now.max(self.question.from);
        let running = self.ledger.running_of(schedule);
        self.forecast.schedules[schedule].running(running, at);
        self.forecast.all.running(self.ledger.running(), at);
    }

    fn told(self) -> Forecast {
        let mut forecast = self.forecast;
        forecast.rows = self.ledger.into_rows();
        for row in &forecast.rows {
            forecast.schedules[row.schedule].count(row);
            forecast.all.count(row);
        }
        for (totals, state) in forecast.schedules.iter_mut().zip(&self.states) {
            totals.next = state.next_slot;
        }
        forecast.all.next = self.states.iter().filter_map(|state| state.next_slot).min();
        forecast
    }
}
