//! What the tasks of each package add to the record in a day, and whether that is within the package's quota.
//!
//! A host counts in memory, and adds to the day's count in the database now and then. So hosts that write at the same time
//! may together exceed a quota by what each has counted since: at most a 64th of the quota each.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use campanile_control::lock::lock;
use campanile_model::clock::Timestamp;
use campanile_model::namespace::split;
use campanile_model::text::size_text;
use campanile_package::quota::{Namespaces, quota_of};
use campanile_store::package_record::DayUse;
use campanile_store::task_runs::TaskRun;

/// A count is written when it is so old.
const SYNC_INTERVAL: Duration = Duration::from_secs(10);
/// A count is written when it is this part of the quota.
const SYNC_PART: u64 = 64;

/// The day's use of each package whose tasks ran on this host.
///
/// What the packages of a namespace with a quota use together counts under the beginning of their names, such as `@team/`.
#[derive(Default)]
pub(crate) struct RecordUse {
    of_each: Mutex<HashMap<String, Used>>,
    namespaces: Arc<Namespaces>,
}

#[derive(Debug, Clone, Default)]
struct Used {
    /// Days since 1970, in UTC.
    day: i64,
    /// The bytes in the database at the last write, those of other hosts included.
    recorded: u64,
    /// The bytes since.
    pending: u64,
    quota: u64,
    written_at: Option<Timestamp>,
    exceeded: Exceeded,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Exceeded {
    #[default]
    No,
    /// Not in the database yet.
    Unreported,
    Reported,
}

impl RecordUse {
    /// Begin without any use. Packages of `namespaces` also share the quota of theirs.
    pub fn new(namespaces: Arc<Namespaces>) -> RecordUse {
        RecordUse {
            namespaces,
            ..RecordUse::default()
        }
    }

    /// Count what a call adds to the record.
    ///
    /// # Errors
    /// A sentence when that exceeds `quota`, in bytes a day, or that of the namespace. Then nothing is counted.
    pub fn add(&self, package: &str, quota: u64, bytes: u64, now: Timestamp) -> Result<(), String> {
        let mut of_each = lock(&self.of_each);
        let counted = self.counted(package, quota);
        for (name, quota) in &counted {
            let used = of_package(&mut of_each, name, *quota, now);
            let sum = used.recorded.saturating_add(used.pending);
            if sum.saturating_add(bytes) > *quota {
                if used.exceeded == Exceeded::No {
                    used.exceeded = Exceeded::Unreported;
                }
                return Err(refusal(name, used, *quota));
            }
        }
        for (name, quota) in &counted {
            of_package(&mut of_each, name, *quota, now).pending += bytes;
        }
        Ok(())
    }

    /// Returns under which names the use of a package counts, each with its quota.
    fn counted<'p>(&self, package: &'p str, quota: u64) -> Vec<(Cow<'p, str>, u64)> {
        let mut counted = vec![(Cow::Borrowed(package), quota)];
        if let Some((namespace, shared)) = quota_of(&self.namespaces, package)
            && let Some(quota) = shared.record_bytes_per_day
        {
            counted.push((Cow::Owned(namespace.prefix()), quota));
        }
        counted
    }

    /// Refuse to begin a run of a package that has used up its quota of today.
    ///
    /// # Errors
    /// The sentence of [`RecordUse::add`].
    pub fn check(&self, package: &str, quota: u64, now: Timestamp) -> Result<(), String> {
        let mut of_each = lock(&self.of_each);
        for (name, quota) in self.counted(package, quota) {
            let used = of_package(&mut of_each, &name, quota, now);
            if used.exceeded != Exceeded::No {
                return Err(refusal(&name, used, quota));
            }
        }
        Ok(())
    }

    /// Returns the counts to write now. They are pending until [`RecordUse::written`].
    pub fn due(&self, now: Timestamp) -> Vec<DayUse> {
        let of_each = lock(&self.of_each);
        let due = of_each.iter().filter(|(_, used)| {
            let is_old = |at| now.since(at) >= SYNC_INTERVAL;
            let is_large = used.pending >= used.quota / SYNC_PART;
            let is_due = used.pending > 0 && (used.written_at.is_none_or(is_old) || is_large);
            is_due || used.exceeded == Exceeded::Unreported
        });
        let due = due.map(|(package, used)| DayUse {
            package: package.clone(),
            day: used.day,
            bytes: i64::try_from(used.pending).unwrap_or(i64::MAX),
            exceeded: used.exceeded == Exceeded::Unreported,
        });
        let mut due: Vec<DayUse> = due.collect();
        // Every transaction writes these rows in the same order.
        due.sort_unstable_by(|a, b| a.package.cmp(&b.package));
        due
    }

    /// Note that `written` is in the database, and the sums there.
    pub fn written(&self, written: &[DayUse], sums: &HashMap<String, i64>, now: Timestamp) {
        let mut of_each = lock(&self.of_each);
        for written in written {
            let Some(used) = of_each.get_mut(&written.package) else {
                continue;
            };
            if used.day != written.day {
                continue;
            }
            used.pending = used.pending.saturating_sub(written.bytes.unsigned_abs());
            let sum = sums.get(&written.package).copied().unwrap_or_default();
            used.recorded = sum.unsigned_abs();
            used.written_at = Some(now);
            if written.exceeded {
                used.exceeded = Exceeded::Reported;
            }
        }
    }
}

/// Returns the use of a package today. A new day and a greater quota begin without an excess.
fn of_package<'a>(
    of_each: &'a mut HashMap<String, Used>,
    package: &str,
    quota: u64,
    now: Timestamp,
) -> &'a mut Used {
    let day = now.day();
    let used = of_each.entry(package.to_owned()).or_default();
    if used.day != day {
        *used = Used {
            day,
            ..Used::default()
        };
    }
    if quota > used.quota {
        used.exceeded = Exceeded::No;
    }
    used.quota = quota;
    used
}

fn refusal(name: &str, used: &Used, quota: u64) -> String {
    let sum = used.recorded.saturating_add(used.pending);
    let (whose, place) = match split(name) {
        (Some(namespace), "") => (
            format!("the namespace {namespace}"),
            format!("`[namespaces.{namespace}]` of the configuration"),
        ),
        _ => (format!("`{name}`"), format!("the `[quota]` of {name}.toml")),
    };
    format!(
        "the tasks of {whose} have added {} to the record today, and {} a day is their quota: print less, or raise `record_per_day` in {place}",
        size_text(sum),
        size_text(quota),
    )
}

/// Returns the bytes that a call adds to the record.
pub(crate) fn bytes_of(call: &TaskRun) -> u64 {
    let texts = [&call.output, &call.context, &call.message];
    let texts = texts.map(|text| text.as_ref().map_or(0, String::len));
    let printed = [&call.stdout, &call.stderr, &call.logs].map(String::len);
    (texts.iter().sum::<usize>() + printed.iter().sum::<usize>()) as u64
}

/// Leave nothing of what the task gave and printed.
pub(crate) fn strip(call: &mut TaskRun) {
    (call.output, call.context, call.message) = (None, None, None);
    for printed in [&mut call.stdout, &mut call.stderr] {
        *printed = String::new();
    }
    call.logs = "[]".to_owned();
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_package::quota::NamespaceQuota;

    const QUOTA: u64 = 64 << 10;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn a_call_beyond_the_quota_is_refused_until_the_next_day() {
        let used = RecordUse::default();
        assert_eq!(used.add("a", QUOTA, QUOTA - 1, at(0)), Ok(()));
        assert_eq!(used.check("a", QUOTA, at(1)), Ok(()));
        let refused = used.add("a", QUOTA, 2, at(2)).unwrap_err();
        assert!(refused.contains("64KiB a day is their quota"), "{refused}");
        assert_eq!(used.check("a", QUOTA, at(3)), Err(refused));
        assert_eq!(used.add("b", QUOTA, QUOTA, at(3)), Ok(()));
        // A greater quota applies at once.
        assert_eq!(used.check("a", QUOTA * 2, at(4)), Ok(()));
        assert_eq!(used.check("a", QUOTA, at(24 * 3600)), Ok(()));
    }

    #[test]
    fn the_packages_of_a_namespace_share_its_quota() {
        let quota = NamespaceQuota {
            record_bytes_per_day: Some(QUOTA),
            ..NamespaceQuota::default()
        };
        let team = "team".parse().unwrap();
        let used = RecordUse::new(Arc::new(Namespaces::from([(team, quota)])));
        assert_eq!(used.add("@team/a", 2 * QUOTA, QUOTA - 1, at(0)), Ok(()));
        let refused = used.add("@team/b", QUOTA, 2, at(1)).unwrap_err();
        assert!(refused.contains("`[namespaces.team]`"), "{refused}");
        // Nothing of it counts, also not for the package.
        assert_eq!(used.check("@team/a", 2 * QUOTA, at(2)), Err(refused));
        assert_eq!(used.add("a", QUOTA, QUOTA, at(3)), Ok(()));
        let due = used.due(at(3));
        let due = Vec::from_iter(due.iter().map(|used| (&*used.package, used.bytes)));
        let bytes = QUOTA as i64;
        assert_eq!(
            due,
            [("@team/", bytes - 1), ("@team/a", bytes - 1), ("a", bytes)]
        );
    }

    #[test]
    fn counts_are_written_at_first_when_they_are_large_and_when_they_are_old() {
        let used = RecordUse::default();
        let write = |seconds, other_hosts: i64| {
            let due = used.due(at(seconds));
            let sums = due
                .iter()
                .map(|used| (used.package.clone(), other_hosts + used.bytes));
            let sums: HashMap<String, i64> = sums.collect();
            used.written(&due, &sums, at(seconds));
            due.iter().map(|used| used.bytes).sum::<i64>()
        };
        used.add("a", QUOTA, 10, at(0)).unwrap();
        assert_eq!(write(0, 0), 10);
        used.add("a", QUOTA, 10, at(1)).unwrap();
        assert_eq!(write(1, 0), 0);
        assert_eq!(write(10, 0), 10);
        used.add("a", QUOTA, 2 << 10, at(11)).unwrap();
        // Another host has used the rest meanwhile.
        assert_eq!(write(11, 60 << 10), 2 << 10);
        assert!(used.add("a", QUOTA, 4 << 10, at(12)).is_err());
        let due = used.due(at(12));
        assert!(due[0].exceeded);
        assert_eq!(write(12, 62 << 10), 0);
        assert_eq!(used.due(at(13)), []);
    }
}
