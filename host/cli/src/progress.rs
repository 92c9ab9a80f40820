//! Progress on a terminal: lines below the messages on stderr that are redrawn, and disappear when their work has ended.
//!
//! Nothing is drawn elsewhere than on a terminal, nor with `--json`.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use campanile_model::text::{printable_line, size_rounded};

/// The time between two drawings of a line without news.
const TICK: Duration = Duration::from_millis(100);
/// Work whose amount is not known.
const STEP: &str = "{spinner} {msg} … {elapsed}";
/// A state that changes for as long as a host serves.
const STATE: &str = "{wide_msg}";
/// Work of a known number of parts, or of bytes.
const PARTS: &str = "[{bar:30}] {pos} of {len}  {msg}";
const BYTES: &str = "[{bar:30}] {bytes} of {total_bytes}  {msg}";

/// The lines of this process; unset where none are drawn.
static LINES: OnceLock<MultiProgress> = OnceLock::new();

/// Draw lines from now on, if stderr is a terminal and JSON is not wanted.
pub(crate) fn begin(as_json: bool) {
    if !as_json && io::stderr().is_terminal() {
        LINES.get_or_init(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
    }
}

/// Write to the terminal with `write` while no line is in the way.
pub(crate) fn suspend<T>(write: impl FnOnce() -> T) -> T {
    match LINES.get() {
        Some(lines) => lines.suspend(write),
        None => write(),
    }
}

/// A line of progress. It disappears when this is dropped.
pub(crate) struct Line(ProgressBar);

impl Line {
    /// Draw that something is done whose amount is not known.
    pub fn step(text: impl Display) -> Line {
        let line = Line::new(ProgressBar::new_spinner(), STEP);
        line.say(text);
        line
    }

    /// Draw the state of something that does not end. [`say`](Line::say) shows another one.
    pub fn state(text: impl Display) -> Line {
        let bar = ProgressBar::new_spinner();
        let line = Line::new(bar, STATE);
        line.say(text);
        line
    }

    /// Draw how much of `parts` is done.
    pub fn parts(parts: u64) -> Line {
        Line::new(ProgressBar::new(parts), PARTS)
    }

    /// Draw how many of `bytes` are written.
    pub fn bytes(bytes: u64, text: impl Display) -> Line {
        let line = Line::new(ProgressBar::new(bytes), BYTES);
        line.say(text);
        line
    }

    fn new(bar: ProgressBar, template: &str) -> Line {
        let Some(lines) = LINES.get() else {
            return Line(ProgressBar::hidden());
        };
        let bar = lines.add(bar);
        // The templates are constants, and a test reads them.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Line(bar)
    }

    /// Show another text. A file's name in it must not change the terminal.
    pub fn say(&self, text: impl Display) {
        self.0.set_message(printable_line(&text.to_string()));
    }

    /// Show that at least `parts` are to be done.
    pub fn grow(&self, parts: u64) {
        let before = self.0.length().unwrap_or_default();
        self.0.set_length(before.max(parts));
    }

    /// Show that `done` is done.
    pub fn set(&self, done: u64) {
        self.grow(done);
        self.0.set_position(done);
    }

    pub fn is_drawn(&self) -> bool {
        LINES.get().is_some()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Draw that the file of a package is compiled, until what this returns is dropped.
pub(crate) fn compiling(package: &str, bytes: u64) -> Box<dyn Send> {
    let size = size_rounded(bytes);
    Box::new(Line::step(format_args!("compiling {package} ({size})")))
}

/// Stderr for the log, whose lines stand above the lines of progress.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_can_be_read() {
        for template in [STEP, STATE, PARTS, BYTES] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn nothing_is_drawn_without_a_terminal() {
        begin(true);
        let line = Line::parts(3);
        line.set(5);
        assert!(!line.is_drawn());
        assert_eq!(suspend(|| 7), 7);
        drop(compiling("a\u{1b}[2J", 1));
    }
}
