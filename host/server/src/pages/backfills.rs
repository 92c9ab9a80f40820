//! The newest backfills, each with how far it is.

use maud::{Markup, html};

use super::parts::{ActionForm, badge, command, empty, next_page};
use super::words::{counted, line, moment, time};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::question::Page;
use campanile_control::questions::schedules::ListBackfills;
use campanile_model::clock::Timestamp;
use campanile_store::BackfillStatus;
use campanile_store::backfills::{self, Backfill};

/// The backfills of a page.
const SHOWN_MAX: i64 = 50;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let ListBackfills { after, .. } = call.query.question()?;
    // The totals of the record count all launches of each, and the page does not show them.
    let rows = backfills::list(&mut call.read().await?, None, after, SHOWN_MAX).await?;
    let Page { answer: rows, next } = Page::of(rows, SHOWN_MAX, |row| row.id.to_string());
    let now = call.now();
    View::new(
        "Backfills",
        html! {
            @if rows.is_empty() {
                (empty("There is no backfill.", html! { "A backfill launches past slots again. Begin one on the page of a " a href="/schedules" { "schedule" } "." }))
            }
            @for row in &rows { (one(visit, row, now)) }
            (next_page(visit, next.as_deref()))
            (command("campanile backfill list"))
        },
    )
}

fn one(visit: &Visit, row: &Backfill, now: Timestamp) -> Markup {
    let id = row.id.to_string();
    let cancel = ActionForm {
        action: "cancel_backfill",
        label: "Cancel",
        hidden: &[("id", &id)],
        fields: html! { p { "Its launches that have not begun are skipped; the others continue." } },
        command: format!("campanile backfill cancel {id}"),
    };
    let slots = row.slots.unsigned_abs();
    html! {
        article {
            h2 { (links::schedule(&row.schedule)) " " (badge(row.status.as_str())) }
            p { "Slots from " (time(row.from)) " to " (time(row.to)) ", asked for by " (line(&row.created_by)) " " (moment(row.created_at, now)) "." }
            p {
                (counted(slots, "slot")) ": " (row.launched) " launched, " (row.slots_skipped) " not launched again"
                @if let Some(at) = row.finished_at { ", ended " (moment(at, now)) }
                "."
            }
            progress max=(slots.max(1)) value=(row.launched.saturating_add(row.slots_skipped)) aria-label={ "How far the backfill of " (line(&row.schedule)) " is" } {}
            p { a href={ "/launches" (links::query(&[("schedule", row.schedule.as_str()), ("kind", "backfill")])) } { "Its launches" } }
            @if row.status == BackfillStatus::Running { details { summary { "Cancel" } (cancel.show(visit)) } }
            p.far { "Id " code { (id) } }
        }
    }
}
