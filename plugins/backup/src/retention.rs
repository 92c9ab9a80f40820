//! The removal of old snapshots.

use std::fs;
use std::path::Path;

use campanile_sdk::{Explain, Result, Run};

const REMOVING: &str = ".removing-";

/// Remove the oldest snapshots until `keep` are left, and return their names, the oldest first.
///
/// Also finish an interrupted removal. The snapshot `current` is never removed, even if its date is the oldest.
pub fn apply(
    run: &Run,
    snapshots: &Path,
    current: &str,
    keep: Option<usize>,
) -> Result<Vec<String>> {
    let mut dates = Vec::new();
    for entry in fs::read_dir(snapshots).explain(|| format!("listing {}", snapshots.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(REMOVING) {
            remove(&snapshots.join(&name))?;
        } else if is_date(&name) {
            dates.push(name);
        }
    }
    // The text of dates sorts like the dates.
    dates.sort_unstable();
    let surplus = dates.len().saturating_sub(keep.unwrap_or(usize::MAX));
    dates.retain(|date| date != current);
    dates.truncate(surplus);
    for date in &dates {
        // A directory with a date as its name is a complete snapshot, so rename it before removing its files.
        let removing = snapshots.join(format!("{REMOVING}{date}"));
        fs::rename(snapshots.join(date), &removing)
            .explain(|| format!("removing the old snapshot {date}"))?;
        remove(&removing)?;
        run.info(format!("removed the old snapshot {date}"));
    }
    Ok(dates)
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_dir_all(path).explain(|| format!("removing {}", path.display()))
}

/// Whether `name` has the shape of a date, `YYYY-MM-DD`.
pub fn is_date(name: &str) -> bool {
    name.len() == 10
        && name.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}
