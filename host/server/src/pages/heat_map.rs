//! The charts of a calendar: a heat map of a year, and a value over its days. They have the same axis, one above the other.
//! The tables beside them say the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use campanile_control::schedules::calendar::CalendarDay;
use maud::{Markup, html};

use super::charts::{Axes, heat, with_axes};
use super::words::{counted, span};

/// The width of a chart in its own units.
const WIDTH: f64 = 1_000.0;
/// The height of a day in the heat map, with its gap.
const STEP: i64 = 17;
/// The height of a chart of values.
const HEIGHT: i64 = 100;
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The days of a year.
pub(super) struct Year<'y> {
    /// The first day, as days since 1970, and the number of days.
    pub first: i64,
    pub days: i64,
    /// The first day of each month, and its name.
    pub months: &'y [(i64, &'y str)],
}

impl Year<'_> {
    /// Returns how many weeks it touches.
    fn weeks(&self) -> i64 {
        (self.days + weekday(self.first) + 6) / 7
    }

    /// Returns the left edge of the week of a day.
    fn x(&self, day: i64) -> f64 {
        let week = (day - self.first + weekday(self.first)) / 7;
        week as f64 * WIDTH / self.weeks() as f64
    }

    /// Returns the marks of the months, in percent of the width.
    fn below(&self) -> Vec<(f64, String)> {
        let month = |(first, name): &(i64, &str)| (self.x(*first) / WIDTH * 100.0, (*name).into());
        self.months.iter().map(month).collect()
    }
}

/// Says in words what happened on a day.
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
pub(super) fn weekday(day: i64) -> i64 {
    // 1 January 1970 was a Thursday.
    (day + 3).rem_euclid(7)
}

/// Returns the marks of the weekdays beside rows of this height, in percent.
pub(super) fn weekdays() -> Vec<(f64, String)> {
    let names = WEEKDAYS.iter().enumerate();
    let mark = |(row, name): (usize, &&str)| ((row as f64 + 0.5) / 7.0 * 100.0, (*name).to_owned());
    names.map(mark).collect()
}

/// Returns the class of a day: by the share of its failures, or else by what became of its other slots.
fn class(day: &CalendarDay, busiest: i64) -> &'static str {
    let ended = day.succeeded + day.failed;
    match day {
        _ if ended > 0 => heat(day.failed, ended, busiest),
        day if day.cancelled > 0 => "warn",
        day if day.skipped > 0 || day.in_skipped_range => "skip",
        day if day.unfinished > 0 => "run",
        _ => "none",
    }
}

/// Shows each day of a year: one column a week. `days` has those with a slot, by days since 1970.
pub(super) fn heat_map(year: &Year<'_>, days: &BTreeMap<i64, &CalendarDay>) -> Markup {
    let with = |of: fn(&CalendarDay) -> bool| days.values().filter(|day| of(day)).count() as u64;
    let failed = counted(with(|day| day.failed > 0), "day");
    let skipped = counted(with(|day| day.skipped > 0 || day.in_skipped_range), "day");
    let all = counted(days.len() as u64, "day");
    let busiest = days.values().map(|day| day.succeeded + day.failed).max();
    let wide = WIDTH / year.weeks() as f64;
    let place = |day: i64| (year.x(day), weekday(day) * STEP);
    let mut none = String::new();
    for day in (year.first..year.first + year.days).filter(|day| !days.contains_key(day)) {
        let (x, y) = place(day);
        super::charts::push_box(&mut none, x, y as f64, wide - 2.0, (STEP - 3) as f64);
    }
    let text = format!(
        "The year by day: {all} with a slot, {failed} with a failure, {skipped} with a skipped slot. The tables below have the numbers."
    );
    let chart = html! {
        path.none d=(none) {}
        @for (day, found) in days {
            @let (x, y) = place(*day);
            @let class = class(found, busiest.unwrap_or_default());
            // Skipped slots are low, and a failure has a mark: colour isn't all.
            @let (y, tall) = if class == "skip" { (y + 9, 5) } else { (y, STEP - 3) };
            rect class=(class) x=(format!("{x:.1}")) y=(y) width=(format!("{:.1}", wide - 2.0)) height=(tall) { title { (found.day) ": " (words(found)) } }
            @if found.failed > 0 { rect.cut x=(format!("{:.1}", x + wide / 2.0 - 2.5)) y=(y + 3) width="3" height="8" {} }
        }
    };
    let axes = Axes {
        tall: 7 * STEP,
        has_rules: false,
        left: weekdays(),
        below: year.below(),
    };
    with_axes(&axes, "img", &text, chart)
}

/// Shows a value over the days of a year. `values` has days since 1970, and milliseconds.
pub(super) fn over_time(what: &str, year: &Year<'_>, values: &[(i64, u64)]) -> Markup {
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
    let (line, dots) = line_path(year, values, most);
    let axes = Axes {
        tall: HEIGHT,
        has_rules: true,
        left: vec![
            (0.0, shown(most)),
            (50.0, shown(most / 2)),
            (100.0, "0".to_owned()),
        ],
        below: year.below(),
    };
    let chart = html! { path.line d=(line) {} path.dots d=(dots) {} };
    html! {
        @if values.is_empty() {
            p { (what) ": no day has one." }
        } @else {
            (with_axes(&axes, "img", &format!("{text} of a day"), chart))
            p.far { (text) " of a day." }
        }
    }
}

/// Returns the path of a line through values, broken where days have none, and that of the dots for days by themselves.
fn line_path(year: &Year<'_>, values: &[(i64, u64)], most: u64) -> (String, String) {
    let (mut line, mut dots) = (String::new(), String::new());
    let has = |place: Option<usize>, day| {
        let neighbour = place.and_then(|place| values.get(place));
        neighbour.is_some_and(|(other, _)| *other == day)
    };
    for (place, (day, value)) in values.iter().enumerate() {
        let x = (day - year.first) as f64 * WIDTH / year.days.max(1) as f64;
        let y = HEIGHT as f64 * (1.0 - *value as f64 / most.max(1) as f64);
        let follows = has(place.checked_sub(1), day - 1);
        // Writing to a String cannot fail.
        let _ = if follows {
            write!(line, "L{x:.0} {y:.0}")
        } else if has(Some(place + 1), day + 1) {
            write!(line, "M{x:.0} {y:.0}")
        } else {
            write!(dots, "M{x:.0} {y:.0}h.1")
        };
    }
    (line, dots)
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
            months: &[(20_454, "Jan")],
        };
        assert_eq!(weekday(year.first), 3);
        let (good, bad) = (day("2026-01-01", 2, 0), day("2026-01-02", 1, 1));
        let days = BTreeMap::from([(20_454, &good), (20_455, &bad)]);
        let shown = heat_map(&year, &days).into_string();
        let (_, none) = shown.split_once("class=\"none\" d=\"").unwrap();
        let (none, _) = none.split_once('"').unwrap();
        assert_eq!(none.matches('z').count(), 363);
        assert!(
            shown.contains("2 days with a slot, 1 day with a failure, 0 days"),
            "{shown}"
        );
        assert!(
            shown.contains("2026-01-02: 1 failed, 1 succeeded"),
            "{shown}"
        );
        assert!(shown.contains("good3") && shown.contains("bad3"), "{shown}");
        assert_eq!(words(&day("", 0, 0)), "no slot");
        // One failure of many isn't a bad day.
        assert_eq!(class(&day("", 99, 1), 100), "bad1");
    }

    #[test]
    fn a_line_is_broken_where_days_have_no_value() {
        let year = Year {
            first: 0,
            days: 100,
            months: &[],
        };
        let (line, dots) = line_path(&year, &[(0, 10), (1, 20), (5, 20)], 20);
        assert_eq!((&*line, &*dots), ("M0 50L10 0", "M50 0h.1"));
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
