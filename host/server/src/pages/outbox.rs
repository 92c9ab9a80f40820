//! The outbox: the messages that tasks sent to other systems, and what became of each.

use maud::{Markup, html};

use super::parts::{badge, badge_of, button, command, empty, filter, next_page};
use super::words::{Clock, at_most, line, moment, shell, short};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::questions::alerts::ListMessages;
use campanile_model::status::MessageStatus;
use campanile_store::outbox::{self, MessageRow};

/// The most messages that are counted.
const COUNTED_MAX: i64 = 10_000;
/// The most characters of an address, and of an error.
const URL_MAX: usize = 120;
const ERROR_MAX: usize = 300;

/// How many messages wait, and how many were given up.
struct Counts {
    pending: i64,
    dead: i64,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let question: ListMessages = call.query.question()?;
    let (status, package) = (question.status, question.package);
    let found = call.ask::<ListMessages>().await?;
    let mut tx = call.read().await?;
    let counts = Counts {
        pending: outbox::count_pending(&mut tx, COUNTED_MAX).await?,
        dead: outbox::count_dead(&mut tx).await?,
    };
    drop(tx);
    let rows = found.answer;
    let clock = visit.clock();
    let package = package.as_deref().unwrap_or_default();
    let head = html! {
        div.head {
            h1 { "Outbox" }
            (chips(&counts, status, package))
            div.actions {
                form.filter method="get" action="/outbox" role="search" aria-label="Filter of the messages" {
                    @if let Some(status) = status { input type="hidden" name="status" value=(status.as_str()); }
                    (filter(visit, "package", "Package", "billing"))
                    button { "Show" }
                }
            }
        }
    };
    let mut same = "campanile outbox list".to_owned();
    if let Some(status) = status {
        same += &format!(" --status {status}");
    }
    if !package.is_empty() {
        same += &format!(" --package {}", shell(package));
    }
    let main = html! {
        @if rows.is_empty() && (status.is_some() || !package.is_empty() || call.query.text("after").is_some()) {
            (empty("No message matches.", html! { a href="/outbox" { "Show all messages" } "." }))
        } @else if rows.is_empty() {
            (empty("No task has sent a message.", html! { "A task hands a message over with its result; a host delivers it afterwards, and again until it arrives." }))
        } @else {
            div.stack { section.card {
                div.wide tabindex="0" role="region" aria-label="The messages" { (table(visit, &rows, clock)) }
                div.more { (command(&same)) (command("campanile outbox show ID")) }
            } }
        }
        (next_page(visit, found.next.as_deref()))
        @if rows.is_empty() { (command(&same)) }
    };
    View::with_head("Outbox", head, main)
}

/// Shows the states with links to the messages of each. What's done isn't counted: it's most of the record.
fn chips(counts: &Counts, chosen: Option<MessageStatus>, package: &str) -> Markup {
    let count = |status: MessageStatus| match status {
        MessageStatus::Pending => Some((counts.pending, "plain")),
        MessageStatus::Dead => Some((counts.dead, "bad")),
        MessageStatus::Delivered | MessageStatus::Discarded => None,
    };
    html! {
        nav.filters aria-label="States of messages" {
            a href={ "/outbox" (links::query(&[("package", package)])) } aria-current=[chosen.is_none().then_some("true")] { "All" }
            @for status in MessageStatus::ALL.iter().copied() {
                a href={ "/outbox" (links::query(&[("status", status.as_str()), ("package", package)])) } aria-current=[(chosen == Some(status)).then_some("true")] {
                    (status.as_str())
                    @if let Some((count, class)) = count(status).filter(|(count, _)| *count > 0) {
                        " " span.count.(class) { (at_most(count, COUNTED_MAX)) }
                    }
                }
            }
        }
    }
}

fn table(visit: &Visit, rows: &[MessageRow], clock: Clock) -> Markup {
    html! {
        table.cards {
            thead { tr {
                th scope="col" { "Message" }
                th scope="col" { "To" }
                th scope="col" { "Of" }
                th.number scope="col" { "Sent" }
                th.number scope="col" { "Tries" }
                th.number scope="col" { "Next try" }
                th scope="col" { "Last answer" }
                th.number scope="col" { "Actions" }
            } }
            tbody { @for row in rows { (message_row(visit, row, clock)) } }
        }
    }
}

fn message_row(visit: &Visit, row: &MessageRow, clock: Clock) -> Markup {
    let is_dead = row.status == MessageStatus::Dead;
    let has_failed = row.status == MessageStatus::Pending && row.error.is_some();
    let launch = links::path(&["launches", &row.launch_id.to_string()]);
    html! {
        tr.fails[is_dead].looks[has_failed] {
            td.fit {
                @if row.status == MessageStatus::Delivered { (row.status.as_str()) }
                @else if row.status == MessageStatus::Pending { (badge_of(if has_failed { "warn" } else { "run" }, "pending")) }
                @else { (badge(row.status.as_str())) }
            }
            td.text { strong { (line(&row.method)) } " " (short(&row.url, URL_MAX)) }
            td { (links::package(&row.package)) " " span.far { (line(&row.task)) } br; a.far href=(launch) { "launch " (row.launch_id.short()) } }
            td.number.rest { (moment(row.created_at, clock)) }
            td.number.rest { (row.attempts) }
            td.number {
                @match (row.next_attempt_at, row.finished_at) {
                    (Some(at), _) => { (moment(at, clock)) br; span.far { "gives up " (moment(row.give_up_at, clock)) } },
                    (None, Some(at)) => span.far { "ended " (moment(at, clock)) },
                    (None, None) => "–",
                }
            }
            td.text {
                @match (&row.error, row.answer) {
                    (Some(error), _) => span.warning { (short(error, ERROR_MAX)) },
                    (None, Some(answer)) => { "answered " (answer) },
                    (None, None) => span.far { "none" },
                }
            }
            td.number { (actions(visit, row)) }
        }
    }
}

fn actions(visit: &Visit, row: &MessageRow) -> Markup {
    let id = row.id.to_string();
    let hidden = [("id", id.as_str())];
    html! {
        span.actions {
            @if row.status != MessageStatus::Delivered { (button(visit, "/outbox", "retry_message", "Retry", &hidden)) }
            @if matches!(row.status, MessageStatus::Pending | MessageStatus::Dead) { (button(visit, "/outbox", "discard_message", "Discard", &hidden)) }
        }
    }
}
