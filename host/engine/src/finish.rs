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
use campanile_store::schedules::{self, NextSlot, Pause};
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
        self.set_next_slots(&mut tx, &going_on, self.clock.now())
            .await?;
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
            let failed: Vec<ScheduleId> = failed.iter().copied().collect();
            let states = schedules::states(&mut tx, &failed).await?;
            let revisions = states.iter().map(|state| (state.id, state.revision));
            let specs = self.specs.get_all(&mut tx, revisions).await?;
            for (state, spec) in states.iter().zip(specs) {
                if spec.policies.pause_on_failure.is_some() && state.enabled {
                    to_count.push((state.id, spec.definition.name.clone()));
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

    /// Set the next slots of schedules that have none, by their current definitions.
    pub(super) async fn set_next_slots(
        &self,
        tx: &mut Tx,
        ids: &BTreeSet<ScheduleId>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let ids: Vec<ScheduleId> = ids.iter().copied().collect();
        let mut states = schedules::states(tx, &ids).await?;
        states.retain(|state| state.next_slot.is_none());
        let revisions = states.iter().map(|state| (state.id, state.revision));
        let specs = self.specs.get_all(tx, revisions).await?;
        let ids: Vec<ScheduleId> = states.iter().map(|state| state.id).collect();
        let finished = launches::newest_finished_at(tx, &ids).await?;
        let slots = states.iter().zip(&specs).filter_map(|(state, spec)| {
            let (launches, cursor_at) = (state.history.launches, state.cursor_at);
            let newest = finished.get(&state.id).copied();
            let rule = spec.rule.as_ref()?;
            let next_slot =
                schedule_admin::next_slot_after(rule, &spec.policies, launches, cursor_at, newest);
            // A schedule that was paused, removed or decided meanwhile keeps its state.
            next_slot.is_some().then_some(NextSlot {
                id: state.id,
                cursor_at,
                next_slot,
                now,
            })
        });
        let slots: Vec<NextSlot> = slots.collect();
        schedules::set_next(tx, &slots).await?;
        Ok(())
    }
}
