//! `campanile task`: run a task once in the real sandbox, without a database.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::output::{self, Failure};
use super::schedule::read_context;
use super::{Common, serve};
use crate::clock::{Clock, Timestamp};
use crate::config::Config;
use crate::engine::context::{self, Facts};
use crate::engine::workflow;
use crate::package::limits::{self, MEMORY_BYTES_LEAST};
use crate::package::{self, Manifest, Package, Refused};
use crate::strict;
use crate::telemetry::printable;
use crate::wasm::{Call, Limits, Outcome, Report, Sandbox, StopSignal};

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
    /// Wall-clock limit, such as 5s [default: the sidecar's, else the host's (5m) or the package's, if that is less]
    #[arg(long, value_name = "SPAN", value_parser = limits::timeout)]
    timeout: Option<Duration>,
    /// Limit of all memories together, such as 64MiB [default: the sidecar's, else the host's (64MiB)]
    #[arg(long, value_name = "SIZE", value_parser = strict::size)]
    memory: Option<u64>,
}

impl Task {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let Task::Run(run) = self;
        let config = common.config()?;
        run.run(common, &config).await
    }
}

impl Run {
    async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let own = read_context(self.context.as_deref())?.unwrap_or_default();
        package::context::check(&own)
            .map_err(|error| Failure::refused(format!("--context: {error}")))?;
        std::fs::metadata(&self.file)
            .map_err(|error| Failure::refused(format!("{}: {error}", self.file.display())))?;
        let clock = Clock::system();
        let mut settings = config.sandbox_settings();
        settings.calls_max = 1;
        let sandbox = Sandbox::new(settings, clock.clone())
            .map_err(|error| Failure::failed(error.to_string()))?;
        let sandbox = Arc::new(sandbox);
        let package = match package::open(&sandbox, &self.file, &serve::rules(config)).await {
            Ok(package) => package,
            Err(Refused { digest, message }) => {
                let report = Report::without_call(Outcome::Refused, message);
                let of = json!({
                    "name": package::name_of(&self.file),
                    "digest": digest,
                    "form": null,
                    "manifest": null,
                });
                print(common, &report, of)?;
                return Ok(ExitCode::from(2));
            }
        };
        let task = self.task(&package.manifest)?;
        let limits = self.limits(&package, &task, config)?;
        let missing = package.manifest.missing_grants(&package.sidecar.grants);
        let report = if missing.is_empty() {
            let now = clock.now();
            let call = call(&package, task, own, limits, now);
            as_a_launch(sandbox.run(call).await)
        } else {
            Report::without_call(Outcome::Denied, missing.join("; "))
        };
        let of = json!({
            "name": package.name,
            "digest": package.digest,
            "form": package.artifact.form,
            "manifest": package.manifest.description,
        });
        print(common, &report, of)?;
        Ok(match report.outcome {
            Outcome::Succeeded => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
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

    fn limits(&self, package: &Package, task: &str, config: &Config) -> Result<Limits, Failure> {
        let mut limits = package.limits_of(task);
        limits.timeout = self.timeout.unwrap_or(limits.timeout);
        if let Some(memory) = self.memory {
            let most = config.sandbox.memory_bytes_max;
            if memory > most {
                return Err(Failure::refused(format!(
                    "--memory {} is more than this host allows, {}",
                    strict::size_text(memory),
                    strict::size_text(most)
                ))
                .hint("raise `sandbox.memory_max` in the configuration"));
            }
            if memory < MEMORY_BYTES_LEAST {
                return Err(Failure::refused(format!(
                    "--memory must be at least {}, not {}",
                    strict::size_text(MEMORY_BYTES_LEAST),
                    strict::size_text(memory)
                )));
            }
            limits.memory_bytes_max = memory;
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

/// The call that a manual launch at `now` would make.
fn call(
    package: &Package,
    task: String,
    own: Map<String, Value>,
    limits: Limits,
    now: Timestamp,
) -> Call {
    let facts = Facts::by_hand(now);
    let user = package::context::merge(&package.sidecar.context, &own);
    Call {
        artifact: Arc::clone(&package.artifact),
        task,
        context: context::of_call(user, &facts),
        facts: facts.of_run(now),
        grants: package.grants(),
        limits,
        stop: StopSignal::default(),
    }
}

/// Print a report; `of` says of which package.
fn print(common: &Common, report: &Report, of: Value) -> Result<(), Failure> {
    if common.json {
        let mut value = json!(report);
        value["package"] = of;
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
