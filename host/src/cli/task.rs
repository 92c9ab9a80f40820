//! `campanile task`: run a task once in the real sandbox, without a database.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::Common;
use super::output::{self, Failure};
use super::schedule::read_context;
use crate::clock::{Clock, Timestamp};
use crate::config::Config;
use crate::engine::context::{self, Facts};
use crate::engine::workflow;
use crate::ids::{ArtifactDigest, LaunchId, LaunchKind, RunId, ScheduleId};
use crate::package::limits::{MEMORY_BYTES_LEAST, TIMEOUT_LEAST, TIMEOUT_MOST};
use crate::package::sidecar::Surroundings;
use crate::package::{self, FILE_BYTES_MAX, Manifest, Sidecar};
use crate::strict;
use crate::telemetry::printable;
use crate::wasm::{Artifact, Call, Limits, Outcome, Report, RunFacts, Sandbox, StopSignal};

#[derive(Subcommand)]
pub(super) enum Task {
    /// Run one task of a .wasm file, with what the sidecar beside it grants
    Run(Run),
}

#[derive(Args)]
pub(super) struct Run {
    /// The .wasm file
    file: PathBuf,
    /// Which task, when the package has several
    #[arg(long)]
    task: Option<String>,
    /// The task's context: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    /// Wall-clock limit, such as 5s [default: the package's, else 5m]
    #[arg(long, value_name = "SPAN", value_parser = strict::duration)]
    timeout: Option<Duration>,
    /// Limit of all memories together, such as 64MiB [default: the sidecar's, else 64MiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<bytesize::ByteSize>,
}

impl Task {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let Task::Run(run) = self;
        let config = common.config()?;
        run.run(common, &config).await
    }
}

/// A file made ready to be called.
struct Ready {
    artifact: Arc<Artifact>,
    manifest: Arc<Manifest>,
    sidecar: Sidecar,
}

impl Run {
    async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let own = read_context(self.context.as_deref())?.unwrap_or_default();
        package::context::check(&own)
            .map_err(|error| Failure::refused(format!("--context: {error}")))?;
        let bytes = read(&self.file)?;
        let digest = ArtifactDigest::of(&bytes);
        let name = stem(&self.file);
        let clock = Clock::system();
        let mut settings = config.sandbox_settings();
        settings.calls_max = 1;
        let sandbox = Sandbox::new(settings, clock.clone())
            .map_err(|error| Failure::failed(error.to_string()))?;
        let sandbox = Arc::new(sandbox);
        let ready = match self.load(&sandbox, &name, bytes, config).await {
            Ok(ready) => ready,
            Err(refusal) => {
                let report = Report::without_call(Outcome::Refused, refusal);
                print(common, &report, &name, &digest, None)?;
                return Ok(ExitCode::from(2));
            }
        };
        let task = self.task(&ready.manifest)?;
        let limits = self.limits(&ready, &task, config)?;
        let missing = ready.manifest.missing_grants(&ready.sidecar.grants);
        let report = if missing.is_empty() {
            let now = clock.now();
            let call = call(&ready, task, own, limits, now);
            as_a_launch(sandbox.run(call).await)
        } else {
            Report::without_call(Outcome::Denied, missing.join("; "))
        };
        print(common, &report, &name, &digest, Some(&ready.artifact))?;
        Ok(match report.outcome {
            Outcome::Succeeded => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    async fn load(
        &self,
        sandbox: &Arc<Sandbox>,
        name: &str,
        bytes: Vec<u8>,
        config: &Config,
    ) -> Result<Ready, String> {
        let path = self.file.with_extension("toml");
        let sidecar = match std::fs::read_to_string(&path) {
            Ok(text) => {
                let around = Surroundings {
                    memory_bytes_most: config.sandbox.memory_bytes_max,
                    env: |name| std::env::var_os(name),
                    own_paths: config.own_paths(),
                };
                Sidecar::parse(&path, &text, around).map_err(|error| error.to_string())?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Sidecar::default(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let (artifact, manifest) = package::compile(sandbox, name, bytes).await?;
        Ok(Ready {
            artifact,
            manifest,
            sidecar,
        })
    }

    /// The task to run: the one named, or the only one there is.
    fn task(&self, manifest: &Manifest) -> Result<String, Failure> {
        let known = || {
            let ids: Vec<&str> = manifest.tasks.iter().map(|task| task.id.as_str()).collect();
            ids.join(", ")
        };
        match (&self.task, manifest.tasks.as_slice()) {
            (Some(task), _) if manifest.task(task).is_some() => Ok(task.clone()),
            (Some(task), _) => {
                let failure = Failure::refused(format!(
                    "{} has no task `{task}`; it has {}",
                    self.file.display(),
                    known()
                ));
                Err(match manifest.nearest_task(task) {
                    Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
                    None => failure,
                })
            }
            (None, [only]) => Ok(only.id.clone()),
            (None, _) => Err(Failure::refused(format!(
                "{} has several tasks: {}",
                self.file.display(),
                known()
            ))
            .hint("choose one with --task")),
        }
    }

    fn limits(&self, ready: &Ready, task: &str, config: &Config) -> Result<Limits, Failure> {
        let mut limits = ready.sidecar.limits.over(&config.limits);
        let proposed = ready.manifest.task(task).and_then(|task| task.timeout);
        if let Some(timeout) = proposed.filter(|_| ready.sidecar.limits.timeout.is_none()) {
            limits.timeout = timeout;
        }
        if let Some(timeout) = self.timeout {
            if !(TIMEOUT_LEAST..=TIMEOUT_MOST).contains(&timeout) {
                return Err(Failure::refused(format!(
                    "--timeout must be from {} to {}, not {}",
                    strict::duration_text(TIMEOUT_LEAST),
                    strict::duration_text(TIMEOUT_MOST),
                    strict::duration_text(timeout)
                )));
            }
            limits.timeout = timeout;
        }
        if let Some(memory) = self.memory {
            let most = config.sandbox.memory_bytes_max;
            if memory.as_u64() > most {
                return Err(Failure::refused(format!(
                    "--memory {memory} is more than this host allows, {}",
                    bytesize::ByteSize::b(most)
                ))
                .hint("raise `sandbox.memory_max` in the configuration"));
            }
            if memory.as_u64() < MEMORY_BYTES_LEAST {
                return Err(Failure::refused(format!(
                    "--memory must be at least {}, not {memory}",
                    strict::size_text(MEMORY_BYTES_LEAST)
                )));
            }
            limits.memory_bytes_max = memory.as_u64();
        }
        Ok(limits)
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

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |error: std::io::Error| Failure::refused(format!("{}: {error}", file.display()));
    let found = std::fs::metadata(file).map_err(cannot)?;
    if !found.is_file() {
        return Err(Failure::refused(format!(
            "{} is not a file",
            file.display()
        )));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(Failure::refused(format!(
            "{} has {}, and a package may have {}",
            file.display(),
            bytesize::ByteSize::b(found.len()),
            bytesize::ByteSize::b(FILE_BYTES_MAX)
        )));
    }
    std::fs::read(file).map_err(cannot)
}

fn stem(file: &Path) -> String {
    file.file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// The call that a manual launch at `now` would make.
fn call(
    ready: &Ready,
    task: String,
    own: Map<String, Value>,
    limits: Limits,
    now: Timestamp,
) -> Call {
    let facts = Facts {
        is_recovery: false,
        original_scheduled_time: now,
        recovery_attempt_time: None,
        execution_id: LaunchId::of(ScheduleId::new(), now, LaunchKind::Manual),
        run_id: RunId::new(now),
        attempt: 1,
        trigger: LaunchKind::Manual,
        schedule: Value::Null,
        scheduled_local: now.to_string(),
        interval_start: now,
        last_result: Value::Null,
        last_failure: Value::Null,
    };
    let user = package::context::merge(&ready.sidecar.context, &own);
    Call {
        artifact: Arc::clone(&ready.artifact),
        task,
        context: context::of_call(user, &facts),
        facts: RunFacts {
            execution_id: facts.execution_id,
            run_id: facts.run_id,
            attempt: 1,
            is_recovery: false,
            scheduled_for: now,
            original_scheduled_time: now,
        },
        grants: Arc::clone(&ready.sidecar.grants),
        limits,
        stop: StopSignal::default(),
    }
}

fn print(
    common: &Common,
    report: &Report,
    name: &str,
    digest: &ArtifactDigest,
    artifact: Option<&Arc<Artifact>>,
) -> Result<(), Failure> {
    if common.json {
        let mut value = json!(report);
        value["package"] = json!({
            "name": name,
            "digest": digest,
            "form": artifact.map(|artifact| artifact.form),
        });
        return output::json_out(&value);
    }
    for entry in &report.logs {
        let said = printable(&entry.message);
        output::talk(&format!("{} {:5} {said}", entry.at, entry.level));
    }
    for text in [&report.stdout, &report.stderr] {
        if !text.is_empty() {
            output::talk(&printable(text.trim_end()));
        }
    }
    if let Some(failure) = &report.failure {
        output::talk(&format!(
            "{}: {}",
            failure.kind,
            printable(&failure.message)
        ));
    }
    let usage = report.usage;
    output::talk(&format!(
        "{} in {:.1} ms ({:.1} ms on a processor), {} of memory",
        report.outcome,
        usage.wall_ms,
        usage.cpu_ms,
        bytesize::ByteSize::b(usage.memory_peak_bytes)
    ));
    match &report.output {
        Some(value) => output::line(&printable(&format!("{value:#}"))),
        None => Ok(()),
    }
}
