//! The last checks before code runs: decisions of operators, the sidecar's pin, and the bytes in the database.
//!
//! A launch keeps the digest with which it was decided. Before it runs, an operator may pin another digest or decide
//! against this one, and the database may come to hold other bytes than the digest names.

use tokio::task::spawn_blocking;

use crate::ctx::Ctx;
use crate::error::Result;
use crate::service::{record_event, retry_while_tracked};
use campanile_control::admin::approval::{UNCOUNTED_MAX, approve_command, uncounted_approval};
use campanile_control::lock::lock;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::{cut_error, shell};
use campanile_package::{
    Approval, CountedDecision, FoundDecision, OwnRecord, Package, VersionPolicy, Vouched,
};
use campanile_sandbox::StopSignal;
use campanile_store::events::EventKind;
use campanile_store::package_versions::{
    self, FollowedDecision, RecordedDecision, VersionDecision,
};
use campanile_store::{DbError, Tx, packages};

/// The stored bytes of a version, or why they are not run.
pub(crate) enum StoredCode {
    Bytes(Vec<u8>, Vouched),
    /// The database has no bytes of this version.
    NotStored,
    /// One sentence. The database holds other bytes, or bytes without the required signature.
    Refused(EventKind, String),
}

/// Returns what counts on this host of the decision on record about a version.
pub(crate) async fn decision(
    ctx: &Ctx,
    tx: &mut Tx,
    name: &str,
    digest: &ArtifactDigest,
) -> Result<CountedDecision, DbError> {
    let own = ctx.packages.own_record();
    let recorded = package_versions::decision(tx, name, digest).await?;
    // A seal is worth nothing for another version, even if the database says that's the one asked for.
    let recorded = recorded.filter(|it| it.package == name && it.digest == *digest);
    Ok(own.counted(name, digest, recorded.map(|it| found(own, &it))))
}

/// The same for a run; none when the run was dropped meanwhile.
pub(crate) async fn verified_decision(
    ctx: &Ctx,
    stop: &StopSignal,
    name: &str,
    digest: &ArtifactDigest,
) -> Option<CountedDecision> {
    retry_while_tracked(ctx, stop, || async {
        let mut tx = ctx.db.read().await?;
        Ok(decision(ctx, &mut tx, name, digest).await?)
    })
    .await
}

/// Keeps the sealed decisions against versions in the host's own record, and reports approvals that don't count.
pub(crate) async fn note_decisions(ctx: &Ctx, followed: &[FollowedDecision]) -> Result {
    let own = ctx.packages.own_record();
    let mut uncounted = Vec::new();
    for it in followed {
        let (name, digest) = (&it.recorded.package, &it.recorded.digest);
        let found = found(own, &it.recorded);
        own.note_decision(name, digest, found).await;
        let counted = own.counted(name, digest, Some(found));
        if counted.ignores_approval && (it.is_active || it.is_pending) {
            let against = own.decided_against_at(name, digest);
            let against = against.filter(|_| found.is_sealed);
            let place = format!("on the host {}", ctx.name);
            let why = uncounted_approval(&it.recorded, &place, against, ctx.clock.now());
            report(ctx, EventKind::VersionRefused, name, digest, &why).await?;
            if uncounted.len() < UNCOUNTED_MAX {
                uncounted.push(format!("{name}: {why}"));
            }
        }
    }
    *lock(&ctx.uncounted_approvals) = uncounted;
    Ok(())
}

fn found(own: &OwnRecord, recorded: &RecordedDecision) -> FoundDecision {
    FoundDecision {
        decision: recorded.decision,
        decided_at: recorded.decided_at,
        is_sealed: recorded.is_sealed_by(own.key()),
    }
}

/// Returns why this host must not run the version `digest` of a package, in one sentence; `None` when it may.
///
/// `counted` is an operator's decision about this version.
pub(crate) fn refusal(
    counted: CountedDecision,
    digest: &ArtifactDigest,
    package: &Package,
    policy: &VersionPolicy,
) -> Option<String> {
    let name = &package.name;
    let why = match counted.decision {
        Some(VersionDecision::Rejected) => format!("an operator rejected it; {}", again(name)),
        Some(VersionDecision::RolledBack) => {
            format!("an operator rolled back from it; {}", again(name))
        }
        None if policy.approval == Approval::Always => {
            let approve = if package.digest == *digest {
                format!("`{}` approves it", approve_command(name, digest))
            } else {
                again(name)
            };
            let lacks = if counted.ignores_approval {
                "its approval on record isn't sealed with this host's key"
            } else {
                "no operator has approved it"
            };
            format!("{lacks}, and `policy.approval` is \"always\"; {approve}")
        }
        None | Some(VersionDecision::Approved) => {
            package.sidecar.check_pin(name, policy, digest).err()?
        }
    };
    Some(not_run(digest, &why))
}

/// Returns the sentence that a version is not run.
pub(crate) fn not_run(digest: &ArtifactDigest, why: &str) -> String {
    format!("version {} is not run: {why}", digest.short())
}

/// Whether this host would refuse a version because only the database vouches for it. A host with its file runs it.
pub(crate) fn is_unvouched(ctx: &Ctx, package: &Package, digest: &ArtifactDigest) -> bool {
    let name = &package.name;
    package.digest != *digest
        && !ctx.packages.own_record().has_seen(name, digest)
        && (package.sidecar)
            .check_vouched(name, digest, Vouched::OnlyInDatabase)
            .is_err()
}

/// Read the bytes of a version from the database. Hash them, verify their signature, and look whether this host vouches for
/// them. Who can write the database can store bytes of their own there.
pub(crate) async fn stored_code(
    ctx: &Ctx,
    name: &str,
    digest: &ArtifactDigest,
) -> Result<StoredCode> {
    let mut tx = ctx.db.read().await?;
    let Some(bytes) = packages::artifact(&mut tx, digest).await? else {
        return Ok(StoredCode::NotStored);
    };
    let signature = package_versions::signature(&mut tx, name, digest).await?;
    drop(tx);
    let seen = ctx.packages.own_record().has_seen(name, digest);
    let (policy, name, digest) = (ctx.settings.policy.clone(), name.to_owned(), digest.clone());
    let checked = spawn_blocking(move || check(&policy, &name, &digest, (bytes, seen), signature));
    // The task cannot panic, and only a runtime that shuts down cancels it.
    Ok(checked.await.unwrap_or(StoredCode::NotStored))
}

/// Log why a version is not run, and record an event, once for each version and reason while this host runs.
pub(crate) async fn report(
    ctx: &Ctx,
    kind: EventKind,
    name: &str,
    digest: &ArtifactDigest,
    why: &str,
) -> Result {
    let why = &cut_error(why);
    let now = ctx.clock.now();
    if !ctx.reported.is_new_refusal((name, digest), why, now) {
        return Ok(());
    }
    record_event(ctx, now, kind, name, why).await?;
    ctx.reported.insert_refusal((name, digest), why, now);
    tracing::warn!(package = name, "{why}");
    Ok(())
}

fn again(name: &str) -> String {
    format!(
        "trigger the schedule to run the active version, or activate this one with `campanile package approve {0} --digest DIGEST` or \
         `campanile package rollback {0} --to DIGEST`",
        shell(name)
    )
}

fn check(
    policy: &VersionPolicy,
    name: &str,
    digest: &ArtifactDigest,
    (bytes, seen): (Vec<u8>, bool),
    signature: Option<String>,
) -> StoredCode {
    let found = ArtifactDigest::of(&bytes);
    if found != *digest {
        let why = format!(
            "the database holds other bytes in its place, with the SHA-256 {found}; put the version's file into the \
             plugins folder or restore the database from a backup, and find out who changed it"
        );
        return StoredCode::Refused(EventKind::VersionAltered, not_run(digest, &why));
    }
    match policy.check_signature(name, &bytes, signature.map(Ok)) {
        Ok(None) if !seen => StoredCode::Bytes(bytes, Vouched::OnlyInDatabase),
        Ok(_) => StoredCode::Bytes(bytes, Vouched::OnThisHost),
        Err(why) => StoredCode::Refused(EventKind::VersionRefused, not_run(digest, &why)),
    }
}
