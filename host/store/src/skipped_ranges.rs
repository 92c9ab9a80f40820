//! Ranges of skipped slots: one row stands for slots that nothing could launch, one after another.

use super::launch::NewLaunch;
use super::sql::{Batch, rows_batch, statements};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;

statements! {
    // Only the newest launch of the schedule grows: a launch that a person requested meanwhile begins another row. The
    // range must end where the new slots begin.
    const EXTEND: Batch = Batch::new(
        "UPDATE launch SET last_scheduled_time = v.column6, slot_count = coalesce(launch.slot_count, 1) + v.column7, finished_at = v.column8
        FROM (VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)) AS v
        WHERE launch.id = (SELECT p.id FROM launch p WHERE p.schedule_id = v.column1 AND p.scheduled_time >= v.column9 AND p.scheduled_time <= v.column5
                ORDER BY p.scheduled_time DESC, p.id DESC LIMIT 1)
            AND (launch.status = 'skipped' AND launch.reason = v.column4 AND launch.kind = v.column3 AND launch.schedule_revision = v.column2
                AND coalesce(launch.last_scheduled_time, launch.scheduled_time) = v.column5) IS TRUE
        RETURNING launch.schedule_id",
    );
}

/// The longest range, in microseconds. Statistics count all slots of a row when its first slot was decided.
const RANGE_MICROS: i64 = 3_600 * 1_000_000;

/// Returns the hour of a slot, in UTC: its number since the epoch. A range has slots of one hour.
pub fn hour(slot: Timestamp) -> i64 {
    slot.micros().div_euclid(RANGE_MICROS)
}

/// Extend the last recorded range of each schedule by slots that were skipped for the same reason in the same hour.
/// Returns the schedules whose range was extended; the decisions about the others need rows of their own.
///
/// There must be at most one decision for each schedule, with its first slots after the cursor.
pub async fn extend(tx: &mut Tx, skips: &[&NewLaunch]) -> Result<Vec<ScheduleId>> {
    let extended: Vec<(ScheduleId,)> = rows_batch!(tx, EXTEND, skips, |skip| [
        skip.schedule_id,
        skip.schedule_revision,
        skip.kind,
        skip.reason,
        skip.interval_start,
        skip.last_scheduled_time,
        skip.slot_count,
        skip.decided_at,
        Timestamp::from_micros(hour(skip.scheduled_time) * RANGE_MICROS),
    ])?;
    Ok(extended.into_iter().map(|(schedule,)| schedule).collect())
}
