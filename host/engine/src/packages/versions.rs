//! The versions of packages that runs of this host call, each prepared once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::ctx::Ctx;
use crate::packages::version_check::{self, StoredCode};
use crate::service::retry_while_tracked;
use campanile_control::admin::schedule_admin::no_task;
use campanile_control::lock::lock;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::cut_error;
use campanile_package::requests::denial;
use campanile_package::{Attempt, Manifest, Package, PackageLoader, Vouched};
use campanile_sandbox::{Artifact, StopSignal};
use campanile_store::FailureKind;
use campanile_store::events::EventKind;
use campanile_store::launch::RunEnd;
use campanile_workflow::graph::{Graph, Step};

/// Older versions kept compiled at most. Past it the cache is cleared.
const OLDER_MAX: usize = 16;

/// A package and the one task of it that a schedule names, if it names one.
type TaskKey = (String, Option<String>);
/// The compiled bytes of a digest, and their manifest.
type Compiled = (Arc<Artifact>, Arc<Manifest>);
/// An older version, and who vouches for its bytes.
type Older = (Compiled, Vouched);

/// What a run calls: the artifact it was decided with, under the current grants and limits.
pub(crate) struct Version {
    pub(crate) artifact: Arc<Artifact>,
    pub(crate) package: Arc<Package>,
    pub(crate) graph: Arc<Graph>,
    /// Why it isn't run: only the database vouches for it, or the sidecar only accepts higher version numbers.
    pub(crate) refusal: Option<String>,
    /// Why no task is called, while the sidecar does not grant what the package requests.
    pub(crate) denial: Option<String>,
}

/// The end of a run that cannot begin; none when the run was dropped before its version was known.
pub(crate) struct CannotBegin(pub(crate) Option<RunEnd>);

impl CannotBegin {
    pub(crate) fn refused(message: String) -> CannotBegin {
        let (kind, message) = (FailureKind::Refused, cut_error(message));
        CannotBegin(Some(RunEnd::Failed { kind, message }))
    }

    /// Refuse a version, and report that with an event.
    pub(crate) async fn reported(
        ctx: &Ctx,
        stop: &StopSignal,
        kind: EventKind,
        (name, digest): (&str, &ArtifactDigest),
        why: String,
    ) -> CannotBegin {
        let report = || version_check::report(ctx, kind, name, digest, &why);
        match retry_while_tracked(ctx, stop, report).await {
            Some(()) => CannotBegin::refused(why),
            None => CannotBegin(None),
        }
    }
}

#[derive(Default)]
pub(crate) struct Versions {
    /// The versions in the folder.
    current: Mutex<HashMap<TaskKey, Arc<Version>>>,
    /// Digests that left the folder while launches that were decided with them are open.
    older: Mutex<HashMap<(String, ArtifactDigest), Older>>,
}

impl Versions {
    /// Returns what a run calls of the package as it is in the folder.
    pub(crate) fn current(
        &self,
        package: &Arc<Package>,
        only: Option<&str>,
    ) -> Result<Arc<Version>, CannotBegin> {
        let key = (package.name.clone(), only.map(str::to_owned));
        let mut current = lock(&self.current);
        if let Some(version) = current.get(&key)
            && Arc::ptr_eq(&version.package, package)
        {
            return Ok(Arc::clone(version));
        }
        let loaded = (Arc::clone(&package.artifact), Arc::clone(&package.manifest));
        let version = version(loaded, (&package.digest, None), package, only)?;
        current.insert(key, Arc::clone(&version));
        Ok(version)
    }

    /// Returns what a run calls of an older digest: its bytes from the database, under the current sidecar.
    pub(crate) async fn older(
        &self,
        ctx: &Ctx,
        loader: &PackageLoader,
        stop: &StopSignal,
        package: &Arc<Package>,
        digest: &ArtifactDigest,
        only: Option<&str>,
    ) -> Result<Arc<Version>, CannotBegin> {
        let name = &package.name;
        let key = (name.clone(), digest.clone());
        let known = lock(&self.older).get(&key).cloned();
        if let Some((loaded, vouched)) = known {
            return older(loaded, (digest, vouched), package, only);
        }
        let stored =
            retry_while_tracked(ctx, stop, || version_check::stored_code(ctx, name, digest));
        let (bytes, vouched) = match stored.await.ok_or(CannotBegin(None))? {
            StoredCode::Bytes(bytes, vouched) => (bytes, vouched),
            StoredCode::NotStored => {
                let kind = FailureKind::HostError;
                let message = format!("version {} is not kept any more", digest.short());
                return Err(CannotBegin(Some(RunEnd::Failed { kind, message })));
            }
            StoredCode::Refused(kind, why) => {
                return Err(CannotBegin::reported(ctx, stop, kind, (name, digest), why).await);
            }
        };
        let loaded = campanile_package::load(loader, name, bytes, Attempt::First).await;
        let loaded = loaded.map_err(CannotBegin::refused)?;
        let mut kept = lock(&self.older);
        if kept.len() >= OLDER_MAX {
            kept.clear();
        }
        kept.insert(key, (loaded.clone(), vouched));
        drop(kept);
        older(loaded, (digest, vouched), package, only)
    }
}

/// Returns what a run calls for an older digest, under the current sidecar.
fn older(
    loaded: Compiled,
    (digest, vouched): (&ArtifactDigest, Vouched),
    package: &Arc<Package>,
    only: Option<&str>,
) -> Result<Arc<Version>, CannotBegin> {
    let unvouched = package
        .sidecar
        .check_vouched(&package.name, digest, vouched);
    let unvouched = unvouched.err();
    version(loaded, (digest, unvouched), package, only)
}

fn version(
    (artifact, manifest): Compiled,
    (digest, unvouched): (&ArtifactDigest, Option<String>),
    package: &Arc<Package>,
    only: Option<&str>,
) -> Result<Arc<Version>, CannotBegin> {
    let Some(tasks) = manifest.order(only) else {
        let message = no_task(&package.name, &manifest, only.unwrap_or_default());
        return Err(CannotBegin::refused(message));
    };
    let ids = tasks.iter().enumerate();
    let places: HashMap<&str, usize> = ids.map(|(place, task)| (&*task.id, place)).collect();
    let position = |id: &String| places.get(id.as_str()).copied();
    let steps = tasks.iter().map(|task| Step {
        id: task.id.clone(),
        depends_on: task.depends_on.iter().filter_map(position).collect(),
        limits: package.limits_of(&task.id),
        attempts_max: i64::from(package.max_attempts_of(&task.id)),
    });
    let too_low = package.sidecar.check_version(&manifest).err();
    let missing = manifest.missing_grants(&(&*package.sidecar.grants).into());
    Ok(Arc::new(Version {
        artifact,
        refusal: unvouched
            .or(too_low)
            .map(|why| version_check::not_run(digest, &why)),
        denial: (!missing.is_empty()).then(|| denial(&package.name, &missing)),
        package: Arc::clone(package),
        graph: Arc::new(Graph::new(steps.collect())),
    }))
}
