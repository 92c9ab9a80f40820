//! Texts and times as people read them.

use std::borrow::Cow;

use campanile_model::clock::Timestamp;
pub(super) use campanile_model::text::shell;
use campanile_model::text::{distance, printable, printable_line};
use chrono::{DateTime, Offset as _};
use chrono_tz::Tz;
use maud::{Markup, html};

/// Returns a text on one line, with its hostile characters written out.
pub(super) fn line(text: &str) -> String {
    printable_line(text)
}

/// Shows a sentence of the host: with a capital, times to the second, and code between its backticks.
pub(super) fn prose(text: &str) -> Markup {
    let mut rest = line(text);
    if let Some(first) = rest.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let shown = without_fractions(&rest);
    html! {
        @for (place, part) in shown.split('`').enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Cuts the fractions of seconds from the times of a text: `10:00:00.123456Z` becomes `10:00:00Z`.
fn without_fractions(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut parts = text.split('.');
    shown.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let rest = part.get(digits..).unwrap_or_default();
        if digits == 6 && rest.starts_with('Z') {
            shown.push_str(rest);
        } else {
            shown.push('.');
            shown.push_str(part);
        }
    }
    shown
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

/// Returns a count, with a plus when nothing was counted beyond `most`.
pub(super) fn at_most(count: i64, most: i64) -> String {
    let more = if count < most { "" } else { "+" };
    format!("{count}{more}")
}

pub(super) use campanile_model::text::{counted, rough, span};

/// The clock of a page: its time, and the zone in which its reader wants to see times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub now: Timestamp,
    pub zone: Tz,
}

impl Clock {
    /// Returns how far away a time is: `in 5 min`, or `2 h ago`, in the larger unit alone.
    pub(super) fn distance(self, at: Timestamp) -> String {
        distance(at, self.now)
    }

    /// Returns a time as short as its day allows: `05:38:00` today, `Nov 27 05:38` in half a year, `2025-11-27 05:38` else.
    pub(super) fn short(self, at: Timestamp) -> String {
        let (shown, today) = (self.zoned(at), self.zoned(self.now));
        let format = if shown.date_naive() == today.date_naive() {
            "%H:%M:%S"
        } else if (shown - today).num_days().abs() < 180 {
            "%b %-d %H:%M"
        } else {
            "%Y-%m-%d %H:%M"
        };
        shown.format(format).to_string()
    }

    /// Returns a time with its day and the name of the zone.
    pub(super) fn whole(self, at: Timestamp) -> String {
        let shown = self.zoned(at);
        let text = shown.format("%Y-%m-%d %H:%M:%S");
        if self.zone == Tz::UTC {
            format!("{text} UTC")
        } else {
            format!("{text} {} ({})", shown.format("%:z"), self.zone)
        }
    }

    /// Returns the hour and the minute of a time.
    pub(super) fn hour(self, at: Timestamp) -> String {
        self.zoned(at).format("%H:%M").to_string()
    }

    /// Returns by how many seconds the clock is ahead of UTC at a time.
    pub(super) fn utc_offset(self, at: Timestamp) -> i64 {
        self.zoned(at).offset().fix().local_minus_utc().into()
    }

    fn zoned(self, at: Timestamp) -> DateTime<Tz> {
        at.to_chrono().with_timezone(&self.zone)
    }
}

/// Shows a time of the clock. Its title has the day and the zone.
pub(super) fn time(at: Timestamp, clock: Clock) -> Markup {
    html! { time datetime=(at.to_string()) title=(clock.whole(at)) { (clock.short(at)) } }
}

/// Shows how far away a time is, which goes on counting. Its title has the time itself.
pub(super) fn moment(at: Timestamp, clock: Clock) -> Markup {
    html! { time.age datetime=(at.to_string()) title=(clock.whole(at)) { (clock.distance(at)) } }
}

/// Shows a time, and how far away it is.
pub(super) fn dated(at: Timestamp, clock: Clock) -> Markup {
    html! { (time(at, clock)) " " span.far { time.age datetime=(at.to_string()) { (clock.distance(at)) } } }
}

/// Shows a time, how far away it is and, if it differs, what the clock of another zone shows, which `local` has as
/// `2026-11-21T09:00:00+01:00[Europe/Paris]`.
pub(super) fn both(at: Timestamp, local: &str, clock: Clock) -> Markup {
    let local = zoned(local);
    let (zone, day) = (
        clock.zone.name(),
        clock.zoned(at).format("%Y-%m-%d %H:%M:%S %:z"),
    );
    let differs = local != format!("{day} {zone}");
    html! { (dated(at, clock)) @if differs { " " span.local { (local) } } }
}

/// Returns a time of a zone as people read it: `2026-11-21 09:00:00 +01:00 Europe/Paris`.
pub(super) fn zoned(local: &str) -> String {
    let (time, zone) = local.split_once('[').unwrap_or((local, ""));
    let zone = zone.trim_end_matches(']');
    let (date, clock) = time.split_once('T').unwrap_or((time, ""));
    let offset = clock.rfind(['+', '-', 'Z']).unwrap_or(clock.len());
    let (clock, offset) = clock.split_at(offset);
    let offset = if offset == "Z" { "+00:00" } else { offset };
    let clock = clock.split('.').next().unwrap_or_default();
    line(&format!("{date} {clock} {offset} {zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_zone_is_readable() {
        let text = "2026-11-21T09:00:00+01:00[Europe/Paris]";
        assert_eq!(zoned(text), "2026-11-21 09:00:00 +01:00 Europe/Paris");
        let text = "2026-11-21T09:00:00.250-05:00[America/New_York]";
        assert_eq!(zoned(text), "2026-11-21 09:00:00 -05:00 America/New_York");
    }

    #[test]
    fn a_time_is_as_short_as_its_day_allows() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-11-28T05:45:00Z");
        let clock = |zone| Clock { now, zone };
        for (time, zone, expected) in [
            ("2026-11-28T05:38:00Z", Tz::UTC, "05:38:00"),
            ("2026-11-27T05:38:00Z", Tz::UTC, "Nov 27 05:38"),
            ("2025-11-27T05:38:00Z", Tz::UTC, "2025-11-27 05:38"),
            ("2026-11-28T05:38:00Z", Tz::Asia__Tokyo, "14:38:00"),
            ("2026-11-28T15:38:00Z", Tz::Asia__Tokyo, "Nov 29 00:38"),
        ] {
            assert_eq!(clock(zone).short(at(time)), expected, "{time} {zone}");
        }
        let utc = clock(Tz::UTC);
        assert_eq!(utc.whole(now), "2026-11-28 05:45:00 UTC");
        assert_eq!(
            clock(Tz::Asia__Tokyo).whole(now),
            "2026-11-28 14:45:00 +09:00 (Asia/Tokyo)"
        );
        assert_eq!(utc.distance(at("2026-11-28T05:44:30Z")), "30 s ago");
        assert_eq!(utc.distance(at("2026-11-28T05:50:59Z")), "in 5 min");
        assert_eq!(utc.distance(at("2026-11-28T07:50:00Z")), "in 2 h 5 min");
        let both = |local| both(now, local, utc).into_string();
        assert!(!both("2026-11-28T05:45:00Z[UTC]").contains("local"));
        assert!(
            both("2026-11-28T06:45:00+01:00[Europe/Berlin]")
                .contains("06:45:00 +01:00 Europe/Berlin")
        );
    }

    #[test]
    fn a_sentence_of_the_host_reads_well() {
        let text =
            "the host `a.b` is silent since 2026-11-29T18:42:31.493117Z: 3.5 s, v1.250000Zeta";
        assert_eq!(
            prose(text).into_string(),
            "The host <code>a.b</code> is silent since 2026-11-29T18:42:31Z: 3.5 s, v1Zeta"
        );
        assert_eq!(prose("").into_string(), "");
        assert_eq!(prose("ä `x").into_string(), "ä <code>x</code>");
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
