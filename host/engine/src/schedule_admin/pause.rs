//! Pause and resume a schedule, by a person or at the end of the pause.

use std::time::Duration;

use super::{PAUSED, ScheduleError, drop_past_slots, lock, next_slot};
use crate::EngineError;
use crate::definition;
use campanile_model::clock::Timestamp;
use campanile_store::events::{self, EventKind};
use campanile_store::schedules::{self, Pause, Schedule};
use campanile_store::{Tx, changes};

/// Pause a schedule: no slot is decided until it is resumed. Runs continue, and queued launches stay queued.
pub async fn pause(
    tx: &mut Tx,
    name: &str,
    pause: Pause<'_>,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let schedule = lock(tx, name).await?;
    if let Some(until) = pause.until.filter(|until| *until <= now) {
        return Err(ScheduleError::PauseOver(until));
    }
    if !schedules::pause(tx, schedule.state.id, pause, now).await? {
        return Err(ScheduleError::Paused(name.to_owned()));
    }
    let mut detail = format!("by {}", pause.by);
    if let Some(until) = pause.until {
        detail += &format!(", until {until}");
    }
    if let Some(note) = pause.note {
        detail += &format!(": {note}");
    }
    changes::record(tx, now, EventKind::SchedulePaused, name, &detail).await?;
    Ok(())
}

/// Resume a schedule. Slots of the pause, and slots that were undecided when it began, are recorded as skipped.
///
/// With `catch_up` they are decided like other missed slots.
pub async fn resume(
    tx: &mut Tx,
    name: &str,
    by: &str,
    catch_up: bool,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let schedule = lock(tx, name).await?;
    if schedule.state.enabled {
        return Err(ScheduleError::NotPaused(name.to_owned()));
    }
    let owed_from = match catch_up {
        true => schedule.state.cursor_at,
        false => now,
    };
    resume_from(tx, &schedule, owed_from, now).await?;
    let detail = match catch_up {
        true => format!("by {by}, the slots of the pause are decided like others that were missed"),
        false => format!("by {by}"),
    };
    changes::record(tx, now, EventKind::ScheduleResumed, name, &detail).await?;
    Ok(())
}

/// Resume the schedules whose pause ends by now; return how many. Slots from that end on are decided.
pub(crate) async fn end_pauses(tx: &mut Tx, now: Timestamp) -> Result<usize, EngineError> {
    let mut ended = 0;
    for id in schedules::expired_pause(tx, now).await? {
        let Some(name) = schedules::name(tx, id).await? else {
            continue;
        };
        let Some(schedule) = schedules::find(tx, &name).await? else {
            continue;
        };
        let until = schedule.state.paused_until.unwrap_or(now);
        let last_of_pause = until.minus(Duration::from_micros(1));
        resume_from(tx, &schedule, last_of_pause, now).await?;
        let detail = format!("its pause was to end at {until}");
        events::record(tx, now, EventKind::ScheduleResumed, &name, &detail).await?;
        ended += 1;
    }
    Ok(ended)
}

/// Resume a schedule that has to decide the slots after `owed_from`.
async fn resume_from(
    tx: &mut Tx,
    schedule: &Schedule,
    owed_from: Timestamp,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let state = &schedule.state;
    // A rule that this version cannot read has no next slot here.
    let cursor_at = drop_past_slots(tx, schedule, PAUSED, owed_from).await?;
    let next = match definition::parse(&schedule.definition) {
        Ok((rule, policies)) => {
            let after = cursor_at.max(owed_from.max(state.cursor_at));
            next_slot(tx, state.id, &rule, &policies, &state.history, after).await?
        }
        Err(_) => None,
    };
    if !schedules::resume(tx, state.id, now, cursor_at, next).await? {
        return Err(ScheduleError::NotPaused(schedule.definition.name.clone()));
    }
    Ok(())
}
