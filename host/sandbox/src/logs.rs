//! What a guest logged, within a bound.

use super::{LogLine, Resource};
use campanile_model::clock::Timestamp;

/// The group of lines that the host itself adds.
pub(super) const OWN_CONTEXT: &str = "campanile";

/// What a line costs beside its text: its time, its level, and a stop to a flood of empty lines.
const LINE_OVERHEAD_BYTES: usize = 32;

/// The lines of one call.
pub(super) struct Logs {
    lines: Vec<LogLine>,
    bytes: usize,
    bytes_max: usize,
    dropped_lines: u64,
    last_dropped: Option<Timestamp>,
}

impl Logs {
    pub(super) fn new(bytes_max: usize) -> Logs {
        Logs {
            lines: Vec::new(),
            bytes: 0,
            bytes_max,
            dropped_lines: 0,
            last_dropped: None,
        }
    }

    /// Keep a line, or as much of its message as still fits.
    pub(super) fn add(&mut self, at: Timestamp, level: &str, context: String, mut message: String) {
        let fixed = LINE_OVERHEAD_BYTES + context.len();
        let room = self.bytes_max.saturating_sub(self.bytes);
        if self.dropped_lines > 0 || room < fixed {
            self.dropped_lines += 1;
            self.last_dropped = Some(at);
            return;
        }
        if message.len() > room - fixed {
            message.truncate(message.floor_char_boundary(room - fixed));
            self.dropped_lines = 1;
            self.last_dropped = Some(at);
        }
        self.bytes += fixed + message.len();
        self.lines.push(LogLine {
            at,
            level: level.to_owned(),
            context,
            message,
        });
    }

    /// What was kept counts, and that there was more.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = match self.dropped_lines {
            0 => self.bytes,
            _ => self.bytes_max.max(1),
        };
        bytes as u64
    }

    /// The lines, and a last one that tells how many were dropped or cut, if any were.
    pub(super) fn into_lines(mut self) -> Vec<LogLine> {
        if let Some(at) = self.last_dropped {
            self.lines.push(LogLine {
                at,
                level: "warn".to_owned(),
                context: OWN_CONTEXT.to_owned(),
                message: format!(
                    "{} log lines were dropped or cut here; the limit is {} bytes; to keep more, {}",
                    self.dropped_lines,
                    self.bytes_max,
                    Resource::Log.raise()
                ),
            });
        }
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_ends_in_one_line_that_counts_it() {
        let mut logs = Logs::new(100);
        logs.add(Timestamp::EPOCH, "info", "c".into(), "first".into());
        logs.add(Timestamp::EPOCH, "info", "c".into(), "é".repeat(100));
        for _ in 0..10 {
            logs.add(Timestamp::EPOCH, "info", String::new(), String::new());
        }
        let lines = logs.into_lines();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].message, "first");
        // 100 - (32 + 1 + 5) - (32 + 1) = 29 bytes of room, and `é` has two.
        assert_eq!(lines[1].message, "é".repeat(14));
        assert_eq!(
            lines[2].message,
            "11 log lines were dropped or cut here; the limit is 100 bytes; to keep more, \
             raise `log` among the limits of the package's sidecar file"
        );
        assert_eq!(lines[2].context, "campanile");
    }

    #[test]
    fn empty_lines_are_not_free() {
        let mut logs = Logs::new(1000);
        for _ in 0..100_000 {
            logs.add(Timestamp::EPOCH, "trace", String::new(), String::new());
        }
        assert_eq!(logs.into_lines().len(), 1000 / 32 + 1);
    }
}
