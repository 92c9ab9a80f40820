//! Retention: remove launches, task runs, events and artifacts that are older than the configured ages.
//!
//! ```text
//! a pass:  task runs ─▶ launches, oldest first ─▶ launches of schedules with an own age
//!          ─▶ events, artifacts, backfills, hosts
//! a page:  read ─▶ decide (pure) ─▶ remove, at most 256 launches in a transaction
//! ```
//!
//! Pages are read outside of transactions that write, and decided by `decision.rs`. A transaction that removes launches also
//! adds their counts to the table `removed_launches`, and one that removes calls adds their use to `removed_calls`. After a
//! crash, each launch and each call is either on record or counted.
//!
//! Only the host that does the chores removes rows. It uses a fifth of a processor, less while launches are late, and half of one
//! while launches are on record 10 minutes longer than their age. Launch ids sort by slot, and no launch ends before its
//! slot. So a pass reads only launches whose slots are older than the least age.

mod decision;
mod pass;
mod rest;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::alive::chores;
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::batch_size::BatchSize;
use crate::error::{EngineError, Result};
use crate::service::{Next, Service};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_model::text::size_text;
use campanile_store::events::EventKind;
use campanile_store::retention::{self, OldLaunch};
use campanile_store::{DbError, Tx, schedules, size};
pub use pass::Removed;
use pass::{BEHIND, FIRST, INTERVAL, Pass, ScheduleCursor, Stage, interval, own_age};
use rest::remove_rest;

/// The rows of a page.
const PAGE: i64 = 2_048;
/// The schedules of a page.
const SCHEDULES_PAGE: i64 = 256;
/// The launches of one transaction, at most.
const LAUNCHES_MAX: usize = 256;
/// The fewest launches that a slow transaction leads to on Postgres. The network may be slow, and not the statements.
const LAUNCHES_MIN_SHARED: usize = 16;
/// A transaction whose statements take longer makes the next one smaller.
const TRANSACTION_MAX: Duration = Duration::from_millis(10);
/// A slot that is undecided for longer is late.
const LATE: Duration = Duration::from_secs(1);
/// The pause after an error.
const ERROR_PAUSE: Duration = Duration::from_secs(60);

/// The service that removes rows beyond their ages.
pub(crate) struct Retention {
    /// None between two passes.
    pass: Option<Pass>,
    /// The launches of the next transaction.
    batch_size: BatchSize,
    /// Whether the record was larger than it may be at the last pass, and whether the log says that nothing helps.
    was_over_size: bool,
    is_stuck: bool,
}

impl Service for Retention {
    const STEP: &'static str = "removing old launches";

    fn first(ctx: &Ctx) -> Next {
        Next::After(interval(&ctx.settings.retention))
    }

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        // With a wrong clock, new launches would count as old.
        if !ctx.clock.is_known() {
            return Ok(Next::After(INTERVAL));
        }
        let Some(mut pass) = self.begin_or_continue(ctx, now).await? else {
            return Ok(Self::first(ctx));
        };
        pass.worked = Duration::ZERO;
        let stepped = self.step(ctx, &mut pass, now).await;
        if stepped.is_ok() && matches!(pass.stage, Stage::Done) {
            pass.report();
            return Ok(Next::After(pass.interval(&ctx.settings.retention)));
        }
        let pass = self.pass.insert(pass);
        // After an error the same page is tried again.
        stepped?;
        let pause = pass.pause(is_late(ctx, now).await?);
        Ok(Next::After(pause))
    }

    fn after_error(_: &EngineError) -> Next {
        Next::After(ERROR_PAUSE)
    }
}

/// Do a whole pass without pauses. Return the numbers of removed rows.
pub(crate) async fn remove_old(ctx: &Ctx, now: Timestamp) -> Result<Removed> {
    let mut service = Retention::new(ctx);
    let Some(mut pass) = service.begin_or_continue(ctx, now).await? else {
        return Ok(Removed::default());
    };
    while !matches!(pass.stage, Stage::Done) {
        service.step(ctx, &mut pass, now).await?;
    }
    Ok(pass.removed)
}

/// Whether launches wait that are due: for a host that decides them, or for capacity.
async fn is_late(ctx: &Ctx, now: Timestamp) -> Result<bool> {
    let due = schedules::next_due(&mut ctx.db.read().await?).await?;
    let is_overdue = due.is_some_and(|due| due < now.minus(LATE));
    Ok(is_overdue || ctx.capacity.is_short.load(Ordering::Relaxed))
}

impl Retention {
    pub(crate) fn new(ctx: &Ctx) -> Retention {
        let least = if ctx.db.url().is_shared() {
            LAUNCHES_MIN_SHARED
        } else {
            1
        };
        Retention {
            pass: None,
            batch_size: BatchSize::new(least..=LAUNCHES_MAX, Some(TRANSACTION_MAX)),
            was_over_size: false,
            is_stuck: false,
        }
    }

    /// Returns the pass to continue, or a new one; none when another host does the chores.
    async fn begin_or_continue(&mut self, ctx: &Ctx, now: Timestamp) -> Result<Option<Pass>> {
        if !chores::are_ours(ctx) {
            self.pass = None;
            self.was_over_size = false;
            return Ok(None);
        }
        if let Some(pass) = self.pass.take() {
            return Ok(Some(pass));
        }
        let mut tx = ctx.db.read_long().await?;
        let excess = match ctx.settings.retention.max_bytes {
            Some(max) => excess(&mut tx, max).await?,
            None => None,
        };
        drop(tx);
        self.note_size(ctx, excess.as_ref(), now).await?;
        Ok(Some(Pass::new(excess.map_or(0, |(launches, _)| launches))))
    }

    /// Report once that the record is larger than it may be, and once that it is not any more.
    async fn note_size(&mut self, ctx: &Ctx, excess: Option<&Excess>, now: Timestamp) -> Result {
        if self.was_over_size == excess.is_some() {
            return Ok(());
        }
        let detail = match excess {
            Some((_, text)) => text.clone(),
            None => "the record is smaller than `retention.max_bytes` again".to_owned(),
        };
        tracing::warn!("{detail}");
        chores::record_event(ctx, now, EventKind::RecordSizeChanged, &ctx.name, &detail).await?;
        self.was_over_size = excess.is_some();
        self.is_stuck = false;
        Ok(())
    }

    /// Do one page of the present stage, and set the next one.
    async fn step(&mut self, ctx: &Ctx, pass: &mut Pass, now: Timestamp) -> Result {
        match pass.stage {
            Stage::Calls { after } => self.remove_calls(ctx, pass, after, now).await,
            Stage::Launches { after } => self.remove_launches(ctx, pass, after, now).await,
            Stage::Schedules(_) => self.remove_by_schedule(ctx, pass, now).await,
            Stage::Rest => {
                let begun = Instant::now();
                let has_more = remove_rest(ctx, &mut pass.removed, now).await?;
                pass.worked += begun.elapsed();
                if !has_more {
                    pass.stage = Stage::Done;
                }
                Ok(())
            }
            Stage::Done => Ok(()),
        }
    }

    /// Remove the old task runs of a page of launches.
    async fn remove_calls(
        &mut self,
        ctx: &Ctx,
        pass: &mut Pass,
        after: LaunchId,
        now: Timestamp,
    ) -> Result {
        let Some(age) = ctx.settings.retention.logs else {
            pass.stage = Stage::Launches { after: FIRST };
            return Ok(());
        };
        let before = now.minus(age);
        let mut tx = ctx.db.read_long().await?;
        let begun = Instant::now();
        let page = retention::called(&mut tx, after, LaunchId::first_at(before), PAGE).await?;
        drop(tx);
        let ended = page
            .iter()
            .filter_map(|(id, end)| end.map(|end| (*id, end)));
        let old = ended.clone().filter(|(_, end)| *end <= before);
        let old: Vec<LaunchId> = old.map(|(id, _)| id).collect();
        pass.count_read(begun.elapsed(), page.len(), old.len());
        let first_end = ended.map(|(_, end)| end).min();
        pass.is_behind = first_end.is_some_and(|at| at.plus(BEHIND) < before);
        let mut left = old.as_slice();
        while !left.is_empty() {
            let (batch, more) = left.split_at(left.len().min(self.batch_size.rows()));
            let Some(mut tx) = chores::write_long(ctx).await? else {
                break;
            };
            let begun = Instant::now();
            retention::remove_calls(&mut tx, batch).await?;
            self.batch_size.adapt(batch.len(), begun.elapsed());
            tx.commit().await?;
            pass.worked += begun.elapsed();
            pass.removed.calls += batch.len();
            left = more;
        }
        let last = page.last().filter(|_| page.len() as i64 == PAGE);
        pass.stage = match last {
            Some((last, _)) => Stage::Calls { after: *last },
            None => Stage::Launches { after: FIRST },
        };
        Ok(())
    }

    /// Remove the old launches of a page.
    async fn remove_launches(
        &mut self,
        ctx: &Ctx,
        pass: &mut Pass,
        after: LaunchId,
        now: Timestamp,
    ) -> Result {
        let least_age = match pass.excess {
            0 => ctx.settings.retention.least_age(),
            _ => Some(Duration::ZERO),
        };
        let Some(least_age) = least_age else {
            pass.stage = Stage::Schedules(ScheduleCursor::first());
            return Ok(());
        };
        let before = LaunchId::first_at(now.minus(least_age));
        let mut tx = ctx.db.read_long().await?;
        let begun = Instant::now();
        let page = retention::launches(&mut tx, after, before, PAGE).await?;
        let mut old = pass.old(ctx, &mut tx, &page, now).await?;
        drop(tx);
        if pass.excess > 0 {
            old.truncate(pass.excess);
        }
        pass.count_read(begun.elapsed(), page.len(), old.len());
        let removed = self.remove(ctx, pass, old, now).await?;
        let last = page.last().filter(|_| page.len() as i64 == PAGE);
        pass.stage = match last {
            // Other launches of this page may be older than their age, although the record is small enough now.
            Some(_) if pass.excess > 0 && removed >= pass.excess => {
                Stage::Launches { after: FIRST }
            }
            Some(last) => Stage::Launches { after: last.id },
            None => Stage::Schedules(ScheduleCursor::first()),
        };
        pass.excess = pass.excess.saturating_sub(removed);
        if last.is_none() {
            self.note_stuck(pass);
        }
        Ok(())
    }

    /// Log once that the record stays larger than it may be.
    fn note_stuck(&mut self, pass: &Pass) {
        if pass.excess > 0 && pass.removed.launches == 0 && !self.is_stuck {
            self.is_stuck = true;
            tracing::warn!(
                "the record is larger than `retention.max_bytes`, and no launch may be removed: \
                 all that are left are unfinished, not sealed yet, or the newest of their schedules; raise `max_bytes` or lower `keep_last`"
            );
        }
    }

    /// Remove a page of launches of a schedule with its own age, or find the next such schedules.
    async fn remove_by_schedule(&mut self, ctx: &Ctx, pass: &mut Pass, now: Timestamp) -> Result {
        let Stage::Schedules(cursor) = &pass.stage else {
            return Ok(());
        };
        let Some(&schedule) = cursor.todo.last() else {
            let is_last_page = cursor.is_last_page;
            pass.stage = if is_last_page {
                Stage::Rest
            } else {
                let begun = Instant::now();
                let next = next_schedules(ctx, cursor.after).await?;
                pass.count_read(begun.elapsed(), 1, 0);
                Stage::Schedules(next)
            };
            return Ok(());
        };
        let (slot, after) = cursor.launch;
        let mut tx = ctx.db.read_long().await?;
        let begun = Instant::now();
        pass.look_up(ctx, &mut tx, &[schedule]).await?;
        let age = pass.schedules.get(&schedule).and_then(|rule| rule.own_age);
        let before = now.minus(age.unwrap_or_default());
        let page = retention::launches_of(&mut tx, schedule, slot, after, before, PAGE).await?;
        let old = pass.old(ctx, &mut tx, &page, now).await?;
        drop(tx);
        pass.count_read(begun.elapsed(), page.len(), old.len());
        self.remove(ctx, pass, old, now).await?;
        if let Stage::Schedules(cursor) = &mut pass.stage {
            let last = page.last().filter(|_| page.len() as i64 == PAGE);
            cursor.launch = match last {
                Some(last) => (last.scheduled_time, last.id),
                None => {
                    cursor.todo.pop();
                    (Timestamp::FIRST, FIRST)
                }
            };
        }
        Ok(())
    }

    /// Remove launches, a batch in each transaction. Return how many.
    async fn remove(
        &mut self,
        ctx: &Ctx,
        pass: &mut Pass,
        mut old: Vec<OldLaunch>,
        now: Timestamp,
    ) -> Result<usize> {
        // Launches of one schedule and day change one row of `removed_launches`.
        old.sort_unstable_by_key(|launch| (launch.schedule_id, launch.id));
        let ids: Vec<LaunchId> = old.iter().map(|launch| launch.id).collect();
        let (mut left, mut removed) = (ids.as_slice(), 0);
        while !left.is_empty() {
            let (batch, more) = left.split_at(left.len().min(self.batch_size.rows()));
            let Some(mut tx) = chores::write_long(ctx).await? else {
                break;
            };
            let begun = Instant::now();
            // Another host has the lock for removal. This pass continues with its next page.
            if !retention::lock(&mut tx).await? {
                break;
            }
            removed += retention::remove(&mut tx, batch, now).await?;
            self.batch_size.adapt(batch.len(), begun.elapsed());
            crash::point("before_retention_commit");
            tx.commit().await?;
            crash::point("after_retention_commit");
            pass.worked += begun.elapsed();
            left = more;
        }
        pass.removed.launches += removed;
        Ok(removed)
    }
}

/// About how many launches occupy the bytes beyond the maximum, and a sentence about that.
type Excess = (usize, String);

/// Returns by how much the record is too large; none when it is not.
async fn excess(tx: &mut Tx, max_bytes: u64) -> Result<Option<Excess>, DbError> {
    let used_bytes = size::used_bytes(tx).await?.unsigned_abs();
    let launches = size::launch_rows(tx).await?.unsigned_abs();
    if used_bytes <= max_bytes {
        return Ok(None);
    }
    let share = u128::from(launches) * u128::from(used_bytes - max_bytes) / u128::from(used_bytes);
    let launches = usize::try_from(share).unwrap_or(usize::MAX).max(1);
    let [used, max] = [used_bytes, max_bytes].map(size_text);
    let text = format!(
        "the record has {used}, more than the {max} of `retention.max_bytes`: the oldest launches are removed before their age"
    );
    Ok(Some((launches, text)))
}

/// Read the next page of the schedules whose policies set `retention`.
async fn next_schedules(ctx: &Ctx, after: ScheduleId) -> Result<ScheduleCursor> {
    let mut tx = ctx.db.read_long().await?;
    let page = retention::policies_with_age(&mut tx, after, SCHEDULES_PAGE).await?;
    let own = page.iter().filter(|row| own_age(ctx, row).is_some());
    Ok(ScheduleCursor {
        after: page.last().map_or(after, |last| last.id),
        is_last_page: (page.len() as i64) < SCHEDULES_PAGE,
        todo: own.map(|row| row.id).collect(),
        ..ScheduleCursor::first()
    })
}
