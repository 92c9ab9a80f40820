//! The rounds of a command that `--watch` repeats. A round is one run of the command. Its output is collected, and then
//! shown at once.
//!
//! On a terminal, the output of a round replaces that of the round before, on the terminal's alternate screen. In a pipe
//! or a file, an empty line separates two rounds. With `--json`, each answer is one line.

use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terminal_size::{Height, Width, terminal_size_of};

use super::{Result, fitted, write_stdout};
use campanile_model::clock::Clock;

/// Switch to another screen, hide the cursor, and cut long lines off.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Undo [`OPEN`].
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Go to the first line. Clear the rest of a line, and everything below.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The output of the present round; none while no command is repeated.
static PRINTED: Mutex<Option<Printed>> = Mutex::new(None);

struct Printed {
    text: String,
    /// Whether messages belong to it too: a terminal shows both.
    has_messages: bool,
}

fn printed() -> MutexGuard<'static, Option<Printed>> {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a command is repeated. Then its JSON has one line.
pub(super) fn is_repeated() -> bool {
    printed().is_some()
}

/// Collect a line of stdout for the present round. False when there is none.
pub(super) fn collect_line(text: &str) -> bool {
    collect(text, |_| true)
}

/// Collect a message for the present round. False when it belongs to stderr.
pub(super) fn collect_message(text: &str) -> bool {
    collect(text, |printed| printed.has_messages)
}

fn collect(text: &str, belongs: impl Fn(&Printed) -> bool) -> bool {
    let mut printed = printed();
    let Some(printed) = printed.as_mut().filter(|printed| belongs(printed)) else {
        return false;
    };
    printed.text += text;
    printed.text.push('\n');
    true
}

/// The rounds of one command. The terminal is as before when this is dropped.
pub(crate) struct Rounds {
    pause: Duration,
    is_drawn: bool,
    /// What stands between two rounds elsewhere than on a terminal.
    separator: &'static str,
    is_first: bool,
}

impl Rounds {
    pub fn begin(pause: Duration, as_json: bool) -> Rounds {
        let is_drawn = io::stdout().is_terminal() && !as_json;
        if is_drawn {
            // If the terminal is closed, showing the first round returns the error.
            let _ = write_stdout(OPEN);
        }
        Rounds {
            pause,
            is_drawn,
            separator: if as_json { "" } else { "\n" },
            is_first: true,
        }
    }

    /// Begin to collect the output of the command.
    pub fn open(&mut self) {
        *printed() = Some(Printed {
            text: String::new(),
            has_messages: self.is_drawn,
        });
    }

    /// Show what the round has printed. False when the reader of stdout has closed it.
    pub fn show(&mut self) -> Result<bool> {
        let text = printed().take().map(|printed| printed.text);
        let text = text.unwrap_or_default();
        let is_first = std::mem::take(&mut self.is_first);
        if !self.is_drawn {
            let separator = if is_first { "" } else { self.separator };
            return write_stdout(&format!("{separator}{text}"));
        }
        let (width, height) = terminal_size_of(io::stdout()).map_or((80, 24), |size| {
            let (Width(width), Height(height)) = size;
            (usize::from(width), usize::from(height))
        });
        let now = Clock::system().now();
        let seconds = self.pause.as_secs_f64();
        let head = format!("{now}, every {seconds} s until Ctrl-C");
        write_stdout(&frame(&format!("{head}\n\n{text}"), width, height))
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        // A round that did not end is not shown.
        printed().take();
        if self.is_drawn {
            let _ = write_stdout(CLOSE);
        }
    }
}

/// Returns the text that draws `text` on a terminal of that size. Lines that do not fit are cut off.
fn frame(text: &str, width: usize, height: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown: Vec<String> = lines
        .iter()
        .take(height)
        .map(|line| fitted(line, width))
        .collect();
    let hidden = lines.len().saturating_sub(shown.len());
    if let Some(last) = shown.last_mut().filter(|_| hidden > 0) {
        *last = fitted(&format!("… {} more lines", hidden + 1), width);
    }
    let lines = shown.join(&format!("{CLEAR_LINE}\r\n"));
    format!("{HOME}{lines}{CLEAR_LINE}{CLEAR_BELOW}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let drawn = frame("short\na longer line\nlast", 8, 3);
        assert_eq!(
            drawn,
            "\x1b[Hshort\x1b[K\r\na longe…\x1b[K\r\nlast\x1b[K\x1b[J"
        );
        let cut = frame("1\n2\n3\n4", 20, 3);
        assert_eq!(
            cut,
            "\x1b[H1\x1b[K\r\n2\x1b[K\r\n… 2 more lines\x1b[K\x1b[J"
        );
        assert_eq!(fitted("äöü", 3), "äöü");
        assert_eq!(fitted("äöüß", 3), "äö…");
        assert_eq!(frame("", 80, 24), "\x1b[H\x1b[K\x1b[J");
    }
}
