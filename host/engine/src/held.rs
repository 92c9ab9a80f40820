//! Files that are in the folder and not in force: on the record, while the version that is in force runs on.
//!
//! A scan finds such a file again each time, because the live version is another; what it costs then is one look into
//! the database, which is also how a decision, or a sidecar that was widened, lets it in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::approval::{self, VersionAdmission};
use super::{Engine, EngineError};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_package::requests::list_requests;
use campanile_package::{Change, Package, PluginsFolder};
use campanile_store::events::{self, EventKind};
use campanile_store::package_versions;
use campanile_store::packages::{self, LoadedPackage};
use campanile_store::{DbError, Tx};

/// The versions that this host has told of, by package: each is told of once, also where two hosts have two.
#[derive(Default)]
pub(super) struct Told {
    versions: Mutex<HashMap<String, ArtifactDigest>>,
    /// Whether the record may have lost what was told of files that cannot be used.
    is_lost: AtomicBool,
}

impl Told {
    fn is(&self, package: &Package) -> bool {
        let told = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        told.get(&package.name) == Some(&package.digest)
    }

    fn set(&self, package: &Package) {
        let mut told = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(package.name.clone(), package.digest.clone());
    }

    /// The file is another now.
    pub(super) fn forget(&self, name: &str) {
        let mut told = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        told.remove(name);
    }

    /// What was told of files that cannot be used is to be told again.
    pub(super) fn tell_again(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Whether it is, once.
    pub(super) fn is_to_be_told_again(&self) -> bool {
        self.is_lost.swap(false, Ordering::Relaxed)
    }
}

impl Engine {
    /// Whether `new` is kept out, and all there is to say about that is on the record.
    pub(super) async fn is_known_to_be_held(&self, new: &Package) -> Result<bool, DbError> {
        if !self.told.is(new) {
            return Ok(false);
        }
        let mut tx = self.db.read().await?;
        let row = packages::find(&mut tx, &new.name).await?;
        let decision = package_versions::decision(&mut tx, &new.name, &new.digest).await?;
        let is_noted = row.as_ref().is_some_and(|row| row.pending_digest.is_some());
        Ok(
            is_noted
                && approval::admission(row.as_ref(), decision, new) != VersionAdmission::Active,
        )
    }

    /// Let the version in force go on under the present sidecar, while the file `new` is kept out.
    pub(super) async fn stand_in(
        &self,
        folder: &PluginsFolder,
        new: &Package,
    ) -> Result<(), EngineError> {
        self.told.set(new);
        self.bring_back(folder, &new.name).await?;
        let old = self.packages.get(&new.name);
        let old = old.filter(|live| live.sidecar_hash != new.sidecar_hash);
        let again = old.and_then(|old| Some((folder.with_current_sidecar(&old)?, old)));
        match again {
            Some((new, old)) => self.stay_with(Change::Updated { old, new }).await,
            None => Ok(()),
        }
    }

    /// Go on with the versions in force where a person decided against those that are live here.
    pub(super) async fn follow_decisions(&self, folder: &PluginsFolder) -> Result<(), EngineError> {
        let mut tx = self.db.read().await?;
        let kept_out = package_versions::blocked(&mut tx).await?;
        drop(tx);
        for (name, digest) in kept_out {
            let live = self.packages.get(&name);
            if live.is_some_and(|live| live.digest == digest) {
                self.bring_back(folder, &name).await?;
            }
        }
        Ok(())
    }
}

/// Put on the record that the file in the folder is kept out, as an event if it is news; gives the sentence that says so.
pub(super) async fn keep_out(
    tx: &mut Tx,
    loaded: &LoadedPackage<'_>,
    admission: &VersionAdmission,
    now: Timestamp,
) -> Result<Option<String>, DbError> {
    let row = packages::find(tx, loaded.name).await?;
    packages::set_pending(tx, loaded, now).await?;
    let Some(row) = row else { return Ok(None) };
    let name = loaded.name;
    let in_force = row.digest.as_ref().map_or("none", ArtifactDigest::short);
    let digest = loaded.digest.short();
    let (kind, said) = match admission {
        VersionAdmission::Active => return Ok(None),
        VersionAdmission::Pending(beyond) => (
            EventKind::VersionPending,
            format!(
                "{digest} waits for approval and {in_force} stays in force: it asks for {}, which is not granted; \
                 see `campanile package diff {name}`, then grant it in {name}.toml, reject it, or `{}`",
                list_requests(beyond),
                approval::approve_command(name, loaded.digest)
            ),
        ),
        VersionAdmission::Blocked(decision) => (
            EventKind::VersionBlocked,
            format!(
                "{digest} is kept out and {in_force} stays in force: it was {}; \
                 `{}` lets it in",
                match decision {
                    package_versions::VersionDecision::RolledBack => "rolled back from",
                    _ => "rejected",
                },
                approval::approve_command(name, loaded.digest)
            ),
        ),
    };
    if row.pending_digest.as_ref() != Some(loaded.digest) {
        events::record(tx, now, kind, name, &said).await?;
    }
    Ok(Some(said))
}
