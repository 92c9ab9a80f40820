//! Transaction 3, the finish: what became of runs goes on the record, if this host still holds them.

use std::collections::HashSet;

use super::{Engine, EngineError};
use crate::crash;
use crate::db::runs::{self, Finish};
use crate::ids::RunId;

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
        crash::point("before_finish_commit");
        tx.commit().await?;
        crash::point("after_finish_commit");
        if won.len() < ends.len() {
            let won: HashSet<RunId> = won.iter().copied().collect();
            for late in ends.iter().filter(|end| !won.contains(&end.run_id)) {
                tracing::warn!(run = %late.run_id, launch = %late.launch_id, "this end of the run is not applied: it was recorded already, or the run had been lost meanwhile");
            }
        }
        Ok(won.len())
    }
}
