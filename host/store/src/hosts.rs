//! The lives of `campanile serve` processes.

use serde::Serialize;
use sqlx::FromRow;

use super::{DbError, Tx, on};
use campanile_model::clock::Timestamp;
use campanile_model::ids::HostId;
pub use campanile_model::status::EndReason;

/// One life of a host.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct Host {
    pub id: HostId,
    pub name: String,
    pub version: String,
    pub wasmtime_version: String,
    pub tzdata_version: String,
    pub started_at: Timestamp,
    pub heartbeat_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<EndReason>,
}

/// A host that was found gone.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DeadHost {
    pub id: HostId,
    pub name: String,
}

const REGISTER: &str = "INSERT INTO host (id, name, version, wasmtime_version, tzdata_version, started_at, heartbeat_at)
    VALUES ($1, $2, $3, $4, $5, $6, $6)";
const BEAT: &str = "UPDATE host SET heartbeat_at = $2 WHERE id = $1 AND ended_at IS NULL";
const REVIVE: &str =
    "UPDATE host SET heartbeat_at = $2, ended_at = NULL, end_reason = NULL WHERE id = $1";
const END: &str =
    "UPDATE host SET ended_at = $2, end_reason = 'stopped' WHERE id = $1 AND ended_at IS NULL";
const BURY_NAME: &str = "UPDATE host SET ended_at = $2, end_reason = 'died'
    WHERE name = $1 AND ended_at IS NULL RETURNING id, name";
const BURY_SILENT: &str = "UPDATE host SET ended_at = $2, end_reason = 'died'
    WHERE heartbeat_at < $1 AND ended_at IS NULL RETURNING id, name";
const LIST: &str = "SELECT id, name, version, wasmtime_version, tzdata_version, started_at, heartbeat_at, ended_at, end_reason
    FROM host WHERE ended_at IS NULL ORDER BY started_at";
const TZDATA_BEFORE: &str =
    "SELECT tzdata_version FROM host WHERE id <> $1 ORDER BY started_at DESC LIMIT 1";

/// Every statement of this table, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[
    REGISTER,
    BEAT,
    REVIVE,
    END,
    BURY_NAME,
    BURY_SILENT,
    LIST,
    TZDATA_BEFORE,
];

/// Put a new life on the record.
pub async fn register(tx: &mut Tx, host: &Host) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(REGISTER)
        .bind(host.id)
        .bind(&host.name)
        .bind(&host.version)
        .bind(&host.wasmtime_version)
        .bind(&host.tzdata_version)
        .bind(host.started_at)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Say that the host lives. False when somebody has buried it meanwhile.
pub async fn heartbeat(tx: &mut Tx, id: HostId, now: Timestamp) -> Result<bool, DbError> {
    Ok(touch(tx, BEAT, id, now).await? == 1)
}

/// Come back after having been buried: the process was only silent, for example asleep with its machine.
pub async fn revive(tx: &mut Tx, id: HostId, now: Timestamp) -> Result<(), DbError> {
    touch(tx, REVIVE, id, now).await?;
    Ok(())
}

/// End a life in order.
pub async fn end(tx: &mut Tx, id: HostId, now: Timestamp) -> Result<(), DbError> {
    touch(tx, END, id, now).await?;
    Ok(())
}

/// Run an update of one life; gives how many rows it changed.
async fn touch(tx: &mut Tx, sql: &'static str, id: HostId, now: Timestamp) -> Result<u64, DbError> {
    Ok(on!(tx, |conn| sqlx::query(sql)
        .bind(id)
        .bind(now)
        .execute(conn)
        .await
        .map(|done| done.rows_affected()))?)
}

/// Bury earlier lives of `name`. Only for the process that holds the lock of that name.
pub async fn mark_predecessors_dead(
    tx: &mut Tx,
    name: &str,
    now: Timestamp,
) -> Result<Vec<DeadHost>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(BURY_NAME)
        .bind(name)
        .bind(now)
        .fetch_all(conn)
        .await)?)
}

/// Bury hosts whose last heartbeat is before `silent_since`.
pub async fn mark_silent_dead(
    tx: &mut Tx,
    silent_since: Timestamp,
    now: Timestamp,
) -> Result<Vec<DeadHost>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(BURY_SILENT)
        .bind(silent_since)
        .bind(now)
        .fetch_all(conn)
        .await)?)
}

/// The time zone database of the host that began before `host` did, if one did.
pub async fn tzdata_before(tx: &mut Tx, host: HostId) -> Result<Option<String>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(TZDATA_BEFORE)
        .bind(host)
        .fetch_optional(conn)
        .await)?)
}

/// The hosts that live, oldest first.
pub async fn live(tx: &mut Tx) -> Result<Vec<Host>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(LIST).fetch_all(conn).await)?)
}
