//! One call, from a fresh store to its report.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use wasmtime::{Store, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::artifact::{Entry, Linked};
use super::command::{self, Printed, Program};
use super::cpu::metered;
use super::directories::{self, Unopened};
use super::imports::bindings::campanile::task::types;
use super::store::{self, HostState, Opening};
use super::trap::trap_message;
use super::{Call, Failure, Limits, Outcome, Report, StopSignal, Usage};
use crate::clock::Clock;

/// Of a message that goes on the record.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

const PUT_ELSEWHERE: &str =
    "put large results in a file or a database and give back where they are";

/// Carry `call` out. Whatever happens is in the report.
pub(super) async fn run(call: Call, clock: Clock) -> Report {
    let started = Instant::now();
    let (context, program) = match call.artifact.form.is_command() {
        true => (
            String::new(),
            Some(Program {
                context: call.context,
            }),
        ),
        false => (call.context, None),
    };
    let opening = Opening {
        task: call.task,
        facts: call.facts,
        grants: call.grants,
        limits: &call.limits,
        stop: call.stop.clone(),
        clock,
        program,
    };
    let linked = &call.artifact.linked;
    let mut store = store::open(linked.instance.engine(), opening);
    let mut cpu = Duration::ZERO;
    let ended = {
        let calling = call_entry(&mut store, linked, context);
        bounded(metered(calling, &mut cpu), call.limits.timeout, &call.stop).await
    };
    let wall = started.elapsed();
    let state = store.into_data();
    let verdict = judge(ended, &state, &call.limits);
    report(verdict, state, wall, cpu)
}

/// What came back from the guest.
enum Gave {
    Completion(types::Completion),
    Failure(types::Failure),
    /// The code that a program ended with.
    Exit(i32),
}

async fn call_entry(
    store: &mut Store<HostState>,
    linked: &Linked,
    context: String,
) -> wasmtime::Result<Gave> {
    let grants = store.data().grants.clone();
    store.data_mut().directories = directories::open(&grants).await?;
    let instance = linked.instance.instantiate_async(&mut *store).await?;
    match &linked.entry {
        Entry::Task(task) => {
            let guest = task.load(&mut *store, &instance)?;
            let task = store.data().task.clone();
            let returned = guest.call_run(store, &task, &context).await?;
            Ok(returned.map_or_else(Gave::Failure, Gave::Completion))
        }
        Entry::Command(command) => {
            let guest = command.load(&mut *store, &instance)?;
            match guest.call_run(store).await {
                Ok(returned) => Ok(Gave::Exit(returned.is_err().into())),
                Err(error) => match error.downcast_ref::<I32Exit>() {
                    Some(exit) => Ok(Gave::Exit(exit.0)),
                    None => Err(error),
                },
            }
        }
    }
}

/// How a guest's function ended.
pub(super) enum Ended<T> {
    Returned(T),
    Broke(wasmtime::Error),
    TimedOut,
    Dropped,
}

/// Await a guest's function, but no longer than `timeout` and not after `stop` says to drop it.
///
/// A guest that computes yields at every tick of the epoch, one that waits is suspended in the host; either way
/// control comes back here, and dropping the future ends it.
pub(super) async fn bounded<T>(
    calling: impl Future<Output = wasmtime::Result<T>>,
    timeout: Duration,
    stop: &StopSignal,
) -> Ended<T> {
    tokio::select! {
        // A finished call counts as finished, even at its last moment. And most calls end at their first poll:
        // for those no timer is set.
        biased;
        returned = calling => match returned {
            Ok(value) => Ended::Returned(value),
            Err(error) => Ended::Broke(error),
        },
        () = stop.dropped() => Ended::Dropped,
        () = tokio::time::sleep(timeout) => Ended::TimedOut,
    }
}

/// What a call came to.
type Verdict = Result<Success, Failure>;

struct Success {
    output: Option<Value>,
    context: Option<Map<String, Value>>,
}

fn judge(ended: Ended<Gave>, state: &HostState, limits: &Limits) -> Verdict {
    match ended {
        Ended::Returned(Gave::Completion(completion)) => completed(completion, limits),
        Ended::Returned(Gave::Failure(failure)) => Err(failed(failure, state, limits)),
        Ended::Returned(Gave::Exit(0)) => printed(state, limits),
        Ended::Returned(Gave::Exit(code)) => {
            deny_missed(state);
            Err(failed(command::exited(code, &state.stderr), state, limits))
        }
        Ended::Broke(error) => {
            deny_missed(state);
            Err(broke(&error, state, limits))
        }
        Ended::TimedOut => Err(failure(
            Outcome::TimedOut,
            format!(
                "the task was stopped after its time-out of {}",
                humantime::format_duration(limits.timeout)
            ),
        )),
        Ended::Dropped => Err(failure(
            Outcome::Cancelled,
            "the host dropped the call before it ended".to_owned(),
        )),
    }
}

/// Remember as refused what a program wanted of directories that were not granted, if it gave up for that.
fn deny_missed(state: &HostState) {
    let missed = state.missed.as_ref();
    if let Some(message) = missed.and_then(|missed| command::denied_path(missed, &state.stderr)) {
        state.denial.record(message);
    }
}

/// A program has ended well: what it printed may be its output.
fn printed(state: &HostState, limits: &Limits) -> Verdict {
    let output = match command::printed(&state.stdout, limits) {
        Printed::Output(value) => Some(value),
        Printed::Text => None,
        Printed::TooLong(bytes) => {
            return Err(failure(
                Outcome::InvalidOutput,
                format!(
                    "the task printed one JSON value of {bytes} bytes, which would be its output, and the limit is {}; {PUT_ELSEWHERE}",
                    limits.output_bytes_max
                ),
            ));
        }
    };
    Ok(Success {
        output,
        context: None,
    })
}

fn completed(completion: types::Completion, limits: &Limits) -> Verdict {
    let parse = |name: &str, text: Option<String>| -> Result<Option<Value>, Failure> {
        let Some(text) = text else { return Ok(None) };
        let invalid = |trouble| {
            failure(
                Outcome::InvalidOutput,
                format!("the task's {name} {trouble}"),
            )
        };
        if text.len() > limits.output_bytes_max {
            return Err(invalid(format!(
                "has {} bytes and its limit is {}; {PUT_ELSEWHERE}",
                text.len(),
                limits.output_bytes_max
            )));
        }
        let value = serde_json::from_str(&text);
        value.map_err(|error| invalid(format!("is not JSON: {error}")))
    };
    let output = parse("output", completion.output)?;
    let context = match parse("context", completion.context)? {
        None => None,
        Some(Value::Object(keys)) => Some(keys),
        Some(_) => {
            return Err(failure(
                Outcome::InvalidOutput,
                "the task's context is not a JSON object: return one, with the keys to hand on"
                    .to_owned(),
            ));
        }
    };
    Ok(Success { output, context })
}

/// The task said that it failed; what the host refused before tells why.
fn failed(said: types::Failure, state: &HostState, limits: &Limits) -> Failure {
    let details = said.details.map(|text| {
        if text.len() > limits.output_bytes_max {
            return Value::String(format!("{} bytes of details were dropped", text.len()));
        }
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    });
    let missing_grant = details
        .as_ref()
        .and_then(|details| details.get("kind"))
        .is_some_and(|kind| kind == "denied");
    let told_by_host = state.denial.message();
    let (kind, message) = if missing_grant || told_by_host.is_some() {
        (Outcome::Denied, with_reason(told_by_host, said.message))
    } else if let Some(message) = state.meter.refusal() {
        (
            Outcome::MemoryExceeded,
            with_reason(Some(message), said.message),
        )
    } else {
        (Outcome::Failed, said.message)
    };
    let retryable = match kind {
        Outcome::Failed => said.retryable,
        kind => may_succeed_later(kind),
    };
    Failure {
        message: short(message),
        retryable,
        retry_after: said.retry_after_ms.map(Duration::from_millis),
        precedes_call: false,
        details,
        kind,
    }
}

/// The host's reason before the task's own words, which often follow from it.
fn with_reason(reason: Option<String>, said: String) -> String {
    match reason {
        Some(reason) if said.is_empty() => reason,
        Some(reason) => format!("{reason} (the task said: {said})"),
        None => said,
    }
}

/// The call broke off with an error of the engine.
fn broke(error: &wasmtime::Error, state: &HostState, limits: &Limits) -> Failure {
    if let Some(message) = state.meter.refusal() {
        return failure(Outcome::MemoryExceeded, message);
    }
    if let Some(message) = state.denial.message() {
        return failure(Outcome::Denied, message);
    }
    if let Some(unopened) = error.downcast_ref::<Unopened>() {
        return before_call(unopened.to_string());
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        let message = format!("no slot for an instance was free: {error}");
        return before_call(message);
    }
    if is_giant_result(error) {
        let message = format!(
            "what the task returned is far too large: its limit is {} bytes; {PUT_ELSEWHERE}",
            limits.output_bytes_max
        );
        return failure(Outcome::InvalidOutput, message);
    }
    failure(Outcome::Trapped, trap_message(error, &state.stderr.text()))
}

/// Whether the engine refused to copy a result because of its size.
///
/// The engine's error has no public type. The same one is raised when the guest hands too much to an import,
/// but then some code of the guest is under way.
fn is_giant_result(error: &wasmtime::Error) -> bool {
    let text = error.root_cause().to_string();
    text.starts_with("too much data is being copied") && !error.is::<WasmBacktrace>()
}

fn failure(kind: Outcome, message: String) -> Failure {
    Failure {
        kind,
        message: short(message),
        retryable: may_succeed_later(kind),
        retry_after: None,
        precedes_call: false,
        details: None,
    }
}

/// The host could not begin the call.
fn before_call(message: String) -> Failure {
    Failure {
        precedes_call: true,
        ..failure(Outcome::HostError, message)
    }
}

/// What is wrong with a grant, an output or a package stays wrong until somebody mends it.
fn may_succeed_later(kind: Outcome) -> bool {
    !matches!(
        kind,
        Outcome::Denied | Outcome::InvalidOutput | Outcome::Refused
    )
}

fn short(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push_str(" [the rest was dropped]");
    }
    message
}

fn report(verdict: Verdict, state: HostState, wall: Duration, cpu: Duration) -> Report {
    let usage = Usage {
        wall_ms: wall.as_secs_f64() * 1e3,
        cpu_ms: cpu.as_secs_f64() * 1e3,
        memory_peak_bytes: state.meter.memory_peak_bytes(),
    };
    let (outcome, output, context, failure) = match verdict {
        Ok(success) => (Outcome::Succeeded, success.output, success.context, None),
        Err(failure) => (failure.kind, None, None, Some(failure)),
    };
    Report {
        outcome,
        output,
        context,
        failure,
        stdout: state.stdout.text(),
        stderr: state.stderr.text(),
        logs: state.logs.into_lines(),
        usage,
    }
}

impl Report {
    /// The report of a call that never reached the guest, or that the host lost.
    pub fn without_call(outcome: Outcome, message: String) -> Report {
        Report {
            outcome,
            output: None,
            context: None,
            failure: Some(failure(outcome, message)),
            stdout: String::new(),
            stderr: String::new(),
            logs: Vec::new(),
            usage: Usage::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_at_a_character() {
        let cut = short("é".repeat(MESSAGE_BYTES_MAX));
        assert!(cut.ends_with("é [the rest was dropped]"));
        assert!(cut.len() < MESSAGE_BYTES_MAX + 30);
    }
}
