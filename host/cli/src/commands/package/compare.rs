//! `campanile package diff`: what changes from one version of a package to another.

use std::collections::BTreeSet;

use clap::Args;
use serde::Serialize;

use super::find;
use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::approval::diff::{Changes, Diff, Side, diff};
use campanile_engine::approval::{PackageError, approve_command, version};
use campanile_engine::schedule_admin::difference_lines;
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
}

impl Compare {
    pub(crate) async fn run(self, common: &Common) -> Result<(), Failure> {
        let db = common.open().await?;
        let mut tx = db.read().await?;
        let row = find(&mut tx, &self.name).await?;
        let versions = package_versions::of_package(&mut tx, &row.name).await?;
        let (from, to) = self.versions(&row, &versions)?;
        let manifests = [from, to].map(|side| Manifest::from_stored(&row.name, &side.manifest));
        let imports = [imports(&mut tx, from).await?, imports(&mut tx, to).await?];
        let side = |version, place: usize| Side {
            version,
            manifest: &manifests[place],
            imports: &imports[place],
        };
        let grants = grant_record::read(&row.grants);
        let report = DiffReport {
            diff: diff(&row.name, &side(from, 0), &side(to, 1), &grants),
            package: row.name.clone(),
        };
        match common.json {
            true => output::print_json(&report),
            false => print(&row, &report.diff),
        }
    }

    fn versions<'v>(
        &self,
        row: &PackageRow,
        versions: &'v [Version],
    ) -> Result<(&'v Version, &'v Version), PackageError> {
        let of = |wanted: &str| version(&row.name, versions, wanted);
        let Some(active) = &row.digest else {
            return Err(PackageError::NoActiveVersion {
                name: row.name.clone(),
                why: row.rejection.clone(),
            });
        };
        let nothing = || PackageError::NothingPending(row.name.clone());
        match (&self.from, &self.to) {
            (None, _) => {
                let pending = row.pending_digest.as_ref().ok_or_else(nothing)?;
                Ok((of(active.as_str())?, of(pending.as_str())?))
            }
            (Some(from), None) => Ok((of(from)?, of(active.as_str())?)),
            (Some(from), Some(to)) => Ok((of(from)?, of(to)?)),
        }
    }
}

async fn imports(tx: &mut Tx, version: &Version) -> Result<BTreeSet<String>, Failure> {
    let bytes = packages::artifact(tx, &version.digest).await?;
    // The file could be read when it was accepted. If this version cannot, it shows no imports.
    let read = bytes.and_then(|bytes| campanile_sandbox::imports_of(&bytes).ok());
    Ok(read.unwrap_or_default())
}

fn print(row: &PackageRow, diff: &Diff) -> Result<(), Failure> {
    let mut lines = vec![format!(
        "{}: from {} to {}",
        row.name,
        diff.from.short(),
        diff.to.short()
    )];
    let indented = |lines: Vec<String>| lines.into_iter().map(|line| format!("  {line}"));
    lines.extend(indented(difference_lines(&diff.about)));
    for (what, changes) in [
        ("task", &diff.tasks),
        ("proposed schedule", &diff.schedules),
        ("import", &diff.imports),
    ] {
        lines.extend(lines_of(what, changes));
    }
    let mut missing = Vec::new();
    for asked in &diff.requests {
        let request = &asked.request;
        let granted = match request.is_granted {
            true => "granted",
            false => "not granted",
        };
        let reason = match &request.reason {
            Some(reason) => format!(" ({reason})"),
            None => String::new(),
        };
        let (change, kind, what) = (asked.change, request.kind, &request.what);
        lines.push(format!(
            "request {change}: {kind} {what}{reason}, {granted}"
        ));
        if !request.is_granted && change != "removed" {
            missing.push(request);
        }
    }
    if lines.len() == 1 {
        lines.push("  only the bytes differ".to_owned());
    }
    for line in &lines {
        // Text of an author must not look like a line of Campanile.
        output::print_line(&printable_line(line))?;
    }
    output::print_sidecar_lines(&row.name, missing)?;
    if row.pending_digest.as_ref() == Some(&diff.to) {
        output::print_message(&format!(
            "hint: `{}` activates it with the grants that it has",
            approve_command(&row.name, &diff.to)
        ));
    }
    Ok(())
}

fn lines_of(what: &str, changes: &Changes) -> Vec<String> {
    let mut lines = Vec::new();
    for (change, names) in [("added", &changes.added), ("removed", &changes.removed)] {
        lines.extend(names.iter().map(|name| format!("{what} {change}: {name}")));
    }
    for changed in &changes.changed {
        lines.push(format!("{what} changed: {}", changed.name));
        let differences = difference_lines(&changed.differences);
        lines.extend(differences.iter().map(|line| format!("  {line}")));
    }
    lines
}
