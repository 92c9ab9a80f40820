//! The result of a call, from how its guest ended and from what the host refused it.

use std::time::Duration;

use campanile_model::json_depth;
use campanile_model::text::duration_text;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wasmtime::WasmBacktrace;
use wasmtime::component::ResourceTableError;

use crate::bindings::campanile::task::types;
use crate::capability::files::directories::Unopened;
use crate::limits::{Limits, Resource};
use crate::outcome::{Failure, Outcome};
use crate::run::cause::Cause;
use crate::run::program::{self, NoOutput};
use crate::run::time::Ended;
use crate::run::trap::{is_of_adapter, trap_message};
use crate::state::HostState;
use campanile_model::json_text::{JsonObject, JsonText, object_bytes};

/// The engine's words when it refuses to copy something because of its size, and when the guest holds too many handles.
/// These errors have no public types; tests notice when the words change.
const COPY_TOO_LARGE: &str = "too much data is being copied";
const NO_HANDLE_LEFT: &str = "store handle limit exceeded";

/// What the guest's function returned.
pub(crate) enum Returned {
    Completion(types::Completion),
    Failure(types::Failure),
    /// The exit code of a program.
    Exit(i32),
}

/// The result of a call.
pub(crate) type Verdict = Result<Success, Failure>;

/// The values that a task returned.
#[derive(Default)]
pub(crate) struct Success {
    pub(crate) output: Option<JsonText>,
    pub(crate) context: Option<JsonObject>,
    /// The bytes of both as the task wrote them.
    pub(crate) output_bytes: usize,
    pub(crate) context_bytes: usize,
}

impl Success {
    /// Returns the host memory taken by the values, in bytes.
    fn kept_bytes(&self) -> u64 {
        let output = self
            .output
            .as_ref()
            .map_or(0, |output| output.as_str().len());
        let context = self.context.as_ref().map_or(0, object_bytes);
        (output + context) as u64
    }
}

/// Decide the result of a call.
pub(crate) fn verdict(ended: Ended<Returned>, state: &HostState) -> Verdict {
    let limits = &state.shared.call.limits;
    match ended {
        Ended::Returned(Returned::Completion(completion)) => completed(completion, state),
        Ended::Returned(Returned::Failure(failure)) => Err(failed(failure, state)),
        Ended::Returned(Returned::Exit(0)) => printed(state),
        Ended::Returned(Returned::Exit(code)) => {
            Err(failed(program::exited(code, &state.stderr), state))
        }
        Ended::Broke(error) => Err(broke(&error, state)),
        Ended::TimedOut => {
            let timeout = duration_text(limits.timeout);
            let when = format!("after its time-out of {timeout}");
            Err(timed_out(&when, Resource::Timeout))
        }
        Ended::CpuSpent => {
            let cpu = duration_text(limits.cpu.unwrap_or(limits.timeout));
            let when = format!("after {cpu} on a processor, its limit");
            Err(timed_out(&when, Resource::Cpu))
        }
        Ended::Dropped => Err(Failure::new(
            Outcome::Cancelled,
            "the host dropped the call before it ended".to_owned(),
        )),
    }
}

/// Any adapter has this much space for arguments and variables, besides its own state.
const ADAPTER_INPUT_BYTES: usize = 48 << 10;

fn timed_out(when: &str, limit: Resource) -> Failure {
    let raise = limit.raise();
    let message = format!("the task was stopped {when}; to give it more, {raise}");
    Failure::new(Outcome::TimedOut, message)
}

fn invalid_output(message: String) -> Failure {
    Failure::new(Outcome::InvalidOutput, message)
}

/// Returns what to do about a result that is too large, as a clause.
fn return_less() -> String {
    let raise = Resource::Output.raise();
    format!("put large results in a file or a database and return where they are, or {raise}")
}

/// A program has ended well. What it printed may be its output.
fn printed(state: &HostState) -> Verdict {
    let limits = &state.shared.call.limits;
    let bytes = usize::try_from(state.stdout.written_bytes()).unwrap_or(usize::MAX);
    let output = program::take_output(&state.stdout, limits).map_err(|refusal| {
        invalid_output(match (refusal, state.stdout.refusal_of_host()) {
            (NoOutput::TooLong(_), Some(why)) => {
                format!("the task printed one JSON value, which would be its output, and {why}")
            }
            (NoOutput::TooLong(bytes), None) => format!(
                "the task printed one JSON value of {bytes} bytes, which would be its output, and the limit is {}; {}",
                limits.output_bytes_max,
                return_less()
            ),
            (NoOutput::TooDeep(too_deep), _) => {
                format!("the task printed one JSON value, which would be its output, and it {too_deep}; print it flatter, or as a text")
            }
        })
    })?;
    Ok(Success {
        output_bytes: output.as_ref().map_or(0, |_| bytes),
        output,
        ..Success::default()
    })
}

fn completed(completion: types::Completion, state: &HostState) -> Verdict {
    let types::Completion { output, context } = completion;
    let limits = &state.shared.call.limits;
    let bytes = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let success = Success {
        output_bytes: bytes(&output),
        context_bytes: bytes(&context),
        output: parsed("output", output, limits)?,
        context: parsed("context", context, limits)?,
    };
    let kept = state.shared.kept.keep(success.kept_bytes());
    kept.map_err(|why| invalid_output(format!("the task returned a result, and {why}")))?;
    Ok(success)
}

/// Read the JSON text that the task returned as its output, or the object that it returned as its context.
fn parsed<T: DeserializeOwned>(
    name: &str,
    text: Option<String>,
    limits: &Limits,
) -> Result<Option<T>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    if text.len() > limits.output_bytes_max {
        return Err(invalid_output(format!(
            "the task's {name} has {} bytes and its limit is {}; {}",
            text.len(),
            limits.output_bytes_max,
            return_less()
        )));
    }
    json_depth::check(text.as_bytes()).map_err(|too_deep| {
        invalid_output(format!(
            "the task's {name} {too_deep}; return it flatter, or as a text"
        ))
    })?;
    let value = serde_json::from_str(&text).map_err(|error| {
        let is_json = serde_json::from_str::<JsonText>(&text).is_ok();
        invalid_output(if is_json { format!(
                "the task's {name} is not a JSON object: return one, with the keys for dependent tasks"
            ) } else { format!("the task's {name} is not JSON: {error}") })
    });
    value.map(Some)
}

/// Returns the host memory that JSON details of `bytes` bytes may take once parsed: a one-digit number takes 32 bytes.
pub(crate) fn details_bytes(bytes: usize) -> u64 {
    (bytes as u64).saturating_mul(32)
}

/// The task returned a failure.
///
/// Its kind depends on what the host refused, never on what the task says in its message or details. For a failure of the task's own, the
/// message stays the task's, with anything the host has to add going into the note.
fn failed(failure: types::Failure, state: &HostState) -> Failure {
    let details = failure.details.map(|text| {
        let is_long = text.len() > state.shared.call.limits.output_bytes_max;
        if is_long || state.shared.kept.keep(details_bytes(text.len())).is_err() {
            return Value::String(format!("{} bytes of details were dropped", text.len()));
        }
        let is_flat = json_depth::check(text.as_bytes()).is_ok();
        let parsed = serde_json::from_str(&text).ok().filter(|_| is_flat);
        parsed.unwrap_or(Value::String(text))
    });
    let (kind, reason) = if let Some(denied) = state.shared.denied() {
        (Outcome::Denied, Some(denied.to_owned()))
    } else if let Some(message) = state.memory.refusal() {
        (Outcome::MemoryExceeded, Some(message))
    } else {
        (Outcome::Failed, None)
    };
    let exceeded = state.shared.exceeded().filter(|_| reason.is_none());
    let proposal = state.files.denied.note(&failure.message);
    let notes = exceeded.map(str::to_owned).into_iter().chain(proposal);
    let note = Some(Vec::from_iter(notes).join("; ")).filter(|note| !note.is_empty());
    // The host's reason comes first, as the task's message often just follows from it. Quoting that keeps it from ending the quotation.
    let message = match reason {
        Some(reason) if failure.message.is_empty() => reason,
        Some(reason) => format!("{reason} (the task said: {:?})", failure.message),
        None => failure.message,
    };
    let failed = Failure::new(kind, message);
    Failure {
        retryable: match kind {
            Outcome::Failed => failure.retryable,
            _ => failed.retryable,
        },
        note,
        retry_after: failure.retry_after_ms.map(Duration::from_millis),
        details,
        ..failed
    }
}

/// The call ended with an error of the engine.
fn broke(error: &wasmtime::Error, state: &HostState) -> Failure {
    let limits = &state.shared.call.limits;
    if let Some(message) = state.memory.refusal() {
        return Failure::new(Outcome::MemoryExceeded, message);
    }
    if let Some(message) = state.shared.denied() {
        return Failure::new(Outcome::Denied, message.to_owned());
    }
    if let Some(unopened) = error.downcast_ref::<Unopened>() {
        return Failure::before_call(Outcome::HostError, unopened.to_string());
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        let message = format!("no slot for an instance was free: {error}");
        return Failure::before_call(Outcome::HostError, message);
    }
    // The same error is raised when the guest passes too much to an import, but then code of the guest is on the stack.
    if is_copy_too_large(error) && !error.is::<WasmBacktrace>() {
        return invalid_output(format!(
            "the task's result is far too large: its limit is {} bytes; {}",
            limits.output_bytes_max,
            return_less()
        ));
    }
    let input_bytes = state.input_bytes + program::granted_bytes(&state.shared.call);
    if input_bytes > ADAPTER_INPUT_BYTES && is_of_adapter(error) {
        return Failure::new(
            Outcome::Refused,
            format!(
                "the component has an adapter for WASI preview 1 built in, which takes less than 64 KiB of arguments and \
                 variables, and they are {input_bytes} bytes; pass them by stdin or a file, or build the program as a module for \
                 wasm32-wasip1, which takes any number"
            ),
        );
    }
    let message = trap_message(error, &state.stderr);
    let exceeded = || state.shared.exceeded().map(str::to_owned);
    let denied = &state.files.denied;
    let note = match state.stderr.last_cause() {
        // The last denied path is a source file, which Python reads for its traceback.
        Some(Cause::Exception(_)) => denied.note_on_named(&message),
        _ => denied.note(&message),
    };
    let message = match engine_limit(error, limits).or_else(exceeded) {
        // The trap itself carries the reason.
        Some(reason) if message.contains(&reason) => message,
        Some(reason) => format!("{reason} ({message})"),
        None => message,
    };
    Failure {
        note,
        ..Failure::new(Outcome::Trapped, message)
    }
}

/// Returns which of the limits that the engine itself checks the call exceeded.
fn engine_limit(error: &wasmtime::Error, limits: &Limits) -> Option<String> {
    if is_copy_too_large(error) {
        return Some(format!(
            "the task and the host may not pass more than {} bytes in one call; {}",
            limits.host_call_bytes_max,
            Resource::HostCall.raise()
        ));
    }
    let full = error.downcast_ref::<ResourceTableError>();
    let is_full = matches!(full, Some(ResourceTableError::Full))
        || error.root_cause().to_string().contains(NO_HANDLE_LEFT);
    is_full.then(|| {
        format!(
            "the task may not hold more than {} files, streams, requests and other handles at once; {}",
            limits.handles_max,
            Resource::Handles.raise()
        )
    })
}

fn is_copy_too_large(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().starts_with(COPY_TOO_LARGE)
}
