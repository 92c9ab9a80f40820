//! The last result of each schedule, and its last failure since then: what its next launches get in their context.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::json;
use sqlx::FromRow;

use super::sql::{Batch, execute_batch, statements};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::status::FailureKind;

/// The result or the failure of a launch that ended: its schedule, its slot, and the JSON.
pub(super) type LastResult<'a> = (ScheduleId, Timestamp, Option<Cow<'a, str>>);

/// Returns a failure, which is stored as a JSON object.
pub(super) fn failure(
    schedule: ScheduleId,
    slot: Timestamp,
    kind: FailureKind,
    message: &str,
) -> LastResult<'static> {
    let failure = json!({ "kind": kind, "message": message, "scheduled_time": slot });
    (schedule, slot, Some(Cow::Owned(failure.to_string())))
}

/// What the next launch of a schedule gets: the last result and the failure since then, JSON.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct LastEnds {
    pub schedule_id: ScheduleId,
    pub result: Option<String>,
    pub failure: Option<String>,
}

statements! {
    // The result of a later slot stays, in whatever order the runs finish.
    const SUCCESS: Batch = Batch::new(
        "INSERT INTO schedule_result (schedule_id, success_scheduled_time, result) VALUES ($1, $2, $3)
        ON CONFLICT (schedule_id) DO UPDATE SET
            success_scheduled_time = excluded.success_scheduled_time,
            result = excluded.result,
            failure = CASE WHEN schedule_result.failure_scheduled_time > excluded.success_scheduled_time
                THEN schedule_result.failure ELSE NULL END,
            failure_scheduled_time = CASE WHEN schedule_result.failure_scheduled_time > excluded.success_scheduled_time
                THEN schedule_result.failure_scheduled_time ELSE NULL END
            WHERE schedule_result.success_scheduled_time IS NULL
               OR schedule_result.success_scheduled_time <= excluded.success_scheduled_time",
    );
    const FAILURE: Batch = Batch::new(
        "INSERT INTO schedule_result (schedule_id, failure_scheduled_time, failure) VALUES ($1, $2, $3)
        ON CONFLICT (schedule_id) DO UPDATE SET
            failure_scheduled_time = excluded.failure_scheduled_time, failure = excluded.failure
            WHERE (schedule_result.failure_scheduled_time IS NULL
                OR schedule_result.failure_scheduled_time <= excluded.failure_scheduled_time)
              AND (schedule_result.success_scheduled_time IS NULL
                OR schedule_result.success_scheduled_time < excluded.failure_scheduled_time)",
    );

    /// Returns how the last launches of schedules ended. A schedule without a launch that ended is left out.
    pub async fn last(schedules: &[ScheduleId]) -> Vec<LastEnds> = rows_batch
        Batch::new("SELECT m.schedule_id, m.result, m.failure FROM schedule_result m JOIN (VALUES ($1)) AS v ON m.schedule_id = v.column1"),
        schedules, |schedule| [*schedule];
}

/// Keep the newest results of each schedule: [`SUCCESS`] or [`FAILURE`].
pub(super) async fn keep<'a>(
    tx: &mut Tx,
    batch: &Batch,
    results: impl IntoIterator<Item = LastResult<'a>>,
) -> Result {
    // One row for each schedule and statement, in the order of ids: two hosts that finish launches of the same
    // schedules then wait for each other instead of deadlocking.
    let mut newest: BTreeMap<ScheduleId, LastResult<'a>> = BTreeMap::new();
    for result in results {
        let (schedule, slot, _) = result;
        if newest.get(&schedule).is_none_or(|(_, at, _)| *at <= slot) {
            newest.insert(schedule, result);
        }
    }
    let newest: Vec<LastResult<'a>> = newest.into_values().collect();
    execute_batch!(tx, batch, &newest, |(schedule, slot, json)| [
        *schedule,
        *slot,
        json.as_deref()
    ])
}
