//! The last result of each schedule, and its last failure since then: what its next launches get in their context.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::json;
use sqlx::FromRow;

use super::sql::{Batch, execute_batch, statements};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::status::FailureKind;

/// The result or the failure of a launch that ended.
#[derive(Debug)]
pub(super) struct LastResult<'a> {
    schedule: ScheduleId,
    slot: Timestamp,
    /// When it's recorded.
    at: Timestamp,
    json: Option<Cow<'a, str>>,
    /// How many results this one stands for.
    count: i64,
}

impl<'a> LastResult<'a> {
    /// The result of a launch that succeeded, JSON.
    pub(super) fn success(
        (schedule, slot): (ScheduleId, Timestamp),
        at: Timestamp,
        output: Option<&'a str>,
    ) -> LastResult<'a> {
        LastResult {
            schedule,
            slot,
            at,
            json: output.map(Cow::Borrowed),
            count: 1,
        }
    }

    /// A failure, which is stored as a JSON object.
    pub(super) fn failure(
        (schedule, slot): (ScheduleId, Timestamp),
        at: Timestamp,
        kind: FailureKind,
        message: &str,
    ) -> LastResult<'static> {
        let failure = json!({ "kind": kind, "message": message, "scheduled_time": slot });
        LastResult {
            schedule,
            slot,
            at,
            json: Some(Cow::Owned(failure.to_string())),
            count: 1,
        }
    }
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
        "INSERT INTO schedule_result (schedule_id, success_scheduled_time, result, last_success_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (schedule_id) DO UPDATE SET
            success_scheduled_time = excluded.success_scheduled_time,
            result = excluded.result,
            last_success_at = excluded.last_success_at,
            failing_since = CASE WHEN schedule_result.failure_scheduled_time > excluded.success_scheduled_time
                THEN schedule_result.failing_since ELSE NULL END,
            streak = CASE WHEN schedule_result.failure_scheduled_time > excluded.success_scheduled_time
                THEN schedule_result.streak ELSE 0 END,
            failure = CASE WHEN schedule_result.failure_scheduled_time > excluded.success_scheduled_time
                THEN schedule_result.failure ELSE NULL END,
            failure_scheduled_time = CASE WHEN schedule_result.failure_scheduled_time > excluded.success_scheduled_time
                THEN schedule_result.failure_scheduled_time ELSE NULL END
            WHERE schedule_result.success_scheduled_time IS NULL
               OR schedule_result.success_scheduled_time <= excluded.success_scheduled_time",
    );
    const FAILURE: Batch = Batch::new(
        "INSERT INTO schedule_result (schedule_id, failure_scheduled_time, failure, failing_since, streak) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (schedule_id) DO UPDATE SET
            failure_scheduled_time = excluded.failure_scheduled_time, failure = excluded.failure,
            failing_since = coalesce(schedule_result.failing_since, excluded.failing_since),
            streak = schedule_result.streak + excluded.streak
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

/// Keeps the newest successes of each schedule.
pub(super) async fn keep_successes<'a>(
    tx: &mut Tx,
    successes: impl IntoIterator<Item = LastResult<'a>>,
) -> Result {
    let newest = newest(successes);
    execute_batch!(tx, SUCCESS, &newest, |result| [
        result.schedule,
        result.slot,
        result.json.as_deref(),
        result.at
    ])
}

/// Keeps the newest failures of each schedule, unless a later slot has succeeded.
pub(super) async fn keep_failures<'a>(
    tx: &mut Tx,
    failures: impl IntoIterator<Item = LastResult<'a>>,
) -> Result {
    let newest = newest(failures);
    execute_batch!(tx, FAILURE, &newest, |result| [
        result.schedule,
        result.slot,
        result.json.as_deref(),
        result.at,
        result.count
    ])
}

/// Returns one result for each schedule, in the order of ids: two hosts that finish launches of the same schedules then wait
/// for each other instead of deadlocking.
fn newest<'a>(results: impl IntoIterator<Item = LastResult<'a>>) -> Vec<LastResult<'a>> {
    let mut newest: BTreeMap<ScheduleId, LastResult<'a>> = BTreeMap::new();
    for result in results {
        match newest.entry(result.schedule) {
            Entry::Vacant(first) => _ = first.insert(result),
            Entry::Occupied(mut kept) => {
                let count = kept.get().count + result.count;
                if kept.get().slot <= result.slot {
                    kept.insert(result);
                }
                kept.get_mut().count = count;
            }
        }
    }
    newest.into_values().collect()
}
