//! Which versions of packages this host has reported as pending, rejected or refused.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::lock;
use campanile_model::ids::ArtifactDigest;
use campanile_package::Package;

/// The most refusals to remember. Past it they are reported again.
const REFUSALS_MAX: usize = 1000;

/// The versions that this host has reported, by package: each once, also where two hosts have different files.
#[derive(Default)]
pub(crate) struct ReportedVersions {
    versions: Mutex<HashMap<String, ArtifactDigest>>,
    /// The versions that this host refused to run, by package and digest, each with the reason of its last report.
    refusals: Mutex<HashMap<(String, ArtifactDigest), String>>,
    /// Whether the database may have lost what this host reported about unusable files.
    is_lost: AtomicBool,
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

    /// Whether this host has reported that it does not run a version, for this reason.
    pub(crate) fn has_refusal(&self, name: &str, digest: &ArtifactDigest, why: &str) -> bool {
        let key = (name.to_owned(), digest.clone());
        lock(&self.refusals)
            .get(&key)
            .is_some_and(|reported| reported == why)
    }

    pub(crate) fn insert_refusal(&self, name: &str, digest: &ArtifactDigest, why: &str) {
        let mut refusals = lock(&self.refusals);
        if refusals.len() >= REFUSALS_MAX {
            refusals.clear();
        }
        refusals.insert((name.to_owned(), digest.clone()), why.to_owned());
    }

    /// Have unusable files reported again.
    pub(crate) fn mark_lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Return whether unusable files must be reported again, and reset that.
    pub(crate) fn take_lost(&self) -> bool {
        self.is_lost.swap(false, Ordering::Relaxed)
    }
}
