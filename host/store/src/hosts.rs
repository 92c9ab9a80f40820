//! Hosts: one row for each `campanile serve` process.

use serde::Serialize;
use sqlx::FromRow;

use super::sql::{Batch, locking, statements};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::HostId;
pub use campanile_model::status::EndReason;

/// One `campanile serve` process. A restart of a host has the same name and another id.
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

/// A host that was marked as dead.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DeadHost {
    pub id: HostId,
    pub name: String,
}

statements! {
    /// Insert a host that starts.
    pub async fn register(host: &Host) -> () = run
        "INSERT INTO host (id, name, version, wasmtime_version, tzdata_version, started_at, heartbeat_at)
        VALUES ($1, $2, $3, $4, $5, $6, $6)"
        => [host.id, &host.name, &host.version, &host.wasmtime_version, &host.tzdata_version, host.started_at];

    /// Record a heartbeat. False when another process has marked the host as dead.
    pub async fn heartbeat(id: HostId, now: Timestamp) -> bool = changed
        "UPDATE host SET heartbeat_at = $2 WHERE id = $1 AND ended_at IS NULL";

    /// Undo a mark as dead: the process was only silent, for example while its machine slept.
    pub async fn revive(id: HostId, now: Timestamp) -> () = run
        "UPDATE host SET heartbeat_at = $2, ended_at = NULL, end_reason = NULL WHERE id = $1";

    /// Record that a host shut down in order.
    pub async fn end(id: HostId, now: Timestamp) -> () = run
        "UPDATE host SET ended_at = $2, end_reason = 'stopped' WHERE id = $1 AND ended_at IS NULL";

    /// Mark the earlier hosts called `name` as dead. Only the process that holds the lock of that name may call this.
    pub async fn mark_predecessors_dead(name: &str, now: Timestamp) -> Vec<DeadHost> = rows
        "UPDATE host SET ended_at = $2, end_reason = 'died'
        WHERE name = $1 AND ended_at IS NULL RETURNING id, name";

    /// Return the hosts whose last heartbeat is before `silent_since`, for the transaction to mark as dead.
    ///
    /// Hosts whose heartbeat is being recorded are left out, also when that transaction is of a host which has stopped in
    /// it: the others are marked meanwhile.
    pub(super) async fn silent(silent_since: Timestamp) -> Vec<DeadHost> = rows locking!(
        "SELECT id, name FROM host WHERE heartbeat_at < $1 AND ended_at IS NULL ORDER BY id",
        "FOR NO KEY UPDATE SKIP LOCKED"
    );

    /// Mark hosts as dead.
    pub(super) async fn mark_dead(hosts: &[DeadHost], now: Timestamp) -> () = execute_batch
        Batch::new("UPDATE host SET ended_at = v.column2, end_reason = 'died'
        FROM (VALUES ($1, $2)) AS v WHERE host.id = v.column1"),
        hosts, |host| [host.id, now];

    /// Return whether a live incarnation of the host `name` other than `id` is on record.
    pub async fn has_other_incarnation(name: &str, id: HostId) -> bool = one_value
        "SELECT EXISTS (SELECT 1 FROM host WHERE name = $1 AND id <> $2 AND ended_at IS NULL)";

    /// Return the last heartbeat of the host `name`; none when no incarnation of it is on record as alive.
    pub async fn last_heartbeat(name: &str) -> Option<Timestamp> = one_value
        "SELECT max(heartbeat_at) FROM host WHERE name = $1 AND ended_at IS NULL";

    /// Return the time zone database of the newest host besides `host`, if there is one.
    pub async fn tzdata_before(host: HostId) -> Option<String> = value
        "SELECT tzdata_version FROM host WHERE id <> $1 ORDER BY started_at DESC LIMIT 1";

    /// Return the live hosts, oldest first.
    pub async fn live() -> Vec<Host> = rows
        "SELECT id, name, version, wasmtime_version, tzdata_version, started_at, heartbeat_at, ended_at, end_reason
        FROM host WHERE ended_at IS NULL ORDER BY started_at";
}

/// Mark the hosts as dead whose last heartbeat is before `silent_since`, and return them.
pub async fn mark_silent_dead(
    tx: &mut Tx,
    silent_since: Timestamp,
    now: Timestamp,
) -> Result<Vec<DeadHost>> {
    let silent = silent(tx, silent_since).await?;
    mark_dead(tx, &silent, now).await?;
    Ok(silent)
}
