//! `campanile package`: what the hosts have in their folders, and which version of it is in force.
//!
//! Works on the database directly, also while a host serves it: the host follows within a second.

mod compare;
mod shown;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::schedule::By;
use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::approval::{self, Attribution, PackageError, VersionChange};
use campanile_model::clock::Timestamp;
use campanile_model::text::printable;
use campanile_package::requests::list_requests;
use campanile_store::Tx;
use campanile_store::packages::{self, PackageRow};

#[derive(Subcommand)]
pub(crate) enum Package {
    /// All packages that were ever seen
    List,
    /// One package: what it says of itself, what it is granted, its schedules and its versions
    Show {
        /// The package's name: that of its file without .wasm
        name: String,
    },
    /// What changes from one version to another
    Diff(compare::Compare),
    /// Put the version in force that waits or is kept out, whatever it asks for; it is granted no more than before
    Approve(OfHeld),
    /// Keep the version out that waits, until it is approved or other bytes take its place
    Reject(OfHeld),
    /// Put a former version in force, and keep the file in the folder out until it is approved or other bytes take its
    /// place
    Rollback {
        /// The package's name: that of its file without .wasm
        name: String,
        /// The first digits of the former version's digest [default: the one in force before]
        #[arg(long, value_name = "DIGEST")]
        to: Option<String>,
        #[command(flatten)]
        note: Note,
    },
}

/// What is decided about a version that is not in force.
#[derive(Args)]
pub(crate) struct OfHeld {
    /// The package's name: that of its file without .wasm
    name: String,
    /// Only if it is the version whose digest begins so; to approve without, when another could be meant, is refused
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    note: Note,
}

/// Who decides, and why.
#[derive(Args)]
pub(crate) struct Note {
    /// Why, for those who come after you
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

impl Package {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        match self {
            Package::List => {
                let db = common.open().await?;
                let rows = packages::list(&mut db.read().await?, None).await?;
                shown::list(common, rows)?;
            }
            Package::Show { name } => {
                let db = common.open().await?;
                let mut tx = db.read().await?;
                let row = find(&mut tx, &name).await?;
                shown::show(common, &mut tx, &row).await?;
            }
            Package::Diff(compare) => compare.run(common).await?,
            Package::Approve(OfHeld { name, digest, note }) => {
                let decide = async |tx: &mut Tx, now| {
                    approval::approve(tx, &name, digest.as_deref(), note.order(), now).await
                };
                let decided = decide_in(common, decide).await?;
                let VersionChange { digest, before, .. } = &decided;
                let said = format!(
                    "approved {name} {}, in force in place of {}",
                    digest.short(),
                    before.short()
                );
                tell(common, &name, "approved", &decided, &said)?;
            }
            Package::Reject(OfHeld { name, digest, note }) => {
                let decide = async |tx: &mut Tx, now| {
                    approval::reject(tx, &name, digest.as_deref(), note.order(), now).await
                };
                let decided = decide_in(common, decide).await?;
                let VersionChange { digest, before, .. } = &decided;
                let said = format!(
                    "rejected {name} {}, {} stays in force",
                    digest.short(),
                    before.short()
                );
                tell(common, &name, "rejected", &decided, &said)?;
            }
            Package::Rollback { name, to, note } => {
                let decide = async |tx: &mut Tx, now| {
                    approval::roll_back(tx, &name, to.as_deref(), note.order(), now).await
                };
                let decided = decide_in(common, decide).await?;
                let VersionChange { digest, before, .. } = &decided;
                let said = format!(
                    "rolled {name} back to {}, {} is kept out",
                    digest.short(),
                    before.short()
                );
                tell(common, &name, "rolled_back", &decided, &said)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The package of that name, or the nearest name.
async fn find(tx: &mut Tx, name: &str) -> Result<PackageRow, Failure> {
    match packages::find(tx, name).await? {
        Some(row) => Ok(row),
        None => Err(approval::unknown(tx, name).await?.into()),
    }
}

async fn decide_in(
    common: &Common,
    decide: impl AsyncFn(&mut Tx, Timestamp) -> Result<VersionChange, PackageError>,
) -> Result<VersionChange, Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let mut tx = db.write().await?;
    let decided = decide(&mut tx, clock.now()).await?;
    tx.commit().await?;
    Ok(decided)
}

fn tell(
    common: &Common,
    name: &str,
    done: &str,
    decided: &VersionChange,
    said: &str,
) -> Result<(), Failure> {
    let warnings: Vec<String> = decided
        .tasks_missing
        .iter()
        .map(|(schedule, task)| {
            format!("the schedule `{schedule}` launches the task `{task}`, which the version in force does not have")
        })
        .collect();
    if common.json {
        return output::json_out(&json!({
            "package": name,
            "done": done,
            "digest": decided.digest,
            "before": decided.before,
            "missing": decided.is_missing,
            "denied": decided.denied,
            "warnings": warnings,
        }));
    }
    output::line(&printable(said))?;
    if !decided.denied.is_empty() {
        let denied = list_requests(&decided.denied);
        output::line(&printable(&format!("stays denied: {denied}")))?;
        output::lines_to_add(name, &decided.denied)?;
    }
    for warning in warnings {
        output::talk(&printable(&format!("warning: {warning}")));
    }
    if decided.is_missing {
        output::talk(&printable(&format!(
            "note: `{name}` is in no live host's folder; the decision holds when it is back"
        )));
    }
    Ok(())
}
