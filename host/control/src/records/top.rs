//! What the hosts do now, as a record.

use crate::reports::statistics;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admin::host_admin::{self, HostState};
use crate::reports::statistics::Statistics;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_store::launch::{self, LOOKED_AT_MAX, LaunchFilter, LaunchRow};
use campanile_store::stats::{self, NextSlot, OldRun, Unfinished};
use campanile_store::{DbError, LaunchStatus, Tx};

/// The most rows of each table.
const ROWS_MAX: i64 = 10;
/// The statistics are those of this span.
const SPAN: Duration = Duration::from_secs(60);
/// The statuses of launches that did not succeed.
const FAILURES: [LaunchStatus; 3] = [
    LaunchStatus::Failed,
    LaunchStatus::Unknown,
    LaunchStatus::Abandoned,
];

/// What the hosts do at one moment.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct TopReport {
    pub at: Timestamp,
    /// The live hosts that started first, at most ten.
    pub hosts: Vec<LiveHost>,
    pub unfinished: Unfinished,
    /// About the last minute.
    pub last_minute: Statistics,
    /// The runs that started first, at most ten.
    pub runs: Vec<ActiveRun>,
    /// The next slots, at most ten.
    pub next: Vec<DueSchedule>,
    /// The newest launches that failed, were abandoned, or are unknown, at most ten.
    pub failures: Vec<FailedLaunch>,
}

/// A host that serves.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct LiveHost {
    pub name: String,
    pub state: HostState,
    pub version: String,
    pub started_at: Timestamp,
    /// The seconds since its last heartbeat.
    pub heartbeat_age: f64,
}

/// A run that has not ended.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct ActiveRun {
    #[serde(flatten)]
    pub run: OldRun,
    /// The seconds since it started.
    pub age: f64,
}

/// A schedule that is due next.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct DueSchedule {
    #[serde(flatten)]
    pub next: NextSlot,
    /// The seconds until the slot; negative when it is overdue.
    pub due_in: f64,
}

/// A launch that did not succeed.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct FailedLaunch {
    pub launch: LaunchId,
    pub schedule: String,
    pub scheduled_time: Timestamp,
    pub status: LaunchStatus,
    /// The reason, or the kind of the failure.
    pub reason: Option<String>,
    pub message: Option<String>,
}

impl TopReport {
    /// Read what the hosts do at `now`.
    pub async fn read(tx: &mut Tx, now: Timestamp) -> Result<TopReport, DbError> {
        let since = |from: Timestamp| (now.micros() - from.micros()) as f64 / 1e6;
        let filter = LaunchFilter {
            statuses: &FAILURES,
            ..LaunchFilter::default()
        };
        let failures = launch::search(tx, &filter, None, ROWS_MAX, LOOKED_AT_MAX).await?;
        let mut hosts = host_admin::list(tx, false, now).await?;
        hosts.retain(|host| host.ended_at.is_none());
        hosts.sort_by_key(|host| host.started_at);
        hosts.truncate(ROWS_MAX as usize);
        let runs = stats::oldest_runs(tx, ROWS_MAX).await?.into_iter();
        let next = stats::next_slots(tx, ROWS_MAX).await?.into_iter();
        Ok(TopReport {
            at: now,
            unfinished: stats::unfinished_by_status(tx).await?,
            last_minute: statistics::read(tx, now, SPAN).await?,
            hosts: hosts
                .into_iter()
                .map(|host| LiveHost {
                    name: host.name,
                    state: host.state,
                    version: host.version,
                    started_at: host.started_at,
                    heartbeat_age: since(host.heartbeat_at),
                })
                .collect(),
            runs: runs
                .map(|run| ActiveRun {
                    age: since(run.started_at),
                    run,
                })
                .collect(),
            next: next
                .map(|next| DueSchedule {
                    due_in: -since(next.slot),
                    next,
                })
                .collect(),
            failures: failures.rows.into_iter().map(FailedLaunch::from).collect(),
        })
    }
}

impl From<LaunchRow> for FailedLaunch {
    fn from(row: LaunchRow) -> FailedLaunch {
        FailedLaunch {
            launch: row.id,
            schedule: row.schedule,
            scheduled_time: row.scheduled_time,
            status: row.status,
            reason: row
                .reason
                .or(row.failure.map(|failure| failure.to_string())),
            message: row.message,
        }
    }
}
