//! Deliveries of messages, whichever table holds them: those of the outbox, and those about alerts.
//!
//! A host claims a pending message by compare-and-set on `attempts`, the number of its deliveries, and records the end of
//! the delivery under the same number. `next_attempt_at` of a claimed message is the end of the claim: then any host may
//! deliver the message again.

use sqlx::FromRow;

use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, MessageId};
pub use campanile_model::status::MessageStatus;

/// A message that is due, before a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromRow)]
pub struct DueMessage {
    pub id: MessageId,
    pub attempts: i64,
}

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryEnd<'e> {
    pub id: MessageId,
    /// The number of the delivery.
    pub attempts: i64,
    pub status: MessageStatus,
    /// Only of a pending message.
    pub next_attempt_at: Option<Timestamp>,
    /// Only of a message that is not pending.
    pub finished_at: Option<Timestamp>,
    /// The status of the receiver's answer.
    pub answer: Option<i64>,
    pub error: Option<&'e str>,
}

/// A message that was given up.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct DeadMessage {
    pub id: MessageId,
    /// The package or the channel.
    pub sender: String,
    /// The request, or the rule.
    pub what: String,
    pub attempts: i64,
    pub error: Option<String>,
}

/// A table of messages that hosts deliver.
pub trait MessageTable {
    /// A message that a host has claimed.
    type Claimed: Send + Sync;

    /// Claims a message for a host until `until`. Returns none when another host has claimed it.
    fn claim(
        tx: &mut Tx,
        due: DueMessage,
        host: HostId,
        until: Timestamp,
    ) -> impl Future<Output = Result<Option<Self::Claimed>>> + Send;

    /// Records the end of a delivery. Returns false when the message was claimed again or discarded meanwhile.
    fn end(tx: &mut Tx, end: &DeliveryEnd<'_>) -> impl Future<Output = Result<bool>> + Send;

    /// Whether [`release`](MessageTable::release) or [`give_up`](MessageTable::give_up) has something to do.
    fn has_overdue(tx: &mut Tx, now: Timestamp) -> impl Future<Output = Result<bool>> + Send;

    /// Ends the claims of hosts that have ended, so that their messages are due at `now`.
    fn release(tx: &mut Tx, now: Timestamp) -> impl Future<Output = Result<()>> + Send;

    /// Gives up at most `limit` messages that are due after their last delivery could begin, and returns them.
    fn give_up(
        tx: &mut Tx,
        now: Timestamp,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<DeadMessage>>> + Send;
}

/// Declares the statements that deliver the messages of a table, in a module `delivery`, and the table's [`MessageTable`].
///
/// A claimed message is read from the columns named first, `sender` and `what` of a [`DeadMessage`] from those after `dead`.
macro_rules! deliveries {
    ($name:ident = $table:literal, $claimed:ident $columns:literal, dead $dead:literal) => {
        /// The statements of a delivery.
        pub(crate) mod delivery {
            use super::$claimed;
            use crate::messages::{DeadMessage, DeliveryEnd, DueMessage};
            use crate::sql::statements;
            use crate::types::storable;
            use campanile_model::clock::Timestamp;
            use campanile_model::ids::HostId;

            statements! {
                /// See [`MessageTable::claim`](crate::messages::MessageTable::claim).
                pub async fn claim(due: DueMessage, host: HostId, until: Timestamp) -> Option<$claimed> = row
                    concat!("UPDATE ", $table, " SET attempts = attempts + 1, host_id = $3, next_attempt_at = $4
                    WHERE id = $1 AND attempts = $2 AND status = 'pending' RETURNING ", $columns)
                    => [due.id, due.attempts, host, until];

                /// See [`MessageTable::end`](crate::messages::MessageTable::end).
                pub async fn end(end: &DeliveryEnd<'_>) -> bool = changed
                    concat!("UPDATE ", $table, " SET status = $3, next_attempt_at = $4, finished_at = $5, answer = $6, error = $7,
                        host_id = NULL WHERE id = $1 AND attempts = $2 AND status = 'pending'")
                    => [end.id, end.attempts, end.status, end.next_attempt_at, end.finished_at, end.answer, end.error.map(storable)];

                /// Whether hosts that have ended, and whose leases have ended too, still have claims after `now`.
                pub async fn has_orphans(now: Timestamp) -> bool = one_value
                    concat!("SELECT EXISTS (SELECT 1 FROM ", $table, " m JOIN host h ON h.id = m.host_id
                        WHERE m.host_id IS NOT NULL AND m.next_attempt_at > $1
                            AND h.ended_at IS NOT NULL AND (h.end_reason = 'stopped' OR h.lease_until <= $1))");

                /// See [`MessageTable::release`](crate::messages::MessageTable::release).
                // A host that was marked as dead may be delivering until its lease has ended.
                pub async fn release_orphans(now: Timestamp) -> () = run
                    concat!("UPDATE ", $table, " SET host_id = NULL, next_attempt_at = $1 WHERE host_id IS NOT NULL AND next_attempt_at > $1
                        AND host_id IN (SELECT h.id FROM host h
                            WHERE h.ended_at IS NOT NULL AND (h.end_reason = 'stopped' OR h.lease_until <= $1))");

                /// Whether messages are due after their last delivery could begin.
                pub async fn has_late(now: Timestamp) -> bool = one_value
                    concat!("SELECT EXISTS (SELECT 1 FROM ", $table, " WHERE status = 'pending' AND give_up_at < $1 AND next_attempt_at <= $1)");

                /// See [`MessageTable::give_up`](crate::messages::MessageTable::give_up).
                pub async fn give_up(now: Timestamp, limit: i64) -> Vec<DeadMessage> = rows
                    concat!("UPDATE ", $table, " SET status = 'dead', next_attempt_at = NULL, finished_at = $1, host_id = NULL
                        WHERE id IN (SELECT id FROM ", $table, " WHERE status = 'pending' AND give_up_at < $1 AND next_attempt_at <= $1
                            ORDER BY give_up_at LIMIT $2) AND status = 'pending' AND next_attempt_at <= $1
                        RETURNING id, ", $dead, ", attempts, error");
            }
        }

        #[doc = concat!("The table `", $table, "`.")]
        pub struct $name;

        impl $crate::messages::MessageTable for $name {
            type Claimed = $claimed;

            async fn claim(
                tx: &mut $crate::Tx,
                due: DueMessage,
                host: campanile_model::ids::HostId,
                until: Timestamp,
            ) -> $crate::Result<Option<$claimed>> {
                delivery::claim(tx, due, host, until).await
            }

            async fn end(tx: &mut $crate::Tx, end: &DeliveryEnd<'_>) -> $crate::Result<bool> {
                delivery::end(tx, end).await
            }

            async fn has_overdue(tx: &mut $crate::Tx, now: Timestamp) -> $crate::Result<bool> {
                Ok(delivery::has_orphans(tx, now).await? || delivery::has_late(tx, now).await?)
            }

            async fn release(tx: &mut $crate::Tx, now: Timestamp) -> $crate::Result<()> {
                delivery::release_orphans(tx, now).await
            }

            async fn give_up(tx: &mut $crate::Tx, now: Timestamp, limit: i64) -> $crate::Result<Vec<DeadMessage>> {
                delivery::give_up(tx, now, limit).await
            }
        }
    };
}

pub(crate) use deliveries;
