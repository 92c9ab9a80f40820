//! Buckets of keys and values, each under its namespace, for tasks that have a bucket grant.
//!
//! Keys are bytes to the database: no collation orders them, and the database refuses none. A transaction that writes
//! to a bucket locks its row until the commit, so that the recorded size is exact.

use sqlx::FromRow;

use super::sql::{Batch, one_row, statements};
use super::{Result, Tx};

/// The size of a bucket, and the last position that a key got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct BucketRow {
    /// The bytes of all entries, as the sandbox counts them.
    pub bytes: i64,
    pub last_position: i64,
}

/// A key, and its position in the order in which keys were first set.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct KeyRow {
    pub position: i64,
    pub key: Vec<u8>,
}

/// A value to set. A new key gets `position`; an existing key keeps its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetEntry<'a> {
    pub key: &'a str,
    pub position: i64,
    pub value: &'a [u8],
}

/// On Postgres only. SQLite has one writer, and its connections have a time-out already.
const WAIT_AT_MOST: &str = "SET LOCAL lock_timeout = '2s'";

statements! {
    const LOCK: &str = "INSERT INTO bucket (namespace, bytes, last_position) VALUES ($1, 0, 0)
        ON CONFLICT (namespace) DO UPDATE SET bytes = bucket.bytes RETURNING bytes, last_position";

    /// Returns up to `limit` keys after the position `after`, by position.
    pub async fn keys(namespace: &str, after: i64, limit: i64) -> Vec<KeyRow> = rows
        "SELECT position, key FROM bucket_entry WHERE namespace = $1 AND position > $2 ORDER BY position LIMIT $3";

    /// Record the size of a locked bucket, and the last position that a key got.
    pub async fn resize(namespace: &str, bytes: i64, last_position: i64) -> () = run
        "UPDATE bucket SET bytes = $2, last_position = $3 WHERE namespace = $1";

    /// Returns the bytes of all buckets whose names match `pattern`.
    pub async fn bytes_like(pattern: &str) -> i64 = one_value
        "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM bucket WHERE namespace LIKE $1";

    /// Returns those of `keys` that exist, each with its value.
    pub async fn values(namespace: &str, keys: &[&str]) -> Vec<(Vec<u8>, Vec<u8>)> = rows_batch
        Batch::new("SELECT e.key, e.value FROM bucket_entry e
        JOIN (VALUES ($1, $2)) AS v ON e.namespace = v.column1 AND e.key = v.column2"),
        keys, |key| [namespace, key.as_bytes()];

    /// Returns those of `keys` that exist, each with the bytes of its value.
    pub async fn sizes(namespace: &str, keys: &[&str]) -> Vec<(Vec<u8>, i64)> = rows_batch
        Batch::new("SELECT e.key, CAST(length(e.value) AS BIGINT) FROM bucket_entry e
        JOIN (VALUES ($1, $2)) AS v ON e.namespace = v.column1 AND e.key = v.column2"),
        keys, |key| [namespace, key.as_bytes()];

    /// Set values. No two entries have the same key.
    pub async fn set(namespace: &str, entries: &[SetEntry<'_>]) -> () = execute_batch
        Batch::new("INSERT INTO bucket_entry (namespace, key, position, value) VALUES ($1, $2, $3, $4)
        ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value"),
        entries, |entry| [namespace, entry.key.as_bytes(), entry.position, entry.value];

    /// Delete those of `keys` that exist, with their values.
    // All rows of the list have the same namespace. SQLite would walk the table for a list of pairs.
    pub async fn delete(namespace: &str, keys: &[&str]) -> () = execute_batch
        Batch::new("WITH v AS (SELECT * FROM (VALUES ($1, $2)) AS listed)
        DELETE FROM bucket_entry WHERE namespace IN (SELECT column1 FROM v) AND key IN (SELECT column2 FROM v)"),
        keys, |key| [namespace, key.as_bytes()];
}

/// Lock the bucket until the end of the transaction; create it if there is none.
///
/// # Errors
///
/// `Busy` when another transaction holds the lock for 2 seconds.
pub async fn lock(tx: &mut Tx, namespace: &str) -> Result<BucketRow> {
    if let Tx::Postgres(tx) = tx {
        sqlx::query(WAIT_AT_MOST).execute(&mut *tx.tx).await?;
    }
    one_row!(tx, LOCK, namespace)
}
