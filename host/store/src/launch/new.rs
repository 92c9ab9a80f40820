//! Decisions to insert.

use std::collections::HashSet;

use super::Life;
use super::arrows::insert_new;
use super::finish::RunHashes;
use crate::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, BackfillId, HostId, LaunchId, LaunchKind, ScheduleId};
use campanile_model::labels::Labels;
use campanile_model::status::{Decision, LaunchStatus, Overlap};

/// A decision to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLaunch {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub schedule_revision: i64,
    pub kind: LaunchKind,
    pub scheduled_time: Timestamp,
    /// By how many seconds the clock of the schedule's zone is ahead of UTC.
    pub utc_offset: i64,
    /// The last slot, and the number of slots, when one row stands for a range of skipped slots.
    pub last_scheduled_time: Timestamp,
    pub slot_count: i64,
    pub decision: Decision,
    pub reason: Option<&'static str>,
    /// The launch that it would overlap, when it is skipped for that.
    pub overlaps: Option<LaunchId>,
    /// The launch that an operator asked to run again.
    pub retry_of: Option<LaunchId>,
    pub package: String,
    /// Whether it is a slot of a schedule that its package proposed.
    pub proposed: bool,
    /// 0 to 9; the highest is claimed first.
    pub priority: i64,
    /// The concurrency group of its schedule.
    pub group_name: Option<String>,
    /// The labels that a host must have to claim it.
    pub run_on: Option<Labels>,
    pub digest: Option<ArtifactDigest>,
    /// A JSON object that is merged over the schedule's context. Manual and backfill launches only.
    pub context: Option<String>,
    /// The arguments of a program, a JSON list of templates, in place of the schedule's. Manual launches only.
    pub args: Option<String>,
    /// The overlap policy that a person gave for this launch. Manual launches only.
    pub overlap: Option<Overlap>,
    /// Set for launches of kind `backfill`, and for no others.
    pub backfill_id: Option<BackfillId>,
    pub interval_start: Timestamp,
    pub fire_time: Timestamp,
    pub decided_by: Option<HostId>,
    /// When this launch was decided. The claim of its run is [`LaunchRow::started_at`](super::LaunchRow::started_at).
    pub decided_at: Timestamp,
}

/// The claim of a launch by the host that decides it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewClaim {
    pub host: HostId,
    pub fence: i64,
    pub at: Timestamp,
    pub lease_until: Timestamp,
    pub hashes: RunHashes,
}

impl NewLaunch {
    /// Returns the last slot and the number of slots of a range; `None` for a single slot.
    pub(super) fn range(&self) -> Option<(Timestamp, i64)> {
        (self.slot_count > 1).then_some((self.last_scheduled_time, self.slot_count))
    }

    /// Returns the status of the new row, claimed under `claim` or not.
    pub(super) fn status(&self, claim: Option<&NewClaim>) -> LaunchStatus {
        Life::decided(self.decision, claim.map(|claim| claim.fence)).status
    }

    /// Returns when the new row finished: a skipped launch is over at once.
    pub(super) fn finished_at(&self) -> Option<Timestamp> {
        (self.decision == Decision::Skipped).then_some(self.decided_at)
    }
}

/// Inserts decisions. A slot that already has a decision keeps it.
pub async fn insert(tx: &mut Tx, launches: &[NewLaunch]) -> Result {
    let unclaimed: Vec<_> = launches.iter().map(|launch| (launch, None)).collect();
    insert_claimed(tx, &unclaimed).await?;
    Ok(())
}

/// Inserts decisions, some claimed in the same moment, returning the launches that were inserted.
///
/// A slot that already has a decision keeps it: its launch must not run for the claim given here.
pub async fn insert_claimed(
    tx: &mut Tx,
    launches: &[(&NewLaunch, Option<NewClaim>)],
) -> Result<HashSet<LaunchId>> {
    Ok(insert_new(tx, launches).await?.into_iter().collect())
}
