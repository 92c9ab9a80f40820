//! The calls of tasks inside runs. Only ever added to.

use serde::Serialize;
use sqlx::FromRow;

use super::batch::{Batch, pieces};
use super::types::{json_text, storable};
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId};
use campanile_model::status::FailureKind;

/// One call of one task, when it is over.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, schemars::JsonSchema)]
pub struct TaskRun {
    pub task: String,
    pub attempt: i64,
    pub succeeded: bool,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    pub retry_at: Option<Timestamp>,
    /// JSON.
    #[serde(serialize_with = "json_text")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub output: Option<String>,
    /// JSON object.
    #[serde(serialize_with = "json_text")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub context: Option<String>,
    pub failure: Option<FailureKind>,
    pub message: Option<String>,
    pub stdout: String,
    pub stderr: String,
    /// JSON list of lines.
    #[serde(serialize_with = "json_text")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub logs: String,
    pub wall_ms: f64,
    pub cpu_ms: f64,
    pub memory_peak_bytes: i64,
    /// JSON object: of each resource with a limit, how much was used and how much may be.
    #[serde(skip)]
    pub usage: String,
}

impl TaskRun {
    /// A call of `task` that succeeded, with nothing more to say of it.
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
            stdout: String::new(),
            stderr: String::new(),
            logs: "[]".to_owned(),
            wall_ms: 0.0,
            cpu_ms: 0.0,
            memory_peak_bytes: 0,
            usage: "{}".to_owned(),
        }
    }
}

const INSERT: Batch = Batch {
    head: "INSERT INTO task_run (run_id, task, attempt, succeeded, started_at, finished_at, retry_at, output, context, failure, message,
        stdout, stderr, logs, wall_ms, cpu_ms, memory_peak_bytes, usage) VALUES ",
    columns: 18,
    // The same call again, when the answer to the first commit was lost.
    tail: " ON CONFLICT (run_id, task, attempt) DO NOTHING",
};
const OF_LAUNCH: &str = "SELECT t.task, t.attempt, t.succeeded, t.started_at, t.finished_at, t.retry_at, t.output, t.context,
        t.failure, t.message, t.stdout, t.stderr, t.logs, t.wall_ms, t.cpu_ms, t.memory_peak_bytes, t.usage
    FROM task_run t JOIN run r ON r.id = t.run_id WHERE r.launch_id = $1 ORDER BY t.started_at, t.task, t.attempt";
const OF_RUN: &str =
    "SELECT task, attempt, succeeded, started_at, finished_at, retry_at, output, context,
        failure, message, stdout, stderr, logs, wall_ms, cpu_ms, memory_peak_bytes, usage
    FROM task_run WHERE run_id = $1 ORDER BY started_at, task, attempt";

/// Every statement of this table that both databases share, for the test that prepares them on both.
pub const STATEMENTS: &[&str] = &[OF_LAUNCH, OF_RUN];

/// Put calls on the record, each with its run.
pub(super) async fn insert(tx: &mut Tx, tasks: &[(RunId, &TaskRun)]) -> Result<(), DbError> {
    for piece in pieces(tasks) {
        let insert_sql = INSERT.sql(tx, piece.len());
        on!(tx, |conn| {
            let mut query = sqlx::query(insert_sql);
            for (run, task) in piece {
                query = query
                    .bind(*run)
                    .bind(&task.task)
                    .bind(task.attempt)
                    .bind(task.succeeded)
                    .bind(task.started_at)
                    .bind(task.finished_at)
                    .bind(task.retry_at)
                    .bind(&task.output)
                    .bind(&task.context)
                    .bind(task.failure)
                    .bind(task.message.as_deref().map(storable))
                    .bind(storable(&task.stdout))
                    .bind(storable(&task.stderr))
                    .bind(&task.logs)
                    .bind(task.wall_ms)
                    .bind(task.cpu_ms)
                    .bind(task.memory_peak_bytes)
                    .bind(&task.usage);
            }
            query.execute(conn).await.map(|_| ())
        })?;
    }
    Ok(())
}

/// All calls of tasks for a launch, over all its runs, in the order in which they started.
pub async fn of_launch(tx: &mut Tx, launch: LaunchId) -> Result<Vec<TaskRun>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(OF_LAUNCH)
        .bind(launch)
        .fetch_all(conn)
        .await)?)
}

/// All calls of tasks in one run, in the order in which they started.
pub async fn of_run(tx: &mut Tx, run: RunId) -> Result<Vec<TaskRun>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(OF_RUN)
        .bind(run)
        .fetch_all(conn)
        .await)?)
}
