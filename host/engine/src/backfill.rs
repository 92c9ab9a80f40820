//! Back-fill: the slots of a time that is past are launched because a person asks for it.
//!
//! ```text
//! survey ── begin ──▶ running ── fill_back, a few launches at a time ──▶ done
//!                        └── cancel, or its schedule is removed ──▶ cancelled
//! ```
//!
//! A backfill has a cursor of its own; the schedule's stays where it is, and so do its count of launches and its
//! pause. Launches and cursor go on the record together: a crash changes nothing or all, and the ids of the launches
//! follow from schedule, slot and backfill, so that nothing is launched twice.

mod request;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use request::{Asked, BackfillError, SLOTS_MOST, Survey, asked_before, begin, cancel, survey};

use super::schedules as orders;
use super::spec::Spec;
use super::{Engine, EngineError};
use crate::crash;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, BackfillId, HostId, LaunchId, LaunchKind};
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::Rule;
use campanile_store::backfills::{self, Backfill, BackfillStep};
use campanile_store::events::{self, EventKind};
use campanile_store::launches::NewLaunch;
use campanile_store::schedules::{self, Schedule};
use campanile_store::{BackfillStatus, DbError, Decision, Tx, packages};

/// Launches of one backfill that are not over at the same time, at most.
pub const UNFINISHED_MAX: i64 = 100;
/// Slots looked at in one transaction for each launch that may be made; the rest follows in the next.
const SLOTS_PER_LAUNCH: usize = 10;
/// The finest step of an instant.
const MICROSECOND: Duration = Duration::from_micros(1);

/// What one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilledBack {
    /// Launches put on the record.
    pub launched: usize,
    /// Whether a backfill goes on.
    pub goes_on: bool,
    /// Whether there are slots that could be looked at without waiting for anything.
    pub more: bool,
}

/// Nothing can be done before something else has happened.
const WAITS: FilledBack = FilledBack {
    launched: 0,
    goes_on: true,
    more: false,
};

/// End the backfills of a schedule that is removed.
pub(super) async fn end_with(
    tx: &mut Tx,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<(), DbError> {
    for backfill in backfills::running(tx).await? {
        if backfill.schedule_id == schedule.state.id {
            let id = backfill.id;
            let detail = format!("{id}, as its schedule was removed");
            end_cancelled(tx, id, &schedule.definition.name, &detail, now).await?;
        }
    }
    Ok(())
}

async fn end_cancelled(
    tx: &mut Tx,
    id: BackfillId,
    name: &str,
    detail: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    backfills::finish(tx, id, BackfillStatus::Cancelled, now).await?;
    events::record(tx, now, EventKind::BackfillCancelled, name, detail).await
}

impl Engine {
    /// Launch what has its turn of every backfill that runs, and end those that are done.
    pub async fn fill_back(&self, now: Timestamp) -> Result<FilledBack, EngineError> {
        let mut tx = self.db.read().await?;
        let running = backfills::running(&mut tx).await?;
        drop(tx);
        self.fills_back
            .store(!running.is_empty(), Ordering::Relaxed);
        let mut done = FilledBack::default();
        for backfill in running {
            let step = self.fill_one(&backfill, now).await?;
            done.launched += step.launched;
            done.goes_on |= step.goes_on;
            done.more |= step.more;
        }
        Ok(done)
    }

    async fn fill_one(
        &self,
        backfill: &Backfill,
        now: Timestamp,
    ) -> Result<FilledBack, EngineError> {
        let mut tx = self.db.write().await?;
        // Whoever decides about a schedule's launches holds its row; one that another host holds, it looks after.
        let held = schedules::lock_available(&mut tx, &[backfill.schedule_id]).await?;
        if held.is_empty() {
            return Ok(WAITS);
        }
        let filled = self.fill_held(&mut tx, backfill, now).await?;
        if filled.launched > 0 {
            crash::point("before_backfill_commit");
        }
        // Also when nothing was written: a transaction that is merely dropped holds the row a little longer.
        tx.commit().await?;
        if filled.launched > 0 {
            crash::point("after_backfill_commit");
        }
        Ok(filled)
    }

    /// One step of a backfill whose schedule's row is held.
    async fn fill_held(
        &self,
        tx: &mut Tx,
        backfill: &Backfill,
        now: Timestamp,
    ) -> Result<FilledBack, EngineError> {
        let found = backfills::find(tx, backfill.id).await?;
        let found = found.filter(|found| found.status == BackfillStatus::Running);
        let state = schedules::state(tx, backfill.schedule_id).await?;
        let Some((backfill, state)) = found.zip(state) else {
            return Ok(FilledBack::default());
        };
        let spec = self.specs.get(tx, state.id, backfill.schedule_revision);
        let spec = spec.await?;
        // One that this version cannot read waits for another one.
        let Some(rule) = &spec.rule else {
            return Ok(WAITS);
        };
        let unfinished = backfills::unfinished(tx, &backfill).await?;
        let room = usize::try_from(UNFINISHED_MAX - unfinished).unwrap_or_default();
        let (_, until) = span(
            &spec.policies,
            backfill.from,
            backfill.to,
            backfill.created_at,
        );
        // What the schedule has yet to decide is its own until then: it may launch it.
        let decided = state
            .next_slot
            .map_or(until, |next| until.min(next.minus(MICROSECOND)));
        let slots = rule.slots(backfill.cursor_at, decided);
        let slots: Vec<Timestamp> = slots.take((room * SLOTS_PER_LAUNCH).max(1)).collect();
        let (Some(&first), Some(&last)) = (slots.first(), slots.last()) else {
            let next = rule.next(backfill.cursor_at);
            if unfinished > 0 || next.is_some_and(|next| next <= until) {
                return Ok(WAITS);
            }
            end_done(tx, &backfill, now).await?;
            return Ok(FilledBack::default());
        };
        let package = packages::find(tx, &spec.definition.package).await?;
        let present = package.filter(|package| package.missing_since.is_none());
        // One that is missing is waited for.
        let Some(digest) = present.and_then(|package| package.digest) else {
            return Ok(WAITS);
        };
        let cared_for: BTreeSet<Timestamp> = match backfill.forced {
            true => BTreeSet::new(),
            false => backfills::covered_slots(tx, state.id, first, last)
                .await?
                .into_iter()
                .collect(),
        };
        let portion = portion(&backfill, &slots, &cared_for, room, now);
        if !backfills::advance(tx, &portion.step).await? {
            return Ok(WAITS);
        }
        let maker = Maker {
            backfill: &backfill,
            spec: &spec,
            rule,
            digest,
            host: self.host,
            now,
        };
        let launches: Vec<NewLaunch> = portion
            .fire_times
            .iter()
            .map(|&(slot, fire_time)| maker.launch(slot, fire_time))
            .collect();
        let launched = launches.len();
        // What goes on beside it is limited by what the schedule says now.
        let now_says = self.specs.get(tx, state.id, state.revision).await?;
        orders::launch_each_beside(tx, &state, &now_says.policies, launches, now).await?;
        Ok(FilledBack {
            launched,
            goes_on: true,
            more: launched < room,
        })
    }
}

/// Slots to look at in one transaction.
#[derive(Debug, Clone, PartialEq)]
struct Portion {
    /// Each slot to be launched, and when.
    fire_times: Vec<(Timestamp, Timestamp)>,
    step: BackfillStep,
}

/// Pure: what to launch of `slots`, which follow the cursor: `room` of them at most, and not those that are
/// `cared_for` already.
fn portion(
    backfill: &Backfill,
    slots: &[Timestamp],
    cared_for: &BTreeSet<Timestamp>,
    room: usize,
    now: Timestamp,
) -> Portion {
    let spread = Duration::from_millis(u64::try_from(backfill.spread_ms).unwrap_or_default());
    let mut step = BackfillStep {
        id: backfill.id,
        from: backfill.cursor_at,
        to: backfill.cursor_at,
        next_fire: backfill.next_fire,
        launched: 0,
        slots_skipped: 0,
    };
    let mut fire_times = Vec::new();
    for &slot in slots {
        if cared_for.contains(&slot) {
            step.slots_skipped += 1;
        } else if fire_times.len() < room {
            let fire_time = step.next_fire.max(now);
            step.next_fire = fire_time.plus(spread);
            step.launched += 1;
            fire_times.push((slot, fire_time));
        } else {
            break;
        }
        step.to = slot;
    }
    Portion { fire_times, step }
}

/// Pure: the instant after which the slots begin that may be filled back, and the last that may be one: a schedule
/// has none before its start and after its end, and what comes after the request is its own.
fn span(
    policies: &Policies,
    from: Timestamp,
    to: Timestamp,
    asked_at: Timestamp,
) -> (Timestamp, Timestamp) {
    let from = policies.start_at.map_or(from, |start| start.max(from));
    let to = policies.end_at.map_or(to, |end| end.min(to));
    (from.minus(MICROSECOND), to.min(asked_at))
}

/// What the launches of one step have in common.
struct Maker<'a> {
    backfill: &'a Backfill,
    spec: &'a Spec,
    rule: &'a Rule,
    digest: ArtifactDigest,
    host: HostId,
    now: Timestamp,
}

impl Maker<'_> {
    fn launch(&self, slot: Timestamp, fire_time: Timestamp) -> NewLaunch {
        let backfill = self.backfill;
        NewLaunch {
            id: LaunchId::of_backfill(backfill.schedule_id, slot, backfill.id),
            schedule_id: backfill.schedule_id,
            schedule_revision: backfill.schedule_revision,
            kind: LaunchKind::Backfill,
            scheduled_time: slot,
            scheduled_local: self.rule.local_text(slot),
            last_scheduled_time: slot,
            slot_count: 1,
            decision: Decision::Launched,
            reason: None,
            overlaps: None,
            package: self.spec.definition.package.clone(),
            digest: Some(self.digest.clone()),
            context: backfill.context.clone(),
            overlap: None,
            backfill_id: Some(backfill.id),
            interval_start: self.rule.prev(slot).unwrap_or(slot),
            fire_time,
            decided_by: Some(self.host),
            claimed_at: self.now,
        }
    }
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

#[cfg(test)]
mod tests;
