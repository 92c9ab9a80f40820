//! Backfills: launches of past slots that a person requests.
//!
//! ```text
//! preview ── begin ──▶ running ── run_backfills, a few launches at a time ──▶ done
//!                        └── cancel, or its schedule is removed ──▶ cancelled
//! ```
//!
//! A backfill has its own cursor. It does not change the schedule's cursor, pause or number of launches. One
//! transaction records launches and cursor. A launch id follows from schedule, slot and backfill, so that no slot is
//! launched twice.

use std::sync::atomic::Ordering;

use crate::crash;
use crate::ctx::Ctx;
use crate::error::Result;
use campanile_control::admin::backfill::batch::{MICROSECOND, SkippedSlots, batch, span};
use campanile_control::admin::schedule_admin::decide_overlaps;
use campanile_control::rules::plan::{Definer, launch_of_slot};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_store::backfills::{self, Backfill};
use campanile_store::events::{self, EventKind};
use campanile_store::launch::NewLaunch;
use campanile_store::schedules;
use campanile_store::{BackfillStatus, DbError, Tx, packages};

/// How many launches of one backfill may be unfinished at the same time.
pub const UNFINISHED_MAX: i64 = 100;
/// How many slots one transaction looks at, for each launch that it may make.
const SLOTS_PER_LAUNCH: usize = 10;

/// The result of one step of all backfills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackfillProgress {
    pub launched: usize,
    pub is_running: bool,
    /// Whether the next step need not wait for anything.
    pub has_more: bool,
}

impl BackfillProgress {
    pub(crate) fn add(&mut self, step: BackfillProgress) {
        self.launched += step.launched;
        self.is_running |= step.is_running;
        self.has_more |= step.has_more;
    }
}

/// The step of a backfill that waits for another event.
const WAITS: BackfillProgress = BackfillProgress {
    launched: 0,
    is_running: true,
    has_more: false,
};

/// Launch the next slots of every running backfill, and end each backfill that is done.
pub(crate) async fn run_backfills(ctx: &Ctx, now: Timestamp) -> Result<BackfillProgress> {
    let mut done = BackfillProgress::default();
    for backfill in running(ctx).await? {
        done.add(fill_one(ctx, &backfill, now).await?);
    }
    Ok(done)
}

/// Returns the running backfills, oldest first.
pub(crate) async fn running(ctx: &Ctx) -> Result<Vec<Backfill>> {
    let running = backfills::running(&mut ctx.db.read().await?).await?;
    let is_any = !running.is_empty();
    ctx.backfill_running.store(is_any, Ordering::Relaxed);
    Ok(running)
}

/// Launches the next slots of one backfill, or ends it once it's done.
pub(crate) async fn fill_one(
    ctx: &Ctx,
    backfill: &Backfill,
    now: Timestamp,
) -> Result<BackfillProgress> {
    let mut tx = ctx.db.write().await?;
    // The host that has locked the schedule's row decides its launches, and continues the backfill.
    let locked = schedules::lock_available(&mut tx, &[backfill.schedule_id]).await?;
    if locked.is_empty() {
        return Ok(WAITS);
    }
    let filled = fill_locked(ctx, &mut tx, backfill, now).await?;
    if filled.launched > 0 {
        crash::point("before_backfill_commit");
    }
    // Also when nothing was written: a dropped transaction keeps the row locked a little longer.
    tx.commit().await?;
    if filled.launched > 0 {
        crash::point("after_backfill_commit");
    }
    Ok(filled)
}

/// Do one step of a backfill whose schedule's row is locked.
async fn fill_locked(
    ctx: &Ctx,
    tx: &mut Tx,
    backfill: &Backfill,
    now: Timestamp,
) -> Result<BackfillProgress> {
    let found = backfills::find(tx, backfill.id).await?;
    let found = found.filter(|found| found.status == BackfillStatus::Running);
    let state = schedules::state(tx, backfill.schedule_id).await?;
    let Some((backfill, state)) = found.zip(state) else {
        return Ok(BackfillProgress::default());
    };
    let revision = backfill.schedule_revision;
    let spec = ctx.specs.get(tx, state.id, revision).await?;
    // A rule that this version cannot read waits for a host of another version.
    let Some(rule) = &spec.rule else {
        return Ok(WAITS);
    };
    let unfinished = backfills::unfinished(tx, backfill.schedule_id, backfill.id).await?;
    let capacity = usize::try_from(UNFINISHED_MAX - unfinished).unwrap_or_default();
    let (from, to, asked_at) = (backfill.from, backfill.to, backfill.created_at);
    let (_, until) = span(&spec.policies, from, to, asked_at);
    // The schedule itself may launch its undecided slots.
    let undecided = state.next_slot;
    let decided = undecided.map_or(until, |next| until.min(next.minus(MICROSECOND)));
    let slots = rule.slots(backfill.cursor_at, decided);
    let slots: Vec<Timestamp> = slots.take((capacity * SLOTS_PER_LAUNCH).max(1)).collect();
    let (Some(&first), Some(&last)) = (slots.first(), slots.last()) else {
        let next = rule.next(backfill.cursor_at);
        if unfinished > 0 || next.is_some_and(|next| next <= until) {
            return Ok(WAITS);
        }
        end_done(tx, &backfill, now).await?;
        return Ok(BackfillProgress::default());
    };
    let package = packages::find(tx, &spec.definition.package).await?;
    let present = package.filter(|package| package.missing_since.is_none());
    // The backfill waits for a missing package.
    let Some(digest) = present.and_then(|package| package.digest) else {
        return Ok(WAITS);
    };
    let slots_skipped = SkippedSlots::read(tx, &state, backfill.forced, first, last).await?;
    let batch = batch(&backfill, &slots, &slots_skipped, capacity, now);
    if !backfills::advance(tx, &batch.step).await? {
        return Ok(WAITS);
    }
    let definer = Definer::of(&spec.definition, &spec.policies);
    let kind = LaunchKind::Backfill;
    let launch = |&(slot, fire_time): &(Timestamp, Timestamp)| NewLaunch {
        id: LaunchId::of_backfill(backfill.schedule_id, slot, backfill.id),
        digest: Some(digest.clone()),
        context: backfill.context.clone(),
        backfill_id: Some(backfill.id),
        interval_start: rule.prev(slot).unwrap_or(slot),
        fire_time,
        decided_by: Some(ctx.host),
        ..launch_of_slot(&definer, rule, kind, slot, now)
    };
    let launches: Vec<NewLaunch> = batch.fire_times.iter().map(launch).collect();
    let launched = launches.len();
    // The overlap policy of the current revision applies, not that of the backfill's revision.
    let current = ctx.specs.get(tx, state.id, state.revision).await?;
    decide_overlaps(tx, &state, &current.policies, launches, now).await?;
    Ok(BackfillProgress {
        launched,
        is_running: true,
        has_more: launched < capacity,
    })
}

async fn end_done(tx: &mut Tx, backfill: &Backfill, now: Timestamp) -> Result<(), DbError> {
    backfills::finish(tx, backfill.id, BackfillStatus::Done, now).await?;
    let ends = backfills::launch_totals(tx, backfill.id).await?;
    let detail = format!(
        "{}: {} succeeded, {} failed, {} cancelled, {} left alone",
        backfill.id, ends.succeeded, ends.failed, ends.cancelled, backfill.slots_skipped
    );
    let name = &backfill.schedule;
    events::record(tx, now, EventKind::BackfillDone, name, &detail).await
}
