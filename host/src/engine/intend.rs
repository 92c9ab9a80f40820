//! Transaction 1, the intent: decisions and cursor go on the record together, before anything happens.

use std::collections::HashSet;

use super::plan;
use super::{Engine, EngineError};
use crate::clock::Timestamp;
use crate::crash;
use crate::db::launches::{self, NewLaunch};
use crate::db::schedules::{self, Advance};
use crate::ids::ScheduleId;

/// Schedules decided in one transaction at most.
const DUE_BATCH_MAX: i64 = 512;
/// Slots decided for one schedule in one transaction at most; the rest follows in the next.
const SLOTS_MAX: usize = 1_000;

/// What one transaction decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Intended {
    /// Rows put on the record, launched and skipped.
    pub decisions: usize,
    /// Whether more slots have come than one transaction decides.
    pub more: bool,
}

impl Engine {
    /// Decide the slots that have come, for a batch of schedules.
    ///
    /// ```text
    /// read due ── plan (pure) ── cursor moves by compare-and-set ── launch rows ── commit
    ///                                                                               ▲
    ///        a crash before here changes nothing; after it, recovery sees all ──────┘
    /// ```
    pub async fn intend(&self, now: Timestamp) -> Result<Intended, EngineError> {
        let mut tx = self.db.write().await?;
        let due = schedules::due(&mut tx, now, DUE_BATCH_MAX).await?;
        if due.is_empty() {
            return Ok(Intended::default());
        }
        let mut plans = Vec::with_capacity(due.len());
        for schedule in &due {
            let spec = self
                .specs
                .get(&mut tx, schedule.id, schedule.revision)
                .await?;
            plans.push(match &spec.rule {
                Some(rule) => plan::plan(
                    schedule,
                    rule,
                    &self.settings.late,
                    self.host,
                    now,
                    SLOTS_MAX,
                ),
                // Better silent than at a wrong time; the audit starts it again once its rule can be read.
                None => plan::stand_still(schedule),
            });
        }
        let moves: Vec<Advance> = plans.iter().map(|plan| plan.advance.clone()).collect();
        let won: HashSet<ScheduleId> = schedules::advance(&mut tx, &moves)
            .await?
            .into_iter()
            .collect();
        let decisions: Vec<NewLaunch> = plans
            .into_iter()
            .filter(|plan| won.contains(&plan.advance.id))
            .flat_map(|plan| plan.launches)
            .collect();
        launches::insert(&mut tx, &decisions).await?;
        crash::point("before_intend_commit");
        tx.commit().await?;
        crash::point("after_intend_commit");
        Ok(Intended {
            decisions: decisions.len(),
            more: due.len() as i64 == DUE_BATCH_MAX
                || moves
                    .iter()
                    .any(|step| step.next_slot.is_some_and(|next| next <= now)),
        })
    }
}
