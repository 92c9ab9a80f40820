//! Pure: forecast what will run, on a simulated clock, with the code that decides it.
//!
//! [`snapshot`] reads a [`SystemSnapshot`] from the database. [`SystemSnapshot::forecast`] goes from one event to the
//! next, like a host without delay, and returns the rows that hosts would record:
//!
//! ```text
//! an end, a slot, a fire time ── plan::plan ── policy::release ── free capacity ── start ── an end …
//! ```
//!
//! Assumptions about what cannot be known:
//!
//! * A launch takes as long as the successful launches of its schedule took, and succeeds.
//! * A launch that is asked to end ignores that: it ends with its grace, or at its own end.
//! * An end comes before the slots of the same moment.
//! * A backfill makes no more launches.
//! * No person and no file changes anything, and every host has every package.
//! * Hosts with the labels that a launch needs have room for it as all others. Without such a host it waits.
//! * In an outage no host lives. Open and running launches are orphaned. The first host after the outage recovers them
//!   before it decides anything.

mod compare;
mod launches;
mod prepare;
mod question;
pub mod report;
mod simulator;
pub mod snapshot;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::settings::RecoveryLimits;
use campanile_model::as_text;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_model::labels::Labels;
use campanile_model::time_text;
use campanile_package::quota::Groups;
use campanile_schedule::policy::{Defaults, Policies};
use campanile_schedule::rule::Rule;
use campanile_store::launch::UnfinishedLaunch;
use campanile_store::schedules::DueSchedule;
use campanile_store::stats::ActiveRun;
use campanile_store::{Decision, LaunchStatus};

pub use compare::{Changes, compare};
pub use prepare::{FIRST_SCHEDULES_MAX, PreparedForecast};
pub use question::GetPlan;

const MINUTE_US: i64 = 60_000_000;

/// How long a launch of a schedule without a successful launch takes.
pub const DURATION_DEFAULT: Duration = Duration::from_secs(1);

/// The state of the system when a forecast begins.
#[derive(Debug, Clone)]
pub struct SystemSnapshot {
    pub now: Timestamp,
    /// How many runs all hosts execute at the same time.
    pub capacity: usize,
    /// The values for what the policies of a schedule leave open.
    pub defaults: Defaults,
    pub recovery: RecoveryLimits,
    /// The concurrency groups, each with the most runs at the same time.
    pub groups: Groups,
    pub schedules: Vec<ScheduleSnapshot>,
}

/// A schedule with its cursor and its unfinished launches.
#[derive(Debug, Clone)]
pub struct ScheduleSnapshot {
    pub name: String,
    /// Its own `next_slot` has a meaning only if the field below is set.
    pub due: DueSchedule,
    pub next_slot: Option<Timestamp>,
    /// No slot of a paused schedule is decided, but its launches continue.
    pub enabled: bool,
    pub rule: Rule,
    pub policies: Policies,
    pub duration_estimate: DurationEstimate,
    /// The labels of `run_on`, when hosts are live and none of them has all: no host claims its launches.
    pub missing_labels: Option<Labels>,
    /// When the first failure ended since which all its launches failed.
    pub failing_since: Option<Timestamp>,
    /// The launches that are not over, each with its active run.
    pub unfinished: Vec<(UnfinishedLaunch, Option<ActiveRun>)>,
}

/// How long the launches of a schedule take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationEstimate {
    pub duration: Duration,
    /// `duration` is the median of so many launches; without any it is a guess.
    pub samples: usize,
}

/// The span of a forecast, and its limits.
#[derive(Debug, Clone)]
pub struct ForecastRequest {
    /// Decisions and starts from this time on and before `to` are reported. It is not before the snapshot's `now`.
    pub from: Timestamp,
    pub to: Timestamp,
    pub outages: Vec<Outage>,
    /// The forecast stops after so many decisions.
    pub rows_max: usize,
}

/// A time without a live host: `from` is included, `to` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Outage {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Outage {
    /// Read an outage such as `2026-11-22T02:00:00Z..2026-11-22T05:00:00Z`. Words such as `yesterday` count from `now`.
    ///
    /// # Errors
    ///
    /// A sentence that says how to write one.
    pub fn read(text: &str, now: Timestamp) -> Result<Outage, String> {
        let fix = "write two times with `..` between them, such as 2026-11-22T02:00:00Z..2026-11-22T05:00:00Z";
        let (from, to) = text.split_once("..").ok_or(fix)?;
        let read =
            |text: &str| time_text::read(text, now).map_err(|error| format!("{error}; {fix}"));
        let outage = Outage {
            from: read(from)?,
            to: read(to)?,
        };
        if outage.to <= outage.from {
            return Err(
                "the outage ends before it starts; write the earlier time first".to_owned(),
            );
        }
        Ok(outage)
    }
}

/// An outage written as `FROM..TO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutageText(pub Outage);

/// Takes words such as `yesterday` relative to this machine's clock.
impl FromStr for OutageText {
    type Err = String;

    fn from_str(text: &str) -> Result<OutageText, String> {
        Outage::read(text, Clock::system().now()).map(OutageText)
    }
}

impl fmt::Display for OutageText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.0.from, self.0.to)
    }
}

as_text!(OutageText);

/// The result of a forecast.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Forecast {
    /// The decisions in order.
    pub rows: Vec<Row>,
    /// The totals of each schedule, in the order of the snapshot.
    pub schedules: Vec<Totals>,
    pub all: Totals,
    /// How many launches are recovered after an outage.
    pub recovered: u64,
    /// Where the forecast stopped at `rows_max`.
    pub cut_at: Option<Timestamp>,
}

/// A decision: its row in the database, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Row {
    /// The index in the schedules of the snapshot.
    #[serde(skip)]
    pub schedule: usize,
    pub id: LaunchId,
    pub kind: LaunchKind,
    pub scheduled_time: Timestamp,
    pub last_scheduled_time: Timestamp,
    pub slot_count: i64,
    pub decided_at: Timestamp,
    /// The first decision; a queued launch may be skipped later.
    pub decision: Decision,
    pub fire_time: Timestamp,
    /// The status at the end of the forecast.
    pub status: LaunchStatus,
    pub reason: Option<Cow<'static, str>>,
    pub overlaps: Option<LaunchId>,
    /// When its first run begins.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub recoveries: i64,
}

impl Row {
    /// Returns how long it waits in the queue and for capacity, from when it could have started.
    pub fn lag(&self) -> Option<Duration> {
        let ready_at = self.fire_time.max(self.decided_at);
        Some(self.started_at?.since(ready_at))
    }
}

/// The totals of a forecast, for one schedule or for all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Totals {
    /// The number of decisions to launch that were not skipped later.
    pub launches: u64,
    /// The number of slots that are not launched, by reason. Each slot of a range counts.
    pub skipped: BTreeMap<Cow<'static, str>, u64>,
    /// The first slot that is launched.
    pub first: Option<Timestamp>,
    /// The next slot after the forecast.
    #[serde(rename = "next_slot")]
    pub next: Option<Timestamp>,
    #[serde(skip)]
    pub starts: BTreeMap<Timestamp, u64>,
    /// The most runs at one time.
    pub peak: usize,
    /// When there were so many first.
    #[serde(skip)]
    pub peak_at: Option<Timestamp>,
    /// The longest wait of a launch in the queue and for capacity.
    #[serde(skip)]
    pub lag: Duration,
    /// The slot of that launch.
    #[serde(skip)]
    pub lag_of: Option<Timestamp>,
}

impl Totals {
    fn count(&mut self, row: &Row) {
        if row.status == LaunchStatus::Skipped {
            let reason = row.reason.clone().unwrap_or_default();
            let slots = u64::try_from(row.slot_count).unwrap_or_default();
            *self.skipped.entry(reason).or_default() += slots;
        } else {
            self.launches += 1;
            self.first = self.first.into_iter().chain([row.scheduled_time]).min();
        }
    }

    fn start(&mut self, now: Timestamp, lag: Duration, slot: Timestamp) {
        let minute = now.micros() - now.micros().rem_euclid(MINUTE_US);
        let minute = Timestamp::from_micros(minute);
        *self.starts.entry(minute).or_default() += 1;
        if lag > self.lag {
            self.lag = lag;
            self.lag_of = Some(slot);
        }
    }

    fn running(&mut self, runs: usize, now: Timestamp) {
        if runs > self.peak {
            self.peak = runs;
            self.peak_at = Some(now);
        }
    }
}
