//! Launches as their hashes cover them: those that retention removes, and those that are sealed.

use serde::Serialize;
use sqlx::FromRow;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, LaunchId, LaunchKind, ScheduleId};
use campanile_model::status::{FailureKind, LaunchStatus};

/// A launch. As JSON it has these keys in this order, without spaces.
#[derive(Debug, Clone, PartialEq, FromRow, Serialize)]
pub struct FinishedLaunch {
    pub id: LaunchId,
    #[serde(skip)]
    pub schedule_id: ScheduleId,
    pub scheduled_time: Timestamp,
    pub last_scheduled_time: Timestamp,
    pub slot_count: i64,
    pub kind: LaunchKind,
    pub status: LaunchStatus,
    pub reason: Option<String>,
    pub package: String,
    pub digest: Option<ArtifactDigest>,
    pub attempts: i64,
    pub recoveries: i64,
    pub fire_time: Timestamp,
    pub decided_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
    /// Whether an operator asked for it as a retry: then it counts for its slot.
    #[serde(skip)]
    pub is_retry: bool,
    /// When it left the queue, if it was queued.
    #[serde(skip)]
    pub opened_at: Option<Timestamp>,
}

impl FinishedLaunch {
    /// Returns the JSON that hashes cover.
    pub fn canonical(&self) -> String {
        // The keys are texts, so this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The columns of a [`FinishedLaunch`].
macro_rules! finished_launch_columns {
    () => {
        "id, schedule_id, scheduled_time, coalesce(last_scheduled_time, scheduled_time) AS last_scheduled_time,
            coalesce(slot_count, 1) AS slot_count, kind, status, reason, package, digest, attempts, recoveries, fire_time,
            decided_at, started_at, finished_at, failure, message, retry_of IS NOT NULL AS is_retry, opened_at"
    };
}
pub(crate) use finished_launch_columns;
