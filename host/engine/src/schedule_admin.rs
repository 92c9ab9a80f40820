//! Change schedules: for the command line, the schedules file, sidecars and packages' proposals.
//!
//! Each function checks everything first and then writes in the transaction of its caller, so that a refusal changes
//! nothing.

mod diff;
mod edit;
mod error;
mod pause;
mod undecided;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::backfill;
use super::plan::{self, PACKAGE_MISSING};
use crate::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};
use campanile_package::context;
use campanile_package::{Manifest, names};
use campanile_schedule::policy::{Displacements, Overlap, OverlapDecision, OverlapState, Policies};
use campanile_schedule::rule::{HashKey, Rule, RuleKind};
use campanile_store::events::{self, EventKind};
use campanile_store::launches::{self, NewLaunch};
use campanile_store::packages::{self, PackageRow};
use campanile_store::schedules::{self, NextSlot, Revision, Schedule, ScheduleState};
use campanile_store::{Db, DbError, Decision, Origin, Tx, changes, overlap};

pub use campanile_package::ScheduleDefinition;
pub use diff::{Changed, Diff, Difference, diff, difference_lines, differences};
pub use edit::{Skip, edit, rename, skip};
pub use error::ScheduleError;
use error::origin_is;
pub(super) use pause::end_pauses;
pub use pause::{pause, resume};
use undecided::drop_past_slots;
pub(super) use undecided::{OVERDUE, PAUSED};

/// A launch that a person or a program requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trigger<'a> {
    /// Its keys override the schedule's.
    pub context: Option<&'a Map<String, Value>>,
    /// Replaces the schedule's overlap policy for this launch.
    pub overlap: Option<Overlap>,
}

/// The launch of a trigger, and what the overlap policy decided about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Triggered {
    pub launch: LaunchId,
    pub turn: OverlapDecision,
}

/// Add a schedule; gives its id.
pub async fn add(
    tx: &mut Tx,
    wanted: &ScheduleDefinition,
    origin: Origin,
    now: Timestamp,
) -> Result<ScheduleId, ScheduleError> {
    let id = ScheduleId::new();
    let rule = check(tx, wanted, id).await?;
    if schedules::find(tx, &wanted.name).await?.is_some() {
        return Err(ScheduleError::Exists(wanted.name.clone()));
    }
    if origin == Origin::Operator {
        refuse_nothing_ahead(wanted, &rule, now)?;
    }
    let next = next_slot(tx, id, &rule, &wanted.policies, 0, now).await?;
    let definition = revision(wanted, id, 1, now);
    schedules::insert(tx, &definition, origin, next).await?;
    let detail = format!(
        "{} {} {}, {}",
        definition.rule.kind,
        definition.rule.expression,
        definition.rule.timezone,
        origin_is(origin)
    );
    events::record(tx, now, EventKind::ScheduleAdded, &wanted.name, &detail).await?;
    changes::bump(tx).await?;
    Ok(definition.schedule_id)
}

/// Replace the definition of `schedule`. A change of timing drops undecided slots of the past; others keep the cursor.
pub async fn revise(
    tx: &mut Tx,
    schedule: &Schedule,
    wanted: &ScheduleDefinition,
    origin: Origin,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let rule = check(tx, wanted, schedule.state.id).await?;
    let said: Option<Policies> = serde_json::from_str(&schedule.definition.policies).ok();
    let same_timing = schedule.definition.rule == wanted.rule
        && said.is_some_and(|said| said.same_timing(&wanted.policies));
    let cursor_at = if same_timing {
        schedule.state.cursor_at
    } else {
        if origin == Origin::Operator {
            refuse_nothing_ahead(wanted, &rule, now)?;
        }
        drop_past_slots(tx, schedule, "edited", now).await?;
        now.max(schedule.state.cursor_at)
    };
    let next = match schedule.state.enabled {
        true => {
            let launches = schedule.state.history.launches;
            let id = schedule.state.id;
            next_slot(tx, id, &rule, &wanted.policies, launches, cursor_at).await?
        }
        false => None,
    };
    let revision_number = schedule.state.revision + 1;
    let definition = revision(wanted, schedule.state.id, revision_number, now);
    if !schedules::revise(
        tx,
        &definition,
        schedule.state.enabled,
        origin,
        cursor_at,
        next,
    )
    .await?
    {
        return Err(ScheduleError::Raced(wanted.name.clone()));
    }
    let detail = format!(
        "revision {revision_number}: {} {}",
        definition.rule.kind, definition.rule.expression
    );
    events::record(tx, now, EventKind::ScheduleChanged, &wanted.name, &detail).await?;
    changes::bump(tx).await?;
    Ok(())
}

/// Remove an operator's schedule. Its launches stay in the database.
pub async fn remove(tx: &mut Tx, name: &str, now: Timestamp) -> Result<(), ScheduleError> {
    let schedule = edit::own(tx, name).await?;
    end(tx, &schedule, now).await
}

/// The reason of slots, and of launches that wait for their turn, when their schedule is removed.
const REMOVED: &str = "removed";

/// Remove a schedule of any origin.
pub(super) async fn end(
    tx: &mut Tx,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let name = &schedule.definition.name;
    drop_past_slots(tx, schedule, REMOVED, now).await?;
    overlap::skip_unstarted(tx, schedule.state.id, REMOVED, now).await?;
    backfill::end_with(tx, schedule, now).await?;
    if !schedules::remove(tx, schedule.state.id, now).await? {
        return Err(ScheduleError::Raced(name.clone()));
    }
    events::record(
        tx,
        now,
        EventKind::ScheduleRemoved,
        name,
        "its launches stay on the record",
    )
    .await?;
    changes::bump(tx).await?;
    Ok(())
}

/// Launch a schedule now, whatever its slots are.
pub async fn trigger(
    tx: &mut Tx,
    name: &str,
    trigger: Trigger<'_>,
    now: Timestamp,
) -> Result<Triggered, ScheduleError> {
    schedules::lock(tx, Some(name), None).await?;
    let schedule = find(tx, name).await?;
    if let Some(own) = trigger.context {
        context::check(own)?;
    }
    let package = known_package(tx, &schedule.definition.package).await?;
    if package.missing_since.is_some() {
        return Err(ScheduleError::PackageMissing(package.name));
    }
    let (rule, mut policies) = parse(&schedule)?;
    if let Some(overlap) = trigger.overlap {
        policies.overlap = overlap;
    }
    let context = trigger.context;
    let launch = NewLaunch {
        context: context.map(|own| Value::Object(own.clone()).to_string()),
        overlap: trigger.overlap,
        ..at_once(&schedule, &rule, Some(package), LaunchKind::Manual, now)
    };
    let triggered = launch_beside(tx, &schedule, &policies, launch, now).await?;
    changes::bump(tx).await?;
    Ok(triggered)
}

/// Decide about a launch beside those of its schedule that are not over, whose row the caller holds.
pub(super) async fn launch_beside(
    tx: &mut Tx,
    schedule: &Schedule,
    policies: &Policies,
    launch: NewLaunch,
    now: Timestamp,
) -> Result<Triggered, DbError> {
    let id = launch.id;
    let mut turn = OverlapDecision::Start;
    if launch.decision == Decision::Launched {
        let turns = launch_each_beside(tx, &schedule.state, policies, vec![launch], now).await?;
        turn = turns.into_iter().next().unwrap_or(turn);
    } else {
        launches::insert(tx, &[launch]).await?;
    }
    Ok(Triggered { launch: id, turn })
}

/// Decide about launches, each beside those before it and those of its schedule that are not over; gives the turn of
/// each. The caller holds the schedule's row.
pub(super) async fn launch_each_beside(
    tx: &mut Tx,
    state: &ScheduleState,
    policies: &Policies,
    mut launches: Vec<NewLaunch>,
    now: Timestamp,
) -> Result<Vec<OverlapDecision>, DbError> {
    let unfinished = overlap::unfinished(tx, &[state.id]).await?;
    let mut beside = OverlapState::new(plan::active(&unfinished, state.enabled, now));
    let mut turns = Vec::with_capacity(launches.len());
    for launch in &mut launches {
        let early = launch.fire_time > now;
        let turn = beside.admit(policies, launch.id, launch.kind.into(), early);
        match turn {
            OverlapDecision::Start => {}
            OverlapDecision::Queue => launch.decision = Decision::Queued,
            OverlapDecision::Skip(other) => {
                launch.decision = Decision::Skipped;
                launch.reason = Some(overlap::REASON);
                launch.overlaps = Some(other);
            }
        }
        turns.push(turn);
    }
    launches::insert(tx, &launches).await?;
    let displaced = [(&beside.displacements, policies.cancel_grace())];
    if apply_displacements(tx, &displaced, now).await? {
        changes::bump(tx).await?;
    }
    if beside.displacements != Displacements::default()
        && let Some(says) = schedules::revision(tx, state.id, state.revision).await?
        && let Ok((rule, policies)) = definition::parse(&says)
    {
        set_next_slot(tx, state.id, &rule, &policies, now).await?;
    }
    Ok(turns)
}

/// Skip, cancel and terminate the displaced launches of schedules, each with its schedule's cancel grace; return whether
/// the hosts that run them must be told.
///
/// Skipped launches do not count to `max_launches`.
pub(super) async fn apply_displacements(
    tx: &mut Tx,
    displacements: &[(&Displacements, Duration)],
    now: Timestamp,
) -> Result<bool, DbError> {
    let mut skipped = Vec::new();
    let mut cancelled = Vec::new();
    let mut terminated = Vec::new();
    for (displaced, cancel_grace) in displacements {
        let deadline = now.plus(*cancel_grace);
        skipped.extend_from_slice(&displaced.skipped);
        cancelled.extend(displaced.cancelled.iter().map(|other| (*other, deadline)));
        terminated.extend_from_slice(&displaced.terminated);
    }
    let mut counts: BTreeMap<ScheduleId, i64> = BTreeMap::new();
    for schedule in overlap::skip(tx, &skipped, now)
        .await?
        .into_iter()
        .chain(overlap::cancel(tx, &cancelled, now).await?)
        .chain(overlap::terminate(tx, &terminated, now).await?)
    {
        *counts.entry(schedule).or_default() += 1;
    }
    let counts: Vec<(ScheduleId, i64)> = counts.into_iter().collect();
    schedules::decrement_launches(tx, &counts).await?;
    Ok(!cancelled.is_empty() || !terminated.is_empty())
}

/// Set the next slot of a schedule that has none, if there is one: its last launch may have ended, or a launch that
/// counted may have been skipped.
async fn set_next_slot(
    tx: &mut Tx,
    id: ScheduleId,
    rule: &Rule,
    policies: &Policies,
    now: Timestamp,
) -> Result<(), DbError> {
    let state = schedules::state(tx, id).await?;
    let Some(state) = state.filter(|state| state.next_slot.is_none()) else {
        return Ok(());
    };
    let launches = state.history.launches;
    let next_slot = next_slot(tx, id, rule, policies, launches, state.cursor_at).await?;
    if next_slot.is_some() {
        // A schedule that was paused, removed or decided meanwhile keeps its state.
        let cursor_at = state.cursor_at;
        let slot = NextSlot {
            id,
            cursor_at,
            next_slot,
            now,
        };
        schedules::set_next(tx, &[slot]).await?;
    }
    Ok(())
}

/// The launch of a schedule besides its slots, or the record that there was no package to launch.
pub(super) fn at_once(
    schedule: &Schedule,
    rule: &Rule,
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
        id: LaunchId::of(schedule.state.id, now, kind),
        schedule_id: schedule.state.id,
        schedule_revision: schedule.state.revision,
        kind,
        scheduled_time: now,
        scheduled_local: rule.local_text(now),
        last_scheduled_time: now,
        slot_count: 1,
        decision,
        reason,
        overlaps: None,
        package: schedule.definition.package.clone(),
        digest,
        context: None,
        overlap: None,
        backfill_id: None,
        interval_start: schedule.state.cursor_at.min(now),
        fire_time: now,
        decided_by: None,
        claimed_at: now,
    }
}

/// Return the next slot of a schedule that is decided up to `cursor_at`.
///
/// A rule that counts from ends begins at the next whole second. It has no next slot while its launch is not over, and
/// may be due at once after an edit or a resume.
pub(super) async fn next_slot(
    tx: &mut Tx,
    id: ScheduleId,
    rule: &Rule,
    policies: &Policies,
    launches: i64,
    cursor_at: Timestamp,
) -> Result<Option<Timestamp>, DbError> {
    let newest = match rule.delay_after_completion() {
        Some(_) => launches::newest_finished_at(tx, &[id]).await?.remove(&id),
        None => None,
    };
    Ok(next_slot_after(rule, policies, launches, cursor_at, newest))
}

/// Pure: the next slot of a schedule, given when the launch of its newest slot finished, if it has any.
pub(super) fn next_slot_after(
    rule: &Rule,
    policies: &Policies,
    launches: i64,
    cursor_at: Timestamp,
    newest_finished_at: Option<Option<Timestamp>>,
) -> Option<Timestamp> {
    const SECOND_US: i64 = 1_000_000;
    let made = u64::try_from(launches).unwrap_or_default();
    let Some(delay) = rule.delay_after_completion() else {
        return policies.next_slot(rule, cursor_at, made);
    };
    let soonest = Timestamp::from_micros(cursor_at.micros() + 1);
    let slot = match newest_finished_at {
        None => {
            let second = cursor_at.micros().div_euclid(SECOND_US) + 1;
            Some(Timestamp::from_micros(second * SECOND_US))
        }
        Some(finished_at) => finished_at.map(|at| at.plus(delay).max(soonest)),
    };
    slot.and_then(|slot| policies.allowed_from(slot, made))
}

/// Run `change` in a write transaction, again when another host changed the same schedule at the same moment.
pub async fn change<T>(
    db: &Db,
    change: impl AsyncFn(&mut Tx) -> Result<T, ScheduleError>,
) -> Result<T, ScheduleError> {
    campanile_store::retry(ScheduleError::is_collision, || async {
        let mut tx = db.write().await?;
        let done = change(&mut tx).await?;
        tx.commit().await?;
        Ok(done)
    })
    .await
}

/// The schedule of that name, or the nearest name.
pub async fn find(tx: &mut Tx, name: &str) -> Result<Schedule, ScheduleError> {
    if let Some(schedule) = schedules::find(tx, name).await? {
        return Ok(schedule);
    }
    let all = schedules::list(tx, None, None).await?;
    let names = all.iter().map(|schedule| schedule.definition.name.as_str());
    Err(ScheduleError::Unknown {
        name: name.to_owned(),
        nearest: campanile_model::text::nearest(name, names).map(str::to_owned),
    })
}

/// The package of that name, or the nearest name.
pub async fn known_package(tx: &mut Tx, name: &str) -> Result<PackageRow, ScheduleError> {
    match packages::find(tx, name).await? {
        Some(package) if package.digest.is_some() => return Ok(package),
        Some(PackageRow {
            rejection: Some(why),
            ..
        }) => {
            return Err(ScheduleError::PackageRejected {
                name: name.to_owned(),
                why,
            });
        }
        _ => {}
    }
    let all = packages::list(tx, None).await?;
    let names = all.iter().map(|package| package.name.as_str());
    Err(ScheduleError::UnknownPackage {
        name: name.to_owned(),
        nearest: campanile_model::text::nearest(name, names)
            .filter(|nearest| *nearest != name)
            .map(str::to_owned),
    })
}

async fn check(
    tx: &mut Tx,
    wanted: &ScheduleDefinition,
    id: ScheduleId,
) -> Result<Rule, ScheduleError> {
    if names::schedule_name_fault(&wanted.name).is_some() {
        return Err(ScheduleError::Name(wanted.name.clone()));
    }
    context::check(&wanted.context)?;
    let rule = Rule::parse(&wanted.rule, HashKey::of(id))?;
    wanted.policies.check(&rule)?;
    let package = known_package(tx, &wanted.package).await?;
    if let Some(task) = &wanted.task {
        let manifest = Manifest::from_stored(&package.name, &package.manifest);
        if manifest.task(task).is_none() {
            return Err(ScheduleError::UnknownTask {
                package: package.name,
                task: task.clone(),
                nearest: manifest.nearest_task(task).map(str::to_owned),
                known: manifest
                    .tasks
                    .iter()
                    .map(|task| format!("`{}`", task.id))
                    .collect(),
            });
        }
    }
    Ok(rule)
}

/// Refuse a schedule that would never ring. What a file orders may be over: files are not edited for that.
fn refuse_nothing_ahead(
    wanted: &ScheduleDefinition,
    rule: &Rule,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let policies = &wanted.policies;
    let rings = match rule.delay_after_completion() {
        Some(_) => policies.allowed_from(now, 0).is_some(),
        None => rule.at_host_start() || policies.next_slot(rule, now, 0).is_some(),
    };
    if rings {
        return Ok(());
    }
    if let Some(end) = policies.end_at.filter(|end| *end <= now) {
        return Err(ScheduleError::Past(end));
    }
    match wanted.rule.kind {
        RuleKind::At => Err(ScheduleError::Past(
            wanted.rule.expression.parse().unwrap_or(now),
        )),
        _ => Err(ScheduleError::NothingAhead),
    }
}

pub(super) fn parse(schedule: &Schedule) -> Result<(Rule, Policies), ScheduleError> {
    definition::parse(&schedule.definition)
        .map_err(|why| ScheduleError::unreadable(&schedule.definition, why))
}

fn revision(
    wanted: &ScheduleDefinition,
    id: ScheduleId,
    revision: i64,
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
        context: Value::Object(wanted.context.clone()).to_string(),
        since,
    }
}
