//! The recorded calls of tasks: what each used, logged and printed.

use std::iter;
use std::time::Duration;

use crate::output::{self, Record, Result};
use campanile_engine::records::run::{TaskCall, TaskLogs};
use campanile_model::text::{duration_text, printable_line, printable_lines, size_rounded};
use campanile_sandbox::{LogLine, Resource, Share, Unit};

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

/// Print what a call logged and printed. Return false when the reader of stdout has closed it.
pub(crate) fn print_logs(call: &TaskLogs) -> Result<bool> {
    let head = format!("== {} (attempt {})", call.task, call.attempt);
    let lines = log_lines(&call.logs, &call.stdout, &call.stderr);
    for line in iter::once(head).chain(lines) {
        if !output::print_next_line(&line)? {
            return Ok(false);
        }
    }
    Ok(true)
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
