//! The timeline: rows are schedules or packages, x is the time, a bar is a launch.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::charts::{class, push_box};
use super::words::Clock;
use campanile_model::clock::Timestamp;
use campanile_store::LaunchStatus;
use campanile_store::troubles::RecentLaunch;

/// The width of a lane in its own units. A page shows one as about a pixel.
const WIDTH: f64 = 1_000.0;
/// The most bars of a lane, by which its size is bounded.
const BARS_MAX: usize = 400;
/// The least width of a bar, and the widest gap that's closed between two bars of a colour.
const LEAST: f64 = 2.0;
const GAP: f64 = 0.6;
/// What goes over what: the later a class, the more it's seen.
const CLASSES: [&str; 5] = ["skip", "ok", "run", "warn", "bad"];

/// The time that a timeline shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub from: Timestamp,
    pub to: Timestamp,
}

/// A row of the timeline.
pub(super) struct Lane {
    pub label: Markup,
    pub after: Markup,
    /// The path of each class.
    paths: BTreeMap<usize, String>,
    planned: String,
}

impl Window {
    fn x(self, at: Timestamp) -> f64 {
        let whole = (self.to.micros() - self.from.micros()).max(1) as f64;
        let part = (at.micros() - self.from.micros()) as f64;
        (part / whole * WIDTH).clamp(0.0, WIDTH)
    }

    /// Returns the times of the axis: round ones on the reader's clock, about eight.
    fn ticks(self, clock: Clock) -> Vec<Timestamp> {
        const STEPS: [u64; 8] = [60, 120, 240, 600, 1_800, 3_600, 7_200, 14_400];
        let length = self.to.since(self.from).as_secs();
        let wide = STEPS.into_iter().find(|step| length / step <= 9);
        let step = i64::try_from(wide.unwrap_or(14_400)).unwrap_or(i64::MAX);
        let offset = clock.utc_offset(self.from);
        let first = (self.from.micros() / 1_000_000 + offset).div_euclid(step) + 1;
        let tick = |number: i64| Timestamp::from_micros((number * step - offset) * 1_000_000);
        (first..).map(tick).take_while(|at| *at < self.to).collect()
    }
}

impl Lane {
    /// The lane of these launches, with the coming slots `planned`, which take as long as `usual`.
    pub(super) fn new<'l>(
        (label, after): (Markup, Markup),
        launches: impl Iterator<Item = &'l RecentLaunch>,
        planned: &[Timestamp],
        usual: Option<Duration>,
        (window, now): (Window, Timestamp),
    ) -> Lane {
        let mut bars: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
        for launch in launches {
            let begin = launch.started_at.unwrap_or(launch.scheduled_time);
            let end = launch.finished_at.unwrap_or(now);
            let is_slot = launch.status == LaunchStatus::Skipped || launch.started_at.is_none();
            let end = if is_slot { begin } else { end };
            if end < window.from || begin > window.to {
                continue;
            }
            let (left, right) = (window.x(begin), window.x(end));
            let order = CLASSES
                .iter()
                .position(|it| *it == class(launch.status.as_str()));
            bars.entry(order.unwrap_or(0))
                .or_default()
                .push((left, right.max(left + LEAST)));
        }
        let path = |(order, bars): (usize, Vec<(f64, f64)>)| {
            let (y, tall) = if CLASSES.get(order) == Some(&"skip") {
                (17.0, 3.0)
            } else {
                (6.0, 14.0)
            };
            let mut path = String::new();
            for (left, right) in joined(bars) {
                push_box(&mut path, left, y, right - left, tall);
            }
            (order, path)
        };
        let mut coming = String::new();
        for slot in planned
            .iter()
            .filter(|slot| **slot > now && **slot < window.to)
            .take(BARS_MAX)
        {
            let left = window.x(*slot);
            let right = window.x(slot.plus(usual.unwrap_or_default()));
            push_box(&mut coming, left, 8.0, (right - left).max(LEAST), 10.0);
        }
        Lane {
            label,
            after,
            paths: bars.into_iter().map(path).collect(),
            planned: coming,
        }
    }

    /// The lane of spans of time, each with its class: one of those of launches.
    pub(super) fn of_spans(
        (label, after): (Markup, Markup),
        spans: &[(&str, Timestamp, Timestamp)],
        window: Window,
    ) -> Lane {
        let mut bars: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
        for (class, from, to) in spans {
            if *to < window.from || *from > window.to {
                continue;
            }
            let order = CLASSES.iter().position(|it| it == class).unwrap_or(0);
            // One that has just begun is seen at the edge.
            let left = window.x(*from).min(WIDTH - 2.0 * LEAST);
            let right = window.x(*to);
            bars.entry(order)
                .or_default()
                .push((left, right.max(left + LEAST)));
        }
        let path = |(order, bars): (usize, Vec<(f64, f64)>)| {
            let mut path = String::new();
            for (left, right) in joined(bars) {
                push_box(&mut path, left, 6.0, right - left, 14.0);
            }
            (order, path)
        };
        Lane {
            label,
            after,
            paths: bars.into_iter().map(path).collect(),
            planned: String::new(),
        }
    }
}

/// Joins bars that touch each other, and makes no more than [`BARS_MAX`] of them.
fn joined(mut bars: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    bars.sort_by(|a, b| a.0.total_cmp(&b.0));
    let gap = if bars.len() > BARS_MAX { LEAST } else { GAP };
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (left, right) in bars {
        match joined.last_mut() {
            Some(last) if left <= last.1 + gap => last.1 = last.1.max(right),
            _ => joined.push((left, right)),
        }
    }
    joined
}

/// Shows the lanes of a timeline in groups, each with a name unless it's empty. `after` is the name of what's behind each.
pub(super) fn lanes(
    groups: &[(&str, Vec<Lane>)],
    after: &str,
    window: Window,
    clock: Clock,
) -> Markup {
    let ticks = window.ticks(clock);
    let mut rules = String::new();
    for at in &ticks {
        rules.push_str(&format!("M{:.1} 0V26", window.x(*at)));
    }
    let now = format!("M{:.1} 0V26", window.x(clock.now));
    html! {
        div.lanes {
            div.label.far { "times in " (clock.zone.name()) }
            svg.axis height="26" aria-hidden="true" {
                @for (place, at) in ticks.iter().enumerate() {
                    text.odd[place % 2 == 1] x={ (format!("{:.1}", window.x(*at) / 10.0)) "%" } y="17" text-anchor="middle" { (clock.hour(*at)) }
                }
            }
            div.after { (after) }
            @for (name, lanes) in groups {
                @if !name.is_empty() && !lanes.is_empty() { div.group { (name) } }
                @for lane in lanes {
                    div.label { (lane.label) }
                    svg viewBox="0 0 1000 26" height="26" preserveAspectRatio="none" aria-hidden="true" {
                        path.rule d=(rules) {}
                        @for (order, path) in &lane.paths { path class=(CLASSES[*order]) d=(path) {} }
                        @if !lane.planned.is_empty() { path.planned d=(lane.planned) {} }
                        path.now d=(now) {}
                    }
                    div.after { (lane.after) }
                }
            }
        }
    }
}

/// Shows what the colours of launches mean.
pub(super) fn legend() -> Markup {
    html! {
        @for (class, word) in [("ok", "succeeded"), ("bad", "failed"), ("run", "running"), ("skip", "skipped"), ("planned", "planned")] {
            span.legend { svg.key viewBox="0 0 10 10" aria-hidden="true" { path class=(class) d="M.5 .5h9v9h-9z" {} } (word) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono_tz::Tz;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn bars_that_touch_are_one() {
        let bars = vec![(10.0, 12.0), (0.0, 2.0), (2.5, 4.0), (30.0, 31.0)];
        assert_eq!(joined(bars), [(0.0, 4.0), (10.0, 12.0), (30.0, 31.0)]);
        let many = Vec::from_iter((0..100_000).map(|place| {
            let left = f64::from(place) / 100.0;
            (left, left + LEAST)
        }));
        assert!(joined(many).len() <= BARS_MAX);
    }

    #[test]
    fn an_axis_has_round_times_of_the_readers_clock() {
        let clock = |zone| Clock { now: at(0), zone };
        let ticks = |from, to, zone| {
            let window = Window {
                from: at(from),
                to: at(to),
            };
            let ticks = window.ticks(clock(zone));
            Vec::from_iter(ticks.into_iter().map(|at| clock(zone).hour(at)))
        };
        assert_eq!(
            ticks(100, 1_900, Tz::UTC),
            [
                "00:04", "00:08", "00:12", "00:16", "00:20", "00:24", "00:28"
            ]
        );
        let day = ticks(0, 86_400, Tz::Asia__Kolkata);
        assert_eq!(day[0], "08:00");
        assert!(day.len() <= 9, "{day:?}");
    }
}
