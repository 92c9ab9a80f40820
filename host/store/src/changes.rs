//! The counter by which a running host notices changes of another process.

use super::events::{self, EventKind, NewEvent};
use super::sql::statements;
use super::{Result, Tx};
use campanile_model::clock::Timestamp;

statements! {
    /// Tell every running host that schedules have changed.
    pub async fn bump() -> () = run "UPDATE change SET counter = counter + 1 WHERE id = 1";

    /// Returns a number that grows with every change.
    pub async fn counter() -> i64 = one_value "SELECT counter FROM change WHERE id = 1";
}

/// Record one event, and tell every running host that something has changed.
pub async fn record(
    tx: &mut Tx,
    at: Timestamp,
    kind: EventKind,
    subject: &str,
    detail: &str,
) -> Result {
    record_event(tx, at, NewEvent::new(kind, subject, detail)).await
}

/// Record one event, and tell every running host that something has changed.
pub async fn record_event(tx: &mut Tx, at: Timestamp, event: NewEvent) -> Result {
    events::record_all(tx, at, &[event]).await?;
    bump(tx).await
}
