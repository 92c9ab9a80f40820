//! Running again or cancelling many launches: those that are ticked, or all that match the filters.

use maud::{Markup, html};

use super::super::actions::{ACTION, KEY};
use super::super::bodies::{IDS, TICKED};
use super::super::form::Form;
use super::super::parts::{command, idempotency_key};
use super::super::words::line;
use super::filters::{Filters, KEYS};
use campanile_control::orders::bulk_launches::LAUNCHES_MAX;
use campanile_store::launch::LaunchRow;

/// The names of the actions.
pub(super) const RETRY: &str = "retry_many";
const CANCEL: &str = "cancel_many";

/// Shows the tick of a row, which stands for one launch or several.
pub(super) fn tick(rows: &[&LaunchRow], words: &str) -> Markup {
    let ids = Vec::from_iter(rows.iter().map(|row| row.id.to_string()));
    html! { input.tick type="checkbox" name=(IDS) value=(ids.join(",")) aria-label={ "Tick " (line(words)) }; }
}

/// Shows what can be done with the ticked launches, at the end of their form.
pub(super) fn of_ticked() -> Markup {
    html! {
        div.more.many {
            input type="hidden" name=(KEY) value=(idempotency_key());
            input type="hidden" name=(TICKED) value="yes";
            span { "Those ticked: " }
            (buttons())
        }
    }
}

/// Shows what can be done with all launches that match, on all pages of the list.
pub(super) fn of_all(filters: &Filters) -> Markup {
    let given = KEYS.iter();
    let given = given.map(|key| ((*key).to_owned(), filters.get(key).to_owned()));
    let given = Vec::from_iter(given.filter(|(_, value)| !value.is_empty()));
    html! {
        div.more.many {
            form.many method="post" action=(filters.with(&[])) {
                input type="hidden" name=(KEY) value=(idempotency_key());
                (Form::hidden(given.iter()))
                span { "All that match, on all pages, up to " (LAUNCHES_MAX) " at once: " }
                (buttons())
            }
            p.far { "You see first how many these are: unsuccessful ones to run again, unfinished ones to cancel." }
            (command("campanile run retry ID"))
            (command("campanile run cancel ID"))
        }
    }
}

fn buttons() -> Markup {
    html! {
        button.small name=(ACTION) value=(RETRY) { "Run again…" }
        button.small name=(ACTION) value=(CANCEL) { "Cancel…" }
    }
}
