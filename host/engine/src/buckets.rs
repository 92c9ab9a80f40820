//! The buckets of `wasi:keyvalue`, kept in the database for one run.

use std::sync::Arc;

use tokio::sync::Semaphore;

use campanile_model::ids::RunId;
use campanile_sandbox::{
    BucketError, Buckets, Change, add, async_trait, check_growth, entry_bytes,
};
use campanile_store::buckets::{self, BucketRow};
use campanile_store::{Db, DbError, Tx, runs};

/// Operations of all guests at the same time; the database's other connections are for the engine.
const AT_ONCE: usize = 3;

/// How often an operation is begun anew that another transaction was in the way of.
const TRIES_MAX: usize = 3;

/// Whose turn it is among the guests of a host.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Turns {
        Turns(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// The buckets as one run may use them: it writes only while it is the run that counts, so that one which was taken
/// over by another host changes nothing any more.
pub struct RunBuckets {
    pub db: Db,
    pub run: RunId,
    /// The fence under which the run was taken.
    pub fence: i64,
    pub turns: Turns,
}

/// An operation that was not done, and whether it is worth to begin it anew.
enum Fault {
    Refused(BucketError),
    Db(DbError),
}

impl From<DbError> for Fault {
    fn from(error: DbError) -> Fault {
        Fault::Db(error)
    }
}

impl From<BucketError> for Fault {
    fn from(error: BucketError) -> Fault {
        Fault::Refused(error)
    }
}

impl RunBuckets {
    /// Do an operation when it is its turn, and anew when another transaction was in its way.
    ///
    /// What the database says about it is for the host's log, and not for the guest.
    async fn in_turn<T, F>(&self, operation: impl Fn() -> F) -> Result<T, BucketError>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        // The semaphore is never closed.
        let _turn = self.turns.0.acquire().await;
        let mut tries = 1;
        loop {
            match operation().await {
                Ok(done) => return Ok(done),
                Err(Fault::Refused(refusal)) => return Err(refusal),
                Err(Fault::Db(DbError::Busy(_))) if tries < TRIES_MAX => tries += 1,
                Err(Fault::Db(error)) => {
                    tracing::warn!(run = %self.run, %error, "an operation on a bucket failed");
                    return Err(BucketError::Unreachable);
                }
            }
        }
    }

    async fn write_once(
        &self,
        namespace: &str,
        changes: &[Change],
        bytes_max: u64,
    ) -> Result<u64, Fault> {
        let mut tx = self.db.write().await?;
        let before = buckets::lock(&mut tx, namespace).await?;
        let bytes = self
            .change_held(&mut tx, namespace, before, changes, bytes_max)
            .await?;
        tx.commit().await?;
        Ok(bytes)
    }

    async fn increment_once(
        &self,
        namespace: &str,
        key: &str,
        delta: u64,
        bytes_max: u64,
    ) -> Result<(u64, u64), Fault> {
        let mut tx = self.db.write().await?;
        let before = buckets::lock(&mut tx, namespace).await?;
        let value = buckets::value(&mut tx, namespace, key).await?;
        let sum = add(key, value.as_deref(), delta)?;
        let change = (key.to_owned(), Some(sum.to_string().into_bytes()));
        let bytes = self
            .change_held(&mut tx, namespace, before, &[change], bytes_max)
            .await?;
        tx.commit().await?;
        Ok((sum, bytes))
    }

    /// Change a bucket that is held; gives the bytes that it then has.
    async fn change_held(
        &self,
        tx: &mut Tx,
        namespace: &str,
        before: BucketRow,
        changes: &[Change],
        bytes_max: u64,
    ) -> Result<u64, Fault> {
        let mut after = before;
        for (key, value) in changes {
            change(tx, namespace, key, value.as_deref(), &mut after).await?;
        }
        let bytes = unsigned(after.bytes);
        check_growth(unsigned(before.bytes), bytes, bytes_max)?;
        buckets::resize(tx, namespace, after).await?;
        // Last, because the renewal of the run's lease waits for whoever holds its row.
        match runs::lock_if_current(tx, self.run, self.fence).await? {
            true => Ok(bytes),
            false => Err(BucketError::ClaimLost.into()),
        }
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

#[async_trait]
impl Buckets for RunBuckets {
    async fn get(
        &self,
        namespace: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, BucketError> {
        self.in_turn(move || async move {
            let mut tx = self.db.read().await?;
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(buckets::value(&mut tx, namespace, key).await?);
            }
            Ok(values)
        })
        .await
    }

    async fn keys(
        &self,
        namespace: &str,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, String)>, BucketError> {
        self.in_turn(move || async move {
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
        .await
    }

    async fn write(
        &self,
        namespace: &str,
        changes: &[Change],
        bytes_max: u64,
    ) -> Result<u64, BucketError> {
        self.in_turn(move || self.write_once(namespace, changes, bytes_max))
            .await
    }

    async fn increment(
        &self,
        namespace: &str,
        key: &str,
        delta: u64,
        bytes_max: u64,
    ) -> Result<(u64, u64), BucketError> {
        self.in_turn(move || self.increment_once(namespace, key, delta, bytes_max))
            .await
    }
}
