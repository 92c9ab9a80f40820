//! The record of a selftest and the effects of its tasks, compared. Pure.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use super::scratch::PERIOD;
use campanile_model::clock::Timestamp;
use campanile_store::launch::LaunchRow;
use campanile_store::runs::RunRow;
use campanile_store::{Decision, LaunchStatus, RunStatus};

/// The reason of a launch that lost as many runs as it may.
const LIMIT_OF_RECOVERY: &str = "recovery_attempts";

/// The record at the end.
#[derive(Default)]
pub(super) struct Record {
    pub launches: Vec<LaunchRow>,
    pub runs: Vec<RunRow>,
}

/// When a fault of a host began.
#[derive(Debug, Clone)]
pub(super) struct FaultTime {
    pub host: String,
    pub at: Timestamp,
}

/// What became of the launches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Totals {
    pub launches: usize,
    /// Slots that a policy skipped.
    pub skipped: i64,
    pub succeeded: usize,
    pub failed: usize,
    /// Launches that lost as many runs as `recovery.max_attempts` allows.
    pub abandoned: usize,
    pub unfinished: usize,
    pub lost_runs: usize,
    /// Lines that the tasks wrote.
    pub effects: usize,
    /// Launches whose effect was repeated in a run that was marked as a recovery, which delivery at least once allows.
    pub repeated: usize,
    /// Launches that succeeded without an effect.
    pub lost: usize,
    /// Launches that succeeded twice, or whose effect was repeated without a mark.
    pub doubled: usize,
}

/// The effects of one launch.
#[derive(Default, Clone, Copy)]
struct Effects {
    first: usize,
    recovery: usize,
}

/// Returns the totals, with a sentence for each wrong launch.
pub(super) fn compare(record: &Record, effects: &str) -> (Totals, Vec<String>) {
    let (mut totals, mut problems) = (Totals::default(), Vec::new());
    let mut effects = effects_of(effects, &mut problems);
    let runs = runs_of(record);
    for launch in &record.launches {
        if launch.decision == Decision::Skipped {
            totals.skipped += launch.slot_count;
            continue;
        }
        let id = launch.id.to_string();
        let effects = effects.remove(&id).unwrap_or_default();
        let runs = runs.get(&id).map(Vec::as_slice).unwrap_or_default();
        if let Some(why) = totals.count(launch, runs, effects) {
            let (schedule, slot) = (&launch.schedule, launch.scheduled_time);
            problems.push(format!("the launch {id} ({schedule}, {slot}) {why}"));
        }
    }
    let unknown = effects.into_keys();
    problems.extend(unknown.map(|id| format!("a task ran for `{id}`, which is no launch")));
    (totals, problems)
}

impl Totals {
    /// Add a launch to the totals. Return its problem, if it has one: a text that follows the name of the launch, such as
    /// `succeeded without its effect`.
    fn count(&mut self, launch: &LaunchRow, runs: &[&RunRow], effects: Effects) -> Option<String> {
        let of = |status: RunStatus| runs.iter().filter(|run| run.status == status).count();
        let succeeded = of(RunStatus::Succeeded);
        self.launches += 1;
        self.lost_runs += of(RunStatus::Lost);
        self.effects += effects.first + effects.recovery;
        self.repeated += usize::from(effects.first + effects.recovery > 1);
        if succeeded > 1 || effects.first > 1 || effects.recovery > runs.len().saturating_sub(1) {
            self.doubled += 1;
            return Some(format!(
                "has {succeeded} runs that succeeded of {}, and {} effects, {} of them marked as those of a recovery",
                runs.len(),
                effects.first + effects.recovery,
                effects.recovery
            ));
        }
        match launch.status {
            LaunchStatus::Succeeded => {
                self.succeeded += 1;
                let has_effect = effects.first + effects.recovery > 0;
                self.lost += usize::from(!has_effect);
                (!has_effect).then(|| "succeeded without its effect".to_owned())
            }
            LaunchStatus::Failed => {
                self.failed += 1;
                let message = launch.message.as_deref().unwrap_or("without a message");
                Some(format!("failed: {message}"))
            }
            LaunchStatus::Abandoned if launch.reason.as_deref() == Some(LIMIT_OF_RECOVERY) => {
                self.abandoned += 1;
                None
            }
            LaunchStatus::Open | LaunchStatus::Running | LaunchStatus::Waiting => {
                self.unfinished += 1;
                Some(format!("has not ended, and is {}", launch.status))
            }
            status => Some(format!(
                "ended as {status}: {}",
                launch.reason.as_deref().unwrap_or("without a reason")
            )),
        }
    }
}

/// Returns the effects by the launch.
fn effects_of(text: &str, problems: &mut Vec<String>) -> HashMap<String, Effects> {
    let mut effects: HashMap<String, Effects> = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [id, _, "first", _] => effects.entry(id.to_owned()).or_default().first += 1,
            [id, _, "recovery", _] => effects.entry(id.to_owned()).or_default().recovery += 1,
            _ => problems.push(format!(
                "a task wrote the line `{line}`, which is none of its own"
            )),
        }
    }
    effects
}

/// Returns the runs by the launch, in the order of their numbers.
fn runs_of(record: &Record) -> BTreeMap<String, Vec<&RunRow>> {
    let mut runs: BTreeMap<String, Vec<&RunRow>> = BTreeMap::new();
    for run in &record.runs {
        runs.entry(run.launch_id.to_string()).or_default().push(run);
    }
    for runs in runs.values_mut() {
        runs.sort_by_key(|run| run.id.number());
    }
    runs
}

/// Returns how long it took from a fault to the next run of each launch that lost its first run by it.
///
/// A launch that lost more runs pauses before the next, so its later runs do not count.
pub(super) fn take_overs(record: &Record, faults: &[FaultTime]) -> Vec<Duration> {
    let mut times = Vec::new();
    for runs in runs_of(record).into_values() {
        let [first, second, ..] = runs[..] else {
            continue;
        };
        let during = first.started_at..=second.started_at;
        let met = |fault: &&FaultTime| {
            first.host.as_deref() == Some(&fault.host) && during.contains(&fault.at)
        };
        if first.status == RunStatus::Lost
            && let Some(fault) = faults.iter().find(met)
        {
            times.push(second.started_at.since(fault.at));
        }
    }
    times
}

/// Returns the longest delay of a launch after each fault: from its slot to the start of its first run.
pub(super) fn delays(record: &Record, faults: &[FaultTime]) -> Vec<Duration> {
    let runs = runs_of(record);
    let mut delays = vec![Duration::ZERO; faults.len()];
    for launch in &record.launches {
        // A slot just before a fault may be decided after it.
        let slot = launch.fire_time.plus(PERIOD);
        let earlier = faults.partition_point(|fault| fault.at <= slot);
        let first = runs
            .get(&launch.id.to_string())
            .and_then(|runs| runs.first());
        if let (Some(fault), Some(first)) = (earlier.checked_sub(1), first) {
            let delay = first.started_at.since(launch.fire_time);
            delays[fault] = delays[fault].max(delay);
        }
    }
    delays
}
