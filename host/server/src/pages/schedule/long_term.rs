//! A schedule over days and months: its success, when it fails, and how long it takes, from the rollup.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::super::charts::{Axes, counted_until, heat_legend, with_axes};
use super::super::heat_map::{self, Days, HeatCell};
use super::super::links;
use super::super::words::{Clock, counted, span};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::reports::rollups::{self, RollupSpan, UnsealedLaunches};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::rollup::DurationBuckets;
use campanile_store::rollup::Rollup;
use campanile_store::{DbError, Tx};

/// The spans that the page can show: the word in the query, the one on the page, and the days; none for the hours of a week.
const SPANS: [(&str, &str, Option<RollupSpan>); 3] = [
    ("7d", "7 days", None),
    ("12w", "12 weeks", Some(RollupSpan::DAYS_OF_12_WEEKS)),
    ("1y", "a year", Some(RollupSpan::DAYS_OF_A_YEAR)),
];
const DAYS_OF_WEEK: i64 = 7;
const DAY_S: i64 = 86_400;
const WIDTH: f64 = 1_000.0;
const DURATIONS_TALL: f64 = 98.0;
/// A limit further to the right than so many buckets isn't drawn.
const FAR: usize = 6;

/// What the rollup has of a schedule.
pub(super) struct LongTerm {
    /// Which of [`SPANS`] is shown.
    shown: usize,
    /// The hours of the last 7 days, and the days of a longer span.
    hours: BTreeMap<Timestamp, Rollup>,
    days: BTreeMap<Timestamp, Rollup>,
    counted_until: Timestamp,
}

/// Returns which of the spans a query asks for.
pub(super) fn wanted(span: Option<&str>) -> Result<usize> {
    let Some(span) = span else {
        return Ok(0);
    };
    let found = SPANS.iter().position(|(word, ..)| *word == span);
    found.ok_or_else(|| {
        let words = SPANS.map(|(word, ..)| word).join(", ");
        ApiProblem::invalid(format!("`span` is {span:?}, and can be {words}"))
    })
}

impl LongTerm {
    pub(super) async fn read(
        tx: &mut Tx,
        id: ScheduleId,
        shown: usize,
        now: Timestamp,
    ) -> std::result::Result<LongTerm, DbError> {
        let unsealed = UnsealedLaunches::read(tx, now).await?;
        let week = RollupSpan::HOURS_OF_7_DAYS;
        let mut hours = rollups::of_schedules(tx, &[id], week, &unsealed, now).await?;
        let days = SPANS.get(shown).and_then(|(.., days)| *days);
        let mut of_days = match days {
            Some(days) => rollups::of_schedules(tx, &[id], days, &unsealed, now).await?,
            None => Default::default(),
        };
        Ok(LongTerm {
            shown,
            hours: hours.remove(&id).unwrap_or_default(),
            days: of_days.remove(&id).unwrap_or_default(),
            counted_until: unsealed.counted_until,
        })
    }

    /// Returns how launches went in the last 24 hours, and in the last 7 days.
    pub(super) fn day_and_week(&self, now: Timestamp) -> (Rollup, Rollup) {
        let since = RollupSpan::HOURS_24.since(now);
        let day = rollups::sum(self.hours.range(since..).map(|(_, rollup)| rollup));
        (day, rollups::sum(self.hours.values()))
    }

    /// Whether any launch counts, in the last 7 days or in the span that is shown.
    pub(super) fn has_any(&self) -> bool {
        !self.hours.is_empty() || !self.days.is_empty()
    }

    /// Says up to when launches count, unless that's now.
    pub(super) fn note(&self, clock: Clock) -> Markup {
        counted_until(self.counted_until, clock)
    }

    fn days(&self) -> Option<RollupSpan> {
        SPANS.get(self.shown).and_then(|(.., days)| *days)
    }

    /// Returns how launches went in the whole span that is shown.
    fn whole(&self) -> Rollup {
        match self.days() {
            Some(_) => rollups::sum(self.days.values()),
            None => rollups::sum(self.hours.values()),
        }
    }
}

/// Shows when the schedule fails: the hours of days, or the days of weeks.
pub(super) fn failures(long: &LongTerm, name: &str, calendar: &str, clock: Clock) -> Markup {
    let whole = long.whole();
    let address = |word: &str| {
        let word = if word == SPANS[0].0 { "" } else { word };
        let query = links::query(&[("span", word)]);
        format!("{}{query}#failures", links::path(&["schedules", name]))
    };
    html! {
        section.card.w8 aria-labelledby="failures" {
            header {
                h2 #failures { "Failures by " @if long.days().is_some() { "day" } @else { "hour" } }
                nav.filters aria-label="Span of the charts" {
                    @for (place, (word, words, _)) in SPANS.iter().enumerate() {
                        a href=(address(word)) aria-current=[(place == long.shown).then_some("true")] { (words) }
                    }
                }
                span.far {
                    (whole.failed) " of " (counted(whole.ended().unsigned_abs(), "launch")) " failed"
                    @if long.days().is_some() { ", days in UTC" } @else { ", on the clock of " (clock.zone.name()) }
                    " · " a href=(calendar) { "calendar" }
                }
            }
            div.pad {
                @match long.days() {
                    Some(days) => (day_map(long, days, clock)),
                    None => (heat_map::hours(&rows_of_hours(&long.hours, clock))),
                }
                p.far { (heat_legend()) (long.note(clock)) }
            }
        }
    }
}

fn day_map(long: &LongTerm, span: RollupSpan, clock: Clock) -> Markup {
    let first = span.since(clock.now).day();
    let days = i64::from(span.count);
    let month_of = |day: i64| Timestamp::of_day(day).to_chrono().format("%b").to_string();
    let date = |day: i64| Timestamp::of_day(day).date_text();
    let begins = (first..first + days).filter(|day| date(*day).ends_with("-01"));
    let months = Vec::from_iter(begins.map(|day| (day, month_of(day))));
    let months = Vec::from_iter(months.iter().map(|(day, name)| (*day, name.as_str())));
    let cell = |(start, rollup): (&Timestamp, &Rollup)| {
        let day = start.day();
        let name = start.to_chrono().format("%b %-d");
        (day, (name.to_string(), HeatCell::from(rollup)))
    };
    let cells = long.days.iter().map(cell).collect();
    let days = Days {
        first,
        days,
        months: &months,
    };
    heat_map::days(&days, &cells)
}

/// Pure: puts the hours of the last 7 days on the reader's clock into rows, one a day, the oldest first.
fn rows_of_hours(
    hours: &BTreeMap<Timestamp, Rollup>,
    clock: Clock,
) -> Vec<(String, BTreeMap<usize, HeatCell>)> {
    let local = |at: Timestamp| at.micros().div_euclid(1_000_000) + clock.utc_offset(at);
    let last = local(clock.now).div_euclid(DAY_S);
    let mut sums: BTreeMap<(i64, usize), Rollup> = BTreeMap::new();
    for (start, rollup) in hours {
        let seconds = local(*start);
        let hour = usize::try_from(seconds.rem_euclid(DAY_S) / 3_600).unwrap_or(0);
        // When a clock goes back, two hours of UTC are the same one.
        let sum = sums.entry((seconds.div_euclid(DAY_S), hour)).or_default();
        sum.add(rollup);
    }
    let row = |day: i64| {
        let name = Timestamp::of_day(day).to_chrono().format("%a %-d");
        let of_day = sums.range((day, 0)..(day + 1, 0));
        let cells = of_day.map(|((_, hour), rollup)| (*hour, HeatCell::from(rollup)));
        (name.to_string(), cells.collect())
    };
    (last - DAYS_OF_WEEK + 1..=last).map(row).collect()
}

/// Shows how often launches take how long, on a log scale. `limit` is after how long a call is stopped.
pub(super) fn durations(long: &LongTerm, limit: Option<Duration>) -> Markup {
    let whole = long.whole().durations;
    let scale = Scale::of(&whole, limit);
    let most = scale.counts.iter().copied().max().unwrap_or(0).max(1);
    let wide = WIDTH / scale.counts.len().max(1) as f64;
    let line = |time: Duration| format!("M{:.1} 0V{DURATIONS_TALL}", scale.share(time) * WIDTH);
    let estimate = |percent| whole.at_percent(percent);
    let marks: String = [50, 95]
        .into_iter()
        .filter_map(estimate)
        .map(line)
        .collect();
    let chart = html! {
        @for (place, count) in scale.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            @let tall = (*count as f64 / most as f64 * DURATIONS_TALL).max(2.0);
            rect.column x=(format!("{:.1}", place as f64 * wide + 2.0)) y=(format!("{:.1}", DURATIONS_TALL - tall)) width=(format!("{:.1}", wide - 4.0)) height=(format!("{tall:.1}")) {
                title { (scale.range(place)) ": " (counted(*count, "launch")) }
            }
        }
        path.mark d=(marks) {}
        @if let Some(limit) = scale.limit { path.limit d=(line(limit)) {} }
    };
    let all = scale.counts.len();
    let edges = (0..=all).step_by(all.div_ceil(4).max(1));
    let edges = edges.map(|place| (place as f64 * 100.0 / all as f64, span(scale.edge(place))));
    let axes = Axes {
        tall: DURATIONS_TALL as i64,
        has_rules: true,
        left: vec![(0.0, most.to_string()), (100.0, "0".to_owned())],
        below: edges.collect(),
    };
    let words = SPANS.get(long.shown).map_or("", |(_, words, _)| words);
    html! {
        section.card.w4 aria-labelledby="durations" {
            header { h2 #durations { "How long it takes" } span.far { (words) ", log scale" } }
            div.pad {
                @match (estimate(50), estimate(95)) {
                    (Some(middle), Some(late)) => {
                        (with_axes(&axes, "img", &format!("How many launches took how long: p50 about {}, p95 about {}", span(middle), span(late)), chart))
                        p.far {
                            "Dashed: p50 about " (span(middle)) ", p95 about " (span(late)) ". "
                            @match (scale.limit, limit) {
                                (Some(limit), _) => { "Dashed red: a call is stopped after " (span(limit)) "." },
                                (None, Some(limit)) => { "A call is stopped after " (span(limit)) ", far off to the right." },
                                (None, None) => "The task sets no limit of its own.",
                            }
                        }
                    },
                    _ => p.far { "No launch has ended in this time." },
                }
            }
        }
    }
}

/// The buckets that a chart of durations shows.
struct Scale {
    /// The beginning of each, the end of the last, and the counts.
    edges: Vec<Duration>,
    counts: Vec<u64>,
    /// Whether the last bucket also has all longer times.
    is_open: bool,
    /// The limit, if it's on the scale.
    limit: Option<Duration>,
}

impl Scale {
    fn of(buckets: &DurationBuckets, limit: Option<Duration>) -> Scale {
        let all = Vec::from_iter(buckets.buckets());
        let holds = |place: usize, time: Duration| {
            let bucket = all.get(place);
            bucket.is_some_and(|(from, to, _)| *from <= time && to.is_none_or(|to| time < to))
        };
        let filled = |place: &usize| all.get(*place).is_some_and(|(.., count)| *count > 0);
        let first = (0..all.len()).find(filled).unwrap_or(0);
        let last = (0..all.len()).rfind(filled).unwrap_or(0);
        let place = limit.and_then(|limit| (0..all.len()).find(|place| holds(*place, limit)));
        let place = place.filter(|place| *place <= last + FAR);
        // One bucket by itself is in the middle.
        let from = first.min(place.unwrap_or(first)).saturating_sub(1);
        let to = (last.max(place.unwrap_or(last)) + 1).min(all.len().saturating_sub(1));
        let shown = all.get(from..=to).unwrap_or_default();
        let end = shown.last().map(|(from, to, _)| to.unwrap_or(*from * 2));
        Scale {
            edges: shown.iter().map(|(from, ..)| *from).chain(end).collect(),
            counts: shown.iter().map(|(.., count)| *count).collect(),
            is_open: to + 1 == all.len(),
            limit: limit.filter(|_| place.is_some()),
        }
    }

    /// Returns where a bucket begins.
    fn edge(&self, place: usize) -> Duration {
        self.edges.get(place).copied().unwrap_or_default()
    }

    fn range(&self, place: usize) -> String {
        let from = self.edge(place);
        if self.is_open && place + 1 == self.counts.len() {
            format!("{} and more", span(from))
        } else {
            format!("{} to {}", span(from), span(self.edge(place + 1)))
        }
    }

    /// Returns the place of a time, as a share of the scale.
    fn share(&self, time: Duration) -> f64 {
        let later = self.edges.iter().filter(|edge| **edge <= time).count();
        let place = later
            .saturating_sub(1)
            .min(self.counts.len().saturating_sub(1));
        let (from, to) = (self.edge(place), self.edge(place + 1));
        let part = if from.is_zero() {
            time.as_secs_f64() / to.as_secs_f64().max(1e-9)
        } else {
            (time.as_secs_f64() / from.as_secs_f64()).log2()
        };
        (place as f64 + part.clamp(0.0, 1.0)) / self.counts.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono_tz::Tz;

    #[test]
    fn hours_are_those_of_the_readers_clock() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let rollup = |failed| Rollup {
            failed,
            ..Rollup::default()
        };
        let hours = BTreeMap::from([
            (at("2026-11-22T23:00:00Z"), rollup(9)),
            (at("2026-11-28T23:00:00Z"), rollup(1)),
            (at("2026-11-29T18:00:00Z"), rollup(2)),
        ]);
        let shown = |zone| {
            let now = at("2026-11-29T18:42:00Z");
            let rows = rows_of_hours(&hours, Clock { now, zone });
            let names = Vec::from_iter(rows.iter().map(|(name, _)| name.clone()));
            let cells = rows.iter().enumerate().flat_map(|(row, (_, cells))| {
                cells
                    .iter()
                    .map(move |(hour, cell)| (row, *hour, cell.failed))
            });
            (names, Vec::from_iter(cells))
        };
        let (names, cells) = shown(Tz::UTC);
        assert_eq!(names.len(), 7);
        assert_eq!((names[0].as_str(), names[6].as_str()), ("Mon 23", "Sun 29"));
        assert_eq!(cells, [(5, 23, 1), (6, 18, 2)]);
        let (_, cells) = shown(Tz::Europe__Berlin);
        assert_eq!(cells, [(0, 0, 9), (6, 0, 1), (6, 19, 2)]);
        // An hour that the clock shows twice is one cell.
        let twice = BTreeMap::from([
            (at("2026-10-25T00:00:00Z"), rollup(1)),
            (at("2026-10-25T01:00:00Z"), rollup(4)),
        ]);
        let clock = Clock {
            now: at("2026-10-25T12:00:00Z"),
            zone: Tz::Europe__Berlin,
        };
        let rows = rows_of_hours(&twice, clock);
        assert_eq!(rows[6].1[&2].failed, 5);
    }

    #[test]
    fn a_log_scale_has_all_durations() {
        let of = |millis: &[u64], limit_s: Option<u64>| {
            let mut buckets = DurationBuckets::default();
            for millis in millis {
                buckets.count(Duration::from_millis(*millis));
            }
            Scale::of(&buckets, limit_s.map(Duration::from_secs))
        };
        let scale = of(&[40, 300, 60_000], Some(90));
        assert_eq!(scale.counts.iter().sum::<u64>(), 3);
        assert_eq!(scale.edge(0), Duration::from_millis(16));
        assert_eq!(scale.range(1), "32 ms to 64 ms");
        let share = |millis| scale.share(Duration::from_millis(millis));
        assert!(share(40) < share(60) && share(60) < share(65) && share(90_000) < 1.0);
        assert_eq!((share(1), share(10_000_000)), (0.0, 1.0));
        assert!(scale.limit.is_some());
        let far = of(&[1], Some(3_600));
        assert_eq!((far.limit, far.counts), (None, vec![1, 0]));
        let longest = of(&[100_000_000], None);
        assert_eq!(longest.range(1), "2 h 19 min and more");
        assert_eq!(of(&[], None).counts.iter().sum::<u64>(), 0);
    }
}
