//! Correct the next slots of schedules: each must follow from the schedule's cursor and rule.
//!
//! A wrong clock, another time zone database or another version of Campanile may have written a wrong one. Schedules are
//! read a page at a time, outside of transactions that write, and with pauses: a host with a million schedules uses at most
//! 1 % of a processor for it, and no other transaction waits. Only the host that does the chores runs it. Besides, each host
//! corrects all next slots when it starts with another time zone database than the host before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::alive::chores;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::spec::Spec;
use crate::error::Result;
use crate::service::{Next, Service};
use campanile_control::admin::schedule_admin::next_slot;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_schedule::rule::tzdata_version;
use campanile_store::events::{self, EventKind};
use campanile_store::hosts::{self, Host};
use campanile_store::schedules::{self, NextSlot, ScheduleState};
use campanile_store::{DbError, Tx};

/// The schedules of one page. A page that Postgres has not cached takes about 5 ms, in which launches have a processor less.
const PAGE: i64 = 64;
/// The pause after a page, as a multiple of the time that the page took. So the service uses at most 1 % of a processor.
const PAUSE: u32 = 99;
/// A slot that counts from the end of a launch and lies so much further ahead was made by a wrong clock.
const TOO_FAR: Duration = Duration::from_secs(3_600);

/// The service that corrects next slots.
#[derive(Default)]
pub(crate) struct NextSlots {
    /// The last schedule of the page before; none at the beginning of a pass.
    after: Option<ScheduleId>,
    corrected: usize,
}

impl Service for NextSlots {
    const STEP: &'static str = "correcting next slots";

    fn first(ctx: &Ctx) -> Next {
        Next::After(ctx.settings.audit_interval)
    }

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        if !chores::are_ours(ctx) {
            self.after = None;
            return Ok(Self::first(ctx));
        }
        let begun = Instant::now();
        let (corrected, last) = correct_page(ctx, Occasion::Chore, self.after, now).await?;
        self.corrected += corrected;
        self.after = last;
        if last.is_some() {
            return Ok(Next::After(begun.elapsed() * PAUSE));
        }
        if self.corrected > 0 {
            tracing::warn!(corrected = self.corrected, "next slots were wrong");
            self.corrected = 0;
        }
        Ok(Self::first(ctx))
    }
}

/// When next slots are corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// A regular pass: another host may have taken over the chores meanwhile.
    Chore,
    HostStart,
}

/// Correct the next slots of all schedules, at the start of a host. Return how many were wrong.
pub(crate) async fn correct_all(ctx: &Ctx, now: Timestamp) -> Result<usize> {
    let (mut all, mut after) = (0, None);
    loop {
        let (corrected, last) = correct_page(ctx, Occasion::HostStart, after, now).await?;
        all += corrected;
        if last.is_none() {
            return Ok(all);
        }
        after = last;
    }
}

/// Correct the next slots of a page of schedules after `after`. Return how many were wrong, and the last schedule of the
/// page when there may be more.
///
/// This decides no slot and moves no cursor.
async fn correct_page(
    ctx: &Ctx,
    occasion: Occasion,
    after: Option<ScheduleId>,
    now: Timestamp,
) -> Result<(usize, Option<ScheduleId>)> {
    let mut tx = ctx.db.read().await?;
    // Two hosts with different time zone databases would correct each other for ever.
    let is_newer = |host: &Host| host.tzdata_version.as_str() > tzdata_version();
    if hosts::live(&mut tx).await?.iter().any(is_newer) {
        return Ok((0, None));
    }
    let page = schedules::page(&mut tx, after, PAGE).await?;
    let last = page.last().map(|schedule| schedule.state.id);
    let last = last.filter(|_| page.len() as i64 == PAGE);
    let mut wrong: Vec<(ScheduleId, Arc<Spec>)> = Vec::new();
    for schedule in page {
        let state = schedule.state;
        let spec = ctx.specs.of(schedule.definition);
        if correction(&mut tx, &state, &spec, now).await?.is_some() {
            wrong.push((state.id, spec));
        }
    }
    drop(tx);
    let corrected = if wrong.is_empty() {
        0
    } else {
        correct(ctx, occasion, wrong, now).await?
    };
    Ok((corrected, last))
}

/// Correct next slots that were found to be wrong, and that still are. Return how many.
async fn correct(
    ctx: &Ctx,
    occasion: Occasion,
    wrong: Vec<(ScheduleId, Arc<Spec>)>,
    now: Timestamp,
) -> Result<usize> {
    let tx = match occasion {
        Occasion::Chore => chores::write(ctx).await?,
        Occasion::HostStart => Some(ctx.db.write().await?),
    };
    let Some(mut tx) = tx else {
        return Ok(0);
    };
    let ids: Vec<ScheduleId> = wrong.iter().map(|(id, _)| *id).collect();
    // Another transaction changes the schedules that are locked. The next pass reads them again.
    let ids = schedules::lock_available(&mut tx, &ids).await?;
    let mut corrected = 0;
    for state in schedules::states(&mut tx, &ids).await? {
        let spec = wrong.iter().find(|(id, _)| *id == state.id);
        let spec = spec.filter(|(_, spec)| spec.definition.revision == state.revision);
        let Some((_, spec)) = spec else {
            continue;
        };
        let Some(next_slot) = correction(&mut tx, &state, spec, now).await? else {
            continue;
        };
        let slot = NextSlot {
            id: state.id,
            cursor_at: state.cursor_at,
            next_slot,
            now,
        };
        if schedules::set_next(&mut tx, &[slot]).await?.is_empty() {
            continue;
        }
        corrected += 1;
        let [old, new] = [state.next_slot, next_slot]
            .map(|slot| slot.map_or("none".to_owned(), |slot| slot.to_string()));
        let detail = format!("next slot corrected from {old} to {new}");
        let kind = EventKind::ScheduleReconciled;
        events::record(&mut tx, now, kind, &spec.definition.name, &detail).await?;
    }
    tx.commit().await?;
    if corrected > 0 {
        ctx.wake.scheduler.notify_one();
    }
    Ok(corrected)
}

/// Returns the next slot that a schedule should have, if it has another one.
async fn correction(
    tx: &mut Tx,
    state: &ScheduleState,
    spec: &Spec,
    now: Timestamp,
) -> Result<Option<Option<Timestamp>>, DbError> {
    let is_decided = state.enabled && state.deleted_at.is_none();
    let Some(rule) = spec.rule.as_ref().filter(|_| is_decided) else {
        return Ok(None);
    };
    let next = match (rule.delay_after_completion(), state.next_slot) {
        // The end of a launch made this slot once. It is wrong only when a wrong clock made it.
        (Some(delay), Some(next)) if next > now.plus(delay).plus(TOO_FAR) => {
            let soonest = state.cursor_at.plus(Duration::from_micros(1));
            Some(now.plus(delay).max(soonest))
        }
        (Some(_), Some(next)) => Some(next),
        _ => next_slot(tx, state, rule, &spec.policies, state.cursor_at).await?,
    };
    Ok((next != state.next_slot).then_some(next))
}
