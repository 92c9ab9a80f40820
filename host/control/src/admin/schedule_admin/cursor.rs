//! Reset a cursor that a wrong clock has moved ahead.

use super::{Result, ScheduleError, lock, next_slot, parse};
use campanile_model::clock::Timestamp;
use campanile_store::events::{EventKind, NewEvent};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{Tx, changes, corrections, removed_launches};
use serde::{Deserialize, Serialize};

/// Cursors reset in one transaction, at most: hosts are waiting for it.
const RESETS_MAX: i64 = 500;

/// Where to reset a cursor to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CursorReset<'a> {
    /// The instant after which slots are decided again; none for now.
    pub to: Option<Timestamp>,
    pub by: &'a str,
}

/// Move back the cursor of a schedule that is ahead of the clock, and return its new place.
///
/// A slot that is on record is not launched again: its launch has the same id. So the cursor goes back only to instants
/// since which no launch was removed, and before which the schedule owes nothing.
pub async fn reset_cursor(
    tx: &mut Tx,
    name: &str,
    reset: CursorReset<'_>,
    now: Timestamp,
) -> Result<Timestamp> {
    let schedule = lock(tx, name).await?;
    let to = reset.to.unwrap_or(now);
    check(tx, &schedule, to, now).await?;
    let state = &schedule.state;
    let next = if state.enabled {
        let (rule, policies) = parse(&schedule)?;
        next_slot(tx, state, &rule, &policies, to).await?
    } else {
        None
    };
    schedules::reset_cursor(tx, state.id, to, next, now).await?;
    let moved = corrections::CursorReset {
        reset_at: now,
        from_at: state.cursor_at,
        to_at: to,
        revision: state.revision,
    };
    corrections::record_cursor_reset(tx, state.id, &moved).await?;
    let (by, from) = (reset.by, state.cursor_at);
    let detail = format!("by {by}: from {from} to {to}");
    let event = NewEvent {
        moved: Some((from, to)),
        ..NewEvent::new(EventKind::CursorReset, name, detail)
    };
    changes::record_event(tx, now, event).await?;
    Ok(to)
}

/// What became of the schedules whose cursor is ahead of the clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CursorResets {
    /// The schedules whose cursor was reset.
    pub reset: Vec<String>,
    /// Those whose cursor stays where it is.
    pub refused: Vec<RefusedReset>,
    /// The last name that was looked at, when there are more.
    pub next: Option<String>,
}

/// A schedule whose cursor cannot be reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RefusedReset {
    pub schedule: String,
    pub why: String,
}

/// Resets one transaction's worth of cursors running ahead of the clock, ordered by schedule name and starting after `after`.
/// Schedules whose cursor can't be reset stay as they are.
pub async fn reset_cursors(
    tx: &mut Tx,
    after: &str,
    reset: CursorReset<'_>,
    now: Timestamp,
) -> Result<CursorResets> {
    let names = schedules::ahead_of(tx, now, after, RESETS_MAX).await?;
    let mut done = CursorResets::default();
    if names.len() as i64 == RESETS_MAX {
        done.next = names.last().cloned();
    }
    for schedule in names {
        match reset_cursor(tx, &schedule, reset, now).await {
            Ok(_) => done.reset.push(schedule),
            Err(ScheduleError::Db(error)) => return Err(error.into()),
            Err(error) => done.refused.push(RefusedReset {
                schedule,
                why: error.to_string(),
            }),
        }
    }
    Ok(done)
}

/// Refuse a reset that could launch a slot twice, or that resets nothing.
async fn check(tx: &mut Tx, schedule: &Schedule, to: Timestamp, now: Timestamp) -> Result {
    let (name, state) = (&schedule.definition.name, &schedule.state);
    let refused = |why: String| Err(ScheduleError::Refused(why));
    if state.cursor_at <= now {
        return refused(format!(
            "the cursor of `{name}` is at {}, not ahead of the clock, so there is nothing to reset; `campanile schedule backfill {name}` launches slots of the past",
            state.cursor_at
        ));
    }
    if to > now {
        return refused(format!(
            "{to} is ahead of the clock, which shows {now}; name an earlier time"
        ));
    }
    let since = [
        Some(state.created_at),
        state.resumed_at,
        Some(schedule.definition.since),
    ];
    // A wrong clock may have written these too.
    let owed_since = since
        .into_iter()
        .flatten()
        .filter(|since| *since <= now)
        .max();
    if let Some(since) = owed_since.filter(|since| to < *since) {
        return refused(format!(
            "`{name}` was added, changed or resumed at {since}, and owes no slot before; name a later time than {to}"
        ));
    }
    if to == now {
        return Ok(());
    }
    if let Some(day) = removed_launches::last_day(tx, state.id, to.day(), now.day()).await? {
        return refused(format!(
            "launches of {} were removed, so their slots could be launched twice; name a later day",
            Timestamp::of_day(day).date_text()
        ));
    }
    Ok(())
}
