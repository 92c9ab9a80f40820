//! `campanile run`: every attempt to carry a launch out, and what the tasks said.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::launch::refuse_unknown;
use crate::Common;
use crate::output::{self, Failure, cell};
use campanile_model::ids::RunId;
use campanile_model::text::{printable_line, printable_lines};
use campanile_sandbox::{Resource, Share};
use campanile_store::runs::{self, RunRow};
use campanile_store::task_runs::{self, TaskRun};

#[derive(Subcommand)]
pub(crate) enum Run {
    /// The newest runs, newest first
    List {
        /// Only those of this schedule
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
    /// One run with every call of its tasks
    Show {
        /// The run's id, as `launch list` and `run list` print it
        id: RunId,
    },
    /// What the tasks of one run logged and printed
    Logs {
        /// The run's id, as `launch list` and `run list` print it
        id: RunId,
    },
}

/// One run with its calls.
#[derive(Serialize)]
struct Detail {
    #[serde(flatten)]
    run: RunRow,
    tasks: Vec<Task>,
}

/// One call, its JSON columns as JSON.
#[derive(Serialize)]
struct Task {
    task: String,
    attempt: i64,
    succeeded: bool,
    started_at: campanile_model::clock::Timestamp,
    finished_at: campanile_model::clock::Timestamp,
    retry_at: Option<campanile_model::clock::Timestamp>,
    output: Option<Value>,
    context: Option<Value>,
    failure: Option<campanile_store::FailureKind>,
    message: Option<String>,
    stdout: String,
    stderr: String,
    logs: Value,
    wall_ms: f64,
    cpu_ms: f64,
    memory_peak_bytes: i64,
    usage: Vec<Share>,
}

impl From<TaskRun> for Task {
    fn from(task: TaskRun) -> Task {
        let json = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        Task {
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
            logs: json(task.logs),
            wall_ms: task.wall_ms,
            cpu_ms: task.cpu_ms,
            memory_peak_bytes: task.memory_peak_bytes,
            usage: shares(&task.usage),
        }
    }
}

impl Run {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let db = common.open().await?;
        let mut tx = db.read().await?;
        let id = match self {
            Run::List { schedule, limit } => {
                let rows = runs::list(&mut tx, schedule.as_deref(), limit).await?;
                if rows.is_empty() {
                    refuse_unknown(&mut tx, schedule.as_deref()).await?;
                }
                list(common, rows)?;
                return Ok(ExitCode::SUCCESS);
            }
            Run::Show { id } | Run::Logs { id } => id,
        };
        let Some(run) = runs::find(&mut tx, id).await? else {
            return Err(Failure::refused(format!("there is no run {id}"))
                .hint("`campanile run list` shows the ids"));
        };
        let tasks = task_runs::of_run(&mut tx, id).await?;
        match self {
            Run::Logs { .. } => logs(common, tasks)?,
            _ => show(common, run, tasks)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(common: &Common, rows: Vec<RunRow>) -> Result<(), Failure> {
    if common.json {
        return output::json_out(&rows);
    }
    output::table(
        [
            "RUN", "SCHEDULE", "SLOT", "STATE", "RECOVERY", "HOST", "STARTED", "FINISHED",
            "MESSAGE",
        ],
        rows.into_iter().map(|run| {
            [
                run.id.to_string(),
                run.schedule,
                run.scheduled_time.to_string(),
                run.status.to_string(),
                if run.is_recovery { "yes" } else { "no" }.to_owned(),
                cell(&run.host),
                run.started_at.to_string(),
                cell(&run.finished_at),
                run.message.unwrap_or_default(),
            ]
        }),
    )
}

fn show(common: &Common, run: RunRow, tasks: Vec<TaskRun>) -> Result<(), Failure> {
    let tasks: Vec<Task> = tasks.into_iter().map(Task::from).collect();
    if common.json {
        return output::json_out(&Detail { run, tasks });
    }
    let made_by = made_by(&run);
    for (key, value) in [
        ("run", run.id.to_string()),
        ("launch", run.launch_id.to_string()),
        ("schedule", run.schedule),
        ("slot", run.scheduled_time.to_string()),
        ("status", run.status.to_string()),
        ("recovery", run.is_recovery.to_string()),
        ("package", format!("{} {}", run.package, run.digest.short())),
        ("revision", run.schedule_revision.to_string()),
        ("grants", cell(&run.grants_hash)),
        ("context", cell(&run.context_hash)),
        ("host", cell(&run.host)),
        ("made by", made_by),
        ("started", run.started_at.to_string()),
        ("finished", cell(&run.finished_at)),
        ("retry at", cell(&run.retry_at)),
        ("failure", cell(&run.failure)),
        ("message", cell(&run.message)),
    ] {
        output::line(&format!("{key:9} {}", printable_lines(&value)))?;
    }
    output::line("")?;
    for task in &tasks {
        for share in task.usage.iter().filter(|share| share.is_close()) {
            let said = format!(
                "{} (attempt {}): {}",
                task.task,
                task.attempt,
                close_to_limit(share)
            );
            output::talk(&format!("warning: {said}"));
        }
    }
    usage(&tasks)?;
    output::line("")?;
    output::table(
        [
            "TASK", "ATTEMPT", "RESULT", "WALL", "CPU", "MEMORY", "OUTPUT",
        ],
        tasks.into_iter().map(|task: Task| {
            let result = task
                .failure
                .map_or("succeeded".to_owned(), |kind| kind.to_string());
            [
                task.task,
                task.attempt.to_string(),
                result,
                format!("{:.1} ms", task.wall_ms),
                format!("{:.1} ms", task.cpu_ms),
                bytesize::ByteSize::b(task.memory_peak_bytes.unsigned_abs()).to_string(),
                cell(&task.output.or(task.message.map(Value::String))),
            ]
        }),
    )
}

/// What is kept of how much a call used: `{"memory":[used, limit], …}`.
fn shares(text: &str) -> Vec<Share> {
    let kept: BTreeMap<String, (u64, u64)> = serde_json::from_str(text).unwrap_or_default();
    let shares = kept.into_iter().filter_map(|(resource, (used, limit))| {
        Some(Share {
            resource: resource.parse().ok()?,
            used,
            limit,
        })
    });
    shares.collect()
}

/// `memory: 60 MiB of 64 MiB (94 %)`, and what to do.
pub(crate) fn close_to_limit(share: &Share) -> String {
    format!(
        "{}: {} of {} ({}); to give more, {}",
        share.resource,
        amount(share.resource, share.used),
        amount(share.resource, share.limit),
        percent(share),
        share.resource.raise(),
    )
}

fn percent(share: &Share) -> String {
    match share.limit {
        0 => "all".to_owned(),
        limit => format!("{} %", u128::from(share.used) * 100 / u128::from(limit)),
    }
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
        | Resource::HostCall => bytesize::ByteSize::b(amount).display().iec().to_string(),
    }
}

/// How much each call used of what is limited.
fn usage(tasks: &[Task]) -> Result<(), Failure> {
    let rows = tasks.iter().flat_map(|task| {
        task.usage.iter().map(|share| {
            [
                task.task.clone(),
                task.attempt.to_string(),
                share.resource.to_string(),
                amount(share.resource, share.used),
                amount(share.resource, share.limit),
                percent(share),
            ]
        })
    });
    let columns = ["TASK", "ATTEMPT", "RESOURCE", "USED", "LIMIT", "SHARE"];
    output::table(columns, rows)
}

/// The versions of what carried a run out.
pub(crate) fn made_by(run: &RunRow) -> String {
    format!(
        "campanile {}, wasmtime {}, tzdata {}",
        cell(&run.host_version),
        cell(&run.wasmtime_version),
        cell(&run.tzdata_version)
    )
}

fn logs(common: &Common, tasks: Vec<TaskRun>) -> Result<(), Failure> {
    let tasks: Vec<Task> = tasks.into_iter().map(Task::from).collect();
    if common.json {
        let said: Vec<Value> = tasks
            .into_iter()
            .map(|task| {
                serde_json::json!({
                    "task": task.task, "attempt": task.attempt,
                    "logs": task.logs, "stdout": task.stdout, "stderr": task.stderr,
                })
            })
            .collect();
        return output::json_out(&said);
    }
    for task in tasks {
        output::line(&format!("== {} (attempt {})", task.task, task.attempt))?;
        for entry in task.logs.as_array().into_iter().flatten() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let said = format!("{} {:5} {}", text("at"), text("level"), text("message"));
            output::line(&printable_lines(&said))?;
        }
        for (stream, text) in [("stdout", &task.stdout), ("stderr", &task.stderr)] {
            for said in text.lines() {
                output::line(&format!("{stream}: {}", printable_line(said)))?;
            }
        }
    }
    Ok(())
}
