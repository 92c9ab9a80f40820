//! Between transactions 1 and 2: launches that waited for their turn are let go when it has come.
//!
//! Whose turn it is follows from what is on the record alone, so nothing is forgotten when a host dies between the
//! end of one launch and the beginning of the next.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::schedule_admin;
use super::{Engine, EngineError, plan};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_schedule::policy::{self, Displacements};
use campanile_store::overlap::{self, UnfinishedLaunch};
use campanile_store::{changes, schedules};

impl Engine {
    /// Let those go whose turn it is; gives how many.
    pub async fn release(&self, now: Timestamp) -> Result<usize, EngineError> {
        let with_room = self.queues_with_room(now).await?;
        if with_room.is_empty() {
            return Ok(0);
        }
        let mut tx = self.db.write().await?;
        // Whoever decides about a schedule's launches holds its row; those that another host holds, it looks after.
        let held = schedules::lock_available(&mut tx, &with_room).await?;
        let mut of_each: HashMap<ScheduleId, Vec<UnfinishedLaunch>> = HashMap::new();
        for launch in overlap::unfinished(&mut tx, &held).await? {
            of_each.entry(launch.schedule_id).or_default().push(launch);
        }
        let schedules: Vec<ScheduleId> = of_each.keys().copied().collect();
        let states = schedules::states(&mut tx, &schedules).await?;
        let revisions = states.iter().map(|state| (state.id, state.revision));
        let specs = self.specs.get_all(&mut tx, revisions).await?;
        let mut opened: Vec<LaunchId> = Vec::new();
        let mut displacements: Vec<(Displacements, Duration)> = Vec::new();
        let mut displaced: BTreeSet<ScheduleId> = BTreeSet::new();
        for (state, spec) in states.iter().zip(&specs) {
            let unfinished = of_each.remove(&state.id).unwrap_or_default();
            if !spec.knows_policies {
                continue;
            }
            let active = plan::active(&unfinished, state.enabled, now);
            let released = policy::release(&spec.policies, active);
            opened.extend(released.open);
            if released.displacements != Displacements::default() {
                displacements.push((released.displacements, spec.policies.cancel_grace()));
                displaced.insert(state.id);
            }
        }
        let displacements: Vec<(&Displacements, Duration)> = displacements
            .iter()
            .map(|(displacements, grace)| (displacements, *grace))
            .collect();
        if schedule_admin::apply_displacements(&mut tx, &displacements, now).await? {
            changes::bump(&mut tx).await?;
        }
        self.set_next_slots(&mut tx, &displaced, now).await?;
        overlap::open_queued(&mut tx, self.host, &opened, now).await?;
        tx.commit().await?;
        Ok(opened.len())
    }

    /// The schedules of which something waits although more may go on, or has come to its fire time. Looked up without
    /// holding anybody up: a thousand schedules may have a hundred launches waiting behind one that runs.
    async fn queues_with_room(&self, now: Timestamp) -> Result<Vec<ScheduleId>, EngineError> {
        let mut tx = self.db.read().await?;
        let queues = overlap::queued_schedules(&mut tx, now).await?;
        let ids: Vec<ScheduleId> = queues.iter().map(|queue| queue.id).collect();
        let active = overlap::count_active(&mut tx, &ids).await?;
        let revisions = queues.iter().map(|queue| (queue.id, queue.revision));
        let specs = self.specs.get_all(&mut tx, revisions).await?;
        let mut with_room = Vec::new();
        for (queue, spec) in queues.iter().zip(&specs) {
            let active = active.get(&queue.id).copied().unwrap_or(0);
            if queue.arriving > 0 || active < spec.policies.at_once_max() {
                with_room.push(queue.id);
            }
        }
        Ok(with_room)
    }
}
