//! Buckets of keys and values, each under its namespace, for tasks that have a bucket grant.
//!
//! Keys are bytes to the database: no collation orders them, and the database refuses none. A transaction that writes
//! to a bucket locks its row until the commit, so that the recorded size is exact.

use std::collections::HashMap;

use sqlx::FromRow;

use super::sql::{Batch, execute_batch, one_row, rows_batch, run, statements};
use super::{DbError, Tx};

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

macro_rules! listed {
    () => {
        ") AS v ON e.namespace = v.column1 AND e.key = v.column2"
    };
}

statements! {
    const LOCK: &str = "INSERT INTO bucket (namespace, bytes, last_position) VALUES ($1, 0, 0)
        ON CONFLICT (namespace) DO UPDATE SET bytes = bucket.bytes RETURNING bytes, last_position";
    const RESIZE: &str = "UPDATE bucket SET bytes = $2, last_position = $3 WHERE namespace = $1";
    const VALUES: Batch = Batch::new("SELECT e.key, e.value FROM bucket_entry e JOIN (VALUES ", 2, listed!());
    const SIZES: Batch = Batch::new(
        "SELECT e.key, CAST(length(e.value) AS BIGINT) FROM bucket_entry e JOIN (VALUES ", 2, listed!(),
    );
    const SET: Batch = Batch::new(
        "INSERT INTO bucket_entry (namespace, key, position, value) VALUES ",
        4,
        " ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value",
    );
    // All rows of the list have the same namespace. SQLite would walk the table for a list of pairs.
    const DELETE: Batch = Batch::new(
        "WITH v AS (SELECT * FROM (VALUES ",
        2,
        ") AS listed) DELETE FROM bucket_entry WHERE namespace IN (SELECT column1 FROM v) AND key IN (SELECT column2 FROM v)",
    );

    /// Return up to `limit` keys after the position `after`, by position.
    pub async fn keys(namespace: &str, after: i64, limit: i64) -> Vec<KeyRow> = rows
        "SELECT position, key FROM bucket_entry WHERE namespace = $1 AND position > $2 ORDER BY position LIMIT $3";
}

/// Lock the bucket until the end of the transaction; create it if there is none.
///
/// # Errors
///
/// `Busy` when another transaction holds the lock for 2 seconds.
pub async fn lock(tx: &mut Tx, namespace: &str) -> Result<BucketRow, DbError> {
    if let Tx::Postgres(tx) = tx {
        sqlx::query(WAIT_AT_MOST).execute(&mut **tx).await?;
    }
    one_row!(tx, LOCK, namespace)
}

/// Record the size of a locked bucket.
pub async fn resize(tx: &mut Tx, namespace: &str, row: BucketRow) -> Result<(), DbError> {
    run!(tx, RESIZE, namespace, row.bytes, row.last_position)
}

/// Return the values of those of `keys` that exist, by key.
pub async fn values(
    tx: &mut Tx,
    namespace: &str,
    keys: &[&str],
) -> Result<HashMap<Vec<u8>, Vec<u8>>, DbError> {
    let found: Vec<(Vec<u8>, Vec<u8>)> =
        rows_batch!(tx, VALUES, keys, |key| [namespace, key.as_bytes()]);
    Ok(found.into_iter().collect())
}

/// Return the bytes of the values of those of `keys` that exist, by key.
pub async fn sizes(
    tx: &mut Tx,
    namespace: &str,
    keys: &[&str],
) -> Result<HashMap<Vec<u8>, i64>, DbError> {
    let found: Vec<(Vec<u8>, i64)> =
        rows_batch!(tx, SIZES, keys, |key| [namespace, key.as_bytes()]);
    Ok(found.into_iter().collect())
}

/// Set values. No two entries have the same key.
pub async fn set(tx: &mut Tx, namespace: &str, entries: &[SetEntry<'_>]) -> Result<(), DbError> {
    execute_batch!(tx, SET, entries, |entry| [
        namespace,
        entry.key.as_bytes(),
        entry.position,
        entry.value,
    ]);
    Ok(())
}

/// Delete those of `keys` that exist, with their values.
pub async fn delete(tx: &mut Tx, namespace: &str, keys: &[&str]) -> Result<(), DbError> {
    execute_batch!(tx, DELETE, keys, |key| [namespace, key.as_bytes()]);
    Ok(())
}
