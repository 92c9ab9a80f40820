//! A run as a record, with the recorded calls of its tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_model::read_by_parts;
use campanile_model::text::duration_text;
use campanile_model::trace_context::TraceContext;
use campanile_sandbox::{LogLine, Share};
use campanile_store::runs::RunRow;
use campanile_store::task_runs::{self, CallPlace, TaskRun};
use campanile_store::{DbError, Tx, launch};

/// One run with its calls.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunDetail {
    #[serde(flatten)]
    pub run: RunRow,
    /// The span of the run, as a trace context of W3C. Each call of a task has a span inside.
    #[schemars(with = "String")]
    pub traceparent: TraceContext,
    pub tasks: Vec<TaskCall>,
}

/// One call of a task.
#[derive(Serialize, schemars::JsonSchema)]
pub struct TaskCall {
    #[serde(flatten)]
    pub row: TaskRun,
    pub usage: Vec<Share>,
}

read_by_parts!(TaskCall { row } { usage: Vec<Share> });

/// What one call of a task logged and printed.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct TaskLogs {
    pub task: String,
    pub attempt: i64,
    pub logs: Vec<LogLine>,
    pub stdout: String,
    /// The bytes beyond the limit, which were dropped.
    pub stdout_bytes_dropped: i64,
    pub stderr: String,
    pub stderr_bytes_dropped: i64,
}

/// Approximate limit per answer, in bytes written and returned by calls. A single call may exceed it.
pub const PAGE_BYTES: i64 = 4 << 20;

/// Approximate number of bytes read for a browser page, which only shows the end of each text.
const SHOWN_BYTES: i64 = 1 << 20;

/// Part of a run or of its logs, with the key of the next part, if any.
pub struct Part<T> {
    pub part: T,
    pub next: Option<CallPlace>,
}

impl RunDetail {
    /// Reads a run with its calls after `after`: all of them, unless they wrote and returned more than [`PAGE_BYTES`].
    pub async fn read(
        tx: &mut Tx,
        run: RunRow,
        after: &CallPlace,
    ) -> Result<Part<RunDetail>, DbError> {
        let page = task_runs::page_of_run(tx, run.id, after, PAGE_BYTES).await?;
        let part = RunDetail::with_calls(tx, run, page.calls).await?;
        Ok(Part {
            part,
            next: page.next,
        })
    }

    /// Reads a run with all its calls. Older calls' output is left out beyond a limit of bytes.
    pub async fn shown(tx: &mut Tx, run: RunRow) -> Result<RunDetail, DbError> {
        let mut calls = task_runs::summaries_of_run(tx, run.id).await?;
        let sizes = task_runs::sizes_of_run(tx, run.id, &CallPlace::first(), i64::MAX).await?;
        let mut left = SHOWN_BYTES;
        for size in sizes.iter().rev() {
            left -= size.bytes;
            if left < 0 {
                break;
            }
            let is_it =
                |call: &&mut TaskRun| call.task == size.task && call.attempt == size.attempt;
            let whole = task_runs::find(tx, run.id, &size.task, size.attempt).await?;
            if let (Some(call), Some(whole)) = (calls.iter_mut().find(is_it), whole) {
                *call = whole;
            }
        }
        RunDetail::with_calls(tx, run, calls).await
    }

    /// Returns a run with these calls.
    pub async fn with_calls(
        tx: &mut Tx,
        run: RunRow,
        calls: Vec<TaskRun>,
    ) -> Result<RunDetail, DbError> {
        let caller = launch::caller_traceparent(tx, run.launch_id).await?;
        let launch = TraceContext::of_launch(run.launch_id, caller.flatten());
        Ok(RunDetail {
            traceparent: launch.of_run(run.id),
            tasks: calls.into_iter().map(TaskCall::from).collect(),
            run,
        })
    }
}

impl TaskLogs {
    /// Reads what a run's calls after `after` logged and printed, in parts like [`RunDetail::read`].
    pub async fn read(
        tx: &mut Tx,
        run: RunId,
        after: &CallPlace,
    ) -> Result<Part<Vec<TaskLogs>>, DbError> {
        let page = task_runs::page_of_run(tx, run, after, PAGE_BYTES).await?;
        Ok(Part {
            part: page.calls.into_iter().map(TaskLogs::from).collect(),
            next: page.next,
        })
    }
}

impl From<TaskRun> for TaskCall {
    fn from(row: TaskRun) -> TaskCall {
        let usage = shares(&row.usage);
        TaskCall { row, usage }
    }
}

impl From<TaskRun> for TaskLogs {
    fn from(row: TaskRun) -> TaskLogs {
        TaskLogs {
            logs: serde_json::from_str(&row.logs).unwrap_or_default(),
            task: row.task,
            attempt: row.attempt,
            stdout: row.stdout,
            stdout_bytes_dropped: row.stdout_bytes_dropped,
            stderr: row.stderr,
            stderr_bytes_dropped: row.stderr_bytes_dropped,
        }
    }
}

/// Returns a sentence that retention has removed the calls of a run that ended at `finished_at`, if it ended long enough ago.
/// `age` is `retention.logs`.
pub fn removed_calls_note(
    finished_at: Option<Timestamp>,
    age: Option<Duration>,
    now: Timestamp,
) -> Option<String> {
    let age = age?;
    let is_removed = finished_at?.plus(age) <= now;
    is_removed.then(|| {
        let age = duration_text(age);
        format!(
            "the calls of this run are not on record: retention removes outputs and logs {age} after the end of a launch (`retention.logs`)"
        )
    })
}

/// Parse the stored usage of a call: `{"memory":[used, limit], …}`.
fn shares(text: &str) -> Vec<Share> {
    let stored: BTreeMap<String, (u64, u64)> = serde_json::from_str(text).unwrap_or_default();
    let shares = stored.into_iter().filter_map(|(resource, (used, limit))| {
        Some(Share {
            resource: resource.parse().ok()?,
            used,
            limit,
        })
    });
    shares.collect()
}
