//! The life of a launch: what can happen to it in which status, and what follows.
//!
//! ARCHITECTURE.md has the diagram. The statements in `host/store/src/launch/arrows.rs` do the same to a row, which
//! `tests/conformance/launch_life.rs` compares on both databases; a forecast and the random sequences of the tests use this module.

use crate::status::{Decision, LaunchStatus};

/// Beyond this, reopening a launch without a run doesn't count: run numbers fit in one byte, and runs need them.
const UNCLAIMED_RECOVERIES_MAX: i64 = 100;

/// What decides about a launch's further life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "sqlx", derive(sqlx::FromRow))]
pub struct Life {
    pub status: LaunchStatus,
    /// How often it was claimed. Its newest claim has this number as its fence.
    pub attempts: i64,
    /// How often it was reopened.
    pub recoveries: i64,
    /// Runs lost in a row, as far as they count towards the limit of recoveries.
    pub lost_runs: i64,
    /// Whether it was claimed since it was decided or reopened.
    pub has_run: bool,
    /// Whether its run was asked to end.
    pub must_end: bool,
}

/// Something that happens to a launch, unless its life rules that out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrow {
    /// It leaves the queue.
    Release,
    /// A host claims it under this fence.
    Claim { fence: i64 },
    /// Its run ends on its host with this status, or is to continue after a pause.
    Finish { fence: i64, status: LaunchStatus },
    /// Its host gives up a claim that called no task. Such a claim began the run or continued it after a retry's pause.
    HandBack { fence: i64, begins_run: bool },
    /// Its run is asked to end.
    AskToEnd,
    /// Recovery opens it for another run. A run that took long before it was lost doesn't count, nor do those before it.
    Reopen { took_long: bool },
    /// Recovery ends it with this status.
    GiveUp(LaunchStatus),
    /// It ends early, if it has one of these statuses.
    EndEarly(&'static [LaunchStatus]),
    /// It never starts, because its schedule or its backfill ended.
    Withdraw,
}

/// The launches that a displacement ends at once while it asks the running ones to end.
pub const IDLE: &[LaunchStatus] = &[LaunchStatus::Open, LaunchStatus::Waiting];
/// The launches that a displacement ends without asking.
pub const ACTIVE: &[LaunchStatus] = &[
    LaunchStatus::Open,
    LaunchStatus::Running,
    LaunchStatus::Waiting,
];
/// The queued launches.
pub const QUEUED: &[LaunchStatus] = &[LaunchStatus::Queued];
/// The launches that an operator ends at once.
pub const NOT_RUNNING: &[LaunchStatus] = &[
    LaunchStatus::Open,
    LaunchStatus::Queued,
    LaunchStatus::Waiting,
];

impl Life {
    /// Returns the beginning of a life. `fence` is that of a host claiming the launch in the same moment.
    pub fn decided(decision: Decision, fence: Option<i64>) -> Life {
        let (status, claimed) = match decision {
            Decision::Launched if fence.is_some() => (LaunchStatus::Running, fence),
            Decision::Launched => (LaunchStatus::Open, None),
            Decision::Queued => (LaunchStatus::Queued, None),
            Decision::Skipped => (LaunchStatus::Skipped, None),
        };
        Life {
            status,
            attempts: claimed.unwrap_or(0),
            recoveries: 0,
            lost_runs: 0,
            has_run: claimed.is_some(),
            must_end: false,
        }
    }

    /// Returns the life after `arrow`, or `None` if this launch rules it out.
    pub fn after(self, arrow: Arrow) -> Option<Life> {
        use LaunchStatus::{Open, Queued, Running, Skipped, Waiting};

        let is_active = ACTIVE.contains(&self.status);
        let is_current = |fence: i64| self.status == Running && self.attempts == fence;
        match arrow {
            Arrow::Release if self.status == Queued => Some(self.with(Open)),
            Arrow::Claim { fence } if IDLE.contains(&self.status) && self.attempts + 1 == fence => {
                Some(Life {
                    attempts: fence,
                    has_run: true,
                    ..self.with(Running)
                })
            }
            Arrow::Finish { fence, status } if is_current(fence) => Some(self.with(status)),
            Arrow::HandBack { fence, begins_run } if is_current(fence) && !self.must_end => {
                Some(Life {
                    has_run: !begins_run,
                    ..self.with(if begins_run { Open } else { Waiting })
                })
            }
            Arrow::AskToEnd if self.status == Running => Some(Life {
                must_end: true,
                ..self
            }),
            Arrow::Reopen { took_long } if is_active => {
                let counts = self.has_run || self.recoveries < UNCLAIMED_RECOVERIES_MAX;
                Some(Life {
                    recoveries: self.recoveries + i64::from(counts),
                    lost_runs: match self.has_run {
                        true if took_long => 0,
                        lost => self.lost_runs + i64::from(lost),
                    },
                    has_run: false,
                    must_end: false,
                    ..self.with(Open)
                })
            }
            Arrow::GiveUp(status) if is_active => Some(self.with(status)),
            Arrow::EndEarly(from) if from.contains(&self.status) => {
                Some(self.with(self.early_end()))
            }
            Arrow::Withdraw
                if self.status == Queued || (self.status == Open && self.attempts == 0) =>
            {
                Some(self.with(Skipped))
            }
            _ => None,
        }
    }

    /// Returns the status of a launch ending early: skipped if no host ever claimed it.
    pub fn early_end(self) -> LaunchStatus {
        if self.attempts == 0 {
            LaunchStatus::Skipped
        } else {
            LaunchStatus::Cancelled
        }
    }

    fn with(self, status: LaunchStatus) -> Life {
        Life { status, ..self }
    }
}
