//! Charts: SVG with a text that says the same. Each color goes with a height or a word.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_store::LaunchStatus;
use campanile_store::troubles::RecentLaunch;
use maud::{Markup, html};

use super::words::{Clock, time};

/// The width of a chart in its own units.
const WIDTH: i64 = 1_000;

/// Returns the class of a status or another word: what it means, not what it's called.
pub(super) fn class(word: &str) -> &'static str {
    match word {
        "succeeded" | "healthy" | "enabled" | "active" | "serving" | "resolved" | "delivered"
        | "done" | "approved" => "ok",
        "failed" | "abandoned" | "unknown" | "unhealthy" | "lost" | "died" | "firing"
        | "critical" | "silent" | "rejected" | "dead" | "failing" | "never succeeded"
        | "failed once" => "bad",
        "paused" | "cancelled" | "late" | "pending" | "pending_approval" | "warning"
        | "draining" | "drained" | "rolled_back" | "missing" | "flaky" | "skips slots" => "warn",
        "running" | "waiting" | "open" | "queued" | "loading" => "run",
        "skipped" | "discarded" => "skip",
        _ => "plain",
    }
}

/// A launch as a bar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    pub status: LaunchStatus,
    pub took: Option<Duration>,
}

impl Bar {
    pub(super) fn of(launch: &RecentLaunch, now: Timestamp) -> Bar {
        let end = launch.finished_at.unwrap_or(now);
        Bar {
            status: launch.status,
            took: launch.started_at.map(|start| end.since(start)),
        }
    }
}

/// The bars of a row.
pub(super) const BARS: usize = 30;

/// Shows launches, the oldest first: the height is the duration, on a scale of roots, and the colour the outcome.
pub(super) fn bars(bars: &[Bar]) -> Markup {
    const TALL: f64 = 20.0;
    let text = outcomes(bars.iter().map(|bar| bar.status));
    let longest = bars.iter().filter_map(|bar| bar.took).max();
    let longest = longest.unwrap_or_default().as_secs_f64().max(1e-6);
    let first = BARS.saturating_sub(bars.len());
    let mut paths: BTreeMap<&str, String> = BTreeMap::new();
    for (place, bar) in bars.iter().enumerate() {
        let share = bar.took.map_or(0.0, |took| took.as_secs_f64() / longest);
        let tall = match bar.status {
            LaunchStatus::Skipped => 3.0,
            _ => 6.0 + share.sqrt() * (TALL - 6.0),
        };
        let path = paths.entry(class(bar.status.as_str())).or_default();
        // Writing to a String cannot fail.
        let _ = write!(path, "M{} 20V{:.0}", (first + place) * 4 + 2, TALL - tall);
    }
    html! {
        @if !bars.is_empty() {
            // Few bars stand at the right of the place for all.
            svg.bars viewBox={ (first * 4) " 0 " (BARS.saturating_sub(first) * 4) " 20" } preserveAspectRatio="xMaxYMid" role="img" aria-label={ "Last launches: " (text) } {
                title { (text) }
                @for (class, path) in &paths { path class=(class) d=(path) {} }
            }
        }
    }
}

/// Returns how many launches ended how, such as `3 failed, 17 succeeded`.
pub(super) fn outcomes(statuses: impl Iterator<Item = LaunchStatus>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for status in statuses {
        *counts.entry(status.as_str()).or_default() += 1;
    }
    let counts = counts.iter().map(|(word, count)| format!("{count} {word}"));
    let counts = Vec::from_iter(counts);
    if counts.is_empty() {
        "no launches".to_owned()
    } else {
        counts.join(", ")
    }
}

/// Shows two counts for each part of a span, one on top of the other: what went well, and what didn't.
pub(super) fn stacked(parts: &[(usize, usize)], text: &str) -> Markup {
    const TALL: f64 = 36.0;
    let most = parts
        .iter()
        .map(|(ok, bad)| ok + bad)
        .max()
        .unwrap_or(0)
        .max(1);
    let step = 240.0 / parts.len().max(1) as f64;
    let path = |of: &dyn Fn(usize, usize) -> (usize, usize)| {
        let mut path = String::new();
        for (place, (ok, bad)) in parts.iter().enumerate() {
            let (below, count) = of(*ok, *bad);
            if count > 0 {
                let scale = TALL / most as f64;
                let (y, tall) = (TALL - (below + count) as f64 * scale, count as f64 * scale);
                push_box(
                    &mut path,
                    place as f64 * step,
                    y,
                    (step - 1.0).max(1.0),
                    tall,
                );
            }
        }
        path
    };
    html! {
        svg viewBox="0 0 240 36" preserveAspectRatio="none" role="img" aria-label=(text) {
            path.ok d=(path(&|ok, _| (0, ok))) {}
            path.bad d=(path(&|ok, bad| (ok, bad))) {}
        }
    }
}

/// Shows lines over a span. A part without a value makes a gap.
pub(super) fn lines(of: &[(&str, &[Option<f64>])], text: &str) -> Markup {
    let values = of.iter().flat_map(|(_, values)| values.iter().flatten());
    let most = values.copied().fold(0.0_f64, f64::max).max(1e-9);
    html! {
        svg viewBox="0 0 240 36" preserveAspectRatio="none" role="img" aria-label=(text) {
            @for (class, values) in of {
                path class=(class) d=(line_path(values, most)) {}
            }
        }
    }
}

fn line_path(values: &[Option<f64>], most: f64) -> String {
    let step = 240.0 / values.len().saturating_sub(1).max(1) as f64;
    let mut path = String::new();
    let mut is_gap = true;
    for (place, value) in values.iter().enumerate() {
        if let Some(value) = value {
            let pen = if is_gap { 'M' } else { 'L' };
            let (x, y) = (place as f64 * step, 34.0 - value / most * 32.0);
            // Writing to a String cannot fail.
            let _ = write!(path, "{pen}{x:.1} {y:.1}");
        }
        is_gap = value.is_none();
    }
    path
}

/// Adds a box to a path.
pub(super) fn push_box(path: &mut String, x: f64, y: f64, wide: f64, tall: f64) {
    // Writing to a String cannot fail.
    let _ = write!(path, "M{x:.1} {y:.1}h{wide:.1}v{tall:.1}h-{wide:.1}z");
}

/// The marks beside and below a chart: where each is, in percent of the height or the width, and its words.
pub(super) struct Axes {
    /// The height of the chart, in pixels and in its own units. It's 1,000 units wide.
    pub tall: i64,
    /// Whether a line goes from each mark on the left through the chart.
    pub has_rules: bool,
    pub left: Vec<(f64, String)>,
    pub below: Vec<(f64, String)>,
}

/// Shows a chart with its axes. Their words aren't stretched with the chart. `role` is `img`, or `group` for one with links.
pub(super) fn with_axes(axes: &Axes, role: &str, text: &str, chart: Markup) -> Markup {
    let mut rules = String::new();
    for (share, _) in axes.left.iter().filter(|_| axes.has_rules) {
        // Writing to a String cannot fail.
        let _ = write!(rules, "M0 {:.1}H{WIDTH}", share / 100.0 * axes.tall as f64);
    }
    let anchor = |share: f64| match share {
        ..3.0 => "start",
        97.0.. => "end",
        _ => "middle",
    };
    html! {
        div.axes {
            svg.axis height=(axes.tall) aria-hidden="true" {
                @for (share, words) in &axes.left { text x="100%" y={ (format!("{share:.1}")) "%" } dy="4" text-anchor="end" { (words) } }
            }
            svg.plot viewBox={ "0 0 " (WIDTH) " " (axes.tall) } height=(axes.tall) preserveAspectRatio="none" role=(role) aria-label=(text) {
                path.rule d=(rules) {}
                (chart)
            }
            span {}
            svg.axis height="18" aria-hidden="true" {
                @for (place, (share, words)) in axes.below.iter().enumerate() {
                    text.odd[place % 2 == 1] x={ (format!("{share:.1}")) "%" } y="14" text-anchor=(anchor(*share)) { (words) }
                }
            }
        }
    }
}

/// Returns the class of a part of a heat map: by the share of failures or, without one, by how much was done there compared
/// with the busiest part.
pub(super) fn heat(failed: i64, all: i64, most: i64) -> &'static str {
    match (failed, all) {
        (_, ..=0) => "none",
        (0, all) if all * 3 > most * 2 => "good3",
        (0, all) if all * 3 > most => "good2",
        (0, _) => "good1",
        (failed, all) if failed * 10 < all => "bad1",
        (failed, all) if failed * 2 < all => "bad2",
        _ => "bad3",
    }
}

/// Shows what the colours of a heat map mean.
pub(super) fn heat_legend() -> Markup {
    html! {
        @for (class, words) in [("good2", "no failure"), ("bad1", "under 10 % failed"), ("bad2", "under 50 %"), ("bad3", "50 % or more")] {
            span.legend {
                svg.key viewBox="0 0 10 10" aria-hidden="true" {
                    rect.(class) width="10" height="10" {}
                    @if class.starts_with("bad") { rect.cut x="4" y="1" width="2" height="8" {} }
                }
                (words)
            }
        }
    }
}

/// Returns a share in percent. It's 100 or 0 only for all or none.
pub(super) fn percent(part: i64, all: i64) -> String {
    let share = part as f64 * 100.0 / all.max(1) as f64;
    if part == all || part == 0 {
        format!("{share:.0} %")
    } else {
        format!("{:.1} %", share.clamp(0.1, 99.9))
    }
}

/// Says up to when launches count, unless that's now.
pub(super) fn counted_until(until: Timestamp, clock: Clock) -> Markup {
    html! {
        @if until < clock.now { "Launches decided since " (time(until, clock)) " aren't counted yet. " }
    }
}

/// Returns where a time is in a span of a chart.
fn place(at: Timestamp, from: Timestamp, to: Timestamp) -> i64 {
    let whole = (to.micros() - from.micros()).max(1);
    let part = (at.micros() - from.micros()).clamp(0, whole);
    (i128::from(part) * i128::from(WIDTH) / i128::from(whole)) as i64
}

/// Show one bar of a Gantt chart. The cells beside it have its times, so readers of the text leave it out.
pub(super) fn bar(
    begin: Timestamp,
    end: Timestamp,
    from: Timestamp,
    to: Timestamp,
    class: &str,
) -> Markup {
    let (left, right) = (place(begin, from, to), place(end, from, to));
    html! {
        svg.bar viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect.track x="0" y="4" width=(WIDTH) height="2" {}
            rect class=(self::class(class)) x=(left.min(WIDTH - 4)) y="0" width=((right - left).max(4)) height="10" {}
        }
    }
}

/// Show how long something has lasted, as a bar that ends at a mark when it has lasted as long as usual.
pub(super) fn against(lasted: Duration, usual: Duration, class: &str) -> Markup {
    let whole = lasted.max(usual).as_micros().max(1);
    let part = |of: Duration| (of.as_micros() * WIDTH as u128 / whole) as i64;
    html! {
        svg.against viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect.track x="0" y="4" width=(WIDTH) height="2" {}
            rect class=(self::class(class)) x="0" y="1" width=(part(lasted).max(4)) height="8" {}
            rect.usual x=(part(usual).min(WIDTH - 6)) y="0" width="6" height="10" {}
        }
    }
}

/// Shows what a whole is made of as one bar, with a class for each part. The text says the same.
pub(super) fn shares(parts: &[(&str, i64)], text: &str) -> Markup {
    let whole: i64 = parts.iter().map(|(_, count)| count).sum();
    let wide = |count: i64| count as f64 * WIDTH as f64 / whole.max(1) as f64;
    let mut left = 0;
    let mut boxes = Vec::with_capacity(parts.len());
    for (class, count) in parts.iter().filter(|(_, count)| *count > 0) {
        let x = wide(left).min(WIDTH as f64 - 4.0);
        boxes.push((*class, x, wide(*count).max(4.0)));
        left += count;
    }
    html! {
        svg.bar viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" role="img" aria-label=(text) {
            title { (text) }
            rect.track x="0" y="4" width=(WIDTH) height="2" {}
            @for (class, x, wide) in boxes {
                rect class=(class) x=(format!("{x:.1}")) y="0" width=(format!("{wide:.1}")) height="10" {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn a_chart_says_in_words_what_it_shows() {
        let launch = |status| Bar {
            status,
            took: Some(Duration::from_secs(1)),
        };
        let shown = bars(&[
            launch(LaunchStatus::Succeeded),
            launch(LaunchStatus::Failed),
        ]);
        let shown = shown.into_string();
        assert!(shown.contains("1 failed, 1 succeeded"), "{shown}");
        assert_eq!(bars(&[]).into_string(), "");
        let shown = stacked(&[(1, 1), (0, 0)], "two minutes").into_string();
        assert!(shown.contains("M0.0 18.0h119.0v18.0"), "{shown}");
        assert!(shown.contains("M0.0 0.0h119.0v18.0"), "{shown}");
        let values = [Some(1.0), None, Some(2.0), Some(0.0)];
        let shown = lines(&[("line", &values)], "a line").into_string();
        assert!(shown.contains("M0.0 18.0M160.0 2.0L240.0 34.0"), "{shown}");
        let (short, long) = (Duration::from_secs(5), Duration::from_secs(20));
        let shown = against(short, long, "running").into_string();
        assert!(
            shown.contains("width=\"250\"") && shown.contains("x=\"994\""),
            "{shown}"
        );
        let shown = against(long, short, "running").into_string();
        assert!(
            shown.contains("width=\"1000\" height=\"8\"") && shown.contains("x=\"250\""),
            "{shown}"
        );
        assert_eq!((heat(0, 0, 9), heat(0, 9, 9)), ("none", "good3"));
        assert_eq!((heat(1, 20, 20), heat(9, 20, 20)), ("bad1", "bad2"));
        let axes = Axes {
            tall: 100,
            has_rules: true,
            left: vec![(50.0, "2 s".to_owned())],
            below: vec![(0.0, "begin".to_owned()), (100.0, "end".to_owned())],
        };
        let shown = with_axes(&axes, "img", "a chart", html! {}).into_string();
        assert!(shown.contains("M0 50.0H1000"), "{shown}");
        assert!(shown.contains("text-anchor=\"end\">end<"), "{shown}");
        let shown = bar(at(0), at(10), at(0), at(20), "failed").into_string();
        assert!(shown.contains("width=\"500\""), "{shown}");
    }

    #[test]
    fn a_share_is_whole_only_for_all_or_none() {
        assert_eq!(percent(0, 9), "0 %");
        assert_eq!(percent(9, 9), "100 %");
        assert_eq!(percent(9_999, 10_000), "99.9 %");
        assert_eq!(percent(50, 90), "55.6 %");
    }
}
