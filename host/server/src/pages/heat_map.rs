//! The charts of a calendar: a heat map of a year, and a value over its days. The tables beside them say the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use campanile_control::schedules::calendar::CalendarDay;
use maud::{Markup, html};

use super::words::{counted, span};

/// The side of a day, and of a day with its gap.
const SIDE: i64 = 14;
const STEP: i64 = 17;
/// Where the days begin: below the months, right of the weekdays.
const LEFT: i64 = 34;
const TOP: i64 = 18;
/// The size of a chart of values, in its own units.
const WIDTH: i64 = 1_000;
const HEIGHT: i64 = 100;

/// The days of a year.
pub(super) struct Year {
    /// The first day, as days since 1970, and the number of days.
    pub first: i64,
    pub days: i64,
}

/// Returns the class of a day, by the worst that happened on it.
fn class(day: &CalendarDay) -> &'static str {
    match day {
        day if day.failed > 0 => "failed",
        day if day.cancelled > 0 => "cancelled",
        day if day.skipped > 0 || day.in_skipped_range => "skipped",
        day if day.succeeded > 0 => "succeeded",
        day if day.unfinished > 0 => "running",
        _ => "none",
    }
}

/// Say in words what happened on a day.
pub(super) fn words(day: &CalendarDay) -> String {
    let parts = [
        (day.failed, "failed"),
        (day.cancelled, "cancelled"),
        (day.skipped, "skipped"),
        (day.succeeded, "succeeded"),
        (day.unfinished, "not ended"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts = parts.map(|(count, word)| format!("{count} {word}"));
    let range = day
        .in_skipped_range
        .then(|| "in a range of skipped slots".to_owned());
    let parts = Vec::from_iter(parts.chain(range)).join(", ");
    if parts.is_empty() {
        "no slot".to_owned()
    } else {
        parts
    }
}

/// Returns the weekday of a day, 0 for Monday.
fn weekday(day: i64) -> i64 {
    // 1 January 1970 was a Thursday.
    (day + 3).rem_euclid(7)
}

/// Show each day of a year: one column a week. `days` has those with a slot, by days since 1970.
pub(super) fn heat_map(
    year: &Year,
    days: &BTreeMap<i64, &CalendarDay>,
    months: &[(i64, &str)],
) -> Markup {
    let shift = weekday(year.first);
    let place = |day: i64| {
        let since = day - year.first + shift;
        (LEFT + since / 7 * STEP, TOP + since % 7 * STEP)
    };
    let weeks = (year.days + shift + 6) / 7;
    let (width, height) = (LEFT + weeks * STEP, TOP + 7 * STEP);
    let with = |of: fn(&CalendarDay) -> bool| days.values().filter(|day| of(day)).count() as u64;
    let failed = counted(with(|day| day.failed > 0), "day");
    let skipped = counted(with(|day| day.skipped > 0 || day.in_skipped_range), "day");
    let all = counted(days.len() as u64, "day");
    html! {
        svg.heat viewBox={ "0 0 " (width) " " (height) } role="img"
            aria-label={ "The year by day: " (all) " with a slot, " (failed) " with a failure, " (skipped) " with a skipped slot. The tables below have the numbers." } {
            @for (first, name) in months { text x=(place(*first).0) y="11" { (name) } }
            @for (row, name) in [(0, "Mon"), (2, "Wed"), (4, "Fri"), (6, "Sun")] { text x="0" y=(TOP + row * STEP + 11) { (name) } }
            @for day in year.first..year.first + year.days {
                @let (x, y) = place(day);
                @match days.get(&day) {
                    None => rect.none x=(x) y=(y) width=(SIDE) height=(SIDE) {},
                    Some(found) => {
                        rect class={ "s-" (class(found)) } x=(x) y=(y) width=(SIDE) height=(SIDE) { title { (found.day) ": " (words(found)) } }
                        // A failure has a form too, not only a color.
                        @if found.failed > 0 { rect.mark x=(x + 5) y=(y + 2) width="4" height="10" {} }
                    }
                }
            }
        }
        p.far {
            "Each day has the color of the worst that happened on it: "
            svg.key viewBox="0 0 14 14" aria-hidden="true" { rect.s-failed width="14" height="14" {} rect.mark x="5" y="2" width="4" height="10" {} } " failed, "
            svg.key viewBox="0 0 14 14" aria-hidden="true" { rect.s-cancelled width="14" height="14" {} } " cancelled, "
            svg.key viewBox="0 0 14 14" aria-hidden="true" { rect.s-skipped width="14" height="14" {} } " skipped, "
            svg.key viewBox="0 0 14 14" aria-hidden="true" { rect.s-succeeded width="14" height="14" {} } " succeeded, "
            svg.key viewBox="0 0 14 14" aria-hidden="true" { rect.none width="14" height="14" {} } " no slot."
        }
    }
}

/// Show a value over the days of a year. `values` has days since 1970, and milliseconds.
pub(super) fn over_time(what: &str, year: &Year, values: &[(i64, u64)]) -> Markup {
    let most = values.iter().map(|(_, value)| *value).max().unwrap_or(0);
    let shown = |millis: u64| span(Duration::from_millis(millis));
    let mut sorted = Vec::from_iter(values.iter().map(|(_, value)| *value));
    sorted.sort_unstable();
    let (least, middle) = (
        sorted.first().copied().unwrap_or(0),
        sorted.get(sorted.len() / 2).copied().unwrap_or(0),
    );
    let text = format!(
        "{what}: {} at least, {} in the median, {} at most",
        shown(least),
        shown(middle),
        shown(most)
    );
    html! {
        @if values.is_empty() {
            p { (what) ": no day has one." }
        } @else {
            svg.over-time viewBox={ "0 0 " (WIDTH) " " (HEIGHT + 4) } preserveAspectRatio="none" role="img" aria-label={ (text) " of a day" } {
                rect.track x="0" y=(HEIGHT + 2) width=(WIDTH) height="1" {}
                path d=(line_path(year, values, most)) {}
            }
            p { (text) " of a day." }
        }
    }
}

/// Returns the path of a line through values. It is broken where days have none.
fn line_path(year: &Year, values: &[(i64, u64)], most: u64) -> String {
    let mut path = String::new();
    let mut before = None;
    for (day, value) in values {
        let x = (day - year.first) * WIDTH / year.days.max(1);
        let part = u128::from(*value) * HEIGHT as u128 / u128::from(most.max(1));
        let y = HEIGHT - i64::try_from(part).unwrap_or(HEIGHT);
        // Writing to a String cannot fail. A day by itself is a short line.
        let _ = if before == Some(day - 1) {
            write!(path, "L{x} {y}")
        } else {
            write!(path, "M{x} {y}h2")
        };
        before = Some(*day);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: &str, succeeded: i64, failed: i64) -> CalendarDay {
        CalendarDay {
            day: day.to_owned(),
            succeeded,
            failed,
            ..CalendarDay::default()
        }
    }

    #[test]
    fn a_heat_map_has_each_day_once_and_says_what_it_shows() {
        // 2026 begins on a Thursday.
        let year = Year {
            first: 20_454,
            days: 365,
        };
        assert_eq!(weekday(year.first), 3);
        let (good, bad) = (day("2026-01-01", 2, 0), day("2026-01-02", 1, 1));
        let days = BTreeMap::from([(20_454, &good), (20_455, &bad)]);
        let shown = heat_map(&year, &days, &[(20_454, "Jan")]).into_string();
        let (chart, _) = shown.split_once("</svg>").unwrap();
        assert_eq!(chart.matches("width=\"14\"").count(), 365);
        assert!(
            shown.contains("2 days with a slot, 1 day with a failure, 0 days"),
            "{shown}"
        );
        assert!(
            shown.contains("2026-01-02: 1 failed, 1 succeeded"),
            "{shown}"
        );
        assert_eq!(words(&day("", 0, 0)), "no slot");
    }

    #[test]
    fn a_line_is_broken_where_days_have_no_value() {
        let year = Year {
            first: 0,
            days: 100,
        };
        let path = line_path(&year, &[(0, 10), (1, 20), (5, 20)], 20);
        assert_eq!(path, "M0 50h2L10 0M50 0h2");
        let shown = over_time("Duration", &year, &[(0, 1_500)]).into_string();
        assert!(
            shown.contains("1.5 s at least, 1.5 s in the median"),
            "{shown}"
        );
        assert!(
            over_time("Duration", &year, &[])
                .into_string()
                .contains("no day has one")
        );
    }
}
