//! Heat maps: a schedule by the hours of days, or by the days of weeks; and a value over days. All have a text that says the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use campanile_control::schedules::calendar::CalendarDay;
use campanile_store::rollup::Rollup;
use maud::{Markup, html};

use super::charts::{Axes, heat, with_axes};
use super::words::{counted, span};

/// The width of a chart in its own units.
const WIDTH: f64 = 1_000.0;
/// The height of a day in the heat map, with its gap.
const STEP: i64 = 17;
/// The height of a chart of values.
const HEIGHT: i64 = 100;
/// The height of a day in the map of hours.
const HOURS_STEP: i64 = 14;
const HOURS: usize = 24;
/// The parts that say what they are, as many as a week has hours. Of more than these, the newest with a failure do.
const NAMED_MAX: usize = 7 * HOURS;
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Days in a row, such as those of a year.
pub(super) struct Days<'y> {
    /// The first day, as days since 1970, and the number of days.
    pub first: i64,
    pub days: i64,
    /// The first day of each month, and its name.
    pub months: &'y [(i64, &'y str)],
}

impl Days<'_> {
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

/// What happened in a part of a heat map.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HeatCell {
    pub succeeded: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub skipped: i64,
    pub unfinished: i64,
    pub in_skipped_range: bool,
}

impl From<&CalendarDay> for HeatCell {
    fn from(day: &CalendarDay) -> HeatCell {
        HeatCell {
            succeeded: day.succeeded,
            failed: day.failed,
            cancelled: day.cancelled,
            skipped: day.skipped,
            unfinished: day.unfinished,
            in_skipped_range: day.in_skipped_range,
        }
    }
}

impl From<&Rollup> for HeatCell {
    fn from(rollup: &Rollup) -> HeatCell {
        HeatCell {
            succeeded: rollup.succeeded,
            failed: rollup.failed,
            cancelled: rollup.cancelled,
            skipped: rollup.skipped,
            ..HeatCell::default()
        }
    }
}

impl HeatCell {
    pub(super) fn ended(&self) -> i64 {
        self.succeeded + self.failed
    }

    /// Says in words what happened.
    pub(super) fn words(&self) -> String {
        let parts = [
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
            (self.skipped, "skipped"),
            (self.succeeded, "succeeded"),
            (self.unfinished, "not ended"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts = parts.map(|(count, word)| format!("{count} {word}"));
        let range = self
            .in_skipped_range
            .then(|| "in a range of skipped slots".to_owned());
        let parts = Vec::from_iter(parts.chain(range)).join(", ");
        if parts.is_empty() {
            "no slot".to_owned()
        } else {
            parts
        }
    }

    /// Returns the class: by the share of failures, or else by what became of the other slots. The busiest part has `busiest`
    /// results.
    pub(super) fn class(&self, busiest: i64) -> &'static str {
        match self {
            _ if self.ended() > 0 => heat(self.failed, self.ended(), busiest),
            cell if cell.cancelled > 0 => "warn",
            cell if cell.skipped > 0 || cell.in_skipped_range => "skip",
            cell if cell.unfinished > 0 => "run",
            _ => "none",
        }
    }
}

/// A part of a heat map that has a slot: its name, and its edges in whole units.
struct Part<'p> {
    name: String,
    cell: &'p HeatCell,
    x: f64,
    y: f64,
}

/// The parts of one class: the paths of those that say what they are, and one path of all others.
#[derive(Default)]
struct Drawn<'p> {
    named: Vec<(String, &'p Part<'p>)>,
    others: String,
}

/// Shows the parts of a heat map, each so wide and so tall; `empty` has the places of those without a slot.
fn draw(empty: &[(f64, f64)], parts: &[Part<'_>], wide: f64, tall: f64) -> Markup {
    let busiest = parts.iter().map(|part| part.cell.ended()).max();
    let (mut none, mut marks) = (String::new(), String::new());
    for (x, y) in empty {
        push_whole_box(&mut none, *x, *y, wide, tall);
    }
    for part in parts.iter().filter(|part| part.cell.failed > 0) {
        // Writing to a String cannot fail.
        let _ = write!(marks, "M{:.0} {:.0}v7", part.x + wide / 2.0, part.y + 3.0);
    }
    let failing = parts.iter().filter(|part| part.cell.failed > 0).count();
    let (is_large, mut unnamed) = (parts.len() > NAMED_MAX, failing.saturating_sub(NAMED_MAX));
    let mut classes: BTreeMap<&str, Drawn<'_>> = BTreeMap::new();
    for part in parts {
        let class = part.cell.class(busiest.unwrap_or_default());
        // Skipped slots are low, and a failure has a mark: colour isn't all.
        let low = if class == "skip" { tall * 0.65 } else { 0.0 };
        let drawn = classes.entry(class).or_default();
        let fails = part.cell.failed > 0;
        let is_old = is_large && fails && unnamed > 0;
        unnamed -= usize::from(is_old);
        let mut path = String::new();
        push_whole_box(&mut path, part.x, part.y + low, wide, tall - low);
        if is_large && (!fails || is_old) {
            drawn.others.push_str(&path);
        } else {
            drawn.named.push((path, part));
        }
    }
    html! {
        path.none d=(none) {}
        @for (class, drawn) in &classes {
            g class=(class) {
                @if !drawn.others.is_empty() { path d=(drawn.others) {} }
                @for (path, part) in &drawn.named { path d=(path) { title { (part.name) ": " (part.cell.words()) } } }
            }
        }
        path.cut d=(marks) {}
    }
}

/// Adds a box in whole units to a path: a page has hundreds of them.
fn push_whole_box(path: &mut String, x: f64, y: f64, wide: f64, tall: f64) {
    // Writing to a String cannot fail.
    let _ = write!(path, "M{x:.0} {y:.0}h{wide:.0}v{tall:.0}h-{wide:.0}z");
}

/// Returns the weekday of a day, 0 for Monday.
fn weekday(day: i64) -> i64 {
    // 1 January 1970 was a Thursday.
    (day + 3).rem_euclid(7)
}

/// Returns the marks of the weekdays beside rows of this height, in percent.
fn weekdays() -> Vec<(f64, String)> {
    let names = WEEKDAYS.iter().enumerate();
    let mark = |(row, name): (usize, &&str)| ((row as f64 + 0.5) / 7.0 * 100.0, (*name).to_owned());
    names.map(mark).collect()
}

/// Shows each day: one column a week. `cells` has those with a slot, by days since 1970, each with its name.
pub(super) fn days(days: &Days<'_>, cells: &BTreeMap<i64, (String, HeatCell)>) -> Markup {
    let with = |of: fn(&HeatCell) -> bool| cells.values().filter(|(_, cell)| of(cell)).count();
    let failed = counted(with(|cell| cell.failed > 0) as u64, "day");
    let skipped = with(|cell| cell.skipped > 0 || cell.in_skipped_range);
    let skipped = counted(skipped as u64, "day");
    let all = counted(cells.len() as u64, "day");
    let place = |day: i64| (days.x(day), (weekday(day) * STEP) as f64);
    let empty = days.first..days.first + days.days;
    let empty = empty.filter(|day| !cells.contains_key(day)).map(place);
    let parts = cells.iter().map(|(day, (name, cell))| {
        let ((x, y), name) = (place(*day), name.clone());
        Part { name, cell, x, y }
    });
    let text = format!(
        "Day by day: {all} with a slot, {failed} with a failure, {skipped} with a skipped slot"
    );
    let (wide, tall) = (WIDTH / days.weeks() as f64 - 2.0, (STEP - 3) as f64);
    let chart = draw(&Vec::from_iter(empty), &Vec::from_iter(parts), wide, tall);
    let axes = Axes {
        tall: 7 * STEP,
        has_rules: false,
        left: weekdays(),
        below: days.below(),
    };
    with_axes(&axes, "img", &text, chart)
}

/// Shows the hours of days, one row a day: the name of each day, and its hours with a slot.
pub(super) fn hours(rows: &[(String, BTreeMap<usize, HeatCell>)]) -> Markup {
    let cells = || rows.iter().flat_map(|(_, hours)| hours.values());
    let failed = cells().filter(|cell| cell.failed > 0).count();
    let text = format!(
        "Hour by hour: {} with a slot, {} with a failure",
        counted(cells().count() as u64, "hour"),
        counted(failed as u64, "hour")
    );
    let step = WIDTH / HOURS as f64;
    let place = |row: usize, hour: usize| (hour as f64 * step, (row as i64 * HOURS_STEP) as f64);
    let (mut empty, mut parts) = (Vec::new(), Vec::new());
    for (row, (day, hours)) in rows.iter().enumerate() {
        for hour in 0..HOURS {
            let (x, y) = place(row, hour);
            match hours.get(&hour) {
                Some(cell) => parts.push(Part {
                    name: format!("{day} {hour:02}:00"),
                    cell,
                    x,
                    y,
                }),
                None => empty.push((x, y)),
            }
        }
    }
    let chart = draw(&empty, &parts, step - 3.0, (HOURS_STEP - 2) as f64);
    let below = (0..HOURS).step_by(3);
    let below = below.map(|hour| (hour as f64 * 100.0 / HOURS as f64, format!("{hour:02}")));
    let left = rows.iter().enumerate().map(|(row, (day, _))| {
        let middle = (row as f64 + 0.5) * 100.0 / rows.len().max(1) as f64;
        (middle, day.clone())
    });
    let axes = Axes {
        tall: rows.len() as i64 * HOURS_STEP,
        has_rules: false,
        left: left.collect(),
        below: below.collect(),
    };
    with_axes(&axes, "img", &text, chart)
}

/// Shows a value over the days of a year. `values` has days since 1970, and milliseconds.
pub(super) fn over_time(what: &str, year: &Days<'_>, values: &[(i64, u64)]) -> Markup {
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
fn line_path(year: &Days<'_>, values: &[(i64, u64)], most: u64) -> (String, String) {
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

    fn cell(succeeded: i64, failed: i64) -> HeatCell {
        HeatCell {
            succeeded,
            failed,
            ..HeatCell::default()
        }
    }

    #[test]
    fn a_heat_map_has_each_day_once_and_says_what_it_shows() {
        // 2026 begins on a Thursday.
        let year = Days {
            first: 20_454,
            days: 365,
            months: &[(20_454, "Jan")],
        };
        assert_eq!(weekday(year.first), 3);
        let named = |name: &str, cell| (name.to_owned(), cell);
        let cells = BTreeMap::from([
            (20_454, named("2026-01-01", cell(2, 0))),
            (20_455, named("2026-01-02", cell(1, 1))),
        ]);
        let shown = days(&year, &cells).into_string();
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
        assert_eq!(cell(0, 0).words(), "no slot");
        // One failure of many isn't a bad day.
        assert_eq!(cell(99, 1).class(100), "bad1");
    }

    #[test]
    fn a_large_map_names_the_newest_days_with_a_failure() {
        let year = Days {
            first: 20_454,
            days: 365,
            months: &[],
        };
        let shown = |failed: fn(i64) -> i64| {
            let of = |day: i64| (20_454 + day, (format!("day {day}"), cell(9, failed(day))));
            let cells = (0..365).map(of).collect();
            let shown = days(&year, &cells).into_string();
            let names = ["day 196: ", "day 197: ", "day 364: "].map(|name| shown.contains(name));
            (shown.matches("<title>").count(), names)
        };
        assert_eq!(shown(|_| 1), (168, [false, true, true]));
        assert_eq!(shown(|day| day % 365 / 364), (1, [false, false, true]));
    }

    #[test]
    fn a_map_of_hours_has_each_hour_once() {
        let skipped = HeatCell {
            skipped: 3,
            ..HeatCell::default()
        };
        let rows = [
            ("Mon 23".to_owned(), BTreeMap::from([(7, cell(3, 1))])),
            ("Tue 24".to_owned(), BTreeMap::from([(0, skipped)])),
        ];
        let shown = hours(&rows).into_string();
        let (_, none) = shown.split_once("class=\"none\" d=\"").unwrap();
        let (none, _) = none.split_once('"').unwrap();
        assert_eq!(none.matches('z').count(), 46);
        assert!(
            shown.contains("Mon 23 07:00: 1 failed, 3 succeeded"),
            "{shown}"
        );
        assert!(shown.contains("Tue 24 00:00: 3 skipped"), "{shown}");
        assert!(
            shown.contains("2 hours with a slot, 1 hour with a failure"),
            "{shown}"
        );
        // The mark of the failure, and the low box of the skipped slots.
        assert!(shown.contains("class=\"cut\" d=\"M311 3v7\""), "{shown}");
        assert!(
            shown.contains("class=\"skip\"><path d=\"M0 22h39v4h-39z\""),
            "{shown}"
        );
    }

    #[test]
    fn a_line_is_broken_where_days_have_no_value() {
        let year = Days {
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
