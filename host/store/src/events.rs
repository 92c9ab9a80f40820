//! Events: changes of hosts, packages, schedules and launches. Rows are added, and deleted by retention.

use serde::Serialize;
use sqlx::FromRow;

use super::sql::{Batch, statements};
use super::types::storable;
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::EventId;
pub use campanile_model::status::EventKind;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, schemars::JsonSchema)]
pub struct Event {
    pub id: EventId,
    pub at: Timestamp,
    pub kind: EventKind,
    /// The name or id of the host, package, schedule or backfill.
    pub subject: String,
    /// One sentence.
    pub detail: String,
}

/// An event to record.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub kind: EventKind,
    pub subject: String,
    pub detail: String,
}

statements! {
    /// Return the newest `limit` events before `before`, newest first.
    pub async fn list(before: Option<EventId>, limit: i64) -> Vec<Event> = rows
        "SELECT id, at, kind, subject, detail FROM event WHERE id < $1 ORDER BY id DESC LIMIT $2"
        => [before.unwrap_or(EventId::LAST), limit];

    /// Return the first `limit` events after the id `after`, oldest first.
    pub async fn list_after(after: EventId, limit: i64) -> Vec<Event> = rows
        "SELECT id, at, kind, subject, detail FROM event WHERE id > $1 ORDER BY id LIMIT $2";

    /// Record events that happened at the same moment, in this order.
    pub async fn record_all(at: Timestamp, events: &[NewEvent]) -> () = execute_batch
        Batch::new("INSERT INTO event (id, at, kind, subject, detail) VALUES ($1, $2, $3, $4, $5)"),
        events, |event| [EventId::new(at), at, event.kind, storable(&event.subject), storable(&event.detail)];
}

/// Record one event.
pub async fn record(
    tx: &mut Tx,
    at: Timestamp,
    kind: EventKind,
    subject: &str,
    detail: &str,
) -> Result {
    let event = NewEvent {
        kind,
        subject: subject.to_owned(),
        detail: detail.to_owned(),
    };
    record_all(tx, at, &[event]).await
}
