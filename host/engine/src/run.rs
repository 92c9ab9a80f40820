//! Carrying a run out: the workflow's tasks in order, each a call into the sandbox.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::buckets::RunBuckets;
use super::outcome::{self, FailedCall, Next, RetryPolicy};
use super::take::Work;
use super::versions::{CannotBegin, Version};
use super::workflow::{self, CallResult, RecordedCall, Step, Workflow};
use super::{Engine, EngineError, context, run_context};
use crate::crash;
use campanile_model::clock::Timestamp;
use campanile_sandbox::{Call, Outcome, Report, StopSignal, Usage, World};
use campanile_schedule::policy::Delivery;
use campanile_store::FailureKind;
use campanile_store::runs::{self, Finish, RunEnd};
use campanile_store::task_runs::{self, TaskRun};

impl Engine {
    /// Carry `work` out as far as it goes; gives what is to be recorded about its end.
    ///
    /// None when the run was stopped because it is no longer this host's. One that was asked to end before its time
    /// has ended for that, unless it succeeded.
    pub(super) async fn carry_out(&self, work: &Work, stop: &StopSignal) -> Option<Finish> {
        let finish = self.go_on(work, stop).await;
        if !stop.is_cancelled() {
            return finish;
        }
        let (how, tasks) = match finish {
            Some(finish)
                if matches!(
                    finish.end,
                    RunEnd::Succeeded { .. } | RunEnd::Cancelled { .. }
                ) =>
            {
                return Some(finish);
            }
            Some(finish) => ("it ended when it was asked to", finish.tasks),
            None => ("it was asked to end and did not in its time", Vec::new()),
        };
        let message = how.to_owned();
        Some(self.finished(work, RunEnd::Cancelled { message }, tasks))
    }

    async fn go_on(&self, work: &Work, stop: &StopSignal) -> Option<Finish> {
        let version = match self.version(work, stop).await {
            Ok(version) => version,
            Err(CannotBegin::Failed { kind, message }) => {
                let end = RunEnd::Failed { kind, message };
                return Some(self.finished(work, end, Vec::new()));
            }
            Err(CannotBegin::Stopped) => return None,
        };
        let mut flow = Workflow::new(version.steps.clone());
        let mut failed = None;
        if work.launch.attempts > 0 {
            // A launch can be lost before it is taken; then no run was lost with it.
            let lost_runs = work.launch.recoveries.min(work.launch.attempts);
            let calls = self.earlier_calls(work, stop).await?;
            failed = flow.replay(calls, lost_runs);
        }
        let base = &work.user;
        let delivery = work.spec.policies.delivery;
        let mut calls = FuturesUnordered::new();
        let mut unrecorded = Vec::new();
        loop {
            // Asked to end, it begins nothing more.
            let ready = match stop.is_cancelled() {
                true => Vec::new(),
                false => flow.ready(self.clock.now()),
            };
            for place in ready {
                match flow.context_for(place, base.clone()) {
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
                // A retry does not wait for the tasks beside it.
                Some(at) => tokio::select! {
                    ended = calls.next() => ended,
                    () = self.clock.sleep_until(at) => continue,
                },
                None => calls.next().await,
            };
            let Some((place, number, (started_at, report))) = ended else {
                break;
            };
            if stop.is_dropped() {
                return None;
            }
            let now = self.clock.now();
            let step = flow.step(place);
            let mut call = task_run(&step.id, number.attempt, started_at, now, &report);
            match judge(&report, step, delivery, number.tries, now) {
                Judged::Done(gives) => flow.succeed(place, report.output, gives),
                Judged::Again(kind, message, at) => {
                    call.failure = Some(kind);
                    call.message = Some(message);
                    call.retry_at = Some(at);
                    flow.wait(place, at);
                }
                Judged::Failed(kind, message) => {
                    call.succeeded = false;
                    call.failure = Some(kind);
                    call.message = Some(message.clone());
                    failed.get_or_insert((kind, flow.failure_message(&step.id, &message)));
                    flow.fail(place);
                }
            }
            unrecorded.push(call);
            // The last call goes on the record with the end of the run, in one transaction.
            let goes_on = !calls.is_empty() || !(stop.is_cancelled() || flow.ready(now).is_empty());
            if goes_on && !self.record(work, &mut unrecorded, stop).await {
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
        Some(self.finished(work, end, unrecorded))
    }

    /// One call of one task in the sandbox; gives when it began and how it ended.
    async fn call(
        &self,
        work: &Work,
        version: &Version,
        step: Step,
        attempt: i64,
        user: Map<String, Value>,
        stop: StopSignal,
    ) -> (Timestamp, Report) {
        let started_at = self.clock.now();
        if let Some(denial) = &version.denial {
            let report = Report::without_call(Outcome::Denied, denial.clone());
            return (started_at, report);
        }
        crash::point("before_call");
        let grants = version.package.grants();
        let secrets = tokio::select! {
            secrets = self.vault.values(grants.secret_names()) => {
                secrets.map_err(|error| (Outcome::HostError, error.to_string()))
            }
            () = stop.dropped() => {
                Err((Outcome::Cancelled, "it was stopped before it was called".to_owned()))
            }
        };
        let secrets = match secrets {
            Ok(secrets) => Arc::new(secrets),
            Err((outcome, why)) => return (started_at, Report::without_call(outcome, why)),
        };
        let facts = run_context::facts(work, attempt);
        let report = self
            .sandbox
            .run(Call {
                artifact: Arc::clone(&version.artifact),
                context: context::of_call(user, &facts),
                facts: facts.of_run(work.launch.fire_time),
                grants,
                secrets,
                limits: step.limits.clone(),
                world: World::real(Arc::new(RunBuckets {
                    db: self.db.clone(),
                    run: work.run_id,
                    fence: work.fence,
                    turns: self.turns.clone(),
                })),
                task: step.id,
                stop,
            })
            .await;
        crash::point("after_call");
        (started_at, report)
    }

    /// The version of the package that the launch was decided with.
    async fn version(&self, work: &Work, stop: &StopSignal) -> Result<Arc<Version>, CannotBegin> {
        let taken = &work.launch;
        let only = work.spec.definition.task.as_deref();
        let Some(package) = &work.package else {
            return Err(CannotBegin::Failed {
                kind: FailureKind::Refused,
                message: format!(
                    "the package `{}` has left this host's folder since the launch was taken",
                    taken.package
                ),
            });
        };
        if package.digest == taken.digest {
            return self.versions.of(package, only);
        }
        self.versions
            .of_digest(self, stop, package, &taken.digest, only)
            .await
    }

    /// The calls already on the record for a launch that is not run for the first time. None when the run was stopped.
    async fn earlier_calls(&self, work: &Work, stop: &StopSignal) -> Option<Vec<RecordedCall>> {
        self.until_stopped(stop, || async {
            let mut tx = self.db.read().await?;
            let calls = task_runs::of_launch(&mut tx, work.launch.launch_id).await?;
            Ok(calls.into_iter().map(recorded_call).collect())
        })
        .await
    }

    /// Put calls on the record while the run goes on. False when the run was stopped or its fence is no longer good.
    async fn record(&self, work: &Work, calls: &mut Vec<TaskRun>, stop: &StopSignal) -> bool {
        let recorded = self
            .until_stopped(stop, || async {
                let mut tx = self.db.write().await?;
                let held = runs::record_tasks(&mut tx, work.run_id, work.fence, calls).await?;
                tx.commit().await?;
                Ok(held)
            })
            .await;
        calls.clear();
        recorded == Some(true)
    }

    /// Try again through passing trouble of the database for as long as the run is this host's.
    ///
    /// None also for trouble that does not pass: the run's lease is left to run out, and recovery takes it.
    pub(super) async fn until_stopped<T, F>(
        &self,
        stop: &StopSignal,
        attempt: impl Fn() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, EngineError>>,
    {
        loop {
            match attempt().await {
                Ok(value) => return Some(value),
                Err(error) => {
                    self.trouble
                        .say("reading or recording the tasks of a run", &error);
                    if !error.may_pass() {
                        return None;
                    }
                    tokio::select! {
                        () = stop.dropped() => return None,
                        () = tokio::time::sleep(super::RETRY_PAUSE) => {}
                    }
                }
            }
        }
    }

    pub fn finished(&self, work: &Work, end: RunEnd, tasks: Vec<TaskRun>) -> Finish {
        Finish {
            run_id: work.run_id,
            fence: work.fence,
            launch_id: work.launch.launch_id,
            schedule_id: work.launch.schedule_id,
            scheduled_time: work.launch.scheduled_time,
            at: self.clock.now(),
            end,
            tasks,
        }
    }
}

/// What a report means for the workflow.
enum Judged {
    Done(Map<String, Value>),
    Again(FailureKind, String, Timestamp),
    Failed(FailureKind, String),
}

fn judge(report: &Report, step: &Step, delivery: Delivery, tries: i64, now: Timestamp) -> Judged {
    let Some(kind) = outcome::failure_kind(report.outcome) else {
        let gives = report.context.clone().unwrap_or_default();
        return match workflow::refuse_reserved(&gives) {
            None => Judged::Done(gives),
            Some(refusal) => Judged::Failed(FailureKind::InvalidOutput, refusal),
        };
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
    };
    let policy = RetryPolicy::of(step.attempts_max);
    match outcome::decide(call, &policy, now, rand::random_range(-1.0..=1.0)) {
        Next::Retry(at) => Judged::Again(kind, message, at),
        Next::Fail => Judged::Failed(kind, message),
    }
}

fn task_run(
    task: &str,
    attempt: i64,
    started_at: Timestamp,
    finished_at: Timestamp,
    report: &Report,
) -> TaskRun {
    let logs = match report.logs.is_empty() {
        true => "[]".to_owned(),
        false => serde_json::to_string(&report.logs).unwrap_or_default(),
    };
    TaskRun {
        succeeded: report.failure.is_none(),
        output: report.output.as_ref().map(Value::to_string),
        context: report
            .context
            .as_ref()
            .map(|context| serde_json::to_string(context).unwrap_or_default()),
        stdout: report.stdout.clone(),
        stderr: report.stderr.clone(),
        logs,
        wall_ms: report.usage.wall_ms,
        cpu_ms: report.usage.cpu_ms,
        memory_peak_bytes: i64::try_from(report.usage.memory_peak_bytes).unwrap_or(i64::MAX),
        usage: usage_text(&report.usage),
        ..TaskRun::succeeded(task, attempt, started_at, finished_at)
    }
}

/// Read the result of a stored call.
fn recorded_call(call: TaskRun) -> RecordedCall {
    fn json<T: DeserializeOwned>(text: Option<&str>) -> Option<T> {
        serde_json::from_str(text?).ok()
    }
    let result = match call.retry_at {
        _ if call.succeeded => CallResult::Succeeded {
            output: json(call.output.as_deref()),
            context: json(call.context.as_deref()).unwrap_or_default(),
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
