//! Runs as commands show them. No table has them: the newest run is in its launch's row, those lost before in `lost_run`.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::launch::position;
use super::sql::{Batch, statements};
use super::{Result, Tx, schedules};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, InputHash, LaunchId, RunId, ScheduleId};
use campanile_model::status::{FailureKind, RunStatus};

/// A run as commands show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct RunRow {
    #[sqlx(flatten)]
    pub id: RunId,
    pub launch_id: LaunchId,
    pub schedule: String,
    pub scheduled_time: Timestamp,
    pub status: RunStatus,
    pub is_recovery: bool,
    pub package: String,
    pub digest: ArtifactDigest,
    /// The revision of the schedule that decided the launch.
    pub schedule_revision: i64,
    /// The SHA-256 of the grants of its host's sidecar at the last claim.
    pub grants_hash: Option<InputHash>,
    /// The SHA-256 of its context, without what the host adds.
    pub context_hash: Option<InputHash>,
    pub host: Option<String>,
    /// The host's version of Campanile, and of the next two.
    pub host_version: Option<String>,
    pub wasmtime_version: Option<String>,
    pub tzdata_version: Option<String>,
    pub retry_at: Option<Timestamp>,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
}

/// A query for [`RunRow`]s, with a condition on the launch for runs that launches hold, and for lost runs, and its end.
///
/// A launch holds its newest run. A launch that ended because its run was lost still holds that run.
macro_rules! select_runs {
    ($of_launch:literal, $lost:literal, $end:literal) => {
        concat!(
            "SELECT * FROM (SELECT l.id AS launch_id, l.recoveries + 1 AS number, s.name AS schedule, l.scheduled_time,
                CASE WHEN l.failure = 'lost' THEN 'lost' ELSE l.status END AS status, l.recoveries > 0 AS is_recovery, l.package, l.digest,
                l.schedule_revision, l.grants_hash, l.context_hash, h.name AS host, h.version AS host_version, h.wasmtime_version, h.tzdata_version,
                l.retry_at, l.started_at, l.finished_at, l.failure, l.message
            FROM launch l JOIN schedule s ON s.id = l.schedule_id JOIN host h ON h.id = l.host_id WHERE ", $of_launch, ") AS newest
            UNION ALL SELECT * FROM (SELECT l.id AS launch_id, r.number, s.name AS schedule, l.scheduled_time,
                'lost' AS status, r.number > 1 AS is_recovery, l.package, l.digest,
                l.schedule_revision, r.grants_hash, r.context_hash, h.name AS host, h.version AS host_version, h.wasmtime_version, h.tzdata_version,
                CAST(NULL AS TIMESTAMPTZ) AS retry_at, r.started_at, r.finished_at, 'lost' AS failure, r.message
            FROM lost_run r JOIN launch l ON l.id = r.launch_id JOIN schedule s ON s.id = l.schedule_id JOIN host h ON h.id = r.host_id
            WHERE ", $lost, ") AS lost ", $end
        )
    };
}
pub(super) use select_runs;

statements! {
    /// Returns the numbers of the lost runs of a launch, the earliest first.
    pub async fn lost_of_launch(launch: LaunchId) -> Vec<i64> = values
        "SELECT number FROM lost_run WHERE launch_id = $1 ORDER BY number";

    /// Returns all runs of these launches, in no order.
    pub async fn of_launches(launches: &[LaunchId]) -> Vec<RunRow> = rows_batch
        Batch::new(concat!("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed) ",
        select_runs!("l.id IN (SELECT column1 FROM v)", "r.launch_id IN (SELECT column1 FROM v)", ""))),
        launches, |launch| [*launch];

    /// Returns the newest `limit` runs before the run `number` of `launch`, newest launch first.
    pub(super) async fn list_before(launch: LaunchId, number: i64, limit: i64) -> Vec<RunRow> = rows
        select_runs!("l.id <= $1 AND (l.id < $1 OR l.recoveries + 1 < $2) ORDER BY l.id DESC LIMIT $3",
        "r.launch_id <= $1 AND (r.launch_id < $1 OR r.number < $2) ORDER BY r.launch_id DESC, r.number DESC LIMIT $3",
        "ORDER BY launch_id DESC, number DESC LIMIT $3");

    /// Returns the newest `limit` runs of a schedule before the run `number` of the launch `before` with its slot, newest
    /// slot first.
    pub(super) async fn of_schedule_before(
        schedule: ScheduleId, before: (Timestamp, LaunchId), number: i64, limit: i64,
    ) -> Vec<RunRow> = rows
        select_runs!("l.schedule_id = $1 AND (l.scheduled_time, l.id) <= ($2, $3) AND (l.id <> $3 OR l.recoveries + 1 < $4)
            ORDER BY l.scheduled_time DESC, l.id DESC LIMIT $5",
        "l.schedule_id = $1 AND (l.scheduled_time, l.id) <= ($2, $3) AND (l.id <> $3 OR r.number < $4)
            ORDER BY l.scheduled_time DESC, l.id DESC, r.number DESC LIMIT $5",
        "ORDER BY scheduled_time DESC, launch_id DESC, number DESC LIMIT $5")
        => [schedule, before.0, before.1, number, limit];

    /// Returns the run of that id.
    pub async fn find(run: RunId) -> Option<RunRow> = row
        select_runs!("l.id = $1 AND l.recoveries + 1 = $2", "l.id = $1 AND r.number = $2", "")
        => [run.launch(), run.number()];
}

/// Returns the newest `limit` runs before `before`, newest launch first.
pub async fn list(tx: &mut Tx, before: Option<RunId>, limit: i64) -> Result<Vec<RunRow>> {
    let before = before.unwrap_or(RunId::LAST);
    list_before(tx, before.launch(), before.number(), limit).await
}

/// Returns the newest `limit` runs before `before` of the schedule called `schedule`, newest slot first. If no schedule has
/// that name now, return those of the removed schedules that had it.
pub async fn list_of(
    tx: &mut Tx,
    schedule: &str,
    before: Option<RunId>,
    limit: i64,
) -> Result<Vec<RunRow>> {
    let number = before.unwrap_or(RunId::LAST).number();
    let ids = schedules::ids_named(tx, schedule).await?;
    let before = position(tx, before.map(RunId::launch), &ids).await?;
    let mut rows = Vec::new();
    for id in ids {
        rows.extend(of_schedule_before(tx, id, before, number, limit).await?);
    }
    rows.sort_unstable_by_key(|row| Reverse((row.scheduled_time, row.id)));
    rows.truncate(usize::try_from(limit).unwrap_or_default());
    Ok(rows)
}
