//! The progress of a backfill on stderr: a bar on a terminal, a line every few seconds elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use super::BackfillRecord;
use crate::output;

/// The least time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// The width of the bar in characters.
const WIDTH: usize = 30;

/// How progress is shown.
pub(crate) enum Progress {
    Quiet,
    /// One line of a terminal that is redrawn. `drawn` is set while the line is there.
    Bar {
        drawn: bool,
    },
    /// Lines; the last one and when it was printed.
    Lines(Option<(Instant, String)>),
}

impl Progress {
    pub fn new(is_quiet: bool) -> Progress {
        match (is_quiet, io::stderr().is_terminal()) {
            (true, _) => Progress::Quiet,
            (false, true) => Progress::Bar { drawn: false },
            (false, false) => Progress::Lines(None),
        }
    }

    pub fn show(&mut self, record: &BackfillRecord) {
        match self {
            Progress::Quiet => {}
            Progress::Bar { drawn } => {
                *drawn = true;
                let bar = bar(record.slots_finished(), record.row.slots);
                output::redraw(&format!("[{bar}] {}", record.progress()));
            }
            Progress::Lines(last) => {
                let text = record.progress();
                let is_due = last.as_ref().is_none_or(|(printed_at, printed)| {
                    printed_at.elapsed() >= LINE_INTERVAL && *printed != text
                });
                if is_due {
                    output::print_message(&text);
                    *last = Some((Instant::now(), text));
                }
            }
        }
    }

    /// End the redrawn line, so that other lines can follow.
    pub fn interrupt(&mut self) {
        if let Progress::Bar { drawn } = self
            && std::mem::take(drawn)
        {
            output::print_message("");
        }
    }
}

/// Return a bar that shows `done` of `all`. It is full only when all is done.
fn bar(done: i64, all: i64) -> String {
    let (done, all) = (done.max(0) as u128, all.max(1) as u128);
    let full = (WIDTH as u128 * done / all).min(WIDTH as u128) as usize;
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
