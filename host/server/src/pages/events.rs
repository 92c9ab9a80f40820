//! The events: who did what, and what happened.

use maud::html;

use super::parts::{command, empty, next_page};
use super::words::{line, moment, short};
use super::{View, Visit};
use crate::call::Result;
use campanile_control::question::Page;
use campanile_control::questions::record::ListEvents;
use campanile_store::events;

/// The events of a page.
const SHOWN_MAX: i64 = 50;
/// The most characters of a detail.
const DETAIL_MAX: usize = 250;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let ListEvents { after, .. } = call.query.question()?;
    let rows = events::list(&mut call.read().await?, after, SHOWN_MAX).await?;
    let Page { answer: rows, next } = Page::of(rows, SHOWN_MAX, |row| row.id.to_string());
    let now = call.now();
    let same = match after {
        Some(after) => format!("campanile event list --after {after}"),
        None => "campanile event list".to_owned(),
    };
    View::new(
        "Events",
        html! {
            @if rows.is_empty() {
                (empty("No event is on record.", html! { "A host records its start: " code { "campanile serve" } "." }))
            } @else {
                div.wide tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "When" } th scope="col" { "Event" } th scope="col" { "About" } th scope="col" { "What" } th scope="col" { "By" } } }
                        tbody {
                            @for row in &rows {
                                tr {
                                    td { (moment(row.at, now)) }
                                    td { code { (row.kind.as_str()) } }
                                    td { (short(&row.subject, DETAIL_MAX)) }
                                    td { (short(&row.detail, DETAIL_MAX)) }
                                    td {
                                        (line(row.principal.as_deref().unwrap_or("the host itself")))
                                        br; span.far { (row.channel.as_str()) @if let Some(address) = &row.address { ", " (line(address)) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            (next_page(visit, next.as_deref()))
            (command(&same))
        },
    )
}
