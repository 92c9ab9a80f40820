//! Programs: their input, and the meaning of their exit and output.
//!
//! A program reads its context from stdin and the host's facts from variables, unless its [`ProgramInput`] says otherwise.
//! If the whole of its stdout is one JSON value, that is its output; otherwise it is text for the record.

use std::fmt::{Display, Write as _};
use std::mem;
use std::sync::Arc;

use campanile_model::json_depth::{self, TooDeep};
use campanile_model::trace_context::TRACEPARENT_VARIABLE;
use hyper::body::Bytes;
use serde_json::json;
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;

use crate::bindings::campanile::task::types::Failure;
use crate::capability::shared::{Call, Shared};
use crate::capability::stdio::Capture;
use crate::grants::ENV_PREFIX;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::outcome::{self, Outcome};
use crate::program_input::{ARGUMENT_BYTES_MAX, ProgramInput, Stdin, read_stdin};
use crate::template::ContextValues;
use campanile_model::json_text::{JsonObject, JsonText};

/// The exit code of a program that must not be called again with the same context: `EX_DATAERR` of `sysexits.h`.
const EXIT_PERMANENT: i32 = 65;

/// The variable that holds the working directory, as in POSIX. The standard library of Go reads it.
const WORKING_DIRECTORY: &str = "PWD";

/// The input of one call of a program.
pub(crate) struct Input {
    /// The name of the program comes first.
    arguments: Vec<String>,
    /// Variables with values of the context.
    variables: Vec<(String, String)>,
    stdin: Bytes,
}

/// Refuses secrets containing NUL bytes for variables. Their values are first known when making the call.
fn check_secrets(call: &Call) -> Result<(), Box<outcome::Failure>> {
    for (variable, name) in &call.grants.secret_env {
        let secret = call.secrets.get(name);
        if secret.is_some_and(|secret| secret.reveal().contains('\0')) {
            let message = format!(
                "the program's variable {variable} cannot be set: the secret `{name}` has a NUL byte, which no variable can hold"
            );
            let kind = Outcome::Refused;
            return Err(Box::new(outcome::Failure::before_call(kind, message)));
        }
    }
    Ok(())
}

impl Input {
    /// Returns the input of `call`, and take its context.
    pub(crate) async fn prepare(
        call: &mut Call,
        ledger: &Ledger,
    ) -> Result<Input, Box<outcome::Failure>> {
        let (program, task) = (Arc::clone(&call.program), call.task.clone());
        let context = mem::take(&mut call.context);
        check_secrets(call)?;
        if !program.needs_context() && !matches!(program.stdin, Stdin::File(_)) {
            return Input::of(&program, task, context);
        }
        // A large context takes long to parse, and a file long to read.
        let package = call.package.clone();
        let preparing = async {
            let thread = ledger.file_threads.acquire(&package, 1, u64::MAX).await;
            let preparing = tokio::task::spawn_blocking(move || {
                let _thread = thread;
                Input::of(&program, task, context)
            });
            preparing.await
        };
        let (kind, message) = tokio::select! {
            biased;
            input = preparing => match input {
                Ok(input) => return input,
                Err(error) => (Outcome::HostError, format!("the program's input was not made: {error}")),
            },
            () = call.stop.dropped() => {
                (Outcome::Cancelled, "the host dropped the call before it began".to_owned())
            }
            () = tokio::time::sleep(call.limits.timeout) => {
                (Outcome::TimedOut, "the program's arguments and stdin were not ready within the time-out of the call".to_owned())
            }
        };
        Err(Box::new(outcome::Failure::before_call(kind, message)))
    }

    /// Returns what `program` says for the program of `task` with `context`. Blocks.
    fn of(
        program: &ProgramInput,
        task: String,
        mut context: String,
    ) -> Result<Input, Box<outcome::Failure>> {
        let refused = |message| Box::new(outcome::Failure::before_call(Outcome::Refused, message));
        let mut arguments = vec![program.argv0.clone().unwrap_or(task)];
        let mut variables = Vec::new();
        let values: JsonObject = if program.needs_context() {
            serde_json::from_str(&context)
                .map_err(|error| refused(format!("the context is not a JSON object: {error}")))?
        } else {
            JsonObject::new()
        };
        let mut values = ContextValues::new(&values, ARGUMENT_BYTES_MAX);
        for (template, number) in program.args.iter().zip(1..) {
            let argument = template.fill(&mut values).map_err(|what| {
                refused(format!(
                    "argument {number} of the program cannot be filled in: {what}"
                ))
            })?;
            arguments.push(argument);
        }
        for (name, key) in &program.env_from_context {
            let value = values.text(key).map_err(|what| {
                refused(format!(
                    "the program's variable {name} cannot be set: {what}"
                ))
            })?;
            variables.push((name.clone(), value));
        }
        let stdin = match &program.stdin {
            Stdin::Context => {
                context.push('\n');
                context.into()
            }
            Stdin::Empty => Bytes::new(),
            Stdin::Bytes(bytes) => bytes.clone(),
            Stdin::File(path) => read_stdin(path).map_err(|what| {
                let message = format!("the program's stdin {} {what}", path.display());
                Box::new(outcome::Failure::before_call(Outcome::HostError, message))
            })?,
        };
        Ok(Input {
            arguments,
            variables,
            stdin,
        })
    }

    /// Returns the bytes taken by arguments and variables in an adapter's memory, including their places.
    pub(crate) fn bytes(&self) -> usize {
        let arguments = self.arguments.iter().map(|text| text.len() + PLACE_BYTES);
        let variables = self.variables.iter();
        let variables = variables.map(|(name, value)| variable_bytes(name, value));
        arguments.chain(variables).sum()
    }

    /// Give this input to the program of the call.
    pub(crate) fn set(self, wasi: &mut WasiCtxBuilder, shared: &Shared) {
        let program = &shared.call.program;
        wasi.stdin(MemoryInputPipe::new(self.stdin))
            .args(&self.arguments)
            .envs(&self.variables);
        if program.campanile_env {
            set_facts(wasi, shared);
        }
        let Some(cwd) = &program.cwd else {
            return;
        };
        wasi.initial_cwd(cwd);
        if !is_set(&shared.call, WORKING_DIRECTORY) {
            wasi.env(WORKING_DIRECTORY, cwd);
        }
    }
}

/// A text's address and length.
const PLACE_BYTES: usize = 8;

fn variable_bytes(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2 * PLACE_BYTES
}

/// Like [`Input::bytes`], for the variables granted to `call`.
pub(crate) fn granted_bytes(call: &Call) -> usize {
    let Call {
        grants, secrets, ..
    } = call;
    let plain = grants.env.iter();
    let plain = plain.map(|(name, value)| variable_bytes(name, value));
    let secret = grants.secret_env.iter().map(|(name, secret)| {
        let value = secrets.get(secret).map_or("", |secret| secret.reveal());
        variable_bytes(name, value)
    });
    plain.chain(secret).sum()
}

/// Put the facts of the run in variables.
fn set_facts(wasi: &mut WasiCtxBuilder, shared: &Shared) {
    let Call { task, facts, .. } = &shared.call;
    let original_time = &facts.original_scheduled_time;
    let variables: [(&str, &dyn Display); 8] = [
        ("TASK_NAME", task),
        ("EXECUTION_ID", &facts.execution_id),
        ("RUN_ID", &facts.run_id),
        ("ATTEMPT", &facts.attempt),
        ("IS_RECOVERY", &facts.is_recovery),
        ("SCHEDULED_FOR", &facts.scheduled_time),
        ("ORIGINAL_SCHEDULED_TIME", original_time),
        ("DEADLINE", &shared.deadline),
    ];
    for (name, value) in variables {
        wasi.env(format!("{ENV_PREFIX}{name}"), value.to_string());
    }
    let traceparent = facts
        .traceparent
        .filter(|_| !is_set(&shared.call, TRACEPARENT_VARIABLE));
    if let Some(traceparent) = traceparent {
        wasi.env(TRACEPARENT_VARIABLE, traceparent.to_string());
    }
}

/// Whether a grant or the context sets a variable.
fn is_set(call: &Call, variable: &str) -> bool {
    let Call {
        program, grants, ..
    } = call;
    grants.sets_variable(variable) || program.env_from_context.contains_key(variable)
}

/// How serde_json's error about excessive nesting starts. It has no public kind, so a test watches for changes.
const RECURSION: &str = "recursion limit exceeded";

/// Why a program's only JSON value can't be its output.
#[derive(Debug, PartialEq)]
pub(crate) enum NoOutput {
    /// Its length in bytes, counting those dropped.
    TooLong(u64),
    TooDeep(TooDeep),
}

/// Takes the output from `stdout`, or returns none if that isn't a single JSON value. Truncated text is never taken.
pub(crate) fn take_output(stdout: &Capture, limits: &Limits) -> Result<Option<JsonText>, NoOutput> {
    let (bytes, dropped) = stdout.bytes();
    let value = bytes.trim_ascii();
    if value.is_empty() {
        return Ok(None);
    }
    let parsed: Result<JsonText, _> = serde_json::from_slice(value);
    let length = value.len() as u64 + dropped;
    match parsed {
        Ok(_) if length > limits.output_bytes_max as u64 || stdout.refusal_of_host().is_some() => {
            Err(NoOutput::TooLong(length))
        }
        Ok(parsed) => {
            json_depth::check(value).map_err(NoOutput::TooDeep)?;
            stdout.clear();
            Ok(Some(parsed))
        }
        // Only the end is missing, and it was dropped.
        Err(error) if dropped > 0 && error.is_eof() => Err(NoOutput::TooLong(length)),
        // It was valid JSON up to the depth the reader allows.
        Err(error) if error.to_string().starts_with(RECURSION) => Err(NoOutput::TooDeep(TooDeep)),
        Err(_) => Ok(None),
    }
}

/// Returns the failure of a program that ended with `code`, which is not 0.
pub(crate) fn exited(code: i32, stderr: &Capture) -> Failure {
    let mut message = format!("exited with code {code}");
    if let Some(cause) = stderr.last_cause() {
        // Writing to a string cannot fail.
        let _ = write!(message, ": {}", cause.text());
    }
    Failure {
        message,
        retryable: code != EXIT_PERMANENT,
        retry_after_ms: None,
        details: Some(json!({ "exit_code": code }).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::kept::KeptOfCall;

    fn kept() -> Arc<KeptOfCall> {
        KeptOfCall::new(Ledger::unbounded().nothing_kept("package"))
    }

    fn capture(text: &str, limits: &Limits) -> Capture {
        let capture = Capture::of_program(limits, &kept());
        capture.write(text.as_bytes());
        capture
    }

    fn of(
        text: &str,
        stdio_bytes_max: usize,
        output_bytes_max: usize,
    ) -> Result<Option<JsonText>, NoOutput> {
        let limits = Limits {
            stdio_bytes_max,
            output_bytes_max,
            ..Limits::default()
        };
        take_output(&capture(text, &limits), &limits)
    }

    #[test]
    fn what_is_one_json_value_is_the_output() {
        assert_eq!(
            of(" {\"n\": 1}\n\n", 64, 64),
            Ok(Some(json!({"n": 1}).into()))
        );
        assert_eq!(of("null", 64, 64), Ok(Some(JsonText::null())));
        // Beyond what is kept as text, and within what an output may have.
        assert_eq!(of("[1,2,3]\n", 2, 8), Ok(Some(json!([1, 2, 3]).into())));
        for text in [
            "",
            " \n",
            "ding dong",
            "{\"n\": 1}\n{\"n\": 2}\n",
            "{\"n\": 1",
            "1 2",
        ] {
            assert_eq!(of(text, 64, 64), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn an_output_that_is_too_long_is_told_from_text_that_is() {
        assert_eq!(of("[1,2,3]", 64, 6), Err(NoOutput::TooLong(7)));
        assert_eq!(of("[1,2,3]", 4, 6), Err(NoOutput::TooLong(7)));
        assert_eq!(of("123456789", 4, 6), Err(NoOutput::TooLong(9)));
        assert_eq!(of("ding dong", 4, 6), Ok(None));
        assert_eq!(of("{}\n{}\n{}\n", 4, 6), Ok(None));
        // A last blank counts for nothing.
        assert_eq!(of("[1,2,3]\n", 64, 7), Ok(Some(json!([1, 2, 3]).into())));
    }

    #[test]
    fn an_output_of_which_the_host_dropped_a_part_is_never_taken() {
        let kept = KeptOfCall::new(Ledger::new(4 << 20, 100, 100).nothing_kept("package"));
        let limits = Limits {
            output_bytes_max: 1 << 20,
            ..Limits::default()
        };
        let stdout = Capture::of_program(&limits, &kept);
        stdout.write(b"1");
        stdout.write(&b"2".repeat(700 << 10));
        // There's room again, but nothing is kept after a gap.
        stdout.write(b"3");
        assert!(stdout.refusal_of_host().is_some());
        assert_eq!(stdout.bytes(), (b"1".to_vec(), (700 << 10) + 1));
        let taken = take_output(&stdout, &limits);
        assert_eq!(taken, Err(NoOutput::TooLong((700 << 10) + 2)));
    }

    #[test]
    fn an_output_that_nests_too_deep_is_refused_whatever_its_reader_says() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(of(&nested(100), 4096, 4096).unwrap().is_some());
        for depth in [101, 127, 128, 129, 1_000] {
            let found = of(&nested(depth), 4096, 4096);
            assert_eq!(found, Err(NoOutput::TooDeep(TooDeep)), "{depth}");
        }
        assert_eq!(of(&"[".repeat(50), 4096, 4096), Ok(None));
    }

    #[test]
    fn an_exit_tells_the_last_cause_on_stderr() {
        let limits = Limits::default();
        let failure = exited(3, &capture("first\n last \n\n", &limits));
        assert_eq!(failure.message, "exited with code 3: last");
        assert_eq!(failure.details.as_deref(), Some("{\"exit_code\":3}"));
        assert!(failure.retryable);
        assert_eq!(
            exited(1, &capture("", &limits)).message,
            "exited with code 1"
        );
        // As a failure of a typed task says that it is not retryable.
        assert!(!exited(65, &capture("", &limits)).retryable);
        for code in [2, 64, 66, 255] {
            assert!(exited(code, &capture("", &limits)).retryable, "{code}");
        }
        let limits = Limits {
            stdio_bytes_max: 5,
            ..limits
        };
        let cut_short = Capture::new(&limits, &kept());
        cut_short.write(b"first\nlast\n");
        assert_eq!(exited(1, &cut_short).message, "exited with code 1");
    }
}
