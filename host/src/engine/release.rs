//! Between transactions 1 and 2: launches that waited for their turn are let go when it has come.
//!
//! Whose turn it is follows from what is on the record alone, so nothing is forgotten when a host dies between the
//! end of one launch and the beginning of the next.

use super::{Engine, EngineError, plan};
use crate::clock::Timestamp;
use crate::db::{overlap, schedules};
use crate::ids::LaunchId;
use crate::policy;

impl Engine {
    /// Let those go whose turn it is; gives how many.
    pub async fn release(&self, now: Timestamp) -> Result<usize, EngineError> {
        let mut tx = self.db.read().await?;
        let queues = overlap::queues(&mut tx, now).await?;
        drop(tx);
        if queues.is_empty() {
            return Ok(0);
        }
        let mut tx = self.db.write().await?;
        // Whoever decides about a schedule's launches holds its row; those that another host holds, it looks after.
        let held = schedules::hold(&mut tx, &queues).await?;
        let unfinished = overlap::unfinished(&mut tx, &held).await?;
        let mut released: Vec<LaunchId> = Vec::new();
        for id in held {
            let Some(state) = schedules::state(&mut tx, id).await? else {
                continue;
            };
            let spec = self.specs.get(&mut tx, id, state.revision).await?;
            let of_schedule: Vec<_> = unfinished
                .iter()
                .filter(|launch| launch.schedule_id == id)
                .cloned()
                .collect();
            let active = plan::active(&of_schedule, state.enabled, now);
            released.extend(policy::release(&spec.policies, &active));
        }
        overlap::open(&mut tx, self.host, &released, now).await?;
        tx.commit().await?;
        Ok(released.len())
    }
}
