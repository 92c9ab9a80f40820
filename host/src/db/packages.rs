//! Packages: what the folders of the live hosts hold, and the bytes that launches refer to.

use serde::Serialize;
use sqlx::FromRow;

use super::types::storable;
use super::{DbError, Tx, on};
use crate::clock::Timestamp;
use crate::ids::{ArtifactDigest, HostId};

/// A package as the hosts have it.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct PackageRow {
    pub name: String,
    /// The version in force; none when no file of that name was ever taken.
    pub digest: Option<ArtifactDigest>,
    /// `typed_component` or `core_module_with_wit`.
    pub form: Option<String>,
    pub size_bytes: Option<i64>,
    /// JSON.
    pub manifest: String,
    pub loaded_at: Timestamp,
    /// Set while no live host has it.
    pub missing_since: Option<Timestamp>,
    /// Why the newest file was not taken.
    pub rejection: Option<String>,
    pub rejected_at: Option<Timestamp>,
}

/// A package that a host has loaded.
#[derive(Debug, Clone)]
pub struct Loaded<'a> {
    pub name: &'a str,
    pub digest: &'a ArtifactDigest,
    pub form: &'a str,
    pub bytes: &'a [u8],
    pub manifest: &'a str,
}

const KEEP_ARTIFACT: &str =
    "INSERT INTO artifact (digest, form, bytes, stored_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (digest) DO NOTHING";
const PUBLISH: &str =
    "INSERT INTO package (name, digest, manifest, loaded_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, manifest = excluded.manifest,
        loaded_at = excluded.loaded_at, missing_since = NULL, rejection = NULL, rejected_at = NULL";
const PUBLISH_HOST: &str = "INSERT INTO package_host (package, host_id, digest) VALUES ($1, $2, $3)
    ON CONFLICT (package, host_id) DO UPDATE SET digest = excluded.digest";
const FOUND: &str = "UPDATE package SET missing_since = NULL WHERE name = $1 AND missing_since IS NOT NULL";
const REJECT: &str = "INSERT INTO package (name, manifest, loaded_at, missing_since, rejection, rejected_at)
    VALUES ($1, '{}', $3, $3, $2, $3)
    ON CONFLICT (name) DO UPDATE SET rejection = excluded.rejection, rejected_at = excluded.rejected_at";
const WITHDRAW: &str = "DELETE FROM package_host WHERE package = $1 AND host_id = $2";
const WITHDRAW_ENDED: &str = "DELETE FROM package_host
    WHERE host_id IN (SELECT id FROM host WHERE ended_at IS NOT NULL)";
const MARK_MISSING: &str = "UPDATE package SET missing_since = $1
    WHERE missing_since IS NULL
      AND NOT EXISTS (SELECT 1 FROM package_host h WHERE h.package = package.name)
    RETURNING name";
const LIST: &str =
    "SELECT p.name, p.digest, a.form, CAST(length(a.bytes) AS BIGINT) AS size_bytes, p.manifest,
        p.loaded_at, p.missing_since, p.rejection, p.rejected_at
    FROM package p LEFT JOIN artifact a ON a.digest = p.digest
    WHERE p.name = $1 OR $1 IS NULL ORDER BY p.name";
const ARTIFACT: &str = "SELECT bytes FROM artifact WHERE digest = $1";

/// Every statement of these tables, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[
    KEEP_ARTIFACT,
    PUBLISH,
    PUBLISH_HOST,
    FOUND,
    REJECT,
    WITHDRAW,
    WITHDRAW_ENDED,
    MARK_MISSING,
    LIST,
    ARTIFACT,
];

/// Put on the record that `host` has loaded a package, and keep its bytes.
pub async fn publish(
    tx: &mut Tx,
    host: HostId,
    package: &Loaded<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    on!(tx, |conn| {
        sqlx::query(KEEP_ARTIFACT)
            .bind(package.digest.as_str())
            .bind(package.form)
            .bind(package.bytes)
            .bind(now)
            .execute(&mut *conn)
            .await?;
        sqlx::query(PUBLISH)
            .bind(package.name)
            .bind(package.digest.as_str())
            .bind(package.manifest)
            .bind(now)
            .execute(&mut *conn)
            .await?;
    });
    publish_host(tx, host, package.name, package.digest).await
}

/// Put on the record that `host` has a package whose version is on the record already.
pub async fn publish_host(
    tx: &mut Tx,
    host: HostId,
    name: &str,
    digest: &ArtifactDigest,
) -> Result<(), DbError> {
    on!(tx, |conn| {
        sqlx::query(PUBLISH_HOST)
            .bind(name)
            .bind(host)
            .bind(digest.as_str())
            .execute(&mut *conn)
            .await?;
        sqlx::query(FOUND)
            .bind(name)
            .execute(&mut *conn)
            .await?;
    });
    Ok(())
}

/// Put on the record that a file was not taken. An older version stays in force.
pub async fn reject(
    tx: &mut Tx,
    name: &str,
    rejection: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(REJECT)
        .bind(name)
        .bind(storable(rejection))
        .bind(now)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Put on the record that `host` no longer has a package.
pub async fn withdraw(tx: &mut Tx, host: HostId, name: &str) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(WITHDRAW)
        .bind(name)
        .bind(host)
        .execute(conn)
        .await
        .map(|_| ()))?;
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
