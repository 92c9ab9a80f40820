//! The launches of a forecast that are not over, and the rows that are told.

use std::collections::{BTreeSet, HashMap};

use super::Row;
use crate::plan;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_schedule::policy::Active;
use campanile_store::launches::NewLaunch;
use campanile_store::overlap::UnfinishedLaunch;
use campanile_store::{Decision, LaunchStatus};

/// A launch that is not over.
pub(super) struct SimulatedLaunch {
    pub schedule: usize,
    pub launch: UnfinishedLaunch,
    /// Its row, if that is told.
    pub row: Option<usize>,
    pub scheduled_time: Option<Timestamp>,
    /// From when on it could have begun.
    pub ready_at: Timestamp,
    /// When it was decided, or its turn came: its age counts from this.
    pub opened_at: Timestamp,
    /// How many ends of it were foreseen; only the last one counts.
    pub ends: u32,
    pub ends_at: Timestamp,
    pub has_started: bool,
}

/// The order in which launches of a schedule were decided.
type Order = (Timestamp, Timestamp, LaunchId);

/// What of one schedule is not over.
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

    /// Tell of a decision; gives its row.
    pub fn tell(&mut self, schedule: usize, launch: &NewLaunch, status: LaunchStatus) -> usize {
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

    pub fn add(&mut self, simulated: SimulatedLaunch) {
        let of_schedule = &mut self.schedules[simulated.schedule];
        of_schedule.unfinished.insert(simulated.order());
        let status = simulated.launch.status;
        of_schedule.queued += usize::from(status == LaunchStatus::Queued);
        of_schedule.running += usize::from(status == LaunchStatus::Running);
        self.running += usize::from(status == LaunchStatus::Running);
        self.launches.insert(simulated.launch.id, simulated);
    }

    pub fn get(&self, id: LaunchId) -> Option<&SimulatedLaunch> {
        self.launches.get(&id)
    }

    pub fn get_mut(&mut self, id: LaunchId) -> Option<&mut SimulatedLaunch> {
        self.launches.get_mut(&id)
    }

    /// The row of a launch that is not over, if it is told.
    pub fn row(&mut self, id: LaunchId) -> Option<&mut Row> {
        let row = self.launches.get(&id)?.row?;
        self.rows.get_mut(row)
    }

    pub fn set_status(&mut self, id: LaunchId, status: LaunchStatus) {
        let Some(simulated) = self.launches.get_mut(&id) else {
            return;
        };
        let of_schedule = &mut self.schedules[simulated.schedule];
        match std::mem::replace(&mut simulated.launch.status, status) {
            LaunchStatus::Running => {
                self.running -= 1;
                of_schedule.running -= 1;
            }
            LaunchStatus::Queued => of_schedule.queued -= 1,
            _ => {}
        }
        if status == LaunchStatus::Running {
            self.running += 1;
            of_schedule.running += 1;
        }
        if let Some(row) = self.row(id) {
            row.status = status;
        }
    }

    /// End a launch; gives it, unless it was over already.
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
                // It was let go, but nobody had taken it.
                row.decision = Decision::Skipped;
            }
        }
        let simulated = self.launches.remove(&id)?;
        let of_schedule = &mut self.schedules[simulated.schedule];
        of_schedule.unfinished.remove(&simulated.order());
        Some(simulated)
    }

    /// What of a schedule is not over at `now`.
    pub fn active(&self, schedule: usize, enabled: bool, now: Timestamp) -> Vec<Active> {
        let order = self.schedules[schedule].unfinished.iter();
        let launches = order.filter_map(|(.., id)| self.launches.get(id));
        let launches: Vec<UnfinishedLaunch> =
            launches.map(|simulated| simulated.launch.clone()).collect();
        plan::active(&launches, enabled, now)
    }

    /// The launches that run, or would if there were a place, by fire time.
    pub fn open_or_running(&self) -> Vec<LaunchId> {
        let is_meant = |status| matches!(status, LaunchStatus::Open | LaunchStatus::Running);
        let launches = self.launches.values();
        let launches = launches.filter(|simulated| is_meant(simulated.launch.status));
        let mut orders: Vec<(Timestamp, LaunchId)> = launches
            .map(|simulated| (simulated.launch.fire_time, simulated.launch.id))
            .collect();
        orders.sort_unstable();
        orders.into_iter().map(|(_, id)| id).collect()
    }

    pub fn running(&self) -> usize {
        self.running
    }

    pub fn running_of(&self, schedule: usize) -> usize {
        self.schedules[schedule].running
    }

    /// Whether a launch of a schedule waits for its turn.
    pub fn has_queue(&self, schedule: usize) -> bool {
        self.schedules[schedule].queued > 0
    }

    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

impl SimulatedLaunch {
    fn order(&self) -> Order {
        (
            self.launch.claimed_at,
            self.launch.fire_time,
            self.launch.id,
        )
    }
}
