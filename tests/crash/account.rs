//! Does the record add up?

use std::collections::BTreeMap;
use std::fmt;

use campanile_schedule::rule::{HashKey, Rule};
use campanile_store::{Decision, LaunchStatus, RunStatus};

use crate::tower::{Effect, Record, is_unfinished};

/// Counts of a record that adds up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    pub schedules: usize,
    pub slots: u64,
    pub launched: usize,
    /// Slots decided against.
    pub skipped: u64,
    pub succeeded: usize,
    pub failed: usize,
    pub abandoned: usize,
    pub unfinished: usize,
    /// Launches that were taken up again.
    pub recovered: usize,
    pub lost_runs: usize,
    pub effects: usize,
    /// Launches with more than one effect.
    pub repeated: usize,
}

impl fmt::Display for Account {
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

/// Check that `record` and the `effects` that were left add up; gives the counts.
///
/// * Every slot of every schedule, from its first to its cursor, has exactly one launch row; a row of a range stands for its slots.
/// * A launch that succeeded has exactly one run that did and one effect or more, one that has not, none that did.
/// * At most one run of a launch has not ended, and only while the launch has not.
/// * Nothing was taken up more than `recoveries_max` times; every run but the first and those after a launch was lost untaken is of a recovery.
///
/// # Panics
///
/// At the first thing that does not, with it.
pub fn check(record: &Record, effects: &[Effect], recoveries_max: i64) -> Account {
    let mut account = Account {
        schedules: record.schedules.len(),
        slots: check_slots(record),
        effects: effects.len(),
        ..Account::default()
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
        let seen = effects_of.remove(id.as_str()).unwrap_or_default();
        let runs = runs_of.remove(&id).unwrap_or_default();
        let what = format!("{launch:?}\n{runs:?}\n{seen:?}");
        if launch.decision == Decision::Skipped {
            account.skipped += u64::try_from(launch.slot_count).expect("a count");
            assert!(
                runs.is_empty() && seen.is_empty(),
                "a skipped slot ran: {what}"
            );
            continue;
        }
        account.launched += 1;
        let count = |state: RunStatus| runs.iter().filter(|run| run.status == state).count();
        let ended_well = count(RunStatus::Succeeded);
        let going_on = count(RunStatus::Running) + count(RunStatus::Waiting);
        account.lost_runs += count(RunStatus::Lost);
        match launch.status {
            LaunchStatus::Succeeded => {
                account.succeeded += 1;
                assert_eq!((ended_well, going_on), (1, 0), "{what}");
                assert!(!seen.is_empty(), "it succeeded without an effect: {what}");
            }
            status => {
                assert_eq!(ended_well, 0, "{what}");
                match status {
                    LaunchStatus::Failed => account.failed += 1,
                    LaunchStatus::Abandoned => account.abandoned += 1,
                    _ => account.unfinished += 1,
                }
                let may_go_on = status != LaunchStatus::Open && is_unfinished(status);
                assert_eq!(going_on, usize::from(may_go_on), "{what}");
            }
        }
        assert!(launch.recoveries <= recoveries_max, "{what}");
        assert!(
            count(RunStatus::Lost) as i64 <= launch.recoveries + 1,
            "{what}"
        );
        if launch.recoveries > 0 {
            account.recovered += 1;
        }
        for (place, run) in runs.iter().enumerate() {
            assert!(place == 0 || run.is_recovery, "{what}");
        }
        for effect in &seen {
            assert_eq!(effect.slot, launch.scheduled_time, "{what}");
        }
        if seen.len() > 1 {
            account.repeated += 1;
        }
    }
    assert!(
        effects_of.is_empty(),
        "effects of no launch: {effects_of:?}"
    );
    account
}

/// Check that every slot of every schedule, from its first to its cursor, has exactly one row; gives how many there are.
///
/// # Panics
///
/// At the first that has not, with its schedule.
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
        for row in rows {
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
        // A pause moves no cursor; while it is enabled the cursor is the last slot decided.
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
