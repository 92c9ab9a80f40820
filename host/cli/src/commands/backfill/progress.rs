//! How far a backfill has come, on stderr: a bar on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use super::Seen;
use crate::output;

/// From one line to the next at least, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Places of the bar.
const WIDTH: usize = 30;

/// Where progress is shown.
pub(super) enum Progress {
    /// Nowhere.
    Quiet,
    /// In one line of a terminal, again and again; `drawn` while it is there.
    Bar { drawn: bool },
    /// In lines, of which the last was said at this moment.
    Lines(Option<(Instant, String)>),
}

impl Progress {
    pub fn new(quiet: bool) -> Progress {
        match (quiet, io::stderr().is_terminal()) {
            (true, _) => Progress::Quiet,
            (false, true) => Progress::Bar { drawn: false },
            (false, false) => Progress::Lines(None),
        }
    }

    pub fn show(&mut self, seen: &Seen) {
        match self {
            Progress::Quiet => {}
            Progress::Bar { drawn } => {
                *drawn = true;
                let bar = bar(seen.over(), seen.backfill.slots);
                output::redraw(&format!("[{bar}] {}", seen.text()));
            }
            Progress::Lines(last) => {
                let text = seen.text();
                let is_due = last.as_ref().is_none_or(|(said_at, said)| {
                    said_at.elapsed() >= LINE_INTERVAL && *said != text
                });
                if is_due {
                    output::talk(&text);
                    *last = Some((Instant::now(), text));
                }
            }
        }
    }

    /// Make place for other lines.
    pub fn interrupt(&mut self) {
        if let Progress::Bar { drawn } = self
            && std::mem::take(drawn)
        {
            output::talk("");
        }
    }
}

/// Pure: so much of the bar as of the whole is over; full only when all is.
fn bar(over: i64, whole: i64) -> String {
    let (over, whole) = (over.max(0) as u128, whole.max(1) as u128);
    let full = (WIDTH as u128 * over / whole).min(WIDTH as u128) as usize;
    format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_when_all_is_over_and_not_before() {
        for (over, whole, full) in [
            (0, 100, 0),
            (50, 100, 15),
            (99, 100, 29),
            (100, 100, 30),
            (1, 1, 30),
            (0, 0, 0),
            (i64::MAX, 1, 30),
        ] {
            let bar = bar(over, whole);
            assert_eq!(bar.matches('#').count(), full, "{over} of {whole}");
            assert_eq!(bar.len(), WIDTH);
        }
    }
}
