//! `campanile package diff`: what changes from one version of a package to another.

use std::collections::BTreeSet;

use clap::Args;
use serde::Serialize;

use crate::Common;
use crate::output::{self, Record, Result, optional};
use campanile_engine::approval::diff::{Diff, RequestChange, Side, diff};
use campanile_engine::approval::{PackageError, approve_command, version};
use campanile_engine::records::package::find;
use campanile_engine::schedule_admin::{Difference, difference_lines};
use campanile_model::text::printable_line;
use campanile_package::{Manifest, grant_record};
use campanile_store::Tx;
use campanile_store::package_versions::{self, Version};
use campanile_store::packages::{self, PackageRow};

#[derive(Args)]
pub(crate) struct Compare {
    /// The package's name: its file name without .wasm
    name: String,
    /// The first digits of a version's digest [default: the active version]
    from: Option<String>,
    /// The first digits of another version's digest [default: the pending version, or with FROM the active one]
    to: Option<String>,
}

/// The differences between two versions of a package.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct DiffReport {
    package: String,
    #[serde(flatten)]
    diff: Diff,
    /// Whether the newer version waits for approval.
    #[serde(skip)]
    is_pending: bool,
}

impl Compare {
    pub(crate) async fn run(self, common: &Common) -> Result {
        let mut tx = common.read().await?;
        let row = find(&mut tx, &self.name).await?;
        let versions = package_versions::of_package(&mut tx, &row.name).await?;
        let (from, to) = self.versions(&row, &versions)?;
        let manifests = [from, to].map(|side| Manifest::from_stored(&row.name, &side.manifest));
        let removed = [from, to]
            .into_iter()
            .find(|side| side.removed_at.is_some());
        let imports = match removed {
            Some(version) => {
                let digest = version.digest.short();
                output::print_message!(
                    "retention removed the bytes of {digest}: the imports are not compared"
                );
                Default::default()
            }
            None => [imports(&mut tx, from).await?, imports(&mut tx, to).await?],
        };
        let side = |version, place: usize| Side {
            version,
            manifest: &manifests[place],
            imports: &imports[place],
        };
        let grants = grant_record::read(&row.grants);
        let report = DiffReport {
            diff: diff(&side(from, 0), &side(to, 1), &grants),
            is_pending: row.pending_digest.as_ref() == Some(&to.digest),
            package: row.name.clone(),
        };
        common.print(&report)
    }

    fn versions<'v>(
        &self,
        row: &PackageRow,
        versions: &'v [Version],
    ) -> Result<(&'v Version, &'v Version), PackageError> {
        let Some(active) = &row.digest else {
            return Err(PackageError::NoActiveVersion {
                name: row.name.clone(),
                why: row.rejection.clone(),
            });
        };
        let nothing = || PackageError::NothingPending(row.name.clone());
        let pending = || row.pending_digest.as_ref().ok_or_else(nothing);
        let [from, to] = match (&self.from, &self.to) {
            (None, _) => [active.as_str(), pending()?.as_str()],
            (Some(from), to) => [from, to.as_deref().unwrap_or(active.as_str())],
        };
        let of = |wanted| version(&row.name, versions, wanted);
        Ok((of(from)?, of(to)?))
    }
}

async fn imports(tx: &mut Tx, version: &Version) -> Result<BTreeSet<String>> {
    let bytes = packages::artifact(tx, &version.digest).await?;
    // The file could be read when it was accepted. If this version cannot, it shows no imports.
    let read = bytes.and_then(|bytes| campanile_sandbox::imports_of(&bytes).ok());
    Ok(read.unwrap_or_default())
}

impl Record for DiffReport {
    fn print(&self) -> Result {
        let DiffReport { package, diff, .. } = self;
        let (from, to) = (diff.from.short(), diff.to.short());
        output::print_line!("{package}: from {from} to {to}")?;
        let lines = self.lines();
        if lines.is_empty() {
            output::print_line("  only the bytes differ")?;
        }
        for line in &lines {
            // Text of an author must not look like a line of Campanile.
            output::print_line(&printable_line(line))?;
        }
        let missing = diff.requests.iter();
        let missing =
            missing.filter(|asked| !asked.request.is_granted && asked.change != "removed");
        output::print_sidecar_lines(package, missing.map(|asked| &asked.request))?;
        if self.is_pending {
            let approve = approve_command(package, &diff.to);
            output::print_message!("hint: `{approve}` activates it with the grants that it has");
        }
        Ok(())
    }
}

impl DiffReport {
    /// Return a line for each difference, and indented ones below it.
    fn lines(&self) -> Vec<String> {
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
        for RequestChange { request, change } in &diff.requests {
            let not = if request.is_granted { "" } else { "not " };
            let reason = request.reason.as_ref().map(|why| format!(" ({why})"));
            let reason = optional(&reason);
            let (kind, what) = (request.kind, &request.what);
            lines.push(format!(
                "request {change}: {kind} {what}{reason}, {not}granted"
            ));
        }
        lines
    }
}
