//! Copies a directory into a dated snapshot, once a day.
//!
//! Safe to run again at any moment: the snapshot's name comes from the slot, not from the clock, so a
//! recovered run writes the same one; it grows under another name and is renamed when it is whole.
//!
//! ```text
//! /snapshots/.partial-2026-11-21/   while it grows; a later run of the same slot goes on from here
//! /snapshots/2026-11-21/            whole
//! /snapshots/.removing-2026-10-01/  on its way out, because `keep` says so
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

/// What the schedule's context may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wishes {
    /// The part of `/source` to copy; all of it if not said.
    #[serde(default)]
    source: PathBuf,
    /// Where below `/snapshots` to keep the snapshots.
    #[serde(default)]
    snapshots: PathBuf,
    /// How many snapshots to keep, the present one included; all if not said.
    keep: Option<usize>,
    /// How long to rest after each file, in milliseconds: throttles the copying.
    #[serde(default)]
    pause_ms: u64,
}

/// What goes on the record.
#[derive(Debug, Serialize, PartialEq)]
struct Done {
    /// The snapshot's name: the slot's date.
    snapshot: String,
    /// Files in it.
    files: u64,
    /// Bytes in it.
    bytes: u64,
    /// It was there already, so nothing was copied.
    already_existed: bool,
    /// An earlier run had begun it.
    resumed: bool,
    /// Files that the earlier run had already copied.
    kept: u64,
    /// Symbolic links and special files that were left out.
    skipped: u64,
    /// Older snapshots that were removed.
    removed: Vec<String>,
}

fn backup(run: &Run, wishes: Wishes) -> Result<Done> {
    let source = below(SOURCE, &wishes.source, "source")?;
    let snapshots = below(SNAPSHOTS, &wishes.snapshots, "snapshots")?;
    back_up(run, &wishes, &source, &snapshots)
}

fn back_up(run: &Run, wishes: &Wishes, source: &Path, snapshots: &Path) -> Result<Done> {
    if wishes.keep == Some(0) {
        return Err(Error::permanent(
            "`keep` is 0, which would remove the snapshot just made: say 1 or more, or leave it out",
        ));
    }
    let date = slot_date(run);
    let pause = Duration::from_millis(wishes.pause_ms);
    let mut done = snapshot::take(run, source, snapshots, &date, pause)?;
    done.removed = retention::apply(run, snapshots, &date, wishes.keep)?;
    Ok(done)
}

/// The slot's date as the calendar in the schedule's zone shows it.
///
/// Not the UTC date: at 01:30 in Rome the UTC date is today's in winter and yesterday's in summer, and
/// on the day the clocks change two slots would share a date.
fn slot_date(run: &Run) -> String {
    let local = run.scheduled_local().and_then(|text| text.get(..10));
    match local {
        Some(date) if retention::is_date(date) => date.to_owned(),
        _ => run.original_scheduled_time().date(),
    }
}

/// `root`/`part`, if `part` stays below it.
fn below(root: &str, part: &Path, key: &str) -> Result<PathBuf> {
    let plain = |step| matches!(step, Component::Normal(_) | Component::CurDir);
    if part.components().all(plain) {
        Ok(Path::new(root).join(part))
    } else {
        Err(Error::permanent(format!(
            "`{key}` is `{}`: it must be a path below {root}, without a leading `/` and without `..`",
            part.display()
        )))
    }
}

fn package() -> Package {
    Package::new("backup", env!("CARGO_PKG_VERSION"))
        .summary("Copies a directory into a dated snapshot, once a day")
        .task(
            Task::new("backup", backup)
                .summary("Copies /source to /snapshots/<the slot's date>")
                .timeout("1h"),
        )
        .schedule(Schedule::cron("0 2 * * *"))
        .request(Request::read_directory(SOURCE).because("what is backed up"))
        .request(Request::write_directory(SNAPSHOTS).because("where the snapshots go"))
        .context_schema(json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "source": {"type": "string", "description": "The part of /source to copy; all of it if not said"},
                "snapshots": {"type": "string", "description": "Where below /snapshots to keep the snapshots"},
                "keep": {"type": "integer", "minimum": 1, "description": "How many snapshots to keep; all if not said"},
                "pause_ms": {"type": "integer", "minimum": 0, "description": "How long to rest after each file"}
            }
        }))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests;
