//! The version of a package that isn't active yet.

use campanile_model::ids::ArtifactDigest;
use campanile_package::requests::{Request, evaluate_requests};
use campanile_package::{Manifest, grant_record};
use campanile_store::packages::PackageRow;
use campanile_store::{DbError, Tx, package_versions};

/// A version that isn't active, and what it asks for.
pub(in super::super) struct Pending {
    pub(super) package: String,
    pub(super) digest: ArtifactDigest,
    pub(super) version: Option<String>,
    pub(super) requests: Vec<Request>,
    /// How many of its launches succeeded and failed, when it was active before.
    pub(super) results: (i64, i64),
}

impl Pending {
    /// Reads the pending version of a package; none if its newest file is active.
    pub(in super::super) async fn read(
        tx: &mut Tx,
        row: &PackageRow,
    ) -> Result<Option<Pending>, DbError> {
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
            results: package_versions::results(tx, &row.name, digest)
                .await?
                .unwrap_or_default(),
            requests: evaluate_requests(&manifest.requests, &grants),
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
