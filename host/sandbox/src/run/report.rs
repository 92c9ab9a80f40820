//! The report of a call: its result, what it printed and logged, and what it used.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::capability::shared::Call;
use crate::grants::Secrets;
use crate::ledger::kept::KeptShare;
use crate::limits::{Resource, Usage};
use crate::outcome::{Outcome, Report};
use crate::run::redaction::Redaction;
use crate::run::time::thread_time;
use crate::run::verdict::{Success, Verdict, details_bytes};
use crate::state::HostState;
use crate::uncommitted::Uncommitted;
use campanile_model::json_text::object_bytes;

/// Texts and secrets of more bytes are redacted apart from the guests' threads: it takes longer than a guest may compute
/// before it yields.
const REDACTED_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Create the report of a call that took `wall`, and `cpu` of processor time. The time to remove secrets is added.
pub(crate) async fn report(
    verdict: Verdict,
    state: HostState,
    wall: Duration,
    cpu: Duration,
) -> Report {
    let started = Instant::now();
    let shared = Arc::clone(&state.shared);
    let Call {
        limits, secrets, ..
    } = &shared.call;
    let (outcome, success, failure) = match verdict {
        Ok(success) => (Outcome::Succeeded, success, None),
        Err(failure) => (failure.kind, Success::default(), Some(failure)),
    };
    let mut usage = usage(&success, &state);
    let (report, cuts, log_bytes) = {
        // What the call still holds, such as open directories, is dropped at the end of this block.
        let mut state = state;
        let (stdout, stdout_bytes_dropped) = state.stdout.text();
        let (stderr, stderr_bytes_dropped) = state.stderr.text();
        let log_bytes = state.run_info.logs.kept_bytes();
        let (logs, log) = state.run_info.logs.into_lines();
        let cuts = Cuts {
            stdout: (stdout_bytes_dropped > 0).then_some(stdout.len()),
            stderr: (stderr_bytes_dropped > 0).then_some(stderr.len()),
            log,
        };
        let report = Report {
            uncommitted: match outcome {
                Outcome::Succeeded => mem::take(&mut state.uncommitted),
                _ => Uncommitted::default(),
            },
            outcome,
            output: success.output,
            context: success.context,
            failure,
            stdout,
            stdout_bytes_dropped,
            stderr,
            stderr_bytes_dropped,
            logs,
            usage: Usage::default(),
            kept: KeptShare::default(),
        };
        (report, cuts, log_bytes)
    };
    let (report, redacting) = redacted(report, cuts, secrets).await;
    let kept = shared.kept.end(left_bytes(&report) + log_bytes);
    let (wall, cpu) = (wall + started.elapsed(), cpu + redacting);
    usage.wall_ms = wall.as_secs_f64() * 1e3;
    usage.cpu_ms = cpu.as_secs_f64() * 1e3;
    let shares = [(Resource::Timeout, wall), (Resource::Cpu, cpu)].into_iter();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let shares = shares.filter_map(|(resource, time)| limits.share(resource, millis(time)));
    usage
        .shares
        .splice(0..0, shares.filter(|share| share.used > 0));
    Report {
        usage,
        kept,
        ..report
    }
}

/// Returns the host memory taken by a report apart from its log, in bytes.
fn left_bytes(report: &Report) -> u64 {
    let output = report.output.as_ref().map_or(0, |json| json.as_str().len());
    let context = report.context.as_ref().map_or(0, object_bytes);
    let details = report
        .failure
        .as_ref()
        .and_then(|failed| failed.details.as_ref());
    let details = details.map_or(0, |details| details_bytes(details.to_string().len()));
    let texts = output + context + report.stdout.len() + report.stderr.len();
    texts as u64 + details + report.uncommitted.bytes()
}

/// Where the host truncated what a call left, possibly in the middle of a secret.
#[derive(Clone, Copy, Default)]
struct Cuts {
    stdout: Option<usize>,
    stderr: Option<usize>,
    /// Whether the last line before the host's own was truncated.
    log: bool,
}

/// Returns what the call used, apart from time.
fn usage(success: &Success, state: &HostState) -> Usage {
    let output = success.output_bytes.max(success.context_bytes);
    let stdio = state.stdout.written_bytes();
    let memory_peak_bytes = state.memory.memory_peak_bytes();
    let used = [
        (Resource::Output, output as u64),
        (Resource::Log, state.run_info.logs.bytes()),
        (Resource::Stdio, stdio.max(state.stderr.written_bytes())),
        (Resource::Memory, memory_peak_bytes),
        (Resource::TableElements, state.memory.table_elements_peak()),
    ];
    let used = used.into_iter().chain(state.shared.used());
    let limits = &state.shared.call.limits;
    Usage {
        memory_peak_bytes,
        shares: used
            .filter(|(_, used)| *used > 0)
            .filter_map(|(resource, used)| limits.share(resource, used))
            .collect(),
        directories: state.files.directory_shares(),
        ..Usage::default()
    }
}

/// Returns the bytes of the texts that may hold secrets, roughly.
fn text_bytes(report: &Report) -> usize {
    let output = report.output.iter();
    let context = report.context.iter().flatten();
    let failure = report.failure.as_ref().map_or(0, |failure| {
        let details = failure.details.as_ref().map(Value::to_string);
        failure.text().len() + details.map_or(0, |details| details.len())
    });
    let logs = report.logs.iter();
    output
        .map(|json| json.as_str().len())
        .chain(context.map(|(key, value)| key.len() + value.as_str().len()))
        .chain(logs.map(|line| line.context.len() + line.message.len()))
        .chain([failure, report.stdout.len(), report.stderr.len()])
        .sum()
}

/// Remove the values of `secrets` from `report`. Return it with the processor time that this took.
async fn redacted(report: Report, cuts: Cuts, secrets: &Arc<Secrets>) -> (Report, Duration) {
    let bytes = if secrets.is_empty() {
        0
    } else {
        text_bytes(&report)
    };
    if bytes == 0 {
        return (report, Duration::ZERO);
    }
    let sought = secrets.values().map(|secret| secret.reveal().len());
    if sought.sum::<usize>().saturating_add(bytes) <= REDACTED_AT_ONCE_BYTES_MAX {
        return redacted_here(report, cuts, secrets);
    }
    let secrets = Arc::clone(secrets);
    let redacting = tokio::task::spawn_blocking(move || redacted_here(report, cuts, &secrets));
    redacting.await.unwrap_or_else(|error| {
        let message = format!("the host could not remove secrets from what the task left: {error}");
        (
            Report::without_call(Outcome::HostError, message),
            Duration::ZERO,
        )
    })
}

fn redacted_here(mut report: Report, cuts: Cuts, secrets: &Secrets) -> (Report, Duration) {
    let before = thread_time();
    redact(&mut report, cuts, &Redaction::of(secrets));
    (report, thread_time().saturating_sub(before))
}

/// Remove the values of secrets, wherever the task put them.
fn redact(report: &mut Report, cuts: Cuts, redaction: &Redaction) {
    if let Some(output) = &mut report.output {
        *output = redaction.json_text(output);
    }
    if let Some(context) = &mut report.context {
        redaction.entries(context);
    }
    if let Some(failure) = &mut report.failure {
        redaction.cut_text(&mut failure.message, failure.cut_at.take());
        if let Some(note) = &mut failure.note {
            redaction.text(note);
        }
        if let Some(details) = &mut failure.details {
            redaction.json(details);
        }
    }
    redaction.cut_text(&mut report.stdout, cuts.stdout);
    redaction.cut_text(&mut report.stderr, cuts.stderr);
    // The very last line is the host's own.
    let cut_line = report.logs.len().checked_sub(2).filter(|_| cuts.log);
    for (index, line) in report.logs.iter_mut().enumerate() {
        let cut_at = (Some(index) == cut_line).then_some(line.message.len());
        redaction.text(&mut line.context);
        redaction.cut_text(&mut line.message, cut_at);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::grants::Secret;

    fn left(stdout: String) -> Report {
        let report = Report::without_call(Outcome::Failed, String::new());
        Report { stdout, ..report }
    }

    #[test]
    fn a_long_text_is_redacted_apart_from_the_guests_threads() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let secret = ("db".to_owned(), Secret::new("hunter2"));
        let secrets: Arc<Secrets> = Arc::new([secret].into());
        runtime.block_on(async {
            let (release, released) = mpsc::channel::<()>();
            let blocked = tokio::task::spawn_blocking(move || released.recv());
            let few = redacted(left("hunter2".to_owned()), Cuts::default(), &secrets).await;
            assert_eq!(few.0.stdout, "[secret db]");
            let many = "hunter2 ".repeat(REDACTED_AT_ONCE_BYTES_MAX / 8);
            let bytes = many.len();
            let mut redacting = std::pin::pin!(redacted(left(many), Cuts::default(), &secrets));
            tokio::select! {
                biased;
                _ = &mut redacting => panic!("a guest's thread redacted {bytes} bytes"),
                () = tokio::task::yield_now() => {}
            }
            drop(release);
            assert!(blocked.await.unwrap().is_err());
            let (report, spent) = redacting.await;
            assert!(!report.stdout.contains("hunter2"));
            assert!(spent > Duration::ZERO);
        });
    }
}
