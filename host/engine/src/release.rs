//! Between transactions 1 and 2: launches that waited for their turn are let go when it has come.
//!
//! Whose turn it is follows from what is on the record alone, so nothing is forgotten when a host dies between the
//! end of one launch and the beginning of the next.

use std::collections::HashMap;

use super::schedule_admin;
use super::{Engine, EngineError, plan};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_schedule::policy;
use campanile_store::overlap::{self, QueuedSchedule, UnfinishedLaunch};
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
        let mut opened: Vec<LaunchId> = Vec::new();
        let mut tell = false;
        for (id, unfinished) in of_each {
            let Some(state) = schedules::state(&mut tx, id).await? else {
                continue;
            };
            let spec = self.specs.get(&mut tx, id, state.revision).await?;
            if spec.knows_policies {
                let active = plan::active(&unfinished, state.enabled, now);
                let released = policy::release(&spec.policies, active);
                opened.extend(released.open);
                let grace = spec.policies.cancel_grace();
                let made = schedule_admin::apply_displacements(
                    &mut tx,
                    id,
                    &released.displacements,
                    grace,
                    now,
                )
                .await?;
                tell |= made.must_notify_hosts;
                if made.may_have_next_slot {
                    self.set_next_slot(&mut tx, id, now).await?;
                }
            }
        }
        overlap::open_queued(&mut tx, self.host, &opened, now).await?;
        if tell {
            changes::bump(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(opened.len())
    }

    /// The schedules of which something waits although more may go on, or has come to its fire time. Looked up without
    /// holding anybody up: a thousand schedules may have a hundred launches waiting behind one that runs.
    async fn queues_with_room(&self, now: Timestamp) -> Result<Vec<ScheduleId>, EngineError> {
        let mut tx = self.db.read().await?;
        let queues = overlap::queued_schedules(&mut tx, now).await?;
        let ids: Vec<ScheduleId> = queues.iter().map(|queue| queue.id).collect();
        let mut going_on: HashMap<ScheduleId, usize> = HashMap::new();
        for id in overlap::going_on(&mut tx, &ids).await? {
            *going_on.entry(id).or_default() += 1;
        }
        let mut with_room = Vec::new();
        for QueuedSchedule {
            id,
            revision,
            arriving,
        } in queues
        {
            let spec = self.specs.get(&mut tx, id, revision).await?;
            let going_on = going_on.get(&id).copied().unwrap_or(0);
            if arriving > 0 || going_on < spec.policies.at_once_max() {
                with_room.push(id);
            }
        }
        Ok(with_room)
    }
}
