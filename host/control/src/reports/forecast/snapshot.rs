//! Read the state from which a forecast begins.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{
    DURATION_DEFAULT, DurationEstimate, ForecastRequest, ScheduleSnapshot, SystemSnapshot,
};
use crate::schedules::definition;
use crate::settings::Settings;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_model::labels::Labels;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::Rule;
use campanile_store::hosts::{self, Host};
use campanile_store::launch::{self, UnfinishedLaunch};
use campanile_store::packages::{self, ActiveVersion};
use campanile_store::schedules::{self, DueSchedule, Schedule, ScheduleState};
use campanile_store::stats::{self, ActiveRun};
use campanile_store::{DbError, Tx, troubles};

/// The most successful launches that a duration estimate uses, and the number of newest launches among which it looks for
/// them.
pub(super) const SAMPLES: (i64, i64) = (50, 500);
/// The same for the beginning of a forecast.
pub(super) const FIRST_SAMPLES: (i64, i64) = (11, 50);
/// So many schedules, the first by name, are in a forecast although they may have no slot in its span.
const LISTED_MAX: i64 = 1_000;

pub type DurationEstimates = HashMap<ScheduleId, DurationEstimate>;

/// A schedule without a forecast, and why.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct OmittedSchedule {
    #[serde(rename = "schedule")]
    pub name: String,
    /// A clause: `it is paused by ada`.
    #[serde(rename = "reason")]
    pub why: String,
}

/// Returns the schedules that a forecast for `request` needs, by name.
///
/// These are the ones with a slot in that span or with an unfinished launch, the ones called `names`, and the first
/// 1,000 by name. The forecast stops after `rows_max` decisions, so it needs no more schedules with a slot.
pub async fn needed(
    tx: &mut Tx,
    request: &ForecastRequest,
    names: &[&str],
) -> Result<Vec<Schedule>, DbError> {
    let rows_max = i64::try_from(request.rows_max).unwrap_or(i64::MAX);
    let ids = schedules::with_slot_or_launch(tx, request.to, rows_max, LISTED_MAX).await?;
    let mut needed = schedules::with_ids(tx, &ids).await?;
    let known: HashSet<&str> = needed.iter().map(|known| &*known.definition.name).collect();
    let others = names.iter().copied().filter(|name| !known.contains(name));
    let others: Vec<&str> = others.collect();
    needed.extend(schedules::named(tx, &others).await?);
    needed.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
    Ok(needed)
}

/// Returns the schedules that the beginning of a forecast needs, by name: those with a slot before `until`, at most `limit`
/// of them, those with an unfinished launch, and the first `listed` by name.
pub async fn needed_first(
    tx: &mut Tx,
    until: Timestamp,
    limit: i64,
    listed: i64,
) -> Result<Vec<Schedule>, DbError> {
    let ids = schedules::with_next_slot_or_launch(tx, until, limit, listed).await?;
    let mut needed = schedules::with_ids(tx, &ids).await?;
    needed.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
    Ok(needed)
}

/// Estimates how long the launches of schedules take: by up to `samples` that succeeded, among the newest `candidates` of each.
/// Launches of backfills count only where there are no others.
/// This is the slowest part of a snapshot: call it once for several snapshots.
pub async fn estimate_durations(
    tx: &mut Tx,
    schedules: &[Schedule],
    (samples, candidates): (i64, i64),
) -> Result<DurationEstimates, DbError> {
    let mut estimates = DurationEstimates::new();
    for schedule in schedules {
        let id = schedule.state.id;
        let mut successes = stats::successes(tx, id, samples, candidates).await?;
        if successes.is_empty() {
            // A backfill may have another context, but it says more than a guess.
            successes = troubles::backfilled(tx, id, samples, candidates).await?;
        }
        let durations = successes.iter().map(|(start, end)| end.since(*start));
        let estimate = DurationEstimate::from_durations(durations.collect());
        estimates.insert(id, estimate);
    }
    Ok(estimates)
}

/// Read the state of `schedules` at `now`, and which of them have no forecast.
///
/// Each live host is assumed to have these `settings`. Without a live host, one is assumed.
pub async fn read(
    tx: &mut Tx,
    settings: &Settings,
    estimates: &DurationEstimates,
    schedules: &[Schedule],
    now: Timestamp,
) -> Result<(SystemSnapshot, Vec<OmittedSchedule>), DbError> {
    let live = hosts::live(tx).await?;
    let live = live
        .into_iter()
        .filter(|host| host.is_alive(now) && host.drained_at.is_none());
    let live: Vec<Host> = live.collect();
    let packages = packages::active_versions(tx).await?.into_iter();
    let packages = packages.map(|package| (package.name.clone(), package));
    let packages: HashMap<String, ActiveVersion> = packages.collect();
    let ids = Vec::from_iter(schedules.iter().map(|schedule| schedule.state.id));
    let mut unfinished = unfinished(tx, &ids).await?;
    let streaks = troubles::streaks(tx, &ids).await?.into_iter();
    let failing: HashMap<_, _> = streaks
        .filter_map(|it| Some((it.schedule_id, it.failing_since?)))
        .collect();
    let mut snapshot = SystemSnapshot {
        now,
        capacity: settings.runs_max.saturating_mul(live.len().max(1)),
        defaults: settings.late,
        recovery: settings.recovery,
        groups: settings.groups.clone(),
        schedules: Vec::with_capacity(schedules.len()),
    };
    let mut left_out = Vec::new();
    for Schedule { state, definition } in schedules {
        let parsed = definition::parse(definition);
        let why = match &parsed {
            Ok((rule, _)) => why_omitted(state, rule),
            Err(error) => Some(format!("this version cannot read it: {error}")),
        };
        let name = definition.name.clone();
        left_out.extend(why.map(|why| OmittedSchedule { name, why }));
        let Ok((rule, policies)) = parsed else {
            continue;
        };
        let package = packages.get(&definition.package);
        let estimate = estimates.get(&state.id).copied();
        snapshot.schedules.push(ScheduleSnapshot {
            name: definition.name.clone(),
            due: DueSchedule {
                id: state.id,
                revision: state.revision,
                cursor_at: state.cursor_at,
                next_slot: state.next_slot.unwrap_or(state.cursor_at),
                history: state.history.clone(),
                origin: state.origin,
                package: definition.package.clone(),
                digest: package.and_then(|package| package.digest.clone()),
                version_decision: None,
                missing_since: package.and_then(|package| package.missing_since),
            },
            next_slot: state.next_slot,
            enabled: state.enabled,
            missing_labels: missing_labels(&live, &policies),
            failing_since: failing.get(&state.id).copied(),
            rule,
            policies,
            duration_estimate: estimate
                .unwrap_or_else(|| DurationEstimate::from_durations(Vec::new())),
            unfinished: unfinished.remove(&state.id).unwrap_or_default(),
        });
    }
    Ok((snapshot, left_out))
}

/// Pure: return the labels that the launches of a schedule need, if no host of `live` has all. Without a live host, one with all
/// labels is assumed.
fn missing_labels(live: &[Host], policies: &Policies) -> Option<Labels> {
    let needed = policies.run_on.as_ref()?;
    let is_met = live.iter().any(|host| host.labels.satisfy(Some(needed)));
    (!live.is_empty() && !is_met).then(|| needed.clone())
}

/// Returns why the clock launches nothing of a schedule.
fn why_omitted(state: &ScheduleState, rule: &Rule) -> Option<String> {
    if state.enabled {
        let at_start = rule.at_host_start();
        return at_start.then(|| "it is launched when a host starts".to_owned());
    }
    let by = state.paused_by.as_deref();
    let mut why = format!("it is paused by {}", by.unwrap_or("an unknown person"));
    if let Some(until) = state.paused_until {
        why += &format!(" until {until}, and resumes then");
    }
    Some(why)
}

async fn unfinished(
    tx: &mut Tx,
    ids: &[ScheduleId],
) -> Result<HashMap<ScheduleId, Vec<(UnfinishedLaunch, Option<ActiveRun>)>>, DbError> {
    let runs = stats::active_runs(tx).await?;
    let runs: HashMap<LaunchId, ActiveRun> =
        runs.into_iter().map(|run| (run.launch_id, run)).collect();
    let mut unfinished: HashMap<_, Vec<_>> = HashMap::new();
    for launch in launch::unfinished(tx, ids).await? {
        let run = runs.get(&launch.id).copied();
        let of_schedule = unfinished.entry(launch.schedule_id).or_default();
        of_schedule.push((launch, run));
    }
    Ok(unfinished)
}

impl DurationEstimate {
    /// Returns the median of `durations`: of an even number the longer of the two in the middle.
    pub fn from_durations(mut durations: Vec<Duration>) -> DurationEstimate {
        durations.sort_unstable();
        let samples = durations.len();
        let median = durations.get(samples / 2).copied();
        DurationEstimate {
            duration: median.unwrap_or(DURATION_DEFAULT),
            samples,
        }
    }
}
