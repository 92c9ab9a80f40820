//! The sidecars that hosts last went by: what a start goes by again while it finds an error in the file.
//!
//! Each belongs to the name of a host, which outlives its lives: what one host's sidecar grants is nothing to another.

use sqlx::FromRow;

use super::packages::Settings;
use super::types::storable;
use super::{DbError, Tx, on};
use campanile_model::ids::HostId;

/// What a package last ran under.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct KeptSidecar {
    /// None when there was no sidecar.
    pub sidecar: Option<String>,
    /// What it granted, one a line, without values.
    pub grants: String,
}

const KEEP: &str = "INSERT INTO package_sidecar (package, host, sidecar, grants)
    SELECT $1, h.name, $3, $4 FROM host h WHERE h.id = $2
    ON CONFLICT (package, host) DO UPDATE SET sidecar = excluded.sidecar, grants = excluded.grants";
const FIND: &str =
    "SELECT s.sidecar, s.grants FROM package_sidecar s JOIN host h ON h.name = s.host
    WHERE s.package = $1 AND h.id = $2";
const FORGET: &str = "DELETE FROM package_sidecar
    WHERE package = $1 AND host IN (SELECT h.name FROM host h WHERE h.id = $2)";
const PACKAGES: &str = "SELECT s.package FROM package_sidecar s JOIN host h ON h.name = s.host
    WHERE h.id = $1 ORDER BY s.package";

/// Every statement of this table, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[KEEP, FIND, FORGET, PACKAGES];

/// Keep the sidecar that `host` goes by, in place of the one before.
pub(super) async fn keep(
    tx: &mut Tx,
    host: HostId,
    package: &str,
    settings: Settings<'_>,
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(KEEP)
        .bind(package)
        .bind(host)
        .bind(settings.sidecar.map(storable))
        .bind(settings.grants)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// The sidecar that `host`, in this life or an earlier one, last went by.
pub async fn find(
    tx: &mut Tx,
    host: HostId,
    package: &str,
) -> Result<Option<KeptSidecar>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(FIND)
        .bind(package)
        .bind(host)
        .fetch_optional(conn)
        .await)?)
}

/// Forget what `host` went by: whoever brings the package back says anew what it is granted.
pub async fn forget(tx: &mut Tx, host: HostId, package: &str) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(FORGET)
        .bind(package)
        .bind(host)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// The packages that `host` had in this life or an earlier one, as far as it has not found them gone.
pub async fn packages(tx: &mut Tx, host: HostId) -> Result<Vec<String>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(PACKAGES)
        .bind(host)
        .fetch_all(conn)
        .await)?)
}
