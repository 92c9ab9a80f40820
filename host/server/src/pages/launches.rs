//! The list of launches, with filters.

use maud::{Markup, html};

use super::now::why;
use super::parts::{badge, choice, command, empty, filter, next_page};
use super::words::{both, shell, span};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::question::Page;
use campanile_control::questions::launches::ListLaunches;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_store::LaunchStatus;
use campanile_store::launch::{LOOKED_AT_FOR_BROWSER_MAX, LaunchRow};

/// The filters of the command with the same names.
const FILTERS: [&str; 8] = [
    "schedule", "status", "kind", "reason", "package", "since", "until", "after",
];

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let (call, query) = (&visit.call, &visit.call.query);
    let wanted = query.question::<ListLaunches>()?;
    let (desk, mut tx) = (call.desk(), call.read().await?);
    let found = wanted.find(&desk, LOOKED_AT_FOR_BROWSER_MAX, &mut tx);
    let Page { answer: rows, next } = found.await?;
    drop(tx);
    let given = FILTERS
        .iter()
        .filter_map(|name| Some((name, query.text(name)?)));
    let mut same = "campanile launch list".to_owned();
    for (name, value) in given {
        same += &format!(" --{name} {}", shell(value));
    }
    let is_filtered = FILTERS.iter().any(|name| query.text(name).is_some());
    let status = query.text("status").unwrap_or_default();
    View::new(
        "Launches",
        html! {
            form.filter method="get" action="/launches" role="search" {
                (filter(visit, "schedule", "Schedule", "nightly"))
                @if status.contains(',') {
                    (filter(visit, "status", "Statuses", "failed,abandoned"))
                } @else {
                    (choice(visit, "status", "Status", LaunchStatus::WORDS))
                }
                (choice(visit, "kind", "Kind", LaunchKind::WORDS))
                (filter(visit, "package", "Package", "backup"))
                (filter(visit, "reason", "Reason", "overlap"))
                (filter(visit, "since", "Since", "2h or 2026-11-21T08:00:00Z"))
                (filter(visit, "until", "Until", "1h or 2026-11-21T08:00:00Z"))
                button { "Show" }
                @if is_filtered { " " a href="/launches" { "All launches" } }
            }
            @if rows.is_empty() && next.is_some() {
                p { "No launch was found so far; the next page searches on." }
            } @else if rows.is_empty() && is_filtered {
                (empty("No launch matches.", html! { a href="/launches" { "Show all launches" } ", or choose other filters." }))
            } @else if rows.is_empty() {
                (empty("Nothing has been launched yet.", html! { "Trigger a schedule on " a href="/schedules" { "Schedules" } "." }))
            } @else {
                (table(&rows, visit.call.now()))
            }
            (next_page(visit, next.as_deref()))
            (command(&same))
        },
    )
}

/// Show launches, a row each.
pub(super) fn table(rows: &[LaunchRow], now: Timestamp) -> Markup {
    html! {
        div.wide tabindex="0" {
            table {
                thead { tr { th scope="col" { "Launch" } th scope="col" { "Schedule" } th scope="col" { "Status" } th scope="col" { "Kind" } th scope="col" { "Slot" } th scope="col" { "Took" } th scope="col" { "Why" } } }
                tbody {
                    @for row in rows {
                        tr {
                            td { (links::launch(row.id)) }
                            td { (links::schedule(&row.schedule)) }
                            td { (badge(row.status.as_str())) }
                            td { (row.kind.as_str()) }
                            td {
                                (both(row.scheduled_time, row.scheduled_local.as_str(), now))
                                @if row.slot_count > 1 { br; span.far { "and " (row.slot_count - 1) " more slots" } }
                            }
                            td { (took(row, now)) }
                            td { (why(row)) }
                        }
                    }
                }
            }
        }
    }
}

/// Show how long a launch ran, or has run so far.
fn took(row: &LaunchRow, now: Timestamp) -> Markup {
    html! {
        @match (row.started_at, row.finished_at) {
            (Some(start), Some(end)) => (span(end.since(start))),
            (Some(start), None) => { (span(now.since(start))) " so far" }
            (None, _) => "not started",
        }
    }
}
