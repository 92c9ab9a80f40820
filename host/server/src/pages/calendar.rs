//! A year of a schedule: a heat map of its days, and duration and lag over time.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::charts::heat_legend;
use super::heat_map::{self, Days, HeatCell, over_time};
use super::parts::{command, empty, given};
use super::words::{counted, line, shell, span};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::questions::schedules::GetCalendar;
use campanile_control::schedules::calendar::{Calendar, CalendarDay, LAUNCHES_MAX};
use campanile_model::clock::Timestamp;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// The days with a failure that are listed.
const DAYS_SHOWN: usize = 50;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let calendar = visit.call.ask::<GetCalendar>().await?.answer;
    let name = calendar.schedule.as_str();
    let number = |date: &str| date_number(date).unwrap_or_default();
    let year = calendar.year;
    let first = number(&format!("{year:04}-01-01"));
    let next = number(&format!("{:04}-01-01", year + 1));
    let days = calendar.days.iter().map(|day| (number(&day.day), day));
    let days: BTreeMap<i64, &CalendarDay> = days.collect();
    let months = MONTHS.iter().zip(1..);
    let months = months.map(|(name, month)| (number(&format!("{year:04}-{month:02}-01")), *name));
    let months = Vec::from_iter(months);
    let shape = Days {
        first,
        days: next - first,
        months: &months,
    };
    let cell =
        |(number, day): (&i64, &&CalendarDay)| (*number, (day.day.clone(), HeatCell::from(*day)));
    let cells = days.iter().map(cell).collect();
    let values = |of: fn(&CalendarDay) -> Option<u64>| {
        let values = days
            .iter()
            .filter_map(|(number, day)| Some((*number, of(day)?)));
        Vec::from_iter(values)
    };
    let of_year = |year: i64| {
        let query = links::query(&[("year", year.to_string().as_str())]);
        format!("{}{query}", visit.call.uri)
    };
    let head = html! {
        div.head {
            h1 { "Calendar of " (line(name)) ", " (year) }
            span.far { (links::schedule(name)) " by the days of the zone " (line(&calendar.timezone)) }
            div.actions {
                a.button href=(of_year(year - 1)) rel="prev" { (year - 1) }
                a.button href=(of_year(year + 1)) rel="next" { (year + 1) }
                form.inline-form method="get" action=(visit.call.uri) {
                    input name="year" value=(line(given(visit, "year"))) placeholder=(year) aria-label="Year" size="6" maxlength="10";
                    button { "Show" }
                }
            }
        }
    };
    let main = html! {
        @if let Some(from) = &calendar.counted_from {
            p.warning { "This schedule has more launches than a calendar reads, which is the newest " (counted(LAUNCHES_MAX as u64, "launch")) ": the days from " (from) " on are shown." }
        }
        @if days.is_empty() {
            (empty("No slot of this year is on record.", html! { "Look at another year, or at the " a href="/plan" { "plan" } "." }))
        } @else {
            section aria-labelledby="days" {
                h2 #days { "Days" }
                p.far { "The colour of a day is the share of its launches that failed, and else how many there were. " (heat_legend()) }
                (heat_map::days(&shape, &cells))
                (failures(&calendar))
            }
            section aria-labelledby="duration" {
                h2 #duration { "Duration of launches that succeeded" }
                (over_time("Duration, the median of a day", &shape, &values(|day| day.duration_ms)))
            }
            section aria-labelledby="lag" {
                h2 #lag { "Lag from the time a launch could start" }
                (over_time("Lag, the median of a day", &shape, &values(|day| day.lag_ms)))
            }
            (by_month(&calendar))
        }
        p.far { "Launches that retention has removed count by their day in UTC, without duration and lag." }
        (command(&format!("campanile launch list --schedule {} --since {year:04}-01-01T00:00:00Z", shell(name))))
    };
    View::with_head(format!("Calendar of {name}, {year}"), head, main)
}

/// Returns a date as days since 1970.
fn date_number(date: &str) -> Option<i64> {
    let midnight = format!("{date}T00:00:00Z").parse::<Timestamp>();
    midnight.ok().map(Timestamp::day)
}

/// Lists the days with a failure, the newest first, with their launches.
fn failures(calendar: &Calendar) -> Markup {
    let failed = Vec::from_iter(calendar.days.iter().rev().filter(|day| day.failed > 0));
    html! {
        @if failed.is_empty() {
            p { "No launch failed." }
        } @else {
            details {
                summary { (counted(failed.len() as u64, "day")) " with a failure" }
                ul {
                    @for day in failed.iter().take(DAYS_SHOWN) { li { (launches_of(calendar, day)) ": " (HeatCell::from(*day).words()) } }
                }
                @if failed.len() > DAYS_SHOWN { p { "The newest " (DAYS_SHOWN) " of them." } }
            }
        }
    }
}

/// Links to the failed launches of a day, and of the hours around it: its bounds are those of UTC.
fn launches_of(calendar: &Calendar, day: &CalendarDay) -> Markup {
    /// By how much the days of zones differ from those of UTC.
    const AROUND: Duration = Duration::from_secs(14 * 3_600);
    let number = date_number(&day.day).unwrap_or_default();
    let since = Timestamp::of_day(number).minus(AROUND).to_string();
    let until = Timestamp::of_day(number + 1).plus(AROUND).to_string();
    let parameters = [
        ("schedule", calendar.schedule.as_str()),
        ("status", "failed,unknown,abandoned"),
        ("since", since.as_str()),
        ("until", until.as_str()),
    ];
    html! { a href=(super::parts::launches_where(&parameters)) { (day.day) } }
}

/// The sums of one month.
#[derive(Default)]
struct Month {
    succeeded: i64,
    failed: i64,
    cancelled: i64,
    skipped: i64,
    durations_ms: Vec<u64>,
    lags_ms: Vec<u64>,
}

/// Shows the numbers of each month.
fn by_month(calendar: &Calendar) -> Markup {
    let mut months: BTreeMap<&str, Month> = BTreeMap::new();
    for day in &calendar.days {
        let month = months
            .entry(day.day.get(..7).unwrap_or_default())
            .or_default();
        month.succeeded += day.succeeded;
        month.failed += day.failed;
        month.cancelled += day.cancelled;
        month.skipped += day.skipped;
        month.durations_ms.extend(day.duration_ms);
        month.lags_ms.extend(day.lag_ms);
    }
    let middle = |values: &[u64]| {
        let mut values = values.to_vec();
        values.sort_unstable();
        let middle = values.get(values.len() / 2).copied();
        middle.map_or_else(
            || "none".to_owned(),
            |middle| span(Duration::from_millis(middle)),
        )
    };
    html! {
        section aria-labelledby="months" {
            h2 #months { "Months" }
            div.wide tabindex="0" {
                table {
                    thead { tr { th scope="col" { "Month" } th.number scope="col" { "Succeeded" } th.number scope="col" { "Failed" } th.number scope="col" { "Cancelled" } th.number scope="col" { "Skipped" } th.number scope="col" { "Duration" } th.number scope="col" { "Lag" } } }
                    tbody {
                        @for (name, month) in &months {
                            tr {
                                th scope="row" { (name) }
                                td.number { (month.succeeded) } td.number { (month.failed) } td.number { (month.cancelled) } td.number { (month.skipped) }
                                td.number { (middle(&month.durations_ms)) } td.number { (middle(&month.lags_ms)) }
                            }
                        }
                    }
                }
            }
            p.far { "Duration and lag are the median of the days of a month." }
        }
    }
}
