//! The version of a package that isn't active yet, and the check before it's approved.

use super::super::form::Form;
use crate::call::{Call, Result};
use crate::problem::ApiProblem;
use campanile_model::ids::ArtifactDigest;
use campanile_package::requests::{Request, evaluate_requests, list_requests};
use campanile_package::{Manifest, grant_record};
use campanile_store::packages::{self, PackageRow};
use campanile_store::{DbError, Tx, package_versions};

/// The field with which an operator approves a version although not all of its requests are granted.
pub(super) const UNGRANTED: &str = "ungranted";
/// What the field says on the page.
pub(super) const TICK: &str = "Approve it although that isn't granted";
/// A version that isn't active, and what it asks for.
pub(in super::super) struct Pending {
    pub(super) package: String,
    pub(super) digest: ArtifactDigest,
    pub(super) version: Option<String>,
    pub(super) requests: Vec<Request>,
    /// The ungranted requests without which no call of the package begins.
    pub(super) denying: Vec<Request>,
}

/// Refuses a form that approves a version with ungranted requests, unless it says that this is meant.
pub(in super::super) async fn check_approval(call: &Call, form: &Form) -> Result<()> {
    if form.given(UNGRANTED).is_some() {
        return Ok(());
    }
    let mut tx = call.read().await?;
    let Some(row) = packages::find(&mut tx, call.name("name")).await? else {
        return Ok(());
    };
    let Some(pending) = Pending::read(&mut tx, &row).await? else {
        return Ok(());
    };
    let wanted = form.get("digest").trim().to_ascii_lowercase();
    let missing = pending.ungranted();
    if missing.is_empty() || !pending.digest.as_str().starts_with(&wanted) {
        return Ok(());
    }
    let problem = ApiProblem::invalid(format!(
        "the version {} is not approved: it asks for {}, which the sidecar doesn't grant",
        pending.digest.short(),
        list_requests(&missing)
    ));
    Err(problem.hint(format!(
        "grant it in {}.toml first, or tick `{TICK}` and approve again",
        row.name
    )))
}

impl Pending {
    /// Reads the pending version of a package; none if its newest file is active.
    pub(in super::super) async fn read(
        tx: &mut Tx,
        row: &PackageRow,
    ) -> std::result::Result<Option<Pending>, DbError> {
        let Some(digest) = &row.pending_digest else {
            return Ok(None);
        };
        let stored = package_versions::manifest(tx, &row.name, digest).await?;
        let manifest = Manifest::from_stored(&row.name, &stored.unwrap_or_default());
        let grants = grant_record::read(&row.grants);
        Ok(Some(Pending {
            package: row.name.clone(),
            digest: digest.clone(),
            version: manifest.version.clone(),
            requests: evaluate_requests(&manifest.requests, &grants),
            denying: manifest.missing_grants(&grants),
        }))
    }

    /// Returns the requests that the sidecar doesn't grant.
    pub(super) fn ungranted(&self) -> Vec<Request> {
        let requests = self.requests.iter();
        requests
            .filter(|request| !request.is_granted)
            .cloned()
            .collect()
    }
}
