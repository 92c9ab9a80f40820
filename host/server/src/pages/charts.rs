//! Charts: SVG with a text that says the same. Each color goes with a height or a word.

use std::collections::BTreeMap;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_store::LaunchStatus;
use maud::{Markup, html};

use super::words::{counted, span, time};

/// The width of a chart in its own units.
const WIDTH: i64 = 1_000;

/// Show the outcomes of the newest launches, the oldest first.
pub(super) fn sparkline(outcomes: &[LaunchStatus]) -> Markup {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome.as_str()).or_default() += 1;
    }
    let counts = counts.iter().map(|(word, count)| format!("{count} {word}"));
    let text = if outcomes.is_empty() {
        "no launches".to_owned()
    } else {
        Vec::from_iter(counts).join(", ")
    };
    let (width, height) = (outcomes.len().max(1) * 8, 18);
    html! {
        @if !outcomes.is_empty() {
            svg.spark viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img" aria-label={ "Last launches, oldest first: " (text) } {
                @for (place, outcome) in outcomes.iter().enumerate() {
                    @let tall = bar_height(*outcome);
                    rect class={ "s-" (outcome.as_str()) } x=(place * 8 + 1) y=(height - tall) width="6" height=(tall) {
                        title { (outcome.as_str()) }
                    }
                }
            }
            " "
        }
        span.far { (text) }
    }
}

/// A launch that did not succeed is taller.
fn bar_height(outcome: LaunchStatus) -> usize {
    match outcome {
        LaunchStatus::Failed | LaunchStatus::Abandoned | LaunchStatus::Unknown => 18,
        LaunchStatus::Cancelled => 13,
        LaunchStatus::Skipped => 3,
        _ => 8,
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
            rect class={ "s-" (class) } x=(left.min(WIDTH - 4)) y="0" width=((right - left).max(4)) height="10" {}
        }
    }
}

/// Show how long something has lasted, as a bar that ends at a mark when it has lasted as long as usual.
pub(super) fn against(lasted: Duration, usual: Duration, class: &str) -> Markup {
    let whole = lasted.max(usual).as_micros().max(1);
    let part = |of: Duration| (of.as_micros() * WIDTH as u128 / whole) as i64;
    html! {
        svg.bar viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect.track x="0" y="4" width=(WIDTH) height="2" {}
            rect class={ "s-" (class) } x="0" y="1" width=(part(lasted).max(4)) height="8" {}
            rect.usual x=(part(usual).min(WIDTH - 6)) y="0" width="6" height="10" {}
        }
    }
}

/// Show the times of `slots` in a span, as ticks on a line.
pub(super) fn strip(slots: &[(Timestamp, &str)], from: Timestamp, to: Timestamp) -> Markup {
    let length = span(to.since(from));
    html! {
        svg.strip viewBox={ "0 0 " (WIDTH) " 30" } preserveAspectRatio="none" role="img"
            aria-label={ (counted(slots.len() as u64, "slot")) " of the next " (length) "; the table has them" } {
            rect.track x="0" y="14" width=(WIDTH) height="2" {}
            @for quarter in 1..4 {
                rect.track x=(quarter * WIDTH / 4) y="8" width="2" height="14" {}
            }
            @for (slot, name) in slots {
                rect.tick x=(place(*slot, from, to).min(WIDTH - 4)) y="2" width="4" height="26" {
                    title { (name) " " (slot.to_string()) }
                }
            }
        }
    }
}

/// The number of starts in one part of a forecast.
pub(super) struct Column {
    pub from: Timestamp,
    pub to: Timestamp,
    pub count: u64,
    /// The page of this part alone.
    pub href: String,
}

/// Show how many launches start in each part of a span.
pub(super) fn columns(columns: &[Column]) -> Markup {
    let most = columns
        .iter()
        .map(|column| column.count)
        .max()
        .unwrap_or(0)
        .max(1);
    let step = WIDTH / columns.len().max(1) as i64;
    let busiest = columns.iter().max_by_key(|column| column.count);
    html! {
        svg.columns viewBox={ "0 0 " (WIDTH) " 120" } preserveAspectRatio="none" role="group"
            aria-label="Starts of launches over time; each column links to its part" {
            @for (place, column) in columns.iter().enumerate().filter(|(_, column)| column.count > 0) {
                @let tall = (column.count * 110 / most).max(3);
                a href=(column.href) aria-label={ (counted(column.count, "launch")) " from " (column.from.to_string()) } {
                    rect.column x=(place as i64 * step) y=(120 - tall) width=((step - 1).max(1)) height=(tall) {
                        title { (counted(column.count, "launch")) " from " (column.from.to_string()) " to " (column.to.to_string()) }
                    }
                }
            }
            rect.track x="0" y="119" width=(WIDTH) height="1" {}
        }
        @if let (Some(first), Some(last), Some(busiest)) = (columns.first(), columns.last(), busiest) {
            p.far {
                "From " (time(first.from)) " to " (time(last.to)) ". The tallest column stands for "
                (counted(busiest.count, "launch")) " from " (time(busiest.from)) " on, within " (span(busiest.to.since(busiest.from))) "."
            }
        }
    }
}

/// Add the starts of each minute up in at most `columns_max` parts of a span.
pub(super) fn parts(
    starts: impl Iterator<Item = (Timestamp, u64)>,
    from: Timestamp,
    to: Timestamp,
    columns_max: u64,
    href: impl Fn(Timestamp, Timestamp) -> String,
) -> Vec<Column> {
    const MINUTE: u64 = 60;
    let seconds = to.since(from).as_secs().max(1);
    let step = Duration::from_secs(seconds.div_ceil(columns_max).div_ceil(MINUTE) * MINUTE);
    let mut columns = Vec::new();
    let mut begin = from;
    while begin < to {
        let end = begin.plus(step).min(to);
        columns.push(Column {
            from: begin,
            to: end,
            count: 0,
            href: href(begin, end),
        });
        begin = end;
    }
    for (at, count) in starts {
        // A minute may begin before the span.
        let index = (at.max(from).since(from).as_micros() / step.as_micros()) as usize;
        if let Some(column) = columns.get_mut(index) {
            column.count += count;
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn the_parts_of_a_span_have_all_its_starts() {
        let starts = [(at(0), 2), (at(60), 1), (at(119), 1), (at(3_599), 5)];
        let columns = parts(starts.into_iter(), at(30), at(3_600), 30, |from, _| {
            from.to_string()
        });
        assert!(columns.len() <= 30);
        assert_eq!(columns.iter().map(|column| column.count).sum::<u64>(), 9);
        assert_eq!(columns.first().map(|first| first.from), Some(at(30)));
        assert_eq!(columns.last().map(|last| last.to), Some(at(3_600)));
        assert_eq!(columns[0].count, 4);
    }

    #[test]
    fn a_chart_says_in_words_what_it_shows() {
        let shown = sparkline(&[LaunchStatus::Succeeded, LaunchStatus::Failed]).into_string();
        assert!(shown.contains("1 failed, 1 succeeded"), "{shown}");
        assert!(sparkline(&[]).into_string().contains("no launches"));
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
        let shown = bar(at(0), at(10), at(0), at(20), "failed").into_string();
        assert!(shown.contains("width=\"500\""), "{shown}");
    }
}
