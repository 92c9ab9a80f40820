//! `wasi:logging`: the lines of a call, up to a limit.

use std::sync::Arc;

use campanile_model::clock::{Clock, Timestamp};

use crate::bindings::wasi::logging::logging::{self, Level};
use crate::ledger::kept::KeptOfCall;
use crate::limits::Resource;
use crate::outcome::LogLine;

/// The context of lines that the host itself adds.
pub(crate) const HOST_CONTEXT: &str = "campanile";

/// What a line costs beside its text: its time and level. It also bounds a flood of empty lines.
const LINE_OVERHEAD_BYTES: usize = 32;

/// Host memory for a line besides its text, as kept and later as JSON, in bytes.
const KEPT_LINE_BYTES: u64 = 192;

/// The log of one call.
pub(crate) struct Logs {
    /// Dates the lines.
    clock: Clock,
    lines: Vec<LogLine>,
    bytes: usize,
    bytes_max: usize,
    /// How many lines were dropped or cut, and when the last one was.
    dropped: Option<(u64, Timestamp)>,
    /// Whether the last line was truncated.
    is_last_cut: bool,
    kept: Arc<KeptOfCall>,
    kept_bytes: u64,
    /// Why the host kept less than the call's limits allow.
    refused_by_host: Option<String>,
}

impl Logs {
    pub(crate) fn new(clock: Clock, bytes_max: usize, kept: &Arc<KeptOfCall>) -> Logs {
        Logs {
            clock,
            lines: Vec::new(),
            bytes: 0,
            bytes_max,
            dropped: None,
            is_last_cut: false,
            kept: Arc::clone(kept),
            kept_bytes: 0,
            refused_by_host: None,
        }
    }

    /// Add a line, or as much of its message as fits.
    pub(crate) fn add(&mut self, level: &str, context: String, mut message: String) {
        let at = self.clock.now();
        let fixed = LINE_OVERHEAD_BYTES + context.len();
        let room = self.bytes_max.saturating_sub(self.bytes);
        let dropped = self.dropped.map_or(0, |(lines, _)| lines);
        if dropped > 0 || room < fixed {
            self.dropped = Some((dropped + 1, at));
            return;
        }
        let is_cut = message.len() > room - fixed;
        if is_cut {
            message.truncate(message.floor_char_boundary(room - fixed));
            self.dropped = Some((1, at));
        }
        let kept = KEPT_LINE_BYTES + json_bytes(&context) + json_bytes(&message);
        if let Err(why) = self.kept.keep(kept) {
            self.dropped = Some((1, at));
            self.refused_by_host = Some(why);
            return;
        }
        self.is_last_cut = is_cut;
        self.kept_bytes += kept;
        self.bytes += fixed + message.len();
        self.lines.push(LogLine {
            at,
            level: level.to_owned(),
            context,
            message,
            by_host: false,
        });
    }

    /// Returns the size of the kept lines in bytes, or the whole limit if lines were dropped because of it.
    pub(crate) fn bytes(&self) -> u64 {
        let is_full = self.dropped.is_some() && self.refused_by_host.is_none();
        let bytes = if is_full {
            self.bytes_max.max(1)
        } else {
            self.bytes
        };
        bytes as u64
    }

    /// Returns the host memory taken by the lines, in bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Returns the lines, and whether the guest's last one was truncated. If any were dropped or truncated, the host adds a line saying how
    /// many.
    pub(crate) fn into_lines(mut self) -> (Vec<LogLine>, bool) {
        if let Some((lines, at)) = self.dropped {
            let why = self.refused_by_host.unwrap_or_else(|| {
                let raise = Resource::Log.raise();
                format!(
                    "the limit is {} bytes; to keep more, {raise}",
                    self.bytes_max
                )
            });
            self.lines.push(LogLine {
                at,
                level: "warn".to_owned(),
                context: HOST_CONTEXT.to_owned(),
                message: format!("{lines} log lines were dropped or cut here; {why}"),
                by_host: true,
            });
        }
        (self.lines, self.is_last_cut)
    }
}

/// Returns the length of `text` as JSON, in bytes.
fn json_bytes(text: &str) -> u64 {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' => 2,
        // `\u001b`
        ..b' ' => 6,
        _ => 1,
    });
    bytes.sum()
}

impl logging::Host for Logs {
    fn log(&mut self, level: Level, context: String, message: String) {
        let level = match level {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Critical => "critical",
        };
        self.add(level, context, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    fn logs(bytes_max: usize) -> Logs {
        logs_of(&Ledger::unbounded(), bytes_max)
    }

    fn logs_of(ledger: &Ledger, bytes_max: usize) -> Logs {
        let kept = KeptOfCall::new(ledger.nothing_kept("package"));
        Logs::new(Clock::simulated(Timestamp::EPOCH), bytes_max, &kept)
    }

    #[test]
    fn a_flood_ends_in_one_line_that_counts_it() {
        let mut logs = logs(100);
        logs.add("info", "c".into(), "first".into());
        logs.add("info", "c".into(), "é".repeat(100));
        for _ in 0..10 {
            logs.add("info", String::new(), String::new());
        }
        let (lines, is_cut) = logs.into_lines();
        assert!(is_cut);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].message, "first");
        // 100 - (32 + 1 + 5) - (32 + 1) = 29 bytes of room, and `é` has two.
        assert_eq!(lines[1].message, "é".repeat(14));
        assert_eq!(
            lines[2].message,
            "11 log lines were dropped or cut here; the limit is 100 bytes; to keep more, \
             raise `limits.log` in the package's sidecar file"
        );
        assert_eq!(lines[2].context, "campanile");
        // A whole line just before a dropped one doesn't count as truncated.
        let mut logs = self::logs(40);
        for _ in 0..2 {
            logs.add("info", String::new(), "whole".into());
        }
        let (lines, is_cut) = logs.into_lines();
        assert_eq!((lines[0].message.as_str(), is_cut), ("whole", false));
    }

    #[test]
    fn empty_lines_are_not_free() {
        let mut logs = logs(1000);
        for _ in 0..100_000 {
            logs.add("trace", String::new(), String::new());
        }
        assert_eq!(logs.into_lines().0.len(), 1000 / 32 + 1);
    }
}
