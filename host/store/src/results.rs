//! What the next launches of a schedule are told of those before: the last result, and a failure since then.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::json;

use super::batch::{Batch, pieces};
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::status::FailureKind;

/// The end of a launch, as the next ones are told.
pub(super) struct Told<'a> {
    schedule_id: ScheduleId,
    scheduled_time: Timestamp,
    json: Option<Cow<'a, str>>,
}

impl<'a> Told<'a> {
    pub fn success(schedule_id: ScheduleId, slot: Timestamp, output: Option<&'a str>) -> Told<'a> {
        Told {
            schedule_id,
            scheduled_time: slot,
            json: output.map(Cow::Borrowed),
        }
    }

    pub fn failure(
        schedule_id: ScheduleId,
        slot: Timestamp,
        kind: FailureKind,
        message: &str,
    ) -> Told<'a> {
        let failure = json!({
            "kind": kind,
            "message": message,
            "scheduled_time": slot,
        });
        Told {
            schedule_id,
            scheduled_time: slot,
            json: Some(Cow::Owned(failure.to_string())),
        }
    }
}

// A later slot's result stands, in whatever order the runs finish.
const SUCCESS: Batch = Batch {
    head: "INSERT INTO schedule_result (schedule_id, success_scheduled_time, result) VALUES ",
    columns: 3,
    tail: " ON CONFLICT (schedule_id) DO UPDATE SET
        success_scheduled_time = excluded.success_scheduled_time,
        result = excluded.result,
        failure = CASE WHEN schedule_result.failure_scheduled_time > excluded.success_scheduled_time THEN schedule_result.failure ELSE NULL END,
        failure_scheduled_time = CASE WHEN schedule_result.failure_scheduled_time > excluded.success_scheduled_time THEN schedule_result.failure_scheduled_time ELSE NULL END
        WHERE schedule_result.success_scheduled_time IS NULL OR schedule_result.success_scheduled_time <= excluded.success_scheduled_time",
};
const FAILURE: Batch = Batch {
    head: "INSERT INTO schedule_result (schedule_id, failure_scheduled_time, failure) VALUES ",
    columns: 3,
    tail: " ON CONFLICT (schedule_id) DO UPDATE SET failure_scheduled_time = excluded.failure_scheduled_time, failure = excluded.failure
        WHERE (schedule_result.failure_scheduled_time IS NULL OR schedule_result.failure_scheduled_time <= excluded.failure_scheduled_time)
          AND (schedule_result.success_scheduled_time IS NULL OR schedule_result.success_scheduled_time < excluded.failure_scheduled_time)",
};

/// Keep the newest results.
pub(super) async fn keep_successes<'a>(
    tx: &mut Tx,
    ends: impl IntoIterator<Item = Told<'a>>,
) -> Result<(), DbError> {
    keep(tx, &SUCCESS, ends).await
}

/// Keep the newest failures.
pub(super) async fn keep_failures<'a>(
    tx: &mut Tx,
    ends: impl IntoIterator<Item = Told<'a>>,
) -> Result<(), DbError> {
    keep(tx, &FAILURE, ends).await
}

/// Run a batch of `(schedule, slot, JSON)`.
async fn keep<'a>(
    tx: &mut Tx,
    batch: &Batch,
    ends: impl IntoIterator<Item = Told<'a>>,
) -> Result<(), DbError> {
    // One row a schedule and statement, and always in the order of ids: two hosts that
    // finish launches of the same schedules then wait for each other instead of deadlocking.
    let mut newest: BTreeMap<ScheduleId, Told<'a>> = BTreeMap::new();
    for end in ends {
        let is_older = |other: &Told| end.scheduled_time < other.scheduled_time;
        if !newest.get(&end.schedule_id).is_some_and(is_older) {
            newest.insert(end.schedule_id, end);
        }
    }
    let newest: Vec<Told<'a>> = newest.into_values().collect();
    for piece in pieces(&newest) {
        let sql = batch.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(sql);
            for end in piece {
                query = query
                    .bind(end.schedule_id)
                    .bind(end.scheduled_time)
                    .bind(end.json.as_deref());
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    Ok(())
}
