//! `campanile package`: the packages in the hosts' folders, and which version of each is active.
//!
//! The commands change the database directly; a host that serves it follows within a second.

pub(crate) mod compare;
pub(crate) mod record;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::schedule::By;
use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::approval::{self, Attribution, PackageError, VersionChange};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_package::requests::{Request, list_requests};
use campanile_store::Tx;
use campanile_store::packages::{self, PackageRow};

#[derive(Subcommand)]
pub(crate) enum Package {
    /// List all packages that a host has ever seen
    List,
    /// Show one package: its manifest, its grants, its schedules and its versions
    Show {
        /// The package's name: its file name without .wasm
        name: String,
    },
    /// Show what changes from one version to another
    Diff(compare::Compare),
    /// Activate the pending version, or one that was rejected; its grants do not change
    Approve(OfPending),
    /// Reject the pending version, until it is approved or the file changes
    Reject(OfPending),
    /// Activate a former version, and reject the file in the folder until it is approved or changes
    Rollback {
        /// The package's name: its file name without .wasm
        name: String,
        /// The first digits of the former version's digest [default: the version that was active before]
        #[arg(long, value_name = "DIGEST")]
        to: Option<String>,
        #[command(flatten)]
        note: Note,
    },
}

#[derive(Args)]
pub(crate) struct OfPending {
    /// The package's name: its file name without .wasm
    name: String,
    /// The first digits of the version's digest; needed to approve when several versions are possible
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    note: Note,
}

/// Who decides, and why.
#[derive(Args)]
pub(crate) struct Note {
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    by: By,
}

impl Note {
    fn order(&self) -> Attribution<'_> {
        Attribution {
            by: &self.by.by,
            note: self.note.as_deref(),
        }
    }
}

/// The result of a decision about a version.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct DecisionReport {
    package: String,
    /// `approved`, `rejected` or `rolled_back`.
    done: &'static str,
    /// The version that the decision is about.
    digest: ArtifactDigest,
    /// The version that was active before.
    before: ArtifactDigest,
    /// Whether no live host has the package.
    missing: bool,
    /// What the active version requests and is not granted.
    denied: Vec<Request>,
    warnings: Vec<String>,
}

impl Package {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        match self {
            Package::List => {
                let db = common.open().await?;
                let rows = packages::list(&mut db.read().await?, None).await?;
                record::list(common, rows)?;
            }
            Package::Show { name } => {
                let db = common.open().await?;
                let mut tx = db.read().await?;
                let row = find(&mut tx, &name).await?;
                record::show(common, &mut tx, row).await?;
            }
            Package::Diff(compare) => compare.run(common).await?,
            Package::Approve(OfPending { name, digest, note }) => {
                let decide = async |tx: &mut Tx, now| {
                    approval::approve(tx, &name, digest.as_deref(), note.order(), now).await
                };
                decide_version(common, &name, "approved", decide).await?;
            }
            Package::Reject(OfPending { name, digest, note }) => {
                let decide = async |tx: &mut Tx, now| {
                    approval::reject(tx, &name, digest.as_deref(), note.order(), now).await
                };
                decide_version(common, &name, "rejected", decide).await?;
            }
            Package::Rollback { name, to, note } => {
                let decide = async |tx: &mut Tx, now| {
                    approval::roll_back(tx, &name, to.as_deref(), note.order(), now).await
                };
                decide_version(common, &name, "rolled_back", decide).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Return the package of that name; the error names the nearest one.
async fn find(tx: &mut Tx, name: &str) -> Result<PackageRow, Failure> {
    match packages::find(tx, name).await? {
        Some(row) => Ok(row),
        None => Err(approval::unknown(tx, name).await?.into()),
    }
}

async fn decide_version(
    common: &Common,
    name: &str,
    done: &'static str,
    decide: impl AsyncFn(&mut Tx, Timestamp) -> Result<VersionChange, PackageError>,
) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let mut tx = db.write().await?;
    let decided = decide(&mut tx, clock.now()).await?;
    tx.commit().await?;
    let warnings = decided.tasks_missing.iter().map(|(schedule, task)| {
        format!("the schedule `{schedule}` launches the task `{task}`, which the active version does not have")
    });
    let report = DecisionReport {
        package: name.to_owned(),
        done,
        warnings: warnings.collect(),
        digest: decided.digest,
        before: decided.before,
        missing: decided.is_missing,
        denied: decided.denied,
    };
    match common.json {
        true => output::print_json(&report),
        false => report.print(),
    }
}

impl DecisionReport {
    fn print(&self) -> Result<(), Failure> {
        let name = &self.package;
        let (digest, before) = (self.digest.short(), self.before.short());
        output::print_line(&match self.done {
            "approved" => format!("approved {name} {digest}, which replaces {before}"),
            "rejected" => format!("rejected {name} {digest}, {before} stays active"),
            _ => format!("rolled {name} back to {digest}, {before} is not active any more"),
        })?;
        if !self.denied.is_empty() {
            output::print_line(&format!("not granted: {}", list_requests(&self.denied)))?;
            output::print_sidecar_lines(name, &self.denied)?;
        }
        for warning in &self.warnings {
            output::print_message(&format!("warning: {warning}"));
        }
        if self.missing {
            output::print_message(&format!(
                "note: no live host has `{name}`; the decision applies when its file is back"
            ));
        }
        Ok(())
    }
}
