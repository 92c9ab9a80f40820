//! Consistency checks of the record.

use std::collections::BTreeMap;
use std::fmt;

use campanile_model::ids::LaunchKind;
use campanile_schedule::rule::{HashKey, Rule};
use campanile_store::{Decision, LaunchStatus, RunStatus};

use crate::site::{Effect, Record};

/// The totals of a consistent record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub schedules: usize,
    pub slots: u64,
    pub launched: usize,
    /// Skipped slots.
    pub skipped: u64,
    pub succeeded: usize,
    pub failed: usize,
    pub abandoned: usize,
    pub unfinished: usize,
    /// Recovered launches.
    pub recovered: usize,
    pub lost_runs: usize,
    pub effects: usize,
    /// Launches with more than one effect.
    pub repeated: usize,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} schedules, {} slots: {} launched ({} succeeded, {} failed, {} abandoned, {} unfinished), {} skipped; \
             {} recovered after {} lost runs; {} effects, {} launches with more than one",
            self.schedules,
            self.slots,
            self.launched,
            self.succeeded,
            self.failed,
            self.abandoned,
            self.unfinished,
            self.skipped,
            self.recovered,
            self.lost_runs,
            self.effects,
            self.repeated
        )
    }
}

/// Check that `record` and the tasks' `effects` are consistent, and return the totals.
///
/// * Every slot of every schedule, from the first to the cursor, has exactly one launch row. A row of a range has several slots.
/// * A successful launch has exactly one successful run and at least one effect. Any other launch has no successful run.
/// * At most one run of a launch is unfinished, and only if the launch is unfinished.
/// * A launch lost at most one run more than `recoveries_max`, and every run after its first run is a recovery.
///
/// # Panics
///
/// At the first inconsistency, with the launch.
pub fn check(record: &Record, effects: &[Effect], recoveries_max: i64) -> Totals {
    let mut totals = Totals {
        schedules: record.schedules.len(),
        slots: check_slots(record),
        effects: effects.len(),
        ..Totals::default()
    };
    let mut effects_of: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in effects {
        effects_of
            .entry(&effect.execution_id)
            .or_default()
            .push(effect);
    }
    let mut runs_of: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for run in &record.runs {
        runs_of
            .entry(run.launch_id.to_string())
            .or_default()
            .push(run);
    }
    for launch in record.all_launches() {
        let id = launch.id.to_string();
        let effects = effects_of.remove(id.as_str()).unwrap_or_default();
        let runs = runs_of.remove(&id).unwrap_or_default();
        let what = format!("{launch:?}\n{runs:?}\n{effects:?}");
        if launch.decision == Decision::Skipped {
            totals.skipped += u64::try_from(launch.slot_count).expect("a count");
            assert!(
                runs.is_empty() && effects.is_empty(),
                "a skipped slot ran: {what}"
            );
            continue;
        }
        totals.launched += 1;
        let count = |state: RunStatus| runs.iter().filter(|run| run.status == state).count();
        let succeeded = count(RunStatus::Succeeded);
        let unfinished = count(RunStatus::Running) + count(RunStatus::Waiting);
        totals.lost_runs += count(RunStatus::Lost);
        match launch.status {
            LaunchStatus::Succeeded => {
                totals.succeeded += 1;
                assert_eq!((succeeded, unfinished), (1, 0), "{what}");
                assert!(
                    !effects.is_empty(),
                    "it succeeded without an effect: {what}"
                );
            }
            status => {
                assert_eq!(succeeded, 0, "{what}");
                match status {
                    LaunchStatus::Failed => totals.failed += 1,
                    LaunchStatus::Abandoned => totals.abandoned += 1,
                    _ => totals.unfinished += 1,
                }
                let has_a_run = matches!(status, LaunchStatus::Running | LaunchStatus::Waiting);
                assert_eq!(unfinished, usize::from(has_a_run), "{what}");
            }
        }
        let lost = count(RunStatus::Lost) as i64;
        let lost_max = recoveries_max + i64::from(launch.status == LaunchStatus::Abandoned);
        assert!(lost <= lost_max, "{what}");
        assert!(lost <= launch.recoveries + 1, "{what}");
        if launch.recoveries > 0 {
            totals.recovered += 1;
        }
        for (index, run) in runs.iter().enumerate() {
            assert!(index == 0 || run.is_recovery, "{what}");
        }
        for effect in &effects {
            assert_eq!(effect.slot, launch.scheduled_time, "{what}");
        }
        if effects.len() > 1 {
            totals.repeated += 1;
        }
    }
    assert!(
        effects_of.is_empty(),
        "effects without a launch: {effects_of:?}"
    );
    totals
}

/// Check that every slot of every schedule, from the first to the cursor, has exactly one row, and return the number of slots.
/// Launches that someone triggered have none.
///
/// # Panics
///
/// At the first slot without exactly one row, with its schedule.
pub fn check_slots(record: &Record) -> u64 {
    let mut slots = 0;
    for schedule in &record.schedules {
        let name = &schedule.definition.name;
        let rule =
            Rule::parse(&schedule.definition.rule, HashKey::of(schedule.state.id)).expect("a rule");
        let rows = record
            .launches
            .get(name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut expected = rule.next(schedule.definition.since);
        let mut last = None;
        for row in rows.iter().filter(|row| row.kind != LaunchKind::Manual) {
            assert_eq!(
                Some(row.scheduled_time),
                expected,
                "{name}: the next slot with a row"
            );
            let mut slot = row.scheduled_time;
            for _ in 1..row.slot_count {
                slot = rule.next(slot).expect("a slot of the range");
            }
            assert_eq!(slot, row.last_scheduled_time, "{name}: the end of a range");
            slots += u64::try_from(row.slot_count).expect("a count");
            last = Some(slot);
            expected = rule.next(slot);
        }
        // The cursor of a schedule is its last decided slot, also while it is paused.
        match last {
            Some(last) => assert_eq!(schedule.state.cursor_at, last, "{name}: the cursor"),
            None => assert!(
                expected.is_none_or(|slot| slot > schedule.state.cursor_at),
                "{name}: slots without a row"
            ),
        }
    }
    slots
}
