//! The list of schedules, with a search and a filter.

use maud::html;

use super::parts::{badge, choice, command, empty, filter, next_page};
use super::words::{both, line, shell, short, time};
use super::{View, Visit, charts, links};
use crate::call::Result;
use crate::problem::ApiProblem;
use crate::query::Parameter;
use crate::routes::{AFTER, text};
use campanile_engine::records::schedule::{self, ScheduleRecord};
use campanile_store::schedules::Schedule;
use campanile_store::{LaunchStatus, Tx, launches, schedules};

pub(super) const QUERY: &[Parameter] = &[
    AFTER,
    text(
        "q",
        "Only those whose name, package, rule or note has this text.",
    ),
    text("state", "Only those in this state."),
];
/// The states of a schedule.
const STATES: [&str; 3] = ["enabled", "paused", "ended"];
/// The schedules of a page.
const SHOWN_MAX: usize = 25;
/// The schedules that one statement reads.
const WINDOW: i64 = 500;
/// The most statements for one page.
const WINDOWS_MAX: usize = 20;
/// The most characters of a note in the list.
const NOTE_MAX: usize = 250;
/// The outcomes that are shown of each schedule.
const OUTCOMES: i64 = 10;

/// A schedule of the list.
struct Listed {
    record: ScheduleRecord,
    /// The newest launches, the oldest first.
    outcomes: Vec<LaunchStatus>,
    /// The next slot on the clock of its zone.
    local: Option<String>,
}

/// A page of the list.
struct Found {
    rows: Vec<Schedule>,
    /// The name after which the next page begins.
    next: Option<String>,
}

/// Whether a schedule has the text that was searched for, in any case of letters.
fn has(record: &ScheduleRecord, wanted: &str) -> bool {
    let Schedule { state, definition } = &record.row;
    let note = state.pause_note.as_deref().unwrap_or_default();
    let texts = [
        definition.name.as_str(),
        definition.package.as_str(),
        definition.rule.expression.as_str(),
        note,
    ];
    texts
        .iter()
        .any(|text| text.to_lowercase().contains(wanted))
}

/// Read the schedules of a page, a window at a time.
async fn find(tx: &mut Tx, after: &str, wanted: &str, state: &str) -> Result<Found> {
    let wanted = wanted.to_lowercase();
    let (mut after, mut rows) = (after.to_owned(), Vec::new());
    for _ in 0..WINDOWS_MAX {
        let window = schedules::list(tx, Some(&after), WINDOW).await?;
        let is_last = (window.len() as i64) < WINDOW;
        for row in window {
            after.clone_from(&row.definition.name);
            let record = ScheduleRecord::new(row);
            if (state.is_empty() || record.state == state) && has(&record, &wanted) {
                rows.push(record.row);
            }
            if rows.len() > SHOWN_MAX {
                rows.truncate(SHOWN_MAX);
                let next = rows.last().map(|last| last.definition.name.clone());
                return Ok(Found { rows, next });
            }
        }
        if is_last {
            return Ok(Found { rows, next: None });
        }
    }
    Ok(Found {
        rows,
        next: Some(after),
    })
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let given = |name| call.query.text(name).unwrap_or_default();
    let (wanted, state) = (given("q").trim(), given("state"));
    if !state.is_empty() && !STATES.contains(&state) {
        let problem = ApiProblem::invalid(format!("there is no state `{state}` of a schedule"));
        return Err(problem.hint(format!("choose one of {}", STATES.join(", "))));
    }
    let mut tx = call.read().await?;
    let found = find(&mut tx, given("after"), wanted, state).await?;
    let mut listed = Vec::with_capacity(found.rows.len());
    for row in found.rows {
        let newest = launches::of_schedule(&mut tx, row.state.id, OUTCOMES).await?;
        let local = match (row.state.next_slot, schedule::rule(&row)) {
            (Some(slot), Ok(rule)) => Some(rule.local_text(slot)),
            _ => None,
        };
        listed.push(Listed {
            outcomes: newest.iter().rev().map(|launch| launch.status).collect(),
            record: ScheduleRecord::new(row),
            local,
        });
    }
    drop(tx);
    let now = call.now();
    let is_filtered = !wanted.is_empty() || !state.is_empty();
    View::new(
        "Schedules",
        html! {
            form.filter method="get" action="/schedules" role="search" {
                (filter(visit, "q", "Search", "name, package, rule or note"))
                (choice(visit, "state", "State", &STATES))
                button { "Show" }
                @if is_filtered { " " a href="/schedules" { "All schedules" } }
            }
            @if listed.is_empty() && found.next.is_some() {
                p { "No schedule was found so far; the next page searches on." }
            } @else if listed.is_empty() && is_filtered {
                (empty("No schedule matches.", html! { a href="/schedules" { "Show all schedules" } ", or search for another text." }))
            } @else if listed.is_empty() {
                (empty("There is no schedule yet.", html! {
                    "Add one: " code { "campanile schedule add nightly --package backup --cron '0 2 * * *'" } ". "
                    a href="/packages" { "Packages" } " lists what can be launched."
                }))
            } @else {
                div.wide tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "Schedule" } th scope="col" { "State" } th scope="col" { "Rule" } th scope="col" { "Last launches" } th scope="col" { "Next slot" } } }
                        tbody {
                            @for Listed { record, outcomes, local } in &listed {
                                @let row = &record.row;
                                tr {
                                    td { (links::schedule(record.name())) br; span.far { "of " (links::package(&row.definition.package)) } }
                                    td {
                                        (badge(record.state))
                                        @if row.state.paused_at.is_some() { br; span.far { (short(&record.pause_text(), NOTE_MAX)) } }
                                    }
                                    td { code { (short(&record.rule_text, NOTE_MAX)) } br; span.far { (line(&row.definition.rule.timezone)) } }
                                    td { (charts::sparkline(outcomes)) }
                                    td {
                                        @match (row.state.next_slot, local) {
                                            (Some(slot), Some(local)) => (both(slot, local, now)),
                                            (Some(slot), None) => (time(slot)),
                                            (None, _) => "none",
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            (next_page(visit, found.next.as_deref()))
            (command(&match given("after") {
                "" => "campanile schedule list".to_owned(),
                after => format!("campanile schedule list --after {}", shell(after)),
            }))
        },
    )
}
