//! The transaction that records a package of this host, active or pending, together with its schedules.

use crate::crash;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::packages::version_check;
use campanile_control::admin::approval::{self, VersionAdmission};
use campanile_control::admin::schedule_admin::{self, Refusal, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::json_text::text_of;
use campanile_model::text::{cut_error, shell};
use campanile_package::requests::list_requests;
use campanile_package::{Change, Package};
use campanile_store::events::{self, EventKind};
use campanile_store::package_versions::VersionDecision;
use campanile_store::packages::{self, LoadedPackage, PackageRow, SidecarSummary};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{DbError, Origin, Tx};

/// How a package was recorded.
pub(crate) enum Recorded {
    /// It is active, apart from these schedules of it.
    Active(Vec<Refusal>),
    /// It is pending or rejected. A sentence says why, unless an operator decided meanwhile.
    Pending(Option<String>),
}

/// Records that this host has `package`, and makes its schedules follow, in one transaction.
///
/// Without its `bytes` the database must already have the version as active.
pub(crate) async fn record_package(
    ctx: &Ctx,
    package: &Package,
    change: &Change,
    bytes: Option<&[u8]>,
) -> Result<Recorded> {
    let now = ctx.clock.now();
    // Two hosts collide when they record the same file.
    let recorded = campanile_store::retry(ScheduleError::is_collision, || async {
        let mut tx = ctx.db.write().await?;
        let recorded = record_in(ctx, &mut tx, package, change, bytes, now).await?;
        crash::point("before_package_commit");
        tx.commit().await?;
        Ok(recorded)
    })
    .await?;
    crash::point("after_package_commit");
    Ok(recorded)
}

async fn record_in(
    ctx: &Ctx,
    tx: &mut Tx,
    package: &Package,
    change: &Change,
    bytes: Option<&[u8]>,
    now: Timestamp,
) -> Result<Recorded, ScheduleError> {
    let (name, digest) = (&package.name, &package.digest);
    let context = context_of(package);
    let settings = settings_of(package, &context);
    // Until the commit no other process decides about this package.
    packages::lock_or_create(tx, name).await?;
    let row = packages::find(tx, name).await?;
    let Some(bytes) = bytes else {
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
        manifest: &package.manifest.description,
        signature: package.signature.as_deref(),
        sidecar: settings,
    };
    tx.allow_upload(bytes.len()).await?;
    let decision = version_check::decision(ctx, tx, name, digest)
        .await?
        .decision;
    let approval = ctx.settings.policy.approval;
    let admission = approval::admission(approval, row.as_ref(), decision, package);
    if admission != VersionAdmission::Active {
        let said = record_pending(ctx, tx, &loaded, row.as_ref(), &admission, now).await?;
        return Ok(Recorded::Pending(said));
    }
    packages::publish(tx, ctx.host, &loaded, now).await?;
    let said = change.to_string();
    events::record(tx, now, EventKind::PackageLoaded, name, &said).await?;
    if let Some(said) = row.and_then(|row| approval::downgrade(&row, package)) {
        let said = cut_error(said);
        events::record(tx, now, EventKind::VersionDowngraded, name, &said).await?;
        tracing::warn!(package = name, "{said}");
    }
    Ok(Recorded::Active(follow_schedules(tx, package, now).await?))
}

/// Records that the file in the folder is not active, with an event if it was not pending before. Returns the sentence about it.
async fn record_pending(
    ctx: &Ctx,
    tx: &mut Tx,
    loaded: &LoadedPackage<'_>,
    row: Option<&PackageRow>,
    admission: &VersionAdmission,
    now: Timestamp,
) -> Result<Option<String>, DbError> {
    packages::set_pending(tx, loaded, now).await?;
    let Some(row) = row else { return Ok(None) };
    let name = loaded.name;
    if row.digest.is_none() {
        packages::keep_sidecar(tx, ctx.host, name, loaded.sidecar).await?;
    }
    let digest = loaded.digest.short();
    let approve = approval::approve_command(name, loaded.digest);
    let (active, look) = match &row.digest {
        Some(active) => (format!("{} stays active", active.short()), "diff"),
        None => ("no version is active".to_owned(), "show"),
    };
    let mut kind = EventKind::VersionPending;
    let said = match admission {
        VersionAdmission::Active => return Ok(None),
        VersionAdmission::PendingRequests(beyond) => format!(
            "{digest} waits for approval and {active}: it asks for {}, which is not granted; \
             see `campanile package diff {}`, then grant it in {name}.toml, reject it, or `{approve}`",
            list_requests(beyond),
            shell(name),
        ),
        VersionAdmission::PendingPolicy => format!(
            "{digest} waits for approval and {active}: `policy.approval` is \"always\"; \
             see `campanile package {look} {}`, then reject it, or `{approve}`",
            shell(name),
        ),
        VersionAdmission::Blocked(decision) => {
            kind = EventKind::VersionBlocked;
            let was = match decision {
                VersionDecision::RolledBack => "rolled back from",
                _ => "rejected",
            };
            format!("{digest} is blocked and {active}: it was {was}; `{approve}` activates it")
        }
    };
    let said = cut_error(said);
    if row.pending_digest.as_ref() != Some(loaded.digest) {
        events::record(tx, now, kind, name, &said).await?;
    }
    Ok(Some(said))
}

/// Records again that this host has its packages. The next scan of the folder records the packages that the database does not have.
pub(crate) async fn publish_all(ctx: &Ctx, tx: &mut Tx) -> Result {
    for package in ctx.packages.all().values() {
        let (name, digest) = (&package.name, &package.digest);
        if packages::find(tx, name).await?.is_some() {
            let context = context_of(package);
            let settings = settings_of(package, &context);
            packages::publish_host(tx, ctx.host, name, digest, settings).await?;
        }
    }
    Ok(())
}

fn settings_of<'p>(package: &'p Package, context: &'p str) -> SidecarSummary<'p> {
    SidecarSummary {
        grants: &package.grant_record.text,
        pin: package.sidecar.pin.as_deref(),
        context,
    }
}

/// Returns the sidecar's `[context]` table as JSON, or an empty string without one.
fn context_of(package: &Package) -> String {
    if package.sidecar.context.is_empty() {
        String::new()
    } else {
        text_of(&package.sidecar.context)
    }
}

/// Makes the schedules of a package those of its sidecar, or else those that the package proposes.
///
/// Returns the refused ones, which are recorded as events too.
async fn follow_schedules(
    tx: &mut Tx,
    package: &Package,
    now: Timestamp,
) -> Result<Vec<Refusal>, ScheduleError> {
    let origin = match package.sidecar.schedules {
        Some(_) => Origin::Sidecar,
        None => Origin::Package,
    };
    let wanted = package.schedules();
    schedules::lock_defined_by_package(tx, &package.name).await?;
    let current = schedules::defined_by_package(tx, &package.name).await?;
    let is_owned = |schedule: &Schedule| {
        schedule.definition.package == package.name
            && matches!(schedule.state.origin, Origin::Sidecar | Origin::Package)
    };
    let diff = schedule_admin::compare(tx, current, &wanted, origin, is_owned).await?;
    let reconciled = schedule_admin::reconcile(tx, &diff, origin, now).await?;
    for Refusal { schedule, error } in &reconciled.refusals {
        events::record(tx, now, EventKind::ScheduleRefused, schedule, error).await?;
    }
    Ok(reconciled.refusals)
}
