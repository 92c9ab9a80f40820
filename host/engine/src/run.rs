//! The execution of a run: the workflow's tasks in order, each a call into the sandbox.

pub mod buckets;
pub(crate) mod call;
pub mod call_commit;
pub(crate) mod failing;
pub(crate) mod finish;
pub(crate) mod kept_of_run;
pub(crate) mod retry_rules;
pub mod secrets;
pub(crate) mod starter;
pub(crate) mod user_context;
pub(crate) mod work;

use std::mem;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::claim::choose::quota;
use crate::claim::record_use;
use crate::ctx::SharedCtx;
use crate::packages::version_check::{self, refusal};
use crate::packages::versions::{CannotBegin, Version, Versions};
use crate::run::call::{CallFailure, Caller, TaskCall, judge, not_committed, on_json, usage_text};
use crate::run::call_commit::{CallCommit, SucceededCall};
use crate::run::kept_of_run::KeptOfRun;
use crate::run::work::{LastEnds, Work};
use crate::service::retry_while_tracked;
use crate::tell::alerts::ping_queue::RunPing;
use crate::tell::alerts::pings;
use campanile_control::stored::stored_json;
use campanile_model::clock::Timestamp;
use campanile_model::text::size_text;
use campanile_package::PackageLoader;
use campanile_sandbox::{JsonObject, JsonText, Report, Resource, StopSignal, Uncommitted};
use campanile_schedule::policy::Delivery;
use campanile_store::FailureKind;
use campanile_store::events::EventKind;
use campanile_store::launch::{self, Finish, RunEnd};
use campanile_store::runs;
use campanile_store::task_runs::{self, LaunchCall, TaskRun};
use campanile_workflow::graph::Step;
use campanile_workflow::outcome::RetryRules;
use campanile_workflow::workflow::{CallNumber, CallResult, RecordedCall, Workflow};

/// The most tasks that one run calls at once. The host keeps the results of ended calls until they are recorded one after
/// the other.
const CALLS_MAX: usize = 32;

/// What executes the runs of a host.
pub(crate) struct Executor {
    ctx: SharedCtx,
    loader: Arc<PackageLoader>,
    caller: Caller,
    versions: Versions,
}

impl Executor {
    pub(crate) fn new(ctx: SharedCtx, loader: Arc<PackageLoader>) -> Executor {
        Executor {
            caller: Caller::new(Arc::clone(&ctx), Arc::clone(loader.sandbox())),
            versions: Versions::default(),
            ctx,
            loader,
        }
    }

    /// Execute `work` as far as it goes. Return the end to record.
    ///
    /// Returns `None` when the run was dropped because this host has lost it. A run asked to end is cancelled,
    /// unless it succeeded.
    pub(crate) async fn execute(
        &self,
        work: &Work,
        stop: &StopSignal,
    ) -> Option<(Finish, KeptOfRun)> {
        if work.launch.begins_run {
            let started = RunPing::started(work.launch.schedule_id, work.run_id());
            pings::note(&self.ctx, [started]);
        }
        let mut kept = KeptOfRun::new(&self.loader, &work.launch.package);
        let finish = self.run_tasks(work, stop, &mut kept).await;
        if !stop.is_cancelled() {
            return Some((finish?, kept));
        }
        let (message, tasks) = match finish {
            Some(finish) => match finish.end {
                RunEnd::Succeeded { .. } | RunEnd::Cancelled { .. } => return Some((finish, kept)),
                _ => ("it ended when it was asked to", finish.tasks),
            },
            None => (
                "it was asked to end and did not within its grace",
                Vec::new(),
            ),
        };
        let message = message.to_owned();
        let end = RunEnd::Cancelled { message };
        Some((work.finished(end, tasks, self.ctx.clock.now()), kept))
    }

    /// Call the tasks that are ready until none is, recording each call when it ends.
    async fn run_tasks(
        &self,
        work: &Work,
        stop: &StopSignal,
        kept: &mut KeptOfRun,
    ) -> Option<Finish> {
        let quota = quota(&self.ctx, work.package.as_deref()).record_bytes_per_day;
        let (package, now) = (&work.launch.package, self.ctx.clock.now());
        if let Err(message) = self.ctx.record_use.check(package, quota, now) {
            let kind = FailureKind::QuotaExceeded;
            return Some(work.finished(RunEnd::Failed { kind, message }, Vec::new(), now));
        }
        let version = match self.version(work, stop).await {
            Ok(version) => version,
            Err(CannotBegin(end)) => {
                return Some(work.finished(end?, Vec::new(), self.ctx.clock.now()));
            }
        };
        let last = last_ends(work).await?;
        let mut flow = Workflow::new(Arc::clone(&version.graph), Arc::clone(&work.user.keys));
        let mut failed = None;
        let begins_with = flow.held_bytes() + last.bytes();
        if let Err(why) = kept.wait_for(begins_with, stop).await? {
            failed = Some((FailureKind::InvalidOutput, why));
        } else if work.launch.attempts > 0 {
            let begun = (flow, begins_with);
            // Boxed, like other futures few runs need, to keep the rest small.
            let replayed = Box::pin(self.replayed(work, begun, &version, stop, kept));
            (flow, failed) = replayed.await?;
        }
        let mut progress = Progress {
            kept,
            beside: last.bytes(),
            flow,
            delivery: work.spec.policies.delivery(),
            rules: retry_rules::of(work),
            failed,
            unrecorded: Vec::new(),
        };
        let limit = version.graph.run_context_bytes_max();
        let mut calls = FuturesUnordered::new();
        // The bytes of the contexts of these calls.
        let mut context_bytes = 0;
        loop {
            let now = self.ctx.clock.now();
            progress.expire(now);
            for place in progress.ready(now, stop) {
                let inheritance = progress.flow.inheritance(place);
                let bytes = inheritance.bytes() + last.bytes();
                let is_full = calls.len() >= CALLS_MAX || context_bytes + bytes > limit;
                // The rest is called when calls have ended. A single call is never too large.
                if is_full && !calls.is_empty() {
                    break;
                }
                progress.beside += bytes;
                if let Err(why) = progress.cover() {
                    progress.beside -= bytes;
                    if calls.is_empty() {
                        progress.fail_before_call(&version.graph.steps()[place], &why);
                    }
                    break;
                }
                context_bytes += bytes;
                let number = progress.flow.start(place);
                let call = TaskCall {
                    work,
                    version: &version,
                    step: &version.graph.steps()[place],
                    attempt: number.attempt,
                    inheritance,
                    last: &last,
                    stop,
                };
                calls.push(async move { (place, number, bytes, self.caller.call(call).await) });
            }
            // A retry that is due already waits for the end of a call.
            let retry = progress
                .next_retry(stop)
                .filter(|at| *at > now && !calls.is_empty());
            let ended = match retry {
                // A later retry does not wait for the tasks that run beside it.
                Some(at) => tokio::select! {
                    ended = calls.next() => ended,
                    () = self.ctx.clock.sleep_until(at) => continue,
                },
                None => calls.next().await,
            };
            let Some((place, number, bytes, ended)) = ended else {
                break;
            };
            context_bytes -= bytes;
            progress.beside -= bytes;
            if stop.is_dropped() {
                return None;
            }
            let (call, mut report) = ended?;
            let (uncommitted, kept) = (
                mem::take(&mut report.uncommitted),
                mem::take(&mut report.kept),
            );
            let now = call.finished_at;
            let bytes = record_use::bytes_of(&call) + uncommitted.message_bytes();
            self.ctx.metrics.count_call(package, &report.usage, bytes);
            let within_quota = self.ctx.record_use.add(package, quota, bytes, now);
            let step = &version.graph.steps()[place];
            let result = (report, within_quota);
            let mut call = progress.end_call(step, (place, number), call, result);
            if call.succeeded && !uncommitted.is_empty() {
                let commit = Box::pin(self.commit(work, &call, &uncommitted, stop));
                match commit.await? {
                    CallCommit::Done => continue,
                    CallCommit::Lost => return None,
                    CallCommit::Refused(why) => {
                        progress.refuse_success(step, (place, number), &mut call, why);
                    }
                }
            }
            progress.unrecorded.push(call);
            progress.kept.add_call(kept);
            // The last call is recorded with the end of the run, in one transaction.
            let is_last = calls.is_empty() && progress.ready(now, stop).is_empty();
            if !is_last {
                if !self.record(work, &mut progress.unrecorded, stop).await {
                    return None;
                }
                progress.kept.calls_are_recorded();
            }
        }
        let (end, unrecorded) = progress.end().await?;
        Some(work.finished(end, unrecorded, self.ctx.clock.now()))
    }

    /// Returns the version of the package with which the launch was decided.
    async fn version(&self, work: &Work, stop: &StopSignal) -> Result<Arc<Version>, CannotBegin> {
        let only = work.spec.definition.task.as_deref();
        let (name, digest) = (&work.launch.package, &work.launch.digest);
        let Some(package) = &work.package else {
            return Err(CannotBegin::refused(format!(
                "the package `{name}` has left this host's folder since the launch was claimed"
            )));
        };
        let refused = async |why| {
            let (kind, version) = (EventKind::VersionRefused, (&**name, digest));
            Err(Box::pin(CannotBegin::reported(&self.ctx, stop, kind, version, why)).await)
        };
        let (recorded, policy) = (work.launch.version_decision, &self.ctx.settings.policy);
        let own = self.ctx.packages.own_record();
        let counted = match own.counted_before(name, digest, recorded) {
            Some(counted) => counted,
            None => {
                let verify = version_check::verified_decision(&self.ctx, stop, name, digest);
                // Boxed for the same reason as an older version.
                Box::pin(verify).await.ok_or(CannotBegin(None))?
            }
        };
        if let Some(why) = refusal(counted, digest, package, policy) {
            return refused(why).await;
        }
        let version = if package.digest == *digest {
            self.versions.current(package, only)?
        } else {
            let (versions, loader) = (&self.versions, &*self.loader);
            let older = versions.older(&self.ctx, loader, stop, package, digest, only);
            // Boxed, because it is large and rarely needed. As a part of this future it would make each run larger.
            Box::pin(older).await?
        };
        match &version.refusal {
            Some(why) => refused(why.clone()).await,
            None => Ok(version),
        }
    }

    /// Continue `flow` after the recorded calls of a launch that has run before. Return it with its first final failure,
    /// or `None` when the run was dropped.
    async fn replayed(
        &self,
        work: &Work,
        (mut flow, begins_with): (Workflow, usize),
        version: &Version,
        stop: &StopSignal,
        kept: &mut KeptOfRun,
    ) -> Option<(Workflow, Option<(FailureKind, String)>)> {
        let message = loop {
            match self
                .recorded(work, version, begins_with, stop, kept)
                .await?
            {
                Replay::Read(bytes, calls, lost) => {
                    let replay = move || {
                        let failure = flow.replay(recorded_calls(calls, &lost), lost.len());
                        (flow, failure)
                    };
                    return on_json(bytes, replay).await;
                }
                Replay::NeedsRoom(bytes) => {
                    if let Err(why) = kept.wait_for(begins_with + bytes, stop).await? {
                        break why;
                    }
                }
                Replay::Refused(message) => break message,
            }
        };
        Some((flow, Some((FailureKind::InvalidOutput, message))))
    }

    /// Reads a launch's recorded calls if their values fit in besides `begins_with` bytes. None if the run was dropped.
    async fn recorded(
        &self,
        work: &Work,
        version: &Version,
        begins_with: usize,
        stop: &StopSignal,
        kept: &KeptOfRun,
    ) -> Option<Replay> {
        let launch = work.launch.launch_id;
        let limit = version.graph.run_context_bytes_max();
        retry_while_tracked(&self.ctx, stop, || async {
            let mut tx = self.ctx.db.read().await?;
            let bytes = task_runs::bytes_of_launch(&mut tx, launch).await?;
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            if bytes > limit {
                return Ok(Replay::Refused(format!(
                    "the contexts and outputs that earlier runs of this launch recorded have {bytes} bytes; their limit is {}; {}",
                    size_text(limit as u64),
                    Resource::RunContext.raise()
                )));
            }
            if !kept.has_room(begins_with + bytes) {
                return Ok(Replay::NeedsRoom(bytes));
            }
            let calls = task_runs::of_launch(&mut tx, launch).await?;
            let lost = runs::lost_of_launch(&mut tx, launch).await?;
            Ok(Replay::Read(bytes, calls, lost))
        })
        .await
    }

    /// Record a call, and let what it held back take effect; none when the run is not this host's any more.
    async fn commit(
        &self,
        work: &Work,
        call: &TaskRun,
        uncommitted: &Uncommitted,
        stop: &StopSignal,
    ) -> Option<CallCommit> {
        let succeeded = SucceededCall {
            run: work.run_id(),
            fence: work.fence(),
            package: &work.launch.package,
            call,
            uncommitted,
            give_up_at: call.finished_at.plus(self.ctx.settings.give_up_after),
            namespaces: &self.ctx.settings.namespaces,
        };
        let commit = || call_commit::commit(&self.ctx.db, succeeded);
        let done = retry_while_tracked(&self.ctx, stop, commit).await;
        if !uncommitted.messages.is_empty() {
            self.ctx.wake.outbox.notify_one();
        }
        done
    }

    /// Record calls while the run continues. Return whether the run is still this host's.
    async fn record(&self, work: &Work, calls: &mut Vec<TaskRun>, stop: &StopSignal) -> bool {
        let recorded = retry_while_tracked(&self.ctx, stop, || async {
            let mut tx = self.ctx.db.write().await?;
            let held = launch::record_tasks(&mut tx, work.run_id(), work.fence(), calls).await?;
            tx.commit().await?;
            Ok(held)
        })
        .await;
        calls.clear();
        recorded == Some(true)
    }
}

/// What is on record about a launch's earlier runs.
enum Replay {
    /// The size of their values in bytes, their calls, and the numbers of lost ones.
    Read(usize, Vec<LaunchCall>, Vec<i64>),
    /// The size of their values in bytes; the run has to wait for that much memory first.
    NeedsRoom(usize),
    Refused(String),
}

struct Progress<'k> {
    kept: &'k mut KeptOfRun,
    /// Bytes kept besides the values of `flow`: how earlier runs ended, and the contexts of ongoing calls.
    beside: usize,
    flow: Workflow,
    delivery: Delivery,
    rules: RetryRules,
    /// The first final failure.
    failed: Option<(FailureKind, String)>,
    /// Calls that have ended and are not on record.
    unrecorded: Vec<TaskRun>,
}

impl Progress<'_> {
    /// Fail the steps that wait for a retry, when it is too late for one.
    fn expire(&mut self, now: Timestamp) {
        if let Some(expires_at) = self.rules.expires_at.filter(|end| now > *end)
            && let Some(failure) = self.flow.expire(expires_at)
        {
            self.failed.get_or_insert(failure);
        }
    }

    /// Returns the steps to call at `now`. A run asked to end, or failed already, calls nothing more.
    fn ready(&self, now: Timestamp, stop: &StopSignal) -> Vec<usize> {
        if self.has_ended(stop) {
            Vec::new()
        } else {
            self.flow.ready(now)
        }
    }

    fn next_retry(&self, stop: &StopSignal) -> Option<Timestamp> {
        self.flow.next_retry().filter(|_| !self.has_ended(stop))
    }

    fn has_ended(&self, stop: &StopSignal) -> bool {
        stop.is_cancelled() || self.failed.is_some()
    }

    /// Apply the end of a call of `step`, and whether its record is within the package's quota. Return what to record.
    fn end_call(
        &mut self,
        step: &Step,
        (place, number): (usize, CallNumber),
        mut call: TaskRun,
        (mut report, within_quota): (Report, Result<(), String>),
    ) -> TaskRun {
        let rules = (self.delivery, &self.rules);
        let mut judged = judge(&mut report, step, rules, number.tries, call.finished_at);
        let output = report.output.take();
        if let Err(message) = within_quota {
            record_use::strip(&mut call);
            judged = Err((FailureKind::QuotaExceeded, message, None));
        }
        let result = judged.and_then(|gives| {
            self.keep_values(place, output, gives).map_err(|exceeded| {
                // The call keeps nothing, so that a recovery comes to the same end.
                (call.output, call.context) = (None, None);
                (FailureKind::InvalidOutput, exceeded, None)
            })
        });
        let held = self.flow.held_bytes() as u64;
        let held = step.limits.share(Resource::RunContext, held);
        let usage = &mut report.usage;
        usage.shares.extend(held.filter(|held| held.used > 0));
        call.usage = usage_text(usage);
        if let Err(failure) = result {
            self.fail_call(step, place, failure, &mut call);
        }
        call
    }

    /// Charges for everything the run holds now.
    fn cover(&mut self) -> Result<(), String> {
        self.kept.cover(self.flow.held_bytes() + self.beside)
    }

    /// Keeps the values returned by a step's call.
    fn keep_values(
        &mut self,
        place: usize,
        output: Option<JsonText>,
        gives: JsonObject,
    ) -> Result<(), String> {
        self.flow.succeed(place, output, gives)?;
        self.cover().map_err(|why| {
            self.flow.forget_success(place);
            format!("the task returned a result for the tasks of its run, and {why}")
        })
    }

    /// Fails the run because `step` can't be called.
    fn fail_before_call(&mut self, step: &Step, why: &str) {
        let why = format!("it needs its context, and {why}");
        let message = self.flow.failure_message(&step.id, &why);
        self.failed
            .get_or_insert((FailureKind::InvalidOutput, message));
    }

    /// Turn the success of `call` into a failure, because it could not be recorded.
    fn refuse_success(
        &mut self,
        step: &Step,
        (place, number): (usize, CallNumber),
        call: &mut TaskRun,
        why: String,
    ) {
        let rules = (self.delivery, &self.rules);
        let failure = not_committed(why, step, rules, number.tries, call.finished_at);
        self.flow.forget_success(place);
        (call.output, call.context) = (None, None);
        self.fail_call(step, place, failure, call);
    }

    fn fail_call(
        &mut self,
        step: &Step,
        place: usize,
        (kind, message, retry_at): CallFailure,
        call: &mut TaskRun,
    ) {
        call.succeeded = false;
        call.failure = Some(kind);
        call.retry_at = retry_at;
        match retry_at {
            Some(at) => self.flow.wait(place, at, kind),
            None => {
                let message = self.flow.failure_message(&step.id, &message);
                self.failed.get_or_insert((kind, message));
                self.flow.fail(place);
            }
        }
        call.message = Some(message);
    }

    /// Returns the end of a run that calls nothing more, and the calls to record with it; none when the host is shutting
    /// down.
    async fn end(self) -> Option<(RunEnd, Vec<TaskRun>)> {
        let Progress {
            flow,
            failed,
            unrecorded,
            kept,
            ..
        } = self;
        let end = match (failed, flow.next_retry()) {
            (Some((kind, message)), _) => RunEnd::Failed { kind, message },
            (None, Some(retry_at)) => RunEnd::Waiting { retry_at },
            (None, None) if !flow.is_done() => RunEnd::Cancelled {
                message: "it ended when it was asked to, before its last task".to_owned(),
            },
            (None, None) => {
                let output = on_json(flow.held_bytes(), move || flow.output()).await?;
                // The output is only part of the values, so this can't fail.
                let _ = kept.cover(output.as_ref().map_or(0, String::len));
                RunEnd::Succeeded { output }
            }
        };
        Some((end, unrecorded))
    }
}

/// Read how earlier runs of the schedule ended; none when the host is shutting down.
async fn last_ends(work: &Work) -> Option<LastEnds> {
    let (result, failure) = (&work.launch.last_result, &work.launch.last_failure);
    let bytes = [result, failure].map(|text| text.as_ref().map_or(0, String::len));
    let (result, failure) = (result.clone(), failure.clone());
    on_json(bytes.iter().sum(), move || LastEnds::of(result, failure)).await
}

/// Read the results of stored calls. `lost` are the numbers of the lost runs of the launch, the earliest first.
fn recorded_calls(calls: Vec<LaunchCall>, lost: &[i64]) -> Vec<RecordedCall> {
    let recorded = calls.into_iter().map(|call| {
        let run = lost.iter().position(|number| *number == call.run_number);
        // A call of the run that continues now comes after all lost ones.
        recorded_call(call, run.unwrap_or(lost.len()))
    });
    recorded.collect()
}

fn recorded_call(call: LaunchCall, lost_runs_before: usize) -> RecordedCall {
    let kind = call.failure.unwrap_or(FailureKind::Failed);
    let result = match call.retry_at {
        _ if call.succeeded => CallResult::Succeeded {
            output: stored_json(call.output.as_deref()),
            context: stored_json(call.context.as_deref()).unwrap_or_default(),
        },
        Some(retry_at) => CallResult::Retry { retry_at, kind },
        None => CallResult::Failed {
            kind,
            message: call.message.unwrap_or_default(),
        },
    };
    RecordedCall {
        task: call.task,
        result,
        lost_runs_before,
    }
}
