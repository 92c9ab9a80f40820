//! Hosts: one row for each `campanile serve` process.

use serde::Serialize;
use sqlx::FromRow;

use super::sql::{Batch, locking, statements, update_launches};
use super::types::storable;
use super::{Result, Tx, chores};
use campanile_model::clock::Timestamp;
use campanile_model::ids::HostId;
use campanile_model::labels::Labels;
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
    /// When it counts as dead unless a heartbeat comes before.
    pub lease_until: Timestamp,
    /// The most runs at once.
    pub runs_max: i64,
    pub labels: Labels,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<EndReason>,
    /// Set while an operator wants it to claim nothing.
    pub drained_at: Option<Timestamp>,
    pub drained_by: Option<String>,
    /// When the drained host had committed its last claim.
    pub claims_ended_at: Option<Timestamp>,
}

impl Host {
    /// Whether it has neither ended nor been silent for longer than its lease at `now`.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.ended_at.is_none() && self.lease_until >= now
    }
}

/// A host that was marked as dead.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DeadHost {
    pub id: HostId,
    pub name: String,
}

macro_rules! host_columns {
    () => {
        "SELECT id, name, version, wasmtime_version, tzdata_version, started_at, heartbeat_at, lease_until, runs_max, labels, ended_at,
        end_reason, drained_at, drained_by, claims_ended_at FROM host "
    };
}

/// When one process of a host was up.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct HostLife {
    pub name: String,
    pub started_at: Timestamp,
    /// Its last one.
    pub heartbeat_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<EndReason>,
}

statements! {
    /// Inserts a starting host as the newest process of its name. It's drained if that name's last process is.
    pub async fn register(host: &Host) -> () = run
        "INSERT INTO host (id, name, number, version, wasmtime_version, tzdata_version, started_at, heartbeat_at, lease_until, runs_max,
            labels, drained_at, drained_by)
        VALUES ($1, $2, (SELECT coalesce(max(number), 0) + 1 FROM host WHERE name = $2), $3, $4, $5, $6, $6, $7, $8, $9,
            (SELECT drained_at FROM host WHERE name = $2 ORDER BY started_at DESC LIMIT 1),
            (SELECT drained_by FROM host WHERE name = $2 ORDER BY started_at DESC LIMIT 1))"
        => [
            host.id, &host.name, &host.version, &host.wasmtime_version, &host.tzdata_version, host.started_at, host.lease_until,
            host.runs_max, &host.labels
        ];

    /// Record a heartbeat. False when another process has marked the host as dead.
    pub async fn heartbeat(id: HostId, now: Timestamp, lease_until: Timestamp) -> bool = changed
        "UPDATE host SET heartbeat_at = $2, lease_until = $3 WHERE id = $1 AND ended_at IS NULL";

    /// Returns the last heartbeat of the process `id`; none when it has no row.
    pub async fn heartbeat_of(id: HostId) -> Option<Timestamp> = value
        "SELECT heartbeat_at FROM host WHERE id = $1";

    /// Records a host's trouble with the database and when it began; none once it's over.
    pub async fn note_trouble(id: HostId, what: Option<&str>, since: Option<Timestamp>) -> () = run
        "UPDATE host SET trouble = $2, trouble_since = $3 WHERE id = $1" => [id, what.map(storable), since];

    /// Returns the live hosts in trouble with the database: the name, since when, and what.
    pub async fn troubled(now: Timestamp) -> Vec<(String, Timestamp, String)> = rows
        "SELECT name, trouble_since, trouble FROM host WHERE ended_at IS NULL AND lease_until >= $1 AND trouble IS NOT NULL
        ORDER BY name";

    /// Undoes marking a host as dead: its process was merely silent, for example while its machine slept. False if a later process
    /// has taken its name.
    pub async fn revive(id: HostId, now: Timestamp, lease_until: Timestamp) -> bool = changed
        "UPDATE host SET heartbeat_at = $2, lease_until = $3, ended_at = NULL, end_reason = NULL WHERE id = $1
            AND NOT EXISTS (SELECT 1 FROM host later WHERE later.name = host.name AND later.number > host.number)";

    /// Locks the name, keeping two processes from taking it at the same moment. Returns its last process's number.
    pub async fn lock_name(name: &str) -> Option<i64> = value locking!(
        "SELECT number FROM host WHERE name = $1 ORDER BY number DESC LIMIT 1",
        "FOR NO KEY UPDATE"
    );

    /// Returns the number of the process `id` among those of its name.
    pub async fn number_of(id: HostId) -> Option<i64> = value "SELECT number FROM host WHERE id = $1";

    /// Whether a process later than `number` has taken the name, even if it has ended since.
    pub async fn is_replaced(name: &str, number: i64) -> bool = one_value
        "SELECT EXISTS (SELECT 1 FROM host WHERE name = $1 AND number > $2)";

    /// Returns the last heartbeat of a host recorded as alive and the end of its lease; none if no process of the name is.
    pub async fn last_sign_of_life(name: &str) -> Option<(Timestamp, Timestamp)> = row
        "SELECT heartbeat_at, lease_until FROM host WHERE name = $1 AND ended_at IS NULL ORDER BY heartbeat_at DESC LIMIT 1";

    /// Records that a host shut down in order. False if the record says already that it ended.
    pub async fn end(id: HostId, now: Timestamp) -> bool = changed
        "UPDATE host SET ended_at = $2, end_reason = 'stopped' WHERE id = $1 AND ended_at IS NULL";

    /// Ends the run leases of hosts called `name` marked as dead at `now`.
    // The first condition follows from the second. It leads to the index of active runs.
    pub(super) async fn end_leases(name: &str, now: Timestamp) -> () = run
        update_launches!("lease_until = $2",
        "status IN ('running', 'waiting') AND status = 'running' AND lease_until > $2
            AND host_id IN (SELECT h.id FROM host h WHERE h.name = $1 AND h.ended_at = $2)");

    /// Mark the earlier hosts called `name` as dead.
    pub(super) async fn mark_earlier_dead(name: &str, now: Timestamp) -> Vec<DeadHost> = rows
        "UPDATE host SET ended_at = $2, end_reason = 'died'
        WHERE name = $1 AND ended_at IS NULL RETURNING id, name";

    /// Returns the hosts whose lease has ended, for the transaction to mark as dead.
    ///
    /// Hosts whose heartbeat is being recorded are left out, also when that transaction is of a host which has stopped in
    /// it: the others are marked meanwhile.
    pub(super) async fn silent(now: Timestamp) -> Vec<DeadHost> = rows locking!(
        "SELECT id, name FROM host WHERE lease_until < $1 AND ended_at IS NULL ORDER BY id",
        "FOR NO KEY UPDATE SKIP LOCKED"
    );

    /// Mark hosts as dead.
    pub(super) async fn mark_dead(hosts: &[DeadHost], now: Timestamp) -> () = execute_batch
        Batch::new("UPDATE host SET ended_at = v.column2, end_reason = 'died'
        FROM (VALUES ($1, $2)) AS v WHERE host.id = v.column1"),
        hosts, |host| [host.id, now];

    /// Returns the time zone database of the newest host besides `host`, if there is one.
    pub async fn tzdata_before(host: HostId) -> Option<String> = value
        "SELECT tzdata_version FROM host WHERE id <> $1 ORDER BY started_at DESC LIMIT 1";

    /// Returns when the next lease ends of which `host` would notice the end: that of another live host, or of a run of a host
    /// that has ended.
    pub async fn next_lease_end(host: HostId) -> Option<Timestamp> = one_value
        "SELECT min(at) FROM (
            SELECT min(lease_until) AS at FROM host WHERE ended_at IS NULL AND id <> $1
            UNION ALL SELECT min(l.lease_until) FROM launch l JOIN host h ON h.id = l.host_id
                WHERE l.status IN ('running', 'waiting') AND l.status = 'running' AND h.ended_at IS NOT NULL) AS next";

    /// Returns the live hosts, oldest first.
    pub async fn live() -> Vec<Host> = rows
        concat!(host_columns!(), "WHERE ended_at IS NULL ORDER BY started_at");

    /// Returns the newest process of each host, and every live one, by name.
    // The index leads from one name to the next, however many processes each has had.
    pub async fn newest() -> Vec<Host> = rows
        concat!("WITH RECURSIVE named (n) AS (
            SELECT min(name) FROM host WHERE ended_at IS NOT NULL
            UNION ALL SELECT (SELECT min(h.name) FROM host h WHERE h.ended_at IS NOT NULL AND h.name > named.n)
                FROM named WHERE named.n IS NOT NULL)
        ", host_columns!(), "WHERE id IN (SELECT l.id FROM host l WHERE l.ended_at IS NULL
            UNION SELECT (SELECT h.id FROM host h WHERE h.ended_at IS NOT NULL AND h.name = named.n
                ORDER BY h.started_at DESC LIMIT 1) FROM named)
            AND (ended_at IS NULL OR NOT EXISTS (SELECT 1 FROM host later
                WHERE later.ended_at IS NULL AND later.name = host.name AND later.started_at > host.started_at))
        ORDER BY name, started_at");

    /// Returns when the last processes of hosts began and ended: the newest `limit` of each name.
    pub async fn lives(names: &[&str], limit: i64) -> Vec<HostLife> = rows_batch
        Batch::new("SELECT host.name, host.started_at, host.heartbeat_at, host.ended_at, host.end_reason
        FROM host JOIN (VALUES ($1, $2)) AS v ON host.name = v.column1
        WHERE host.number > (SELECT max(n.number) FROM host n WHERE n.name = v.column1) - v.column2"),
        names, |name| [*name, limit];

    /// Returns the newest process of the host `name`.
    pub async fn find(name: &str) -> Option<Host> = row
        concat!(host_columns!(), "WHERE name = $1 ORDER BY started_at DESC LIMIT 1");

    /// Returns the process `id`.
    pub async fn with_id(id: HostId) -> Option<Host> = row concat!(host_columns!(), "WHERE id = $1");

    /// Record that a host is to claim nothing. False when that is on record already.
    pub async fn drain(id: HostId, by: &str, now: Timestamp) -> bool = changed
        "UPDATE host SET drained_at = $3, drained_by = $2, claims_ended_at = NULL WHERE id = $1 AND drained_at IS NULL"
        => [id, storable(by), now];

    /// Record that a host is to claim launches again. False when it was not drained.
    pub async fn end_drain(id: HostId) -> bool = changed
        "UPDATE host SET drained_at = NULL, drained_by = NULL, claims_ended_at = NULL WHERE id = $1 AND drained_at IS NOT NULL";

    /// Record that a drained host has committed its last claim.
    pub async fn end_claims(id: HostId, now: Timestamp) -> () = run
        "UPDATE host SET claims_ended_at = $2 WHERE id = $1 AND drained_at IS NOT NULL AND claims_ended_at IS NULL";

    /// Count the runs of each host that has any. A run that waits for a retry does not count.
    // The first condition follows from the second. It leads to the index of active runs.
    pub async fn running() -> Vec<(HostId, i64)> = rows
        "SELECT host_id, count(*) FROM launch WHERE status IN ('running', 'waiting') AND status = 'running' GROUP BY host_id";
}

/// Mark the hosts as dead whose lease has ended, and return them.
pub async fn mark_silent_dead(tx: &mut Tx, now: Timestamp) -> Result<Vec<DeadHost>> {
    let silent = silent(tx, now).await?;
    mark_dead(tx, &silent, now).await?;
    Ok(silent)
}

/// Mark the earlier hosts called `name` as dead, and end their lease of the chores and those of their runs. Only the process
/// that holds the lock of that name may call this: the lock proves that they have ended or lost the database.
///
/// Their own leases stay: a delivery of a message may still be under way until then.
pub async fn mark_predecessors_dead(
    tx: &mut Tx,
    name: &str,
    now: Timestamp,
) -> Result<Vec<DeadHost>> {
    // Hosts first: a heartbeat locks its host, then its launches and the lease of the chores.
    let dead = mark_earlier_dead(tx, name, now).await?;
    end_leases(tx, name, now).await?;
    chores::release_earlier(tx, name, now).await?;
    Ok(dead)
}
