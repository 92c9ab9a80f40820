//! The versions of packages that a host has seen, and what people decided about them.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::statements;
use super::types::storable;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
pub use campanile_model::status::VersionDecision;

/// One version of one package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct Version {
    pub digest: ArtifactDigest,
    /// `typed_component` or `core_module_with_wit`.
    pub form: String,
    pub size_bytes: i64,
    /// When retention removed the bytes; none while the database has them.
    pub removed_at: Option<Timestamp>,
    pub first_seen_at: Timestamp,
    /// When it last became active; none when it never was.
    pub activated_at: Option<Timestamp>,
    pub decision: Option<VersionDecision>,
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<String>,
    pub note: Option<String>,
    /// The text of its signature file, if a key that a host trusted made it.
    #[serde(skip)]
    pub signature: Option<String>,
}

/// Who decides something, and why.
#[derive(Debug, Clone, Copy)]
pub struct Attribution<'a> {
    pub by: &'a str,
    pub note: Option<&'a str>,
}

macro_rules! set_decision {
    () => {
        "UPDATE package_version SET decision = $3, decided_at = $4, decided_by = $5, note = $6
        WHERE package = $1 AND "
    };
}

statements! {
    /// Record a decision about one version, in place of an earlier one.
    pub async fn decide(package: &str, digest: &ArtifactDigest, decision: VersionDecision, attribution: Attribution<'_>, now: Timestamp) -> () = run
        concat!(set_decision!(), "digest = $2")
        => [package, digest, decision, now, storable(attribution.by), attribution.note.map(storable)];

    /// Record that a person rolled back from the active version, the pending one, and those activated after `digest`; not
    /// from `digest`.
    ///
    /// A host whose folder still holds one of them must not activate it when it comes back. A rejected version stays
    /// rejected.
    pub async fn block_newer(package: &str, digest: &ArtifactDigest, attribution: Attribution<'_>, now: Timestamp) -> () = run
        concat!(set_decision!(), "digest <> $2 AND (decision IS NULL OR decision = 'approved')
          AND (activated_at > (SELECT v.activated_at FROM package_version v WHERE v.package = $1 AND v.digest = $2)
            OR digest IN (SELECT p.pending_digest FROM package p WHERE p.name = $1)
            OR digest IN (SELECT p.digest FROM package p WHERE p.name = $1))")
        => [package, digest, VersionDecision::RolledBack, now, storable(attribution.by), attribution.note.map(storable)];

    /// Return what a person decided about a version; none when there is no decision or no such version.
    pub async fn decision(package: &str, digest: &ArtifactDigest) -> Option<VersionDecision> = value
        "SELECT decision FROM package_version WHERE package = $1 AND digest = $2 AND decision IS NOT NULL";

    /// Record a version, if it is new, and its signature, if it has one. The package and the artifact must exist.
    pub(super) async fn add(package: &str, digest: &ArtifactDigest, manifest: &str, signature: Option<&str>, now: Timestamp) -> () = run
        "INSERT INTO package_version (package, digest, manifest, signature, first_seen_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (package, digest) DO UPDATE SET signature = excluded.signature
        WHERE excluded.signature IS NOT NULL AND excluded.signature IS DISTINCT FROM package_version.signature";

    /// Return the text of the signature of a version; none when it has none.
    pub async fn signature(package: &str, digest: &ArtifactDigest) -> Option<String> = value
        "SELECT signature FROM package_version WHERE package = $1 AND digest = $2 AND signature IS NOT NULL";

    /// Record that a version becomes active, before it does. Does nothing when it is active.
    // Runs before the package's row changes: a host that starts with the active version changes nothing.
    pub(super) async fn record_activation(package: &str, digest: &ArtifactDigest, now: Timestamp) -> () = run
        "UPDATE package_version SET activated_at = $3 WHERE package = $1 AND digest = $2
        AND NOT EXISTS (SELECT 1 FROM package p WHERE p.name = $1 AND p.digest = $2)";

    /// Returns the manifest of a version, JSON.
    pub async fn manifest(package: &str, digest: &ArtifactDigest) -> Option<String> = value
        "SELECT manifest FROM package_version WHERE package = $1 AND digest = $2";

    /// Returns all versions of a package, in the order in which they were first seen. Their manifests may take gigabytes together.
    pub async fn of_package(package: &str) -> Vec<Version> = rows
        "SELECT v.digest, a.form, a.size_bytes, a.removed_at,
            v.first_seen_at, v.activated_at, v.decision, v.decided_at, v.decided_by, v.note, v.signature
        FROM package_version v JOIN artifact a ON a.digest = v.digest
        WHERE v.package = $1 ORDER BY v.first_seen_at, v.digest";

    /// Return the versions that no host may use, each with its package's name.
    pub async fn blocked() -> Vec<(String, ArtifactDigest)> = rows
        "SELECT v.package, v.digest FROM package_version v JOIN package p ON p.name = v.package
        WHERE v.decision IN ('rejected', 'rolled_back') AND p.digest <> v.digest";

    /// Return when a person last decided about any version.
    pub async fn last_decided_at() -> Option<Timestamp> = one_value
        "SELECT max(decided_at) FROM package_version";
}
