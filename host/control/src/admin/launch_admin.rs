//! The operator's commands on one launch: end it, or launch its slot again.
//!
//! Both only change the database. The host that runs a launch notices the request when it reads the counter of changes, and
//! at the latest when it renews the lease.

use std::time::Duration;

use crate::admin::schedule_admin::{
    self, Result, ScheduleError, Triggered, insert_requested, launch_at_once, set_next_slot,
};
use crate::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, RunId};
use campanile_model::status::LaunchStatus;
use campanile_store::events::{EventKind, NewEvent};
use campanile_store::launch::{self, LaunchState, NewLaunch};
use campanile_store::{Tx, changes, schedules};

/// How an operator's request to cancel a launch was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It did not run, and has ended with this status.
    Ended(LaunchStatus),
    /// It runs, and ends by this time.
    Asked(Timestamp),
}

/// End a launch. A running one is asked to end within `grace`, or within the `cancel_grace` of its schedule.
///
/// With a `run`, the launch must not have lost that run.
pub async fn cancel(
    tx: &mut Tx,
    (launch, run): (LaunchId, Option<RunId>),
    grace: Option<Duration>,
    by: &str,
    now: Timestamp,
) -> Result<Cancelled> {
    let (state, name) = lock(tx, launch).await?;
    refuse_lost_run(&state, run)?;
    let grace = match grace {
        Some(grace) => grace,
        None => cancel_grace(tx, &state).await?,
    };
    let (deadline, slot) = (now.plus(grace), state.scheduled_time);
    let asked = format!("{by} asked it to end");
    let done = match end_or_ask(tx, launch, deadline, &asked, now).await? {
        Some(done) => done,
        None => {
            let ended = launch::state(tx, launch).await?;
            return Err(has_ended(&ended.unwrap_or(state)));
        }
    };
    let detail = match done {
        Cancelled::Ended(status) => format!("slot {slot} was {status} by {by}: launch {launch}"),
        Cancelled::Asked(deadline) => {
            format!("{by} asked slot {slot} to end by {deadline}: launch {launch}")
        }
    };
    if let Cancelled::Ended(status) = done {
        if status == LaunchStatus::Skipped && state.kind.is_of_slot() {
            schedules::decrement_launches(tx, &[(state.schedule_id, 1)]).await?;
        }
        set_next_slot(tx, state.schedule_id, now).await?;
    }
    let event = NewEvent::of_launch(EventKind::LaunchCancelled, &name, launch, detail);
    changes::record_event(tx, now, event).await?;
    Ok(done)
}

/// End a launch at once, or ask it to end; none when it has ended.
async fn end_or_ask(
    tx: &mut Tx,
    launch: LaunchId,
    deadline: Timestamp,
    message: &str,
    now: Timestamp,
) -> Result<Option<Cancelled>> {
    // A host may claim the launch between two statements, and its run may end to be retried.
    for _ in 0..2 {
        if let Some(deadline) = launch::ask_to_end(tx, launch, deadline, message).await? {
            return Ok(Some(Cancelled::Asked(deadline)));
        }
        if let Some(status) = launch::end(tx, launch, message, now).await? {
            return Ok(Some(Cancelled::Ended(status)));
        }
    }
    Ok(None)
}

/// Launch the slot of an ended launch again, with its context and arguments, today's definition of its schedule and the active version.
///
/// Returns the new launch, its slot, and the name of its schedule.
pub async fn retry(
    tx: &mut Tx,
    launch: LaunchId,
    by: &str,
    now: Timestamp,
) -> Result<(Triggered, Timestamp, String)> {
    let (state, name) = lock(tx, launch).await?;
    if state.finished_at.is_none() {
        return Err(ScheduleError::Conflict(format!(
            "the launch {launch} has not ended: it is {}; wait for its end, or end it with `campanile run cancel {launch}`",
            state.life.status
        )));
    }
    if state.slot_count > 1 {
        return Err(ScheduleError::Refused(format!(
            "the launch {launch} stands for {} skipped slots; `campanile schedule backfill {name} --from {slot} --to {last}` launches them",
            state.slot_count,
            slot = state.scheduled_time,
            last = state.last_scheduled_time
        )));
    }
    let schedule = schedules::with_ids(tx, &[state.schedule_id]).await?.pop();
    let schedule = schedule.ok_or_else(|| {
        ScheduleError::Conflict(format!(
            "the schedule `{name}` of the launch {launch} was removed; add it again, and launch it with `campanile schedule trigger`"
        ))
    })?;
    let package = schedule_admin::present_package(tx, &schedule).await?;
    let (rule, policies) = schedule_admin::parse(&schedule)?;
    let slot = state.scheduled_time;
    let again = NewLaunch {
        id: LaunchId::of_retry(launch, now),
        retry_of: Some(launch),
        scheduled_time: slot,
        last_scheduled_time: slot,
        utc_offset: rule.utc_offset(slot),
        interval_start: state.interval_start,
        context: state.context,
        args: state.args,
        ..launch_at_once(
            &schedule,
            (&rule, &policies),
            Some(package),
            LaunchKind::Manual,
            now,
        )
    };
    let triggered = insert_requested(tx, &schedule.state, &policies, again, now).await?;
    let id = triggered.launch;
    let detail = format!("slot {slot} is launched again by {by}: launch {id}, after {launch}");
    let event = NewEvent::of_launch(EventKind::LaunchRetried, &name, id, detail);
    changes::record_event(tx, now, event).await?;
    Ok((triggered, slot, name))
}

/// Lock the schedule of a launch. Return the launch, and the name of its schedule.
async fn lock(tx: &mut Tx, launch: LaunchId) -> Result<(LaunchState, String)> {
    let missing = || ScheduleError::NotFound(format!("there is no launch {launch}"));
    let schedule = launch::lock_schedule(tx, launch).await?;
    let schedule = schedule.ok_or_else(missing)?;
    let state = launch::state(tx, launch).await?.ok_or_else(missing)?;
    let name = schedules::name(tx, schedule).await?.ok_or_else(missing)?;
    Ok((state, name))
}

fn refuse_lost_run(state: &LaunchState, run: Option<RunId>) -> Result {
    let newest = state.life.recoveries + 1;
    match run {
        Some(run) if run.number() < newest => Err(ScheduleError::Conflict(format!(
            "the run {run} was lost; the launch {} continues in its run {newest}",
            state.id
        ))),
        Some(run) if run.number() > newest => Err(ScheduleError::NotFound(format!(
            "there is no run {run}; the launch {} has {newest}",
            state.id
        ))),
        _ => Ok(()),
    }
}

fn has_ended(state: &LaunchState) -> ScheduleError {
    let (launch, status) = (state.id, state.life.status);
    let at = state
        .finished_at
        .map_or_else(String::new, |at| format!(" at {at}"));
    ScheduleError::Conflict(format!(
        "the launch {launch} has ended already, as `{status}`{at}; `campanile run retry {launch}` launches it again"
    ))
}

/// Returns the `cancel_grace` of the revision that decided a launch.
async fn cancel_grace(tx: &mut Tx, state: &LaunchState) -> Result<Duration> {
    let (schedule, revision) = (state.schedule_id, state.schedule_revision);
    let revision = schedules::revision(tx, schedule, revision).await?;
    let policies = revision.and_then(|revision| definition::policies(&revision).ok());
    Ok(policies.unwrap_or_default().cancel_grace())
}
