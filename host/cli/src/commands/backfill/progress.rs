//! The progress of a backfill on stderr: a bar on a terminal, a line every few seconds elsewhere.

use std::time::{Duration, Instant};

use super::{progress_text, slots_finished};
use crate::output;
use crate::progress::Line;
use campanile_control::records::backfill::BackfillRecord;

/// The least time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How progress is shown.
pub(crate) struct Progress {
    is_quiet: bool,
    /// The bar of a terminal.
    bar: Line,
    /// Elsewhere: the last line, and when it was printed.
    last: Option<(Instant, String)>,
}

impl Progress {
    pub fn new(is_quiet: bool) -> Progress {
        Progress {
            is_quiet,
            bar: Line::parts(0),
            last: None,
        }
    }

    pub fn show(&mut self, record: &BackfillRecord) {
        let count = |slots: i64| u64::try_from(slots).unwrap_or_default();
        let text = progress_text(record);
        if self.bar.is_drawn() {
            self.bar.grow(count(record.row.slots));
            self.bar.set(count(slots_finished(record)));
            self.bar.say(&text);
        } else if !self.is_quiet {
            let is_due = self.last.as_ref().is_none_or(|(printed_at, printed)| {
                printed_at.elapsed() >= LINE_INTERVAL && *printed != text
            });
            if is_due {
                output::print_message(&text);
                self.last = Some((Instant::now(), text));
            }
        }
    }
}
