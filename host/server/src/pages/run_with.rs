//! The form that launches a schedule by hand, with a context of its own for this launch.

pub(super) mod typed;

use maud::html;

use self::typed::Launched;
use super::actions::{ACTION, KEY, RUN_WITH};
use super::context_form::TypedContext;
use super::edit::input;
use super::parts::{command, idempotency_key};
use super::words::{line, shell};
use super::{View, Visit, links};
use crate::auth;
use crate::call::Result;
use campanile_model::access::Role;
use campanile_schedule::policy::Overlap;

/// Returns the address of the form.
pub(super) fn address(schedule: &str) -> String {
    links::path(&["schedules", schedule, "run"])
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let name = visit.call.name("name");
    let mut tx = visit.call.read().await?;
    let launched = Launched::read(&mut tx, name).await?;
    drop(tx);
    let form = &visit.typed;
    let typed = match form.is_empty() {
        true => TypedContext::default(),
        false => launched.context.read(form, &launched.base),
    };
    let same = format!(
        "campanile schedule trigger {} --context '{{\"KEY\": \"VALUE\"}}'",
        shell(name)
    );
    let refusal = visit.call.principal.as_ref().and_then(|principal| {
        let needed = "a launch with a context or an overlap policy of its own";
        auth::require(principal, Role::Editor, needed).err()
    });
    View::new(
        format!("Run {name} with…"),
        html! {
            p { "The schedule " (links::schedule(name)) " of the package " (links::package(&launched.package)) ". What is typed here is for this launch alone; the schedule stays as it is." }
            @if let Some(refusal) = refusal {
                p { strong { "Run with…" } ": " (line(&refusal.problem.message)) "." }
            } @else {
                form.action.edit method="post" action=(visit.call.uri) {
                    input type="hidden" name=(KEY) value=(idempotency_key());
                    fieldset {
                        legend { "Context of this launch" }
                        (launched.context.show(form, &launched.base, &typed))
                    }
                    details open[form.given("args").is_some() || form.given("overlap").is_some()] {
                        summary { "Overlap, arguments" }
                        label {
                            "While another launch is active "
                            select name="overlap" {
                                option value="" { "as its schedule has it: " (launched.overlap.as_str()) }
                                @for word in Overlap::WORDS { option value=(word) selected[*word == form.get("overlap")] { (word) } }
                            }
                        }
                        (input(form, "args", "Arguments of a program, JSON", "[\"--all\"], or empty for the schedule's"))
                    }
                    p.actions {
                        button.go name=(ACTION) value=(RUN_WITH) { "Run now" }
                        a href=(links::path(&["schedules", name])) { "Leave it" }
                    }
                }
            }
            (command(&same))
        },
    )
}
