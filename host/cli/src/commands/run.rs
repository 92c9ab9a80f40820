//! `campanile run`: the attempts to execute launches, and the logs of their tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;

use super::launch::{ListOptions, removed_launch};
use crate::Common;
use crate::output::{self, Record, Result, refused};
use campanile_model::clock::Clock;
use campanile_model::ids::RunId;
use campanile_model::text::{duration_text, printable_line, printable_lines, size_rounded};
use campanile_sandbox::{LogLine, Resource, Share, Unit};
use campanile_store::history;
use campanile_store::runs::{self, RunRow};
use campanile_store::task_runs::{self, TaskRun};

#[derive(Subcommand)]
pub(crate) enum Run {
    /// List the newest runs, newest first
    List(ListOptions<RunId>),
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

    fn print(&self) -> Result {
        output::print_detail(self)?;
        for call in &self.tasks {
            output::print_line("")?;
            output::print_detail(call)?;
            for share in call.usage.iter().filter(|share| share.is_close()) {
                let TaskRun { task, attempt, .. } = &call.row;
                let advice = close_to_limit(share);
                output::print_message!("warning: {task} (attempt {attempt}): {advice}");
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
            "memory_peak" => Some(size_rounded(self.row.memory_peak_bytes.unsigned_abs())),
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
    pub async fn run(self, common: &Common) -> Result {
        let mut tx = common.read().await?;
        let id = match self {
            Run::List(options) => {
                let (after, limit) = (options.after, options.limit.limit);
                let rows = match &options.schedule {
                    Some(name) => runs::list_of(&mut tx, name, after, limit).await?,
                    None => runs::list(&mut tx, after, limit).await?,
                };
                return options.print(common, &mut tx, &rows, |row| row.id).await;
            }
            Run::Show { id } | Run::Logs { id } => id,
        };
        let Some(run) = runs::find(&mut tx, id).await? else {
            let missing =
                refused!("there is no run {id}").hint("`campanile run list` shows the ids");
            let launch = history::launch(&mut tx, id.launch()).await?;
            let removed = match launch {
                Some(_) => None,
                None => removed_launch(&mut tx, id.launch()).await?,
            };
            return Err(removed.unwrap_or(missing));
        };
        let tasks = task_runs::of_run(&mut tx, id).await?;
        if tasks.is_empty() {
            note_removed_calls(common, &run)?;
        }
        let tasks = tasks.into_iter();
        if matches!(self, Run::Show { .. }) {
            let calls = tasks.map(|row| TaskCall {
                usage: shares(&row.usage),
                row,
            });
            let tasks = calls.collect();
            return common.print(&RunDetail { run, tasks });
        }
        let tasks = tasks.map(|row| TaskLogs {
            logs: serde_json::from_str(&row.logs).unwrap_or_default(),
            task: row.task,
            attempt: row.attempt,
            stdout: row.stdout,
            stderr: row.stderr,
        });
        let tasks = Vec::from_iter(tasks);
        if common.json {
            return output::print_json(&tasks);
        }
        for task in &tasks {
            output::print_line!("== {} (attempt {})", task.task, task.attempt)?;
            for line in log_lines(&task.logs, &task.stdout, &task.stderr) {
                output::print_line(&line)?;
            }
        }
        Ok(())
    }
}

/// Say that retention has removed the calls of a run, if it ended long enough ago.
fn note_removed_calls(common: &Common, run: &RunRow) -> Result {
    let Some(age) = common.config()?.retention.logs else {
        return Ok(());
    };
    let removed_at = run.finished_at.map(|finished_at| finished_at.plus(age));
    if removed_at.is_some_and(|at| at <= Clock::system().now()) {
        let age = duration_text(age);
        output::print_message!(
            "the calls of this run are not on record: retention removes outputs and logs {age} after the end of a launch (`retention.logs`)"
        );
    }
    Ok(())
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
    let resource = share.resource;
    let percent = match share.limit {
        0 => "all".to_owned(),
        limit => format!("{} %", u128::from(share.used) * 100 / u128::from(limit)),
    };
    let [used, limit] = [share.used, share.limit].map(|value| amount(resource, value));
    format!("{resource}: {used} of {limit} ({percent})")
}

fn amount(resource: Resource, amount: u64) -> String {
    match resource.spec().unit {
        Unit::Time => duration_text(Duration::from_millis(amount)),
        Unit::Count => amount.to_string(),
        Unit::Bytes => size_rounded(amount),
    }
}

/// Return what a task logged and printed as lines.
pub(crate) fn log_lines(logs: &[LogLine], stdout: &str, stderr: &str) -> Vec<String> {
    let logged = logs.iter().map(|entry| {
        let message = printable_lines(&entry.message);
        format!("{} {:5} {message}", entry.at, entry.level)
    });
    let printed = [("stdout", stdout), ("stderr", stderr)].into_iter();
    let printed = printed.flat_map(|(stream, text)| {
        let lines = text.lines();
        lines.map(move |line| format!("{stream}: {}", printable_line(line)))
    });
    logged.chain(printed).collect()
}
