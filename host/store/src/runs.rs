//! Runs: renew leases, record calls, finish runs.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;
use sqlx::FromRow;

use super::results;
use super::sql::{Batch, execute_batch, statements, values_batch};
use super::task_runs::{self, TaskRun};
use super::types::storable;
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, LaunchId, RunId, ScheduleId};
use campanile_model::status::{FailureKind, LaunchStatus, RunStatus};

/// The SHA-256, in lower-case hexadecimal, of what a run uses besides its code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunHashes {
    /// Of the grants of its host's sidecar.
    pub grants: Option<String>,
    /// Of the context, without what the host adds.
    pub context: Option<String>,
}

/// How a run ends on its host.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub run_id: RunId,
    /// The fence under which the host claimed it.
    pub fence: i64,
    pub launch_id: LaunchId,
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
    /// Return the status of the run and of its launch.
    fn status(&self) -> (RunStatus, LaunchStatus) {
        match self {
            RunEnd::Succeeded { .. } => (RunStatus::Succeeded, LaunchStatus::Succeeded),
            RunEnd::Failed { .. } => (RunStatus::Failed, LaunchStatus::Failed),
            RunEnd::Cancelled { .. } => (RunStatus::Cancelled, LaunchStatus::Cancelled),
            RunEnd::Waiting { .. } => (RunStatus::Waiting, LaunchStatus::Waiting),
        }
    }

    fn retry_at(&self) -> Option<Timestamp> {
        match self {
            RunEnd::Waiting { retry_at } => Some(*retry_at),
            _ => None,
        }
    }

    /// Return why the launch was cancelled. Overlap is the only reason.
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
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, schemars::JsonSchema)]
pub struct RunRow {
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
    pub grants_hash: Option<String>,
    /// The SHA-256 of its context, without what the host adds.
    pub context_hash: Option<String>,
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

/// A query for [`RunRow`]s, before its condition.
macro_rules! run_columns {
    () => {
        "r.id, r.launch_id, s.name AS schedule, l.scheduled_time, r.status, r.is_recovery, l.package, r.digest, l.schedule_revision,
        r.grants_hash, r.context_hash, h.name AS host, h.version AS host_version, h.wasmtime_version, h.tzdata_version, r.retry_at,
        r.started_at, r.finished_at, r.failure, r.message
    FROM run r JOIN launch l ON l.id = r.launch_id JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = r.host_id
    WHERE "
    };
}
pub(super) use run_columns;

statements! {
    const FINISH: Batch = Batch::new(
        "UPDATE run SET status = v.column3, finished_at = v.column4, retry_at = v.column5, failure = v.column6, message = v.column7,
            lease_until = NULL
        FROM (VALUES ($1, $2, $3, $4, $5, $6, $7)) AS v
        WHERE run.id = v.column1 AND (run.fence = v.column2 AND run.status = 'running') = TRUE RETURNING run.id",
    );
    const FINISH_LAUNCH: Batch = Batch::new(
        "UPDATE launch SET status = v.column2, finished_at = v.column3, failure = v.column4, message = v.column5, reason = v.column6
        FROM (VALUES ($1, $2, $3, $4, $5, $6)) AS v WHERE launch.id = v.column1 AND (launch.status = 'running') = TRUE",
    );

    /// Record the hashes of runs whose retries were claimed.
    pub async fn set_run_hashes(runs: &[(RunId, RunHashes)]) -> () = execute_batch
        Batch::new("UPDATE run SET grants_hash = v.column2, context_hash = v.column3
        FROM (VALUES ($1, $2, $3)) AS v WHERE run.id = v.column1"),
        runs, |(run, hashes)| [*run, &hashes.grants, &hashes.context];

    /// Renew the leases of runs, each under its fence; return the runs that the host still holds, with their cancel
    /// deadlines.
    ///
    /// The caller names the runs that it executes. When the answer to a claim's commit was lost, the record gives the run
    /// to a host that does not execute it. That run's lease must expire.
    pub async fn renew(held: &[(RunId, i64)], lease_until: Timestamp) -> Vec<(RunId, Option<Timestamp>)> = rows_batch
        Batch::new("UPDATE run SET lease_until = v.column3 FROM (VALUES ($1, $2, $3)) AS v
        WHERE run.id = v.column1 AND run.fence = v.column2 AND run.status = 'running' RETURNING run.id, run.cancel_deadline"),
        held, |(run, fence)| [*run, *fence, lease_until];

    /// Lock a run until the transaction ends, if it is running under `fence`. No host claims it until then.
    pub async fn lock_if_current(run: RunId, fence: i64) -> bool = changed
        "UPDATE run SET lease_until = lease_until WHERE id = $1 AND fence = $2 AND status = 'running'";

    /// Return the lost runs of a launch, the earliest first.
    pub async fn lost_of_launch(launch: LaunchId) -> Vec<RunId> = values
        "SELECT id FROM run WHERE launch_id = $1 AND status = 'lost' ORDER BY started_at, id";

    /// Return the newest `limit` runs, newest first; only those of schedules called `schedule`, when given.
    pub async fn list(schedule: Option<&str>, limit: i64) -> Vec<RunRow> = rows
        concat!("SELECT ", run_columns!(), "s.name = $1 OR $1 IS NULL ORDER BY r.id DESC LIMIT $2");

    /// Return the run of that id.
    pub async fn find(run: RunId) -> Option<RunRow> = row concat!("SELECT ", run_columns!(), "r.id = $1");
}

/// Finish runs; return those whose fence was current. The others were lost, and nothing of them is applied.
pub async fn finish(tx: &mut Tx, finishes: &[Finish]) -> Result<Vec<RunId>> {
    let won: Vec<RunId> = values_batch!(tx, FINISH, finishes, |finish| [
        finish.run_id,
        finish.fence,
        finish.end.status().0,
        finish.finished_at(),
        finish.end.retry_at(),
        finish.end.failure().0,
        finish.end.failure().1,
    ])?;
    let current: HashSet<RunId> = won.iter().copied().collect();
    let finishes: Vec<&Finish> = finishes
        .iter()
        .filter(|finish| current.contains(&finish.run_id))
        .collect();
    execute_batch!(tx, FINISH_LAUNCH, &finishes, |finish| [
        finish.launch_id,
        finish.end.status().1,
        finish.finished_at(),
        finish.end.failure().0,
        finish.end.failure().1,
        finish.end.reason(),
    ])?;
    let tasks: Vec<(RunId, &TaskRun)> = finishes
        .iter()
        .flat_map(|finish| finish.tasks.iter().map(|task| (finish.run_id, task)))
        .collect();
    task_runs::insert(tx, &tasks).await?;
    keep_results(tx, &finishes).await?;
    Ok(won)
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
