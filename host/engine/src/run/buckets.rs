//! The buckets of `wasi:keyvalue`, kept in the database for one run.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::Semaphore;

use campanile_model::ids::RunId;
use campanile_package::quota::{Namespaces, quota_of};
use campanile_sandbox::{
    BucketError, BucketResult, BucketSession, Buckets, Change, Sessions, add, async_trait,
    check_growth, entry_bytes,
};
use campanile_store::buckets::{self, BucketRow, SetEntry};
use campanile_store::{Db, DbError, Tx, launch};

/// Operations of all guests at the same time; the database's other connections are for the engine.
const AT_ONCE: usize = 3;

/// Limits the operations of a host's guests.
#[derive(Clone, Debug)]
pub struct BucketPermits(Arc<Semaphore>);

impl Default for BucketPermits {
    fn default() -> BucketPermits {
        BucketPermits(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// The buckets as one run may use them. It writes only while this host has not lost its claim on the run.
pub struct RunBuckets {
    pub db: Db,
    pub run: RunId,
    /// The fence of the run's claim.
    pub fence: i64,
    pub permits: BucketPermits,
    pub namespaces: Arc<Namespaces>,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BucketFault {
    #[error(transparent)]
    Refused(#[from] BucketError),
    #[error(transparent)]
    Db(#[from] DbError),
}

impl RunBuckets {
    /// Runs an operation with a permit, again while another transaction collides with it.
    ///
    /// The log has the database's error; the guest does not learn it.
    async fn permitted<T, F>(&self, operation: impl Fn() -> F) -> BucketResult<T>
    where
        F: Future<Output = Result<T, BucketFault>>,
    {
        // The semaphore is never closed.
        let _permit = self.permits.0.acquire().await;
        let is_busy = |fault: &BucketFault| matches!(fault, BucketFault::Db(DbError::Busy(_)));
        let done = campanile_store::retry(is_busy, operation).await;
        done.map_err(|fault| match fault {
            BucketFault::Refused(refusal) => refusal,
            BucketFault::Db(error) => {
                tracing::warn!(%error, "an operation on a bucket failed");
                BucketError::Unreachable
            }
        })
    }

    /// Begins a transaction that has locked a bucket.
    async fn lock(&self, namespace: &str) -> Result<(Tx, BucketRow), DbError> {
        let mut tx = self.db.write().await?;
        let row = buckets::lock(&mut tx, namespace).await?;
        Ok((tx, row))
    }

    /// Changes a locked bucket and commits; returns the bytes that it has then.
    async fn change(
        &self,
        (mut tx, before): (Tx, BucketRow),
        namespace: &str,
        changes: &[Change],
        bytes_max: u64,
    ) -> Result<u64, BucketFault> {
        let bucket = (namespace, before, bytes_max);
        let bytes = apply_within(&mut tx, &self.namespaces, bucket, changes).await?;
        // This lock is the last statement, because the lease keeper's renewal waits while it is held.
        if !launch::lock_if_current(&mut tx, self.run, self.fence).await? {
            return Err(BucketError::ClaimLost.into());
        }
        tx.commit().await?;
        Ok(bytes)
    }
}

/// The buckets of a call's sessions, locked until the end of the transaction.
pub(crate) struct LockedBuckets<'s>(Vec<(&'s str, &'s BucketSession, BucketRow)>);

/// The keys whose values a commit reads at once. Each value may have megabytes.
const KEYS_CHECKED_AT_ONCE: usize = 16;

impl LockedBuckets<'_> {
    /// Locks the buckets of `sessions`, sorted by their names, so that two transactions cannot deadlock.
    pub async fn lock<'s>(
        tx: &mut Tx,
        sessions: &'s Sessions,
    ) -> Result<LockedBuckets<'s>, DbError> {
        let mut locked = Vec::with_capacity(sessions.len());
        for (namespace, session) in sessions {
            let row = buckets::lock(tx, namespace).await?;
            locked.push((namespace.as_str(), session, row));
        }
        Ok(LockedBuckets(locked))
    }

    /// Makes the changes of the sessions. After an error the transaction must not be committed.
    pub async fn apply(self, tx: &mut Tx, namespaces: &Namespaces) -> Result<(), BucketFault> {
        for (namespace, session, row) in self.0 {
            let sums = check(tx, namespace, session).await?;
            let changes = session.changes(&sums);
            let bucket = (namespace, row, session.bytes_max);
            apply_within(tx, namespaces, bucket, &changes).await?;
        }
        Ok(())
    }
}

/// Check the values that a session has read, and return the sums of the numbers that it increments.
async fn check(
    tx: &mut Tx,
    namespace: &str,
    session: &BucketSession,
) -> Result<BTreeMap<String, u64>, BucketFault> {
    let mut sums = BTreeMap::new();
    for keys in session.keys_to_check().chunks(KEYS_CHECKED_AT_ONCE) {
        let values = buckets::values(tx, namespace, keys).await?;
        let values: HashMap<Vec<u8>, Vec<u8>> = values.into_iter().collect();
        for key in keys {
            let value = values.get(key.as_bytes()).map(Vec::as_slice);
            if let Some(sum) = session.check(key, value)? {
                sums.insert((*key).to_owned(), sum);
            }
        }
    }
    Ok(sums)
}

/// Applies changes to a locked bucket, and returns the bytes that it has then. Refuses growth beyond its limit, and beyond the quota
/// of its namespace.
async fn apply_within(
    tx: &mut Tx,
    namespaces: &Namespaces,
    (namespace, before, bytes_max): (&str, BucketRow, u64),
    changes: &[Change],
) -> Result<u64, BucketFault> {
    let after = apply(tx, namespace, before, changes).await?;
    let (bytes_before, bytes) = (unsigned(before.bytes), unsigned(after.bytes));
    check_growth(bytes_before, bytes, bytes_max)?;
    buckets::resize(tx, namespace, after.bytes, after.last_position).await?;
    check_namespace(tx, namespaces, namespace, bytes_before, bytes).await?;
    Ok(bytes)
}

/// Refuses growth of a bucket, which is `bytes` large now, beyond the quota of its namespace.
///
/// Buckets that grow at the same moment may together exceed the quota by what each grows.
async fn check_namespace(
    tx: &mut Tx,
    namespaces: &Namespaces,
    bucket: &str,
    before: u64,
    bytes: u64,
) -> Result<(), BucketFault> {
    let Some((namespace, quota)) = quota_of(namespaces, bucket) else {
        return Ok(());
    };
    let Some(bytes_max) = quota.bucket_bytes.filter(|_| bytes > before) else {
        return Ok(());
    };
    let pattern = format!("{}%", namespace.prefix());
    let bytes = unsigned(buckets::bytes_like(tx, &pattern).await?);
    if bytes > bytes_max {
        Err(BucketError::NamespaceFull {
            namespace: namespace.to_string(),
            bytes,
            bytes_max,
        }
        .into())
    } else {
        Ok(())
    }
}

/// Applies changes in their order, later ones over earlier ones; returns the size of the bucket and its last position.
async fn apply(
    tx: &mut Tx,
    namespace: &str,
    mut row: BucketRow,
    changes: &[Change],
) -> Result<BucketRow, DbError> {
    let keys: BTreeSet<&str> = changes.iter().map(|(key, _)| key.as_str()).collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let sizes = buckets::sizes(tx, namespace, &keys).await?;
    let mut sizes: HashMap<Vec<u8>, i64> = sizes.into_iter().collect();
    let mut deleted: BTreeSet<&str> = BTreeSet::new();
    let mut set: BTreeMap<&str, SetEntry<'_>> = BTreeMap::new();
    for (key, value) in changes {
        let without_value = signed(entry_bytes(key, &[]));
        let old = sizes.remove(key.as_bytes());
        if let Some(bytes) = old {
            row.bytes -= without_value + bytes;
        }
        let Some(value) = value else {
            set.remove(key.as_str());
            deleted.insert(key);
            continue;
        };
        let bytes = signed(value.len() as u64);
        row.bytes += without_value + bytes;
        sizes.insert(key.as_bytes().to_vec(), bytes);
        if old.is_none() {
            row.last_position += 1;
        }
        // A key that was set before in this call keeps the position that it got then.
        let earlier = set.get(key.as_str());
        let position = earlier.map_or(row.last_position, |entry| entry.position);
        let entry = SetEntry {
            key,
            position,
            value,
        };
        set.insert(key, entry);
    }
    // A key that is deleted and set again gets a new position: the deletion comes first.
    let deleted: Vec<&str> = deleted.into_iter().collect();
    buckets::delete(tx, namespace, &deleted).await?;
    let set: Vec<SetEntry<'_>> = set.into_values().collect();
    buckets::set(tx, namespace, &set).await?;
    Ok(row)
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[async_trait]
impl Buckets for RunBuckets {
    async fn get(&self, namespace: &str, keys: &[String]) -> BucketResult<Vec<Option<Vec<u8>>>> {
        self.permitted(move || async move {
            let mut tx = self.db.read().await?;
            let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
            let found = buckets::values(&mut tx, namespace, &asked).await?;
            let found: HashMap<Vec<u8>, Vec<u8>> = found.into_iter().collect();
            let values = keys.iter().map(|key| found.get(key.as_bytes()).cloned());
            Ok(values.collect())
        })
        .await
    }

    async fn exist(&self, namespace: &str, keys: &[String]) -> BucketResult<Vec<bool>> {
        self.permitted(move || async move {
            let mut tx = self.db.read().await?;
            let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
            let found = buckets::sizes(&mut tx, namespace, &asked).await?;
            let found: HashSet<Vec<u8>> = found.into_iter().map(|(key, _)| key).collect();
            Ok(keys
                .iter()
                .map(|key| found.contains(key.as_bytes()))
                .collect())
        })
        .await
    }

    async fn keys(
        &self,
        namespace: &str,
        after: u64,
        most: usize,
    ) -> BucketResult<Vec<(u64, String)>> {
        self.permitted(move || async move {
            let mut tx = self.db.read().await?;
            let most = signed(most as u64);
            let rows = buckets::keys(&mut tx, namespace, signed(after), most).await?;
            let keys = rows.into_iter().map(|row| {
                // Only texts are set.
                let key = String::from_utf8_lossy(&row.key).into_owned();
                (unsigned(row.position), key)
            });
            Ok(keys.collect())
        })
        .await
    }

    async fn write(
        &self,
        namespace: &str,
        changes: &[Change],
        bytes_max: u64,
    ) -> BucketResult<u64> {
        self.permitted(move || async move {
            let locked = self.lock(namespace).await?;
            self.change(locked, namespace, changes, bytes_max).await
        })
        .await
    }

    async fn increment(
        &self,
        namespace: &str,
        key: &str,
        delta: u64,
        bytes_max: u64,
    ) -> BucketResult<(u64, u64)> {
        self.permitted(move || async move {
            let mut locked = self.lock(namespace).await?;
            let values = buckets::values(&mut locked.0, namespace, &[key]).await?;
            let value = values.first().map(|(_, value)| value.as_slice());
            let sum = add(key, value, delta)?;
            let change = (key.to_owned(), Some(sum.to_string().into_bytes()));
            let bytes = self.change(locked, namespace, &[change], bytes_max).await?;
            Ok((sum, bytes))
        })
        .await
    }
}
