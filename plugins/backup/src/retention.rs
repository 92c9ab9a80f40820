//! Which snapshots stay.

use std::fs;
use std::path::Path;

use campanile_sdk::{Explain, Result, Run};

const REMOVING: &str = ".removing-";

/// Remove the oldest snapshots until `keep` are left, and what an earlier removal left behind. Returns the names, oldest first.
///
/// The snapshot `present` stays, however old its date: somebody has just asked for it.
pub fn apply(
    run: &Run,
    snapshots: &Path,
    present: &str,
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
    // Dates sort as their text does.
    dates.sort_unstable();
    let surplus = dates.len().saturating_sub(keep.unwrap_or(usize::MAX));
    dates.retain(|date| date != present);
    dates.truncate(surplus);
    for date in &dates {
        // A date in the folder promises a whole snapshot, so it loses its name before its files.
        let going = snapshots.join(format!("{REMOVING}{date}"));
        fs::rename(snapshots.join(date), &going)
            .explain(|| format!("removing the old snapshot {date}"))?;
        remove(&going)?;
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
        && name.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}
