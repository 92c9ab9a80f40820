//! One call, from a fresh store to its report.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use wasmtime::component::ResourceTableError;
use wasmtime::{Store, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::artifact::{Entry, Linked};
use super::command::{self, Printed, Program};
use super::cpu::metered;
use super::directories::{self, Unopened};
use super::effects::Crash;
use super::imports::bindings::campanile::task::types;
use super::logs;
use super::secrets::Redaction;
use super::store::{self, HostState, Opening};
use super::trap::trap_message;
use super::{Call, Failure, Limits, Outcome, Report, Resource, Share, StopSignal, Usage};
use campanile_model::clock::Clock;

/// Of a message that goes on the record.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

/// Stands at the end of a message that was cut.
pub(super) const MESSAGE_CUT: &str = " [the rest was dropped]";

/// What the engine says when it refuses to copy something because of its size, and when the guest holds too much: its
/// errors have no public types. Tests notice when that changes.
const TOO_MUCH_AT_ONCE: &str = "too much data is being copied";
const HANDLES_GONE: &str = "store handle limit exceeded";

/// What to do about a result that is too large.
fn put_elsewhere() -> String {
    let raise = Resource::Output.raise();
    format!("put large results in a file or a database and give back where they are, or {raise}")
}

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
        secrets: call.secrets,
        limits: &call.limits,
        world: call.world,
        stop: call.stop.clone(),
        clock,
        program,
    };
    let linked = &call.artifact.linked;
    let mut store = store::open(linked.instance.engine(), opening);
    let mut cpu = Duration::ZERO;
    let ended = {
        let calling = call_entry(&mut store, linked, context);
        let metered = metered(calling, &mut cpu, call.limits.cpu);
        bounded(metered, call.limits.timeout, &call.stop).await
    };
    let wall = started.elapsed();
    let state = store.into_data();
    let verdict = match state.effects.have_crashed() {
        true => Err(failure(Outcome::Cancelled, Crash.to_string())),
        false => judge(ended, &state, &call.limits),
    };
    report(verdict, state, &call.limits, wall, cpu)
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
    let directories = directories::open(&grants, &store.data().open_files).await?;
    store.data_mut().directories = directories;
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
    /// It was on a processor for as long as it may.
    Spent,
    TimedOut,
    Dropped,
}

/// Await a guest's function, but no longer than `timeout` and not after `stop` says to drop it. It gives none when its
/// time on a processor is spent.
///
/// A guest that computes yields at every tick of the epoch, one that waits is suspended in the host; either way
/// control comes back here, and dropping the future ends it.
pub(super) async fn bounded<T>(
    calling: impl Future<Output = Option<wasmtime::Result<T>>>,
    timeout: Duration,
    stop: &StopSignal,
) -> Ended<T> {
    tokio::select! {
        // A finished call counts as finished, even at its last moment. And most calls end at their first poll:
        // for those no timer is set.
        biased;
        returned = calling => match returned {
            Some(Ok(value)) => Ended::Returned(value),
            Some(Err(error)) => Ended::Broke(error),
            None => Ended::Spent,
        },
        () = stop.dropped() => Ended::Dropped,
        () = tokio::time::sleep(timeout) => Ended::TimedOut,
    }
}

/// What a call came to.
type Verdict = Result<Success, Failure>;

/// What a task gave back, each with its bytes as the task wrote it.
#[derive(Default)]
struct Success {
    output: Option<(Value, usize)>,
    context: Option<(Map<String, Value>, usize)>,
}

fn judge(ended: Ended<Gave>, state: &HostState, limits: &Limits) -> Verdict {
    match ended {
        Ended::Returned(Gave::Completion(completion)) => completed(completion, limits),
        Ended::Returned(Gave::Failure(failure)) => {
            deny_missed(state, &failure.message);
            Err(failed(failure, state, limits))
        }
        Ended::Returned(Gave::Exit(0)) => printed(state, limits),
        Ended::Returned(Gave::Exit(code)) => {
            let said = command::exited(code, &state.stderr);
            deny_missed(state, &said.message);
            Err(failed(said, state, limits))
        }
        Ended::Broke(error) => {
            deny_missed(state, &trap_message(&error, &state.stderr.text()));
            Err(broke(&error, state, limits))
        }
        Ended::TimedOut => Err(failure(
            Outcome::TimedOut,
            format!(
                "the task was stopped after its time-out of {}; to give it more, {}",
                humantime::format_duration(limits.timeout),
                Resource::Timeout.raise()
            ),
        )),
        Ended::Spent => Err(failure(
            Outcome::TimedOut,
            format!(
                "the task was stopped after {} on a processor, its limit; to give it more, {}",
                humantime::format_duration(limits.cpu.unwrap_or(limits.timeout)),
                Resource::Cpu.raise()
            ),
        )),
        Ended::Dropped => Err(failure(
            Outcome::Cancelled,
            "the host dropped the call before it ended".to_owned(),
        )),
    }
}

/// Remember as refused what a guest wanted of directories and was not granted, if it gave up for that, going by what it
/// `said` at its end: what it complained of before it may have got over.
fn deny_missed(state: &HostState, said: &str) {
    if let Some(refused) = state.missed.blamed(said) {
        state.denial.record(refused.refusal());
    }
}

/// A program has ended well: what it printed may be its output.
fn printed(state: &HostState, limits: &Limits) -> Verdict {
    let bytes = usize::try_from(state.stdout.written_bytes()).unwrap_or(usize::MAX);
    let output = match command::printed(&state.stdout, limits) {
        Printed::Output(value) => Some((value, bytes)),
        Printed::Text => None,
        Printed::TooLong(bytes) => {
            return Err(failure(
                Outcome::InvalidOutput,
                format!(
                    "the task printed one JSON value of {bytes} bytes, which would be its output, and the limit is {}; {}",
                    limits.output_bytes_max,
                    put_elsewhere()
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
    let parse = |name: &str, text: Option<String>| -> Result<Option<(Value, usize)>, Failure> {
        let Some(text) = text else { return Ok(None) };
        let invalid = |trouble| {
            failure(
                Outcome::InvalidOutput,
                format!("the task's {name} {trouble}"),
            )
        };
        if text.len() > limits.output_bytes_max {
            return Err(invalid(format!(
                "has {} bytes and its limit is {}; {}",
                text.len(),
                limits.output_bytes_max,
                put_elsewhere()
            )));
        }
        match serde_json::from_str(&text) {
            Ok(value) => Ok(Some((value, text.len()))),
            Err(error) => Err(invalid(format!("is not JSON: {error}"))),
        }
    };
    let output = parse("output", completion.output)?;
    let context = match parse("context", completion.context)? {
        None => None,
        Some((Value::Object(keys), bytes)) => Some((keys, bytes)),
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
        let exceeded = state.exceeded.message();
        (Outcome::Failed, with_reason(exceeded, said.message))
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
            "what the task returned is far too large: its limit is {} bytes; {}",
            limits.output_bytes_max,
            put_elsewhere()
        );
        return failure(Outcome::InvalidOutput, message);
    }
    let message = trap_message(error, &state.stderr.text());
    let reason = limit_passed(error, limits).or_else(|| state.exceeded.message());
    let message = match reason {
        // It was the reason itself that trapped.
        Some(reason) if message.contains(&reason) => message,
        Some(reason) => format!("{reason} ({message})"),
        None => message,
    };
    failure(Outcome::Trapped, message)
}

/// The limit that the engine itself holds and that the call would have passed.
fn limit_passed(error: &wasmtime::Error, limits: &Limits) -> Option<String> {
    if is_giant(error) {
        return Some(format!(
            "the task and the host may not hand each other more than {} bytes in one call; {}",
            limits.host_call_bytes_max,
            Resource::HostCall.raise()
        ));
    }
    let full = error.downcast_ref::<ResourceTableError>();
    let is_full = matches!(full, Some(ResourceTableError::Full))
        || error.root_cause().to_string().contains(HANDLES_GONE);
    is_full.then(|| {
        format!(
            "the task may not hold more than {} files, streams, requests and the like at once; {}",
            limits.handles_max,
            Resource::Handles.raise()
        )
    })
}

/// Whether the engine refused to copy a result because of its size.
///
/// The same error is raised when the guest hands too much to an import, but then some code of the guest is under way.
fn is_giant_result(error: &wasmtime::Error) -> bool {
    is_giant(error) && !error.is::<WasmBacktrace>()
}

/// Whether the engine refused to copy something because of its size.
fn is_giant(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().starts_with(TOO_MUCH_AT_ONCE)
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
        message.push_str(MESSAGE_CUT);
    }
    message
}

fn report(
    verdict: Verdict,
    state: HostState,
    limits: &Limits,
    wall: Duration,
    cpu: Duration,
) -> Report {
    let shares = [
        duration_share(Resource::Timeout, wall, Some(limits.timeout)),
        duration_share(Resource::Cpu, cpu, limits.cpu),
        output_share(&verdict, limits),
        share(Resource::Log, state.logs.bytes(), limits.log_bytes_max),
        share(
            Resource::Stdio,
            state
                .stdout
                .written_bytes()
                .max(state.stderr.written_bytes()),
            limits.stdio_bytes_max,
        ),
    ];
    let shares = shares
        .into_iter()
        .flatten()
        .chain(state.meter.shares())
        .chain(state.gauges.shares());
    let usage = Usage {
        wall_ms: wall.as_secs_f64() * 1e3,
        cpu_ms: cpu.as_secs_f64() * 1e3,
        memory_peak_bytes: state.meter.memory_peak_bytes(),
        shares: shares.filter(|share| share.used > 0).collect(),
    };
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
        logs: state.logs.into_lines(),
        usage,
    };
    match state.secrets.is_empty() {
        true => report,
        false => redacted(report, &Redaction::of(&state.secrets)),
    }
}

fn share(resource: Resource, used: u64, limit: usize) -> Option<Share> {
    Some(Share {
        resource,
        used,
        limit: limit as u64,
    })
}

/// Whole milliseconds, of those that have a limit.
fn duration_share(resource: Resource, used: Duration, limit: Option<Duration>) -> Option<Share> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Some(Share {
        resource,
        used: millis(used),
        limit: millis(limit?),
    })
}

fn output_share(verdict: &Verdict, limits: &Limits) -> Option<Share> {
    let success = verdict.as_ref().ok()?;
    let output = success.output.as_ref().map_or(0, |(_, bytes)| *bytes);
    let context = success.context.as_ref().map_or(0, |(_, bytes)| *bytes);
    let used = output.max(context) as u64;
    share(Resource::Output, used, limits.output_bytes_max)
}

/// The report without the values of secrets, wherever the task put them.
fn redacted(mut report: Report, redaction: &Redaction) -> Report {
    if let Some(output) = &mut report.output {
        redaction.json(output);
    }
    if let Some(context) = report.context.take() {
        let mut context = Value::Object(context);
        redaction.json(&mut context);
        if let Value::Object(context) = context {
            report.context = Some(context);
        }
    }
    if let Some(failure) = &mut report.failure {
        redaction.text(&mut failure.message);
        if let Some(details) = &mut failure.details {
            redaction.json(details);
        }
    }
    redaction.text(&mut report.stdout);
    redaction.text(&mut report.stderr);
    if let [.., last, told] = report.logs.as_mut_slice()
        && told.context == logs::OWN_CONTEXT
    {
        redaction.end_of(&mut last.message);
    }
    for line in &mut report.logs {
        redaction.text(&mut line.context);
        redaction.text(&mut line.message);
    }
    report
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
