//! Packages and their versions, as records.

use bytesize::ByteSize;
use serde::Serialize;
use serde_json::Value;

use crate::Common;
use crate::output::{self, Failure, Field, Record};
use campanile_engine::approval::approve_command;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_package::{Manifest, grant_record};
use campanile_store::package_versions::{self, Version, VersionDecision};
use campanile_store::packages::{PackageRow, PackageState};
use campanile_store::{Tx, schedules};

/// A package.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct PackageRecord {
    name: String,
    state: PackageState,
    /// The active version. Null when no file of this name was ever accepted.
    digest: Option<ArtifactDigest>,
    /// `typed_component` or `core_module_with_wit`.
    form: Option<String>,
    size_bytes: Option<i64>,
    /// When a host last loaded the active version.
    loaded_at: Option<Timestamp>,
    /// The version of the newest file, when it is not active.
    pending_digest: Option<ArtifactDigest>,
    pending_since: Option<Timestamp>,
    /// Since when no live host has the package.
    missing_since: Option<Timestamp>,
    /// Why the newest file, or its sidecar, cannot be used.
    rejection: Option<String>,
    rejected_at: Option<Timestamp>,
}

/// A package with its manifest, schedules, grants and versions.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct PackageDetail {
    #[serde(flatten)]
    package: PackageRecord,
    manifest: Value,
    /// The names of its schedules.
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
}

impl From<&PackageRow> for PackageRecord {
    fn from(row: &PackageRow) -> PackageRecord {
        PackageRecord {
            name: row.name.clone(),
            state: row.state(),
            digest: row.digest.clone(),
            form: row.form.clone(),
            size_bytes: row.size_bytes,
            loaded_at: row.loaded_at,
            pending_digest: row.pending_digest.clone(),
            pending_since: row.pending_since,
            missing_since: row.missing_since,
            rejection: row.rejection.clone(),
            rejected_at: row.rejected_at,
        }
    }
}

impl Record for PackageRecord {
    fn fields() -> Vec<Field<PackageRecord>> {
        let short = |digest: &Option<ArtifactDigest>| {
            let digest = digest.as_ref().map(ArtifactDigest::short);
            digest.unwrap_or_default().to_owned()
        };
        vec![
            Field::new("name"),
            Field::new("state"),
            Field::new("digest").only_detail(),
            Field::new("digest")
                .text(move |package: &PackageRecord| short(&package.digest))
                .only_list(),
            Field::new("pending_digest").only_detail(),
            Field::new("pending_digest")
                .text(move |package: &PackageRecord| short(&package.pending_digest))
                .only_list(),
            Field::new("pending_since").only_detail(),
            Field::new("form"),
            Field::new("size").text(|package: &PackageRecord| match package.size_bytes {
                Some(size) => ByteSize::b(size.unsigned_abs()).to_string(),
                None => String::new(),
            }),
            Field::new("loaded_at"),
            Field::new("missing_since").only_detail(),
            Field::new("rejection"),
            Field::new("rejected_at").only_detail(),
        ]
    }
}

impl Record for PackageDetail {
    fn fields() -> Vec<Field<PackageDetail>> {
        let package = PackageRecord::fields().into_iter();
        let package = package.map(|field| field.of(|detail: &PackageDetail| &detail.package));
        let grants = |detail: &PackageDetail| {
            let lines = detail.grants.iter();
            let lines = lines.map(|grant| grant_record::shown(&grant.to_string()));
            lines.collect::<Vec<_>>().join("\n")
        };
        let kept = |detail: &PackageDetail| {
            let versions = detail.versions.len();
            format!("{} in {versions} versions", ByteSize::b(detail.bytes_kept))
        };
        let rest = [
            Field::new("grants").text(grants),
            Field::new("schedules"),
            Field::new("kept").text(kept),
        ];
        package.chain(rest).collect()
    }

    fn print_details(&self) -> Result<(), Failure> {
        output::line("")?;
        output::table(&self.versions)?;
        output::line("\nmanifest")?;
        output::line(&format!("{:#}", self.manifest))
    }
}

impl Record for VersionRecord {
    fn fields() -> Vec<Field<VersionRecord>> {
        let size = |record: &VersionRecord| {
            let bytes = record.version.size_bytes.unsigned_abs();
            ByteSize::b(bytes).to_string()
        };
        vec![
            Field::new("digest")
                .text(|record: &VersionRecord| record.version.digest.short().to_owned()),
            Field::new("state"),
            Field::new("name"),
            Field::new("version"),
            Field::new("form"),
            Field::new("size").text(size),
            Field::new("first_seen_at"),
            Field::new("activated_at"),
            Field::new("decided_at"),
            Field::new("decided_by"),
            Field::new("note"),
        ]
    }
}

impl VersionRecord {
    fn new(row: &PackageRow, version: Version) -> VersionRecord {
        let manifest = Manifest::from_stored(&row.name, &version.manifest);
        VersionRecord {
            state: state(row, &version),
            name: manifest.name,
            manifest_version: manifest.version,
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

pub(crate) fn list(common: &Common, rows: &[PackageRow]) -> Result<(), Failure> {
    let records: Vec<PackageRecord> = rows.iter().map(PackageRecord::from).collect();
    output::list(&records, common.json)?;
    if common.json {
        return Ok(());
    }
    for package in records {
        if let (PackageState::PendingApproval, Some(digest)) =
            (package.state, &package.pending_digest)
        {
            output::talk(&format!(
                "hint: `campanile package diff {0}` shows the pending version; `{1}` approves it, \
                 `campanile package reject {0}` rejects it",
                package.name,
                approve_command(&package.name, digest)
            ));
        }
    }
    Ok(())
}

pub(crate) async fn show(common: &Common, tx: &mut Tx, row: &PackageRow) -> Result<(), Failure> {
    let schedules = schedules::list(tx, None, Some(&row.name)).await?;
    let versions = package_versions::of_package(tx, &row.name).await?;
    let bytes = versions
        .iter()
        .map(|version| version.size_bytes.unsigned_abs());
    let grants = row.grants.lines().map(serde_json::from_str);
    let detail = PackageDetail {
        package: PackageRecord::from(row),
        manifest: serde_json::from_str(&row.manifest).unwrap_or_default(),
        schedules: schedules
            .into_iter()
            .map(|schedule| schedule.definition.name)
            .collect(),
        grants: grants.filter_map(Result::ok).collect(),
        bytes_kept: bytes.sum(),
        versions: versions
            .into_iter()
            .map(|version| VersionRecord::new(row, version))
            .collect(),
    };
    output::show(&detail, common.json)
}
