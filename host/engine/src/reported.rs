//! Which versions of packages this host has reported as pending or rejected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use campanile_model::ids::ArtifactDigest;
use campanile_package::Package;

/// The versions that this host has reported, by package: each once, also where two hosts have different files.
#[derive(Default)]
pub(crate) struct ReportedVersions {
    versions: Mutex<HashMap<String, ArtifactDigest>>,
    /// Whether the database may have lost what this host reported about unusable files.
    is_lost: AtomicBool,
}

impl ReportedVersions {
    pub(crate) fn contains(&self, package: &Package) -> bool {
        self.lock().get(&package.name) == Some(&package.digest)
    }

    pub(crate) fn insert(&self, package: &Package) {
        self.lock()
            .insert(package.name.clone(), package.digest.clone());
    }

    /// Forget the report about a package whose file has changed.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Have unusable files reported again.
    pub(crate) fn mark_lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Return whether unusable files must be reported again, and reset that.
    pub(crate) fn take_lost(&self) -> bool {
        self.is_lost.swap(false, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ArtifactDigest>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
