//! Applying a schedules file on request.

use crate::admin::schedule_admin::{
    self, Diff, Reconciled, Refusal, ScheduleDefinition, ScheduleError,
};
use campanile_model::clock::Timestamp;
use campanile_store::events::EventKind;
use campanile_store::schedules::{self, Schedule};
use campanile_store::{DbError, Origin, Tx, changes};

/// Returns what applying a schedules file would change, along with its refused definitions.
///
/// Actually makes the changes, relying on the caller for abandoning the transaction.
pub async fn rehearse(
    tx: &mut Tx,
    wanted: &[ScheduleDefinition],
    now: Timestamp,
) -> Result<(Diff, Vec<Refusal>), ScheduleError> {
    let (mut diff, Reconciled { refusals, .. }) = make_changes(tx, wanted, now).await?;
    let is_accepted = |name: &str| refusals.iter().all(|refused| refused.schedule != name);
    diff.added.retain(|wanted| is_accepted(&wanted.name));
    diff.changed
        .retain(|changed| is_accepted(&changed.wanted.name));
    if !refusals.is_empty() {
        diff.removed.clear();
    }
    Ok((diff, refusals))
}

/// Applies the definitions `wanted` of the file `shown` on behalf of `by`, returning the changes.
///
/// # Errors
/// Fails if any schedule is refused. Callers must then abandon the transaction, keeping everything as it was.
pub async fn apply_for(
    tx: &mut Tx,
    shown: &str,
    wanted: &[ScheduleDefinition],
    by: &str,
    now: Timestamp,
) -> Result<Diff, ScheduleError> {
    let (diff, applied) = make_changes(tx, wanted, now).await?;
    if let Some(Refusal { schedule, error }) = applied.refusals.first() {
        return Err(ScheduleError::Refused(format!(
            "the schedule `{schedule}` of {shown} is refused, so nothing was changed: {error}; `campanile schedule check \
             {shown}` lists all that is refused"
        )));
    }
    if let Some(what) = applied.text() {
        let detail = format!("{what}, by {by}");
        changes::record(tx, now, EventKind::SchedulesFileApplied, shown, &detail).await?;
    }
    Ok(diff)
}

/// Adds, revises and removes schedules until they match `wanted`.
async fn make_changes(
    tx: &mut Tx,
    wanted: &[ScheduleDefinition],
    now: Timestamp,
) -> Result<(Diff, Reconciled), ScheduleError> {
    let diff = lock_and_compare(tx, wanted).await?;
    let reconciled = schedule_admin::reconcile(tx, &diff, Origin::File, now).await?;
    Ok((diff, reconciled))
}

/// Locks all schedules affected by a schedules file, returning the differences from `wanted`.
pub async fn lock_and_compare(tx: &mut Tx, wanted: &[ScheduleDefinition]) -> Result<Diff, DbError> {
    schedules::lock_defined_by_file(tx).await?;
    let current = schedules::defined_by_file(tx).await?;
    let is_owned = |schedule: &Schedule| schedule.state.origin == Origin::File;
    schedule_admin::compare(tx, current, wanted, Origin::File, is_owned).await
}
