//! One call of a task in a world that is made for it: the real sandbox, and around it buckets in memory, HTTP by script,
//! copies of directories and a clock that was set. Crate `campanile-testkit` and `campanile task` stand on it.
//!
//! `mod.rs` sets a [`Stage`] up and makes one call on it; `crash.rs` makes many, each crashed at another effect, and
//! compares what they leave behind; `world.rs` is what they leave, and `found.rs` what came of the comparing.
//!
//! Knows no database and no schedules. Nothing here is granted unless the stage says so.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tempfile::TempDir;

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::RunId;
use campanile_package::Manifest;
use campanile_package::requests::{Request, denial};
use campanile_sandbox::{
    Artifact, Call, DirectoryGrant, EffectObserver, Grants, HttpReply, HttpRequest, Limits,
    MemoryBuckets, Network, Outcome, Replies, Report, Sandbox, Secrets, StopSignal, Time, World,
};
use campanile_workflow::context::{self, Facts};
use campanile_workflow::workflow;

mod crash_check;
mod final_state;
mod idempotence;
#[cfg(test)]
mod tests;

pub use crash_check::{EFFECTS_CRASHED, check};
pub use final_state::{Difference, Entry, FinalState};
pub use idempotence::{Crashed, Idempotence, Moment, Undisturbed, Unreached};

/// Everything that a call meets. The default grants nothing, and answers no request.
#[derive(Clone, Default)]
pub struct Stage {
    pub task: String,
    /// The user's keys; the reserved ones are the host's.
    pub context: Map<String, Value>,
    /// Without directories, which are [`Stage::directories`].
    pub grants: Grants,
    pub directories: Vec<Directory>,
    pub secrets: Secrets,
    pub limits: Limits,
    /// What the buckets hold before the call: namespace, key, value.
    pub buckets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Who answers the requests that are granted; nobody is the real network.
    pub replies: Option<Arc<dyn Replies>>,
    pub time: Time,
    /// The slot; none is the present.
    pub slot: Option<Timestamp>,
    /// 1 for the first call.
    pub attempt: i64,
    pub is_recovery: bool,
}

/// A directory that the task sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Where the task sees it, such as `/source`.
    pub guest: String,
    /// What it holds before the call.
    pub host: PathBuf,
    pub access: Access,
}

/// What a task may do with a directory, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// To the directory itself.
    Write,
    /// To a copy, which is gone after the call.
    WriteToCopy,
}

/// The package that is tried.
#[derive(Clone)]
pub struct Subject {
    pub artifact: Arc<Artifact>,
    pub manifest: Arc<Manifest>,
}

impl Subject {
    /// What the package asks for and the stage does not grant: a host would not call it.
    pub fn missing(&self, stage: &Stage) -> Vec<Request> {
        let mut grants = stage.grants.clone();
        let directories = stage.directories.iter();
        grants.directories = directories
            .map(|directory| DirectoryGrant {
                host: directory.host.clone(),
                guest: directory.guest.clone(),
                writable: directory.access != Access::Read,
            })
            .collect();
        self.manifest.missing_grants(&(&grants).into())
    }
}

/// What a call came to.
#[derive(Debug)]
pub struct Trial {
    pub report: Report,
    /// The requests that a script answered, in their order.
    pub requests: Vec<HttpRequest>,
    /// What it left behind; of directories, those that it may write to.
    pub left: FinalState,
}

/// Make the call that `stage` is set up for, unless it lacks what the package asks for: then it is denied, as a host would.
///
/// # Errors
///
/// When a directory cannot be copied or read.
pub async fn run(
    sandbox: &Sandbox,
    subject: &Subject,
    stage: &Stage,
    clock: &Clock,
) -> io::Result<Trial> {
    let prepared = PreparedStage::set(stage, false).await?;
    let facts = facts(stage, clock.now());
    let report = prepared.call(sandbox, subject, stage, facts, None).await;
    prepared.trial(report).await
}

/// Call the task of `stage` once, without looking at what it left.
///
/// # Errors
///
/// When a directory cannot be copied.
pub async fn call(
    sandbox: &Sandbox,
    subject: &Subject,
    stage: &Stage,
    clock: &Clock,
) -> io::Result<Report> {
    let prepared = PreparedStage::set(stage, false).await?;
    let facts = facts(stage, clock.now());
    Ok(prepared.call(sandbox, subject, stage, facts, None).await)
}

/// What the host tells the task.
fn facts(stage: &Stage, now: Timestamp) -> Facts {
    let now = stage.time.start().unwrap_or(now);
    let slot = stage.slot.unwrap_or(now);
    Facts {
        is_recovery: stage.is_recovery,
        recovery_attempt_time: stage.is_recovery.then_some(now),
        attempt: stage.attempt.max(1),
        ..Facts::by_hand(slot)
    }
}

/// A stage with its properties: what one call after the other changes.
struct PreparedStage {
    buckets: Arc<MemoryBuckets>,
    script: Option<Arc<Script>>,
    directories: Vec<DirectoryGrant>,
    /// Holds the copies; removed with it.
    copies: Option<TempDir>,
}

impl PreparedStage {
    /// Set `stage` up; `apart` lets no call reach anything but copies.
    async fn set(stage: &Stage, apart: bool) -> io::Result<PreparedStage> {
        let buckets = MemoryBuckets::holding(&stage.buckets);
        let script = stage.replies.clone().map(Script::new);
        let is_copied = |directory: &&Directory| match directory.access {
            Access::Read => false,
            Access::Write => apart,
            Access::WriteToCopy => true,
        };
        let copies = match stage
            .directories
            .iter()
            .any(|directory| is_copied(&directory))
        {
            true => Some(TempDir::new()?),
            false => None,
        };
        let mut directories = Vec::new();
        for (number, directory) in stage.directories.iter().enumerate() {
            let mut host = directory.host.canonicalize()?;
            if let Some(copies) = copies.as_ref().filter(|_| is_copied(&directory)) {
                let copy = copies.path().canonicalize()?.join(number.to_string());
                final_state::copy(&host, &copy)?;
                host = copy;
            }
            directories.push(DirectoryGrant {
                host,
                guest: directory.guest.clone(),
                writable: directory.access != Access::Read,
            });
        }
        Ok(PreparedStage {
            buckets: Arc::new(buckets),
            script,
            directories,
            copies,
        })
    }

    async fn call(
        &self,
        sandbox: &Sandbox,
        subject: &Subject,
        stage: &Stage,
        facts: Facts,
        observer: Option<Arc<dyn EffectObserver>>,
    ) -> Report {
        let missing = subject.missing(stage);
        if !missing.is_empty() {
            let denial = denial(&subject.manifest.package, &missing);
            return Report::without_call(Outcome::Denied, denial);
        }
        let mut grants = stage.grants.clone();
        grants.directories.clone_from(&self.directories);
        let network = match &self.script {
            Some(script) => Network::Scripted(Arc::clone(script) as Arc<dyn Replies>),
            None => Network::Real,
        };
        let scheduled_time = facts.original_scheduled_time;
        let report = sandbox
            .run(Call {
                artifact: Arc::clone(&subject.artifact),
                task: stage.task.clone(),
                context: context::of_call(stage.context.clone(), &facts),
                facts: facts.of_run(scheduled_time),
                grants: Arc::new(grants),
                secrets: Arc::new(stage.secrets.clone()),
                limits: stage.limits.clone(),
                world: World {
                    buckets: Arc::clone(&self.buckets) as Arc<dyn campanile_sandbox::Buckets>,
                    network,
                    time: stage.time,
                    observer,
                },
                stop: StopSignal::default(),
            })
            .await;
        as_a_launch(report)
    }

    async fn trial(self, report: Report) -> io::Result<Trial> {
        let left = self.left()?;
        let requests = self.script.map(|script| script.seen()).unwrap_or_default();
        // Removing copies may take a while.
        let copies = self.copies;
        tokio::task::spawn_blocking(move || drop(copies));
        Ok(Trial {
            report,
            requests,
            left,
        })
    }

    fn left(&self) -> io::Result<FinalState> {
        let requests = self.script.as_ref().map(|script| script.seen());
        let writable = self
            .directories
            .iter()
            .filter(|directory| directory.writable);
        FinalState::of(
            self.buckets.all(),
            writable.map(|directory| (directory.guest.as_str(), directory.host.as_path())),
            &requests.unwrap_or_default(),
        )
    }
}

/// A report judged as a host judges it: what may not be passed on to later tasks is invalid here too.
fn as_a_launch(report: Report) -> Report {
    let passed = report.context.as_ref();
    match passed.and_then(workflow::refuse_reserved) {
        None => report,
        Some(refusal) => Report {
            outcome: Outcome::InvalidOutput,
            output: None,
            context: None,
            failure: Report::without_call(Outcome::InvalidOutput, refusal).failure,
            ..report
        },
    }
}

/// Answers requests, and remembers them.
struct Script {
    replies: Arc<dyn Replies>,
    seen: Mutex<Vec<HttpRequest>>,
}

impl Script {
    fn new(replies: Arc<dyn Replies>) -> Arc<Script> {
        Arc::new(Script {
            replies,
            seen: Mutex::default(),
        })
    }

    fn seen(&self) -> Vec<HttpRequest> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

impl Replies for Script {
    fn reply(&self, request: HttpRequest) -> HttpReply {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(request.clone());
        drop(seen);
        self.replies.reply(request)
    }
}

/// The facts of the run that recovers a crashed one.
fn recovered(facts: &Facts) -> Facts {
    Facts {
        is_recovery: true,
        recovery_attempt_time: Some(facts.original_scheduled_time),
        run_id: RunId::new(facts.original_scheduled_time),
        attempt: facts.attempt + 1,
        ..facts.clone()
    }
}
