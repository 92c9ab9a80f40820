//! What happened to the tower itself. Only ever added to.

use serde::Serialize;
use sqlx::FromRow;
use uuid::Uuid;

use super::types::storable;
use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::uuid_at;
pub use campanile_model::status::EventKind;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow, schemars::JsonSchema)]
pub struct Event {
    pub at: Timestamp,
    pub kind: EventKind,
    /// The name or id of what it happened to.
    pub subject: String,
    /// One sentence.
    pub detail: String,
}

const RECORD: &str =
    "INSERT INTO event (id, at, kind, subject, detail) VALUES ($1, $2, $3, $4, $5)";
const LIST: &str = "SELECT at, kind, subject, detail FROM event ORDER BY at DESC, id DESC LIMIT $1";

/// Every statement of this table, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[RECORD, LIST];

/// Put one event on the record.
pub async fn record(
    tx: &mut Tx,
    at: Timestamp,
    kind: EventKind,
    subject: &str,
    detail: &str,
) -> Result<(), DbError> {
    let id: Uuid = uuid_at(at);
    on!(tx, |conn| sqlx::query(RECORD)
        .bind(id)
        .bind(at)
        .bind(kind)
        .bind(storable(subject))
        .bind(storable(detail))
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// The newest `limit` events, newest first.
pub async fn list(tx: &mut Tx, limit: i64) -> Result<Vec<Event>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LIST)
        .bind(limit)
        .fetch_all(conn)
        .await)?)
}
