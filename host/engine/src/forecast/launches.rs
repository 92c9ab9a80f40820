//! The launches of a simulation that are not over, and the rows of its result.

use std::collections::{BTreeSet, HashMap};

use super::Row;
use crate::plan;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_schedule::policy::Active;
use campanile_store::launches::NewLaunch;
use campanile_store::overlap::UnfinishedLaunch;
use campanile_store::{Decision, LaunchStatus};

pub(super) struct SimulatedLaunch {
    pub schedule: usize,
    pub launch: UnfinishedLaunch,
    /// Its row, if it was decided in the requested span.
    pub row: Option<usize>,
    /// Its slot, if the simulation decided it.
    pub scheduled_time: Option<Timestamp>,
    /// When it could have started.
    pub ready_at: Timestamp,
    /// When it was decided, or left the queue: recovery counts its age from this.
    pub opened_at: Timestamp,
    /// How many ends of it were foreseen; only the last one counts.
    pub ends: u32,
    pub ends_at: Timestamp,
    pub has_started: bool,
}

impl SimulatedLaunch {
    /// Return a launch that has not started.
    pub fn new(schedule: usize, launch: UnfinishedLaunch) -> SimulatedLaunch {
        SimulatedLaunch {
            schedule,
            row: None,
            scheduled_time: None,
            ready_at: launch.fire_time.max(launch.claimed_at),
            opened_at: launch.claimed_at,
            ends: 0,
            ends_at: launch.claimed_at,
            has_started: false,
            launch,
        }
    }

    /// Foresee its end; return the number of that end.
    pub fn end_at(&mut self, at: Timestamp) -> u32 {
        self.ends_at = at;
        self.ends += 1;
        self.ends
    }

    fn order(&self) -> Order {
        let launch = &self.launch;
        (launch.claimed_at, launch.fire_time, launch.id)
    }
}

/// The order in which the launches of a schedule were decided.
type Order = (Timestamp, Timestamp, LaunchId);

/// The launches of one schedule that are not over.
#[derive(Default, Clone)]
struct OfSchedule {
    unfinished: BTreeSet<Order>,
    running: usize,
    queued: usize,
}

pub(super) struct LaunchTable {
    launches: HashMap<LaunchId, SimulatedLaunch>,
    schedules: Vec<OfSchedule>,
    running: usize,
    rows: Vec<Row>,
}

impl LaunchTable {
    pub fn new(schedules: usize) -> LaunchTable {
        LaunchTable {
            launches: HashMap::new(),
            schedules: vec![OfSchedule::default(); schedules],
            running: 0,
            rows: Vec::new(),
        }
    }

    /// Add a decision to the result; return its row.
    pub fn add_row(&mut self, schedule: usize, launch: &NewLaunch, status: LaunchStatus) -> usize {
        self.rows.push(Row {
            schedule,
            id: launch.id,
            kind: launch.kind,
            scheduled_time: launch.scheduled_time,
            last_scheduled_time: launch.last_scheduled_time,
            slot_count: launch.slot_count,
            decided_at: launch.claimed_at,
            decision: launch.decision,
            fire_time: launch.fire_time,
            status,
            reason: launch.reason,
            overlaps: launch.overlaps,
            started_at: None,
            finished_at: (status == LaunchStatus::Skipped).then_some(launch.claimed_at),
            recoveries: 0,
        });
        self.rows.len() - 1
    }

    pub fn add(&mut self, launch: SimulatedLaunch) {
        let (id, schedule, status) = (launch.launch.id, launch.schedule, launch.launch.status);
        self.schedules[schedule].unfinished.insert(launch.order());
        self.launches.insert(id, launch);
        self.count(schedule, status, 1);
    }

    pub fn get(&self, id: LaunchId) -> Option<&SimulatedLaunch> {
        self.launches.get(&id)
    }

    pub fn get_mut(&mut self, id: LaunchId) -> Option<&mut SimulatedLaunch> {
        self.launches.get_mut(&id)
    }

    pub fn row(&mut self, id: LaunchId) -> Option<&mut Row> {
        let row = self.launches.get(&id)?.row?;
        self.rows.get_mut(row)
    }

    pub fn set_status(&mut self, id: LaunchId, status: LaunchStatus) {
        let Some(launch) = self.launches.get_mut(&id) else {
            return;
        };
        let schedule = launch.schedule;
        let before = std::mem::replace(&mut launch.launch.status, status);
        self.count(schedule, before, -1);
        self.count(schedule, status, 1);
        if let Some(row) = self.row(id) {
            row.status = status;
        }
    }

    /// Add `change` to the numbers of launches that have `status`.
    fn count(&mut self, schedule: usize, status: LaunchStatus, change: isize) {
        let of_schedule = &mut self.schedules[schedule];
        match status {
            LaunchStatus::Running => {
                self.running = self.running.saturating_add_signed(change);
                of_schedule.running = of_schedule.running.saturating_add_signed(change);
            }
            LaunchStatus::Queued => {
                of_schedule.queued = of_schedule.queued.saturating_add_signed(change);
            }
            _ => {}
        }
    }

    /// End a launch; return it, unless it was over already.
    pub fn end(
        &mut self,
        id: LaunchId,
        status: LaunchStatus,
        reason: Option<&'static str>,
        now: Timestamp,
    ) -> Option<SimulatedLaunch> {
        self.set_status(id, status);
        if let Some(row) = self.row(id) {
            row.finished_at = Some(now);
            row.reason = reason;
            if status == LaunchStatus::Skipped && row.decision == Decision::Launched {
                // It was open, and no host had claimed it.
                row.decision = Decision::Skipped;
            }
        }
        let launch = self.launches.remove(&id)?;
        self.schedules[launch.schedule]
            .unfinished
            .remove(&launch.order());
        Some(launch)
    }

    /// Return the launches of a schedule that count for the overlap policy at `now`.
    pub fn active(&self, schedule: usize, enabled: bool, now: Timestamp) -> Vec<Active> {
        let order = self.schedules[schedule].unfinished.iter();
        let launches = order.filter_map(|(.., id)| self.launches.get(id));
        let unfinished: Vec<_> = launches.map(|launch| launch.launch.clone()).collect();
        plan::active(&unfinished, enabled, now)
    }

    /// Return the launches that run or wait for capacity, by fire time.
    pub fn open_or_running(&self) -> Vec<LaunchId> {
        let all = self.launches.values().map(|launch| &launch.launch);
        let mut found: Vec<(Timestamp, LaunchId)> = all
            .filter(|launch| matches!(launch.status, LaunchStatus::Open | LaunchStatus::Running))
            .map(|launch| (launch.fire_time, launch.id))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    pub fn running(&self) -> usize {
        self.running
    }

    pub fn running_of(&self, schedule: usize) -> usize {
        self.schedules[schedule].running
    }

    pub fn has_queue(&self, schedule: usize) -> bool {
        self.schedules[schedule].queued > 0
    }

    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}
