//! The buckets of `wasi:keyvalue`, kept in the database for one run.

use futures_util::future::BoxFuture;

use crate::db::buckets::{self, BucketRow};
use crate::db::{Db, DbError, Tx, runs};
use crate::ids::RunId;
use crate::wasm::{BucketError, Buckets, Change, add, check_growth, entry_bytes};

/// The buckets as one run may use them: it writes only while it is the run that counts, so that one which was taken
/// over by another host changes nothing any more.
pub struct RunBuckets {
    pub db: Db,
    pub run: RunId,
    /// The fence under which the run was taken.
    pub token: i64,
}

impl RunBuckets {
    async fn write_in(
        &self,
        tx: &mut Tx,
        namespace: &str,
        changes: &[Change],
        bytes_max: u64,
    ) -> Result<u64, BucketError> {
        if !runs::hold(tx, self.run, self.token).await? {
            return Err(BucketError::NotHeld);
        }
        let before = buckets::lock(tx, namespace).await?;
        let mut after = before;
        for (key, value) in changes {
            change(tx, namespace, key, value.as_deref(), &mut after).await?;
        }
        let bytes = unsigned(after.bytes);
        check_growth(unsigned(before.bytes), bytes, bytes_max)?;
        buckets::resize(tx, namespace, after).await?;
        Ok(bytes)
    }
}

/// Make one change, and count it.
async fn change(
    tx: &mut Tx,
    namespace: &str,
    key: &str,
    value: Option<&[u8]>,
    row: &mut BucketRow,
) -> Result<(), DbError> {
    let old = buckets::size(tx, namespace, key).await?;
    let without_value = signed(entry_bytes(key, &[]));
    if let Some(bytes) = old {
        row.bytes -= without_value + bytes;
    }
    let Some(value) = value else {
        return buckets::delete(tx, namespace, key).await;
    };
    row.bytes += without_value + signed(value.len() as u64);
    if old.is_none() {
        row.last_place += 1;
    }
    buckets::set(tx, namespace, key, row.last_place, value).await
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl From<DbError> for BucketError {
    fn from(error: DbError) -> BucketError {
        BucketError::Unreachable(error.to_string())
    }
}

impl Buckets for RunBuckets {
    fn get<'a>(
        &'a self,
        namespace: &'a str,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<Vec<u8>>>, BucketError>> {
        Box::pin(async move {
            let mut tx = self.db.read().await?;
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(buckets::value(&mut tx, namespace, key).await?);
            }
            Ok(values)
        })
    }

    fn keys<'a>(
        &'a self,
        namespace: &'a str,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, String)>, BucketError>> {
        Box::pin(async move {
            let mut tx = self.db.read().await?;
            let most = signed(most as u64);
            let rows = buckets::keys(&mut tx, namespace, signed(after), most).await?;
            let keys = rows.into_iter().map(|row| {
                // Only texts are set.
                let key = String::from_utf8_lossy(&row.key).into_owned();
                (unsigned(row.place), key)
            });
            Ok(keys.collect())
        })
    }

    fn write<'a>(
        &'a self,
        namespace: &'a str,
        changes: &'a [Change],
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<u64, BucketError>> {
        Box::pin(async move {
            let mut tx = self.db.write().await?;
            let bytes = self
                .write_in(&mut tx, namespace, changes, bytes_max)
                .await?;
            tx.commit().await?;
            Ok(bytes)
        })
    }

    fn increment<'a>(
        &'a self,
        namespace: &'a str,
        key: &'a str,
        delta: u64,
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<(u64, u64), BucketError>> {
        Box::pin(async move {
            let mut tx = self.db.write().await?;
            // The run before the bucket, as in every change: two in opposite orders would wait for each other.
            if !runs::hold(&mut tx, self.run, self.token).await? {
                return Err(BucketError::NotHeld);
            }
            buckets::lock(&mut tx, namespace).await?;
            let value = buckets::value(&mut tx, namespace, key).await?;
            let sum = add(key, value.as_deref(), delta)?;
            let change = (key.to_owned(), Some(sum.to_string().into_bytes()));
            let bytes = self
                .write_in(&mut tx, namespace, &[change], bytes_max)
                .await?;
            tx.commit().await?;
            Ok((sum, bytes))
        })
    }
}
