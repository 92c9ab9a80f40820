//! Transaction 3, the finish: what became of runs goes on the record, if this host still holds them.

use std::collections::HashSet;

use super::schedules as orders;
use super::{Engine, EngineError};
use crate::crash;
use crate::db::runs::{self, Finish};
use crate::db::{Tx, schedules};
use crate::ids::{RunId, ScheduleId};

impl Engine {
    /// Record ends of runs, hundreds in one commit; gives how many were still this host's.
    ///
    /// Of a run that was lost meanwhile nothing is applied: its launch belongs to another run now.
    pub(crate) async fn finish(&self, ends: &[Finish]) -> Result<usize, EngineError> {
        if ends.is_empty() {
            return Ok(0);
        }
        let mut tx = self.db.write().await?;
        let won = runs::finish(&mut tx, ends).await?;
        let ended = ends.iter().map(|end| end.schedule_id);
        let going_on = self.specs.counting_from_ends(ended);
        for &schedule in &going_on {
            self.set_next_slot(&mut tx, schedule).await?;
        }
        crash::point("before_finish_commit");
        tx.commit().await?;
        crash::point("after_finish_commit");
        if !going_on.is_empty() {
            self.wake.schedules();
        }
        if won.len() < ends.len() {
            let won: HashSet<RunId> = won.iter().copied().collect();
            for late in ends.iter().filter(|end| !won.contains(&end.run_id)) {
                tracing::warn!(run = %late.run_id, launch = %late.launch_id, "this end of the run is not applied: it was recorded already, or the run had been lost meanwhile");
            }
        }
        Ok(won.len())
    }

    /// Make the next slot of a schedule that counts from ends, after one of its launches may have come to an end.
    pub(super) async fn set_next_slot(
        &self,
        tx: &mut Tx,
        id: ScheduleId,
    ) -> Result<(), EngineError> {
        let state = schedules::state(tx, id).await?;
        let Some(state) = state.filter(|state| state.next_slot.is_none()) else {
            return Ok(());
        };
        let spec = self.specs.get(tx, id, state.revision).await?;
        let Some(rule) = &spec.rule else {
            return Ok(());
        };
        let next = orders::next_slot(tx, id, rule, state.cursor_at).await?;
        if next.is_some() {
            // One that is paused, removed or decided meanwhile is left as it is.
            schedules::set_next(tx, id, state.cursor_at, next, self.clock.now()).await?;
        }
        Ok(())
    }
}
