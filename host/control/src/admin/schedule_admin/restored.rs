//! After a restore: skip the slots and end the launches that may have run since the copy was made.

use super::{Result, cancel_backfill, drop_past_slots, next_slot};
use crate::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_store::schedules::{self, CursorMove, Schedule};
use campanile_store::{Tx, backfills, launch};

/// The reason of slots and launches that are not launched again after a restore.
pub const RESTORED: &str = "restored";

/// The numbers of schedules, launches and backfills that [`skip_missed`] changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct SkippedMissed {
    /// Schedules with slots that are recorded as skipped.
    pub schedules: usize,
    /// Launches that had not ended: abandoned, or skipped when they were queued.
    pub launches: u64,
    /// Backfills that are cancelled.
    pub backfills: usize,
}

/// End all unfinished launches and skip all undecided slots up to `now`, so that a host launches none of them.
///
/// Slots up to `now` are recorded as skipped, launches without an end as abandoned, or skipped if they were queued, each
/// with the reason `restored`. Backfills are cancelled. Paused schedules stay paused, and skip their slots when they are
/// resumed.
pub async fn skip_missed(tx: &mut Tx, now: Timestamp) -> Result<SkippedMissed> {
    let message = "the database was restored from a copy that was made before this launch ended";
    let abandoned = launch::abandon_all(tx, RESTORED, message, now).await?;
    let queued = launch::skip_all_queued(tx, RESTORED, now).await?;
    let mut done = SkippedMissed {
        launches: abandoned + queued,
        ..SkippedMissed::default()
    };
    for backfill in backfills::running(tx).await? {
        let detail = format!("{}, as the database was restored", backfill.id);
        cancel_backfill(tx, backfill.id, &backfill.schedule, &detail, now).await?;
        done.backfills += 1;
    }
    for schedule in schedules::all(tx).await? {
        if schedule.state.enabled && skip_slots(tx, &schedule, now).await? {
            done.schedules += 1;
        }
    }
    Ok(done)
}

/// Record the undecided slots of a schedule up to `now` as skipped. Return whether there were any.
async fn skip_slots(tx: &mut Tx, schedule: &Schedule, now: Timestamp) -> Result<bool> {
    let Schedule { state, definition } = schedule;
    // A rule that this version cannot read has no slots here.
    let Ok((rule, policies)) = definition::parse(definition) else {
        return Ok(false);
    };
    let last = drop_past_slots(tx, schedule, RESTORED, now).await?;
    let next_slot = next_slot(tx, state, &rule, &policies, last).await?;
    let step = CursorMove {
        id: state.id,
        revision: state.revision,
        from: state.cursor_at,
        to: last,
        next_slot,
        launches: 0,
        caught_up: None,
    };
    schedules::advance(tx, &[step]).await?;
    Ok(last > state.cursor_at)
}
