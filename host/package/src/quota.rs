//! What packages share: the `[quota]` table, which bounds what one of them may use on one host, the quotas of namespaces, and
//! concurrency groups.
//!
//! A sidecar changes the quota that the host's configuration sets.

use std::collections::BTreeMap;

use crate::toml_reader::{Error, Section};
use campanile_model::namespace::Namespace;
use campanile_schedule::policy::Policies;

/// The greatest number that a key of `[quota]` takes.
pub const COUNT_MOST: u32 = 1_000_000;
/// The bounds of `record_per_day`, in bytes.
pub const RECORD_BYTES_LEAST: u64 = 64 << 10;
/// See [`RECORD_BYTES_LEAST`].
pub const RECORD_BYTES_MOST: u64 = 1 << 50;

/// The concurrency groups of a host's configuration, each with the most runs at the same time.
pub type Groups = BTreeMap<String, u32>;

/// Refuse policies that name a group which is not in `groups`.
///
/// # Errors
/// A sentence that says what to do.
pub fn check_group(policies: &Policies, groups: &Groups) -> Result<(), String> {
    let group = policies.group.as_ref().map(ToString::to_string);
    let Some(group) = group.filter(|group| !groups.contains_key(group)) else {
        return Ok(());
    };
    let known: Vec<&str> = groups.keys().map(String::as_str).collect();
    let or = if known.is_empty() {
        ""
    } else {
        ", or use one of "
    };
    let known = known.join(", ");
    Err(format!(
        "its group `{group}` is not defined: add `[groups.{group}]` with `max = 1` or more to the configuration{or}{known}"
    ))
}

/// What one package may use on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The most runs at once; none for no limit besides the host's division of its capacity.
    pub runs_max: Option<u32>,
    /// The most launches in a second; none for no limit.
    pub launches_per_second: Option<u32>,
    /// The most runs at once of schedules that the package proposes.
    pub proposed_runs_max: u32,
    /// The most launches in a second of schedules that the package proposes.
    pub proposed_launches_per_second: u32,
    /// The most bytes that its tasks add to the record in a day, on all hosts.
    pub record_bytes_per_day: u64,
}

impl Default for Quota {
    fn default() -> Quota {
        Quota {
            runs_max: None,
            launches_per_second: None,
            proposed_runs_max: 32,
            proposed_launches_per_second: 100,
            record_bytes_per_day: 1 << 30,
        }
    }
}

/// What the packages of one namespace may use together; none for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceQuota {
    /// The most runs at once, on one host.
    pub runs_max: Option<u32>,
    /// The most launches in a minute, on one host.
    pub launches_per_minute: Option<u32>,
    /// The most bytes that its tasks add to the record in a day, on all hosts.
    pub record_bytes_per_day: Option<u64>,
    /// The most bytes in all its buckets.
    pub bucket_bytes: Option<u64>,
}

/// The namespaces of a host's configuration, each with its quota.
pub type Namespaces = BTreeMap<Namespace, NamespaceQuota>;

/// Returns the namespace of a package or of a bucket, with its quota; none without a quota.
pub fn quota_of<'n>(
    namespaces: &'n Namespaces,
    name: &str,
) -> Option<(&'n Namespace, &'n NamespaceQuota)> {
    let mut all = namespaces.iter();
    all.find(|(namespace, _)| namespace.contains(name))
}

/// The keys of `[quota]` that a sidecar sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaChanges {
    runs_max: Option<u32>,
    launches_per_second: Option<u32>,
    proposed_runs_max: Option<u32>,
    proposed_launches_per_second: Option<u32>,
    record_bytes_per_day: Option<u64>,
}

impl QuotaChanges {
    /// Read `[quota]`.
    ///
    /// # Errors
    /// When a key is unknown or its value is out of bounds.
    pub fn read(mut section: Section<'_>) -> Result<QuotaChanges, Error> {
        let mut count = |key| section.number(key, 1, COUNT_MOST.into());
        let mut changes = QuotaChanges {
            runs_max: count("runs_max")?,
            launches_per_second: count("launches_per_second")?,
            proposed_runs_max: count("proposed_runs_max")?,
            proposed_launches_per_second: count("proposed_launches_per_second")?,
            record_bytes_per_day: None,
        };
        changes.record_bytes_per_day =
            section.size("record_per_day", RECORD_BYTES_LEAST, RECORD_BYTES_MOST)?;
        section.finish()?;
        Ok(changes)
    }

    /// Returns `quota` with these changes.
    pub fn over(&self, quota: &Quota) -> Quota {
        Quota {
            runs_max: self.runs_max.or(quota.runs_max),
            launches_per_second: self.launches_per_second.or(quota.launches_per_second),
            proposed_runs_max: self.proposed_runs_max.unwrap_or(quota.proposed_runs_max),
            proposed_launches_per_second: self
                .proposed_launches_per_second
                .unwrap_or(quota.proposed_launches_per_second),
            record_bytes_per_day: self
                .record_bytes_per_day
                .unwrap_or(quota.record_bytes_per_day),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toml_reader::Document;

    fn read(text: &str) -> Result<QuotaChanges, String> {
        let document = Document::parse("x.toml", text).unwrap();
        QuotaChanges::read(document.section()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_set_changes_and_the_rest_stays() {
        let base = Quota::default();
        assert_eq!(read("").unwrap().over(&base), base);
        let text = "runs_max = 1\nlaunches_per_second = 2\nproposed_runs_max = 3\n\
            proposed_launches_per_second = 4\nrecord_per_day = '64KiB'";
        let changed = Quota {
            runs_max: Some(1),
            launches_per_second: Some(2),
            proposed_runs_max: 3,
            proposed_launches_per_second: 4,
            record_bytes_per_day: 64 << 10,
        };
        assert_eq!(read(text).unwrap().over(&base), changed);
    }

    #[test]
    fn zero_and_unknown_keys_are_refused() {
        for (text, expected) in [
            ("runs_max = 0", "must be a whole number from 1 to 1000000"),
            ("record_per_day = '0B'", "from \"64KiB\""),
            ("runs = 3", "unknown key `runs`: did you mean `runs_max`?"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
