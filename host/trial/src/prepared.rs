//! Make one call on a stage.

use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::{Stage, Subject, Trial};
use crate::final_state::{self, FinalState};
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_package::context::check_keys;
use campanile_package::requests::denial;
use campanile_sandbox::own_files::temporary_directory;
use campanile_sandbox::{
    Call, DirectoryGrant, EffectObserver, HttpReply, HttpRequest, MemoryBuckets, OutboxMessage,
    Outcome, Replies, Report, StopSignal, Uncommitted, World, object_of,
};
use campanile_workflow::context::{self, Facts};

/// Returns the reserved keys of a call at `now`.
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

/// The surroundings that one call after the other changes.
pub(super) struct PreparedStage<'s> {
    subject: &'s Subject,
    /// With the copies in place of the directories that are copied.
    pub stage: Stage,
    buckets: Arc<MemoryBuckets>,
    script: Option<Arc<Script>>,
    /// Holds the copies of directories; dropping it removes them.
    copies: Option<TempDir>,
}

impl PreparedStage<'_> {
    /// Prepare `stage` for calls of the task of `subject`.
    pub fn new<'s>(subject: &'s Subject, stage: &Stage) -> io::Result<PreparedStage<'s>> {
        let mut stage = stage.clone();
        let buckets = MemoryBuckets::holding(&stage.buckets);
        let script = stage.replies.clone().map(|replies| Script {
            replies,
            seen: Mutex::default(),
        });
        let is_copied = |grant: &DirectoryGrant| stage.writes_to_copies && grant.writable;
        let has_copies = stage.grants.directories.iter().any(is_copied);
        let copies = has_copies.then(temporary_directory).transpose()?;
        for (number, grant) in stage.grants.directories.iter_mut().enumerate() {
            grant.host = grant.host.canonicalize()?;
            if let Some(copies) = copies.as_ref().filter(|_| grant.writable) {
                let copy = copies.path().canonicalize()?.join(number.to_string());
                final_state::copy(&grant.host, &copy)?;
                grant.host = copy;
            }
        }
        Ok(PreparedStage {
            subject,
            stage,
            buckets: Arc::new(buckets),
            script: script.map(Arc::new),
            copies,
        })
    }

    pub async fn call(&self, facts: &Facts, observer: Option<Arc<dyn EffectObserver>>) -> Report {
        let (subject, stage) = (self.subject, &self.stage);
        let missing = subject.missing(stage);
        if !missing.is_empty() {
            let denial = denial(&subject.manifest.package, &missing);
            return Report::without_call(Outcome::Denied, denial);
        }
        let scheduled_time = facts.original_scheduled_time;
        let mut user = object_of(&stage.context);
        user.extend(stage.context_text.clone());
        let user = user.iter().map(|(key, value)| (key.as_str(), value));
        let call = Call {
            package: subject.manifest.package.clone(),
            task: stage.task.clone(),
            context: context::of_call(user, facts),
            facts: facts.of_run(scheduled_time),
            program: Arc::clone(&stage.program),
            grants: Arc::new(stage.grants.clone()),
            secrets: Arc::new(stage.secrets.clone()),
            limits: stage.limits.clone(),
            world: World {
                buckets: self.buckets.clone(),
                replies: self.script.clone().map(|script| script as Arc<dyn Replies>),
                time: stage.time,
                observer,
            },
            stop: StopSignal::default(),
        };
        let mut report = subject.sandbox.run(&subject.artifact, call).await;
        judge(&mut report);
        self.commit(&mut report);
        report
    }

    /// Let what a call held back take effect, or fail the call. The report keeps the messages that a host would deliver.
    fn commit(&self, report: &mut Report) {
        if report.failure.is_some() {
            report.uncommitted = Uncommitted::default();
            return;
        }
        if report.uncommitted.is_empty() {
            return;
        }
        let sessions = mem::take(&mut report.uncommitted.sessions);
        if let Err(refusal) = self.buckets.commit(&sessions) {
            report.fail(Outcome::Failed, refusal.to_string());
        }
    }

    /// Make the last call, and read the state after it.
    pub async fn last_call(
        self,
        facts: &Facts,
        observer: Option<Arc<dyn EffectObserver>>,
    ) -> io::Result<Trial> {
        let report = self.call(facts, observer).await;
        let requests = self
            .script
            .map_or_else(Vec::new, |script| script.requests().clone());
        let directories = &self.stage.grants.directories;
        let messages = report.uncommitted.messages.iter();
        let messages = messages.map(OutboxMessage::to_request);
        let made: Vec<HttpRequest> = requests.iter().cloned().chain(messages).collect();
        let left = FinalState::of(self.buckets.all(), directories, &made)?;
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

/// Judge a report as a host does: a context with reserved keys is invalid output.
fn judge(report: &mut Report) {
    if let Some(context) = &report.context
        && let Err(refusal) = check_keys(|key| context.contains_key(key))
    {
        report.fail(Outcome::InvalidOutput, refusal.to_string());
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

/// Returns the reserved keys of the run that recovers a crashed one.
pub(super) fn recovered(facts: &Facts) -> Facts {
    Facts {
        is_recovery: true,
        recovery_attempt_time: Some(facts.original_scheduled_time),
        run_id: RunId::of(facts.execution_id, facts.run_id.number() + 1),
        attempt: facts.attempt + 1,
        ..facts.clone()
    }
}
