//! Buckets in memory, for calls without a database.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use wasmtime_wasi::async_trait;

use crate::capability::keyvalue::buckets::{
    BucketResult, Buckets, Change, add, check_growth, entry_bytes,
};
use crate::capability::keyvalue::session::Sessions;

/// A store of buckets in memory.
#[derive(Debug, Default)]
pub struct MemoryBuckets {
    kept: Mutex<BTreeMap<String, MemoryBucket>>,
}

#[derive(Debug, Default)]
struct MemoryBucket {
    entries: BTreeMap<String, (u64, Vec<u8>)>,
    bytes: u64,
    last_position: u64,
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
            let position = old.map_or_else(|| self.last_position + 1, |(position, _)| position);
            self.last_position = self.last_position.max(position);
            self.bytes += entry_bytes(key, value);
            self.entries.insert(key.clone(), (position, value.clone()));
        }
    }

    /// Returns the bytes after `changes`. The last change of a key counts.
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
    /// Create buckets with the entries of `all`: namespace, key, value.
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

    /// Returns all entries: namespace, key, value. Empty buckets are left out.
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

    /// Make the changes of `sessions`, all of them or none.
    ///
    /// # Errors
    ///
    /// When a value that a session had read was changed, or a bucket would grow beyond its limit.
    pub fn commit(&self, sessions: &Sessions) -> BucketResult<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Vec::new();
        for (namespace, session) in sessions {
            let bucket = kept.entry(namespace.clone()).or_default();
            let mut sums = BTreeMap::new();
            for key in session.keys_to_check() {
                let value = bucket.entries.get(key).map(|(_, value)| value.as_slice());
                if let Some(sum) = session.check(key, value)? {
                    sums.insert(key.to_owned(), sum);
                }
            }
            let changes = session.changes(&sums);
            check_growth(
                bucket.bytes,
                bucket.bytes_after(&changes),
                session.bytes_max,
            )?;
            changed.push((namespace, changes));
        }
        for (namespace, changes) in changed {
            kept.entry(namespace.clone()).or_default().apply(&changes);
        }
        Ok(())
    }

    fn value(&self, namespace: &str, key: &str) -> Option<Vec<u8>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, value) = kept.get(namespace)?.entries.get(key)?;
        Some(value.clone())
    }
}

#[async_trait]
impl Buckets for MemoryBuckets {
    async fn get(&self, namespace: &str, keys: &[String]) -> BucketResult<Vec<Option<Vec<u8>>>> {
        Ok(keys.iter().map(|key| self.value(namespace, key)).collect())
    }

    async fn exist(&self, namespace: &str, keys: &[String]) -> BucketResult<Vec<bool>> {
        let exists = |key| self.value(namespace, key).is_some();
        Ok(keys.iter().map(|key| exists(key)).collect())
    }

    async fn keys(
        &self,
        namespace: &str,
        after: u64,
        most: usize,
    ) -> BucketResult<Vec<(u64, String)>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = kept.get(namespace).map(|bucket| &bucket.entries);
        let mut found: Vec<(u64, String)> = entries
            .into_iter()
            .flatten()
            .map(|(key, (position, _))| (*position, key.clone()))
            .filter(|(position, _)| *position > after)
            .collect();
        found.sort();
        found.truncate(most);
        Ok(found)
    }

    async fn write(
        &self,
        namespace: &str,
        changes: &[Change],
        bytes_max: u64,
    ) -> BucketResult<u64> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = kept.entry(namespace.to_owned()).or_default();
        let bytes = bucket.bytes_after(changes);
        check_growth(bucket.bytes, bytes, bytes_max)?;
        bucket.apply(changes);
        Ok(bytes)
    }

    async fn increment(
        &self,
        namespace: &str,
        key: &str,
        delta: u64,
        bytes_max: u64,
    ) -> BucketResult<(u64, u64)> {
        let sum = add(key, self.value(namespace, key).as_deref(), delta)?;
        let change = (key.to_owned(), Some(sum.to_string().into_bytes()));
        let bytes = self.write(namespace, &[change], bytes_max).await?;
        Ok((sum, bytes))
    }
}
