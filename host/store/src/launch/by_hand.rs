//! Launches that an operator ends or asks to run again.

use sqlx::FromRow;

use super::change::OPERATOR;
use super::{Life, life_columns};
use crate::sql::{locking, statements};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};

/// What a decision about a launch by hand depends on.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct LaunchState {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub schedule_revision: i64,
    pub kind: LaunchKind,
    #[sqlx(flatten)]
    pub life: Life,
    pub scheduled_time: Timestamp,
    pub last_scheduled_time: Timestamp,
    /// More than 1 for a range of skipped slots.
    pub slot_count: i64,
    pub interval_start: Timestamp,
    /// The context that was given for this launch, a JSON object.
    pub context: Option<String>,
    /// The arguments that were given for this launch, a JSON list.
    pub args: Option<String>,
    pub finished_at: Option<Timestamp>,
}

statements! {
    /// Lock the schedule of a launch until this transaction ends, also a removed one.
    pub async fn lock_schedule(launch: LaunchId) -> Option<ScheduleId> = value locking!(
        "SELECT s.id FROM schedule s JOIN launch l ON l.schedule_id = s.id WHERE l.id = $1",
        "FOR UPDATE OF s"
    );

    /// Returns the state of a launch.
    pub async fn state(launch: LaunchId) -> Option<LaunchState> = row
        concat!("SELECT l.id, l.schedule_id, l.schedule_revision, l.kind, ", life_columns!(), ", l.scheduled_time,
            coalesce(l.last_scheduled_time, l.scheduled_time) AS last_scheduled_time, coalesce(l.slot_count, 1) AS slot_count, l.interval_start,
            l.context, l.args, l.finished_at
        FROM launch l WHERE l.id = $1");

    /// Ask a running launch to end by `deadline`. Return its deadline, which is earlier if it was asked to end before; none
    /// when it does not run.
    ///
    /// Its reason and its message stay when it ends because of that.
    pub async fn ask_to_end(launch: LaunchId, deadline: Timestamp, message: &str) -> Option<Timestamp> = value
        "UPDATE launch SET cancel_deadline = CASE WHEN cancel_deadline < $2 THEN cancel_deadline ELSE $2 END, reason = $3, message = $4
        WHERE id = $1 AND status = 'running' RETURNING cancel_deadline"
        => [launch, deadline, OPERATOR, message];
}
