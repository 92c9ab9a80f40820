//! Which version of a package is in force: which of themselves, and what people decide about that.
//!
//! A decision belongs to a digest and is in the database, so that all hosts follow the same one. Whoever decides,
//! a command or a host with a new file, first takes the package's row, so that one sees what the other did:
//!
//! ```text
//! a host finds a new file        claim ─ entry ─ publish or hold ─ commit
//! approve, reject, rollback              locked ─ decide ─ put in force ─ commit
//! ```
//!
//! Nothing here touches a folder. Hosts follow by the next scan, for which a decision wakes them (`held.rs`).

pub mod diff;
mod error;

pub use error::PackageError;

use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_package::requests::Request;
use campanile_package::{Manifest, Package, grant_record};
use campanile_store::events::{self, EventKind};
use campanile_store::package_versions::{self, Version, VersionDecision, VersionReview};
use campanile_store::packages::{self, PackageRow};
use campanile_store::{DbError, Tx, changes};

/// What becomes of the version that a file in a folder holds.
#[derive(Debug, Clone, PartialEq)]
pub enum VersionAdmission {
    /// It is in force, or comes in force now.
    Active,
    /// It asks for this, which is neither granted nor asked for by the version in force: it waits for a person.
    Pending(Vec<Request>),
    /// A person decided against it.
    Blocked(VersionDecision),
}

/// Pure: what becomes of `new`, about which a person decided `decision`, where `row` says what is in force.
///
/// A package that is new altogether is taken, and a host without its grants denies its runs: nothing is put at risk,
/// and the denial says what is missing. Of a package that is known, a version that asks for more than it is granted
/// leaves the one before it in force.
pub fn admission<A>(
    row: Option<&PackageRow>,
    decision: Option<VersionDecision>,
    new: &Package<A>,
) -> VersionAdmission {
    let in_force = row.and_then(|row| row.digest.as_ref().map(|digest| (row, digest)));
    let Some((row, digest)) = in_force else {
        return VersionAdmission::Active;
    };
    if *digest == new.digest {
        return VersionAdmission::Active;
    }
    match decision {
        Some(VersionDecision::Approved) => VersionAdmission::Active,
        Some(against) => VersionAdmission::Blocked(against),
        None => {
            let before = Manifest::from_stored(&row.name, &row.manifest);
            let beyond = new
                .manifest
                .additional_requests(&before, &(&*new.sidecar.grants).into());
            match beyond.is_empty() {
                true => VersionAdmission::Active,
                false => VersionAdmission::Pending(beyond),
            }
        }
    }
}

/// The command that puts this version in force, and no other that came meanwhile.
pub fn approve_command(name: &str, digest: &ArtifactDigest) -> String {
    format!(
        "campanile package approve {name} --digest {}",
        digest.short()
    )
}

/// Who orders something, and why.
#[derive(Debug, Clone, Copy)]
pub struct Attribution<'a> {
    pub by: &'a str,
    pub note: Option<&'a str>,
}

impl<'a> Attribution<'a> {
    fn verdict(self, decision: VersionDecision) -> VersionReview<'a> {
        VersionReview {
            decision,
            by: self.by,
            note: self.note,
        }
    }

    fn said(self) -> String {
        match self.note {
            Some(note) => format!("by {}: {note}", self.by),
            None => format!("by {}", self.by),
        }
    }
}

/// What an order changed.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionChange {
    /// The version that the order was about.
    pub digest: ArtifactDigest,
    /// The version in force before it.
    pub before: ArtifactDigest,
    /// What the version that is in force now asks for and is not granted.
    pub denied: Vec<Request>,
    /// Whether no live host has the package, so that nothing follows yet.
    pub is_missing: bool,
    /// Schedules that launch a task which the version that is in force now does not have, each with that task.
    pub tasks_missing: Vec<(String, String)>,
}

/// Put the version in force that is kept out, whatever it asks for; with `digest`, only if it is that one, and without,
/// only if there is no other that whoever orders it may have looked at.
///
/// It is granted no more than before: its runs may be denied, and say what is missing.
pub async fn approve(
    tx: &mut Tx,
    name: &str,
    digest: Option<&str>,
    order: Attribution<'_>,
    now: Timestamp,
) -> Result<VersionChange, PackageError> {
    let (row, before) = known(tx, name).await?;
    let held = held(&row, digest)?;
    if digest.is_none() {
        check_is_only(tx, name, &before, &held).await?;
    }
    check_pins(tx, name, &held).await?;
    let verdict = order.verdict(VersionDecision::Approved);
    package_versions::decide(tx, name, &held, verdict, now).await?;
    packages::activate(tx, name, &held, None, now).await?;
    let what = format!("{} in place of {}", held.short(), before.short());
    record(tx, now, EventKind::VersionApproved, name, &what, order).await?;
    decided(tx, row, held, before).await
}

/// Keep the version out that waits, until it is approved or other bytes take its place; with `digest`, only if it is
/// that one.
pub async fn reject(
    tx: &mut Tx,
    name: &str,
    digest: Option<&str>,
    order: Attribution<'_>,
    now: Timestamp,
) -> Result<VersionChange, PackageError> {
    let (row, before) = known(tx, name).await?;
    let held = held(&row, digest)?;
    if row.pending_decision == Some(VersionDecision::Rejected) {
        let name = row.name;
        return Err(PackageError::Rejected { name, digest: held });
    }
    let verdict = order.verdict(VersionDecision::Rejected);
    package_versions::decide(tx, name, &held, verdict, now).await?;
    let what = format!("{}, {} stays in force", held.short(), before.short());
    record(tx, now, EventKind::VersionRejected, name, &what, order).await?;
    let decided = decided(tx, row, held, before).await?;
    // Nothing comes in force, so nothing is to be said of it.
    let denied = Vec::new();
    Ok(VersionChange { denied, ..decided })
}

/// Put a former version in force, from the bytes on the record: `to`, or the last one before that nobody decided against.
///
/// The version in force until now is kept out, and so is what waits and what came in force after the former version:
/// a host that comes back with one of those files in its folder must not undo this.
pub async fn roll_back(
    tx: &mut Tx,
    name: &str,
    to: Option<&str>,
    order: Attribution<'_>,
    now: Timestamp,
) -> Result<VersionChange, PackageError> {
    let (row, before) = known(tx, name).await?;
    let versions = package_versions::of_package(tx, name).await?;
    let former = match to {
        Some(wanted) => version(name, &versions, wanted)?,
        None => {
            former(&versions, &before).ok_or_else(|| PackageError::NoFormer(name.to_owned()))?
        }
    };
    let (name, digest) = (row.name.clone(), former.digest.clone());
    if digest == before {
        return Err(PackageError::AlreadyActive { name, digest });
    }
    if former.activated_at.is_none() {
        return Err(PackageError::NeverActive { name, digest });
    }
    check_pins(tx, &name, &digest).await?;
    let against = order.verdict(VersionDecision::RolledBack);
    package_versions::block_newer(tx, &name, &digest, against, now).await?;
    let chosen = order.verdict(VersionDecision::Approved);
    package_versions::decide(tx, &name, &digest, chosen, now).await?;
    // A file that cannot be used is still the newest one, and holds neither version.
    let newest = match row.rejection {
        Some(_) => None,
        None => row.pending_digest.as_ref().or(Some(&before)),
    };
    let held = newest.filter(|newest| **newest != digest);
    packages::activate(tx, &name, &digest, held, now).await?;
    let what = format!("from {} to {}", before.short(), digest.short());
    record(tx, now, EventKind::PackageRolledBack, &name, &what, order).await?;
    decided(tx, row, digest, before).await
}

/// Put on the record what was ordered, and let hosts look at it.
async fn record(
    tx: &mut Tx,
    now: Timestamp,
    kind: EventKind,
    name: &str,
    what: &str,
    order: Attribution<'_>,
) -> Result<(), DbError> {
    let detail = format!("{what}, {}", order.said());
    events::record(tx, now, kind, name, &detail).await?;
    changes::bump(tx).await
}

/// The package, whose row nobody else changes until the transaction ends, and its version in force.
async fn known(tx: &mut Tx, name: &str) -> Result<(PackageRow, ArtifactDigest), PackageError> {
    match packages::lock(tx, name).await? {
        Some(row) => match row.digest.clone() {
            Some(digest) => Ok((row, digest)),
            None => Err(PackageError::NoActiveVersion {
                name: row.name,
                why: row.rejection,
            }),
        },
        None => Err(unknown(tx, name).await?),
    }
}

/// The refusal of a name that no package has, with the nearest that one has.
pub async fn unknown(tx: &mut Tx, name: &str) -> Result<PackageError, DbError> {
    let all = packages::list(tx, None).await?;
    let names = all.iter().map(|row| row.name.as_str());
    Ok(PackageError::Unknown {
        name: name.to_owned(),
        nearest: campanile_model::text::nearest(name, names).map(str::to_owned),
    })
}

fn held(row: &PackageRow, wanted: Option<&str>) -> Result<ArtifactDigest, PackageError> {
    let Some(held) = &row.pending_digest else {
        return Err(PackageError::NothingPending(row.name.clone()));
    };
    match wanted {
        Some(wanted) if !held.as_str().starts_with(&prefix(wanted)?) => {
            Err(PackageError::NotPending {
                name: row.name.clone(),
                wanted: wanted.to_owned(),
                held: held.clone(),
            })
        }
        _ => Ok(held.clone()),
    }
}

/// Refuse to guess which version is meant, where `held` is not the only one that was kept out since `before` is in force.
async fn check_is_only(
    tx: &mut Tx,
    name: &str,
    before: &ArtifactDigest,
    held: &ArtifactDigest,
) -> Result<(), PackageError> {
    let versions = package_versions::of_package(tx, name).await?;
    let others = others(&versions, before, held);
    match others.is_empty() {
        true => Ok(()),
        false => Err(PackageError::AmbiguousPending {
            name: name.to_owned(),
            held: held.clone(),
            others: others.iter().map(|other| short(other)).collect(),
        }),
    }
}

/// The versions besides `held` that came, or were rolled back from, since `before` came in force.
fn others<'v>(
    versions: &'v [Version],
    before: &ArtifactDigest,
    held: &ArtifactDigest,
) -> Vec<&'v Version> {
    let in_force = versions.iter().find(|version| version.digest == *before);
    let since = in_force.and_then(|version| version.activated_at);
    let is_other = |version: &&Version| {
        let is_back = version.decision == Some(VersionDecision::RolledBack);
        let came = Some(version.first_seen_at) > since;
        ![before, held].contains(&&version.digest)
            && (came || (is_back && version.decided_at >= since))
    };
    versions.iter().filter(is_other).collect()
}

/// Fewer digits do not name a version.
const PREFIX_DIGITS_MIN: usize = 4;

fn prefix(wanted: &str) -> Result<String, PackageError> {
    let wanted = wanted.to_ascii_lowercase();
    let is_one = (PREFIX_DIGITS_MIN..=64).contains(&wanted.len())
        && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_one {
        true => Ok(wanted),
        false => Err(PackageError::NotADigest(wanted)),
    }
}

/// The one of `versions` whose digest begins with `wanted`.
pub fn version<'v>(
    name: &str,
    versions: &'v [Version],
    wanted: &str,
) -> Result<&'v Version, PackageError> {
    let prefix = prefix(wanted)?;
    let begin = |version: &&Version| version.digest.as_str().starts_with(&prefix);
    let found: Vec<&Version> = versions.iter().filter(begin).collect();
    let all = |versions: &[&Version]| versions.iter().map(|version| short(version)).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(PackageError::NoVersion {
            name: name.to_owned(),
            wanted: wanted.to_owned(),
            known: all(&Vec::from_iter(versions)),
        }),
        several => Err(PackageError::AmbiguousDigest {
            name: name.to_owned(),
            wanted: wanted.to_owned(),
            several: all(several),
        }),
    }
}

fn short(version: &Version) -> String {
    version.digest.short().to_owned()
}

/// The version that was in force last before the one that is, and that nobody decided against.
fn former<'v>(versions: &'v [Version], in_force: &ArtifactDigest) -> Option<&'v Version> {
    versions
        .iter()
        .filter(|version| version.activated_at.is_some() && version.digest != *in_force)
        .filter(|version| matches!(version.decision, None | Some(VersionDecision::Approved)))
        .max_by_key(|version| version.activated_at)
}

/// A host that lets in another version only would have none: then the operator says two things at once.
async fn check_pins(tx: &mut Tx, name: &str, digest: &ArtifactDigest) -> Result<(), PackageError> {
    let pins = packages::pins(tx, name).await?;
    match pins.into_iter().find(|(_, pin)| pin != digest.as_str()) {
        None => Ok(()),
        Some((host, pin)) => Err(PackageError::Pinned {
            name: name.to_owned(),
            host,
            pin,
        }),
    }
}

async fn decided(
    tx: &mut Tx,
    row: PackageRow,
    digest: ArtifactDigest,
    before: ArtifactDigest,
) -> Result<VersionChange, PackageError> {
    let PackageRow {
        name,
        missing_since,
        grants,
        ..
    } = row;
    let now = packages::find(tx, &name).await?;
    let manifest = now.map_or_else(String::new, |now| now.manifest);
    let manifest = Manifest::from_stored(&name, &manifest);
    Ok(VersionChange {
        digest,
        before,
        denied: manifest.ungranted_requests(&grant_record::read(&grants)),
        is_missing: missing_since.is_some(),
        tasks_missing: tasks_missing(tx, &name, &manifest).await?,
    })
}

/// The schedules of a package that launch a task which `manifest` does not have, each with that task.
async fn tasks_missing(
    tx: &mut Tx,
    name: &str,
    manifest: &Manifest,
) -> Result<Vec<(String, String)>, DbError> {
    let all = campanile_store::schedules::list(tx, None, Some(name)).await?;
    let tasks = all.into_iter().filter_map(|schedule| {
        let definition = schedule.definition;
        definition.task.map(|task| (definition.name, task))
    });
    Ok(tasks
        .filter(|(_, task)| manifest.task(task).is_none())
        .collect())
}

#[cfg(test)]
mod tests;
