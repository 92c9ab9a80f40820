//! The execution of a run: the workflow's tasks in order, each a call into the sandbox.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Map, Value};

use crate::buckets::{BucketPermits, RunBuckets};
use crate::crash;
use crate::ctx::SharedCtx;
use crate::secrets::Vault;
use crate::service::retry_while_tracked;
use crate::versions::{CannotBegin, Version, Versions};
use crate::work::{Work, stored_json};
use campanile_model::clock::Timestamp;
use campanile_package::PackageLoader;
use campanile_package::context::{ReservedKey, check};
use campanile_sandbox::{Call, Outcome, Report, StopSignal, Usage, World};
use campanile_schedule::policy::Delivery;
use campanile_store::FailureKind;
use campanile_store::runs::{self, Finish, RunEnd};
use campanile_store::task_runs::{self, TaskRun};
use campanile_workflow::context;
use campanile_workflow::outcome::{self, FailedCall};
use campanile_workflow::workflow::{CallResult, RecordedCall, Step, Workflow};

/// What executes the runs of a host.
pub(crate) struct Executor {
    ctx: SharedCtx,
    loader: Arc<PackageLoader>,
    vault: Vault,
    versions: Versions,
    bucket_permits: BucketPermits,
}

impl Executor {
    pub(crate) fn new(ctx: SharedCtx, loader: Arc<PackageLoader>) -> Executor {
        Executor {
            vault: Vault::new(ctx.settings.secrets.clone()),
            versions: Versions::default(),
            bucket_permits: BucketPermits::default(),
            ctx,
            loader,
        }
    }

    /// Execute `work` as far as it goes. Return the end to record.
    ///
    /// Return `None` when the run was dropped because this host has lost it. A run that was asked to end is cancelled,
    /// unless it succeeded.
    pub(crate) async fn execute(&self, work: &Work, stop: &StopSignal) -> Option<Finish> {
        let finish = self.run_tasks(work, stop).await;
        if !stop.is_cancelled() {
            return finish;
        }
        let (message, tasks) = match finish {
            Some(finish) => match finish.end {
                RunEnd::Succeeded { .. } | RunEnd::Cancelled { .. } => return Some(finish),
                _ => ("it ended when it was asked to", finish.tasks),
            },
            None => (
                "it was asked to end and did not within its grace",
                Vec::new(),
            ),
        };
        let message = message.to_owned();
        let end = RunEnd::Cancelled { message };
        Some(work.finished(end, tasks, self.ctx.clock.now()))
    }

    /// Call the tasks that are ready until none is, recording each call when it ends.
    async fn run_tasks(&self, work: &Work, stop: &StopSignal) -> Option<Finish> {
        let version = match self.version(work, stop).await {
            Ok(version) => version,
            Err(CannotBegin(end)) => {
                return Some(work.finished(end?, Vec::new(), self.ctx.clock.now()));
            }
        };
        let mut flow = Workflow::new(version.steps.clone());
        let mut failed = None;
        if work.launch.attempts > 0 {
            let (calls, lost_runs) = self.earlier_calls(work, stop).await?;
            failed = flow.replay(calls, lost_runs);
        }
        let delivery = work.spec.policies.delivery;
        let mut calls = FuturesUnordered::new();
        let mut unrecorded = Vec::new();
        loop {
            // A run that was asked to end calls nothing more.
            let ready = match stop.is_cancelled() {
                true => Vec::new(),
                false => flow.ready(self.ctx.clock.now()),
            };
            for place in ready {
                match flow.context_for(place, work.user.clone()) {
                    Ok(user) => {
                        let number = flow.start(place);
                        let step = flow.step(place).clone();
                        let call =
                            self.call(work, &version, step, number.attempt, user, stop.clone());
                        calls.push(async move { (place, number, call.await) });
                    }
                    Err(conflict) => {
                        flow.fail(place);
                        failed = Some((FailureKind::InvalidOutput, conflict.to_string()));
                    }
                }
            }
            let retry = flow
                .next_retry()
                .filter(|_| !calls.is_empty() && !flow.has_failed() && !stop.is_cancelled());
            let ended = match retry {
                // A retry does not wait for the tasks that run beside it.
                Some(at) => tokio::select! {
                    ended = calls.next() => ended,
                    () = self.ctx.clock.sleep_until(at) => continue,
                },
                None => calls.next().await,
            };
            let Some((place, number, (started_at, report))) = ended else {
                break;
            };
            if stop.is_dropped() {
                return None;
            }
            let now = self.ctx.clock.now();
            let step = flow.step(place);
            let mut call = task_run(&step.id, number.attempt, started_at, now, &report);
            match judge(&report, step, delivery, number.tries, now) {
                Ok(gives) => flow.succeed(place, report.output, gives),
                Err((kind, message, retry_at)) => {
                    call.succeeded = false;
                    call.failure = Some(kind);
                    call.retry_at = retry_at;
                    match retry_at {
                        Some(at) => flow.wait(place, at),
                        None => {
                            failed.get_or_insert((kind, flow.failure_message(&step.id, &message)));
                            flow.fail(place);
                        }
                    }
                    call.message = Some(message);
                }
            }
            unrecorded.push(call);
            // The last call is recorded with the end of the run, in one transaction.
            let is_last = calls.is_empty() && (stop.is_cancelled() || flow.ready(now).is_empty());
            if !is_last && !self.record(work, &mut unrecorded, stop).await {
                return None;
            }
        }
        let end = match (failed, flow.next_retry()) {
            (Some((kind, message)), _) => RunEnd::Failed { kind, message },
            (None, Some(retry_at)) => RunEnd::Waiting { retry_at },
            (None, None) if !flow.is_done() => RunEnd::Cancelled {
                message: "it ended when it was asked to, before its last task".to_owned(),
            },
            (None, None) => RunEnd::Succeeded {
                output: flow.output().map(|output| output.to_string()),
            },
        };
        Some(work.finished(end, unrecorded, self.ctx.clock.now()))
    }

    /// Call one task in the sandbox. Return when the call began and how it ended.
    async fn call(
        &self,
        work: &Work,
        version: &Version,
        step: Step,
        attempt: i64,
        user: Map<String, Value>,
        stop: StopSignal,
    ) -> (Timestamp, Report) {
        let started_at = self.ctx.clock.now();
        let without_call = |outcome, why| (started_at, Report::without_call(outcome, why));
        if let Some(denial) = &version.denial {
            return without_call(Outcome::Denied, denial.clone());
        }
        crash::point("before_call");
        let grants = Arc::clone(&version.package.sidecar.grants);
        let secrets = tokio::select! {
            secrets = self.vault.values(grants.secret_names()) => secrets,
            () = stop.dropped() => {
                let why = "it was stopped before it was called";
                return without_call(Outcome::Cancelled, why.to_owned());
            }
        };
        let secrets = match secrets {
            Ok(secrets) => Arc::new(secrets),
            Err(error) => return without_call(Outcome::HostError, error.to_string()),
        };
        let facts = work.facts(attempt);
        let call = Call {
            context: context::of_call(user, &facts),
            facts: facts.of_run(work.launch.fire_time),
            grants,
            secrets,
            limits: step.limits.clone(),
            world: World::real(Arc::new(RunBuckets {
                db: self.ctx.db.clone(),
                run: work.run_id,
                fence: work.fence,
                permits: self.bucket_permits.clone(),
            })),
            task: step.id,
            stop,
        };
        let report = self.loader.sandbox().run(&version.artifact, call).await;
        crash::point("after_call");
        (started_at, report)
    }

    /// Return the version of the package with which the launch was decided.
    async fn version(&self, work: &Work, stop: &StopSignal) -> Result<Arc<Version>, CannotBegin> {
        let only = work.spec.definition.task.as_deref();
        let (name, digest) = (&work.launch.package, &work.launch.digest);
        match &work.package {
            Some(package) if package.digest == *digest => self.versions.current(package, only),
            Some(package) => {
                let (versions, loader) = (&self.versions, &*self.loader);
                let older = versions.older(&self.ctx, loader, stop, package, digest, only);
                older.await
            }
            None => Err(CannotBegin::refused(format!(
                "the package `{name}` has left this host's folder since the launch was claimed"
            ))),
        }
    }

    /// Read the recorded calls of a launch that has run before, and count its lost runs. Return `None` when the run was
    /// dropped.
    async fn earlier_calls(
        &self,
        work: &Work,
        stop: &StopSignal,
    ) -> Option<(Vec<RecordedCall>, usize)> {
        retry_while_tracked(&self.ctx, stop, || async {
            let mut tx = self.ctx.db.read().await?;
            let calls = task_runs::of_launch(&mut tx, work.launch.launch_id).await?;
            let lost = runs::lost_of_launch(&mut tx, work.launch.launch_id).await?;
            let recorded = calls.into_iter().map(|call| {
                let run = lost.iter().position(|run| *run == call.run_id);
                // A call of the run that continues now comes after all lost ones.
                recorded_call(call.call, run.unwrap_or(lost.len()))
            });
            Ok((recorded.collect(), lost.len()))
        })
        .await
    }

    /// Record calls while the run continues. Return whether the run is still this host's.
    async fn record(&self, work: &Work, calls: &mut Vec<TaskRun>, stop: &StopSignal) -> bool {
        let recorded = retry_while_tracked(&self.ctx, stop, || async {
            let mut tx = self.ctx.db.write().await?;
            let held = runs::record_tasks(&mut tx, work.run_id, work.fence, calls).await?;
            tx.commit().await?;
            Ok(held)
        })
        .await;
        calls.clear();
        recorded == Some(true)
    }
}

/// Return the keys that a call passes on, or why it failed and when to call the task again.
fn judge(
    report: &Report,
    step: &Step,
    delivery: Delivery,
    tries: i64,
    now: Timestamp,
) -> Result<Map<String, Value>, (FailureKind, String, Option<Timestamp>)> {
    let Some(kind) = outcome::failure_kind(report.outcome) else {
        let gives = report.context.clone().unwrap_or_default();
        let refused = |refusal: ReservedKey| {
            let kind = FailureKind::InvalidOutput;
            (kind, refusal.to_string(), None)
        };
        return check(&gives).map(|()| gives).map_err(refused);
    };
    let failure = report.failure.as_ref();
    let message = failure.map_or_else(String::new, |failure| failure.text());
    let call = FailedCall {
        kind,
        retryable: failure.is_some_and(|failure| failure.retryable),
        retry_after: failure.and_then(|failure| failure.retry_after),
        may_repeat: delivery == Delivery::AtLeastOnce
            || failure.is_some_and(|failure| failure.precedes_call),
        tries,
        attempts_max: step.attempts_max,
    };
    let retry_at = outcome::retry_at(call, now, rand::random_range(-1.0..=1.0));
    Err((kind, message, retry_at))
}

fn task_run(
    task: &str,
    attempt: i64,
    started_at: Timestamp,
    finished_at: Timestamp,
    report: &Report,
) -> TaskRun {
    let context = report.context.as_ref();
    TaskRun {
        succeeded: report.failure.is_none(),
        output: report.output.as_ref().map(Value::to_string),
        context: context.map(|context| serde_json::to_string(context).unwrap_or_default()),
        stdout: report.stdout.clone(),
        stderr: report.stderr.clone(),
        logs: serde_json::to_string(&report.logs).unwrap_or_default(),
        wall_ms: report.usage.wall_ms,
        cpu_ms: report.usage.cpu_ms,
        memory_peak_bytes: i64::try_from(report.usage.memory_peak_bytes).unwrap_or(i64::MAX),
        usage: usage_text(&report.usage),
        ..TaskRun::succeeded(task, attempt, started_at, finished_at)
    }
}

/// Read the result of a stored call.
fn recorded_call(call: TaskRun, lost_runs_before: usize) -> RecordedCall {
    let result = match call.retry_at {
        _ if call.succeeded => CallResult::Succeeded {
            output: stored_json(call.output.as_deref()),
            context: stored_json(call.context.as_deref()).unwrap_or_default(),
        },
        Some(retry_at) => CallResult::Retry { retry_at },
        None => CallResult::Failed {
            kind: call.failure.unwrap_or(FailureKind::Failed),
            message: call.message.unwrap_or_default(),
        },
    };
    RecordedCall {
        task: call.task,
        result,
        lost_runs_before,
    }
}

/// What a call used, as it is kept: `{"memory":[used, limit], …}`.
fn usage_text(usage: &Usage) -> String {
    let shares = usage.shares.iter().map(|share| {
        let of = vec![share.used.into(), share.limit.into()];
        (share.resource.as_str().to_owned(), Value::Array(of))
    });
    Value::Object(shares.collect()).to_string()
}
