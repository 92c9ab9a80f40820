//! Change schedules: for the command line, the schedules file, sidecars and packages' proposals.
//!
//! Each function checks everything first and then writes in the transaction of its caller, so that a refusal changes
//! nothing.

mod add;
mod args;
mod cursor;
mod diff;
mod edit;
mod error;
mod holder;
mod pause;
mod reconcile;
mod restored;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::rules::plan::{self, Definer, PACKAGE_MISSING, launch_of_slot};
use crate::schedules::definition;
use crate::schedules::program_args::stored;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{BackfillId, LaunchId, LaunchKind, ScheduleId};
use campanile_model::json_text::{JsonObject, text_of};
use campanile_model::text::shell;
use campanile_model::trace_context::TraceContext;
use campanile_package::context;
use campanile_schedule::policy::{Displacements, Overlap, OverlapDecision, OverlapState, Policies};
use campanile_schedule::rule::Rule;
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::launch::{self, NewLaunch};
use campanile_store::packages::{self, PackageRow};
use campanile_store::schedules::{self, History, NextSlot, Revision, Schedule, ScheduleState};
use campanile_store::{BackfillStatus, Db, DbError, Decision, Origin, Tx, backfills, changes};

pub(crate) use add::holders;
use add::{KnownPackages, check, refuse_nothing_ahead};
pub use add::{add, add_all, check_new};
use args::{check_args, check_launch_args, form_of};
pub use campanile_package::ScheduleDefinition;
pub use cursor::{CursorReset, CursorResets, RefusedReset, reset_cursor, reset_cursors};
pub use diff::{Changed, Diff, Difference, difference_lines, differences};
pub use edit::{Skip, check_edit, edit, rename, skip};
pub(crate) use error::did_you_mean;
pub use error::{Result, ScheduleError, no_task};
pub use holder::Holder;
use pause::drop_past_slots;
pub use pause::{OVERDUE, PAUSED, end_pauses, pause, pause_text, resume};
pub use reconcile::{Reconciled, Refusal, compare, reconcile};
pub use restored::{RESTORED, SkippedMissed, skip_missed};

/// The most names among which the nearest to an unknown one is looked for.
const SIMILAR_MAX: i64 = 10_000;

/// A launch that a person or a program requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trigger<'a> {
    /// Its keys override the schedule's.
    pub context: Option<&'a JsonObject>,
    /// The arguments of a program, each a template. They replace the schedule's.
    pub args: Option<&'a [String]>,
    /// Replaces the schedule's overlap policy for this launch.
    pub overlap: Option<Overlap>,
    /// The span of the caller. Without it, the launch begins a trace of its own.
    pub caller_traceparent: Option<TraceContext>,
}

/// The launch of a trigger, and what the overlap policy decided about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Triggered {
    pub launch: LaunchId,
    pub decision: OverlapDecision,
}

/// Replace the definition of `schedule`. A change of timing drops undecided slots of the past; others keep the cursor.
pub async fn revise(
    tx: &mut Tx,
    schedule: &Schedule,
    wanted: &ScheduleDefinition,
    origin: Origin,
    now: Timestamp,
) -> Result {
    let Schedule { state, definition } = schedule;
    let rule = check(tx, &mut KnownPackages::default(), wanted, state.id).await?;
    let cursor_at = if has_same_timing(definition, wanted) {
        state.cursor_at
    } else {
        if origin == Origin::Operator {
            refuse_nothing_ahead(wanted, &rule, now)?;
        }
        drop_past_slots(tx, schedule, "edited", now).await?;
        now.max(state.cursor_at)
    };
    let next_slot = if state.enabled {
        next_slot(tx, state, &rule, &wanted.policies, cursor_at).await?
    } else {
        None
    };
    let number = state.revision + 1;
    let revised = ScheduleState {
        origin,
        cursor_at,
        next_slot,
        ..state.clone()
    };
    let defaults = definition::recorded_defaults(tx).await?;
    let definition = revision(wanted, (state.id, number), &defaults, now);
    store_revision(tx, &definition, &revised).await?;
    let (kind, expression) = (wanted.rule.kind, &wanted.rule.expression);
    let detail = format!("revision {number}: {kind} {expression}");
    changes::record(tx, now, EventKind::ScheduleChanged, &wanted.name, &detail).await?;
    if state.origin == Origin::Package && origin != Origin::Package {
        let package = wanted.package.clone();
        let detail = replaced_text(schedule, &Holder { origin, package });
        events::record(tx, now, EventKind::ProposalReplaced, &wanted.name, &detail).await?;
    }
    Ok(())
}

/// Whether a definition has the slots of a revision.
fn has_same_timing(before: &Revision, wanted: &ScheduleDefinition) -> bool {
    let policies = definition::policies(before).ok();
    before.rule == wanted.rule
        && policies.is_some_and(|before| before.same_timing(&wanted.policies))
}

/// Store the next revision of a schedule, with the cursor and the next slot in `state`.
async fn store_revision(tx: &mut Tx, revision: &Revision, state: &ScheduleState) -> Result {
    let (enabled, origin) = (state.enabled, state.origin);
    let (cursor_at, next) = (state.cursor_at, state.next_slot);
    if schedules::revise(tx, revision, enabled, origin, cursor_at, next).await? {
        Ok(())
    } else {
        Err(ScheduleError::Raced(revision.name.clone()))
    }
}

/// Remove an operator's schedule. Its launches stay in the database. The error says how a schedule of another origin ends.
pub async fn remove(tx: &mut Tx, name: &str, now: Timestamp) -> Result {
    let schedule = lock(tx, name).await?;
    let package = &schedule.definition.package;
    let how = match schedule.state.origin {
        Origin::Operator => return end(tx, &schedule, now).await,
        Origin::File => "take it out of that file".to_owned(),
        Origin::Sidecar | Origin::Package => match packages::find(tx, package).await? {
            Some(row) if row.missing_since.is_none() => match schedule.state.origin {
                Origin::Sidecar => format!("take it out of {package}.toml"),
                _ => format!(
                    "write `schedules = []` at the top of {package}.toml to end all that it proposes, or `[[schedules]]` with those to keep"
                ),
            },
            // No host reads its sidecar.
            _ => format!(
                "no live host has the file of `{package}`, so `campanile package remove {package}` ends its schedules"
            ),
        },
    };
    let is = Holder::of(&schedule).text();
    Err(ScheduleError::Refused(format!("`{name}` is {is}; {how}")))
}

/// The reason of slots, and of launches that wait for their turn, when their schedule is removed.
const REMOVED: &str = "removed";

/// Remove a schedule of any origin.
pub async fn end(tx: &mut Tx, schedule: &Schedule, now: Timestamp) -> Result {
    stop(tx, schedule, now).await?;
    let (kind, name) = (EventKind::ScheduleRemoved, &schedule.definition.name);
    let detail = "its launches stay on the record";
    Ok(changes::record(tx, now, kind, name, detail).await?)
}

/// Ends a proposal whose name is taken by another package's schedule. That's a different job, so it inherits none of the proposal's
/// slots, counts or results.
async fn replace(tx: &mut Tx, proposal: &Schedule, by: &Holder, now: Timestamp) -> Result {
    stop(tx, proposal, now).await?;
    let (kind, name) = (EventKind::ProposalReplaced, &proposal.definition.name);
    Ok(changes::record(tx, now, kind, name, &replaced_text(proposal, by)).await?)
}

/// Says whose proposal is no longer used, and why.
fn replaced_text(proposal: &Schedule, by: &Holder) -> String {
    let Revision { name, package, .. } = &proposal.definition;
    format!(
        "the proposal of the package `{package}` isn't used: `{name}` is {}",
        by.text()
    )
}

/// Ends a schedule: none of its slots are decided any more, and its name is free.
async fn stop(tx: &mut Tx, schedule: &Schedule, now: Timestamp) -> Result {
    let (name, id) = (&schedule.definition.name, schedule.state.id);
    drop_past_slots(tx, schedule, REMOVED, now).await?;
    launch::withdraw(tx, id, REMOVED, now).await?;
    for backfill in backfills::running(tx).await? {
        if backfill.schedule_id == id {
            let detail = format!("{}, as its schedule was removed", backfill.id);
            cancel_backfill(tx, backfill.id, name, &detail, now).await?;
        }
    }
    if !schedules::remove(tx, id, now).await? {
        return Err(ScheduleError::Raced(name.clone()));
    }
    Ok(())
}

/// Cancel a backfill of the schedule `name`.
pub(crate) async fn cancel_backfill(
    tx: &mut Tx,
    id: BackfillId,
    name: &str,
    detail: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    backfills::finish(tx, id, BackfillStatus::Cancelled, now).await?;
    events::record(tx, now, EventKind::BackfillCancelled, name, detail).await
}

/// Launch a schedule now, whatever its slots are.
pub async fn trigger(
    tx: &mut Tx,
    name: &str,
    trigger: Trigger<'_>,
    now: Timestamp,
) -> Result<Triggered> {
    let schedule = lock(tx, name).await?;
    if let Some(own) = trigger.context {
        context::check(own)?;
    }
    let package = present_package(tx, &schedule).await?;
    check_launch_args(tx, &schedule, &package, &trigger).await?;
    let (rule, mut policies) = parse(&schedule)?;
    if let Some(overlap) = trigger.overlap {
        policies.overlap = overlap;
    }
    let context = trigger.context;
    let launch = NewLaunch {
        context: context.map(text_of),
        args: trigger.args.map(stored),
        overlap: trigger.overlap,
        ..launch_at_once(
            &schedule,
            (&rule, &policies),
            Some(package),
            LaunchKind::Manual,
            now,
        )
    };
    let triggered = insert_requested(tx, &schedule.state, &policies, launch, now).await?;
    if let Some(caller) = trigger.caller_traceparent {
        launch::set_caller_traceparent(tx, triggered.launch, caller).await?;
    }
    let detail = trigger_detail(&trigger, &triggered);
    let kind = EventKind::LaunchTriggered;
    let event = NewEvent::of_launch(kind, name, triggered.launch, detail);
    changes::record_event(tx, now, event).await?;
    Ok(triggered)
}

/// Say what a trigger led to, and what it gave the launch of its own.
fn trigger_detail(trigger: &Trigger<'_>, triggered: &Triggered) -> String {
    let own = [
        ("a context", trigger.context.is_some()),
        ("arguments", trigger.args.is_some()),
        ("an overlap policy", trigger.overlap.is_some()),
    ];
    let own = Vec::from_iter(
        own.iter()
            .filter(|(_, given)| *given)
            .map(|(what, _)| *what),
    );
    let detail = format!("the launch {}", triggered.launch);
    match own[..] {
        [] => detail,
        _ => format!("{detail}, with {} of its own", own.join(" and ")),
    }
}

/// Returns the package of `schedule`, whose file a live host has.
pub(crate) async fn present_package(tx: &mut Tx, schedule: &Schedule) -> Result<PackageRow> {
    let package = known_package(tx, &schedule.definition.package).await?;
    match package.missing_since {
        Some(_) => Err(ScheduleError::PackageMissing(package.name)),
        None => Ok(package),
    }
}

/// Insert a launch that an operator requested, by the overlap policy. The caller has locked the schedule's row.
pub(crate) async fn insert_requested(
    tx: &mut Tx,
    state: &ScheduleState,
    policies: &Policies,
    launch: NewLaunch,
    now: Timestamp,
) -> Result<Triggered> {
    let id = launch.id;
    let decisions = decide_overlaps(tx, state, policies, vec![launch], now).await?;
    Ok(Triggered {
        launch: id,
        decision: decisions.first().copied().unwrap_or(OverlapDecision::Start),
    })
}

/// Insert launches; return what the overlap policy decides about each, after those before it and the unfinished ones
/// of its schedule. The caller has locked the schedule's row.
pub async fn decide_overlaps(
    tx: &mut Tx,
    state: &ScheduleState,
    policies: &Policies,
    mut launches: Vec<NewLaunch>,
    now: Timestamp,
) -> Result<Vec<OverlapDecision>, DbError> {
    let unfinished = launch::unfinished(tx, &[state.id]).await?;
    let mut overlaps = OverlapState::new(plan::active(&unfinished, state.enabled, now));
    let mut decisions = Vec::with_capacity(launches.len());
    let is_launched = |launch: &&mut NewLaunch| launch.decision == Decision::Launched;
    for launch in launches.iter_mut().filter(is_launched) {
        let is_early = launch.fire_time > now;
        let decision = overlaps.admit(policies, launch.id, launch.kind.into(), is_early);
        (launch.decision, launch.reason, launch.overlaps) = plan::recorded(decision);
        decisions.push(decision);
    }
    launch::insert(tx, &launches).await?;
    if overlaps.displacements == Displacements::default() {
        return Ok(decisions);
    }
    let displaced = (state.id, overlaps.displacements, policies.cancel_grace());
    apply_displacements(tx, &[displaced], now).await?;
    set_next_slot(tx, state.id, now).await?;
    Ok(decisions)
}

/// Set the next slot of a schedule that has none, after a launch of it ended or was skipped.
pub(crate) async fn set_next_slot(
    tx: &mut Tx,
    schedule: ScheduleId,
    now: Timestamp,
) -> Result<(), DbError> {
    if let Some(state) = schedules::state(tx, schedule).await?
        && let Some(revision) = schedules::revision(tx, schedule, state.revision).await?
        && let Ok((rule, policies)) = definition::parse(&revision)
    {
        set_next_slots(tx, &[(&state, &rule, &policies)], now).await?;
    }
    Ok(())
}

/// The displaced launches of a schedule, and how long they may take to end.
pub type ScheduleDisplacements = (ScheduleId, Displacements, Duration);

/// Skip, cancel and terminate displaced launches.
///
/// Skipped launches do not count to `max_launches`. The hosts that execute the others are woken.
pub async fn apply_displacements(
    tx: &mut Tx,
    displaced: &[ScheduleDisplacements],
    now: Timestamp,
) -> Result<(), DbError> {
    let (mut skipped, mut cancelled, mut terminated) = (Vec::new(), Vec::new(), Vec::new());
    let mut launches: Vec<LaunchId> = Vec::new();
    for (_, others, cancel_grace) in displaced {
        let deadline = now.plus(*cancel_grace);
        skipped.extend(&others.skipped);
        cancelled.extend(others.cancelled.iter().map(|other| (*other, deadline)));
        terminated.extend(&others.terminated);
        let all = [&others.skipped, &others.cancelled, &others.terminated];
        launches.extend(all.into_iter().flatten().map(|other| other.launch));
    }
    launches.sort_unstable();
    launch::lock_unfinished(tx, &launches).await?;
    let mut ended = launch::skip(tx, &skipped, now).await?;
    ended.extend(launch::cancel(tx, &cancelled, now).await?);
    ended.extend(launch::terminate(tx, &terminated, now).await?);
    let mut counts: BTreeMap<ScheduleId, i64> = BTreeMap::new();
    for schedule in ended {
        *counts.entry(schedule).or_default() += 1;
    }
    let counts: Vec<(ScheduleId, i64)> = counts.into_iter().collect();
    schedules::decrement_launches(tx, &counts).await?;
    if !cancelled.is_empty() || !terminated.is_empty() {
        changes::bump(tx).await?;
    }
    Ok(())
}

/// Set the next slots of schedules that have none: their last launch has ended, or a launch that counted was skipped.
pub async fn set_next_slots(
    tx: &mut Tx,
    schedules: &[(&ScheduleState, &Rule, &Policies)],
    now: Timestamp,
) -> Result<(), DbError> {
    let without_slot = schedules.iter();
    let without_slot = without_slot.filter(|(state, ..)| state.next_slot.is_none());
    let ids: Vec<ScheduleId> = without_slot.clone().map(|(state, ..)| state.id).collect();
    let finished = launch::newest_finished_at(tx, &ids).await?;
    let finished: BTreeMap<ScheduleId, Option<Timestamp>> = finished.into_iter().collect();
    let slots = without_slot.filter_map(|(state, rule, policies)| {
        let (id, cursor_at) = (state.id, state.cursor_at);
        let newest = finished.get(&id).copied();
        let next_slot = next_slot_after(rule, policies, &state.history, cursor_at, newest);
        // A schedule that was paused, removed or decided meanwhile keeps its state.
        next_slot.is_some().then_some(NextSlot {
            id,
            cursor_at,
            next_slot,
            now,
        })
    });
    schedules::set_next(tx, &slots.collect::<Vec<_>>()).await?;
    Ok(())
}

/// Returns a launch of `schedule` now instead of at a slot, or a skipped one when there is no package to launch.
pub fn launch_at_once(
    schedule: &Schedule,
    (rule, policies): (&Rule, &Policies),
    package: Option<PackageRow>,
    kind: LaunchKind,
    now: Timestamp,
) -> NewLaunch {
    let package = package.filter(|package| package.missing_since.is_none());
    let digest = package.and_then(|package| package.digest);
    let (decision, reason) = match digest {
        Some(_) => (Decision::Launched, None),
        None => (Decision::Skipped, Some(PACKAGE_MISSING)),
    };
    NewLaunch {
        decision,
        reason,
        digest,
        interval_start: schedule.state.cursor_at.min(now),
        ..launch_of_slot(
            &Definer::of(&schedule.definition, policies),
            rule,
            kind,
            now,
            now,
        )
    }
}

/// Returns the next slot of a schedule decided up to `cursor_at`.
///
/// A rule that counts from ends begins at the next whole second. It has no next slot while its launch is not over, and
/// may be due at once after an edit or a resume.
pub async fn next_slot(
    tx: &mut Tx,
    ScheduleState { id, history, .. }: &ScheduleState,
    rule: &Rule,
    policies: &Policies,
    cursor_at: Timestamp,
) -> Result<Option<Timestamp>, DbError> {
    let newest = match rule.delay_after_completion() {
        Some(_) => launch::newest_finished_at(tx, &[*id]).await?.pop(),
        None => None,
    };
    let newest = newest.map(|(_, finished_at)| finished_at);
    Ok(next_slot_after(rule, policies, history, cursor_at, newest))
}

/// Pure: the next slot of a schedule, given when the launch of its newest slot finished, if it has any.
pub(crate) fn next_slot_after(
    rule: &Rule,
    policies: &Policies,
    history: &History,
    cursor_at: Timestamp,
    newest_finished_at: Option<Option<Timestamp>>,
) -> Option<Timestamp> {
    const SECOND_US: i64 = 1_000_000;
    let made = history.launches_made();
    let Some(delay) = rule.delay_after_completion() else {
        return policies.next_slot(rule, cursor_at, made);
    };
    let slot = match newest_finished_at {
        None => {
            let second = cursor_at.micros().div_euclid(SECOND_US) + 1;
            Timestamp::from_micros(second * SECOND_US)
        }
        // The slot is always after the cursor.
        Some(finished_at) => {
            let soonest = Timestamp::from_micros(cursor_at.micros() + 1);
            finished_at?.plus(delay).max(soonest)
        }
    };
    policies.allowed_from(slot, made)
}

/// Run `change` in a write transaction, again when another host changed the same schedule at the same moment.
pub async fn change<T>(db: &Db, change: impl AsyncFn(&mut Tx) -> Result<T>) -> Result<T> {
    campanile_store::retry(ScheduleError::is_collision, || async {
        let mut tx = db.write().await?;
        let done = change(&mut tx).await?;
        tx.commit().await?;
        Ok(done)
    })
    .await
}

/// Lock and return the schedule of that name.
pub async fn lock(tx: &mut Tx, name: &str) -> Result<Schedule> {
    schedules::lock_named(tx, &[name]).await?;
    find(tx, name).await
}

/// Returns the schedule of that name; the error suggests the nearest name.
pub async fn find(tx: &mut Tx, name: &str) -> Result<Schedule> {
    if let Some(schedule) = schedules::find(tx, name).await? {
        return Ok(schedule);
    }
    let names = schedules::names(tx, SIMILAR_MAX).await?;
    let mut hint = did_you_mean(name, names.iter().map(String::as_str));
    if hint.is_empty() {
        hint = "; `campanile schedule list` shows those there are".to_owned();
    }
    let message = format!("there is no schedule named `{name}`{hint}");
    Err(ScheduleError::NotFound(message))
}

/// Returns the package of that name; the error suggests the nearest name.
pub async fn known_package(tx: &mut Tx, name: &str) -> Result<PackageRow> {
    match packages::find(tx, name).await? {
        Some(package) if package.digest.is_some() => return Ok(package),
        Some(PackageRow {
            name,
            rejection: Some(why),
            ..
        }) => return Err(ScheduleError::PackageRejected { name, why }),
        Some(PackageRow {
            name,
            pending_digest: Some(pending),
            ..
        }) => {
            return Err(ScheduleError::Refused(format!(
                "no version of the package `{name}` is active yet; `campanile package approve {}` activates the pending version {}",
                shell(&name),
                pending.short()
            )));
        }
        _ => {}
    }
    let hint = nearest_package(tx, name).await?;
    Err(ScheduleError::UnknownPackage(name.to_owned(), hint))
}

/// Returns the end of the message that no package has this name: it suggests the nearest name.
pub(crate) async fn nearest_package(tx: &mut Tx, name: &str) -> Result<String, DbError> {
    let names = packages::names(tx, SIMILAR_MAX).await?;
    Ok(did_you_mean(name, names.iter().map(String::as_str)))
}

pub fn parse(schedule: &Schedule) -> Result<(Rule, Policies)> {
    definition::parse(&schedule.definition)
        .map_err(|why| ScheduleError::unreadable(&schedule.definition, why))
}

/// Returns the definition in a revision, or the error that this version cannot read it.
pub(crate) fn read(revision: &Revision) -> Result<ScheduleDefinition> {
    definition::read(revision).map_err(|why| ScheduleError::unreadable(revision, why))
}

fn revision(
    wanted: &ScheduleDefinition,
    (id, revision): (ScheduleId, i64),
    defaults: &Policies,
    since: Timestamp,
) -> Revision {
    Revision {
        schedule_id: id,
        revision,
        name: wanted.name.clone(),
        package: wanted.package.clone(),
        task: wanted.task.clone(),
        rule: wanted.rule.clone(),
        policies: json!(wanted.policies).to_string(),
        defaults: json!(wanted.policies.unset_of(defaults)).to_string(),
        args: wanted.args.as_deref().map(stored),
        context: text_of(&wanted.context),
        since,
    }
}
