//! The recorded calls of tasks: what each used, logged and printed.

use std::collections::BTreeMap;
use std::iter;
use std::time::Duration;

use serde::Serialize;

use crate::output::{self, Record, Result};
use campanile_model::text::{duration_text, printable_line, printable_lines, size_rounded};
use campanile_sandbox::{LogLine, Resource, Share, Unit};
use campanile_store::task_runs::TaskRun;

/// One call of a task.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct TaskCall {
    #[serde(flatten)]
    pub row: TaskRun,
    pub usage: Vec<Share>,
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
            stderr: row.stderr,
        }
    }
}

impl TaskLogs {
    /// Print the lines. Return false when the reader of stdout has closed it.
    pub(crate) fn print(&self) -> Result<bool> {
        let head = format!("== {} (attempt {})", self.task, self.attempt);
        let lines = log_lines(&self.logs, &self.stdout, &self.stderr);
        for line in iter::once(head).chain(lines) {
            if !output::print_next_line(&line)? {
                return Ok(false);
            }
        }
        Ok(true)
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
