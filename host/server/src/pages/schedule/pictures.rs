//! The charts of a schedule: its last launches, when in a week it fails, and how long it takes.

use std::time::Duration;

use maud::{Markup, html};

use super::super::charts::{Axes, class, heat, heat_legend, push_box, with_axes};
use super::super::heat_map::{weekday, weekdays};
use super::super::links;
use super::super::words::{Clock, counted, span};
use super::history::{History, took};
use campanile_control::reports::overview::has_failed;
use campanile_model::clock::Timestamp;
use campanile_store::LaunchStatus;
use campanile_store::troubles::RecentLaunch;

/// The launches that are drawn one by one.
pub(super) const DRAWN: usize = 90;
/// The width of a chart in its own units, and the height of each.
const WIDTH: f64 = 1_000.0;
const BARS_TALL: f64 = 72.0;
const WEEK_TALL: i64 = 7 * 14;
const DURATIONS_TALL: f64 = 98.0;
/// A bar is cut off at so many times what 95 % of launches take.
const CUT_AT: u32 = 3;
/// The most bars of the chart of durations.
const BUCKETS_MAX: usize = 24;
const HOURS: usize = 24;

/// Shows the last launches as bars, each a link to its launch.
pub(super) fn last(history: &History, clock: Clock) -> Markup {
    let shown = history.launches.get(..history.launches.len().min(DRAWN));
    let shown = Vec::from_iter(shown.unwrap_or_default().iter().rev());
    let lasted = |launch: &RecentLaunch| {
        let end = launch.finished_at.unwrap_or(clock.now);
        launch.started_at.map(|start| end.since(start))
    };
    let longest = shown.iter().filter_map(|launch| lasted(launch)).max();
    let longest = longest.unwrap_or_default();
    let most = history
        .at_percent(95)
        .map_or(longest, |late| longest.min(late * CUT_AT));
    let most = most.max(Duration::from_millis(1));
    let y = |took: Duration| BARS_TALL * (1.0 - (took.as_secs_f64() / most.as_secs_f64()).min(1.0));
    let first = DRAWN - shown.len();
    let step = WIDTH / DRAWN as f64;
    let lines = [50, 95]
        .into_iter()
        .filter_map(|percent| history.at_percent(percent));
    let lines: String = lines
        .map(|took| format!("M0 {:.1}H{WIDTH}", y(took)))
        .collect();
    let chart = html! {
        @for (place, launch) in shown.iter().enumerate() {
            @let took = lasted(launch);
            @let top = took.map_or(BARS_TALL - 3.0, |took| y(took).min(BARS_TALL - 3.0));
            @let top = if launch.status == LaunchStatus::Skipped { BARS_TALL - 3.0 } else { top };
            a href=(links::path(&["launches", &launch.id.to_string()])) {
                title { (title(launch, took, clock)) }
                rect class=(class(launch.status.as_str())) x=(format!("{:.1}", (first + place) as f64 * step)) y=(format!("{top:.1}")) width=(format!("{:.1}", step - 1.5)) height=(format!("{:.1}", BARS_TALL - top)) {}
            }
        }
        path.mark d=(lines) {}
    };
    let axes = Axes {
        tall: BARS_TALL as i64,
        has_rules: true,
        left: vec![
            (0.0, span(most)),
            (50.0, span(most / 2)),
            (100.0, "0".to_owned()),
        ],
        below: times(&shown, first, clock),
    };
    html! {
        section.card.w12 aria-labelledby="last" {
            header {
                h2 #last { "Last " (counted(shown.len() as u64, "launch")) }
                span.far {
                    "height: duration" @if longest > most { ", cut off at " (span(most)) } " · dashed: p50, p95 "
                    (legend())
                }
            }
            div.pad { (with_axes(&axes, "group", "The last launches by duration; each bar links to its launch", chart)) }
        }
    }
}

fn legend() -> Markup {
    let colours = [
        ("ok", "succeeded"),
        ("bad", "failed"),
        ("run", "running"),
        ("skip", "skipped"),
    ];
    html! {
        @for (class, word) in colours {
            span.legend { svg.key viewBox="0 0 10 10" aria-hidden="true" { rect.(class) width="10" height="10" {} } (word) }
        }
    }
}

fn title(launch: &RecentLaunch, took: Option<Duration>, clock: Clock) -> String {
    let (at, status) = (clock.short(launch.scheduled_time), launch.status.as_str());
    match (took, launch.slots()) {
        (Some(took), _) if launch.finished_at.is_some() => {
            format!("{at} {status} in {}", span(took))
        }
        (Some(took), _) => format!("{at} {status} for {}", span(took)),
        (None, 2..) => format!("{at} {status}, {} slots", launch.slots()),
        (None, _) => format!("{at} {status}"),
    }
}

/// Returns the marks of the time axis: the slots of some of the launches.
fn times(shown: &[&RecentLaunch], first: usize, clock: Clock) -> Vec<(f64, String)> {
    // With fewer launches there's less room below them.
    let marks = 1 + shown.len() * 5 / DRAWN;
    let last = shown.len().saturating_sub(1);
    let mut places = Vec::from_iter((0..marks).map(|mark| last * mark / (marks - 1).max(1)));
    places.dedup();
    let mark = |place: usize| {
        let launch = shown.get(place)?;
        let at = (first + place) as f64 * 100.0 / DRAWN as f64;
        Some((at, clock.short(launch.scheduled_time)))
    };
    places.into_iter().filter_map(mark).collect()
}

/// Shows the share of failures in each hour of the week.
pub(super) fn week(history: &History, calendar: &str, clock: Clock) -> Markup {
    let mut hours = vec![(0_i64, 0_i64); 7 * HOURS];
    for launch in history.results() {
        if let Some((failed, all)) = hours.get_mut(hour_of_week(launch.scheduled_time, clock)) {
            *failed += i64::from(has_failed(launch.status));
            *all += 1;
        }
    }
    let most = hours.iter().map(|(_, all)| *all).max().unwrap_or(0);
    let (failed, all) = history.failures(usize::MAX);
    let (wide, tall) = (WIDTH / HOURS as f64, WEEK_TALL as f64 / 7.0);
    let place = |hour: usize| ((hour % HOURS) as f64 * wide, (hour / HOURS) as f64 * tall);
    let mut none = String::new();
    for hour in (0..hours.len()).filter(|hour| hours.get(*hour).is_some_and(|(_, all)| *all == 0)) {
        let (x, y) = place(hour);
        push_box(&mut none, x, y, wide - 3.0, tall - 2.0);
    }
    let names = weekdays();
    let chart = html! {
        path.none d=(none) {}
        @for (hour, (failed, all)) in hours.iter().enumerate().filter(|(_, (_, all))| *all > 0) {
            @let (x, y) = place(hour);
            @let day = names.get(hour / HOURS).map_or("", |(_, name)| name.as_str());
            rect class=(heat(*failed, *all, most)) x=(format!("{x:.1}")) y=(format!("{y:.1}")) width=(format!("{:.1}", wide - 3.0)) height=(format!("{:.1}", tall - 2.0)) {
                title { (day) " " (format!("{:02}:00", hour % HOURS)) ": " (failed) " of " (all) " failed" }
            }
            @if *failed > 0 { rect.cut x=(format!("{:.1}", x + wide / 2.0 - 2.5)) y=(format!("{:.1}", y + 3.0)) width="2" height="8" {} }
        }
    };
    let below = (0..HOURS).step_by(3);
    let below = below.map(|hour| (hour as f64 * 100.0 / HOURS as f64, format!("{hour:02}")));
    let axes = Axes {
        tall: WEEK_TALL,
        has_rules: false,
        left: names.clone(),
        below: below.collect(),
    };
    let text =
        format!("The share of failures by hour and weekday: {failed} of {all} launches failed");
    html! {
        section.card.w8 aria-labelledby="week" {
            header {
                h2 #week { "Failures by hour" }
                span.far {
                    (covers(history, all, clock)) ", on the clock of " (clock.zone.name()) " · "
                    a href=(calendar) { "year" }
                }
            }
            div.pad { (with_axes(&axes, "img", &text, chart)) p.far { (heat_legend()) } }
        }
    }
}

/// Says which launches a chart is about.
fn covers(history: &History, all: usize, clock: Clock) -> Markup {
    html! {
        @if history.is_cut { "the newest " }
        (counted(all as u64, "launch"))
        @if let Some(since) = history.since() { " since " (clock.short(since)) }
    }
}

/// Returns the hour of the week of a time on the reader's clock, 0 for the first of Monday.
fn hour_of_week(at: Timestamp, clock: Clock) -> usize {
    const DAY: i64 = 86_400;
    let local = at.micros().div_euclid(1_000_000) + clock.utc_offset(at);
    let (day, hour) = (local.div_euclid(DAY), local.rem_euclid(DAY) / 3_600);
    usize::try_from(weekday(day) * HOURS as i64 + hour).unwrap_or(0)
}

/// Shows how often launches take how long, on a log scale. `limit` is after how long a call is stopped.
pub(super) fn durations(history: &History, limit: Option<Duration>) -> Markup {
    let took = Vec::from_iter(history.results().filter_map(took));
    let scale = Scale::of(&took, limit);
    let mut counts = vec![0_usize; scale.buckets];
    for one in &took {
        if let Some(count) = counts.get_mut(scale.bucket(*one)) {
            *count += 1;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let wide = WIDTH / scale.buckets as f64;
    let chart = html! {
        @for (place, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            @let tall = (*count as f64 / most as f64 * DURATIONS_TALL).max(2.0);
            rect.column x=(format!("{:.1}", place as f64 * wide + 2.0)) y=(format!("{:.1}", DURATIONS_TALL - tall)) width=(format!("{:.1}", wide - 4.0)) height=(format!("{tall:.1}")) {
                title { (span(scale.edge(place))) " to " (span(scale.edge(place + 1))) ": " (counted(*count as u64, "launch")) }
            }
        }
        @if let Some(limit) = scale.limit { path.limit d=(format!("M{:.1} 0V{DURATIONS_TALL}", scale.share(limit) * WIDTH)) {} }
    };
    let marks = (0..=scale.buckets).step_by(scale.buckets.div_ceil(4));
    let marks = marks.map(|place| {
        (
            place as f64 * 100.0 / scale.buckets as f64,
            span(scale.edge(place)),
        )
    });
    let axes = Axes {
        tall: DURATIONS_TALL as i64,
        has_rules: true,
        left: vec![(0.0, most.to_string()), (100.0, "0".to_owned())],
        below: marks.collect(),
    };
    html! {
        section.card.w4 aria-labelledby="durations" {
            header { h2 #durations { "How long it takes" } span.far { "launches, log scale" } }
            div.pad {
                @if took.is_empty() {
                    p.far { "No launch has ended yet." }
                } @else {
                    (with_axes(&axes, "img", "How many launches took how long", chart))
                    p.far {
                        @match (scale.limit, limit) {
                            (Some(limit), _) => { "Dashed red: a call is stopped after " (span(limit)) "." },
                            (None, Some(limit)) => { "A call is stopped after " (span(limit)) ", far off to the right." },
                            (None, None) => "The task sets no limit of its own.",
                        }
                    }
                }
            }
        }
    }
}

/// The log scale of durations.
struct Scale {
    least: f64,
    /// How many times as long the next bucket is.
    factor: f64,
    buckets: usize,
    /// The limit, if it's on the scale.
    limit: Option<Duration>,
}

impl Scale {
    /// How many times as long as the longest launch a limit on the scale is.
    const FAR: u32 = 64;

    fn of(took: &[Duration], limit: Option<Duration>) -> Scale {
        let least = took.iter().min().copied().unwrap_or_default();
        let least = least.as_secs_f64().max(1e-3);
        let longest = took.iter().max().copied().unwrap_or_default();
        let limit = limit.filter(|limit| *limit <= longest * Scale::FAR);
        let most = longest
            .max(limit.unwrap_or_default())
            .as_secs_f64()
            .max(least);
        // Durations that are all alike are in the middle of three octaves.
        let octaves = (most / least).log2().max(3.0);
        let least = least / ((octaves - (most / least).log2()) / 2.0).exp2();
        // Half octaves as long as there's room.
        let part = if octaves * 2.0 < BUCKETS_MAX as f64 {
            0.5
        } else {
            1.0
        };
        let part = f64::max(part, octaves / BUCKETS_MAX as f64);
        Scale {
            least,
            factor: 2_f64.powf(part),
            buckets: ((octaves / part).floor() as usize + 1).min(BUCKETS_MAX + 1),
            limit,
        }
    }

    /// Returns the place of a duration, as a share of the scale.
    fn share(&self, took: Duration) -> f64 {
        let over = (took.as_secs_f64() / self.least).max(1.0);
        (over.log2() / self.factor.log2() / self.buckets as f64).min(1.0)
    }

    fn bucket(&self, took: Duration) -> usize {
        let place = (self.share(took) * self.buckets as f64).floor() as usize;
        place.min(self.buckets - 1)
    }

    /// Returns where a bucket begins.
    fn edge(&self, bucket: usize) -> Duration {
        Duration::from_secs_f64((self.least * self.factor.powf(bucket as f64)).min(1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono_tz::Tz;

    #[test]
    fn a_log_scale_has_all_durations() {
        let took = [1, 40, 300, 60_000].map(Duration::from_millis);
        let scale = Scale::of(&took, Some(Duration::from_secs(90)));
        assert_eq!(scale.bucket(took[0]), 0);
        assert!(Scale::of(&took[..1], None).bucket(took[0]) > 1);
        assert!(scale.buckets <= BUCKETS_MAX + 1);
        for one in took {
            let bucket = scale.bucket(one);
            assert!(
                scale.edge(bucket) <= one + Duration::from_micros(1),
                "{one:?}"
            );
            assert!(
                one < scale.edge(bucket + 1) + Duration::from_micros(1),
                "{one:?}"
            );
        }
        assert!(scale.limit.is_some() && scale.share(Duration::from_secs(90)) <= 1.0);
        let far = Scale::of(&took[..1], Some(Duration::from_secs(3_600)));
        assert_eq!(far.limit, None);
        assert!(Scale::of(&[], None).buckets >= 1);
    }

    #[test]
    fn an_hour_of_the_week_is_that_of_the_readers_clock() {
        // A Sunday.
        let at: Timestamp = "2026-11-29T23:30:00Z".parse().unwrap();
        let clock = |zone| Clock { now: at, zone };
        assert_eq!(hour_of_week(at, clock(Tz::UTC)), 6 * HOURS + 23);
        assert_eq!(hour_of_week(at, clock(Tz::Europe__Berlin)), 0);
    }
}
