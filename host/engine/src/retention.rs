//! Retention: remove what is older than the configured ages.
//!
//! ```text
//! a pass:  calls ─▶ launches, oldest first ─▶ schedules with an age of their own ─▶ the rest
//! a page:  read ─▶ decide (pure) ─▶ remove, at most 256 launches in a transaction
//! ```
//!
//! Pages are read outside of transactions that write, and decided by `decision.rs`. A transaction that removes launches
//! records what it removed (`removed_launches`), so a crash between two steps leaves a whole record.
//!
//! The oldest live host works, the others wait. It takes a fifth of a processor, less while launches are late, and half of
//! one while the record has rows that should have gone long before. Launch ids sort by slot, and no launch ends before its
//! slot: so a pass reads only launches of slots before the least age.

mod decision;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::{EngineError, Result};
use crate::service::{Next, Service};
use crate::settings::RetentionLimits;
use crate::work::stored_json;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_model::text::size_text;
use campanile_schedule::policy::{Policies, Policy};
use campanile_store::events::{self, EventKind};
use campanile_store::retention::{self, NewestSlots, OldLaunch, SchedulePolicies};
use campanile_store::{DbError, Tx, hosts, schedules, size};
use decision::{Needed, Rules, ScheduleRule};

/// The rows of a page.
const PAGE: i64 = 2_048;
/// The schedules of a page.
const SCHEDULES_PAGE: i64 = 256;
/// The events, hosts and artifacts of one transaction.
const BATCH: i64 = 256;
/// The launches of one transaction, at most.
const LAUNCHES_MAX: usize = 256;
/// A transaction that takes longer makes the next one smaller.
const TRANSACTION_MAX: Duration = Duration::from_millis(10);
/// The pause after a page, in times of what the page took.
const PAUSE: u32 = 4;
/// The same while the record is behind its ages by [`BEHIND`], or larger than it may be.
const PAUSE_BEHIND: u32 = 1;
/// The same while launches are late; besides, the pause is at least [`PAUSE_LATE_MIN`].
const PAUSE_LATE: u32 = 16;
const PAUSE_LATE_MIN: Duration = Duration::from_millis(500);
const BEHIND: Duration = Duration::from_secs(600);
/// A slot that is undecided for longer is late.
const LATE: Duration = Duration::from_secs(1);
/// The time from one pass to the next, at least; less when an age is shorter than ten times that.
const INTERVAL: Duration = Duration::from_secs(60);
/// The same while the record is larger than it may be.
const INTERVAL_OVER_SIZE: Duration = Duration::from_secs(10);
/// The time from one pass to the next, in times of what it took to read rows that stay.
const INTERVAL_PER_READ: u32 = 10;
/// The pause after an error.
const ERROR_PAUSE: Duration = Duration::from_secs(60);
/// An id before that of any launch.
const FIRST: LaunchId = LaunchId::FIRST;
/// Health reports a schedule as failing by so many launches; see `audit.rs`.
const OUTCOMES_MIN: u32 = 3;
/// The schedules whose newest launches are remembered during a pass.
const SCHEDULES_MAX: usize = 100_000;
/// A host decides no launch whose slot is later than the host's end by more: the difference of two clocks.
const CLOCK_MARGIN: Duration = Duration::from_secs(3_600);

/// What retention removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub launches: usize,
    /// Launches of which the calls were removed, and that stay.
    pub calls: usize,
    pub events: u64,
    pub backfills: u64,
    pub hosts: usize,
    /// Artifacts whose bytes were removed.
    pub artifacts: usize,
}

/// The service that removes what is old.
pub(crate) struct Retention {
    /// None between two passes.
    pass: Option<Pass>,
    /// How many launches the next transaction removes.
    batch: usize,
    /// Whether the record was larger than it may be at the last pass, and whether the log says that nothing helps.
    was_over_size: bool,
    is_stuck: bool,
}

/// One pass over the record.
struct Pass {
    stage: Stage,
    /// How many launches are still to be removed whatever their age, because the record is too large.
    excess: usize,
    /// The schedules that were looked up.
    schedules: HashMap<ScheduleId, ScheduleRule>,
    /// What it took to read rows that stay.
    read: Duration,
    is_behind: bool,
    removed: Removed,
}

/// What a pass does next. A page begins after the row that `after` names.
enum Stage {
    Calls { after: LaunchId },
    Launches { after: LaunchId },
    Schedules(ScheduleCursor),
    Rest,
    Done,
}

/// The place of a pass among the schedules that have an age of their own.
struct ScheduleCursor {
    /// The last schedule that was read.
    after: ScheduleId,
    is_last_page: bool,
    /// Those with an age of their own. The last one is next.
    todo: Vec<ScheduleId>,
    /// The last launch of the next one that was read, after its slot.
    launch: (Timestamp, LaunchId),
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            pass: None,
            batch: LAUNCHES_MAX,
            was_over_size: false,
            is_stuck: false,
        }
    }
}

impl Service for Retention {
    const STEP: &'static str = "removing old launches";

    fn first(ctx: &Ctx) -> Next {
        Next::After(interval(&ctx.settings.retention))
    }

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        // A wrong clock would remove what is not old.
        if ctx.clock_skewed.load(Ordering::Relaxed) {
            return Ok(Next::After(INTERVAL));
        }
        let begun = Instant::now();
        let Some(mut pass) = self.begin_or_continue(ctx, now).await? else {
            return Ok(Next::After(INTERVAL));
        };
        let stepped = self.step(ctx, &mut pass, now).await;
        if stepped.is_ok() && matches!(pass.stage, Stage::Done) {
            pass.report();
            return Ok(Next::After(pass.interval(&ctx.settings.retention)));
        }
        let pass = self.pass.insert(pass);
        // After an error the same page is tried again.
        stepped?;
        let pause = pass.pause(begun.elapsed(), is_late(ctx, now).await?);
        Ok(Next::After(pause))
    }

    fn after_error(_: &EngineError) -> Next {
        Next::After(ERROR_PAUSE)
    }
}

/// Do a whole pass without pauses. Return what it removed.
pub(crate) async fn remove_old(ctx: &Ctx, now: Timestamp) -> Result<Removed> {
    let mut service = Retention::default();
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
    /// Return the pass to continue, or a new one; none while another host removes what is old.
    async fn begin_or_continue(&mut self, ctx: &Ctx, now: Timestamp) -> Result<Option<Pass>> {
        if let Some(pass) = self.pass.take() {
            return Ok(Some(pass));
        }
        let mut tx = ctx.db.read().await?;
        let oldest = hosts::live(&mut tx).await?.into_iter().next();
        if oldest.is_some_and(|oldest| oldest.id != ctx.host) {
            return Ok(None);
        }
        let excess = match ctx.settings.retention.max_bytes {
            Some(max) => excess(&mut tx, max).await?,
            None => None,
        };
        drop(tx);
        self.note_size(ctx, excess.as_ref(), now).await?;
        Ok(Some(Pass::new(excess.map_or(0, |excess| excess.launches))))
    }

    /// Report once that the record is larger than it may be, and once that it is not any more.
    async fn note_size(&mut self, ctx: &Ctx, excess: Option<&Excess>, now: Timestamp) -> Result {
        if self.was_over_size == excess.is_some() {
            return Ok(());
        }
        let detail = match excess {
            Some(excess) => excess.text(),
            None => "the record is smaller than `retention.max_bytes` again".to_owned(),
        };
        tracing::warn!("{detail}");
        let mut tx = ctx.db.write().await?;
        events::record(
            &mut tx,
            now,
            EventKind::RecordSizeChanged,
            &ctx.name,
            &detail,
        )
        .await?;
        tx.commit().await?;
        self.was_over_size = excess.is_some();
        self.is_stuck = false;
        Ok(())
    }

    /// Do one page of the present stage, and set the next one.
    async fn step(&mut self, ctx: &Ctx, pass: &mut Pass, now: Timestamp) -> Result {
        match &pass.stage {
            Stage::Calls { after } => {
                let after = *after;
                self.remove_calls(ctx, pass, after, now).await
            }
            Stage::Launches { after } => {
                let after = *after;
                self.remove_launches(ctx, pass, after, now).await
            }
            Stage::Schedules(_) => self.remove_by_schedule(ctx, pass, now).await,
            Stage::Rest => {
                remove_rest(ctx, &mut pass.removed, now).await?;
                pass.stage = Stage::Done;
                Ok(())
            }
            Stage::Done => Ok(()),
        }
    }

    /// Remove what the calls of a page of launches wrote.
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
        let (begun, before) = (Instant::now(), now.minus(age));
        let mut tx = ctx.db.read().await?;
        let page = retention::called(&mut tx, after, LaunchId::first_at(before), PAGE).await?;
        drop(tx);
        let is_old = |at: Option<Timestamp>| at.is_some_and(|at| at <= before);
        let old = page.iter().filter(|launch| is_old(launch.finished_at));
        let old: Vec<LaunchId> = old.map(|launch| launch.id).collect();
        pass.count_read(begun.elapsed(), page.len(), old.len());
        let mut left = old.as_slice();
        while !left.is_empty() {
            let (batch, more) = left.split_at(self.batch.min(left.len()));
            let begun = Instant::now();
            let mut tx = ctx.db.write().await?;
            retention::remove_calls(&mut tx, batch).await?;
            tx.commit().await?;
            pass.removed.calls += batch.len();
            self.adapt_batch(begun.elapsed());
            left = more;
        }
        let last = page.last().filter(|_| page.len() as i64 == PAGE);
        pass.stage = match last {
            Some(last) => Stage::Calls { after: last.id },
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
        let begun = Instant::now();
        let mut tx = ctx.db.read().await?;
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
            // What else is in this page may be past its age, although the record is small enough now.
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
                 all that are left are unfinished, or the newest of their schedules; raise `max_bytes` or lower `keep_last`"
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
            pass.stage = match is_last_page {
                true => Stage::Rest,
                false => Stage::Schedules(next_schedules(ctx, cursor.after).await?),
            };
            return Ok(());
        };
        let (begun, (slot, after)) = (Instant::now(), cursor.launch);
        let mut tx = ctx.db.read().await?;
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
                    (ever(), FIRST)
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
        // Launches of one schedule and day change one row of what was removed.
        old.sort_unstable_by_key(|launch| (launch.schedule_id, launch.id));
        let ids: Vec<LaunchId> = old.iter().map(|launch| launch.id).collect();
        let (mut left, mut removed) = (ids.as_slice(), 0);
        while !left.is_empty() {
            let (batch, more) = left.split_at(self.batch.min(left.len()));
            let begun = Instant::now();
            let mut tx = ctx.db.write().await?;
            // Another host took over meanwhile: this one begins its next page, which reads what is left.
            if !retention::lock(&mut tx).await? {
                break;
            }
            removed += retention::remove(&mut tx, batch, now).await?;
            crash::point("before_retention_commit");
            tx.commit().await?;
            crash::point("after_retention_commit");
            self.adapt_batch(begun.elapsed());
            left = more;
        }
        pass.removed.launches += removed;
        Ok(removed)
    }

    /// Remove fewer launches in the next transaction after one that was long, and more after one that was short.
    fn adapt_batch(&mut self, took: Duration) {
        self.batch = match took > TRANSACTION_MAX {
            true => (self.batch / 2).max(1),
            false => (self.batch * 2).min(LAUNCHES_MAX),
        };
    }
}

/// By how much the record is too large.
struct Excess {
    used_bytes: u64,
    max_bytes: u64,
    /// About so many launches occupy the rest.
    launches: usize,
}

/// Return by how much the record is too large; none when it is not.
async fn excess(tx: &mut Tx, max_bytes: u64) -> Result<Option<Excess>, DbError> {
    let used_bytes = size::used_bytes(tx).await?.unsigned_abs();
    let launches = size::launch_rows(tx).await?.unsigned_abs();
    if used_bytes <= max_bytes {
        return Ok(None);
    }
    let share = u128::from(launches) * u128::from(used_bytes - max_bytes) / u128::from(used_bytes);
    let launches = usize::try_from(share).unwrap_or(usize::MAX).max(1);
    Ok(Some(Excess {
        used_bytes,
        max_bytes,
        launches,
    }))
}

impl Excess {
    fn text(&self) -> String {
        let [used, max] = [self.used_bytes, self.max_bytes].map(size_text);
        format!(
            "the record has {used}, more than the {max} of `retention.max_bytes`: the oldest launches are removed before their age"
        )
    }
}

impl ScheduleCursor {
    fn first() -> ScheduleCursor {
        ScheduleCursor {
            after: ScheduleId::FIRST,
            is_last_page: false,
            todo: Vec::new(),
            launch: (ever(), FIRST),
        }
    }
}

/// Read the next page of schedules; return those with an age of their own.
async fn next_schedules(ctx: &Ctx, after: ScheduleId) -> Result<ScheduleCursor> {
    let mut tx = ctx.db.read().await?;
    let page = retention::policies(&mut tx, after, SCHEDULES_PAGE).await?;
    let own = page.iter().filter(|row| own_age(ctx, row).is_some());
    Ok(ScheduleCursor {
        after: page.last().map_or(after, |last| last.id),
        is_last_page: (page.len() as i64) < SCHEDULES_PAGE,
        todo: own.map(|row| row.id).collect(),
        ..ScheduleCursor::first()
    })
}

fn policies_of(row: &SchedulePolicies) -> Option<Policies> {
    stored_json(Some(&row.policies))
}

/// Return the age of the schedule's own policy; none without it.
///
/// It is never shorter than what recovery and catch-up look back.
fn own_age(ctx: &Ctx, row: &SchedulePolicies) -> Option<Duration> {
    // Most schedules have no such policy, and need not be parsed.
    let policies = row.policies.contains(Policy::Retention.as_str());
    let policies = policies.then(|| policies_of(row)).flatten()?;
    let window = policies.catchup_window;
    let window = window.unwrap_or(ctx.settings.late.catchup_window);
    let least = window.max(ctx.settings.recovery.age_max);
    policies.retention.map(|age| age.max(least))
}

/// Remove what is neither a launch nor part of one.
async fn remove_rest(ctx: &Ctx, removed: &mut Removed, now: Timestamp) -> Result {
    let limits = &ctx.settings.retention;
    if let Some(age) = limits.events {
        removed.events += remove_events(ctx, now.minus(age)).await?;
    }
    if let Some(age) = limits.artifacts {
        removed.artifacts += remove_artifacts(ctx, now.minus(age), now).await?;
    }
    let Some(age) = limits.greatest_age() else {
        return Ok(());
    };
    let before = now.minus(age);
    let mut tx = ctx.db.write().await?;
    retention::remove_package_days(&mut tx, before.day()).await?;
    removed.backfills += retention::remove_backfills(&mut tx, before).await?;
    tx.commit().await?;
    removed.hosts += remove_hosts(ctx, before).await?;
    Ok(())
}

async fn remove_events(ctx: &Ctx, before: Timestamp) -> Result<u64> {
    let mut all = 0;
    loop {
        let mut tx = ctx.db.write().await?;
        let removed = retention::remove_events(&mut tx, before, BATCH).await?;
        tx.commit().await?;
        all += removed;
        if removed < BATCH.unsigned_abs() {
            return Ok(all);
        }
    }
}

/// Remove the bytes of artifacts that nothing has needed since `since`. Each transaction removes one: it may be large.
async fn remove_artifacts(ctx: &Ctx, since: Timestamp, now: Timestamp) -> Result<usize> {
    let mut tx = ctx.db.read().await?;
    let unused = retention::unused_artifacts(&mut tx, since, BATCH).await?;
    drop(tx);
    let mut removed = 0;
    for digest in unused {
        let mut tx = ctx.db.write().await?;
        removed += usize::from(retention::remove_bytes(&mut tx, &digest, now).await?);
        tx.commit().await?;
    }
    Ok(removed)
}

async fn remove_hosts(ctx: &Ctx, before: Timestamp) -> Result<usize> {
    let until = LaunchId::first_at(before.plus(CLOCK_MARGIN));
    let mut tx = ctx.db.read().await?;
    let hosts = retention::unused_hosts(&mut tx, before, until, BATCH).await?;
    drop(tx);
    if hosts.is_empty() {
        return Ok(0);
    }
    let mut tx = ctx.db.write().await?;
    retention::remove_hosts(&mut tx, &hosts).await?;
    tx.commit().await?;
    Ok(hosts.len())
}

fn ever() -> Timestamp {
    Timestamp::from_micros(i64::MIN)
}

impl Pass {
    fn new(excess: usize) -> Pass {
        Pass {
            stage: Stage::Calls { after: FIRST },
            excess,
            schedules: HashMap::new(),
            read: Duration::ZERO,
            is_behind: false,
            removed: Removed::default(),
        }
    }

    /// Return the launches of a page that are to be removed.
    async fn old(
        &mut self,
        ctx: &Ctx,
        tx: &mut Tx,
        page: &[OldLaunch],
        now: Timestamp,
    ) -> Result<Vec<OldLaunch>> {
        let limits = &ctx.settings.retention;
        let needed = Needed {
            displacing: HashSet::from_iter(retention::displacing(tx).await?),
            backfills: HashSet::from_iter(retention::running_backfills(tx).await?),
        };
        let over_size = self.excess > 0;
        let rules = Rules {
            limits,
            now,
            needed,
            over_size,
        };
        let by_schedule = matches!(self.stage, Stage::Schedules(_));
        let candidates = page.iter();
        let candidates = candidates.filter(|launch| by_schedule || rules.is_candidate(launch));
        let candidates: Vec<&OldLaunch> = candidates.collect();
        let schedules: HashSet<ScheduleId> =
            candidates.iter().map(|launch| launch.schedule_id).collect();
        self.look_up(ctx, tx, &Vec::from_iter(schedules)).await?;
        let old = candidates.into_iter().filter(|launch| {
            let rule = self.schedules.get(&launch.schedule_id);
            rule.is_some_and(|rule| rules.may_remove(launch, rule))
        });
        let old: Vec<OldLaunch> = old.cloned().collect();
        self.is_behind = over_size || old.iter().any(|launch| rules.is_behind(launch, BEHIND));
        Ok(old)
    }

    /// Look up what applies to the launches of schedules.
    async fn look_up(&mut self, ctx: &Ctx, tx: &mut Tx, schedules: &[ScheduleId]) -> Result {
        if self.schedules.len() + schedules.len() > SCHEDULES_MAX {
            self.schedules.clear();
        }
        let unknown = schedules.iter();
        let unknown = unknown.filter(|schedule| !self.schedules.contains_key(schedule));
        let unknown: Vec<ScheduleId> = unknown.copied().collect();
        for row in retention::policies_of(tx, &unknown).await? {
            let rule = ScheduleRule {
                own_age: own_age(ctx, &row),
                newest: match row.deleted_at {
                    Some(_) => None,
                    None => Some(newest(ctx, tx, &row).await?),
                },
            };
            self.schedules.insert(row.id, rule);
        }
        Ok(())
    }

    /// Count the time of a page of `rows`, by the share of the rows that stay.
    fn count_read(&mut self, took: Duration, rows: usize, removed: usize) {
        let stayed = rows.saturating_sub(removed) as f64 / rows.max(1) as f64;
        self.read += took.mul_f64(stayed);
    }

    /// Return how long to wait after a step that took `worked`.
    fn pause(&self, worked: Duration, is_late: bool) -> Duration {
        match (is_late, self.is_behind) {
            (true, _) => (worked * PAUSE_LATE).max(PAUSE_LATE_MIN),
            (false, true) => worked * PAUSE_BEHIND,
            (false, false) => worked * PAUSE,
        }
    }

    /// Return the time from the end of this pass to the next one.
    fn interval(&self, limits: &RetentionLimits) -> Duration {
        if self.excess > 0 {
            return INTERVAL_OVER_SIZE;
        }
        interval(limits).max(self.read * INTERVAL_PER_READ)
    }

    fn report(&self) {
        if self.removed == Removed::default() {
            return;
        }
        tracing::info!(
            launches = self.removed.launches,
            calls = self.removed.calls,
            events = self.removed.events,
            artifacts = self.removed.artifacts,
            "removed what is older than the ages of [retention]"
        );
    }
}

/// Return the least time from one pass to the next.
fn interval(limits: &RetentionLimits) -> Duration {
    let least = limits.least_age().into_iter().chain(limits.logs).min();
    least.map_or(INTERVAL, |age| (age / 10).min(INTERVAL))
}

/// Return from which slots on the launches of a schedule stay.
async fn newest(ctx: &Ctx, tx: &mut Tx, row: &SchedulePolicies) -> Result<NewestSlots, DbError> {
    // Another version stored the policies: it may need all launches.
    let Some(policies) = policies_of(row) else {
        return Ok(NewestSlots::default());
    };
    let keep = ctx.settings.retention.keep_last.max(1);
    let counted = policies.pause_on_failure.unwrap_or_default();
    let outcomes = keep.max(counted).max(OUTCOMES_MIN);
    retention::newest_slots(tx, row.id, keep.into(), outcomes.into()).await
}
