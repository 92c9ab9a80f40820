//! A chart of starts over time, made of block characters.

use std::collections::BTreeMap;
use std::time::Duration;

use campanile_control::records::schedule::floor;
use campanile_model::clock::Timestamp;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A span in which nothing starts.
const NOTHING: char = '·';

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Returns the lines of a chart of `starts`, the number of starts by minute, from `from` and before `to`.
/// No line is longer than 100 characters.
pub(crate) fn lines(
    starts: impl IntoIterator<Item = (Timestamp, u64)>,
    from: Timestamp,
    to: Timestamp,
) -> Vec<String> {
    // The span and the word of one block, and the number of blocks on a line.
    let (step, word, per_line) = match to.since(from) {
        span if span <= HOUR * 36 => (MINUTE, "minute", 60),
        span if span <= DAY * 40 => (HOUR, "hour", 24),
        _ => (DAY, "day", 28),
    };
    let mut counts: BTreeMap<Timestamp, u64> = BTreeMap::new();
    for (minute, starts) in starts {
        *counts.entry(floor(minute, step)).or_default() += starts;
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let mut lines = vec![format!("starts per {word}, at most {most}, in UTC:")];
    let line = step * per_line;
    // A chart of days starts at the first day, the others at a whole hour or day.
    let mut begin = floor(from, line.min(DAY));
    while begin < to {
        let label = begin.to_string()[..16].replace('T', " ");
        let mut text = String::new();
        let mut sum = 0;
        for number in 0..per_line {
            let at = begin.plus(step * number);
            let count = counts.get(&at).copied().unwrap_or_default();
            sum += count;
            let is_inside = at < to && at.plus(step) > from;
            text.push(if is_inside { block(count, most) } else { ' ' });
        }
        lines.push(format!("{label}  {text}  {sum}"));
        begin = begin.plus(line);
    }
    lines
}

/// Returns the block for `count`; `most` has the full block.
fn block(count: u64, most: u64) -> char {
    if count == 0 {
        return NOTHING;
    }
    let height = (count * BLOCKS.len() as u64).div_ceil(most.max(1));
    let height = usize::try_from(height).unwrap_or(BLOCKS.len());
    BLOCKS[height.clamp(1, BLOCKS.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn shown(starts: &[(&str, u64)], from: &str, to: &str) -> Vec<String> {
        let starts = starts.iter().map(|&(at, count)| (time(at), count));
        lines(starts, time(from), time(to))
    }

    #[test]
    fn a_line_for_each_hour_has_a_block_for_each_minute() {
        let starts = [
            ("2026-01-01T08:00:00Z", 1),
            ("2026-01-01T08:59:00Z", 8),
            ("2026-01-01T09:03:00Z", 16),
        ];
        let found = shown(&starts, "2026-01-01T08:00:00Z", "2026-01-01T09:05:00Z");
        let first = format!("2026-01-01 08:00  ▁{}▄  9", "·".repeat(58));
        let second = format!("2026-01-01 09:00  ···█·{}  16", " ".repeat(55));
        assert_eq!(
            found,
            [
                "starts per minute, at most 16, in UTC:".to_owned(),
                first,
                second
            ]
        );
    }

    #[test]
    fn a_longer_span_has_a_block_for_each_hour_or_day() {
        let starts = [
            ("2026-01-01T08:10:00Z", 1),
            ("2026-01-01T08:50:00Z", 1),
            ("2026-01-03T23:00:00Z", 2),
        ];
        let hours = shown(&starts, "2026-01-01T08:30:00Z", "2026-01-04T00:00:00Z");
        assert_eq!(hours.len(), 4);
        assert_eq!(
            hours[1],
            format!("2026-01-01 00:00  {}█{}  2", " ".repeat(8), "·".repeat(15))
        );
        assert_eq!(
            hours[3],
            format!("2026-01-03 00:00  {}█  2", "·".repeat(23))
        );
        let days = shown(&starts, "2026-01-01T08:30:00Z", "2026-03-01T00:00:00Z");
        assert_eq!(days[0], "starts per day, at most 2, in UTC:");
        assert_eq!(
            days[1],
            format!("2026-01-01 00:00  █·█{}  4", "·".repeat(25))
        );
        assert_eq!(days.len(), 4);
        for line in hours.iter().chain(&days) {
            assert!(line.chars().count() <= 100);
        }
    }
}
