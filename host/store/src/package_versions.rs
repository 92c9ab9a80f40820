//! The versions of packages that a host has seen, and what people decided about them.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::{Batch, statements};
use super::types::storable;
use super::{Result, Tx};
use campanile_model::approval_key::{self, ApprovalKey, DecisionText};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
pub use campanile_model::status::VersionDecision;

/// One version of one package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct Version {
    pub digest: ArtifactDigest,
    /// `typed_component` or `core_module_with_wit`.
    pub form: String,
    pub size_bytes: i64,
    /// When retention removed the bytes; none while the database has them.
    pub removed_at: Option<Timestamp>,
    pub first_seen_at: Timestamp,
    /// When it last became active; none when it never was.
    pub activated_at: Option<Timestamp>,
    pub decision: Option<VersionDecision>,
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<String>,
    pub note: Option<String>,
    /// The text of its signature file, if a key that a host trusted made it.
    #[serde(skip)]
    pub signature: Option<String>,
    /// How many of its launches succeeded. A launch counts once its record is sealed, about a minute after its decision.
    pub succeeded: i64,
    /// How many of its launches failed, were abandoned, or have an unknown end.
    pub failed: i64,
}

/// The results of launches of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionResults {
    pub package: String,
    pub digest: ArtifactDigest,
    pub succeeded: i64,
    pub failed: i64,
}

/// Who decides something, and why.
#[derive(Debug, Clone, Copy)]
pub struct Attribution<'a> {
    pub by: &'a str,
    pub note: Option<&'a str>,
    /// Seals the decision.
    pub key: &'a ApprovalKey,
}

/// A decision on record, and its seals.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct RecordedDecision {
    pub package: String,
    pub digest: ArtifactDigest,
    pub decision: VersionDecision,
    pub decided_at: Timestamp,
    pub decided_by: String,
    pub note: Option<String>,
    /// Seals by different keys, with a space between them; none if nobody sealed it.
    pub seal: Option<String>,
}

/// A decision on record about a version of a package, and what that version is to the package.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct FollowedDecision {
    #[sqlx(flatten)]
    pub recorded: RecordedDecision,
    pub is_active: bool,
    pub is_pending: bool,
}

impl RecordedDecision {
    /// Whether this key sealed the decision.
    pub fn is_sealed_by(&self, key: &ApprovalKey) -> bool {
        key.has_sealed(&self.text(), self.seal.as_deref())
    }

    fn attribution<'a>(&'a self, key: &'a ApprovalKey) -> Attribution<'a> {
        Attribution {
            by: &self.decided_by,
            note: self.note.as_deref(),
            key,
        }
    }

    fn text(&self) -> DecisionText<'_> {
        DecisionText {
            package: &self.package,
            digest: &self.digest,
            decision: self.decision,
            decided_at: self.decided_at,
            by: &self.decided_by,
            note: self.note.as_deref(),
        }
    }
}

/// Records a decision about one version in place of an earlier one, and seals it.
///
/// It's later than a sealed one that it replaces, even if the clock was set back: the newest decision counts.
pub async fn decide(
    tx: &mut Tx,
    package: &str,
    digest: &ArtifactDigest,
    decision: VersionDecision,
    attribution: Attribution<'_>,
    now: Timestamp,
) -> Result {
    let (by, note) = (storable(attribution.by), attribution.note.map(storable));
    let mut decided = RecordedDecision {
        package: package.to_owned(),
        digest: digest.clone(),
        decision,
        decided_at: now,
        decided_by: by.into_owned(),
        note: note.map(Cow::into_owned),
        seal: None,
    };
    let before = self::decision(tx, package, digest).await?;
    if let Some(before) = before.filter(|before| before.is_sealed_by(attribution.key)) {
        let next = before.decided_at.plus(Duration::from_micros(1));
        decided.decided_at = now.max(next);
    }
    decided.seal = Some(attribution.key.seal(&decided.text()));
    set_decision(tx, &decided).await
}

/// Records that a person rolled back from the active version, the pending one, and those activated after `digest`; not
/// from `digest`.
///
/// A host whose folder still holds one of them must not activate it when it comes back. A rejected version stays rejected.
pub async fn block_newer(
    tx: &mut Tx,
    package: &str,
    digest: &ArtifactDigest,
    attribution: Attribution<'_>,
    now: Timestamp,
) -> Result {
    for newer in newer(tx, package, digest).await? {
        let before = decision(tx, package, &newer).await?;
        let is_rejected = |before: &RecordedDecision| {
            before.decision == VersionDecision::Rejected && before.is_sealed_by(attribution.key)
        };
        let (decision, attribution) = match before.as_ref().filter(|before| is_rejected(before)) {
            Some(before) => (
                VersionDecision::Rejected,
                before.attribution(attribution.key),
            ),
            None => (VersionDecision::RolledBack, attribution),
        };
        // A new decision in any case: an old one may have been put back to hide a later approval.
        decide(tx, package, &newer, decision, attribution, now).await?;
    }
    Ok(())
}

/// Seals decisions with each of `keys`, in place of the seals they have.
pub async fn seal_again(
    tx: &mut Tx,
    decisions: &[RecordedDecision],
    keys: &[&ApprovalKey],
) -> Result {
    for decided in decisions {
        let seals = approval_key::seal_with(&decided.text(), keys);
        set_seal(tx, &decided.package, &decided.digest, &seals).await?;
    }
    Ok(())
}

macro_rules! recorded_decision {
    () => {
        "SELECT package, digest, decision, decided_at, decided_by, note, seal FROM package_version WHERE decision IS NOT NULL"
    };
}

statements! {
    pub(super) async fn set_decision(decided: &RecordedDecision) -> () = run
        "UPDATE package_version SET decision = $3, decided_at = $4, decided_by = $5, note = $6, seal = $7
        WHERE package = $1 AND digest = $2"
        => [&decided.package, &decided.digest, decided.decision, decided.decided_at, &decided.decided_by, &decided.note, &decided.seal];

    pub(super) async fn set_seal(package: &str, digest: &ArtifactDigest, seal: &str) -> () = run
        "UPDATE package_version SET seal = $3 WHERE package = $1 AND digest = $2 AND decision IS NOT NULL";

    pub(super) async fn newer(package: &str, digest: &ArtifactDigest) -> Vec<ArtifactDigest> = values
        "SELECT digest FROM package_version
        WHERE package = $1 AND digest <> $2
          AND (activated_at > (SELECT v.activated_at FROM package_version v WHERE v.package = $1 AND v.digest = $2)
            OR (activated_at IS NULL AND decision = 'approved')
            OR digest IN (SELECT p.pending_digest FROM package p WHERE p.name = $1)
            OR digest IN (SELECT p.digest FROM package p WHERE p.name = $1))
        ORDER BY digest";

    /// Returns what a person decided about a version; none when there is no decision or no such version.
    pub async fn decision(package: &str, digest: &ArtifactDigest) -> Option<RecordedDecision> = row
        concat!(recorded_decision!(), " AND package = $1 AND digest = $2");

    /// Returns all readable decisions. Unreadable ones can't have been sealed.
    pub async fn decisions() -> Vec<RecordedDecision> = readable_rows
        concat!(recorded_decision!(), " ORDER BY package, digest");

    /// Record a version, if it is new, and its signature, if it has one. The package and the artifact must exist.
    pub(super) async fn add(package: &str, digest: &ArtifactDigest, manifest: &str, signature: Option<&str>, now: Timestamp) -> () = run
        "INSERT INTO package_version (package, digest, manifest, signature, first_seen_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (package, digest) DO UPDATE SET signature = excluded.signature
        WHERE excluded.signature IS NOT NULL AND excluded.signature IS DISTINCT FROM package_version.signature";

    /// Returns the text of the signature of a version; none when it has none.
    pub async fn signature(package: &str, digest: &ArtifactDigest) -> Option<String> = value
        "SELECT signature FROM package_version WHERE package = $1 AND digest = $2 AND signature IS NOT NULL";

    /// Record that a version becomes active, before it does. Does nothing when it is active.
    // Runs before the package's row changes: a host that starts with the active version changes nothing.
    pub(super) async fn record_activation(package: &str, digest: &ArtifactDigest, now: Timestamp) -> () = run
        "UPDATE package_version SET activated_at = $3 WHERE package = $1 AND digest = $2
        AND NOT EXISTS (SELECT 1 FROM package p WHERE p.name = $1 AND p.digest = $2)";

    /// Returns the manifest of a version, JSON.
    pub async fn manifest(package: &str, digest: &ArtifactDigest) -> Option<String> = value
        "SELECT manifest FROM package_version WHERE package = $1 AND digest = $2";

    /// Returns how many launches of a version succeeded and failed, as far as they're sealed.
    pub async fn results(package: &str, digest: &ArtifactDigest) -> Option<(i64, i64)> = row
        "SELECT succeeded, failed FROM package_version WHERE package = $1 AND digest = $2";

    /// Returns all versions of a package, in the order in which they were first seen. Their manifests may take gigabytes together.
    pub async fn of_package(package: &str) -> Vec<Version> = rows
        "SELECT v.digest, a.form, a.size_bytes, a.removed_at,
            v.first_seen_at, v.activated_at, v.decision, v.decided_at, v.decided_by, v.note, v.signature, v.succeeded, v.failed
        FROM package_version v JOIN artifact a ON a.digest = v.digest
        WHERE v.package = $1 ORDER BY v.first_seen_at, v.digest";

    /// Returns all readable decisions, telling which concern an active or pending version.
    pub async fn followed() -> Vec<FollowedDecision> = readable_rows
        "SELECT v.package, v.digest, v.decision, v.decided_at, v.decided_by, v.note, v.seal,
            v.digest IS NOT DISTINCT FROM p.digest AS is_active, v.digest IS NOT DISTINCT FROM p.pending_digest AS is_pending
        FROM package_version v JOIN package p ON p.name = v.package
        WHERE v.decision IS NOT NULL ORDER BY v.package, v.digest";

    /// Adds the results of launches to those of their versions. A version that's no longer on record counts nothing.
    pub async fn add_results(results: &[VersionResults]) -> () = execute_batch
        Batch::new("UPDATE package_version SET succeeded = succeeded + v.column3, failed = failed + v.column4
        FROM (VALUES ($1, $2, $3, $4)) AS v WHERE package_version.package = v.column1 AND package_version.digest = v.column2"),
        results, |row| [&*row.package, &row.digest, row.succeeded, row.failed];

    /// Returns when a person last decided about any version.
    pub async fn last_decided_at() -> Option<Timestamp> = one_value
        "SELECT max(decided_at) FROM package_version";
}
