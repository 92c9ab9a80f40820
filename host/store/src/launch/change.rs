//! What the statements that change launches are given.

use std::borrow::Cow;
use std::time::Duration;

use super::Life;
use crate::task_runs::TaskRun;
use crate::types::storable;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{
    ArtifactDigest, BackfillId, HostId, InputHash, LaunchId, LaunchKind, RunId, ScheduleId,
};
use campanile_model::labels::Labels;
use campanile_model::status::{Decision, FailureKind, LaunchStatus, Overlap};

/// The reason of launches skipped or cancelled for another launch of their schedule.
pub const OVERLAP: &str = "overlap";

/// The reason of launches that an operator ended.
pub const OPERATOR: &str = "operator";

/// When a run is lost later than this after starting, neither it nor runs lost before count towards the recovery limit: whatever
/// ended it wasn't the run itself.
pub const LOSS_COUNTS_WITHIN: Duration = Duration::from_secs(600);

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
    /// A JSON object merged over the schedule's context. Manual and backfill launches only.
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
    /// Returns the decision at `now` to launch a slot of a schedule at this revision. Callers replace the fields in which theirs
    /// differs.
    pub fn of_slot(
        (schedule_id, schedule_revision): (ScheduleId, i64),
        package: String,
        (kind, slot): (LaunchKind, Timestamp),
        now: Timestamp,
    ) -> NewLaunch {
        NewLaunch {
            id: LaunchId::of(schedule_id, slot, kind),
            schedule_id,
            schedule_revision,
            kind,
            scheduled_time: slot,
            utc_offset: 0,
            last_scheduled_time: slot,
            slot_count: 1,
            decision: Decision::Launched,
            reason: None,
            overlaps: None,
            retry_of: None,
            package,
            proposed: false,
            priority: 5,
            group_name: None,
            run_on: None,
            digest: None,
            context: None,
            args: None,
            overlap: None,
            backfill_id: None,
            interval_start: slot,
            fire_time: slot,
            decided_by: None,
            decided_at: now,
        }
    }

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

/// A claim to record.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub launch_id: LaunchId,
    /// One more than the claims before.
    pub fence: i64,
    pub hashes: RunHashes,
}

/// A host's claim without any call so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UncalledClaim {
    pub launch_id: LaunchId,
    pub fence: i64,
    /// Whether the claim began a run rather than continuing one after a retry's pause.
    pub begins_run: bool,
    /// When its lease ends on record. Set if it's unknown whether the claim was recorded, since the launch may have been claimed
    /// again under the same fence.
    pub lease_until: Option<Timestamp>,
    /// No host claims the launch again before this.
    pub not_before: Option<Timestamp>,
}

impl UncalledClaim {
    /// Returns the launch's status before the claim.
    pub(super) fn status(&self) -> LaunchStatus {
        if self.begins_run {
            LaunchStatus::Open
        } else {
            LaunchStatus::Waiting
        }
    }

    pub(super) fn retry_at(&self, now: Timestamp) -> Option<Timestamp> {
        (!self.begins_run).then_some(self.not_before.unwrap_or(now))
    }
}

/// The hashes of what a run uses besides its code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunHashes {
    /// Of the grants of its host's sidecar.
    pub grants: Option<InputHash>,
    /// Of the context, without what the host adds.
    pub context: Option<InputHash>,
}

/// How a run ends on its host.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub run_id: RunId,
    /// The fence under which the host claimed it.
    pub fence: i64,
    pub schedule_id: ScheduleId,
    pub scheduled_time: Timestamp,
    pub at: Timestamp,
    pub end: RunEnd,
    /// Calls not recorded yet.
    pub tasks: Vec<TaskRun>,
}

/// How a run ended on its host.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    Succeeded {
        /// JSON.
        output: Option<String>,
    },
    Failed {
        kind: FailureKind,
        message: String,
    },
    /// It was asked to end.
    Cancelled {
        message: String,
    },
    /// A task is called again later.
    Waiting {
        retry_at: Timestamp,
    },
}

impl Finish {
    /// Returns when the run finished; none when it waits for a retry.
    pub(super) fn finished_at(&self) -> Option<Timestamp> {
        self.end.retry_at().is_none().then_some(self.at)
    }
}

impl RunEnd {
    pub(super) fn status(&self) -> LaunchStatus {
        match self {
            RunEnd::Succeeded { .. } => LaunchStatus::Succeeded,
            RunEnd::Failed { .. } => LaunchStatus::Failed,
            RunEnd::Cancelled { .. } => LaunchStatus::Cancelled,
            RunEnd::Waiting { .. } => LaunchStatus::Waiting,
        }
    }

    pub(super) fn retry_at(&self) -> Option<Timestamp> {
        match self {
            RunEnd::Waiting { retry_at } => Some(*retry_at),
            _ => None,
        }
    }

    /// Returns the reason for a cancelled launch still without one.
    pub(super) fn reason(&self) -> Option<&'static str> {
        matches!(self, RunEnd::Cancelled { .. }).then_some(OVERLAP)
    }

    /// Returns the kind and the message of the failure, as the columns have them.
    pub(super) fn failure(&self) -> (Option<FailureKind>, Option<Cow<'_, str>>) {
        match self {
            RunEnd::Failed { kind, message } => (Some(*kind), Some(storable(message))),
            RunEnd::Cancelled { message } => {
                (Some(FailureKind::Cancelled), Some(storable(message)))
            }
            _ => (None, None),
        }
    }
}

/// What recovery does with one orphaned launch.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveryDecision {
    pub launch_id: LaunchId,
    pub action: RecoveryAction,
    /// If it runs again, no host claims it before this. None lets a pause already begun continue.
    pub not_before: Option<Timestamp>,
}

/// What recovery does with an orphaned launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Open it for another run.
    RunAgain,
    /// Give it up for this reason.
    Abandon(&'static str),
    /// Its delivery is at most once, and its run may have done the work.
    MarkUnknown,
    /// It was asked to end.
    Cancel,
}

impl RecoveryAction {
    /// Returns the status and the reason of a launch that ends.
    pub fn end(self) -> Option<(LaunchStatus, Option<&'static str>)> {
        match self {
            RecoveryAction::RunAgain => None,
            RecoveryAction::Abandon(reason) => Some((LaunchStatus::Abandoned, Some(reason))),
            RecoveryAction::MarkUnknown => Some((LaunchStatus::Unknown, None)),
            RecoveryAction::Cancel => Some((LaunchStatus::Cancelled, Some(OVERLAP))),
        }
    }
}
