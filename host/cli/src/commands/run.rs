//! `campanile run`: the attempts to execute launches, and the logs of their tasks.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use bytesize::ByteSize;
use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::launch::refuse_unknown;
use crate::output::{self, Failure, Field, Record, optional};
use crate::{Common, Limit};
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_model::text::{printable_line, printable_lines};
use campanile_sandbox::{LogLine, Resource, Share};
use campanile_store::FailureKind;
use campanile_store::runs::{self, RunRow};
use campanile_store::task_runs::{self, TaskRun};

#[derive(Subcommand)]
pub(crate) enum Run {
    /// List the newest runs, newest first
    List {
        /// List only the runs of this schedule
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show one run with every call of its tasks
    Show {
        /// The run's id, as `launch list` and `run list` print it
        id: RunId,
    },
    /// Show what the tasks of one run logged and printed
    Logs {
        /// The run's id, as `launch list` and `run list` print it
        id: RunId,
    },
}

/// One run with its calls.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct RunDetail {
    #[serde(flatten)]
    run: RunRow,
    tasks: Vec<TaskCall>,
}

/// One call of a task.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct TaskCall {
    task: String,
    attempt: i64,
    succeeded: bool,
    started_at: Timestamp,
    finished_at: Timestamp,
    retry_at: Option<Timestamp>,
    output: Option<Value>,
    context: Option<Value>,
    failure: Option<FailureKind>,
    message: Option<String>,
    stdout: String,
    stderr: String,
    logs: Vec<LogLine>,
    wall_ms: f64,
    cpu_ms: f64,
    memory_peak_bytes: i64,
    usage: Vec<Share>,
}

/// What one call of a task logged and printed.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct TaskLogs {
    task: String,
    attempt: i64,
    logs: Vec<LogLine>,
    stdout: String,
    stderr: String,
}

impl From<TaskRun> for TaskCall {
    fn from(task: TaskRun) -> TaskCall {
        let json = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        TaskCall {
            task: task.task,
            attempt: task.attempt,
            succeeded: task.succeeded,
            started_at: task.started_at,
            finished_at: task.finished_at,
            retry_at: task.retry_at,
            output: task.output.map(json),
            context: task.context.map(json),
            failure: task.failure,
            message: task.message,
            stdout: task.stdout,
            stderr: task.stderr,
            logs: serde_json::from_str(&task.logs).unwrap_or_default(),
            wall_ms: task.wall_ms,
            cpu_ms: task.cpu_ms,
            memory_peak_bytes: task.memory_peak_bytes,
            usage: shares(&task.usage),
        }
    }
}

impl Record for RunRow {
    fn fields() -> Vec<Field<RunRow>> {
        vec![
            Field::new("id"),
            Field::new("launch_id").only_detail(),
            Field::new("schedule"),
            Field::new("scheduled_time"),
            Field::new("status"),
            Field::new("is_recovery"),
            Field::new("package").only_detail(),
            Field::new("digest").only_detail(),
            Field::new("schedule_revision").only_detail(),
            Field::new("grants_hash").only_detail(),
            Field::new("context_hash").only_detail(),
            Field::new("host"),
            Field::new("host_version").only_detail(),
            Field::new("wasmtime_version").only_detail(),
            Field::new("tzdata_version").only_detail(),
            Field::new("started_at"),
            Field::new("finished_at"),
            Field::new("retry_at").only_detail(),
            Field::new("failure").only_detail(),
            Field::new("message"),
        ]
    }
}

impl Record for RunDetail {
    fn fields() -> Vec<Field<RunDetail>> {
        let run = RunRow::fields().into_iter();
        run.map(|field| field.of(|detail: &RunDetail| &detail.run))
            .collect()
    }

    fn print_details(&self) -> Result<(), Failure> {
        for call in &self.tasks {
            output::line("")?;
            output::detail(call)?;
            for share in call.usage.iter().filter(|share| share.is_close()) {
                let TaskCall { task, attempt, .. } = call;
                let advice = close_to_limit(share);
                output::talk(&format!("warning: {task} (attempt {attempt}): {advice}"));
            }
        }
        Ok(())
    }
}

impl Record for TaskCall {
    fn fields() -> Vec<Field<TaskCall>> {
        let result = |call: &TaskCall| match call.failure {
            Some(kind) => kind.to_string(),
            None => "succeeded".to_owned(),
        };
        let memory = |call: &TaskCall| {
            let bytes = call.memory_peak_bytes.unsigned_abs();
            ByteSize::b(bytes).to_string()
        };
        let usage = |call: &TaskCall| {
            let lines = call.usage.iter().map(used_of_limit);
            lines.collect::<Vec<_>>().join("\n")
        };
        vec![
            Field::new("task"),
            Field::new("attempt"),
            Field::new("result").text(result),
            Field::new("started_at"),
            Field::new("finished_at"),
            Field::new("retry_at"),
            Field::new("wall_ms"),
            Field::new("cpu_ms"),
            Field::new("memory_peak").text(memory),
            Field::new("usage").text(usage),
            Field::new("output").text(|call: &TaskCall| optional(&call.output)),
            Field::new("message"),
        ]
    }
}

impl Run {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let db = common.open().await?;
        let mut tx = db.read().await?;
        let id = match self {
            Run::List { schedule, limit } => {
                let rows = runs::list(&mut tx, schedule.as_deref(), limit.limit).await?;
                if rows.is_empty() {
                    refuse_unknown(&mut tx, schedule.as_deref()).await?;
                }
                output::list(&rows, common.json)?;
                return Ok(ExitCode::SUCCESS);
            }
            Run::Show { id } | Run::Logs { id } => id,
        };
        let Some(run) = runs::find(&mut tx, id).await? else {
            return Err(Failure::refused(format!("there is no run {id}"))
                .hint("`campanile run list` shows the ids"));
        };
        let tasks = task_runs::of_run(&mut tx, id).await?;
        let tasks = tasks.into_iter().map(TaskCall::from);
        match self {
            Run::Logs { .. } => logs(common, tasks)?,
            _ => {
                let tasks = tasks.collect();
                output::show(&RunDetail { run, tasks }, common.json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
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

/// Return `memory: 60 MiB of 64 MiB (94 %)` and how to raise the limit.
pub(crate) fn close_to_limit(share: &Share) -> String {
    let usage = used_of_limit(share);
    format!("{usage}; to give more, {}", share.resource.raise())
}

/// Return `memory: 60 MiB of 64 MiB (94 %)`.
fn used_of_limit(share: &Share) -> String {
    let Share {
        resource,
        used,
        limit,
    } = *share;
    let percent = match limit {
        0 => "all".to_owned(),
        limit => format!("{} %", u128::from(used) * 100 / u128::from(limit)),
    };
    let (used, limit) = (amount(resource, used), amount(resource, limit));
    format!("{resource}: {used} of {limit} ({percent})")
}

fn amount(resource: Resource, amount: u64) -> String {
    match resource {
        Resource::Timeout | Resource::Cpu | Resource::HttpWait => {
            humantime::format_duration(Duration::from_millis(amount)).to_string()
        }
        Resource::TableElements
        | Resource::OpenFiles
        | Resource::HttpRequests
        | Resource::Handles => amount.to_string(),
        Resource::Memory
        | Resource::Output
        | Resource::Log
        | Resource::Stdio
        | Resource::Random
        | Resource::HttpResponse
        | Resource::Keyvalue
        | Resource::KeyvalueValue
        | Resource::HostCall => ByteSize::b(amount).display().iec().to_string(),
    }
}

fn logs(common: &Common, tasks: impl Iterator<Item = TaskCall>) -> Result<(), Failure> {
    let tasks: Vec<TaskLogs> = tasks
        .map(|call| TaskLogs {
            task: call.task,
            attempt: call.attempt,
            logs: call.logs,
            stdout: call.stdout,
            stderr: call.stderr,
        })
        .collect();
    if common.json {
        return output::json_out(&tasks);
    }
    for task in tasks {
        output::line(&format!("== {} (attempt {})", task.task, task.attempt))?;
        for entry in &task.logs {
            let message = printable_lines(&entry.message);
            output::line(&format!("{} {:5} {message}", entry.at, entry.level))?;
        }
        for (stream, text) in [("stdout", &task.stdout), ("stderr", &task.stderr)] {
            for text in text.lines() {
                output::line(&format!("{stream}: {}", printable_line(text)))?;
            }
        }
    }
    Ok(())
}
