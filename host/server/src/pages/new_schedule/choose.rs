//! The choice of a package for a new schedule.

use maud::html;

use super::super::packages::badge_of_state;
use super::super::parts::{command, empty, next_page};
use super::super::words::line;
use super::super::{View, Visit};
use super::{PATH, address};
use crate::call::Result;
use campanile_store::packages;

/// The packages of a page.
const SHOWN_MAX: usize = 100;

pub(super) async fn show(visit: &Visit, after: Option<&str>) -> Result<View> {
    let mut tx = visit.call.read().await?;
    let mut rows = packages::list(&mut tx, None, after, SHOWN_MAX as i64 + 1).await?;
    drop(tx);
    let is_cut = rows.len() > SHOWN_MAX;
    rows.truncate(SHOWN_MAX);
    let next = rows.last().filter(|_| is_cut).map(|last| last.name.clone());
    let main = html! {
        @if rows.is_empty() && after.is_none() {
            (empty("No host has seen a package yet.", html! { "Add one first: " a href="/packages" { "Packages" } ", or copy a WebAssembly file to the plugins folder of a host." }))
        } @else {
            section.card {
                header { h2 { "Which package does it launch?" } }
                div.pad {
                    ul.plain {
                        @for row in &rows {
                            li {
                                @if row.digest.is_some() { a.name href=(address(&row.name)) { (line(&row.name)) } }
                                @else { span.name { (line(&row.name)) } " has no active version: " (badge_of_state(row.state())) }
                            }
                        }
                    }
                }
            }
            @if is_cut {
                form.filter method="get" action=(PATH) {
                    label { "Package " input name="package" maxlength="200" autocomplete="off" required; }
                    button { "Continue" }
                }
            }
            (next_page(visit, next.as_deref()))
        }
        (command("campanile package list"))
    };
    View::new("New schedule", main)
}
