//! Packages and their versions as people and programs see them.

use bytesize::ByteSize;
use serde_json::{Value, json};

use crate::Common;
use crate::output::{self, Failure, cell};
use campanile_engine::approval::approve_command;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::printable;
use campanile_package::{Manifest, grant_record};
use campanile_store::package_versions::{self, Version, VersionDecision};
use campanile_store::packages::{PackageRow, PackageState};
use campanile_store::{Tx, schedules};

fn value(row: &PackageRow) -> Value {
    json!({
        "name": row.name,
        "state": row.state(),
        "digest": row.digest,
        "form": row.form,
        "size_bytes": row.size_bytes,
        "loaded_at": row.loaded_at,
        "pending_digest": row.pending_digest,
        "pending_since": row.pending_since,
        "missing_since": row.missing_since,
        "rejection": row.rejection,
        "rejected_at": row.rejected_at,
    })
}

fn short(digest: Option<&ArtifactDigest>) -> String {
    cell(&digest.map(ArtifactDigest::short))
}

pub(super) fn list(common: &Common, rows: Vec<PackageRow>) -> Result<(), Failure> {
    if common.json {
        return output::json_out(&rows.iter().map(value).collect::<Vec<_>>());
    }
    let waiting: Vec<(String, ArtifactDigest)> = rows
        .iter()
        .filter(|row| row.state() == PackageState::PendingApproval)
        .filter_map(|row| Some((row.name.clone(), row.pending_digest.clone()?)))
        .collect();
    output::table(
        [
            "PACKAGE",
            "STATE",
            "IN FORCE",
            "KEPT OUT",
            "FORM",
            "SIZE",
            "LOADED",
            "REJECTION",
        ],
        rows.into_iter().map(|row| {
            [
                row.name.clone(),
                row.state().to_string(),
                short(row.digest.as_ref()),
                short(row.pending_digest.as_ref()),
                cell(&row.form),
                cell(&row.size_bytes.map(|size| ByteSize::b(size.unsigned_abs()))),
                cell(&row.loaded_at),
                row.rejection.unwrap_or_default(),
            ]
        }),
    )?;
    for (name, digest) in waiting {
        output::talk(&printable(&format!(
            "hint: `campanile package diff {name}` shows what waits; then `{}`, or reject it",
            approve_command(&name, &digest)
        )));
    }
    Ok(())
}

/// Where one version of a package stands.
fn standing(row: &PackageRow, version: &Version) -> &'static str {
    let is = |digest: &Option<ArtifactDigest>| digest.as_ref() == Some(&version.digest);
    if is(&row.digest) {
        return "in_force";
    }
    match version.decision {
        Some(VersionDecision::Rejected) => "rejected",
        Some(VersionDecision::RolledBack) => "rolled_back",
        _ if is(&row.pending_digest) => "pending_approval",
        _ if version.activated_at.is_some() => "former",
        _ => "replaced",
    }
}

fn version_value(row: &PackageRow, version: &Version) -> Value {
    let manifest = Manifest::from_stored(&row.name, &version.manifest);
    let mut value = json!(version);
    value["state"] = json!(standing(row, version));
    value["name"] = json!(manifest.name);
    value["version"] = json!(manifest.version);
    value
}

pub(super) async fn show(common: &Common, tx: &mut Tx, row: &PackageRow) -> Result<(), Failure> {
    let own = schedules::list(tx, None, Some(&row.name)).await?;
    let own: Vec<String> = own
        .into_iter()
        .map(|schedule| schedule.definition.name)
        .collect();
    let versions = package_versions::of_package(tx, &row.name).await?;
    let bytes = versions
        .iter()
        .map(|version| version.size_bytes.unsigned_abs());
    let bytes_kept: u64 = bytes.sum();
    let manifest: Value = serde_json::from_str(&row.manifest).unwrap_or_default();
    if common.json {
        let grants = row.grants.lines().map(serde_json::from_str::<Value>);
        let mut value = value(row);
        value["manifest"] = manifest;
        value["schedules"] = json!(own);
        value["grants"] = json!(grants.filter_map(Result::ok).collect::<Vec<_>>());
        value["bytes_kept"] = json!(bytes_kept);
        let versions = versions.iter().map(|version| version_value(row, version));
        value["versions"] = json!(versions.collect::<Vec<_>>());
        return output::json_out(&value);
    }
    let grants: Vec<String> = row.grants.lines().map(grant_record::shown).collect();
    let kept = format!("{} in {} versions", ByteSize::b(bytes_kept), versions.len());
    for (key, value) in [
        ("package", row.name.clone()),
        ("state", row.state().to_string()),
        ("digest", cell(&row.digest)),
        ("form", cell(&row.form)),
        ("loaded", cell(&row.loaded_at)),
        ("kept out", cell(&row.pending_digest)),
        ("since", cell(&row.pending_since)),
        ("missing", cell(&row.missing_since)),
        ("rejection", cell(&row.rejection)),
        ("grants", grants.join("; ")),
        ("schedules", own.join(", ")),
        ("bytes", kept),
    ] {
        output::line(printable(&format!("{key:9} {value}")).trim_end())?;
    }
    output::line("")?;
    output::table(
        [
            "VERSION",
            "STATE",
            "ITS AUTHOR'S",
            "FORM",
            "SIZE",
            "FIRST SEEN",
            "IN FORCE FROM",
            "DECIDED",
            "BY",
            "NOTE",
        ],
        versions.into_iter().map(|version| {
            let manifest = Manifest::from_stored(&row.name, &version.manifest);
            let authors = [manifest.name, manifest.version];
            let authors: Vec<String> = authors.into_iter().flatten().collect();
            [
                version.digest.short().to_owned(),
                standing(row, &version).to_owned(),
                authors.join(" "),
                version.form,
                ByteSize::b(version.size_bytes.unsigned_abs()).to_string(),
                version.first_seen_at.to_string(),
                cell(&version.activated_at),
                cell(&version.decided_at),
                cell(&version.decided_by),
                cell(&version.note),
            ]
        }),
    )?;
    output::line("")?;
    output::line("manifest")?;
    output::line(&printable(&format!("{manifest:#}")))
}
