//! Record past slots as skipped that no host will decide: their schedule was resumed, edited or removed.

use std::time::Duration;

use super::{ScheduleError, launch_of_slot, next_slot};
use crate::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_schedule::policy::{DropReason, Policies};
use campanile_schedule::rule::Rule;
use campanile_store::launches::{self, NewLaunch};
use campanile_store::schedules::Schedule;
use campanile_store::{Decision, Tx};

/// The reason of slots that came while their schedule was paused.
pub const PAUSED: &str = "paused";
/// The reason of slots that were undecided when their schedule was paused.
pub const OVERDUE: &str = "overdue";

/// The finest step of an instant.
const MICROSECOND: Duration = Duration::from_micros(1);

/// Slots of one schedule that are recorded together.
struct Range<'a> {
    schedule: &'a Schedule,
    rule: &'a Rule,
    /// The instant after which they come.
    from: Timestamp,
    /// The last that may be one.
    until: Timestamp,
    /// The slot before them.
    interval_start: Timestamp,
    reason: &'static str,
    now: Timestamp,
}

/// Record the slots after the cursor and up to `now` as skipped; return the last of them, or the cursor.
///
/// They are one row with that `reason`. Those of a paused schedule are two rows, for the slots before and in the pause.
pub(super) async fn drop_past_slots(
    tx: &mut Tx,
    schedule: &Schedule,
    reason: &'static str,
    now: Timestamp,
) -> Result<Timestamp, ScheduleError> {
    let state = &schedule.state;
    // A rule that this version cannot read has no slots here.
    let Ok((rule, policies)) = definition::parse(&schedule.definition) else {
        return Ok(state.cursor_at);
    };
    let (history, cursor_at) = (&state.history, state.cursor_at);
    let rule = match rule.delay_after_completion() {
        None => rule,
        // The one slot that it waits for, or would wait for if it were not paused.
        Some(_) => match next_slot(tx, state.id, &rule, &policies, history, cursor_at).await? {
            Some(slot) => rule.only(state.next_slot.unwrap_or(slot)),
            None => return Ok(cursor_at),
        },
    };
    let Some((from, until)) = span(schedule, &rule, &policies, now) else {
        return Ok(state.cursor_at);
    };
    let all = Range {
        schedule,
        rule: &rule,
        from,
        until,
        interval_start: state.cursor_at,
        reason,
        now,
    };
    let Some(paused_at) = state.paused_at else {
        return all.skip(tx).await;
    };
    let before = paused_at.minus(MICROSECOND);
    let overdue = Range {
        until: until.min(before),
        reason: OVERDUE,
        ..all
    };
    let paused = Range {
        from: from.max(before),
        interval_start: overdue.skip(tx).await?,
        reason: PAUSED,
        ..all
    };
    paused.skip(tx).await
}

/// Return the instant after which the slots come, and the last one up to `now` that may be a slot.
fn span(
    schedule: &Schedule,
    rule: &Rule,
    policies: &Policies,
    now: Timestamp,
) -> Option<(Timestamp, Timestamp)> {
    let state = &schedule.state;
    let first = policies.next_slot(rule, state.cursor_at, state.history.launches_made())?;
    let until = policies.end_at.map_or(now, |end| end.min(now));
    Some((first.minus(MICROSECOND), until))
}

impl Range<'_> {
    /// Record the slots as skipped; return the last of them, or the slot before them.
    ///
    /// They are one row, except that a slot which a person skipped keeps that reason, in a row beside.
    async fn skip(&self, tx: &mut Tx) -> Result<Timestamp, ScheduleError> {
        let skipped_once = self.schedule.state.history.skipped_slots();
        let mut rows: Vec<NewLaunch> = Vec::new();
        let mut last = self.interval_start;
        for slot in self.rule.slots(self.from, self.until) {
            let reason = match skipped_once.contains(&slot) {
                true => DropReason::SkippedOnce.as_str(),
                false => self.reason,
            };
            match rows.last_mut().filter(|row| row.reason == Some(reason)) {
                Some(row) => {
                    row.last_scheduled_time = slot;
                    row.slot_count += 1;
                }
                None => rows.push(self.row(slot, last, reason)),
            }
            last = slot;
        }
        launches::insert(tx, &rows).await?;
        Ok(last)
    }

    fn row(&self, slot: Timestamp, interval_start: Timestamp, reason: &'static str) -> NewLaunch {
        let (definition, kind) = (&self.schedule.definition, LaunchKind::Schedule);
        NewLaunch {
            decision: Decision::Skipped,
            reason: Some(reason),
            interval_start,
            ..launch_of_slot(definition, self.rule, kind, slot, self.now)
        }
    }
}
