//! The transaction that records a package of this host, active or pending, together with its schedules.

use crate::approval::{self, VersionAdmission};
use crate::crash;
use crate::ctx::Ctx;
use crate::error::EngineError;
use crate::schedule_admin::{self, ScheduleDefinition, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::printable_line;
use campanile_package::Package;
use campanile_package::requests::list_requests;
use campanile_schedule::rule::{HashKey, Rule};
use campanile_store::events::{self, EventKind};
use campanile_store::packages::{self, LoadedPackage, SidecarSummary};
use campanile_store::{DbError, Origin, Tx, package_versions, schedules};

/// Refused schedules, each with its name and the reason.
pub(crate) type Refusals = Vec<(String, String)>;

/// A version that the database may not have yet.
#[derive(Clone, Copy)]
pub(crate) struct News<'a> {
    pub(crate) bytes: &'a [u8],
    /// The event, in one sentence.
    pub(crate) said: &'a str,
}

/// How a package was recorded.
pub(crate) enum Recorded {
    /// It is active, apart from these schedules of it.
    Active(Refusals),
    /// It is pending or rejected. A sentence says why, unless an operator decided meanwhile.
    Pending(Option<String>),
}

/// Record that this host has `package`, and make its schedules follow, in one transaction.
///
/// Without `news` the database must already have the version as active.
pub(crate) async fn record_package(
    ctx: &Ctx,
    package: &Package,
    news: Option<News<'_>>,
) -> Result<Recorded, EngineError> {
    let now = ctx.clock.now();
    // Two hosts collide when they record the same file.
    let recorded = campanile_store::retry(ScheduleError::is_collision, || async {
        let mut tx = ctx.db.write().await?;
        let recorded = record_in(ctx, &mut tx, package, news, now).await?;
        crash::point("before_package_commit");
        tx.commit().await?;
        Ok(recorded)
    })
    .await;
    match recorded {
        Err(ScheduleError::Db(error)) => Err(error.into()),
        Err(other) => Err(EngineError::Bug(other.to_string())),
        Ok(recorded) => {
            crash::point("after_package_commit");
            Ok(recorded)
        }
    }
}

async fn record_in(
    ctx: &Ctx,
    tx: &mut Tx,
    package: &Package,
    news: Option<News<'_>>,
    now: Timestamp,
) -> Result<Recorded, ScheduleError> {
    let (name, digest) = (&package.name, &package.digest);
    let settings = settings_of(package);
    // Until the commit no other process decides about this package.
    packages::lock_or_create(tx, name).await?;
    let row = packages::find(tx, name).await?;
    let Some(News { bytes, said }) = news else {
        if row.and_then(|row| row.digest).as_ref() != Some(digest) {
            return Ok(Recorded::Pending(None));
        }
        packages::publish_host(tx, ctx.host, name, digest, settings).await?;
        return Ok(Recorded::Active(follow_schedules(tx, package, now).await?));
    };
    let loaded = LoadedPackage {
        name,
        digest,
        form: package.artifact.form.as_str(),
        bytes,
        manifest: &package.manifest.description.to_string(),
        sidecar: settings,
    };
    let decision = package_versions::decision(tx, name, digest).await?;
    let admission = approval::admission(row.as_ref(), decision, package);
    if admission != VersionAdmission::Active {
        return Ok(Recorded::Pending(
            record_pending(tx, &loaded, &admission, now).await?,
        ));
    }
    packages::publish(tx, ctx.host, &loaded, now).await?;
    events::record(tx, now, EventKind::PackageLoaded, name, said).await?;
    Ok(Recorded::Active(follow_schedules(tx, package, now).await?))
}

/// Record that the file in the folder is not active, with an event if that is news. Return the sentence that says so.
async fn record_pending(
    tx: &mut Tx,
    loaded: &LoadedPackage<'_>,
    admission: &VersionAdmission,
    now: Timestamp,
) -> Result<Option<String>, DbError> {
    let row = packages::find(tx, loaded.name).await?;
    packages::set_pending(tx, loaded, now).await?;
    let Some(row) = row else { return Ok(None) };
    let name = loaded.name;
    let active = row.digest.as_ref().map_or("none", ArtifactDigest::short);
    let digest = loaded.digest.short();
    let (kind, said) = match admission {
        VersionAdmission::Active => return Ok(None),
        VersionAdmission::Pending(beyond) => (
            EventKind::VersionPending,
            format!(
                "{digest} waits for approval and {active} stays in force: it asks for {}, which is not granted; \
                 see `campanile package diff {name}`, then grant it in {name}.toml, reject it, or `{}`",
                list_requests(beyond),
                approval::approve_command(name, loaded.digest)
            ),
        ),
        VersionAdmission::Blocked(decision) => (
            EventKind::VersionBlocked,
            format!(
                "{digest} is kept out and {active} stays in force: it was {}; \
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

/// Record all packages of this host again, after another host marked it as dead.
pub(crate) async fn publish_all(ctx: &Ctx, tx: &mut Tx) -> Result<(), EngineError> {
    for package in ctx.packages.all().values() {
        let (name, digest) = (&package.name, &package.digest);
        packages::publish_host(tx, ctx.host, name, digest, settings_of(package)).await?;
    }
    Ok(())
}

fn settings_of(package: &Package) -> SidecarSummary<'_> {
    SidecarSummary {
        grants: &package.grant_record.text,
        pin: package.sidecar.pin.as_deref(),
        text: package.sidecar.text.as_deref(),
    }
}

/// Make the schedules of a package those of its sidecar, or else those that the package proposes.
///
/// Return the refused ones, which are recorded too. Then no schedule is removed: one may be meant by a refused name.
async fn follow_schedules(
    tx: &mut Tx,
    package: &Package,
    now: Timestamp,
) -> Result<Refusals, ScheduleError> {
    let origin = match package.sidecar.schedules {
        Some(_) => Origin::Sidecar,
        None => Origin::Package,
    };
    let wanted = package.schedules();
    schedules::lock(tx, None, Some(&package.name)).await?;
    let mut refusals = Refusals::new();
    for wanted in &wanted {
        let read = Rule::parse(&wanted.rule, HashKey::NONE);
        for note in read.iter().flat_map(Rule::notes) {
            tracing::warn!(schedule = %printable_line(&wanted.name), "{note}");
        }
        match follow(tx, wanted, origin, now).await {
            Ok(()) => {}
            // Nothing of this transaction can be kept.
            Err(error @ (ScheduleError::Db(_) | ScheduleError::Raced(_))) => return Err(error),
            Err(refused) => {
                let why = refused.to_string();
                events::record(tx, now, EventKind::ScheduleRefused, &wanted.name, &why).await?;
                refusals.push((wanted.name.clone(), why));
            }
        }
    }
    if refusals.is_empty() {
        remove_others(tx, &package.name, &wanted, now).await?;
    }
    Ok(refusals)
}

/// Remove the schedules of a package that neither its sidecar nor the package names any more.
async fn remove_others(
    tx: &mut Tx,
    package: &str,
    wanted: &[ScheduleDefinition],
    now: Timestamp,
) -> Result<(), ScheduleError> {
    for schedule in schedules::list(tx, None, Some(package)).await? {
        let name = &schedule.definition.name;
        let is_wanted = wanted.iter().any(|wanted| wanted.name == *name);
        if is_of_package(schedule.state.origin) && !is_wanted {
            schedule_admin::end(tx, &schedule, now).await?;
        }
    }
    Ok(())
}

/// Whether a package and its sidecar decide about schedules of `origin`.
fn is_of_package(origin: Origin) -> bool {
    match origin {
        Origin::Sidecar | Origin::Package => true,
        Origin::Operator | Origin::File => false,
    }
}

/// Add or change one schedule of a package, unless it is already as wanted.
async fn follow(
    tx: &mut Tx,
    wanted: &ScheduleDefinition,
    origin: Origin,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    schedules::lock(tx, Some(&wanted.name), None).await?;
    let Some(schedule) = schedules::find(tx, &wanted.name).await? else {
        schedule_admin::add(tx, wanted, origin, now).await?;
        return Ok(());
    };
    if !is_of_package(schedule.state.origin) || schedule.definition.package != wanted.package {
        return Err(ScheduleError::Exists(wanted.name.clone()));
    }
    let says = &schedule.definition;
    let context: serde_json::Value = serde_json::from_str(&says.context).unwrap_or_default();
    let policies = serde_json::to_string(&wanted.policies).unwrap_or_default();
    let is_same = says.rule == wanted.rule
        && says.policies == policies
        && says.task == wanted.task
        && context.as_object() == Some(&wanted.context)
        && schedule.state.origin == origin;
    if !is_same {
        schedule_admin::revise(tx, &schedule, wanted, origin, now).await?;
    }
    Ok(())
}
