//! Which version of a package is active: the host's decision about a new file, and a person's decisions.
//!
//! A decision belongs to a digest and is in the database, so that it holds for all hosts. A command, and a host with a
//! new file, first locks the package's row, so that each sees the other's change:
//!
//! ```text
//! a host finds a new file        lock ─ admission ─ publish or set pending ─ commit
//! approve, reject, rollback      lock ─ decide ─ activate ─ commit
//! ```
//!
//! Nothing here touches a folder. A decision wakes the hosts, and they follow it with their next scan (`folder.rs`).

pub mod diff;
pub mod ungranted;

use crate::admin::schedule_admin::nearest_package;
use campanile_model::approval_key::ApprovalKey;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::shell;
use campanile_package::requests::Request;
use campanile_package::{Approval, Manifest, Package, grant_record};
use campanile_store::events::EventKind;
pub use campanile_store::package_versions::Attribution;
use campanile_store::package_versions::{
    self, FollowedDecision, RecordedDecision, Version, VersionDecision,
};
use campanile_store::packages::{self, PackageRow};
use campanile_store::{DbError, Tx, changes, schedules};

/// What a host does with the version in a file of its folder.
#[derive(Debug, Clone, PartialEq)]
pub enum VersionAdmission {
    /// It is active, or becomes active now.
    Active,
    /// It waits for a person: it makes these requests, which are not granted and which the active version does not make.
    PendingRequests(Vec<Request>),
    /// It waits for a person: the host's policy lets every version wait.
    PendingPolicy,
    /// A person rejected it, or rolled back from it.
    Blocked(VersionDecision),
}

/// Pure: decide what to do with `new`. `row` has the active version, and `decision` is a person's about `new`.
///
/// With [`Approval::Requests`] the first version of a package becomes active: a host denies its runs until its requests
/// are granted. A later version with more requests than it is granted waits, and the version before it stays active.
pub fn admission<A>(
    approval: Approval,
    row: Option<&PackageRow>,
    decision: Option<VersionDecision>,
    new: &Package<A>,
) -> VersionAdmission {
    let active = row.filter(|row| row.digest.is_some());
    if active.is_some_and(|row| row.digest.as_ref() == Some(&new.digest)) {
        return VersionAdmission::Active;
    }
    match (decision, approval, active) {
        (Some(VersionDecision::Approved), ..) => VersionAdmission::Active,
        (Some(against), ..) => VersionAdmission::Blocked(against),
        (None, Approval::Always, _) => VersionAdmission::PendingPolicy,
        // The folder refuses a version that no sidecar pins.
        (None, Approval::Pinned, _) | (None, Approval::Requests, None) => VersionAdmission::Active,
        (None, Approval::Requests, Some(row)) => {
            let before = Manifest::from_stored(&row.name, &row.manifest);
            let grants = (&*new.sidecar.grants).into();
            match new.manifest.additional_requests(&before, &grants) {
                none if none.is_empty() => VersionAdmission::Active,
                beyond => VersionAdmission::PendingRequests(beyond),
            }
        }
    }
}

/// Returns a sentence when `new` replaces an active version with a higher version number.
pub fn downgrade(row: &PackageRow, new: &Package) -> Option<String> {
    let active = row
        .digest
        .as_ref()
        .filter(|active| **active != new.digest)?;
    let before = Manifest::from_stored(&row.name, &row.manifest).semantic_version()?;
    let after = new.manifest.semantic_version()?;
    let name = &row.name;
    (after < before).then(|| {
        format!(
            "{} with the version {after} replaced {} with the version {before}; if that is wrong, \
             `campanile package rollback {}`, and `minimum_version = \"{before}\"` in {name}.toml refuses older files",
            new.digest.short(),
            active.short(),
            shell(name),
        )
    })
}

/// Returns the command approving exactly this version. Someone writing to the plugins folder could forge a second file matching a
/// shortened digest.
pub fn approve_command(name: &str, digest: &ArtifactDigest) -> String {
    format!(
        "campanile package approve {} --digest {digest}",
        shell(name)
    )
}

/// Maximum number of uncounted approvals listed by health.
pub const UNCOUNTED_MAX: usize = 10;

/// Returns notes on approvals of active and pending versions not sealed by `key`.
pub fn unsealed_approvals(
    followed: &[FollowedDecision],
    key: &ApprovalKey,
    now: Timestamp,
) -> Vec<String> {
    followed
        .iter()
        .filter(|it| it.is_active || it.is_pending)
        .map(|it| &it.recorded)
        .filter(|it| it.decision == VersionDecision::Approved && !it.is_sealed_by(key))
        .take(UNCOUNTED_MAX)
        .map(|it| {
            let why = uncounted_approval(it, "on a host with this configuration", None, now);
            format!("{}: {why}", it.package)
        })
        .collect()
}

/// Explains why a recorded approval doesn't count in some place: it's unsealed, or predates a decision `against` the version.
pub fn uncounted_approval(
    recorded: &RecordedDecision,
    place: &str,
    against: Option<Timestamp>,
    now: Timestamp,
) -> String {
    let approve = approve_command(&recorded.package, &recorded.digest);
    let why = match against {
        None => format!(
            "it isn't sealed with that host's key, so anybody may have written it; `{approve}` approves it again, and hosts \
             sharing a database need the same `policy.approval_key`"
        ),
        // Approving today would be too early as well.
        Some(at) if at > now => format!(
            "it's older than the decision against the version, made at {at} while a clock was ahead; build the version again, so \
             that it has another digest"
        ),
        Some(at) => format!(
            "it's older than the decision against the version, made at {at}; `{approve}` approves it again"
        ),
    };
    let digest = recorded.digest.short();
    format!("the approval of {digest} on record doesn't count {place}: {why}")
}

/// Returns the detail of an event: `what` was decided, by whom and why.
fn detail(what: &str, Attribution { by, note, .. }: Attribution<'_>) -> String {
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    format!("{what}, by {by}{note}")
}

/// The result of a person's decision.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct VersionChange {
    /// The version that the decision is about.
    pub digest: ArtifactDigest,
    /// The version that was active before; none for the first version of a package. An approval of the active version
    /// leaves it active.
    pub before: Option<ArtifactDigest>,
    /// Whether no live host has the package, so that no host follows yet.
    #[serde(rename = "missing")]
    pub is_missing: bool,
    /// What the active version requests and is not granted.
    pub denied: Vec<Request>,
    /// Schedules with a task that the active version does not have, each with that task.
    #[serde(skip)]
    pub tasks_missing: Vec<(String, String)>,
}

/// Why a decision about versions is refused.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("no version of `{name}` was ever active{}", .why.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
    NoActiveVersion { name: String, why: Option<String> },
    #[error("`{0}` has no pending version")]
    NothingPending(String),
    #[error("the pending version of `{name}` is {pending}, not `{wanted}`")]
    NotPending {
        name: String,
        wanted: String,
        pending: ArtifactDigest,
    },
    #[error("`{0}` has no former version to go back to")]
    NoFormer(String),
    /// The package, or the version of it, is not on record.
    #[error("{0}")]
    NotFound(String),
    /// The first digits are those of several versions.
    #[error("{0}")]
    Ambiguous(String),
    /// The text cannot be the digest of a version.
    #[error(
        "`{0}` cannot be the digest of a version: write its first hexadecimal digits, at least {PREFIX_DIGITS_MIN}"
    )]
    Digest(String),
    /// Any other reason. `hint` says what to do; it is empty when the message says so already.
    #[error("{message}")]
    Refused { message: String, hint: String },
    #[error(transparent)]
    Db(#[from] DbError),
}

impl PackageError {
    fn refused(message: String, hint: impl Into<String>) -> PackageError {
        let hint = hint.into();
        PackageError::Refused { message, hint }
    }

    /// Returns what to do; empty when the message says so already.
    pub fn hint(&self) -> String {
        match self {
            PackageError::NothingPending(name) | PackageError::NoFormer(name) => {
                format!(
                    "`campanile package show {}` lists its versions",
                    shell(name)
                )
            }
            PackageError::NotPending { name, .. } => format!(
                "look at it with `campanile package diff {0}`; `campanile package rollback {0} --to DIGEST` \
                 goes back to a former version",
                shell(name)
            ),
            PackageError::Ambiguous(_) => "give more digits".to_owned(),
            PackageError::Digest(_) => {
                "`campanile package show NAME` lists them; their first digits are enough".to_owned()
            }
            PackageError::Refused { hint, .. } => hint.clone(),
            _ => String::new(),
        }
    }
}

/// Activate the pending version, whatever it requests: with `digest` only if it is that one, and without it only if no
/// other version may be meant. The active version can be approved too, with its `digest`: it stays active.
///
/// Its grants stay the same: its runs may be denied.
pub async fn approve(
    tx: &mut Tx,
    name: &str,
    digest: Option<&str>,
    attribution: Attribution<'_>,
    now: Timestamp,
) -> Result<VersionChange, PackageError> {
    let (row, before) = begin(tx, name).await?;
    let approved = match (pending_version(&row, digest), digest) {
        (Err(error), Some(wanted)) => {
            let prefix = prefix(wanted)?;
            let active = before.clone();
            let active = active.filter(|active| active.as_str().starts_with(&prefix));
            active.ok_or(error)?
        }
        (pending, _) => pending?,
    };
    let is_active = before.as_ref() == Some(&approved);
    if digest.is_none() {
        check_is_only(tx, name, before.as_ref(), &approved).await?;
    }
    check_pins(tx, name, &approved).await?;
    let decision = VersionDecision::Approved;
    package_versions::decide(tx, name, &approved, decision, attribution, now).await?;
    if !is_active {
        packages::activate(tx, name, &approved, None, now).await?;
    }
    let what = match &before {
        Some(_) if is_active => format!("{}, which is active", approved.short()),
        Some(before) => format!("{} in place of {}", approved.short(), before.short()),
        None => format!("{}, the first version", approved.short()),
    };
    let detail = detail(&what, attribution);
    changes::record(tx, now, EventKind::VersionApproved, name, &detail).await?;
    decided(tx, row, approved, before).await
}

/// Reject the pending version, until it is approved or the file changes: with `digest` only if it is that one.
pub async fn reject(
    tx: &mut Tx,
    name: &str,
    digest: Option<&str>,
    attribution: Attribution<'_>,
    now: Timestamp,
) -> Result<VersionChange, PackageError> {
    let (row, before) = begin(tx, name).await?;
    let pending = pending_version(&row, digest)?;
    let earlier = package_versions::decision(tx, name, &pending).await?;
    let is_rejection = |earlier: &package_versions::RecordedDecision| {
        earlier.decision == VersionDecision::Rejected && earlier.is_sealed_by(attribution.key)
    };
    if earlier.as_ref().is_some_and(is_rejection) {
        let message = format!("the version {pending} of `{name}` is rejected already");
        let approve = approve_command(name, &pending);
        let hint = format!("`{approve}` activates it all the same");
        return Err(PackageError::refused(message, hint));
    }
    let decision = VersionDecision::Rejected;
    package_versions::decide(tx, name, &pending, decision, attribution, now).await?;
    let active = before.as_ref().map_or("no version", ArtifactDigest::short);
    let what = format!("{}, {active} stays active", pending.short());
    let detail = detail(&what, attribution);
    changes::record(tx, now, EventKind::VersionRejected, name, &detail).await?;
    let decided = decided(tx, row, pending, before).await?;
    // The active version stays.
    let denied = Vec::new();
    Ok(VersionChange { denied, ..decided })
}

/// Activate a former version, from its bytes in the database: `to`, or the last one that no person decided against.
///
/// All versions that became active after it are blocked, and so is the pending version. A host that returns with one of
/// their files must not undo the rollback.
pub async fn roll_back(
    tx: &mut Tx,
    name: &str,
    to: Option<&str>,
    attribution: Attribution<'_>,
    now: Timestamp,
) -> Result<VersionChange, PackageError> {
    let (row, before) = begin(tx, name).await?;
    let before = before.ok_or_else(|| never_active(&row))?;
    let versions = package_versions::of_package(tx, name).await?;
    let former = match to {
        Some(wanted) => version(name, &versions, wanted)?,
        None => {
            former(&versions, &before).ok_or_else(|| PackageError::NoFormer(name.to_owned()))?
        }
    };
    let (name, digest) = (row.name.clone(), former.digest.clone());
    if digest == before {
        let message = format!("the version {digest} of `{name}` is active already");
        return Err(PackageError::refused(message, ""));
    }
    if former.activated_at.is_none() {
        let message = format!("the version {digest} of `{name}` was never active");
        let hint = format!(
            "copy its file into the folder; if it is then pending, `campanile package approve {}`",
            shell(&name)
        );
        return Err(PackageError::refused(message, hint));
    }
    check_bytes(&name, former)?;
    check_pins(tx, &name, &digest).await?;
    package_versions::block_newer(tx, &name, &digest, attribution, now).await?;
    let decision = VersionDecision::Approved;
    package_versions::decide(tx, &name, &digest, decision, attribution, now).await?;
    // A rejected file is still the newest one, and is neither version.
    let newest = match row.rejection {
        Some(_) => None,
        None => row.pending_digest.as_ref().or(Some(&before)),
    };
    let pending = newest.filter(|newest| **newest != digest);
    packages::activate(tx, &name, &digest, pending, now).await?;
    let what = format!("from {} to {}", before.short(), digest.short());
    let detail = detail(&what, attribution);
    changes::record(tx, now, EventKind::PackageRolledBack, &name, &detail).await?;
    decided(tx, row, digest, Some(before)).await
}

/// Begin a decision: lock the package, and return it with its active version. Without one, it has a pending
/// version.
async fn begin(
    tx: &mut Tx,
    name: &str,
) -> Result<(PackageRow, Option<ArtifactDigest>), PackageError> {
    let Some(row) = packages::lock(tx, name).await? else {
        return Err(unknown(tx, name).await?);
    };
    match (&row.digest, &row.pending_digest) {
        (None, None) => Err(never_active(&row)),
        (active, _) => Ok((row.clone(), active.clone())),
    }
}

/// Returns the error that no version of a package was ever active.
pub(crate) fn never_active(row: &PackageRow) -> PackageError {
    PackageError::NoActiveVersion {
        name: row.name.clone(),
        why: row.rejection.clone(),
    }
}

/// Returns the error that no package has this name; it suggests the nearest name.
pub async fn unknown(tx: &mut Tx, name: &str) -> Result<PackageError, DbError> {
    let mut hint = nearest_package(tx, name).await?;
    if hint.is_empty() {
        hint = "; `campanile package list` shows those there are".to_owned();
    }
    let message = format!("there is no package named `{name}`{hint}");
    Ok(PackageError::NotFound(message))
}

fn pending_version(row: &PackageRow, wanted: Option<&str>) -> Result<ArtifactDigest, PackageError> {
    let Some(pending) = &row.pending_digest else {
        return Err(PackageError::NothingPending(row.name.clone()));
    };
    match wanted {
        Some(wanted) if !pending.as_str().starts_with(&prefix(wanted)?) => {
            Err(PackageError::NotPending {
                name: row.name.clone(),
                wanted: wanted.to_owned(),
                pending: pending.clone(),
            })
        }
        _ => Ok(pending.clone()),
    }
}

/// Refuse to guess which version is meant, if `pending` is not the only one that came since `before` is active.
async fn check_is_only(
    tx: &mut Tx,
    name: &str,
    before: Option<&ArtifactDigest>,
    pending: &ArtifactDigest,
) -> Result<(), PackageError> {
    let versions = package_versions::of_package(tx, name).await?;
    let others = others(&versions, before, pending);
    if others.is_empty() {
        return Ok(());
    }
    let (short, others) = (pending.short(), shorts(others));
    let approve = approve_command(name, pending);
    Err(PackageError::refused(
        format!(
            "the pending version of `{name}` is {short}; name it, or one of {others}, with --digest"
        ),
        format!(
            "look at it with `campanile package diff {}`; `{approve}` activates it",
            shell(name)
        ),
    ))
}

/// Returns the versions besides `pending` that came, or were rolled back from, since `before` is active.
fn others<'v>(
    versions: &'v [Version],
    before: Option<&ArtifactDigest>,
    pending: &ArtifactDigest,
) -> Vec<&'v Version> {
    let is_active = |version: &&Version| Some(&version.digest) == before;
    let active = versions.iter().find(is_active);
    let since = active.and_then(|version| version.activated_at);
    let is_other = |version: &&Version| {
        let is_back = version.decision == Some(VersionDecision::RolledBack);
        let came = Some(version.first_seen_at) > since;
        !is_active(version)
            && version.digest != *pending
            && (came || (is_back && version.decided_at >= since))
    };
    versions.iter().filter(is_other).collect()
}

/// How many digits of a digest name a version at least.
const PREFIX_DIGITS_MIN: usize = 4;

fn prefix(wanted: &str) -> Result<String, PackageError> {
    let wanted = wanted.to_ascii_lowercase();
    let is_one = (PREFIX_DIGITS_MIN..=64).contains(&wanted.len())
        && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_one {
        return Ok(wanted);
    }
    Err(PackageError::Digest(wanted))
}

/// Returns the version whose digest begins with `wanted`.
pub fn version<'v>(
    name: &str,
    versions: &'v [Version],
    wanted: &str,
) -> Result<&'v Version, PackageError> {
    let prefix = prefix(wanted)?;
    let begin = |version: &&Version| version.digest.as_str().starts_with(&prefix);
    let found: Vec<&Version> = versions.iter().filter(begin).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let known = shorts(versions);
            let message = format!("`{name}` has no version `{wanted}`; it has {known}");
            Err(PackageError::NotFound(message))
        }
        _ => {
            let several = shorts(found);
            let message =
                format!("`{wanted}` is the beginning of several versions of `{name}`: {several}");
            Err(PackageError::Ambiguous(message))
        }
    }
}

/// List the first digits of versions.
fn shorts<'v>(versions: impl IntoIterator<Item = &'v Version>) -> String {
    let digests = versions.into_iter().map(|version| version.digest.short());
    digests.collect::<Vec<_>>().join(", ")
}

/// Returns the version that was active last before `active` and that no person decided against.
fn former<'v>(versions: &'v [Version], active: &ArtifactDigest) -> Option<&'v Version> {
    versions
        .iter()
        .filter(|version| version.activated_at.is_some() && version.digest != *active)
        .filter(|version| matches!(version.decision, None | Some(VersionDecision::Approved)))
        .max_by_key(|version| version.activated_at)
}

/// Refuse a version whose bytes retention has removed: no host could run it.
fn check_bytes(name: &str, version: &Version) -> Result<(), PackageError> {
    let Some(removed_at) = version.removed_at else {
        return Ok(());
    };
    let digest = version.digest.short();
    let message = format!(
        "the database has no bytes of the version {digest} of `{name}` any more: retention removed them at {removed_at}"
    );
    let hint = format!(
        "copy the file of that version into the plugins folder as {name}.wasm; a host that loads it records the bytes again"
    );
    Err(PackageError::refused(message, hint))
}

/// Refuse a version that a host's sidecar excludes with its `sha256`: that host would have none.
async fn check_pins(tx: &mut Tx, name: &str, digest: &ArtifactDigest) -> Result<(), PackageError> {
    let pins = packages::pins(tx, name).await?;
    let Some((host, pin)) = pins.iter().find(|(_, pin)| pin != digest.as_str()) else {
        return Ok(());
    };
    let message = format!(
        "on record, the {name}.toml of the host {host} accepts no version of `{name}` but {pin}"
    );
    let hint = "change or remove its `sha256` first; if it has none, restart that host, which then records what it has";
    Err(PackageError::refused(message, hint))
}

async fn decided(
    tx: &mut Tx,
    row: PackageRow,
    digest: ArtifactDigest,
    before: Option<ArtifactDigest>,
) -> Result<VersionChange, PackageError> {
    let now = packages::find(tx, &row.name).await?;
    let manifest = now.map_or_else(String::new, |now| now.manifest);
    let manifest = Manifest::from_stored(&row.name, &manifest);
    let mut tasks_missing = schedules::tasks_of_package(tx, &row.name).await?;
    tasks_missing.retain(|(_, task)| manifest.task(task).is_none());
    Ok(VersionChange {
        digest,
        before,
        denied: manifest.ungranted_requests(&grant_record::read(&row.grants)),
        is_missing: row.missing_since.is_some(),
        tasks_missing,
    })
}

#[cfg(test)]
mod tests;
