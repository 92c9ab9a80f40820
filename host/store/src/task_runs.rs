//! Task runs: the calls of tasks inside runs. Rows are added, and deleted by retention.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::{Batch, statements};
use super::types::{json_text, optional_stored_json, storable, stored_json};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId};
use campanile_model::status::FailureKind;

/// One call of one task that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct TaskRun {
    pub task: String,
    pub attempt: i64,
    pub succeeded: bool,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub retry_at: Option<Timestamp>,
    /// JSON.
    #[serde(
        serialize_with = "json_text",
        deserialize_with = "optional_stored_json"
    )]
    #[schemars(with = "Option<serde_json::Value>")]
    pub output: Option<String>,
    /// JSON object.
    #[serde(
        serialize_with = "json_text",
        deserialize_with = "optional_stored_json"
    )]
    #[schemars(with = "Option<serde_json::Value>")]
    pub context: Option<String>,
    pub failure: Option<FailureKind>,
    /// Why it failed. Of a call that `failed` or `trapped`, these are words of the task.
    pub message: Option<String>,
    /// What the host says about such a failure: the limit that was reached before, or a grant that the operator may add.
    pub note: Option<String>,
    pub stdout: String,
    /// The bytes beyond the limit, which were dropped.
    pub stdout_bytes_dropped: i64,
    pub stderr: String,
    pub stderr_bytes_dropped: i64,
    /// JSON list of lines.
    #[serde(serialize_with = "json_text", deserialize_with = "stored_json")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub logs: String,
    pub wall_ms: f64,
    pub cpu_ms: f64,
    pub memory_peak_bytes: i64,
    /// JSON object: for each limited resource, the amount used and the limit.
    #[serde(skip)]
    pub usage: String,
}

/// What a recovery needs of a recorded call: neither what it printed nor what it used.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct LaunchCall {
    /// The number of its run.
    pub run_number: i64,
    pub task: String,
    pub attempt: i64,
    pub succeeded: bool,
    pub retry_at: Option<Timestamp>,
    /// JSON; only of a call that succeeded.
    pub output: Option<String>,
    /// JSON object; only of a call that succeeded.
    pub context: Option<String>,
    pub failure: Option<FailureKind>,
    /// Only of a final failure.
    pub message: Option<String>,
}

impl TaskRun {
    /// Return a call of `task` that succeeded without output.
    pub fn succeeded(
        task: &str,
        attempt: i64,
        started_at: Timestamp,
        finished_at: Timestamp,
    ) -> TaskRun {
        TaskRun {
            task: task.to_owned(),
            attempt,
            succeeded: true,
            started_at,
            finished_at,
            retry_at: None,
            output: None,
            context: None,
            failure: None,
            message: None,
            note: None,
            stdout: String::new(),
            stdout_bytes_dropped: 0,
            stderr: String::new(),
            stderr_bytes_dropped: 0,
            logs: "[]".to_owned(),
            wall_ms: 0.0,
            cpu_ms: 0.0,
            memory_peak_bytes: 0,
            usage: "{}".to_owned(),
        }
    }
}

statements! {
    /// Insert calls, each with its run.
    // A commit whose answer was lost is repeated with the same calls.
    pub(super) async fn insert(tasks: &[(RunId, &TaskRun)]) -> () = execute_batch
        Batch::new("INSERT INTO task_run (launch_id, run_number, task, attempt, succeeded, started_at, finished_at, retry_at, output, context, failure, message,
            stdout, stderr, logs, wall_ms, cpu_ms, memory_peak_bytes, usage, note, stdout_bytes_dropped, stderr_bytes_dropped)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
        ON CONFLICT (launch_id, task, attempt) DO NOTHING"),
        tasks, |(run, task)| [
            run.launch(), run.number(), &task.task, task.attempt, task.succeeded, task.started_at, task.finished_at, task.retry_at,
            &task.output, &task.context, task.failure, task.message.as_deref().map(storable), storable(&task.stdout),
            storable(&task.stderr), &task.logs, task.wall_ms, task.cpu_ms, task.memory_peak_bytes, &task.usage,
            task.note.as_deref().map(storable), task.stdout_bytes_dropped, task.stderr_bytes_dropped,
        ];

    /// Return all calls of tasks for a launch, over all its runs, in the order in which they started.
    pub async fn of_launch(launch: LaunchId) -> Vec<LaunchCall> = rows
        "SELECT run_number, task, attempt, succeeded, retry_at, failure,
            CASE WHEN succeeded THEN output END AS output, CASE WHEN succeeded THEN context END AS context,
            CASE WHEN retry_at IS NULL THEN message END AS message
        FROM task_run WHERE launch_id = $1 ORDER BY started_at, task, attempt";

    /// Return the bytes of all contexts and outputs that [`of_launch`] returns.
    pub async fn bytes_of_launch(launch: LaunchId) -> i64 = one_value
        "SELECT CAST(coalesce(sum(coalesce(octet_length(output), 0) + coalesce(octet_length(context), 0)), 0) AS BIGINT)
        FROM task_run WHERE launch_id = $1 AND succeeded";

    /// Count the calls of tasks in one run.
    pub async fn count_of_run(run: RunId) -> i64 = one_value
        "SELECT count(*) FROM task_run WHERE launch_id = $1 AND run_number = $2"
        => [run.launch(), run.number()];

    /// Returns what the host says about the last call for a launch that failed for good.
    pub async fn note_of_launch(launch: LaunchId) -> Option<String> = value
        "SELECT note FROM task_run WHERE launch_id = $1 AND note IS NOT NULL AND retry_at IS NULL ORDER BY finished_at DESC LIMIT 1";

    /// Whether a call of a task for a launch is recorded.
    pub async fn is_recorded(launch: LaunchId, task: &str, attempt: i64) -> bool = one_value
        "SELECT EXISTS (SELECT 1 FROM task_run WHERE launch_id = $1 AND task = $2 AND attempt = $3)";

    /// Return all calls of tasks in one run, in the order in which they started.
    pub async fn of_run(run: RunId) -> Vec<TaskRun> = rows
        "SELECT task, attempt, succeeded, started_at, finished_at, retry_at, output, context, failure, message, note, stdout,
            stdout_bytes_dropped, stderr, stderr_bytes_dropped, logs, wall_ms, cpu_ms, memory_peak_bytes, usage
        FROM task_run WHERE launch_id = $1 AND run_number = $2 ORDER BY started_at, task, attempt"
        => [run.launch(), run.number()];
}
