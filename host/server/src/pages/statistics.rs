//! Statistics: how the launches of each package, or of each schedule, went over a day, a week or a month, from the rollup.

use std::cmp::Reverse;
use std::time::Duration;

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use super::charts::{counted_until, percent};
use super::parts::{self, command, empty, next_page, one_of};
use super::words::{counted, line, shell, span};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::reports::rollups::{self, RollupSpan, UnsealedLaunches};
use campanile_control::schedules::schedule_search::Search;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_store::rollup::Rollup;
use campanile_store::{DbError, Tx, packages};

/// The rows of a page.
const SHOWN_MAX: usize = 100;
const GROUPS: [&str; 2] = ["package", "schedule"];
const SPANS: [&str; 3] = ["24h", "7d", "30d"];
/// What rows are sorted by, with the words above each column.
const SORTS: [(&str, &str); 10] = [
    ("name", "Name"),
    ("launches", "Launches"),
    ("success", "Success"),
    ("failed", "Failed"),
    ("skipped", "Skipped slots"),
    ("late", "Late"),
    ("p50", "p50"),
    ("p95", "p95"),
    ("lag", "Lag p95"),
    ("time", "Time run"),
];

/// The query of the page.
#[derive(Deserialize, JsonSchema)]
pub(super) struct StatisticsQuery {
    /// What each row is about: `package` or `schedule`
    pub by: Option<String>,
    /// How far to look back: `24h`, `7d` or `30d`
    pub span: Option<String>,
    /// What the rows of a page are sorted by: `name`, `launches`, `success`, `failed`, `skipped`, `late`, `p50`, `p95`, `lag` or `time`
    pub sort: Option<String>,
    pub after: Option<String>,
}

/// A row: a package or a schedule, and how its launches went.
struct StatisticsRow {
    name: String,
    sum: Rollup,
}

impl StatisticsRow {
    /// Returns how many launches have ended, cancelled ones included.
    fn launches(&self) -> i64 {
        self.sum.ended() + self.sum.cancelled
    }

    fn took(&self, percent: u64) -> Option<Duration> {
        self.sum.durations.at_percent(percent)
    }

    fn lag(&self) -> Option<Duration> {
        self.sum.lags.at_percent(95)
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.sum.run_us.unsigned_abs())
    }
}

/// A page of rows.
struct Found {
    rows: Vec<StatisticsRow>,
    counted_until: Timestamp,
    next: Option<String>,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let query: StatisticsQuery = visit.call.query.question()?;
    let by = one_of("by", query.by.as_deref(), &GROUPS)?;
    let span = one_of("span", query.span.as_deref(), &SPANS)?;
    let sort = one_of("sort", query.sort.as_deref(), &SORTS.map(|(word, _)| word))?;
    let after = query.after.unwrap_or_default();
    let clock = visit.clock();
    let periods = match span {
        "24h" => RollupSpan::HOURS_24,
        "7d" => RollupSpan::DAYS_7,
        _ => RollupSpan::DAYS_30,
    };
    let mut tx = visit.call.read().await?;
    let mut found = match by {
        "package" => of_packages(&mut tx, &after, periods, clock.now).await?,
        _ => of_schedules(&mut tx, &after, periods, clock.now).await?,
    };
    drop(tx);
    sort_by(&mut found.rows, sort);
    let has_more = found.next.is_some() || !after.is_empty();
    let head = html! {
        div.head {
            h1 { "Statistics" }
            nav.filters aria-label="Rows" {
                @for word in GROUPS { a href=(here(visit, "by", word)) aria-current=[(word == by).then_some("true")] { "By " (word) } }
            }
            nav.filters aria-label="Span" {
                @for word in SPANS { a href=(here(visit, "span", word)) aria-current=[(word == span).then_some("true")] { (word) } }
            }
        }
    };
    let main = html! {
        @if found.rows.is_empty() {
            (empty(&format!("There is no {by} yet."), html! { "The first page says " a href="/" { "how to begin" } "." }))
        } @else {
            section.card {
                div.wide tabindex="0" role="region" aria-label={ "Statistics by " (by) } { (table(visit, &found.rows, by, sort)) }
                p.more {
                    "Launches count by their slots, since " (super::words::time(periods.since(clock.now), clock)) ". "
                    (counted_until(found.counted_until, clock))
                    "p50, p95 and lag are estimates: they're between half and twice the exact values. "
                    @if has_more { "The rows of this page are sorted, not those of others." }
                }
                div.more { (command(&same_command(by, span, &after))) }
            }
        }
        (next_page(visit, found.next.as_deref()))
    };
    View::with_head("Statistics", head, main)
}

/// Returns the command that counts the launches themselves.
fn same_command(by: &str, span: &str, after: &str) -> String {
    let since = match span {
        "24h" => "24h",
        "7d" => "7days",
        _ => "30days",
    };
    let after = match after {
        "" => String::new(),
        after => format!(" --after {}", shell(after)),
    };
    format!("campanile stats --by {by} --since {since}{after}")
}

/// Returns the address of this page with another value of one parameter, on the first page of the list.
fn here(visit: &Visit, name: &str, value: &str) -> String {
    let given = ["by", "span", "sort"].map(|other| {
        let value = if other == name {
            value
        } else {
            parts::given(visit, other)
        };
        (other, value)
    });
    format!("/statistics{}", links::query(&given))
}

async fn of_packages(
    tx: &mut Tx,
    after: &str,
    span: RollupSpan,
    now: Timestamp,
) -> std::result::Result<Found, DbError> {
    let found = packages::list(tx, None, Some(after), SHOWN_MAX as i64).await?;
    let names = Vec::from_iter(found.into_iter().map(|package| package.name));
    let unsealed = UnsealedLaunches::read(tx, now).await?;
    let mut sums = rollups::of_packages(tx, &names, span, &unsealed, now).await?;
    let is_full = names.len() == SHOWN_MAX;
    let next = names.last().filter(|_| is_full).cloned();
    let rows = names.into_iter().map(|name| {
        let periods = sums.remove(&name).unwrap_or_default();
        StatisticsRow {
            name,
            sum: rollups::sum(periods.values()),
        }
    });
    Ok(Found {
        rows: rows.collect(),
        counted_until: unsealed.counted_until,
        next,
    })
}

async fn of_schedules(
    tx: &mut Tx,
    after: &str,
    span: RollupSpan,
    now: Timestamp,
) -> std::result::Result<Found, DbError> {
    let search = Search {
        text: "",
        state: None,
        is_paused: None,
    };
    let found = search.find(tx, after, SHOWN_MAX).await?;
    let ids: Vec<ScheduleId> = found.rows.iter().map(|row| row.state.id).collect();
    let unsealed = UnsealedLaunches::read(tx, now).await?;
    let mut sums = rollups::of_schedules(tx, &ids, span, &unsealed, now).await?;
    let rows = found.rows.into_iter().map(|row| {
        let periods = sums.remove(&row.state.id).unwrap_or_default();
        StatisticsRow {
            name: row.definition.name,
            sum: rollups::sum(periods.values()),
        }
    });
    Ok(Found {
        rows: rows.collect(),
        counted_until: unsealed.counted_until,
        next: found.next,
    })
}

/// Sorts rows that are in the order of their names: the largest first, and by success the worst.
fn sort_by(rows: &mut [StatisticsRow], sort: &str) {
    match sort {
        "launches" => rows.sort_by_key(|row| Reverse(row.launches())),
        "success" => rows.sort_by_key(|row| match row.sum.ended() {
            0 => i64::MAX,
            ended => row.sum.succeeded * 1_000_000 / ended,
        }),
        "failed" => rows.sort_by_key(|row| Reverse(row.sum.failed)),
        "skipped" => rows.sort_by_key(|row| Reverse(row.sum.skipped)),
        "late" => rows.sort_by_key(|row| Reverse(row.sum.late)),
        "p50" => rows.sort_by_key(|row| Reverse(row.took(50))),
        "p95" => rows.sort_by_key(|row| Reverse(row.took(95))),
        "lag" => rows.sort_by_key(|row| Reverse(row.lag())),
        "time" => rows.sort_by_key(|row| Reverse(row.time())),
        _ => {}
    }
}

fn table(visit: &Visit, rows: &[StatisticsRow], by: &str, sort: &str) -> Markup {
    let all = StatisticsRow {
        name: String::new(),
        sum: rollups::sum(rows.iter().map(|row| &row.sum)),
    };
    html! {
        table.cards {
            thead {
                tr {
                    @for (word, words) in SORTS {
                        th.number[word != "name"] scope="col" { a href=(here(visit, "sort", word)) { (words) @if word == sort { " ▾" } } }
                    }
                }
            }
            tbody {
                @for row in rows {
                    tr.fails[row.sum.failed > 0] {
                        td {
                            a.name href=(links::path(&[if by == "package" { "packages" } else { "schedules" }, &row.name])) { (line(&row.name)) }
                        }
                        (numbers(row))
                    }
                }
                @if rows.len() > 1 { tr { td { strong { (counted(rows.len() as u64, by)) } } (numbers(&all)) } }
            }
        }
    }
}

fn numbers(row: &StatisticsRow) -> Markup {
    let sum = &row.sum;
    let time =
        |time: Option<Duration>| html! { @if let Some(time) = time { (span(time)) } @else { "–" } };
    html! {
        td.number.rest { (row.launches()) }
        td.number {
            @if sum.ended() == 0 { "–" } @else { span.bad-text[sum.failed > 0] { (percent(sum.succeeded, sum.ended())) } }
        }
        td.number.rest { (sum.failed) }
        td.number.rest { (sum.skipped) }
        td.number.rest { (sum.late) }
        td.number.rest { (time(row.took(50))) }
        td.number.rest { (time(row.took(95))) }
        td.number.rest { (time(row.lag())) }
        td.number.rest { @if row.time().is_zero() { "–" } @else { (span(row.time())) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_by_success_the_worst() {
        let row = |name: &str, succeeded, failed, took_ms: &[u64]| {
            let mut sum = Rollup {
                succeeded,
                failed,
                ..Rollup::default()
            };
            for millis in took_ms {
                sum.durations.count(Duration::from_millis(*millis));
            }
            StatisticsRow {
                name: name.to_owned(),
                sum,
            }
        };
        let sorted = |sort| {
            let mut rows = [
                row("a", 0, 0, &[]),
                row("b", 5, 5, &[10, 20]),
                row("c", 99, 1, &[1, 9_000]),
            ];
            sort_by(&mut rows, sort);
            rows.map(|row| row.name).concat()
        };
        let found = ["name", "launches", "success", "p50", "p95", "late"].map(sorted);
        assert_eq!(found, ["abc", "cba", "bca", "bca", "cba", "abc"]);
    }
}
