//! Runs: renew leases, record calls, finish runs.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::{Batch, RowLocks, statements};
use super::task_runs::{self, TaskRun};
use super::types::storable;
use super::{Result, Tx};
use super::{results, schedules};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, InputHash, LaunchId, RunId, ScheduleId};
use campanile_model::status::{FailureKind, LaunchStatus, RunStatus};

/// The hashes of what a run uses besides its code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunHashes {
    /// Of the grants of its host's sidecar.
    pub grants: Option<InputHash>,
    /// Of the context, without what the host adds.
    pub context: Option<InputHash>,
}

/// How a run ends on its host.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub run_id: RunId,
    /// The fence under which the host claimed it.
    pub fence: i64,
    pub schedule_id: ScheduleId,
    pub scheduled_time: Timestamp,
    pub at: Timestamp,
    pub end: RunEnd,
    /// Calls that are not recorded yet.
    pub tasks: Vec<TaskRun>,
}

/// How a run ended on its host.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    Succeeded {
        /// JSON.
        output: Option<String>,
    },
    Failed {
        kind: FailureKind,
        message: String,
    },
    /// It was asked to end.
    Cancelled {
        message: String,
    },
    /// A task is called again later.
    Waiting {
        retry_at: Timestamp,
    },
}

impl Finish {
    /// Return when the run finished; none when it waits for a retry.
    fn finished_at(&self) -> Option<Timestamp> {
        self.end.retry_at().is_none().then_some(self.at)
    }
}

impl RunEnd {
    fn status(&self) -> LaunchStatus {
        match self {
            RunEnd::Succeeded { .. } => LaunchStatus::Succeeded,
            RunEnd::Failed { .. } => LaunchStatus::Failed,
            RunEnd::Cancelled { .. } => LaunchStatus::Cancelled,
            RunEnd::Waiting { .. } => LaunchStatus::Waiting,
        }
    }

    fn retry_at(&self) -> Option<Timestamp> {
        match self {
            RunEnd::Waiting { retry_at } => Some(*retry_at),
            _ => None,
        }
    }

    /// Return the reason of a cancelled launch that has none yet.
    fn reason(&self) -> Option<&'static str> {
        matches!(self, RunEnd::Cancelled { .. }).then_some(super::overlap::REASON)
    }

    /// Return the kind and the message of the failure, as the columns have them.
    fn failure(&self) -> (Option<FailureKind>, Option<Cow<'_, str>>) {
        match self {
            RunEnd::Failed { kind, message } => (Some(*kind), Some(storable(message))),
            RunEnd::Cancelled { message } => {
                (Some(FailureKind::Cancelled), Some(storable(message)))
            }
            _ => (None, None),
        }
    }
}

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
    /// End the runs whose fence is current, and return their launches with these fences.
    // A launch that an operator asked to end has its reason and its message already. It keeps them also when its run ends
    // to be retried: recovery ends it then.
    pub(super) async fn end_current(finishes: &[Finish]) -> Vec<(LaunchId, i64)> = rows_batch
        Batch::of_launches(RowLocks::InOrder, "UPDATE launch SET status = v.column3, finished_at = v.column4, retry_at = v.column5, failure = v.column6,
            message = CASE WHEN v.column3 = 'cancelled' THEN coalesce(launch.message || '; ', '') || v.column7
                WHEN v.column3 = 'waiting' AND launch.cancel_deadline IS NOT NULL THEN launch.message ELSE v.column7 END,
            reason = CASE WHEN v.column3 = 'cancelled' THEN coalesce(launch.reason, v.column8)
                WHEN v.column3 = 'waiting' AND launch.cancel_deadline IS NOT NULL THEN launch.reason ELSE v.column8 END, lease_until = NULL
        FROM (VALUES ($1, $2, $3, $4, $5, $6, $7, $8)) AS v
        WHERE launch.id = v.column1 AND (launch.attempts = v.column2 AND launch.status = 'running') IS TRUE RETURNING launch.id, launch.attempts"),
        finishes, |finish| [
            finish.run_id.launch(), finish.fence, finish.end.status(), finish.finished_at(), finish.end.retry_at(),
            finish.end.failure().0, finish.end.failure().1, finish.end.reason(),
        ];

    /// Renew the leases of runs whose fence is current, and return their launches with these fences and the cancel
    /// deadlines.
    pub(super) async fn renew_current(
        held: &[(RunId, i64)], lease_until: Timestamp,
    ) -> Vec<(LaunchId, i64, Option<Timestamp>)> = rows_batch
        Batch::of_launches(RowLocks::InOrder, "UPDATE launch SET lease_until = v.column3 FROM (VALUES ($1, $2, $3)) AS v
        WHERE launch.id = v.column1 AND (launch.attempts = v.column2 AND launch.status = 'running') IS TRUE
        RETURNING launch.id, launch.attempts, launch.cancel_deadline"),
        held, |(run, fence)| [run.launch(), *fence, lease_until];

    /// Lock a run until the transaction ends, if it is running under `fence`. No host claims it until then.
    pub async fn lock_if_current(run: RunId, fence: i64) -> bool = changed
        "UPDATE launch SET lease_until = lease_until WHERE id = $1 AND attempts = $2 AND status = 'running'"
        => [run.launch(), fence];

    /// Return the numbers of the lost runs of a launch, the earliest first.
    pub async fn lost_of_launch(launch: LaunchId) -> Vec<i64> = values
        "SELECT number FROM lost_run WHERE launch_id = $1 ORDER BY number";

    /// Return the newest `limit` runs before the run `number` of `launch`, newest launch first.
    pub(super) async fn list_before(launch: LaunchId, number: i64, limit: i64) -> Vec<RunRow> = rows
        select_runs!("l.id <= $1 AND (l.id < $1 OR l.recoveries + 1 < $2) ORDER BY l.id DESC LIMIT $3",
        "r.launch_id <= $1 AND (r.launch_id < $1 OR r.number < $2) ORDER BY r.launch_id DESC, r.number DESC LIMIT $3",
        "ORDER BY launch_id DESC, number DESC LIMIT $3");

    /// Return the newest `limit` runs of a schedule before the run `number` of the launch `before` with its slot, newest
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

    /// Returns the slot of a launch belonging to this schedule.
    pub(super) async fn slot(id: LaunchId, schedule: ScheduleId) -> Option<Timestamp> = value
        "SELECT scheduled_time FROM launch WHERE id = $1 AND schedule_id = $2";

    /// Return the run of that id.
    pub async fn find(run: RunId) -> Option<RunRow> = row
        select_runs!("l.id = $1 AND l.recoveries + 1 = $2", "l.id = $1 AND r.number = $2", "")
        => [run.launch(), run.number()];
}

/// Return the newest `limit` runs before `before`, newest launch first.
pub async fn list(tx: &mut Tx, before: Option<RunId>, limit: i64) -> Result<Vec<RunRow>> {
    let before = before.unwrap_or(RunId::LAST);
    list_before(tx, before.launch(), before.number(), limit).await
}

/// Return the newest `limit` runs before `before` of the schedule called `schedule`, newest slot first. If no schedule has
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

/// After every launch.
pub(super) const NEWEST: (Timestamp, LaunchId) = (Timestamp::LAST, LaunchId::LAST);

/// Returns the slot and id of the launch before which a list of `schedules` begins. Without a launch, the list begins with the
/// newest. Another schedule's launch reveals nothing about its slot, as the reader may not be allowed to know it.
pub(super) async fn position(
    tx: &mut Tx,
    launch: Option<LaunchId>,
    schedules: &[ScheduleId],
) -> Result<(Timestamp, LaunchId)> {
    let Some(id) = launch else {
        return Ok(NEWEST);
    };
    for schedule in schedules {
        if let Some(slot) = slot(tx, id, *schedule).await? {
            return Ok((slot, id));
        }
    }
    Ok((Timestamp::LAST, id))
}

/// Renew the leases of runs, each under its fence; return the runs that the host still holds, with their cancel
/// deadlines.
///
/// The caller names the runs that it executes. When the answer to a claim's commit was lost, the record gives the run
/// to a host that does not execute it. That run's lease must expire.
pub async fn renew(
    tx: &mut Tx,
    held: &[(RunId, i64)],
    lease_until: Timestamp,
) -> Result<Vec<(RunId, Option<Timestamp>)>> {
    let renewed = renew_current(tx, held, lease_until).await?;
    // A host can also execute a lost run of the same launch. That run has another fence.
    let renewed = renewed
        .into_iter()
        .map(|(launch, fence, deadline)| ((launch, fence), deadline));
    let deadlines: HashMap<(LaunchId, i64), Option<Timestamp>> = renewed.collect();
    let still = held
        .iter()
        .filter_map(|(run, fence)| Some((*run, *deadlines.get(&(run.launch(), *fence))?)));
    Ok(still.collect())
}

/// Finish runs; return those whose fence was current. The others were lost, and nothing of them is applied.
pub async fn finish(tx: &mut Tx, finishes: &[Finish]) -> Result<Vec<RunId>> {
    let ended = end_current(tx, finishes).await?;
    let current: HashSet<(LaunchId, i64)> = ended.into_iter().collect();
    let finishes: Vec<&Finish> = finishes
        .iter()
        .filter(|finish| current.contains(&(finish.run_id.launch(), finish.fence)))
        .collect();
    let tasks: Vec<(RunId, &TaskRun)> = finishes
        .iter()
        .flat_map(|finish| finish.tasks.iter().map(|task| (finish.run_id, task)))
        .collect();
    task_runs::insert(tx, &tasks).await?;
    keep_results(tx, &finishes).await?;
    Ok(finishes.iter().map(|finish| finish.run_id).collect())
}

/// Record calls of tasks of a run that continues. False when the run's fence is not current.
pub async fn record_tasks(tx: &mut Tx, run: RunId, fence: i64, tasks: &[TaskRun]) -> Result<bool> {
    let is_current = lock_if_current(tx, run, fence).await?;
    if is_current {
        let tasks: Vec<(RunId, &TaskRun)> = tasks.iter().map(|task| (run, task)).collect();
        task_runs::insert(tx, &tasks).await?;
    }
    Ok(is_current)
}

/// Keep the results and failures that the next launches of these schedules get.
async fn keep_results(tx: &mut Tx, finishes: &[&Finish]) -> Result {
    let successes = finishes.iter().filter_map(|finish| match &finish.end {
        RunEnd::Succeeded { output } => Some((
            finish.schedule_id,
            finish.scheduled_time,
            output.as_deref().map(Cow::Borrowed),
        )),
        _ => None,
    });
    results::keep(tx, &results::SUCCESS, successes).await?;
    let failures = finishes.iter().filter_map(|finish| match &finish.end {
        RunEnd::Failed { kind, message } => Some(results::failure(
            finish.schedule_id,
            finish.scheduled_time,
            *kind,
            message,
        )),
        _ => None,
    });
    results::keep(tx, &results::FAILURE, failures).await
}
