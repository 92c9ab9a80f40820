//! A launch as a record, and the results of the commands on one launch.

use serde::{Deserialize, Serialize};

use super::ids;
use crate::admin::launch_admin::Cancelled;
use crate::admin::schedule_admin::{self, ScheduleError, Triggered};
use crate::problem::Problem;
use crate::rules::plan;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ShortId};
use campanile_model::namespace::Namespace;
use campanile_model::read_by_parts;
use campanile_model::status::FailureKind;
use campanile_model::trace_context::TraceContext;
use campanile_store::history::{self, DecidedLaunch};
use campanile_store::launch::{self, LaunchFilter, LaunchPage, LaunchRow};
use campanile_store::runs::RunRow;
use campanile_store::{Decision, LaunchStatus, Tx, removed_launches, task_runs};

/// One launch with its runs.
#[derive(Serialize, schemars::JsonSchema)]
pub struct LaunchDetail {
    #[serde(flatten)]
    pub decided: DecidedLaunch,
    /// The span of the launch, as a trace context of W3C.
    #[schemars(with = "String")]
    pub traceparent: TraceContext,
    /// What the host says about the last call that failed, such as a grant that it may lack. `message` has the words of the task.
    pub note: Option<String>,
    pub runs: Vec<RunRow>,
}

read_by_parts!(LaunchDetail { decided } {
    traceparent: TraceContext,
    note: Option<String>,
    runs: Vec<RunRow>,
});

/// The result of `schedule trigger` and `run retry`.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct TriggerReport {
    pub schedule: String,
    pub launch: LaunchId,
    pub scheduled_time: Timestamp,
    pub decision: Decision,
    /// The unfinished launch because of which this one is skipped.
    pub overlaps: Option<LaunchId>,
}

/// The result of `run cancel`.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct CancelReport {
    pub launch: LaunchId,
    /// `running` until the host that runs it has ended it.
    pub status: LaunchStatus,
    /// By when a running launch has to end.
    pub deadline: Option<Timestamp>,
}

/// Returns what to do about a launch that did not succeed; none for any other launch.
pub fn next_step(launch: &LaunchRow) -> Option<&'static str> {
    let step = match (launch.status, launch.failure) {
        (LaunchStatus::Unknown, _) => {
            "find out whether its work was done; it may run at most once, so retry it only if it was not"
        }
        (LaunchStatus::Abandoned, _) => "mend what its reason names, then retry it",
        (LaunchStatus::Failed, Some(FailureKind::TimedOut)) => {
            "find in its logs what took so long, or give its task more time, then retry it"
        }
        (LaunchStatus::Failed, Some(FailureKind::MemoryExceeded)) => {
            "let its task use less memory, or raise the limit in its sidecar, then retry it"
        }
        (LaunchStatus::Failed, Some(FailureKind::Denied)) => {
            "grant in its sidecar what was denied, if the task may have it, then retry it"
        }
        (LaunchStatus::Failed, Some(FailureKind::QuotaExceeded)) => {
            "wait for the next day, or raise the quota of its package, then retry it"
        }
        (LaunchStatus::Failed, _) => "read its logs, mend the cause, then retry it",
        _ => return None,
    };
    Some(step)
}

impl LaunchDetail {
    /// Read the launch that an id means.
    pub async fn read(
        tx: &mut Tx,
        id: &ShortId,
        namespace: Option<&Namespace>,
    ) -> Result<LaunchDetail, Problem> {
        let decided = ids::decided(tx, id, namespace).await?;
        let runs = history::runs(tx, decided.launch.id).await?;
        let traceparent = TraceContext::of_launch(decided.launch.id, decided.caller_traceparent);
        Ok(LaunchDetail {
            note: task_runs::note_of_launch(tx, decided.launch.id).await?,
            decided,
            traceparent,
            runs,
        })
    }
}

impl TriggerReport {
    /// Say what the overlap policy decided about a launch that was requested.
    pub fn new(schedule: String, scheduled_time: Timestamp, triggered: Triggered) -> Self {
        let (decision, _, overlaps) = plan::recorded(triggered.decision);
        TriggerReport {
            schedule,
            launch: triggered.launch,
            scheduled_time,
            decision,
            overlaps,
        }
    }
}

impl CancelReport {
    /// Say how a request to cancel was answered.
    pub fn new(launch: LaunchId, cancelled: Cancelled) -> CancelReport {
        let (status, deadline) = match cancelled {
            Cancelled::Ended(status) => (status, None),
            Cancelled::Asked(deadline) => (LaunchStatus::Running, Some(deadline)),
        };
        CancelReport {
            launch,
            status,
            deadline,
        }
    }
}

/// Returns the newest launches that pass `filter`, of those after the launch `after`. At most about `looked_at_max` launches
/// are looked at.
pub async fn list(
    tx: &mut Tx,
    filter: &LaunchFilter<'_>,
    after: Option<&ShortId>,
    limit: i64,
    looked_at_max: i64,
) -> Result<LaunchPage, Problem> {
    let after = match after {
        Some(after) => Some(ids::position(tx, after, filter.namespace).await?),
        None => None,
    };
    let page = launch::search(tx, filter, after, limit, looked_at_max).await?;
    if let (Some(name), true) = (filter.schedule, page.rows.is_empty()) {
        refuse_unknown_schedule(tx, name).await?;
    }
    Ok(page)
}

/// Refuse the name of a schedule that never existed: an empty list would hide the mistake.
pub async fn refuse_unknown_schedule(tx: &mut Tx, name: &str) -> Result<(), ScheduleError> {
    // A removed schedule is still known by its launches.
    let is_known = removed_launches::newest_day_of(tx, name).await?.is_some();
    if !is_known && launch::list_of(tx, name, None, 1).await?.is_empty() {
        schedule_admin::find(tx, name).await?;
    }
    Ok(())
}
