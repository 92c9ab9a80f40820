//! `campanile task`: run or check a task in the sandbox, without a database.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::calls::{close_to_limit, log_lines};
use super::schedule::read_context;
use super::serve;
use crate::config::Config;
use crate::output::{self, ErrorCode, Failure, Record, Result, failed, refused};
use crate::{Common, folder_of};
use campanile_engine::run::secrets::{SecretError, Vault};
use campanile_model::clock::Clock;
use campanile_model::ids::ArtifactDigest;
use campanile_model::json_text::JsonObject;
use campanile_model::text::{self, printable_line, printable_lines};
use campanile_model::time_text::GivenTime;
use campanile_package::{
    self, HostRules, Manifest, OpenError, Package, VersionPolicy, grant_record, limits,
};
use campanile_sandbox::{
    Form, Grants, MEMORY_BYTES_LEAST, OutboxMessage, Outcome, Replies, Report, Secrets, Time,
};
use campanile_trial::{self, Stage, Subject};

mod call_input;
pub(crate) mod check;
mod replies;

use call_input::CallInput;
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
    /// The sidecar to apply [default: the one beside the file, if the file is in the plugins folder]
    #[arg(long, value_name = "FILE")]
    sidecar: Option<PathBuf>,
    /// Apply no sidecar
    #[arg(long, conflicts_with = "sidecar")]
    no_sidecar: bool,
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
    /// The slot of the run, such as 2026-11-21T08:00:00Z or "yesterday 14:00" [default: now]
    #[arg(long, value_name = "TIME")]
    slot: Option<GivenTime>,
    /// The time of the task's clock when it starts [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<GivenTime>,
    /// The number of this attempt
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    attempt: i64,
    /// Run the task as a recovery: an earlier run was lost
    #[arg(long)]
    recovery: bool,
}

#[derive(Args)]
pub(crate) struct Run {
    /// The .wasm file
    file: PathBuf,
    #[command(flatten)]
    call: Call,
}

/// A call of a task of a file.
#[derive(Args)]
pub(crate) struct Call {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    input: CallInput,
    /// A JSON file with the replies to granted HTTP requests: a list of
    /// {"request": "POST https://host/path", "status": 200, "headers": {}, "body": …} [default: use the network]
    #[arg(long, value_name = "FILE")]
    replies: Option<PathBuf>,
}

impl Task {
    pub async fn run(self, common: &Common) -> Result {
        let config = common.config()?;
        match self {
            Task::Run(run) => run.call.run(&run.file, common, &config).await,
            Task::Check(check) => check.run(common, &config).await,
        }
    }
}

impl Call {
    /// Check what needs no file: the context and the replies.
    pub(crate) fn check(&self) -> Result {
        self.task.own_context()?;
        self.replies.as_deref().map(Script::read).transpose()?;
        Ok(())
    }

    /// Returns the named sidecar.
    pub(crate) fn sidecar(&self) -> Option<&Path> {
        self.task.sidecar.as_deref()
    }

    /// Run the task of `file` once, and print the report. An error is a failure of the call, too.
    pub(crate) async fn run(&self, file: &Path, common: &Common, config: &Config) -> Result {
        let script = self.replies.as_deref().map(Script::read).transpose()?;
        let script = script.map(Arc::new);
        let (subject, package, sidecar) = self.task.open(file, common, config).await?;
        if let Some(path) = sidecar.as_ref().filter(|_| !common.json) {
            print_grants(path, &package);
        }
        let mut stage = self.task.stage(file, &package, config)?;
        self.input
            .add_to(&mut stage, &package, config, &subject.sandbox)?;
        stage.replies = script.clone().map(|script| script as Arc<dyn Replies>);
        let report = match secrets(&stage.grants, config).await {
            Ok(secrets) => {
                stage.secrets = secrets;
                let call = campanile_trial::call(&subject, &stage);
                call.await.map_err(io_failure)?
            }
            Err(error) => Report::without_call(Outcome::HostError, error.to_string()),
        };
        let unanswered = script.map(|script| script.unanswered(&stage.secrets));
        let report = TaskReport {
            messages: report.uncommitted.messages.clone(),
            report,
            package: PackageInfo::from(&package),
            sidecar,
            unanswered: unanswered.unwrap_or_default(),
        };
        common.print(&report)?;
        output::check(report.report.outcome == Outcome::Succeeded)
    }
}

fn io_failure(error: std::io::Error) -> Failure {
    failed!("a granted directory cannot be used: {error}")
}

/// Returns the secrets that `grants` name.
async fn secrets(grants: &Grants, config: &Config) -> Result<Secrets, SecretError> {
    let vault = Vault::new(config.secrets.clone());
    vault.values(grants.secret_names()).await
}

impl TaskArgs {
    /// Open the package as a host does. Return what a trial calls, the package, and the sidecar that was applied. Print the
    /// report of a file that is not a valid package.
    ///
    /// The policy of the configuration does not apply: the caller chose the file.
    async fn open(
        &self,
        file: &Path,
        common: &Common,
        config: &Config,
    ) -> Result<(Subject, Package, Option<PathBuf>)> {
        std::fs::metadata(file).map_err(|error| Failure::unreadable(file.display(), &error))?;
        let sidecar = self.applied_sidecar(file, common, config)?;
        let mut config = config.clone();
        config.host.runs_max = 1;
        let loader = serve::loader(&config, &Clock::system())?;
        let rules = HostRules {
            policy: VersionPolicy::default(),
            ..serve::rules(&config, loader.sandbox())
        };
        let opened = campanile_package::open(&*loader, file, sidecar.as_deref(), &rules);
        match or_notice(opened, || say_compiling(file)).await {
            Ok(package) => {
                let subject = Subject {
                    sandbox: Arc::clone(loader.sandbox()),
                    artifact: Arc::clone(&package.artifact),
                    manifest: Arc::clone(&package.manifest),
                };
                Ok((subject, package, sidecar))
            }
            Err(OpenError { digest, message }) => {
                common.print(&TaskReport {
                    messages: Vec::new(),
                    report: Report::without_call(Outcome::Refused, message),
                    package: PackageInfo {
                        name: campanile_package::name_of(file),
                        digest,
                        form: None,
                        manifest: None,
                    },
                    sidecar,
                    unanswered: Vec::new(),
                })?;
                // The report has the message.
                Err(Failure::refused(""))
            }
        }
    }

    /// Returns the path of the sidecar to apply.
    ///
    /// A sidecar grants access to this machine, so it applies only when the operator put it into the plugins folder or
    /// names it. One that came with a downloaded file does not.
    fn applied_sidecar(
        &self,
        file: &Path,
        common: &Common,
        config: &Config,
    ) -> Result<Option<PathBuf>> {
        if self.no_sidecar {
            return Ok(None);
        }
        if let Some(named) = &self.sidecar {
            let path = named.display();
            let place = format_args!("--sidecar {path}");
            std::fs::metadata(named).map_err(|error| Failure::unreadable(place, &error))?;
            return Ok(Some(named.clone()));
        }
        let beside = file.with_extension("toml");
        if beside.symlink_metadata().is_err() {
            return Ok(None);
        }
        if is_in(file, &config.files.plugins) {
            return Ok(Some(beside));
        }
        if !common.json {
            let path = beside.display();
            output::print_message!(
                "note: {path} is not applied, because the file is not in the plugins folder; apply it with --sidecar {path}"
            );
        }
        Ok(None)
    }

    /// Returns the environment of the call, without secrets: the grants of the sidecar, and empty buckets in memory.
    fn stage(&self, file: &Path, package: &Package, config: &Config) -> Result<Stage> {
        let own = self.own_context()?;
        let task = self.task(file, &package.manifest)?;
        let mut limits = package.limits_of(&task);
        limits.timeout = self.timeout.unwrap_or(limits.timeout);
        if let Some(memory) = self.memory {
            let most = config.sandbox.memory_bytes_max;
            let [given, least, allowed] = [memory, MEMORY_BYTES_LEAST, most].map(text::size_text);
            if memory > most {
                return Err(
                    refused!("--memory {given} is more than this host allows, {allowed}")
                        .code(ErrorCode::Refused)
                        .hint("raise `sandbox.memory_max` in the configuration"),
                );
            }
            if memory < MEMORY_BYTES_LEAST {
                return Err(refused!("--memory must be at least {least}, not {given}"));
            }
            limits.memory_bytes_max = memory;
        }
        let sidecar = &package.sidecar;
        Ok(Stage {
            task,
            context_text: campanile_package::context::merge(&sidecar.context, &own),
            program: sidecar.program.clone().unwrap_or_default(),
            grants: Grants::clone(&sidecar.grants),
            limits,
            time: self.now.map_or(Time::Real, |now| Time::StartingAt(now.0)),
            slot: self.slot.map(|slot| slot.0),
            attempt: self.attempt,
            is_recovery: self.recovery,
            ..Stage::default()
        })
    }

    fn own_context(&self) -> Result<JsonObject> {
        let own = read_context(self.context.as_deref())?.unwrap_or_default();
        campanile_package::context::check(&own).map_err(|error| refused!("--context: {error}"))?;
        Ok(own)
    }

    /// Returns the named task of `file`, or the only one.
    fn task(&self, file: &Path, manifest: &Manifest) -> Result<String> {
        let file = file.display();
        let ids: Vec<&str> = manifest.tasks.iter().map(|task| task.id.as_str()).collect();
        let known = ids.join(", ");
        match (&self.task, ids.as_slice()) {
            (Some(task), ids) if ids.contains(&task.as_str()) => Ok(task.clone()),
            (Some(task), _) => {
                let nearest = manifest.nearest_task(task);
                let hint = nearest.map(|nearest| format!("did you mean `{nearest}`?"));
                let failure = refused!("{file} has no task `{task}`; it has {known}");
                Err(failure.hint(hint.unwrap_or_default()))
            }
            (None, [only]) => Ok((*only).to_owned()),
            (None, _) => {
                Err(refused!("{file} has several tasks: {known}").hint("choose one with --task"))
            }
        }
    }
}

/// A load that takes longer is announced: compiling an interpreter takes half a minute, once.
const LONG_LOAD: Duration = Duration::from_secs(1);

/// Wait for `work`, and call `notice` if it takes longer than [`LONG_LOAD`].
async fn or_notice<T>(work: impl Future<Output = T>, notice: impl FnOnce()) -> T {
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(LONG_LOAD) => notice(),
    }
    work.await
}

/// Tell the person at a terminal why nothing happens.
fn say_compiling(file: &Path) {
    if io::stderr().is_terminal() {
        let size = std::fs::metadata(file).map_or(0, |found| found.len());
        output::print_message!(
            "compiling {} ({}); later calls use the cache",
            file.display(),
            text::size_rounded(size)
        );
    }
}

/// Whether the file at `path` is in `folder`, as a host sees it: a link counts where it is, not where it leads.
fn is_in(path: &Path, folder: &Path) -> bool {
    let parent = folder_of(path);
    let folders = parent.canonicalize().ok().zip(folder.canonicalize().ok());
    folders.is_some_and(|(parent, folder)| parent == folder)
}

/// Print which sidecar applies, and what it grants.
fn print_grants(sidecar: &Path, package: &Package) {
    let granted = package.grant_record.text.lines().map(grant_record::shown);
    let granted = match granted.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "nothing".to_owned(),
        granted => granted,
    };
    output::print_message!("note: {} grants {granted}", sidecar.display());
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
            manifest: serde_json::from_str(&package.manifest.description).ok(),
        }
    }
}

/// The report of one call of a task.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct TaskReport {
    #[serde(flatten)]
    report: Report,
    package: PackageInfo,
    /// The sidecar that was applied. Null when there was none.
    sidecar: Option<PathBuf>,
    /// The requests without a reply.
    unanswered: Vec<String>,
    /// The messages of the outbox that a host would deliver. Absent without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<OutboxMessage>,
}

/// Print the requests without a reply.
fn print_unanswered(unanswered: &[String]) {
    for request in unanswered {
        let request = printable_line(request);
        output::print_message!("no reply is given for `{request}`: the connection was refused");
    }
}

impl Record for TaskReport {
    fn print(&self) -> Result {
        let report = &self.report;
        let printed = [
            ("stdout", &*report.stdout, report.stdout_bytes_dropped),
            ("stderr", &*report.stderr, report.stderr_bytes_dropped),
        ];
        for line in log_lines(&report.logs, printed) {
            output::print_message(&line);
        }
        print_unanswered(&self.unanswered);
        for message in &self.messages {
            let request = printable_line(&format!("{} {}", message.method, message.url));
            output::print_message!("a host would deliver the message {}: {request}", message.id);
        }
        if let Some(failure) = &report.failure {
            let message = printable_lines(&failure.message);
            output::print_message!("{}: {message}", failure.kind);
            if let Some(note) = &failure.note {
                output::print_message!("note: {}", printable_lines(note));
            }
        }
        let usage = &report.usage;
        for share in usage.shares.iter().filter(|share| share.is_close()) {
            output::print_message!("warning: {}", close_to_limit(share));
        }
        output::print_message!(
            "{} in {:.1} ms ({:.1} ms of CPU time), {} of memory",
            report.outcome,
            usage.wall_ms,
            usage.cpu_ms,
            text::size_rounded(usage.memory_peak_bytes)
        );
        match &report.output {
            Some(value) => output::print_json(value),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_long_work_is_announced() {
        for (work, expected) in [(Duration::ZERO, 0), (LONG_LOAD * 2, 1)] {
            let mut notices = 0;
            let done = or_notice(tokio::time::sleep(work), || notices += 1);
            done.await;
            assert_eq!(notices, expected, "{work:?}");
        }
    }
}
