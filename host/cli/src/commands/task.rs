//! `campanile task`: run a task in the real sandbox, once or crashed at every effect, without a database.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::run::close_to_limit;
use super::schedule::read_context;
use super::serve;
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure};
use campanile_engine::secrets::{SecretError, Vault};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::text;
use campanile_model::text::{printable, printable_line, printable_lines};
use campanile_package::limits::{self, MEMORY_BYTES_LEAST};
use campanile_package::{self, Manifest, OpenError, Package};
use campanile_sandbox::{Grants, Limits, Outcome, Replies, Report, Sandbox, Time};
use campanile_trial::{self, Access, Directory, Stage, Subject};

mod check;
mod replies;

pub(crate) use check::Check;
use replies::Script;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Run one task of a .wasm file, with what the sidecar beside it grants
    Run(Run),
    /// Tell what a .wasm file imports, asks for and is granted, and crash its task at every effect
    Check(Check),
}

/// Which task is called, and with what.
#[derive(Args)]
struct Given {
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
    #[arg(long, value_name = "SIZE", value_parser = text::size)]
    memory: Option<u64>,
    /// The slot of the run, an RFC 3339 time [default: now]
    #[arg(long, value_name = "TIME")]
    slot: Option<Timestamp>,
    /// What the task's clock says when it begins, an RFC 3339 time [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// Which call of the task for its launch this is
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    attempt: i64,
    /// Tell the task that an earlier run was lost with its host
    #[arg(long)]
    recovery: bool,
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    given: Given,
    /// What granted HTTP requests are answered: a JSON file with a list of
    /// {"request": "POST https://host/path", "status": 200, "headers": {}, "body": …} [default: by the network]
    #[arg(long, value_name = "FILE")]
    replies: Option<PathBuf>,
}

impl Task {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let config = common.config()?;
        match self {
            Task::Run(run) => run.run(common, &config).await,
            Task::Check(check) => check.run(common, &config).await,
        }
    }
}

impl Run {
    async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let script = self.replies.as_deref().map(Script::read).transpose()?;
        let script = script.map(Arc::new);
        let opened = match self.given.open(config).await? {
            Ok(opened) => opened,
            Err(refused) => return print_refused(common, &self.given.file, refused),
        };
        let mut unanswered = Vec::new();
        let stage = self.given.stage(&opened.package, config).await;
        let report = match stage? {
            Ok(stage) => {
                let stage = Stage {
                    replies: script.clone().map(|script| script as Arc<dyn Replies>),
                    ..stage
                };
                let subject = opened.subject();
                let call = campanile_trial::call(&opened.sandbox, &subject, &stage, &opened.clock);
                let report = call.await.map_err(io_failure)?;
                if let Some(script) = script {
                    unanswered = script.unanswered(&stage.secrets);
                }
                report
            }
            Err(error) => Report::without_call(Outcome::HostError, error.to_string()),
        };
        print(common, &report, of(&opened.package), &unanswered)?;
        Ok(match report.outcome {
            Outcome::Succeeded => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }
}

/// A package, and what it is called in.
struct Opened {
    sandbox: Arc<Sandbox>,
    clock: Clock,
    package: Package,
}

impl Opened {
    fn subject(&self) -> Subject {
        Subject {
            artifact: Arc::clone(&self.package.artifact),
            manifest: Arc::clone(&self.package.manifest),
        }
    }
}

fn io_failure(error: std::io::Error) -> Failure {
    Failure::failed(format!("a granted directory cannot be used: {error}"))
}

impl Given {
    /// The package in the file, as a host would take it.
    async fn open(&self, config: &Config) -> Result<Result<Opened, OpenError>, Failure> {
        std::fs::metadata(&self.file)
            .map_err(|error| Failure::refused(format!("{}: {error}", self.file.display())))?;
        let clock = Clock::system();
        let mut settings = config.sandbox_settings();
        settings.calls_max = 1;
        let sandbox = Sandbox::new(settings, clock.clone())
            .map_err(|error| Failure::failed(error.to_string()))?;
        let sandbox = Arc::new(sandbox);
        let package = campanile_package::open(&sandbox, &self.file, &serve::rules(config)).await;
        Ok(package.map(|package| Opened {
            sandbox,
            clock,
            package,
        }))
    }

    /// What the call meets: the grants of the sidecar, and buckets that are empty and in memory.
    async fn stage(
        &self,
        package: &Package,
        config: &Config,
    ) -> Result<Result<Stage, SecretError>, Failure> {
        let own = read_context(self.context.as_deref())?.unwrap_or_default();
        campanile_package::context::check(&own)
            .map_err(|error| Failure::refused(format!("--context: {error}")))?;
        let task = self.task(&package.manifest)?;
        let limits = self.limits(package, &task, config)?;
        let sidecar = &package.sidecar;
        let vault = Vault::new(config.secrets.clone());
        let secrets = match vault.values(sidecar.grants.secret_names()).await {
            Ok(secrets) => secrets,
            Err(error) => return Ok(Err(error)),
        };
        let mut grants = Grants::clone(&sidecar.grants);
        let directories = std::mem::take(&mut grants.directories);
        let directories = directories.into_iter().map(|granted| Directory {
            guest: granted.guest,
            host: granted.host,
            access: match granted.writable {
                true => Access::Write,
                false => Access::Read,
            },
        });
        Ok(Ok(Stage {
            task,
            context: campanile_package::context::merge(&sidecar.context, &own),
            grants,
            directories: directories.collect(),
            secrets,
            limits,
            time: self.now.map_or(Time::Real, Time::From),
            slot: self.slot,
            attempt: self.attempt,
            is_recovery: self.recovery,
            ..Stage::default()
        }))
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
                    text::size_text(memory),
                    text::size_text(most)
                ))
                .hint("raise `sandbox.memory_max` in the configuration"));
            }
            if memory < MEMORY_BYTES_LEAST {
                return Err(Failure::refused(format!(
                    "--memory must be at least {}, not {}",
                    text::size_text(MEMORY_BYTES_LEAST),
                    text::size_text(memory)
                )));
            }
            limits.memory_bytes_max = memory;
        }
        Ok(limits)
    }
}

/// Of which package a report is.
fn of(package: &Package) -> Value {
    json!({
        "name": package.name,
        "digest": package.digest,
        "form": package.artifact.form,
        "manifest": package.manifest.description,
    })
}

/// Print the report of a file that is no package; exits with 2.
fn print_refused(common: &Common, file: &Path, refused: OpenError) -> Result<ExitCode, Failure> {
    let OpenError { digest, message } = refused;
    let report = Report::without_call(Outcome::Refused, message);
    let of = json!({
        "name": campanile_package::name_of(file),
        "digest": digest,
        "form": null,
        "manifest": null,
    });
    print(common, &report, of, &[])?;
    Ok(ExitCode::from(2))
}

/// Tell of requests that no reply was for.
fn tell_unanswered(unanswered: &[String]) {
    for request in unanswered {
        let request = printable_line(request);
        output::talk(&format!(
            "no reply is for `{request}`: it was answered as if nobody listened there"
        ));
    }
}

/// Print a report; `of` says of which package, `unanswered` which requests no reply was for.
fn print(
    common: &Common,
    report: &Report,
    of: Value,
    unanswered: &[String],
) -> Result<(), Failure> {
    if common.json {
        let mut value = json!(report);
        value["package"] = of;
        value["unanswered"] = json!(unanswered);
        return output::json_out(&value);
    }
    for entry in &report.logs {
        let said = printable_lines(&entry.message);
        output::talk(&format!("{} {:5} {said}", entry.at, entry.level));
    }
    for (stream, text) in [("stdout", &report.stdout), ("stderr", &report.stderr)] {
        for said in text.lines() {
            output::talk(&format!("{stream}: {}", printable_line(said)));
        }
    }
    tell_unanswered(unanswered);
    if let Some(failure) = &report.failure {
        output::talk(&format!(
            "{}: {}",
            failure.kind,
            printable_lines(&failure.message)
        ));
    }
    let usage = &report.usage;
    for share in usage.shares.iter().filter(|share| share.is_close()) {
        output::talk(&format!("warning: {}", close_to_limit(share)));
    }
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
