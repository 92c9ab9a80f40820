//! Pure: what will run, by the code that decides it, on a simulated clock.
//!
//! [`SystemSnapshot`] is where everything stands; [`record`] reads it from the database. [`SystemSnapshot::forecast`] goes from one
//! moment at which something is to be decided to the next, as a host does that loses no time, and gives the rows that
//! would go on the record:
//!
//! ```text
//! an end, a slot, a fire time ── plan::plan ── policy::release ── a place is free ── start ── an end …
//! ```
//!
//! What cannot be known is assumed:
//!
//! * A launch takes as long as those of its schedule took that succeeded, and succeeds.
//! * One that is asked to end does not listen: it ends when its grace is over, or when it would have ended.
//! * An end comes before the slots of the same moment.
//! * Of a backfill only the launches count that it has made.
//! * Nobody pauses, edits or triggers anything, no package comes or goes, and every host has every package.
//! * In an outage no host lives. What it finds open or running is lost, and recovered by the first host after it,
//!   before that one decides anything.

mod compare;
mod launches;
mod outage;
mod simulator;
pub mod snapshot;
mod totals;

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;

use super::RecoveryLimits;
use super::plan::EffectiveSpec;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_schedule::policy::{Defaults, Policies};
use campanile_schedule::rule::Rule;
use campanile_store::overlap::UnfinishedLaunch;
use campanile_store::schedules::DueSchedule;
use campanile_store::{Decision, LaunchStatus};

pub use compare::{Changes, compare};
pub use totals::Totals;

/// How long a launch takes of a schedule of which none has succeeded yet.
pub const DURATION_DEFAULT: Duration = Duration::from_secs(1);

/// Where everything stands when a forecast begins.
#[derive(Debug, Clone)]
pub struct SystemSnapshot {
    /// The present instant, from which on everything is foretold.
    pub now: Timestamp,
    /// Runs at the same time, of all hosts together.
    pub capacity: usize,
    /// What counts for schedules that do not say it themselves.
    pub defaults: Defaults,
    pub recovery: RecoveryLimits,
    pub schedules: Vec<ScheduleSnapshot>,
}

/// A schedule, where it stands, and what of it is not over.
#[derive(Debug, Clone)]
pub struct ScheduleSnapshot {
    pub name: String,
    /// Where it stands; whether there is a next slot is said by `next_slot`.
    pub due: DueSchedule,
    pub next_slot: Option<Timestamp>,
    /// While it is not, nothing of it is decided, but what runs, runs on.
    pub enabled: bool,
    pub rule: Rule,
    pub policies: Policies,
    pub duration_estimate: DurationEstimate,
    pub unfinished: Vec<CurrentLaunch>,
}

/// How long the launches of a schedule take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationEstimate {
    pub duration: Duration,
    /// Of so many launches that is the median; of none it is a guess.
    pub samples: usize,
}

/// A launch that is not over.
#[derive(Debug, Clone)]
pub struct CurrentLaunch {
    pub launch: UnfinishedLaunch,
    /// When its run began, if it has one.
    pub started_at: Option<Timestamp>,
    /// When a task of it is to be called again, if it waits for that.
    pub retry_at: Option<Timestamp>,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct ForecastRequest {
    /// What is decided or begins from this on, and before `to`, is told. Not before the snapshot's `now`.
    pub from: Timestamp,
    pub to: Timestamp,
    pub outages: Vec<Outage>,
    /// Decisions after which the forecast breaks off.
    pub rows_max: usize,
}

/// A time in which no host lives, from its first instant on and before its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Outage {
    pub from: Timestamp,
    pub to: Timestamp,
}

/// What will run.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The decisions, in the order in which they are made.
    pub rows: Vec<Row>,
    /// Those of each schedule of the snapshot, in the order of it.
    pub schedules: Vec<Totals>,
    /// Those of all schedules together.
    pub all: Totals,
    /// Launches that an outage interrupts and that are run again after it.
    pub recovered: u64,
    /// Where the forecast breaks off, because it came to the most decisions that were asked for.
    pub cut_at: Option<Timestamp>,
}

/// A decision: the row that goes on the record for it, and what becomes of that.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Row {
    /// Which of the snapshot's schedules.
    #[serde(skip)]
    pub schedule: usize,
    pub id: LaunchId,
    pub kind: LaunchKind,
    pub scheduled_time: Timestamp,
    pub last_scheduled_time: Timestamp,
    pub slot_count: i64,
    pub decided_at: Timestamp,
    /// As it is decided; one that is queued may be skipped later.
    pub decision: Decision,
    pub fire_time: Timestamp,
    /// Where it stands when the forecast ends.
    pub status: LaunchStatus,
    pub reason: Option<&'static str>,
    pub overlaps: Option<LaunchId>,
    /// When its first run begins.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub recoveries: i64,
}

impl SystemSnapshot {
    /// What will run, as asked for.
    pub fn forecast(&self, question: &ForecastRequest) -> Forecast {
        simulator::run(self, question)
    }
}

impl ScheduleSnapshot {
    fn effective_spec<'a>(&'a self, defaults: &'a Defaults) -> EffectiveSpec<'a> {
        EffectiveSpec {
            rule: &self.rule,
            policies: &self.policies,
            defaults,
        }
    }
}

impl Row {
    /// How long it waits for its turn and for a place, from when it could have begun.
    pub fn lag(&self) -> Option<Duration> {
        let ready_at = self.fire_time.max(self.decided_at);
        Some(self.started_at?.since(ready_at))
    }
}
