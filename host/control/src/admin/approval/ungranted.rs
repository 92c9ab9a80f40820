//! The rule for versions that ask for what isn't granted: they become active only if somebody says that this is meant.

use super::{PackageError, VersionChange};
use campanile_model::ids::ArtifactDigest;
use campanile_package::requests::{Request, list_requests, sidecar_lines};
use campanile_package::{Manifest, grant_record};
use campanile_store::packages::PackageRow;
use campanile_store::{DbError, Tx, package_versions};

/// Returns what a version of a package requests and isn't granted.
///
/// # Errors
///
/// Fails if the database can't be read.
pub async fn ungranted_requests(
    tx: &mut Tx,
    row: &PackageRow,
    version: &ArtifactDigest,
) -> Result<Vec<Request>, DbError> {
    let stored = package_versions::manifest(tx, &row.name, version).await?;
    let manifest = Manifest::from_stored(&row.name, &stored.unwrap_or_default());
    Ok(manifest.ungranted_requests(&grant_record::read(&row.grants)))
}

/// Returns what becomes of the calls of a package while `ungranted` is so, one clause for each kind of denial.
pub fn effects(ungranted: &[Request]) -> Vec<String> {
    let (at_use, at_once): (Vec<Request>, Vec<Request>) = ungranted
        .iter()
        .cloned()
        .partition(Request::is_checked_at_use);
    let mut effects = Vec::new();
    if !at_once.is_empty() {
        let what = list_requests(&at_once);
        effects.push(format!("all calls are denied until it grants {what}"));
    }
    if !at_use.is_empty() {
        let what = list_requests(&at_use);
        effects.push(format!(
            "calls that need {what} are denied until it grants that"
        ));
    }
    effects
}

/// Refuses to make a version active that asks for what isn't granted. An approval of the active version changes no grant
/// and is not refused.
///
/// # Errors
///
/// Names the requests, what would become of the calls, and the lines that grant the requests.
pub fn check_granted(package: &str, change: &VersionChange) -> Result<(), PackageError> {
    let denied = &change.denied;
    if denied.is_empty() || change.before.as_ref() == Some(&change.digest) {
        return Ok(());
    }
    let message = format!(
        "the version {} of `{package}` asks for what its sidecar doesn't grant; with it active, {}; add to {package}.toml:\n{}",
        change.digest.short(),
        effects(denied).join(", and "),
        sidecar_lines(denied)
    );
    let hint = "grant it first; or activate the version anyway, with `--anyway`, `\"anyway\": true` in the API, or the tick on the page";
    Err(PackageError::refused(message, hint))
}
