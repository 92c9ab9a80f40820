//! The sidecar that each host last used for a package. A start uses it again while the sidecar file has an error.
//!
//! A row belongs to a host's name and outlives its processes. The sidecar of one host grants nothing to another host.

use sqlx::FromRow;

use super::packages::SidecarSummary;
use super::sql::{execute, row, statements, values};
use super::types::storable;
use super::{DbError, Tx};
use campanile_model::ids::HostId;

/// The sidecar that a host last used.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct LastSidecar {
    /// The text; none when there was no sidecar.
    pub sidecar: Option<String>,
    /// The grants, one a line, without values.
    pub grants: String,
}

statements! {
    const KEEP: &str = "INSERT INTO package_sidecar (package, host, sidecar, grants)
        SELECT $1, h.name, $3, $4 FROM host h WHERE h.id = $2
        ON CONFLICT (package, host) DO UPDATE SET sidecar = excluded.sidecar, grants = excluded.grants";
    const FIND: &str = "SELECT s.sidecar, s.grants FROM package_sidecar s JOIN host h ON h.name = s.host
        WHERE s.package = $1 AND h.id = $2";
    const FORGET: &str = "DELETE FROM package_sidecar
        WHERE package = $1 AND host IN (SELECT h.name FROM host h WHERE h.id = $2)";
    const PACKAGES: &str = "SELECT s.package FROM package_sidecar s JOIN host h ON h.name = s.host
        WHERE h.id = $1 ORDER BY s.package";
}

/// Keep the sidecar that `host` uses, in place of the one before.
pub(super) async fn keep(
    tx: &mut Tx,
    host: HostId,
    package: &str,
    sidecar: SidecarSummary<'_>,
) -> Result<(), DbError> {
    let text = sidecar.text.map(storable);
    execute!(tx, KEEP, package, host, text.as_deref(), sidecar.grants)?;
    Ok(())
}

/// Return the sidecar that a host of the same name as `host` last used.
pub async fn find(
    tx: &mut Tx,
    host: HostId,
    package: &str,
) -> Result<Option<LastSidecar>, DbError> {
    Ok(row!(tx, FIND, package, host)?)
}

/// Delete the sidecar that `host` used. The operator who brings the package back grants anew.
pub async fn forget(tx: &mut Tx, host: HostId, package: &str) -> Result<(), DbError> {
    execute!(tx, FORGET, package, host)?;
    Ok(())
}

/// Return the packages that hosts of the same name as `host` had and did not find removed.
pub async fn packages(tx: &mut Tx, host: HostId) -> Result<Vec<String>, DbError> {
    Ok(values!(tx, PACKAGES, host)?)
}
