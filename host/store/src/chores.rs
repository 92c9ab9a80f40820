//! The lease of the chores: one host at a time removes old rows, seals the record, corrects next slots and watches health.
//!
//! The lease is one row. Its epoch is incremented each time that a host takes the lease, so that a host with an older epoch
//! is a former holder.
//!
//! ```text
//! renewal     FOR NO KEY UPDATE SKIP LOCKED ┐ both at once: a renewal does not wait for a chore
//! chore       FOR KEY SHARE, until it ends  ┘
//! take        FOR UPDATE SKIP LOCKED          not while a chore's transaction has not ended
//! ```
//!
//! So a chore that has seen its epoch ends before another host takes the lease. SQLite has one writer, and needs no locks.

use sqlx::FromRow;

use super::sql::{Locking, statements};
use campanile_model::clock::Timestamp;
use campanile_model::ids::HostId;

/// The host that took the lease last.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ChoreLease {
    pub host_id: HostId,
    /// How often the lease was taken.
    pub epoch: i64,
    /// When this host took it.
    pub chores_since: Timestamp,
    /// Another host may take it from then on.
    pub lease_until: Timestamp,
}

statements! {
    /// Take the lease if it has ended at `now` and no chore is under way. Return the new epoch.
    pub async fn take(host: HostId, now: Timestamp, lease_until: Timestamp) -> Option<i64> = value Locking {
        sqlite: "UPDATE chore_lease SET host_id = $1, epoch = epoch + 1, chores_since = $2, lease_until = $3
            WHERE id = 1 AND (host_id IS NULL OR lease_until <= $2) RETURNING epoch",
        postgres: "UPDATE chore_lease SET host_id = $1, epoch = epoch + 1, chores_since = $2, lease_until = $3
            WHERE id = (SELECT id FROM chore_lease WHERE id = 1 AND (host_id IS NULL OR lease_until <= $2) FOR UPDATE SKIP LOCKED)
            RETURNING epoch",
    };

    /// Renew the lease of an epoch. False when another host has taken it, or takes it now.
    pub async fn renew(host: HostId, epoch: i64, lease_until: Timestamp) -> bool = changed Locking {
        sqlite: "UPDATE chore_lease SET lease_until = $3 WHERE id = 1 AND host_id = $1 AND epoch = $2",
        postgres: "UPDATE chore_lease SET lease_until = $3
            WHERE id = (SELECT id FROM chore_lease WHERE id = 1 AND host_id = $1 AND epoch = $2 FOR NO KEY UPDATE SKIP LOCKED)",
    };

    /// Returns the epoch if the host still has the lease. Until the transaction ends, no other host takes it.
    pub async fn fence(host: HostId, epoch: i64) -> Option<i64> = value Locking {
        sqlite: "SELECT epoch FROM chore_lease WHERE id = 1 AND host_id = $1 AND epoch = $2",
        postgres: "SELECT epoch FROM chore_lease WHERE id = 1 AND host_id = $1 AND epoch = $2 FOR KEY SHARE",
    };

    /// End the lease of a host that stops, so that another one takes it at once.
    pub async fn release(host: HostId, now: Timestamp) -> () = run
        "UPDATE chore_lease SET lease_until = $2 WHERE id = 1 AND host_id = $1 AND lease_until > $2";

    /// End the lease of the earlier processes of the host `name`.
    pub(super) async fn release_earlier(name: &str, now: Timestamp) -> () = run
        "UPDATE chore_lease SET lease_until = $2 WHERE id = 1 AND lease_until > $2
            AND host_id IN (SELECT h.id FROM host h WHERE h.name = $1 AND h.ended_at = $2)";

    /// Returns the host that took the lease last; none before the first.
    pub async fn holder() -> Option<ChoreLease> = row
        "SELECT host_id, epoch, chores_since, lease_until FROM chore_lease WHERE id = 1 AND host_id IS NOT NULL";
}
