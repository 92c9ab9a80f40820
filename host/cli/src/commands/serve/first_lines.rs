//! The lines that `serve` prints at a terminal when the host serves: the next slots, and commands for another terminal.

use std::path::Path;

use tokio::sync::watch;

use crate::output;
use campanile_store::stats::{self, NextSlot};
use campanile_store::{Db, DbError};

/// The schedules that are named.
const NAMED_MAX: i64 = 3;

/// Print the lines once `serving` holds true. `link` makes the address that signs a browser in, if there's one.
///
/// Stderr alone gets it, when it's a terminal: no log does, whichever way it goes.
pub(super) async fn print(
    db: &Db,
    plugins: &Path,
    mut serving: watch::Receiver<bool>,
    link: impl FnOnce() -> Option<String>,
) {
    if serving.wait_for(|serves| *serves).await.is_err() {
        return;
    }
    // The log reports a database that does not answer.
    if let Ok(next) = next(db).await {
        output::print_message!("{}", text(&next, plugins));
    }
    if let Some(link) = link() {
        output::print_message!("{}", sign_in_text(&link));
    }
}

async fn next(db: &Db) -> Result<Vec<NextSlot>, DbError> {
    stats::next_slots(&mut db.read().await?, NAMED_MAX).await
}

/// Pure: the lines for a host whose schedules have the slots `next`.
fn text(next: &[NextSlot], plugins: &Path) -> String {
    let first = match next {
        [] => format!(
            "nothing is scheduled: copy a .wasm file into {}, or write a task with `campanile new NAME`",
            plugins.display()
        ),
        next => {
            let slots = next.iter();
            let slots = slots.map(|NextSlot { schedule, slot }| format!("`{schedule}` at {slot}"));
            format!("next: {}", slots.collect::<Vec<_>>().join(", "))
        }
    };
    format!(
        "{first}\nin another terminal, `campanile top` shows what the host does, and `campanile launch list` each launch; Ctrl-C stops the host"
    )
}

fn sign_in_text(link: &str) -> String {
    format!("to sign a browser in, open this link within five minutes; it works once:\n  {link}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_name_the_next_slots_or_say_how_to_get_some() {
        let plugins = Path::new("plugins");
        let none = text(&[], plugins);
        assert!(none.starts_with("nothing is scheduled: copy a .wasm file into plugins, or"));
        let slot = |schedule: &str, at: &str| NextSlot {
            schedule: schedule.to_owned(),
            slot: at.parse().unwrap(),
        };
        let next = [
            slot("hello", "2026-11-24T14:31:10Z"),
            slot("etl", "2026-11-24T14:32:00Z"),
        ];
        let lines = text(&next, plugins);
        let mut lines = lines.lines();
        let expected = "next: `hello` at 2026-11-24T14:31:10Z, `etl` at 2026-11-24T14:32:00Z";
        assert_eq!(lines.next(), Some(expected));
        assert!(lines.next().unwrap().contains("`campanile top`"));
    }
}
