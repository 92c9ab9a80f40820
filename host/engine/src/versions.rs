//! Versions of packages that runs of this host call, worked out once each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Engine;
use super::workflow::Step;
use campanile_model::ids::ArtifactDigest;
use campanile_package::requests::denial;
use campanile_package::{self, Manifest, Package};
use campanile_sandbox::{Artifact, StopSignal};
use campanile_store::{FailureKind, packages};

/// Older versions kept compiled at most; past it the store starts afresh.
const OLDER_MAX: usize = 16;

/// A package and the one task of it that is wanted, if only one is.
type Wanted = (String, Option<String>);
/// What a digest compiles to, and what it says of itself.
type Compiled = (Arc<Artifact>, Arc<Manifest>);

/// What a run calls: the artifact it was decided with, under the grants and limits of now.
pub(super) struct Version {
    pub(super) artifact: Arc<Artifact>,
    pub(super) package: Arc<Package>,
    pub(super) steps: Vec<Step>,
    /// Why nothing of it is called, as long as its sidecar does not grant what it asks for.
    pub(super) denial: Option<String>,
}

/// A run that cannot begin.
pub(super) enum CannotBegin {
    /// It ends in one sentence.
    Failed { kind: FailureKind, message: String },
    /// It was stopped before it was known whether it can.
    Stopped,
}

#[derive(Default)]
pub struct Versions {
    /// Of the packages in the folder, with the package they were worked out from.
    live: Mutex<HashMap<Wanted, Arc<Version>>>,
    /// Of digests that are no longer in the folder but that open launches were decided with.
    older: Mutex<HashMap<ArtifactDigest, Compiled>>,
}

impl Versions {
    /// What a run of the package as it is in the folder calls.
    pub(super) fn of(
        &self,
        package: &Arc<Package>,
        only: Option<&str>,
    ) -> Result<Arc<Version>, CannotBegin> {
        let key = (package.name.clone(), only.map(str::to_owned));
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = live.get(&key)
            && Arc::ptr_eq(&version.package, package)
        {
            return Ok(Arc::clone(version));
        }
        let version = Arc::new(version(
            Arc::clone(&package.artifact),
            &package.manifest,
            package,
            only,
        )?);
        live.insert(key, Arc::clone(&version));
        Ok(version)
    }

    /// What a run of an older digest calls: its bytes from the database, under the sidecar of now.
    pub(super) async fn of_digest(
        &self,
        engine: &Engine,
        stop: &StopSignal,
        package: &Arc<Package>,
        digest: &ArtifactDigest,
        only: Option<&str>,
    ) -> Result<Arc<Version>, CannotBegin> {
        let known = {
            let older = self.older.lock().unwrap_or_else(PoisonError::into_inner);
            older.get(digest).cloned()
        };
        let (artifact, manifest) = match known {
            Some(known) => known,
            None => {
                let loaded = load(engine, stop, &package.name, digest).await?;
                let mut older = self.older.lock().unwrap_or_else(PoisonError::into_inner);
                if older.len() >= OLDER_MAX {
                    older.clear();
                }
                older.insert(digest.clone(), loaded.clone());
                loaded
            }
        };
        Ok(Arc::new(version(artifact, &manifest, package, only)?))
    }
}

async fn load(
    engine: &Engine,
    stop: &StopSignal,
    name: &str,
    digest: &ArtifactDigest,
) -> Result<(Arc<Artifact>, Arc<Manifest>), CannotBegin> {
    let bytes = engine.until_stopped(stop, || async {
        let mut tx = engine.db.read().await?;
        Ok(packages::artifact(&mut tx, digest).await?)
    });
    let bytes = bytes
        .await
        .ok_or(CannotBegin::Stopped)?
        .ok_or_else(|| CannotBegin::Failed {
            kind: FailureKind::HostError,
            message: format!("version {} is not kept any more", digest.short()),
        })?;
    campanile_package::compile(&engine.sandbox, name, bytes)
        .await
        .map_err(|message| CannotBegin::Failed {
            kind: FailureKind::Refused,
            message,
        })
}

fn version(
    artifact: Arc<Artifact>,
    manifest: &Manifest,
    package: &Arc<Package>,
    only: Option<&str>,
) -> Result<Version, CannotBegin> {
    let Some(tasks) = manifest.order(only) else {
        return Err(CannotBegin::Failed {
            kind: FailureKind::Refused,
            message: format!(
                "the package `{}` has no task `{}`; it has {}",
                package.name,
                only.unwrap_or_default(),
                manifest
                    .tasks
                    .iter()
                    .map(|task| format!("`{}`", task.id))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        });
    };
    let place_of = |id: &String| tasks.iter().position(|task| task.id == *id);
    let steps = tasks
        .iter()
        .map(|task| Step {
            id: task.id.clone(),
            depends_on: task.depends_on.iter().filter_map(place_of).collect(),
            limits: package.limits_of(&task.id),
            attempts_max: i64::from(package.max_attempts_of(&task.id)),
        })
        .collect();
    let missing = manifest.missing_grants(&(&*package.sidecar.grants).into());
    Ok(Version {
        artifact,
        denial: (!missing.is_empty()).then(|| denial(&package.name, &missing)),
        package: Arc::clone(package),
        steps,
    })
}
