//! The list of launches: one line to search, when they were, and a row each.

mod filters;
mod many;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use self::filters::Filters;
use super::actions::refusal;
use super::charts::{self, class};
use super::parts::{badge, command, empty, next_page};
use super::words::{Clock, both, counted, line, short, span, time};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::question::Page;
use campanile_control::questions::launches::ListLaunches;
use campanile_control::reports::overview::{cause, has_failed};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_model::status::FailureKind;
use campanile_store::launch::{LOOKED_AT_FOR_BROWSER_MAX, LaunchRow};
use campanile_store::{DbError, LaunchStatus, Tx, schedules, troubles};

/// The newest decisions from which the usual durations are taken.
const USUAL_OF: i64 = 500;
/// The parts of the picture over the list.
const BUCKETS: usize = 60;
/// From this many equal failures in a row on, all but the first are folded.
const FOLDED_LEAST: usize = 3;

/// The query of the page: that of the API, and a line that can have all of it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SearchLaunches {
    /// Filters in one line: `schedule:nightly status:failed since:2h`
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "read from the query by its name, with the filters of the list"
    )]
    q: Option<String>,
    #[serde(flatten)]
    #[expect(
        dead_code,
        reason = "read from the query after the line is taken apart"
    )]
    list: ListLaunches,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let filters = Filters::of(&call.query)?;
    let wanted = filters.query("")?.question::<ListLaunches>()?;
    let (desk, mut tx) = (call.desk(), call.read().await?);
    let found = wanted.find(&desk, LOOKED_AT_FOR_BROWSER_MAX, &mut tx);
    let Page { answer: rows, next } = found.await?;
    let usual = usual(&mut tx, &rows).await?;
    drop(tx);
    let is_filtered = !filters.0.is_empty();
    let may_change = refusal(call, many::RETRY).is_none();
    let clock = visit.clock();
    let head = html! {
        div.head {
            h1 { "Launches" }
            @if !rows.is_empty() || !filters.get("status").is_empty() { (chips(&rows, &filters)) }
            (search_line(&filters))
            (more_fields(&filters))
        }
    };
    let main = html! {
        @if rows.is_empty() && next.is_some() {
            p { "No launch was found so far; the next page searches on." }
        } @else if rows.is_empty() && is_filtered {
            (empty("No launch matches.", html! { a href="/launches" { "Show all launches" } ", or choose other filters." }))
        } @else if rows.is_empty() {
            (empty("Nothing has been launched yet.", html! { "Trigger a schedule on " a href="/schedules" { "Schedules" } "." }))
        } @else {
            div.grid {
                section.card.w12 {
                    (histogram(&rows, &filters, clock))
                    @if may_change {
                        form method="post" action=(links::here(call)) {
                            div.wide tabindex="0" role="region" aria-label="The launches" { (table(&rows, &usual, clock, true)) }
                            (many::of_ticked())
                        }
                        (many::of_all(&filters))
                    } @else {
                        div.wide tabindex="0" role="region" aria-label="The launches" { (table(&rows, &usual, clock, false)) }
                    }
                    div.more { (command(&filters.command())) }
                }
            }
        }
        (next_page(visit, next.as_deref()))
        @if rows.is_empty() { (command(&filters.command())) }
    };
    View::with_head("Launches", head, main)
}

fn search_line(filters: &Filters) -> Markup {
    html! {
        form.search-line method="get" action="/launches" role="search" aria-label="The launches" {
            input type="search" name="q" value=(line(&filters.line())) placeholder="schedule:nightly status:failed since:2h" aria-label="Search launches" maxlength="500";
            button { "Search" }
            @if !filters.0.is_empty() { a.button.small href="/launches" { "All launches" } }
        }
    }
}

/// Shows the same filters as fields.
fn more_fields(filters: &Filters) -> Markup {
    let field = |name: &str, label: &str, example: &str| {
        html! {
            label { (label) " " input type="search" name=(name) value=(line(filters.get(name))) placeholder=(example) maxlength="500"; }
        }
    };
    let choice = |name: &str, label: &str, words: &[&str]| {
        html! {
            label {
                (label) " "
                select name=(name) {
                    option value="" { "all" }
                    @for word in words { option value=(word) selected[*word == filters.get(name)] { (word) } }
                }
            }
        }
    };
    html! {
        details.menu {
            summary { "More" }
            div {
                form.filter method="get" action="/launches" {
                    (field("schedule", "Schedule", "nightly"))
                    @if filters.get("status").contains(',') {
                        (field("status", "Statuses", "failed,abandoned"))
                    } @else {
                        (choice("status", "Status", LaunchStatus::WORDS))
                    }
                    (choice("kind", "Kind", LaunchKind::WORDS))
                    (field("package", "Package", "backup"))
                    (field("reason", "Reason", "overlap"))
                    (field("since", "Since", "2h or 2026-11-21T08:00:00Z"))
                    (field("until", "Until", "1h or 2026-11-21T08:00:00Z"))
                    button { "Show" }
                }
            }
        }
    }
}

/// Shows the statuses of the rows, each with its count and a link to those alone.
fn chips(rows: &[LaunchRow], filters: &Filters) -> Markup {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.status.as_str()).or_default() += 1;
    }
    let chosen = filters.get("status");
    let count_class = |word| match class(word) {
        class @ ("bad" | "warn") => class,
        _ => "plain",
    };
    html! {
        nav.filters aria-label="Statuses of the launches shown" {
            a href=(filters.with(&[("status", "")])) aria-current=[chosen.is_empty().then_some("true")] { "All" @if chosen.is_empty() { " " span.count { (rows.len()) } } }
            @for (word, count) in &counts {
                a href=(filters.with(&[("status", word)])) aria-current=[(*word == chosen).then_some("true")] {
                    (word) " " span.count.(count_class(word)) { (count) }
                }
            }
        }
    }
}

/// Shows when the launches of the list were: each column links to its part of the time.
fn histogram(rows: &[LaunchRow], filters: &Filters, clock: Clock) -> Markup {
    const TALL: f64 = 44.0;
    const STEP: f64 = 1_000.0 / BUCKETS as f64;
    let slots = rows.iter().map(|row| row.scheduled_time);
    let (Some(from), Some(last)) = (slots.clone().min(), slots.max()) else {
        return html! {};
    };
    let step = last.since(from) / BUCKETS as u32 + Duration::from_millis(1);
    let mut parts: BTreeMap<usize, Vec<&LaunchRow>> = BTreeMap::new();
    for row in rows {
        let part = row.scheduled_time.since(from).as_micros() / step.as_micros();
        parts.entry(part as usize).or_default().push(row);
    }
    let most = parts.values().map(Vec::len).max().unwrap_or(1).max(1);
    let text = charts::outcomes(rows.iter().map(|row| row.status));
    let scale = TALL / most as f64;
    html! {
        svg.histogram viewBox="0 0 1000 45" preserveAspectRatio="none" role="group" aria-label={ "Launches over time: " (text) } {
            @for (part, rows) in &parts {
                @let begin = from.plus(step * *part as u32);
                @let words = format!("{}: {}", clock.short(begin), charts::outcomes(rows.iter().map(|row| row.status)));
                @let (since, until) = (begin.to_string(), begin.plus(step).to_string());
                a href=(filters.with(&[("since", &since), ("until", &until)])) aria-label=(words) {
                    title { (words) }
                    @for (class, below, count) in stack(rows) {
                        rect class=(class) x=(format!("{:.1}", *part as f64 * STEP)) y=(format!("{:.1}", TALL - (below + count) as f64 * scale)) width=(format!("{:.1}", STEP - 2.0)) height=(format!("{:.1}", count as f64 * scale)) {}
                    }
                }
            }
            rect.track x="0" y="44" width="1000" height="1" {}
        }
        p.axis-of.far { (time(from, clock)) " " span { (counted(rows.len() as u64, "launch")) " shown, the tallest column has " (most) } " " (time(last, clock)) }
    }
}

/// Returns the classes of launches from the bottom up, each with what's below it and its count.
fn stack(rows: &[&LaunchRow]) -> Vec<(&'static str, usize, usize)> {
    let mut below = 0;
    let mut stack = Vec::new();
    for of in ["ok", "run", "skip", "warn", "bad"] {
        let count = rows.iter().filter(|row| class(row.status.as_str()) == of);
        let count = count.count();
        if count > 0 {
            stack.push((of, below, count));
        }
        below += count;
    }
    stack
}

/// How long launches of a schedule usually take, by its name.
type Usual = HashMap<String, Duration>;

/// Returns how long the launches of the list usually take: the median of the newest decisions and of the list itself.
async fn usual(tx: &mut Tx, rows: &[LaunchRow]) -> std::result::Result<Usual, DbError> {
    let mut took = durations(rows);
    if rows.is_empty() {
        return Ok(Usual::new());
    }
    let recent = troubles::newest_decisions(tx, Timestamp::EPOCH, USUAL_OF).await?;
    let mut ids = Vec::from_iter(recent.iter().map(|launch| launch.schedule_id));
    ids.sort_unstable();
    ids.dedup();
    let names = schedules::names_of(tx, &ids).await?;
    let names: HashMap<_, String> = names.into_iter().collect();
    for launch in &recent {
        let times = launch.started_at.zip(launch.finished_at);
        let times = times.filter(|_| launch.status == LaunchStatus::Succeeded);
        if let (Some((start, end)), Some(name)) = (times, names.get(&launch.schedule_id)) {
            took.entry(name.clone()).or_default().push(end.since(start));
        }
    }
    Ok(medians(took))
}

/// Returns how long the launches of each schedule took that succeeded.
fn durations(rows: &[LaunchRow]) -> HashMap<String, Vec<Duration>> {
    let mut took: HashMap<String, Vec<Duration>> = HashMap::new();
    for row in rows {
        let times = row.started_at.zip(row.finished_at);
        if let Some((start, end)) = times.filter(|_| row.status == LaunchStatus::Succeeded) {
            took.entry(row.schedule.clone())
                .or_default()
                .push(end.since(start));
        }
    }
    took
}

fn medians(took: HashMap<String, Vec<Duration>>) -> Usual {
    let middle = |(name, mut took): (String, Vec<Duration>)| {
        took.sort_unstable();
        Some((name, *took.get(took.len() / 2)?))
    };
    took.into_iter().filter_map(middle).collect()
}

/// Shows launches, a row each.
fn table(rows: &[LaunchRow], usual: &Usual, clock: Clock, has_ticks: bool) -> Markup {
    html! {
        table.cards {
            thead { tr {
                th scope="col" { "Launch" } th scope="col" { "Schedule" } th scope="col" { "Slot" } th scope="col" { "Took" }
                th.number scope="col" { "Lag" } th scope="col" { "Kind" } th scope="col" { "Why" }
            } }
            tbody {
                @for (first, others) in folded(rows) {
                    (launch_row(first, usual, clock, has_ticks))
                    @if !others.is_empty() { (folded_row(others, clock, has_ticks)) }
                }
            }
        }
    }
}

/// Pure: returns the rows to show, each with those to fold under it: equal failures of one schedule in a row.
fn folded(rows: &[LaunchRow]) -> Vec<(&LaunchRow, &[LaunchRow])> {
    let mut shown = Vec::new();
    let mut rest = rows;
    while let Some((first, others)) = rest.split_first() {
        let equal = others
            .iter()
            .take_while(|other| is_same_failure(first, other));
        let count = equal.count();
        let (equal, after) = others.split_at(if count + 1 < FOLDED_LEAST { 0 } else { count });
        shown.push((first, equal));
        rest = after;
    }
    shown
}

fn is_same_failure(one: &LaunchRow, other: &LaunchRow) -> bool {
    let of = |row: &LaunchRow| row.message.as_deref().map(cause);
    has_failed(one.status)
        && one.schedule == other.schedule
        && (one.status, one.failure, &one.reason) == (other.status, other.failure, &other.reason)
        && of(one) == of(other)
}

fn launch_row(row: &LaunchRow, usual: &Usual, clock: Clock, has_tick: bool) -> Markup {
    let status = row.status.as_str();
    let label = format!(
        "{status}, {}, {}",
        line(&row.schedule),
        clock.short(row.scheduled_time)
    );
    let lag = row.started_at.map(|start| start.since(row.fire_time));
    html! {
        tr.fails[has_failed(row.status)] {
            td.fit {
                @if has_tick { (many::tick(&[row], &row.schedule)) " " }
                a href=(links::path(&["launches", &row.id.to_string()])) aria-label=(label) {
                    @if row.status == LaunchStatus::Succeeded { (status) } @else { (badge(status)) }
                }
            }
            td { (links::schedule(&row.schedule)) }
            td {
                (both(row.scheduled_time, row.scheduled_local.as_str(), clock))
                @if row.slot_count > 1 { " " span.far { "and " (row.slot_count - 1) " more slots" } }
            }
            td.fit { (took(row, usual, clock)) }
            td.number.rest { @if let Some(lag) = lag { (span(lag)) } @else { "–" } }
            td.rest { @if row.kind != LaunchKind::Schedule { (row.kind.as_str()) } }
            td.text { (why(row)) }
        }
    }
}

/// Returns why it didn't succeed, unless its status says that.
fn why(row: &LaunchRow) -> Markup {
    /// The most characters of a message in a list.
    const SHOWN_MAX: usize = 160;
    let message = row.message.as_deref().unwrap_or_default();
    let failure = row
        .failure
        .filter(|failure| *failure != FailureKind::Failed);
    html! {
        @if let Some(reason) = &row.reason { (line(reason)) " " }
        @if let Some(failure) = failure { strong { (failure.as_str().replace('_', " ")) } " " }
        (short(message.lines().next().unwrap_or_default(), SHOWN_MAX))
    }
}

/// Shows how long a launch ran, or has run so far, beside how long it usually takes.
fn took(row: &LaunchRow, usual: &Usual, clock: Clock) -> Markup {
    let Some(start) = row.started_at else {
        return html! { span.far { "not started" } };
    };
    let took = row.finished_at.unwrap_or(clock.now).since(start);
    let usual = usual.get(&row.schedule);
    html! {
        (span(took)) @if row.finished_at.is_none() { " so far" }
        @if let Some(usual) = usual { " " (beside(took, *usual, class(row.status.as_str()))) }
    }
}

/// Shows a duration as a bar, with a mark at the usual one.
fn beside(took: Duration, usual: Duration, class: &str) -> Markup {
    let whole = took.max(usual).as_micros().max(1);
    let part = |of: Duration| (of.as_micros() * 64 / whole) as u64;
    html! {
        svg.against viewBox="0 0 64 8" preserveAspectRatio="none" role="img" {
            title { "usually " (span(usual)) }
            rect.track y="3" width="64" height="2" {}
            rect class=(class) y="1" width=(part(took).max(1)) height="6" {}
            rect.usual x=(part(usual).min(63)) width="1" height="8" {}
        }
    }
}

fn folded_row(others: &[LaunchRow], clock: Clock, has_tick: bool) -> Markup {
    let words = format!("{} more of the same cause", others.len());
    html! {
        tr.group {
            td colspan="7" {
                @if has_tick { (many::tick(&Vec::from_iter(others), &words)) " " }
                details.folded {
                    summary { "×" (others.len()) " more, same cause" }
                    ul.inline {
                        @for row in others {
                            li {
                                a href=(links::path(&["launches", &row.id.to_string()])) { (time(row.scheduled_time, clock)) }
                                @if let Some((start, end)) = row.started_at.zip(row.finished_at) { " " (span(end.since(start))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::{Query, parameters};

    #[test]
    fn what_the_line_has_comes_before_the_fields() {
        let known = parameters::<SearchLaunches>();
        let query = Query::read("q=status%3Afailed&status=running&kind=manual", known).unwrap();
        let found = Filters::of(&query).unwrap();
        assert_eq!(found.line(), "status:failed kind:manual");
        assert!(found.query("").unwrap().question::<ListLaunches>().is_ok());
    }
}
