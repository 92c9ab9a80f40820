//! The host functions of `wasi:keyvalue`.

use std::collections::{BTreeMap, BTreeSet};

use wasmtime::component::{HasData, Resource, ResourceTable};

use crate::bindings::wasi::keyvalue::{atomics, batch, store};
use crate::capability::keyvalue::buckets::{BucketError, Buckets, Change};
use crate::capability::shared::{Shared, to_allow};
use crate::grants::BucketGrant;
use crate::limits::Resource as Limit;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 1 << 10;

/// The most keys in one call. A bucket's database does nothing else meanwhile, and SQLite serves no one else.
const KEYS_PER_CALL_MAX: usize = 1000;

/// The keys in one answer of `list-keys`.
const KEYS_PER_PAGE: usize = 1000;

/// What the functions of the interface need of a call.
pub(crate) struct KeyValueView<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) table: &'a mut ResourceTable,
}

impl HasData for KeyValueView<'static> {
    type Data<'a> = KeyValueView<'a>;
}

/// A guest's handle of an open bucket.
type Bucket = Resource<BucketGrant>;
type Answer<T> = wasmtime::Result<Result<T, store::Error>>;

fn other(error: BucketError) -> store::Error {
    store::Error::Other(error.to_string())
}

impl KeyValueView<'_> {
    fn grant(&self, bucket: &Bucket) -> wasmtime::Result<BucketGrant> {
        Ok(self.table.get(bucket)?.clone())
    }

    fn buckets(&self) -> &dyn Buckets {
        self.shared.call.world.buckets.as_ref()
    }

    /// Return why `changes` are refused, if they are.
    fn refusal(&self, grant: &BucketGrant, changes: &[Change]) -> Option<store::Error> {
        if !grant.writable {
            self.shared.deny(format!(
                "writing to the bucket `{0}` is not granted; to allow it, write `access = \"write\"` where the package's sidecar file grants `bucket = \"{0}\"`",
                grant.bucket
            ));
            return Some(store::Error::AccessDenied);
        }
        too_many(changes.len()).or_else(|| {
            changes.iter().find_map(|(key, value)| {
                let bytes = value.as_ref().map_or(0, Vec::len);
                let value_bytes_max = self.shared.call.limits.keyvalue_value_bytes_max;
                let message = if key.len() > KEY_BYTES_MAX {
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
                Some(store::Error::Other(message))
            })
        })
    }

    async fn write(&mut self, bucket: &Bucket, changes: Vec<Change>) -> Answer<()> {
        let grant = self.grant(bucket)?;
        if let Some(error) = self.refusal(&grant, &changes) {
            return Ok(Err(error));
        }
        let bytes_max = self.shared.limit(Limit::Keyvalue);
        let writing = self.buckets().write(&grant.namespace, &changes, bytes_max);
        let describe = || described(&grant, &changes);
        let written = self.shared.effects.observe(describe, writing).await?;
        let record = |bytes| self.shared.record_peak(Limit::Keyvalue, bytes);
        Ok(written.map(record).map_err(other))
    }

    async fn read(&mut self, bucket: &Bucket, keys: &[String]) -> Answer<Vec<Option<Vec<u8>>>> {
        let grant = self.grant(bucket)?;
        if let Some(error) = too_many(keys.len()) {
            return Ok(Err(error));
        }
        // A key that occurs many times is looked up once.
        let unique: BTreeSet<&String> = keys.iter().collect();
        let unique: Vec<String> = unique.into_iter().cloned().collect();
        let values = match self.buckets().get(&grant.namespace, &unique).await {
            Ok(values) => values,
            Err(error) => return Ok(Err(other(error))),
        };
        let found: BTreeMap<String, Option<Vec<u8>>> = unique.into_iter().zip(values).collect();
        let value = |key| found.get(key).and_then(Option::as_ref);
        let bytes: usize = keys.iter().filter_map(value).map(Vec::len).sum();
        let bytes_max = self.shared.call.limits.host_call_bytes_max;
        if bytes > bytes_max {
            return Ok(Err(store::Error::Other(format!(
                "the values have {bytes} bytes together, and {bytes_max} pass in one call: read fewer keys at once, or {}",
                Limit::HostCall.raise()
            ))));
        }
        Ok(Ok(keys.iter().map(|key| value(key).cloned()).collect()))
    }
}

/// Return the error of a call with `keys` keys, if they are too many.
fn too_many(keys: usize) -> Option<store::Error> {
    (keys > KEYS_PER_CALL_MAX).then(|| {
        store::Error::Other(format!(
            "{keys} keys are more than the {KEYS_PER_CALL_MAX} of one call: make several"
        ))
    })
}

/// Describe `changes` for the observer of effects.
fn described(grant: &BucketGrant, changes: &[Change]) -> String {
    let what = match changes {
        [(key, Some(_))] => format!("set {key:?}"),
        [(key, None)] => format!("delete {key:?}"),
        many => format!("change {} keys", many.len()),
    };
    format!("wasi:keyvalue: {what} in the bucket `{}`", grant.bucket)
}

impl store::Host for KeyValueView<'_> {
    async fn open(&mut self, identifier: String) -> Answer<Bucket> {
        let mut grants = self.shared.call.grants.keyvalue.iter();
        let Some(grant) = grants.find(|grant| grant.bucket == identifier) else {
            // No grant can have a longer name.
            if identifier.len() <= KEY_BYTES_MAX {
                let grant = [
                    ("bucket", identifier.as_str().into()),
                    ("access", "write".into()),
                ];
                self.shared.deny(format!(
                    "the bucket {identifier:?} is not granted; {}",
                    to_allow("keyvalue", grant)
                ));
            }
            return Ok(Err(store::Error::NoSuchStore));
        };
        Ok(Ok(self.table.push(grant.clone())?))
    }
}

impl store::HostBucket for KeyValueView<'_> {
    async fn get(&mut self, bucket: Bucket, key: String) -> Answer<Option<Vec<u8>>> {
        let values = self.read(&bucket, &[key]).await?;
        Ok(values.map(|mut values| values.pop().flatten()))
    }

    async fn set(&mut self, bucket: Bucket, key: String, value: Vec<u8>) -> Answer<()> {
        self.write(&bucket, vec![(key, Some(value))]).await
    }

    async fn delete(&mut self, bucket: Bucket, key: String) -> Answer<()> {
        self.write(&bucket, vec![(key, None)]).await
    }

    async fn exists(&mut self, bucket: Bucket, key: String) -> Answer<bool> {
        let values = self.read(&bucket, &[key]).await?;
        Ok(values.map(|values| values.iter().any(Option::is_some)))
    }

    async fn list_keys(
        &mut self,
        bucket: Bucket,
        cursor: Option<u64>,
    ) -> Answer<store::KeyResponse> {
        let grant = self.grant(&bucket)?;
        // One more than the answer has, to know whether there are more.
        let after = cursor.unwrap_or(0);
        let found = self
            .buckets()
            .keys(&grant.namespace, after, KEYS_PER_PAGE + 1);
        Ok(found.await.map_err(other).map(|mut found| {
            let has_more = found.len() > KEYS_PER_PAGE;
            found.truncate(KEYS_PER_PAGE);
            let last = found.last().filter(|_| has_more);
            store::KeyResponse {
                cursor: last.map(|(position, _)| *position),
                keys: found.into_iter().map(|(_, key)| key).collect(),
            }
        }))
    }

    async fn drop(&mut self, bucket: Bucket) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for KeyValueView<'_> {
    async fn increment(&mut self, bucket: Bucket, key: String, delta: u64) -> Answer<u64> {
        let grant = self.grant(&bucket)?;
        let change = [(key, Some(Vec::new()))];
        if let Some(error) = self.refusal(&grant, &change) {
            return Ok(Err(error));
        }
        let [(key, _)] = change;
        let (namespace, bucket) = (&grant.namespace, &grant.bucket);
        let bytes_max = self.shared.limit(Limit::Keyvalue);
        let adding = self.buckets().increment(namespace, &key, delta, bytes_max);
        let describe =
            || format!("wasi:keyvalue: increment {key:?} by {delta} in the bucket `{bucket}`");
        let added = self.shared.effects.observe(describe, adding).await?;
        let record = |(sum, bytes)| {
            self.shared.record_peak(Limit::Keyvalue, bytes);
            sum
        };
        Ok(added.map(record).map_err(other))
    }
}

impl batch::Host for KeyValueView<'_> {
    async fn get_many(
        &mut self,
        bucket: Bucket,
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

    async fn set_many(&mut self, bucket: Bucket, pairs: Vec<(String, Vec<u8>)>) -> Answer<()> {
        let changes = pairs.into_iter().map(|(key, value)| (key, Some(value)));
        self.write(&bucket, changes.collect()).await
    }

    async fn delete_many(&mut self, bucket: Bucket, keys: Vec<String>) -> Answer<()> {
        let changes = keys.into_iter().map(|key| (key, None));
        self.write(&bucket, changes.collect()).await
    }
}
