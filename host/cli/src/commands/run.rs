//! `campanile run`: the attempts to execute launches, and the logs of their tasks.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use bytesize::ByteSize;
use clap::Subcommand;
use serde::Serialize;

use super::launch::refuse_unknown;
use crate::output::{self, Failure, Record};
use crate::{Common, Limit};
use campanile_model::ids::RunId;
use campanile_model::text::{duration_text, printable_line, printable_lines};
use campanile_sandbox::{LogLine, Resource, Share, Unit};
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
    #[serde(flatten)]
    row: TaskRun,
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
    fn from(row: TaskRun) -> TaskCall {
        TaskCall {
            usage: shares(&row.usage),
            row,
        }
    }
}

const RUN_DETAIL: &str = "id launch_id schedule scheduled_time status is_recovery package digest schedule_revision \
    grants_hash context_hash host host_version wasmtime_version tzdata_version started_at finished_at retry_at failure \
    message";

impl Record for RunRow {
    const LIST: &'static str =
        "id schedule scheduled_time status is_recovery host started_at finished_at message";
    const DETAIL: &'static str = RUN_DETAIL;
}

impl Record for RunDetail {
    const DETAIL: &'static str = RUN_DETAIL;

    fn print_details(&self) -> Result<(), Failure> {
        for call in &self.tasks {
            output::print_line("")?;
            output::print_detail(call)?;
            for share in call.usage.iter().filter(|share| share.is_close()) {
                let TaskRun { task, attempt, .. } = &call.row;
                let advice = close_to_limit(share);
                output::print_message(&format!("warning: {task} (attempt {attempt}): {advice}"));
            }
        }
        Ok(())
    }
}

impl Record for TaskCall {
    const DETAIL: &'static str = "task attempt succeeded failure started_at finished_at retry_at wall_ms cpu_ms \
        memory_peak usage output message";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "memory_peak" => {
                let bytes = self.row.memory_peak_bytes.unsigned_abs();
                Some(ByteSize::b(bytes).to_string())
            }
            "usage" => {
                let lines = self.usage.iter().map(used_of_limit);
                Some(lines.collect::<Vec<_>>().join("\n"))
            }
            "output" => self.row.output.clone(),
            _ => None,
        }
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
                output::print_list(&rows, common.json)?;
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
            Run::Logs { .. } => print_logs(common, tasks)?,
            _ => {
                let tasks = tasks.collect();
                output::print_record(&RunDetail { run, tasks }, common.json)?;
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
    match resource.spec().unit {
        Unit::Time => duration_text(Duration::from_millis(amount)),
        Unit::Count => amount.to_string(),
        Unit::Bytes => ByteSize::b(amount).display().iec().to_string(),
    }
}

fn print_logs(common: &Common, tasks: impl Iterator<Item = TaskCall>) -> Result<(), Failure> {
    let tasks: Vec<TaskLogs> = tasks
        .map(|TaskCall { row, .. }| TaskLogs {
            logs: serde_json::from_str(&row.logs).unwrap_or_default(),
            task: row.task,
            attempt: row.attempt,
            stdout: row.stdout,
            stderr: row.stderr,
        })
        .collect();
    if common.json {
        return output::print_json(&tasks);
    }
    for task in tasks {
        output::print_line(&format!("== {} (attempt {})", task.task, task.attempt))?;
        for entry in &task.logs {
            let message = printable_lines(&entry.message);
            output::print_line(&format!("{} {:5} {message}", entry.at, entry.level))?;
        }
        for (stream, text) in [("stdout", &task.stdout), ("stderr", &task.stderr)] {
            for text in text.lines() {
                output::print_line(&format!("{stream}: {}", printable_line(text)))?;
            }
        }
    }
    Ok(())
}
