//! Where buckets are stored: the contract that the database and the memory keep, and its arithmetic.

use wasmtime_wasi::async_trait;

use crate::limits::Resource;

/// The bytes that an entry costs beside its key and its value, so that empty entries are not free.
pub const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// One change of a bucket: a key, and its new value. None deletes the entry.
pub type Change = (String, Option<Vec<u8>>);

/// A store of buckets, each under its namespace.
///
/// Each operation happens whole or not at all, and is durable when it returns.
#[async_trait]
pub trait Buckets: Send + Sync {
    /// Returns the values of `keys`, in their order.
    async fn get(&self, namespace: &str, keys: &[String]) -> BucketResult<Vec<Option<Vec<u8>>>>;

    /// Returns which of `keys` exist, in their order.
    async fn exist(&self, namespace: &str, keys: &[String]) -> BucketResult<Vec<bool>>;

    /// Returns up to `most` keys in the order in which they were first set, each with its position, after the position
    /// `after`.
    async fn keys(
        &self,
        namespace: &str,
        after: u64,
        most: usize,
    ) -> BucketResult<Vec<(u64, String)>>;

    /// Make `changes` in their order, and return the bytes that the bucket then has.
    ///
    /// Refused when these are more than `bytes_max` and more than before.
    async fn write(&self, namespace: &str, changes: &[Change], bytes_max: u64)
    -> BucketResult<u64>;

    /// Add `delta` to the number under `key`, which is 0 when there is none. Return the sum, and the bytes that the
    /// bucket then has.
    async fn increment(
        &self,
        namespace: &str,
        key: &str,
        delta: u64,
        bytes_max: u64,
    ) -> BucketResult<(u64, u64)>;
}

/// The result of an operation on a bucket.
pub type BucketResult<T> = Result<T, BucketError>;

/// Why an operation on a bucket did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// The bucket would grow beyond its limit.
    #[error(
        "the bucket would have {bytes} bytes and its limit is {bytes_max}; delete what is not needed, or {}",
        Resource::Keyvalue.raise()
    )]
    Full { bytes: u64, bytes_max: u64 },
    /// The buckets of the namespace would grow beyond its quota.
    #[error(
        "the buckets of the namespace {namespace} would have {bytes} bytes, and {bytes_max} is its quota; delete what is not needed, or raise `buckets` in `[namespaces.{namespace}]` of the configuration"
    )]
    NamespaceFull {
        namespace: String,
        bytes: u64,
        bytes_max: u64,
    },
    /// The value is not a decimal number, or the sum does not fit 64 bits.
    #[error("the value under {key:?} cannot be incremented by {delta}: {why}")]
    NoNumber {
        key: String,
        delta: u64,
        why: String,
    },
    /// A session had read a value that was changed before its commit.
    #[error(
        "the value under {key:?} was changed after the session had read it, so that nothing of the session was kept"
    )]
    Conflict { key: String },
    /// The run's claim was lost to another host, so that its writes no longer count.
    #[error("this host has lost its claim on the run, so that the run may not write any more")]
    ClaimLost,
    /// The database cannot be reached or refused the operation. Nothing happened, unless the connection broke during it.
    #[error("the bucket cannot be reached now; the host's log says why")]
    Unreachable,
}

/// Returns the bytes that an entry counts for.
pub fn entry_bytes(key: &str, value: &[u8]) -> u64 {
    ENTRY_OVERHEAD_BYTES + key.len() as u64 + value.len() as u64
}

/// Refuse growth of a bucket beyond its limit. A bucket that is too large already may shrink.
pub fn check_growth(before: u64, bytes: u64, bytes_max: u64) -> BucketResult<()> {
    if bytes > bytes_max && bytes > before {
        Err(BucketError::Full { bytes, bytes_max })
    } else {
        Ok(())
    }
}

/// Returns the number in `value`, which is 0 when there is none, plus `delta`.
pub fn add(key: &str, value: Option<&[u8]>, delta: u64) -> BucketResult<u64> {
    let no_number = |why: String| BucketError::NoNumber {
        key: key.to_owned(),
        delta,
        why,
    };
    let number = match value {
        None => 0,
        Some(value) => std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
            .ok_or_else(|| no_number("it is not a decimal number from 0 to 2⁶⁴ - 1".to_owned()))?,
    };
    number
        .checked_add(delta)
        .ok_or_else(|| no_number(format!("it is {number}, and the sum has more than 64 bits")))
}
