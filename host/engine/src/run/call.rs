//! One call of a task: its context, its record, and what its result means for the run.

use std::mem;
use std::panic::resume_unwind;
use std::sync::Arc;

use tracing::Instrument as _;

use crate::crash;
use crate::ctx::SharedCtx;
use crate::packages::versions::Version;
use crate::run::buckets::{BucketPermits, RunBuckets};
use crate::run::retry_rules;
use crate::run::secrets::Vault;
use crate::run::work::{LastEnds, Work};
use crate::tell::log_spans;
use campanile_control::schedules::program_args;
use campanile_model::clock::Timestamp;
use campanile_package::context::{ContextFault, check_keys};
use campanile_sandbox::{
    Call, HeldCode, JsonObject, JsonText, Outcome, ProgramInput, Refusal, Report, Sandbox,
    StopSignal, Usage, World, object_bytes, object_text,
};
use campanile_schedule::policy::Delivery;
use campanile_store::task_runs::TaskRun;
use campanile_store::{DbError, FailureKind, packages};
use campanile_workflow::graph::Step;
use campanile_workflow::inheritance::Inheritance;
use campanile_workflow::outcome::{self, FailedCall, RetryRules};

/// The most bytes of JSON that are read or merged on the host's own threads. It takes about a millisecond.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// What calls the tasks of a host's runs.
pub(crate) struct Caller {
    ctx: SharedCtx,
    sandbox: Arc<Sandbox>,
    vault: Vault,
    bucket_permits: BucketPermits,
}

/// One call of a task that is about to be made.
pub(crate) struct TaskCall<'r> {
    pub(crate) work: &'r Work,
    pub(crate) version: &'r Version,
    pub(crate) step: &'r Step,
    pub(crate) attempt: i64,
    pub(crate) inheritance: Inheritance,
    pub(crate) last: &'r LastEnds,
    pub(crate) stop: &'r StopSignal,
}

/// Why a call failed, and when to call the task again; never when the failure is final.
pub(crate) type CallFailure = (FailureKind, String, Option<Timestamp>);

impl Caller {
    pub(crate) fn new(ctx: SharedCtx, sandbox: Arc<Sandbox>) -> Caller {
        Caller {
            vault: Vault::new(ctx.settings.secrets.clone()),
            bucket_permits: BucketPermits::default(),
            ctx,
            sandbox,
        }
    }

    /// Calls one task in the sandbox. Returns its record and its report; none when the host is shutting down.
    pub(crate) fn call(
        &self,
        call: TaskCall<'_>,
    ) -> impl Future<Output = Option<(TaskRun, Report)>> {
        let span = log_spans::call(&call.step.id, call.attempt);
        self.call_and_record(call).instrument(span)
    }

    async fn call_and_record(&self, call: TaskCall<'_>) -> Option<(TaskRun, Report)> {
        let started_at = self.ctx.clock.now();
        let (step, attempt) = (call.step.id.clone(), call.attempt);
        let mut report = self.report(call).await?;
        let finished_at = self.ctx.clock.now();
        let (outcome, usage) = (report.outcome.as_str(), &report.usage);
        tracing::debug!(
            %outcome,
            wall_ms = usage.wall_ms,
            cpu_ms = usage.cpu_ms,
            "called the task"
        );
        let output_bytes = report.output.as_ref().map_or(0, |json| json.as_str().len());
        let bytes = output_bytes + report.context.as_ref().map_or(0, object_bytes);
        // The record copies the output and the context, moving the rest.
        on_json(bytes, move || {
            let record = task_run(&step, attempt, started_at, finished_at, &mut report);
            (record, report)
        })
        .await
    }

    /// Calls one task in the sandbox, and returns how the call ended.
    async fn report(&self, call: TaskCall<'_>) -> Option<Report> {
        let TaskCall {
            work,
            version,
            step,
            ..
        } = call;
        let without_call = |outcome, why| Some(Report::without_call(outcome, why));
        if let Some(denial) = &version.denial {
            return without_call(Outcome::Denied, denial.clone());
        }
        crash::point("before_call");
        let sidecar = &version.package.sidecar;
        let grants = Arc::clone(&sidecar.grants);
        let secrets = tokio::select! {
            secrets = self.vault.values(grants.secret_names()) => secrets,
            () = call.stop.dropped() => {
                let why = "it was stopped before it was called";
                return without_call(Outcome::Cancelled, why.to_owned());
            }
        };
        let secrets = match secrets {
            Ok(secrets) => secrets,
            Err(error) => return without_call(Outcome::HostError, error.to_string()),
        };
        let program = match program_of(work, version) {
            Ok(program) => program,
            Err(why) => return without_call(Outcome::Refused, why),
        };
        let texts = grants.plain_values().chain(program.literals());
        let mut sought = self.vault.contained_in(&Vec::from_iter(texts)).await;
        sought.extend(secrets);
        let secrets = Arc::new(sought);
        let is_traced = self.ctx.settings.traces.is_some();
        let facts = work.facts(&step.id, call.attempt, call.last, is_traced);
        let run_facts = facts.of_run(work.launch.fire_time);
        let bytes = call.inheritance.bytes() + call.last.bytes();
        let inheritance = call.inheritance;
        let context = match on_json(bytes, move || inheritance.context(&facts)).await? {
            Ok(context) => context,
            Err(conflict) => return without_call(Outcome::InvalidOutput, conflict),
        };
        if !self.ctx.leases.begin_call(work.run_id(), work.fence()) {
            let why = "it was stopped before it was called";
            return without_call(Outcome::Cancelled, why.to_owned());
        }
        let call = Call {
            context,
            facts: run_facts,
            program,
            grants,
            secrets,
            limits: step.limits.clone(),
            world: World::real(Arc::new(RunBuckets {
                db: self.ctx.db.clone(),
                run: work.run_id(),
                fence: work.fence(),
                permits: self.bucket_permits.clone(),
                namespaces: Arc::clone(&self.ctx.settings.namespaces),
            })),
            package: version.package.name.clone(),
            task: step.id.clone(),
            stop: call.stop.clone(),
        };
        let code = tokio::select! {
            code = self.code(version) => code,
            () = call.stop.dropped() => {
                let why = "it was stopped before its code was loaded";
                return without_call(Outcome::Cancelled, why.to_owned());
            }
        };
        let report = match code {
            Ok(held) => self.sandbox.run_held(held, call).await,
            Err(refusal) => return without_call(Outcome::HostError, refusal.message),
        };
        crash::point("after_call");
        Some(report)
    }
}

impl Caller {
    /// Returns the code of `version`, loading it if necessary. It stays loaded while the returned value is held.
    async fn code(&self, version: &Version) -> Result<HeldCode, Refusal> {
        let (package, artifact) = (&version.package, &version.artifact);
        let read = || async {
            if package.digest == artifact.digest
                && let Some(bytes) = package.read_again().await
            {
                return Ok(bytes);
            }
            let stored = async {
                let mut tx = self.ctx.db.read().await?;
                packages::artifact(&mut tx, &artifact.digest).await
            };
            let stored: Result<_, DbError> = stored.await;
            let stored = stored.map_err(|error| error.to_string())?;
            stored.ok_or_else(|| "its file is neither in the folder nor in the database".to_owned())
        };
        self.sandbox.hold(artifact, read).await
    }
}

/// Returns what the program of `work` gets at its start: what the sidecar says, with the arguments of the launch or of the
/// schedule in place of the sidecar's. The error is a sentence.
fn program_of(work: &Work, version: &Version) -> Result<Arc<ProgramInput>, String> {
    let program = version.package.sidecar.program.clone().unwrap_or_default();
    let args = work.launch.args.as_ref();
    let Some(stored) = args.or(work.spec.definition.args.as_ref()) else {
        return Ok(program);
    };
    // The schedule may be older than this version of its package.
    let form = version.artifact.form;
    if !form.is_command() {
        return Err(program_args::no_program(&version.package.name, form));
    }
    let args: Vec<String> = serde_json::from_str(stored).map_err(|error| {
        format!("this version cannot read the arguments of the program: {error}")
    })?;
    Ok(Arc::new(ProgramInput {
        args: program_args::parse(&args)?,
        ..ProgramInput::clone(&program)
    }))
}

/// Does `work` on `bytes` bytes of JSON: here when they are few, else on a thread for work that blocks, so that a large
/// context does not delay other runs, slots and leases. Returns none when the host is shutting down.
pub(crate) async fn on_json<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes <= INLINE_BYTES_MAX {
        return Some(work());
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            // The panic ends this run, as it would have here.
            Ok(panic) => resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// Returns the keys that a call passes on, or why it failed and when to call the task again.
pub(crate) fn judge(
    report: &mut Report,
    step: &Step,
    (delivery, rules): (Delivery, &RetryRules),
    tries: i64,
    now: Timestamp,
) -> Result<JsonObject, CallFailure> {
    let Some(kind) = outcome::failure_kind(report.outcome) else {
        let gives = report.context.take().unwrap_or_default();
        let refused = |refusal: ContextFault| {
            let kind = FailureKind::InvalidOutput;
            (kind, refusal.to_string(), None)
        };
        let checked = check_keys(|key| gives.contains_key(key));
        return checked.map(|()| gives).map_err(refused);
    };
    let failure = report.failure.as_ref();
    let message = failure.map_or_else(String::new, |failure| failure.message.clone());
    let call = FailedCall {
        kind,
        retryable: failure.is_some_and(|failure| failure.retryable),
        retry_after: failure.and_then(|failure| failure.retry_after),
        may_repeat: delivery == Delivery::AtLeastOnce
            || failure.is_some_and(|failure| failure.precedes_call),
        tries,
        attempts_max: step.attempts_max,
    };
    Err(failure_of(call, message, rules, now))
}

/// Returns why a call failed that succeeded, but whose success could not be recorded, and when to call the task again.
pub(crate) fn not_committed(
    message: String,
    step: &Step,
    (delivery, rules): (Delivery, &RetryRules),
    tries: i64,
    now: Timestamp,
) -> CallFailure {
    let call = FailedCall {
        kind: FailureKind::Failed,
        retryable: true,
        retry_after: None,
        may_repeat: delivery == Delivery::AtLeastOnce,
        tries,
        attempts_max: step.attempts_max,
    };
    failure_of(call, message, rules, now)
}

fn failure_of(
    call: FailedCall,
    message: String,
    rules: &RetryRules,
    now: Timestamp,
) -> CallFailure {
    let kind = call.kind;
    match outcome::retry_at(call, rules, now, rand::random_range(-1.0..=1.0)) {
        Ok(retry_at) => (kind, message, Some(retry_at)),
        Err(why) => (kind, retry_rules::final_message(message, kind, why), None),
    }
}

fn task_run(
    task: &str,
    attempt: i64,
    started_at: Timestamp,
    finished_at: Timestamp,
    report: &mut Report,
) -> TaskRun {
    let context = report.context.as_ref().map(|context| {
        let entries = context.iter();
        object_text(entries.map(|(key, value)| (key.as_str(), value.as_str())))
    });
    TaskRun {
        succeeded: report.failure.is_none(),
        output: report.output.as_ref().map(JsonText::to_string),
        context,
        note: report
            .failure
            .as_ref()
            .and_then(|failure| failure.note.clone()),
        stdout: mem::take(&mut report.stdout),
        stdout_bytes_dropped: i64::try_from(report.stdout_bytes_dropped).unwrap_or(i64::MAX),
        stderr: mem::take(&mut report.stderr),
        stderr_bytes_dropped: i64::try_from(report.stderr_bytes_dropped).unwrap_or(i64::MAX),
        logs: serde_json::to_string(&mem::take(&mut report.logs)).unwrap_or_default(),
        wall_ms: report.usage.wall_ms,
        cpu_ms: report.usage.cpu_ms,
        memory_peak_bytes: i64::try_from(report.usage.memory_peak_bytes).unwrap_or(i64::MAX),
        ..TaskRun::succeeded(task, attempt, started_at, finished_at)
    }
}

/// What a call used, as it is kept: `{"memory":[used,limit],…}`.
pub(crate) fn usage_text(usage: &Usage) -> String {
    let shares = usage.shares.iter();
    let shares = shares.map(|share| {
        (
            share.resource.as_str(),
            format!("[{},{}]", share.used, share.limit),
        )
    });
    let shares: Vec<(&str, String)> = shares.collect();
    object_text(shares.iter().map(|(resource, of)| (*resource, of.as_str())))
}
