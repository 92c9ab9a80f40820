//! Packages and their versions, as records.

use serde::Serialize;
use serde_json::Value;

use crate::Common;
use crate::output::{self, Record, Result, optional};
use campanile_engine::approval::approve_command;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::{counted, size_rounded};
use campanile_package::{Manifest, grant_record, signature};
use campanile_store::package_versions::{self, Version, VersionDecision};
use campanile_store::packages::{PackageRow, PackageState};
use campanile_store::{Tx, schedules};

/// The most schedules of a package that are shown. `schedule list` lists them all.
const SCHEDULES_MAX: i64 = 1_000;

/// A package.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct PackageRecord {
    #[serde(flatten)]
    row: PackageRow,
    state: PackageState,
}

/// A package with its manifest, schedules, grants and versions.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct PackageDetail {
    #[serde(flatten)]
    package: PackageRecord,
    manifest: Value,
    /// The names of its schedules, the first thousand by name.
    schedules: Vec<String>,
    /// What its sidecar grants, each as a list of texts.
    grants: Vec<Value>,
    /// The size of all its versions.
    bytes_kept: u64,
    versions: Vec<VersionRecord>,
}

/// A version of a package.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct VersionRecord {
    #[serde(flatten)]
    version: Version,
    /// `active`, `pending_approval`, `rejected`, `replaced`, `former` or `rolled_back`.
    state: &'static str,
    /// The name in the manifest.
    name: Option<String>,
    /// The version in the manifest.
    #[serde(rename = "version")]
    manifest_version: Option<String>,
    /// The id of the trusted key that signed it; null when it has no signature by a trusted key.
    signed_by: Option<String>,
}

impl From<PackageRow> for PackageRecord {
    fn from(row: PackageRow) -> PackageRecord {
        PackageRecord {
            state: row.state(),
            row,
        }
    }
}

impl Record for PackageRecord {
    const LIST: &'static str =
        "name state digest pending_digest form size loaded_at loading_since rejection";

    fn text(&self, key: &str) -> Option<String> {
        let short =
            |digest: &Option<ArtifactDigest>| optional(&digest.as_ref().map(ArtifactDigest::short));
        match key {
            "digest" => Some(short(&self.row.digest)),
            "pending_digest" => Some(short(&self.row.pending_digest)),
            "size" => {
                let size = self.row.size_bytes.map(i64::unsigned_abs);
                Some(optional(&size.map(size_rounded)))
            }
            _ => None,
        }
    }
}

impl Record for PackageDetail {
    const DETAIL: &'static str = "name state digest pending_digest pending_since form size loaded_at missing_since \
        rejection rejected_at loading_since grants schedules kept";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "size" => self.package.text(key),
            "grants" => {
                let grants = self.grants.iter();
                let grants = grants.map(|grant| grant_record::shown(&grant.to_string()));
                Some(grants.collect::<Vec<_>>().join("\n"))
            }
            "kept" => {
                let kept = self.versions.iter();
                let versions = kept.filter(|it| it.version.removed_at.is_none()).count();
                let bytes = size_rounded(self.bytes_kept);
                Some(format!("{bytes} in {}", counted(versions, "version")))
            }
            _ => None,
        }
    }

    fn print(&self) -> Result {
        output::print_detail(self)?;
        output::print_line("")?;
        output::print_table(&self.versions)?;
        output::print_line("\nmanifest")?;
        output::print_line!("{:#}", self.manifest)
    }
}

impl Record for VersionRecord {
    const LIST: &'static str = "digest state name version form size first_seen_at activated_at signed_by decided_at \
        decided_by note";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "digest" => Some(self.version.digest.short().to_owned()),
            "size" => {
                let size = size_rounded(self.version.size_bytes.unsigned_abs());
                Some(match self.version.removed_at {
                    None => size,
                    Some(_) => format!("{size} (removed)"),
                })
            }
            _ => None,
        }
    }
}

impl VersionRecord {
    fn new(row: &PackageRow, version: Version) -> VersionRecord {
        let manifest = Manifest::from_stored(&row.name, &version.manifest);
        VersionRecord {
            state: state(row, &version),
            name: manifest.name,
            manifest_version: manifest.version,
            signed_by: version.signature.as_deref().and_then(signature::signer),
            version,
        }
    }
}

/// Return the state of one version of a package.
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

pub(crate) fn list(common: &Common, rows: Vec<PackageRow>) -> Result {
    let records: Vec<PackageRecord> = rows.into_iter().map(PackageRecord::from).collect();
    common.print_list(&records)?;
    if common.json {
        return Ok(());
    }
    for package in records {
        if let (PackageState::PendingApproval, Some(digest)) =
            (package.state, &package.row.pending_digest)
        {
            output::print_message!(
                "hint: `campanile package diff {0}` shows the pending version; `{1}` approves it, \
                 `campanile package reject {0}` rejects it",
                package.row.name,
                approve_command(&package.row.name, digest)
            );
        }
    }
    Ok(())
}

pub(crate) async fn show(common: &Common, tx: &mut Tx, row: PackageRow) -> Result {
    let schedules = schedules::names_of_package(tx, &row.name, SCHEDULES_MAX).await?;
    let versions = package_versions::of_package(tx, &row.name).await?;
    let kept = versions
        .iter()
        .filter(|version| version.removed_at.is_none());
    let sizes = kept.map(|version| version.size_bytes);
    let grants = row.grants.lines().map(serde_json::from_str);
    let detail = PackageDetail {
        manifest: serde_json::from_str(&row.manifest).unwrap_or_default(),
        schedules,
        grants: grants.filter_map(Result::ok).collect(),
        bytes_kept: sizes.map(i64::unsigned_abs).sum(),
        versions: versions
            .into_iter()
            .map(|version| VersionRecord::new(&row, version))
            .collect(),
        package: PackageRecord::from(row),
    };
    common.print(&detail)
}
