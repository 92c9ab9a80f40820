//! Which of the decisions on record about versions count on this host.
//!
//! Whoever writes the database can write an approval, but can't seal it. They could put back an old row with its seal, though,
//! so this record keeps the decisions against versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{NAMES_MAX, OwnRecord};
use campanile_model::approval_key::ApprovalKey;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_model::status::VersionDecision;

/// A version that an operator rejected or rolled back from. Whoever writes the database can't take that back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DecidedAgainst {
    pub(super) digest: ArtifactDigest,
    decision: VersionDecision,
    decided_at: Timestamp,
}

/// A decision about a version, as the database has it.
#[derive(Clone, Copy, Debug)]
pub struct FoundDecision {
    pub decision: VersionDecision,
    pub decided_at: Timestamp,
    /// Whether this host's key sealed it.
    pub is_sealed: bool,
}

/// What a host makes of the decision on record about a version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountedDecision {
    /// The decision that counts.
    pub decision: Option<VersionDecision>,
    /// Whether the record has an approval that doesn't count.
    pub ignores_approval: bool,
}

impl CountedDecision {
    fn of(decision: Option<VersionDecision>) -> CountedDecision {
        CountedDecision {
            decision,
            ignores_approval: false,
        }
    }
}

impl OwnRecord {
    /// Sets the key that seals decisions about versions.
    #[must_use]
    pub fn with_key(self, key: ApprovalKey) -> OwnRecord {
        OwnRecord { key, ..self }
    }

    /// Returns the key that seals decisions about versions.
    pub fn key(&self) -> &ApprovalKey {
        &self.key
    }

    /// Returns what counts of the decision on record about a version.
    ///
    /// An approval counts if it's sealed and newer than each decision against the version that this host has seen. A
    /// decision against it always counts.
    pub fn counted(
        &self,
        name: &str,
        digest: &ArtifactDigest,
        found: Option<FoundDecision>,
    ) -> CountedDecision {
        let against = self.against(name, digest);
        match found {
            Some(found) if found.decision != VersionDecision::Approved => {
                CountedDecision::of(Some(found.decision))
            }
            Some(found)
                if found.is_sealed
                    && (against.as_ref()).is_none_or(|it| it.decided_at < found.decided_at) =>
            {
                let mut approved = self.lock_approved();
                let approved = approved.entry(name.to_owned()).or_default();
                approved.insert(digest.clone());
                CountedDecision::of(Some(VersionDecision::Approved))
            }
            _ => {
                if let Some(approved) = self.lock_approved().get_mut(name) {
                    approved.remove(digest);
                }
                CountedDecision {
                    decision: against.map(|it| it.decision),
                    ignores_approval: found.is_some(),
                }
            }
        }
    }

    /// Returns what counts when the database has the decision `recorded`; none when its seal must be verified.
    pub fn counted_before(
        &self,
        name: &str,
        digest: &ArtifactDigest,
        recorded: Option<VersionDecision>,
    ) -> Option<CountedDecision> {
        let against = self.against(name, digest);
        let counts = match recorded {
            Some(VersionDecision::Approved) => {
                let approved = self.lock_approved();
                let is_verified = approved.get(name).is_some_and(|of| of.contains(digest));
                return (is_verified && against.is_none()).then(|| CountedDecision::of(recorded));
            }
            Some(_) => recorded,
            None => against.map(|it| it.decision),
        };
        Some(CountedDecision::of(counts))
    }

    /// Keeps a sealed decision against a version, until a newer one approves it.
    pub async fn note_decision(&self, name: &str, digest: &ArtifactDigest, found: FoundDecision) {
        let known = self.against(name, digest).map(|it| it.decided_at);
        let is_newer = known.is_none_or(|known| known < found.decided_at);
        let is_against = found.decision != VersionDecision::Approved;
        if !found.is_sealed || !is_newer || (known.is_none() && !is_against) {
            return;
        }
        self.update(name, |known| {
            known.against.retain(|it| it.digest != *digest);
            if is_against {
                known.against.push(DecidedAgainst {
                    digest: digest.clone(),
                    decision: found.decision,
                    decided_at: found.decided_at,
                });
            }
        })
        .await;
    }

    /// Returns when an operator decided against a version, going by this host's own record.
    pub fn decided_against_at(&self, name: &str, digest: &ArtifactDigest) -> Option<Timestamp> {
        self.against(name, digest).map(|it| it.decided_at)
    }

    fn against(&self, name: &str, digest: &ArtifactDigest) -> Option<DecidedAgainst> {
        let known = self.lock();
        let against = &known.get(name)?.against;
        against.iter().find(|it| it.digest == *digest).cloned()
    }

    fn lock_approved(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<ArtifactDigest>>> {
        let approved = self.approved.lock();
        let mut approved = approved.unwrap_or_else(PoisonError::into_inner);
        if approved.len() >= NAMES_MAX {
            // They are verified again.
            approved.clear();
        }
        approved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPROVED: Option<VersionDecision> = Some(VersionDecision::Approved);
    const REJECTED: Option<VersionDecision> = Some(VersionDecision::Rejected);

    fn found(decision: VersionDecision, at: i64, is_sealed: bool) -> FoundDecision {
        FoundDecision {
            decision,
            decided_at: Timestamp::from_micros(at),
            is_sealed,
        }
    }

    #[tokio::test]
    async fn an_approval_counts_if_it_is_sealed_and_newer_than_what_it_takes_back() {
        let root = tempfile::tempdir().unwrap();
        let open = || OwnRecord::open(&root.path().join("state"), root.path());
        let (record, digest) = (open(), ArtifactDigest::of(b"1"));
        let counted = |record: &OwnRecord, found: FoundDecision| {
            let counted = record.counted("a", &digest, Some(found));
            (counted.decision, counted.ignores_approval)
        };
        let approved = |at, is_sealed| found(VersionDecision::Approved, at, is_sealed);
        let rejected = |at, is_sealed| found(VersionDecision::Rejected, at, is_sealed);
        assert_eq!(record.counted_before("a", &digest, APPROVED), None);
        assert_eq!(counted(&record, approved(5, false)), (None, true));
        assert_eq!(record.counted_before("a", &digest, APPROVED), None);
        assert_eq!(counted(&record, approved(5, true)), (APPROVED, false));
        let before = record.counted_before("a", &digest, APPROVED);
        assert_eq!(before, Some(CountedDecision::of(APPROVED)));
        assert_eq!(record.counted_before("b", &digest, APPROVED), None);
        // Without a seal it counts while it's on record, and isn't remembered.
        assert_eq!(counted(&record, rejected(9, false)), (REJECTED, false));
        record.note_decision("a", &digest, rejected(9, false)).await;
        assert_eq!(counted(&record, approved(5, true)), (APPROVED, false));
        record.note_decision("a", &digest, rejected(9, true)).await;
        assert_eq!(record.counted_before("a", &digest, APPROVED), None);
        // Not even by a restart.
        let record = open();
        for old in [approved(5, true), approved(9, true), approved(10, false)] {
            record.note_decision("a", &digest, old).await;
            assert_eq!(counted(&record, old), (REJECTED, true), "{old:?}");
        }
        let before = record.counted_before("a", &digest, None);
        assert_eq!(before, Some(CountedDecision::of(REJECTED)));
        record.note_decision("a", &digest, approved(10, true)).await;
        let record = open();
        assert_eq!(counted(&record, approved(10, true)), (APPROVED, false));
        let before = record.counted_before("a", &digest, None);
        assert_eq!(before, Some(CountedDecision::of(None)));
    }

    #[tokio::test]
    async fn made_up_versions_do_not_push_out_what_was_seen_here() {
        let root = tempfile::tempdir().unwrap();
        let record = OwnRecord::open(&root.path().join("state"), root.path());
        let digest = ArtifactDigest::of(b"seen");
        record
            .update("a", |known| known.versions.push(digest.clone()))
            .await;
        let rejected = found(VersionDecision::Rejected, 5, true);
        record.note_decision("a", &digest, rejected).await;
        for number in 0..300 {
            let made_up =
                ArtifactDigest::of(&[b"made up ", &i32::to_be_bytes(number)[..]].concat());
            record.note_decision("a", &made_up, rejected).await;
        }
        let approved = found(VersionDecision::Approved, 4, true);
        let counted = record.counted("a", &digest, Some(approved));
        assert_eq!(counted.decision, REJECTED);
    }
}
