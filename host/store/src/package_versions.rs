//! The versions of packages that were ever seen, and what people decided about them.

use serde::Serialize;
use sqlx::FromRow;

use super::types::storable;
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
pub use campanile_model::status::VersionDecision;

/// One version of one package.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, schemars::JsonSchema)]
pub struct Version {
    pub digest: ArtifactDigest,
    /// `typed_component` or `core_module_with_wit`.
    pub form: String,
    pub size_bytes: i64,
    /// JSON.
    #[serde(skip)]
    pub manifest: String,
    pub first_seen_at: Timestamp,
    /// When it last came in force; none when it never did.
    pub activated_at: Option<Timestamp>,
    pub decision: Option<VersionDecision>,
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<String>,
    pub note: Option<String>,
}

/// A decision to put on the record.
#[derive(Debug, Clone, Copy)]
pub struct VersionReview<'a> {
    pub decision: VersionDecision,
    pub by: &'a str,
    pub note: Option<&'a str>,
}

const SEEN: &str =
    "INSERT INTO package_version (package, digest, manifest, first_seen_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (package, digest) DO NOTHING";
// Asked before the package's row is changed: a host that starts with the version in force changes nothing.
const CAME_IN_FORCE: &str =
    "UPDATE package_version SET activated_at = $3 WHERE package = $1 AND digest = $2
        AND NOT EXISTS (SELECT 1 FROM package p WHERE p.name = $1 AND p.digest = $2)";
const DECIDE: &str =
    "UPDATE package_version SET decision = $3, decided_at = $4, decided_by = $5, note = $6
    WHERE package = $1 AND digest = $2";
const KEEP_OUT_LATER: &str =
    "UPDATE package_version SET decision = $3, decided_at = $4, decided_by = $5, note = $6
    WHERE package = $1 AND digest <> $2 AND (decision IS NULL OR decision = 'approved')
      AND (activated_at > (SELECT v.activated_at FROM package_version v WHERE v.package = $1 AND v.digest = $2)
        OR digest IN (SELECT p.pending_digest FROM package p WHERE p.name = $1)
        OR digest IN (SELECT p.digest FROM package p WHERE p.name = $1))";
const OF_PACKAGE: &str =
    "SELECT v.digest, a.form, CAST(length(a.bytes) AS BIGINT) AS size_bytes, v.manifest,
        v.first_seen_at, v.activated_at, v.decision, v.decided_at, v.decided_by, v.note
    FROM package_version v JOIN artifact a ON a.digest = v.digest
    WHERE v.package = $1 ORDER BY v.first_seen_at, v.digest";
const DECISION: &str = "SELECT decision FROM package_version WHERE package = $1 AND digest = $2";
const KEPT_OUT: &str =
    "SELECT v.package, v.digest FROM package_version v JOIN package p ON p.name = v.package
    WHERE v.decision IN ('rejected', 'rolled_back') AND p.digest <> v.digest";
const DECIDED_LAST: &str = "SELECT max(decided_at) FROM package_version";

/// Every statement of this table, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[
    SEEN,
    CAME_IN_FORCE,
    DECIDE,
    KEEP_OUT_LATER,
    OF_PACKAGE,
    DECISION,
    KEPT_OUT,
    DECIDED_LAST,
];

/// Put a version on the record, if it is not there. The package and the artifact must be.
pub(super) async fn seen(
    tx: &mut Tx,
    package: &str,
    digest: &ArtifactDigest,
    manifest: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(SEEN)
        .bind(package)
        .bind(digest.as_str())
        .bind(manifest)
        .bind(now)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Note that a version comes in force, before it does; nothing when it is.
pub(super) async fn record_activation(
    tx: &mut Tx,
    package: &str,
    digest: &ArtifactDigest,
    now: Timestamp,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(CAME_IN_FORCE)
        .bind(package)
        .bind(digest.as_str())
        .bind(now)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Put a decision about one version on the record, in place of an earlier one.
pub async fn decide(
    tx: &mut Tx,
    package: &str,
    digest: &ArtifactDigest,
    verdict: VersionReview<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    set(tx, DECIDE, package, digest, verdict, now).await
}

/// Keep out the version in force, the one that waits, and those that came in force after `digest`, but not that one.
///
/// A host whose folder still holds one of them must not put it in force when it comes back. What was
/// rejected stays that.
pub async fn block_newer(
    tx: &mut Tx,
    package: &str,
    digest: &ArtifactDigest,
    verdict: VersionReview<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    set(tx, KEEP_OUT_LATER, package, digest, verdict, now).await
}

async fn set(
    tx: &mut Tx,
    sql: &'static str,
    package: &str,
    digest: &ArtifactDigest,
    verdict: VersionReview<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(sql)
        .bind(package)
        .bind(digest.as_str())
        .bind(verdict.decision)
        .bind(now)
        .bind(storable(verdict.by))
        .bind(verdict.note.map(storable))
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// All versions of a package, in the order in which they were first seen.
pub async fn of_package(tx: &mut Tx, package: &str) -> Result<Vec<Version>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(OF_PACKAGE)
        .bind(package)
        .fetch_all(conn)
        .await)?)
}

/// What a person decided about a version; none when nobody did, or it was never seen.
pub async fn decision(
    tx: &mut Tx,
    package: &str,
    digest: &ArtifactDigest,
) -> Result<Option<VersionDecision>, DbError> {
    let found: Option<Option<VersionDecision>> = on!(tx, |conn| sqlx::query_scalar(DECISION)
        .bind(package)
        .bind(digest.as_str())
        .fetch_optional(conn)
        .await)?;
    Ok(found.flatten())
}

/// The versions that no host may go on with, each with its package's name.
pub async fn blocked(tx: &mut Tx) -> Result<Vec<(String, ArtifactDigest)>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(KEPT_OUT)
        .fetch_all(conn)
        .await)?)
}

/// When anything was last decided about any version.
pub async fn last_decided_at(tx: &mut Tx) -> Result<Option<Timestamp>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(DECIDED_LAST)
        .fetch_one(conn)
        .await)?)
}
