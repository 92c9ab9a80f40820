//! One call of a task outside a host: the real sandbox, with buckets in memory, scripted HTTP, copies of directories and
//! a fixed clock. `campanile-testkit` and `campanile task` use it.
//!
//! A [`Stage`] describes the surroundings of a call, and `prepared` makes the call. `crash_check` makes many calls, each
//! crashed at another effect, and compares the [`FinalState`] of each; [`Idempotence`] is its report.
//!
//! No database, no schedules. A stage grants only what it names.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde_json::{Map, Value};

use campanile_model::clock::Timestamp;
use campanile_model::json_text::JsonObject;
use campanile_package::Manifest;
use campanile_package::requests::Request;
use campanile_sandbox::{
    Artifact, Grants, HttpRequest, Limits, ProgramInput, Replies, Report, Sandbox, Secrets, Time,
};
use prepared::{PreparedStage, facts};

mod crash_check;
mod final_state;
mod idempotence;
mod prepared;
#[cfg(test)]
mod tests;

pub use crash_check::{EFFECTS_CRASHED, check};
pub use final_state::{Difference, Entry, FinalState};
pub use idempotence::{Crashed, Idempotence, Moment, Undisturbed, Unreached};

/// The surroundings of a call. The default grants nothing and answers no request.
#[derive(Clone, Default)]
pub struct Stage {
    pub task: String,
    /// The user's keys, without the reserved ones.
    pub context: Map<String, Value>,
    /// More of them as text, whose numbers stay as they're written. They override those of `context`.
    pub context_text: JsonObject,
    /// What a program gets at its start.
    pub program: Arc<ProgramInput>,
    pub grants: Grants,
    /// Whether the task writes to copies of the writable directories, which are removed after the call.
    pub writes_to_copies: bool,
    pub secrets: Secrets,
    pub limits: Limits,
    /// The buckets before the call: namespace, key, value.
    pub buckets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Answers the granted requests; none is the real network.
    pub replies: Option<Arc<dyn Replies>>,
    pub time: Time,
    /// The slot; none is now.
    pub slot: Option<Timestamp>,
    /// 1 for the first call.
    pub attempt: i64,
    pub is_recovery: bool,
}

/// The package whose task is called, and the sandbox that calls it.
#[derive(Clone)]
pub struct Subject {
    pub sandbox: Arc<Sandbox>,
    pub artifact: Arc<Artifact>,
    pub manifest: Arc<Manifest>,
}

impl Subject {
    /// Returns the requests of the package that the stage does not grant. A host would not call the task.
    pub fn missing(&self, stage: &Stage) -> Vec<Request> {
        self.manifest.missing_grants(&(&stage.grants).into())
    }
}

/// The result of a call.
#[derive(Debug)]
pub struct Trial {
    pub report: Report,
    /// The requests that a script answered, in order.
    pub requests: Vec<HttpRequest>,
    /// The state after the call; of directories only the writable ones.
    pub left: FinalState,
}

/// Call the task of `stage`. Like a host, deny the call if the stage does not grant all requests of the package.
///
/// # Errors
/// When a directory cannot be copied or read.
pub async fn run(subject: &Subject, stage: &Stage) -> io::Result<Trial> {
    let prepared = PreparedStage::new(subject, stage)?;
    let facts = facts(stage, subject.sandbox.now());
    prepared.last_call(&facts, None).await
}

/// Call the task of `stage` without reading the state after it.
///
/// # Errors
/// When a directory cannot be copied.
pub async fn call(subject: &Subject, stage: &Stage) -> io::Result<Report> {
    let prepared = PreparedStage::new(subject, stage)?;
    let facts = facts(stage, subject.sandbox.now());
    Ok(prepared.call(&facts, None).await)
}
