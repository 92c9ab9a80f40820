//! `campanile task check`: what a package imports, requests and is granted, and whether its task is idempotent.

use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::replies::Script;
use super::{PackageInfo, TaskArgs, io_failure, print_unanswered, secrets};
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure, Record, Result, failed, optional};
use campanile_model::ids::ArtifactDigest;
use campanile_package::grant_record::{self, GrantRecord};
use campanile_package::requests::{Request, denial};
use campanile_sandbox::{self, Outcome};
use campanile_trial::{self, EFFECTS_CRASHED, Idempotence};

#[derive(Args)]
pub(crate) struct Check {
    /// The .wasm file
    file: PathBuf,
    #[command(flatten)]
    task: TaskArgs,
    /// A JSON file with the replies to granted HTTP requests: a list of
    /// {"request": "POST https://host/path", "status": 200, "headers": {}, "body": …} [default: an empty reply with
    /// status 200]
    #[arg(long, value_name = "FILE")]
    replies: Option<PathBuf>,
    /// Crash the task at so many effects; each costs four calls
    #[arg(long, value_name = "N", default_value_t = EFFECTS_CRASHED, value_parser = effects)]
    effects: usize,
    /// Do not call the task
    #[arg(long, conflicts_with = "idempotent")]
    no_call: bool,
    /// Report only whether the task is idempotent
    #[arg(long)]
    idempotent: bool,
}

/// What a package imports, requests and is granted, and whether its task is idempotent.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct CheckReport {
    package: PackageInfo,
    /// The sidecar that was applied. Null when there was none.
    sidecar: Option<PathBuf>,
    imports: Vec<String>,
    /// What the sidecar grants.
    granted: Vec<String>,
    /// What the package requests and is not granted.
    #[serde(rename = "missing")]
    denials: Vec<String>,
    #[serde(skip)]
    missing: Vec<Request>,
    /// The requests without a reply.
    unanswered: Vec<String>,
    /// Null when the task was not called.
    idempotence: Option<IdempotenceReport>,
    /// Whether the task should be called.
    #[serde(skip)]
    is_called: bool,
    #[serde(skip)]
    shows_grants: bool,
}

/// The result of crashing a task at its effects and running it again.
#[derive(Serialize, schemars::JsonSchema)]
struct IdempotenceReport {
    /// Whether the task is idempotent, as far as it was tried.
    holds: bool,
    /// The outcome of a call without a crash.
    outcome: Outcome,
    failure: Option<campanile_sandbox::Failure>,
    #[serde(flatten)]
    found: Idempotence,
}

impl Check {
    pub(crate) async fn run(self, common: &Common, config: &Config) -> Result {
        let replies = self.replies.as_deref().map(Script::read).transpose()?;
        let replies = Arc::new(replies.unwrap_or_default());
        let (subject, package, sidecar) = self.task.open(&self.file, common, config).await?;
        let mut stage = self.task.stage(&self.file, &package, config)?;
        stage.replies = Some(Arc::clone(&replies) as Arc<dyn campanile_sandbox::Replies>);
        let secrets = secrets(&stage.grants, config).await;
        stage.secrets = secrets.map_err(Failure::failed)?;
        let missing = subject.missing(&stage);
        let imports = imports(&self.file)?;
        let mut idempotence = None;
        if !self.no_call && missing.is_empty() {
            let check = campanile_trial::check(&subject, &stage, self.effects);
            let found = check.await.map_err(io_failure)?;
            let report = &found.undisturbed.report;
            idempotence = Some(IdempotenceReport {
                holds: found.holds(),
                outcome: report.outcome,
                failure: report.failure.clone(),
                found,
            });
        }
        let name = package.name.as_str();
        let granted = GrantRecord::of(&package.sidecar.grants);
        let denials = missing.iter().map(|one| denial(name, slice::from_ref(one)));
        let report = CheckReport {
            package: PackageInfo::from(&package),
            sidecar,
            imports,
            granted: granted.text.lines().map(grant_record::shown).collect(),
            denials: denials.collect(),
            missing,
            unanswered: replies.unanswered(&stage.secrets),
            idempotence,
            is_called: !self.no_call,
            shows_grants: !self.idempotent,
        };
        common.print(&report)?;
        let holds = report.idempotence.as_ref().is_none_or(|found| found.holds);
        output::check(holds && (report.missing.is_empty() || self.no_call))
    }
}

fn effects(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a whole number of at least 1".to_owned()),
        Ok(effects) => Ok(effects),
    }
}

/// Returns the interfaces that the file imports.
fn imports(file: &Path) -> Result<Vec<String>> {
    let path = file.display();
    let bytes = std::fs::read(file).map_err(|error| failed!("{path}: {error}"))?;
    let imports = campanile_sandbox::imports_of(&bytes);
    let imports = imports.map_err(|refusal| failed!("{path}: {refusal}"))?;
    Ok(imports.into_iter().collect())
}

impl Record for CheckReport {
    fn print(&self) -> Result {
        if self.shows_grants {
            let (name, form) = (&self.package.name, optional(&self.package.form));
            let digest = self.package.digest.as_ref();
            let digest = digest.map_or("", ArtifactDigest::short);
            output::print_line!("package   {name} {digest} ({form})")?;
            print_section("imports", &self.imports)?;
            print_section("granted", &self.granted)?;
            let needs: Vec<String> = self.missing.iter().map(Request::need).collect();
            print_section("missing", &needs)?;
            output::print_sidecar_lines(name, &self.missing)?;
        }
        print_unanswered(&self.unanswered);
        let Some(IdempotenceReport { found, .. }) = &self.idempotence else {
            if self.is_called {
                output::print_message(
                    "the task was not called: it would be denied what is missing",
                );
            }
            return Ok(());
        };
        let all = found.undisturbed.effects.len();
        if (1..all).contains(&found.tried) {
            output::print_message!(
                "the task was not crashed at {} effects; `--effects {all}` crashes it at all of them",
                all - found.tried
            );
        }
        output::print_line!("{found}")
    }
}

fn print_section(name: &str, lines: &[String]) -> Result {
    if lines.is_empty() {
        return output::print_line!("{name:9} nothing");
    }
    for (place, line) in lines.iter().enumerate() {
        let name = if place == 0 { name } else { "" };
        let line = line.replace('\n', "\n          ");
        output::print_line!("{name:9} {line}")?;
    }
    Ok(())
}
