//! Buckets in memory, for tests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bucket::Fault;

/// Keys and values, in the order in which the keys were first set.
pub(super) type Entries = Vec<(String, Vec<u8>)>;

/// The buckets that a test grants.
#[derive(Default)]
pub(super) struct Buckets {
    granted: BTreeMap<String, OpenBucket>,
    /// Copies with the writes of the session.
    session: RefCell<BTreeMap<String, OpenBucket>>,
}

impl Buckets {
    pub(super) fn grant(&mut self, name: String, writable: bool, entries: Entries) {
        self.granted
            .insert(name, OpenBucket::new(writable, entries));
    }

    /// Return a deep copy without the session.
    pub(super) fn copy(&self) -> Buckets {
        let granted = self.granted.iter();
        Buckets {
            granted: granted
                .map(|(name, bucket)| (name.clone(), bucket.copy()))
                .collect(),
            session: RefCell::default(),
        }
    }

    pub(super) fn open(&self, name: &str) -> Result<OpenBucket, Fault> {
        self.granted.get(name).cloned().ok_or(Fault::NoSuchStore)
    }

    pub(super) fn open_in_session(&self, name: &str) -> Result<OpenBucket, Fault> {
        let granted = self.granted.get(name).ok_or(Fault::NoSuchStore)?;
        let mut session = self.session.borrow_mut();
        let opened = session
            .entry(name.to_owned())
            .or_insert_with(|| granted.copy());
        Ok(opened.clone())
    }

    /// Keep the writes of the session, or drop them.
    pub(super) fn end_session(&self, is_kept: bool) {
        for (name, written) in self.session.take() {
            if let Some(granted) = self.granted.get(&name).filter(|_| is_kept) {
                *granted.entries() = written.entries().clone();
            }
        }
    }
}

/// An open bucket. A clone shares its entries.
#[derive(Clone)]
pub(crate) struct OpenBucket {
    writable: bool,
    entries: Arc<Mutex<Entries>>,
}

impl OpenBucket {
    fn new(writable: bool, entries: Entries) -> OpenBucket {
        OpenBucket {
            writable,
            entries: Arc::new(Mutex::new(entries)),
        }
    }

    fn copy(&self) -> OpenBucket {
        OpenBucket::new(self.writable, self.entries().clone())
    }

    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(value(&self.entries(), key))
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Fault> {
        let mut entries = self.writable_entries()?;
        put(&mut entries, key, value);
        Ok(())
    }

    pub fn delete(&self, key: &str) -> Result<(), Fault> {
        self.writable_entries()?.retain(|(known, _)| known != key);
        Ok(())
    }

    pub fn exists(&self, key: &str) -> Result<bool, Fault> {
        Ok(self.entries().iter().any(|(known, _)| known == key))
    }

    pub fn keys(&self) -> Result<Vec<String>, Fault> {
        Ok(self.entries().iter().map(|(key, _)| key.clone()).collect())
    }

    pub fn increment(&self, key: &str, by: u64) -> Result<u64, Fault> {
        let mut entries = self.writable_entries()?;
        let number = match value(&entries, key) {
            None => Some(0),
            Some(value) => std::str::from_utf8(&value)
                .ok()
                .and_then(|text| text.parse::<u64>().ok()),
        };
        let sum = number.and_then(|number| number.checked_add(by));
        let sum = sum.ok_or_else(|| {
            Fault::Other("the value is not a decimal number, or the sum exceeds 64 bits".to_owned())
        })?;
        put(&mut entries, key, sum.to_string().as_bytes());
        Ok(sum)
    }

    pub fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let entries = self.entries();
        Ok(keys.iter().map(|key| value(&entries, key)).collect())
    }

    pub fn set_many(&self, new: &[(String, Vec<u8>)]) -> Result<(), Fault> {
        let mut entries = self.writable_entries()?;
        for (key, value) in new {
            put(&mut entries, key, value);
        }
        Ok(())
    }

    pub fn delete_many(&self, keys: &[String]) -> Result<(), Fault> {
        self.writable_entries()?
            .retain(|(key, _)| !keys.contains(key));
        Ok(())
    }

    fn writable_entries(&self) -> Result<MutexGuard<'_, Entries>, Fault> {
        match self.writable {
            true => Ok(self.entries()),
            false => Err(Fault::AccessDenied),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // A panic in another thread cannot leave an entry half-written.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn value(entries: &Entries, key: &str) -> Option<Vec<u8>> {
    let entry = entries.iter().find(|(known, _)| known == key);
    entry.map(|(_, value)| value.clone())
}

fn put(entries: &mut Entries, key: &str, value: &[u8]) {
    match entries.iter_mut().find(|(known, _)| known == key) {
        Some((_, kept)) => *kept = value.to_vec(),
        None => entries.push((key.to_owned(), value.to_vec())),
    }
}
