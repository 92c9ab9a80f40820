//! Transaction 1, the intent: decisions and cursor go on the record together, before anything happens.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::plan::{self, EffectiveSpec, Plan};
use super::schedule_admin;
use super::spec::Spec;
use super::{Engine, EngineError};
use crate::crash;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_schedule::policy::{Displacements, OverlapState};
use campanile_store::launches::{self, NewLaunch};
use campanile_store::overlap::{self, UnfinishedLaunch};
use campanile_store::schedules::{self, CursorMove, DueSchedule};
use campanile_store::{Tx, changes};

/// Schedules decided in one transaction at most.
const DUE_BATCH_MAX: i64 = 512;
/// Slots decided for one schedule in one transaction at most; the rest follows in the next.
pub(super) const SLOTS_MAX: usize = 1_000;

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
        let resumed = schedule_admin::end_pauses(&mut tx, now).await?;
        let due = schedules::due(&mut tx, now, DUE_BATCH_MAX).await?;
        if due.is_empty() {
            if resumed > 0 {
                tx.commit().await?;
            }
            return Ok(Intended {
                decisions: 0,
                more: resumed > 0,
            });
        }
        let revisions = due.iter().map(|due| (due.id, due.revision));
        let specs = self.specs.get_all(&mut tx, revisions).await?;
        let mut beside = self.beside(&mut tx, &due, &specs, now).await?;
        let plans = due.iter().zip(&specs).map(|(due, spec)| match &spec.rule {
            Some(rule) => plan::plan(
                due,
                EffectiveSpec {
                    rule,
                    policies: &spec.policies,
                    defaults: &self.settings.late,
                },
                beside.remove(&due.id).unwrap_or_default(),
                self.host,
                now,
                SLOTS_MAX,
            ),
            // Better silent than at a wrong time; the audit starts it again once its rule can be read.
            None => plan::leave_undecided(due),
        });
        let mut plans: Vec<Plan> = plans.collect();
        let moves: Vec<CursorMove> = plans.iter().map(|plan| plan.advance.clone()).collect();
        let won: HashSet<ScheduleId> = schedules::advance(&mut tx, &moves)
            .await?
            .into_iter()
            .collect();
        plans.retain(|plan| won.contains(&plan.advance.id));
        let decided = plans.iter_mut();
        let decisions: Vec<NewLaunch> = decided
            .flat_map(|plan| plan.launches.split_off(0))
            .collect();
        launches::insert(&mut tx, &decisions).await?;
        let displacements: Vec<&Plan> = plans
            .iter()
            .filter(|plan| plan.displacements != Displacements::default())
            .collect();
        let displaced: Vec<(&Displacements, Duration)> = displacements
            .iter()
            .map(|plan| (&plan.displacements, plan.cancel_grace))
            .collect();
        if schedule_admin::apply_displacements(&mut tx, &displaced, now).await? {
            changes::bump(&mut tx).await?;
        }
        let displacements: BTreeSet<ScheduleId> =
            displacements.iter().map(|plan| plan.advance.id).collect();
        self.set_next_slots(&mut tx, &displacements, now).await?;
        crash::point("before_intend_commit");
        tx.commit().await?;
        crash::point("after_intend_commit");
        Ok(Intended {
            decisions: decisions.len(),
            more: resumed > 0
                || due.len() as i64 == DUE_BATCH_MAX
                || moves
                    .iter()
                    .any(|step| step.next_slot.is_some_and(|next| next <= now)),
        })
    }

    /// What goes on of the schedules for which that matters.
    async fn beside(
        &self,
        tx: &mut Tx,
        due: &[DueSchedule],
        specs: &[Arc<Spec>],
        now: Timestamp,
    ) -> Result<HashMap<ScheduleId, OverlapState>, EngineError> {
        let matters = due.iter().zip(specs);
        let matters = matters.filter(|(_, spec)| spec.policies.has_limit_at_once());
        let ids: Vec<ScheduleId> = matters.map(|(due, _)| due.id).collect();
        let mut of_each: HashMap<ScheduleId, Vec<UnfinishedLaunch>> = HashMap::new();
        for launch in overlap::unfinished(tx, &ids).await? {
            of_each.entry(launch.schedule_id).or_default().push(launch);
        }
        let beside = of_each
            .into_iter()
            .map(|(id, launches)| (id, OverlapState::new(plan::active(&launches, true, now))));
        Ok(beside.collect())
    }
}
