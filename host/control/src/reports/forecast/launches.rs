//! The launches of a simulation that are not over, and the rows of its result.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::Row;
use crate::rules::plan;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_model::life::{Arrow, Life};
use campanile_schedule::policy::Active;
use campanile_store::launch::{NewLaunch, UnfinishedLaunch};
use campanile_store::{Decision, LaunchStatus};

pub(super) struct SimulatedLaunch {
    pub schedule: usize,
    pub launch: UnfinishedLaunch,
    /// Its row, if it was decided in the requested span.
    pub row: Option<usize>,
    /// When it was decided, or left the queue: recovery counts its age from this.
    pub opened_at: Timestamp,
    /// The end that was foreseen last, while it runs.
    pub ends_at: Timestamp,
}

/// The order in which the launches of a schedule were decided.
type Order = (Timestamp, Timestamp, LaunchId);

fn order(launch: &UnfinishedLaunch) -> Order {
    (launch.decided_at, launch.fire_time, launch.id)
}

#[derive(Default)]
pub(super) struct LaunchTable {
    pub unfinished: HashMap<LaunchId, SimulatedLaunch>,
    /// The launches of each schedule.
    by_schedule: HashMap<usize, BTreeSet<Order>>,
    /// How many launches of one schedule, or of all, have a status.
    counts: HashMap<(Option<usize>, LaunchStatus), usize>,
    pub rows: Vec<Row>,
}

impl LaunchTable {
    /// Add a decision to the result; return its row.
    pub fn add_row(&mut self, schedule: usize, launch: &NewLaunch, status: LaunchStatus) -> usize {
        self.rows.push(Row {
            schedule,
            id: launch.id,
            kind: launch.kind,
            scheduled_time: launch.scheduled_time,
            last_scheduled_time: launch.last_scheduled_time,
            slot_count: launch.slot_count,
            decided_at: launch.decided_at,
            decision: launch.decision,
            fire_time: launch.fire_time,
            status,
            reason: launch.reason.map(Cow::Borrowed),
            overlaps: launch.overlaps,
            started_at: None,
            finished_at: (status == LaunchStatus::Skipped).then_some(launch.decided_at),
            recoveries: 0,
        });
        self.rows.len() - 1
    }

    /// Add a launch that has not started.
    pub fn add(&mut self, schedule: usize, launch: UnfinishedLaunch, row: Option<usize>) {
        let of_schedule = self.by_schedule.entry(schedule).or_default();
        of_schedule.insert(order(&launch));
        self.change_count(schedule, launch.life.status, 1);
        let simulated = SimulatedLaunch {
            schedule,
            row,
            opened_at: launch.decided_at,
            ends_at: launch.decided_at,
            launch,
        };
        self.unfinished.insert(simulated.launch.id, simulated);
    }

    pub fn row(&mut self, id: LaunchId) -> Option<&mut Row> {
        let row = self.unfinished.get(&id)?.row?;
        self.rows.get_mut(row)
    }

    /// Lets something happen to a launch, returning its life then. `None` if its life rules that out.
    pub fn follow(&mut self, id: LaunchId, arrow: Arrow) -> Option<Life> {
        let launch = self.unfinished.get_mut(&id)?;
        let (schedule, before) = (launch.schedule, launch.launch.life);
        let life = before.after(arrow)?;
        launch.launch.life = life;
        self.change_count(schedule, before.status, -1);
        self.change_count(schedule, life.status, 1);
        if let Some(row) = self.row(id) {
            row.status = life.status;
            row.recoveries = life.recoveries;
        }
        Some(life)
    }

    fn change_count(&mut self, schedule: usize, status: LaunchStatus, change: isize) {
        for schedule in [Some(schedule), None] {
            let count = self.counts.entry((schedule, status)).or_default();
            *count = count.saturating_add_signed(change);
        }
    }

    /// Returns how many launches of a schedule, or of all, have a status.
    pub fn count(&self, schedule: Option<usize>, status: LaunchStatus) -> usize {
        let count = self.counts.get(&(schedule, status));
        count.copied().unwrap_or(0)
    }

    /// Ends a launch by `arrow`, returning it unless its life rules that out.
    pub fn end(
        &mut self,
        id: LaunchId,
        arrow: Arrow,
        reason: Option<&'static str>,
        now: Timestamp,
    ) -> Option<SimulatedLaunch> {
        let status = self.follow(id, arrow)?.status;
        if let Some(row) = self.row(id) {
            row.finished_at = Some(now);
            row.reason = reason.map(Cow::Borrowed);
            if status == LaunchStatus::Skipped && row.decision == Decision::Launched {
                // It was open, and no host had claimed it.
                row.decision = Decision::Skipped;
            }
        }
        let ended = self.unfinished.remove(&id)?;
        let of_schedule = self.by_schedule.entry(ended.schedule).or_default();
        of_schedule.remove(&order(&ended.launch));
        self.change_count(ended.schedule, status, -1);
        Some(ended)
    }

    /// Returns the launches of a schedule that count for the overlap policy at `now`.
    pub fn active(&self, schedule: usize, enabled: bool, now: Timestamp) -> Vec<Active> {
        let order = self.by_schedule.get(&schedule).into_iter().flatten();
        let launches = order.filter_map(|(.., id)| self.unfinished.get(id));
        let unfinished: Vec<_> = launches.map(|launch| launch.launch.clone()).collect();
        plan::active(&unfinished, enabled, now)
    }

    /// Returns the launches that run or wait for capacity, by fire time.
    pub fn open_or_running(&self) -> Vec<LaunchId> {
        let all = self.unfinished.values().map(|launch| &launch.launch);
        let found: BTreeSet<(Timestamp, LaunchId)> = all
            .filter(|launch| {
                matches!(
                    launch.life.status,
                    LaunchStatus::Open | LaunchStatus::Running
                )
            })
            .map(|launch| (launch.fire_time, launch.id))
            .collect();
        found.into_iter().map(|(_, id)| id).collect()
    }
}
