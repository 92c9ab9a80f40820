//! The report of a call.

use std::collections::BTreeMap;
use std::fmt;

use campanile_sandbox::{Failure, JsonText, LogLine, Outcome, Usage};
use campanile_trial::{Entry, Trial};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{Message, Request};

/// The result of a call. Its `Display` is a message for failed assertions.
#[derive(Debug)]
pub struct Report {
    trial: Trial,
    output: Option<Value>,
    context: Option<Map<String, Value>>,
}

impl Report {
    pub(crate) fn of(trial: Trial) -> Report {
        let context = trial.report.context.as_ref().map(|context| {
            let entries = context.iter();
            entries
                .map(|(key, value)| (key.clone(), value.value()))
                .collect()
        });
        Report {
            output: trial.report.output.as_ref().map(JsonText::value),
            context,
            trial,
        }
    }

    /// Return the outcome of the call.
    pub fn outcome(&self) -> Outcome {
        self.trial.report.outcome
    }

    /// Return whether the task succeeded.
    pub fn succeeded(&self) -> bool {
        self.outcome() == Outcome::Succeeded
    }

    /// Return the failure, or `None` if the task succeeded.
    pub fn failure(&self) -> Option<&Failure> {
        self.trial.report.failure.as_ref()
    }

    /// Return the message of the failure, or an empty string if the task succeeded.
    pub fn message(&self) -> &str {
        self.failure().map_or("", |failure| &failure.message)
    }

    /// Returns what the host says about a failure that the task reported, such as the grant or the limit behind it; empty if
    /// it has nothing to say.
    pub fn note(&self) -> &str {
        let note = self.failure().and_then(|failure| failure.note.as_deref());
        note.unwrap_or_default()
    }

    /// Return the task's output, if there is one.
    pub fn output(&self) -> Option<&Value> {
        self.output.as_ref()
    }

    /// Return the task's output as a `T`.
    ///
    /// # Errors
    ///
    /// If the output is absent or cannot be read as a `T`.
    pub fn output_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.output().cloned().unwrap_or_default())
    }

    /// Return the values that the task passes to the tasks that depend on it.
    pub fn context(&self) -> Option<&Map<String, Value>> {
        self.context.as_ref()
    }

    /// Return the task's log lines, including progress.
    pub fn logs(&self) -> &[LogLine] {
        &self.trial.report.logs
    }

    /// Return the text that the task printed to stdout.
    pub fn stdout(&self) -> &str {
        &self.trial.report.stdout
    }

    /// Return the text that the task printed to stderr.
    pub fn stderr(&self) -> &str {
        &self.trial.report.stderr
    }

    /// Returns how many bytes of stdout were dropped beyond `limits.stdio`.
    pub fn stdout_bytes_dropped(&self) -> u64 {
        self.trial.report.stdout_bytes_dropped
    }

    /// Returns how many bytes of stderr were dropped beyond `limits.stdio`.
    pub fn stderr_bytes_dropped(&self) -> u64 {
        self.trial.report.stderr_bytes_dropped
    }

    /// Return the HTTP requests that the test replied to, in order.
    pub fn requests(&self) -> &[Request] {
        &self.trial.requests
    }

    /// Return the messages that a host would deliver, in order. Empty if the task did not succeed.
    pub fn messages(&self) -> &[Message] {
        &self.trial.report.uncommitted.messages
    }

    /// Return the entries of a bucket after the call.
    pub fn bucket(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        self.trial
            .left
            .buckets
            .get(name)
            .cloned()
            .unwrap_or_default()
    }

    /// Return the contents of the file at `path` in the sandbox after the call. Only writable directories are
    /// searched.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        match self.trial.left.files.get(path) {
            Some(Entry::File(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Return the sandbox paths of all files in writable directories after the call.
    pub fn files(&self) -> Vec<&str> {
        let entries = self.trial.left.files.iter();
        entries
            .filter(|(_, entry)| matches!(entry, Entry::File(_)))
            .map(|(path, _)| path.as_str())
            .collect()
    }

    /// Return the resources that the call used, each with its limit.
    pub fn usage(&self) -> &Usage {
        &self.trial.report.usage
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.trial.report;
        write!(f, "{}", report.outcome)?;
        if let Some(failure) = &report.failure {
            write!(f, ": {}", failure.text())?;
        }
        if let Some(output) = &report.output {
            write!(f, "\noutput: {output}")?;
        }
        for line in &report.logs {
            write!(f, "\n{}: {}", line.level, line.message)?;
        }
        for (name, text) in [("stdout", &report.stdout), ("stderr", &report.stderr)] {
            if !text.is_empty() {
                write!(f, "\n{name}: {}", text.trim_end())?;
            }
        }
        Ok(())
    }
}
