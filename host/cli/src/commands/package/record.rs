//! How packages and their versions are printed.

use crate::Common;
use crate::output::{self, Record, Result, optional};
use campanile_control::admin::approval::approve_command;
use campanile_control::records::package::{PackageDetail, PackageRecord, VersionRecord};
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::{counted, shell, size_rounded};
use campanile_package::grant_record;
use campanile_store::packages::PackageState;

impl Record for PackageRecord {
    const LIST: &'static str =
        "name state digest pending_digest form size loaded_at loading_since rejection";
    const DECIDING: &'static str = "state digest rejection";

    fn text(&self, key: &str) -> Option<String> {
        let short =
            |digest: &Option<ArtifactDigest>| optional(&digest.as_ref().map(ArtifactDigest::short));
        match key {
            "digest" => Some(short(&self.row.digest)),
            "pending_digest" => Some(short(&self.row.pending_digest)),
            "size" => {
                let size = self.row.size_bytes.map(i64::unsigned_abs);
                Some(optional(&size.map(size_rounded)))
            }
            _ => None,
        }
    }
}

impl Record for PackageDetail {
    const DETAIL: &'static str = "name state digest pending_digest pending_since form size loaded_at missing_since \
        rejection rejected_at loading_since grants schedules unused_proposals kept";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "size" => self.package.text(key),
            "grants" => {
                let grants = self.grants.iter();
                let grants = grants.map(|grant| grant_record::shown(&grant.to_string()));
                Some(grants.collect::<Vec<_>>().join("\n"))
            }
            "unused_proposals" => {
                let unused = self.unused_proposals.iter();
                let unused = unused.map(|it| format!("{}: {}", it.schedule, it.why));
                Some(unused.collect::<Vec<_>>().join("\n"))
            }
            "kept" => {
                let kept = self.versions.iter();
                let versions = kept.filter(|it| it.version.removed_at.is_none()).count();
                let bytes = size_rounded(self.bytes_kept);
                Some(format!("{bytes} in {}", counted(versions, "version")))
            }
            _ => None,
        }
    }

    fn print(&self) -> Result {
        output::print_detail(self)?;
        output::print_line("")?;
        output::print_table(&self.versions)?;
        output::print_line("\nmanifest")?;
        output::print_line!("{:#}", self.manifest)
    }
}

impl Record for VersionRecord {
    const LIST: &'static str = "digest state name version form size first_seen_at activated_at succeeded failed signed_by \
        decided_at decided_by note";
    const DECIDING: &'static str = "state version succeeded failed";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "digest" => Some(self.version.digest.short().to_owned()),
            "size" => {
                let size = size_rounded(self.version.size_bytes.unsigned_abs());
                Some(match self.version.removed_at {
                    None => size,
                    Some(_) => format!("{size} (removed)"),
                })
            }
            _ => None,
        }
    }
}

pub(crate) fn list(common: &Common, records: &[PackageRecord]) -> Result {
    common.print_list(records)?;
    if common.json {
        return Ok(());
    }
    for package in records {
        if let (PackageState::PendingApproval, Some(digest)) =
            (package.state, &package.row.pending_digest)
        {
            output::print_message!(
                "hint: `campanile package diff {0}` shows the pending version; `{1}` approves it, \
                 `campanile package reject {0}` rejects it",
                shell(&package.row.name),
                approve_command(&package.row.name, digest)
            );
        }
    }
    Ok(())
}
