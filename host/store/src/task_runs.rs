//! Task runs: the calls of tasks inside runs. Rows are added, and deleted by retention.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::{Batch, statements};
use super::types::{json_text, optional_stored_json, storable, stored_json};
use super::{Result, Tx};
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

/// A call of a task for its launch's trace, without what it printed or returned.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct TracedCall {
    /// The run of the call.
    #[sqlx(flatten)]
    pub run: RunId,
    pub task: String,
    pub attempt: i64,
    pub succeeded: bool,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
}

impl TaskRun {
    /// Returns a call of `task` that succeeded without output.
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

/// A call's position in the order its run's calls started. Its text form serves as a page key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPlace {
    pub started_at: Timestamp,
    pub task: String,
    pub attempt: i64,
}

campanile_model::as_text!(CallPlace);

/// Error for a text not naming a [`CallPlace`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no place among the calls of a run: give the one named by the page before")]
pub struct InvalidPlace(String);

impl CallPlace {
    /// Returns the place before all calls.
    pub fn first() -> CallPlace {
        CallPlace {
            started_at: Timestamp::FIRST,
            task: String::new(),
            attempt: 0,
        }
    }

    pub fn of(call: &TaskRun) -> CallPlace {
        CallPlace {
            started_at: call.started_at,
            task: call.task.clone(),
            attempt: call.attempt,
        }
    }
}

impl fmt::Display for CallPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}.{}",
            self.started_at.micros(),
            self.attempt,
            self.task
        )
    }
}

impl FromStr for CallPlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> std::result::Result<CallPlace, InvalidPlace> {
        let mut parts = text.splitn(3, '.');
        let mut read = || {
            Some(CallPlace {
                started_at: Timestamp::from_micros(parts.next()?.parse().ok()?),
                attempt: parts.next()?.parse().ok()?,
                task: parts.next()?.to_owned(),
            })
        };
        read().ok_or_else(|| InvalidPlace(text.to_owned()))
    }
}

/// The size of one call.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct CallSize {
    pub started_at: Timestamp,
    pub task: String,
    pub attempt: i64,
    pub finished_at: Timestamp,
    /// Total bytes of its texts and JSON.
    pub bytes: i64,
}

/// A page of a run's calls.
#[derive(Debug, Default, PartialEq)]
pub struct CallsPage {
    pub calls: Vec<TaskRun>,
    /// The last of them, if there are more.
    pub next: Option<CallPlace>,
}

/// A query for whole [`TaskRun`]s.
macro_rules! select_calls {
    ($which:literal) => {
        concat!(
            "SELECT task, attempt, succeeded, started_at, finished_at, retry_at, output, context, failure, message, note, stdout,
            stdout_bytes_dropped, stderr, stderr_bytes_dropped, logs, wall_ms, cpu_ms, memory_peak_bytes, usage
        FROM task_run ",
            $which
        )
    };
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

    /// Returns all calls of tasks for a launch, over all its runs, in the order in which they started.
    pub async fn of_launch(launch: LaunchId) -> Vec<LaunchCall> = rows
        "SELECT run_number, task, attempt, succeeded, retry_at, failure,
            CASE WHEN succeeded THEN output END AS output, CASE WHEN succeeded THEN context END AS context,
            CASE WHEN retry_at IS NULL THEN message END AS message
        FROM task_run WHERE launch_id = $1 ORDER BY started_at, task, attempt";

    /// Returns the recorded calls of tasks of these launches: at most 4,096, by their launches and runs.
    pub async fn traced(launches: &[LaunchId]) -> Vec<TracedCall> = rows_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed)
        SELECT t.launch_id, t.run_number AS number, t.task, t.attempt, t.succeeded, t.started_at, t.finished_at, t.failure, t.message
        FROM task_run t WHERE t.launch_id IN (SELECT column1 FROM v) ORDER BY t.launch_id, t.run_number, t.started_at LIMIT 4096"),
        launches, |launch| [*launch];

    /// Returns the bytes of all contexts and outputs that [`of_launch`] returns.
    pub async fn bytes_of_launch(launch: LaunchId) -> i64 = one_value
        "SELECT CAST(coalesce(sum(coalesce(octet_length(output), 0) + coalesce(octet_length(context), 0)), 0) AS BIGINT)
        FROM task_run WHERE launch_id = $1 AND succeeded";

    /// Count the calls of tasks in one run.
    pub async fn count_of_run(run: RunId) -> i64 = one_value
        "SELECT count(*) FROM task_run WHERE launch_id = $1 AND run_number = $2"
        => [run.launch(), run.number()];

    /// Returns the host's note on the last finally failed call of a launch.
    pub async fn note_of_launch(launch: LaunchId) -> Option<String> = value
        "SELECT note FROM task_run WHERE launch_id = $1 AND note IS NOT NULL AND retry_at IS NULL ORDER BY finished_at DESC LIMIT 1";

    /// Whether a call of a task for a launch is recorded.
    pub async fn is_recorded(launch: LaunchId, task: &str, attempt: i64) -> bool = one_value
        "SELECT EXISTS (SELECT 1 FROM task_run WHERE launch_id = $1 AND task = $2 AND attempt = $3)";

    /// Returns all task calls of one run in starting order. Their output may take gigabytes, so hosts read [`page_of_run`] or
    /// [`summaries_of_run`] instead.
    pub async fn of_run(run: RunId) -> Vec<TaskRun> = rows
        select_calls!("WHERE launch_id = $1 AND run_number = $2 ORDER BY started_at, task, attempt")
        => [run.launch(), run.number()];

    /// Returns one call of a run.
    pub async fn find(run: RunId, task: &str, attempt: i64) -> Option<TaskRun> = row
        select_calls!("WHERE launch_id = $1 AND run_number = $2 AND task = $3 AND attempt = $4")
        => [run.launch(), run.number(), task, attempt];

    /// Returns the first `limit` calls of a run after a place.
    pub(super) async fn of_run_after(run: RunId, after: &CallPlace, limit: i64) -> Vec<TaskRun> = rows
        select_calls!("WHERE launch_id = $1 AND run_number = $2 AND (started_at, task, attempt) > ($3, $4, $5)
            ORDER BY started_at, task, attempt LIMIT $6")
        => [run.launch(), run.number(), after.started_at, &after.task, after.attempt, limit];

    /// Returns the places and sizes of the first `limit` calls of a run after a place.
    pub async fn sizes_of_run(run: RunId, after: &CallPlace, limit: i64) -> Vec<CallSize> = rows
        "SELECT started_at, task, attempt, finished_at, CAST(octet_length(stdout) + octet_length(stderr) + octet_length(logs)
            + coalesce(octet_length(output), 0) + coalesce(octet_length(context), 0) + coalesce(octet_length(message), 0)
            + coalesce(octet_length(note), 0) AS BIGINT) AS bytes
        FROM task_run WHERE launch_id = $1 AND run_number = $2 AND (started_at, task, attempt) > ($3, $4, $5)
        ORDER BY started_at, task, attempt LIMIT $6"
        => [run.launch(), run.number(), after.started_at, &after.task, after.attempt, limit];

    /// Returns a run's calls in starting order, leaving out what they wrote and returned.
    pub async fn summaries_of_run(run: RunId) -> Vec<TaskRun> = rows
        "SELECT task, attempt, succeeded, started_at, finished_at, retry_at, CAST(NULL AS TEXT) AS output, CAST(NULL AS TEXT) AS context,
            failure, message, note, '' AS stdout, stdout_bytes_dropped, '' AS stderr, stderr_bytes_dropped, '[]' AS logs, wall_ms, cpu_ms,
            memory_peak_bytes, usage
        FROM task_run WHERE launch_id = $1 AND run_number = $2 ORDER BY started_at, task, attempt"
        => [run.launch(), run.number()];
}

/// Calls per page, at most.
const PAGE_CALLS_MAX: i64 = 256;

/// Returns a run's first calls after a place, with about `bytes_max` bytes of text. Never empty while any calls are left, however
/// large the first one is.
pub async fn page_of_run(
    tx: &mut Tx,
    run: RunId,
    after: &CallPlace,
    bytes_max: i64,
) -> Result<CallsPage> {
    let sizes = sizes_of_run(tx, run, after, PAGE_CALLS_MAX + 1).await?;
    let (mut count, mut bytes) = (0, 0_i64);
    for size in sizes.iter().take(PAGE_CALLS_MAX as usize) {
        bytes = bytes.saturating_add(size.bytes);
        if count > 0 && bytes > bytes_max {
            break;
        }
        count += 1;
    }
    let calls = match count {
        0 => Vec::new(),
        _ => of_run_after(tx, run, after, count).await?,
    };
    let has_more = (sizes.len() as i64) > count;
    let next = calls.last().filter(|_| has_more).map(CallPlace::of);
    Ok(CallsPage { calls, next })
}
