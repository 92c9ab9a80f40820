//! Contexts from the sidecars last used by hosts, for checking arguments. No host takes a grant from here.
//!
//! A row belongs to a host's name and outlives its processes.

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
    /// Its `[context]` table as JSON; empty without one.
    pub context: &'a str,
}

statements! {
    /// Keep the sidecar that `host` uses, in place of the one before.
    pub(super) async fn keep(host: HostId, package: &str, sidecar: SidecarSummary<'_>) -> () = run
        "INSERT INTO package_sidecar (package, host, context)
        SELECT $1, h.name, $3 FROM host h WHERE h.id = $2
        ON CONFLICT (package, host) DO UPDATE SET context = excluded.context"
        => [package, host, storable(sidecar.context)];

    /// Returns the `[context]` tables of the sidecars hosts last used for a package, as JSON.
    pub async fn contexts(package: &str) -> Vec<String> = values
        "SELECT s.context FROM package_sidecar s WHERE s.package = $1 AND s.context <> '' ORDER BY s.host";

    /// Delete the sidecar that `host` used. The operator who brings the package back grants anew.
    pub async fn forget(host: HostId, package: &str) -> () = run
        "DELETE FROM package_sidecar
        WHERE host IN (SELECT h.name FROM host h WHERE h.id = $1) AND package = $2";

    /// Returns the packages that hosts of the same name as `host` had and did not find removed.
    pub async fn packages(host: HostId) -> Vec<String> = values
        "SELECT s.package FROM package_sidecar s JOIN host h ON h.name = s.host
        WHERE h.id = $1 ORDER BY s.package";
}
