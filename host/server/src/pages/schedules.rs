//! The list of schedules, with a search and a filter.

use maud::{Markup, html};

use super::parts::{self, ActionForm, badge, choice, command, empty, field, filter, next_page};
use super::words::{both, line, shell, short, time};
use super::{View, Visit, charts, links};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::records::schedule::{self, ScheduleRecord};
use campanile_control::schedules::schedule_search::{ScheduleState, Search};
use campanile_store::{LaunchStatus, launch};

/// The schedules of a page.
const SHOWN_MAX: usize = 25;
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

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    // A form that was not done has the search too.
    let given = |name| parts::given(visit, name);
    let (wanted, state) = (given("q").trim(), given("state"));
    let in_state = Some(state).filter(|state| !state.is_empty());
    let in_state = in_state.map(ScheduleState::read).transpose();
    let in_state = in_state.map_err(|why| ApiProblem::invalid(format!("`state` {why}")))?;
    let mut tx = call.read().await?;
    let search = Search {
        text: wanted,
        state: in_state,
        is_paused: None,
    };
    let found = search.find(&mut tx, given("after"), SHOWN_MAX).await?;
    let mut listed = Vec::with_capacity(found.rows.len());
    for row in found.rows {
        let newest = launch::of_schedule(&mut tx, row.state.id, OUTCOMES).await?;
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
                (choice(visit, "state", "State", ScheduleState::WORDS))
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
                                        (badge(&record.state))
                                        @if row.state.paused_at.is_some() { br; span.far { (short(&record.pause_text(), NOTE_MAX)) } }
                                    }
                                    td { code { (short(&record.rule_text(), NOTE_MAX)) } br; span.far { (line(&row.definition.rule.timezone)) } }
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
            @if !listed.is_empty() { (forms(visit, wanted, state)) }
            (command(&match given("after") {
                "" => "campanile schedule list".to_owned(),
                after => format!("campanile schedule list --after {}", shell(after)),
            }))
        },
    )
}

/// Show the forms that change all schedules of the search, on all pages of the list.
fn forms(visit: &Visit, wanted: &str, state: &str) -> Markup {
    let hidden = [("q", wanted), ("state", state)];
    let of = match (wanted, state) {
        ("", "") => "all schedules".to_owned(),
        _ => "all schedules of this search".to_owned(),
    };
    let pause = ActionForm {
        action: "pause_many",
        label: "Pause them",
        hidden: &hidden,
        fields: html! {
            p { "Pause " (of) ", on all pages of the list, that are not paused. You see first how many these are." }
            (field(visit, "note", "Why", "for the record"))
            (field(visit, "until", "Until (UTC)", "2026-12-24T08:00 or empty"))
        },
        command: "campanile schedule pause NAME --note NOTE --until TIME".to_owned(),
    };
    let resume = ActionForm {
        action: "resume_many",
        label: "Resume them",
        hidden: &hidden,
        fields: html! {
            p { "Resume " (of) ", on all pages of the list, that are paused. You see first how many these are." }
            label {
                input type="checkbox" name="catch_up" value="yes" checked[visit.typed.given("catch_up").is_some()];
                " Apply their catch-up policies to the slots of the pause"
            }
        },
        command: "campanile schedule resume NAME --catch-up".to_owned(),
    };
    html! {
        details open[!visit.typed.is_empty()] {
            summary { "Pause or resume many" }
            div.forms {
                @if state != "paused" { (pause.show(visit)) }
                @if state != "enabled" && state != "ended" { (resume.show(visit)) }
            }
        }
    }
}
