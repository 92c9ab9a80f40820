//! Transaction 1: the decisions about slots and the moved cursors are recorded together, before anything runs.

pub mod backfill;
pub(crate) mod batch_size;
pub(crate) mod claim_at_once;
pub(crate) mod cursor_watch;
pub(crate) mod due_batch;
pub(crate) mod next_slots;
pub(crate) mod peers;
pub(crate) mod placement;
pub(crate) mod release;
pub(crate) mod schedule_defaults;
pub(crate) mod spec;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::alive::lease_table::ClaimsInDoubt;
use crate::claim::record_quota;
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::backfill::BackfillProgress;
use crate::decide::batch_size::LAUNCHES_MIN;
use crate::decide::due_batch::{DueBatch, Rows, due_batch};
use crate::decide::placement::Turns;
use crate::decide::spec::Spec;
use crate::error::Result;
use crate::run::starter::{Claiming, Starter};
use crate::run::work::Work;
use crate::service::{Next, RETRY_PAUSE, Service};
use crate::tell::metrics::CommitOf;
use campanile_control::admin::schedule_admin::{self, ScheduleDisplacements};
use campanile_control::rules::plan::{self, PACKAGE_MISSING, Plan};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_schedule::policy::{Displacements, OverlapState, SlotEvaluator};
use campanile_store::launch::{self, NewLaunch, UnfinishedLaunch};
use campanile_store::schedules::{self, CursorMove, DueSchedule};
use campanile_store::{Tx, skipped_ranges};

/// After this time of planning, the transaction decides no further schedule: other transactions wait for it. The time of
/// statements does not count: a slow network would leave one schedule to each transaction.
const PLAN_TIME_MAX: Duration = Duration::from_millis(20);
/// How long slots that are due wait for permits, so that their launches can start at once. When it is over, the launches
/// are opened, and wait on the record. A host that starts fewer than [`LAUNCHES_MIN`] launches in this time is full.
const CAPACITY_PATIENCE: Duration = Duration::from_millis(100);
/// How long a slot is left to the host whose turn it is.
const SLOT_LEFT_MAX: Duration = Duration::from_millis(200);
/// The longest sleep.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// The longest sleep while a backfill runs: its launches may end on other hosts.
const BACKFILL_INTERVAL: Duration = Duration::from_secs(1);
/// The pause when another transaction has locked a due schedule.
const CONTENDED_PAUSE: Duration = Duration::from_millis(20);

/// What one transaction decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Recorded rows, launched and skipped.
    pub decisions: usize,
    /// Whether more slots are due than one transaction decides.
    pub more: bool,
}

/// The service that decides slots when they are due, and the slots of backfills. It starts the launches that this host
/// can run at once.
pub(crate) struct Scheduler {
    pub(crate) starter: Starter,
}

impl Service for Scheduler {
    const STEP: &'static str = "deciding slots";

    /// Decide all due slots, and do one step of each backfill.
    ///
    /// With a thousand backfills of a million slots each, slots becoming due in the meantime wait for just one step of one
    /// backfill.
    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        let idle = Next::At(now.plus(IDLE_INTERVAL));
        ctx.metrics.note_tick(now);
        if !self.decide_all(ctx).await? {
            return Ok(Next::After(RETRY_PAUSE));
        }
        let mut filled = BackfillProgress::default();
        for backfill in backfill::running(ctx).await? {
            filled.add(backfill::fill_one(ctx, &backfill, ctx.clock.now()).await?);
            let due = next_due(ctx).await?;
            if due.is_some_and(|due| due <= ctx.clock.now()) && !self.decide_all(ctx).await? {
                return Ok(Next::After(RETRY_PAUSE));
            }
        }
        if filled.launched > 0 {
            ctx.wake.dispatcher.notify_one();
        }
        let due = next_due(ctx).await?;
        Ok(next_step(due, filled, ctx.clock.now()).map_or(idle, Next::At))
    }

    async fn woken(&mut self, ctx: &Ctx) {
        ctx.wake.scheduler.notified().await;
    }
}

impl Scheduler {
    /// Decides all due slots. Returns whether this host may go on.
    async fn decide_all(&self, ctx: &SharedCtx) -> Result<bool> {
        loop {
            if ctx.begins_nothing() {
                ctx.unrecorded.set_deciding(false);
                return Ok(false);
            }
            if !self.decide_due(ctx).await? {
                return Ok(true);
            }
            self.wait_for_capacity(ctx).await;
            ctx.unrecorded.set_deciding(true);
        }
    }

    /// Decide a batch of the slots that are due, and start the launches that this host can run at once. Return whether more
    /// slots are due.
    async fn decide_due(&self, ctx: &SharedCtx) -> Result<bool> {
        let decided = decide_and_claim(ctx, ctx.clock.now()).await;
        ctx.unrecorded.set_deciding(false);
        let (decided, started) = decided?;
        if decided.decisions > started.len() {
            ctx.wake.dispatcher.notify_one();
        }
        for work in started {
            self.starter.start(ctx, work);
        }
        Ok(decided.more)
    }

    /// Wait until enough permits are free for the launches of another transaction, if that happens soon.
    ///
    /// A launch that starts in the transaction that decides it costs half as much as one that waits for another.
    async fn wait_for_capacity(&self, ctx: &Ctx) {
        let until = Instant::now() + CAPACITY_PATIENCE;
        let is_enough = || {
            !ctx.capacity.is_short.load(Ordering::Relaxed)
                && ctx.capacity.free_for_one(true) >= LAUNCHES_MIN
        };
        while !is_enough() {
            let patience = until.saturating_duration_since(Instant::now());
            if patience.is_zero() || !ctx.capacity.wait_for_release(patience).await {
                break;
            }
        }
    }
}

/// Returns the next slot of all schedules, or the end of a pause.
async fn next_due(ctx: &Ctx) -> Result<Option<Timestamp>> {
    Ok(schedules::next_due(&mut ctx.db.read().await?).await?)
}

/// Pure: when the next step is due, where `due` is the next slot and `filled` the last step of the backfills.
fn next_step(
    due: Option<Timestamp>,
    filled: BackfillProgress,
    now: Timestamp,
) -> Option<Timestamp> {
    let contended = now.plus(CONTENDED_PAUSE);
    let due = due.map(|due| if due <= now { contended } else { due });
    let backfill = match (filled.has_more, filled.is_running) {
        (true, _) => Some(now),
        (false, true) => Some(now.plus(BACKFILL_INTERVAL)),
        (false, false) => None,
    };
    due.into_iter().chain(backfill).min()
}

/// Decide the due slots of a batch of schedules.
///
/// ```text
/// read due ── plan (pure) ── cursor moves by compare-and-set ── launch rows ── commit
///                                                                               ▲
///        a crash before here changes nothing; after it, recovery sees all ──────┘
/// ```
pub(crate) async fn decide(ctx: &Ctx, now: Timestamp) -> Result<Decisions> {
    let (decisions, _) = decide_batch(ctx, now, None).await?;
    Ok(decisions)
}

/// Decide the due slots of a batch of schedules, and claim the launches that this host can run at once.
///
/// A crash after the commit leaves runs with a lease that nothing renews: they expire, and recovery finds them.
///
/// A drained host decides all the same: other hosts claim the launches.
pub(crate) async fn decide_and_claim(ctx: &Ctx, now: Timestamp) -> Result<(Decisions, Vec<Work>)> {
    let entered = ctx.claim_gate.enter().await;
    let claiming = entered.as_ref().map(|_| Claiming::begin(ctx, now));
    decide_batch(ctx, now, claiming).await
}

/// Whether a slot is left for a moment to another host, which is to execute its launch.
///
/// The other host wakes at the slot too, and the host that decides a slot claims its launch at once.
fn is_left(
    ctx: &Ctx,
    turns: &mut Turns,
    due: &DueSchedule,
    spec: &Spec,
    may_claim: bool,
    now: Timestamp,
) -> bool {
    let run_on = spec.policies.run_on.as_ref();
    let can_run = may_claim
        && ctx.settings.labels.satisfy(run_on)
        && ctx.packages.get(&due.package).is_some();
    let is_own = turns.is_own(&due.package, run_on, can_run);
    !is_own && now.since(due.next_slot) < SLOT_LEFT_MAX
}

async fn decide_batch(
    ctx: &Ctx,
    now: Timestamp,
    claiming: Option<Claiming>,
) -> Result<(Decisions, Vec<Work>)> {
    let mut tx = ctx.db.write().await?;
    let begun = Instant::now();
    let size = &ctx.batch_sizes.decisions;
    // While the transaction waited for its turn, more permits may have become free.
    let rows_max = |late| match &claiming {
        Some(_) => rows_max(ctx.capacity.free_for_one(late), size.rows()),
        None => size.rows(),
    };
    let resumed = schedule_admin::end_pauses(&mut tx, now).await?;
    let DueBatch {
        due,
        newest,
        is_backlog,
        more,
    } = due_batch(&mut tx, rows_max(false), now).await?;
    let mut has_more = resumed > 0 || more;
    let due_count = due.len();
    let due = record_quota::pause_beyond_quota(ctx, &mut tx, due, now).await?;
    if due.is_empty() {
        if resumed + due_count > 0 {
            tx.commit().await?;
        }
        let decided = Decisions {
            decisions: 0,
            more: has_more,
        };
        return Ok((decided, Vec::new()));
    }
    let revisions = due.iter().map(|due| (due.id, due.revision));
    let specs = ctx.specs.get_all(&mut tx, revisions).await?;
    let mut beside = unfinished_launches(&mut tx, &due, &specs, now).await?;
    let mut turns = peers::turns(ctx, &mut tx).await?;
    let mut plans: Vec<Plan> = Vec::with_capacity(due.len());
    let mut rows = Rows::new(rows_max(is_backlog));
    let planning = Instant::now();
    for (due, spec) in due.iter().zip(&specs) {
        let rows = rows.of(newest.contains(&due.id), due.origin);
        if !rows.has_room(planning.elapsed() < PLAN_TIME_MAX) {
            // The next transaction decides the other schedules.
            has_more = true;
            continue;
        }
        if let Some(turns) = &mut turns
            && is_left(ctx, turns, due, spec, claiming.is_some(), now)
        {
            continue;
        }
        let plan = plan_of(
            ctx,
            due,
            spec,
            beside.remove(&due.id).unwrap_or_default(),
            now,
        );
        if !rows.add(plan.launches.len()) {
            has_more = true;
            continue;
        }
        plans.push(plan);
    }
    if plans.is_empty() {
        // Other hosts have the turn of every slot. This host looks again soon. Until the transaction has ended, its locks
        // keep the schedules from the other hosts, which skip them. A dropped transaction ends later than a committed one.
        tx.commit().await?;
        return Ok((Decisions::default(), Vec::new()));
    }
    let moves: Vec<CursorMove> = plans.iter().map(|plan| plan.advance.clone()).collect();
    let won = schedules::advance(&mut tx, &moves).await?;
    let won: HashSet<ScheduleId> = won.into_iter().collect();
    plans.retain(|plan| won.contains(&plan.advance.id));
    let decisions = plans.iter_mut().flat_map(|plan| take(&mut plan.launches));
    let (extended, decisions) = extend_ranges(&mut tx, decisions.collect()).await?;
    let work = match &claiming {
        Some(claiming) => {
            let sources = due.iter().zip(&specs);
            claim_at_once::insert(ctx, &mut tx, &decisions, sources, claiming, now).await?
        }
        None => {
            launch::insert(&mut tx, &decisions).await?;
            Vec::new()
        }
    };
    let displaced = |plan: Plan| (plan.advance.id, plan.displacements, plan.cancel_grace);
    let displaced = displace(ctx, &mut tx, plans.into_iter().map(displaced), now).await?;
    let decision_count = extended.len() + decisions.len();
    size.adapt(decision_count, begun.elapsed());
    let doubt = claiming.map(|claiming| claiming.in_doubt(ctx, &work));
    crash::point("before_decide_commit");
    ctx.commit(tx, CommitOf::Decide).await?;
    doubt.into_iter().for_each(ClaimsInDoubt::settle);
    crash::point("after_decide_commit");
    ctx.metrics
        .count_decisions(extended.iter().chain(&decisions));
    let name_of = |id| {
        let (_, spec) = due.iter().zip(&specs).find(|(due, _)| due.id == id)?;
        Some(&*spec.definition.name)
    };
    ctx.launch_log
        .skipped(extended.iter().chain(&decisions), name_of);
    ctx.launch_log.displaced(&displaced, name_of);
    record_quota::count_proposed(ctx, &due, &decisions, now);
    record_quota::write(ctx, now).await;
    let is_due = |step: &CursorMove| step.next_slot.is_some_and(|next| next <= now);
    let decided = Decisions {
        decisions: decision_count,
        more: has_more || moves.iter().any(is_due),
    };
    Ok((decided, work))
}

/// Decides one schedule's slots. Pure except for the package cache.
fn plan_of(
    ctx: &Ctx,
    due: &DueSchedule,
    spec: &Spec,
    beside: OverlapState,
    now: Timestamp,
) -> Plan {
    // No launch beats one at the wrong time. The audit restores the next slot once a host can read the rule.
    let Some(rule) = &spec.rule else {
        return plan::leave_undecided(due);
    };
    let evaluator = SlotEvaluator {
        schedule: due.id,
        rule,
        policies: &spec.policies,
        defaults: &ctx.settings.late,
    };
    plan::plan(due, evaluator, beside, ctx.host, now)
}

/// Add slots that have no package to the row of the slots before them, in the same hour. Return their decisions, and those
/// that need rows of their own.
///
/// A schedule whose package stays away has at most a row an hour, and not one for each slot.
async fn extend_ranges(
    tx: &mut Tx,
    decisions: Vec<NewLaunch>,
) -> Result<(Vec<NewLaunch>, Vec<NewLaunch>)> {
    let mut previous = None;
    let mut firsts = Vec::new();
    for launch in &decisions {
        let is_first = previous.replace(launch.schedule_id) != Some(launch.schedule_id);
        if is_first && launch.reason == Some(PACKAGE_MISSING) {
            firsts.push(launch);
        }
    }
    if firsts.is_empty() {
        return Ok((Vec::new(), decisions));
    }
    let extended = skipped_ranges::extend(tx, &firsts).await?;
    let extended: HashSet<ScheduleId> = extended.into_iter().collect();
    firsts.retain(|first| extended.contains(&first.schedule_id));
    let extended: HashSet<LaunchId> = firsts.iter().map(|first| first.id).collect();
    let is_extended = |launch: &NewLaunch| extended.contains(&launch.id);
    Ok(decisions.into_iter().partition(is_extended))
}

/// Pure: how many rows to decide, at most `size`, while `free` launches can start at once. When these are too few, the
/// launches wait on the record, in transactions as large as they may be.
fn rows_max(free: usize, size: usize) -> usize {
    if free < LAUNCHES_MIN {
        size
    } else {
        free.min(size)
    }
}

/// Read the unfinished launches of the due schedules that limit how many run at once.
async fn unfinished_launches(
    tx: &mut Tx,
    due: &[DueSchedule],
    specs: &[Arc<Spec>],
    now: Timestamp,
) -> Result<HashMap<ScheduleId, OverlapState>> {
    let limited = due.iter().zip(specs);
    let limited = limited.filter(|(_, spec)| spec.policies.has_limit_at_once());
    let ids: Vec<ScheduleId> = limited.map(|(due, _)| due.id).collect();
    let mut by_schedule: HashMap<ScheduleId, Vec<UnfinishedLaunch>> = HashMap::new();
    for launch in launch::unfinished(tx, &ids).await? {
        let of_schedule = by_schedule.entry(launch.schedule_id).or_default();
        of_schedule.push(launch);
    }
    let beside = by_schedule.into_iter().map(|(id, launches)| {
        let active = plan::active(&launches, true, now);
        (id, OverlapState::new(active))
    });
    Ok(beside.collect())
}

/// Apply displacements, and set the next slots of the schedules that have any. Return these.
pub(crate) async fn displace(
    ctx: &Ctx,
    tx: &mut Tx,
    displaced: impl Iterator<Item = ScheduleDisplacements>,
    now: Timestamp,
) -> Result<Vec<ScheduleDisplacements>> {
    let has_any =
        |(_, displacements, _): &ScheduleDisplacements| *displacements != Displacements::default();
    let displaced: Vec<ScheduleDisplacements> = displaced.filter(has_any).collect();
    schedule_admin::apply_displacements(tx, &displaced, now).await?;
    let schedules = displaced.iter().map(|(schedule, ..)| *schedule).collect();
    set_next_slots(ctx, tx, &schedules, now).await?;
    Ok(displaced)
}

/// Set the next slots of schedules that have none, by their current definitions.
pub(crate) async fn set_next_slots(
    ctx: &Ctx,
    tx: &mut Tx,
    ids: &BTreeSet<ScheduleId>,
    now: Timestamp,
) -> Result {
    let ids: Vec<ScheduleId> = ids.iter().copied().collect();
    let states = schedules::states(tx, &ids).await?;
    let revisions = states.iter().map(|state| (state.id, state.revision));
    let specs = ctx.specs.get_all(tx, revisions).await?;
    let defined = states.iter().zip(&specs);
    let defined =
        defined.filter_map(|(state, spec)| Some((state, spec.rule.as_ref()?, &spec.policies)));
    let defined: Vec<_> = defined.collect();
    Ok(schedule_admin::set_next_slots(tx, &defined, now).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_decided_between_two_steps_of_a_backfill() {
        let now = Timestamp::from_micros(0);
        let after = |millis| Some(now.plus(Duration::from_millis(millis)));
        for (is_running, has_more, due, expected) in [
            (false, false, None, None),
            (false, false, after(0), after(20)),
            (false, false, after(5_000), after(5_000)),
            (true, false, None, after(1_000)),
            (true, false, after(30), after(30)),
            // The next step begins at once and decides due slots first.
            (true, true, after(5_000), after(0)),
        ] {
            let filled = BackfillProgress {
                launched: 0,
                is_running,
                has_more,
            };
            assert_eq!(next_step(due, filled, now), expected, "{filled:?} {due:?}");
        }
    }
}
