//! `campanile task`: run or check a task in the sandbox, without a database.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::run::close_to_limit;
use super::schedule::read_context;
use super::serve;
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure};
use campanile_engine::secrets::{SecretError, Vault};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::ArtifactDigest;
use campanile_model::text;
use campanile_model::text::{printable_line, printable_lines};
use campanile_package::limits;
use campanile_package::{self, Manifest, OpenError, Package};
use campanile_sandbox::{
    Form, Grants, Limits, MEMORY_BYTES_LEAST, Outcome, Replies, Report, Sandbox, Time,
};
use campanile_trial::{self, Access, Directory, Stage, Subject};

pub(crate) mod check;
mod replies;

pub(crate) use check::Check;
use replies::Script;

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Run one task of a .wasm file with the grants of its sidecar
    Run(Run),
    /// Report what a .wasm file imports, requests and is granted, and whether its task is idempotent
    Check(Check),
}

/// The task to call, and the conditions of the call.
#[derive(Args)]
struct TaskArgs {
    /// The .wasm file
    file: PathBuf,
    /// The task to run; needed when the package has several
    #[arg(long)]
    task: Option<String>,
    /// The task's context: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    /// The time limit, such as 5s [default: the sidecar's, else the lesser of the host's (5m) and the package's]
    #[arg(long, value_name = "SPAN", value_parser = limits::timeout)]
    timeout: Option<Duration>,
    /// The memory limit, such as 64MiB [default: the sidecar's, else the host's (64MiB)]
    #[arg(long, value_name = "SIZE", value_parser = text::size)]
    memory: Option<u64>,
    /// The slot of the run, as an RFC 3339 time [default: now]
    #[arg(long, value_name = "TIME")]
    slot: Option<Timestamp>,
    /// The time of the task's clock when it starts, as an RFC 3339 time [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// The number of this attempt
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    attempt: i64,
    /// Run the task as a recovery: an earlier run was lost
    #[arg(long)]
    recovery: bool,
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    task: TaskArgs,
    /// A JSON file with the replies to granted HTTP requests: a list of
    /// {"request": "POST https://host/path", "status": 200, "headers": {}, "body": …} [default: use the network]
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
        let opened = match self.task.open(config).await? {
            Ok(opened) => opened,
            Err(refused) => return print_refused(common, &self.task.file, refused),
        };
        let mut unanswered = Vec::new();
        let stage = self.task.stage(&opened.package, config).await;
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
        let is_success = report.outcome == Outcome::Succeeded;
        let report = TaskReport {
            report,
            package: PackageInfo::from(&opened.package),
            unanswered,
        };
        report.print(common.json)?;
        Ok(output::exit_code(is_success))
    }
}

/// A package, and the sandbox that runs it.
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

impl TaskArgs {
    /// Open the package as a host does.
    async fn open(&self, config: &Config) -> Result<Result<Opened, OpenError>, Failure> {
        std::fs::metadata(&self.file)
            .map_err(|error| Failure::refused(format!("{}: {error}", self.file.display())))?;
        let clock = Clock::system();
        let mut settings = config.sandbox_settings();
        settings.calls_max = 1;
        let sandbox = Sandbox::new(settings, clock.clone()).map_err(Failure::failed)?;
        let sandbox = Arc::new(sandbox);
        let package = campanile_package::open(&sandbox, &self.file, &serve::rules(config)).await;
        Ok(package.map(|package| Opened {
            sandbox,
            clock,
            package,
        }))
    }

    /// Return the environment of the call: the grants of the sidecar, and empty buckets in memory.
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
            time: self.now.map_or(Time::Real, Time::StartingAt),
            slot: self.slot,
            attempt: self.attempt,
            is_recovery: self.recovery,
            ..Stage::default()
        }))
    }

    /// Return the named task, or the only one.
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

/// The package of a report.
#[derive(Serialize, schemars::JsonSchema)]
struct PackageInfo {
    name: String,
    digest: Option<ArtifactDigest>,
    form: Option<Form>,
    /// The package's description of itself.
    manifest: Option<Value>,
}

impl From<&Package> for PackageInfo {
    fn from(package: &Package) -> PackageInfo {
        PackageInfo {
            name: package.name.clone(),
            digest: Some(package.digest.clone()),
            form: Some(package.artifact.form),
            manifest: Some(package.manifest.description.clone()),
        }
    }
}

impl PackageInfo {
    fn short_digest(&self) -> &str {
        self.digest.as_ref().map_or("", ArtifactDigest::short)
    }
}

/// The report of one call of a task.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct TaskReport {
    #[serde(flatten)]
    report: Report,
    package: PackageInfo,
    /// The requests without a reply.
    unanswered: Vec<String>,
}

/// Print the report of a file that is not a valid package, and return exit code 2.
fn print_refused(common: &Common, file: &Path, refused: OpenError) -> Result<ExitCode, Failure> {
    let OpenError { digest, message } = refused;
    let report = TaskReport {
        report: Report::without_call(Outcome::Refused, message),
        package: PackageInfo {
            name: campanile_package::name_of(file),
            digest,
            form: None,
            manifest: None,
        },
        unanswered: Vec::new(),
    };
    report.print(common.json)?;
    Ok(ExitCode::from(2))
}

/// Print the requests without a reply.
fn print_unanswered(unanswered: &[String]) {
    for request in unanswered {
        let request = printable_line(request);
        output::print_message(&format!(
            "no reply is given for `{request}`: the connection was refused"
        ));
    }
}

impl TaskReport {
    fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return output::print_json(self);
        }
        let TaskReport {
            report, unanswered, ..
        } = self;
        for entry in &report.logs {
            let message = printable_lines(&entry.message);
            output::print_message(&format!("{} {:5} {message}", entry.at, entry.level));
        }
        for (stream, text) in [("stdout", &report.stdout), ("stderr", &report.stderr)] {
            for text in text.lines() {
                output::print_message(&format!("{stream}: {}", printable_line(text)));
            }
        }
        print_unanswered(unanswered);
        if let Some(failure) = &report.failure {
            let message = printable_lines(&failure.text());
            output::print_message(&format!("{}: {message}", failure.kind));
        }
        let usage = &report.usage;
        for share in usage.shares.iter().filter(|share| share.is_close()) {
            output::print_message(&format!("warning: {}", close_to_limit(share)));
        }
        output::print_message(&format!(
            "{} in {:.1} ms ({:.1} ms of CPU time), {} of memory",
            report.outcome,
            usage.wall_ms,
            usage.cpu_ms,
            bytesize::ByteSize::b(usage.memory_peak_bytes)
        ));
        match &report.output {
            Some(value) => output::print_line(&format!("{value:#}")),
            None => Ok(()),
        }
    }
}
