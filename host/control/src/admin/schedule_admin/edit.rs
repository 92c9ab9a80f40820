//! Edit and rename an operator's schedule, and skip slots of any schedule.

use std::time::Duration;

use serde_json::json;

use super::add::check_name;
use super::diff::{difference_lines, differences};
use super::holder::Holder;
use super::{
    KnownPackages, Result, ScheduleDefinition, ScheduleError, check, has_same_timing, lock, parse,
    read, refuse_nothing_ahead, replace, revise, store_revision,
};
use crate::rules::plan::decidable;
use campanile_model::clock::Timestamp;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::Rule;
use campanile_store::events::{self, EventKind};
use campanile_store::schedules::{self, Revision, Schedule};
use campanile_store::{Origin, Tx, changes};

/// How many slots of one schedule may be skipped ahead: each is compared whenever slots are decided.
const SKIPS_MAX: usize = 1_000;

/// A slot to skip, or to restore.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skip<'a> {
    pub slot: Timestamp,
    pub by: &'a str,
    /// Restore it.
    pub undo: bool,
}

/// Change the definition of an operator's schedule; return its revision, which is new if the definition changed.
///
/// With `revision`, the edit is refused unless that is the current revision. See [`revise`] for the cursor.
pub async fn edit(
    tx: &mut Tx,
    name: &str,
    revision: Option<i64>,
    change: impl Fn(&mut ScheduleDefinition),
    now: Timestamp,
) -> Result<i64> {
    let schedule = own(tx, name).await?;
    let current = read(&schedule.definition)?;
    if let Some(revision) = revision.filter(|revision| *revision != schedule.state.revision) {
        return Err(outdated(tx, &schedule, &current, revision).await?);
    }
    let mut wanted = current.clone();
    change(&mut wanted);
    if wanted == current {
        return Ok(schedule.state.revision);
    }
    revise(tx, &schedule, &wanted, Origin::Operator, now).await?;
    Ok(schedule.state.revision + 1)
}

/// Check a definition that an operator's schedule is to have, without changing anything. Return its rule.
pub async fn check_edit(
    tx: &mut Tx,
    schedule: &Schedule,
    wanted: &ScheduleDefinition,
    now: Timestamp,
) -> Result<Rule> {
    refuse_other_origin(schedule)?;
    let rule = check(tx, &mut KnownPackages::default(), wanted, schedule.state.id).await?;
    if !has_same_timing(&schedule.definition, wanted) {
        refuse_nothing_ahead(wanted, &rule, now)?;
    }
    Ok(rule)
}

/// Rename an operator's schedule; return its new revision. It keeps its id, and so its hashed slots and its launches.
pub async fn rename(tx: &mut Tx, old: &str, new: &str, now: Timestamp) -> Result<i64> {
    schedules::lock_named(tx, &[old, new]).await?;
    let schedule = own(tx, old).await?;
    check_name(new, &schedule.definition.package)?;
    if let Some(other) = schedules::find(tx, new).await? {
        let (holder, wanted) = (Holder::of(&other), read(&schedule.definition)?);
        if other.state.id == schedule.state.id || !holder.yields_to(&wanted, Origin::Operator) {
            return Err(ScheduleError::exists(new, holder));
        }
        replace(tx, &other, &Holder::of(&schedule), now).await?;
    }
    let state = &schedule.state;
    let definition = Revision {
        revision: state.revision + 1,
        name: new.to_owned(),
        since: now,
        ..schedule.definition.clone()
    };
    store_revision(tx, &definition, state).await?;
    let revision = definition.revision;
    let was = format!("is called `{new}` from revision {revision} on");
    events::record(tx, now, EventKind::ScheduleRenamed, old, &was).await?;
    let is = format!("was called `{old}` before revision {revision}");
    changes::record(tx, now, EventKind::ScheduleRenamed, new, &is).await?;
    Ok(revision)
}

/// Skip one slot of a schedule, or restore it. A host records the skipped slot when its time comes.
pub async fn skip(tx: &mut Tx, name: &str, skip: Skip<'_>, now: Timestamp) -> Result {
    let Skip { slot, by, undo } = skip;
    let schedule = lock(tx, name).await?;
    let state = &schedule.state;
    // Decided slots have their rows.
    let mut skips = state.history.skipped_slots();
    skips.retain(|slot| *slot > state.cursor_at);
    let name = || schedule.definition.name.clone();
    if slot <= now {
        return Err(ScheduleError::SlotPast(slot));
    }
    let (kind, done) = match undo {
        true if !skips.remove(&slot) => return Err(ScheduleError::NotSkipped(name(), slot)),
        true => (EventKind::SlotRestored, "was restored"),
        false => {
            let (rule, policies) = parse(&schedule)?;
            refuse_no_slot(&schedule, &rule, &policies, slot, now)?;
            if !skips.insert(slot) {
                return Err(ScheduleError::Skipped(name(), slot));
            }
            if skips.len() > SKIPS_MAX {
                return Err(ScheduleError::ManySkips(name(), SKIPS_MAX));
            }
            (EventKind::SlotSkipped, "was skipped")
        }
    };
    let list = (!skips.is_empty()).then(|| json!(skips).to_string());
    schedules::set_skips(tx, state.id, list.as_deref(), now).await?;
    let detail = format!("by {by}: the slot {slot} {done}");
    Ok(changes::record(tx, now, kind, &schedule.definition.name, &detail).await?)
}

/// Lock and return the operator's schedule of that name.
pub(super) async fn own(tx: &mut Tx, name: &str) -> Result<Schedule> {
    let schedule = lock(tx, name).await?;
    refuse_other_origin(&schedule)?;
    Ok(schedule)
}

/// Refuse a schedule that is not the operator's; the error says where it is changed.
fn refuse_other_origin(schedule: &Schedule) -> Result {
    let Revision { name, package, .. } = &schedule.definition;
    let place = match schedule.state.origin {
        Origin::Operator => return Ok(()),
        Origin::File => "the schedules file".to_owned(),
        Origin::Sidecar => format!("{package}.toml"),
        Origin::Package => format!("`schedules` in {package}.toml, which replaces the proposal"),
    };
    let is = Holder::of(schedule).text();
    let message = format!("`{name}` is {is}; pause it, or change {place}");
    Err(ScheduleError::Refused(message))
}

/// Returns the error that `revision` is not the current one, or never was one.
async fn outdated(
    tx: &mut Tx,
    schedule: &Schedule,
    current: &ScheduleDefinition,
    revision: i64,
) -> Result<ScheduleError> {
    let state = &schedule.state;
    let name = current.name.clone();
    let now = state.revision;
    let Some(before) = schedules::revision(tx, state.id, revision).await? else {
        let message = format!("`{name}` never had a revision {revision}; it is at revision {now}");
        return Ok(ScheduleError::Refused(message));
    };
    let lines = difference_lines(&differences(&read(&before)?, current));
    Ok(ScheduleError::Outdated {
        name,
        revision,
        now,
        lines: lines.iter().map(|line| format!("\n  {line}")).collect(),
    })
}

/// Refuse a time that is no future slot of a schedule; the error names the slots around it.
fn refuse_no_slot(
    schedule: &Schedule,
    rule: &Rule,
    policies: &Policies,
    slot: Timestamp,
    now: Timestamp,
) -> Result {
    let state = &schedule.state;
    let made = state.history.launches_made();
    let rule = &*decidable(rule, state.next_slot);
    let instant_before = slot.minus(Duration::from_micros(1));
    if policies.next_slot(rule, instant_before, made) == Some(slot) {
        return Ok(());
    }
    let begins = policies.start_at.map_or(now, |start| start.max(now));
    let ends = policies.end_at.map_or(slot, |end| end.min(slot));
    let before = rule.prev(ends).filter(|before| *before >= begins);
    let after = policies.next_slot(rule, slot, made);
    let near = before.into_iter().chain(after);
    Err(ScheduleError::NoSlot {
        name: schedule.definition.name.clone(),
        slot,
        near: near.map(|slot| slot.to_string()).collect(),
    })
}
