//! Which versions of packages this host has reported as pending, rejected or refused.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use campanile_control::lock::lock;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_package::Package;

/// The most refusals to remember, and to report within [`REFUSALS_SPAN`].
const REFUSALS_MAX: usize = 1000;
const REFUSALS_SPAN: Duration = Duration::from_secs(3600);

/// The versions that this host has reported, by package: each once, also where two hosts have different files.
#[derive(Default)]
pub(crate) struct ReportedVersions {
    versions: Mutex<HashMap<String, ArtifactDigest>>,
    /// The versions that this host refused to run, by package and digest, each with the reason of its last report.
    refusals: Mutex<Refusals>,
    /// Whether the database may have lost what this host reported about unusable files.
    is_lost: AtomicBool,
}

/// The reasons of the last reports, since the first of them.
struct Refusals {
    of: HashMap<(String, ArtifactDigest), String>,
    since: Timestamp,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals {
            of: HashMap::new(),
            since: Timestamp::EPOCH,
        }
    }
}

impl ReportedVersions {
    pub(crate) fn contains(&self, package: &Package) -> bool {
        lock(&self.versions).get(&package.name) == Some(&package.digest)
    }

    pub(crate) fn insert(&self, package: &Package) {
        lock(&self.versions).insert(package.name.clone(), package.digest.clone());
    }

    /// Forget the report about a package whose file has changed.
    pub(crate) fn forget(&self, name: &str) {
        lock(&self.versions).remove(name);
    }

    /// Whether to report at `now` that this host doesn't run a version: it hasn't done so for this reason, and not too often for
    /// others.
    pub(crate) fn is_new_refusal(
        &self,
        (name, digest): (&str, &ArtifactDigest),
        why: &str,
        now: Timestamp,
    ) -> bool {
        let key = (name.to_owned(), digest.clone());
        let mut refusals = lock(&self.refusals);
        if refusals
            .of
            .get(&key)
            .is_some_and(|reported| reported == why)
        {
            return false;
        }
        if refusals.of.len() < REFUSALS_MAX {
            return true;
        }
        let is_over = now.since(refusals.since) >= REFUSALS_SPAN || now < refusals.since;
        if is_over {
            refusals.of.clear();
        }
        is_over
    }

    pub(crate) fn insert_refusal(
        &self,
        (name, digest): (&str, &ArtifactDigest),
        why: &str,
        now: Timestamp,
    ) {
        let mut refusals = lock(&self.refusals);
        if refusals.of.is_empty() {
            refusals.since = now;
        }
        let key = (name.to_owned(), digest.clone());
        refusals.of.insert(key, why.to_owned());
    }

    /// Have unusable files reported again.
    pub(crate) fn mark_lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Returns whether unusable files must be reported again, and reset that.
    pub(crate) fn take_lost(&self) -> bool {
        self.is_lost.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_reported_once_and_very_many_are_not_reported_again_and_again() {
        let reported = ReportedVersions::default();
        let at = |seconds| Timestamp::EPOCH.plus(Duration::from_secs(seconds));
        let digests: Vec<ArtifactDigest> = (0..REFUSALS_MAX + 500)
            .map(|number| ArtifactDigest::of(&number.to_be_bytes()))
            .collect();
        let report_all = |now| {
            let is_new = |digest: &&ArtifactDigest| {
                let is_new = reported.is_new_refusal(("a", digest), "why", now);
                if is_new {
                    reported.insert_refusal(("a", digest), "why", now);
                }
                is_new
            };
            digests.iter().filter(is_new).count()
        };
        assert_eq!(report_all(at(10)), REFUSALS_MAX);
        for seconds in 11..20 {
            assert_eq!(report_all(at(seconds)), 0);
        }
        assert!(report_all(at(20 + 3600)) <= REFUSALS_MAX);
    }
}
