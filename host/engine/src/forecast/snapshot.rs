//! Read the state from which a forecast begins.

use std::collections::HashMap;
use std::time::Duration;

use super::{CurrentLaunch, DURATION_DEFAULT, DurationEstimate, ScheduleSnapshot, SystemSnapshot};
use crate::Settings;
use crate::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_store::overlap::UnfinishedLaunch;
use campanile_store::packages::PackageRow;
use campanile_store::schedules::{DueSchedule, Schedule};
use campanile_store::stats::{self, ActiveRun};
use campanile_store::{DbError, Tx, hosts, overlap, packages, schedules};

/// A duration estimate uses so many successful launches, among so many of the newest.
const SAMPLES_MAX: i64 = 50;
const CANDIDATES_MAX: i64 = 500;

pub type DurationEstimates = HashMap<ScheduleId, DurationEstimate>;

/// A schedule without a forecast, and why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct OmittedSchedule {
    #[serde(rename = "schedule")]
    pub name: String,
    /// A clause: `it is paused by ada`.
    #[serde(rename = "reason")]
    pub why: String,
}

/// Estimate how long launches take. This is the slowest part of a reading, so read it once for several snapshots.
pub async fn estimate_durations(tx: &mut Tx) -> Result<DurationEstimates, DbError> {
    let mut estimates = DurationEstimates::new();
    for schedule in schedules::list(tx, None, None).await? {
        let id = schedule.state.id;
        let durations = stats::durations(tx, id, SAMPLES_MAX, CANDIDATES_MAX).await?;
        estimates.insert(id, DurationEstimate::from_durations(durations));
    }
    Ok(estimates)
}

/// Read the state at `now`. Each live host works by `settings`; without a live host there is one.
///
/// Also returns the schedules without a forecast.
pub async fn read(
    tx: &mut Tx,
    settings: &Settings,
    estimates: &DurationEstimates,
    now: Timestamp,
) -> Result<(SystemSnapshot, Vec<OmittedSchedule>), DbError> {
    let alive_since = now.minus(settings.lease);
    let live = hosts::live(tx).await?;
    let live = live.iter().filter(|host| host.heartbeat_at >= alive_since);
    let packages = packages::list(tx, None).await?;
    let packages = packages
        .into_iter()
        .map(|package| (package.name.clone(), package));
    let packages: HashMap<String, PackageRow> = packages.collect();
    let listed = schedules::list(tx, None, None).await?;
    let mut unfinished = unfinished(tx, &listed).await?;
    let mut snapshot = SystemSnapshot {
        now,
        capacity: settings.runs_max.saturating_mul(live.count().max(1)),
        defaults: settings.late,
        recovery: settings.recovery,
        schedules: Vec::with_capacity(listed.len()),
    };
    let mut left_out = Vec::new();
    for schedule in listed {
        let unfinished = unfinished.remove(&schedule.state.id).unwrap_or_default();
        let package = packages.get(&schedule.definition.package);
        let name = schedule.definition.name.clone();
        let why = match scheduled(&schedule, package, unfinished) {
            Ok(mut scheduled) => {
                let why = silence(&schedule, &scheduled);
                if let Some(takes) = estimates.get(&schedule.state.id) {
                    scheduled.duration_estimate = *takes;
                }
                snapshot.schedules.push(scheduled);
                why
            }
            Err(error) => Some(format!("this version cannot read it: {error}")),
        };
        left_out.extend(why.map(|why| OmittedSchedule { name, why }));
    }
    Ok((snapshot, left_out))
}

/// Return why the clock launches nothing of a schedule.
fn silence(schedule: &Schedule, scheduled: &ScheduleSnapshot) -> Option<String> {
    let state = &schedule.state;
    if !state.enabled {
        let by = state.paused_by.as_deref();
        let mut why = format!("it is paused by {}", by.unwrap_or("an unknown person"));
        if let Some(until) = state.paused_until {
            why += &format!(" until {until}, and resumes then");
        }
        return Some(why);
    }
    let at_start = scheduled.rule.at_host_start();
    at_start.then(|| "it is launched when a host starts".to_owned())
}

async fn unfinished(
    tx: &mut Tx,
    schedules: &[Schedule],
) -> Result<HashMap<ScheduleId, Vec<CurrentLaunch>>, DbError> {
    let ids: Vec<ScheduleId> = schedules.iter().map(|schedule| schedule.state.id).collect();
    let runs = stats::active_runs(tx).await?;
    let runs: HashMap<LaunchId, ActiveRun> =
        runs.into_iter().map(|run| (run.launch_id, run)).collect();
    let mut unfinished: HashMap<ScheduleId, Vec<CurrentLaunch>> = HashMap::new();
    for launch in overlap::unfinished(tx, &ids).await? {
        let UnfinishedLaunch {
            id, schedule_id, ..
        } = launch;
        let run = runs.get(&id);
        unfinished
            .entry(schedule_id)
            .or_default()
            .push(CurrentLaunch {
                launch,
                started_at: run.map(|run| run.started_at),
                retry_at: run.and_then(|run| run.retry_at),
            });
    }
    Ok(unfinished)
}

/// Return the snapshot of a schedule, with a guess of how long its launches take.
fn scheduled(
    schedule: &Schedule,
    package: Option<&PackageRow>,
    unfinished: Vec<CurrentLaunch>,
) -> Result<ScheduleSnapshot, String> {
    let (rule, policies) = definition::parse(&schedule.definition)?;
    let state = &schedule.state;
    Ok(ScheduleSnapshot {
        name: schedule.definition.name.clone(),
        due: DueSchedule {
            id: state.id,
            revision: state.revision,
            cursor_at: state.cursor_at,
            next_slot: state.next_slot.unwrap_or(state.cursor_at),
            history: state.history.clone(),
            package: schedule.definition.package.clone(),
            digest: package.and_then(|package| package.digest.clone()),
            missing_since: package.and_then(|package| package.missing_since),
        },
        next_slot: state.next_slot,
        enabled: state.enabled,
        rule,
        policies,
        duration_estimate: DurationEstimate::from_durations(Vec::new()),
        unfinished,
    })
}

impl DurationEstimate {
    /// Return the median of `durations`: of an even number the longer of the two in the middle.
    pub fn from_durations(mut durations: Vec<Duration>) -> DurationEstimate {
        durations.sort_unstable();
        DurationEstimate {
            duration: durations
                .get(durations.len() / 2)
                .copied()
                .unwrap_or(DURATION_DEFAULT),
            samples: durations.len(),
        }
    }
}
