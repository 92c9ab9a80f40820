//! Add, revise and remove schedules in the database until they equal the definitions of a file or a package.

use std::collections::BTreeSet;

use super::diff::diff;
use super::pause::follow_definition;
use super::{
    Changed, Diff, Difference, Result, ScheduleDefinition, ScheduleError, add_all, end, revise,
};
use campanile_model::clock::Timestamp;
use campanile_model::text::{cut_error, printable_line};
use campanile_schedule::rule::{HashKey, Rule};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{DbError, Origin, Tx};

/// A schedule that Campanile would refuse, and why.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[schemars(rename = "RefusedSchedule")]
pub struct Refusal {
    pub schedule: String,
    pub error: String,
}

/// What `reconcile` changed.
#[derive(Default)]
pub struct Reconciled {
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    pub refusals: Vec<Refusal>,
    /// The schedules that differ from the definitions, because one was refused.
    pub different: BTreeSet<String>,
}

/// Lock the schedules that have a name in `wanted`. Compare them, and the `current` ones of a file or a package, with the
/// definitions `wanted`.
pub async fn compare(
    tx: &mut Tx,
    mut current: Vec<Schedule>,
    wanted: &[ScheduleDefinition],
    origin: Origin,
    is_owned: impl Fn(&Schedule) -> bool,
) -> Result<Diff, DbError> {
    let known = current.iter().map(|known| &*known.definition.name);
    let known: BTreeSet<&str> = known.collect();
    let names = wanted.iter().map(|wanted| &*wanted.name);
    let names: Vec<&str> = names.filter(|name| !known.contains(name)).collect();
    schedules::lock_named(tx, &names).await?;
    let held = schedules::named(tx, &names).await?;
    current.extend(held);
    Ok(diff(&current, wanted, origin, is_owned))
}

/// Make the changes in `diff` for a definer of `origin`.
///
/// When one schedule is refused, the others follow, but none is removed: the refused name may mean it.
///
/// # Errors
/// When nothing of the transaction can be kept.
pub async fn reconcile(
    tx: &mut Tx,
    diff: &Diff,
    origin: Origin,
    now: Timestamp,
) -> Result<Reconciled> {
    let mut done = Reconciled::default();
    for (wanted, holder) in &diff.held {
        let refused = ScheduleError::exists(&wanted.name, holder.clone());
        done.note(wanted, Err(refused))?;
    }
    // A proposal whose name is held by someone else is unused, and doesn't count as one of the package's schedules.
    let unused = match origin {
        Origin::Package => done.refusals.len(),
        _ => 0,
    };
    let added = add_all(tx, &diff.added, origin, now).await?;
    for (wanted, added) in diff.added.iter().zip(added) {
        done.added += done.note(wanted, added.map(drop))?;
    }
    for changed in &diff.changed {
        let applied = apply(tx, changed, origin, now).await;
        done.changed += done.note(&changed.wanted, applied)?;
    }
    if done.refusals.len() == unused {
        for schedule in &diff.removed {
            end(tx, schedule, now).await?;
        }
        done.removed = diff.removed.len();
    } else {
        let kept = diff.removed.iter().map(|kept| &kept.definition.name);
        let refused = done.refusals.iter().map(|refusal| &refusal.schedule);
        done.different = refused.chain(kept).cloned().collect();
    }
    Ok(done)
}

/// Revise a schedule, unless only its pause changes, and then pause or resume it.
async fn apply(tx: &mut Tx, changed: &Changed, origin: Origin, now: Timestamp) -> Result {
    let Changed {
        schedule,
        wanted,
        differences,
    } = changed;
    let of_pause = |line: &Difference| line.key == "enabled";
    let is_pause_only = !differences.is_empty() && differences.iter().all(of_pause);
    if !is_pause_only || schedule.state.origin != origin {
        revise(tx, schedule, wanted, origin, now).await?;
    }
    if differences.iter().any(of_pause) {
        follow_definition(tx, wanted, now).await
    } else {
        Ok(())
    }
}

impl Reconciled {
    /// Note a refusal. Return how many schedules were changed: none or one.
    fn note(&mut self, wanted: &ScheduleDefinition, done: Result) -> Result<usize> {
        match done {
            Ok(()) => {
                let rule = Rule::parse(&wanted.rule, HashKey::NONE);
                for note in rule.iter().flat_map(Rule::notes) {
                    tracing::warn!(schedule = %printable_line(&wanted.name), "{note}");
                }
                Ok(1)
            }
            Err(error @ (ScheduleError::Db(_) | ScheduleError::Raced(_))) => Err(error),
            Err(refused) => {
                let (schedule, error) = (wanted.name.clone(), cut_error(refused.to_string()));
                self.refusals.push(Refusal { schedule, error });
                Ok(0)
            }
        }
    }

    /// Returns what changed, if anything did.
    pub fn text(&self) -> Option<String> {
        let (added, changed, removed) = (self.added, self.changed, self.removed);
        let any = added + changed + removed > 0;
        any.then(|| format!("{added} added, {changed} changed, {removed} removed"))
    }
}
