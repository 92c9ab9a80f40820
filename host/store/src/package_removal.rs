//! Remove a package that no host has any more.

use super::sql::{locking, run, statements};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, ScheduleId};

statements! {
    const FORGET_HOSTS: &str = "DELETE FROM package_host WHERE package = $1";
    const FORGET_SIDECARS: &str = "DELETE FROM package_sidecar WHERE package = $1";
    const FORGET_VERSIONS: &str = "DELETE FROM package_version WHERE package = $1";
    const FORGET_PACKAGE: &str = "DELETE FROM package WHERE name = $1";
    const FORGET_ARTIFACTS: &str = "DELETE FROM artifact
        WHERE NOT EXISTS (SELECT 1 FROM package_version v WHERE v.digest = artifact.digest)
            AND NOT EXISTS (SELECT 1 FROM package p WHERE p.digest = artifact.digest OR p.pending_digest = artifact.digest)";

    /// Lock the code of a package until the transaction ends: another package of the same code cannot be published meanwhile.
    pub(super) async fn lock_artifacts(package: &str) -> Vec<ArtifactDigest> = values locking!(
        "SELECT digest FROM artifact WHERE digest IN (SELECT v.digest FROM package_version v WHERE v.package = $1) ORDER BY digest",
        "FOR UPDATE"
    );

    /// Returns the names of live hosts with a file or a sidecar of the package.
    pub async fn hosts_with_file(package: &str) -> Vec<String> = values
        "SELECT h.name FROM host h WHERE h.ended_at IS NULL
            AND (EXISTS (SELECT 1 FROM package_host p WHERE p.package = $1 AND p.host_id = h.id)
                OR EXISTS (SELECT 1 FROM package_sidecar s WHERE s.package = $1 AND s.host = h.name)
                OR EXISTS (SELECT 1 FROM package p WHERE p.name = $1 AND (p.rejected_by = h.id OR p.loading_by = h.id)))
        ORDER BY h.name";

    /// Whether a launch of the package has not ended.
    // A partial index answers each part.
    // The condition on `schedule_id` is always true. Without it, SQLite reads all launches in place of an index.
    pub async fn has_unfinished(package: &str) -> bool = one_value
        "SELECT EXISTS (SELECT 1 FROM launch WHERE status IN ('running', 'waiting') AND package = $1)
            OR EXISTS (SELECT 1 FROM launch WHERE status = 'open' AND schedule_id > $2 AND package = $1)
            OR EXISTS (SELECT 1 FROM launch WHERE status = 'queued' AND package = $1)" => [package, ScheduleId::FIRST];

    /// Mark a package as missing from all folders since `now`, unless it was before.
    pub async fn mark_missing(package: &str, now: Timestamp) -> () = run
        "UPDATE package SET missing_since = coalesce(missing_since, $2) WHERE name = $1";

    // The artifacts must be locked.
    pub(super) async fn unlink_bytes(package: &str, now: Timestamp) -> Vec<i64> = values
        "UPDATE artifact SET bytes = NULL, removed_at = $2 WHERE bytes IS NOT NULL
            AND digest IN (SELECT v.digest FROM package_version v WHERE v.package = $1)
            AND NOT EXISTS (SELECT 1 FROM package_version o WHERE o.digest = artifact.digest AND o.package <> $1)
        RETURNING size_bytes";
}

/// Remove the bytes of the versions of a package that no other package has. Return the size of each.
pub async fn remove_bytes(tx: &mut Tx, package: &str, now: Timestamp) -> Result<Vec<i64>> {
    lock_artifacts(tx, package).await?;
    unlink_bytes(tx, package, now).await
}

/// Delete a package with its versions, the decisions about them, and its sidecars.
pub async fn forget(tx: &mut Tx, package: &str) -> Result {
    run!(tx, FORGET_HOSTS, package)?;
    run!(tx, FORGET_SIDECARS, package)?;
    run!(tx, FORGET_VERSIONS, package)?;
    run!(tx, FORGET_PACKAGE, package)?;
    run!(tx, FORGET_ARTIFACTS)
}
