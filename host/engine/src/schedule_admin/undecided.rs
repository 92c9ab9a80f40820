//! Record past slots as skipped that no host will decide: their schedule was resumed, edited or removed.

use std::time::Duration;

use super::{ScheduleError, launch_of_slot, next_slot};
use crate::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_schedule::policy::DropReason;
use campanile_store::launches::{self, NewLaunch};
use campanile_store::schedules::Schedule;
use campanile_store::{Decision, Tx};

/// The reason of slots that came while their schedule was paused.
pub const PAUSED: &str = "paused";
/// The reason of slots that were undecided when their schedule was paused.
pub const OVERDUE: &str = "overdue";

/// The finest step of an instant.
const MICROSECOND: Duration = Duration::from_micros(1);

/// Record the slots after the cursor and up to `now` as skipped; return the last of them, or the cursor.
///
/// Consecutive slots with the same reason are one row. The reason is `reason`, unless a person skipped the slot or its
/// schedule is paused.
pub(super) async fn drop_past_slots(
    tx: &mut Tx,
    schedule: &Schedule,
    reason: &'static str,
    now: Timestamp,
) -> Result<Timestamp, ScheduleError> {
    let Schedule { state, definition } = schedule;
    let (history, cursor_at) = (&state.history, state.cursor_at);
    // A rule that this version cannot read has no slots here.
    let Ok((rule, policies)) = definition::parse(definition) else {
        return Ok(cursor_at);
    };
    let rule = match rule.delay_after_completion() {
        None => rule,
        // The one slot that it waits for, or would wait for if it were not paused.
        Some(_) => match next_slot(tx, state.id, &rule, &policies, history, cursor_at).await? {
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
    for slot in rule.slots(first.minus(MICROSECOND), until) {
        let reason = Some(reason_of(slot));
        match rows.last_mut().filter(|row| row.reason == reason) {
            Some(row) => {
                row.last_scheduled_time = slot;
                row.slot_count += 1;
            }
            None => rows.push(NewLaunch {
                decision: Decision::Skipped,
                reason,
                interval_start: last,
                ..launch_of_slot(definition, &rule, LaunchKind::Schedule, slot, now)
            }),
        }
        last = slot;
    }
    launches::insert(tx, &rows).await?;
    Ok(last)
}
