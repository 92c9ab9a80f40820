//! `campanile top`: what the hosts do now.

use std::time::Duration;

use serde::Serialize;

use crate::Common;
use crate::output::{self, Record, Result, optional};
use campanile_engine::audit::{self, Statistics};
use campanile_engine::host_admin::{self, HostState};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_store::launch_list::{self, Filter, LOOKED_AT_MAX};
use campanile_store::launches::LaunchRow;
use campanile_store::stats::{self, NextSlot, OldRun, Unfinished};
use campanile_store::{LaunchStatus, Tx};

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
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct TopReport {
    at: Timestamp,
    /// The live hosts that started first, at most ten.
    hosts: Vec<LiveHost>,
    unfinished: Unfinished,
    /// About the last minute.
    last_minute: Statistics,
    /// The runs that started first, at most ten.
    runs: Vec<ActiveRun>,
    /// The next slots, at most ten.
    next: Vec<DueSchedule>,
    /// The newest launches that failed, were abandoned, or are unknown, at most ten.
    failures: Vec<FailedLaunch>,
}

/// A host that serves.
#[derive(Serialize, schemars::JsonSchema)]
struct LiveHost {
    name: String,
    state: HostState,
    version: String,
    started_at: Timestamp,
    /// The seconds since its last heartbeat.
    heartbeat_age: f64,
}

/// A run that has not ended.
#[derive(Serialize, schemars::JsonSchema)]
struct ActiveRun {
    #[serde(flatten)]
    run: OldRun,
    /// The seconds since it started.
    age: f64,
}

/// A schedule that is due next.
#[derive(Serialize, schemars::JsonSchema)]
struct DueSchedule {
    #[serde(flatten)]
    next: NextSlot,
    /// The seconds until the slot; negative when it is overdue.
    due_in: f64,
}

/// A launch that did not succeed.
#[derive(Serialize, schemars::JsonSchema)]
struct FailedLaunch {
    launch: LaunchId,
    schedule: String,
    scheduled_time: Timestamp,
    status: LaunchStatus,
    /// The reason, or the kind of the failure.
    reason: Option<String>,
    message: Option<String>,
}

impl Record for LiveHost {
    const LIST: &'static str = "name state version started_at heartbeat_age";

    fn text(&self, key: &str) -> Option<String> {
        (key == "heartbeat_age").then(|| span_text(self.heartbeat_age))
    }
}

impl Record for ActiveRun {
    const LIST: &'static str = "launch schedule status host age";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "launch" => Some(self.run.launch.short()),
            "age" => Some(span_text(self.age)),
            _ => None,
        }
    }
}

impl Record for DueSchedule {
    const LIST: &'static str = "schedule slot due_in";

    fn text(&self, key: &str) -> Option<String> {
        (key == "due_in").then(|| span_text(self.due_in))
    }
}

impl Record for FailedLaunch {
    const LIST: &'static str = "launch schedule scheduled_time status reason message";

    fn text(&self, key: &str) -> Option<String> {
        (key == "launch").then(|| self.launch.short())
    }
}

impl From<LaunchRow> for FailedLaunch {
    fn from(row: LaunchRow) -> FailedLaunch {
        let failure = optional(&row.failure);
        FailedLaunch {
            launch: row.id,
            schedule: row.schedule,
            scheduled_time: row.scheduled_time,
            status: row.status,
            reason: row.reason.or(Some(failure).filter(|text| !text.is_empty())),
            message: row.message,
        }
    }
}

impl Record for TopReport {
    fn print(&self) -> Result {
        let Unfinished {
            running,
            open,
            queued,
        } = self.unfinished;
        let Statistics {
            counts,
            rates,
            lag_ms,
            ..
        } = &self.last_minute;
        let average = rates.average_time_ms;
        let average = average.map_or_else(String::new, |ms| format!(", {ms:.0} ms on average"));
        output::print_line!("now          {running} running, {open} open, {queued} queued")?;
        output::print_line!(
            "last minute  {} launches, {} succeeded, {} failed, {} skipped, {} lost{average}, lag p99 {:.0} ms",
            counts.launches,
            counts.succeeded,
            counts.failed,
            counts.skipped,
            rates.lost,
            lag_ms.p99
        )?;
        table(
            "hosts",
            &self.hosts,
            "no host serves; start `campanile serve`",
        )?;
        table("runs", &self.runs, "none")?;
        table("next slots", &self.next, "none")?;
        table("failures", &self.failures, "none")
    }
}

/// Print a table with its title, or `none` when it has no rows.
fn table<R: Record>(title: &str, rows: &[R], none: &str) -> Result {
    if rows.is_empty() {
        return output::print_line!("\n{title}: {none}");
    }
    output::print_line!("\n{title}")?;
    output::print_table(rows)
}

/// Return a number of seconds as people read it.
pub(crate) fn span_text(seconds: f64) -> String {
    let sign = if seconds <= -0.5 { "-" } else { "" };
    let seconds = seconds.abs().round() as u64;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds} s"),
        (0, _) => format!("{sign}{minutes} min {} s", seconds % 60),
        (1..48, _) => format!("{sign}{hours} h {minutes} min"),
        _ => format!("{sign}{} days", hours / 24),
    }
}

/// Print what the hosts do now.
pub(crate) async fn run(common: &Common) -> Result {
    let (mut tx, now) = common.read_with_time().await?;
    common.print(&read(&mut tx, now).await?)
}

async fn read(tx: &mut Tx, now: Timestamp) -> Result<TopReport> {
    let since = |from: Timestamp| (now.micros() - from.micros()) as f64 / 1e6;
    let filter = Filter {
        statuses: &FAILURES,
        ..Filter::default()
    };
    let failures = launch_list::filtered(tx, &filter, None, ROWS_MAX, LOOKED_AT_MAX).await?;
    let mut hosts = host_admin::list(tx, false, now).await?;
    hosts.retain(|host| host.ended_at.is_none());
    hosts.sort_by_key(|host| host.started_at);
    hosts.truncate(ROWS_MAX as usize);
    let runs = stats::oldest_runs(tx, ROWS_MAX).await?.into_iter();
    let next = stats::next_slots(tx, ROWS_MAX).await?.into_iter();
    Ok(TopReport {
        at: now,
        unfinished: stats::unfinished_by_status(tx).await?,
        last_minute: audit::statistics(tx, now, SPAN).await?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_shown_in_two_units_at_most() {
        for (seconds, text) in [
            (0.2, "0 s"),
            (-0.2, "0 s"),
            (59.4, "59 s"),
            (61.0, "1 min 1 s"),
            (-75.0, "-1 min 15 s"),
            (7_260.0, "2 h 1 min"),
            (172_800.0, "2 days"),
        ] {
            assert_eq!(span_text(seconds), text);
        }
    }
}
