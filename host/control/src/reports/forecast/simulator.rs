//! The simulated clock: it goes from one event to the next.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use uuid::Uuid;

use super::launches::{LaunchTable, SimulatedLaunch};
use super::{Forecast, ForecastRequest, Outage, ScheduleSnapshot, SystemSnapshot, Totals};
use crate::admin::schedule_admin::next_slot_after;
use crate::rules::plan::{self, Plan};
use crate::rules::recovery_rules::recovery_action;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId};
use campanile_model::life::{self, Arrow, Life};
use campanile_schedule::policy::{
    self, Active, Displaced, Displacements, GroupName, OverlapState, SlotEvaluator,
};
use campanile_store::LaunchStatus;
use campanile_store::launch::{NewLaunch, OVERLAP, OrphanCause, OrphanedLaunch, UnfinishedLaunch};
use campanile_store::stats::ActiveRun;

/// The one simulated host.
const HOST: HostId = HostId(Uuid::nil());

/// Something to do at a moment. An event that no longer applies is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The end of a launch, if it still runs and is to end then.
    End(LaunchId),
    /// A task of a launch is to be called again.
    Retry(LaunchId),
    /// A schedule may have a slot.
    Slot(usize),
    /// A queued launch of a schedule may be opened.
    Queue(usize),
}

/// The place of a launch among those that wait: the first value is false for a retry, then come the priority, the fire time
/// and the order in which they began to wait.
type Claimable = (bool, Reverse<u32>, Timestamp, u64, LaunchId);

pub(super) struct Simulator<'a> {
    snapshot: &'a SystemSnapshot,
    /// The schedules with their simulated cursors.
    schedules: Vec<ScheduleSnapshot>,
    request: &'a ForecastRequest,
    now: Timestamp,
    events: BinaryHeap<Reverse<(Timestamp, Event)>>,
    launches: LaunchTable,
    /// The launches that wait for capacity: retries first, then by priority, then the earliest.
    claimable: BTreeSet<Claimable>,
    /// The launches that wait for room in their concurrency group.
    held_back: HashMap<GroupName, BTreeSet<Claimable>>,
    /// How many launches of each concurrency group run.
    running_in_group: HashMap<GroupName, usize>,
    /// How many launches have waited for capacity: it orders those with the same fire time.
    opened: u64,
    decided: usize,
    /// The result, without the rows.
    forecast: Forecast,
}

impl SystemSnapshot {
    /// Simulate the system up to the end of `request`.
    pub fn forecast(&self, request: &ForecastRequest) -> Forecast {
        let mut simulator = Simulator {
            snapshot: self,
            schedules: self.schedules.clone(),
            request,
            now: self.now,
            events: BinaryHeap::new(),
            launches: LaunchTable::default(),
            claimable: BTreeSet::new(),
            held_back: HashMap::new(),
            running_in_group: HashMap::new(),
            opened: 0,
            decided: 0,
            forecast: Forecast {
                schedules: vec![Totals::default(); self.schedules.len()],
                ..Forecast::default()
            },
        };
        for (index, schedule) in self.schedules.iter().enumerate() {
            simulator.set_next_slot(index, schedule.next_slot.filter(|_| schedule.enabled));
            for (launch, run) in &schedule.unfinished {
                simulator.add_current(index, launch, run.as_ref());
            }
            simulator.at(self.now, Event::Queue(index));
        }
        simulator.run_events();
        simulator.finish()
    }
}

impl Simulator<'_> {
    /// Add a launch that the database holds already.
    fn add_current(&mut self, schedule: usize, launch: &UnfinishedLaunch, run: Option<&ActiveRun>) {
        self.launches.add(schedule, launch.clone(), None);
        match launch.life.status {
            LaunchStatus::Running => {
                self.run_since(launch.id, run.map_or(self.now, |run| run.started_at));
            }
            LaunchStatus::Waiting => {
                let retry_at = run.and_then(|run| run.retry_at).unwrap_or(self.now);
                self.at(retry_at, Event::Retry(launch.id));
            }
            LaunchStatus::Queued => self.at(launch.fire_time, Event::Queue(schedule)),
            _ => self.make_claimable(launch.id),
        }
    }

    fn run_events(&mut self) {
        let mut outages = merged(&self.request.outages);
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
    fn is_reported(&self) -> bool {
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
                Event::End(id) => self.end_run(id, at),
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
        while self.launches.count(None, LaunchStatus::Running) < self.snapshot.capacity
            && let Some(next) = self.claimable.pop_first()
        {
            match self.full_group(next.4) {
                Some(group) => _ = self.held_back.entry(group).or_default().insert(next),
                None => self.start(next.4),
            }
        }
    }

    /// Returns the concurrency group of a launch.
    fn group(&self, id: LaunchId) -> Option<&GroupName> {
        let schedule = self.launches.unfinished.get(&id)?.schedule;
        self.schedules[schedule].policies.group.as_ref()
    }

    /// Returns the concurrency group of a launch if no more of its launches may run.
    fn full_group(&self, id: LaunchId) -> Option<GroupName> {
        let group = self.group(id)?;
        let max = self.snapshot.groups.get(group.as_str());
        let running = self.running_in_group.get(group).copied().unwrap_or(0);
        (running >= max.copied().unwrap_or(1) as usize).then(|| group.clone())
    }

    /// Count a launch that begins to run in its group.
    fn enter_group(&mut self, id: LaunchId) {
        if let Some(group) = self.group(id).cloned() {
            *self.running_in_group.entry(group).or_default() += 1;
        }
    }

    /// Stop counting a launch that runs in its group. Those that wait for the group may try again.
    fn leave_group(&mut self, id: LaunchId) {
        let launch = self.launches.unfinished.get(&id);
        if launch.is_none_or(|launch| launch.launch.life.status != LaunchStatus::Running) {
            return;
        }
        let Some(group) = self.group(id).cloned() else {
            return;
        };
        if let Some(running) = self.running_in_group.get_mut(&group) {
            *running = running.saturating_sub(1);
        }
        let held_back = self.held_back.remove(&group).unwrap_or_default();
        self.claimable.extend(held_back);
    }

    /// Decide the slots of a schedule that have come, up to the limit of decisions.
    fn decide(&mut self, schedule: usize) {
        while self.decided < self.request.rows_max {
            let of = &self.schedules[schedule];
            if of.next_slot.is_none_or(|slot| slot > self.now) {
                return;
            }
            let beside = if of.policies.has_limit_at_once() {
                OverlapState::new(self.active(schedule))
            } else {
                OverlapState::default()
            };
            let spec = SlotEvaluator {
                schedule: of.due.id,
                rule: &of.rule,
                policies: &of.policies,
                defaults: &self.snapshot.defaults,
            };
            let plan = plan::plan(&of.due, spec, beside, HOST, self.now);
            self.apply(schedule, plan);
        }
    }

    /// Apply a plan, as its transaction does.
    fn apply(&mut self, schedule: usize, plan: Plan) {
        self.decided += plan.launches.len();
        for launch in &plan.launches {
            self.add_decided(schedule, launch);
        }
        let due = &mut self.schedules[schedule].due;
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
        let life = Life::decided(launch.decision, None);
        let is_reported = self.is_reported();
        let row = is_reported.then(|| self.launches.add_row(schedule, launch, life.status));
        if life.status == LaunchStatus::Skipped {
            return;
        }
        let unfinished = UnfinishedLaunch {
            id: launch.id,
            schedule_id: launch.schedule_id,
            kind: launch.kind,
            scheduled_time: launch.scheduled_time,
            life,
            fire_time: launch.fire_time,
            decided_at: self.now,
            overlap: launch.overlap,
            cancel_deadline: None,
        };
        self.launches.add(schedule, unfinished, row);
        match life.status {
            LaunchStatus::Open => self.make_claimable(launch.id),
            _ => self.at(launch.fire_time, Event::Queue(schedule)),
        }
    }

    /// Open the queued launches that the overlap policy admits now.
    fn release(&mut self, schedule: usize) {
        if self.launches.count(Some(schedule), LaunchStatus::Queued) == 0 {
            return;
        }
        let policies = &self.schedules[schedule].policies;
        let released = policy::release(policies, self.active(schedule));
        self.displace(&released.displacements, policies.cancel_grace());
        for id in released.open {
            self.launches.follow(id, Arrow::Release);
            if let Some(launch) = self.launches.unfinished.get_mut(&id) {
                launch.opened_at = self.now;
            }
            self.make_claimable(id);
        }
    }

    fn start(&mut self, id: LaunchId) {
        let (now, is_reported) = (self.now, self.is_reported());
        let Some(simulated) = self.launches.unfinished.get(&id) else {
            return;
        };
        let (schedule, launch) = (simulated.schedule, &simulated.launch);
        let slot = launch.scheduled_time;
        let attempts = launch.life.attempts;
        let lag = if attempts == 0 {
            now.since(launch.fire_time.max(launch.decided_at))
        } else {
            Duration::ZERO
        };
        let fence = attempts + 1;
        self.launches.follow(id, Arrow::Claim { fence });
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
        let Some(launch) = self.launches.unfinished.get(&id) else {
            return;
        };
        let schedule = launch.schedule;
        let deadline = launch.launch.cancel_deadline;
        let estimate = self.schedules[schedule].duration_estimate;
        let ends_at = since.plus(estimate.duration).max(self.now);
        let ends_at = deadline.map_or(ends_at, |deadline| ends_at.min(deadline));
        self.end_at(id, ends_at);
        self.enter_group(id);
        if self.is_reported() {
            self.sample(schedule);
        }
    }

    /// Foresee the end of a launch, instead of an end that was foreseen before.
    fn end_at(&mut self, id: LaunchId, ends_at: Timestamp) {
        if let Some(launch) = self.launches.unfinished.get_mut(&id) {
            launch.ends_at = ends_at;
            self.at(ends_at, Event::End(id));
        }
    }

    /// End a run at `at`, unless another end was foreseen since, or it was recovered.
    fn end_run(&mut self, id: LaunchId, at: Timestamp) {
        let launch = self.launches.unfinished.get(&id);
        let Some(foreseen) = launch.filter(|launch| launch.ends_at == at) else {
            return;
        };
        let Life {
            attempts: fence,
            must_end,
            ..
        } = foreseen.launch.life;
        let (status, reason) = if must_end {
            (LaunchStatus::Cancelled, Some(OVERLAP))
        } else {
            (LaunchStatus::Succeeded, None)
        };
        self.end(id, Arrow::Finish { fence, status }, reason);
    }

    /// Apply displacements. A launch that is asked to end and does not run ends at once.
    fn displace(&mut self, displacements: &Displacements, cancel_grace: Duration) {
        let deadline = self.now.plus(cancel_grace);
        for (displaced, from) in [
            (&displacements.skipped, life::QUEUED),
            (&displacements.cancelled, life::IDLE),
            (&displacements.terminated, life::ACTIVE),
        ] {
            for &Displaced { launch, by } in displaced {
                if let Some(row) = self.launches.row(launch) {
                    row.overlaps = Some(by);
                }
                self.end(launch, Arrow::EndEarly(from), Some(OVERLAP));
            }
        }
        for displaced in &displacements.cancelled {
            self.ask_to_end(displaced.launch, deadline);
        }
    }

    /// Gives a launch that runs until `deadline`, unless it has an earlier one.
    fn ask_to_end(&mut self, id: LaunchId, deadline: Timestamp) {
        if self.launches.follow(id, Arrow::AskToEnd).is_none() {
            return;
        }
        if let Some(launch) = self.launches.unfinished.get_mut(&id) {
            launch.launch.cancel_deadline.get_or_insert(deadline);
            let ends_at = launch.ends_at.min(deadline);
            self.end_at(id, ends_at);
        }
    }

    fn end(&mut self, id: LaunchId, arrow: Arrow, reason: Option<&'static str>) {
        let may_end = |launch: &SimulatedLaunch| launch.launch.life.after(arrow).is_some();
        if !self.launches.unfinished.get(&id).is_some_and(may_end) {
            return;
        }
        self.leave_group(id);
        let Some(ended) = self.launches.end(id, arrow, reason, self.now) else {
            return;
        };
        let (kind, schedule) = (ended.launch.kind, ended.schedule);
        if kind.is_of_slot() && ended.launch.life.status == LaunchStatus::Skipped {
            self.schedules[schedule].due.history.launches -= 1;
        }
        if !kind.is_by_hand() {
            self.make_next_slot(schedule);
        }
        self.at(self.now, Event::Queue(schedule));
    }

    /// Make the next slot of a schedule that has none, if this end allows one.
    fn make_next_slot(&mut self, schedule: usize) {
        let of = &self.schedules[schedule];
        if of.next_slot.is_some() || !of.enabled {
            return;
        }
        let (history, cursor_at) = (&of.due.history, of.due.cursor_at);
        let ended_at = Some(Some(self.now));
        let next = next_slot_after(&of.rule, &of.policies, history, cursor_at, ended_at);
        self.set_next_slot(schedule, next);
    }

    /// Let a launch wait for capacity. No host has any while its package is missing.
    fn make_claimable(&mut self, id: LaunchId) {
        let Some(launch) = self.launches.unfinished.get(&id) else {
            return;
        };
        let of = &self.schedules[launch.schedule];
        if of.due.missing_since.is_some() || of.missing_labels.is_some() {
            return;
        }
        let is_start = launch.launch.life.status != LaunchStatus::Waiting;
        let priority = Reverse(self.schedules[launch.schedule].policies.priority());
        let fire_time = launch.launch.fire_time;
        self.opened += 1;
        self.claimable
            .insert((is_start, priority, fire_time, self.opened, id));
    }

    /// Let an outage pass: recover the launches that it interrupted.
    fn pass(&mut self, outage: Outage) {
        self.now = outage.to;
        // No host owns the retries.
        let held_back = std::mem::take(&mut self.held_back).into_values();
        self.claimable.extend(held_back.flatten());
        self.claimable.retain(|(is_start, ..)| !is_start);
        for id in self.launches.open_or_running() {
            self.recover(id);
        }
    }

    /// Recover an orphaned launch, as the host that returns first does.
    fn recover(&mut self, id: LaunchId) {
        let Some(simulated) = self.launches.unfinished.get(&id) else {
            return;
        };
        let schedule = &self.schedules[simulated.schedule];
        let launch = &simulated.launch;
        let orphaned = OrphanedLaunch {
            launch_id: id,
            life: launch.life,
            schedule_id: launch.schedule_id,
            schedule_revision: schedule.due.revision,
            schedule: schedule.name.clone(),
            scheduled_time: launch.scheduled_time,
            kind: launch.kind,
            claimable_since: simulated.opened_at,
            started_at: None,
            not_before: None,
            host_id: None,
            lease_until: None,
            is_host_alive: false,
            enabled: schedule.enabled,
            deleted_at: None,
            missing_since: schedule.due.missing_since,
            cause: OrphanCause::LeaseExpired,
        };
        let delivery = schedule.policies.delivery();
        let found = recovery_action(&orphaned, delivery, &self.snapshot.recovery, self.now);
        match found.map(|found| found.action.end()) {
            None => {}
            Some(None) => self.run_again(id),
            Some(Some((status, reason))) => self.end(id, Arrow::GiveUp(status), reason),
        }
    }

    fn run_again(&mut self, id: LaunchId) {
        self.leave_group(id);
        self.launches.follow(id, Arrow::Reopen { took_long: false });
        self.forecast.recovered += u64::from(self.is_reported());
        self.make_claimable(id);
    }

    fn active(&self, schedule: usize) -> Vec<Active> {
        let enabled = self.schedules[schedule].enabled;
        self.launches.active(schedule, enabled, self.now)
    }

    fn set_next_slot(&mut self, schedule: usize, next_slot: Option<Timestamp>) {
        self.schedules[schedule].next_slot = next_slot;
        if let Some(slot) = next_slot {
            self.schedules[schedule].due.next_slot = slot;
            self.at(slot, Event::Slot(schedule));
        }
    }

    fn at(&mut self, time: Timestamp, event: Event) {
        self.events.push(Reverse((time, event)));
    }

    /// Count the runs of every schedule at the beginning of the requested span.
    fn sample_all(&mut self) {
        for schedule in 0..self.schedules.len() {
            self.sample(schedule);
        }
    }

    fn sample(&mut self, schedule: usize) {
        let at = self.now.max(self.request.from);
        let running = |schedule| self.launches.count(schedule, LaunchStatus::Running);
        self.forecast.schedules[schedule].running(running(Some(schedule)), at);
        self.forecast.all.running(running(None), at);
    }

    fn finish(self) -> Forecast {
        let mut forecast = self.forecast;
        forecast.rows = self.launches.rows;
        for row in &forecast.rows {
            forecast.schedules[row.schedule].count(row);
            forecast.all.count(row);
        }
        for (totals, schedule) in forecast.schedules.iter_mut().zip(&self.schedules) {
            totals.next = schedule.next_slot;
        }
        let next_slots = self.schedules.iter();
        forecast.all.next = next_slots.filter_map(|schedule| schedule.next_slot).min();
        forecast
    }
}

/// Returns the outages in order, merged where they meet.
pub(super) fn merged(outages: &[Outage]) -> VecDeque<Outage> {
    let mut sorted = outages.to_vec();
    sorted.sort_unstable_by_key(|outage| outage.from);
    let mut merged: VecDeque<Outage> = VecDeque::new();
    for outage in sorted {
        match merged.back_mut() {
            Some(last) if outage.from <= last.to => last.to = last.to.max(outage.to),
            _ => merged.push_back(outage),
        }
    }
    merged
}
