//! Make one call on a stage.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::{Access, Directory, Stage, Subject, Trial};
use crate::final_state::{self, FinalState};
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_package::context::check;
use campanile_package::requests::denial;
use campanile_sandbox::{
    Call, DirectoryGrant, EffectObserver, HttpReply, HttpRequest, MemoryBuckets, Network, Outcome,
    Replies, Report, Sandbox, StopSignal, World,
};
use campanile_workflow::context::{self, Facts};

/// Return the reserved keys of a call at `now`.
pub(super) fn facts(stage: &Stage, now: Timestamp) -> Facts {
    let now = stage.time.start().unwrap_or(now);
    let slot = stage.slot.unwrap_or(now);
    Facts {
        is_recovery: stage.is_recovery,
        recovery_attempt_time: stage.is_recovery.then_some(now),
        attempt: stage.attempt.max(1),
        ..Facts::by_hand(slot)
    }
}

/// The state that one call after the other changes.
pub(super) struct PreparedStage {
    buckets: Arc<MemoryBuckets>,
    script: Option<Arc<Script>>,
    directories: Vec<DirectoryGrant>,
    /// Holds the copies of directories; dropping it removes them.
    copies: Option<TempDir>,
}

impl PreparedStage {
    /// Prepare `stage`. With `copies_only` calls write to copies of directories only.
    pub async fn new(stage: &Stage, copies_only: bool) -> io::Result<PreparedStage> {
        let buckets = MemoryBuckets::holding(&stage.buckets);
        let script = stage.replies.clone().map(|replies| Script {
            replies,
            seen: Mutex::default(),
        });
        let is_copied = |directory: &Directory| match directory.access {
            Access::Read => false,
            Access::Write => copies_only,
            Access::WriteToCopy => true,
        };
        let has_copies = stage.directories.iter().any(is_copied);
        let copies = has_copies.then(TempDir::new).transpose()?;
        let mut directories = Vec::new();
        for (number, directory) in stage.directories.iter().enumerate() {
            let mut grant = directory.grant();
            grant.host = grant.host.canonicalize()?;
            if let Some(copies) = copies.as_ref().filter(|_| is_copied(directory)) {
                let copy = copies.path().canonicalize()?.join(number.to_string());
                final_state::copy(&grant.host, &copy)?;
                grant.host = copy;
            }
            directories.push(grant);
        }
        Ok(PreparedStage {
            buckets: Arc::new(buckets),
            script: script.map(Arc::new),
            directories,
            copies,
        })
    }

    pub async fn call(
        &self,
        sandbox: &Sandbox,
        subject: &Subject,
        stage: &Stage,
        facts: &Facts,
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
                context: context::of_call(stage.context.clone(), facts),
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
        judged(report)
    }

    /// Read the state after the last call, which has the given report.
    pub async fn trial(self, report: Report) -> io::Result<Trial> {
        let requests = self
            .script
            .map_or_else(Vec::new, |script| script.requests().clone());
        let directories = self.directories.iter();
        let writable = directories.filter(|directory| directory.writable);
        let left = FinalState::of(
            self.buckets.all(),
            writable.map(|directory| (directory.guest.as_str(), directory.host.as_path())),
            &requests,
        )?;
        // Removing copies may take long.
        let copies = self.copies;
        tokio::task::spawn_blocking(move || drop(copies));
        Ok(Trial {
            report,
            requests,
            left,
        })
    }
}

/// Return the report as a host judges it: a context with reserved keys is invalid output.
fn judged(report: Report) -> Report {
    match report.context.as_ref().map(check) {
        Some(Err(refusal)) => Report {
            outcome: Outcome::InvalidOutput,
            output: None,
            context: None,
            failure: Report::without_call(Outcome::InvalidOutput, refusal.to_string()).failure,
            ..report
        },
        _ => report,
    }
}

/// Answers and records requests.
struct Script {
    replies: Arc<dyn Replies>,
    seen: Mutex<Vec<HttpRequest>>,
}

impl Script {
    fn requests(&self) -> MutexGuard<'_, Vec<HttpRequest>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replies for Script {
    fn reply(&self, request: HttpRequest) -> HttpReply {
        self.requests().push(request.clone());
        self.replies.reply(request)
    }
}

/// Return the reserved keys of the run that recovers a crashed one.
pub(super) fn recovered(facts: &Facts) -> Facts {
    Facts {
        is_recovery: true,
        recovery_attempt_time: Some(facts.original_scheduled_time),
        run_id: RunId::new(facts.original_scheduled_time),
        attempt: facts.attempt + 1,
        ..facts.clone()
    }
}
