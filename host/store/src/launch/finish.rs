//! How runs end on their hosts: leases, recorded calls, ends.

use std::collections::{HashMap, HashSet};

use super::arrows::finish_current;
use super::change::{Finish, RunEnd};
use crate::results::{self, LastResult};
use crate::sql::{Batch, RowLocks, statements};
use crate::task_runs::{self, TaskRun};
use crate::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId};

statements! {
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
    let ended = finish_current(tx, finishes).await?;
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
        RunEnd::Succeeded { output } => Some(LastResult::success(
            (finish.schedule_id, finish.scheduled_time),
            finish.at,
            output.as_deref(),
        )),
        _ => None,
    });
    results::keep_successes(tx, successes).await?;
    let failures = finishes.iter().filter_map(|finish| match &finish.end {
        RunEnd::Failed { kind, message } => Some(LastResult::failure(
            (finish.schedule_id, finish.scheduled_time),
            finish.at,
            *kind,
            message,
        )),
        _ => None,
    });
    results::keep_failures(tx, failures).await
}
