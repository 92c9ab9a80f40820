//! What changes from one version of a package to another.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::package::find;
use crate::admin::approval::diff::{Diff, RequestChange, Side, diff};
use crate::admin::approval::{PackageError, never_active, version};
use crate::admin::schedule_admin::{Difference, difference_lines};
use campanile_model::ids::ArtifactDigest;
use campanile_package::requests::Request;
use campanile_package::{Manifest, grant_record};
use campanile_store::package_versions::{self, Version};
use campanile_store::packages::{self, PackageRow};
use campanile_store::{DbError, Tx};

/// The differences between two versions of a package.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiffReport {
    pub package: String,
    #[serde(flatten)]
    pub diff: Diff,
    /// Whether the newer version waits for approval.
    pub is_pending: bool,
    /// The version whose bytes retention has removed, so that the imports are not compared. Null otherwise.
    pub without_imports: Option<ArtifactDigest>,
}

impl DiffReport {
    /// Compare two versions of the package `name`, each given by the first digits of its digest. Without `from`, the active
    /// version is compared with the pending one; without `to`, `from` is compared with the active one.
    pub async fn read(
        tx: &mut Tx,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<DiffReport, PackageError> {
        let row = find(tx, name).await?;
        let versions = package_versions::of_package(tx, &row.name).await?;
        let (from, to) = sides(&row, &versions, from, to)?;
        let manifests = [
            manifest(tx, &row.name, from).await?,
            manifest(tx, &row.name, to).await?,
        ];
        let mut both = [from, to].into_iter();
        let removed = both.find(|side| side.removed_at.is_some());
        let imports = match removed {
            Some(_) => Default::default(),
            None => [imports(tx, from).await?, imports(tx, to).await?],
        };
        let side = |version, place: usize| Side {
            version,
            manifest: &manifests[place],
            imports: &imports[place],
        };
        let grants = grant_record::read(&row.grants);
        Ok(DiffReport {
            diff: diff(&side(from, 0), &side(to, 1), &grants),
            is_pending: row.pending_digest.as_ref() == Some(&to.digest),
            without_imports: removed.map(|version| version.digest.clone()),
            package: row.name,
        })
    }

    /// Returns why the imports are not compared, if they are not.
    pub fn why_without_imports(&self) -> Option<String> {
        let digest = self.without_imports.as_ref()?.short();
        Some(format!(
            "retention removed the bytes of {digest}: the imports are not compared"
        ))
    }

    /// Returns the newer version's ungranted requests.
    pub fn missing(&self) -> impl Iterator<Item = &Request> {
        let requests = self.diff.requests.iter();
        let missing =
            requests.filter(|asked| !asked.request.is_granted && asked.change != "removed");
        missing.map(|asked| &asked.request)
    }

    /// Returns a line for each difference, and indented ones below it.
    pub fn lines(&self) -> Vec<String> {
        let diff = &self.diff;
        let indented = |differences: &[Difference]| {
            let lines = difference_lines(differences).into_iter();
            lines.map(|line| format!("  {line}"))
        };
        let mut lines: Vec<String> = indented(&diff.about).collect();
        for (what, changes) in [
            ("task", &diff.tasks),
            ("proposed schedule", &diff.schedules),
            ("import", &diff.imports),
        ] {
            for (change, names) in [("added", &changes.added), ("removed", &changes.removed)] {
                lines.extend(names.iter().map(|name| format!("{what} {change}: {name}")));
            }
            for changed in &changes.changed {
                lines.push(format!("{what} changed: {}", changed.name));
                lines.extend(indented(&changed.differences));
            }
        }
        lines.extend(diff.requests.iter().map(request_line));
        lines
    }
}

/// Say in words what becomes of a request, and whether it is granted.
pub fn request_line(RequestChange { request, change }: &RequestChange) -> String {
    let not = if request.is_granted { "" } else { "not " };
    let reason = request.reason.as_ref().map(|why| format!(" ({why})"));
    let reason = reason.unwrap_or_default();
    let (kind, what) = (request.kind.name, &request.what);
    format!("request {change}: {kind} {what}{reason}, {not}granted")
}

fn sides<'v>(
    row: &PackageRow,
    versions: &'v [Version],
    from: Option<&str>,
    to: Option<&str>,
) -> Result<(&'v Version, &'v Version), PackageError> {
    let Some(active) = &row.digest else {
        return Err(never_active(row));
    };
    let nothing = || PackageError::NothingPending(row.name.clone());
    let pending = || row.pending_digest.as_ref().ok_or_else(nothing);
    let [from, to] = match (from, to) {
        (None, _) => [active.as_str(), pending()?.as_str()],
        (Some(from), to) => [from, to.unwrap_or(active.as_str())],
    };
    let of = |wanted| version(&row.name, versions, wanted);
    Ok((of(from)?, of(to)?))
}

async fn manifest(tx: &mut Tx, package: &str, version: &Version) -> Result<Manifest, DbError> {
    let stored = package_versions::manifest(tx, package, &version.digest).await?;
    Ok(Manifest::from_stored(package, &stored.unwrap_or_default()))
}

async fn imports(tx: &mut Tx, version: &Version) -> Result<BTreeSet<String>, DbError> {
    let bytes = packages::artifact(tx, &version.digest).await?;
    // The file could be read when it was accepted. If this version cannot, it shows no imports.
    let read = bytes.and_then(|bytes| campanile_sandbox::imports_of(&bytes).ok());
    Ok(read.unwrap_or_default())
}
