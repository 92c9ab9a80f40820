//! `wasi:keyvalue`: the buckets that were granted, over whatever keeps them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use wasmtime::component::Resource;
use wasmtime_wasi::WasiView as _;

use super::BucketGrant;
use super::grants::grant_line;
use super::imports::bindings::wasi::keyvalue::{atomics, batch, store};
use super::limits::Resource as Limit;
use super::store::HostState;

/// Of a key.
pub const KEY_BYTES_MAX: usize = 1 << 10;

/// What an entry costs beside its key and its value, so that empty ones are not free.
pub const ENTRY_OVERHEAD_BYTES: u64 = 64;

/// Keys in one question of `get-many`, and in one change: the database does nothing else for a bucket meanwhile, nor,
/// on SQLite, for anybody.
const KEYS_AT_ONCE_MAX: usize = 1000;

/// Keys in one answer of `list-keys`.
const KEYS_PER_PAGE: usize = 1000;

/// One change of a bucket: a key, and its new value or none to delete it.
pub type Change = (String, Option<Vec<u8>>);

/// Where buckets are kept, each under a name of its own, its namespace.
///
/// Each operation is done whole or not at all, and what it did is there when it returns.
pub trait Buckets: Send + Sync {
    /// The values of `keys`, in their order.
    fn get<'a>(
        &'a self,
        namespace: &'a str,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<Vec<u8>>>, BucketError>>;

    /// Up to `most` keys in the order in which they were first set, each with its place in it, beginning after the place `after`.
    fn keys<'a>(
        &'a self,
        namespace: &'a str,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, String)>, BucketError>>;

    /// Carry `changes` out in their order; gives the bytes that the bucket then has.
    ///
    /// Refused when these are more than `bytes_max` and more than before.
    fn write<'a>(
        &'a self,
        namespace: &'a str,
        changes: &'a [Change],
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<u64, BucketError>>;

    /// Add to the number under `key`, which is 0 when there is none; gives the new one, and the bytes that the bucket then has.
    fn increment<'a>(
        &'a self,
        namespace: &'a str,
        key: &'a str,
        delta: u64,
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<(u64, u64), BucketError>>;
}

/// Why an operation on a bucket was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// It would grow beyond its limit.
    #[error(
        "the bucket would have {bytes} bytes and its limit is {bytes_max}; delete what is not needed, or {}",
        Limit::Keyvalue.raise()
    )]
    Full { bytes: u64, bytes_max: u64 },
    /// What is under the key is no decimal number, or the sum is none that fits 64 bits.
    #[error("the value under {key:?} cannot be incremented by {delta}: {why}")]
    NoNumber {
        key: String,
        delta: u64,
        why: String,
    },
    /// The run is no longer this host's; nothing that it writes counts.
    #[error("the run was taken from this host, so that it may not write any more")]
    NotPending,
    /// The database is away, or refused; nothing was done, unless it went away in the very moment of doing it.
    #[error("the bucket cannot be reached now; the host's log says why")]
    Unreachable,
}

/// The bytes that an entry is counted with.
pub fn entry_bytes(key: &str, value: &[u8]) -> u64 {
    ENTRY_OVERHEAD_BYTES + key.len() as u64 + value.len() as u64
}

/// Refuse growth of a bucket beyond its limit. One that is too large already may still shrink.
pub fn check_growth(before: u64, bytes: u64, bytes_max: u64) -> Result<(), BucketError> {
    match bytes > bytes_max && bytes > before {
        true => Err(BucketError::Full { bytes, bytes_max }),
        false => Ok(()),
    }
}

/// The number in `value`, which is 0 when there is none, after adding `delta` to it.
pub fn add(key: &str, value: Option<&[u8]>, delta: u64) -> Result<u64, BucketError> {
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

/// Buckets in memory, for calls that are made without a database.
#[derive(Debug, Default)]
pub struct MemoryBuckets {
    kept: Mutex<BTreeMap<String, MemoryBucket>>,
}

#[derive(Debug, Default)]
struct MemoryBucket {
    entries: BTreeMap<String, (u64, Vec<u8>)>,
    /// Of all entries.
    bytes: u64,
    last_place: u64,
}

impl MemoryBucket {
    fn apply(&mut self, changes: &[Change]) {
        for (key, value) in changes {
            let old = self.entries.remove(key);
            if let Some((_, old)) = &old {
                self.bytes -= entry_bytes(key, old);
            }
            let Some(value) = value else {
                continue;
            };
            let place = old.map_or_else(|| self.last_place + 1, |(place, _)| place);
            self.last_place = self.last_place.max(place);
            self.bytes += entry_bytes(key, value);
            self.entries.insert(key.clone(), (place, value.clone()));
        }
    }

    /// What it would have after `changes`, of which the last one of a key counts.
    fn bytes_after(&self, changes: &[Change]) -> u64 {
        let mut bytes = self.bytes;
        let last: BTreeMap<&String, &Option<Vec<u8>>> =
            changes.iter().map(|(key, value)| (key, value)).collect();
        for (key, value) in last {
            if let Some((_, old)) = self.entries.get(key) {
                bytes -= entry_bytes(key, old);
            }
            bytes += value.as_ref().map_or(0, |value| entry_bytes(key, value));
        }
        bytes
    }
}

impl MemoryBuckets {
    /// Buckets that hold `all`: namespace, key, value.
    pub fn holding(all: &BTreeMap<String, BTreeMap<String, Vec<u8>>>) -> MemoryBuckets {
        let kept = all.iter().map(|(namespace, entries)| {
            let mut bucket = MemoryBucket::default();
            for (key, value) in entries {
                bucket.apply(&[(key.clone(), Some(value.clone()))]);
            }
            (namespace.clone(), bucket)
        });
        MemoryBuckets {
            kept: Mutex::new(kept.collect()),
        }
    }

    /// Everything there is: namespace, key, value. One that is empty is as one that was never there.
    pub fn all(&self) -> BTreeMap<String, BTreeMap<String, Vec<u8>>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let values = |bucket: &MemoryBucket| {
            let entries = bucket.entries.iter();
            entries
                .map(|(key, (_, value))| (key.clone(), value.clone()))
                .collect()
        };
        kept.iter()
            .filter(|(_, bucket)| !bucket.entries.is_empty())
            .map(|(namespace, bucket)| (namespace.clone(), values(bucket)))
            .collect()
    }

    fn change(
        &self,
        namespace: &str,
        changes: &[Change],
        bytes_max: u64,
    ) -> Result<u64, BucketError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = kept.entry(namespace.to_owned()).or_default();
        let bytes = bucket.bytes_after(changes);
        check_growth(bucket.bytes, bytes, bytes_max)?;
        bucket.apply(changes);
        Ok(bytes)
    }

    fn value(&self, namespace: &str, key: &str) -> Option<Vec<u8>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, value) = kept.get(namespace)?.entries.get(key)?;
        Some(value.clone())
    }
}

impl Buckets for MemoryBuckets {
    fn get<'a>(
        &'a self,
        namespace: &'a str,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<Vec<u8>>>, BucketError>> {
        let values = keys.iter().map(|key| self.value(namespace, key)).collect();
        Box::pin(std::future::ready(Ok(values)))
    }

    fn keys<'a>(
        &'a self,
        namespace: &'a str,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, String)>, BucketError>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = kept.get(namespace).map(|bucket| &bucket.entries);
        let mut found: Vec<(u64, String)> = entries
            .into_iter()
            .flatten()
            .map(|(key, (place, _))| (*place, key.clone()))
            .filter(|(place, _)| *place > after)
            .collect();
        found.sort();
        found.truncate(most);
        Box::pin(std::future::ready(Ok(found)))
    }

    fn write<'a>(
        &'a self,
        namespace: &'a str,
        changes: &'a [Change],
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<u64, BucketError>> {
        Box::pin(std::future::ready(
            self.change(namespace, changes, bytes_max),
        ))
    }

    fn increment<'a>(
        &'a self,
        namespace: &'a str,
        key: &'a str,
        delta: u64,
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<(u64, u64), BucketError>> {
        let done = add(key, self.value(namespace, key).as_deref(), delta).and_then(|sum| {
            let change = (key.to_owned(), Some(sum.to_string().into_bytes()));
            let bytes = self.change(namespace, &[change], bytes_max)?;
            Ok((sum, bytes))
        });
        Box::pin(std::future::ready(done))
    }
}

/// An open bucket of a guest.
pub struct Bucket {
    grant: BucketGrant,
}

type Answer<T> = wasmtime::Result<Result<T, store::Error>>;

fn other<T>(message: impl ToString) -> Result<T, store::Error> {
    Err(store::Error::Other(message.to_string()))
}

impl HostState {
    fn grant(&mut self, bucket: &Resource<Bucket>) -> wasmtime::Result<BucketGrant> {
        Ok(self.ctx().table.get(bucket)?.grant.clone())
    }

    /// Why `changes` may not be made, if so.
    fn fault_of(&self, grant: &BucketGrant, changes: &[Change]) -> Option<store::Error> {
        if !grant.writable {
            self.denial.record(format!(
                "writing to the bucket `{0}` is not granted; to allow it, write `access = \"write\"` where the package's sidecar file grants `bucket = \"{0}\"`",
                grant.bucket
            ));
            return Some(store::Error::AccessDenied);
        }
        if let Some(fault) = too_many(changes.len()) {
            return Some(fault);
        }
        let value_bytes_max = self.keyvalue_value_bytes_max;
        changes.iter().find_map(|(key, value)| {
            let bytes = value.as_ref().map_or(0, Vec::len);
            let fault = if key.len() > KEY_BYTES_MAX {
                format!(
                    "the key has {} bytes and may have {KEY_BYTES_MAX}",
                    key.len()
                )
            } else if bytes as u64 > value_bytes_max {
                format!(
                    "the value has {bytes} bytes and its limit is {value_bytes_max}; {}",
                    Limit::KeyvalueValue.raise()
                )
            } else {
                return None;
            };
            Some(store::Error::Other(fault))
        })
    }

    async fn write(&mut self, bucket: &Resource<Bucket>, changes: Vec<Change>) -> Answer<()> {
        let grant = self.grant(bucket)?;
        if let Some(fault) = self.fault_of(&grant, &changes) {
            return Ok(Err(fault));
        }
        let effect = self.effects.begin(|| told(&grant, &changes))?;
        let written = self
            .buckets
            .write(&grant.namespace, &changes, self.keyvalue_bytes_max)
            .await;
        self.effects.end(effect)?;
        match written {
            Ok(bytes) => {
                self.gauges.keyvalue.reach(bytes);
                Ok(Ok(()))
            }
            Err(error) => Ok(other(error)),
        }
    }

    async fn read(
        &mut self,
        bucket: &Resource<Bucket>,
        keys: &[String],
    ) -> Answer<Vec<Option<Vec<u8>>>> {
        let grant = self.grant(bucket)?;
        if let Some(fault) = too_many(keys.len()) {
            return Ok(Err(fault));
        }
        // A key asked for many times is one to look up.
        let unique: BTreeSet<&String> = keys.iter().collect();
        let unique: Vec<String> = unique.into_iter().cloned().collect();
        let values = match self.buckets.get(&grant.namespace, &unique).await {
            Ok(values) => values,
            Err(error) => return Ok(other(error)),
        };
        let found: BTreeMap<String, Option<Vec<u8>>> = unique.into_iter().zip(values).collect();
        let value = |key| found.get(key).and_then(Option::as_ref);
        let bytes: usize = keys.iter().filter_map(value).map(Vec::len).sum();
        if bytes > self.host_call_bytes_max {
            return Ok(other(format!(
                "the values have {bytes} bytes together, and {} pass in one call: read fewer keys at once, or {}",
                self.host_call_bytes_max,
                Limit::HostCall.raise()
            )));
        }
        Ok(Ok(keys.iter().map(|key| value(key).cloned()).collect()))
    }
}

/// Refuse so many keys in one call.
fn too_many(keys: usize) -> Option<store::Error> {
    (keys > KEYS_AT_ONCE_MAX).then(|| {
        store::Error::Other(format!(
            "{keys} keys are more than the {KEYS_AT_ONCE_MAX} of one call: make several"
        ))
    })
}

/// A change in words, for whoever watches the effects of a call.
fn told(grant: &BucketGrant, changes: &[Change]) -> String {
    let what = match changes {
        [(key, Some(_))] => format!("set {key:?}"),
        [(key, None)] => format!("delete {key:?}"),
        many => format!("change {} keys", many.len()),
    };
    format!("wasi:keyvalue: {what} in the bucket `{}`", grant.bucket)
}

impl store::Host for HostState {
    async fn open(&mut self, identifier: String) -> Answer<Resource<Bucket>> {
        let grants = &self.grants.keyvalue;
        let Some(grant) = grants.iter().find(|grant| grant.bucket == identifier) else {
            // A name that could not be granted is not worth a hint.
            if identifier.len() <= KEY_BYTES_MAX {
                let grant = [
                    ("bucket", identifier.as_str().into()),
                    ("access", "write".into()),
                ];
                self.denial.record(format!(
                    "the bucket {identifier:?} is not granted; to allow it, add `{}` at the top of the package's sidecar file",
                    grant_line("keyvalue", grant)
                ));
            }
            return Ok(Err(store::Error::NoSuchStore));
        };
        let grant = grant.clone();
        let handle = self.ctx().table.push(Bucket { grant })?;
        Ok(Ok(handle))
    }
}

impl store::HostBucket for HostState {
    async fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<Option<Vec<u8>>> {
        let values = self.read(&bucket, &[key]).await?;
        Ok(values.map(|mut values| values.pop().flatten()))
    }

    async fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Answer<()> {
        self.write(&bucket, vec![(key, Some(value))]).await
    }

    async fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<()> {
        self.write(&bucket, vec![(key, None)]).await
    }

    async fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<bool> {
        let values = self.read(&bucket, &[key]).await?;
        Ok(values.map(|values| values.iter().any(Option::is_some)))
    }

    async fn list_keys(
        &mut self,
        bucket: Resource<Bucket>,
        cursor: Option<u64>,
    ) -> Answer<store::KeyResponse> {
        let grant = self.grant(&bucket)?;
        let after = cursor.unwrap_or(0);
        // One more than is told, to know whether there are more.
        let found = self
            .buckets
            .keys(&grant.namespace, after, KEYS_PER_PAGE + 1)
            .await;
        let mut found = match found {
            Ok(found) => found,
            Err(error) => return Ok(other(error)),
        };
        let more = found.len() > KEYS_PER_PAGE;
        found.truncate(KEYS_PER_PAGE);
        let cursor = found.last().filter(|_| more).map(|(place, _)| *place);
        let keys = found.into_iter().map(|(_, key)| key).collect();
        Ok(Ok(store::KeyResponse { keys, cursor }))
    }

    async fn drop(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        self.ctx().table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for HostState {
    async fn increment(
        &mut self,
        bucket: Resource<Bucket>,
        key: String,
        delta: u64,
    ) -> Answer<u64> {
        let grant = self.grant(&bucket)?;
        let change = (key, Some(Vec::new()));
        if let Some(fault) = self.fault_of(&grant, std::slice::from_ref(&change)) {
            return Ok(Err(fault));
        }
        let (key, _) = change;
        let effect = self.effects.begin(|| {
            format!(
                "wasi:keyvalue: increment {key:?} by {delta} in the bucket `{}`",
                grant.bucket
            )
        })?;
        let done = self
            .buckets
            .increment(&grant.namespace, &key, delta, self.keyvalue_bytes_max)
            .await;
        self.effects.end(effect)?;
        match done {
            Ok((sum, bytes)) => {
                self.gauges.keyvalue.reach(bytes);
                Ok(Ok(sum))
            }
            Err(error) => Ok(other(error)),
        }
    }
}

impl batch::Host for HostState {
    async fn get_many(
        &mut self,
        bucket: Resource<Bucket>,
        keys: Vec<String>,
    ) -> Answer<Vec<Option<(String, Vec<u8>)>>> {
        let values = self.read(&bucket, &keys).await?;
        Ok(values.map(|values| {
            let pairs = keys.into_iter().zip(values);
            pairs
                .map(|(key, value)| value.map(|value| (key, value)))
                .collect()
        }))
    }

    async fn set_many(
        &mut self,
        bucket: Resource<Bucket>,
        pairs: Vec<(String, Vec<u8>)>,
    ) -> Answer<()> {
        let changes = pairs.into_iter().map(|(key, value)| (key, Some(value)));
        self.write(&bucket, changes.collect()).await
    }

    async fn delete_many(&mut self, bucket: Resource<Bucket>, keys: Vec<String>) -> Answer<()> {
        let changes = keys.into_iter().map(|key| (key, None));
        self.write(&bucket, changes.collect()).await
    }
}
