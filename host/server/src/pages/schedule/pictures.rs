//! The last launches of a schedule, one by one.

use std::time::Duration;

use maud::{Markup, html};

use super::super::charts::{Axes, class, with_axes};
use super::super::links;
use super::super::words::{Clock, counted, span};
use super::history::History;
use campanile_store::LaunchStatus;
use campanile_store::troubles::RecentLaunch;

/// The launches that are drawn one by one.
const DRAWN: usize = 90;
/// The width of the chart in its own units, and its height.
const WIDTH: f64 = 1_000.0;
const BARS_TALL: f64 = 72.0;
/// A bar is cut off at so many times what 95 % of launches take.
const CUT_AT: u32 = 3;

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
