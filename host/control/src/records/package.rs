//! Packages and their versions as records.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admin::approval::{self, PackageError, VersionChange};
use crate::admin::schedule_admin::{self, Holder};
use campanile_model::ids::ArtifactDigest;
use campanile_package::{Manifest, signature};
use campanile_store::package_versions::{self, Version, VersionDecision};
use campanile_store::packages::{self, PackageRow, PackageState};
use campanile_store::{DbError, Origin, Tx, schedules};

/// The most schedules of a package that are shown. `schedule list` lists them all.
const SCHEDULES_MAX: i64 = 1_000;

/// A package.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct PackageRecord {
    #[serde(flatten)]
    pub row: PackageRow,
    pub state: PackageState,
}

/// A package with its manifest, schedules, grants and versions.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct PackageDetail {
    #[serde(flatten)]
    pub package: PackageRecord,
    pub manifest: Value,
    /// The names of its schedules, the first thousand by name.
    pub schedules: Vec<String>,
    /// The schedules that its active version proposes and whose names others have.
    pub unused_proposals: Vec<UnusedProposal>,
    /// What its sidecar grants, each as a list of texts.
    pub grants: Vec<Value>,
    /// The size of all its versions.
    pub bytes_kept: u64,
    pub versions: Vec<VersionRecord>,
}

/// A proposed schedule that isn't used.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct UnusedProposal {
    pub schedule: String,
    pub why: String,
}

/// A version of a package.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct VersionRecord {
    #[serde(flatten)]
    pub version: Version,
    /// `active`, `pending_approval`, `rejected`, `replaced`, `former` or `rolled_back`.
    pub state: Cow<'static, str>,
    /// The name in the manifest.
    pub name: Option<String>,
    /// The version in the manifest.
    #[serde(rename = "version")]
    pub manifest_version: Option<String>,
    /// The id of the trusted key that signed it; null when it has no signature by a trusted key.
    pub signed_by: Option<String>,
}

/// The result of a decision about a version.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct DecisionReport {
    pub package: String,
    /// `approved`, `rejected` or `rolled_back`.
    pub done: Cow<'static, str>,
    #[serde(flatten)]
    pub decided: VersionChange,
    pub warnings: Vec<String>,
}

impl From<PackageRow> for PackageRecord {
    fn from(row: PackageRow) -> PackageRecord {
        PackageRecord {
            state: row.state(),
            row,
        }
    }
}

impl PackageDetail {
    /// Read what belongs to a package.
    pub async fn read(tx: &mut Tx, row: PackageRow) -> Result<PackageDetail, PackageError> {
        let schedules = schedules::names_of_package(tx, &row.name, SCHEDULES_MAX).await?;
        let versions = package_versions::of_package(tx, &row.name).await?;
        let kept = versions
            .iter()
            .filter(|version| version.removed_at.is_none());
        let sizes = kept.map(|version| version.size_bytes);
        let bytes_kept = sizes.map(i64::unsigned_abs).fold(0, u64::saturating_add);
        let grants = row.grants.lines().map(serde_json::from_str);
        let mut records = Vec::with_capacity(versions.len());
        for version in versions {
            records.push(VersionRecord::read(tx, &row, version).await?);
        }
        Ok(PackageDetail {
            manifest: serde_json::from_str(&row.manifest).unwrap_or_default(),
            schedules,
            unused_proposals: unused_proposals(tx, &row).await?,
            grants: grants.filter_map(Result::ok).collect(),
            bytes_kept,
            versions: records,
            package: PackageRecord::from(row),
        })
    }
}

impl VersionRecord {
    async fn read(tx: &mut Tx, row: &PackageRow, version: Version) -> Result<Self, DbError> {
        let stored = package_versions::manifest(tx, &row.name, &version.digest).await?;
        let manifest = Manifest::from_stored(&row.name, &stored.unwrap_or_default());
        Ok(VersionRecord {
            state: Cow::Borrowed(state(row, &version)),
            name: manifest.name.clone(),
            manifest_version: manifest.version.clone(),
            signed_by: version.signature.as_deref().and_then(signature::signer),
            version,
        })
    }
}

impl DecisionReport {
    /// Say what was decided about a version; `done` is one of the words of [`DecisionReport::done`].
    pub fn new(package: String, done: &'static str, decided: VersionChange) -> DecisionReport {
        let warnings = decided.tasks_missing.iter().map(|(schedule, task)| {
            format!("the schedule `{schedule}` launches the task `{task}`, which the active version does not have")
        });
        DecisionReport {
            package,
            done: Cow::Borrowed(done),
            warnings: warnings.collect(),
            decided,
        }
    }
}

/// Returns the package of that name; the error names the nearest one.
pub async fn find(tx: &mut Tx, name: &str) -> Result<PackageRow, PackageError> {
    match packages::find(tx, name).await? {
        Some(row) => Ok(row),
        None => Err(approval::unknown(tx, name).await?),
    }
}

/// Returns the package's proposals whose names are held by others.
async fn unused_proposals(tx: &mut Tx, row: &PackageRow) -> Result<Vec<UnusedProposal>, DbError> {
    let manifest = Manifest::from_stored(&row.name, &row.manifest);
    let proposed = manifest.schedules();
    let names: Vec<&str> = proposed.iter().map(|proposed| &*proposed.name).collect();
    let held = schedule_admin::holders(tx, &names).await?;
    let own = Holder {
        origin: Origin::Package,
        package: row.name.clone(),
    };
    let unused = held.into_iter().filter(|(_, holder)| *holder != own);
    Ok(unused
        .map(|(schedule, holder)| UnusedProposal {
            why: format!("`{schedule}` is {}", holder.text()),
            schedule,
        })
        .collect())
}

fn state(row: &PackageRow, version: &Version) -> &'static str {
    let is = |digest: &Option<ArtifactDigest>| digest.as_ref() == Some(&version.digest);
    if is(&row.digest) {
        return "active";
    }
    match version.decision {
        Some(VersionDecision::Rejected) => "rejected",
        Some(VersionDecision::RolledBack) => "rolled_back",
        _ if is(&row.pending_digest) => "pending_approval",
        _ if version.activated_at.is_some() => "former",
        _ => "replaced",
    }
}
