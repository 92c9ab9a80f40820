//! The report of a call: its result, what it printed and logged, and what it used.

use std::time::Duration;

use crate::capability::logs::HOST_CONTEXT;
use crate::limits::{Resource, Usage};
use crate::outcome::{Outcome, Report};
use crate::run::redaction::Redaction;
use crate::run::verdict::{Success, Verdict};
use crate::state::HostState;

/// Create the report of a call that took `wall`, and `cpu` of processor time.
pub(crate) fn report(verdict: Verdict, state: HostState, wall: Duration, cpu: Duration) -> Report {
    let usage = usage(&verdict, &state, wall, cpu);
    let (outcome, success, failure) = match verdict {
        Ok(success) => (Outcome::Succeeded, success, None),
        Err(failure) => (failure.kind, Success::default(), Some(failure)),
    };
    let report = Report {
        outcome,
        output: success.output.map(|(output, _)| output),
        context: success.context.map(|(context, _)| context),
        failure,
        stdout: state.stdout.text(),
        stderr: state.stderr.text(),
        logs: state.run_info.logs.into_lines(),
        usage,
    };
    match &*state.shared.call.secrets {
        none if none.is_empty() => report,
        secrets => redacted(report, &Redaction::of(secrets)),
    }
}

fn usage(verdict: &Verdict, state: &HostState, wall: Duration, cpu: Duration) -> Usage {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let output = verdict.as_ref().map_or(0, |success| {
        let output = success.output.as_ref().map_or(0, |(_, bytes)| *bytes);
        let context = success.context.as_ref().map_or(0, |(_, bytes)| *bytes);
        output.max(context) as u64
    });
    let stdio = state.stdout.written_bytes();
    let shares = [
        (Resource::Timeout, millis(wall)),
        (Resource::Cpu, millis(cpu)),
        (Resource::Output, output),
        (Resource::Log, state.run_info.logs.bytes()),
        (Resource::Stdio, stdio.max(state.stderr.written_bytes())),
    ]
    .into_iter()
    .filter_map(|(resource, used)| state.shared.call.limits.share(resource, used));
    Usage {
        wall_ms: wall.as_secs_f64() * 1e3,
        cpu_ms: cpu.as_secs_f64() * 1e3,
        memory_peak_bytes: state.memory.memory_peak_bytes(),
        shares: shares
            .chain(state.memory.shares())
            .chain(state.shared.shares())
            .filter(|share| share.used > 0)
            .collect(),
    }
}

/// Remove the values of secrets, wherever the task put them.
fn redacted(mut report: Report, redaction: &Redaction) -> Report {
    if let Some(output) = &mut report.output {
        redaction.json(output);
    }
    if let Some(context) = &mut report.context {
        redaction.object(context);
    }
    if let Some(failure) = &mut report.failure {
        redaction.text(&mut failure.message);
        if let Some(note) = &mut failure.note {
            redaction.text(note);
        }
        if let Some(details) = &mut failure.details {
            redaction.json(details);
        }
    }
    redaction.text(&mut report.stdout);
    redaction.text(&mut report.stderr);
    // The last line before the host's own was cut.
    if let [.., cut, last] = report.logs.as_mut_slice()
        && last.context == HOST_CONTEXT
    {
        redaction.end_of(&mut cut.message);
    }
    for line in &mut report.logs {
        redaction.text(&mut line.context);
        redaction.text(&mut line.message);
    }
    report
}
