//! The session of a call: what it writes to buckets is kept in memory until the call succeeds.
//!
//! A session holds no transaction and no lock. At the commit it is compared with the buckets as they are then.

use std::collections::{BTreeMap, BTreeSet};

use campanile_model::ids::sha256_half;

use crate::capability::keyvalue::buckets::{BucketError, BucketResult, Change, add, entry_bytes};

/// The sessions of a call, by the namespaces of their buckets.
pub type Sessions = BTreeMap<String, BucketSession>;

/// The session of a call in one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketSession {
    /// The limit of the bucket.
    pub bytes_max: u64,
    /// A hash of each value that the session has read, or none when there was no value.
    reads: BTreeMap<String, Option<[u8; 16]>>,
    writes: BTreeMap<String, Written>,
    /// The greatest place of a written key.
    last_place: u64,
    /// What the session takes of the limit `uncommitted`.
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    write: Write,
    /// Its place in the order in which the session first set keys.
    place: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    Set(Vec<u8>),
    /// Deleted and set again, so that the key gets a new position.
    Replace(Vec<u8>),
    Delete,
    /// Add to the number of the bucket.
    Add(u64),
}

impl Write {
    fn bytes(&self, key: &str) -> u64 {
        match self {
            Write::Set(value) | Write::Replace(value) => entry_bytes(key, value),
            Write::Delete | Write::Add(_) => entry_bytes(key, &[]),
        }
    }
}

/// What a session knows about the value of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is the bucket's value.
    Bucket,
    /// It is the bucket's number plus this number.
    BucketPlus(u64),
    Value(Option<Vec<u8>>),
}

/// A key that has a value in the session.
pub(crate) struct SetKey<'s> {
    pub(crate) place: u64,
    pub(crate) key: &'s str,
    /// Whether the key keeps its position in the bucket, if the bucket has it.
    pub(crate) keeps_position: bool,
}

impl BucketSession {
    pub fn new(bytes_max: u64) -> BucketSession {
        BucketSession {
            bytes_max,
            ..BucketSession::default()
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns at most how many more bytes the session takes after `changes`.
    pub(crate) fn growth(&self, changes: &[Change]) -> u64 {
        let keys: BTreeSet<&String> = changes.iter().map(|(key, _)| key).collect();
        let old = keys.into_iter().filter_map(|key| {
            let written = self.writes.get(key)?;
            Some(written.write.bytes(key))
        });
        let old: u64 = old.sum();
        let new = changes
            .iter()
            .map(|(key, value)| entry_bytes(key, value.as_deref().unwrap_or_default()));
        new.sum::<u64>().saturating_sub(old)
    }

    pub(crate) fn known(&self, key: &str) -> Known {
        match self.writes.get(key).map(|written| &written.write) {
            None => Known::Bucket,
            Some(Write::Add(delta)) => Known::BucketPlus(*delta),
            Some(Write::Delete) => Known::Value(None),
            Some(Write::Set(value) | Write::Replace(value)) => Known::Value(Some(value.clone())),
        }
    }

    /// Note that the call reads `value`, the bucket's value under `key`. Only the first read of a key counts.
    pub fn note_read(&mut self, key: &str, value: Option<&[u8]>) {
        if !self.reads.contains_key(key) {
            self.bytes += entry_bytes(key, &[]);
            self.reads.insert(key.to_owned(), value.map(sha256_half));
        }
    }

    pub fn write(&mut self, (key, value): Change) {
        let before = self.writes.get(&key).map(|written| &written.write);
        let was_deleted = matches!(before, Some(Write::Delete | Write::Replace(_)));
        let write = match value {
            None => Write::Delete,
            Some(value) if was_deleted => Write::Replace(value),
            Some(value) => Write::Set(value),
        };
        self.insert(key, write);
    }

    /// Add `delta` to the bucket's number under `key`. The session has written nothing else to it.
    pub fn add(&mut self, key: String, delta: u64) {
        let sum = match self.known(&key) {
            Known::BucketPlus(before) => before.saturating_add(delta),
            _ => delta,
        };
        self.insert(key, Write::Add(sum));
    }

    fn insert(&mut self, key: String, write: Write) {
        self.bytes += write.bytes(&key);
        let before = self.writes.remove(&key);
        let kept = before.and_then(|before| {
            self.bytes -= before.write.bytes(&key);
            (before.write != Write::Delete).then_some(before.place)
        });
        let place = kept.unwrap_or(self.last_place + 1);
        self.last_place = self.last_place.max(place);
        self.writes.insert(key, Written { write, place });
    }

    /// Returns whether `key`, which the bucket has, keeps its position.
    pub(crate) fn keeps_position(&self, key: &str) -> bool {
        let write = self.writes.get(key).map(|written| &written.write);
        !matches!(write, Some(Write::Delete | Write::Replace(_)))
    }

    /// Returns the keys with a value in the session, after the place `after`, in the order of their places.
    pub(crate) fn set_keys(&self, after: u64) -> Vec<SetKey<'_>> {
        let set = self.writes.iter().filter_map(|(key, written)| {
            let is_set = written.write != Write::Delete && written.place > after;
            is_set.then(|| SetKey {
                place: written.place,
                key,
                keeps_position: self.keeps_position(key),
            })
        });
        let mut set: Vec<SetKey<'_>> = set.collect();
        set.sort_unstable_by_key(|set| set.place);
        set
    }

    /// Returns whether the session changes nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the keys whose values the commit needs: those that the session has read, and those that it increments.
    pub fn keys_to_check(&self) -> Vec<&str> {
        let added = self.writes.iter();
        let added = added.filter(|(_, written)| matches!(written.write, Write::Add(_)));
        let added = added.map(|(key, _)| key.as_str());
        let keys: BTreeSet<&str> = self.reads.keys().map(String::as_str).chain(added).collect();
        keys.into_iter().collect()
    }

    /// Check the value that `key` has at the commit. Return its sum if the session increments it.
    ///
    /// # Errors
    ///
    /// When it is not the value that the session has read, or cannot be incremented.
    pub fn check(&self, key: &str, value: Option<&[u8]>) -> BucketResult<Option<u64>> {
        if let Some(read) = self.reads.get(key)
            && *read != value.map(sha256_half)
        {
            let key = key.to_owned();
            return Err(BucketError::Conflict { key });
        }
        match self.known(key) {
            Known::BucketPlus(delta) => add(key, value, delta).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the changes of the session in their order, with the `sums` of [`BucketSession::check`].
    pub fn changes(&self, sums: &BTreeMap<String, u64>) -> Vec<Change> {
        let mut writes: Vec<(&String, &Written)> = self.writes.iter().collect();
        writes.sort_unstable_by_key(|(_, written)| written.place);
        let mut changes = Vec::new();
        for (key, written) in writes {
            if !self.keeps_position(key) {
                changes.push((key.clone(), None));
            }
            let value = match &written.write {
                Write::Set(value) | Write::Replace(value) => value.clone(),
                Write::Add(_) => sums
                    .get(key)
                    .copied()
                    .unwrap_or_default()
                    .to_string()
                    .into(),
                Write::Delete => continue,
            };
            changes.push((key.clone(), Some(value)));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, value: &str) -> Change {
        (key.to_owned(), Some(value.into()))
    }

    #[test]
    fn changes_are_in_the_order_in_which_keys_were_first_set() {
        let mut session = BucketSession::new(0);
        session.write(set("z", "1"));
        session.write(set("a", "2"));
        session.write(set("z", "3"));
        session.write(("gone".to_owned(), None));
        session.write(("a".to_owned(), None));
        session.write(set("a", "4"));
        session.add("n".to_owned(), 2);
        session.add("n".to_owned(), 3);
        assert_eq!(session.check("n", Some(b"7")), Ok(Some(12)));
        let changes = session.changes(&[("n".to_owned(), 12)].into());
        let deleted = |key: &str| (key.to_owned(), None);
        let expected = [
            set("z", "3"),
            deleted("gone"),
            deleted("a"),
            set("a", "4"),
            set("n", "12"),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_value_that_was_read_must_be_the_same_at_the_commit() {
        let mut session = BucketSession::new(0);
        session.note_read("a", Some(b"1"));
        session.note_read("a", Some(b"2"));
        session.note_read("none", None);
        assert_eq!(session.keys_to_check(), ["a", "none"]);
        assert_eq!(session.check("a", Some(b"1")), Ok(None));
        assert_eq!(session.check("none", None), Ok(None));
        for (key, value) in [("a", Some(&b"2"[..])), ("a", None), ("none", Some(b""))] {
            let key = key.to_owned();
            let conflict = BucketError::Conflict { key: key.clone() };
            assert_eq!(session.check(&key, value), Err(conflict));
        }
    }

    #[test]
    fn the_bytes_of_a_session_follow_its_writes_and_reads() {
        let mut session = BucketSession::new(0);
        let write = set("key", "value");
        assert_eq!(session.growth(std::slice::from_ref(&write)), 72);
        session.write(write);
        assert_eq!(session.bytes(), 72);
        let shorter = set("key", "v");
        assert_eq!(session.growth(std::slice::from_ref(&shorter)), 0);
        session.write(shorter);
        assert_eq!(session.bytes(), 68);
        session.note_read("key", None);
        session.note_read("key", None);
        session.write(("key".to_owned(), None));
        assert_eq!(session.bytes(), 67 + 67);
    }
}
