//! The host functions of `wasi:keyvalue` and of `campanile:task/session`.

use std::collections::{BTreeMap, BTreeSet};

use wasmtime::component::{HasData, Resource, ResourceTable};

use crate::bindings::campanile::task::session;
use crate::bindings::wasi::keyvalue::{atomics, batch, store};
use crate::capability::keyvalue::buckets::{BucketError, Buckets, Change, add, entry_bytes};
use crate::capability::keyvalue::opened::OpenBucket;
use crate::capability::keyvalue::session::{BucketSession, Known};
use crate::capability::shared::{Shared, to_allow};
use crate::grants::BucketGrant;
use crate::ledger::kept::KeptForNow;
use crate::limits::Resource as Limit;
use crate::uncommitted::Uncommitted;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 1 << 10;

/// The most keys in one call. A bucket's database does nothing else meanwhile, and SQLite serves no one else.
const KEYS_PER_CALL_MAX: usize = 1000;

/// The keys in one answer of `list-keys`.
const KEYS_PER_PAGE: usize = 1000;

/// The first cursor of the keys that a session has set and its bucket does not have. No bucket has so many keys.
const SESSION_CURSOR: u64 = 1 << 62;

/// What the functions of the interface need of a call.
pub(crate) struct KeyValueView<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) uncommitted: &'a mut Uncommitted,
    pub(crate) table: &'a mut ResourceTable,
}

impl HasData for KeyValueView<'static> {
    type Data<'a> = KeyValueView<'a>;
}

/// A guest's handle of an open bucket.
type Bucket = Resource<OpenBucket>;
type Answer<T> = wasmtime::Result<Result<T, store::Error>>;

fn other(error: BucketError) -> store::Error {
    store::Error::Other(error.to_string())
}

impl KeyValueView<'_> {
    fn opened(&self, bucket: &Bucket) -> wasmtime::Result<OpenBucket> {
        Ok(self.table.get(bucket)?.clone())
    }

    fn open_granted(&mut self, name: &str, in_session: bool) -> Answer<Bucket> {
        let mut grants = self.shared.call.grants.keyvalue.iter();
        let Some(grant) = grants.find(|grant| grant.bucket == name) else {
            // No grant can have a longer name.
            if name.len() <= KEY_BYTES_MAX {
                let grant = [("bucket", name.into()), ("access", "write".into())];
                self.shared.deny(format!(
                    "the bucket {name:?} is not granted; {}",
                    to_allow("keyvalue", grant)
                ));
            }
            return Ok(Err(store::Error::NoSuchStore));
        };
        let grant = grant.clone();
        Ok(Ok(self.table.push(OpenBucket { grant, in_session })?))
    }

    /// Returns why `changes` are refused, if they are.
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

    /// Charges a function's arguments while it waits for the bucket's database.
    fn keep_for_now(&self, bytes: u64) -> Result<KeptForNow, store::Error> {
        let kept = self.shared.kept.keep_for_now(bytes);
        kept.map_err(store::Error::Other)
    }

    async fn write(&mut self, bucket: &Bucket, changes: Vec<Change>) -> Answer<()> {
        let OpenBucket { grant, in_session } = self.opened(bucket)?;
        if let Some(error) = self.refusal(&grant, &changes) {
            return Ok(Err(error));
        }
        if in_session {
            return Ok(self.write_in_session(&grant, changes));
        }
        let bytes = changes.iter().map(|(key, value)| {
            let value = value.as_deref().unwrap_or_default();
            entry_bytes(key, value)
        });
        let _kept = match self.keep_for_now(bytes.sum()) {
            Ok(kept) => kept,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let bytes_max = self.shared.limit(Limit::Keyvalue);
        let writing = buckets(self.shared).write(&grant.namespace, &changes, bytes_max);
        let describe = || described(&grant, &changes);
        let written = self.shared.effects.observe(describe, writing).await?;
        let record = |bytes| self.shared.record_peak(Limit::Keyvalue, bytes);
        Ok(written.map(record).map_err(other))
    }

    async fn read(&mut self, bucket: &Bucket, keys: &[String]) -> Answer<Vec<Option<Vec<u8>>>> {
        let OpenBucket { grant, in_session } = self.opened(bucket)?;
        if let Some(error) = too_many(keys.len()) {
            return Ok(Err(error));
        }
        let bytes = keys.iter().map(|key| entry_bytes(key, &[]));
        let _kept = match self.keep_for_now(bytes.sum()) {
            Ok(kept) => kept,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // A key that occurs many times is looked up once.
        let unique: BTreeSet<&String> = keys.iter().collect();
        let unique: Vec<String> = unique.into_iter().cloned().collect();
        let values = if in_session {
            self.values_in_session(&grant, &unique).await
        } else {
            values(self.shared, &grant, &unique).await
        };
        let values = match values {
            Ok(values) => values,
            Err(error) => return Ok(Err(error)),
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

fn buckets(shared: &Shared) -> &dyn Buckets {
    shared.call.world.buckets.as_ref()
}

async fn values(
    shared: &Shared,
    grant: &BucketGrant,
    keys: &[String],
) -> Result<Vec<Option<Vec<u8>>>, store::Error> {
    let values = buckets(shared).get(&grant.namespace, keys);
    values.await.map_err(other)
}

/// Returns a page of the keys of a bucket after the position `after`, and whether there are more.
async fn page(
    shared: &Shared,
    grant: &BucketGrant,
    after: u64,
) -> Result<(Vec<(u64, String)>, bool), store::Error> {
    // One more than the answer has, to know whether there are more.
    let found = buckets(shared).keys(&grant.namespace, after, KEYS_PER_PAGE + 1);
    let mut found = found.await.map_err(other)?;
    let has_more = found.len() > KEYS_PER_PAGE;
    found.truncate(KEYS_PER_PAGE);
    Ok((found, has_more))
}

/// The same in the session of the call. Nothing here has an effect before the commit.
impl KeyValueView<'_> {
    fn session(&mut self, grant: &BucketGrant) -> &mut BucketSession {
        let bytes_max = self.shared.limit(Limit::Keyvalue);
        let sessions = &mut self.uncommitted.sessions;
        let session = sessions.entry(grant.namespace.clone());
        session.or_insert_with(|| BucketSession::new(bytes_max))
    }

    /// Let `change` change the session, which then takes up to `growth` more bytes.
    fn change_session(
        &mut self,
        grant: &BucketGrant,
        growth: u64,
        change: impl FnOnce(&mut BucketSession),
    ) -> Result<(), store::Error> {
        let bytes = self.uncommitted.bytes().saturating_add(growth);
        let bytes_max = self.shared.limit(Limit::Uncommitted);
        if bytes > bytes_max {
            return Err(store::Error::Other(format!(
                "the session would have {bytes} bytes and its limit is {bytes_max}; {}",
                Limit::Uncommitted.raise()
            )));
        }
        let kept = self.shared.kept.keep(growth);
        kept.map_err(store::Error::Other)?;
        change(self.session(grant));
        let unused = bytes - self.uncommitted.bytes();
        self.shared.kept.release(unused);
        self.shared.record_peak(Limit::Uncommitted, bytes - unused);
        Ok(())
    }

    fn write_in_session(
        &mut self,
        grant: &BucketGrant,
        changes: Vec<Change>,
    ) -> Result<(), store::Error> {
        let growth = self.session(grant).growth(&changes);
        self.change_session(grant, growth, |session| {
            for change in changes {
                session.write(change);
            }
        })
    }

    async fn values_in_session(
        &mut self,
        grant: &BucketGrant,
        keys: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, store::Error> {
        let session = self.session(grant);
        let known: Vec<Known> = keys.iter().map(|key| session.known(key)).collect();
        let pairs = keys.iter().zip(&known);
        let asked = pairs.filter(|(_, known)| !matches!(known, Known::Value(_)));
        let asked: Vec<String> = asked.map(|(key, _)| key.clone()).collect();
        let values = if asked.is_empty() {
            Vec::new()
        } else {
            values(self.shared, grant, &asked).await?
        };
        let growth = asked.iter().map(|key| entry_bytes(key, &[])).sum();
        self.change_session(grant, growth, |session| {
            for (key, value) in asked.iter().zip(&values) {
                session.note_read(key, value.as_deref());
            }
        })?;
        let mut values = values.into_iter();
        let answers = keys.iter().zip(known).map(|(key, known)| match known {
            Known::Value(value) => Ok(value),
            Known::Bucket => Ok(values.next().flatten()),
            Known::BucketPlus(delta) => {
                let value = values.next().flatten();
                let sum = add(key, value.as_deref(), delta).map_err(other)?;
                Ok(Some(sum.to_string().into_bytes()))
            }
        });
        answers.collect()
    }

    /// Add `delta` to the number under `key`, and return the sum that the session sees.
    async fn increment_in_session(
        &mut self,
        grant: &BucketGrant,
        key: String,
        delta: u64,
    ) -> Result<u64, store::Error> {
        let known = self.session(grant).known(&key);
        if let Known::Value(value) = known {
            let sum = add(&key, value.as_deref(), delta).map_err(other)?;
            let change = (key, Some(sum.to_string().into_bytes()));
            self.write_in_session(grant, vec![change])?;
            return Ok(sum);
        }
        let values = values(self.shared, grant, std::slice::from_ref(&key)).await?;
        let value = values.into_iter().next().flatten();
        let added = match known {
            Known::BucketPlus(before) => add(&key, Some(before.to_string().as_bytes()), delta),
            _ => Ok(delta),
        };
        let sum = added.and_then(|added| add(&key, value.as_deref(), added));
        let sum = sum.map_err(other)?;
        let growth = entry_bytes(&key, &[]);
        self.change_session(grant, growth, |session| session.add(key, delta))?;
        Ok(sum)
    }

    async fn list_in_session(
        &mut self,
        grant: &BucketGrant,
        cursor: Option<u64>,
    ) -> Result<store::KeyResponse, store::Error> {
        let after = cursor.unwrap_or(0);
        let mut keys = Vec::new();
        if after < SESSION_CURSOR {
            let (found, has_more) = page(self.shared, grant, after).await?;
            let last = found.last().map(|(position, _)| *position);
            let session = self.session(grant);
            let found = found.into_iter().map(|(_, key)| key);
            keys.extend(found.filter(|key| session.keeps_position(key)));
            if has_more {
                return Ok(store::KeyResponse { cursor: last, keys });
            }
        }
        let after = after.saturating_sub(SESSION_CURSOR);
        let set = self.session(grant).set_keys(after).into_iter();
        let mut set: Vec<(u64, String, bool)> = set
            .map(|set| (set.place, set.key.to_owned(), set.keeps_position))
            .collect();
        let room = KEYS_PER_PAGE - keys.len();
        let has_more = set.len() > room;
        set.truncate(room);
        let last = set.last().map_or(after, |(place, ..)| *place);
        let names: Vec<String> = set.iter().map(|(_, key, _)| key.clone()).collect();
        let exist = buckets(self.shared).exist(&grant.namespace, &names);
        let exist = exist.await.map_err(other)?;
        let new = set.into_iter().zip(exist);
        let new = new.filter(|((_, _, keeps_position), exists)| !(*keeps_position && *exists));
        keys.extend(new.map(|((_, key, _), _)| key));
        Ok(store::KeyResponse {
            cursor: has_more.then_some(SESSION_CURSOR + last),
            keys,
        })
    }
}

/// Returns the error of a call with `keys` keys, if they are too many.
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
        self.open_granted(&identifier, false)
    }
}

impl session::Host for KeyValueView<'_> {
    async fn open(&mut self, identifier: String) -> Answer<Bucket> {
        self.open_granted(&identifier, true)
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
        let OpenBucket { grant, in_session } = self.opened(&bucket)?;
        if in_session {
            return Ok(self.list_in_session(&grant, cursor).await);
        }
        let found = page(self.shared, &grant, cursor.unwrap_or(0)).await;
        Ok(found.map(|(found, has_more)| {
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
        let OpenBucket { grant, in_session } = self.opened(&bucket)?;
        let change = [(key, Some(Vec::new()))];
        if let Some(error) = self.refusal(&grant, &change) {
            return Ok(Err(error));
        }
        let [(key, _)] = change;
        if in_session {
            return Ok(self.increment_in_session(&grant, key, delta).await);
        }
        let (namespace, bucket) = (&grant.namespace, &grant.bucket);
        let bytes_max = self.shared.limit(Limit::Keyvalue);
        let adding = buckets(self.shared).increment(namespace, &key, delta, bytes_max);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use campanile_model::clock::Clock;

    use super::*;
    use crate::capability::keyvalue::memory::MemoryBuckets;
    use crate::capability::shared::Call;
    use crate::grants::Grants;
    use crate::ledger::Ledger;
    use crate::limits::Limits;
    use crate::world::World;

    /// Returns what calls of a task share, granted the bucket `state` in `memory`.
    fn shared(memory: &Arc<MemoryBuckets>) -> Shared {
        let grants = Grants {
            keyvalue: vec![BucketGrant {
                bucket: "state".to_owned(),
                namespace: "p/state".to_owned(),
                writable: true,
            }],
            ..Grants::default()
        };
        let limits = Limits {
            uncommitted_bytes_max: 1_000,
            ..Limits::default()
        };
        let now = Clock::system().now();
        let call = Call {
            grants: Arc::new(grants),
            world: World::real(memory.clone()),
            ..Call::ungranted(limits, now)
        };
        Shared::new(call, Arc::new(Ledger::unbounded()), now)
    }

    fn handle(bucket: u32) -> Bucket {
        Resource::new_borrow(bucket)
    }

    async fn set(view: &mut KeyValueView<'_>, bucket: u32, key: &str, value: &str) {
        let set = store::HostBucket::set(view, handle(bucket), key.to_owned(), value.into());
        set.await.unwrap().unwrap();
    }

    async fn get(view: &mut KeyValueView<'_>, bucket: u32, key: &str) -> Option<String> {
        let got = store::HostBucket::get(view, handle(bucket), key.to_owned());
        let value = got.await.unwrap().unwrap();
        value.map(|value| String::from_utf8(value).unwrap())
    }

    async fn keys(view: &mut KeyValueView<'_>, bucket: u32) -> Vec<String> {
        let listed = store::HostBucket::list_keys(view, handle(bucket), None);
        listed.await.unwrap().unwrap().keys
    }

    #[tokio::test]
    async fn a_session_sees_its_writes_and_the_bucket_does_not_before_the_commit() {
        let memory = Arc::new(MemoryBuckets::default());
        let shared = shared(&memory);
        let mut uncommitted = Uncommitted::default();
        let mut table = ResourceTable::new();
        let mut view = KeyValueView {
            shared: &shared,
            uncommitted: &mut uncommitted,
            table: &mut table,
        };
        let view = &mut view;
        let plain = store::Host::open(view, "state".to_owned()).await;
        let plain = plain.unwrap().unwrap().rep();
        let session = session::Host::open(view, "state".to_owned()).await;
        let session = session.unwrap().unwrap().rep();
        for (key, value) in [("a", "1"), ("b", "2"), ("n", "5")] {
            set(view, plain, key, value).await;
        }
        set(view, session, "b", "x").await;
        let deleted = store::HostBucket::delete(view, handle(session), "a".to_owned());
        deleted.await.unwrap().unwrap();
        assert_eq!(get(view, session, "a").await, None);
        set(view, session, "a", "y").await;
        for sum in [7, 9] {
            let added = atomics::Host::increment(view, handle(session), "n".to_owned(), 2);
            assert_eq!(added.await.unwrap().unwrap(), sum);
        }
        set(view, session, "c", "z").await;
        let read = ["b", "a", "n", "c"];
        for (key, expected) in read.iter().zip(["x", "y", "9", "z"]) {
            assert_eq!(get(view, session, key).await.as_deref(), Some(expected));
        }
        assert_eq!(keys(view, session).await, ["b", "n", "a", "c"]);
        assert_eq!(keys(view, plain).await, ["a", "b", "n"]);
        assert_eq!(get(view, plain, "n").await.as_deref(), Some("5"));
        // The session has read `n`, so it no longer may change.
        memory.commit(&view.uncommitted.sessions).unwrap();
        assert_eq!(keys(view, plain).await, ["b", "n", "a", "c"]);
        assert_eq!(get(view, plain, "n").await.as_deref(), Some("9"));
    }

    #[tokio::test]
    async fn a_session_has_a_limit_and_needs_a_grant() {
        let memory = Arc::new(MemoryBuckets::default());
        let shared = shared(&memory);
        let mut uncommitted = Uncommitted::default();
        let mut table = ResourceTable::new();
        let mut view = KeyValueView {
            shared: &shared,
            uncommitted: &mut uncommitted,
            table: &mut table,
        };
        let view = &mut view;
        let opened = session::Host::open(view, "state".to_owned()).await;
        let bucket = opened.unwrap().unwrap().rep();
        set(view, bucket, "key", &"x".repeat(900)).await;
        // The new value takes the place of the old one.
        set(view, bucket, "key", &"y".repeat(933)).await;
        let more = store::HostBucket::set(view, handle(bucket), "k".to_owned(), vec![0]);
        let refused = more.await.unwrap();
        let Err(store::Error::Other(message)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(
            message,
            "the session would have 1066 bytes and its limit is 1000; raise `limits.uncommitted` in the package's sidecar file"
        );
        let other = session::Host::open(view, "other".to_owned()).await.unwrap();
        assert!(matches!(other, Err(store::Error::NoSuchStore)), "{other:?}");
        assert!(
            shared
                .denied()
                .is_some_and(|denial| denial.contains("\"other\" is not granted"))
        );
    }
}
