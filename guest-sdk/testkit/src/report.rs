//! What a call came to, as a test asks for it.

use std::collections::BTreeMap;
use std::fmt;

use campanile_sandbox::{Failure, LogLine, Outcome, Usage};
use campanile_trial::{Entry, Trial};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Request;

/// Everything that a call left behind. Shown, it is what a failed assertion should say.
#[derive(Debug)]
pub struct Report(Trial);

impl Report {
    pub(crate) fn of(trial: Trial) -> Report {
        Report(trial)
    }

    /// How it ended.
    pub fn outcome(&self) -> Outcome {
        self.0.report.outcome
    }

    /// Whether the task gave back a completion.
    pub fn succeeded(&self) -> bool {
        self.outcome() == Outcome::Succeeded
    }

    /// Why it did not succeed, if so.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.report.failure.as_ref()
    }

    /// Why it did not succeed, in one sentence; empty when it did.
    pub fn message(&self) -> &str {
        self.failure().map_or("", |failure| &failure.message)
    }

    /// The task's result, if it gave one.
    pub fn output(&self) -> Option<&Value> {
        self.0.report.output.as_ref()
    }

    /// The task's result as a type of yours.
    ///
    /// # Errors
    ///
    /// When it gave none, or one of another shape.
    pub fn output_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.output().cloned().unwrap_or_default())
    }

    /// What the task passes on to those that depend on it.
    pub fn context(&self) -> Option<&Map<String, Value>> {
        self.0.report.context.as_ref()
    }

    /// What the task logged, progress included.
    pub fn logs(&self) -> &[LogLine] {
        &self.0.report.logs
    }

    /// What the task printed.
    pub fn stdout(&self) -> &str {
        &self.0.report.stdout
    }

    /// What the task printed on stderr.
    pub fn stderr(&self) -> &str {
        &self.0.report.stderr
    }

    /// The requests that the test answered, in their order.
    pub fn requests(&self) -> &[Request] {
        &self.0.requests
    }

    /// What the bucket holds after the call.
    pub fn bucket(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        self.0.left.buckets.get(name).cloned().unwrap_or_default()
    }

    /// The file at the guest's `path` after the call, in a directory that the task may write to.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        match self.0.left.files.get(path) {
            Some(Entry::File(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The guest's paths of all files after the call, in directories that the task may write to.
    pub fn files(&self) -> Vec<&str> {
        let entries = self.0.left.files.iter();
        entries
            .filter(|(_, entry)| matches!(entry, Entry::File(_)))
            .map(|(path, _)| path.as_str())
            .collect()
    }

    /// How much it used: time, memory, and what else has a limit.
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
