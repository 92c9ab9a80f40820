//! Buckets of keys and values, each under its namespace, for tasks that were granted one.
//!
//! Keys are bytes to the database: no collation orders them and none of them is refused. Whoever writes to a bucket
//! holds its row until the commit, so that its size is exact; whoever waits for that row does not wait for long.

use sqlx::FromRow;

use super::{DbError, Tx, on};

/// How large a bucket is, and the last place it gave to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct BucketRow {
    /// Of all entries, as [`campanile_sandbox::entry_bytes`] counts them.
    pub bytes: i64,
    pub last_place: i64,
}

/// A key, and its place in the order in which keys were first set.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct KeyRow {
    pub place: i64,
    pub key: Vec<u8>,
}

/// On Postgres only; SQLite has one writer, and its connections have a time-out already.
const WAIT_AT_MOST: &str = "SET LOCAL lock_timeout = '2s'";
const LOCK: &str = "INSERT INTO bucket (namespace, bytes, last_place) VALUES ($1, 0, 0)
    ON CONFLICT (namespace) DO UPDATE SET bytes = bucket.bytes RETURNING bytes, last_place";
const RESIZE: &str = "UPDATE bucket SET bytes = $2, last_place = $3 WHERE namespace = $1";
const VALUE: &str = "SELECT value FROM bucket_entry WHERE namespace = $1 AND key = $2";
const SIZE: &str =
    "SELECT CAST(length(value) AS BIGINT) FROM bucket_entry WHERE namespace = $1 AND key = $2";
const KEYS: &str = "SELECT place, key FROM bucket_entry WHERE namespace = $1 AND place > $2 ORDER BY place LIMIT $3";
const SET: &str = "INSERT INTO bucket_entry (namespace, key, place, value) VALUES ($1, $2, $3, $4)
    ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value";
const DELETE: &str = "DELETE FROM bucket_entry WHERE namespace = $1 AND key = $2";

/// Every statement of this table that both databases share, for the test that prepares them on both.
pub const STATEMENTS: &[&str] = &[LOCK, RESIZE, VALUE, SIZE, KEYS, SET, DELETE];

/// Hold the bucket until the end of the transaction, making it if it is not there.
///
/// # Errors
///
/// `Busy` when another transaction holds it for seconds.
pub async fn lock(tx: &mut Tx, namespace: &str) -> Result<BucketRow, DbError> {
    if let Tx::Postgres(tx) = tx {
        sqlx::query(WAIT_AT_MOST).execute(&mut **tx).await?;
    }
    Ok(on!(tx, |conn| sqlx::query_as(LOCK)
        .bind(namespace)
        .fetch_one(conn)
        .await)?)
}

/// Put the size of a bucket that is held on the record.
pub async fn resize(tx: &mut Tx, namespace: &str, row: BucketRow) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(RESIZE)
        .bind(namespace)
        .bind(row.bytes)
        .bind(row.last_place)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// The value under `key`.
pub async fn value(tx: &mut Tx, namespace: &str, key: &str) -> Result<Option<Vec<u8>>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(VALUE)
        .bind(namespace)
        .bind(key.as_bytes())
        .fetch_optional(conn)
        .await)?)
}

/// The bytes of the value under `key`.
pub async fn size(tx: &mut Tx, namespace: &str, key: &str) -> Result<Option<i64>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(SIZE)
        .bind(namespace)
        .bind(key.as_bytes())
        .fetch_optional(conn)
        .await)?)
}

/// Up to `most` keys after the place `after`, by their places.
pub async fn keys(
    tx: &mut Tx,
    namespace: &str,
    after: i64,
    most: i64,
) -> Result<Vec<KeyRow>, DbError> {
    Ok(on!(tx, |conn| sqlx::query_as(KEYS)
        .bind(namespace)
        .bind(after)
        .bind(most)
        .fetch_all(conn)
        .await)?)
}

/// Set the value under `key`; `place` is that of a new key.
pub async fn set(
    tx: &mut Tx,
    namespace: &str,
    key: &str,
    place: i64,
    value: &[u8],
) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(SET)
        .bind(namespace)
        .bind(key.as_bytes())
        .bind(place)
        .bind(value)
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// Delete `key` and its value, if it is there.
pub async fn delete(tx: &mut Tx, namespace: &str, key: &str) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(DELETE)
        .bind(namespace)
        .bind(key.as_bytes())
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}
