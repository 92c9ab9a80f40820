//! The report of a call.

use std::collections::BTreeMap;
use std::fmt;

use campanile_sandbox::{Failure, LogLine, Outcome, Usage};
use campanile_trial::{Entry, Trial};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Request;

/// The result of a call. Its `Display` is a message for failed assertions.
#[derive(Debug)]
pub struct Report(Trial);

impl Report {
    pub(crate) fn of(trial: Trial) -> Report {
        Report(trial)
    }

    /// Return the outcome of the call.
    pub fn outcome(&self) -> Outcome {
        self.0.report.outcome
    }

    /// Return whether the task succeeded.
    pub fn succeeded(&self) -> bool {
        self.outcome() == Outcome::Succeeded
    }

    /// Return the failure, or `None` if the task succeeded.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.report.failure.as_ref()
    }

    /// Return the message of the failure, or an empty string if the task succeeded.
    pub fn message(&self) -> &str {
        self.failure().map_or("", |failure| &failure.message)
    }

    /// Return the task's output, if there is one.
    pub fn output(&self) -> Option<&Value> {
        self.0.report.output.as_ref()
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
        self.0.report.context.as_ref()
    }

    /// Return the task's log lines, including progress.
    pub fn logs(&self) -> &[LogLine] {
        &self.0.report.logs
    }

    /// Return the text that the task printed to stdout.
    pub fn stdout(&self) -> &str {
        &self.0.report.stdout
    }

    /// Return the text that the task printed to stderr.
    pub fn stderr(&self) -> &str {
        &self.0.report.stderr
    }

    /// Return the HTTP requests that the test replied to, in order.
    pub fn requests(&self) -> &[Request] {
        &self.0.requests
    }

    /// Return the entries of a bucket after the call.
    pub fn bucket(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        self.0.left.buckets.get(name).cloned().unwrap_or_default()
    }

    /// Return the contents of the file at `path` in the sandbox after the call. Only writable directories are
    /// searched.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        match self.0.left.files.get(path) {
            Some(Entry::File(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Return the sandbox paths of all files in writable directories after the call.
    pub fn files(&self) -> Vec<&str> {
        let entries = self.0.left.files.iter();
        entries
            .filter(|(_, entry)| matches!(entry, Entry::File(_)))
            .map(|(path, _)| path.as_str())
            .collect()
    }

    /// Return the resources that the call used, each with its limit.
    pub fn usage(&self) -> &Usage {
        &self.0.report.usage
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.0.report;
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
