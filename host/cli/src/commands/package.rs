//! `campanile package`: the packages in the hosts' folders, and which version of each is active.
//!
//! The commands change the database directly; a host that serves it follows within a second.

pub(crate) mod compare;
pub(crate) mod record;
pub(crate) mod signing;

use clap::{Args, Subcommand};

use super::schedule::By;
use crate::output::{self, Record, Result};
use crate::{Common, approval_key, watch};
use campanile_control::orders::packages::{
    ActivationRequest, Approve, DecisionRequest, Reject, RemovePackage, RollBack,
};
use campanile_control::questions::packages::{GetPackage, ListPackages};
use campanile_control::records::package::DecisionReport;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::size_rounded;
use campanile_package::requests::list_requests;

#[derive(Subcommand)]
pub(crate) enum Package {
    /// List all packages that a host has ever seen
    #[command(arg = watch::arg())]
    List,
    /// Show one package: its manifest, its grants, its schedules and its versions
    Show {
        /// The package's name: its file name without .wasm
        name: String,
    },
    /// Show what changes from one version to another
    Diff(compare::Compare),
    /// Activate the pending version, or one that was rejected; its grants do not change
    Approve(Activation),
    /// Reject the pending version, until it is approved or the file changes
    Reject(Pending),
    /// Activate a former version, and reject the file in the folder until it is approved or changes
    #[command(mut_arg("digest", |digest| digest.long("to").help(FORMER)))]
    Rollback(Activation),
    /// Remove a package whose file is gone: its schedules end, and its code leaves the database
    Remove {
        /// The package's name: its file name without .wasm
        name: String,
        #[command(flatten)]
        order: RemovePackage,
        #[command(flatten)]
        by: By,
    },
    /// Make a key for sealing approvals on all hosts of a database, and reseal the valid ones with it
    ApprovalKey(approval_key::MakeKey),
    /// Make a key pair for signatures of packages
    Keygen(signing::Keygen),
    /// Sign a package
    Sign(signing::Sign),
    /// Verify the signature of a package
    Verify(signing::Verify),
}

/// What the option `--to` of `rollback` is.
const FORMER: &str =
    "The first digits of the former version's digest [default: the version that was active before]";

#[derive(Args)]
pub(crate) struct Pending {
    /// The package's name: its file name without .wasm
    name: String,
    #[command(flatten)]
    decision: DecisionRequest,
    #[command(flatten)]
    by: By,
}

#[derive(Args)]
pub(crate) struct Activation {
    /// The package's name: its file name without .wasm
    name: String,
    #[command(flatten)]
    decision: ActivationRequest,
    #[command(flatten)]
    by: By,
}

impl Package {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Package::List => {
                let source = common.source().await?;
                let all = source.list(ListPackages::default(), i64::MAX).await?;
                record::list(common, &all.rows)
            }
            Package::Show { name } => common.print_answer(&name, &GetPackage {}).await,
            Package::Diff(compare) => compare.run(common).await,
            Package::Approve(Activation { name, decision, by }) => {
                common.print(&common.order(&name, &Approve(decision), &*by.by).await?)
            }
            Package::Reject(Pending { name, decision, by }) => {
                common.print(&common.order(&name, &Reject(decision), &*by.by).await?)
            }
            Package::Rollback(Activation { name, decision, by }) => {
                common.print(&common.order(&name, &RollBack(decision), &*by.by).await?)
            }
            Package::Remove { name, order, by } => remove(common, &name, order, &by.by).await,
            Package::ApprovalKey(make) => make.run(common).await,
            Package::Keygen(keygen) => keygen.run(common),
            Package::Sign(sign) => sign.run(common),
            Package::Verify(verify) => verify.run(common),
        }
    }
}

async fn remove(common: &Common, name: &str, order: RemovePackage, by: &str) -> Result {
    let removed = common.order(name, &order, by).await?;
    let mut text = format!(
        "removed {name}: {} of code",
        size_rounded(removed.bytes.unsigned_abs())
    );
    if !removed.schedules.is_empty() {
        text += &format!("; ended {}", removed.schedules.join(", "));
    }
    if removed.history_kept {
        text += "; its versions stay on record";
    }
    common.print_report(&removed, &text)?;
    match common.client()? {
        Some(_) => Ok(()),
        None => note_sidecar(common, name),
    }
}

/// Tell the operator about a sidecar on this machine: it grants again when the package's file comes back.
fn note_sidecar(common: &Common, name: &str) -> Result {
    let sidecar = common.config()?.files.plugins.join(format!("{name}.toml"));
    if sidecar.exists() {
        output::print_message!(
            "note: {} is still there; delete it, or it applies again when {name}.wasm comes back",
            sidecar.display()
        );
    }
    Ok(())
}

impl Record for DecisionReport {
    fn print(&self) -> Result {
        let (name, decided) = (&self.package, &self.decided);
        let version = format!("{name} {}", decided.digest.short());
        let before = decided.before.as_ref().map(ArtifactDigest::short);
        output::print_line(&match (&*self.done, before) {
            ("approved", _) if decided.before.as_ref() == Some(&decided.digest) => {
                format!("approved {version}, which is active")
            }
            ("approved", Some(before)) => format!("approved {version}, which replaces {before}"),
            ("approved", None) => format!("approved {version}, its first active version"),
            ("rejected", Some(before)) => format!("rejected {version}, {before} stays active"),
            ("rejected", None) => format!("rejected {version}, no version is active"),
            (_, before) => format!(
                "rolled {name} back to {}, {} is not active any more",
                decided.digest.short(),
                before.unwrap_or("no version")
            ),
        })?;
        if !decided.denied.is_empty() {
            output::print_line!("not granted: {}", list_requests(&decided.denied))?;
            output::print_sidecar_lines(name, &decided.denied)?;
        }
        for warning in &self.warnings {
            output::print_message!("warning: {warning}");
        }
        if decided.is_missing {
            output::print_message!(
                "note: no live host has `{name}`; the decision applies when its file is back"
            );
        }
        Ok(())
    }
}
