//! Copies a directory to a dated snapshot every night.
//!
//! The task is idempotent. The snapshot's name is the date of the slot, so a recovered run writes the same snapshot.
//! The task copies to another name and renames the complete snapshot.
//!
//! ```text
//! /snapshots/.partial-2026-11-21/   incomplete; a later run of the same slot resumes here
//! /snapshots/2026-11-21/            complete
//! /snapshots/.removing-2026-10-01/  being removed, because of `keep`
//! ```

mod retention;
mod snapshot;
mod tree;

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use campanile_sdk::serde_json::json;
use campanile_sdk::{Error, Package, Request, Result, Run, Schedule, Task};
use serde::{Deserialize, Serialize};

const SOURCE: &str = "/source";
const SNAPSHOTS: &str = "/snapshots";

/// The context.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// The directory below `/source` to copy. The default is `/source`.
    #[serde(default)]
    source: PathBuf,
    /// The directory below `/snapshots` for the snapshots. The default is `/snapshots`.
    #[serde(default)]
    snapshots: PathBuf,
    /// The number of snapshots to keep, including the new one. All by default.
    keep: Option<usize>,
    /// The pause after each file, in milliseconds.
    #[serde(default)]
    pause_ms: u64,
}

/// The output.
#[derive(Debug, Serialize, PartialEq)]
struct Summary {
    /// The snapshot's name: the date of the slot.
    snapshot: String,
    /// The number of files in the snapshot.
    files: u64,
    /// The size of its files, in bytes.
    bytes: u64,
    /// Whether the snapshot existed already, so that nothing was copied.
    already_existed: bool,
    /// Whether an earlier run had begun the snapshot.
    resumed: bool,
    /// The number of files that the earlier run had copied.
    kept: u64,
    /// The number of symbolic links and special files that were skipped.
    skipped: u64,
    /// The names of the old snapshots that were removed.
    removed: Vec<String>,
}

fn backup(run: &Run, params: Params) -> Result<Summary> {
    let source = below(SOURCE, &params.source, "source")?;
    let snapshots = below(SNAPSHOTS, &params.snapshots, "snapshots")?;
    back_up(run, &params, &source, &snapshots)
}

fn back_up(run: &Run, params: &Params, source: &Path, snapshots: &Path) -> Result<Summary> {
    if params.keep == Some(0) {
        return Err(Error::permanent(
            "`keep` is 0, which would remove the new snapshot; set it to 1 or more, or remove it",
        ));
    }
    let date = slot_date(run);
    let pause = Duration::from_millis(params.pause_ms);
    let mut summary = snapshot::take(run, source, snapshots, &date, pause)?;
    summary.removed = retention::apply(run, snapshots, &date, params.keep)?;
    Ok(summary)
}

/// Return the date of the slot in the schedule's time zone.
///
/// The date in UTC would not be unique: the UTC date of 01:30 in Rome is the same day in winter and the day before in
/// summer, so two slots would share a date when the clocks change.
fn slot_date(run: &Run) -> String {
    let local = run.scheduled_local().and_then(|text| text.get(..10));
    match local {
        Some(date) if retention::is_date(date) => date.to_owned(),
        _ => run.original_scheduled_time().date(),
    }
}

/// Return `root`/`part`, or an error if the path is not below `root`.
fn below(root: &str, part: &Path, key: &str) -> Result<PathBuf> {
    let plain = |step| matches!(step, Component::Normal(_) | Component::CurDir);
    if part.components().all(plain) {
        Ok(Path::new(root).join(part))
    } else {
        Err(Error::permanent(format!(
            "`{key}` is `{}`, but it must be a path below {root}, without a leading `/` and without `..`",
            part.display()
        )))
    }
}

fn package() -> Package {
    Package::new("backup", env!("CARGO_PKG_VERSION"))
        .summary("Copies a directory to a dated snapshot every night")
        .task(
            Task::new("backup", backup)
                .summary("Copies /source to /snapshots/<date of the slot>")
                .timeout("1h"),
        )
        .schedule(Schedule::cron("0 2 * * *"))
        .request(Request::read_directory(SOURCE).because("the files to back up"))
        .request(Request::write_directory(SNAPSHOTS).because("the place of the snapshots"))
        .context_schema(json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "source": {"type": "string", "description": "The directory below /source to copy"},
                "snapshots": {"type": "string", "description": "The directory below /snapshots for the snapshots"},
                "keep": {"type": "integer", "minimum": 1, "description": "The number of snapshots to keep; all by default"},
                "pause_ms": {"type": "integer", "minimum": 0, "description": "The pause after each file, in milliseconds"}
            }
        }))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests;
