//! Texts and times as people read them.

use std::borrow::Cow;
use std::time::Duration;

use campanile_model::clock::Timestamp;
pub(super) use campanile_model::text::shell;
use campanile_model::text::{printable, printable_line};
use maud::{Markup, html};

/// Returns a text on one line, with its hostile characters written out.
pub(super) fn line(text: &str) -> String {
    printable_line(text)
}

/// Returns the first `chars_max` characters of [`line`], with `…` when there are more.
pub(super) fn short(text: &str, chars_max: usize) -> String {
    let first: String = text.chars().take(chars_max).collect();
    let shown = line(&first);
    let cut: String = shown.chars().take(chars_max).collect();
    if first.len() < text.len() || cut.len() < shown.len() {
        format!("{cut}…")
    } else {
        cut
    }
}

/// Returns a text with its hostile characters written out, and its last `bytes_max` bytes alone. The second value says how
/// many bytes are left out.
pub(super) fn tail(text: &str, bytes_max: usize) -> (Cow<'_, str>, usize) {
    let mut from = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    (printable(&text[from..]), from)
}

/// Returns a number with the word for what it counts.
pub(super) use campanile_model::text::counted;

/// Returns a span such as `1 h 5 min`, in at most two units.
pub(super) fn span(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.as_millis());
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{:.1} s", span.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns where a time is, seen from `now`: `in 5 min 0 s`, or `2 h 3 min ago`.
pub(super) fn distance(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", span(at.since(now)))
    } else {
        format!("{} ago", span(now.since(at)))
    }
}

/// Show a time in UTC.
pub(super) fn time(at: Timestamp) -> Markup {
    let text = at.to_chrono().format("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time datetime=(at.to_string()) { (text) } }
}

/// Show a time in UTC, and its distance from `now`.
pub(super) fn moment(at: Timestamp, now: Timestamp) -> Markup {
    html! { (time(at)) " " span.far { (distance(at, now)) } }
}

/// Show a time in UTC and on the clock of a zone, which `local` has as `2026-11-21T09:00:00+01:00[Europe/Paris]`.
pub(super) fn both(at: Timestamp, local: &str, now: Timestamp) -> Markup {
    html! { (moment(at, now)) " " span.local { (zoned(local)) } }
}

/// Returns a time of a zone as people read it: `2026-11-21 09:00:00 +01:00 Europe/Paris`.
pub(super) fn zoned(local: &str) -> String {
    let (time, zone) = local.split_once('[').unwrap_or((local, ""));
    let zone = zone.trim_end_matches(']');
    let (date, clock) = time.split_once('T').unwrap_or((time, ""));
    let offset = clock.rfind(['+', '-']).unwrap_or(clock.len());
    let (clock, offset) = clock.split_at(offset);
    let clock = clock.split('.').next().unwrap_or_default();
    line(&format!("{date} {clock} {offset} {zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_two_units_at_most() {
        for (millis, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_500, "1.5 s"),
            (59_000, "59 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn the_clock_of_a_zone_is_readable() {
        let text = "2026-11-21T09:00:00+01:00[Europe/Paris]";
        assert_eq!(zoned(text), "2026-11-21 09:00:00 +01:00 Europe/Paris");
        let text = "2026-11-21T09:00:00.250-05:00[America/New_York]";
        assert_eq!(zoned(text), "2026-11-21 09:00:00 -05:00 America/New_York");
    }

    #[test]
    fn the_end_of_a_text_begins_at_a_character() {
        assert_eq!(tail("añb", 2).0, "b");
        let (shown, left_out) = tail("a\u{202e}b", 100);
        assert_eq!((&*shown, left_out), ("a\\u{202e}b", 0));
    }

    #[test]
    fn a_short_text_says_that_there_is_more() {
        assert_eq!(short("añb", 3), "añb");
        assert_eq!(short("añbc", 3), "añb…");
        assert_eq!(short("\u{1b}bc", 4), "\\u{1…");
    }
}
