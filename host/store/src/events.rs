//! Events: changes of hosts, packages, schedules and launches. Rows are added, and deleted by retention.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::{Batch, statements};
use super::types::{recorded, storable};
use super::{Result, Tx};
use campanile_model::access::{Actor, Channel};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{EventId, LaunchId};
pub use campanile_model::status::EventKind;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct Event {
    pub id: EventId,
    pub at: Timestamp,
    pub kind: EventKind,
    /// The name or id of the host, package, schedule or backfill.
    pub subject: String,
    /// The launch that it's about. Null when it's about none, or about several.
    pub launch_id: Option<LaunchId>,
    /// One sentence.
    pub detail: String,
    /// Who made the change: a user of the operating system, or the name of a token. Null when a host acted by itself.
    pub principal: Option<String>,
    /// The way on which the change was made.
    pub channel: Channel,
    /// The network address from which the change was requested. Null on the machine itself.
    pub address: Option<String>,
    /// From when a schedule's cursor was reset. Null for other kinds.
    pub from_at: Option<Timestamp>,
    /// To when a schedule's cursor was reset. Null for other kinds.
    pub to_at: Option<Timestamp>,
}

macro_rules! event_columns {
    () => {
        "id, at, kind, subject, launch_id, detail, principal, channel, address, from_at, to_at"
    };
}
pub(super) use event_columns;

/// An event to record.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub kind: EventKind,
    pub subject: String,
    pub launch_id: Option<LaunchId>,
    pub detail: String,
    /// From and to when a schedule's cursor was reset; for this kind alone.
    pub moved: Option<(Timestamp, Timestamp)>,
}

impl NewEvent {
    /// An event about no launch.
    pub fn new(kind: EventKind, subject: impl Into<String>, detail: impl Into<String>) -> NewEvent {
        NewEvent {
            kind,
            subject: subject.into(),
            launch_id: None,
            detail: detail.into(),
            moved: None,
        }
    }

    /// An event about a launch of a schedule.
    pub fn of_launch(
        kind: EventKind,
        schedule: impl Into<String>,
        launch: LaunchId,
        detail: impl Into<String>,
    ) -> NewEvent {
        NewEvent {
            launch_id: Some(launch),
            ..NewEvent::new(kind, schedule, detail)
        }
    }
}

statements! {
    /// Returns the newest `limit` events before `before`, newest first.
    pub async fn list(before: Option<EventId>, limit: i64) -> Vec<Event> = rows
        concat!("SELECT ", event_columns!(), " FROM event WHERE id < $1 ORDER BY id DESC LIMIT $2")
        => [before.unwrap_or(EventId::LAST), limit];

    /// Returns the first `limit` events after the id `after`, oldest first.
    pub async fn list_after(after: EventId, limit: i64) -> Vec<Event> = rows
        concat!("SELECT ", event_columns!(), " FROM event WHERE id > $1 ORDER BY id LIMIT $2");

    /// Record events of `actor`.
    pub(super) async fn insert(at: Timestamp, actor: &Actor, events: &[NewEvent]) -> () = execute_batch
        Batch::new(concat!("INSERT INTO event (", event_columns!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")),
        events, |event| [EventId::new(at), at, event.kind, storable(&event.subject), event.launch_id,
            recorded(&event.detail),
            actor.principal.as_deref().map(storable), actor.channel, actor.address.as_deref(),
            event.moved.map(|(from, _)| from), event.moved.map(|(_, to)| to)];
}

/// Record events that happened at the same moment, in this order, as those of the actor of the transaction.
pub async fn record_all(tx: &mut Tx, at: Timestamp, events: &[NewEvent]) -> Result {
    let actor = tx.actor();
    insert(tx, at, &actor, events).await
}

/// Record one event.
pub async fn record(
    tx: &mut Tx,
    at: Timestamp,
    kind: EventKind,
    subject: &str,
    detail: &str,
) -> Result {
    record_all(tx, at, &[NewEvent::new(kind, subject, detail)]).await
}
