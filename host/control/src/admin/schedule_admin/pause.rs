//! Pause and resume a schedule, by a person or at the end of the pause, and record past slots as skipped that no host
//! will decide: their schedule was resumed, edited or removed.

use std::time::Duration;

use super::{Result, ScheduleError, lock, next_slot};
use crate::rules::plan::{Definer, launch_of_slot};
use crate::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchKind, ScheduleId};
use campanile_package::ScheduleDefinition;
use campanile_schedule::policy::DropReason;
use campanile_store::events::{self, EventKind};
use campanile_store::launch::{self, NewLaunch};
use campanile_store::schedules::{self, Pause, Schedule};
use campanile_store::{Decision, Origin, Tx, changes};

/// The reason of slots that came while their schedule was paused.
pub const PAUSED: &str = "paused";
/// The reason of slots that were undecided when their schedule was paused.
pub const OVERDUE: &str = "overdue";

/// Who pauses a schedule whose definition in a file is not enabled.
pub const PAUSED_BY_DEFINITION: &str = "its definition";

/// The finest step of an instant.
const MICROSECOND: Duration = Duration::from_micros(1);

/// Pause a schedule: no slot is decided until it is resumed. Runs continue, and queued launches stay queued.
pub async fn pause(tx: &mut Tx, name: &str, pause: Pause<'_>, now: Timestamp) -> Result {
    let schedule = lock(tx, name).await?;
    if let Some(until) = pause.until.filter(|until| *until <= now) {
        return Err(ScheduleError::PauseOver(until));
    }
    pause_at(tx, schedule.state.id, name, pause, now).await
}

/// Pause or resume a schedule as its definition in a file says, which has changed. A pause of a person stays,
/// unless it has an end and the definition has none.
pub(super) async fn follow_definition(
    tx: &mut Tx,
    wanted: &ScheduleDefinition,
    now: Timestamp,
) -> Result {
    let name = &wanted.name;
    let schedule = lock(tx, name).await?;
    let state = &schedule.state;
    let by = PAUSED_BY_DEFINITION;
    match wanted.enabled {
        false if state.enabled => pause_at(tx, state.id, name, by_definition(), now).await,
        false if state.paused_until.is_some() => {
            schedules::replace_pause(tx, state.id, by_definition(), now).await?;
            let detail = pause_text(by_definition());
            Ok(changes::record(tx, now, EventKind::SchedulePaused, name, &detail).await?)
        }
        true if state.paused_by.as_deref() == Some(by) => resume(tx, name, by, false, now).await,
        _ => Ok(()),
    }
}

/// Returns the pause of a schedule whose definition is not enabled.
fn by_definition() -> Pause<'static> {
    Pause {
        by: PAUSED_BY_DEFINITION,
        note: None,
        until: None,
    }
}

/// Pause the schedules of new definitions that are not enabled.
pub(super) async fn pause_disabled(
    tx: &mut Tx,
    added: &[(ScheduleId, &ScheduleDefinition)],
    origin: Origin,
    now: Timestamp,
) -> Result {
    let pause = match origin {
        Origin::Operator => Pause {
            by: "the operator",
            note: Some("added with --disabled"),
            until: None,
        },
        _ => by_definition(),
    };
    let disabled = added.iter().filter(|(_, wanted)| !wanted.enabled);
    for (id, wanted) in disabled {
        pause_at(tx, *id, &wanted.name, pause, now).await?;
    }
    Ok(())
}

async fn pause_at(
    tx: &mut Tx,
    id: ScheduleId,
    name: &str,
    pause: Pause<'_>,
    now: Timestamp,
) -> Result {
    if !schedules::pause(tx, id, pause, now).await? {
        return Err(ScheduleError::Paused(name.to_owned()));
    }
    Ok(changes::record(tx, now, EventKind::SchedulePaused, name, &pause_text(pause)).await?)
}

/// Say who paused a schedule, until when and why.
pub fn pause_text(Pause { by, note, until }: Pause<'_>) -> String {
    let until = until.map_or_else(String::new, |until| format!(", until {until}"));
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    format!("by {by}{until}{note}")
}

/// Resume a schedule. Slots of the pause, and slots that were undecided when it began, are recorded as skipped.
///
/// With `catch_up` they are decided like other missed slots.
pub async fn resume(tx: &mut Tx, name: &str, by: &str, catch_up: bool, now: Timestamp) -> Result {
    let schedule = lock(tx, name).await?;
    if schedule.state.enabled {
        return Err(ScheduleError::NotPaused(name.to_owned()));
    }
    let owed_from = if catch_up {
        schedule.state.cursor_at
    } else {
        now
    };
    resume_from(tx, &schedule, owed_from, now).await?;
    let detail = if catch_up {
        format!("by {by}, the slots of the pause are decided like others that were missed")
    } else {
        format!("by {by}")
    };
    Ok(changes::record(tx, now, EventKind::ScheduleResumed, name, &detail).await?)
}

/// Resume the schedules whose pause ends by now; return how many. Slots from that end on are decided.
pub async fn end_pauses(tx: &mut Tx, now: Timestamp) -> Result<usize, ScheduleError> {
    let mut ended = 0;
    for id in schedules::expired_pause(tx, now).await? {
        if let Some(name) = schedules::name(tx, id).await?
            && let Some(schedule) = schedules::find(tx, &name).await?
        {
            let until = schedule.state.paused_until.unwrap_or(now);
            resume_from(tx, &schedule, until.minus(MICROSECOND), now).await?;
            let detail = format!("its pause was to end at {until}");
            events::record(tx, now, EventKind::ScheduleResumed, &name, &detail).await?;
            ended += 1;
        }
    }
    Ok(ended)
}

/// Resume a schedule that has to decide the slots after `owed_from`.
async fn resume_from(
    tx: &mut Tx,
    schedule: &Schedule,
    owed_from: Timestamp,
    now: Timestamp,
) -> Result {
    let state = &schedule.state;
    // A rule that this version cannot read has no next slot here.
    let cursor_at = drop_past_slots(tx, schedule, PAUSED, owed_from).await?;
    let next = match definition::parse(&schedule.definition) {
        Ok((rule, policies)) => {
            let after = cursor_at.max(owed_from.max(state.cursor_at));
            next_slot(tx, state, &rule, &policies, after).await?
        }
        Err(_) => None,
    };
    if !schedules::resume(tx, state.id, now, cursor_at, next).await? {
        return Err(ScheduleError::NotPaused(schedule.definition.name.clone()));
    }
    Ok(())
}

/// Record the slots after the cursor and up to `now` as skipped; return the last of them, or the cursor.
///
/// Consecutive slots with the same reason are one row. The reason is `reason`, unless a person skipped the slot or its
/// schedule is paused.
pub(super) async fn drop_past_slots(
    tx: &mut Tx,
    schedule: &Schedule,
    reason: &'static str,
    now: Timestamp,
) -> Result<Timestamp> {
    let Schedule { state, definition } = schedule;
    let (history, cursor_at) = (&state.history, state.cursor_at);
    // A rule that this version cannot read has no slots here.
    let Ok((rule, policies)) = definition::parse(definition) else {
        return Ok(cursor_at);
    };
    let rule = match rule.delay_after_completion() {
        None => rule,
        // The one slot that it waits for, or would wait for if it were not paused.
        Some(_) => match next_slot(tx, state, &rule, &policies, cursor_at).await? {
            Some(slot) => rule.only(state.next_slot.unwrap_or(slot)),
            None => return Ok(cursor_at),
        },
    };
    let Some(first) = policies.next_slot(&rule, cursor_at, history.launches_made()) else {
        return Ok(cursor_at);
    };
    let until = policies.end_at.map_or(now, |end| end.min(now));
    let skipped = history.skipped_slots();
    let reason_of = |slot: Timestamp| match state.paused_at {
        _ if skipped.contains(&slot) => DropReason::SkippedOnce.as_str(),
        Some(paused_at) if slot < paused_at => OVERDUE,
        Some(_) => PAUSED,
        None => reason,
    };
    let mut rows: Vec<NewLaunch> = Vec::new();
    let mut last = cursor_at;
    let definer = Definer::of(definition, &policies);
    let mut next = Some(first);
    while let Some(slot) = next.filter(|slot| *slot <= until) {
        let reason = Some(reason_of(slot));
        // The reason may change at a slot skipped by a person, right after it, and where the pause began.
        let after_skip = skipped.contains(&slot).then(|| slot.plus(MICROSECOND));
        let next_skip = skipped.range(slot.plus(MICROSECOND)..).next().copied();
        let paused_at = state.paused_at.filter(|paused_at| slot < *paused_at);
        let changes = [after_skip, next_skip, paused_at].into_iter().flatten();
        let end = changes.fold(until.plus(MICROSECOND), Timestamp::min);
        let (run_last, count) = rule.run(slot, end);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        match rows.last_mut().filter(|row| row.reason == reason) {
            Some(row) => {
                row.last_scheduled_time = run_last;
                row.slot_count += count;
            }
            None => rows.push(NewLaunch {
                decision: Decision::Skipped,
                reason,
                interval_start: last,
                last_scheduled_time: run_last,
                slot_count: count,
                ..launch_of_slot(&definer, &rule, LaunchKind::Schedule, slot, now)
            }),
        }
        last = run_last;
        next = rule.next(last);
    }
    launch::insert(tx, &rows).await?;
    Ok(last)
}
