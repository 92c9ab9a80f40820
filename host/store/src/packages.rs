//! Packages: what the folders of the live hosts hold, and the bytes that launches refer to.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::package_versions::{self, VersionDecision};
pub use super::sidecars::SidecarSummary;
use super::sql::{run, statements};
use super::types::recorded;
use super::{Result, Tx, sidecars};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId};
use campanile_model::words;

/// A package over all hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct PackageRow {
    pub name: String,
    /// The active version; none when no version was ever active.
    pub digest: Option<ArtifactDigest>,
    /// `typed_component` or `core_module_with_wit`.
    pub form: Option<String>,
    pub size_bytes: Option<i64>,
    /// JSON; empty in a list.
    #[serde(skip)]
    pub manifest: String,
    /// When a host last loaded the active version.
    pub loaded_at: Option<Timestamp>,
    /// What the sidecar that a host published last grants, one a line; empty in a list.
    #[serde(skip)]
    pub grants: String,
    /// The version of the newest file, while it is not active.
    pub pending_digest: Option<ArtifactDigest>,
    pub pending_since: Option<Timestamp>,
    /// What a person decided about the pending version; none while it waits for approval.
    #[serde(skip)]
    pub pending_decision: Option<VersionDecision>,
    /// Set while no live host has the package.
    pub missing_since: Option<Timestamp>,
    /// Why the newest file, or its sidecar, cannot be used.
    pub rejection: Option<String>,
    pub rejected_at: Option<Timestamp>,
    /// Since when a host loads the newest file; set once that has taken a second.
    pub loading_since: Option<Timestamp>,
}

words! {
    /// The state of a package.
    PackageState {
        /// The newest file is the active version.
        Active => "active",
        /// The newest file waits for an approval. An older version is active until a person decides, or none.
        PendingApproval => "pending_approval",
        /// A person activated an older version, and the newest file stays inactive.
        RolledBack => "rolled_back",
        /// The newest file cannot be used, or a person rejected it. An older version is active, or none.
        Rejected => "rejected",
        /// No live host has the package.
        Missing => "missing",
        /// A host loads the first version.
        Loading => "loading",
    }
}

impl PackageRow {
    /// Returns the state of the package.
    pub fn state(&self) -> PackageState {
        let is_pending = self.pending_digest.is_some();
        let was_active = self.digest.is_some();
        match self.pending_decision {
            _ if !was_active && self.loading_since.is_some() => PackageState::Loading,
            _ if !was_active && self.rejection.is_some() => PackageState::Rejected,
            _ if !was_active && !is_pending => PackageState::Missing,
            _ if was_active && self.missing_since.is_some() => PackageState::Missing,
            Some(VersionDecision::RolledBack) => PackageState::RolledBack,
            Some(VersionDecision::Rejected) => PackageState::Rejected,
            _ if is_pending => PackageState::PendingApproval,
            _ if self.rejection.is_some() => PackageState::Rejected,
            _ => PackageState::Active,
        }
    }
}

/// A package's active version.
#[derive(Debug, Clone, FromRow)]
pub struct ActiveVersion {
    pub name: String,
    /// None if no version was ever active.
    pub digest: Option<ArtifactDigest>,
    /// Set while no live host has the package.
    pub missing_since: Option<Timestamp>,
}

/// A package that a host has loaded.
#[derive(Debug, Clone)]
pub struct LoadedPackage<'a> {
    pub name: &'a str,
    pub digest: &'a ArtifactDigest,
    pub form: &'a str,
    pub bytes: &'a [u8],
    pub manifest: &'a str,
    /// The text of the signature file, if a key that the host trusts made it.
    pub signature: Option<&'a str>,
    pub sidecar: SidecarSummary<'a>,
}

/// A query for [`PackageRow`]s, given where their texts come from and which rows to select.
macro_rules! select_packages {
    ($texts:literal, $which:literal) => {
        concat!(
            "SELECT p.name, p.digest, a.form, a.size_bytes, ",
            $texts,
            ", p.loaded_at, p.pending_digest, p.pending_since, v.decision AS pending_decision, p.missing_since, p.rejection,
            p.rejected_at, p.loading_since
        FROM package p LEFT JOIN artifact a ON a.digest = p.digest
        LEFT JOIN package_version v ON v.package = p.name AND v.digest = p.pending_digest ",
            $which
        )
    };
}

statements! {
    const LOCK: &str = "UPDATE package SET name = name WHERE name = $1";
    const PUBLISH: &str = "UPDATE package SET digest = $2, manifest = $3, loaded_at = $4, missing_since = NULL,
            pending_digest = NULL, pending_since = NULL, rejection = NULL, rejected_at = NULL, rejected_by = NULL, rejected_digest = NULL WHERE name = $1";
    const ACTIVATE: &str = "UPDATE package SET digest = $2, loaded_at = $3, pending_digest = $4,
            pending_since = CASE WHEN pending_digest = $4 THEN pending_since WHEN CAST($4 AS TEXT) IS NULL THEN NULL ELSE $3 END,
            rejection = CASE WHEN CAST($4 AS TEXT) IS NULL THEN rejection ELSE NULL END,
            rejected_at = CASE WHEN CAST($4 AS TEXT) IS NULL THEN rejected_at ELSE NULL END,
            rejected_by = CASE WHEN CAST($4 AS TEXT) IS NULL THEN rejected_by ELSE NULL END,
            rejected_digest = CASE WHEN CAST($4 AS TEXT) IS NULL THEN rejected_digest ELSE NULL END,
            manifest = (SELECT v.manifest FROM package_version v WHERE v.package = $1 AND v.digest = $2)
        WHERE name = $1";
    const SET_PENDING: &str = "UPDATE package SET pending_digest = $2,
            pending_since = CASE WHEN pending_digest = $2 THEN pending_since ELSE $3 END,
            rejection = NULL, rejected_at = NULL, rejected_by = NULL, rejected_digest = NULL
        WHERE name = $1";
    const PUBLISH_HOST: &str = "INSERT INTO package_host (package, host_id, digest, pin) VALUES ($1, $2, $3, $4)
        ON CONFLICT (package, host_id) DO UPDATE SET digest = excluded.digest, pin = excluded.pin";
    const FOUND: &str = "UPDATE package SET missing_since = NULL, grants = $2
        WHERE name = $1 AND (missing_since IS NOT NULL OR grants <> $2)";
    const CLEAR_REJECTION: &str = "UPDATE package SET rejection = NULL, rejected_at = NULL, rejected_by = NULL, rejected_digest = NULL
        WHERE name = $1 AND rejected_by = $2";
    const CLEAR_LOADING: &str = "UPDATE package SET loading_since = NULL, loading_by = NULL WHERE name = $1 AND loading_by = $2";
    const CLEAR_LOADS_OF_ENDED: &str = "UPDATE package SET loading_since = NULL, loading_by = NULL
        WHERE loading_by IN (SELECT id FROM host WHERE ended_at IS NOT NULL)";
    const CLEAR_REJECTIONS_OF_ENDED: &str = "UPDATE package SET rejection = NULL, rejected_at = NULL, rejected_by = NULL, rejected_digest = NULL
        WHERE rejected_by IN (SELECT id FROM host WHERE ended_at IS NOT NULL)";
    // A package without any version has its row only for the rejection or the load.
    const DELETE_WITHOUT_VERSION: &str = "DELETE FROM package WHERE digest IS NULL AND rejection IS NULL
        AND loading_since IS NULL
        AND NOT EXISTS (SELECT 1 FROM package_version v WHERE v.package = package.name)";
    const WITHDRAW: &str = "DELETE FROM package_host WHERE package = $1 AND host_id = $2";
    const CLEAR_PENDING_WITHOUT_HOST: &str = "UPDATE package SET pending_digest = NULL, pending_since = NULL
        WHERE name = $1 AND pending_digest IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM package_host h WHERE h.package = package.name)";

    /// Lock the package's row until the transaction ends; create the row if there is none.
    // The update locks the row of a package that exists.
    pub async fn lock_or_create(name: &str) -> () = run
        "INSERT INTO package (name, manifest) VALUES ($1, '{}')
        ON CONFLICT (name) DO UPDATE SET name = excluded.name";

    /// Store the bytes of a package.
    // Replaces bytes that were altered in the database, and brings back bytes that retention removed.
    pub(super) async fn keep_artifact(package: &LoadedPackage<'_>, now: Timestamp) -> () = run
        "INSERT INTO artifact (digest, form, size_bytes, bytes, stored_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (digest) DO UPDATE SET bytes = excluded.bytes, stored_at = excluded.stored_at, removed_at = NULL
        WHERE artifact.bytes IS DISTINCT FROM excluded.bytes"
        => [package.digest, package.form, i64::try_from(package.bytes.len()).unwrap_or(i64::MAX), package.bytes, now];

    /// Record that the newest file of a package is the active version again.
    pub async fn clear_pending(name: &str) -> () = run
        "UPDATE package SET pending_digest = NULL, pending_since = NULL,
            rejection = NULL, rejected_at = NULL, rejected_by = NULL, rejected_digest = NULL
        WHERE name = $1";

    // False when the same file was rejected for the same reason before.
    pub(super) async fn reject_first(host: HostId, name: &str, file: Option<&ArtifactDigest>, rejection: &str, now: Timestamp) -> bool = changed
        "INSERT INTO package (name, manifest, missing_since, rejection, rejected_at, rejected_by, rejected_digest)
        VALUES ($1, '{}', $3, $2, $3, $4, $5)
        ON CONFLICT (name) DO UPDATE SET rejection = excluded.rejection, rejected_at = excluded.rejected_at,
            rejected_by = excluded.rejected_by, rejected_digest = excluded.rejected_digest, pending_digest = NULL, pending_since = NULL
        WHERE package.rejection IS DISTINCT FROM excluded.rejection OR package.rejected_digest IS DISTINCT FROM excluded.rejected_digest"
        => [name, recorded(rejection), now, host, file];

    pub(super) async fn reject_again(host: HostId, name: &str) -> () = run
        "UPDATE package SET rejected_by = $2 WHERE name = $1 AND rejection IS NOT NULL" => [name, host];

    /// Record since when `host` loads the newest file of a package.
    pub async fn set_loading(host: HostId, name: &str, since: Timestamp) -> () = run
        "INSERT INTO package (name, manifest, missing_since, loading_since, loading_by)
        VALUES ($1, '{}', $2, $2, $3)
        ON CONFLICT (name) DO UPDATE SET loading_since = excluded.loading_since, loading_by = excluded.loading_by"
        => [name, since, host];

    /// Returns the packages of hosts, each with the version active there.
    pub async fn on_hosts() -> Vec<(HostId, String, ArtifactDigest)> = rows "SELECT host_id, package, digest FROM package_host";

    /// Delete the records of which packages ended hosts had.
    pub async fn withdraw_ended() -> () = run
        "DELETE FROM package_host
        WHERE host_id IN (SELECT id FROM host WHERE ended_at IS NOT NULL)";

    /// Mark the packages as missing that had an active version and that no live host has any more; return their names.
    pub async fn mark_missing(now: Timestamp) -> Vec<String> = values
        "UPDATE package SET missing_since = $1
        WHERE missing_since IS NULL AND digest IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM package_host h WHERE h.package = package.name)
        RETURNING name";

    /// Returns up to `limit` packages, by name, that have been missing since before `before`, and that still define schedules
    /// by their code or by a sidecar.
    pub async fn forgotten(before: Timestamp, limit: i64) -> Vec<String> = values
        "SELECT p.name FROM package p WHERE p.missing_since < $1 AND EXISTS (SELECT 1 FROM schedule s
            WHERE s.deleted_at IS NULL AND s.origin <> 'operator' AND s.origin IN ('sidecar', 'package') AND s.package = p.name)
        ORDER BY p.name LIMIT $2";

    /// Returns the package called `name`.
    pub async fn find(name: &str) -> Option<PackageRow> = row select_packages!("p.manifest, p.grants", "WHERE p.name = $1");

    /// Returns up to `limit` packages after the name `after`, by name, matching `pattern` if given. Their manifests and grants are
    /// left out, as together they may take gigabytes.
    pub async fn list(pattern: Option<&str>, after: Option<&str>, limit: i64) -> Vec<PackageRow> = rows
        select_packages!("'' AS manifest, '' AS grants", "WHERE (CAST($1 AS TEXT) IS NULL OR p.name LIKE $1) AND p.name > $2
            ORDER BY p.name LIMIT $3")
        => [pattern, after.unwrap_or_default(), limit];

    /// Returns up to `limit` package names.
    pub async fn names(limit: i64) -> Vec<String> = values "SELECT name FROM package ORDER BY name LIMIT $1";

    /// Returns each package's active version, and since when no live host has had it.
    pub async fn active_versions() -> Vec<ActiveVersion> = rows "SELECT name, digest, missing_since FROM package";

    /// Returns up to `limit` packages with their manifests, which may propose a schedule called `name`, or `plain` without its
    /// namespace. Reads all packages.
    pub async fn perhaps_proposing(name: &str, plain: &str, limit: i64) -> Vec<(String, String)> = rows
        "SELECT name, manifest FROM package WHERE digest IS NOT NULL
            AND (manifest LIKE '%\"' || $2 || '\"%' OR $1 LIKE name || '%') ORDER BY name LIMIT $3";

    /// Returns the bytes of an artifact, if a host ever loaded it and retention has not removed them.
    pub async fn artifact(digest: &ArtifactDigest) -> Option<Vec<u8>> = value
        "SELECT bytes FROM artifact WHERE digest = $1 AND bytes IS NOT NULL";

    /// Returns the digests to which sidecars pin a package, each after the name of the live host that has the sidecar.
    pub async fn pins(name: &str) -> Vec<(String, String)> = rows
        "SELECT h.name, p.pin FROM package_host p JOIN host h ON h.id = p.host_id
        WHERE p.package = $1 AND p.pin IS NOT NULL AND h.ended_at IS NULL ORDER BY h.name";
}

/// Lock the package's row until the transaction ends; return the row, if there is one.
pub async fn lock(tx: &mut Tx, name: &str) -> Result<Option<PackageRow>> {
    run!(tx, LOCK, name)?;
    find(tx, name).await
}

/// Record that `host` has loaded a package, store its bytes, and make it the active version.
pub async fn publish(
    tx: &mut Tx,
    host: HostId,
    package: &LoadedPackage<'_>,
    now: Timestamp,
) -> Result {
    let (name, digest) = (package.name, package.digest);
    lock_or_create(tx, name).await?;
    keep(tx, package, now).await?;
    package_versions::record_activation(tx, name, digest, now).await?;
    run!(tx, PUBLISH, name, digest, package.manifest, now)?;
    publish_host(tx, host, name, digest, package.sidecar).await
}

/// Record the newest file of a package as pending, and store its bytes. The active version stays active.
pub async fn set_pending(tx: &mut Tx, package: &LoadedPackage<'_>, now: Timestamp) -> Result {
    keep(tx, package, now).await?;
    run!(tx, SET_PENDING, package.name, package.digest, now)
}

/// Record the sidecar that `host` has for a package whose only file is pending.
///
/// `host` does not have the package yet, so that it claims no launch of it. It notices by this record that the file was
/// removed while it was down.
pub async fn keep_sidecar(
    tx: &mut Tx,
    host: HostId,
    name: &str,
    sidecar: SidecarSummary<'_>,
) -> Result {
    run!(tx, FOUND, name, sidecar.grants)?;
    sidecars::keep(tx, host, name, sidecar).await
}

async fn keep(tx: &mut Tx, package: &LoadedPackage<'_>, now: Timestamp) -> Result {
    keep_artifact(tx, package, now).await?;
    let (name, digest, manifest) = (package.name, package.digest, package.manifest);
    package_versions::add(tx, name, digest, manifest, package.signature, now).await
}

/// Activate a recorded version. The version of the newest file becomes `pending`, if it is another one.
pub async fn activate(
    tx: &mut Tx,
    name: &str,
    digest: &ArtifactDigest,
    pending: Option<&ArtifactDigest>,
    now: Timestamp,
) -> Result {
    package_versions::record_activation(tx, name, digest, now).await?;
    run!(tx, ACTIVATE, name, digest, now, pending)
}

/// Record that `host` has a package whose version is recorded, and the sidecar that it uses.
pub async fn publish_host(
    tx: &mut Tx,
    host: HostId,
    name: &str,
    digest: &ArtifactDigest,
    sidecar: SidecarSummary<'_>,
) -> Result {
    run!(tx, PUBLISH_HOST, name, host, digest, sidecar.pin)?;
    keep_sidecar(tx, host, name, sidecar).await
}

/// Record that `host` no longer has a package in its folder.
pub async fn withdraw(tx: &mut Tx, host: HostId, name: &str) -> Result {
    run!(tx, WITHDRAW, name, host)?;
    run!(tx, CLEAR_PENDING_WITHOUT_HOST, name)?;
    forget_file(tx, host, name).await
}

/// Records that a file in the folder of `host` can't be used. An older version stays active. `file` is its digest, if the host
/// has read it. False if the file was already rejected for the same reason, on this host or another.
pub async fn reject(
    tx: &mut Tx,
    host: HostId,
    name: &str,
    (file, rejection): (Option<&ArtifactDigest>, &str),
    now: Timestamp,
) -> Result<bool> {
    let is_new = reject_first(tx, host, name, file, rejection, now).await?;
    if !is_new {
        // Its file is the one that can leave last.
        reject_again(tx, host, name).await?;
    }
    Ok(is_new)
}

/// Delete the rejection and the sidecar of a file that has left the folder of `host`.
///
/// A package without any version is deleted.
pub async fn forget_file(tx: &mut Tx, host: HostId, name: &str) -> Result {
    sidecars::forget(tx, host, name).await?;
    run!(tx, CLEAR_REJECTION, name, host)?;
    run!(tx, DELETE_WITHOUT_VERSION)
}

/// Record that `host` no longer loads the newest file of a package.
pub async fn end_loading(tx: &mut Tx, host: HostId, name: &str) -> Result {
    run!(tx, CLEAR_LOADING, name, host)?;
    run!(tx, DELETE_WITHOUT_VERSION)
}

/// Delete the rejections and the loads that ended hosts recorded.
pub async fn forget_files_of_ended(tx: &mut Tx) -> Result {
    run!(tx, CLEAR_REJECTIONS_OF_ENDED)?;
    run!(tx, CLEAR_LOADS_OF_ENDED)?;
    run!(tx, DELETE_WITHOUT_VERSION)
}
