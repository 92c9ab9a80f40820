//! Transaction 3, the finish: what became of runs goes on the record, if this host still holds them.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;

use super::schedule_admin;
use super::{Engine, EngineError};
use crate::crash;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{RunId, ScheduleId};
use campanile_store::events::{self, EventKind};
use campanile_store::runs::{self, Finish, RunEnd};
use campanile_store::schedules::{self, Pause};
use campanile_store::{LaunchStatus, Tx, changes, launches};

/// Who pauses a schedule that fails and fails.
const PAUSER: &str = "pause_on_failure";

impl Engine {
    /// Record ends of runs, hundreds in one commit; gives how many were still this host's.
    ///
    /// Of a run that was lost meanwhile nothing is applied: its launch belongs to another run now.
    pub async fn finish(&self, ends: &[Finish]) -> Result<usize, EngineError> {
        if ends.is_empty() {
            return Ok(0);
        }
        let mut tx = self.db.write().await?;
        let won = runs::finish(&mut tx, ends).await?;
        let ended = ends.iter().map(|end| end.schedule_id);
        let going_on = self.specs.counting_from_ends(ended);
        for &schedule in &going_on {
            self.set_next_slot(&mut tx, schedule, self.clock.now())
                .await?;
        }
        crash::point("before_finish_commit");
        tx.commit().await?;
        crash::point("after_finish_commit");
        let failed = ends
            .iter()
            .filter(|end| matches!(end.end, RunEnd::Failed { .. }));
        let failed: BTreeSet<ScheduleId> = failed.map(|end| end.schedule_id).collect();
        self.pause_failing(&failed, self.clock.now()).await?;
        if !going_on.is_empty() || self.fills_back.load(Ordering::Relaxed) {
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

    /// Pause those of the schedules that say so after as many failures in a row as they have now.
    ///
    /// Not in the transaction of the finish: what has failed at two hosts at once is counted by whoever holds the
    /// schedule's row second, and nobody who holds that row waits for a run.
    pub(super) async fn pause_failing(
        &self,
        failed: &BTreeSet<ScheduleId>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let mut to_count = Vec::new();
        if !failed.is_empty() {
            let mut tx = self.db.read().await?;
            for &id in failed {
                let Some(state) = schedules::state(&mut tx, id).await? else {
                    continue;
                };
                let spec = self.specs.get(&mut tx, id, state.revision).await?;
                if spec.policies.pause_on_failure.is_some() && state.enabled {
                    to_count.push((id, spec.definition.name.clone()));
                }
            }
        }
        for (id, name) in to_count {
            let mut tx = self.db.write().await?;
            schedules::lock(&mut tx, Some(&name), None).await?;
            self.pause_if_failing(&mut tx, id, now).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Pause a schedule, whose row is held, if it has failed too often.
    async fn pause_if_failing(
        &self,
        tx: &mut Tx,
        id: ScheduleId,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let Some(state) = schedules::state(tx, id).await? else {
            return Ok(());
        };
        let spec = self.specs.get(tx, id, state.revision).await?;
        let Some(most) = spec.policies.pause_on_failure else {
            return Ok(());
        };
        // Those before a person looked are not held against it again.
        let since = state
            .resumed_at
            .max(Some(spec.definition.since))
            .unwrap_or(now);
        let ends = launches::recent_outcomes(tx, id, i64::from(most)).await?;
        let in_a_row = ends.iter().take_while(|(status, claimed_at)| {
            *status != LaunchStatus::Succeeded && *claimed_at >= since
        });
        let in_a_row = u32::try_from(in_a_row.count()).unwrap_or(u32::MAX);
        if !spec.policies.pauses_after(in_a_row) {
            return Ok(());
        }
        let note = format!("{in_a_row} launches in a row have failed");
        let pause = Pause {
            by: PAUSER,
            note: Some(&note),
            until: None,
        };
        if schedules::pause(tx, id, pause, now).await? {
            let name = &spec.definition.name;
            tracing::error!(schedule = %name, "paused: {note}");
            let detail = format!("by {PAUSER}: {note}");
            events::record(tx, now, EventKind::SchedulePaused, name, &detail).await?;
            changes::bump(tx).await?;
        }
        Ok(())
    }

    /// [`schedule_admin::set_next_slot`], by what the schedule says now.
    pub(super) async fn set_next_slot(
        &self,
        tx: &mut Tx,
        id: ScheduleId,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let Some(state) = schedules::state(tx, id).await? else {
            return Ok(());
        };
        let spec = self.specs.get(tx, id, state.revision).await?;
        if let Some(rule) = &spec.rule {
            schedule_admin::set_next_slot(tx, id, rule, &spec.policies, now).await?;
        }
        Ok(())
    }
}
