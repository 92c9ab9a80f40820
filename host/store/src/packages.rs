//! Packages: what the folders of the live hosts hold, and the bytes that launches refer to.

use serde::Serialize;
use sqlx::FromRow;

use super::package_versions::{self, VersionDecision};
use super::types::storable;
use super::{DbError, Tx, on, sidecars};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId};
use campanile_model::words;

/// A package as the hosts have it.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, schemars::JsonSchema)]
pub struct PackageRow {
    pub name: String,
    /// The version in force; none when no file of that name was ever taken.
    pub digest: Option<ArtifactDigest>,
    /// `typed_component` or `core_module_with_wit`.
    pub form: Option<String>,
    pub size_bytes: Option<i64>,
    /// JSON.
    #[serde(skip)]
    pub manifest: String,
    /// When a host last loaded that; none when none ever did.
    pub loaded_at: Option<Timestamp>,
    /// What the sidecar of the host that was heard last grants, one a line.
    #[serde(skip)]
    pub grants: String,
    /// The version of the newest file, while that is kept out.
    pub pending_digest: Option<ArtifactDigest>,
    pub pending_since: Option<Timestamp>,
    /// What a person decided about that; none while it waits for approval.
    #[serde(skip)]
    pub pending_decision: Option<VersionDecision>,
    /// Set while no live host has it.
    pub missing_since: Option<Timestamp>,
    /// Why the newest file, or the sidecar beside it, cannot be used.
    pub rejection: Option<String>,
    pub rejected_at: Option<Timestamp>,
}

words! {
    /// Where a package stands.
    PackageState {
        /// Its newest file is in force.
        Active => "active",
        /// Its newest file asks for more than it is granted: an older version is in force, until a person decides.
        PendingApproval => "pending_approval",
        /// A person put an older version in force, and the newest file is kept out.
        RolledBack => "rolled_back",
        /// Its newest file cannot be used, or a person decided against it: an older version is in force, or none.
        Rejected => "rejected",
        /// No live host has it.
        Missing => "missing",
    }
}

impl PackageRow {
    /// Where it stands.
    pub fn state(&self) -> PackageState {
        let is_held = self.pending_digest.is_some();
        match self.pending_decision {
            _ if self.digest.is_none() => PackageState::Rejected,
            _ if self.missing_since.is_some() => PackageState::Missing,
            Some(VersionDecision::RolledBack) => PackageState::RolledBack,
            Some(VersionDecision::Rejected) => PackageState::Rejected,
            _ if is_held => PackageState::PendingApproval,
            _ if self.rejection.is_some() => PackageState::Rejected,
            _ => PackageState::Active,
        }
    }
}

/// A package that a host has loaded.
#[derive(Debug, Clone)]
pub struct LoadedPackage<'a> {
    pub name: &'a str,
    pub digest: &'a ArtifactDigest,
    pub form: &'a str,
    pub bytes: &'a [u8],
    pub manifest: &'a str,
    pub settings: Settings<'a>,
}

/// What a host's sidecar of a package says that others are to know.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings<'a> {
    /// What it grants, one a line, without values.
    pub grants: &'a str,
    /// The only digest that it lets in.
    pub pin: Option<&'a str>,
    /// Its text; none when there is no sidecar.
    pub sidecar: Option<&'a str>,
}

const KEEP_ARTIFACT: &str =
    "INSERT INTO artifact (digest, form, bytes, stored_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (digest) DO NOTHING";
// Also locks the row: whoever decides about this package at the same time waits here.
const CLAIM: &str = "INSERT INTO package (name, manifest) VALUES ($1, '{}')
    ON CONFLICT (name) DO UPDATE SET name = excluded.name";
const LOCK: &str = "UPDATE package SET name = name WHERE name = $1";
const PUBLISH: &str = "UPDATE package SET digest = $2, manifest = $3, loaded_at = $4, missing_since = NULL,
        pending_digest = NULL, pending_since = NULL, rejection = NULL, rejected_at = NULL, rejected_by = NULL WHERE name = $1";
const PUT_IN_FORCE: &str = "UPDATE package SET digest = $2, loaded_at = $3, pending_digest = $4,
        pending_since = CASE WHEN pending_digest = $4 THEN pending_since WHEN CAST($4 AS TEXT) IS NULL THEN NULL ELSE $3 END,
        rejection = CASE WHEN CAST($4 AS TEXT) IS NULL THEN rejection ELSE NULL END,
        rejected_at = CASE WHEN CAST($4 AS TEXT) IS NULL THEN rejected_at ELSE NULL END,
        rejected_by = CASE WHEN CAST($4 AS TEXT) IS NULL THEN rejected_by ELSE NULL END,
        manifest = (SELECT v.manifest FROM package_version v WHERE v.package = $1 AND v.digest = $2)
    WHERE name = $1";
const HOLD: &str = "UPDATE package SET pending_digest = $2,
        pending_since = CASE WHEN pending_digest = $2 THEN pending_since ELSE $3 END,
        rejection = NULL, rejected_at = NULL, rejected_by = NULL
    WHERE name = $1";
const RESTORE: &str =
    "UPDATE package SET pending_digest = NULL, pending_since = NULL, rejection = NULL, rejected_at = NULL, rejected_by = NULL
    WHERE name = $1";
const PUBLISH_HOST: &str =
    "INSERT INTO package_host (package, host_id, digest, pin) VALUES ($1, $2, $3, $4)
    ON CONFLICT (package, host_id) DO UPDATE SET digest = excluded.digest, pin = excluded.pin";
const FOUND: &str = "UPDATE package SET missing_since = NULL, grants = $2
    WHERE name = $1 AND (missing_since IS NOT NULL OR grants <> $2)";
const REJECT: &str = "INSERT INTO package (name, manifest, missing_since, rejection, rejected_at, rejected_by)
    VALUES ($1, '{}', $3, $2, $3, $4)
    ON CONFLICT (name) DO UPDATE SET rejection = excluded.rejection, rejected_at = excluded.rejected_at,
        rejected_by = excluded.rejected_by, pending_digest = NULL, pending_since = NULL";
// What was never taken is on the record for its rejection only.
const FORGET_REJECTION: &str =
    "UPDATE package SET rejection = NULL, rejected_at = NULL, rejected_by = NULL
    WHERE name = $1 AND rejected_by = $2";
const FORGET_REJECTIONS_OF_ENDED: &str =
    "UPDATE package SET rejection = NULL, rejected_at = NULL, rejected_by = NULL
    WHERE rejected_by IN (SELECT id FROM host WHERE ended_at IS NOT NULL)";
const DROP_NEVER_TAKEN: &str = "DELETE FROM package WHERE digest IS NULL AND rejection IS NULL";
const WITHDRAW: &str = "DELETE FROM package_host WHERE package = $1 AND host_id = $2";
// What nobody has any more is not kept out any more either.
const LET_GO: &str = "UPDATE package SET pending_digest = NULL, pending_since = NULL
    WHERE name = $1 AND pending_digest IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM package_host h WHERE h.package = package.name)";
const WITHDRAW_ENDED: &str = "DELETE FROM package_host
    WHERE host_id IN (SELECT id FROM host WHERE ended_at IS NOT NULL)";
const MARK_MISSING: &str = "UPDATE package SET missing_since = $1
    WHERE missing_since IS NULL
      AND NOT EXISTS (SELECT 1 FROM package_host h WHERE h.package = package.name)
    RETURNING name";
const LIST: &str =
    "SELECT p.name, p.digest, a.form, CAST(length(a.bytes) AS BIGINT) AS size_bytes, p.manifest,
        p.loaded_at, p.grants, p.pending_digest, p.pending_since, v.decision AS pending_decision, p.missing_since,
        p.rejection, p.rejected_at
    FROM package p LEFT JOIN artifact a ON a.digest = p.digest
    LEFT JOIN package_version v ON v.package = p.name AND v.digest = p.pending_digest
    WHERE p.name = $1 OR $1 IS NULL ORDER BY p.name";
const PINS: &str = "SELECT h.name, p.pin FROM package_host p JOIN host h ON h.id = p.host_id
    WHERE p.package = $1 AND p.pin IS NOT NULL AND h.ended_at IS NULL ORDER BY h.name";
const ARTIFACT: &str = "SELECT bytes FROM artifact WHERE digest = $1";

/// Every statement of these tables, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[
    KEEP_ARTIFACT,
    CLAIM,
    LOCK,
    PUBLISH,
    PUT_IN_FORCE,
    HOLD,
    RESTORE,
    PUBLISH_HOST,
    FOUND,
    REJECT,
    FORGET_REJECTION,
    FORGET_REJECTIONS_OF_ENDED,
    DROP_NEVER_TAKEN,
    WITHDRAW,
    LET_GO,
    WITHDRAW_ENDED,
    MARK_MISSING,
    LIST,
    PINS,
    ARTIFACT,
];

/// Make others wait who decide about the package of that name, which need not be known, until this transaction ends.
pub async fn lock_or_create(tx: &mut Tx, name: &str) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(CLAIM)
        .bind(name)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// The same for a package that is known; gives it.
pub async fn lock(tx: &mut Tx, name: &str) -> Result<Option<PackageRow>, DbError> {
    on!(tx, |conn| sqlx::query(LOCK)
        .bind(name)
        .execute(conn)
        .await
        .map(|_| ()))?;
    find(tx, name).await
}

/// Put on the record that `host` has loaded a package, keep its bytes, and put it in force.
pub async fn publish(
    tx: &mut Tx,
    host: HostId,
    package: &LoadedPackage<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    lock_or_create(tx, package.name).await?;
    keep(tx, package, now).await?;
    package_versions::record_activation(tx, package.name, package.digest, now).await?;
    on!(tx, |conn| sqlx::query(PUBLISH)
        .bind(package.name)
        .bind(package.digest.as_str())
        .bind(package.manifest)
        .bind(now)
        .execute(conn)
        .await
        .map(|_| ()))?;
    publish_host(tx, host, package.name, package.digest, package.settings).await
}

/// Put on the record that the newest file of a package is kept out, with its bytes: another version is in force.
pub async fn set_pending(
    tx: &mut Tx,
    package: &LoadedPackage<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    keep(tx, package, now).await?;
    on!(tx, |conn| sqlx::query(HOLD)
        .bind(package.name)
        .bind(package.digest.as_str())
        .bind(now)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

async fn keep(tx: &mut Tx, package: &LoadedPackage<'_>, now: Timestamp) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(KEEP_ARTIFACT)
        .bind(package.digest.as_str())
        .bind(package.form)
        .bind(package.bytes)
        .bind(now)
        .execute(conn)
        .await
        .map(|_| ()))?;
    package_versions::seen(tx, package.name, package.digest, package.manifest, now).await
}

/// Put a version in force that is on the record, and keep out `held`, the version of the newest file, if it is another.
pub async fn activate(
    tx: &mut Tx,
    name: &str,
    digest: &ArtifactDigest,
    held: Option<&ArtifactDigest>,
    now: Timestamp,
) -> Result<(), DbError> {
    package_versions::record_activation(tx, name, digest, now).await?;
    on!(tx, |conn| sqlx::query(PUT_IN_FORCE)
        .bind(name)
        .bind(digest.as_str())
        .bind(now)
        .bind(held.map(ArtifactDigest::as_str))
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Put on the record that the newest file of a package is the version in force again.
pub async fn clear_pending(tx: &mut Tx, name: &str) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(RESTORE)
        .bind(name)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Put on the record that `host` has a package whose version is on the record already, and the sidecar it goes by.
pub async fn publish_host(
    tx: &mut Tx,
    host: HostId,
    name: &str,
    digest: &ArtifactDigest,
    settings: Settings<'_>,
) -> Result<(), DbError> {
    on!(tx, |conn| {
        sqlx::query(PUBLISH_HOST)
            .bind(name)
            .bind(host)
            .bind(digest.as_str())
            .bind(settings.pin)
            .execute(&mut *conn)
            .await?;
        sqlx::query(FOUND)
            .bind(name)
            .bind(settings.grants)
            .execute(&mut *conn)
            .await?;
    });
    sidecars::keep(tx, host, name, settings).await
}

/// Put on the record that a file in the folder of `host` cannot be used. An older version stays in force.
pub async fn reject(
    tx: &mut Tx,
    host: HostId,
    name: &str,
    rejection: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(REJECT)
        .bind(name)
        .bind(storable(rejection))
        .bind(now)
        .bind(host)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Put on the record that `host` no longer has a package in its folder.
pub async fn withdraw(tx: &mut Tx, host: HostId, name: &str) -> Result<(), DbError> {
    on!(tx, |conn| {
        sqlx::query(WITHDRAW)
            .bind(name)
            .bind(host)
            .execute(&mut *conn)
            .await?;
        sqlx::query(LET_GO).bind(name).execute(&mut *conn).await?;
    });
    forget_file(tx, host, name).await
}

/// Forget what was said of a file that is in the folder of `host` no more, and the sidecar that was beside it.
///
/// A package of which no file was ever taken is forgotten with it.
pub async fn forget_file(tx: &mut Tx, host: HostId, name: &str) -> Result<(), DbError> {
    sidecars::forget(tx, host, name).await?;
    on!(tx, |conn| {
        sqlx::query(FORGET_REJECTION)
            .bind(name)
            .bind(host)
            .execute(&mut *conn)
            .await?;
        sqlx::query(DROP_NEVER_TAKEN).execute(&mut *conn).await?;
    });
    Ok(())
}

/// Forget what ended hosts said of files that they could not use.
pub async fn forget_rejections_of_ended(tx: &mut Tx) -> Result<(), DbError> {
    on!(tx, |conn| {
        sqlx::query(FORGET_REJECTIONS_OF_ENDED)
            .execute(&mut *conn)
            .await?;
        sqlx::query(DROP_NEVER_TAKEN).execute(&mut *conn).await?;
    });
    Ok(())
}

/// Forget what ended hosts had.
pub async fn withdraw_ended(tx: &mut Tx) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(WITHDRAW_ENDED)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Mark the packages that no live host has any more; gives their names.
pub async fn mark_missing(tx: &mut Tx, now: Timestamp) -> Result<Vec<String>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(MARK_MISSING)
        .bind(now)
        .fetch_all(conn)
        .await)?)
}

/// All packages, or the one of that name.
pub async fn list(tx: &mut Tx, name: Option<&str>) -> Result<Vec<PackageRow>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LIST)
        .bind(name)
        .fetch_all(conn)
        .await)?)
}

/// The package of that name.
pub async fn find(tx: &mut Tx, name: &str) -> Result<Option<PackageRow>, DbError> {
    Ok(list(tx, Some(name)).await?.pop())
}

/// The bytes of an artifact, if any host ever loaded it.
pub async fn artifact(tx: &mut Tx, digest: &ArtifactDigest) -> Result<Option<Vec<u8>>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(ARTIFACT)
        .bind(digest.as_str())
        .fetch_optional(conn)
        .await)?)
}

/// The digests to which sidecars pin a package, each with the name of the live host that has it.
pub async fn pins(tx: &mut Tx, name: &str) -> Result<Vec<(String, String)>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(PINS)
        .bind(name)
        .fetch_all(conn)
        .await)?)
}
