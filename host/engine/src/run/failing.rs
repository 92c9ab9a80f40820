//! `pause_on_failure`: a schedule that keeps failing is paused.

use std::collections::BTreeSet;

use crate::ctx::Ctx;
use crate::error::Result;
use crate::tell::log_spans;
use campanile_control::admin::schedule_admin::pause_text;
use campanile_control::lock::lock;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::text::counted;
use campanile_store::events::EventKind;
use campanile_store::schedules::{self, Pause};
use campanile_store::{LaunchStatus, Tx, changes, launch};

/// The author of such a pause, as it is recorded.
const PAUSER: &str = "pause_on_failure";

/// Pauses the schedules among `failed` failing too often in a row.
///
/// The failures themselves are already committed, so an error here must not look like theirs. It is reported, and the
/// schedules are counted again by the next call: after the next failure, or by the next recovery.
///
/// This is not part of the finish's transaction. When two hosts finish failed runs at once, the second to lock the
/// schedule's row counts both; and no run waits for that row.
pub(crate) async fn pause_failing(ctx: &Ctx, failed: BTreeSet<ScheduleId>, now: Timestamp) {
    lock(&ctx.uncounted).extend(failed);
    let failed = std::mem::take(&mut *lock(&ctx.uncounted));
    let counted = count_and_pause(ctx, &failed, now).await;
    ctx.trouble
        .note("pausing schedules that keep failing", &counted);
    if counted.is_err() {
        lock(&ctx.uncounted).extend(failed);
    }
}

async fn count_and_pause(ctx: &Ctx, failed: &BTreeSet<ScheduleId>, now: Timestamp) -> Result {
    if failed.is_empty() {
        return Ok(());
    }
    let mut tx = ctx.db.read().await?;
    let failed: Vec<ScheduleId> = failed.iter().copied().collect();
    let states = schedules::states(&mut tx, &failed).await?;
    let revisions = states.iter().map(|state| (state.id, state.revision));
    let specs = ctx.specs.get_all(&mut tx, revisions).await?;
    drop(tx);
    for (state, spec) in states.iter().zip(specs) {
        if spec.policies.pause_on_failure.is_some() && state.enabled {
            let mut tx = ctx.db.write().await?;
            schedules::lock_named(&mut tx, &[&spec.definition.name]).await?;
            pause_if_failing(ctx, &mut tx, state.id, now).await?;
            tx.commit().await?;
        }
    }
    Ok(())
}

/// Pauses a schedule, whose row is locked, if it has failed too often in a row.
async fn pause_if_failing(ctx: &Ctx, tx: &mut Tx, id: ScheduleId, now: Timestamp) -> Result {
    let Some(state) = schedules::state(tx, id).await? else {
        return Ok(());
    };
    let spec = ctx.specs.get(tx, id, state.revision).await?;
    let Some(most) = spec.policies.pause_on_failure else {
        return Ok(());
    };
    // Failures from before a person resumed or changed the schedule do not count again.
    let since = state.resumed_at.max(Some(spec.definition.since));
    let ends = launch::recent_outcomes(tx, id, i64::from(most)).await?;
    let in_a_row = ends.iter().take_while(|(status, decided_at)| {
        *status != LaunchStatus::Succeeded && Some(*decided_at) >= since
    });
    let in_a_row = u32::try_from(in_a_row.count()).unwrap_or(u32::MAX);
    if !spec.policies.pauses_after(in_a_row) {
        return Ok(());
    }
    let note = format!("the last {} failed", counted(in_a_row, "launch"));
    let pause = Pause {
        by: PAUSER,
        note: Some(&note),
        until: None,
    };
    if schedules::pause(tx, id, pause, now).await? {
        let name = &spec.definition.name;
        log_spans::decision(Some(name), None).in_scope(|| tracing::error!("paused: {note}"));
        changes::record(tx, now, EventKind::SchedulePaused, name, &pause_text(pause)).await?;
    }
    Ok(())
}
