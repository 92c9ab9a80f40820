//! How a call of a task ended, and what it left behind.

use std::mem;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::words;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ledger::kept::KeptShare;
use crate::limits::Usage;
use crate::uncommitted::Uncommitted;
use campanile_model::json_text::{JsonObject, JsonText};

/// The longest message of a failure on the record.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

/// Marks the end of a message that was cut.
const MESSAGE_CUT: &str = " [the rest was dropped]";

words! {
    /// How a call of a task ended.
    Outcome {
        /// The task returned a completion.
        Succeeded => "succeeded",
        /// The task returned a failure.
        Failed => "failed",
        /// The code hit a trap: a panic, an `unreachable`, an access out of bounds, a stack overflow.
        Trapped => "trapped",
        /// The limit of wall-clock or processor time passed.
        TimedOut => "timed_out",
        /// The task failed after the host refused it memory beyond its limit.
        MemoryExceeded => "memory_exceeded",
        /// The task failed after the host refused a request that was not granted.
        Denied => "denied",
        /// The task's result is not the JSON it must be, or is too large.
        InvalidOutput => "invalid_output",
        /// The host could not make the call; the task is not at fault.
        HostError => "host_error",
        /// The file is not a package that can run.
        Refused => "refused",
        /// The host dropped the call: at shutdown, or because the run's lease was lost.
        Cancelled => "cancelled",
    }
}

/// Why a call did not succeed.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Failure {
    /// Never [`Outcome::Succeeded`].
    pub kind: Outcome,
    /// One sentence for the operator. Of a task that failed or trapped, it's the task's own.
    pub message: String,
    /// Where the message was cut, in bytes: only the host's mark follows.
    #[serde(skip)]
    pub(crate) cut_at: Option<usize>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// What the host itself says about a failure of the task's own: the limit that was reached before, and the grant that the
    /// operator may add when a path was hidden from the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The shortest pause before the next attempt, if the task asked for one.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// Whether it is certain that none of the task's code has run.
    #[serde(skip)]
    pub precedes_call: bool,
    /// More about the failure from the task, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl Failure {
    /// Create a failure without details. A message longer than the record allows is cut.
    pub(crate) fn new(kind: Outcome, mut message: String) -> Failure {
        let cut_at = cut(&mut message);
        Failure {
            kind,
            message,
            cut_at,
            // A missing grant, a wrong output and a damaged package stay until a person changes something.
            retryable: !matches!(
                kind,
                Outcome::Denied | Outcome::InvalidOutput | Outcome::Refused
            ),
            note: None,
            retry_after: None,
            precedes_call: false,
            details: None,
        }
    }

    /// Create the failure of a call before any of the task's code ran.
    pub(crate) fn before_call(kind: Outcome, message: String) -> Failure {
        Failure {
            precedes_call: true,
            ..Failure::new(kind, message)
        }
    }

    /// Returns the message followed by the note, if there is one.
    pub fn text(&self) -> String {
        match &self.note {
            Some(note) => format!("{}; note: {note}", self.message),
            None => self.message.clone(),
        }
    }
}

/// Truncates an overlong message, returning where.
fn cut(message: &mut String) -> Option<usize> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return None;
    }
    let cut_at = message.floor_char_boundary(MESSAGE_BYTES_MAX);
    message.truncate(cut_at);
    message.push_str(MESSAGE_CUT);
    Some(cut_at)
}

/// One line that the task logged through `wasi:logging`, or a progress report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LogLine {
    pub at: Timestamp,
    /// `trace`, `debug`, `info`, `warn`, `error` or `critical`.
    pub level: String,
    /// The guest's grouping text; may be empty.
    pub context: String,
    pub message: String,
    /// True on a line of the host itself, and left out on all others: whatever a task writes, it can't set this.
    #[serde(default, skip_serializing_if = "is_of_guest")]
    pub by_host: bool,
}

fn is_of_guest(by_host: &bool) -> bool {
    !by_host
}

/// Everything that a call left behind.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Report {
    pub outcome: Outcome,
    /// The task's result, when it succeeded and returned one.
    #[schemars(with = "Option<Value>")]
    pub output: Option<JsonText>,
    /// Keys to merge into the context of dependent tasks, when the task succeeded and returned some.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub context: Option<JsonObject>,
    pub failure: Option<Failure>,
    pub stdout: String,
    /// The bytes of stdout beyond the limit, which were dropped.
    pub stdout_bytes_dropped: u64,
    pub stderr: String,
    pub stderr_bytes_dropped: u64,
    pub logs: Vec<LogLine>,
    pub usage: Usage,
    /// What takes effect when the success of the call is recorded. Empty if the call did not succeed.
    #[serde(skip)]
    pub uncommitted: Uncommitted,
    /// What all of this takes of the memory that the host keeps for all packages.
    #[serde(skip)]
    pub kept: KeptShare,
}

impl Report {
    /// Create the report of a call that never reached the guest, or that the host lost.
    pub fn without_call(outcome: Outcome, message: impl Into<String>) -> Report {
        Report::of_failure(Failure::new(outcome, message.into()))
    }

    /// Create the report of a call that left nothing but `failure`.
    pub(crate) fn of_failure(failure: Failure) -> Report {
        Report {
            outcome: failure.kind,
            output: None,
            context: None,
            failure: Some(failure),
            stdout: String::new(),
            stdout_bytes_dropped: 0,
            stderr: String::new(),
            stderr_bytes_dropped: 0,
            logs: Vec::new(),
            usage: Usage::default(),
            uncommitted: Uncommitted::default(),
            kept: KeptShare::default(),
        }
    }

    /// Turn a success into a failure of `kind`. What the call returned is dropped, and nothing takes effect.
    pub fn fail(&mut self, kind: Outcome, message: String) {
        *self = Report {
            stdout: mem::take(&mut self.stdout),
            stdout_bytes_dropped: self.stdout_bytes_dropped,
            stderr: mem::take(&mut self.stderr),
            stderr_bytes_dropped: self.stderr_bytes_dropped,
            logs: mem::take(&mut self.logs),
            usage: mem::take(&mut self.usage),
            kept: mem::take(&mut self.kept),
            ..Report::without_call(kind, message)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_at_a_character() {
        let mut text = "é".repeat(MESSAGE_BYTES_MAX);
        let cut_at = cut(&mut text);
        assert_eq!(cut_at, text.find(MESSAGE_CUT));
        assert!(text.ends_with("é [the rest was dropped]"));
        assert!(text.len() < MESSAGE_BYTES_MAX + 30);
    }
}
