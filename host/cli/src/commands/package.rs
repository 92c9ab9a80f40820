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
use campanile_control::approval::{self, Attribution};
use campanile_control::orders::packages::RemovePackage;
use campanile_control::records::package::{DecisionReport, PackageDetail, PackageRecord, find};
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::size_rounded;
use campanile_package::requests::list_requests;
use campanile_server::bodies;
use campanile_store::{Tx, packages};

/// How many packages to read per statement.
const READ_AT_ONCE: i64 = 500;

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

impl Package {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Package::List => {
                let records = match common.client()? {
                    Some(client) => client.get(&["packages"]).list(i64::MAX).await?,
                    None => all(&mut common.read().await?).await?,
                };
                record::list(common, &records)
            }
            Package::Show { name } => {
                if let Some(client) = common.client()? {
                    let call = client.get(&["packages", &name]);
                    return common.print(&call.send::<PackageDetail>().await?);
                }
                let mut tx = common.read().await?;
                let row = find(&mut tx, &name).await?;
                common.print(&PackageDetail::read(&mut tx, row).await?)
            }
            Package::Diff(compare) => compare.run(common).await,
            Package::Approve(pending) => pending.decide(common, "approved").await,
            Package::Reject(pending) => pending.decide(common, "rejected").await,
            Package::Rollback { name, to, note } => {
                let digest = to;
                let former = OfPending { name, digest, note };
                former.decide(common, "rolled_back").await
            }
            Package::Remove { name, order, by } => remove(common, &name, order, &by.by).await,
            Package::ApprovalKey(make) => make.run(common).await,
            Package::Keygen(keygen) => keygen.run(common),
            Package::Sign(sign) => sign.run(common),
            Package::Verify(verify) => verify.run(common),
        }
    }
}

async fn all(tx: &mut Tx) -> Result<Vec<PackageRecord>> {
    let mut all: Vec<PackageRecord> = Vec::new();
    loop {
        let after = all.last().map(|record| &*record.row.name);
        let rows = packages::list(tx, None, after, READ_AT_ONCE).await?;
        let is_last = (rows.len() as i64) < READ_AT_ONCE;
        all.extend(rows.into_iter().map(PackageRecord::from));
        if is_last {
            return Ok(all);
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

impl OfPending {
    /// Decide about the version; `done` is what the report says about it.
    async fn decide(self, common: &Common, done: &'static str) -> Result {
        if let Some(client) = common.client()? {
            let body = bodies::DecisionRequest {
                digest: self.digest,
                note: self.note.note,
            };
            let route = match done {
                "approved" => "approve",
                "rejected" => "reject",
                _ => "rollback",
            };
            let call = client.post(&["packages", &self.name, route], &body)?;
            return common.print(&call.send::<DecisionReport>().await?);
        }
        let (name, digest) = (self.name.as_str(), self.digest.as_deref());
        let key = approval_key::of_command(&common.config()?)?;
        let by = Attribution {
            by: &self.note.by.by,
            note: self.note.note.as_deref(),
            key: &key,
        };
        let (mut tx, now) = common.write_with_time().await?;
        let decided = match done {
            "approved" => approval::approve(&mut tx, name, digest, by, now).await?,
            "rejected" => approval::reject(&mut tx, name, digest, by, now).await?,
            _ => approval::roll_back(&mut tx, name, digest, by, now).await?,
        };
        tx.commit().await?;
        common.print(&DecisionReport::new(name.to_owned(), done, decided))
    }
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
