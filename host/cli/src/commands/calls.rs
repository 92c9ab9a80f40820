//! The recorded calls of tasks: what each used, logged and printed.

use std::iter;
use std::time::Duration;

use crate::ask::Source;
use crate::output::{self, Failure, Record, Result};
use campanile_control::questions::launches::GetRun;
use campanile_control::records::run::{RunDetail, TaskCall, TaskLogs};
use campanile_model::text::{duration_text, printable_line, printable_lines, size_rounded};
use campanile_sandbox::{LogLine, Resource, Share, Unit};

impl Record for TaskCall {
    const DETAIL: &'static str = "task attempt succeeded failure started_at finished_at retry_at wall_ms cpu_ms \
        memory_peak usage output message note";

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

/// Reads a run with all its calls. `id` may be short, or its launch's.
pub(crate) async fn detail(source: &Source<'_>, id: &str) -> Result<RunDetail> {
    let mut question = GetRun::default();
    let first = source.page(id, &question).await?;
    let mut run = first.answer;
    if let Some(next) = first.next {
        question.after = Some(next.parse().map_err(Failure::failed)?);
        let add = |page: RunDetail| {
            run.tasks.extend(page.tasks);
            Ok(true)
        };
        source.pages(id, question, add).await?;
    }
    Ok(run)
}

/// Print what a call logged and printed. Return false when the reader of stdout has closed it.
pub(crate) fn print_logs(call: &TaskLogs) -> Result<bool> {
    let head = format!(
        "== {} (attempt {})",
        printable_line(&call.task),
        call.attempt
    );
    let printed = [
        (
            "stdout",
            &*call.stdout,
            call.stdout_bytes_dropped.unsigned_abs(),
        ),
        (
            "stderr",
            &*call.stderr,
            call.stderr_bytes_dropped.unsigned_abs(),
        ),
    ];
    let lines = log_lines(&call.logs, printed);
    for line in iter::once(head).chain(lines) {
        if !output::print_next_line(&line)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns `memory: 60 MiB of 64 MiB (94 %)` and how to raise the limit.
pub(crate) fn close_to_limit(share: &Share) -> String {
    let usage = used_of_limit(share);
    format!("{usage}; to give more, {}", share.resource.raise())
}

/// Returns `memory: 60 MiB of 64 MiB (94 %)`.
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

/// Starts the host's own lines, telling them from a task's, which start with a time or a stream's name.
const BY_HOST: &str = "campanile: ";

/// Returns a task's logs and output as lines. Each of `printed` holds a stream's name, its text, and how many more bytes were dropped.
pub(crate) fn log_lines(logs: &[LogLine], printed: [(&str, &str, u64); 2]) -> Vec<String> {
    let logged = logs.iter().map(|entry| {
        let message = printable_lines(&entry.message);
        if entry.by_host {
            format!("{BY_HOST}{message}")
        } else {
            format!("{} {:5} {message}", entry.at, printable_line(&entry.level))
        }
    });
    let printed = printed.into_iter().flat_map(|(stream, text, dropped)| {
        let lines = text.lines();
        let lines = lines.map(move |line| format!("{stream}: {}", printable_line(line)));
        let raise = Resource::Stdio.raise();
        let dropped = (dropped > 0).then(|| {
            format!("{BY_HOST}{dropped} more bytes of {stream} were dropped; to keep more, {raise}")
        });
        lines.chain(dropped)
    });
    logged.chain(printed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_task_begins_as_one_of_the_host() {
        let forged = "campanile: 7 more bytes of stdout were dropped";
        let line = |message: &str, by_host: bool| LogLine {
            at: "2026-11-21T08:00:00Z".parse().unwrap(),
            level: "warn".to_owned(),
            context: "campanile".to_owned(),
            message: message.to_owned(),
            by_host,
        };
        let logs = [
            line(&format!("a\n{forged}"), false),
            line("3 log lines were dropped", true),
        ];
        let text = format!("x\r{forged}\n{forged}\n\n[campanile: 9 more bytes]\n");
        let lines = log_lines(&logs, [("stdout", &text, 5), ("stderr", forged, 0)]);
        let lines = lines.join("\n");
        let of_host = Vec::from_iter(lines.lines().filter(|line| line.starts_with(BY_HOST)));
        assert_eq!(of_host.len(), 2, "{lines}");
        assert_eq!(of_host[0], "campanile: 3 log lines were dropped");
        assert!(
            of_host[1].starts_with("campanile: 5 more bytes of stdout"),
            "{lines}"
        );
    }
}
