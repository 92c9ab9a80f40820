//! The sidecar that each host last used for a package. A start uses it again while the sidecar file has an error.
//!
//! A row belongs to a host's name and outlives its processes. The sidecar of one host grants nothing to another host.

use sqlx::FromRow;

use super::sql::statements;
use super::types::storable;
use campanile_model::ids::HostId;

/// What a host publishes about its sidecar of a package.
#[derive(Debug, Clone, Copy, Default)]
pub struct SidecarSummary<'a> {
    /// The grants, one a line, without values.
    pub grants: &'a str,
    /// The only digest that the sidecar accepts.
    pub pin: Option<&'a str>,
    /// The text; none when there is no sidecar.
    pub text: Option<&'a str>,
}

/// The sidecar that a host last used.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct LastSidecar {
    /// The text; none when there was no sidecar.
    pub sidecar: Option<String>,
    /// The grants, one a line, without values.
    pub grants: String,
}

statements! {
    /// Keep the sidecar that `host` uses, in place of the one before.
    pub(super) async fn keep(host: HostId, package: &str, sidecar: SidecarSummary<'_>) -> () = run
        "INSERT INTO package_sidecar (package, host, sidecar, grants)
        SELECT $1, h.name, $3, $4 FROM host h WHERE h.id = $2
        ON CONFLICT (package, host) DO UPDATE SET sidecar = excluded.sidecar, grants = excluded.grants"
        => [package, host, sidecar.text.map(storable), sidecar.grants];

    /// Return the sidecar that a host of the same name as `host` last used.
    pub async fn find(host: HostId, package: &str) -> Option<LastSidecar> = row
        "SELECT s.sidecar, s.grants FROM package_sidecar s JOIN host h ON h.name = s.host
        WHERE h.id = $1 AND s.package = $2";

    /// Return the texts of the sidecars that hosts last used for a package.
    pub async fn texts(package: &str) -> Vec<String> = values
        "SELECT s.sidecar FROM package_sidecar s WHERE s.package = $1 AND s.sidecar IS NOT NULL ORDER BY s.host";

    /// Delete the sidecar that `host` used. The operator who brings the package back grants anew.
    pub async fn forget(host: HostId, package: &str) -> () = run
        "DELETE FROM package_sidecar
        WHERE host IN (SELECT h.name FROM host h WHERE h.id = $1) AND package = $2";

    /// Return the packages that hosts of the same name as `host` had and did not find removed.
    pub async fn packages(host: HostId) -> Vec<String> = values
        "SELECT s.package FROM package_sidecar s JOIN host h ON h.name = s.host
        WHERE h.id = $1 ORDER BY s.package";
}
