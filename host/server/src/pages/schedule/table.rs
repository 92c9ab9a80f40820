//! The newest launches of a schedule, with how late they started and how long they took.

use maud::{Markup, html};

use super::super::links;
use super::super::now::why;
use super::super::parts::{badge, empty, launches_where};
use super::super::words::{Clock, dated, span};
use super::Seen;
use campanile_control::reports::overview::has_failed;
use campanile_model::ids::LaunchKind;
use campanile_store::launch::LaunchRow;

/// The newest launches that the table has.
const SHOWN: usize = 8;
/// The statuses of the link to failed launches.
const FAILED: &str = "failed,abandoned,unknown";

/// Shows the newest launches.
pub(super) fn table(seen: &Seen, calendar: &str) -> Markup {
    let all = launches_where(&[("schedule", seen.name)]);
    let failed = launches_where(&[("schedule", seen.name), ("status", FAILED)]);
    let by_hand = launches_where(&[("schedule", seen.name), ("kind", "manual")]);
    let launches = &seen.detail.launches;
    html! {
        section.card aria-labelledby="launches" {
            header {
                h2 #launches { "Launches" }
                nav.filters aria-label="Launches of the schedule" {
                    a href=(all) { "All" }
                    a href=(failed) { "Failed" }
                    a href=(by_hand) { "By hand" }
                }
                a.far href=(calendar) { "Calendar of the year" }
            }
            @if launches.is_empty() {
                div.pad { (empty("It has no launch on record.", html! { "Wait for its next slot, or run it now." })) }
            } @else {
                div.wide tabindex="0" role="region" aria-label="Newest launches" {
                    table.cards {
                        thead {
                            tr {
                                th scope="col" { "Slot" } th scope="col" { "Outcome" } th.number scope="col" { "Took" } th.number scope="col" { "Lag" } th scope="col" { "Why" }
                            }
                        }
                        tbody { @for row in launches.iter().take(SHOWN) { (launch(row, seen.clock)) } }
                    }
                }
            }
        }
    }
}

fn launch(row: &LaunchRow, clock: Clock) -> Markup {
    let is_slot = row.kind == LaunchKind::Schedule;
    html! {
        tr.fails[has_failed(row.status)] {
            td {
                a.name href=(links::path(&["launches", &row.id.to_string()])) { (dated(row.scheduled_time, clock)) }
                @if row.slot_count > 1 { " " span.far { "and " (row.slot_count - 1) " more slots" } }
                @if !is_slot { " " span.far { (row.kind.as_str()) } }
            }
            td { (badge(row.status.as_str())) }
            td.number.rest {
                @match (row.started_at, row.finished_at) {
                    (Some(start), Some(end)) => (span(end.since(start))),
                    (Some(start), None) => { (span(clock.now.since(start))) " so far" },
                    (None, _) => "–",
                }
            }
            td.number.rest { @if let Some(start) = row.started_at.filter(|_| is_slot) { "+" (span(start.since(row.fire_time))) } @else { "–" } }
            td.text { (why(row)) }
        }
    }
}
